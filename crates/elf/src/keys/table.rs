//! A table of codes: what every layout is built from and what the naive scan reads.

use crate::error::{ElfError, Result};

use super::{DIMENSION_COUNT_MAX, ROW_COUNT_MAX};

/// One dimension's codes, in the narrowest of three widths the caller has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeColumn {
    /// Codes up to 255.
    U8(Vec<u8>),
    /// Codes up to 65 535.
    U16(Vec<u16>),
    /// Any code.
    U32(Vec<u32>),
}

impl CodeColumn {
    /// The codes in the narrowest width that holds `max`.
    pub fn from_codes(codes: impl Iterator<Item = u32>, max: u32) -> Self {
        if max <= u32::from(u8::MAX) {
            Self::U8(codes.map(|code| code as u8).collect())
        } else if max <= u32::from(u16::MAX) {
            Self::U16(codes.map(|code| code as u16).collect())
        } else {
            Self::U32(codes.collect())
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(codes) => codes.len(),
            Self::U16(codes) => codes.len(),
            Self::U32(codes) => codes.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The code of a row.
    ///
    /// # Panics
    /// When `row` is out of range.
    #[inline]
    pub fn get(&self, row: usize) -> u32 {
        match self {
            Self::U8(codes) => codes[row].into(),
            Self::U16(codes) => codes[row].into(),
            Self::U32(codes) => codes[row],
        }
    }

    /// The largest code, 0 for an empty column.
    pub fn max(&self) -> u32 {
        match self {
            Self::U8(codes) => codes.iter().copied().max().map_or(0, u32::from),
            Self::U16(codes) => codes.iter().copied().max().map_or(0, u32::from),
            Self::U32(codes) => codes.iter().copied().max().unwrap_or(0),
        }
    }

    /// Calls `visit(index, code)` for `rows`, with the width decided once.
    #[inline]
    pub fn for_each(&self, rows: std::ops::Range<usize>, mut visit: impl FnMut(usize, u32)) {
        match self {
            Self::U8(codes) => {
                codes[rows]
                    .iter()
                    .enumerate()
                    .for_each(|(i, &code)| visit(i, code.into()));
            }
            Self::U16(codes) => {
                codes[rows]
                    .iter()
                    .enumerate()
                    .for_each(|(i, &code)| visit(i, code.into()));
            }
            Self::U32(codes) => {
                codes[rows]
                    .iter()
                    .enumerate()
                    .for_each(|(i, &code)| visit(i, code));
            }
        }
    }
}

/// Columns of codes and the TID of every row.
///
/// Invariants: 1 to [`DIMENSION_COUNT_MAX`] columns, all of the same length, which is at most
/// [`ROW_COUNT_MAX`]; TIDs, when given, are as many as the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeTable {
    columns: Vec<CodeColumn>,
    tids: Option<Vec<u32>>,
}

impl CodeTable {
    /// A table whose TIDs are the row numbers.
    ///
    /// # Errors
    /// When the number of columns or rows is unsupported, or columns differ in length.
    pub fn new(columns: Vec<CodeColumn>) -> Result<Self> {
        if columns.is_empty() || columns.len() > DIMENSION_COUNT_MAX {
            return Err(ElfError::DimensionCount {
                found: columns.len(),
                max: DIMENSION_COUNT_MAX,
            });
        }
        let expected = columns[0].len();
        if expected > ROW_COUNT_MAX {
            return Err(ElfError::TooManyRows {
                found: expected as u64,
                max: ROW_COUNT_MAX as u64,
            });
        }
        for (dimension, column) in columns.iter().enumerate() {
            if column.len() != expected {
                return Err(ElfError::RowCountMismatch {
                    dimension,
                    expected,
                    found: column.len(),
                });
            }
        }
        Ok(Self {
            columns,
            tids: None,
        })
    }

    /// The same rows with TIDs of the caller's choice, which must be distinct.
    ///
    /// # Errors
    /// When there are not as many TIDs as rows.
    pub fn with_tids(mut self, tids: Vec<u32>) -> Result<Self> {
        if tids.len() != self.row_count() {
            return Err(ElfError::RowCountMismatch {
                dimension: self.dimension_count(),
                expected: self.row_count(),
                found: tids.len(),
            });
        }
        self.tids = Some(tids);
        Ok(self)
    }

    /// The columns in dimension order.
    pub fn columns(&self) -> &[CodeColumn] {
        &self.columns
    }

    /// Number of dimensions.
    pub fn dimension_count(&self) -> usize {
        self.columns.len()
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.columns[0].len()
    }

    /// The TID of a row.
    ///
    /// # Panics
    /// When `row` is out of range and TIDs were given.
    #[inline]
    pub fn tid(&self, row: usize) -> u32 {
        self.tids.as_ref().map_or(row as u32, |tids| tids[row])
    }

    /// The largest TID, 0 for an empty table.
    pub fn tid_max(&self) -> u32 {
        match &self.tids {
            Some(tids) => tids.iter().copied().max().unwrap_or(0),
            None => self.row_count().saturating_sub(1) as u32,
        }
    }

    /// The codes of one row in dimension order.
    pub fn row(&self, row: usize) -> Vec<u32> {
        self.columns.iter().map(|column| column.get(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_kept_in_the_narrowest_width() {
        for (max, narrow) in [(255, true), (256, false)] {
            let column = CodeColumn::from_codes([0, max].into_iter(), max);
            assert_eq!(matches!(column, CodeColumn::U8(_)), narrow);
            assert_eq!((column.get(1), column.max(), column.len()), (max, max, 2));
        }
        assert!(matches!(
            CodeColumn::from_codes([70_000].into_iter(), 70_000),
            CodeColumn::U32(_)
        ));
    }

    #[test]
    fn malformed_tables_are_refused() {
        assert!(matches!(
            CodeTable::new(vec![]),
            Err(ElfError::DimensionCount { found: 0, .. })
        ));
        let wide = vec![CodeColumn::U8(vec![1]); DIMENSION_COUNT_MAX + 1];
        assert!(CodeTable::new(wide).is_err());
        let ragged = vec![CodeColumn::U8(vec![1]), CodeColumn::U8(vec![])];
        assert!(matches!(
            CodeTable::new(ragged),
            Err(ElfError::RowCountMismatch { dimension: 1, .. })
        ));
        let table = CodeTable::new(vec![CodeColumn::U8(vec![1])]).unwrap();
        assert!(table.with_tids(vec![]).is_err());
    }
}
