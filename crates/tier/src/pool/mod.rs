//! A pool: immutable segments on persistent memory, of which a consistent set is published by one eight-byte store.
//!
//! Segments are appended and never changed. Publishing writes a new directory behind them, waits until all is
//! durable, describes the directory in the root slot that is not in force, and stores that slot's generation word. Two
//! fences per publish, and none of them can go: the first keeps the description from arriving before the data, the
//! second keeps [`Pool::publish`] from returning before the state is durable. What a power cut leaves is always one
//! published state whole. Space of dropped segments comes back by copying the rest into a new pool.

mod layout;
mod recovery;

#[cfg(test)]
mod tests;

use std::thread::{self, ThreadId};

use crc32fast::Hasher;

use crate::error::TierError;
use crate::persist::{PersistOps, RegionOps, Writer, WriterOptions};
use crate::region::{Region, Sealed};
use layout::{
    DATA_OFFSET, ENTRY_BYTES, GENERATION_MAX, HEADER_OFFSETS, Header, Root, SEGMENT_ALIGN_BYTES,
    SLOT_OFFSETS,
};
pub use layout::{LayoutId, SegmentEntry};
pub use recovery::Front;
pub(crate) use recovery::{Recovered, recover, verify_segment};
use recovery::{looks_like_a_pool, slot_idx};

/// How to make a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// What the pool is for; [`Pool::open`] must name the same.
    pub layout: LayoutId,
    /// A number no other pool on the same device has had.
    pub pool_id: [u8; 16],
    /// Destroy a pool that is already there.
    pub overwrite: bool,
    /// How segments are written.
    pub writer: WriterOptions,
}

/// An open pool.
///
/// Invariants:
/// 1. Everything before `root.tail` is published or was once, and is never written again.
/// 2. `tail >= root.tail`; what lies between is staged and may be lost.
/// 3. `segments` lists the published entries followed by the staged ones.
#[derive(Debug)]
pub struct Pool<O> {
    roots: Writer<O>,
    data: Writer<O>,
    pool_id: [u8; 16],
    root: Root,
    segments: Vec<SegmentEntry>,
    published_count: usize,
    tail: usize,
    staged_by: ThreadId,
}

impl<O: PersistOps> Pool<O> {
    /// Makes an empty pool over all that `writer` may write, which must start at offset 0.
    ///
    /// # Errors
    /// [`TierError::PoolFull`] if there is no room for even an empty pool, or what persisting says.
    pub fn format(mut writer: Writer<O>, options: &PoolOptions) -> Result<Self, TierError> {
        let window = writer.window();
        if window.start != 0 || window.end < DATA_OFFSET {
            return Err(TierError::PoolFull {
                needed_bytes: DATA_OFFSET as u64,
                free_bytes: window.len() as u64,
            });
        }
        let header = Header {
            layout: options.layout,
            pool_id: options.pool_id,
            len_bytes: window.end as u64,
        };
        write_empty_pool(&mut writer, &header)?;
        Self::over(writer, options.pool_id, Root::default(), Vec::new())
    }

    /// Continues from the state in `recovered`; the writer covers all of the pool.
    pub(crate) fn resume(writer: Writer<O>, recovered: Recovered) -> Result<Self, TierError> {
        let pool_id = recovered.header.pool_id;
        Self::over(writer, pool_id, recovered.root, recovered.segments)
    }

    fn over(
        mut roots: Writer<O>,
        pool_id: [u8; 16],
        root: Root,
        segments: Vec<SegmentEntry>,
    ) -> Result<Self, TierError> {
        let tail = usize::try_from(root.tail)
            .unwrap_or(usize::MAX)
            .max(DATA_OFFSET);
        Ok(Self {
            data: roots.split_off(DATA_OFFSET)?,
            roots,
            pool_id,
            root,
            published_count: segments.len(),
            segments,
            tail,
            staged_by: thread::current().id(),
        })
    }

