//! Rows that a scan takes from the Elfs alone. One task a stretch asks its Elf and reads the codes of what it found, a
//! batch at a time; workers decode them. What a stretch cannot give, because memory is short or bytes are damaged, is
//! scanned.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use futures::FutureExt;
use hotshelf_store::StoreError;
use hotshelf_store::index::shelf::OpenElf;
use hotshelf_tier::thread_time_ns;
use tokio::sync::mpsc;

use super::access::ElfAccess;
use super::decode::decode;
use super::elfs::{self, Unavailable};
use super::file::Reservation;
use super::join_keys::ElfKeys;
use super::question::FileQuery;
use super::selection::Outcome;
use crate::error::{Error, Result};
use crate::prices::{Unit, computed};

/// The heads of Elfs that are asked together have this part of what heads may take: they cannot be evicted.
const AHEAD_SHARE: u64 = 2;
/// Stretches that are asked together at most: one reads while workers decode what others found.
const ASKED_MAX: usize = 16;
/// Batches that wait for a worker.
const WAITING_MAX: usize = 4;

/// The rows of one execution of a scan, as its workers take them.
pub(crate) struct CoveringRows {
    asker: Arc<Asker>,
    position: tokio::sync::Mutex<Position>,
}

/// What asks Elfs.
struct Asker {
    access: Arc<ElfAccess>,
    outcome: Arc<Outcome>,
    /// The dimension of the index that each output column is.
    dimensions: Vec<usize>,
    batch_rows: usize,
    /// Of the query.
    weight: f64,
}

struct Position {
    /// Files and their stretches that were not asked yet.
    waiting: VecDeque<Place>,
    asked: BTreeMap<Place, Asked>,
    sender: mpsc::Sender<Delivery>,
    receiver: mpsc::Receiver<Delivery>,
    /// Rows of each file that no Elf could give.
    missed: BTreeMap<u64, Vec<Range<u64>>>,
}

/// The number of a data file, and of a stretch of it.
type Place = (u64, usize);

/// A stretch that is being asked.
struct Asked {
    head_bytes: u64,
    _task: SpawnedTask<()>,
}

/// What the task of a stretch sends.
enum Delivery {
    Rows(CoveredRows),
    /// There is no more; these rows of the file have to be scanned.
    End(Place, Result<Vec<Range<u64>>>),
}

/// At most as many rows as a batch has, for one worker: the codes of each output column.
pub(crate) struct CoveredRows {
    file: u64,
    codes: Vec<Vec<u32>>,
    pub count: usize,
    /// What reading the codes took, if all were in memory.
    took_ns: Option<f64>,
    _memory: Reservation,
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
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let position = Position {
            waiting: waiting.collect(),
            asked: BTreeMap::new(),
            sender,
            receiver,
            missed: BTreeMap::new(),
        };
        let asker = Asker {
            access: access.clone(),
            outcome: outcome.clone(),
            dimensions,
            batch_rows: batch_rows.max(1),
            weight,
        };
        Some(Self {
            asker: Arc::new(asker),
            position: tokio::sync::Mutex::new(position),
        })
    }

    /// The next rows; none when all stretches were answered or missed.
    ///
    /// # Errors
    /// When bytes are damaged such that it cannot be said which rows are missing.
    pub async fn next(&self) -> Result<Option<CoveredRows>> {
        let mut position = self.position.lock().await;
        loop {
            self.ask_ahead(&mut position);
            if position.asked.is_empty() {
                return Ok(None);
            }
            // The sender in `position` keeps the channel open.
            match position.receiver.recv().await {
                Some(Delivery::Rows(rows)) => return Ok(Some(rows)),
                Some(Delivery::End(place, missed)) => {
                    position.asked.remove(&place);
                    position.missed.entry(place.0).or_default().extend(missed?);
                }
                None => return Ok(None),
            }
        }
    }

    /// The rows of a file that have to be scanned, once all others were taken.
    pub async fn missed(&self, file: u64) -> Vec<Range<u64>> {
        let mut position = self.position.lock().await;
        let mut missed = position.missed.remove(&file).unwrap_or_default();
        missed.sort_unstable_by_key(|rows| rows.start);
        missed
    }

    /// Begins to ask as many stretches as may be in use together, at least one.
    fn ask_ahead(&self, position: &mut Position) {
        let access = &self.asker.access;
        let limit_bytes = access.store.limit_bytes() / AHEAD_SHARE;
        let mut bytes: u64 = position.asked.values().map(|asked| asked.head_bytes).sum();
        while let Some(place) = position.waiting.front().copied() {
            let Some(query) = access.file(place.0) else {
                position.waiting.pop_front();
                continue;
            };
            let head_bytes = query.file.stretches[place.1].head_memory_bytes();
            let has_room = bytes + head_bytes <= limit_bytes && position.asked.len() < ASKED_MAX;
            if !position.asked.is_empty() && !has_room {
                return;
            }
            bytes += head_bytes;
            position.waiting.pop_front();
            let (asker, sender) = (self.asker.clone(), position.sender.clone());
            let asked = Asked {
                head_bytes,
                _task: SpawnedTask::spawn(asker.run(place, sender)),
            };
            position.asked.insert(place, asked);
        }
    }

    /// Rows as a batch.
    pub fn batch(&self, rows: &CoveredRows, schema: &SchemaRef) -> Result<RecordBatch> {
        let start_ns = thread_time_ns();
        let batch = self.decode(rows, schema)?;
        if let Some(took_ns) = rows.took_ns {
            let decoding_ns = thread_time_ns().saturating_sub(start_ns) as f64;
            let values = rows.count * rows.codes.len();
            let done = [(Unit::ElfValue, values as f64)];
            let prices = &self.asker.access.prices;
            prices.learn(&done, took_ns + decoding_ns);
        }
        Ok(batch)
    }

    fn decode(&self, rows: &CoveredRows, schema: &SchemaRef) -> Result<RecordBatch> {
        let Asker {
            access, dimensions, ..
        } = &*self.asker;
        let keys = access.file(rows.file);
        let keys = keys.map_or(&[][..], |query| query.file.keys.as_slice());
        let columns = schema.fields().iter().zip(dimensions).zip(&rows.codes);
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

/// What stopped a stretch.
enum Stop {
    /// No worker takes its rows any more.
    Unwanted,
    Unavailable(Unavailable),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(Unavailable::damaged(error))
    }
}

