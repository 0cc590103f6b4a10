//! Columns of fixed width inside rows of 64-bit words.

use arrow_array::{Array, ArrayRef, BooleanArray, make_array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayDataBuilder;
use arrow_schema::DataType;

use crate::Result;

/// How many bits a value of this type takes, if that is the same for all.
pub fn fixed_bits(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Boolean => Some(1),
        other => other.primitive_width().map(|bytes| bytes as u32 * 8),
    }
}

/// Where a column lies inside a row of words.
#[derive(Debug, Clone)]
pub struct FixedField {
    data_type: DataType,
    bits: u32,
    word: usize,
    shift: u32,
    /// Word and bit that are set where the value is NULL.
    null: Option<(usize, u32)>,
}

/// Gives columns their places in a row of words: wide ones first, so that none straddles words.
#[derive(Debug)]
pub struct Packing {
    /// Bits used of each word.
    used: Vec<u32>,
}

impl Packing {
    /// Rows whose first `reserved` words have another use.
    pub fn after(reserved: usize) -> Self {
        Self {
            used: vec![64; reserved],
        }
    }

    /// Words of a row.
    pub fn words(&self) -> usize {
        self.used.len()
    }

    /// A place of `bits` bits: the word and the shift.
    pub fn place(&mut self, bits: u32) -> (usize, u32) {
        let free = |used: &u32| *used < 64 && used.next_multiple_of(bits) + bits <= 64;
        if bits < 64
            && let Some(word) = self.used.iter().position(free)
        {
            let shift = self.used[word].next_multiple_of(bits);
            self.used[word] = shift + bits;
            return (word, shift);
        }
        let word = self.used.len();
        let words = bits.div_ceil(64) as usize;
        self.used.extend(std::iter::repeat_n(bits.min(64), words));
        (word, 0)
    }

    /// Places all columns of `types`, each with whether it needs a bit for NULL. All types have fixed bits.
    pub fn fields(&mut self, types: &[(DataType, bool)]) -> Vec<FixedField> {
        let bits = |idx: usize| fixed_bits(&types[idx].0).unwrap_or(64);
        let mut order: Vec<usize> = (0..types.len()).collect();
        order.sort_by_key(|&idx| std::cmp::Reverse(bits(idx)));
        let mut fields: Vec<Option<FixedField>> = vec![None; types.len()];
        for idx in order {
            let (word, shift) = self.place(bits(idx));
            fields[idx] = Some(FixedField {
                data_type: types[idx].0.clone(),
                bits: bits(idx),
                word,
                shift,
                null: None,
            });
        }
        let mut fields: Vec<FixedField> = fields.into_iter().flatten().collect();
        for (field, (_, nullable)) in fields.iter_mut().zip(types) {
            field.null = nullable.then(|| self.place(1));
        }
        fields
    }
}

impl FixedField {
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Adds the values of `array` to rows of `stride` words, which are zero in this field's place. NULL leaves zeros
    /// and sets its bit, if there is one.
    pub fn pack(&self, array: &dyn Array, rows: &mut [u64], stride: usize) {
        self.pack_with(array, rows, stride, |bits| bits);
    }

    /// As [`Self::pack`], with equal keys made equal bits: one zero and one NaN.
    pub fn pack_key(&self, array: &dyn Array, rows: &mut [u64], stride: usize) {
        match self.data_type {
            DataType::Float64 => self.pack_with(array, rows, stride, |bits| {
                canonical(bits, 1 << 63, 0x7ff0 << 48)
            }),
            DataType::Float32 => self.pack_with(array, rows, stride, |bits| {
                canonical(bits, 1 << 31, 0x7f80 << 16)
            }),
            DataType::Float16 => {
                self.pack_with(array, rows, stride, |bits| canonical(bits, 1 << 15, 0x7c00))
            }
            _ => self.pack(array, rows, stride),
        }
    }

    fn pack_with(
        &self,
        array: &dyn Array,
        rows: &mut [u64],
        stride: usize,
        map: impl Fn(u64) -> u64 + Copy,
    ) {
        if array.is_empty() {
            return;
        }
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let nulls = nulls.as_ref();
        match self.bits {
            1 => self.pack_bits(array, rows, stride, nulls),
            8 => self.pack_values::<u8>(array, rows, stride, nulls, map),
            16 => self.pack_values::<u16>(array, rows, stride, nulls, map),
            32 => self.pack_values::<u32>(array, rows, stride, nulls, map),
            _ => self.pack_wide(array, rows, stride, nulls, map),
        }
        self.set_nulls(nulls, rows, stride);
    }

    /// Sets the bits of NULLs only: the values are there already.
    pub fn pack_nulls(&self, array: &dyn Array, rows: &mut [u64], stride: usize) {
        self.set_nulls(array.logical_nulls().as_ref(), rows, stride);
    }

    /// Gives the field another bit for NULL.
    pub fn set_null(&mut self, place: (usize, u32)) {
        self.null = Some(place);
    }

