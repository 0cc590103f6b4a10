//! Pure: where runs are cut into ranges of keys, so that each range has about as many rows as the others.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use super::marks::Marks;
use crate::{Result, Stop};

/// The places at which all ranges but the first begin, in order.
pub(super) struct Cuts {
    cuts: Vec<Cut>,
    /// How many marks of each run come before each cut.
    counts: Vec<u32>,
    /// How many parts the marks divide each run into.
    piece_counts: Vec<usize>,
}

/// A range begins at this mark of this run: with its row, the rows behind it in its run, and in other runs rows with
/// larger keys, and, in runs with higher numbers, equal ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    run: u32,
    mark: u32,
}

impl Cut {
    pub(super) fn run(self) -> usize {
        self.run as usize
    }

    pub(super) fn mark(self) -> usize {
        self.mark as usize
    }
}

impl Cuts {
    /// Cuts at one of `every` marks.
    pub(super) fn new(runs: &[&Marks], every: usize, stop: &Stop) -> Result<Self> {
        let place = |run: usize, mark: usize| {
            let is_mark = mark < runs[run].len();
            is_mark.then(|| Reverse((runs[run].key(mark).bytes, run, mark)))
        };
        let mut next: BinaryHeap<_> = (0..runs.len()).filter_map(|run| place(run, 0)).collect();
        let mut before = vec![0; runs.len()];
        let (mut cuts, mut counts) = (Vec::new(), Vec::new());
        let mut at = 0_usize;
        while let Some(mut least) = next.peek_mut() {
            let Reverse((_, run, mark)) = *least;
            if at > 0 && at.is_multiple_of(every) {
                stop.check()?;
                cuts.push(Cut {
                    run: run as u32,
                    mark: mark as u32,
                });
                counts.extend_from_slice(&before);
            }
            before[run] += 1;
            at += 1;
            match place(run, mark + 1) {
                Some(place) => *least = place,
                None => {
                    PeekMut::pop(least);
                }
            }
        }
        cuts.shrink_to_fit();
        counts.shrink_to_fit();
        Ok(Self {
            cuts,
            counts,
            piece_counts: runs.iter().map(|marks| marks.len() - 1).collect(),
        })
    }

    pub(super) fn range_count(&self) -> usize {
        self.cuts.len() + 1
    }

    /// The memory that this takes.
    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(&*self.cuts) + size_of_val(&*self.counts)) as u64
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
        let piece_count = self.piece_counts[run];
        if self.marks_before(ranges.start, run) > piece_count {
            // Its last row is before these ranges.
            return piece_count..piece_count;
        }
        let marks = self.marks(ranges, run);
        marks.start.saturating_sub(1).min(marks.end)..marks.end
    }

    /// The marks of a run that are in these ranges, except the last of the run: about as many pieces as the ranges have
    /// of it.
    pub(super) fn marks(&self, ranges: Range<usize>, run: usize) -> Range<usize> {
        let piece_count = self.piece_counts[run];
        let before = |range: usize| self.marks_before(range, run).min(piece_count);
        before(ranges.start)..before(ranges.end)
    }

    /// How many marks of a run, the last one included, are before a range.
    fn marks_before(&self, range: usize, run: usize) -> usize {
        let run_count = self.piece_counts.len();
        match range.checked_sub(1) {
            Some(cut) if cut < self.cuts.len() => self.counts[cut * run_count + run] as usize,
            Some(_) => self.piece_counts[run],
            None => 0,
        }
    }
}

