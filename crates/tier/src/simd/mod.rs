//! Comparison kernels over packed words, columns and bytes, and prefetch, as safe functions.
//!
//! The Elf's leaf tests, the byte-wise scan and star pipelines are written against this module; it is the only
//! place where vector instructions are named. A [`Backend`] can only be obtained for instructions the
//! running machine has, so a kernel can never raise an illegal-instruction fault.

mod columns;
mod generic;
mod lanes;
mod prefetch;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

pub use lanes::{BLOCK_VALUES, Lane, Narrow};
pub use prefetch::prefetch;

/// Most words or bytes that one mask-returning kernel call examines.
pub const MASK_LANES: usize = 64;

/// Most numbers that [`Backend::sort_few`] sorts with vector instructions.
pub const SORT_LANES: usize = 64;

/// Rows of one block of bit slices.
pub const SLICE_ROWS: usize = 512;

/// One bit of each of [`SLICE_ROWS`] rows, row `i` in bit `i % 64` of word `i / 64`.
pub type Slice = [u64; SLICE_ROWS / 64];

/// A set of vector instructions that the running machine is known to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Generic,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// How a scan combines its result with the bitmap it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Overwrite the bitmap.
    Replace,
    /// Keep only the rows that are already set; 64-row words without any are skipped.
    And,
}

impl Backend {
    /// The portable implementation, present on every machine.
    pub const GENERIC: Self = Self(Kind::Generic);

    /// The widest instructions of this machine.
    pub fn detect() -> Self {
        static WIDEST: OnceLock<Backend> = OnceLock::new();
        *WIDEST.get_or_init(|| *Self::available().last().unwrap_or(&Self::GENERIC))
    }

