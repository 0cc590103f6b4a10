//! A variant of `linear` on a shelf, ready to answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hotshelf_elf::Result;
use hotshelf_elf::keys::QueryBox;

use super::super::baseline::linear::{LinearElf, Wide};
use super::device::Device;
use super::linear::{Dual, Dynamic, LinearSearch, Lists, Pure, StaticLists};
use super::list_cache::ListCache;
use super::policy::Policy;
use super::shelf::{Accesses, Dram, Emulated, Lane};
use super::statics::{Choice, Static, Weights};
use super::variant::{DynamicChoice, StaticChoice, Variant, WithPolicy};
use super::workload::Queries;

/// Lines of a CPU's cache, as a shift of bytes: what `linear` reads at once.
const LINE_SHIFT: u32 = 6;

/// Answers queries.
pub trait Contender: Send {
    /// Answers them all one after the other, or keys as one batch where that was asked for; says what the TIDs sum up
    /// to.
    ///
    /// # Errors
    /// When queries have another number of dimensions.
    fn answer(&mut self, queries: &Queries) -> Result<u64>;

    /// What was read from the shelf so far.
    fn accesses(&self) -> Accesses;

    /// Whether to wait for the shelf.
    fn set_waiting(&mut self, is_waiting: bool);

    /// Bytes of DRAM that hold parts of the index, or say where they are.
    fn dram_bytes(&self) -> u64;
}

/// Sums up TIDs such that a missing one is noticed.
pub fn checksum(tids: &[u32]) -> u64 {
    tids.iter().map(|&tid| u64::from(tid) + 1).sum()
}

/// Searches in an index, whatever it is.
pub trait Search: Send {
    /// Number of dimensions.
    fn dimension_count(&self) -> usize;

    /// Appends the TIDs of all rows equal to a key.
    fn exact(&mut self, key: &[u32], tids: &mut Vec<u32>);

    /// Appends the TIDs of accepted rows, in key order.
    fn select(&mut self, query: &QueryBox, tids: &mut Vec<u32>);

    /// What was read from the shelf so far.
    fn accesses(&self) -> Accesses;

    /// Whether to wait for the shelf.
    fn set_waiting(&mut self, is_waiting: bool);

    /// Bytes of DRAM that hold parts of the index, or say where they are.
    fn dram_bytes(&self) -> u64;
}

impl<S: Lists> Search for LinearSearch<S> {
    fn dimension_count(&self) -> usize {
        self.dimension_count()
    }

    fn exact(&mut self, key: &[u32], tids: &mut Vec<u32>) {
        self.exact(key, tids);
    }

    fn select(&mut self, query: &QueryBox, tids: &mut Vec<u32>) {
        self.select(query, tids);
    }

    fn accesses(&self) -> Accesses {
        self.lists.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.lists.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.lists.dram_bytes()
    }
}

/// Answers one query after the other.
pub struct OneByOne<S> {
    search: S,
    tids: Vec<u32>,
}

impl<S: Search> OneByOne<S> {
    /// With this search.
    pub fn new(search: S) -> Self {
        Self {
            search,
            tids: Vec::new(),
        }
    }
}

impl<S: Search> Contender for OneByOne<S> {
    fn answer(&mut self, queries: &Queries) -> Result<u64> {
        let mut total = 0;
        let dimension_count = self.search.dimension_count();
        match queries {
            Queries::Keys(keys) => {
                for key in keys.chunks_exact(dimension_count) {
                    self.tids.clear();
                    self.search.exact(key, &mut self.tids);
                    total += checksum(&self.tids);
                }
            }
            Queries::Boxes(boxes) => {
                for query in boxes {
                    query.check(dimension_count)?;
                    self.tids.clear();
                    self.search.select(query, &mut self.tids);
                    total += checksum(&self.tids);
                }
            }
        }
        Ok(total)
    }

    fn accesses(&self) -> Accesses {
        self.search.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.search.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.search.dram_bytes()
    }
}

/// Answers each box on several threads, as the papers do: each takes the next code of the first dimension when it is
/// free. Keys have one code there, and stay on one thread.
struct ParallelContender<S> {
    threads: Vec<LinearSearch<S>>,
}

