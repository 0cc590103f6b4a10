//! Rows in memory, and the same rows in order.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_row::Rows;
use arrow_select::take::take_record_batch;

use super::gather::Gather;
use super::job::{Job, SortOptions};
use super::order::{self, Entry};
use super::survey::{KeySurvey, Selection};
use super::{run, small};
use crate::batches::{held_bytes, needed_bytes, own, without_unused_values};
use crate::memory::Charge;
use crate::spill::write_bytes;
use crate::{Result, Stop};

/// A run's batches take one part in this many of the run, so that merges can read many runs at once.
const RUN_PARTS: u64 = 128;
/// The parts of what is held that are reserved for sorting and writing it, besides the order of its rows.
const WORK_PARTS: u64 = 32;
/// Rows above a limit are dropped when there are this many of them, or as many again as the limit.
const SURPLUS_COUNT_MIN: usize = 8192;

/// The bytes of a run's batch when little is held: the minimum must have room for two of them being merged.
fn batch_bytes_min(minimum_bytes: u64) -> u64 {
    (minimum_bytes / 16).clamp(run::BATCH_BYTES_MIN, run::BATCH_BYTES_MAX)
}

/// What a sort uses while it holds no rows: small batches, and the means to write one.
pub(super) fn base_bytes(minimum_bytes: u64) -> u64 {
    let batch_bytes = batch_bytes_min(minimum_bytes);
    small::BYTES + batch_bytes + write_bytes(batch_bytes)
}

/// The part of this for writing, which merges have, too.
pub(super) fn write_bytes_at_hand(options: &SortOptions) -> u64 {
    write_bytes(batch_bytes_min(options.minimum_bytes))
}

/// A batch with its keys.
pub(super) struct Part {
    pub(super) batch: RecordBatch,
    pub(super) keys: Rows,
    pub(super) survey: KeySurvey,
    pub(super) needed_bytes: u64,
    charged_bytes: u64,
}

/// Rows in memory. They are charged to the grant until they are dropped.
pub(super) struct Held {
    job: Arc<Job>,
    parts: Vec<Part>,
    row_count: usize,
    charged_bytes: u64,
    /// Rows whose keys are not less than this are not wanted: there are enough before them.
    bound: Option<Vec<u8>>,
}

impl Held {
    pub(super) fn new(job: Arc<Job>) -> Self {
        Self {
            job,
            parts: Vec::new(),
            row_count: 0,
            charged_bytes: 0,
            bound: None,
        }
    }

