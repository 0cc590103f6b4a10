//! AVX2 and AVX-512 versions of the kernels. Every function here needs its instructions detected by
//! [`super::Backend`] before it is called.

use std::arch::x86_64::*;

use super::{Combine, Slice, generic};

#[target_feature(enable = "avx2")]
pub(super) fn box_mask_avx2(words: &[u64], lo: u64, hi: u64, guard: u64) -> u64 {
    let (lo4, hi4) = (_mm256_set1_epi64x(lo as i64), _mm256_set1_epi64x(hi as i64));
    let guard4 = _mm256_set1_epi64x(guard as i64);
    let (fours, rest) = words.as_chunks::<4>();
    let mut mask = 0;
    for (i, four) in fours.iter().enumerate() {
        // SAFETY: `four` is 32 readable bytes and the load has no alignment requirement.
        let word = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
        let above = _mm256_sub_epi64(_mm256_or_si256(word, guard4), lo4);
        let below = _mm256_sub_epi64(hi4, word);
        let inside = _mm256_and_si256(_mm256_and_si256(above, below), guard4);
        let equal = _mm256_cmpeq_epi64(inside, guard4);
        mask |= (_mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u64) << (4 * i);
    }
    if !rest.is_empty() {
        mask |= generic::box_mask(rest, lo, hi, guard) << (4 * fours.len());
    }
    mask
}

#[target_feature(enable = "avx2")]
pub(super) fn eq_mask_avx2(words: &[u64], key: u64) -> u64 {
    let key4 = _mm256_set1_epi64x(key as i64);
    let (fours, rest) = words.as_chunks::<4>();
    let mut mask = 0;
    for (i, four) in fours.iter().enumerate() {
        // SAFETY: `four` is 32 readable bytes and the load has no alignment requirement.
        let word = unsafe { _mm256_loadu_si256(four.as_ptr().cast()) };
        let equal = _mm256_cmpeq_epi64(word, key4);
        mask |= (_mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u64) << (4 * i);
    }
    if !rest.is_empty() {
        mask |= generic::eq_mask(rest, key) << (4 * fours.len());
    }
    mask
}

#[target_feature(enable = "avx2")]
pub(super) fn scan_bytes_avx2(column: &[u8], lo: u8, hi: u8, combine: Combine, bitmap: &mut [u64]) {
    let lo32 = _mm256_set1_epi8(lo as i8);
    let width32 = _mm256_set1_epi8((hi - lo) as i8);
    let (full, rest) = column.as_chunks::<64>();
    for (rows, word) in full.iter().zip(bitmap.iter_mut()) {
        if combine == Combine::And && *word == 0 {
            continue;
        }
        let half = |at: usize| {
            // SAFETY: `at` is 0 or 32, so the load stays inside the 64 bytes of `rows`.
            let byte = unsafe { _mm256_loadu_si256(rows.as_ptr().wrapping_add(at).cast()) };
            let offset = _mm256_sub_epi8(byte, lo32);
            let inside = _mm256_cmpeq_epi8(_mm256_min_epu8(offset, width32), offset);
            u64::from(_mm256_movemask_epi8(inside) as u32)
        };
        let mask = half(0) | half(32) << 32;
        *word = if combine == Combine::And {
            *word & mask
        } else {
            mask
        };
    }
    if !rest.is_empty() {
        generic::scan_bytes(rest, lo, hi, combine, &mut bitmap[full.len()..]);
    }
}

