//! Keys of groups that have texts: words in the order of the groups, and the texts that are longer than their words.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

use super::groups::StoredKeys;
use crate::keys::Keys;
use crate::keys::bytes::array_of;
use crate::keys::mixed::{MixedKeys, Place};
use crate::keys::texts::{TextColumn, are_equal, is_long, is_null};
use crate::{Result, TableShelf};

/// Views find their text in 32 bits, so each buffer of a column begins this many bytes after the one before.
const BUFFER_BITS: u32 = 30;

/// From this many groups on, groups share texts.
const GROUPS_SHARING_MIN: usize = 4096;
/// Texts that are looked at to be shared.
const LATEST: usize = 1024;

/// The types of columns of texts that come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Texts {
    /// Those of the input. Where these are not views, each group gets a copy of its text.
    Typed,
    /// Those of the input where these are views, otherwise views of bytes: groups share texts.
    Shared,
    /// Views of bytes.
    Bytes,
}

/// Keys of words and texts.
#[derive(Debug)]
pub struct Mixed {
    /// Words of a key.
    stride: usize,
    /// Words of a group: those of its key, then where each of its texts starts in `long`.
    group_words: usize,
    words: Vec<u64>,
    /// Texts that are longer than their words.
    long: Vec<u8>,
    /// The latest ones by their hash: words, and where they start. Groups share them.
    latest: Vec<([u64; 2], u64)>,
}

impl Mixed {
    pub fn new(words: usize, texts: usize) -> Self {
        Self {
            stride: words,
            group_words: words + texts,
            words: Vec::new(),
            long: Vec::new(),
            latest: Vec::new(),
        }
    }

    pub fn bytes(&self) -> u64 {
        let latest = self.latest.capacity() * size_of::<([u64; 2], u64)>();
        (8 * self.words.capacity() + self.long.capacity() + latest) as u64
    }

    /// Where a text starts from now on.
    fn start_of(&mut self, words: [u64; 2], text: &[u8]) -> u64 {
        let next = self.long.len() as u64;
        if self.latest.is_empty() {
            if self.words.len() >= GROUPS_SHARING_MIN * self.group_words {
                self.latest.resize(LATEST, ([0; 2], 0));
            }
        } else {
            let latest = &mut self.latest[words[1] as usize % LATEST];
            if latest.0 == words {
                let start = latest.1 as usize;
                if are_equal(&self.long[start..start + text.len()], text) {
                    return latest.1;
                }
            }
            *latest = (words, next);
        }
        self.long.extend_from_slice(text);
        next
    }

    #[inline(always)]
    fn group(&self, group: usize) -> (&[u64], &[u64]) {
        let start = group * self.group_words;
        self.words[start..start + self.group_words].split_at(self.stride)
    }

    /// The key columns.
    pub fn into_columns(self, encoder: &MixedKeys, form: Texts) -> Result<Vec<ArrayRef>> {
        let Self {
            stride,
            group_words,
            words,
            long,
            latest: _,
        } = self;
        let long = Buffer::from_vec(long);
        let columns = encoder.places().iter().map(|place| match place {
            Place::Fixed(field) => field.unpack(&words, group_words),
            Place::Text(number, data_type) => {
                let texts = words.chunks_exact(group_words);
                let texts = texts.map(|row| {
                    let [first, second] = [row[2 * number], row[2 * number + 1]];
                    (first, second, row[stride + number])
                });
                let data_type = match (form, data_type) {
                    (Texts::Typed, _) | (Texts::Shared, DataType::Utf8View) => data_type,
                    _ => &DataType::BinaryView,
                };
                texts_of(texts, &long, data_type, BUFFER_BITS)
            }
        });
        columns.collect()
    }
}

impl StoredKeys for Mixed {
    fn put_on(&self, shelf: &dyn TableShelf) {
        shelf.place(bytemuck::cast_slice(&self.words));
        shelf.place(&self.long);
    }

    fn len(&self) -> usize {
        self.words.len() / self.group_words
    }

    #[inline(always)]
    fn equals(&self, group: usize, keys: &Keys, row: usize) -> bool {
        let (words, starts) = self.group(group);
        let is_end_equal = |number: usize| {
            let first = words[2 * number];
            let start = starts[number] as usize;
            !is_long(first) || {
                let text = &self.long[start..start + first as u32 as usize];
                are_equal(text, keys.texts()[number].bytes(row))
            }
        };
        are_same(words, keys.words(row)) && (0..starts.len()).all(is_end_equal)
    }

