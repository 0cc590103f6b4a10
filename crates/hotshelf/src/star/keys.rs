//! Key columns as machine words: what look-ups are built from and probed with.

use std::ops::Range;

use arrow::array::{Array, ArrayData, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{ArrowNativeType, DataType};
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;

/// Rows in steps after which a cancelled query stops.
pub(super) fn steps(row_count: usize) -> impl Iterator<Item = Range<usize>> {
    const STEP_ROWS: usize = 1 << 17;
    let starts = (0..row_count).step_by(STEP_ROWS);
    starts.map(move |start| start..row_count.min(start + STEP_ROWS))
}

/// A key column. Differences of its words are differences of keys, modulo 2^64.
pub(crate) struct KeyColumn {
    words: Vec<u64>,
    /// Turns the order of words into that of keys.
    sign: u64,
    /// Which keys are NULL: those match nothing.
    nulls: Option<NullBuffer>,
}

impl KeyColumn {
    /// Reads a column of a type for which [`is_key_type`](crate::scan::is_key_type) holds.
    pub fn new(array: &ArrayRef) -> QueryResult<Self> {
        const SIGNED: u64 = 1 << 63;
        let data = array.to_data();
        let (words, sign) = match array.data_type() {
            DataType::Int8 => (words(&data, |key: i8| key as u64), SIGNED),
            DataType::Int16 => (words(&data, |key: i16| key as u64), SIGNED),
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
                (words(&data, |key: i32| key as u64), SIGNED)
            }
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(_, _) => (words(&data, |key: i64| key as u64), SIGNED),
            DataType::UInt8 => (words(&data, |key: u8| u64::from(key)), 0),
            DataType::UInt16 => (words(&data, |key: u16| u64::from(key)), 0),
            DataType::UInt32 => (words(&data, |key: u32| u64::from(key)), 0),
            DataType::UInt64 => (words(&data, |key: u64| key), 0),
            other => return internal_err!("{other} is not a key type"),
        };
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        Ok(Self { words, sign, nulls })
    }

    /// Keys that are words already, none of them NULL.
    pub fn of_words(words: Vec<u64>, sign: u64) -> Self {
        Self {
            words,
            sign,
            nulls: None,
        }
    }

    /// What turns the order of words into that of keys.
    pub fn sign(&self) -> u64 {
        self.sign
    }

    /// Number of rows, those with NULL included.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// The key at a row as a word, unless it is NULL.
    pub fn word(&self, row: usize) -> Option<u64> {
        let valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        self.words.get(row).copied().filter(|_| valid)
    }

    /// The keys of some rows other than NULL, with their rows.
    pub fn words(&self, rows: Range<usize>) -> impl Iterator<Item = (u64, u32)> {
        rows.filter_map(|row| Some((self.word(row)?, row as u32)))
    }

    /// The rows of the least and of the greatest key.
    pub fn extremes(&self) -> Option<(usize, usize)> {
        let ordered = || {
            self.words(0..self.len())
                .map(|(word, row)| (word ^ self.sign, row))
        };
        let (_, least) = ordered().min()?;
        let (_, greatest) = ordered().max()?;
        Some((least as usize, greatest as usize))
    }
}

fn words<K: ArrowNativeType>(data: &ArrayData, word: impl Fn(K) -> u64) -> Vec<u64> {
    let keys = data.buffer::<K>(0).iter();
    keys.take(data.len()).map(|key| word(*key)).collect()
}
