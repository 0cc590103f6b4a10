//! Key columns as machine words: what look-ups are built from and probed with.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;

/// Whether keys of this type can be looked up: integers, dates, times.
pub(super) fn is_key_type(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(_, _)
        )
}

/// A key of one of the four widths that columns are reduced to.
pub(super) trait Key: Copy {
    /// The key as a 64-bit word; differences of words are differences of keys, modulo 2^64.
    fn word(self) -> u64;
    /// Whether one word is below another as a key.
    fn less(a: u64, b: u64) -> bool;
}

impl Key for i32 {
    fn word(self) -> u64 {
        i64::from(self) as u64
    }
    fn less(a: u64, b: u64) -> bool {
        (a as i64) < (b as i64)
    }
}

impl Key for i64 {
    fn word(self) -> u64 {
        self as u64
    }
    fn less(a: u64, b: u64) -> bool {
        (a as i64) < (b as i64)
    }
}

impl Key for u32 {
    fn word(self) -> u64 {
        u64::from(self)
    }
    fn less(a: u64, b: u64) -> bool {
        a < b
    }
}

impl Key for u64 {
    fn word(self) -> u64 {
        self
    }
    fn less(a: u64, b: u64) -> bool {
        a < b
    }
}

/// The values of a key column.
pub(super) enum KeyValues {
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
}

/// A key column: values, and which of them are NULL (those match nothing).
pub(super) struct KeyColumn {
    pub values: KeyValues,
    pub nulls: Option<NullBuffer>,
}

impl KeyColumn {
    /// Reads a column of a type for which [`is_key_type`] holds.
    pub fn new(array: &ArrayRef) -> QueryResult<Self> {
        let array = match array.data_type() {
            DataType::Int8 | DataType::Int16 => cast(array, &DataType::Int32)?,
            DataType::UInt8 | DataType::UInt16 => cast(array, &DataType::UInt32)?,
            _ => array.clone(),
        };
        let data = array.to_data();
        let Some(buffer) = data.buffers().first().cloned() else {
            return internal_err!("a key column has no values");
        };
        let (offset, len) = (data.offset(), data.len());
        let values = match array.data_type() {
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
                KeyValues::I32(ScalarBuffer::new(buffer, offset, len))
            }
            DataType::UInt32 => KeyValues::U32(ScalarBuffer::new(buffer, offset, len)),
            DataType::UInt64 => KeyValues::U64(ScalarBuffer::new(buffer, offset, len)),
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(_, _) => KeyValues::I64(ScalarBuffer::new(buffer, offset, len)),
            other => return internal_err!("{other} is not a key type"),
        };
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        Ok(Self { values, nulls })
    }

    /// The key at a row as a word (see [`Key::word`]), unless it is NULL.
    pub fn word(&self, row: usize) -> Option<u64> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        match &self.values {
            KeyValues::I32(values) => values.get(row).map(|key| key.word()),
            KeyValues::I64(values) => values.get(row).map(|key| key.word()),
            KeyValues::U32(values) => values.get(row).map(|key| key.word()),
            KeyValues::U64(values) => values.get(row).map(|key| key.word()),
        }
    }
}
