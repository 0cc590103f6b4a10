//! The supplier table.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Int32Array, RecordBatch, StringViewBuilder};
use tpchgen::random::{RandomAlphaNumeric, RandomPhoneNumber};

use super::SsbTable;
use super::customer::{ADDRESS_CHARS, append};
use super::place::Places;
use super::schema::record_batch;
use super::streams::{int_stream, stream_seed};

const ADDRESS_SEED: i64 = 706_178_559;
const NATION_SEED: i64 = 110_356_601;
const CITY_SEED: i64 = 1_606_203_977;
const PHONE_SEED: i64 = 884_434_366;

/// Suppliers `rows.start + 1` to `rows.end` by key.
pub(super) fn batch(seed: u64, rows: Range<u64>) -> RecordBatch {
    let places = Places::new();
    let first = rows.start;
    let nations = (0, places.nation_count() - 1);
    let mut nation_stream = int_stream(NATION_SEED, seed, nations, 1, first);
    let mut city_stream = int_stream(CITY_SEED, seed, (0, 9), 1, first);
    let mut addresses = RandomAlphaNumeric::new(stream_seed(ADDRESS_SEED, seed), ADDRESS_CHARS);
    let mut phones = RandomPhoneNumber::new(stream_seed(PHONE_SEED, seed));
    addresses.advance_rows(first as i64);
    phones.advance_rows(first as i64);

    let [
        mut name,
        mut address,
        mut city,
        mut nation,
        mut region,
        mut phone,
    ] = std::array::from_fn(|_| StringViewBuilder::new());
    let mut text = String::new();
    for row in rows.clone() {
        let nation_idx = nation_stream.next_value();
        append(
            &mut name,
            &mut text,
            format_args!("Supplier#{:09}", row + 1),
        );
        append(
            &mut address,
            &mut text,
            format_args!("{}", addresses.next_value()),
        );
        city.append_value(places.city(nation_idx, city_stream.next_value()));
        nation.append_value(places.nation(nation_idx));
        region.append_value(places.region(nation_idx));
        let number = phones.next_value(i64::from(nation_idx));
        append(&mut phone, &mut text, format_args!("{number}"));
        addresses.row_finished();
    }
    let keys = Int32Array::from_iter_values(rows.map(|row| row as i32 + 1));
    record_batch(
        SsbTable::Supplier,
        vec![
            Arc::new(keys),
            Arc::new(name.finish()),
            Arc::new(address.finish()),
            Arc::new(city.finish()),
            Arc::new(nation.finish()),
            Arc::new(region.finish()),
            Arc::new(phone.finish()),
        ],
    )
}