/// The low `count` lanes, for `count` from 1 to 8.
fn lanes8(count: usize) -> __mmask8 {
    (0xff_u32 >> (8 - count)) as __mmask8
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn box_mask_avx512(words: &[u64], lo: u64, hi: u64, guard: u64) -> u64 {
    let (lo8, hi8) = (_mm512_set1_epi64(lo as i64), _mm512_set1_epi64(hi as i64));
    let guard8 = _mm512_set1_epi64(guard as i64);
    let mut mask = 0;
    let mut at = 0;
    while at < words.len() {
        let lanes = lanes8((words.len() - at).min(8));
        // SAFETY: only the lanes inside `words` are loaded; masked-off lanes do not touch memory.
        let word =
            unsafe { _mm512_maskz_loadu_epi64(lanes, words.as_ptr().wrapping_add(at).cast()) };
        let above = _mm512_sub_epi64(_mm512_or_si512(word, guard8), lo8);
        let below = _mm512_sub_epi64(hi8, word);
        let inside = _mm512_and_si512(_mm512_and_si512(above, below), guard8);
        let equal = _mm512_mask_cmpeq_epi64_mask(lanes, inside, guard8);
        mask |= u64::from(equal) << at;
        at += 8;
    }
    mask
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn eq_mask_avx512(words: &[u64], key: u64) -> u64 {
    let key8 = _mm512_set1_epi64(key as i64);
    let mut mask = 0;
    let mut at = 0;
    while at < words.len() {
        let lanes = lanes8((words.len() - at).min(8));
        // SAFETY: only the lanes inside `words` are loaded; masked-off lanes do not touch memory.
        let word =
            unsafe { _mm512_maskz_loadu_epi64(lanes, words.as_ptr().wrapping_add(at).cast()) };
        mask |= u64::from(_mm512_mask_cmpeq_epi64_mask(lanes, word, key8)) << at;
        at += 8;
    }
    mask
}

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// The word of a cache line at which a slice starts.
#[inline]
fn line_offset(words: &[u64]) -> usize {
    words.as_ptr() as usize / 8 % LINE_WORDS
}

/// The words equal to `key` among up to 16, without a branch that depends on their number. Only cache lines with
/// some of the words are touched: even lanes that are masked off would wait for theirs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn eq_mask_16(words: &[u64], key8: __m512i) -> u64 {
    let offset = line_offset(words);
    let line = words.as_ptr().wrapping_sub(offset);
    let lanes = ((1u32 << words.len()) - 1) << offset;
    let equal = |idx: usize| {
        let lanes = (lanes >> (idx * LINE_WORDS)) as __mmask8;
        let line = line.wrapping_add(if lanes == 0 { 0 } else { idx * LINE_WORDS });
        // SAFETY: only the lanes inside `words` are loaded; masked-off lanes do not touch memory.
        let words = unsafe { _mm512_maskz_loadu_epi64(lanes, line.cast()) };
        u64::from(_mm512_mask_cmpeq_epi64_mask(lanes, words, key8)) << (idx * LINE_WORDS)
    };
    (equal(0) | equal(1) | equal(2)) >> offset
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn eq_mask_of_two_avx512(first: &[u64], second: &[u64], key: u64) -> u64 {
    if first.len().max(second.len()) > 16 {
        let (first_mask, second_mask) = (eq_mask_avx512(first, key), eq_mask_avx512(second, key));
        return first_mask | second_mask.checked_shl(first.len() as u32).unwrap_or(0);
    }
    let key8 = _mm512_set1_epi64(key as i64);
    eq_mask_16(first, key8) | eq_mask_16(second, key8) << first.len()
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn scan_bytes_avx512(
    column: &[u8],
    lo: u8,
    hi: u8,
    combine: Combine,
    bitmap: &mut [u64],
) {
    let lo64 = _mm512_set1_epi8(lo as i8);
    let width64 = _mm512_set1_epi8((hi - lo) as i8);
    let (full, rest) = column.as_chunks::<64>();
    for (rows, word) in full.iter().zip(bitmap.iter_mut()) {
        if combine == Combine::And && *word == 0 {
            continue;
        }
        // SAFETY: `rows` is 64 readable bytes and the load has no alignment requirement.
        let byte = unsafe { _mm512_loadu_si512(rows.as_ptr().cast()) };
        let mask = _mm512_cmple_epu8_mask(_mm512_sub_epi8(byte, lo64), width64);
        *word = if combine == Combine::And {
            *word & mask
        } else {
            mask
        };
    }
    if !rest.is_empty() {
        generic::scan_bytes(rest, lo, hi, combine, &mut bitmap[full.len()..]);
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn in_range_avx2(
    values: &[u32],
    lo: u32,
    span: u32,
    combine: Combine,
    bitmap: &mut [u64],
) {
    let (lo8, span8) = (_mm256_set1_epi32(lo as i32), _mm256_set1_epi32(span as i32));
    generic::by_word(values, combine, bitmap, |rows| {
        let (eights, rest) = rows.as_chunks::<8>();
        let mut mask = 0;
        for (i, eight) in eights.iter().enumerate() {
            // SAFETY: `eight` is 32 readable bytes and the load has no alignment requirement.
            let value = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
            let offset = _mm256_sub_epi32(value, lo8);
            let inside = _mm256_cmpeq_epi32(_mm256_min_epu32(offset, span8), offset);
            let bits = _mm256_movemask_ps(_mm256_castsi256_ps(inside)) as u32;
            mask |= u64::from(bits) << (8 * i);
        }
        if !rest.is_empty() {
            mask |= generic::range_word(rest, lo, span) << (8 * eights.len());
        }
        mask
    });
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn in_range_avx512(
    values: &[u32],
    lo: u32,
    span: u32,
    combine: Combine,
    bitmap: &mut [u64],
) {
    let (lo16, span16) = (_mm512_set1_epi32(lo as i32), _mm512_set1_epi32(span as i32));
    generic::by_word(values, combine, bitmap, |rows| {
        let (sixteens, rest) = rows.as_chunks::<16>();
        let mut mask = 0;
        for (i, sixteen) in sixteens.iter().enumerate() {
            // SAFETY: `sixteen` is 64 readable bytes and the load has no alignment requirement.
            let value = unsafe { _mm512_loadu_si512(sixteen.as_ptr().cast()) };
            let inside = _mm512_cmple_epu32_mask(_mm512_sub_epi32(value, lo16), span16);
            mask |= u64::from(inside) << (16 * i);
        }
        if !rest.is_empty() {
            mask |= generic::range_word(rest, lo, span) << (16 * sixteens.len());
        }
        mask
    });
}

/// # Safety
/// 1. The processor has AVX2.
/// 2. `set` is not empty and has at most 2^26 words, so that its bits are numbered by 32 bits.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn in_set_avx2(
    values: &[u32],
    min: u32,
    set: &[u64],
    combine: Combine,
    bitmap: &mut [u64],
) {
    let last = (set.len() as u64 * 64 - 1) as u32;
    let (min8, last8) = (
        _mm256_set1_epi32(min as i32),
        _mm256_set1_epi32(last as i32),
    );
    let low5 = _mm256_set1_epi32(31);
    generic::by_word(values, combine, bitmap, |rows| {
        let (eights, rest) = rows.as_chunks::<8>();
        let mut mask = 0;
        for (i, eight) in eights.iter().enumerate() {
            // SAFETY: `eight` is 32 readable bytes and the load has no alignment requirement.
            let value = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
            let slot = _mm256_sub_epi32(value, min8);
            let near = _mm256_min_epu32(slot, last8);
            let inside = _mm256_cmpeq_epi32(near, slot);
            let word = _mm256_srli_epi32::<5>(near);
            // SAFETY: `near` numbers a bit of `set`, so `near / 32` is the index of one of the 32-bit halves of its
            // words (little-endian: bit `b` of half `h` is bit `32 h + b`), below 2^27 and so not negative.
            let half = unsafe { _mm256_i32gather_epi32::<4>(set.as_ptr().cast(), word) };
            // The wanted bit becomes the sign.
            let shift = _mm256_sub_epi32(low5, _mm256_and_si256(near, low5));
            let hit = _mm256_and_si256(_mm256_sllv_epi32(half, shift), inside);
            let bits = _mm256_movemask_ps(_mm256_castsi256_ps(hit)) as u32;
            mask |= u64::from(bits) << (8 * i);
        }
        if !rest.is_empty() {
            mask |= generic::set_word(rest, min, set) << (8 * eights.len());
        }
        mask
    });
}

/// One step of a bitonic network over 16 lanes: each lane is compared with that at `partner`, and those in
/// `upper` keep the larger of the two.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn exchange(lanes: __m512i, partner: __m512i, upper: __mmask16) -> __m512i {
    let other = _mm512_permutexvar_epi32(partner, lanes);
    let smaller = _mm512_min_epu32(lanes, other);
    _mm512_mask_max_epu32(smaller, upper, lanes, other)
}

/// The lane numbers with the bits of `mask` flipped.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn partners(mask: i32) -> __m512i {
    let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    _mm512_xor_si512(lanes, _mm512_set1_epi32(mask))
}

/// Sorts 16 lanes of which the first half ascends and the second descends, or any rotation of that.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn merge_lanes(lanes: __m512i) -> __m512i {
    let lanes = exchange(lanes, partners(8), 0xff00);
    let lanes = exchange(lanes, partners(4), 0xf0f0);
    let lanes = exchange(lanes, partners(2), 0xcccc);
    exchange(lanes, partners(1), 0xaaaa)
}

/// Sorts 16 lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn sort_lanes(lanes: __m512i) -> __m512i {
    let lanes = exchange(lanes, partners(1), 0xaaaa);
    let lanes = exchange(lanes, partners(3), 0xcccc);
    let lanes = exchange(lanes, partners(1), 0xaaaa);
    let lanes = exchange(lanes, partners(7), 0xf0f0);
    let lanes = exchange(lanes, partners(2), 0xcccc);
    let lanes = exchange(lanes, partners(1), 0xaaaa);
    let lanes = exchange(lanes, partners(15), 0xff00);
    let lanes = exchange(lanes, partners(4), 0xf0f0);
    let lanes = exchange(lanes, partners(2), 0xcccc);
    exchange(lanes, partners(1), 0xaaaa)
}

/// Merges two sorted halves of `R` registers each into one sorted sequence.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn merge_registers<const R: usize>(lanes: &mut [__m512i]) {
    let reverse = partners(15);
    let (low, high) = lanes.split_at_mut(R);
    for (low, high) in low.iter_mut().zip(high.iter_mut().rev()) {
        let other = _mm512_permutexvar_epi32(reverse, *high);
        (*low, *high) = (_mm512_min_epu32(*low, other), _mm512_max_epu32(*low, other));
    }
    if R == 2 {
        for half in [low, high] {
            let (a, b) = (half[0], half[1]);
            (half[0], half[1]) = (_mm512_min_epu32(a, b), _mm512_max_epu32(a, b));
        }
    }
    lanes.iter_mut().for_each(|one| *one = merge_lanes(*one));
}

