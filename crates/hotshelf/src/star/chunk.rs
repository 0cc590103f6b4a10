//! Columns of a row group of which any 1024 rows can be decoded alone, into a buffer that stays in the core's
//! first cache: what a look-up or a filter reads is never written to memory.
//!
//! Dictionaries and the integers that `encoded` knows are decoded here; any other encoding is decoded as a whole by
//! Vortex first.

use arrow::array::{Array, ArrayRef as ArrowRef};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;
use vortex::array::arrays::decimal::narrowed_decimal;
use vortex::array::arrays::dict::DictArraySlotsExt;
use vortex::array::arrays::extension::ExtensionArrayExt;
use vortex::array::arrays::{Decimal, DecimalArray, Dict, Extension, PrimitiveArray};
use vortex::array::dtype::{DType, DecimalType, PType};
use vortex::array::{ArrayRef, ExecutionCtx, IntoArray};
use vortex::encodings::decimal_byte_parts::{DecimalByteParts, DecimalBytePartsArraySlotsExt};
use vortex::error::VortexResult;

use super::encoded::{Encoded, encoded, ptype_of, words_of};
pub(super) use super::row_set::CHUNK_ROWS;
use super::row_set::is_set;
use super::runs::ChunkRuns;
use super::validity::{Valid, valid_of};
use super::words::{Bounds, Words};

/// A column of a row group.
pub(super) struct ChunkColumn {
    len: usize,
    stored: Stored,
    /// Values by code, where the stored integers are codes.
    pub dictionary: Option<Vec<u64>>,
    /// What is not NULL.
    pub valid: Valid,
    /// Whether the column's type has a sign (codes have none).
    pub signed: bool,
}

/// Columns of a row group that can be decoded by chunks.
#[derive(Clone, Copy)]
pub(super) struct Decodable<'a> {
    /// Which they are, by index in the table.
    pub indices: &'a [usize],
    pub columns: &'a [ChunkColumn],
}

impl Decodable<'_> {
    /// The place of a column among them, by its index in the table.
    pub fn place(&self, column: usize) -> Option<usize> {
        self.indices.iter().position(|idx| *idx == column)
    }
}

/// The stored integers, by width.
enum Stored {
    Bits8(Encoded<u8>),
    Bits16(Encoded<u16>),
    Bits32(Encoded<u32>),
    Bits64(Encoded<u64>),
}

/// One chunk of a column: words of 32 bits for types up to that width, else of 64 bits. Signed values are
/// extended with their sign, codes and others with zeros.
pub(super) struct ChunkBuffer {
    pub narrow: Box<[u32; CHUNK_ROWS]>,
    /// None until a wide column comes.
    wide: Option<Box<[u64; CHUNK_ROWS]>>,
}

impl Default for ChunkBuffer {
    fn default() -> Self {
        Self {
            narrow: Box::new([0; CHUNK_ROWS]),
            wide: None,
        }
    }
}

impl ChunkBuffer {
    /// The words of a wide column.
    pub fn wide(&self) -> &[u64; CHUNK_ROWS] {
        self.wide.as_deref().unwrap_or(&[0; CHUNK_ROWS])
    }
}

