//! Which rows of a column are not NULL, found without decoding the column: by run, or by code of a dictionary.

use hotshelf_tier::simd::{Backend, Combine};
use vortex::array::arrays::Dict;
use vortex::array::arrays::dict::DictArraySlotsExt;
use vortex::array::validity::Validity;
use vortex::array::{ArrayRef, ExecutionCtx};
use vortex::encodings::runend::{RunEnd, RunEndArrayExt, RunEndArraySlotsExt};
use vortex::error::VortexResult;
use vortex::mask::{AllOr, Mask};

use super::chunk::{CHUNK_ROWS, ChunkBuffer, ChunkColumn};
use super::row_set::{WORDS, clear_rows, is_set, stretches};
use super::runs::ends_of;

/// What is not NULL in a column.
#[derive(Clone)]
pub(super) enum Valid {
    All,
    /// A bit per row.
    Rows(Vec<u64>),
    /// A bit per code of its dictionary.
    Codes(Vec<u64>),
}

impl Valid {
    /// For a bit per row, if some are not set.
    pub fn of_rows(rows: Option<Vec<u64>>) -> Self {
        rows.map_or(Self::All, Self::Rows)
    }

    /// What a test of the rows has to look at. Tests of codes know which of them stand for NULL.
    pub fn beside_tests(&self) -> Option<&[u64]> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::All | Self::Codes(_) => None,
        }
    }

    /// Clears the bits of a chunk's rows that are NULL, where there is a bit per row.
    pub fn keep_rows(&self, chunk: usize, found: &mut [u64; WORDS]) {
        if let Some(valid) = self.beside_tests() {
            let valid = valid.iter().skip(chunk * WORDS);
            found.iter_mut().zip(valid).for_each(|(a, b)| *a &= b);
        }
    }

    /// Whether a code of the dictionary stands for a value.
    pub fn has_code(&self, code: u32) -> bool {
        match self {
            Self::Codes(codes) => is_set(codes, code),
            Self::All | Self::Rows(_) => true,
        }
    }
}

/// What is not NULL in a column that is stored like this.
pub(super) fn valid_of(
    array: &ArrayRef,
    column: &ChunkColumn,
    ctx: &mut ExecutionCtx,
) -> VortexResult<Valid> {
    if let Some(dict) = array.as_opt::<Dict>() {
        return match (mask_of(dict.values(), ctx)?, &column.valid) {
            (Mask::AllTrue(_), codes) => Ok(codes.clone()),
            (values, Valid::All) => Ok(words(&values).map_or(Valid::All, Valid::Codes)),
            (values, _) => by_code(&values, column).map(Valid::Rows),
        };
    }
    valid_rows(array, column, ctx).map(Valid::of_rows)
}

/// A bit per row that is not NULL. `None`: all of them are set.
fn valid_rows(
    array: &ArrayRef,
    column: &ChunkColumn,
    ctx: &mut ExecutionCtx,
) -> VortexResult<Option<Vec<u64>>> {
    if let Some(runs) = array.as_opt::<RunEnd>()
        && let Some(ends) = column.run_ends()
    {
        let valid = mask_of(runs.values(), ctx)?;
        return Ok(match valid.bit_buffer() {
            AllOr::All => None,
            AllOr::None => Some(vec![0; array.len().div_ceil(64)]),
            AllOr::Some(bits) => Some(by_run(ends, bits.chunks().iter_padded(), array.len())),
        });
    }
    // Other encodings keep apart which rows are NULL, which comes in runs, too.
    if let Validity::Array(valid) = array.validity()?
        && let Some(runs) = valid.as_opt::<RunEnd>()
    {
        let ends = ends_of(runs.ends(), runs.offset(), ctx)?;
        let valid = runs.values().clone().execute::<Mask>(ctx)?;
        return Ok(words(&valid).map(|valid| by_run(&ends, valid.into_iter(), array.len())));
    }
    Ok(words(&mask_of(array, ctx)?))
}