/// Sorts up to 64 numbers by a bitonic network; absent lanes count as the largest number.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn sort_few_avx512(numbers: &mut [u32]) {
    let len = numbers.len();
    let present = |register: usize| {
        let count = len.saturating_sub(register * 16).min(16);
        ((1u32 << count) - 1) as __mmask16
    };
    let mut lanes = [_mm512_set1_epi32(-1); 4];
    let register_count = len.div_ceil(16);
    for (register, target) in lanes[..register_count].iter_mut().enumerate() {
        // SAFETY: only the lanes inside `numbers` are loaded; masked-off lanes do not touch memory.
        let loaded = unsafe {
            _mm512_mask_loadu_epi32(
                *target,
                present(register),
                numbers.as_ptr().wrapping_add(register * 16).cast(),
            )
        };
        *target = sort_lanes(loaded);
    }
    if register_count > 1 {
        merge_registers::<1>(&mut lanes[..2]);
    }
    if register_count > 2 {
        merge_registers::<1>(&mut lanes[2..]);
        merge_registers::<2>(&mut lanes);
    }
    for (register, lanes) in lanes[..register_count].iter().enumerate() {
        // SAFETY: only the lanes inside `numbers` are stored; masked-off lanes do not touch memory.
        unsafe {
            _mm512_mask_storeu_epi32(
                numbers.as_mut_ptr().wrapping_add(register * 16).cast(),
                present(register),
                *lanes,
            );
        }
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn scan_slices_avx2(slices: &[Slice], lo: u32, hi: u32, mask: &mut Slice) {
    generic::scan_slices(slices, lo, hi, mask);
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn scan_slices_avx512(slices: &[Slice], lo: u32, hi: u32, mask: &mut Slice) {
    generic::scan_slices(slices, lo, hi, mask);
}
