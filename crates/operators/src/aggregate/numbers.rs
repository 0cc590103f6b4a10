//! Numbers for groups in the order in which their keys come, for those who aggregate themselves.

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::encoder::GroupEncoder;
use super::groups::{Directory, GroupKeys};
use super::mixed::Texts;
use crate::Result;
use crate::keys::Keys;

/// Numbers groups by their keys, from zero. NULL is a value, zero is minus zero, and NaN is NaN.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow_array::{ArrayRef, StringArray};
/// # use arrow_schema::DataType;
/// # use hotshelf_operators::aggregate::GroupNumbers;
/// # fn main() -> hotshelf_operators::Result<()> {
/// let mut numbers = GroupNumbers::try_new(&[(DataType::Utf8, true)])?;
/// let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "a", "b"]));
/// let mut of_rows = Vec::new();
/// numbers.number(&[texts], 3, &mut of_rows)?;
/// assert_eq!(of_rows, [0, 1, 0]);
/// let keys: ArrayRef = Arc::new(StringArray::from(vec!["b", "a"]));
/// assert_eq!(numbers.take()?, [keys]);
/// # Ok(())
/// # }
/// ```
pub struct GroupNumbers {
    encoder: GroupEncoder,
    stored: GroupKeys,
    directory: Directory,
    keys: Keys,
}

impl GroupNumbers {
    /// For key columns of these types, each with whether it may be NULL.
    ///
    /// # Errors
    /// If Arrow has no row format for a type.
    pub fn try_new(columns: &[(DataType, bool)]) -> Result<Self> {
        let encoder = GroupEncoder::try_new(columns)?;
        Ok(Self {
            stored: GroupKeys::new(encoder.shape()),
            encoder,
            directory: Directory::default(),
            keys: Keys::default(),
        })
    }

    /// Whether keys are words, or have one column of texts.
    pub fn is_quick(&self) -> bool {
        self.encoder.is_quick()
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces `numbers` by the group of each of this many rows. There are at most 2³² - 2 groups.
    ///
    /// # Errors
    /// If Arrow cannot encode a column.
    pub fn number(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        numbers: &mut Vec<usize>,
    ) -> Result<()> {
        let Self {
            encoder,
            stored,
            directory,
            keys,
        } = self;
        encoder.encode(columns, rows, keys)?;
        directory.find(stored, keys, numbers);
        keys.release();
        Ok(())
    }

    /// Takes the key columns of all groups, in their order. There are none afterwards.
    ///
    /// # Errors
    /// If Arrow refuses the values, among them texts of more bytes than its offsets can say.
    pub fn take(&mut self) -> Result<Vec<ArrayRef>> {
        let empty = GroupKeys::new(self.encoder.shape());
        let stored = std::mem::replace(&mut self.stored, empty);
        self.directory = Directory::default();
        stored.decode(&self.encoder, Texts::Typed)
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> u64 {
        let work = self.keys.memory_bytes() as u64;
        self.directory.bytes() + self.stored.bytes() + work
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::Array;
    use arrow_row::{OwnedRow, RowConverter, SortField};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::batch;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn groups_are_numbered_as_their_keys_come(
            seed: u64,
            // All columns but floats, whose zeros the oracle tells apart.
            columns in proptest::sample::subsequence(vec![0usize, 1, 3, 4, 5, 6, 7, 8], 1..4),
            sizes in proptest::collection::vec(1usize..3000, 1..5),
        ) {
            let parts: Vec<_> = (seed % 97..)
                .zip(&sizes)
                .map(|(seed, rows)| batch(*rows, 0, seed).project(&columns).unwrap())
                .collect();
            let types = parts[0].columns().iter();
            let types: Vec<_> = types.map(|column| (column.data_type().clone(), true)).collect();
            let fields = types.iter().map(|(each, _)| SortField::new(each.clone()));
            let converter = RowConverter::new(fields.collect()).unwrap();
            let mut numbers = GroupNumbers::try_new(&types).unwrap();
            let mut known: HashMap<OwnedRow, usize> = HashMap::new();
            let mut keys = Vec::new();
            let mut found = Vec::new();
            for part in &parts {
                numbers.number(part.columns(), part.num_rows(), &mut found).unwrap();
                let rows = converter.convert_columns(part.columns()).unwrap();
                let expected: Vec<usize> = rows.iter().map(|row| {
                    let next = known.len();
                    let number = *known.entry(row.owned()).or_insert(next);
                    if number == next {
                        keys.push(row.owned());
                    }
                    number
                }).collect();
                prop_assert_eq!(&found, &expected);
                prop_assert_eq!(numbers.len(), known.len());
            }
            let taken = numbers.take().unwrap();
            let taken = converter.convert_columns(&taken).unwrap();
            prop_assert!(taken.iter().map(|row| row.owned()).eq(keys));
            prop_assert!(numbers.is_empty());
        }
    }
}
