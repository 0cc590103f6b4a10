//! Columns of a row group of which any 1024 rows can be decoded alone, into a buffer that stays in the core's
//! first cache: what a look-up or a filter reads is never written to memory.
//!
//! Dictionaries and the integers that `encoded` knows are decoded here; any other encoding is decoded as a whole by
//! Vortex first.

use arrow::array::{Array, ArrayRef as ArrowRef};
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;
use vortex::array::arrays::dict::DictArraySlotsExt;
use vortex::array::arrays::extension::ExtensionArrayExt;
use vortex::array::arrays::{Dict, Extension, PrimitiveArray};
use vortex::array::dtype::{DType, PType};
use vortex::array::{ArrayRef, ExecutionCtx};
use vortex::error::VortexResult;

pub(super) use super::encoded::CHUNK_ROWS;
use super::encoded::{Encoded, encoded, words_of};

/// A column of a row group.
pub(super) struct ChunkColumn {
    len: usize,
    stored: Stored,
    /// Values by code, where the stored integers are codes.
    pub dictionary: Option<Vec<u64>>,
    /// A bit per row that is not NULL, where some are.
    pub valid: Option<Vec<u64>>,
    /// Whether the column's type has a sign (codes have none).
    pub signed: bool,
    width_bytes: usize,
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
    /// Empty until a wide column comes.
    pub wide: Vec<u64>,
}

impl Default for ChunkBuffer {
    fn default() -> Self {
        Self {
            narrow: Box::new([0; CHUNK_ROWS]),
            wide: Vec::new(),
        }
    }
}

impl ChunkColumn {
    /// A column as it is stored. `None`: in a way that has to be decoded as a whole.
    pub fn of_stored(array: &ArrayRef, ctx: &mut ExecutionCtx) -> VortexResult<Option<Self>> {
        if let Some(extension) = array.as_opt::<Extension>() {
            return Self::of_stored(extension.storage_array(), ctx);
        }
        if !array.validity()?.definitely_no_nulls() {
            return Ok(None);
        }
        if let Some(dict) = array.as_opt::<Dict>() {
            return Self::of_dictionary(dict.codes(), dict.values(), ctx);
        }
        let DType::Primitive(ptype, _) = array.dtype() else {
            return Ok(None);
        };
        let stored = match ptype {
            PType::I8 | PType::U8 => encoded(array, ctx)?.map(Stored::Bits8),
            PType::I16 | PType::U16 => encoded(array, ctx)?.map(Stored::Bits16),
            PType::I32 | PType::U32 => encoded(array, ctx)?.map(Stored::Bits32),
            PType::I64 | PType::U64 => encoded(array, ctx)?.map(Stored::Bits64),
            _ => None,
        };
        Ok(stored.map(|stored| Self {
            len: array.len(),
            stored,
            dictionary: None,
            valid: None,
            signed: ptype.is_signed_int(),
            width_bytes: ptype.byte_width(),
        }))
    }

    fn of_dictionary(
        codes: &ArrayRef,
        values: &ArrayRef,
        ctx: &mut ExecutionCtx,
    ) -> VortexResult<Option<Self>> {
        let storage = match values.dtype() {
            DType::Primitive(ptype, _) if ptype.is_int() => *ptype,
            _ => return Ok(None),
        };
        if !values.validity()?.definitely_no_nulls() {
            return Ok(None);
        }
        let Some(codes) = Self::of_stored(codes, ctx)? else {
            return Ok(None);
        };
        if codes.dictionary.is_some() || codes.is_wide() {
            return Ok(None);
        }
        let values = values.clone().execute::<PrimitiveArray>(ctx)?;
        Ok(Some(Self {
            dictionary: Some(words_of(&values, storage)?),
            signed: storage.is_signed_int(),
            width_bytes: storage.byte_width(),
            ..codes
        }))
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
        let width_bytes = array.data_type().primitive_width().unwrap_or(0);
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
        Ok(Self {
            len,
            stored,
            dictionary: None,
            valid: array
                .logical_nulls()
                .filter(|nulls| nulls.null_count() > 0)
                .map(|nulls| nulls.inner().bit_chunks().iter_padded().collect()),
            signed: !unsigned,
            width_bytes,
        })
    }

    /// Width of the column's values.
    pub fn width_bytes(&self) -> usize {
        self.width_bytes
    }

    /// Whether chunks are words of 64 bits.
    pub fn is_wide(&self) -> bool {
        matches!(self.stored, Stored::Bits64(_))
    }

    /// Rows of a chunk: 1024, or fewer in the last.
    pub fn chunk_len(&self, chunk: usize) -> usize {
        self.len.saturating_sub(chunk * CHUNK_ROWS).min(CHUNK_ROWS)
    }

    /// Decodes a chunk: codes, where there is a dictionary.
    pub fn decode(&self, chunk: usize, buffer: &mut ChunkBuffer) -> VortexResult<()> {
        let len = self.chunk_len(chunk);
        let narrow = buffer.narrow.as_mut_slice();
        let extend = self.signed && self.dictionary.is_none();
        match &self.stored {
            Stored::Bits8(stored) if extend => {
                stored.decode(chunk, len, narrow, |word| word as i8 as i32 as u32)
            }
            Stored::Bits8(stored) => stored.decode(chunk, len, narrow, u32::from),
            Stored::Bits16(stored) if extend => {
                stored.decode(chunk, len, narrow, |word| word as i16 as i32 as u32)
            }
            Stored::Bits16(stored) => stored.decode(chunk, len, narrow, u32::from),
            Stored::Bits32(stored) => stored.decode(chunk, len, narrow, |word| word),
            Stored::Bits64(stored) => {
                buffer.wide.resize(CHUNK_ROWS, 0);
                stored.decode(chunk, len, &mut buffer.wide, |word| word)
            }
        }
    }

