//! The portable kernels: the definition every vector version is tested against.

use super::{Combine, Slice};

pub(super) fn box_mask(words: &[u64], lo: u64, hi: u64, guard: u64) -> u64 {
    let mut mask = 0;
    for (i, &word) in words.iter().enumerate() {
        let inside = (word | guard).wrapping_sub(lo) & hi.wrapping_sub(word) & guard;
        mask |= u64::from(inside == guard) << i;
    }
    mask
}

pub(super) fn eq_mask(words: &[u64], key: u64) -> u64 {
    let mut mask = 0;
    for (i, &word) in words.iter().enumerate() {
        mask |= u64::from(word == key) << i;
    }
    mask
}

/// One word of the answer for at most 64 rows.
pub(super) fn range_word<T: Copy>(values: &[T], inside: impl Fn(T) -> bool) -> u64 {
    let mut mask = 0;
    for (i, &value) in values.iter().enumerate() {
        mask |= u64::from(inside(value)) << i;
    }
    mask
}

/// One word of the answer for at most 64 rows.
pub(super) fn set_word(values: &[u32], min: u32, set: &[u64]) -> u64 {
    let mut mask = 0;
    for (i, &value) in values.iter().enumerate() {
        let slot = value.wrapping_sub(min);
        let word = set.get((slot >> 6) as usize).copied().unwrap_or(0);
        mask |= ((word >> (slot & 63)) & 1) << i;
    }
    mask
}

/// Fills a bitmap from the answers for 64 rows at a time, and for the rows after these.
#[inline(always)]
pub(super) fn by_word<T>(
    values: &[T],
    combine: Combine,
    bitmap: &mut [u64],
    answer: impl Fn(&[T; 64]) -> u64,
    answer_rest: impl Fn(&[T]) -> u64,
) {
    let (full, rest) = values.as_chunks::<64>();
    let mut words = bitmap.iter_mut();
    for (rows, word) in full.iter().zip(words.by_ref()) {
        match combine {
            Combine::Replace => *word = answer(rows),
            Combine::And if *word == 0 => {}
            Combine::And => *word &= answer(rows),
        }
    }
    if let (false, Some(word)) = (rest.is_empty(), words.next()) {
        match combine {
            Combine::Replace => *word = answer_rest(rest),
            Combine::And => *word &= answer_rest(rest),
        }
    }
}

/// Bit by bit from the top: which rows are below `lo` or above `hi`, and which are still equal to them.
#[inline(always)]
pub(super) fn scan_slices(slices: &[Slice], lo: u32, hi: u32, mask: &mut Slice) {
    let (mut outside, mut equals_lo, mut equals_hi) = ([0; 8], [u64::MAX; 8], [u64::MAX; 8]);
    for (slice, bit) in slices.iter().zip((0..slices.len()).rev()) {
        let spread = |code: u32| 0u64.wrapping_sub(u64::from(code >> bit & 1));
        let (lo_bits, hi_bits) = (spread(lo), spread(hi));
        let equals = equals_lo.iter_mut().zip(&mut equals_hi);
        for ((bits, outside), (equals_lo, equals_hi)) in slice.iter().zip(&mut outside).zip(equals)
        {
            *outside |= *equals_lo & lo_bits & !bits | *equals_hi & !hi_bits & bits;
            *equals_lo &= !(bits ^ lo_bits);
            *equals_hi &= !(bits ^ hi_bits);
        }
    }
    for (mask, outside) in mask.iter_mut().zip(outside) {
        *mask &= !outside;
    }
}

/// `output` has room for all bits.
pub(super) fn list_bits(bitmap: &[u64], output: &mut [u16]) -> usize {
    let mut len = 0;
    for (idx, word) in bitmap.iter().enumerate() {
        let mut bits = *word;
        while bits != 0 {
            output[len] = (idx * 64) as u16 + bits.trailing_zeros() as u16;
            len += 1;
            bits &= bits - 1;
        }
    }
    len
}
