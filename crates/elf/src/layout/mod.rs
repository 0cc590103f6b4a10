//! The two layouts of an Elf: [`linear`], the papers' array of lists, and [`packed`], sorted packed
//! rows under a small head. [`Elf`] is what both can do.

pub mod linear;
pub mod packed;

use crate::error::Result;
use crate::keys::QueryBox;

/// A multi-dimensional index. TIDs in answers ascend; every method fails when a key or query has another
/// number of dimensions.
pub trait Elf {
    /// Number of dimensions.
    fn dimension_count(&self) -> usize;

    /// Number of rows.
    fn row_count(&self) -> usize;

    /// Bytes of the structure.
    fn size_bytes(&self) -> u64;

    /// Appends the TIDs of all rows equal to `key` to `tids`.
    ///
    /// # Errors
    /// As said above.
    fn exact(&self, key: &[u32], tids: &mut Vec<u32>) -> Result<()>;

    /// The TIDs of accepted rows.
    ///
    /// # Errors
    /// As said above.
    fn select(&self, query: &QueryBox) -> Result<Vec<u32>>;

    /// The TIDs of up to `row_count_max` accepted rows, the first in key order.
    ///
    /// # Errors
    /// As said above.
    fn limit(&self, query: &QueryBox, row_count_max: usize) -> Result<Vec<u32>>;

    /// How many rows are accepted.
    ///
    /// # Errors
    /// As said above.
    fn count(&self, query: &QueryBox) -> Result<u64>;

    /// Whether any row is accepted.
    ///
    /// # Errors
    /// As said above.
    fn exists(&self, query: &QueryBox) -> Result<bool>;
}

/// Forwards the trait to the inherent methods of the same names.
macro_rules! forward {
    () => {
        fn dimension_count(&self) -> usize {
            Self::dimension_count(self)
        }

        fn row_count(&self) -> usize {
            Self::row_count(self)
        }

        fn size_bytes(&self) -> u64 {
            Self::size_bytes(self)
        }

        fn exact(&self, key: &[u32], tids: &mut Vec<u32>) -> Result<()> {
            Self::exact(self, key, tids)
        }

        fn select(&self, query: &QueryBox) -> Result<Vec<u32>> {
            Self::select(self, query)
        }

        fn limit(&self, query: &QueryBox, row_count_max: usize) -> Result<Vec<u32>> {
            Self::limit(self, query, row_count_max)
        }

        fn count(&self, query: &QueryBox) -> Result<u64> {
            Self::count(self, query)
        }

        fn exists(&self, query: &QueryBox) -> Result<bool> {
            Self::exists(self, query)
        }
    };
}

impl<O: linear::Offset> Elf for linear::LinearElf<O> {
    forward!();
}

impl<S: AsRef<[u64]>> Elf for packed::PackedElf<S> {
    forward!();
}
