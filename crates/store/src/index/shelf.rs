//! An Elf of an index file, asked where it lies: its head in memory, its blocks fetched by page as queries need them.

use std::future::Future;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use hotshelf_cache::{CacheManager, MissCost};
use hotshelf_elf::layout::packed::{
    BlockReads, FetchBlocks, FetchedBlocks, Frame, Paging, ShelvedElf,
};
use parking_lot::Mutex;

use super::blocks::{BlockStore, ReadPage};
use super::copies::CopiedBlocks;
use super::file::{IndexFile, Stretch};
use super::heads::LoadedHead;
use super::reading::BlocksUnderWay;
use crate::error::{Result, StoreError};
use crate::reservation::Reservation;

/// One part in this many of the budget is what the blocks of one part of a query may take.
const PART_SHARE: u64 = 256;
/// And no more blocks than this: reading them takes longer than beginning to.
const PART_BLOCKS_MAX: u64 = 4096;
/// Less than a group of rows needs is not worth a part.
const PART_BLOCKS_MIN: u64 = 16;
/// The memory of a fetch, in multiples of its blocks: they are on their way and checked, while those of another fetch
/// are in use.
const FETCH_COPIES: u64 = 3;

/// The blocks of one Elf.
pub struct StretchBlocks {
    file: Arc<IndexFile>,
    stretch_idx: usize,
    /// Of the query that asks.
    weight: f64,
    head: Arc<LoadedHead>,
    store: Arc<BlockStore>,
    cache: Arc<CacheManager>,
    paging: Paging,
    /// Memory of the fetches, as much as the largest of them takes.
    memory: Mutex<Option<Reservation>>,
}

/// Pages of blocks, some of them in memory.
struct Started {
    pages: Vec<(u32, u16)>,
    /// What is in memory of each.
    known: Vec<Option<Arc<Frame>>>,
    reads: BlockReads,
    reading: Reading,
}

/// Blocks that are being read, or that a copy has given.
enum Reading {
    UnderWay(BlocksUnderWay),
    Copied(CopiedBlocks),
}

impl StretchBlocks {
    fn stretch(&self) -> &Stretch {
        &self.file.stretches[self.stretch_idx]
    }

    /// Takes what is in memory and begins to read the others.
    fn start(&self, blocks: &[Range<u32>]) -> Result<Started> {
        let pages = self.paging.pages(blocks);
        self.reserve(&pages);
        let known = self.store.find(self.stretch().key, &pages, self.weight);
        let (mut missing, mut reads) = (Vec::new(), BlockReads::default());
        for ((page, wanted), known) in pages.iter().zip(&known) {
            let here = wanted & known.as_ref().map_or(0, |frame| frame.present());
            reads.dram_blocks += u64::from(here.count_ones());
            reads.shelf_blocks += u64::from((wanted & !here).count_ones());
            if here != *wanted {
                missing.push((*page, wanted & !here));
            }
        }
        let reading = match self.copied(&missing) {
            Some(copied) => Reading::Copied(copied),
            None => {
                let (file, stretch) = (&self.file, self.stretch());
                Reading::UnderWay(file.begin_blocks(stretch, self.paging, missing)?)
            }
        };
        reads.accesses = match &reading {
            Reading::UnderWay(reading) => reading.access_count() as u64,
            Reading::Copied(copied) => copied.accesses as u64,
        };
        Ok(Started {
            pages,
            known,
            reads,
            reading,
        })
    }

    /// Blocks from the copy of the leaves, if there is one and it has what was written.
    fn copied(&self, missing: &[(u32, u16)]) -> Option<CopiedBlocks> {
        let copy = self.file.copy().get().filter(|_| !missing.is_empty())?;
        let path = self.file.path();
        let place = (path, self.stretch_idx);
        let blocks = copy.blocks(place, &self.head.head, missing);
        blocks
            .inspect_err(|error| self.file.copy().give_up(path, error))
            .ok()
    }