    /// The key before which there are enough rows, once that is known.
    pub(super) fn bound(&self) -> Option<&[u8]> {
        self.bound.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    /// The rows of a batch that are wanted, with their keys.
    pub(super) fn prepare(&self, batch: RecordBatch) -> Result<Option<Part>> {
        let mut batch = own(batch)?;
        let mut keys = self.job.encoder.keys(&batch)?;
        if let Some(bound) = &self.bound {
            let is_wanted = |&row: &usize| keys.row(row).data() < &**bound;
            let wanted = (0..batch.num_rows()).filter(is_wanted);
            let wanted = UInt32Array::from_iter_values(wanted.map(|row| row as u32));
            if wanted.is_empty() {
                return Ok(None);
            }
            if wanted.len() < batch.num_rows() {
                batch = without_unused_values(&take_record_batch(&batch, &wanted)?)?;
                keys = self.job.encoder.keys(&batch)?;
            }
        }
        Ok(Some(Part::new(batch, keys)))
    }

    /// Adds rows, or returns them if the memory for them is refused.
    #[must_use = "rows that come back were not added"]
    pub(super) fn add(&mut self, part: Part) -> Option<Part> {
        if !self.job.grant.try_grow(part.charged_bytes) {
            return Some(part);
        }
        self.note(part);
        None
    }

    /// Adds rows whether or not there is memory for them. Spilling must follow.
    pub(super) fn add_anyway(&mut self, part: Part) {
        self.job.grant.grow(part.charged_bytes);
        self.note(part);
    }

    fn note(&mut self, part: Part) {
        self.row_count += part.batch.num_rows();
        self.charged_bytes += part.charged_bytes;
        self.parts.push(part);
    }

    /// Whether there are far more rows than the limit.
    pub(super) fn has_surplus(&self) -> bool {
        let limit = self.job.options.limit;
        limit.is_some_and(|limit| self.row_count / 2 >= limit.max(SURPLUS_COUNT_MIN))
    }

    /// Drops the rows above the limit. False: there is no memory for that.
    pub(super) fn cut(&mut self) -> Result<bool> {
        // The rows that remain are copied while the others are still there.
        let mut copied = Charge::adopt(&self.job.grant, 0);
        if !copied.try_grow(self.charged_bytes / 2) {
            return Ok(false);
        }
        let mut rows = self.take_sorted()?;
        let mut parts = Vec::new();
        while let Some(batch) = rows.next_batch(run::BATCH_BYTES_MAX, run::BATCH_ROWS_MAX)? {
            let keys = self.job.encoder.keys(&batch)?;
            parts.push(Part::new(batch, keys));
        }
        drop(rows);
        drop(copied);
        parts.into_iter().for_each(|part| self.add_anyway(part));
        Ok(true)
    }

    /// The rows as they came. They stay charged until this is dropped.
    pub(super) fn take_parts(&mut self) -> Vec<Part> {
        self.row_count = 0;
        std::mem::take(&mut self.parts)
    }

    /// Returns memory of parts that were taken.
    pub(super) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.charged_bytes);
        self.charged_bytes -= bytes;
        self.job.grant.shrink(bytes);
    }

    /// All rows in order, up to the limit. This one is empty afterwards and keeps the bound.
    pub(super) fn take_sorted(&mut self) -> Result<SortedRows> {
        let empty = Self::new(Arc::clone(&self.job));
        let held = std::mem::replace(self, empty);
        let (rows, bound) = SortedRows::new(held)?;
        self.bound = bound;
        Ok(rows)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.job.grant.shrink(self.charged_bytes);
    }
}

impl Part {
    fn new(batch: RecordBatch, keys: Rows) -> Self {
        let order_bytes = (batch.num_rows() * size_of::<Entry>()) as u64;
        let bytes = held_bytes(&batch) + keys.size() as u64 + order_bytes;
        let mut survey = KeySurvey::default();
        keys.iter().for_each(|key| survey.add(key.data()));
        Self {
            needed_bytes: needed_bytes(&batch),
            survey,
            charged_bytes: bytes + bytes / WORK_PARTS,
            batch,
            keys,
        }
    }

    /// What is sorted: an entry for each row.
    pub(super) fn entries<'a>(
        &'a self,
        batch: usize,
        selection: &'a Selection,
    ) -> impl Iterator<Item = Entry> + 'a {
        let prefix = |row| selection.prefix(self.keys.row(row).data());
        let entry = move |row| Entry::new(prefix(row), batch as u32, row as u32);
        (0..self.keys.num_rows()).map(entry)
    }
}

/// Rows in memory, in order. They are charged to the grant until this is dropped.
pub(super) struct SortedRows {
    job: Arc<Job>,
    rows: RowsInOrder,
    key_row_bytes: u64,
    charged_bytes: u64,
    survey: KeySurvey,
}

impl SortedRows {
    /// The rows that `held` has, and its new bound.
    fn new(mut held: Held) -> Result<(Self, Option<Vec<u8>>)> {
        let job = Arc::clone(&held.job);
        let parts = std::mem::take(&mut held.parts);
        let charged_bytes = std::mem::take(&mut held.charged_bytes);
        let sum = |bytes: fn(&Part) -> u64| parts.iter().map(bytes).sum::<u64>();
        let row_count = held.row_count.max(1) as u64;
        let (needed_bytes, key_bytes) = (
            sum(|part| part.needed_bytes),
            sum(|part| part.keys.size() as u64),
        );
        let mut survey = KeySurvey::default();
        parts.iter().for_each(|part| survey.add_all(&part.survey));
        let batches = parts
            .iter()
            .map(|part| part.batch.clone())
            .collect::<Vec<_>>();
        let gather = Arc::new(Gather::new(&job.schema, &batches));
        let mut sorted = Self {
            rows: RowsInOrder::new(gather, Vec::new(), needed_bytes / row_count + 1),
            key_row_bytes: key_bytes / row_count + 1,
            charged_bytes,
            survey,
            job,
        };
        let mut order = sorted.sort(&parts)?;
        let limit = sorted.job.options.limit;
        let mut bound = held.bound.take();
        if let Some(last) = limit.and_then(|limit| order.get(limit.checked_sub(1)?)) {
            let key = parts[last.batch()].keys.row(last.row());
            bound = Some(key.data().to_vec());
        }
        order.truncate(limit.unwrap_or(usize::MAX));
        sorted.rows.order = order;
        Ok((sorted, bound))
    }

