//! The bytes of a pool: header, root slots, directory entries. Pure encoding and checked decoding.
//!
//! ```text
//!      0  header, 128 bytes          4096  copy of the header
//!   8192  root slot 0, 64 bytes     12288  root slot 1
//!  16384  segments and directories, each at a multiple of 256
//! ```
//!
//! The four front pages are apart so that a torn or damaged page or sector costs one of them only. Integers are
//! little-endian.
//!
//! A root slot is one cache line. Its first word is the generation with a check value of its own; the rest describes
//! the directory and carries a checksum. The rest is written before the word, and one line becomes durable in the
//! order of its stores, so the word's arrival implies the rest's.

use std::ops::Range;

use crc32fast::Hasher;

/// Identifies a pool.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"HSPOOL\r\n");
pub(super) const FORMAT_VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 128;
pub(super) const HEADER_OFFSETS: [usize; 2] = [0, 4096];
pub(super) const SLOT_BYTES: usize = 64;
pub(super) const SLOT_OFFSETS: [usize; 2] = [8192, 12_288];
pub(super) const DATA_OFFSET: usize = 16_384;
/// Segments start at multiples of this: the grain of persistent memory, and whole cache lines.
pub(super) const SEGMENT_ALIGN_BYTES: usize = 256;
pub(super) const ENTRY_BYTES: usize = 32;

/// Generations count up to this; at a million publishes a second that lasts for twelve days of nothing else, and
/// publishing then fails instead of wrapping.
pub(super) const GENERATION_MAX: u64 = (1 << 40) - 1;
const CHECK_BITS: u32 = 24;

/// What a pool is for: sixteen bytes that its user chooses and its opener must name.
pub type LayoutId = [u8; 16];

/// The fixed facts of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) layout: LayoutId,
    pub(super) pool_id: [u8; 16],
    pub(super) len_bytes: u64,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.layout);
        bytes[32..48].copy_from_slice(&self.pool_id);
        bytes[48..56].copy_from_slice(&self.len_bytes.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if the checksum fails; the caller has looked at magic and version.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let sound =
            read_u32(bytes, HEADER_BYTES - 4) == crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        sound.then(|| Self {
            layout: read_array(bytes, 16),
            pool_id: read_array(bytes, 32),
            len_bytes: read_u64(bytes, 48),
        })
    }
}

/// What a root slot says: which directory is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) generation: u64,
    pub(super) directory_offset: u64,
    pub(super) segment_count: u32,
    pub(super) directory_checksum: u32,
    /// End of everything in use: new segments go behind it.
    pub(super) tail: u64,
}

/// What a slot turns out to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Its generation word was never written.
    Empty,
    /// A complete root.
    Root(Root),
    /// A valid generation word over a description whose checksum fails: the description of the next generation was
    /// being written, or the slot is damaged.
    Unfinished { generation: u64 },
    /// A generation word that was never written as such.
    Damaged { word: u64 },
}

impl Root {
    /// Everything but the generation word, as it lies at offset 8 of the slot.
    pub(super) fn encode_description(&self, pool_id: &[u8; 16]) -> [u8; SLOT_BYTES - 8] {
        let mut bytes = [0; SLOT_BYTES - 8];
        bytes[0..8].copy_from_slice(&self.directory_offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.segment_count.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.directory_checksum.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tail.to_le_bytes());
        let checksum = description_checksum(&bytes, pool_id);
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn generation_word(&self, pool_id: &[u8; 16]) -> u64 {
        self.generation << CHECK_BITS | generation_check(self.generation, pool_id)
    }
}

impl Slot {
    pub(super) fn decode(bytes: &[u8; SLOT_BYTES], pool_id: &[u8; 16]) -> Self {
        let word = read_u64(bytes, 0);
        let generation = word >> CHECK_BITS;
        if word == 0 {
            return Self::Empty;
        }
        if generation == 0
            || word & ((1 << CHECK_BITS) - 1) != generation_check(generation, pool_id)
        {
            return Self::Damaged { word };
        }
        let description = &bytes[8..];
        if read_u32(description, description.len() - 4)
            != description_checksum(description, pool_id)
        {
            return Self::Unfinished { generation };
        }
        Self::Root(Root {
            generation,
            directory_offset: read_u64(description, 0),
            segment_count: read_u32(description, 8),
            directory_checksum: read_u32(description, 12),
            tail: read_u64(description, 16),
        })
    }
}

/// One segment as the directory lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentEntry {
    /// What the segment is; its writer's choice.
    pub kind: u64,
    /// Where it starts in the pool.
    pub offset: u64,
    /// Its length.
    pub len_bytes: u64,
    /// CRC-32 of its bytes.
    pub checksum: u32,
}

impl SegmentEntry {
    pub(super) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..8].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        Self {
            kind: read_u64(bytes, 0),
            offset: read_u64(bytes, 8),
            len_bytes: read_u64(bytes, 16),
            checksum: read_u32(bytes, 24),
        }
    }
}

/// `offset..offset + len_bytes` as an index range, if it lies inside `bounds` and starts aligned.
pub(super) fn checked_range(
    offset: u64,
    len_bytes: u64,
    bounds: &Range<u64>,
) -> Option<Range<usize>> {
    let end = offset.checked_add(len_bytes)?;
    let aligned = offset.is_multiple_of(SEGMENT_ALIGN_BYTES as u64);
    let inside = bounds.start <= offset && end <= bounds.end;
    (aligned && inside).then_some(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
}

/// The pool's id goes into every checksum, so that leftovers of another pool on the same device are not taken for this
/// one's.
fn description_checksum(description: &[u8], pool_id: &[u8; 16]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(pool_id);
    hasher.update(&description[..description.len() - 4]);
    hasher.finalize()
}

fn generation_check(generation: u64, pool_id: &[u8; 16]) -> u64 {
    let mut hasher = Hasher::new();
    hasher.update(pool_id);
    hasher.update(&generation.to_le_bytes());
    u64::from(hasher.finalize()) & ((1 << CHECK_BITS) - 1)
}

pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(read_array(bytes, at))
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(read_array(bytes, at))
}

fn read_array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
