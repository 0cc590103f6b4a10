//! Rows of many batches, picked one by one.
//!
//! Columns of numbers are kept as slices of their values, so that picking a row takes two loads per column. What other
//! columns need is found again for every batch that is made.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray, make_array};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::{ArrayDataBuilder, MAX_INLINE_VIEW_LEN};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::interleave::interleave;

use super::order::Entry;

/// Where rows are picked from.
pub(super) struct Gather {
    schema: SchemaRef,
    columns: Vec<Column>,
}

/// One column of all batches.
enum Column {
    OneByte(Numbers<u8>),
    TwoBytes(Numbers<u16>),
    FourBytes(Numbers<u32>),
    EightBytes(Numbers<u64>),
    SixteenBytes(Numbers<u128>),
    Texts(Vec<StringViewArray>),
    Others(Vec<ArrayRef>),
}

/// Values of a fixed width, whatever they mean.
struct Numbers<T: ArrowNativeType> {
    data_type: DataType,
    values: Vec<ScalarBuffer<T>>,
    /// Empty: no row is NULL.
    nulls: Vec<Option<NullBuffer>>,
}

impl Gather {
    pub(super) fn new(schema: &SchemaRef, batches: &[RecordBatch]) -> Self {
        let column = |idx: usize| {
            let arrays = batches.iter().map(|batch| batch.column(idx).clone());
            Column::new(schema.field(idx).data_type(), arrays.collect())
        };
        Self {
            schema: Arc::clone(schema),
            columns: (0..schema.fields().len()).map(column).collect(),
        }
    }

    /// How many of the first rows have texts of at most this many bytes together: at least one. Equal texts may all be
    /// long, and are not copied to find that out.
    pub(super) fn rows_within(&self, entries: &[Entry], bytes: u64) -> usize {
        let texts = self.columns.iter().filter_map(|column| match column {
            Column::Texts(arrays) => Some(arrays),
            _ => None,
        });
        let mut count = entries.len();
        for arrays in texts {
            let mut sum = 0;
            let is_within = |entry: &&Entry| {
                sum += u64::from(text_len(arrays, entry));
                sum <= bytes
            };
            count = entries[..count].iter().take_while(is_within).count().max(1);
        }
        count
    }

    /// These rows, with texts in buffers of their own.
    pub(super) fn rows(&self, entries: &[Entry]) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter().map(|column| column.rows(entries));
        let columns = columns.collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(entries.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

impl Column {
    fn new(data_type: &DataType, arrays: Vec<ArrayRef>) -> Self {
        let numbers = match data_type.primitive_width() {
            Some(1) => Numbers::new(data_type, &arrays).map(Self::OneByte),
            Some(2) => Numbers::new(data_type, &arrays).map(Self::TwoBytes),
            Some(4) => Numbers::new(data_type, &arrays).map(Self::FourBytes),
            Some(8) => Numbers::new(data_type, &arrays).map(Self::EightBytes),
            Some(16) => Numbers::new(data_type, &arrays).map(Self::SixteenBytes),
            _ if *data_type == DataType::Utf8View => {
                let texts = arrays.iter().map(|array| array.as_string_view().clone());
                Some(Self::Texts(texts.collect()))
            }
            _ => None,
        };
        numbers.unwrap_or(Self::Others(arrays))
    }

    fn rows(&self, entries: &[Entry]) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::OneByte(numbers) => numbers.rows(entries),
            Self::TwoBytes(numbers) => numbers.rows(entries),
            Self::FourBytes(numbers) => numbers.rows(entries),
            Self::EightBytes(numbers) => numbers.rows(entries),
            Self::SixteenBytes(numbers) => numbers.rows(entries),
            Self::Texts(arrays) => Ok(Arc::new(texts(arrays, entries))),
            Self::Others(arrays) => others(arrays, entries),
        }
    }
}

impl<T: ArrowNativeType> Numbers<T> {
    /// `None`: the values are not where numbers of this width may be.
    fn new(data_type: &DataType, arrays: &[ArrayRef]) -> Option<Self> {
        let values = |array: &ArrayRef| {
            let data = array.to_data();
            let [buffer] = data.buffers() else {
                return None;
            };
            let is_aligned = buffer.as_ptr().align_offset(align_of::<T>()) == 0;
            is_aligned.then(|| ScalarBuffer::new(buffer.clone(), data.offset(), data.len()))
        };
        let has_nulls = arrays.iter().any(|array| array.null_count() > 0);
        let nulls = arrays.iter().map(|array| array.nulls().cloned());
        Some(Self {
            data_type: data_type.clone(),
            values: arrays.iter().map(values).collect::<Option<_>>()?,
            nulls: nulls.filter(|_| has_nulls).collect(),
        })
    }

    fn rows(&self, entries: &[Entry]) -> Result<ArrayRef, ArrowError> {
        let value = |entry: &Entry| self.values[entry.batch()][entry.row()];
        let values: Vec<T> = entries.iter().map(value).collect();
        let nulls = (!self.nulls.is_empty()).then(|| {
            let nulls = |entry: &Entry| self.nulls[entry.batch()].as_ref();
            let is_valid =
                |entry: &Entry| nulls(entry).is_none_or(|nulls| nulls.is_valid(entry.row()));
            NullBuffer::from_iter(entries.iter().map(is_valid))
        });
        let data = ArrayDataBuilder::new(self.data_type.clone())
            .len(entries.len())
            .add_buffer(Buffer::from_vec(values))
            .nulls(nulls);
        Ok(make_array(data.build()?))
    }
}

/// The bytes of a text; anything if it is NULL.
fn text_len(arrays: &[StringViewArray], entry: &Entry) -> u32 {
    arrays[entry.batch()].views()[entry.row()] as u32
}

/// Texts in one buffer of the size that they need.
fn texts(arrays: &[StringViewArray], entries: &[Entry]) -> StringViewArray {
    let text = |entry: &Entry| {
        let (array, row) = (&arrays[entry.batch()], entry.row());
        array.is_valid(row).then(|| array.value(row))
    };
    let outside = entries
        .iter()
        .map(|entry| text_len(arrays, entry))
        .filter(|&len| len > MAX_INLINE_VIEW_LEN);
    let block_bytes = outside.fold(1, u32::saturating_add);
    let mut builder =
        StringViewBuilder::with_capacity(entries.len()).with_fixed_block_size(block_bytes);
    entries
        .iter()
        .for_each(|entry| builder.append_option(text(entry)));
    builder.finish()
}

/// Rows of the batches that have some, in the same order.
fn others(arrays: &[ArrayRef], entries: &[Entry]) -> Result<ArrayRef, ArrowError> {
    let mut used: Vec<usize> = entries.iter().map(|entry| entry.batch()).collect();
    used.sort_unstable();
    used.dedup();
    let place = |entry: &Entry| {
        let batch = used.partition_point(|&batch| batch < entry.batch());
        (batch, entry.row())
    };
    let places: Vec<_> = entries.iter().map(place).collect();
    let used: Vec<&dyn Array> = used.iter().map(|&batch| arrays[batch].as_ref()).collect();
    crate::batches::compact(&interleave(&used, &places)?)
}
