//! The portable kernels: the definition every vector version is tested against.

use super::Combine;

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

pub(super) fn byte_eq_mask(bytes: &[u8], key: u8) -> u64 {
    let mut mask = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        mask |= u64::from(byte == key) << i;
    }
    mask
}

/// One word of the answer for at most 64 rows.
pub(super) fn scan_word(rows: &[u8], lo: u8, hi: u8) -> u64 {
    let mut mask = 0;
    for (i, &byte) in rows.iter().enumerate() {
        mask |= u64::from(byte.wrapping_sub(lo) <= hi - lo) << i;
    }
    mask
}

pub(super) fn scan_bytes(column: &[u8], lo: u8, hi: u8, combine: Combine, bitmap: &mut [u64]) {
    for (rows, word) in column.chunks(64).zip(bitmap) {
        match combine {
            Combine::Replace => *word = scan_word(rows, lo, hi),
            Combine::And if *word == 0 => {}
            Combine::And => *word &= scan_word(rows, lo, hi),
        }
    }
}

/// One word of the answer for at most 64 rows.
pub(super) fn range_word(values: &[u32], lo: u32, span: u32) -> u64 {
    let mut mask = 0;
    for (i, &value) in values.iter().enumerate() {
        mask |= u64::from(value.wrapping_sub(lo) <= span) << i;
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

/// Fills a bitmap from the answers for 64 rows at a time.
pub(super) fn by_word(
    values: &[u32],
    combine: Combine,
    bitmap: &mut [u64],
    answer: impl Fn(&[u32]) -> u64,
) {
    for (rows, word) in values.chunks(64).zip(bitmap) {
        match combine {
            Combine::Replace => *word = answer(rows),
            Combine::And if *word == 0 => {}
            Combine::And => *word &= answer(rows),
        }
    }
}