/// Whether a row of another run comes before a mark: by the selected bits of their keys, then by the rest of the keys.
/// No row's key is the beginning of another one. So a row that is equal to part of a key in these bits is after it, and
/// one that is equal to a whole key is before it if its run is.
pub(super) fn is_before(row: (u64, &[u8]), mark: (u64, &[u8]), equal_is_before: bool) -> bool {
    match row.cmp(&mark) {
        Ordering::Less => true,
        Ordering::Equal => equal_is_before,
        Ordering::Greater => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::marks::MarkedKey;
    use super::super::run::differing_len;
    use super::super::survey::KeySurvey;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Marks of a run of rows with these keys, at one of `step` rows and at the end.
    fn marks(keys: &[u8], step: usize) -> Marks {
        let mut marks = Marks::default();
        for row in (0..keys.len()).step_by(step).chain([keys.len()]) {
            let bytes = &[keys[row.min(keys.len() - 1)]];
            let is_whole = true;
            marks.push(MarkedKey { bytes, is_whole }, row, row as u64);
        }
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
            let all_marks: Vec<Marks> = runs.iter().map(|keys| marks(keys, step)).collect();
            let cuts = Cuts::new(&all_marks.iter().collect::<Vec<_>>(), every, &Stop::default()).unwrap();
            let place = |cut: Cut| {
                let marks = &all_marks[cut.run()];
                (marks.key(cut.mark()).bytes[0], cut.run(), marks.batch(cut.mark()))
            };
            let mut row_counts = vec![0; cuts.range_count()];
            for (run, keys) in runs.iter().enumerate() {
                for (row, key) in keys.iter().enumerate() {
                    let is_before = |range: &usize| cuts.end(*range).is_some_and(|cut| place(cut) <= (*key, run, row));
                    let range = (0..cuts.range_count()).take_while(is_before).count();
                    prop_assert!(cuts.begin(range).is_none_or(|cut| place(cut) <= (*key, run, row)));
                    row_counts[range] += 1;
                    let pieces = cuts.pieces(range..range + 1, run);
                    let rows = all_marks[run].batch(pieces.start)..all_marks[run].batch(pieces.end);
                    prop_assert!(rows.contains(&row), "row {row} of run {run}: {rows:?}");
                }
            }
            let most = row_counts.iter().max().copied().unwrap_or(0);
            prop_assert!(most <= (every + runs.len()) * step, "{row_counts:?}");
        }
    }

    proptest! {
        #[test]
        fn rows_before_a_cut_are_the_first_of_all_rows(
            runs in (1usize..12).prop_flat_map(|len| vec(vec(vec(0u8..3, len), 1..30), 1..5)),
            step in 1usize..5,
        ) {
            let mut runs = runs;
            runs.iter_mut().for_each(|keys| keys.sort_unstable());
            let mut survey = KeySurvey::default();
            runs.iter().flatten().for_each(|key| survey.add(key));
            let selection = survey.selection();
            let marks = |keys: &Vec<Vec<u8>>| -> Marks {
                let mut marks = Marks::default();
                for row in (0..keys.len()).step_by(step).chain([keys.len()]) {
                    let key = &keys[row.min(keys.len() - 1)];
                    let len = match row {
                        0 => 1,
                        row if row == keys.len() => key.len(),
                        row => differing_len(&keys[row - 1], key),
                    };
                    let is_whole = len == key.len();
                    marks.push(MarkedKey { bytes: &key[..len], is_whole }, row, 0);
                }
                marks
            };
            let all_marks: Vec<Marks> = runs.iter().map(marks).collect();
            let cuts = Cuts::new(&all_marks.iter().collect::<Vec<_>>(), 1, &Stop::default()).unwrap();
            let mut latest = vec![0; runs.len()];
            for cut in cuts.cuts {
                let mark = all_marks[cut.run()].key(cut.mark());
                let before = |(run, keys): (usize, &Vec<Vec<u8>>)| match run == cut.run() {
                    true => all_marks[run].batch(cut.mark()),
                    false => keys.partition_point(|key| {
                        let equal_is_before = mark.is_whole && run < cut.run();
                        let key = (selection.prefix(key), selection.rest(key));
                        let marked = (selection.prefix(mark.bytes), selection.rest(mark.bytes));
                        is_before(key, marked, equal_is_before)
                    }),
                };
                let counts: Vec<usize> = runs.iter().enumerate().map(before).collect();
                prop_assert!(counts.iter().zip(&latest).all(|(count, latest)| count >= latest));
                let numbered = runs.iter().zip(&counts).enumerate();
                let last = numbered.clone();
                let last = last.filter_map(|(run, (keys, &count))| Some((&keys[count.checked_sub(1)?], run)));
                let first = numbered.filter_map(|(run, (keys, &count))| Some((keys.get(count)?, run)));
                if let (Some(last), Some(first)) = (last.max(), first.min()) {
                    prop_assert!(last <= first, "{last:?} before {first:?}");
                }
                latest = counts;
            }
        }
    }

    #[test]
    fn cutting_ends_when_the_stop_is_raised() {
        let stop = Stop::default();
        stop.raise();
        assert!(Cuts::new(&[&marks(&[1, 2, 3], 1)], 1, &stop).is_err());
    }
}
