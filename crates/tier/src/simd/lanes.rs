//! Columns of unsigned integers of 8 to 64 bits as they are stored: unpacked, and tested without being widened.

#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{Backend, Combine, Kind, generic};

/// Values of a packed block.
pub const BLOCK_VALUES: usize = 1024;

/// An unsigned integer of a width that columns are stored in.
pub trait Lane: Copy + Send + Sync + 'static + lane::Kernels {}

/// Widths that are widened to 32 bits.
pub trait Narrow: Lane {
    /// The integer in 32 bits, with its sign or without.
    fn widened(self, signed: bool) -> u32;
}

mod lane {
    use super::{BLOCK_VALUES, Backend, Combine};

    /// What a backend does for one width.
    pub trait Kernels: Sized {
        /// Unpacks a block: inlined, so that it is compiled once for each backend.
        fn unpack(packed: &[Self], width: usize, add: Self, output: &mut [Self; BLOCK_VALUES]);

        fn in_range(
            backend: Backend,
            values: &[Self],
            range: (Self, Self),
            combine: Combine,
            bitmap: &mut [u64],
        );
    }
}

pub(super) use lane::Kernels;

/// In which order the rows of a packed block follow each other, eight at a time (FastLanes, VLDB 2023, figure 5).
const ROW_ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

impl Backend {
    /// Unpacks the values of a block, `width` bits each in FastLanes' order, and adds `add` to each (modulo 2^bits).
    ///
    /// # Panics
    /// When `width` is greater than the bits of a `T`, or `packed` has fewer than `128 * width` bytes.
    pub fn unpack<T: Lane>(
        self,
        packed: &[T],
        width: usize,
        add: T,
        output: &mut [T; BLOCK_VALUES],
    ) {
        assert!(width <= size_of::<T>() * 8, "{width} bits for a value");
        assert!(size_of_val(packed) >= 128 * width, "a block ends early");
        match self.0 {
            Kind::Generic => T::unpack(packed, width, add, output),
            // SAFETY: a value of this kind is only made after the processor reported AVX2.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::unpack_avx2(packed, width, add, output) },
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::unpack_avx512(packed, width, add, output) },
        }
    }

    /// Tests values against the range of `span + 1` values that begins at `lo` (and may wrap around, so that the
    /// bit patterns of signed values can be tested too), one bit per row.
    ///
    /// Bit `i % 64` of `bitmap[i / 64]` belongs to `values[i]`. Bits beyond the values are cleared in the last
    /// word touched.
    ///
    /// # Panics
    /// When `bitmap` has fewer than `values.len().div_ceil(64)` words.
    pub fn in_range<T: Lane>(
        self,
        values: &[T],
        lo: T,
        span: T,
        combine: Combine,
        bitmap: &mut [u64],
    ) {
        let bitmap = &mut bitmap[..values.len().div_ceil(64)];
        T::in_range(self, values, (lo, span), combine, bitmap);
    }

    /// Widens values to 32 bits, with their signs or without, as far as there are values and room for them.
    pub fn widen<T: Narrow>(self, values: &[T], signed: bool, output: &mut [u32]) {
        match self.0 {
            Kind::Generic => widen(values, signed, output),
            // SAFETY: a value of this kind is only made after the processor reported AVX2.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::widen_avx2(values, signed, output) },
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::widen_avx512(values, signed, output) },
        }
    }

    /// Lists the bits that are set in `bitmap` by their numbers, ascending, and says how many they are. What is behind
    /// them in `output` is overwritten.
    ///
    /// # Panics
    /// When `bitmap` has more than 2^16 bits, or `output` is shorter than `bitmap` has bits.
    pub fn list_bits(self, bitmap: &[u64], output: &mut [u16]) -> usize {
        assert!(bitmap.len() <= 1 << 10, "{} words", bitmap.len());
        let output = &mut output[..bitmap.len() * 64];
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            Kind::Avx512 => unsafe { x86::list_bits_avx512(bitmap, output) },
            _ => generic::list_bits(bitmap, output),
        }
    }
}

