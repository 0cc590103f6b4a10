//! Integers as they are stored: words without signs.

use hotshelf_tier::simd::Lane;
use vortex::array::dtype::NativePType;
use vortex::scalar::Scalar;

/// An unsigned integer that columns are stored as.
pub(super) trait Unit: NativePType + Lane {
    fn plus(self, other: Self) -> Self;
    fn of(scalar: &Scalar) -> Option<Self>;
    /// The integer that this is, in a type with a sign or without.
    fn number(self, signed: bool) -> i128;
    /// The same in 32 bits, if it is as many there: extended with its sign, if it has one.
    fn in_32_bits(self, signed: bool) -> Option<u32>;
    /// The least and the greatest of some integers.
    fn extremes(values: &[Self], signed: bool) -> Option<(i128, i128)>;
}

macro_rules! unit {
    ($unsigned:ty, $signed:ty) => {
        impl Unit for $unsigned {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn of(scalar: &Scalar) -> Option<Self> {
                let primitive = scalar.as_primitive_opt()?;
                match primitive.ptype() {
                    <$signed as NativePType>::PTYPE => {
                        primitive.typed_value::<$signed>().map(|v| v as Self)
                    }
                    <$unsigned as NativePType>::PTYPE => primitive.typed_value::<$unsigned>(),
                    _ => None,
                }
            }
            fn number(self, signed: bool) -> i128 {
                match signed {
                    true => i128::from(self as $signed),
                    false => i128::from(self),
                }
            }
            fn in_32_bits(self, signed: bool) -> Option<u32> {
                match signed {
                    true => i32::try_from(self as $signed)
                        .ok()
                        .map(|value| value as u32),
                    false => u32::try_from(self).ok(),
                }
            }
            fn extremes(values: &[Self], signed: bool) -> Option<(i128, i128)> {
                match signed {
                    true => ends(values.iter().map(|value| *value as $signed)),
                    false => ends(values.iter().copied()),
                }
            }
        }
    };
}

/// Compares many values at a time: there is no branch for each, and they keep their width.
fn ends<N: Copy + Ord + Into<i128>>(mut values: impl Iterator<Item = N>) -> Option<(i128, i128)> {
    let first = values.next()?;
    let (min, max) = values.fold((first, first), |(min, max), value| {
        (min.min(value), max.max(value))
    });
    Some((min.into(), max.into()))
}

unit!(u8, i8);
unit!(u16, i16);
unit!(u32, i32);
unit!(u64, i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_depend_on_the_sign() {
        assert_eq!(u8::extremes(&[3, 250, 7], false), Some((3, 250)));
        assert_eq!(u8::extremes(&[3, 250, 7], true), Some((-6, 7)));
        assert_eq!(u64::extremes(&[u64::MAX], true), Some((-1, -1)));
        assert_eq!(u32::extremes(&[], true), None);
    }

    #[test]
    fn what_fits_in_32_bits_depends_on_the_sign() {
        assert_eq!(u8::MAX.in_32_bits(true), Some(u32::MAX));
        assert_eq!(u8::MAX.in_32_bits(false), Some(255));
        assert_eq!(u64::MAX.in_32_bits(true), Some(u32::MAX));
        assert_eq!(u64::MAX.in_32_bits(false), None);
        assert_eq!((1u64 << 31).in_32_bits(true), None);
        assert_eq!((1u64 << 31).in_32_bits(false), Some(1 << 31));
    }
}
