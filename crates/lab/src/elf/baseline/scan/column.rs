//! A scan over byte-wise columns in the order of the table.

use hotshelf_tier::simd::{Backend, Combine};

use hotshelf_elf::Result;
use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};

/// A scan over columns of codes: one-byte columns with vector instructions, the others in a loop.
/// Restricted columns are ANDed into one bitmap, 64 rows a word.
#[derive(Debug, Clone, Copy)]
pub struct ColumnScan<'a> {
    table: &'a CodeTable,
    backend: Backend,
}

impl<'a> ColumnScan<'a> {
    /// A scan with the machine's widest instructions.
    pub fn new(table: &'a CodeTable) -> Self {
        Self::with_backend(table, Backend::detect())
    }

    /// A scan with given instructions.
    pub fn with_backend(table: &'a CodeTable, backend: Backend) -> Self {
        Self { table, backend }
    }

    /// One bit per row: whether the row is accepted.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn bitmap(&self, query: &QueryBox) -> Result<Vec<u64>> {
        query.check(self.table.dimension_count())?;
        let row_count = self.table.row_count();
        let mut bitmap = vec![0; row_count.div_ceil(64)];
        let mut combine = Combine::Replace;
        for (column, restriction) in self.table.columns().iter().zip(query.dimensions()) {
            if !restriction.is_any() {
                self.scan_column(column, restriction, combine, &mut bitmap);
                combine = Combine::And;
            }
        }
        if combine == Combine::Replace {
            (0..row_count).for_each(|row| bitmap[row / 64] |= 1 << (row % 64));
        }
        Ok(bitmap)
    }

    fn scan_column(
        &self,
        column: &CodeColumn,
        restriction: &Restriction,
        combine: Combine,
        bitmap: &mut [u64],
    ) {
        let (lo, hi) = restriction.hull();
        if let (CodeColumn::U8(codes), Restriction::Range { .. }) = (column, restriction) {
            if lo > 255 {
                bitmap.fill(0);
            } else {
                self.backend
                    .scan_bytes(codes, lo as u8, hi.min(255) as u8, combine, bitmap);
            }
            return;
        }
        for (word_idx, word) in bitmap.iter_mut().enumerate() {
            let first = word_idx * 64;
            let mut mask = 0;
            column.for_each(first..column.len().min(first + 64), |i, code| {
                mask |= u64::from(restriction.contains(code)) << i;
            });
            *word = if combine == Combine::And {
                *word & mask
            } else {
                mask
            };
        }
    }

    /// The TIDs of accepted rows, ascending.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn select(&self, query: &QueryBox) -> Result<Vec<u32>> {
        let mut tids = Vec::new();
        for (word_idx, mut word) in self.bitmap(query)?.into_iter().enumerate() {
            while word != 0 {
                tids.push(
                    self.table
                        .tid(word_idx * 64 + word.trailing_zeros() as usize),
                );
                word &= word - 1;
            }
        }
        if !tids.is_sorted() {
            tids.sort_unstable();
        }
        Ok(tids)
    }
}
