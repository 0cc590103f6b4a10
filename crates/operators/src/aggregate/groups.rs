//! The keys of groups, in the order of the groups, and the directory that finds them.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, LargeBinaryArray, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use hotshelf_tier::region::HugeWords;

use super::encoder::{GroupEncoder, GroupShape};
use super::mixed::{Mixed, Texts};
use crate::keys::{Keys, hash_bytes, hash_word};
use crate::{Result, TableShelf};

/// The most groups that one directory finds: half of the slots that the bits in a slot tell apart.
pub const GROUPS_MAX: usize = 1 << 31;
/// The bits of a hash that a slot has.
const TAG: u64 = u32::MAX as u64;
/// Rows whose groups are loaded before they are compared: as many as the core's cache has room for.
const ROWS_AT_ONCE: usize = 512;
/// Slots of a directory at first.
const SLOTS_MIN: usize = 1 << 10;

/// Keys in the order of their groups.
#[derive(Debug)]
pub enum GroupKeys {
    One(Words<1>),
    Two(Words<2>),
    Three(Words<3>),
    Four(Words<4>),
    Mixed(Mixed),
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
pub trait StoredKeys {
    fn len(&self) -> usize;
    fn equals(&self, group: usize, keys: &Keys, row: usize) -> bool;
    fn push(&mut self, keys: &Keys, row: usize);
    /// Whether a row has the key of the row before.
    fn repeats(keys: &Keys, row: usize) -> bool;

    /// Moves the keys to a shelf.
    fn put_on(&self, shelf: &dyn TableShelf);

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

    fn put_on(&self, shelf: &dyn TableShelf) {
        shelf.place(bytemuck::cast_slice(self.0.as_flattened()));
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

    fn put_on(&self, shelf: &dyn TableShelf) {
        shelf.place(&self.bytes);
        shelf.place(bytemuck::cast_slice(&self.ends));
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
            GroupKeys::Mixed($stored) => $code,
            GroupKeys::Bytes($stored) => $code,
        }
    };
}

impl GroupKeys {
    pub fn new(shape: GroupShape) -> Self {
        match shape {
            GroupShape::Words(1) => Self::One(Words::default()),
            GroupShape::Words(2) => Self::Two(Words::default()),
            GroupShape::Words(3) => Self::Three(Words::default()),
            GroupShape::Words(_) => Self::Four(Words::default()),
            GroupShape::Mixed { words, texts } => Self::Mixed(Mixed::new(words, texts)),
            GroupShape::Bytes => Self::Bytes(Bytes::default()),
        }
    }

    pub fn len(&self) -> usize {
        with_stored!(self, stored => stored.len())
    }

    /// Makes a group of every row.
    pub fn push_all(&mut self, keys: &Keys) {
        with_stored!(self, stored => (0..keys.len()).for_each(|row| stored.push(keys, row)));
    }

    /// Moves the keys to a shelf.
    pub fn put_on(&self, shelf: &dyn TableShelf) {
        with_stored!(self, stored => stored.put_on(shelf));
    }

    pub fn bytes(&self) -> u64 {
        let words = |len: usize| 8 * len as u64;
        match self {
            Self::One(Words(rows)) => words(rows.capacity()),
            Self::Two(Words(rows)) => words(2 * rows.capacity()),
            Self::Three(Words(rows)) => words(3 * rows.capacity()),
            Self::Four(Words(rows)) => words(4 * rows.capacity()),
            Self::Mixed(stored) => stored.bytes(),
            Self::Bytes(Bytes { bytes, ends }) => bytes.capacity() as u64 + words(ends.capacity()),
        }
    }

    /// The key columns as they were before they were encoded, or with texts of another form.
    pub fn decode(self, encoder: &GroupEncoder, form: Texts) -> Result<Vec<ArrayRef>> {
        match (self, encoder) {
            (Self::Mixed(stored), GroupEncoder::Mixed(encoder)) => {
                stored.into_columns(encoder, form)
            }
            (Self::One(Words(rows)), GroupEncoder::Plain(encoder)) => {
                encoder.decode_words(rows.as_flattened())
            }
            (Self::Two(Words(rows)), GroupEncoder::Plain(encoder)) => {
                encoder.decode_words(rows.as_flattened())
            }
            (Self::Three(Words(rows)), GroupEncoder::Plain(encoder)) => {
                encoder.decode_words(rows.as_flattened())
            }
            (Self::Four(Words(rows)), GroupEncoder::Plain(encoder)) => {
                encoder.decode_words(rows.as_flattened())
            }
            (Self::Bytes(Bytes { bytes, ends }), GroupEncoder::Plain(encoder)) => {
                let keys = ends.windows(2);
                encoder.decode_bytes(keys.map(|ends| &bytes[ends[0] as usize..ends[1] as usize]))
            }
            _ => unreachable!("these keys are of another encoder"),
        }
    }

