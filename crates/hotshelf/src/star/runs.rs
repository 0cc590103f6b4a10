//! Integers stored as runs: written out for a chunk of rows, or tested run by run.

use hotshelf_tier::simd::{Backend, Combine};
use vortex::array::arrays::PrimitiveArray;
use vortex::array::{ArrayRef, ExecutionCtx};
use vortex::error::{VortexResult, vortex_ensure, vortex_err};

use super::encoded::{decode_all, ptype_of, words_of};
use super::row_set::{CHUNK_ROWS, WORDS, set_rows, stretches};
use super::unit::Unit;

/// Values that repeat: the value of run `i` is that of all rows before `ends[i]`.
pub(super) struct Runs<T> {
    pub ends: Vec<u32>,
    pub values: Vec<T>,
}

/// A run is written this many values at a time: most are shorter, and a fixed number needs no loop.
const RUN_VALUES: usize = 8;

/// Runs that are written out while one is looked up.
const LOOKED_UP_RUNS: usize = 20;

/// Runs are tested where a chunk has at most this many: more are written out faster.
const TESTED_MAX: usize = CHUNK_ROWS / 2;

/// The runs that the rows of a chunk are in.
pub(super) struct ChunkRuns<'a> {
    values: &'a [u32],
    /// Where they end, by row of the column.
    ends: &'a [u32],
    first_row: u32,
    len: usize,
    /// What is added to the values.
    reference: u32,
}

/// Stored runs, if their values are integers of this width.
pub(super) fn runs_of<T: Unit>(
    ends: &ArrayRef,
    values: &ArrayRef,
    offset: usize,
    ctx: &mut ExecutionCtx,
) -> VortexResult<Option<Runs<T>>> {
    let Some(values) = decode_all::<T>(values, ctx)? else {
        return Ok(None);
    };
    let ends = ends_of(ends, offset, ctx)?;
    vortex_ensure!(ends.len() == values.len(), "runs without end or value");
    Ok(Some(Runs { ends, values }))
}

/// Where stored runs end, by row, of which this many were cut off before the first.
pub(super) fn ends_of(
    ends: &ArrayRef,
    offset: usize,
    ctx: &mut ExecutionCtx,
) -> VortexResult<Vec<u32>> {
    let offset = offset as u32;
    let mut ends = match decode_all::<u32>(ends, ctx)? {
        Some(ends) => ends,
        None => {
            let ends = ends.clone().execute::<PrimitiveArray>(ctx)?;
            let words = words_of(&ends, ptype_of(ends.dtype())?)?;
            let ends = words.into_iter().map(u32::try_from);
            let ends = ends.collect::<Result<_, _>>();
            ends.map_err(|_| vortex_err!("a run ends beyond all rows"))?
        }
    };
    if offset > 0 {
        for end in &mut ends {
            *end = end.saturating_sub(offset);
        }
    }
    vortex_ensure!(ends.is_sorted(), "a run ends before it begins");
    Ok(ends)
}

impl<T: Unit> Runs<T> {
    /// Rows of the average run.
    pub fn rows_per_run(&self) -> f64 {
        let rows = self.ends.last().copied().unwrap_or(0);
        f64::from(rows) / self.ends.len().max(1) as f64
    }

    /// Writes out the rows of a chunk.
    pub fn decode(&self, chunk: usize, reference: T, output: &mut [T]) -> VortexResult<()> {
        let first_row = (chunk * CHUNK_ROWS) as u32;
        let first = self.ends.partition_point(|end| *end <= first_row);
        let mut at = 0;
        for (end, value) in self.ends[first..].iter().zip(&self.values[first..]) {
            let end = (end.saturating_sub(first_row) as usize).min(output.len());
            let value = value.plus(reference);
            match output.get_mut(at..at + RUN_VALUES) {
                Some(next) => {
                    next.fill(value);
                    if end > at + RUN_VALUES {
                        output[at + RUN_VALUES..end].fill(value);
                    }
                }
                None if at < end => output[at..end].fill(value),
                None => {}
            }
            at = at.max(end);
            if at == output.len() {
                return Ok(());
            }
        }
        Err(vortex_err!("the runs of chunk {chunk} end early"))
    }
}

impl<T: Unit> Runs<T> {
    /// Whether looking up the runs of this many rows of a chunk takes less time than writing out the chunk.
    pub fn are_long_for(&self, rows: usize) -> bool {
        (rows * LOOKED_UP_RUNS) as f64 * self.rows_per_run() < CHUNK_ROWS as f64
    }

    /// Writes out some rows of a chunk, which are ascending.
    pub fn decode_rows(
        &self,
        chunk: usize,
        reference: T,
        rows: impl Iterator<Item = usize>,
        output: &mut [T],
    ) -> VortexResult<()> {
        let first_row = (chunk * CHUNK_ROWS) as u32;
        let mut at = self.ends.partition_point(|end| *end <= first_row);
        let end = self.ends.len().min(at + CHUNK_ROWS);
        for row in rows {
            let wanted = first_row + row as u32;
            at += self.ends[at..end].partition_point(|end| *end <= wanted);
            let (Some(target), Some(value)) = (output.get_mut(row), self.values.get(at)) else {
                return Err(vortex_err!("the runs of chunk {chunk} end early"));
            };
            *target = value.plus(reference);
        }
        Ok(())
    }
}

