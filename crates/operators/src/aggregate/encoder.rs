//! Makes keys of groups: words, words with texts beside them, or bytes.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::{DataType, Field};

use crate::Result;
use crate::keys::mixed::{MixedKeys, Place};
use crate::keys::{KeyEncoder, KeyShape, Keys, Nulls};

/// What the keys of groups look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupShape {
    /// This many words.
    Words(usize),
    /// Words, an even number, and the ends of this many texts.
    Mixed { words: usize, texts: usize },
    /// Bytes of any length.
    Bytes,
}

/// Makes keys of columns. NULL equals NULL.
#[derive(Debug)]
pub enum GroupEncoder {
    Plain(KeyEncoder),
    Mixed(MixedKeys),
}

impl GroupEncoder {
    /// For columns of these types, each with whether it may be NULL.
    ///
    /// # Errors
    /// If Arrow has no row format for a type.
    pub fn try_new(columns: &[(DataType, bool)]) -> Result<Self> {
        let plain = KeyEncoder::try_new(columns, Nulls::Equal)?;
        Ok(match (plain.shape(), MixedKeys::of(columns)) {
            (KeyShape::Bytes, Some(mixed)) => Self::Mixed(mixed),
            _ => Self::Plain(plain),
        })
    }

    pub fn shape(&self) -> GroupShape {
        match self {
            Self::Plain(plain) => match plain.shape() {
                KeyShape::Words(words) => GroupShape::Words(words),
                KeyShape::Bytes => GroupShape::Bytes,
            },
            Self::Mixed(mixed) => GroupShape::Mixed {
                words: mixed.words(),
                texts: mixed.texts(),
            },
        }
    }

    /// Whether keys are words, or have one column of texts.
    pub fn is_quick(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.shape() != KeyShape::Bytes,
            Self::Mixed(mixed) => mixed.texts() == 1,
        }
    }

    /// Replaces `keys` by those of this many rows of `columns`.
    ///
    /// # Errors
    /// If Arrow cannot encode a column, and texts of 2³² - 1 bytes or more.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize, keys: &mut Keys) -> Result<()> {
        match self {
            Self::Plain(plain) => plain.encode(columns, rows, keys),
            Self::Mixed(mixed) => mixed.encode(columns, rows, keys),
        }
    }

    /// The columns of keys that wait for their partition's turn, or are spilled.
    pub fn fields(&self) -> Vec<Field> {
        match self {
            Self::Plain(plain) => match plain.shape() {
                KeyShape::Words(words) => (0..words)
                    .map(|word| Field::new(format!("word {word}"), DataType::UInt64, false))
                    .collect(),
                KeyShape::Bytes => vec![Field::new("key", DataType::LargeBinary, false)],
            },
            Self::Mixed(mixed) => {
                let types = mixed.places().iter().map(|place| match place {
                    Place::Text(..) => DataType::BinaryView,
                    Place::Fixed(field) => field.data_type().clone(),
                });
                let numbered = types.enumerate();
                numbered
                    .map(|(number, each)| Field::new(format!("key {number}"), each, true))
                    .collect()
            }
        }
    }

    /// Replaces `keys` by those in columns of [`Self::fields`].
    ///
    /// # Errors
    /// Those of [`Self::encode`].
    pub fn read(&self, columns: &[ArrayRef], keys: &mut Keys) -> Result<()> {
        match (self, columns) {
            (Self::Mixed(mixed), columns) => {
                mixed.encode(columns, columns[0].len(), keys)?;
            }
            (Self::Plain(_), [column]) if *column.data_type() == DataType::LargeBinary => {
                let texts = column.as_binary::<i64>().iter();
                keys.set_bytes(texts.map(Option::unwrap_or_default));
            }
            (Self::Plain(_), [column]) => {
                let words = column.as_primitive::<UInt64Type>().values();
                keys.set_words(1, words.chunks_exact(1));
            }
            (Self::Plain(_), columns) => {
                let words = columns
                    .iter()
                    .map(|column| column.as_primitive::<UInt64Type>());
                let words: Vec<&[u64]> = words.map(|column| &column.values()[..]).collect();
                let rows =
                    (0..words[0].len()).flat_map(|row| words.iter().map(move |word| word[row]));
                let rows: Vec<u64> = rows.collect();
                keys.set_words(columns.len(), rows.chunks_exact(columns.len()));
            }
        }
        Ok(())
    }
}
