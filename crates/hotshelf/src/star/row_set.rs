//! Sets of a chunk's rows: a bit for each.

use super::chunk::CHUNK_ROWS;

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

/// Clears the bits of the rows that do not pass.
#[inline]
pub(super) fn keep(words: &mut [u64; WORDS], mut passes: impl FnMut(usize) -> bool) {
    for (idx, word) in words.iter_mut().enumerate() {
        let (mut bits, mut kept) = (*word, 0);
        while bits != 0 {
            let bit = bits.trailing_zeros();
            kept |= u64::from(passes(idx * 64 + bit as usize)) << bit;
            bits &= bits - 1;
        }
        *word = kept;
    }
}

/// Whether a bit is there and set.
#[inline]
pub(super) fn is_set(words: &[u64], bit: u32) -> bool {
    let word = words.get((bit >> 6) as usize).copied().unwrap_or(0);
    (word >> (bit & 63)) & 1 == 1
}
