//! Bytes of a region as numbers of a fixed width.

/// Numbers that every pattern of bytes is one of.
pub trait Number: Copy + Default + Send + Sync + private::Sealed + 'static {}

mod private {
    pub trait Sealed {}
}

macro_rules! number {
    ($($number:ty)*) => {$(
        impl private::Sealed for $number {}
        impl Number for $number {}
    )*};
}

number!(u8 u16 u32 u64 i64);

/// The bytes as numbers in the machine's byte order, without those at the end that make no whole number; empty if they
/// do not begin where such a number may. A region's begin at a page.
#[inline]
pub fn numbers<T: Number>(bytes: &[u8]) -> &[T] {
    // SAFETY: `Number` is implemented here only, for types of which every pattern of bytes is a value.
    let (before, numbers, _) = unsafe { bytes.align_to::<T>() };
    if before.is_empty() { numbers } else { &[] }
}

/// As [`numbers`], for writing.
#[inline]
pub fn numbers_mut<T: Number>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: As in `numbers`; such numbers have no padding, so that writing them initialises all their bytes.
    let (before, numbers, _) = unsafe { bytes.align_to_mut::<T>() };
    if before.is_empty() { numbers } else { &mut [] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{AnonymousOptions, Region};

    #[test]
    fn numbers_are_written_and_read_where_the_bytes_lie() {
        let mut region = Region::anonymous(31, &AnonymousOptions::default()).unwrap();
        let bytes = region.volatile_bytes_mut().unwrap();
        numbers_mut::<u32>(bytes).copy_from_slice(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(numbers::<u32>(region.bytes()), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(numbers::<u16>(&region.bytes()[..5]).len(), 2);
        assert_eq!(numbers::<u8>(region.bytes()).len(), 31);
        assert!(numbers::<u64>(&region.bytes()[1..]).is_empty());
        assert!(numbers::<u32>(&[]).is_empty());
    }
}