impl Asker {
    /// Sends what a stretch has, and an end in any case.
    async fn run(self: Arc<Self>, place: Place, sender: mpsc::Sender<Delivery>) {
        let asked = AssertUnwindSafe(self.ask(place, &sender))
            .catch_unwind()
            .await;
        let missed = match asked {
            Ok(Some(missed)) => missed,
            Ok(None) => return,
            Err(_) => Err(DataFusionError::Internal("asking an index failed".into()).into()),
        };
        sender.send(Delivery::End(place, missed)).await.ok();
    }

    /// Sends the rows of a stretch that meet the question. Returns those of its rows that have to be scanned;
    /// `None` if no worker takes rows any more.
    async fn ask(
        &self,
        place: Place,
        sender: &mpsc::Sender<Delivery>,
    ) -> Option<Result<Vec<Range<u64>>>> {
        let Some(query) = self.access.file(place.0) else {
            return Some(Ok(Vec::new()));
        };
        self.outcome.asked.fetch_add(1, Ordering::Relaxed);
        let rows = query.file.stretches[place.1].rows.clone();
        let mut elf = match self.open(query, place.1).await {
            Ok(elf) => elf,
            Err(why) => {
                self.outcome.note(&why);
                return Some(Ok(vec![rows]));
            }
        };
        let mut sent = Vec::new();
        let answer = self.send_rows(&mut elf, place, query, sender, &mut sent);
        let missed = match answer.await {
            Ok(()) => Some(Ok(Vec::new())),
            Err(Stop::Unwanted) => None,
            Err(Stop::Unavailable(why)) => {
                self.outcome.note(&why);
                Some(other_rows(&mut elf, rows, &sent).await)
            }
        };
        let of = (&*query.file, place.1);
        self.outcome.count(elf.reads(), &self.access.store, of);
        missed
    }

    async fn open(&self, query: &FileQuery, stretch_idx: usize) -> Result<OpenElf, Unavailable> {
        let store = &self.access.store;
        let asked = elfs::Asked {
            query: Some(&query.query),
            keys: query.keys.as_ref().map(|keys| &*keys.codes),
            weight: self.weight,
        };
        store.open_for(&query.file, stretch_idx, asked).await
    }

