//! Understanding a pool's bytes: a pure function from any bytes to what may be trusted, or to a typed error.
//!
//! Recovery writes nothing, so recovering twice is recovering once, and its cost does not depend on the pool's size:
//! segments are verified when they are first read.

use std::io::Read;
use std::path::Path;

use super::layout::{
    DATA_OFFSET, ENTRY_BYTES, FORMAT_VERSION, HEADER_BYTES, HEADER_OFFSETS, Header, LayoutId,
    MAGIC, Root, SLOT_BYTES, SLOT_OFFSETS, SegmentEntry, Slot, checked_range, read_u32, read_u64,
};
use crate::error::{Corruption, TierError};

/// What a pool holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(super) header: Header,
    pub(crate) root: Root,
    pub(crate) segments: Vec<SegmentEntry>,
}

/// Finds the newest published state in a pool's bytes. `path` is for messages only.
pub(crate) fn recover(
    bytes: &[u8],
    layout: &LayoutId,
    path: &Path,
) -> Result<Recovered, TierError> {
    let pool = Bytes { bytes, path };
    let header = pool.header()?;
    if header.layout != *layout {
        return Err(TierError::ForeignPool {
            path: path.to_path_buf(),
            what: "layout",
            expected: hex(layout),
            found: hex(&header.layout),
        });
    }
    if header.len_bytes > bytes.len() as u64 {
        return Err(TierError::DeviceTooSmall {
            path: path.to_path_buf(),
            device_bytes: bytes.len() as u64,
            needed_bytes: header.len_bytes,
        });
    }
    let root = pool.root(&header)?;
    let segments = pool.directory(&header, &root)?;
    Ok(Recovered {
        header,
        root,
        segments,
    })
}

/// What the first bytes of a file or a device are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// Zeroes, as far as the front of a pool reaches.
    Blank,
    /// A pool's header.
    Pool {
        /// What the pool is for.
        layout: LayoutId,
        /// Which one it is.
        pool_id: [u8; 16],
    },
    /// Anything else.
    Other,
}

impl Front {
    /// As many of the first bytes as it takes to tell.
    pub const BYTES: usize = DATA_OFFSET;

    /// What some bytes begin with.
    pub fn of(bytes: &[u8]) -> Self {
        let front = &bytes[..bytes.len().min(Self::BYTES)];
        let path = Path::new("");
        match (Bytes { bytes, path }).header() {
            Ok(header) => Self::Pool {
                layout: header.layout,
                pool_id: header.pool_id,
            },
            Err(_) if front.iter().all(|byte| *byte == 0) => Self::Blank,
            Err(_) => Self::Other,
        }
    }

    /// What a file begins with, which need not be a pool.
    ///
    /// # Errors
    /// What the system says when it cannot be read.
    pub fn of_file(path: &Path) -> std::io::Result<Self> {
        let mut front = Vec::new();
        let file = std::fs::File::open(path)?;
        file.take(Self::BYTES as u64).read_to_end(&mut front)?;
        Ok(Self::of(&front))
    }
}

/// Whether the bytes begin like a pool, sound or not.
pub(super) fn looks_like_a_pool(bytes: &[u8]) -> bool {
    HEADER_OFFSETS.iter().any(|at| {
        let word = bytes.get(*at..*at + 8);
        word.is_some_and(|word| read_u64(word, 0) == MAGIC)
    })
}

/// Checks a segment against its entry.
pub(crate) fn verify_segment(
    segment: &[u8],
    entry: &SegmentEntry,
    path: &Path,
) -> Result<(), Corruption> {
    let found = crc32fast::hash(segment);
    match found == entry.checksum {
        true => Ok(()),
        false => Err(Corruption {
            file: path.to_path_buf(),
            offset: entry.offset,
            what: "segment checksum".into(),
            expected: format!("{:08x}", entry.checksum),
            found: format!("{found:08x}"),
        }),
    }
}

struct Bytes<'a> {
    bytes: &'a [u8],
    path: &'a Path,
}