    /// Appends a segment made of these parts. It is lost unless [`Pool::publish`] follows.
    ///
    /// # Errors
    /// [`TierError::PoolFull`]; the pool is then as before.
    pub fn append(&mut self, kind: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let len_bytes = parts.iter().map(|part| part.len()).sum();
        let start = self.room_for(len_bytes)?;
        self.restage()?;
        let mut hasher = Hasher::new();
        let mut at = start;
        for part in parts {
            self.data.write(at, part)?;
            hasher.update(part);
            at += part.len();
        }
        self.segments.push(SegmentEntry {
            kind,
            offset: start as u64,
            len_bytes: len_bytes as u64,
            checksum: hasher.finalize(),
        });
        self.tail = at;
        Ok(())
    }

    /// Drops a segment from the next published state; segments behind it move up by one. A sealed view stays readable.
    ///
    /// # Errors
    /// [`TierError::NoSuchSegment`].
    pub fn remove(&mut self, segment_idx: usize) -> Result<SegmentEntry, TierError> {
        self.entry(segment_idx)?;
        if segment_idx < self.published_count {
            self.published_count -= 1;
        }
        Ok(self.segments.remove(segment_idx))
    }

    /// Makes the present set of segments the pool's durable state and returns its generation.
    ///
    /// # Errors
    /// [`TierError::PoolFull`] if the directory has no room, [`TierError::PoolExhausted`], or what persisting says; the
    /// state published before is then still in force.
    pub fn publish(&mut self) -> Result<u64, TierError> {
        let generation = self.root.generation + 1;
        if generation > GENERATION_MAX {
            return Err(TierError::PoolExhausted);
        }
        let directory: Vec<u8> = self
            .segments
            .iter()
            .flat_map(SegmentEntry::encode)
            .collect();
        let start = self.room_for(directory.len())?;
        self.restage()?;
        self.data.write(start, &directory)?;
        self.data.fence()?;
        let root = Root {
            generation,
            directory_offset: start as u64,
            segment_count: u32::try_from(self.segments.len())
                .map_err(|_| TierError::PoolExhausted)?,
            directory_checksum: crc32fast::hash(&directory),
            tail: (start + directory.len()) as u64,
        };
        let slot = SLOT_OFFSETS[slot_idx(generation)];
        self.roots
            .store(slot + 8, &root.encode_description(&self.pool_id))?;
        self.roots
            .publish(slot, root.generation_word(&self.pool_id))?;
        self.roots.flush(slot..slot + layout::SLOT_BYTES)?;
        self.roots.fence()?;
        self.root = root;
        self.tail = start + directory.len();
        self.published_count = self.segments.len();
        Ok(generation)
    }

    /// The number it was made with.
    pub fn id(&self) -> [u8; 16] {
        self.pool_id
    }

    /// How often the pool was published.
    pub fn generation(&self) -> u64 {
        self.root.generation
    }

    /// All segments, staged ones included.
    pub fn segments(&self) -> &[SegmentEntry] {
        &self.segments
    }

    /// How many bytes can still be appended, directories included.
    pub fn free_bytes(&self) -> usize {
        self.data.window().end.saturating_sub(self.tail)
    }

    /// The writer of the segments, for what only its operations can do.
    pub fn writer(&self) -> &Writer<O> {
        &self.data
    }

    fn entry(&self, segment_idx: usize) -> Result<SegmentEntry, TierError> {
        let entry = self.segments.get(segment_idx).copied();
        entry.ok_or(TierError::NoSuchSegment {
            segment_idx,
            segment_count: self.segments.len(),
        })
    }

    fn room_for(&self, len_bytes: usize) -> Result<usize, TierError> {
        let start = self.tail.next_multiple_of(SEGMENT_ALIGN_BYTES);
        let end = start.checked_add(len_bytes);
        match end.is_some_and(|end| end <= self.data.window().end) {
            true => Ok(start),
            false => Err(TierError::PoolFull {
                needed_bytes: len_bytes as u64,
                free_bytes: self.free_bytes() as u64,
            }),
        }
    }

    /// A fence waits for the flushes of its own thread only: flush again what another thread has staged.
    fn restage(&mut self) -> Result<(), TierError> {
        let here = thread::current().id();
        let published = usize::try_from(self.root.tail).unwrap_or(0);
        let staged = published.max(self.data.window().start)..self.tail;
        if self.staged_by != here && !staged.is_empty() {
            self.data.flush(staged)?;
        }
        self.staged_by = here;
        Ok(())
    }
}

