//! Integers as Vortex stores them, of which any 1024 can be decoded alone: packed, with a frame of reference, as runs,
//! as codes of a chunk's own values or as a constant.

use hotshelf_tier::simd::{Backend, Narrow};
use vortex::array::arrays::{Constant, Primitive, PrimitiveArray};
use vortex::array::dtype::{DType, PType};
use vortex::array::{ArrayRef, ExecutionCtx};
use vortex::buffer::Buffer;
use vortex::encodings::fastlanes::{
    BitPacked, BitPackedArrayExt, BitWidthsView, FoR, FoRArrayExt, FoRArraySlotsExt, FoRReferences,
    RLE,
};
use vortex::encodings::runend::{RunEnd, RunEndArrayExt, RunEndArraySlotsExt};
use vortex::error::{VortexResult, vortex_ensure, vortex_err};

use super::rle::Rle;
use super::row_set::CHUNK_ROWS;
use super::runs::{ChunkRuns, Runs, runs_of};
use super::unit::Unit;

/// Stored integers of one width, and what is added to them.
pub(super) struct Encoded<T> {
    base: Base<T>,
    references: References<T>,
}

enum Base<T> {
    Plain(Buffer<T>),
    Packed(Packed<T>),
    Runs(Runs<T>),
    Rle(Rle<T>),
    Constant(T),
}

/// What is added to the stored integers.
enum References<T> {
    Nothing,
    One(T),
    PerChunk(Vec<T>),
}

/// Bit-packed integers, with those that did not fit beside them.
struct Packed<T> {
    words: Buffer<T>,
    blocks: Blocks,
    /// Row and value, by row.
    patches: Vec<(u32, T)>,
}

enum Blocks {
    /// All blocks have this width in bits.
    Width(usize),
    /// Block `i` begins at this byte and ends where the next begins.
    Offsets(Vec<u64>),
}

/// The integers of an array, if it is stored in a way that is decoded here.
pub(super) fn encoded<T: Unit>(
    array: &ArrayRef,
    ctx: &mut ExecutionCtx,
) -> VortexResult<Option<Encoded<T>>> {
    let Some(frame) = array.as_opt::<FoR>() else {
        let base = base(array, ctx)?;
        return Ok(base.map(|base| Encoded {
            base,
            references: References::Nothing,
        }));
    };
    let Some(base) = base(frame.encoded(), ctx)? else {
        return Ok(None);
    };
    let references = match frame.references() {
        FoRReferences::Global(reference) => T::of(reference).map(References::One),
        FoRReferences::Blocked(_) if frame.offset() != 0 => None,
        FoRReferences::Blocked(references) => {
            let references = references.clone().execute::<PrimitiveArray>(ctx)?;
            unsigned::<T>(&references).map(|references| References::PerChunk(references.to_vec()))
        }
    };
    Ok(references.map(|references| Encoded { base, references }))
}

