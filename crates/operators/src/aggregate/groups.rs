//! The keys of groups, in the order of the groups, and the directory that finds them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, LargeBinaryArray, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use hotshelf_tier::region::prefer_huge_pages;

use crate::Result;
use crate::keys::{KeyEncoder, KeyShape, Keys, hash_bytes, hash_word};

/// The most groups that one directory finds: half of the slots that the bits in a slot tell apart.
pub const GROUPS_MAX: usize = 1 << 31;
/// The bits of a hash that a slot has.
const TAG: u64 = u32::MAX as u64;
/// Slots of a directory at first.
const SLOTS_MIN: usize = 1 << 10;

/// Keys in the order of their groups.
#[derive(Debug)]
pub enum GroupKeys {
    One(Words<1>),
    Two(Words<2>),
    Three(Words<3>),
    Four(Words<4>),
    Bytes(Bytes),
}

#[derive(Debug, Default)]
pub struct Words<const N: usize>(Vec<[u64; N]>);

#[derive(Debug)]
pub struct Bytes {
    bytes: Vec<u8>,
    /// Where keys end, after a zero.
    ends: Vec<i64>,
}

impl Default for Bytes {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            ends: vec![0],
        }
    }
}

/// Keys of one shape.
trait StoredKeys {
    fn len(&self) -> usize;
    fn equals(&self, group: usize, keys: &Keys, row: usize) -> bool;
    fn push(&mut self, keys: &Keys, row: usize);
    /// Whether a row has the key of the row before.
    fn repeats(keys: &Keys, row: usize) -> bool;

    /// Loads what will be compared, where that takes several loads that wait for each other.
    fn warm(&self, _groups: impl Iterator<Item = usize> + Clone) {}
}

#[inline(always)]
fn words_of<const N: usize>(keys: &Keys, row: usize) -> &[u64; N] {
    &keys.all_words().as_chunks().0[row]
}

impl<const N: usize> StoredKeys for Words<N> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn equals(&self, group: usize, keys: &Keys, row: usize) -> bool {
        self.0[group] == *words_of(keys, row)
    }

    #[inline(always)]
    fn push(&mut self, keys: &Keys, row: usize) {
        self.0.push(*words_of(keys, row));
    }

    #[inline(always)]
    fn repeats(keys: &Keys, row: usize) -> bool {
        words_of::<N>(keys, row) == words_of(keys, row - 1)
    }
}

impl StoredKeys for Bytes {
    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    #[inline]
    fn equals(&self, group: usize, keys: &Keys, row: usize) -> bool {
        let key = self.ends[group] as usize..self.ends[group + 1] as usize;
        // The slot has most bits of the hash.
        self.bytes[key] == *keys.bytes(row)
    }

    fn warm(&self, groups: impl Iterator<Item = usize> + Clone) {
        let starts = groups.map(|group| self.ends[group] as usize);
        let firsts = starts.filter_map(|start| self.bytes.get(start));
        std::hint::black_box(firsts.fold(0_u8, |all, first| all ^ first));
    }

    fn push(&mut self, keys: &Keys, row: usize) {
        self.bytes.extend_from_slice(keys.bytes(row));
        self.ends.push(self.bytes.len() as i64);
    }

    #[inline]
    fn repeats(keys: &Keys, row: usize) -> bool {
        keys.hashes()[row] == keys.hashes()[row - 1] && keys.bytes(row) == keys.bytes(row - 1)
    }
}

/// Runs code for the keys inside a [`GroupKeys`], whatever their shape.
macro_rules! with_stored {
    ($keys:expr, $stored:ident => $code:expr) => {
        match $keys {
            GroupKeys::One($stored) => $code,
            GroupKeys::Two($stored) => $code,
            GroupKeys::Three($stored) => $code,
            GroupKeys::Four($stored) => $code,
            GroupKeys::Bytes($stored) => $code,
        }
    };
}

