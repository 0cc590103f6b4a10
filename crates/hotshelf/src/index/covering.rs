//! Rows that a scan takes from the Elfs alone. One task a stretch asks its Elf; workers take what was found a
//! batch at a time and decode it. Stretches whose Elf cannot be asked are scanned.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;

use super::access::ElfAccess;
use super::decode::decode;
use super::elfs::{ElfStore, LoadedElf, Unavailable};
use super::file::Reservation;
use super::question::FileQuery;
use super::selection::Outcome;
use crate::error::{Error, Result};

/// Elfs that are asked ahead, and the one that rows are taken from, have this part of what Elfs may take: they
/// cannot be evicted.
const AHEAD_SHARE: u64 = 2;

/// The rows of one execution of a scan, as its workers take them.
pub(crate) struct CoveringRows {
    access: Arc<ElfAccess>,
    outcome: Arc<Outcome>,
    /// The dimension of the index that each output column is.
    dimensions: Vec<usize>,
    batch_rows: usize,
    /// Of the query.
    weight: f64,
    position: tokio::sync::Mutex<Position>,
}

#[derive(Default)]
struct Position {
    /// Files and their stretches that were not asked yet.
    waiting: VecDeque<(u64, usize)>,
    asked: VecDeque<Asked>,
    current: Option<Cursor>,
    /// Rows of each file whose Elf could not be asked.
    missed: BTreeMap<u64, Vec<Range<u64>>>,
}

/// A stretch that is being asked.
struct Asked {
    file: u64,
    stretch_idx: usize,
    bytes: u64,
    task: SpawnedTask<Result<Found, Unavailable>>,
}

/// The rows of a stretch in the order of its Elf.
struct Found {
    file: u64,
    elf: Arc<LoadedElf>,
    rows: Vec<Range<u32>>,
    bytes: u64,
    _memory: Reservation,
}

/// Found rows that were not taken yet.
struct Cursor {
    found: Arc<Found>,
    /// The first range of them, and its first row.
    range_idx: usize,
    row: u32,
}

/// At most as many rows as a batch has, for one worker.
pub(crate) struct CoveredRows {
    found: Arc<Found>,
    rows: Vec<Range<u32>>,
    pub count: usize,
}

impl Cursor {
    fn new(found: Found) -> Self {
        Self {
            row: found.rows.first().map_or(0, |range| range.start),
            found: Arc::new(found),
            range_idx: 0,
        }
    }

    fn take(&mut self, count_max: usize) -> Option<CoveredRows> {
        let (mut rows, mut count) = (Vec::new(), 0);
        while count < count_max
            && let Some(range) = self.found.rows.get(self.range_idx)
        {
            let left = (count_max - count).min(u32::MAX as usize) as u32;
            let end = range.end.min(self.row.saturating_add(left));
            rows.push(self.row..end);
            count += (end - self.row) as usize;
            self.row = end;
            if end == range.end {
                self.range_idx += 1;
                let next = self.found.rows.get(self.range_idx);
                self.row = next.map_or(0, |range| range.start);
            }
        }
        (count > 0).then(|| CoveredRows {
            found: self.found.clone(),
            rows,
            count,
        })
    }
}

impl CoveringRows {
    /// The rows of a scan, if its index covers it.
    pub fn new(
        access: &Arc<ElfAccess>,
        outcome: &Arc<Outcome>,
        batch_rows: usize,
        weight: f64,
    ) -> Option<Self> {
        let dimensions = access.covering.clone()?;
        let files = access.files();
        let waiting = files.flat_map(|(file, query)| {
            let stretches = 0..query.file.stretches.len();
            stretches.map(move |stretch_idx| (file, stretch_idx))
        });
        let position = Position {
            waiting: waiting.collect(),
            ..Position::default()
        };
        Some(Self {
            access: access.clone(),
            outcome: outcome.clone(),
            dimensions,
            batch_rows: batch_rows.max(1),
            weight,
            position: tokio::sync::Mutex::new(position),
        })
    }

    /// The next rows; none when all stretches were answered or missed.
    pub async fn next(&self) -> Option<CoveredRows> {
        let mut position = self.position.lock().await;
        loop {
            let current = position.current.as_mut();
            if let Some(rows) = current.and_then(|cursor| cursor.take(self.batch_rows)) {
                return Some(rows);
            }
            position.current = None;
            self.ask_ahead(&mut position);
            // Stays in its place while it is waited for: the worker may be dropped.
            let answer = (&mut position.asked.front_mut()?.task).await;
            let asked = position.asked.pop_front()?;
            match answer {
                Ok(Ok(found)) => position.current = Some(Cursor::new(found)),
                Ok(Err(_)) | Err(_) => {
                    let query = self.access.file(asked.file);
                    let rows =
                        query.map(|query| query.file.stretches[asked.stretch_idx].rows.clone());
                    position.missed.entry(asked.file).or_default().extend(rows);
                }
            }
            self.ask_ahead(&mut position);
        }
    }

