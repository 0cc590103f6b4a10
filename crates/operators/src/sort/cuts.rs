//! Pure: where runs are cut into ranges of keys, so that each range has about as many rows as the others.

use std::ops::Range;

use super::run::Mark;

/// The places at which all ranges but the first begin, in order.
pub(super) struct Cuts {
    cuts: Vec<Cut>,
    /// How many marks of each run come before each cut.
    counts: Vec<u32>,
    /// How many parts the marks divide each run into.
    piece_counts: Vec<usize>,
}

/// A range begins at this mark of this run: with its row, rows with larger keys, and rows with an equal key that come
/// later in its run or are in runs with higher numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) run: usize,
    pub(super) mark: usize,
}

impl Cuts {
    /// Cuts at one of `every` marks.
    pub(super) fn new(runs: &[&[Mark]], every: usize) -> Self {
        let numbered = runs.iter().enumerate();
        let places =
            numbered.flat_map(|(run, marks)| (0..marks.len()).map(move |mark| Cut { run, mark }));
        let mut places: Vec<Cut> = places.collect();
        let key = |cut: &Cut| &*runs[cut.run][cut.mark].key;
        places.sort_by(|a, b| key(a).cmp(key(b)));
        let mut before = vec![0; runs.len()];
        let (mut cuts, mut counts) = (Vec::new(), Vec::new());
        for (at, cut) in places.into_iter().enumerate() {
            if at > 0 && at.is_multiple_of(every) {
                cuts.push(cut);
                counts.extend_from_slice(&before);
            }
            before[cut.run] += 1;
        }
        Self {
            cuts,
            counts,
            piece_counts: runs.iter().map(|marks| marks.len() - 1).collect(),
        }
    }

    pub(super) fn range_count(&self) -> usize {
        self.cuts.len() + 1
    }

    /// Where a range begins. `None`: with the first row.
    pub(super) fn begin(&self, range: usize) -> Option<Cut> {
        Some(self.cuts[range.checked_sub(1)?])
    }

    /// Where a range ends. `None`: with the last row.
    pub(super) fn end(&self, range: usize) -> Option<Cut> {
        self.cuts.get(range).copied()
    }

    /// Between which marks of a run all its rows of these ranges are: piece `n` begins at mark `n`.
    pub(super) fn pieces(&self, ranges: Range<usize>, run: usize) -> Range<usize> {
        let before = |cut: usize| self.counts[cut * self.piece_counts.len() + run] as usize;
        let piece_count = self.piece_counts[run];
        let start = match ranges.start.checked_sub(1) {
            Some(cut) => before(cut).saturating_sub(1),
            None => 0,
        };
        let end = match ranges.end {
            end if end == self.range_count() => piece_count,
            end => before(end - 1).min(piece_count),
        };
        start.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Marks of a run of rows with these keys, at one of `step` rows and at the end.
    fn marks(keys: &[u8], step: usize) -> Vec<Mark> {
        let mark = |row: usize, key: u8| Mark {
            key: [key].into(),
            batch: 0,
            row,
            bytes_before: row as u64,
        };
        let rows = (0..keys.len()).step_by(step);
        let mut marks: Vec<Mark> = rows.map(|row| mark(row, keys[row])).collect();
        marks.push(mark(keys.len(), keys[keys.len() - 1]));
        marks
    }

    proptest! {
        #[test]
        fn ranges_are_of_similar_sizes_and_pieces_have_all_their_rows(
            keys in vec(vec(0u8..30, 1..200), 1..8),
            step in 1usize..20,
            every in 1usize..20,
        ) {
            let mut runs = keys;
            runs.iter_mut().for_each(|keys| keys.sort_unstable());
            let all_marks: Vec<Vec<Mark>> = runs.iter().map(|keys| marks(keys, step)).collect();
            let all_marks: Vec<&[Mark]> = all_marks.iter().map(|marks| &**marks).collect();
            let cuts = Cuts::new(&all_marks, every);
            let place = |cut: Cut| {
                let mark = &all_marks[cut.run][cut.mark];
                (mark.key[0], cut.run, mark.row)
            };
            let mut row_counts = vec![0; cuts.range_count()];
            for (run, keys) in runs.iter().enumerate() {
                for (row, key) in keys.iter().enumerate() {
                    let is_before = |range: &usize| cuts.end(*range).is_some_and(|cut| place(cut) <= (*key, run, row));
                    let range = (0..cuts.range_count()).take_while(is_before).count();
                    prop_assert!(cuts.begin(range).is_none_or(|cut| place(cut) <= (*key, run, row)));
                    row_counts[range] += 1;
                    let pieces = cuts.pieces(range..range + 1, run);
                    let rows = all_marks[run][pieces.start].row..all_marks[run][pieces.end].row;
                    prop_assert!(rows.contains(&row), "row {row} of run {run}: {rows:?}");
                }
            }
            let most = row_counts.iter().max().copied().unwrap_or(0);
            prop_assert!(most <= (every + runs.len()) * step, "{row_counts:?}");
        }
    }
}