impl GroupKeys {
    pub fn new(shape: KeyShape) -> Self {
        match shape {
            KeyShape::Words(1) => Self::One(Words::default()),
            KeyShape::Words(2) => Self::Two(Words::default()),
            KeyShape::Words(3) => Self::Three(Words::default()),
            KeyShape::Words(_) => Self::Four(Words::default()),
            KeyShape::Bytes => Self::Bytes(Bytes::default()),
        }
    }

    pub fn len(&self) -> usize {
        with_stored!(self, stored => stored.len())
    }

    /// Makes a group of every row.
    pub fn push_all(&mut self, keys: &Keys) {
        with_stored!(self, stored => (0..keys.len()).for_each(|row| stored.push(keys, row)));
    }

    pub fn bytes(&self) -> u64 {
        let words = |len: usize| 8 * len as u64;
        match self {
            Self::One(Words(rows)) => words(rows.capacity()),
            Self::Two(Words(rows)) => words(2 * rows.capacity()),
            Self::Three(Words(rows)) => words(3 * rows.capacity()),
            Self::Four(Words(rows)) => words(4 * rows.capacity()),
            Self::Bytes(Bytes { bytes, ends }) => bytes.capacity() as u64 + words(ends.capacity()),
        }
    }

    /// The key columns as they were before they were encoded.
    pub fn decode(&self, encoder: &KeyEncoder) -> Result<Vec<ArrayRef>> {
        match self {
            Self::One(Words(rows)) => encoder.decode_words(rows.as_flattened()),
            Self::Two(Words(rows)) => encoder.decode_words(rows.as_flattened()),
            Self::Three(Words(rows)) => encoder.decode_words(rows.as_flattened()),
            Self::Four(Words(rows)) => encoder.decode_words(rows.as_flattened()),
            Self::Bytes(Bytes { bytes, ends }) => {
                let keys = ends.windows(2);
                encoder.decode_bytes(keys.map(|ends| &bytes[ends[0] as usize..ends[1] as usize]))
            }
        }
    }

    /// The keys as columns of the fields that [`fields`] returns.
    pub fn into_columns(self) -> Result<Vec<ArrayRef>> {
        Ok(match self {
            Self::One(Words(rows)) => {
                vec![Arc::new(UInt64Array::from(rows.into_flattened()))]
            }
            Self::Two(Words(rows)) => columns(&rows),
            Self::Three(Words(rows)) => columns(&rows),
            Self::Four(Words(rows)) => columns(&rows),
            Self::Bytes(Bytes { bytes, ends }) => {
                let offsets = OffsetBuffer::new(ends.into());
                let keys = LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?;
                vec![Arc::new(keys)]
            }
        })
    }
}

fn columns<const N: usize>(rows: &[[u64; N]]) -> Vec<ArrayRef> {
    let column = |word: usize| rows.iter().map(|row| row[word]).collect::<Vec<u64>>();
    let columns = (0..N).map(|word| Arc::new(UInt64Array::from(column(word))) as _);
    columns.collect()
}

/// The columns of keys that wait for their partition's turn, or are spilled.
pub fn fields(shape: KeyShape) -> Vec<Field> {
    match shape {
        KeyShape::Words(words) => (0..words)
            .map(|word| Field::new(format!("word {word}"), DataType::UInt64, false))
            .collect(),
        KeyShape::Bytes => vec![Field::new("key", DataType::LargeBinary, false)],
    }
}

/// Replaces `keys` by those in columns of [`fields`].
pub fn read_keys(columns: &[ArrayRef], keys: &mut Keys) {
    match columns {
        [column] if *column.data_type() == DataType::LargeBinary => {
            keys.set_bytes(
                column
                    .as_binary::<i64>()
                    .iter()
                    .map(Option::unwrap_or_default),
            );
        }
        [column] => {
            let words = column.as_primitive::<UInt64Type>().values();
            keys.set_words(1, words.chunks_exact(1));
        }
        columns => {
            let words = columns
                .iter()
                .map(|column| column.as_primitive::<UInt64Type>());
            let words: Vec<&[u64]> = words.map(|column| &column.values()[..]).collect();
            let rows = (0..words[0].len()).flat_map(|row| words.iter().map(move |word| word[row]));
            let rows: Vec<u64> = rows.collect();
            keys.set_words(columns.len(), rows.chunks_exact(columns.len()));
        }
    }
}