#[inline(always)]
pub(super) fn widen<T: Narrow>(values: &[T], signed: bool, output: &mut [u32]) {
    let both = output.iter_mut().zip(values);
    match signed {
        true => both.for_each(|(wide, value)| *wide = value.widened(true)),
        false => both.for_each(|(wide, value)| *wide = value.widened(false)),
    }
}

macro_rules! narrow {
    ($lane:ty) => {
        impl Narrow for $lane {
            #[inline(always)]
            fn widened(self, signed: bool) -> u32 {
                match signed {
                    true => i32::from(self.cast_signed()).cast_unsigned(),
                    false => u32::from(self),
                }
            }
        }
    };
}

narrow!(u8);
narrow!(u16);

macro_rules! lane {
    ($lane:ty, $in_range_avx2:ident, $in_range_avx512:ident) => {
        impl Lane for $lane {}

        impl Kernels for $lane {
            #[inline(always)]
            fn unpack(packed: &[Self], width: usize, add: Self, output: &mut [Self; BLOCK_VALUES]) {
                const BITS: usize = size_of::<$lane>() * 8;
                const LANES: usize = BLOCK_VALUES / BITS;
                if width == 0 {
                    return output.fill(add);
                }
                let mask = <$lane>::MAX >> (BITS - width);
                let (words, _) = packed.as_chunks::<LANES>();
                let (rows, _) = output.as_chunks_mut::<LANES>();
                for row in 0..BITS {
                    let (word, shift) = (row * width / BITS, row * width % BITS);
                    let values = &mut rows[(ROW_ORDER[row / 8] * 16 + row % 8 * 128) / LANES];
                    if shift + width <= BITS {
                        for (value, low) in values.iter_mut().zip(&words[word]) {
                            *value = (low >> shift & mask).wrapping_add(add);
                        }
                    } else {
                        let both = words[word].iter().zip(&words[word + 1]);
                        for (value, (low, high)) in values.iter_mut().zip(both) {
                            let bits = low >> shift | high << (BITS - shift);
                            *value = (bits & mask).wrapping_add(add);
                        }
                    }
                }
            }

            fn in_range(
                backend: Backend,
                values: &[Self],
                (lo, span): (Self, Self),
                combine: Combine,
                bitmap: &mut [u64],
            ) {
                match backend.0 {
                    Kind::Generic => {
                        let inside = |value: Self| value.wrapping_sub(lo) <= span;
                        generic::by_word(
                            values,
                            combine,
                            bitmap,
                            |rows| generic::range_word(rows, inside),
                            |rest| generic::range_word(rest, inside),
                        );
                    }
                    // SAFETY: a value of this kind is only made after the processor reported AVX2.
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx2 => unsafe { x86::$in_range_avx2(values, lo, span, combine, bitmap) },
                    // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx512 => unsafe {
                        x86::$in_range_avx512(values, lo, span, combine, bitmap)
                    },
                }
            }
        }
    };
}