    /// Every backend this machine can run, narrowest first. Tests run all of them.
    pub fn available() -> Vec<Self> {
        let mut all = vec![Self::GENERIC];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Self(Kind::Avx2));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                all.push(Self(Kind::Avx512));
            }
        }
        all
    }

    /// A short name for reports: `generic`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Generic => "generic",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
        }
    }

    /// Tests every field of each packed word against its own inclusive range.
    ///
    /// A word holds several unsigned fields, each with a guard bit above it that is clear in `words`.
    /// `guard` has exactly the guard bits set; `lo` holds the lower bounds with clear guard bits and
    /// `hi` the upper bounds with the guard bits set. Bit `i` of the answer says whether all fields of
    /// `words[i]` lie in their ranges. At most [`MASK_LANES`] words are examined.
    #[inline]
    pub fn box_mask(self, words: &[u64], lo: u64, hi: u64, guard: u64) -> u64 {
        let words = &words[..words.len().min(MASK_LANES)];
        match self.0 {
            Kind::Generic => generic::box_mask(words, lo, hi, guard),
            // SAFETY: a value of this kind is only made after the processor reported AVX2.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::box_mask_avx2(words, lo, hi, guard) },
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::box_mask_avx512(words, lo, hi, guard) },
        }
    }

    /// Bit `i` of the answer says whether `words[i] == key`, for at most [`MASK_LANES`] words.
    #[inline]
    pub fn eq_mask(self, words: &[u64], key: u64) -> u64 {
        let words = &words[..words.len().min(MASK_LANES)];
        match self.0 {
            Kind::Generic => generic::eq_mask(words, key),
            // SAFETY: a value of this kind is only made after the processor reported AVX2.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::eq_mask_avx2(words, key) },
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::eq_mask_avx512(words, key) },
        }
    }

    /// As [`eq_mask`](Self::eq_mask), for words in two places: `first`, then `second`. Meant for few words.
    #[inline]
    pub fn eq_mask_of_two(self, first: &[u64], second: &[u64], key: u64) -> u64 {
        let first = &first[..first.len().min(MASK_LANES)];
        let second = &second[..second.len().min(MASK_LANES - first.len())];
        match self.0 {
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW; there are at
            // most 64 words.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::eq_mask_of_two_avx512(first, second, key) },
            _ if second.is_empty() => self.eq_mask(first, key),
            _ => self.eq_mask(first, key) | self.eq_mask(second, key) << (first.len() % MASK_LANES),
        }
    }

    /// Clears the bits of rows whose codes lie outside `lo..=hi` in `mask`.
    ///
    /// A block holds the codes of [`SLICE_ROWS`] rows bit by bit: `slices` has their most significant bits
    /// first, one slice per bit (BitWeaving/V, SIGMOD 2013). Bits of `lo` and `hi` above these are ignored.
    #[inline]
    pub fn scan_slices(self, slices: &[Slice], lo: u32, hi: u32, mask: &mut Slice) {
        match self.0 {
            Kind::Generic => generic::scan_slices(slices, lo, hi, mask),
            // SAFETY: a value of this kind is only made after the processor reported AVX2.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::scan_slices_avx2(slices, lo, hi, mask) },
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::scan_slices_avx512(slices, lo, hi, mask) },
        }
    }

    /// Sorts numbers; up to [`SORT_LANES`] of them without a branch where the machine can.
    #[inline]
    pub fn sort_few(self, numbers: &mut [u32]) {
        if numbers.len() < 2 {
            return;
        }
        match self.0 {
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW, and
            // the number of lanes was compared.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 if numbers.len() <= SORT_LANES => unsafe {
                x86::sort_few_avx512(numbers);
            },
            _ => numbers.sort_unstable(),
        }
    }

    /// Tests a column of one-byte codes against `lo..=hi` and writes one bit per row.
    ///
    /// Bit `i % 64` of `bitmap[i / 64]` belongs to `column[i]`. Bits beyond the column are cleared in
    /// the last word touched. `lo > hi` selects nothing.
    ///
    /// # Panics
    /// When `bitmap` has fewer than `column.len().div_ceil(64)` words.
    pub fn scan_bytes(self, column: &[u8], lo: u8, hi: u8, combine: Combine, bitmap: &mut [u64]) {
        if lo > hi {
            bitmap[..column.len().div_ceil(64)].fill(0);
        } else {
            self.in_range(column, lo, hi - lo, combine, bitmap);
        }
    }

    /// Tests which values are in a set, one bit per row: `value` is in it if bit `value - min` (modulo 2^32) of
    /// `set` is set, counted from the lowest bit of the first word.
    ///
    /// The bitmap is written as by [`in_range`](Self::in_range).
    ///
    /// # Panics
    /// When `bitmap` has fewer than `values.len().div_ceil(64)` words, or `set` has more than 2^26.
    pub fn in_set(
        self,
        values: &[u32],
        min: u32,
        set: &[u64],
        combine: Combine,
        bitmap: &mut [u64],
    ) {
        assert!(set.len() <= 1 << 26, "a set of more than 2^32 bits");
        let bitmap = &mut bitmap[..values.len().div_ceil(64)];
        if set.is_empty() {
            bitmap.fill(0);
            return;
        }
        match self.0 {
            Kind::Generic => generic::by_word(
                values,
                combine,
                bitmap,
                |rows| generic::set_word(rows, min, set),
                |rest| generic::set_word(rest, min, set),
            ),
            // SAFETY: a value of this kind is only made after the processor reported AVX2 (which every processor
            // with AVX-512 has: wider gathers were no faster); `set` is neither empty nor too large.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 | Kind::Avx512 => unsafe {
                x86::in_set_avx2(values, min, set, combine, bitmap)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fields of 7 bits with a guard bit each: eight to a word.
    const GUARD: u64 = 0x8080_8080_8080_8080;

    fn box_mask_by_field(words: &[u64], lo: u64, hi: u64) -> u64 {
        let mut mask = 0;
        for (i, word) in words.iter().enumerate() {
            let inside = (0..8).all(|field| {
                let of = |w: u64| (w >> (field * 8)) & 0x7f;
                (of(lo)..=of(hi)).contains(&of(*word))
            });
            mask |= u64::from(inside) << i;
        }
        mask
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn every_backend_tests_fields_like_a_loop_over_fields(
            words in proptest::collection::vec(any::<u64>(), 0..=64),
            lo in any::<u64>(),
            width in any::<u64>(),
        ) {
            let words: Vec<u64> = words.iter().map(|w| w & !GUARD).collect();
            let lo = lo & !GUARD & 0x3f3f_3f3f_3f3f_3f3f;
            let hi = (lo | (width & 0x4040_4040_4040_4040)) | GUARD;
            let expected = box_mask_by_field(&words, lo, hi);
            for backend in Backend::available() {
                prop_assert_eq!(backend.box_mask(&words, lo, hi, GUARD), expected, "{}", backend.name());
            }
        }

        #[test]
        fn every_backend_finds_equal_words(
            words in proptest::collection::vec(0u64..4, 0..=64),
            key in 0u64..4,
        ) {
            let expected = words.iter().enumerate().fold(0, |m, (i, &w)| m | (u64::from(w == key) << i));
            for backend in Backend::available() {
                prop_assert_eq!(backend.eq_mask(&words, key), expected);
                for first in [0, words.len() / 3, words.len()] {
                    let (first, second) = words.split_at(first);
                    prop_assert_eq!(backend.eq_mask_of_two(first, second, key), expected);
                }
            }
        }

        #[test]
        fn every_backend_scans_slices_like_a_loop(
            codes in proptest::collection::vec(0u32..32, SLICE_ROWS),
            lo in 0u32..32,
            hi in 0u32..32,
        ) {
            let mut slices = [[0u64; SLICE_ROWS / 64]; 5];
            for (row, code) in codes.iter().enumerate() {
                for (bit, slice) in slices.iter_mut().rev().enumerate() {
                    slice[row / 64] |= u64::from(code >> bit & 1) << (row % 64);
                }
            }
            for backend in Backend::available() {
                let mut mask = [u64::MAX - 1; SLICE_ROWS / 64];
                backend.scan_slices(&slices, lo, hi, &mut mask);
                for (row, code) in codes.iter().enumerate() {
                    let expected = row % 64 != 0 && (lo..=hi).contains(code);
                    prop_assert_eq!(mask[row / 64] >> (row % 64) & 1 == 1, expected);
                }
            }
        }

        #[test]
        fn every_backend_sorts_any_few_numbers(
            numbers in proptest::collection::vec(prop_oneof![any::<u32>(), 0u32..20, Just(u32::MAX)], 0..=80),
        ) {
            let mut expected = numbers.clone();
            expected.sort_unstable();
            for backend in Backend::available() {
                let mut sorted = numbers.clone();
                backend.sort_few(&mut sorted);
                prop_assert_eq!(&sorted, &expected, "{}", backend.name());
            }
        }

        #[test]
        fn every_backend_scans_bytes_like_a_loop(
            column in proptest::collection::vec(any::<u8>(), 0..300),
            lo in any::<u8>(),
            hi in any::<u8>(),
            before in any::<u64>(),
        ) {
            for backend in Backend::available() {
                for combine in [Combine::Replace, Combine::And] {
                    let mut bitmap = vec![before; column.len().div_ceil(64)];
                    backend.scan_bytes(&column, lo, hi, combine, &mut bitmap);
                    for i in 0..bitmap.len() * 64 {
                        let inside = column.get(i).is_some_and(|v| (lo..=hi).contains(v));
                        let kept = combine == Combine::Replace || before >> (i % 64) & 1 == 1;
                        prop_assert_eq!(bitmap[i / 64] >> (i % 64) & 1 == 1, inside && kept);
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn every_backend_tests_ranges_and_sets_like_a_loop(
            values in proptest::collection::vec(prop_oneof![any::<u32>(), 0u32..300], 0..200),
            lo in prop_oneof![any::<u32>(), 0u32..300],
            span in prop_oneof![any::<u32>(), 0u32..100],
            set in proptest::collection::vec(any::<u64>(), 0..5),
            before in any::<u64>(),
        ) {
            let in_set = |value: u32| {
                let slot = value.wrapping_sub(lo) as usize;
                set.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
            };
            for backend in Backend::available() {
                for combine in [Combine::Replace, Combine::And] {
                    let mut ranged = vec![before; values.len().div_ceil(64)];
                    let mut found = ranged.clone();
                    backend.in_range(&values, lo, span, combine, &mut ranged);
                    backend.in_set(&values, lo, &set, combine, &mut found);
                    for i in 0..ranged.len() * 64 {
                        let kept = combine == Combine::Replace || before >> (i % 64) & 1 == 1;
                        let bit = |bitmap: &[u64]| bitmap[i / 64] >> (i % 64) & 1 == 1;
                        let inside = values.get(i).is_some_and(|v| v.wrapping_sub(lo) <= span);
                        let member = values.get(i).is_some_and(|v| in_set(*v));
                        prop_assert_eq!(bit(&ranged), inside && kept, "{}", backend.name());
                        prop_assert_eq!(bit(&found), member && kept, "{}", backend.name());
                    }
                }
            }
        }
    }

    #[test]
    fn words_beyond_the_mask_are_ignored() {
        let words = vec![5u64; 100];
        for backend in Backend::available() {
            assert_eq!(backend.eq_mask(&words, 5), u64::MAX);
        }
    }

    #[test]
    fn prefetching_past_the_end_does_nothing() {
        prefetch(&[1u64, 2], 0);
        prefetch(&[1u64, 2], 2);
        prefetch::<u64>(&[], usize::MAX);
    }
}
