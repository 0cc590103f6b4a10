//! The rows of a row group that passed its filters and look-ups.

use std::sync::OnceLock;

use vortex::array::ArrayRef;
use vortex::buffer::BitBuffer;
use vortex::error::VortexResult;
use vortex::mask::Mask;

use super::chunk::CHUNK_ROWS;

/// The rows of a row group that passed, and their places in the look-ups.
pub(super) struct Survivors {
    pub row_count: usize,
    /// Rows that look-ups were asked for.
    pub asked: u64,
    /// Row numbers in the row group, ascending.
    pub rows: Vec<u32>,
    /// Places by look-up; empty where not needed.
    pub places: Vec<Vec<u32>>,
    mask: OnceLock<Mask>,
}

impl Survivors {
    pub fn new(row_count: usize, look_up_count: usize) -> Self {
        Self {
            row_count,
            asked: 0,
            rows: Vec::new(),
            places: vec![Vec::new(); look_up_count],
            mask: OnceLock::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The numbers of a part of the survivors, and their places by look-up.
    pub fn part(&self, (start, end): (usize, usize)) -> (Vec<u32>, Vec<Vec<u32>>) {
        let places = self.places.iter();
        let places = places.map(|each| each.get(start..end).unwrap_or_default().to_vec());
        (self.rows[start..end].to_vec(), places.collect())
    }

    /// Where a batch of at most `rows` ends that begins at the survivor `start`: at the end of a chunk if it can have a
    /// whole one, so that none is decoded twice.
    pub fn batch_end(&self, start: usize, rows: usize) -> usize {
        let Some(after) = self.rows.get(start + rows) else {
            return self.rows.len();
        };
        if rows < CHUNK_ROWS {
            return start + rows;
        }
        let chunk = *after as usize / CHUNK_ROWS;
        self.rows
            .partition_point(|row| (*row as usize / CHUNK_ROWS) < chunk)
    }

    /// The values that a part of the survivors has in a column.
    pub fn values(
        &self,
        column: &ArrayRef,
        (start, end): (usize, usize),
    ) -> VortexResult<ArrayRef> {
        let (column, mask) = match (self.rows.get(start), self.rows[..end].last()) {
            (Some(first), Some(last)) if end - start < self.rows.len() => {
                let rows = *first as usize..*last as usize + 1;
                (column.slice(rows.clone())?, self.mask().slice(rows))
            }
            _ => (column.clone(), self.mask().clone()),
        };
        match mask.all_true() {
            true => Ok(column),
            false => column.filter(mask),
        }
    }

    /// A bit per row of the row group.
    fn mask(&self) -> &Mask {
        self.mask.get_or_init(|| {
            if self.rows.len() == self.row_count {
                return Mask::new_true(self.row_count);
            }
            let rows = self.rows.iter().map(|row| *row as usize);
            Mask::from_buffer(BitBuffer::from_indices(self.row_count, rows))
        })
    }
}