    /// The rows of a file that have to be scanned, once all others were taken.
    pub async fn missed(&self, file: u64) -> Vec<Range<u64>> {
        let position = self.position.lock().await;
        position.missed.get(&file).cloned().unwrap_or_default()
    }

    /// Begins to ask as many stretches as may be in memory together, at least one.
    fn ask_ahead(&self, position: &mut Position) {
        let limit_bytes = self.access.store.limit_bytes() / AHEAD_SHARE;
        let asked = position.asked.iter().map(|asked| asked.bytes);
        let current = position.current.iter().map(|cursor| cursor.found.bytes);
        let mut bytes: u64 = asked.chain(current).sum();
        while let Some((file, stretch_idx)) = position.waiting.front().copied() {
            let Some(query) = self.access.file(file) else {
                position.waiting.pop_front();
                continue;
            };
            let stretch_bytes = query.file.stretches[stretch_idx].memory_bytes();
            let is_first = position.asked.is_empty() && position.current.is_none();
            if !is_first && bytes + stretch_bytes > limit_bytes {
                return;
            }
            bytes += stretch_bytes;
            position.waiting.pop_front();
            let (access, outcome) = (self.access.clone(), self.outcome.clone());
            position.asked.push_back(Asked {
                file,
                stretch_idx,
                bytes: stretch_bytes,
                task: SpawnedTask::spawn(ask(access, outcome, (file, stretch_idx), self.weight)),
            });
        }
    }

    /// Rows as a batch.
    pub fn batch(&self, rows: &CoveredRows, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut codes = vec![Vec::new(); self.dimensions.len()];
        let found = &rows.found;
        found
            .elf
            .elf
            .read_rows(&rows.rows, &self.dimensions, &mut codes)?;
        let query = self.access.file(found.file);
        let keys = query.map_or(&[][..], |query| query.file.keys.as_slice());
        let columns = schema.fields().iter().zip(&self.dimensions).zip(&codes);
        let columns = columns.map(|((field, dimension), codes)| {
            let encoding = keys.get(*dimension).and_then(|key| key.exact());
            let encoding = encoding.ok_or_else(|| Error::NotIndexable {
                column: field.name().clone(),
                data_type: field.data_type().to_string(),
            })?;
            decode(encoding, codes, field.data_type())
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let batch = RecordBatch::try_new(schema.clone(), columns);
        Ok(batch.map_err(DataFusionError::from)?)
    }
}

async fn ask(
    access: Arc<ElfAccess>,
    outcome: Arc<Outcome>,
    (file, stretch_idx): (u64, usize),
    weight: f64,
) -> Result<Found, Unavailable> {
    outcome.asked.fetch_add(1, Ordering::Relaxed);
    let found = match access.file(file) {
        Some(query) => find(&access.store, &outcome, query, (file, stretch_idx), weight).await,
        None => Err(Unavailable::Damaged("no index file".into())),
    };
    found.inspect_err(|why| {
        outcome
            .unavailable
            .lock()
            .get_or_insert_with(|| why.clone());
    })
}

/// The rows that meet the question in one stretch.
async fn find(
    store: &Arc<ElfStore>,
    outcome: &Outcome,
    query: &FileQuery,
    (file, stretch_idx): (u64, usize),
    weight: f64,
) -> Result<Found, Unavailable> {
    let stretch = &query.file.stretches[stretch_idx];
    let elf = store.get(&query.file, stretch, weight).await?;
    let start = Instant::now();
    store.query_count.fetch_add(1, Ordering::Relaxed);
    let rows = elf.elf.select_rows(&query.query);
    let rows = rows.map_err(|error| Unavailable::Damaged(error.to_string()))?;
    let count = rows.iter().map(ExactSizeIterator::len).sum();
    outcome.add(count, start);
    let memory = store.hold((rows.capacity() * size_of::<Range<u32>>()) as u64);
    Ok(Found {
        file,
        elf,
        rows,
        bytes: stretch.memory_bytes(),
        _memory: memory,
    })
}