impl ChunkColumn {
    /// A column as it is stored. `None`: in a way that has to be decoded as a whole.
    pub fn of_stored(array: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<Option<Self>> {
        if let Some(extension) = array.as_opt::<Extension>() {
            return Self::of_stored(extension.storage_array(), ctx);
        }
        let found = if let Some(dict) = array.as_opt::<Dict>() {
            Self::of_dictionary(dict.codes(), dict.values(), ctx)?
        } else if let Some(parts) = array.as_opt::<DecimalByteParts>() {
            return match parts.lower_parts().is_empty() {
                true => Self::of_stored(parts.msp(), ctx),
                false => Ok(None),
            };
        } else if let Some(decimal) = array.as_opt::<Decimal>() {
            let values = integers(&decimal.into_owned());
            match values {
                Some(values) => Self::of_integers(&values, ctx)?,
                None => None,
            }
        } else {
            Self::of_integers(array, ctx)?
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let valid = valid_of(array, &found, ctx)?;
        Ok(Some(Self { valid, ..found }))
    }

    fn of_integers(array: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<Option<Self>> {
        let DType::Primitive(ptype, _) = array.dtype() else {
            return Ok(None);
        };
        let signed = ptype.is_signed_int();
        let stored = match ptype {
            PType::I8 | PType::U8 => encoded(array, ctx)?.map(|stored: Encoded<u8>| {
                let runs = stored.runs_in_32_bits(signed);
                runs.map_or(Stored::Bits8(stored), Stored::Bits32)
            }),
            PType::I16 | PType::U16 => encoded(array, ctx)?.map(|stored: Encoded<u16>| {
                let runs = stored.runs_in_32_bits(signed);
                runs.map_or(Stored::Bits16(stored), Stored::Bits32)
            }),
            PType::I32 | PType::U32 => encoded(array, ctx)?.map(Stored::Bits32),
            PType::I64 | PType::U64 => encoded(array, ctx)?.map(|stored: Encoded<u64>| {
                let runs = stored.runs_in_32_bits(signed);
                runs.map_or(Stored::Bits64(stored), Stored::Bits32)
            }),
            _ => None,
        };
        Ok(stored.map(|stored| Self {
            len: array.len(),
            stored,
            dictionary: None,
            valid: Valid::All,
            signed,
        }))
    }

    fn of_dictionary(
        codes: &ArrayRef,
        values: &ArrayRef,
        ctx: &mut ExecutionCtx,
    ) -> VortexResult<Option<Self>> {
        let values = match values.dtype() {
            DType::Primitive(ptype, _) if ptype.is_int() => values.clone(),
            DType::Decimal(..) => {
                let decimals = values.clone().execute::<DecimalArray>(ctx)?;
                match integers(&narrowed_decimal(decimals)) {
                    Some(values) => values,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let storage = ptype_of(values.dtype())?;
        let Some(codes) = Self::of_codes(codes, ctx)? else {
            return Ok(None);
        };
        let values = values.execute::<PrimitiveArray>(ctx)?;
        Ok(Some(Self {
            dictionary: Some(words_of(&values, storage)?),
            signed: storage.is_signed_int(),
            ..codes
        }))
    }

    /// The codes of a dictionary.
    pub fn of_codes(codes: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<Option<Self>> {
        let codes = Self::of_stored(codes, ctx)?;
        Ok(codes.filter(|codes| codes.dictionary.is_none() && !codes.is_wide()))
    }

    /// A decoded column of integers, dates or times.
    pub fn of_decoded(array: &ArrowRef) -> QueryResult<Self> {
        let data = array.to_data();
        let Some(bytes) = data.buffers().first() else {
            return internal_err!("a key column has no values");
        };
        let (offset, len) = (data.offset(), data.len());
        macro_rules! plain {
            ($kind:path, $word:ty) => {{
                let values: &[$word] = &bytes.typed_data()[offset..offset + len];
                $kind(Encoded::plain(values))
            }};
        }
        let stored = match array.data_type().primitive_width() {
            Some(1) => plain!(Stored::Bits8, u8),
            Some(2) => plain!(Stored::Bits16, u16),
            Some(4) => plain!(Stored::Bits32, u32),
            Some(8) => plain!(Stored::Bits64, u64),
            _ => return internal_err!("{} is not a key type", array.data_type()),
        };
        let unsigned = matches!(
            array.data_type(),
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64
        );
        let nulls = array.logical_nulls();
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        let valid = nulls.map(|nulls| nulls.inner().bit_chunks().iter_padded().collect());
        Ok(Self {
            len,
            stored,
            dictionary: None,
            valid: Valid::of_rows(valid),
            signed: !unsigned,
        })
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where runs end, by row, where the values are stored as runs.
    pub fn run_ends(&self) -> Option<&[u32]> {
        match &self.stored {
            Stored::Bits32(stored) => stored.run_ends(),
            Stored::Bits64(stored) => stored.run_ends(),
            Stored::Bits8(_) | Stored::Bits16(_) => None,
        }
    }

    /// Whether chunks are words of 64 bits.
    pub fn is_wide(&self) -> bool {
        matches!(self.stored, Stored::Bits64(_))
    }

    /// Rows of a chunk: 1024, or fewer in the last.
    pub fn chunk_len(&self, chunk: usize) -> usize {
        self.len.saturating_sub(chunk * CHUNK_ROWS).min(CHUNK_ROWS)
    }

    /// The runs of a chunk, where words of 32 bits or their codes are stored as few of them.
    pub fn runs(&self, chunk: usize) -> Option<ChunkRuns<'_>> {
        match &self.stored {
            Stored::Bits32(stored) => stored.runs(chunk, self.chunk_len(chunk)),
            _ => None,
        }
    }

    /// Rows that are tested together where runs are.
    pub fn rows_per_run(&self) -> f64 {
        match &self.stored {
            Stored::Bits32(stored) => stored.rows_per_run(),
            _ => 1.0,
        }
    }

    /// Decodes a chunk: codes, where there is a dictionary.
    pub fn decode(&self, chunk: usize, buffer: &mut ChunkBuffer) -> VortexResult<()> {
        let len = self.chunk_len(chunk);
        let narrow = &mut buffer.narrow;
        let extend = self.signed && self.dictionary.is_none();
        match &self.stored {
            Stored::Bits8(stored) => stored.decode_widened(chunk, len, extend, narrow),
            Stored::Bits16(stored) => stored.decode_widened(chunk, len, extend, narrow),
            Stored::Bits32(stored) => stored.decode(chunk, len, narrow),
            Stored::Bits64(stored) => {
                let wide = buffer.wide.get_or_insert_with(|| Box::new([0; CHUNK_ROWS]));
                stored.decode(chunk, len, wide)
            }
        }
    }

    /// Decodes these rows of a chunk at least, which are ascending.
    pub fn decode_rows(
        &self,
        chunk: usize,
        rows: impl ExactSizeIterator<Item = usize>,
        buffer: &mut ChunkBuffer,
    ) -> VortexResult<()> {
        let len = self.chunk_len(chunk);
        match &self.stored {
            Stored::Bits32(stored) => stored.decode_rows(chunk, len, rows, &mut buffer.narrow),
            Stored::Bits64(stored) => {
                let wide = buffer.wide.get_or_insert_with(|| Box::new([0; CHUNK_ROWS]));
                stored.decode_rows(chunk, len, rows, wide)
            }
            _ => self.decode(chunk, buffer),
        }
    }

    /// What the column's values lie between. `None`: they may need 64 bits or more.
    pub fn bounds(&self) -> Option<Bounds> {
        if let Some(words) = &self.dictionary {
            let number = |word: &u64| match self.signed {
                true => i128::from(*word as i64),
                false => i128::from(*word),
            };
            let values = words.iter().map(number);
            return Bounds::new(values.clone().min()?, values.max()?.max(0));
        }
        let (min, max) = match &self.stored {
            Stored::Bits8(stored) => stored.bounds(self.signed),
            Stored::Bits16(stored) => stored.bounds(self.signed),
            Stored::Bits32(stored) => stored.bounds(self.signed),
            Stored::Bits64(stored) => stored.bounds(self.signed),
        };
        Bounds::new(min, max).filter(|bounds| *bounds != Bounds::ALL)
    }

    /// The values at `rows`, which are ascending, extended to 64 bits with their signs.
    pub fn gather(&self, rows: &[u32], buffer: &mut ChunkBuffer) -> VortexResult<Vec<i64>> {
        let mut values = Vec::with_capacity(rows.len());
        for (chunk, rows) in by_chunk(rows) {
            self.decode_rows(chunk, places_of(rows), buffer)?;
            let (narrow, wide) = (&buffer.narrow, buffer.wide());
            // No numbers of rows are looked at where all are wanted.
            let all = rows.len() == self.chunk_len(chunk);
            let places = places_of(rows);
            match &self.dictionary {
                Some(words) => values.extend(places.map(|place| {
                    let word = words.get(narrow[place] as usize);
                    word.copied().unwrap_or(0) as i64
                })),
                None if self.is_wide() && all => {
                    values.extend(wide[..rows.len()].iter().map(|word| *word as i64));
                }
                None if self.is_wide() => values.extend(places.map(|place| wide[place] as i64)),
                None if self.signed && all => {
                    let words = narrow[..rows.len()].iter();
                    values.extend(words.map(|word| i64::from(*word as i32)));
                }
                None if self.signed => {
                    values.extend(places.map(|place| i64::from(narrow[place] as i32)));
                }
                None => values.extend(places.map(|place| i64::from(narrow[place]))),
            }
        }
        Ok(values)
    }

    /// The codes at `rows`, which are ascending, or what else is stored in 32 bits.
    pub fn gather_codes(&self, rows: &[u32], buffer: &mut ChunkBuffer) -> VortexResult<Vec<u32>> {
        let mut codes = Vec::with_capacity(rows.len());
        for (chunk, rows) in by_chunk(rows) {
            self.decode_rows(chunk, places_of(rows), buffer)?;
            if rows.len() == self.chunk_len(chunk) {
                codes.extend_from_slice(&buffer.narrow[..rows.len()]);
                continue;
            }
            codes.extend(places_of(rows).map(|place| buffer.narrow[place]));
        }
        Ok(codes)
    }

    /// The same, and which of them are NULL.
    pub fn gather_with_nulls(
        &self,
        rows: &[u32],
        buffer: &mut ChunkBuffer,
    ) -> VortexResult<(Vec<i64>, Option<NullBuffer>)> {
        let (values, bits) = match (&self.valid, &self.dictionary) {
            (Valid::Codes(valid), Some(words)) => {
                let codes = self.gather_codes(rows, buffer)?;
                let word = |code: &u32| words.get(*code as usize).copied().unwrap_or(0);
                let values = codes.iter().map(|code| word(code) as i64).collect();
                let bits = |idx: usize| is_set(valid, codes[idx]);
                (values, BooleanBuffer::collect_bool(rows.len(), bits))
            }
            (Valid::Rows(valid), _) => {
                let bits = |idx: usize| is_set(valid, rows[idx]);
                let values = self.gather(rows, buffer)?;
                (values, BooleanBuffer::collect_bool(rows.len(), bits))
            }
            _ => return Ok((self.gather(rows, buffer)?, None)),
        };
        let nulls = Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0);
        Ok((values, nulls))
    }

    /// Whether a row of a decoded chunk is NULL.
    pub fn is_null(&self, buffer: &ChunkBuffer, chunk: usize, row: usize) -> bool {
        match &self.valid {
            Valid::All => false,
            Valid::Rows(valid) => !is_set(valid, (chunk * CHUNK_ROWS + row) as u32),
            Valid::Codes(valid) => !is_set(valid, buffer.narrow[row % CHUNK_ROWS]),
        }
    }

    /// The words at `rows`. `None` if one may need more than 64 bits with its sign.
    pub fn words(
        &self,
        rows: &[u32],
        bounds: Option<Bounds>,
        buffer: &mut ChunkBuffer,
    ) -> VortexResult<Option<Words>> {
        let (values, nulls) = self.gather_with_nulls(rows, buffer)?;
        let is_beyond = !self.signed && bounds.is_none() && values.iter().any(|value| *value < 0);
        Ok((!is_beyond).then(|| Words::each(values, nulls, bounds)))
    }

    /// The value at a row of a decoded chunk, as a word of 64 bits with its sign.
    pub fn word(&self, buffer: &ChunkBuffer, row: usize) -> u64 {
        if self.is_wide() {
            return buffer.wide()[row % CHUNK_ROWS];
        }
        let word = buffer.narrow[row % CHUNK_ROWS];
        match &self.dictionary {
            Some(values) => values.get(word as usize).copied().unwrap_or(0),
            None if self.signed => i64::from(word as i32) as u64,
            None => u64::from(word),
        }
    }
}

/// Ascending rows, by the chunks that they are in.
fn by_chunk(mut rows: &[u32]) -> impl Iterator<Item = (usize, &[u32])> {
    std::iter::from_fn(move || {
        let chunk = *rows.first()? as usize / CHUNK_ROWS;
        let end = rows.partition_point(|row| *row as usize / CHUNK_ROWS == chunk);
        let (these, rest) = rows.split_at(end);
        rows = rest;
        Some((chunk, these))
    })
}

/// Where rows are in their chunk.
fn places_of(rows: &[u32]) -> impl ExactSizeIterator<Item = usize> {
    rows.iter().map(|row| *row as usize % CHUNK_ROWS)
}

/// The values of decimals as integers. `None` if they have more than 64 bits.
fn integers(decimals: &DecimalArray) -> Option<ArrayRef> {
    let validity = decimals.validity().ok()?;
    Some(match decimals.values_type() {
        DecimalType::I8 => PrimitiveArray::new(decimals.buffer::<i8>(), validity).into_array(),
        DecimalType::I16 => PrimitiveArray::new(decimals.buffer::<i16>(), validity).into_array(),
        DecimalType::I32 => PrimitiveArray::new(decimals.buffer::<i32>(), validity).into_array(),
        DecimalType::I64 => PrimitiveArray::new(decimals.buffer::<i64>(), validity).into_array(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