    fn set_nulls(&self, nulls: Option<&NullBuffer>, rows: &mut [u64], stride: usize) {
        if let (Some(nulls), Some((word, bit))) = (nulls, self.null) {
            for (row, valid) in rows.chunks_exact_mut(stride).zip(nulls) {
                row[word] |= u64::from(!valid) << bit;
            }
        }
    }

    fn pack_bits(
        &self,
        array: &dyn Array,
        rows: &mut [u64],
        stride: usize,
        nulls: Option<&NullBuffer>,
    ) {
        let Some(array) = array.as_any().downcast_ref::<BooleanArray>() else {
            return;
        };
        let values = match nulls {
            Some(nulls) => array.values() & nulls.inner(),
            None => array.values().clone(),
        };
        for (row, value) in rows.chunks_exact_mut(stride).zip(&values) {
            row[self.word] |= u64::from(value) << self.shift;
        }
    }

    fn pack_values<T: ArrowNativeType + Into<u64>>(
        &self,
        array: &dyn Array,
        rows: &mut [u64],
        stride: usize,
        nulls: Option<&NullBuffer>,
        map: impl Fn(u64) -> u64,
    ) {
        let data = array.to_data();
        let values = &data.buffer::<T>(0)[..array.len()];
        let rows = rows.chunks_exact_mut(stride);
        match nulls {
            None => rows.zip(values).for_each(|(row, &value)| {
                row[self.word] |= map(value.into()) << self.shift;
            }),
            Some(nulls) => rows
                .zip(values)
                .zip(nulls)
                .for_each(|((row, &value), valid)| {
                    let value = if valid { map(value.into()) } else { 0 };
                    row[self.word] |= value << self.shift;
                }),
        }
    }

    /// Values of one or several whole words.
    fn pack_wide(
        &self,
        array: &dyn Array,
        rows: &mut [u64],
        stride: usize,
        nulls: Option<&NullBuffer>,
        map: impl Fn(u64) -> u64,
    ) {
        let words = (self.bits / 64) as usize;
        let data = array.to_data();
        let bytes = data.buffers()[0].as_slice();
        let start = data.offset() * words * 8;
        let (values, _) = bytes[start..].as_chunks::<8>();
        if stride == 1 && nulls.is_none() {
            // Keys of one word: the usual case.
            let values = values[..array.len()].iter();
            rows.iter_mut()
                .zip(values)
                .for_each(|(row, word)| *row = map(u64::from_le_bytes(*word)));
            return;
        }
        let values = values[..array.len() * words].chunks_exact(words);
        for (row_idx, (row, value)) in rows.chunks_exact_mut(stride).zip(values).enumerate() {
            if nulls.is_none_or(|nulls| nulls.is_valid(row_idx)) {
                let places = &mut row[self.word..self.word + words];
                for (place, word) in places.iter_mut().zip(value) {
                    *place = map(u64::from_le_bytes(*word));
                }
            }
        }
    }

    /// Reads the column back from rows of `stride` words.
    ///
    /// # Errors
    /// If Arrow refuses the values.
    pub fn unpack(&self, rows: &[u64], stride: usize) -> Result<ArrayRef> {
        let words = || rows.chunks_exact(stride).map(|row| row[self.word]);
        let values = match self.bits {
            1 => {
                let bits =
                    BooleanBuffer::from_iter(words().map(|word| word >> self.shift & 1 == 1));
                bits.into_inner()
            }
            8 => Buffer::from_iter(words().map(|word| (word >> self.shift) as u8)),
            16 => Buffer::from_iter(words().map(|word| (word >> self.shift) as u16)),
            32 => Buffer::from_iter(words().map(|word| (word >> self.shift) as u32)),
            64 => Buffer::from_iter(words()),
            _ => self.unpack_wide(rows, stride),
        };
        let data = ArrayDataBuilder::new(self.data_type.clone())
            .len(rows.len() / stride)
            .add_buffer(values)
            .nulls(self.nulls(rows, stride))
            .align_buffers(true)
            .build()?;
        Ok(make_array(data))
    }

    fn unpack_wide(&self, rows: &[u64], stride: usize) -> Buffer {
        let places = self.word..self.word + (self.bits / 64) as usize;
        let mut words: Vec<u64> = Vec::with_capacity(rows.len() / stride * places.len());
        for row in rows.chunks_exact(stride) {
            words.extend_from_slice(&row[places.clone()]);
        }
        Buffer::from_vec(words)
    }

    fn nulls(&self, rows: &[u64], stride: usize) -> Option<NullBuffer> {
        let (word, bit) = self.null?;
        let valid = rows
            .chunks_exact(stride)
            .map(|row| row[word] >> bit & 1 == 0);
        let nulls = NullBuffer::new(BooleanBuffer::from_iter(valid));
        (nulls.null_count() > 0).then_some(nulls)
    }
}

/// The bits of a float with one zero and one NaN.
fn canonical(bits: u64, sign: u64, exponent: u64) -> u64 {
    let magnitude = bits & !sign;
    if magnitude == 0 {
        0
    } else if magnitude > exponent {
        exponent | exponent >> 1
    } else {
        bits
    }
}
