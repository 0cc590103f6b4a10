//! Filters and look-ups as tests of stored values, made ready for how a column is stored in a row group.

use std::borrow::Cow;

use super::chunk::{ChunkBuffer, ChunkColumn};
use super::column_pair::ColumnPair;
use super::in_keys::word_of_several;
use super::lookup::Lookup;
use crate::scan::IntegerRange;

/// A test of a stored value.
pub(super) enum Condition<'a> {
    Always,
    Never,
    /// Values from `lo` to `lo + span`.
    Range {
        lo: u32,
        span: u32,
    },
    WideRange {
        lo: u64,
        span: u64,
    },
    /// Values `min + i` for the set bits `i`.
    Set {
        min: u32,
        set: Cow<'a, [u64]>,
    },
    WideSet {
        min: u64,
        set: &'a [u64],
    },
    Find(&'a Lookup),
    /// Looked up together with other columns.
    FindTogether(Together<'a>),
    /// Compared with another column.
    Compare(ColumnPair),
}

/// Columns that are looked up as one key.
pub(super) struct Together<'a> {
    pub lookup: &'a Lookup,
    /// Their places among those that are tested.
    pub columns: Vec<usize>,
}

impl Together<'_> {
    /// Whether a row of a decoded chunk has one of the keys, and NULL in no column.
    pub fn has_key(
        &self,
        (columns, buffers): (&[ChunkColumn], &[ChunkBuffer]),
        chunk: usize,
        row: usize,
    ) -> bool {
        let words = self.columns.iter().map(|idx| {
            let (column, buffer) = (&columns[*idx], &buffers[*idx]);
            (!column.is_null(buffer, chunk, row)).then(|| column.word(buffer, row))
        });
        word_of_several(words).is_some_and(|word| self.lookup.find(word).is_some())
    }
}

/// How much work a test is, in multiples of a comparison. These are ratios of instruction counts: decoding is part of
/// every test and a range adds little; a bitmap takes a shift and a load for each value, a hash table several
/// dependent loads.
const RANGE_WORK: f64 = 1.0;
const SET_WORK: f64 = 2.0;
const COMPARE_WORK: f64 = 2.5;
const FIND_WORK: f64 = 4.0;

/// Once fewer than one row in this many remains, rows are tested one by one instead of 64 at a time. Ranges take a
/// fraction of what a row that is looked at by its number takes.
const SET_ROWS_PER_SURVIVOR: usize = 4;
const RANGE_ROWS_PER_SURVIVOR: usize = 32;

impl Condition<'_> {
    /// How much work it is for each value of a column: for each run, where these are tested.
    pub fn work_on(&self, column: &ChunkColumn) -> f64 {
        match self {
            Self::Find(_) => FIND_WORK,
            Self::FindTogether(keys) => FIND_WORK * keys.columns.len() as f64,
            Self::Compare(_) => COMPARE_WORK,
            Self::WideSet { .. } => SET_WORK,
            Self::Set { .. } => SET_WORK / column.rows_per_run(),
            Self::Range { .. } => RANGE_WORK / column.rows_per_run(),
            Self::Always | Self::Never | Self::WideRange { .. } => RANGE_WORK,
        }
    }

    /// How many rows there are at most for each that remains where all are tested 64 at a time.
    pub fn rows_per_survivor(&self) -> usize {
        match self {
            Self::Range { .. } | Self::WideRange { .. } => RANGE_ROWS_PER_SURVIVOR,
            // Rows are listed before they are looked up in a hash table.
            Self::Find(_) | Self::FindTogether(_) => 0,
            _ => SET_ROWS_PER_SURVIVOR,
        }
    }
}

/// Whether the keys of a dense look-up are values of a column of 32 bits or less.
pub(super) fn fits(min: u64, bits: &[u64], column: &ChunkColumn) -> bool {
    let last = min.wrapping_add(bits.len() as u64 * 64 - 1);
    if column.signed {
        i32::try_from(min as i64).is_ok() && i32::try_from(last as i64).is_ok()
    } else {
        u32::try_from(min).is_ok() && u32::try_from(last).is_ok()
    }
}

/// Whether a look-up has a value as its key.
pub(super) fn look_up_condition<'a>(lookup: &'a Lookup, column: &ChunkColumn) -> Condition<'a> {
    if let Some(values) = &column.dictionary {
        return by_code(values, column, |word| lookup.find(word).is_some());
    }
    match lookup.dense() {
        Some((min, set)) if column.is_wide() => Condition::WideSet { min, set },
        Some((min, bits)) if fits(min, bits, column) => Condition::Set {
            min: min as u32,
            set: Cow::Borrowed(bits),
        },
        _ => Condition::Find(lookup),
    }
}

/// A test of a dictionary's values as one of their codes, which no NULL passes.
fn by_code<'a>(
    values: &[u64],
    column: &ChunkColumn,
    passes: impl Fn(u64) -> bool,
) -> Condition<'a> {
    let mut set = vec![0u64; values.len() / 64 + 1];
    for (code, word) in values.iter().enumerate() {
        let passes = column.valid.has_code(code as u32) && passes(*word);
        set[code / 64] |= u64::from(passes) << (code % 64);
    }
    Condition::Set {
        min: 0,
        set: Cow::Owned(set),
    }
}

/// Whether a value is in a range.
pub(super) fn range_condition<'a>(range: &IntegerRange, column: &ChunkColumn) -> Condition<'a> {
    let value = |word: u64| match column.signed {
        true => i128::from(word as i64),
        false => i128::from(word),
    };
    if let Some(values) = &column.dictionary {
        return by_code(values, column, |word| {
            (range.min..=range.max).contains(&value(word))
        });
    }
    let (least, greatest) = match (column.signed, column.is_wide()) {
        (true, false) => (i128::from(i32::MIN), i128::from(i32::MAX)),
        (false, false) => (0, i128::from(u32::MAX)),
        (true, true) => (i128::from(i64::MIN), i128::from(i64::MAX)),
        (false, true) => (0, i128::from(u64::MAX)),
    };
    let (min, max) = (range.min.max(least), range.max.min(greatest));
    if min > max {
        Condition::Never
    } else if column.is_wide() {
        Condition::WideRange {
            lo: min as u64,
            span: (max - min) as u64,
        }
    } else {
        Condition::Range {
            lo: min as u32,
            span: (max - min) as u32,
        }
    }
}
