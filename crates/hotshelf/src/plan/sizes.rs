//! What operators hold, as far as plans can tell, and how much of the memory that should be.

/// A build side of texts should come to no more than one part in this many of what operators may hold, groups to one in
/// this many.
pub(super) const BUILD_PARTS: u64 = 2;
pub(super) const GROUP_PARTS: u64 = 4;
/// Bytes of a hash table per row, and of a column whose width is not known.
pub(super) const TABLE_ROW_BYTES: usize = 24;
pub(super) const VALUE_BYTES: usize = 24;