impl Bytes<'_> {
    /// The first sound copy of the header.
    fn header(&self) -> Result<Header, TierError> {
        let mut first_error = None;
        for at in HEADER_OFFSETS {
            match self.header_at(at) {
                Ok(header) => return Ok(header),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let nothing = || {
            self.foreign(
                "length",
                DATA_OFFSET.to_string(),
                self.bytes.len().to_string(),
            )
        };
        Err(first_error.unwrap_or_else(nothing))
    }

    fn header_at(&self, at: usize) -> Result<Header, TierError> {
        let bytes: &[u8; HEADER_BYTES] = self.array(at).ok_or_else(|| {
            let expected = format!("at least {DATA_OFFSET}");
            self.foreign("length", expected, self.bytes.len().to_string())
        })?;
        let magic = read_u64(bytes, 0);
        if magic != MAGIC {
            return Err(self.foreign("magic", format!("{MAGIC:016x}"), format!("{magic:016x}")));
        }
        let version = read_u32(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(self.foreign(
                "format version",
                FORMAT_VERSION.to_string(),
                version.to_string(),
            ));
        }
        Header::decode(bytes).ok_or_else(|| {
            let found = read_u32(bytes, HEADER_BYTES - 4);
            let expected = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
            self.corruption(
                at,
                "pool header checksum",
                format!("{expected:08x}"),
                format!("{found:08x}"),
            )
        })
    }

    /// The newest root, or the empty one of a pool that was never published.
    fn root(&self, header: &Header) -> Result<Root, TierError> {
        let mut slots = [Slot::Empty; 2];
        for (slot, at) in slots.iter_mut().zip(SLOT_OFFSETS) {
            let bytes: &[u8; SLOT_BYTES] = self.array(at).ok_or_else(|| {
                let expected = format!("at least {DATA_OFFSET}");
                self.foreign("length", expected, self.bytes.len().to_string())
            })?;
            *slot = Slot::decode(bytes, &header.pool_id);
        }
        let newest = slots.iter().filter_map(|slot| match slot {
            Slot::Root(root) => Some(*root),
            _ => None,
        });
        let newest = newest
            .max_by_key(|root| root.generation)
            .unwrap_or_default();
        for (slot, at) in slots.into_iter().zip(SLOT_OFFSETS) {
            match slot {
                // A newer state was published here, and it is gone: an older one must not pass for it.
                Slot::Unfinished { generation } if generation > newest.generation => {
                    let found = format!("a damaged description of generation {generation}");
                    return Err(self.corruption(at, "root slot", "its checksum".into(), found));
                }
                Slot::Damaged { word } => {
                    let found = format!("{word:016x}");
                    return Err(self.corruption(at, "root slot", "a generation".into(), found));
                }
                _ => {}
            }
        }
        Ok(newest)
    }

    fn directory(&self, header: &Header, root: &Root) -> Result<Vec<SegmentEntry>, TierError> {
        if root.generation == 0 {
            return Ok(Vec::new());
        }
        let data = DATA_OFFSET as u64..header.len_bytes;
        let tail_fits = data.contains(&root.tail) || root.tail == data.end;
        let data = data.start..root.tail;
        let len_bytes = u64::from(root.segment_count) * ENTRY_BYTES as u64;
        let range = checked_range(root.directory_offset, len_bytes, &data).filter(|_| tail_fits);
        let (Some(range), at) = (range, root.directory_offset) else {
            let found = format!("{len_bytes} bytes at {}", root.directory_offset);
            let slot = SLOT_OFFSETS[slot_idx(root.generation)];
            return Err(self.corruption(slot, "directory range", format!("{data:?}"), found));
        };
        let bytes = &self.bytes[range];
        let found = crc32fast::hash(bytes);
        if found != root.directory_checksum {
            let expected = format!("{:08x}", root.directory_checksum);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            return Err(self.corruption(
                at,
                "directory checksum",
                expected,
                format!("{found:08x}"),
            ));
        }
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entries = entries.iter().map(SegmentEntry::decode);
        entries
            .map(|entry| self.checked_entry(entry, &data))
            .collect()
    }

    fn checked_entry(
        &self,
        entry: SegmentEntry,
        data: &std::ops::Range<u64>,
    ) -> Result<SegmentEntry, TierError> {
        match checked_range(entry.offset, entry.len_bytes, data) {
            Some(_) => Ok(entry),
            None => {
                let at = usize::try_from(entry.offset).unwrap_or(usize::MAX);
                let found = format!("{} bytes at {}", entry.len_bytes, entry.offset);
                Err(self.corruption(at, "segment range", format!("{data:?}"), found))
            }
        }
    }

    fn array<const N: usize>(&self, at: usize) -> Option<&[u8; N]> {
        self.bytes.get(at..at + N)?.first_chunk()
    }

    fn foreign(&self, what: &'static str, expected: String, found: String) -> TierError {
        TierError::ForeignPool {
            path: self.path.to_path_buf(),
            what,
            expected,
            found,
        }
    }

    fn corruption(
        &self,
        offset: usize,
        what: &'static str,
        expected: String,
        found: String,
    ) -> TierError {
        TierError::Corruption(Corruption {
            file: self.path.to_path_buf(),
            offset: offset as u64,
            what: what.into(),
            expected,
            found,
        })
    }
}

/// Generations take turns in the two slots.
pub(super) fn slot_idx(generation: u64) -> usize {
    usize::from(generation % 2 == 1)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
