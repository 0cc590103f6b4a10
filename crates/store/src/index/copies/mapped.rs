//! Leaves that are searched where they lie. A block is checked at its first use since the copy was opened.
//!
//! Others who change the bytes after that make answers wrong, but nothing is read outside and nothing panics, see
//! [`Frame`]. A file that is cut short is noticed before blocks of it are handed out; one that is cut short while a
//! search has them still ends the process. Hotshelf has an advisory lock on the file for as long as it is mapped.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use hotshelf_elf::layout::packed::{ElfHead, Frame, Paging};
use hotshelf_tier::TierError;
use hotshelf_tier::region::Sealed;
use hotshelf_tier::simd::prefetch;

use super::layout::{LeafLayout, PagePlace};
use crate::error::{Result, StoreError};

const LINE_BYTES: usize = 64;
/// Of larger fetches only this much is loaded ahead: the rest would push it out of the nearest caches.
const AHEAD_BYTES: usize = 64 << 10;

/// The pieces of a copy.
pub(super) struct MappedLeaves {
    pieces: Vec<Sealed>,
    /// Of each stretch, from its first use on, the blocks of each page that were checked.
    checked: Vec<OnceLock<Box<[AtomicU16]>>>,
}

impl MappedLeaves {
    pub fn new(pieces: Vec<Sealed>, layout: &LeafLayout) -> Self {
        Self {
            pieces,
            checked: (0..layout.stretch_count())
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// The wanted blocks of each page, where they lie.
    pub fn frames(
        &self,
        layout: &LeafLayout,
        (path, stretch_idx): (&Path, usize),
        head: &ElfHead,
        wanted: &[(u32, u16)],
    ) -> Result<Vec<(u32, Frame)>> {
        self.check_length()?;
        let paging = head.paging();
        let places = layout.places(stretch_idx, paging, wanted);
        let found = places.map(|place| self.piece(layout, &place));
        let found = found.collect::<Result<Vec<Sealed>, TierError>>()?;
        load_ahead(paging, wanted, &found);
        let checked = self.checked_of(layout, stretch_idx, paging);
        let frames = wanted.iter().zip(found).map(|(&(page, bits), bytes)| {
            let known = checked.get(page as usize);
            let before = known.map_or(0, |known| known.load(Relaxed));
            // The time of the access is measured: it has to come.
            black_box(bytes.first().copied());
            let first = bits.trailing_zeros() as usize;
            let frame = head.lying_frame(path, (page, bits), first, bytes, before)?;
            if let Some(known) = known.filter(|_| bits & !before != 0) {
                known.fetch_or(bits, Relaxed);
            }
            Ok((page, frame))
        });
        frames.collect()
    }

    /// Whether the file, if it is one, is still as long as when it was mapped.
    fn check_length(&self) -> Result<()> {
        match self.pieces.last() {
            Some(last) if !last.is_backed() => {
                let kind = io::ErrorKind::UnexpectedEof;
                let cut = io::Error::new(kind, "it was cut short while it was mapped");
                Err(StoreError::io("read", last.path())(cut))
            }
            _ => Ok(()),
        }
    }

    fn piece(&self, layout: &LeafLayout, place: &PagePlace) -> Result<Sealed, TierError> {
        let outside = || TierError::OutsideRegion {
            offset: place.at,
            len_bytes: place.len as u64,
            region_bytes: layout.end(),
        };
        let piece = self.pieces.get((place.at / layout.piece_bytes()) as usize);
        let from = (place.at % layout.piece_bytes()) as usize;
        piece.ok_or_else(outside)?.slice(from..from + place.len)
    }

    fn checked_of(&self, layout: &LeafLayout, stretch_idx: usize, paging: Paging) -> &[AtomicU16] {
        let Some(checked) = self.checked.get(stretch_idx) else {
            return &[];
        };
        checked.get_or_init(|| {
            let block_count = layout.leaf_bytes(stretch_idx) / paging.block_bytes() as u64;
            let (last, _) = paging.page_of(block_count.saturating_sub(1) as u32);
            (0..=last).map(|_| AtomicU16::new(0)).collect()
        })
    }
}

/// Starts loading the lines of the wanted blocks, so that looking at one does not wait for the one before.
fn load_ahead(paging: Paging, wanted: &[(u32, u16)], found: &[Sealed]) {
    let block_bytes = paging.block_bytes();
    let most = AHEAD_BYTES / block_bytes;
    let blocks = wanted.iter().zip(found).flat_map(|((_, bits), bytes)| {
        let first = bits.trailing_zeros() as usize;
        let places = (first..u16::BITS as usize).filter(move |place| bits >> place & 1 == 1);
        places.map(move |place| (&**bytes, (place - first) * block_bytes))
    });
    for (bytes, start) in blocks.take(most) {
        for line in (start..start + block_bytes).step_by(LINE_BYTES) {
            prefetch(bytes, line);
        }
    }
}