fn base<T: Unit>(array: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<Option<Base<T>>> {
    if let Some(primitive) = array.as_opt::<Primitive>() {
        let values = primitive.into_owned();
        return Ok(unsigned(&values).map(Base::Plain));
    }
    if let Some(constant) = array.as_opt::<Constant>() {
        return Ok(T::of(constant.scalar()).map(Base::Constant));
    }
    if let Some(runs) = array.as_opt::<RunEnd>() {
        return Ok(runs_of(runs.ends(), runs.values(), runs.offset(), ctx)?.map(Base::Runs));
    }
    if let Some(rle) = array.as_opt::<RLE>() {
        return Ok(Rle::of(&rle, ctx)?.map(|rle| match rle.runs() {
            Some((ends, values)) => Base::Runs(Runs { ends, values }),
            None => Base::Rle(rle),
        }));
    }
    let Some(packed) = array.as_opt::<BitPacked>() else {
        return Ok(None);
    };
    let Some(bytes) = packed.packed().as_host_opt() else {
        return Ok(None);
    };
    if packed.offset() != 0 || !bytes.is_aligned(vortex::buffer::Alignment::of::<T>()) {
        return Ok(None);
    }
    let blocks = match packed.bit_widths() {
        BitWidthsView::Global(width) => Blocks::Width(usize::from(width)),
        BitWidthsView::Blocked(offsets) => {
            let offsets = offsets.clone().execute::<PrimitiveArray>(ctx)?;
            Blocks::Offsets(words_of(&offsets, ptype_of(offsets.dtype())?)?)
        }
    };
    let words = Buffer::<T>::from_byte_buffer(bytes.clone());
    let mut patches = Vec::new();
    if let Some(found) = packed.patches() {
        let indices = found.indices().clone().execute::<PrimitiveArray>(ctx)?;
        let indices = words_of(&indices, ptype_of(indices.dtype())?)?;
        let values = found.values().clone().execute::<PrimitiveArray>(ctx)?;
        let Some(values) = unsigned::<T>(&values) else {
            return Ok(None);
        };
        let offset = found.offset() as u64;
        let rows = indices.iter().map(|idx| idx.wrapping_sub(offset) as u32);
        patches.extend(rows.zip(values.iter().copied()));
    }
    Ok(Some(Base::Packed(Packed {
        words,
        blocks,
        patches,
    })))
}

/// The integers of an array, decoded at once if it is stored in another way.
pub(super) fn encoded_or_plain<T: Unit>(
    array: &ArrayRef,
    ctx: &mut ExecutionCtx,
) -> VortexResult<Option<Encoded<T>>> {
    if let Some(encoded) = encoded(array, ctx)? {
        return Ok(Some(encoded));
    }
    let decoded = array.clone().execute::<PrimitiveArray>(ctx)?;
    Ok(unsigned(&decoded).map(|values| Encoded {
        base: Base::Plain(values),
        references: References::Nothing,
    }))
}

/// All values of a short array.
pub(super) fn decode_all<T: Unit>(
    array: &ArrayRef,
    ctx: &mut ExecutionCtx,
) -> VortexResult<Option<Vec<T>>> {
    if ptype_of(array.dtype())?.to_unsigned() != T::PTYPE {
        return Ok(None);
    }
    let Some(encoded) = encoded_or_plain::<T>(array, ctx)? else {
        return Ok(None);
    };
    let mut values = Vec::with_capacity(array.len());
    let mut decoded = [T::default(); CHUNK_ROWS];
    for chunk in 0..array.len().div_ceil(CHUNK_ROWS) {
        let len = (array.len() - chunk * CHUNK_ROWS).min(CHUNK_ROWS);
        encoded.decode(chunk, len, &mut decoded)?;
        values.extend_from_slice(&decoded[..len]);
    }
    Ok(Some(values))
}

/// Integers as words of 64 bits, with their signs.
pub(super) fn words_of(values: &PrimitiveArray, ptype: PType) -> VortexResult<Vec<u64>> {
    macro_rules! words {
        ($native:ty, $wide:ty) => {
            values
                .to_buffer::<$native>()
                .iter()
                .map(|value| <$wide>::from(*value) as u64)
                .collect()
        };
    }
    Ok(match ptype {
        PType::U8 => words!(u8, u64),
        PType::U16 => words!(u16, u64),
        PType::U32 => words!(u32, u64),
        PType::U64 => words!(u64, u64),
        PType::I8 => words!(i8, i64),
        PType::I16 => words!(i16, i64),
        PType::I32 => words!(i32, i64),
        PType::I64 => words!(i64, i64),
        other => return Err(vortex_err!("{other} is not an integer")),
    })
}

/// The type of stored integers.
pub(super) fn ptype_of(dtype: &DType) -> VortexResult<PType> {
    match dtype {
        DType::Primitive(ptype, _) if ptype.is_int() => Ok(*ptype),
        other => Err(vortex_err!("{other} is not an integer")),
    }
}

/// The values reinterpreted without sign, if they have this width.
fn unsigned<T: Unit>(values: &PrimitiveArray) -> Option<Buffer<T>> {
    let DType::Primitive(ptype, _) = values.dtype() else {
        return None;
    };
    if !ptype.is_int() || ptype.to_unsigned() != T::PTYPE {
        return None;
    }
    let bytes = values.buffer_handle().as_host_opt()?;
    bytes
        .is_aligned(vortex::buffer::Alignment::of::<T>())
        .then(|| Buffer::from_byte_buffer(bytes.clone()))
}

impl<T: Unit> Encoded<T> {
    /// Integers as they are.
    pub fn plain(values: &[T]) -> Self {
        Self {
            base: Base::Plain(Buffer::copy_from(values)),
            references: References::Nothing,
        }
    }

    /// What the values lie between, as far as their encoding says: both ends are among the integers.
    pub fn bounds(&self, signed: bool) -> (i128, i128) {
        let bits = size_of::<T>() as u32 * 8;
        let whole = match signed {
            true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        let Some(added) = (match &self.references {
            References::Nothing => Some((0, 0)),
            References::One(value) => Some((value.number(signed), value.number(signed))),
            References::PerChunk(each) => T::extremes(each, signed),
        }) else {
            return whole;
        };
        // Stored integers have no sign where a reference is added to them.
        let stored_signed = signed && matches!(self.references, References::Nothing);
        let stored = match &self.base {
            Base::Plain(_) => None,
            Base::Constant(value) => {
                Some((value.number(stored_signed), value.number(stored_signed)))
            }
            Base::Runs(runs) => T::extremes(&runs.values, stored_signed),
            Base::Rle(rle) => T::extremes(rle.values(), stored_signed),
            Base::Packed(packed) => {
                let patches = packed.patches.iter().map(|(_, value)| value.number(false));
                let packed_max = (1i128 << packed.width_max().min(bits as usize)) - 1;
                Some((0, patches.fold(packed_max, i128::max)))
            }
        };
        let Some((min, max)) = stored else {
            return whole;
        };
        let (min, max) = (min + added.0, max + added.1);
        // Beyond the type's integers they begin anew at the other end.
        match whole.0 <= min && max <= whole.1 {
            true => (min, max),
            false => whole,
        }
    }

    /// Where runs end, by row, if it is stored as runs.
    pub fn run_ends(&self) -> Option<&[u32]> {
        match &self.base {
            Base::Runs(runs) => Some(&runs.ends),
            _ => None,
        }
    }

    /// The same in 32 bits, if it is stored as runs, which are few, and none of them needs more.
    pub fn runs_in_32_bits(&self, signed: bool) -> Option<Encoded<u32>> {
        let (Base::Runs(runs), References::Nothing | References::One(_)) =
            (&self.base, &self.references)
        else {
            return None;
        };
        let reference = self.reference(0)?;
        let values = runs.values.iter();
        let values = values.map(|value| value.plus(reference).in_32_bits(signed));
        Some(Encoded {
            base: Base::Runs(Runs {
                values: values.collect::<Option<_>>()?,
                ends: runs.ends.clone(),
            }),
            references: References::Nothing,
        })
    }

    /// Its runs, if it is stored as them alone.
    pub fn into_runs(self) -> Option<Runs<T>> {
        match (self.base, self.references) {
            (Base::Runs(runs), References::Nothing) => Some(runs),
            _ => None,
        }
    }

    /// What is added to the integers of a chunk.
    fn reference(&self, chunk: usize) -> Option<T> {
        match &self.references {
            References::Nothing => Some(T::default()),
            References::One(reference) => Some(*reference),
            References::PerChunk(references) => references.get(chunk).copied(),
        }
    }

    /// Decodes a chunk, of which the first `len` values count.
    pub fn decode(
        &self,
        chunk: usize,
        len: usize,
        output: &mut [T; CHUNK_ROWS],
    ) -> VortexResult<()> {
        let no_reference = || vortex_err!("no reference for chunk {chunk}");
        let reference = self.reference(chunk).ok_or_else(no_reference)?;
        match &self.base {
            Base::Constant(value) => output[..len].fill(value.plus(reference)),
            Base::Plain(values) => {
                let start = chunk * CHUNK_ROWS;
                vortex_ensure!(values.len() >= start + len, "a column ends early");
                for (target, value) in output.iter_mut().zip(&values[start..start + len]) {
                    *target = value.plus(reference);
                }
            }
            Base::Runs(runs) => runs.decode(chunk, reference, &mut output[..len])?,
            Base::Rle(rle) => rle.decode(chunk, len, reference, output)?,
            Base::Packed(packed) => {
                let (words, width) = packed.block(chunk)?;
                Backend::detect().unpack(words, width, reference, output);
                for (row, value) in packed.patches_of(chunk) {
                    output[*row as usize % CHUNK_ROWS] = value.plus(reference);
                }
            }
        }
        Ok(())
    }
}

impl<T: Unit> Encoded<T> {
    /// Decodes these rows of a chunk at least, which are ascending.
    pub fn decode_rows(
        &self,
        chunk: usize,
        len: usize,
        rows: impl ExactSizeIterator<Item = usize>,
        output: &mut [T; CHUNK_ROWS],
    ) -> VortexResult<()> {
        match (&self.base, self.reference(chunk)) {
            (Base::Runs(runs), Some(reference)) if runs.are_long_for(rows.len()) => {
                runs.decode_rows(chunk, reference, rows, &mut output[..len])
            }
            _ => self.decode(chunk, len, output),
        }
    }
}

impl Encoded<u32> {
    /// The runs of a chunk, of which the first `len` values count, if it is stored as few of them.
    pub fn runs(&self, chunk: usize, len: usize) -> Option<ChunkRuns<'_>> {
        match &self.base {
            Base::Runs(runs) => runs.of_chunk(chunk, len, self.reference(chunk)?),
            _ => None,
        }
    }

    /// Rows of the average run; one where there are none.
    pub fn rows_per_run(&self) -> f64 {
        match &self.base {
            Base::Runs(runs) => runs.rows_per_run(),
            _ => 1.0,
        }
    }
}

impl<T: Unit + Narrow> Encoded<T> {
    /// Decodes a chunk and widens its values, with their signs or without.
    pub fn decode_widened(
        &self,
        chunk: usize,
        len: usize,
        signed: bool,
        output: &mut [u32; CHUNK_ROWS],
    ) -> VortexResult<()> {
        let mut values = [T::default(); CHUNK_ROWS];
        self.decode(chunk, len, &mut values)?;
        Backend::detect().widen(&values[..len], signed, output);
        Ok(())
    }
}

impl<T: Unit> Packed<T> {
    /// The most bits that a value has in its block.
    fn width_max(&self) -> usize {
        match &self.blocks {
            Blocks::Width(width) => *width,
            Blocks::Offsets(offsets) => {
                let bytes = offsets
                    .windows(2)
                    .map(|pair| pair[1].saturating_sub(pair[0]));
                bytes.max().unwrap_or(0) as usize / 128
            }
        }
    }

    /// The words of a block, and the width of its values in bits.
    fn block(&self, chunk: usize) -> VortexResult<(&[T], usize)> {
        let (start, end) = match &self.blocks {
            Blocks::Width(width) => (chunk * 128 * width, (chunk + 1) * 128 * width),
            Blocks::Offsets(offsets) => {
                let base = offsets.first().copied().unwrap_or(0);
                let bound = |idx: usize| {
                    let offset = offsets.get(idx)?.checked_sub(base)?;
                    usize::try_from(offset).ok()
                };
                bound(chunk)
                    .zip(bound(chunk + 1))
                    .ok_or_else(|| vortex_err!("no bounds for block {chunk}"))?
            }
        };
        let unit = size_of::<T>();
        let width = end.saturating_sub(start) / 128;
        vortex_ensure!(
            start <= end && (end - start) % 128 == 0 && width <= unit * 8,
            "block {chunk} is packed from byte {start} to {end}"
        );
        let words = self.words.get(start / unit..end / unit);
        words
            .map(|words| (words, width))
            .ok_or_else(|| vortex_err!("block {chunk} ends after the packed bytes"))
    }

    fn patches_of(&self, chunk: usize) -> &[(u32, T)] {
        if self.patches.is_empty() {
            return &[];
        }
        let rows = (chunk * CHUNK_ROWS) as u32;
        let start = self.patches.partition_point(|(row, _)| *row < rows);
        let rest = &self.patches[start..];
        let len = rest.partition_point(|(row, _)| *row < rows + CHUNK_ROWS as u32);
        &rest[..len]
    }
}
