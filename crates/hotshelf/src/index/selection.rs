//! Asks the Elfs of a data file while a scan runs: one task a stretch, all at once, and their answers as masks of row
//! groups. What they did and read goes to the scan's [`Outcome`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use datafusion::common::runtime::SpawnedTask;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use hotshelf_elf::cost::Work;
use hotshelf_elf::keys::QueryBox;
use hotshelf_elf::layout::packed::BlockReads;
use hotshelf_store::StoreError;
use hotshelf_store::index::shelf::OpenElf;
use parking_lot::Mutex;
use vortex::buffer::BitBuffer;
use vortex::mask::Mask;

use super::elfs::{Asked, ElfStore, Unavailable};
use super::file::{IndexFile, Reservation, Stretch};
use super::join_keys::ElfKeys;
use crate::prices::{PriceBook, Unit, WorkPrices, computed};

/// Keys that are looked up together at most.
pub(super) const KEYS_MAX: usize = 1 << 14;
/// This many reads of a question are under way together, so that it waits about as long as for one.
const READS_TOGETHER_MAX: u64 = 8;

/// What the Elfs of one scan did, for EXPLAIN ANALYZE.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Rows found.
    pub rows: AtomicU64,
    /// Time of all tasks together, from the first block to the answer.
    pub busy_ns: AtomicU64,
    /// Where their blocks came from.
    reads: Mutex<BlockReads>,
    /// Bytes of blocks in memory afterwards.
    held_bytes: AtomicU64,
    /// Stretches asked.
    pub asked: AtomicU64,
    /// Why some stretch had to be scanned.
    unavailable: Mutex<Option<Unavailable>>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.asked.load(Ordering::Relaxed) > 0 {
            let rows = self.rows.load(Ordering::Relaxed);
            let ms = self.busy_ns.load(Ordering::Relaxed) as f64 / 1e6;
            write!(f, ", found {rows} rows in {ms:.2} ms")?;
            let reads = *self.reads.lock();
            let (memory, storage) = (reads.dram_blocks, reads.shelf_blocks);
            write!(f, ", blocks: {memory} from memory, {storage} from storage")?;
            let (accesses, each) = (reads.accesses, reads.accesses_per_look_up());
            write!(f, " by {accesses} reads, {each:.2} a look-up")?;
            let held_bytes = self.held_bytes.load(Ordering::Relaxed);
            write!(f, ", {held_bytes} bytes of blocks held")?;
        }
        match self.unavailable.lock().as_ref() {
            Some(why) => write!(f, ", scanned in part: {why}"),
            None => Ok(()),
        }
    }
}

impl Outcome {
    /// Counts the rows that an Elf found.
    pub(super) fn add(&self, rows: usize, since: Instant) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let busy_ns = since.elapsed().as_nanos() as u64;
        self.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }

    /// Counts where the blocks of a stretch's Elf came from, and how many are held.
    pub(super) fn count(&self, reads: BlockReads, store: &ElfStore, of: (&IndexFile, usize)) {
        *self.reads.lock() += reads;
        let (file, stretch_idx) = of;
        let blocks = store.blocks_of(file.index());
        let held_bytes = blocks.held_bytes_of(file.stretches[stretch_idx].key);
        self.held_bytes.fetch_add(held_bytes, Ordering::Relaxed);
    }

    /// Notes why a stretch has to be scanned.
    pub(super) fn note(&self, why: &Unavailable) {
        let mut first = self.unavailable.lock();
        first.get_or_insert_with(|| why.clone());
    }
}

/// How the Elfs of a data file are asked.
#[derive(Clone)]
pub(super) struct Asking {
    pub store: Arc<ElfStore>,
    /// Learns what it takes.
    pub prices: Arc<PriceBook>,
    pub file: Arc<IndexFile>,
    pub query: Arc<QueryBox>,
    /// The keys in it that rows may have, if they are known one by one.
    pub keys: Option<ElfKeys>,
    pub outcome: Arc<Outcome>,
    /// Of the query.
    pub weight: f64,
}

