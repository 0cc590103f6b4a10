//! How much memory batches take, and batches that take no more than their rows need.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::dictionary::garbage_collect_any_dictionary;
use arrow_select::take::take;

/// What a column takes besides its buffers.
const COLUMN_BYTES: u64 = 256;
/// A batch is copied if it keeps more than its rows need, and this many bytes.
const WASTE_BYTES_MIN: u64 = 16 << 10;

/// Rows that are worked on at once, and their bytes.
pub(crate) const PIECE_ROWS: usize = 8192;
const PIECE_BYTES: u64 = 4 << 20;

/// The memory that a batch keeps alive, in bytes: whole buffers, each counted once.
pub fn held_bytes(batch: &RecordBatch) -> u64 {
    columns_bytes(batch.columns())
}

/// The memory that columns keep alive, in bytes: whole buffers, each counted once.
pub(crate) fn columns_bytes(columns: &[ArrayRef]) -> u64 {
    let mut seen = HashSet::new();
    let columns = columns.iter();
    columns
        .map(|column| COLUMN_BYTES + buffers_bytes(&column.to_data(), &mut seen))
        .sum()
}

fn buffers_bytes(data: &ArrayData, seen: &mut HashSet<usize>) -> u64 {
    let mut bytes_of = |buffer: &Buffer| match seen.insert(buffer.data_ptr().as_ptr() as usize) {
        true => buffer.capacity() as u64,
        false => 0,
    };
    let own: u64 = data.buffers().iter().map(&mut bytes_of).sum();
    let nulls = data.nulls().map_or(0, |nulls| bytes_of(nulls.buffer()));
    let children = data.child_data().iter();
    own + nulls
        + children
            .map(|child| buffers_bytes(child, seen))
            .sum::<u64>()
}

/// The memory that the rows of a batch need, in bytes.
pub fn needed_bytes(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    columns
        .map(|column| COLUMN_BYTES + column_bytes(column))
        .sum()
}

/// The memory that the rows of a column need, in bytes.
pub(crate) fn column_bytes(column: &ArrayRef) -> u64 {
    match column.data_type() {
        DataType::Utf8View => views_bytes(column.as_string_view().views()),
        DataType::BinaryView => views_bytes(column.as_binary_view().views()),
        _ => {
            let bytes = column.to_data().get_slice_memory_size();
            bytes.unwrap_or_else(|_| column.get_buffer_memory_size()) as u64
        }
    }
}

/// Views and the values that are too long to be inside of them.
fn views_bytes(views: &[u128]) -> u64 {
    size_of_val(views) as u64 + outside_bytes(views)
}

/// The values that are too long to be inside of their views.
fn outside_bytes(views: &[u128]) -> u64 {
    let lengths = views.iter().map(|&view| u64::from(view as u32));
    lengths.filter(|&len| len > 12).sum()
}

/// A batch of the same rows that keeps little more alive than they need.
///
/// # Errors
/// Arrow could not copy a column.
pub fn own(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (held, needed) = (held_bytes(&batch), needed_bytes(&batch));
    if held <= needed + needed / 2 + WASTE_BYTES_MIN {
        return Ok(batch);
    }
    let rows = UInt32Array::from_iter_values(0..batch.num_rows() as u32);
    map_columns(&batch, |column| compact(&take(column, &rows, None)?))
}

/// The same rows with texts in buffers of their own where those they have are much larger: operators that join batches
/// give each its own buffers, of a size that has little to do with what is in them.
///
/// # Errors
/// Arrow could not copy a column.
pub fn with_small_buffers(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let is_wasteful = |column: &ArrayRef| {
        let (views, buffers) = match column.data_type() {
            DataType::Utf8View => {
                let texts = column.as_string_view();
                (texts.views(), texts.data_buffers())
            }
            DataType::BinaryView => {
                let texts = column.as_binary_view();
                (texts.views(), texts.data_buffers())
            }
            _ => return false,
        };
        let held: u64 = buffers.iter().map(|buffer| buffer.capacity() as u64).sum();
        let used = outside_bytes(views);
        held > used + used / 4 + WASTE_BYTES_MIN
    };
    match batch.columns().iter().any(is_wasteful) {
        true => map_columns(&batch, |column| match is_wasteful(column) {
            true => compact(column),
            false => Ok(Arc::clone(column)),
        }),
        false => Ok(batch),
    }
}

/// The same columns under another schema of the same types, with its names and metadata.
pub(crate) fn with_schema(
    batch: RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let (_, columns, _) = batch.into_parts();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// A batch whose strings and dictionaries have no values that no row has.
pub(crate) fn without_unused_values(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    map_columns(batch, compact)
}

/// A column without the values that no row has. Slices and selections of views and dictionaries keep all values.
pub(crate) fn compact(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        DataType::Dictionary(..) => garbage_collect_any_dictionary(column.as_any_dictionary())?,
        _ => Arc::clone(column),
    })
}

fn map_columns(
    batch: &RecordBatch,
    map: impl Fn(&ArrayRef) -> Result<ArrayRef, ArrowError>,
) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(map).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// How many rows of a batch are worked on at once.
pub(crate) fn piece_rows(batch: &RecordBatch) -> usize {
    let row_bytes = needed_bytes(batch) / batch.num_rows().max(1) as u64;
    (PIECE_BYTES / row_bytes.max(1)).clamp(1, PIECE_ROWS as u64) as usize
}

/// A batch in pieces of that many rows.
pub(crate) fn pieces(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    slices(batch, piece_rows(batch))
}

/// A batch in parts of at most this many rows.
pub fn slices(batch: &RecordBatch, rows: usize) -> impl Iterator<Item = RecordBatch> + '_ {
    let rows = rows.max(1);
    let starts = (0..batch.num_rows()).step_by(rows);
    starts.map(move |start| batch.slice(start, rows.min(batch.num_rows() - start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::batch;

    #[test]
    fn a_slice_holds_the_whole_and_needs_its_rows_until_it_is_copied() {
        let whole = batch(10_000, 0, 7);
        let slice = whole.slice(5_000, 100);
        assert_eq!(held_bytes(&slice), held_bytes(&whole));
        assert!(needed_bytes(&slice) < held_bytes(&slice) / 20);
        let owned = own(slice.clone()).unwrap();
        assert_eq!(owned, slice);
        assert!(held_bytes(&owned) < held_bytes(&slice) / 10);
    }

    #[test]
    fn texts_leave_buffers_that_are_much_larger() {
        let whole = batch(10_000, 0, 7);
        let view = |batch: &RecordBatch| {
            batch
                .column_by_name("view")
                .unwrap()
                .get_buffer_memory_size()
        };
        let kept = with_small_buffers(whole.clone()).unwrap();
        assert_eq!(view(&kept), view(&whole));
        let slice = whole.slice(5_000, 100);
        let small = with_small_buffers(slice.clone()).unwrap();
        assert_eq!(small, slice);
        assert!(view(&small) < 16_000 && view(&slice) > 100_000);
    }

    #[test]
    fn buffers_that_columns_share_are_counted_once() {
        let one = batch(1000, 0, 7).project(&[0]).unwrap();
        let twice = batch(1000, 0, 7).project(&[0, 0]).unwrap();
        assert_eq!(held_bytes(&twice), held_bytes(&one) + COLUMN_BYTES);
    }
}
