//! A variant of `packed` on a shelf, ready to answer.

use std::sync::Arc;

use hotshelf_elf::Result;
use hotshelf_elf::layout::packed::{BlockSource, PackedElf};

use super::contender::{BoxedContender, Contender, Shelf, checksum};
use super::filter::MissFilter;
use super::observed::{CountBlocks, StaticBlocks};
use super::packed::{Blocks, DynamicBlocks, NoBlocks, ShelvedBlocks};
use super::policy::Policy;
use super::shelf::{Accesses, Dram, Lane};
use super::swizzled::SwizzledBlocks;
use super::variant::{BlockVariant, WithPolicy};
use super::workload::Queries;

/// What the blocks of a `packed` Elf say about themselves.
trait Counted: BlockSource + Send {
    fn accesses(&self) -> Accesses;

    fn set_waiting(&self, is_waiting: bool);

    fn dram_bytes(&self) -> u64;
}

/// All blocks in memory: what the product reads.
impl<W: AsRef<[u64]> + Send> Counted for W {
    fn accesses(&self) -> Accesses {
        Accesses::default()
    }

    fn set_waiting(&self, _is_waiting: bool) {}

    fn dram_bytes(&self) -> u64 {
        self.as_ref().len() as u64 * 8
    }
}

impl<W: AsRef<[u64]> + Send, L: Lane, B: Blocks> Counted for ShelvedBlocks<W, L, B> {
    fn accesses(&self) -> Accesses {
        self.accesses()
    }

    fn set_waiting(&self, is_waiting: bool) {
        self.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.dram_bytes()
    }
}

/// How keys are looked up.
#[derive(Debug, Clone)]
struct Manner {
    /// Many together.
    is_batch: bool,
    /// What is asked before the Elf.
    filter: Option<Arc<MissFilter>>,
}

impl Manner {
    fn is_absent(&self, key: &[u32]) -> bool {
        let filter = self.filter.as_ref();
        filter.is_some_and(|filter| !filter.may_hold(key))
    }
}

struct PackedContender<S> {
    elf: PackedElf<S>,
    manner: Manner,
    tids: Vec<u32>,
    /// Keys that the filter does not answer.
    retained: Vec<u32>,
}

impl<S: Counted> PackedContender<S> {
    fn boxed<'a>(packed: &Packed, blocks: S, manner: &Manner) -> BoxedContender<'a>
    where
        S: 'a,
    {
        Box::new(Self {
            elf: PackedElf::new(packed.elf.upper().clone(), blocks),
            manner: manner.clone(),
            tids: Vec::new(),
            retained: Vec::new(),
        })
    }
}

impl<S: Counted> Contender for PackedContender<S> {
    fn answer(&mut self, queries: &Queries) -> Result<u64> {
        let mut total = 0;
        match queries {
            Queries::Keys(keys) if self.manner.is_batch => {
                let keys = match &self.manner.filter {
                    Some(filter) => {
                        self.retained.clear();
                        filter.retain(keys, &mut self.retained);
                        &self.retained
                    }
                    None => keys,
                };
                self.elf
                    .exact_batch(keys, |_, tid| total += u64::from(tid) + 1)?;
            }
            Queries::Keys(keys) => {
                for key in keys.chunks_exact(self.elf.dimension_count()) {
                    if self.manner.is_absent(key) {
                        continue;
                    }
                    self.tids.clear();
                    self.elf.exact(key, &mut self.tids)?;
                    total += checksum(&self.tids);
                }
            }
            Queries::Boxes(boxes) => {
                for query in boxes {
                    total += checksum(&self.elf.select(query)?);
                }
            }
        }
        Ok(total)
    }

    fn accesses(&self) -> Accesses {
        self.elf.blocks().accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.elf.blocks().set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        let filter = self.manner.filter.as_ref();
        let filter_bytes = filter.map_or(0, |filter| filter.size_bytes());
        self.elf.head_bytes() + self.elf.blocks().dram_bytes() + filter_bytes
    }
}

/// A `packed` Elf and how often an observed workload accessed its blocks.
pub struct Packed {
    /// The Elf, whose blocks are the shelf's.
    pub elf: PackedElf,
    observed: Vec<u32>,
}

struct WithDynamicBlocks<'a, 'm> {
    packed: &'a Packed,
    shelf: Shelf<'a>,
    bytes: u64,
    misses_per_offer: u32,
    manner: &'m Manner,
    thread_count: usize,
}

