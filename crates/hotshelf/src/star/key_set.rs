//! The keys of a build side of which nothing else is needed. They become a bitmap as soon as that is smaller than they
//! are, so that a side of many rows takes little while it is read.

use arrow::array::{Array, ArrayRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result as QueryResult;

use super::keys::{KeyColumn, steps};
use super::lookup::{Dense, Duplicates, Frame, Lookup};
use super::matching::Matching;

/// Keys are put into a bitmap that takes no more than they do: one in this many slots, at least.
const SLOTS_PER_KEY: u64 = 64;
/// A bitmap in which fewer slots have a key is given up.
const SLOTS_PER_KEY_MAX: u64 = 256;

/// Keys as they come, NULLs left out.
pub(super) struct KeySet {
    matching: Matching,
    keys: Keys,
    row_count: usize,
    /// The least and the greatest key.
    extremes: Option<(Extreme, Extreme)>,
    /// Turns the order of words into that of keys.
    sign: u64,
}

enum Keys {
    Words(Vec<u64>),
    Bits(Dense),
}

#[derive(Clone)]
struct Extreme {
    word: u64,
    value: ScalarValue,
}

impl KeySet {
    pub fn new(matching: Matching) -> Self {
        Self {
            matching,
            keys: Keys::Words(Vec::new()),
            row_count: 0,
            extremes: None,
            sign: 0,
        }
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        match &self.keys {
            Keys::Words(words) => words.capacity() * 8,
            Keys::Bits(bits) => bits.size_bytes(),
        }
    }

    /// Keys other than NULL.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// The least and the greatest key.
    pub fn extremes(&self) -> Option<(ScalarValue, ScalarValue)> {
        let (least, greatest) = self.extremes.as_ref()?;
        Some((least.value.clone(), greatest.value.clone()))
    }

    /// Adds the keys of a batch.
    pub fn add(&mut self, array: &ArrayRef) -> QueryResult<Result<(), Duplicates>> {
        let column = KeyColumn::new(array)?;
        self.sign = column.sign();
        let Some((least, greatest)) = column.extremes() else {
            return Ok(Ok(()));
        };
        let extreme = |row: usize| -> QueryResult<Extreme> {
            Ok(Extreme {
                word: column.word(row).unwrap_or(0),
                value: ScalarValue::try_from_array(array, row)?,
            })
        };
        self.note_extremes(extreme(least)?, extreme(greatest)?);
        self.row_count += array.len() - array.logical_null_count();
        self.make_room();
        let keys = column.words(0..column.len()).map(|(word, _)| word);
        Ok(match &mut self.keys {
            Keys::Words(words) => {
                words.extend(keys);
                self.compress()
            }
            Keys::Bits(bits) => insert(bits, keys, self.matching),
        })
    }

    fn note_extremes(&mut self, least: Extreme, greatest: Extreme) {
        let order = |extreme: &Extreme| extreme.word ^ self.sign;
        self.extremes = Some(match self.extremes.take() {
            None => (least, greatest),
            Some((low, high)) => (
                std::cmp::min_by_key(low, least, order),
                std::cmp::max_by_key(high, greatest, order),
            ),
        });
    }

    /// The greatest key less the least.
    fn range(&self) -> u64 {
        let extremes = self.extremes.as_ref();
        extremes.map_or(0, |(least, greatest)| {
            greatest.word.wrapping_sub(least.word)
        })
    }

    /// Whether a bitmap of all keys has one in this number of slots.
    fn is_within(&self, slots_per_key: u64) -> bool {
        let most = (self.row_count as u64).saturating_mul(slots_per_key);
        self.range() < most.min(u64::from(u32::MAX) / 2)
    }

    /// Makes a bitmap cover the keys that come, or words of it.
    fn make_room(&mut self) {
        let Keys::Bits(bits) = &self.keys else {
            return;
        };
        let Some((least, greatest)) = &self.extremes else {
            return;
        };
        if bits.covers(least.word) && bits.covers(greatest.word) {
            return;
        }
        self.keys = match self.is_within(SLOTS_PER_KEY_MAX) {
            true => {
                // Half as much again on either side that grew, as far as numbers go.
                let spare = (self.range() / 2).min(u64::from(u32::MAX) / 4);
                let order = |word: u64| word ^ self.sign;
                let low = match bits.covers(least.word) {
                    true => bits.min(),
                    false => order(order(least.word).saturating_sub(spare)),
                };
                let high = match bits.covers(greatest.word) {
                    true => greatest.word,
                    false => order(order(greatest.word).saturating_add(spare)),
                };
                let mut wider = Dense::new(low, high.wrapping_sub(low).saturating_add(1));
                for word in bits.words() {
                    wider.add_word(word);
                }
                Keys::Bits(wider)
            }
            false => Keys::Words(bits.words().collect()),
        };
    }

    /// Puts words into a bitmap where that is smaller.
    fn compress(&mut self) -> Result<(), Duplicates> {
        let (Keys::Words(words), Some((least, _))) = (&self.keys, &self.extremes) else {
            return Ok(());
        };
        if !self.is_within(SLOTS_PER_KEY) {
            return Ok(());
        }
        let mut bits = Dense::new(least.word, self.range() + 1);
        insert(&mut bits, words.iter().copied(), self.matching)?;
        self.keys = Keys::Bits(bits);
        Ok(())
    }

    /// The memory that [`Self::look_up`] needs beside the set, in bytes.
    pub fn look_up_bytes(&self) -> usize {
        match &self.keys {
            Keys::Words(_) => self.frame().size_bytes(),
            Keys::Bits(_) => 0,
        }
    }

    fn frame(&self) -> Frame {
        let least = self.extremes.as_ref().map_or(0, |(least, _)| least.word);
        Frame::of_keys(least, self.range(), self.row_count)
    }

    /// A look-up of all keys.
    pub async fn look_up(self) -> Result<Lookup, Duplicates> {
        let matching = self.matching;
        let (mut look_up, column) = self.begin_look_up();
        for rows in steps(column.len()) {
            look_up.add(&column, rows, matching)?;
            tokio::task::yield_now().await;
        }
        Ok(look_up)
    }

    /// The same without a pause.
    pub fn look_up_at_once(self) -> Result<Lookup, Duplicates> {
        let matching = self.matching;
        let (mut look_up, column) = self.begin_look_up();
        look_up.add(&column, 0..column.len(), matching)?;
        Ok(look_up)
    }

    /// A look-up, and the keys that are to be added.
    fn begin_look_up(self) -> (Lookup, KeyColumn) {
        let frame = self.frame();
        let (look_up, words) = match self.keys {
            Keys::Bits(bits) => (Lookup::of_bits(bits, self.row_count), Vec::new()),
            Keys::Words(words) => (Lookup::new(&frame), words),
        };
        (look_up, KeyColumn::of_words(words, self.sign))
    }
}

/// Sets the bits of keys. Repeated keys are an error where they would repeat rows.
fn insert(
    bits: &mut Dense,
    keys: impl Iterator<Item = u64>,
    matching: Matching,
) -> Result<(), Duplicates> {
    let unique = matching.attaches();
    for word in keys {
        if !bits.add_word(word) && unique {
            return Err(Duplicates);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use futures::executor::block_on;
    use proptest::prelude::*;

    use super::*;

    fn set_of(batches: &[Vec<Option<i64>>], matching: Matching) -> Result<KeySet, Duplicates> {
        let mut set = KeySet::new(matching);
        for batch in batches {
            let array: ArrayRef = Arc::new(Int64Array::from(batch.clone()));
            set.add(&array).unwrap()?;
        }
        Ok(set)
    }

    #[test]
    fn many_close_keys_take_a_bit_each_whatever_their_order() {
        let batch = |first: i64| -> Vec<Option<i64>> {
            (first..first + 8192).map(|key| Some(key * 4)).collect()
        };
        // From two ends, as two workers read.
        let starts = (0..50).flat_map(|n| [n * 8192, (99 - n) * 8192]);
        let batches: Vec<_> = starts.map(|start| batch(start - 300_000)).collect();
        let set = set_of(&batches, Matching::Inner).unwrap();
        assert!(set.size_bytes() < 1 << 20, "{}", set.size_bytes());
        assert_eq!(set.row_count(), 819_200);
        let look_up = block_on(set.look_up()).unwrap();
        assert_eq!((look_up.kind(), look_up.row_count()), ("bitmap", 819_200));
        assert!(look_up.find(-1_200_000i64 as u64).is_some());
        assert!(look_up.find(-1_199_999i64 as u64).is_none());
    }

    #[test]
    fn a_bitmap_is_given_up_where_a_key_is_far_away() {
        let near: Vec<_> = (0..10_000).map(Some).collect();
        let set = set_of(
            &[near, vec![Some(i64::MIN)], vec![Some(i64::MAX)]],
            Matching::Inner,
        );
        let set = set.unwrap();
        let extremes = set.extremes().unwrap();
        assert_eq!(extremes.0, ScalarValue::Int64(Some(i64::MIN)));
        assert_eq!(extremes.1, ScalarValue::Int64(Some(i64::MAX)));
        let look_up = block_on(set.look_up()).unwrap();
        assert_eq!(look_up.kind(), "hash");
        assert!(
            [0, 9_999, i64::MIN, i64::MAX]
                .iter()
                .all(|key| look_up.find(*key as u64).is_some())
        );
        assert!(look_up.find(10_000).is_none());
    }

    proptest! {
        #[test]
        fn keys_are_found_and_no_others(
            batches in proptest::collection::vec(
                (-3i64..3, proptest::collection::vec(proptest::option::weighted(0.9, -3000i64..3000), 0..2000)),
                0..6,
            ),
            stretch in prop_oneof![Just(1i64), Just(50), Just(1 << 30), Just(1 << 50)],
            semi: bool,
        ) {
            let batches: Vec<Vec<Option<i64>>> = batches
                .into_iter()
                .map(|(far, keys)| keys.into_iter().map(|key| key.map(|key| key + far * stretch * 100)).collect())
                .collect();
            let known: Vec<i64> = batches.iter().flatten().flatten().copied().collect();
            let distinct: BTreeSet<i64> = known.iter().copied().collect();
            let matching = if semi { Matching::Semi } else { Matching::Inner };
            let made = set_of(&batches, matching).and_then(|set| {
                let extremes = set.extremes();
                Ok((extremes, block_on(set.look_up())?))
            });
            match made {
                Err(Duplicates) => prop_assert!(!semi && distinct.len() < known.len()),
                Ok((extremes, look_up)) => {
                    prop_assert!(semi || distinct.len() == known.len());
                    let ends = distinct.first().zip(distinct.last());
                    let ends = ends.map(|(least, most)| (ScalarValue::from(*least), ScalarValue::from(*most)));
                    prop_assert_eq!(extremes, ends);
                    prop_assert_eq!(look_up.row_count() == 0, known.is_empty());
                    for key in distinct.iter().flat_map(|key| [key - 1, *key, key + 1]) {
                        prop_assert_eq!(look_up.find(key as u64).is_some(), distinct.contains(&key));
                    }
                }
            }
        }
    }
}