/// The rows of a stretch, counted from its first.
enum Rows {
    Tids(Vec<u32>),
    Ranges(Vec<Range<u32>>),
    /// The Elf could not be asked.
    Unknown,
}

struct Answer {
    rows: Rows,
    _memory: Option<Reservation>,
}

struct Part {
    rows: Range<u64>,
    answer: Shared<BoxFuture<'static, Arc<Answer>>>,
}

/// The rows of a data file that its Elfs select.
pub(crate) struct Selection {
    parts: Vec<Part>,
}

/// What is selected of a row group.
#[derive(Debug, Clone)]
pub(crate) enum Selected {
    /// These rows meet the conditions that the Elf was asked for.
    Rows(Mask),
    /// The Elf could not be asked: every condition must be checked.
    Unknown,
}

impl Selected {
    /// Whether the Elf found no row.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Rows(mask) if mask.all_false())
    }
}

impl Selection {
    /// Begins to ask, on the threads of the runtime it is called from.
    pub(super) fn start(asking: &Asking) -> Self {
        let stretches = asking.file.stretches.iter().enumerate();
        let parts = stretches.map(|(idx, stretch)| {
            let task = SpawnedTask::spawn(asking.clone().ask(idx));
            let answer = async move {
                let stopped = Answer {
                    rows: Rows::Unknown,
                    _memory: None,
                };
                task.await.unwrap_or_else(|_| Arc::new(stopped))
            };
            Part {
                rows: stretch.rows.clone(),
                answer: answer.boxed().shared(),
            }
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// What is selected of some rows of the file.
    pub async fn rows(&self, rows: &Range<u64>) -> Selected {
        let length = (rows.end - rows.start) as usize;
        let first = self
            .parts
            .partition_point(|part| part.rows.end <= rows.start);
        let mut masks = Vec::with_capacity(1);
        for part in &self.parts[first..] {
            if part.rows.start >= rows.end {
                break;
            }
            let answer = part.answer.clone().await;
            let start = rows.start.max(part.rows.start) - part.rows.start;
            let end = rows.end.min(part.rows.end) - part.rows.start;
            match answer.mask(start as u32..end as u32) {
                Some(mask) => masks.push(mask),
                None => return Selected::Unknown,
            }
        }
        match masks.len() {
            1 => Selected::Rows(masks.remove(0)),
            _ => {
                let mask: Mask = masks.into_iter().collect();
                debug_assert_eq!(mask.len(), length, "stretches cover the file");
                Selected::Rows(mask)
            }
        }
    }
}

impl Answer {
    fn mask(&self, rows: Range<u32>) -> Option<Mask> {
        let length = rows.len();
        match &self.rows {
            Rows::Unknown => None,
            Rows::Tids(tids) => {
                let start = tids.partition_point(|tid| *tid < rows.start);
                let count = tids[start..].partition_point(|tid| *tid < rows.end);
                let tids = &tids[start..start + count];
                Some(match count {
                    0 => Mask::new_false(length),
                    all if all == length => Mask::new_true(length),
                    _ => {
                        let places = tids.iter().map(|tid| (*tid - rows.start) as usize);
                        Mask::from_buffer(BitBuffer::from_indices(length, places))
                    }
                })
            }
            Rows::Ranges(ranges) => {
                let first = ranges.partition_point(|range| range.end <= rows.start);
                let inside = ranges[first..]
                    .iter()
                    .take_while(|range| range.start < rows.end)
                    .map(|range| {
                        let start = range.start.max(rows.start) - rows.start;
                        let end = range.end.min(rows.end) - rows.start;
                        (start as usize, end as usize)
                    });
                Some(Mask::from_slices(length, inside.collect()))
            }
        }
    }
}

impl Asking {
    async fn ask(self, stretch_idx: usize) -> Arc<Answer> {
        self.outcome.asked.fetch_add(1, Ordering::Relaxed);
        let asked = Asked {
            query: Some(&self.query),
            keys: self.keys.as_ref().map(|keys| &*keys.codes),
            weight: self.weight,
        };
        let opened = self.store.open_for(&self.file, stretch_idx, asked);
        let rows = match opened.await {
            Ok(mut elf) => {
                let start = Instant::now();
                let found = self.find(&mut elf, &self.file.stretches[stretch_idx]).await;
                let of = (&*self.file, stretch_idx);
                self.outcome.count(elf.reads(), &self.store, of);
                found
                    .inspect(|rows| self.outcome.add(rows.count(), start))
                    .map_err(Unavailable::damaged)
            }
            Err(why) => Err(why),
        };
        Arc::new(match rows {
            Ok(rows) => Answer {
                _memory: Some(self.store.hold(rows.size_bytes())),
                rows,
            },
            Err(why) => {
                self.outcome.note(&why);
                Answer {
                    rows: Rows::Unknown,
                    _memory: None,
                }
            }
        })
    }

    /// The rows of an Elf that the query accepts.
    async fn find(&self, elf: &mut OpenElf, stretch: &Stretch) -> Result<Rows, StoreError> {
        let Ok(work) = stretch.model.work(&self.query) else {
            return walk(elf, &self.query).await;
        };
        let start = Instant::now();
        let prices = self.prices.now();
        let keys = match &self.keys {
            Some(keys) => keys
                .cheaper_than(&work, &prices)
                .then(|| keys.codes.clone()),
            None => keys_to_look_up(&self.query, &work, &prices).map(Arc::from),
        };
        let (rows, computed_ns) = match &keys {
            Some(keys) => computed(look_up(elf, keys)).await,
            None => computed(walk(elf, &self.query)).await,
        };
        let rows = rows?;
        let reads = elf.reads();
        if reads.shelf_blocks > 0 {
            let waited_ns = start.elapsed().as_nanos() as f64 - computed_ns;
            self.learn_access(reads, waited_ns);
        } else if let Some(keys) = &keys {
            let key_count = keys.len() / self.query.dimensions().len().max(1);
            let done = [(Unit::ElfKey, key_count as f64)];
            self.prices.learn(&done, computed_ns);
        } else {
            let gives_tids = matches!(rows, Rows::Tids(_));
            self.prices
                .learn_walk(&work, rows.count(), gives_tids, computed_ns);
        }
        Ok(rows)
    }

    /// Notes how long a question waited for its reads, if they were few enough to be one wait.
    fn learn_access(&self, reads: BlockReads, waited_ns: f64) {
        if reads.accesses <= READS_TOGETHER_MAX {
            self.prices.learn(&[(Unit::Access, 1.0)], waited_ns);
        }
    }
}

/// The keys that a query accepts, where looking them up together costs less than a walk through the Elf.
pub(super) fn keys_to_look_up(
    query: &QueryBox,
    walk: &Work,
    prices: &WorkPrices,
) -> Option<Vec<u32>> {
    let keys = query.keys(KEYS_MAX)?;
    let key_count = keys.len() / query.dimensions().len().max(1);
    (key_count > 1 && prices.keys_are_cheaper(key_count, walk)).then_some(keys)
}

async fn look_up(elf: &mut OpenElf, keys: &[u32]) -> Result<Rows, StoreError> {
    let mut tids = Vec::new();
    elf.exact_batch(keys, |_, tid| tids.push(tid)).await?;
    tids.sort_unstable();
    Ok(Rows::Tids(tids))
}

async fn walk(elf: &mut OpenElf, query: &QueryBox) -> Result<Rows, StoreError> {
    Ok(match elf.head().is_clustered() {
        true => Rows::Ranges(elf.select_rows(query).await?),
        false => Rows::Tids(elf.select(query).await?),
    })
}

impl Rows {
    fn count(&self) -> usize {
        match self {
            Self::Tids(tids) => tids.len(),
            Self::Ranges(ranges) => ranges.iter().map(ExactSizeIterator::len).sum(),
            Self::Unknown => 0,
        }
    }

    fn size_bytes(&self) -> u64 {
        let bytes = match self {
            Self::Tids(tids) => tids.capacity() * size_of::<u32>(),
            Self::Ranges(ranges) => ranges.capacity() * size_of::<Range<u32>>(),
            Self::Unknown => 0,
        };
        bytes as u64
    }
}