    /// The keys as columns of the fields of this encoder, theirs.
    pub fn into_columns(self, encoder: &GroupEncoder) -> Result<Vec<ArrayRef>> {
        Ok(match (self, encoder) {
            (Self::Mixed(stored), GroupEncoder::Mixed(encoder)) => {
                return stored.into_columns(encoder, Texts::Bytes);
            }
            (Self::One(Words(rows)), _) => {
                vec![Arc::new(UInt64Array::from(rows.into_flattened()))]
            }
            (Self::Two(Words(rows)), _) => columns(&rows),
            (Self::Three(Words(rows)), _) => columns(&rows),
            (Self::Four(Words(rows)), _) => columns(&rows),
            (Self::Bytes(Bytes { bytes, ends }), _) => {
                let offsets = OffsetBuffer::new(ends.into());
                let keys = LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?;
                vec![Arc::new(keys)]
            }
            (Self::Mixed(_), GroupEncoder::Plain(_)) => {
                unreachable!("these keys are of another encoder")
            }
        })
    }
}

fn columns<const N: usize>(rows: &[[u64; N]]) -> Vec<ArrayRef> {
    let column = |word: usize| rows.iter().map(|row| row[word]).collect::<Vec<u64>>();
    let columns = (0..N).map(|word| Arc::new(UInt64Array::from(column(word))) as _);
    columns.collect()
}

/// Replaces `hashes` by those of keys in columns of [`GroupEncoder::fields`], and `keys` by anything.
///
/// # Errors
/// Those of [`GroupEncoder::read`].
pub fn read_hashes(
    encoder: &GroupEncoder,
    columns: &[ArrayRef],
    keys: &mut Keys,
    hashes: &mut Vec<u64>,
) -> Result<()> {
    hashes.clear();
    match (encoder.shape(), columns) {
        (GroupShape::Bytes, [column]) => {
            let keys = column.as_binary::<i64>().iter();
            hashes.extend(keys.map(|key| hash_bytes(key.unwrap_or_default())));
        }
        (GroupShape::Words(_), [column]) => {
            let words = column.as_primitive::<UInt64Type>().values();
            hashes.extend(words.iter().map(|&word| hash_word(word)));
        }
        _ => {
            encoder.read(columns, keys)?;
            hashes.extend_from_slice(keys.hashes());
            keys.release();
        }
    }
    Ok(())
}

/// Finds the group of a key: slots of the lower half of a hash above, and the group's number plus one below. Partitions
/// take the uppermost bits of hashes, so slots take the lowest ones. They keep them, so that more room takes no key.
#[derive(Debug, Default)]
pub struct Directory {
    slots: HugeWords,
}

impl Directory {
    /// Moves the slots to a shelf.
    pub fn put_on(&self, shelf: &dyn TableShelf) {
        shelf.place(bytemuck::cast_slice(&self.slots[..]));
    }

    pub fn bytes(&self) -> u64 {
        8 * self.slots.len() as u64
    }

    /// Replaces `groups` by the group of each row. Keys that are not there yet become groups.
    pub fn find(&mut self, stored: &mut GroupKeys, keys: &Keys, groups: &mut Vec<usize>) {
        groups.clear();
        with_stored!(stored, stored => {
            for start in (0..keys.len()).step_by(ROWS_AT_ONCE) {
                let end = keys.len().min(start + ROWS_AT_ONCE);
                self.find_some(stored, keys, start..end, groups);
            }
        });
    }

    fn find_some<S: StoredKeys>(
        &mut self,
        stored: &mut S,
        keys: &Keys,
        rows: Range<usize>,
        groups: &mut Vec<usize>,
    ) {
        if self.slots.is_empty() {
            self.grow();
        }
        // Loads that do not wait for each other, before those that do.
        let hashes = &keys.hashes()[rows.clone()];
        let mask = self.slots.len() - 1;
        let mut seen = [0; ROWS_AT_ONCE];
        for (seen, &hash) in seen.iter_mut().zip(hashes) {
            *seen = self.slots[hash as usize & mask];
        }
        let near = seen.iter().zip(hashes);
        let near = near.filter(|&(&slot, &hash)| is_near(slot, hash));
        stored.warm(near.map(|(&slot, _)| group_of(slot)));
        for ((row, &hash), &seen) in rows.zip(hashes).zip(&seen) {
            if row > 0 && S::repeats(keys, row) {
                groups.push(groups[row - 1]);
                continue;
            }
            let is_here =
                |slot: u64| is_near(slot, hash) && stored.equals(group_of(slot), keys, row);
            if is_here(seen) {
                groups.push(group_of(seen));
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
                groups.push(group_of(self.slots[place]));
            }
        }
    }

    /// Makes room for twice as many groups.
    fn grow(&mut self) {
        let len = SLOTS_MIN.max(2 * self.slots.len());
        let mut slots = HugeWords::zeroed(len);
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

/// Whether a slot has a group whose hash may be this one.
#[inline(always)]
fn is_near(slot: u64, hash: u64) -> bool {
    slot >> 32 == hash & TAG && slot as u32 != 0
}

#[inline(always)]
fn group_of(slot: u64) -> usize {
    (slot as u32).wrapping_sub(1) as usize
}

#[inline(always)]
fn slot_of(hash: u64, group: usize) -> u64 {
    hash << 32 | (group as u64 + 1)
}
