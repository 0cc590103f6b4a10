//! Copies of data files, or of some of their columns, on a shelf: memory, that of another node, persistent memory, an
//! emulated device, another disk. The file stays what counts: without its copy it is read, and nothing is lost.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use hotshelf_cache::{LyingSegment, ReadError};
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{Batch, EmulatedTier, Reach};
use hotshelf_tier::io::IoFile;
use hotshelf_tier::probe::{Operation, Pattern};
use hotshelf_tier::region::{FileOptions, Lease, Region, SyncMapping};

use super::places::{Place, Places};
use super::sums::verify;
use crate::error::Result;
use crate::reservation::Reservation;

/// The segments of a data file on a shelf.
pub(crate) struct FileCopy {
    pub(super) bytes: CopyBytes,
    pub(super) places: Places,
    /// Whether this is the file itself, mapped.
    pub(super) is_file: bool,
    /// The emulated device, and where on it the copy begins.
    pub(super) device: Option<(Arc<Device>, usize)>,
    /// Of what lies on persistent memory, which segments were compared with their checksums since.
    pub(super) checked: Option<Box<[AtomicBool]>>,
    /// What the copy takes of the budget.
    pub(super) _reserved: Option<Reservation>,
}

/// Where the bytes of a copy are.
pub(super) enum CopyBytes {
    /// Where loads can read them.
    Lie(Lease),
    /// In a file without a name, which goes with its last descriptor.
    File {
        file: Arc<IoFile>,
        /// All of these have it.
        _counted: Arc<()>,
    },
}

/// An emulated device that all copies on it share.
pub(super) struct Device {
    pub tier: Arc<EmulatedTier>,
    /// Where the next copy begins.
    pub next: AtomicU64,
}

/// A part of a copy, which stays as long as the part does.
struct Part {
    copy: Arc<FileCopy>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        match &self.copy.bytes {
            CopyBytes::Lie(lease) => &lease.bytes()[self.range.clone()],
            CopyBytes::File { .. } => &[],
        }
    }
}

/// Nothing is compared with its checksum yet.
pub(super) fn unchecked(places: &Places) -> Box<[AtomicBool]> {
    places.iter().map(|_| AtomicBool::new(false)).collect()
}

impl FileCopy {
    /// A file where it lies, if its file system is one of persistent memory. Others read bytes again by themselves, and
    /// may find them damaged.
    pub fn mapped(target: &Path, places: Places, sync: SyncMapping) -> Result<Option<Self>> {
        let options = FileOptions {
            read_only: true,
            sync,
            ..FileOptions::default()
        };
        let region = match Region::open_file(target, &options) {
            Err(TierError::NoSyncMapping { .. }) => return Ok(None),
            region => region?,
        };
        Ok(Some(Self {
            bytes: CopyBytes::Lie(Lease::whole(region)),
            is_file: true,
            device: None,
            checked: Some(unchecked(&places)),
            places,
            _reserved: None,
        }))
    }

    /// Compares a segment on persistent memory with its checksum, at its first use. A file must be as long as it was.
    fn check(
        &self,
        segment_idx: u32,
        sum: u32,
        lease: &Lease,
        found: &Part,
    ) -> Result<(), ReadError> {
        let Some(checked) = &self.checked else {
            return Ok(());
        };
        let start = (lease.offset() + found.range.start) as u64;
        if !lease.is_backed_to(found.range.end) {
            return Err(ReadError::Tier(TierError::ShortRead {
                path: lease.path().to_owned(),
                offset: start,
                len_bytes: found.range.len() as u64,
                file_bytes: start,
            }));
        }
        let known = checked.get(segment_idx as usize);
        if !known.is_some_and(|known| known.load(Relaxed)) {
            verify(lease.path(), start, "segment", found.as_ref(), sum)?;
            known
                .into_iter()
                .for_each(|known| known.store(true, Relaxed));
        }
        Ok(())
    }

    /// Asks the device for a segment of this checksum, if it lies here. The bytes are those where it lies.
    pub fn ask(self: Arc<Self>, segment_idx: u32, sum: u32) -> Option<LyingSegment> {
        let (start, len) = self.place(segment_idx)?;
        if let CopyBytes::File { .. } = self.bytes {
            return None;
        }
        let pending = self.device.as_ref().map(|(device, base)| {
            let whole = Batch {
                operation: Operation::Read,
                pattern: Pattern::Sequential,
                offset: base + start,
                len_bytes: len,
                count: 1,
            };
            device.tier.start(&whole, Reach::Near)
        });
        Some(Box::new(move || {
            if let (Some((device, _)), Some(pending)) = (&self.device, pending) {
                device.tier.finish(pending);
            }
            let found = Part {
                copy: self.clone(),
                range: start..start + len,
            };
            if let CopyBytes::Lie(lease) = &self.bytes {
                self.check(segment_idx, sum, lease, &found)?;
            }
            Ok(Bytes::from_owner(found))
        }))
    }

    /// Where a segment is in a file, if it is here and read.
    pub fn in_file(&self, segment_idx: u32) -> Option<(Arc<IoFile>, u64)> {
        let (start, _) = self.place(segment_idx)?;
        match &self.bytes {
            CopyBytes::Lie(_) => None,
            CopyBytes::File { file, .. } => Some((file.clone(), start as u64)),
        }
    }

    fn place(&self, segment_idx: u32) -> Option<Place> {
        *self.places.get(segment_idx as usize)?
    }

    /// What it takes.
    pub fn len_bytes(&self) -> u64 {
        match &self.bytes {
            CopyBytes::Lie(lease) => lease.bytes().len() as u64,
            CopyBytes::File { file, .. } => file.len_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_segments_lie_in_the_file_and_are_compared_at_their_first_use() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..30_000u32).map(|at| (at * 7 % 251) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let places: Places = [Some((0, 100)), None, Some((9_000, 21_000))].into();
        let mapped = || {
            let places = places.clone();
            let copy = FileCopy::mapped(file.path(), places, SyncMapping::Prefer);
            Arc::new(copy.unwrap().unwrap())
        };
        let copy = mapped();
        let ask = |copy: &Arc<FileCopy>, segment_idx, range: std::ops::Range<usize>| {
            let sum = crc32fast::hash(&bytes[range]);
            copy.clone().ask(segment_idx, sum).map(|take| take())
        };
        for (segment_idx, range) in [(0, 0..100), (2, 9_000..30_000)] {
            for _ in 0..2 {
                let found = ask(&copy, segment_idx, range.clone()).unwrap().unwrap();
                assert_eq!(found, bytes[range.clone()]);
            }
        }
        assert!(ask(&copy, 1, 0..1).is_none() && ask(&copy, 3, 0..1).is_none());
        let wrong = ask(&mapped(), 0, 1..101).unwrap().unwrap_err();
        assert!(matches!(wrong, ReadError::Tier(TierError::Corruption(_))));
        // Cut short, it is an error before anything is looked at.
        let cut = std::fs::File::options().write(true).open(file.path());
        cut.unwrap().set_len(5_000).unwrap();
        let cut = ask(&copy, 2, 9_000..30_000).unwrap().unwrap_err();
        assert!(matches!(cut, ReadError::Tier(TierError::ShortRead { .. })));
    }

    #[test]
    fn what_is_no_persistent_memory_is_not_mapped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 100]).unwrap();
        let mapped = FileCopy::mapped(file.path(), [Some((0, 100))].into(), SyncMapping::Require);
        assert!(mapped.unwrap().is_none());
    }
}