    /// Memory for a fetch, if it takes more than those before it.
    fn reserve(&self, pages: &[(u32, u16)]) {
        let blocks: u64 = pages
            .iter()
            .map(|(_, bits)| u64::from(bits.count_ones()))
            .sum();
        let bytes = FETCH_COPIES * blocks * self.paging.block_bytes() as u64;
        let mut memory = self.memory.lock();
        let held = memory.as_ref().map_or(0, Reservation::bytes);
        if bytes > held {
            // A query cannot do without it.
            let larger = Reservation::reserve(&self.cache, bytes);
            drop(memory.replace(larger));
        }
    }

    /// Waits for what is being read, keeps it as far as the policy wants, and puts everything together.
    async fn finish(&self, started: Started) -> Result<FetchedBlocks> {
        let Started {
            pages,
            known,
            reads,
            reading,
        } = started;
        let (stretch, head) = (self.stretch(), &self.head.head);
        let (read, access_s) = match reading {
            Reading::UnderWay(reading) => reading.finish(&self.file, stretch, head).await?,
            Reading::Copied(copied) => (copied.frames, copied.access_s),
        };
        let read = read.into_iter();
        let read = read.map(|(page, frame)| ReadPage::new(head, page, frame));
        let read: Vec<ReadPage> = read.collect();
        let mut frames = Vec::with_capacity(pages.len());
        let mut fresh = read.iter().peekable();
        for ((page, _), known) in pages.into_iter().zip(known) {
            let frame = match (known, fresh.next_if(|read| read.page == page)) {
                (Some(known), Some(read)) => Arc::new(known.joined(&read.frame, self.paging)),
                (Some(known), None) => known,
                (None, Some(read)) => read.frame.clone(),
                (None, None) => continue,
            };
            frames.push((page, frame));
        }
        if !read.is_empty() {
            let access = MissCost {
                seconds: access_s,
                weight: self.weight,
            };
            self.store.keep(stretch, self.paging, read, access);
        }
        Ok(FetchedBlocks::new(self.paging, frames, reads))
    }
}

impl FetchBlocks for StretchBlocks {
    type Error = StoreError;

    fn fetch(&self, blocks: Vec<Range<u32>>) -> impl Future<Output = Result<FetchedBlocks>> + Send {
        let started = self.start(&blocks);
        async move { self.finish(started?).await }
    }
}

/// An Elf to ask: a [`ShelvedElf`] that counts with its store what it read when it is dropped.
pub struct OpenElf {
    elf: ShelvedElf<StretchBlocks>,
    store: Arc<BlockStore>,
}

impl OpenElf {
    pub(crate) fn new(
        file: &Arc<IndexFile>,
        stretch_idx: usize,
        weight: f64,
        head: Arc<LoadedHead>,
        store: &Arc<BlockStore>,
        cache: &Arc<CacheManager>,
    ) -> Self {
        let (upper, paging) = (head.head.clone(), head.head.paging());
        let part_bytes = cache.budget().limit_bytes() / PART_SHARE;
        let part_blocks = part_bytes / paging.block_bytes() as u64;
        let blocks = StretchBlocks {
            file: file.clone(),
            stretch_idx,
            weight,
            head,
            store: store.clone(),
            cache: cache.clone(),
            paging,
            memory: Mutex::new(None),
        };
        let most = part_blocks.clamp(PART_BLOCKS_MIN, PART_BLOCKS_MAX);
        Self {
            elf: ShelvedElf::new(upper, blocks, most as usize),
            store: store.clone(),
        }
    }
}

impl Deref for OpenElf {
    type Target = ShelvedElf<StretchBlocks>;

    fn deref(&self) -> &Self::Target {
        &self.elf
    }
}

impl DerefMut for OpenElf {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.elf
    }
}

impl Drop for OpenElf {
    fn drop(&mut self) {
        self.store.count(self.elf.reads());
    }
}