    fn sort(&self, parts: &[Part]) -> Result<Vec<Entry>> {
        let selection = &self.survey.selection();
        let numbered = || parts.iter().enumerate();
        let entries = || numbered().flat_map(|(batch, part)| part.entries(batch, selection));
        let key = |entry: Entry| parts[entry.batch()].keys.row(entry.row()).data();
        order::sorted(entries, 0, selection, &key, self.job.stop())
    }

    /// The size of batches that are spilled.
    pub(super) fn spilled_batch_bytes(&self) -> u64 {
        let least = batch_bytes_min(self.job.options.minimum_bytes);
        (self.charged_bytes / RUN_PARTS).clamp(least, run::BATCH_BYTES_MAX)
    }

    /// The size of batches that are handed out.
    pub(super) fn output_batch_bytes(&self) -> u64 {
        let least = self.job.options.minimum_bytes / 4;
        (self.charged_bytes / WORK_PARTS)
            .clamp(least.min(run::BATCH_BYTES_MAX), run::BATCH_BYTES_MAX)
    }

    /// The bytes of a row's key, on average.
    pub(super) fn key_row_bytes(&self) -> u64 {
        self.key_row_bytes
    }

    pub(super) fn survey(&self) -> &KeySurvey {
        &self.survey
    }

    /// The next rows, as [`RowsInOrder::next_batch`] gives them.
    pub(super) fn next_batch(
        &mut self,
        bytes: u64,
        row_count_max: usize,
    ) -> Result<Option<RecordBatch>> {
        self.rows.next_batch(bytes, row_count_max, self.job.stop())
    }
}

impl Drop for SortedRows {
    fn drop(&mut self) {
        self.job.grant.shrink(self.charged_bytes);
    }
}

/// Rows of batches in memory, in order.
pub(super) struct RowsInOrder {
    gather: Arc<Gather>,
    order: Vec<Entry>,
    next: usize,
    row_bytes: u64,
}

impl RowsInOrder {
    /// Rows of about `row_bytes` each.
    pub(super) fn new(gather: Arc<Gather>, order: Vec<Entry>, row_bytes: u64) -> Self {
        Self {
            gather,
            order,
            next: 0,
            row_bytes,
        }
    }

    /// All rows, in batches of at most `row_count_max`.
    pub(super) fn batches(mut self, row_count_max: usize, stop: &Stop) -> Result<Vec<RecordBatch>> {
        let next = || {
            self.next_batch(run::BATCH_BYTES_MAX, row_count_max, stop)
                .transpose()
        };
        std::iter::from_fn(next).collect()
    }

    /// The next rows: little more than `bytes` unless one row has more, and at most `row_count_max` rows.
    pub(super) fn next_batch(
        &mut self,
        bytes: u64,
        row_count_max: usize,
        stop: &Stop,
    ) -> Result<Option<RecordBatch>> {
        let most = row_count_max.min(self.order.len() - self.next);
        if most == 0 {
            return Ok(None);
        }
        loop {
            stop.check()?;
            let row_count = (bytes / self.row_bytes).clamp(1, most as u64) as usize;
            let rows = &self.order[self.next..self.next + row_count];
            let row_count = self.gather.rows_within(rows, 2 * bytes);
            let batch = self.gather.rows(&rows[..row_count])?;
            // Rows of one order may be of one size: those that come next are like these.
            let found_bytes = needed_bytes(&batch);
            self.row_bytes = found_bytes / row_count as u64 + 1;
            if row_count == 1 || found_bytes <= 2 * bytes {
                self.next += row_count;
                return Ok(Some(batch));
            }
        }
    }
}
