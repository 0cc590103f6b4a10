//! Where everything of a table lies, in words of eight bytes.
//!
//! A bucket is 256 bytes: four words of metadata and 14 records of a key and a value.
//!
//! | word | holds |
//! |---|---|
//! | 0, the *head* | lock (bit 0), version (bits 1 to 31), slots that are taken (32 to 45), and guests (46 to 59) |
//! | 1, 2 | fingerprints of the 14 records; two marks: fingerprints of records in the stash |
//! | 3 | two more marks; which of the four are used, which are guests', in which stash bucket; how many have no mark |
//! | 4.. | records |
//!
//! Guests are records whose home is the left neighbour.

use std::ops::Range;

pub const SLOTS: usize = 14;
pub const BUCKET_WORDS: usize = 32;
/// Bytes that a look-up reads of a bucket.
pub const BUCKET_BYTES: usize = BUCKET_WORDS * 8;
pub const NORMAL_BUCKETS: usize = 64;
pub const STASH_BUCKETS: usize = 4;
pub const SEGMENT_BUCKETS: usize = NORMAL_BUCKETS + STASH_BUCKETS;
pub const SEGMENT_WORDS: usize = SEGMENT_BUCKETS * BUCKET_WORDS;
pub const SEGMENT_BYTES: usize = SEGMENT_WORDS * 8;
/// Fingerprints of records in the stash that a bucket has room for.
pub const MARKS: usize = 4;

pub const MAGIC: u64 = u64::from_le_bytes(*b"labdash1");
pub const MAGIC_WORD: usize = 0;
pub const CAPACITY_WORD: usize = 1;
pub const DEPTH_MAX_WORD: usize = 2;
/// How many bits of a hash choose the directory's entry.
pub const DEPTH_WORD: usize = 8;
/// The split under way, or zero.
pub const GROWTH_WORD: usize = 16;
const HEADER_WORDS: usize = 64;

/// Sizes that follow from the greatest number of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub capacity: u32,
    pub depth_max: u32,
    /// Where the segments begin.
    start: usize,
}

impl Shape {
    /// Room for this many segments, and a directory deep enough for hashes that are not quite even.
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        let depth_max = capacity.next_power_of_two().ilog2() + 3;
        let entries = Self::entries(depth_max);
        Self {
            capacity,
            depth_max,
            start: entries.end.next_multiple_of(BUCKET_WORDS),
        }
    }

    /// The directory of each depth has a place of its own, so that doubling it needs no allocation.
    #[inline]
    pub fn entry(depth: u32, idx: u64) -> usize {
        HEADER_WORDS + (1 << depth) + idx as usize
    }

    pub fn entries(depth: u32) -> Range<usize> {
        Self::entry(depth, 0)..Self::entry(depth + 1, 0)
    }

    #[inline]
    pub fn segment(self, segment: u32) -> usize {
        self.start + segment as usize * SEGMENT_WORDS
    }

    pub fn word_count(self) -> usize {
        self.segment(self.capacity)
    }
}

/// An entry of the directory: a segment, and how many bits of a hash lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub segment: u32,
    pub depth: u32,
}

impl Entry {
    #[inline]
    pub fn from_word(word: u64) -> Self {
        Self {
            segment: word as u32,
            depth: (word >> 32) as u32,
        }
    }

    pub fn word(self) -> u64 {
        u64::from(self.depth) << 32 | u64::from(self.segment)
    }
}

/// What a split that a crash interrupted would have replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    pub old: Entry,
    /// The bits of hashes that lead to it.
    pub prefix: u64,
}

impl Growth {
    const UNDER_WAY: u64 = 1 << 63;

    pub fn from_word(word: u64) -> Option<Self> {
        (word & Self::UNDER_WAY != 0).then_some(Self {
            old: Entry {
                segment: (word >> 28 & 0xfff_ffff) as u32,
                depth: (word >> 56 & 0x3f) as u32,
            },
            prefix: word & 0xfff_ffff,
        })
    }

    pub fn word(self) -> u64 {
        let (segment, depth) = (u64::from(self.old.segment), u64::from(self.old.depth));
        Self::UNDER_WAY | depth << 56 | segment << 28 | self.prefix
    }

    /// The entries that lead to the segment in a directory of this depth.
    pub fn entries(self, depth: u32) -> Range<u64> {
        let more = depth - self.old.depth;
        self.prefix << more..(self.prefix + 1) << more
    }
}