impl<S: Lists> ParallelContender<S> {
    fn select(&mut self, query: &QueryBox) -> u64 {
        let codes = self.threads[0].first_codes(query);
        let next = AtomicUsize::new(codes.start);
        let below = |search: &mut LinearSearch<S>| {
            let mut tids = Vec::new();
            loop {
                let code = next.fetch_add(1, Ordering::Relaxed);
                if code >= codes.end {
                    return checksum(&tids);
                }
                search.select_below(query, code, &mut tids);
            }
        };
        let below = &below;
        std::thread::scope(|scope| {
            let (first, others) = self.threads.split_at_mut(1);
            let others: Vec<_> = others
                .iter_mut()
                .map(|search| scope.spawn(move || below(search)))
                .collect();
            let own = below(&mut first[0]);
            let sums = others.into_iter().map(|thread| {
                let joined = thread.join();
                joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            own + sums.sum::<u64>()
        })
    }
}

impl<S: Lists> Contender for ParallelContender<S> {
    fn answer(&mut self, queries: &Queries) -> Result<u64> {
        match queries {
            Queries::Keys(keys) => {
                let (search, mut tids) = (&mut self.threads[0], Vec::new());
                for key in keys.chunks_exact(search.dimension_count()) {
                    search.exact(key, &mut tids);
                }
                Ok(checksum(&tids))
            }
            Queries::Boxes(boxes) => {
                let dimension_count = self.threads[0].dimension_count();
                boxes
                    .iter()
                    .try_for_each(|query| query.check(dimension_count))?;
                Ok(boxes.iter().map(|query| self.select(query)).sum())
            }
        }
    }

    fn accesses(&self) -> Accesses {
        let mut total = Accesses::default();
        for search in &self.threads {
            total += search.lists.accesses();
        }
        total
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        let threads = self.threads.iter_mut();
        threads.for_each(|search| search.lists.set_waiting(is_waiting));
    }

    fn dram_bytes(&self) -> u64 {
        self.threads[0].lists.dram_bytes()
    }
}

/// What an Elf lies on.
#[derive(Clone, Copy)]
pub enum Shelf<'a> {
    /// Memory.
    Dram,
    /// An *emulated* device.
    Emulated(&'a Emulated),
    /// A real device.
    Device(&'a Device),
}

impl Shelf<'_> {
    /// A short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dram => "dram",
            Self::Emulated(_) => "emulated:optane",
            Self::Device(_) => "block device",
        }
    }
}

/// A `linear` Elf and its lists' access probabilities.
pub struct Linear {
    /// The Elf.
    pub elf: LinearElf<Wide>,
    /// Rows below each list.
    pub weights: Weights,
}

/// A contender of any kind.
pub type BoxedContender<'a> = Box<dyn Contender + 'a>;

struct WithDynamic<'a, L> {
    linear: &'a Linear,
    lane: L,
    choice: DynamicChoice,
    first: Option<Arc<Static>>,
}

impl<'a, L: Lane + 'a> WithPolicy for WithDynamic<'a, L> {
    type Out = BoxedContender<'a>;

    fn call<P: Policy + 'static>(self) -> BoxedContender<'a> {
        let shelf = Pure::new(self.linear.elf.words(), self.lane, 0);
        let cache = ListCache::<P>::new(self.choice.capacity);
        let weights = &self.linear.weights;
        let dynamic = Dynamic::new(shelf, weights, cache, self.choice.monos);
        match self.first {
            Some(first) => self.linear.boxed(StaticLists::new(first, dynamic)),
            None => self.linear.boxed(dynamic),
        }
    }
}

impl Linear {
    /// An Elf, and its lists counted.
    pub fn new(elf: LinearElf<Wide>) -> Self {
        let weights = Weights::new(&elf);
        Self { elf, weights }
    }

    fn boxed<'a>(&'a self, lists: impl Lists + 'a) -> BoxedContender<'a> {
        Box::new(OneByOne::new(LinearSearch::new(&self.elf, lists)))
    }

    /// A contender that answers each box on several threads, which share a static cache of the first levels.
    pub fn parallel<'a>(
        &'a self,
        levels: usize,
        shelf: &'a Emulated,
        thread_count: usize,
    ) -> BoxedContender<'a> {
        let choice = Choice::Levels(levels);
        let copies = Arc::new(Static::new(&self.elf, &self.weights, choice, false));
        let search = |_| {
            let rest = Pure::new(self.elf.words(), shelf.lane(LINE_SHIFT), 0);
            LinearSearch::new(&self.elf, StaticLists::new(copies.clone(), rest))
        };
        Box::new(ParallelContender {
            threads: (0..thread_count).map(search).collect(),
        })
    }

    /// A variant on a shelf.
    pub fn contender<'a>(&'a self, variant: Variant, shelf: Shelf<'a>) -> BoxedContender<'a> {
        match shelf {
            Shelf::Dram => self.on(variant, Dram),
            Shelf::Emulated(device) => self.on(variant, device.lane(LINE_SHIFT)),
            Shelf::Device(device) => self.on(variant, device.lane(LINE_SHIFT)),
        }
    }

    fn on<'a, L: Lane + 'a>(&'a self, variant: Variant, lane: L) -> BoxedContender<'a> {
        let (words, bytes) = (self.elf.words(), self.elf.size_bytes());
        let copies = |choice: StaticChoice| {
            let (elf, weights) = (&self.elf, &self.weights);
            Arc::new(Static::new(elf, weights, choice.choice, choice.swizzled))
        };
        let with = |choice: DynamicChoice, first, lane| {
            choice.policy.with(WithDynamic {
                linear: self,
                lane,
                choice,
                first,
            })
        };
        match variant {
            Variant::Volatile => self.boxed(Pure::new(words, Dram, bytes)),
            Variant::Pure => self.boxed(Pure::new(words, lane, 0)),
            Variant::Hybrid => {
                let copy = words.to_vec();
                self.boxed(Pure::new(copy, Dram, bytes))
            }
            Variant::Dual => self.boxed(Dual(Pure::new(words, lane, 0))),
            Variant::Static(choice) => {
                let rest = Pure::new(words, lane, 0);
                self.boxed(StaticLists::new(copies(choice), rest))
            }
            Variant::Dynamic(choice) => with(choice, None, lane),
            Variant::Split(first, choice) => with(choice, Some(copies(first)), lane),
        }
    }
}