fn mask_of(array: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<Mask> {
    array.validity()?.execute_mask(array.len(), ctx)
}

fn words(mask: &Mask) -> Option<Vec<u64>> {
    match mask.bit_buffer() {
        AllOr::All => None,
        AllOr::None => Some(vec![0; mask.len().div_ceil(64)]),
        AllOr::Some(bits) => Some(bits.chunks().iter_padded().collect()),
    }
}

/// The rows of valid runs, of which there is a bit each. Most are valid.
fn by_run(ends: &[u32], valid: impl Iterator<Item = u64>, row_count: usize) -> Vec<u64> {
    let mut rows = vec![u64::MAX; row_count.div_ceil(64)];
    if let Some(last) = rows.last_mut() {
        *last >>= (64 - row_count % 64) % 64;
    }
    let end = |run: usize| (ends[run] as usize).min(row_count);
    for (idx, word) in valid.enumerate() {
        for runs in stretches(!word) {
            let (first, last) = (idx * 64 + runs.start, idx * 64 + runs.end - 1);
            if first < ends.len() {
                let start = first.checked_sub(1).map_or(0, end);
                clear_rows(start..end(last.min(ends.len() - 1)), &mut rows);
            }
        }
    }
    rows
}

/// The rows whose codes are of valid values, and valid themselves.
fn by_code(valid: &Mask, column: &ChunkColumn) -> VortexResult<Vec<u64>> {
    let set = words(valid).unwrap_or_default();
    let backend = Backend::detect();
    let mut buffer = ChunkBuffer::default();
    let mut rows = Vec::with_capacity(column.len().div_ceil(64));
    for chunk in 0..column.len().div_ceil(CHUNK_ROWS) {
        let len = column.chunk_len(chunk);
        let found = match column.runs(chunk) {
            Some(runs) => runs.in_set(backend, 0, &set),
            None => {
                let mut found = [0; WORDS];
                column.decode(chunk, &mut buffer)?;
                let codes = &buffer.narrow[..len];
                backend.in_set(codes, 0, &set, Combine::Replace, &mut found);
                found
            }
        };
        rows.extend_from_slice(&found[..len.div_ceil(64)]);
    }
    if let Valid::Rows(codes) = &column.valid {
        rows.iter_mut()
            .zip(codes)
            .for_each(|(row, code)| *row &= code);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int32Array};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;
    use vortex::VortexSessionDefault;
    use vortex::array::arrays::{BoolArray, DictArray, PrimitiveArray};
    use vortex::array::{IntoArray, VortexSessionExecute};
    use vortex::buffer::Buffer;
    use vortex::session::VortexSession;

    use super::*;

    fn decoded(array: &ArrayRef, ctx: &mut ExecutionCtx) -> Vec<Option<i32>> {
        let column = ChunkColumn::of_stored(array, ctx).unwrap().unwrap();
        let rows: Vec<u32> = (0..array.len() as u32).collect();
        let words = column.words(&rows, column.bounds(), &mut ChunkBuffer::default());
        let words = words
            .unwrap()
            .unwrap()
            .to_array(&DataType::Int32, rows.len());
        let words = words.unwrap();
        let numbers = words.as_any().downcast_ref::<Int32Array>().unwrap();
        numbers.iter().collect()
    }

    proptest! {
        #[test]
        fn nulls_in_runs_and_dictionaries_are_those_of_the_rows(
            values in proptest::collection::vec(proptest::option::weighted(0.7, -50i32..50), 1..40),
            picks in proptest::collection::vec((0usize..40, prop_oneof![1usize..4, 1usize..900]), 1..40),
        ) {
            let session = VortexSession::default();
            let mut ctx = session.create_execution_ctx();
            let picks = picks.iter().map(|(pick, count)| (pick % values.len(), *count));
            let rows = picks.flat_map(|(pick, count)| std::iter::repeat_n(pick, count));
            let codes: Vec<u16> = rows.map(|pick| pick as u16).collect();
            let expected: Vec<Option<i32>> = codes.iter().map(|code| values[*code as usize]).collect();
            let plain = PrimitiveArray::from_option_iter(expected.clone()).into_array();
            let runs = RunEnd::encode(plain, &mut ctx).unwrap().into_array();
            let filled: Vec<i32> = expected.iter().map(|value| value.unwrap_or(7)).collect();
            let is_valid: Vec<bool> = expected.iter().map(Option::is_some).collect();
            let ends = (1..=is_valid.len()).filter(|end| is_valid.get(*end) != Some(&is_valid[end - 1]));
            let ends: Vec<u64> = ends.map(|end| end as u64).collect();
            let valid = BoolArray::from_iter(ends.iter().map(|end| is_valid[*end as usize - 1]));
            let ends = Buffer::copy_from(&ends).into_array();
            let valid = RunEnd::try_new(ends, valid.into_array(), &mut ctx).unwrap().into_array();
            let apart = PrimitiveArray::new(Buffer::copy_from(&filled), Validity::Array(valid));
            let values = PrimitiveArray::from_option_iter(values).into_array();
            let codes = Buffer::copy_from(&codes).into_array();
            let code_runs = RunEnd::encode(codes.clone(), &mut ctx).unwrap().into_array();
            let by_code = DictArray::try_new(codes, values.clone()).unwrap().into_array();
            let by_code_runs = DictArray::try_new(code_runs, values).unwrap().into_array();
            for array in [runs, apart.into_array(), by_code, by_code_runs] {
                prop_assert_eq!(decoded(&array, &mut ctx), expected.clone(), "{}", array.encoding_id());
            }
        }
    }
}
