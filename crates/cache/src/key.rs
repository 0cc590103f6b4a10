//! The names of things the cache holds: files, segments, columns. Leaves; they depend on nothing.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// A data file known to a [`CacheManager`](crate::CacheManager). Ids are never used twice by one manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A column of a table. The database gives the numbers; the same column in two files of a table has the
/// same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u32);

/// One segment of one file: the unit of reading and caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentKey {
    /// The file.
    pub file: FileId,
    /// The segment's number in the file, from 0.
    pub segment_idx: u32,
}

impl SegmentKey {
    /// File and segment number in one word, also the hash of the key.
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.file.0) << 32 | u64::from(self.segment_idx)
    }

    /// The key of such a word.
    pub(crate) fn unpacked(word: u64) -> Self {
        Self {
            file: FileId((word >> 32) as u32),
            segment_idx: word as u32,
        }
    }

    /// A well mixed word made of the key.
    pub(crate) fn mixed(self) -> u64 {
        mix(self.packed())
    }
}

impl std::hash::Hash for SegmentKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.packed());
    }
}

impl fmt::Display for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.file.0, self.segment_idx)
    }
}

/// What the bytes of a segment are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Zone maps, dictionaries: small, read by every scan. Kept first whatever the policy, and evicted by what reading
    /// them again would cost.
    Metadata,
    /// Values of a column. The policy decides.
    Data,
}

/// What the cache must know about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The column whose values (or metadata) these are.
    pub column: ColumnId,
    /// Which row group of the table's file the rows belong to, from 0.
    pub row_group_idx: u32,
    /// The memory that the segment occupies once read, in bytes: the buffer, not only the payload.
    pub charged_bytes: u64,
    /// Metadata or data.
    pub kind: SegmentKind,
}

/// Spreads a word over all 64 bits (the finaliser of SplitMix64).
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Hashes keys that are one word, chosen by the database and not by an adversary.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
}

/// The hash map of this crate.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<WordHasher>>;