    /// The value at a row of a decoded chunk, as a word of 64 bits with its sign.
    pub fn word(&self, buffer: &ChunkBuffer, row: usize) -> u64 {
        if self.is_wide() {
            return buffer.wide.get(row).copied().unwrap_or(0);
        }
        let word = buffer.narrow[row % CHUNK_ROWS];
        match &self.dictionary {
            Some(values) => values.get(word as usize).copied().unwrap_or(0),
            None if self.signed => i64::from(word as i32) as u64,
            None => u64::from(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vortex::VortexSessionDefault;
    use vortex::array::arrays::{ConstantArray, DictArray};
    use vortex::array::{IntoArray, VortexSessionExecute};
    use vortex::buffer::Buffer;
    use vortex::encodings::fastlanes::{BitPackedData, FoRData};
    use vortex::encodings::runend::RunEnd;
    use vortex::session::VortexSession;

    fn decoded(array: &ArrayRef, context: &mut ExecutionCtx) -> Option<Vec<i64>> {
        let column = ChunkColumn::of_stored(array, context).unwrap()?;
        let mut buffer = ChunkBuffer::default();
        let mut values = Vec::new();
        for chunk in 0..array.len().div_ceil(CHUNK_ROWS) {
            column.decode(chunk, &mut buffer).unwrap();
            let rows = 0..column.chunk_len(chunk);
            values.extend(rows.map(|row| column.word(&buffer, row) as i64));
        }
        Some(values)
    }

    /// Small values with a few far outliers: these become patches.
    fn values() -> Vec<i32> {
        let value = |row: i32| {
            if row % 97 == 5 {
                row * 100_000 % 1_000_003
            } else {
                row * 7 % 300
            }
        };
        (0..2500).map(value).collect()
    }

    #[test]
    fn every_integer_encoding_decodes_to_its_values() {
        let session = VortexSession::default();
        let mut context = session.create_execution_ctx();
        let values = values();
        let plain = Buffer::copy_from(&values).into_array();
        let primitive = plain.clone().execute::<PrimitiveArray>(&mut context);
        let primitive = primitive.unwrap();
        let codes: Vec<u16> = (0..2500).map(|row| row % 300).collect();
        let words = Buffer::copy_from(&values[..300]).into_array();
        let by_code: Vec<i32> = codes.iter().map(|code| values[*code as usize]).collect();
        let run_values: Vec<i32> = (0..2500).map(|row| row / 3 % 50 + row / 100).collect();
        let runs = Buffer::copy_from(&run_values).into_array();
        let runs = RunEnd::encode(runs, &mut context).unwrap();
        let is_end = |row: &usize| run_values.get(*row) != run_values.get(row - 1);
        let ends: Vec<usize> = (1031..=2500).filter(is_end).collect();
        let values_of_runs: Vec<i32> = ends.iter().map(|end| run_values[end - 1]).collect();
        let ends: Vec<u32> = ends.into_iter().map(|end| end as u32).collect();
        let part = RunEnd::try_new_offset_length(
            Buffer::copy_from(&ends).into_array(),
            Buffer::copy_from(&values_of_runs).into_array(),
            1030,
            1100,
            &mut context,
        );
        let cases: Vec<(ArrayRef, Vec<i32>)> = vec![
            (plain.clone(), values.clone()),
            (
                BitPackedData::encode(&plain, 9, &mut context)
                    .unwrap()
                    .into_array(),
                values.clone(),
            ),
            (
                BitPackedData::encode_blocked(&plain, &[9, 0, 20], &mut context)
                    .unwrap()
                    .into_array(),
                values.clone(),
            ),
            (
                FoRData::encode(primitive.clone(), &mut context)
                    .unwrap()
                    .into_array(),
                values.clone(),
            ),
            (
                FoRData::encode_chunked(primitive, &mut context)
                    .unwrap()
                    .into_array(),
                values.clone(),
            ),
            (runs.into_array(), run_values.clone()),
            (part.unwrap().into_array(), run_values[1030..2130].to_vec()),
            (
                DictArray::try_new(Buffer::copy_from(&codes).into_array(), words)
                    .unwrap()
                    .into_array(),
                by_code,
            ),
            (ConstantArray::new(-7i32, 2500).into_array(), vec![-7; 2500]),
        ];
        for (array, expected) in cases {
            let expected: Vec<i64> = expected.into_iter().map(i64::from).collect();
            let found = decoded(&array, &mut context);
            assert_eq!(found, Some(expected), "{}", array.encoding_id());
        }
    }

    #[test]
    fn signs_survive_narrow_and_wide_types() {
        let session = VortexSession::default();
        let mut context = session.create_execution_ctx();
        let narrow = Buffer::copy_from([-3i8, 5, i8::MIN]).into_array();
        let wide = Buffer::copy_from([-3i64, 5, i64::MIN]).into_array();
        let unsigned = Buffer::copy_from([200u8, 5, 255]).into_array();
        assert_eq!(decoded(&narrow, &mut context), Some(vec![-3, 5, -128]));
        assert_eq!(decoded(&wide, &mut context), Some(vec![-3, 5, i64::MIN]));
        assert_eq!(decoded(&unsigned, &mut context), Some(vec![200, 5, 255]));
    }

    #[test]
    fn nulls_are_left_to_vortex() {
        let session = VortexSession::default();
        let mut context = session.create_execution_ctx();
        let array = PrimitiveArray::from_option_iter([Some(1i32), None]).into_array();
        assert_eq!(decoded(&array, &mut context), None);
    }
}
