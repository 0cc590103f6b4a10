//! AVX2 and AVX-512 versions of the kernels. Every function here needs its instructions detected by
//! [`super::Backend`] before it is called.

use std::arch::x86_64::*;

use super::lanes::widen;
use super::{BLOCK_VALUES, Combine, Lane, Narrow, Slice, generic};

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
    let answer = |rows: &[u32; 64]| {
        let mut mask = 0;
        for (i, eight) in rows.as_chunks::<8>().0.iter().enumerate() {
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
        mask
    };
    generic::by_word(values, combine, bitmap, answer, |rest| {
        generic::set_word(rest, min, set)
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

#[target_feature(enable = "avx2")]
pub(super) fn unpack_avx2<T: Lane>(
    packed: &[T],
    width: usize,
    add: T,
    output: &mut [T; BLOCK_VALUES],
) {
    T::unpack(packed, width, add, output);
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn unpack_avx512<T: Lane>(
    packed: &[T],
    width: usize,
    add: T,
    output: &mut [T; BLOCK_VALUES],
) {
    T::unpack(packed, width, add, output);
}

#[target_feature(enable = "avx2")]
pub(super) fn widen_avx2<T: Narrow>(values: &[T], signed: bool, output: &mut [u32]) {
    widen(values, signed, output);
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn widen_avx512<T: Narrow>(values: &[T], signed: bool, output: &mut [u32]) {
    widen(values, signed, output);
}

/// `output` has room for all bits.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn list_bits_avx512(bitmap: &[u64], output: &mut [u16]) -> usize {
    let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let mut len = 0;
    for (idx, word) in bitmap.iter().enumerate().filter(|(_, word)| **word != 0) {
        for quarter in 0..4 {
            let bits = (*word >> (quarter * 16)) as u16;
            let numbers =
                _mm512_add_epi32(lanes, _mm512_set1_epi32(idx as i32 * 64 + quarter * 16));
            let listed = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(bits, numbers));
            // Bits before these are at most as many as rows before them, so that 16 more fit.
            if let Some(target) = output[len..].first_chunk_mut::<16>() {
                // SAFETY: `target` is 32 writable bytes and the store has no alignment requirement.
                unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), listed) };
            }
            len += bits.count_ones() as usize;
        }
    }
    len
}

/// A test of values against a range, `lanes` at a time: `mask` has a bit for each lane whose distance from the range's
/// beginning is at most its span.
macro_rules! in_range {
    ($name:ident, $features:literal, $lane:ty, $lanes:literal, $load:ident, $set:ident, $sub:ident, $mask:expr) => {
        #[target_feature(enable = $features)]
        pub(super) fn $name(
            values: &[$lane],
            lo: $lane,
            span: $lane,
            combine: Combine,
            bitmap: &mut [u64],
        ) {
            let (los, spans) = ($set(lo.cast_signed()), $set(span.cast_signed()));
            let inside = |value: $lane| value.wrapping_sub(lo) <= span;
            let answer = |rows: &[$lane; 64]| {
                let mut mask = 0;
                for (i, lanes) in rows.as_chunks::<$lanes>().0.iter().enumerate() {
                    // SAFETY: `lanes` fills a register and the load has no alignment requirement.
                    let values = unsafe { $load(lanes.as_ptr().cast()) };
                    mask |= $mask($sub(values, los), spans) << ($lanes * i);
                }
                mask
            };
            generic::by_word(values, combine, bitmap, answer, |rest| {
                generic::range_word(rest, inside)
            });
        }
    };
}

in_range!(
    in_range_u8_avx2,
    "avx2",
    u8,
    32,
    _mm256_loadu_si256,
    _mm256_set1_epi8,
    _mm256_sub_epi8,
    |offset, span| {
        let inside = _mm256_cmpeq_epi8(_mm256_min_epu8(offset, span), offset);
        u64::from(_mm256_movemask_epi8(inside).cast_unsigned())
    }
);
in_range!(
    in_range_u16_avx2,
    "avx2",
    u16,
    16,
    _mm256_loadu_si256,
    _mm256_set1_epi16,
    _mm256_sub_epi16,
    |offset, span| {
        let inside = _mm256_cmpeq_epi16(_mm256_min_epu16(offset, span), offset);
        // A byte for each lane, first those of the lower half, then those of the upper.
        let bytes = _mm_packs_epi16(
            _mm256_castsi256_si128(inside),
            _mm256_extracti128_si256::<1>(inside),
        );
        u64::from(_mm_movemask_epi8(bytes).cast_unsigned())
    }
);
in_range!(
    in_range_u32_avx2,
    "avx2",
    u32,
    8,
    _mm256_loadu_si256,
    _mm256_set1_epi32,
    _mm256_sub_epi32,
    |offset, span| {
        let inside = _mm256_cmpeq_epi32(_mm256_min_epu32(offset, span), offset);
        u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(inside)).cast_unsigned())
    }
);
in_range!(
    in_range_u64_avx2,
    "avx2",
    u64,
    4,
    _mm256_loadu_si256,
    _mm256_set1_epi64x,
    _mm256_sub_epi64,
    |offset, span| {
        // Numbers with a sign are in the order of those without when their highest bit is flipped.
        let sign = _mm256_set1_epi64x(i64::MIN);
        let outside =
            _mm256_cmpgt_epi64(_mm256_xor_si256(offset, sign), _mm256_xor_si256(span, sign));
        u64::from(!_mm256_movemask_pd(_mm256_castsi256_pd(outside)).cast_unsigned() & 0xf)
    }
);
in_range!(
    in_range_u8_avx512,
    "avx512f,avx512bw",
    u8,
    64,
    _mm512_loadu_si512,
    _mm512_set1_epi8,
    _mm512_sub_epi8,
    |offset, span| _mm512_cmple_epu8_mask(offset, span)
);
in_range!(
    in_range_u16_avx512,
    "avx512f,avx512bw",
    u16,
    32,
    _mm512_loadu_si512,
    _mm512_set1_epi16,
    _mm512_sub_epi16,
    |offset, span| u64::from(_mm512_cmple_epu16_mask(offset, span))
);
in_range!(
    in_range_u32_avx512,
    "avx512f,avx512bw",
    u32,
    16,
    _mm512_loadu_si512,
    _mm512_set1_epi32,
    _mm512_sub_epi32,
    |offset, span| u64::from(_mm512_cmple_epu32_mask(offset, span))
);
in_range!(
    in_range_u64_avx512,
    "avx512f,avx512bw",
    u64,
    8,
    _mm512_loadu_si512,
    _mm512_set1_epi64,
    _mm512_sub_epi64,
    |offset, span| u64::from(_mm512_cmple_epu64_mask(offset, span))
);
