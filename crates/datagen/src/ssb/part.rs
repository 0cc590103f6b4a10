//! The part table: manufacturer, category and brand nest as `MFGR#2`, `MFGR#22`, `MFGR#2221`.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Int32Array, RecordBatch, StringViewBuilder};
use tpchgen::distribution::Distributions;
use tpchgen::random::{RandomString, RandomStringSequence};

use super::SsbTable;
use super::customer::append;
use super::schema::record_batch;
use super::streams::{int_stream, stream_seed};

/// Colours drawn per part without repetition: the first is `p_color`, the other two make up `p_name`.
const COLORS_PER_PART: i32 = 3;

const COLOR_SEED: i64 = 709_314_158;
const MFGR_SEED: i64 = 358_261_547;
const CATEGORY_SEED: i64 = 1_274_893_061;
const BRAND_SEED: i64 = 46_831_694;
const TYPE_SEED: i64 = 1_841_581_359;
const SIZE_SEED: i64 = 1_193_163_244;
const CONTAINER_SEED: i64 = 727_633_698;

/// Parts `rows.start + 1` to `rows.end` by key.
pub(super) fn batch(seed: u64, rows: Range<u64>) -> RecordBatch {
    let words = Distributions::static_default();
    let first = rows.start;
    let mut mfgr_stream = int_stream(MFGR_SEED, seed, (1, 5), 1, first);
    let mut category_stream = int_stream(CATEGORY_SEED, seed, (1, 5), 1, first);
    let mut brand_stream = int_stream(BRAND_SEED, seed, (1, 40), 1, first);
    let mut size_stream = int_stream(SIZE_SEED, seed, (1, 50), 1, first);
    let mut colors = RandomStringSequence::new(
        stream_seed(COLOR_SEED, seed),
        COLORS_PER_PART,
        words.part_colors(),
    );
    let mut types = RandomString::new(stream_seed(TYPE_SEED, seed), words.part_types());
    let mut containers =
        RandomString::new(stream_seed(CONTAINER_SEED, seed), words.part_containers());
    colors.advance_rows(first as i64);
    types.advance_rows(first as i64);
    containers.advance_rows(first as i64);

    let [
        mut name,
        mut mfgr,
        mut category,
        mut brand,
        mut color,
        mut kind,
        mut container,
    ] = std::array::from_fn(|_| StringViewBuilder::new());
    let mut size = Vec::with_capacity((rows.end - rows.start) as usize);
    let mut text = String::new();
    for _ in rows.clone() {
        let words = colors.next_value().to_string();
        let (color_word, name_words) = words.split_once(' ').unwrap_or((&words, ""));
        color.append_value(color_word);
        name.append_value(name_words);
        let [m, c, b] = [&mut mfgr_stream, &mut category_stream, &mut brand_stream]
            .map(|stream| stream.next_value());
        append(&mut mfgr, &mut text, format_args!("MFGR#{m}"));
        append(&mut category, &mut text, format_args!("MFGR#{m}{c}"));
        append(&mut brand, &mut text, format_args!("MFGR#{m}{c}{b}"));
        kind.append_value(types.next_value());
        size.push(size_stream.next_value());
        container.append_value(containers.next_value());
        colors.row_finished();
    }
    let keys = Int32Array::from_iter_values(rows.map(|row| row as i32 + 1));
    record_batch(
        SsbTable::Part,
        vec![
            Arc::new(keys),
            Arc::new(name.finish()),
            Arc::new(mfgr.finish()),
            Arc::new(category.finish()),
            Arc::new(brand.finish()),
            Arc::new(color.finish()),
            Arc::new(kind.finish()),
            Arc::new(Int32Array::from(size)),
            Arc::new(container.finish()),
        ],
    )
}