/// A key's hash and what its parts are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(u64);

impl Hash {
    /// The finishing steps of MurmurHash3: every bit of the key reaches every bit of the hash.
    #[inline]
    pub fn of(key: u64) -> Self {
        let mut hash = key ^ key >> 33;
        hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        Self(hash ^ hash >> 33)
    }

    #[inline]
    pub fn fingerprint(self) -> u8 {
        self.0 as u8
    }

    #[inline]
    pub fn bucket(self) -> usize {
        (self.0 >> 8) as usize % NORMAL_BUCKETS
    }

    /// The first `depth` bits.
    #[inline]
    pub fn prefix(self, depth: u32) -> u64 {
        self.0.checked_shr(64 - depth).unwrap_or(0)
    }
}

/// The right neighbour, where records go that find no room at home.
#[inline]
pub fn right(bucket: usize) -> usize {
    (bucket + 1) % NORMAL_BUCKETS
}

#[inline]
pub fn left(bucket: usize) -> usize {
    (bucket + NORMAL_BUCKETS - 1) % NORMAL_BUCKETS
}

/// The first word of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head(pub u64);

impl Head {
    const LOCK: u64 = 1;
    const VERSION: u64 = 0xffff_ffff;
    const ALL: u16 = (1 << SLOTS) - 1;

    #[inline]
    pub fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    pub fn locked(self) -> Self {
        Self(self.0 | Self::LOCK)
    }

    pub fn unlocked(self) -> Self {
        Self(self.0 & !Self::LOCK)
    }

    /// Unlocked, and known to have changed.
    pub fn next_version(self) -> Self {
        let version = (self.0 & Self::VERSION & !Self::LOCK).wrapping_add(2) & Self::VERSION;
        Self(self.0 & !Self::VERSION | version)
    }

    /// The slots of another head under this one's lock and version.
    pub fn with_slots_of(self, other: Self) -> Self {
        Self(self.0 & Self::VERSION | other.0 & !Self::VERSION)
    }

    #[inline]
    pub fn taken(self) -> u16 {
        (self.0 >> 32) as u16 & Self::ALL
    }

    /// Records that belong to the left neighbour.
    #[inline]
    pub fn guests(self) -> u16 {
        (self.0 >> 46) as u16 & Self::ALL
    }

    pub fn count(self) -> u32 {
        self.taken().count_ones()
    }

    pub fn free_slot(self) -> Option<usize> {
        let slot = (!self.taken()).trailing_zeros() as usize;
        (slot < SLOTS).then_some(slot)
    }

    pub fn with(self, slot: usize, is_guest: bool) -> Self {
        let cleared = self.without(slot);
        Self(cleared.0 | 1 << (32 + slot) | u64::from(is_guest) << (46 + slot))
    }

    pub fn without(self, slot: usize) -> Self {
        Self(self.0 & !(1 << (32 + slot) | 1 << (46 + slot)))
    }
}

/// Which bytes of a word equal `byte`, one bit each.
#[inline]
pub fn equal_bytes(word: u64, byte: u8) -> u16 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differ = word ^ (ONES * u64::from(byte));
    let equal = !((differ & LOW).wrapping_add(LOW) | differ | LOW);
    ((equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16
}

/// Word and shift of the fingerprint of a slot.
pub fn fingerprint_place(slot: usize) -> (usize, u32) {
    (1 + slot / 8, slot as u32 % 8 * 8)
}

/// Fingerprints of a home's records in the stash, as the words 2 and 3 hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    pub word2: u64,
    pub word3: u64,
}

impl Marks {
    const USED: u32 = 16;
    const GUEST: u32 = 20;
    const STASH: u32 = 24;
    const COUNT: u32 = 32;

    #[inline]
    fn fingerprint(self, mark: usize) -> u8 {
        match mark {
            0 | 1 => (self.word2 >> (48 + mark * 8)) as u8,
            _ => (self.word3 >> ((mark - 2) * 8)) as u8,
        }
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.word3 >> Self::USED & 0xf == 0
    }

    /// Stash buckets that a record may be in by its fingerprint; `is_guest` for marks of the left neighbour's records.
    #[inline]
    pub fn stashes(self, fingerprint: u8, is_guest: bool) -> u8 {
        let of = |mark| match self.holds(mark, fingerprint, is_guest) {
            true => 1 << self.stash(mark),
            false => 0,
        };
        (0..MARKS).map(of).fold(0, |all, one: u8| all | one)
    }