    fn push(&mut self, keys: &Keys, row: usize) {
        let words = keys.words(row);
        self.words.extend_from_slice(words);
        for (texts, &words) in keys.texts().iter().zip(words.as_chunks().0) {
            let [first, _] = words;
            let start = match is_long(first) {
                true => self.start_of(words, texts.bytes(row)),
                false => 0,
            };
            self.words.push(start);
        }
    }

    #[inline(always)]
    fn repeats(keys: &Keys, row: usize) -> bool {
        let words = keys.words(row);
        let is_same = |(number, texts): (usize, &TextColumn)| {
            !is_long(words[2 * number]) || texts.is_same(row, row - 1)
        };
        keys.hashes()[row] == keys.hashes()[row - 1]
            && are_same(words, keys.words(row - 1))
            && keys.texts().iter().enumerate().all(is_same)
    }

    fn warm(&self, groups: impl Iterator<Item = usize> + Clone) {
        let firsts = groups.map(|group| {
            let (words, starts) = self.group(group);
            let long = (0..starts.len()).filter(|number| is_long(words[2 * number]));
            let ends = long.map(|number| u64::from(self.long[starts[number] as usize]));
            ends.fold(words[0], |all, end| all ^ end)
        });
        std::hint::black_box(firsts.fold(0, |all, first| all ^ first));
    }
}

/// Whether words are equal, an even number of them.
#[inline(always)]
fn are_same(left: &[u64], right: &[u64]) -> bool {
    let [left, right] = [left, right].map(|words| words.as_chunks::<2>().0);
    let mut pairs = left.iter().zip(right);
    pairs.all(|(left, right)| (left[0] ^ right[0]) | (left[1] ^ right[1]) == 0)
}

/// A column of texts, each with its words and where it starts in `long`. Its buffers begin 2^`buffer_bits` bytes apart.
fn texts_of(
    texts: impl Iterator<Item = (u64, u64, u64)> + Clone,
    long: &Buffer,
    data_type: &DataType,
    buffer_bits: u32,
) -> Result<ArrayRef> {
    let view = |(first, second, start): (u64, u64, u64)| {
        let second = match is_long(first) {
            true => start >> buffer_bits | (start & ((1 << buffer_bits) - 1)) << 32,
            false => second,
        };
        let first = if is_null(first) { 0 } else { first };
        u128::from(first) | u128::from(second) << 64
    };
    let nulls: NullBuffer = texts.clone().map(|text| !is_null(text.0)).collect();
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let views: ScalarBuffer<u128> = texts.map(view).collect();
    let starts = (0..long.len()).step_by(1 << buffer_bits);
    let buffers: Vec<Buffer> = starts.map(|start| long.slice(start)).collect();
    Ok(match data_type {
        DataType::Utf8View => Arc::new(StringViewArray::try_new(views, buffers, nulls)?),
        DataType::BinaryView => Arc::new(BinaryViewArray::try_new(views, buffers, nulls)?),
        other => {
            let texts = BinaryViewArray::try_new(views, buffers, nulls)?;
            let bytes: u64 = texts.lengths().map(u64::from).sum();
            if matches!(other, DataType::Utf8 | DataType::Binary) && bytes > i32::MAX as u64 {
                return Err(ArrowError::OffsetOverflowError(bytes as usize).into());
            }
            array_of(other, texts.iter())?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::texts::TextColumn;

    #[test]
    fn texts_are_found_in_many_buffers() {
        let texts = (0..40).map(|len| (len % 7 > 0).then(|| "abcdefghij".repeat(len)));
        let column: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
        let mut words = vec![0; 80];
        let packed = TextColumn::of(&column).unwrap();
        packed.pack(&mut words, 2, 0).unwrap();
        let mut long = Vec::new();
        let places: Vec<(u64, u64, u64)> = (0..40)
            .map(|row| {
                let start = long.len() as u64;
                let first = words[2 * row];
                if is_long(first) {
                    long.extend_from_slice(packed.bytes(row));
                }
                (first, words[2 * row + 1], start)
            })
            .collect();
        let long = Buffer::from_vec(long);
        for buffer_bits in [4, 9, BUFFER_BITS] {
            let texts = places.iter().copied();
            let found = texts_of(texts, &long, &DataType::Utf8View, buffer_bits).unwrap();
            assert_eq!(&found, &column);
        }
    }
}
