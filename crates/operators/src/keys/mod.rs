//! Keys of joins and groups: any columns as fixed words where they are narrow, as bytes otherwise, with 64-bit hashes.
//!
//! Two rows have equal keys exactly if their words (or bytes) are equal. A key of up to four words holds integers,
//! dates, timestamps, decimals, floats and booleans side by side; anything else becomes bytes. The exception are groups
//! by texts and columns of fixed width (`mixed`): their keys are words, two for each text, and texts of more than 12
//! bytes, which are compared where the words are equal. Zero equals minus zero, and NaN equals NaN.
//!
//! ```text
//! let encoder = KeyEncoder::try_new(&[(DataType::Int64, false)], Nulls::Equal)?;
//! let mut keys = Keys::default();           // reused from batch to batch
//! encoder.encode(&columns, rows, &mut keys)?; // keys.hashes(), keys.words(row) or keys.bytes(row)
//! let columns = encoder.decode_words(&words_of_groups)?;
//! ```

pub(crate) mod bytes;
pub(crate) mod fixed;
mod hash;
pub(crate) mod mixed;
pub(crate) mod texts;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use crate::Result;
use bytes::ByteKeys;
use fixed::{FixedField, Packing};
pub use hash::{hash_bytes, hash_word, hash_words};
use texts::TextColumn;

/// The most words of a key of fixed width.
const WORDS_MAX: usize = 4;

/// What NULL equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// Nothing, as in `a = b`: rows with NULL in a key column have no key.
    Distinct,
    /// NULL, as in `IS NOT DISTINCT FROM` and `GROUP BY`.
    Equal,
}

/// What the keys of an encoder look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyShape {
    /// This many words of 64 bits, at most four.
    Words(usize),
    /// Bytes of any length.
    Bytes,
}

/// Makes keys of columns, and columns of keys.
#[derive(Debug)]
pub struct KeyEncoder {
    nulls: Nulls,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Words {
        fields: Vec<FixedField>,
        words: usize,
    },
    Bytes(ByteKeys),
}

/// The keys of a batch.
#[derive(Debug, Default)]
pub struct Keys {
    rows: usize,
    stride: usize,
    words: Vec<u64>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<u64>,
    valid: Option<NullBuffer>,
    /// The columns of texts, where words have not all of them.
    texts: Vec<TextColumn>,
}

impl KeyEncoder {
    /// An encoder for columns of these types, each with whether it may be NULL.
    ///
    /// # Errors
    /// If Arrow has no row format for a type.
    pub fn try_new(columns: &[(DataType, bool)], nulls: Nulls) -> Result<Self> {
        let is_fixed = |(data_type, _): &(DataType, bool)| fixed::fixed_bits(data_type).is_some();
        if !columns.is_empty() && columns.iter().all(is_fixed) {
            let types = columns.iter().map(|(data_type, nullable)| {
                (data_type.clone(), *nullable && nulls == Nulls::Equal)
            });
            let mut packing = Packing::after(0);
            let fields = packing.fields(&types.collect::<Vec<_>>());
            if packing.words() <= WORDS_MAX {
                let words = packing.words();
                return Ok(Self {
                    nulls,
                    form: Form::Words { fields, words },
                });
            }
        }
        let types = columns.iter().map(|(data_type, _)| data_type.clone());
        Ok(Self {
            nulls,
            form: Form::Bytes(ByteKeys::try_new(types.collect(), nulls)?),
        })
    }

    /// What the keys look like.
    pub fn shape(&self) -> KeyShape {
        match &self.form {
            Form::Words { words, .. } => KeyShape::Words(*words),
            Form::Bytes(_) => KeyShape::Bytes,
        }
    }

    /// The place of a key column inside the key, if keys are words.
    pub(crate) fn field(&self, column: usize) -> Option<&FixedField> {
        match &self.form {
            Form::Words { fields, .. } => fields.get(column),
            Form::Bytes(_) => None,
        }
    }

    /// Whether keys are the bytes of one string column, with a mark if NULL equals NULL.
    pub(crate) fn is_text(&self) -> bool {
        matches!(&self.form, Form::Bytes(form) if form.is_text())
    }

