//! Where leaves lie in a copy, and how they get there.

use std::ops::Range;

use hotshelf_elf::layout::packed::Paging;
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::EmulatedTier;
use hotshelf_tier::persist::PersistOps;
use hotshelf_tier::pool::Pool;
use hotshelf_tier::region::{Region, Sealed};

use crate::error::Result;

/// Bytes of leaves that are copied at once, and of one segment of a pool: whole pages.
pub(super) const PIECE_BYTES: u64 = 4 << 20;
/// Leaves of a stretch start on multiples of this, so that a page of blocks is in one piece.
pub(super) const ALIGN: u64 = 64 << 10;

/// Where the leaves of each stretch lie.
pub(super) struct LeafLayout {
    stretches: Vec<Range<u64>>,
    piece_bytes: u64,
    align: u64,
}

/// The blocks that are wanted of a page, with what lies between them.
pub(super) struct PagePlace {
    /// Offset in the copy.
    pub at: u64,
    pub len: usize,
}

impl LeafLayout {
    /// Of stretches with this many bytes of leaves. `align` divides `piece_bytes`.
    pub fn new(leaf_bytes: impl Iterator<Item = u64>, piece_bytes: u64, align: u64) -> Self {
        let mut end: u64 = 0;
        let place = |bytes: u64| {
            let start = end.next_multiple_of(align);
            end = start + bytes;
            start..end
        };
        Self {
            stretches: leaf_bytes.map(place).collect(),
            piece_bytes,
            align,
        }
    }

    /// Where the last leaves end.
    pub fn end(&self) -> u64 {
        self.stretches.last().map_or(0, |last| last.end)
    }

    /// Bytes of a copy, with room after the last leaves.
    pub fn len_bytes(&self) -> u64 {
        self.end().next_multiple_of(self.align)
    }

    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    pub fn piece_count(&self) -> usize {
        self.end().div_ceil(self.piece_bytes) as usize
    }

    pub fn stretch_count(&self) -> usize {
        self.stretches.len()
    }

    /// Bytes of a stretch's leaves.
    pub fn leaf_bytes(&self, stretch_idx: usize) -> u64 {
        let leaves = &self.stretches[stretch_idx];
        leaves.end - leaves.start
    }

    /// The pieces of a region.
    pub fn pieces_of(&self, all: &Sealed) -> Result<Vec<Sealed>, TierError> {
        let starts = (0..all.len()).step_by(self.piece_bytes as usize);
        let piece =
            |start: usize| all.slice(start..all.len().min(start + self.piece_bytes as usize));
        starts.map(piece).collect()
    }

    /// Where the wanted blocks of pages lie.
    pub fn places(
        &self,
        stretch_idx: usize,
        paging: Paging,
        wanted: &[(u32, u16)],
    ) -> impl Iterator<Item = PagePlace> {
        let start = self.stretches[stretch_idx].start;
        wanted.iter().map(move |(page, bits)| {
            let (first, end) = (bits.trailing_zeros(), 16 - bits.leading_zeros());
            let first_block = u64::from(paging.first_block(*page) + first);
            PagePlace {
                at: start + first_block * paging.block_bytes() as u64,
                len: end.saturating_sub(first) as usize * paging.block_bytes(),
            }
        })
    }
}

/// Has the leaves to be copied.
pub(super) trait GivesLeaves {
    /// Some bytes of a stretch's leaves; `None` if nothing but the copying needs them any more.
    async fn leaves(
        &self,
        stretch_idx: usize,
        from: u64,
        len_bytes: u64,
    ) -> Result<Option<Vec<u8>>>;
}

/// Where leaves go, piece by piece.
pub(super) trait TakesLeaves {
    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), TierError>;
}

impl TakesLeaves for Region {
    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), TierError> {
        let outside = TierError::OutsideRegion {
            offset: at,
            len_bytes: bytes.len() as u64,
            region_bytes: self.len_bytes() as u64,
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let target = self.volatile_bytes_mut();
        let target = target.and_then(|all| all.get_mut(at..at.saturating_add(bytes.len())));
        target.ok_or(outside)?.copy_from_slice(bytes);
        Ok(())
    }
}

impl TakesLeaves for EmulatedTier {
    fn take(&mut self, at: u64, bytes: &[u8]) -> Result<(), TierError> {
        self.write(at as usize, bytes)
    }
}

impl<O: PersistOps> TakesLeaves for Pool<O> {
    fn take(&mut self, _at: u64, bytes: &[u8]) -> Result<(), TierError> {
        self.append(self.segments().len() as u64, &[bytes])
    }
}

/// Reads all leaves and gives them to `target`, piece by piece. False if nothing but the copying needs them any more.
pub(super) async fn copy_leaves(
    source: &impl GivesLeaves,
    layout: &LeafLayout,
    target: &mut impl TakesLeaves,
) -> Result<bool> {
    let (mut piece, mut at) = (Vec::new(), 0);
    for (stretch_idx, place) in layout.stretches.iter().enumerate() {
        let leaf_bytes = place.end - place.start;
        let mut read_bytes = 0;
        piece.resize((place.start - at) as usize, 0);
        while read_bytes < leaf_bytes {
            if piece.len() as u64 == layout.piece_bytes {
                target.take(at, &piece)?;
                at += layout.piece_bytes;
                piece.clear();
            }
            let room = layout.piece_bytes - piece.len() as u64;
            let wanted = room.min(leaf_bytes - read_bytes);
            let Some(read) = source.leaves(stretch_idx, read_bytes, wanted).await? else {
                return Ok(false);
            };
            piece.extend_from_slice(&read);
            read_bytes += wanted;
        }
    }
    if !piece.is_empty() {
        target.take(at, &piece)?;
    }
    Ok(true)
}
