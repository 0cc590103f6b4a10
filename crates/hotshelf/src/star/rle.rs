//! Integers stored as codes of a short dictionary for each chunk, as columns are whose values repeat a few times in a
//! row: the items of a receipt have one date and one customer.

use vortex::array::arrays::PrimitiveArray;
use vortex::array::dtype::{DType, PType};
use vortex::array::{ArrayRef, ArrayView, ExecutionCtx};
use vortex::encodings::fastlanes::{RLE, RLEArrayExt, RLEArraySlotsExt};
use vortex::error::{VortexResult, vortex_ensure, vortex_err};

use super::encoded::{Encoded, decode_all, encoded_or_plain, ptype_of, words_of};
use super::row_set::CHUNK_ROWS;
use super::unit::Unit;

/// The values that each chunk has, and which of them each row has.
pub(super) struct Rle<T> {
    codes: Codes,
    values: Vec<T>,
    /// Where the values of a chunk begin.
    starts: Vec<usize>,
    /// Codes of NULLs may be anything.
    has_nulls: bool,
}

enum Codes {
    Bits8(Box<Encoded<u8>>),
    Bits16(Box<Encoded<u16>>),
}

impl<T: Unit> Rle<T> {
    /// `None` where chunks do not begin with the array, or codes have an unusual type.
    pub fn of(array: &ArrayView<'_, RLE>, ctx: &mut ExecutionCtx) -> VortexResult<Option<Self>> {
        if array.offset() != 0 {
            return Ok(None);
        }
        let Some(values) = decode_all::<T>(array.values(), ctx)? else {
            return Ok(None);
        };
        let Some(codes) = Codes::of(array.indices(), ctx)? else {
            return Ok(None);
        };
        let starts = array.values_idx_offsets().clone();
        let starts = starts.execute::<PrimitiveArray>(ctx)?;
        let starts = words_of(&starts, ptype_of(starts.dtype())?)?;
        // A part of an array has the places in the whole.
        let first = starts.first().copied().unwrap_or(0);
        let starts = starts
            .iter()
            .map(|start| start.wrapping_sub(first) as usize);
        let starts: Vec<usize> = starts.collect();
        vortex_ensure!(
            starts.is_sorted(),
            "a chunk's values begin before those of the last"
        );
        let beyond = starts.last().is_some_and(|last| *last > values.len());
        vortex_ensure!(!beyond, "a chunk's values begin after all values");
        Ok(Some(Self {
            codes,
            values,
            starts,
            has_nulls: !array.indices().validity()?.definitely_no_nulls(),
        }))
    }

    /// Ends and values of its runs, where its codes are stored as runs. None also where a row has no value: decoding
    /// names it.
    pub fn runs(&self) -> Option<(Vec<u32>, Vec<T>)> {
        let codes = match &self.codes {
            Codes::Bits8(codes) => codes.runs_in_32_bits(false),
            Codes::Bits16(codes) => codes.runs_in_32_bits(false),
        };
        let codes = codes?.into_runs()?;
        let count = codes.ends.len() + self.starts.len();
        let mut ends = Vec::with_capacity(count);
        let mut values = Vec::with_capacity(count);
        let mut row = 0;
        for (end, code) in codes.ends.into_iter().zip(codes.values) {
            // A code means another value in the next chunk.
            while row < end {
                let chunk = row as usize / CHUNK_ROWS;
                let of_chunk = self.values_of(chunk)?;
                let value = match of_chunk {
                    [only] => Some(*only),
                    _ => of_chunk.get(code as usize).copied(),
                };
                row = end.min(((chunk + 1) * CHUNK_ROWS) as u32);
                ends.push(row);
                values.push(value.or(self.has_nulls.then(T::default))?);
            }
        }
        Some((ends, values))
    }

    fn values_of(&self, chunk: usize) -> Option<&[T]> {
        let start = *self.starts.get(chunk)?;
        let end = self.starts.get(chunk + 1).copied();
        Some(&self.values[start..end.unwrap_or(self.values.len())])
    }

    /// All values, some of which may be of no row.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Decodes a chunk, of which the first `len` values count.
    pub fn decode(
        &self,
        chunk: usize,
        len: usize,
        reference: T,
        output: &mut [T; CHUNK_ROWS],
    ) -> VortexResult<()> {
        let values = self.values_of(chunk);
        let values = values.ok_or_else(|| vortex_err!("no values for chunk {chunk}"))?;
        let count = values.len();
        vortex_ensure!(
            (1..=CHUNK_ROWS).contains(&count),
            "chunk {chunk} has {count} values"
        );
        if count == 1 {
            // Its codes may be anything.
            output[..len].fill(values[0].plus(reference));
            return Ok(());
        }
        let greatest = match &self.codes {
            Codes::Bits8(codes) => look_up(codes, chunk, len, values, reference, output)?,
            Codes::Bits16(codes) => look_up(codes, chunk, len, values, reference, output)?,
        };
        vortex_ensure!(
            self.has_nulls || greatest < count,
            "chunk {chunk} has {count} values, and a row has that of code {greatest}"
        );
        Ok(())
    }
}

/// Writes the value of each code. Returns the greatest code.
fn look_up<C: Unit + Ord + Into<u64>, T: Unit>(
    codes: &Encoded<C>,
    chunk: usize,
    len: usize,
    values: &[T],
    reference: T,
    output: &mut [T; CHUNK_ROWS],
) -> VortexResult<usize> {
    let mut code_of_row = [C::default(); CHUNK_ROWS];
    codes.decode(chunk, len, &mut code_of_row)?;
    let code_of_row = &code_of_row[..len];
    for (target, code) in output.iter_mut().zip(code_of_row) {
        let code: u64 = (*code).into();
        // Codes of NULLs may be of no value.
        let value = values.get(code as usize).copied().unwrap_or_default();
        *target = value.plus(reference);
    }
    let greatest = code_of_row.iter().copied().max().unwrap_or_default();
    let greatest: u64 = greatest.into();
    Ok(greatest as usize)
}

impl Codes {
    fn of(codes: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<Option<Self>> {
        let DType::Primitive(ptype, _) = codes.dtype() else {
            return Ok(None);
        };
        Ok(match ptype {
            PType::U8 => encoded_or_plain(codes, ctx)?.map(|codes| Self::Bits8(Box::new(codes))),
            PType::U16 => encoded_or_plain(codes, ctx)?.map(|codes| Self::Bits16(Box::new(codes))),
            _ => None,
        })
    }
}