impl Runs<u32> {
    /// The runs of a chunk of `len` rows, if they are few enough to be tested. `None` also where they end early:
    /// writing them out says so.
    pub fn of_chunk(&self, chunk: usize, len: usize, reference: u32) -> Option<ChunkRuns<'_>> {
        let first_row = (chunk * CHUNK_ROWS) as u32;
        let first = self.ends.partition_point(|end| *end <= first_row);
        let ends = self.ends.get(first..)?;
        let before_last = ends.partition_point(|end| *end < first_row + len as u32);
        let runs = first..first + before_last + 1;
        let (ends, values) = (self.ends.get(runs.clone())?, self.values.get(runs)?);
        (ends.len() <= TESTED_MAX).then_some(ChunkRuns {
            values,
            ends,
            first_row,
            len,
            reference,
        })
    }
}

impl ChunkRuns<'_> {
    /// The rows whose values are from `lo` to `lo + span` (modulo 2^32).
    pub fn in_range(&self, backend: Backend, lo: u32, span: u32) -> [u64; WORDS] {
        let (mut runs, lo) = ([0; WORDS], lo.wrapping_sub(self.reference));
        backend.in_range(self.values, lo, span, Combine::Replace, &mut runs);
        self.rows_of(&runs)
    }

    /// The rows whose values are `min + i` (modulo 2^32) for a set bit `i`.
    pub fn in_set(&self, backend: Backend, min: u32, set: &[u64]) -> [u64; WORDS] {
        let (mut runs, min) = ([0; WORDS], min.wrapping_sub(self.reference));
        backend.in_set(self.values, min, set, Combine::Replace, &mut runs);
        self.rows_of(&runs)
    }

    /// The rows of runs whose bits are set.
    fn rows_of(&self, runs: &[u64; WORDS]) -> [u64; WORDS] {
        let mut rows = [0; WORDS];
        let end = |run: usize| {
            let end = self.ends.get(run).copied().unwrap_or(0);
            (end.saturating_sub(self.first_row) as usize).min(self.len)
        };
        for (idx, word) in runs.iter().enumerate() {
            for runs in stretches(*word) {
                let start = (idx * 64 + runs.start).checked_sub(1).map_or(0, end);
                set_rows(start..end(idx * 64 + runs.end - 1), &mut rows);
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_tested_as_the_rows_that_they_stand_for(
            lens in proptest::collection::vec(prop_oneof![1u32..5, 1u32..3000], 1..600),
            values in proptest::collection::vec(0u32..40, 600),
            reference in prop_oneof![Just(0), any::<u32>()],
            (lo, span) in (0u32..40, 0u32..20),
            set in any::<u64>(),
        ) {
            let ends: Vec<u32> = lens
                .iter()
                .scan(0, |end, len| {
                    *end += len;
                    Some(*end)
                })
                .collect();
            let rows = *ends.last().unwrap() as usize;
            let values = values[..ends.len()].iter().map(|value| value.wrapping_sub(reference));
            let runs = Runs { ends, values: values.collect() };
            let backend = Backend::detect();
            for chunk in 0..rows.div_ceil(CHUNK_ROWS) {
                let len = (rows - chunk * CHUNK_ROWS).min(CHUNK_ROWS);
                let mut written = vec![0; len];
                runs.decode(chunk, reference, &mut written).unwrap();
                let mut some = vec![0; len];
                let rows = || (0..len).step_by(1 + lo as usize);
                runs.decode_rows(chunk, reference, rows(), &mut some).unwrap();
                prop_assert!(rows().all(|row| some[row] == written[row]));
                let Some(few) = runs.of_chunk(chunk, len, reference) else { continue };
                let found = [few.in_range(backend, lo, span), few.in_set(backend, 3, &[set])];
                for row in 0..CHUNK_ROWS {
                    let bit = |set: &[u64; WORDS]| set[row / 64] >> (row % 64) & 1 == 1;
                    let value = written.get(row).copied();
                    let in_set = |value: u32| {
                        let bit = value.wrapping_sub(3);
                        bit < 64 && set >> bit & 1 == 1
                    };
                    prop_assert_eq!(bit(&found[0]), value.is_some_and(|value| value.wrapping_sub(lo) <= span));
                    prop_assert_eq!(bit(&found[1]), value.is_some_and(in_set));
                }
            }
            // Beyond the last run there is nothing.
            let beyond = rows.div_ceil(CHUNK_ROWS);
            prop_assert!(runs.decode_rows(beyond, reference, 0..1, &mut [0]).is_err());
            prop_assert!(runs.of_chunk(rows.div_ceil(CHUNK_ROWS), CHUNK_ROWS, reference).is_none());
        }
    }
}
