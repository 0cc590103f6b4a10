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

use super::elfs::{ElfStore, Unavailable};
use super::file::{COSTS, IndexFile, Reservation, Stretch};

/// Keys that are looked up together at most.
const KEYS_MAX: usize = 1 << 14;
/// Looking up one of many keys, in nanoseconds: its accesses to memory overlap those of others
/// (`lab/results/elf.md`).
const KEY_NS: f64 = 90.0;

/// What the Elfs of one scan did, for EXPLAIN ANALYZE.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Rows found.
    pub rows: AtomicU64,
    /// Time of all tasks together, from the first block to the answer.
    pub busy_ns: AtomicU64,
    /// Where their blocks came from.
    reads: Mutex<BlockReads>,
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

    /// Counts where the blocks of an Elf came from.
    pub(super) fn count(&self, reads: BlockReads) {
        *self.reads.lock() += reads;
    }

    /// Notes why a stretch has to be scanned.
    pub(super) fn note(&self, why: &Unavailable) {
        let mut first = self.unavailable.lock();
        first.get_or_insert_with(|| why.clone());
    }
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
    pub fn start(
        store: &Arc<ElfStore>,
        (file, query): (&Arc<IndexFile>, &QueryBox),
        outcome: &Arc<Outcome>,
        weight: f64,
    ) -> Self {
        let query = Arc::new(query.clone());
        let parts = file.stretches.iter().enumerate().map(|(idx, stretch)| {
            let (store, file) = (store.clone(), file.clone());
            let (query, outcome) = (query.clone(), outcome.clone());
            let task = SpawnedTask::spawn(ask(store, (file, idx), query, outcome, weight));
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

async fn ask(
    store: Arc<ElfStore>,
    (file, stretch_idx): (Arc<IndexFile>, usize),
    query: Arc<QueryBox>,
    outcome: Arc<Outcome>,
    weight: f64,
) -> Arc<Answer> {
    outcome.asked.fetch_add(1, Ordering::Relaxed);
    let rows = match store.open_for(&file, stretch_idx, weight).await {
        Ok(mut elf) => {
            let start = Instant::now();
            let found = find(&mut elf, &file.stretches[stretch_idx], &query).await;
            outcome.count(elf.reads());
            found
                .inspect(|rows| outcome.add(rows.count(), start))
                .map_err(Unavailable::damaged)
        }
        Err(why) => Err(why),
    };
    Arc::new(match rows {
        Ok(rows) => Answer {
            _memory: Some(store.hold(rows.size_bytes())),
            rows,
        },
        Err(why) => {
            outcome.note(&why);
            Answer {
                rows: Rows::Unknown,
                _memory: None,
            }
        }
    })
}

/// The rows of an Elf that a query accepts.
async fn find(elf: &mut OpenElf, stretch: &Stretch, query: &QueryBox) -> Result<Rows, StoreError> {
    if let Some(keys) = keys_of(stretch, query) {
        let mut tids = Vec::new();
        elf.exact_batch(&keys, |_, tid| tids.push(tid)).await?;
        tids.sort_unstable();
        return Ok(Rows::Tids(tids));
    }
    Ok(match elf.head().is_clustered() {
        true => Rows::Ranges(elf.select_rows(query).await?),
        false => Rows::Tids(elf.select(query).await?),
    })
}

/// The keys that a query accepts, where looking them up together costs less than a walk through the Elf.
fn keys_of(stretch: &Stretch, query: &QueryBox) -> Option<Vec<u32>> {
    let keys = query.keys(KEYS_MAX)?;
    let key_count = keys.len() / query.dimensions().len().max(1);
    let walk_ns = match stretch.model.work(query) {
        Ok(work) => COSTS.predict_ns(&Work {
            results: 0.0,
            ..work
        }),
        Err(_) => return None,
    };
    let is_cheaper = key_count as f64 * KEY_NS + COSTS.query_ns < walk_ns;
    (key_count > 1 && is_cheaper).then_some(keys)
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
