//! Copies of leaf blocks on a shelf that loads can read: persistent memory, the memory of another node, or an emulated
//! device. The index file stays what counts: without its copy an index is slower, and nothing is lost.
//!
//! `making` makes them. `layout` says where leaves lie in a copy and puts them there, `pool` keeps them in a file of
//! persistent memory, `mapped` reads them where they lie, and `slot` is where an index file has its copy.

mod layout;
pub(super) mod making;
mod mapped;
mod pool;
mod slot;

use std::path::Path;
use std::time::Instant;

use hotshelf_elf::layout::packed::{ElfHead, Frame};
use hotshelf_tier::emulated::EmulatedTier;

use crate::error::Result;
use layout::LeafLayout;
use mapped::MappedLeaves;
pub(super) use slot::CopySlot;

/// A copy of the leaves of all Elfs of an index file.
pub(crate) struct LeafCopy {
    memory: CopyMemory,
    layout: LeafLayout,
}

enum CopyMemory {
    /// A pool, or the memory of a node.
    Mapped(MappedLeaves),
    Emulated(Box<EmulatedTier>),
}

/// What was read of a copy.
pub(crate) struct CopiedBlocks {
    pub frames: Vec<(u32, Frame)>,
    /// Accesses, and how long one took.
    pub accesses: usize,
    pub access_s: f64,
}

impl LeafCopy {
    /// Reads blocks: of each page, which ascend, those that have a bit.
    pub fn blocks(
        &self,
        (path, stretch_idx): (&Path, usize),
        head: &ElfHead,
        wanted: &[(u32, u16)],
    ) -> Result<CopiedBlocks> {
        let begun = Instant::now();
        let frames = match &self.memory {
            CopyMemory::Mapped(mapped) => {
                mapped.frames(&self.layout, (path, stretch_idx), head, wanted)?
            }
            CopyMemory::Emulated(device) => {
                let mut buffers: Vec<(usize, Vec<u8>)> = Vec::with_capacity(wanted.len());
                for place in self.layout.places(stretch_idx, head.paging(), wanted) {
                    let at = usize::try_from(place.at).unwrap_or(usize::MAX);
                    buffers.push((at, vec![0; place.len]));
                }
                let reads = buffers.iter_mut();
                let mut reads: Vec<_> = reads.map(|(at, bytes)| (*at, &mut bytes[..])).collect();
                device.read_many(&mut reads)?;
                let read = wanted
                    .iter()
                    .zip(&buffers)
                    .map(|(&(page, bits), (_, bytes))| {
                        let first = bits.trailing_zeros() as usize;
                        Ok((page, head.frame(path, (page, bits), first, bytes)?))
                    });
                read.collect::<Result<_>>()?
            }
        };
        Ok(CopiedBlocks {
            frames,
            accesses: wanted.len(),
            access_s: begun.elapsed().as_secs_f64() / wanted.len().max(1) as f64,
        })
    }
}