/// Replaces `hashes` by those of keys in columns of [`fields`].
pub fn read_hashes(columns: &[ArrayRef], hashes: &mut Vec<u64>) {
    hashes.clear();
    match columns {
        [column] if *column.data_type() == DataType::LargeBinary => {
            let keys = column.as_binary::<i64>().iter();
            hashes.extend(keys.map(|key| hash_bytes(key.unwrap_or_default())));
        }
        [column] => {
            let words = column.as_primitive::<UInt64Type>().values();
            hashes.extend(words.iter().map(|&word| hash_word(word)));
        }
        _ => {
            let mut keys = Keys::default();
            read_keys(columns, &mut keys);
            hashes.extend_from_slice(keys.hashes());
        }
    }
}

/// Finds the group of a key: slots of the lower half of a hash above, and the group's number plus one below. Partitions
/// take the uppermost bits of hashes, so slots take the lowest ones. They keep them, so that more room takes no key.
#[derive(Debug, Default)]
pub struct Directory {
    slots: Vec<u64>,
}

impl Directory {
    pub fn bytes(&self) -> u64 {
        8 * self.slots.capacity() as u64
    }

    /// Replaces `groups` by the group of each row, and `seen` by anything. Keys that are not there yet become groups.
    pub fn find(
        &mut self,
        stored: &mut GroupKeys,
        keys: &Keys,
        seen: &mut Vec<u64>,
        groups: &mut Vec<usize>,
    ) {
        with_stored!(stored, stored => self.find_stored(stored, keys, seen, groups));
    }

    fn find_stored<S: StoredKeys>(
        &mut self,
        stored: &mut S,
        keys: &Keys,
        seen: &mut Vec<u64>,
        groups: &mut Vec<usize>,
    ) {
        groups.clear();
        if self.slots.is_empty() {
            self.grow();
        }
        // Loads that do not wait for each other, before those that do.
        let mask = self.slots.len() - 1;
        let hashes = keys.hashes().iter();
        seen.clear();
        seen.extend(hashes.map(|&hash| self.slots[hash as usize & mask]));
        let taken = seen.iter().filter(|slot| **slot as u32 != 0);
        stored.warm(taken.map(|&slot| slot as u32 as usize - 1));
        for (row, (&hash, &seen)) in keys.hashes().iter().zip(seen.iter()).enumerate() {
            if row > 0 && S::repeats(keys, row) {
                groups.push(groups[row - 1]);
                continue;
            }
            let is_here = |slot: u64| {
                let group = (slot as u32).wrapping_sub(1) as usize;
                slot >> 32 == hash & TAG && slot as u32 != 0 && stored.equals(group, keys, row)
            };
            if is_here(seen) {
                groups.push(seen as u32 as usize - 1);
                continue;
            }
            let mask = self.slots.len() - 1;
            let mut place = hash as usize & mask;
            while self.slots[place] != 0 && !is_here(self.slots[place]) {
                place = (place + 1) & mask;
            }
            if self.slots[place] == 0 {
                stored.push(keys, row);
                self.slots[place] = slot_of(hash, stored.len() - 1);
                groups.push(stored.len() - 1);
                if 2 * stored.len() > self.slots.len() {
                    self.grow();
                }
            } else {
                groups.push(self.slots[place] as u32 as usize - 1);
            }
        }
    }

    /// Makes room for twice as many groups.
    fn grow(&mut self) {
        let len = SLOTS_MIN.max(2 * self.slots.len());
        let mut slots = vec![0; len];
        prefer_huge_pages(&mut slots);
        for &slot in self.slots.iter().filter(|&&slot| slot != 0) {
            let mut place = (slot >> 32) as usize & (len - 1);
            while slots[place] != 0 {
                place = (place + 1) & (len - 1);
            }
            slots[place] = slot;
        }
        self.slots = slots;
    }
}

#[inline(always)]
fn slot_of(hash: u64, group: usize) -> u64 {
    hash << 32 | (group as u64 + 1)
}