    fn holds(self, mark: usize, fingerprint: u8, is_guest: bool) -> bool {
        let bit = |shift: u32| self.word3 >> (shift + mark as u32) & 1 == 1;
        bit(Self::USED) && bit(Self::GUEST) == is_guest && self.fingerprint(mark) == fingerprint
    }

    fn stash(self, mark: usize) -> usize {
        (self.word3 >> (Self::STASH + mark as u32 * 2) & 3) as usize
    }

    /// Records of this home in the stash that no mark names.
    #[inline]
    pub fn unmarked(self) -> u64 {
        self.word3 >> Self::COUNT & 0xff
    }

    pub fn with_unmarked(self, count: u64) -> Self {
        let word3 = self.word3 & !(0xff << Self::COUNT) | (count & 0xff) << Self::COUNT;
        Self { word3, ..self }
    }

    /// With a mark, if one is unused.
    pub fn with(self, fingerprint: u8, is_guest: bool, stash: usize) -> Option<Self> {
        let used = (self.word3 >> Self::USED & 0xf) as u32;
        let mark = (!used).trailing_zeros();
        if mark as usize >= MARKS {
            return None;
        }
        let mut marks = self;
        let (word, shift) = match mark {
            0 | 1 => (&mut marks.word2, 48 + mark * 8),
            _ => (&mut marks.word3, (mark - 2) * 8),
        };
        *word = *word & !(0xff << shift) | u64::from(fingerprint) << shift;
        let cleared = 1 << (Self::GUEST + mark) | 3 << (Self::STASH + mark * 2);
        marks.word3 = marks.word3 & !cleared
            | 1 << (Self::USED + mark)
            | u64::from(is_guest) << (Self::GUEST + mark)
            | (stash as u64 & 3) << (Self::STASH + mark * 2);
        Some(marks)
    }

    /// Without the mark of such a record, if there is one.
    pub fn without(self, fingerprint: u8, is_guest: bool, stash: usize) -> Option<Self> {
        let found =
            |mark: &usize| self.holds(*mark, fingerprint, is_guest) && self.stash(*mark) == stash;
        let mark = (0..MARKS).find(found)?;
        let word3 = self.word3 & !(1 << (Self::USED as usize + mark));
        Some(Self { word3, ..self })
    }

    /// The fingerprints of records that share word 2, without any mark.
    pub fn cleared(word2: u64) -> Self {
        let word2 = word2 & 0xffff_ffff_ffff;
        Self { word2, word3: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_are_found_at_every_place() {
        for byte in [0u8, 1, 0x7f, 0x80, 0xff] {
            for at in 0..8 {
                for other in [0u8, 1, 0x7f, 0x80, 0xfe] {
                    let mut bytes = [other; 8];
                    bytes[at] = byte;
                    let expected = (0..8)
                        .filter(|i| bytes[*i] == byte)
                        .map(|i| 1 << i)
                        .sum::<u16>();
                    assert_eq!(equal_bytes(u64::from_le_bytes(bytes), byte), expected);
                }
            }
        }
    }

    #[test]
    fn four_marks_fit_and_are_found_again() {
        let mut marks = Marks {
            word2: 0x55_5555_5555_5555,
            word3: 0,
        };
        for stash in 0..4 {
            marks = marks.with(stash as u8 * 60, stash % 2 == 1, stash).unwrap();
        }
        assert!(marks.with(1, false, 0).is_none());
        assert_eq!(marks.stashes(120, false), 1 << 2);
        assert_eq!(marks.stashes(120, true), 0);
        let marks = marks.without(120, false, 2).unwrap();
        assert_eq!(marks.stashes(120, false), 0);
        assert_eq!(marks.word2 & 0xffff_ffff_ffff, 0x5555_5555_5555);
        assert_eq!(marks.with_unmarked(7).unmarked(), 7);
    }

    #[test]
    fn a_growth_word_names_what_it_replaces() {
        let growth = Growth {
            old: Entry {
                segment: 77,
                depth: 3,
            },
            prefix: 5,
        };
        assert_eq!(Growth::from_word(growth.word()), Some(growth));
        assert_eq!(growth.entries(5), 20..24);
        assert_eq!(Growth::from_word(0), None);
    }
}
