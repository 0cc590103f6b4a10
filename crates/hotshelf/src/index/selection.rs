//! Asks the Elfs of a data file while a scan runs: one task a stretch, all at once, and their answers as
//! masks of row groups.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use datafusion::common::runtime::SpawnedTask;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use hotshelf_elf::keys::QueryBox;
use parking_lot::Mutex;
use vortex::buffer::BitBuffer;
use vortex::mask::Mask;

use super::elfs::{ElfStore, Unavailable};
use super::file::{IndexFile, Reservation};

/// What the Elfs of one scan did, for EXPLAIN ANALYZE.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Rows found.
    pub rows: AtomicU64,
    /// Time of all tasks together, reading not included.
    pub busy_ns: AtomicU64,
    /// Stretches asked.
    pub asked: AtomicU64,
    /// Why some stretch had to be scanned.
    pub unavailable: Mutex<Option<Unavailable>>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.asked.load(Ordering::Relaxed) > 0 {
            let rows = self.rows.load(Ordering::Relaxed);
            let ms = self.busy_ns.load(Ordering::Relaxed) as f64 / 1e6;
            write!(f, ", found {rows} rows in {ms:.2} ms")?;
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
    let unknown = |why: Unavailable| {
        outcome.unavailable.lock().get_or_insert(why);
        Arc::new(Answer {
            rows: Rows::Unknown,
            _memory: None,
        })
    };
    let stretch = &file.stretches[stretch_idx];
    let loaded = match store.get(&file, stretch, weight).await {
        Ok(loaded) => loaded,
        Err(why) => return unknown(why),
    };
    let start = Instant::now();
    store.query_count.fetch_add(1, Ordering::Relaxed);
    let elf = &loaded.elf;
    let (rows, count, bytes) = if elf.is_clustered() {
        match elf.select_rows(&query) {
            Ok(ranges) => {
                let count: usize = ranges.iter().map(ExactSizeIterator::len).sum();
                let bytes = ranges.capacity() * 8;
                (Rows::Ranges(ranges), count, bytes)
            }
            Err(error) => return unknown(Unavailable::Damaged(error.to_string())),
        }
    } else {
        match elf.select(&query) {
            Ok(tids) => {
                let (count, bytes) = (tids.len(), tids.capacity() * 4);
                (Rows::Tids(tids), count, bytes)
            }
            Err(error) => return unknown(Unavailable::Damaged(error.to_string())),
        }
    };
    outcome.add(count, start);
    Arc::new(Answer {
        rows,
        _memory: Some(store.hold(bytes as u64)),
    })
}
