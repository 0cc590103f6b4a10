//! A test of rows, and the rows that are listed to be tested.

use super::chunk::{CHUNK_ROWS, ChunkColumn};
use super::condition::Condition;
use super::kept::Kept;
use super::matching::Matching;
use super::row_set::{RowList, is_set};

/// A filter or look-up, made ready for how the column is stored in this row group.
pub(super) struct Test<'a> {
    pub column: usize,
    pub matching: Matching,
    pub condition: Condition<'a>,
    pub origin: Origin,
    /// Rows of this row group.
    pub kept: Kept,
}

impl Test<'_> {
    /// The columns that it looks at. One may come twice.
    pub fn columns(&self) -> impl Iterator<Item = usize> + use<> {
        let (other, more) = match &self.condition {
            Condition::Compare(pair) => (Some(pair.other), Vec::new()),
            Condition::FindTogether(keys) => (None, keys.columns.clone()),
            _ => (None, Vec::new()),
        };
        std::iter::once(self.column).chain(other).chain(more)
    }
}

/// The listed rows of a chunk, to be tested.
pub(super) struct Listed<'a> {
    pub rows: &'a mut RowList,
    /// A bit per row of the row group, where some are NULL.
    pub valid: Option<&'a [u64]>,
    /// The chunk's first row.
    pub first: u32,
    /// Whether those that pass are dropped.
    pub anti: bool,
}

impl<'a> Listed<'a> {
    pub fn of(rows: &'a mut RowList, test: &Test, chunk: usize, column: &'a ChunkColumn) -> Self {
        Self {
            rows,
            valid: column.valid.beside_tests(),
            first: (chunk * CHUNK_ROWS) as u32,
            anti: test.matching == Matching::Anti,
        }
    }

    pub fn keep(&mut self, mut passes: impl FnMut(usize) -> bool) {
        let (anti, first) = (self.anti, self.first);
        match self.valid {
            None => self.rows.keep(|row| passes(row) != anti),
            Some(valid) => self
                .rows
                .keep(|row| (passes(row) && is_set(valid, first + row as u32)) != anti),
        }
    }
}

/// What a test is made of, by number.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// A range or comparison of the query.
    Filter(usize),
    /// A look-up.
    Join(usize),
    /// What became known: rows that fail it are dropped above in any case.
    Hint(usize),
}