    /// Sends the rows that meet the question; `sent` are those that were, in the Elf's order.
    async fn send_rows(
        &self,
        elf: &mut OpenElf,
        place: Place,
        query: &FileQuery,
        sender: &mpsc::Sender<Delivery>,
        sent: &mut Vec<Range<u32>>,
    ) -> Result<(), Stop> {
        let walk = query.file.stretches[place.1].model.work(&query.query);
        if let Some(keys) = &query.keys
            && walk.is_ok_and(|walk| keys.cheaper_than(&walk, &self.access.prices.now()))
        {
            return self.send_keys(elf, place, keys, sender).await;
        }
        let start = Instant::now();
        let (rows, took_ns) = computed(elf.select_rows(&query.query)).await;
        let rows = rows?;
        let count = rows.iter().map(ExactSizeIterator::len).sum();
        self.outcome.add(count, start);
        let (store, prices) = (&self.access.store, &self.access.prices);
        if let Ok(work) = query.file.stretches[place.1].model.work(&query.query)
            && elf.reads().shelf_blocks == 0
        {
            prices.learn_walk(&work, count, false, took_ns);
        }
        let _memory = store.hold((rows.capacity() * size_of::<Range<u32>>()) as u64);
        for batch in batches(&rows, self.batch_rows) {
            let count: usize = batch.iter().map(ExactSizeIterator::len).sum();
            let memory = store.hold((count * self.dimensions.len() * size_of::<u32>()) as u64);
            let mut codes = vec![Vec::new(); self.dimensions.len()];
            let read_blocks = elf.reads().shelf_blocks;
            let read = elf.read_rows(&batch, &self.dimensions, &mut codes);
            let (read, took_ns) = computed(read).await;
            read?;
            let was_in_memory = elf.reads().shelf_blocks == read_blocks;
            let delivery = Delivery::Rows(CoveredRows {
                file: place.0,
                codes,
                count,
                took_ns: was_in_memory.then_some(took_ns),
                _memory: memory,
            });
            let delivered = sender.send(delivery).await;
            delivered.map_err(|_| Stop::Unwanted)?;
            sent.extend(batch);
        }
        Ok(())
    }

    /// Sends the rows that equal one of some keys, after all were found: their codes are those of the keys.
    async fn send_keys(
        &self,
        elf: &mut OpenElf,
        place: Place,
        keys: &ElfKeys,
        sender: &mpsc::Sender<Delivery>,
    ) -> Result<(), Stop> {
        let start = Instant::now();
        let mut found = Vec::new();
        let look_up = elf.exact_batch(&keys.codes, |key_idx, _tid| found.push(key_idx));
        look_up.await?;
        self.outcome.add(found.len(), start);
        let store = &self.access.store;
        let _memory = store.hold(size_of_val(found.as_slice()) as u64);
        let key_length = elf.head().dimension_count();
        for numbers in found.chunks(self.batch_rows) {
            let count = numbers.len();
            let codes_of = |dimension: &usize| {
                let code = |number: &usize| keys.codes[number * key_length + dimension];
                numbers.iter().map(code).collect()
            };
            let delivery = Delivery::Rows(CoveredRows {
                file: place.0,
                codes: self.dimensions.iter().map(codes_of).collect(),
                count,
                took_ns: None,
                _memory: store.hold((count * self.dimensions.len() * size_of::<u32>()) as u64),
            });
            let delivered = sender.send(delivery).await;
            delivered.map_err(|_| Stop::Unwanted)?;
        }
        Ok(())
    }
}

/// The rows of the file in a stretch, except for some of the Elf's rows.
async fn other_rows(
    elf: &mut OpenElf,
    stretch: Range<u64>,
    sent: &[Range<u32>],
) -> Result<Vec<Range<u64>>> {
    let mut known = Vec::new();
    if !sent.is_empty() {
        elf.read_tids(sent, &mut known).await?;
        known.sort_unstable();
    }
    let (mut others, mut next) = (Vec::new(), stretch.start);
    for tid in known {
        let row = stretch.start + u64::from(tid);
        // Blocks that lie in a pool may have changed since they were checked.
        if row >= stretch.end {
            break;
        }
        if next < row {
            others.push(next..row);
        }
        next = row + 1;
    }
    if next < stretch.end {
        others.push(next..stretch.end);
    }
    Ok(others)
}

/// Rows in pieces of at most this many, in order.
fn batches(rows: &[Range<u32>], count_max: usize) -> impl Iterator<Item = Vec<Range<u32>>> {
    let (mut idx, mut next) = (0, rows.first().map_or(0, |range| range.start));
    std::iter::from_fn(move || {
        let (mut batch, mut room) = (Vec::new(), count_max);
        while room > 0
            && let Some(range) = rows.get(idx)
        {
            let end = next + (range.end - next).min(u32::try_from(room).unwrap_or(u32::MAX));
            batch.push(next..end);
            room -= (end - next) as usize;
            next = end;
            if end == range.end {
                idx += 1;
                next = rows.get(idx).map_or(0, |range| range.start);
            }
        }
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_batches_of_at_most_that_many() {
        let ends = |batch: Vec<Range<u32>>| -> Vec<(u32, u32)> {
            batch.iter().map(|rows| (rows.start, rows.end)).collect()
        };
        let cut = |rows: &[Range<u32>], most| -> Vec<_> { batches(rows, most).map(ends).collect() };
        let rows = [3..5, 7..12];
        let three = [vec![(3, 5), (7, 8)], vec![(8, 11)], vec![(11, 12)]];
        assert_eq!(cut(&rows, 3), three);
        assert_eq!(cut(&rows, usize::MAX), [vec![(3, 5), (7, 12)]]);
        assert!(cut(&[], 3).is_empty());
    }
}
