//! Sets of a chunk's rows: a bit for each.

use std::ops::Range;

use hotshelf_tier::simd::{BLOCK_VALUES, Backend};

/// Rows that are decoded and tested together: a block of Vortex's bit packing.
pub(super) const CHUNK_ROWS: usize = BLOCK_VALUES;

/// Words of a bitmap with a bit per row of a chunk.
pub(super) const WORDS: usize = CHUNK_ROWS / 64;

/// Rows in the set.
#[inline]
pub(super) fn count(words: &[u64; WORDS]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// Sets the bits of the first `len` rows.
#[inline]
pub(super) fn first_rows(len: usize, words: &mut [u64; WORDS]) {
    for (idx, word) in words.iter_mut().enumerate() {
        let rows = len.saturating_sub(idx * 64).min(64);
        *word = u64::MAX.checked_shr(64 - rows as u32).unwrap_or(0);
    }
}

/// Sets the bits of some rows of a chunk.
#[inline]
pub(super) fn set_rows(rows: Range<usize>, words: &mut [u64; WORDS]) {
    for (word, bits) in bits_of(rows.start..rows.end.min(CHUNK_ROWS)) {
        words[word] |= bits;
    }
}

/// Clears the bits of some rows.
#[inline]
pub(super) fn clear_rows(rows: Range<usize>, words: &mut [u64]) {
    for (word, bits) in bits_of(rows) {
        words[word] &= !bits;
    }
}

/// The words that some rows have bits in, and these.
#[inline]
fn bits_of(rows: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let mut at = rows.start;
    std::iter::from_fn(move || {
        let begin = at;
        let count = (64 - begin % 64).min(rows.end.saturating_sub(begin));
        at += count;
        (count > 0).then(|| (begin / 64, u64::MAX >> (64 - count) << (begin % 64)))
    })
}

/// Where bits that follow each other are set in a word.
#[inline]
pub(super) fn stretches(mut word: u64) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let start = word.trailing_zeros();
        let end = start + (!(word >> start)).trailing_zeros().min(64 - start);
        word &= u64::MAX.checked_shl(end).unwrap_or(0);
        Some(start as usize..end as usize)
    })
}

/// Whether a bit is there and set.
#[inline]
pub(super) fn is_set(words: &[u64], bit: u32) -> bool {
    let word = words.get((bit >> 6) as usize).copied().unwrap_or(0);
    (word >> (bit & 63)) & 1 == 1
}

/// Rows of a chunk by their numbers, ascending.
pub(super) struct RowList {
    rows: Box<[u16; CHUNK_ROWS]>,
    len: usize,
}

impl Default for RowList {
    fn default() -> Self {
        Self {
            rows: Box::new([0; CHUNK_ROWS]),
            len: 0,
        }
    }
}

impl RowList {
    pub fn as_slice(&self) -> &[u16] {
        &self.rows[..self.len]
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Lists the rows of a set.
    pub fn list(&mut self, set: &[u64; WORDS]) {
        self.len = Backend::detect().list_bits(set, &mut self.rows[..]);
    }

    /// Removes the rows that do not pass; no branch depends on whether one does.
    #[inline]
    pub fn keep(&mut self, mut passes: impl FnMut(usize) -> bool) {
        let mut kept = 0;
        for idx in 0..self.len {
            let row = self.rows[idx];
            self.rows[kept] = row;
            kept += usize::from(passes(usize::from(row)));
        }
        self.len = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stretches_have_the_bits_of_a_word(word in any::<u64>(), other in any::<u64>(), mask in any::<u64>()) {
            for word in [word, word & other, word | other, word >> (mask % 64), u64::MAX, u64::MAX << (mask % 64), 0] {
                let found: Vec<_> = stretches(word).collect();
                let mut set = [0; WORDS];
                found.iter().for_each(|rows| set_rows(rows.clone(), &mut set));
                prop_assert_eq!(set[0], word);
                prop_assert!(found.windows(2).all(|two| two[0].end < two[1].start), "{:?}", found);
                let mut rest = [u64::MAX; 2];
                found.iter().for_each(|rows| clear_rows(rows.clone(), &mut rest));
                prop_assert_eq!(rest, [!word, u64::MAX]);
            }
        }

        #[test]
        fn rows_are_listed_and_kept_like_numbers(
            words in proptest::collection::vec(prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)], WORDS),
            divisor in 1usize..9,
        ) {
            let set: [u64; WORDS] = words.try_into().unwrap();
            let mut expected: Vec<u16> = (0..CHUNK_ROWS as u16)
                .filter(|row| is_set(&set, u32::from(*row)))
                .collect();
            let mut rows = RowList::default();
            rows.list(&set);
            prop_assert_eq!(rows.as_slice(), &expected[..]);
            prop_assert_eq!(rows.len(), count(&set));
            rows.keep(|row| row % divisor == 0);
            expected.retain(|row| usize::from(*row) % divisor == 0);
            prop_assert_eq!(rows.as_slice(), &expected[..]);
            prop_assert_eq!(rows.is_empty(), expected.is_empty());
        }
    }
}