impl<'a> WithPolicy for WithDynamicBlocks<'a, '_> {
    type Out = Vec<BoxedContender<'a>>;

    fn call<P: Policy + 'static>(self) -> Self::Out {
        let (count, bytes) = (self.packed.block_count(), self.packed.elf.block_bytes());
        let cache = DynamicBlocks::<P>::new(count, bytes, self.bytes, self.misses_per_offer);
        let (shelf, threads) = (self.shelf, self.thread_count);
        self.packed.on(shelf, Arc::new(cache), self.manner, threads)
    }
}

impl Packed {
    /// An Elf of which nothing was observed yet.
    pub fn new(elf: PackedElf) -> Self {
        Self {
            elf,
            observed: Vec::new(),
        }
    }

    fn block_count(&self) -> usize {
        (self.elf.leaf_bytes() / self.elf.block_bytes() as u64) as usize
    }

    /// How often each block was accessed.
    fn counts(&self) -> Vec<u32> {
        let mut counts = self.observed.clone();
        counts.resize(self.block_count(), 0);
        counts
    }

    /// Counts which blocks a workload accesses.
    ///
    /// # Errors
    /// Those of the queries.
    pub fn observe(&mut self, queries: &Queries) -> Result<()> {
        let counts = Arc::new(CountBlocks::new(self.block_count()));
        let mut counters = self.on(
            Shelf::Dram,
            counts.clone(),
            &Manner {
                is_batch: false,
                filter: None,
            },
            1,
        );
        for counter in &mut counters {
            counter.answer(queries)?;
        }
        drop(counters);
        self.observed = counts.counts();
        Ok(())
    }

    /// A variant on a shelf, once for each thread; they share what is cached.
    pub fn contenders<'a>(
        &'a self,
        variant: &BlockVariant,
        shelf: Shelf<'a>,
        is_batch: bool,
        thread_count: usize,
    ) -> Vec<BoxedContender<'a>> {
        let many =
            |one: &dyn Fn() -> BoxedContender<'a>| (0..thread_count).map(|_| one()).collect();
        let block_bytes = self.elf.block_bytes();
        let filter = match variant {
            BlockVariant::Filtered(filter) => Some(filter.clone()),
            _ => None,
        };
        let manner = &Manner { is_batch, filter };
        match *variant {
            BlockVariant::Volatile => {
                let words = self.elf.blocks().as_slice();
                many(&|| PackedContender::boxed(self, words, manner))
            }
            BlockVariant::Pure | BlockVariant::Filtered(_) => {
                self.on(shelf, Arc::new(NoBlocks), manner, thread_count)
            }
            BlockVariant::Hybrid => {
                many(&|| PackedContender::boxed(self, self.elf.blocks().clone(), manner))
            }
            BlockVariant::Static(bytes) => {
                let blocks = StaticBlocks::new(&self.counts(), block_bytes, bytes);
                self.on(shelf, Arc::new(blocks), manner, thread_count)
            }
            BlockVariant::SwizzledStatic(bytes) => {
                let words = self.elf.blocks().as_slice();
                let blocks = SwizzledBlocks::chosen(&self.counts(), words, block_bytes, bytes);
                self.on(shelf, Arc::new(blocks), manner, thread_count)
            }
            BlockVariant::SwizzledNaive(bytes, misses) => {
                let blocks = SwizzledBlocks::naive(self.block_count(), block_bytes, bytes, misses);
                self.on(shelf, Arc::new(blocks), manner, thread_count)
            }
            BlockVariant::Dynamic(policy, bytes, misses_per_offer) => {
                policy.with(WithDynamicBlocks {
                    packed: self,
                    shelf,
                    bytes,
                    misses_per_offer,
                    manner,
                    thread_count,
                })
            }
        }
    }

    fn on<'a, B: Blocks + 'a>(
        &'a self,
        shelf: Shelf<'a>,
        cache: Arc<B>,
        manner: &Manner,
        thread_count: usize,
    ) -> Vec<BoxedContender<'a>> {
        let piece_shift = self.elf.block_bytes().trailing_zeros();
        let words = self.elf.blocks().as_slice();
        let one = |_| match shelf {
            Shelf::Dram => self.shelved(words, Dram, &cache, manner),
            Shelf::Emulated(device) => {
                self.shelved(words, device.lane(piece_shift), &cache, manner)
            }
            Shelf::Device(device) => self.shelved(words, device.lane(piece_shift), &cache, manner),
        };
        (0..thread_count).map(one).collect()
    }

    fn shelved<'a, L: Lane + 'a, B: Blocks + 'a>(
        &self,
        words: &'a [u64],
        lane: L,
        cache: &Arc<B>,
        manner: &Manner,
    ) -> BoxedContender<'a> {
        let blocks = ShelvedBlocks::new(words, self.elf.block_bytes(), lane, cache.clone());
        PackedContender::boxed(self, blocks, manner)
    }
}