    /// Replaces `keys` by those of this many rows of `columns`, which have the types of the encoder. All rows have
    /// equal keys if there are no columns.
    ///
    /// # Errors
    /// If Arrow cannot encode a column.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize, keys: &mut Keys) -> Result<()> {
        self.encode_unhashed(columns, rows, keys)?;
        match self.shape() {
            KeyShape::Words(_) => keys.hash_words(),
            KeyShape::Bytes => keys.hash_bytes(),
        }
        Ok(())
    }

    /// As [`Self::encode`], without hashes.
    pub(crate) fn encode_unhashed(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        keys: &mut Keys,
    ) -> Result<()> {
        keys.clear(rows);
        if self.nulls == Nulls::Distinct {
            let nulls = columns.iter().filter_map(|column| column.logical_nulls());
            keys.valid = nulls
                .filter(|nulls| nulls.null_count() > 0)
                .reduce(|all, nulls| NullBuffer::new(all.inner() & nulls.inner()));
        }
        match &self.form {
            Form::Words { fields, words } => {
                keys.stride = *words;
                keys.words.resize(keys.rows * words, 0);
                for (field, column) in fields.iter().zip(columns) {
                    field.pack_key(column, &mut keys.words, *words);
                }
            }
            Form::Bytes(_) if columns.is_empty() => keys.ends.resize(rows, 0),
            Form::Bytes(form) => form.encode(columns, &mut keys.bytes, &mut keys.ends)?,
        }
        Ok(())
    }

    /// The key columns of rows of words, one after the other, as [`Keys::words`] had them.
    ///
    /// # Errors
    /// If Arrow refuses the values, which then come from another encoder.
    pub fn decode_words(&self, rows: &[u64]) -> Result<Vec<ArrayRef>> {
        match &self.form {
            Form::Words { fields, words } => fields
                .iter()
                .map(|field| field.unpack(rows, *words))
                .collect(),
            Form::Bytes(_) => unreachable!("this encoder makes bytes"),
        }
    }

    /// The key columns of rows of bytes, as [`Keys::bytes`] had them.
    ///
    /// # Errors
    /// If Arrow refuses the values, which then come from another encoder.
    pub fn decode_bytes<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        match &self.form {
            Form::Bytes(form) => form.decode(rows),
            Form::Words { .. } => unreachable!("this encoder makes words"),
        }
    }
}

impl Keys {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The hash of each row's key. That of a row without a key means nothing.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Which rows have a key: all, if this is missing.
    pub fn valid(&self) -> Option<&NullBuffer> {
        self.valid.as_ref()
    }

    /// Whether a row has a key.
    #[inline]
    pub fn has_key(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid.is_valid(row))
    }

    /// The key of a row, if keys are words.
    #[inline(always)]
    pub fn words(&self, row: usize) -> &[u64] {
        &self.words[row * self.stride..(row + 1) * self.stride]
    }

    /// The keys of all rows, one after the other, if keys are words.
    pub fn all_words(&self) -> &[u64] {
        &self.words
    }

    /// The key of a row, if keys are bytes.
    #[inline]
    pub fn bytes(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    /// The columns of texts whose ends are not in the words, as the encoder numbers them.
    #[inline(always)]
    pub(crate) fn texts(&self) -> &[TextColumn] {
        &self.texts
    }

    /// Lets go of the columns of texts.
    pub(crate) fn release(&mut self) {
        self.texts.clear();
    }

    /// Replaces the keys by words that an encoder made before, without NULL.
    pub(crate) fn set_words<'a>(&mut self, stride: usize, rows: impl Iterator<Item = &'a [u64]>) {
        self.clear(0);
        self.stride = stride;
        for row in rows {
            self.words.extend_from_slice(row);
            self.rows += 1;
        }
        self.hash_words();
    }

    /// Replaces the keys by bytes that an encoder made before, without NULL.
    pub(crate) fn set_bytes<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]>) {
        self.clear(0);
        for row in rows {
            self.bytes.extend_from_slice(row);
            self.ends.push(self.bytes.len());
            self.rows += 1;
        }
        self.hash_bytes();
    }

    /// Replaces the upper bits of the hashes of keys of one word.
    pub(crate) fn set_upper_bits(&mut self, bits: u32, upper: impl Fn(u64) -> u64) {
        let lower = u64::MAX >> bits;
        for (hash, &word) in self.hashes.iter_mut().zip(&self.words) {
            *hash = *hash & lower | upper(word) << (u64::BITS - bits);
        }
    }

    /// Bytes of memory that the keys hold.
    pub fn memory_bytes(&self) -> usize {
        let words = self.words.capacity() + self.ends.capacity() + self.hashes.capacity();
        words * 8 + self.bytes.capacity()
    }

    fn clear(&mut self, rows: usize) {
        self.rows = rows;
        self.words.clear();
        self.bytes.clear();
        self.ends.clear();
        self.hashes.clear();
        self.valid = None;
        self.texts.clear();
    }

    fn hash_words(&mut self) {
        if self.stride == 1 {
            self.hashes
                .extend(self.words.iter().map(|&word| hash_word(word)));
        } else {
            let rows = self.words.chunks_exact(self.stride);
            self.hashes.extend(rows.map(hash_words));
        }
    }

    fn hash_bytes(&mut self) {
        let mut start = 0;
        for &end in &self.ends {
            self.hashes.push(hash_bytes(&self.bytes[start..end]));
            start = end;
        }
    }
}

#[cfg(test)]
mod tests;