lane!(u8, in_range_u8_avx2, in_range_u8_avx512);
lane!(u16, in_range_u16_avx2, in_range_u16_avx512);
lane!(u32, in_range_u32_avx2, in_range_u32_avx512);
lane!(u64, in_range_u64_avx2, in_range_u64_avx512);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bit by bit: value `index` lies in its lane's words from bit `row * width` on.
    fn unpacked(packed: &[u64], lane_bits: usize, width: usize, index: usize) -> u64 {
        let lanes = BLOCK_VALUES / lane_bits;
        let row = (0..lane_bits).find(|row| {
            let first = ROW_ORDER[row / 8] * 16 + row % 8 * 128;
            (first..first + lanes).contains(&index)
        });
        let (row, lane) = (row.unwrap(), index % lanes);
        (0..width).fold(0, |value, bit| {
            let (word, at) = (
                (row * width + bit) / lane_bits,
                (row * width + bit) % lane_bits,
            );
            value | (packed[word * lanes + lane] >> at & 1) << bit
        })
    }

    macro_rules! check {
        ($name:ident, $lane:ty) => {
            proptest! {
                #![proptest_config(ProptestConfig::with_cases(40))]

                #[test]
                fn $name(
                    packed in proptest::collection::vec(any::<$lane>(), BLOCK_VALUES),
                    add in any::<$lane>(),
                    width in 0usize..=size_of::<$lane>() * 8,
                    lo in any::<$lane>(),
                    span in any::<$lane>(),
                    before in any::<u64>(),
                    len in 0usize..=BLOCK_VALUES,
                ) {
                    let bits = size_of::<$lane>() * 8;
                    let words: Vec<u64> = packed.iter().map(|word| u64::from(*word)).collect();
                    let expected: Vec<$lane> = (0..BLOCK_VALUES)
                        .map(|idx| (unpacked(&words, bits, width, idx) as $lane).wrapping_add(add))
                        .collect();
                    for backend in Backend::available() {
                        let mut output = [0; BLOCK_VALUES];
                        let needed = 128 * width / size_of::<$lane>();
                        backend.unpack(&packed[..needed], width, add, &mut output);
                        prop_assert_eq!(&output[..], &expected[..], "{} {}", backend.name(), width);
                        let values = &output[..len];
                        for combine in [Combine::Replace, Combine::And] {
                            let mut bitmap = vec![before; len.div_ceil(64)];
                            backend.in_range(values, lo, span, combine, &mut bitmap);
                            for i in 0..bitmap.len() * 64 {
                                let kept = combine == Combine::Replace || before >> (i % 64) & 1 == 1;
                                let inside = values.get(i).is_some_and(|v| v.wrapping_sub(lo) <= span);
                                let bit = bitmap[i / 64] >> (i % 64) & 1 == 1;
                                prop_assert_eq!(bit, inside && kept, "{}", backend.name());
                            }
                        }
                    }
                }
            }
        };
    }

    check!(bytes_are_unpacked_and_tested_like_a_loop, u8);
    check!(words_of_16_bits_are_unpacked_and_tested_like_a_loop, u16);
    check!(words_of_32_bits_are_unpacked_and_tested_like_a_loop, u32);
    check!(words_of_64_bits_are_unpacked_and_tested_like_a_loop, u64);

    proptest! {
        #[test]
        fn bits_are_listed_and_values_widened_like_a_loop(
            bitmap in proptest::collection::vec(prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)], 0..20),
            values in proptest::collection::vec(any::<u16>(), 0..100),
            signed in any::<bool>(),
        ) {
            let is_set = |bit: &u16| bitmap[usize::from(*bit) / 64] >> (bit % 64) & 1 == 1;
            let expected: Vec<u16> = (0..bitmap.len() as u16 * 64).filter(is_set).collect();
            for backend in Backend::available() {
                let mut output = vec![7; bitmap.len() * 64];
                let count = backend.list_bits(&bitmap, &mut output);
                prop_assert_eq!(&output[..count], &expected[..], "{}", backend.name());
                let bytes: Vec<u8> = values.iter().map(|value| *value as u8).collect();
                let (mut wide, mut of_bytes) = (vec![7; values.len()], vec![7; values.len()]);
                backend.widen(&values, signed, &mut wide);
                backend.widen(&bytes, signed, &mut of_bytes);
                for (idx, value) in values.iter().enumerate() {
                    let (word, byte) = match signed {
                        true => (*value as i16 as u32, *value as i8 as u32),
                        false => (u32::from(*value), u32::from(*value as u8)),
                    };
                    prop_assert_eq!((wide[idx], of_bytes[idx]), (word, byte), "{}", backend.name());
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "a block ends early")]
    fn a_short_block_is_refused() {
        Backend::detect().unpack(&[0u32; 31], 1, 0, &mut [0; BLOCK_VALUES]);
    }
}
