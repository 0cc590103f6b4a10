//! Keys of texts and columns of fixed width: pairs of words, which are equal where keys are, except for texts' ends.

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::Keys;
use super::bytes::is_string;
use super::fixed::{FixedField, Packing, fixed_bits};
use super::hash::hash_pairs;
use super::texts::TextColumn;
use crate::Result;

/// Where the columns are: two words for each text, then columns of fixed width.
#[derive(Debug)]
pub struct MixedKeys {
    places: Vec<Place>,
    texts: usize,
    words: usize,
}

/// Where a column is.
#[derive(Debug)]
pub enum Place {
    /// The text with this number, of this type.
    Text(usize, DataType),
    Fixed(FixedField),
}

impl MixedKeys {
    /// For columns of these types, each with whether it may be NULL, which equals NULL. `None`: there are no columns,
    /// or some are neither texts nor of fixed width.
    pub fn of(columns: &[(DataType, bool)]) -> Option<Self> {
        let is_known = |(each, _): &(DataType, bool)| is_string(each) || fixed_bits(each).is_some();
        if columns.is_empty() || !columns.iter().all(is_known) {
            return None;
        }
        let (texts, fixed): (Vec<_>, Vec<_>) = columns
            .iter()
            .cloned()
            .partition(|(each, _)| is_string(each));
        let mut packing = Packing::after(2 * texts.len());
        let mut fields = packing.fields(&fixed).into_iter();
        let mut numbers = 0..texts.len();
        let place = |(each, _): &(DataType, bool)| match is_string(each) {
            true => Some(Place::Text(numbers.next()?, each.clone())),
            false => fields.next().map(Place::Fixed),
        };
        Some(Self {
            places: columns.iter().filter_map(place).collect(),
            texts: texts.len(),
            words: packing.words().next_multiple_of(2),
        })
    }

    /// How many columns are texts.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// The words of a key, an even number.
    pub fn words(&self) -> usize {
        self.words
    }

    /// The place of each column.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Replaces `keys` by those of this many rows of `columns`. They refer to the columns until they are replaced, or
    /// [`Keys::release`].
    ///
    /// # Errors
    /// Columns of other types, and texts of 2³² - 1 bytes or more.
    pub fn encode(&self, columns: &[ArrayRef], rows: usize, keys: &mut Keys) -> Result<()> {
        keys.clear(rows);
        keys.stride = self.words;
        keys.words.resize(rows * self.words, 0);
        for (place, column) in self.places.iter().zip(columns) {
            match place {
                Place::Text(number, _) => {
                    let texts = TextColumn::of(column)?;
                    texts.pack(&mut keys.words, self.words, 2 * number)?;
                    keys.texts.push(texts);
                }
                Place::Fixed(field) => field.pack_key(column, &mut keys.words, self.words),
            }
        }
        let (pairs, _) = keys.words.as_chunks();
        let pairs = pairs.chunks_exact(self.words / 2);
        keys.hashes.extend(pairs.map(hash_pairs));
        Ok(())
    }
}