impl Pool<RegionOps> {
    /// Makes an empty pool over all of a region.
    ///
    /// # Errors
    /// [`TierError::PoolExists`] unless overwriting is asked for, and those of [`Pool::format`].
    pub fn create(region: Region, options: &PoolOptions) -> Result<Self, TierError> {
        if !options.overwrite && looks_like_a_pool(region.bytes()) {
            return Err(TierError::PoolExists {
                path: region.path().to_path_buf(),
            });
        }
        Self::format(region.into_writer(&options.writer)?, options)
    }

    /// Opens the newest published state of a pool.
    ///
    /// # Errors
    /// [`TierError::ForeignPool`] for other bytes, another layout or version, [`TierError::DeviceTooSmall`] if the pool
    /// was made for a longer region, [`TierError::Corruption`] if what was published is not there.
    pub fn open(
        region: Region,
        layout: &LayoutId,
        writer: &WriterOptions,
    ) -> Result<Self, TierError> {
        let recovered = recover(region.bytes(), layout, region.path())?;
        let len_bytes = usize::try_from(recovered.header.len_bytes).unwrap_or(usize::MAX);
        let mut writer = region.into_writer(writer)?;
        // What lies behind the pool is not part of it.
        writer.split_off(len_bytes)?;
        let mut pool = Self::resume(writer, recovered)?;
        let tail = pool.tail;
        pool.data.ops_mut().seal_to(tail)?;
        Ok(pool)
    }

    /// Makes the front of a region zeroes, so that there is no pool any more; its segments stay as bytes. After a power
    /// cut in the middle the front may be neither a pool nor blank.
    ///
    /// # Errors
    /// [`TierError::ReadOnly`], or what persisting says.
    pub fn erase(region: Region) -> Result<(), TierError> {
        let mut writer = region.into_writer(&WriterOptions::default())?;
        let front = writer.window().end.min(DATA_OFFSET);
        writer.write(0, &vec![0; front])?;
        writer.fence()
    }

    /// A published segment's bytes, verified against its checksum.
    ///
    /// # Errors
    /// [`TierError::NoSuchSegment`] if there is none or it is only staged, [`TierError::Corruption`] if it is damaged.
    pub fn segment(&mut self, segment_idx: usize) -> Result<Sealed, TierError> {
        let sealed = self.segment_unverified(segment_idx)?;
        verify_segment(&sealed, &self.entry(segment_idx)?, self.data.ops().path())?;
        Ok(sealed)
    }

    /// A published segment's bytes, not read and not compared with its checksum: for contents with checksums of their
    /// own.
    ///
    /// # Errors
    /// [`TierError::NoSuchSegment`] if there is none or it is only staged.
    pub fn segment_unverified(&mut self, segment_idx: usize) -> Result<Sealed, TierError> {
        let entry = self.entry(segment_idx)?;
        if segment_idx >= self.published_count {
            return Err(TierError::NoSuchSegment {
                segment_idx,
                segment_count: self.published_count,
            });
        }
        let window = self.data.window();
        let published = usize::try_from(self.root.tail)
            .unwrap_or(0)
            .max(window.start);
        self.data.ops_mut().seal_to(published)?;
        let (offset, len_bytes) = (entry.offset as usize, entry.len_bytes as usize);
        self.data.ops().sealed(offset..offset + len_bytes)
    }
}

/// Invalidates what was there, then writes slots and headers, the magic words last.
fn write_empty_pool<O: PersistOps>(
    writer: &mut Writer<O>,
    header: &Header,
) -> Result<(), TierError> {
    let bytes = header.encode();
    for at in HEADER_OFFSETS {
        writer.publish(at, 0)?;
        writer.flush(at..at + 8)?;
    }
    writer.fence()?;
    for at in SLOT_OFFSETS {
        writer.store(at, &[0; layout::SLOT_BYTES])?;
        writer.flush(at..at + layout::SLOT_BYTES)?;
    }
    for at in HEADER_OFFSETS {
        writer.store(at + 8, &bytes[8..])?;
        writer.flush(at..at + bytes.len())?;
    }
    writer.fence()?;
    for at in HEADER_OFFSETS {
        writer.publish(at, layout::MAGIC)?;
        writer.flush(at..at + 8)?;
    }
    writer.fence()
}

const _: () = assert!(SEGMENT_ALIGN_BYTES.is_multiple_of(ENTRY_BYTES));
