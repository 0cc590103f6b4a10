//! Rows of several sorters, all in memory, cut into ranges of keys.
//!
//! Threads distribute the rows of sorters to ranges, and then sort ranges one by one: the first rows are there long
//! before the last.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_row::Rows;

use super::gather::Gather;
use super::held::{Held, Part, RowsInOrder};
use super::job::Job;
use super::order::{self, Entry};
use super::splitters::{RANGE_COUNT_MAX, Splitters};
use super::survey::{KeySurvey, Selection};
use super::{Ranges, SortStats, Sorter};
use crate::Result;

/// Ranges have at least this many rows or bytes, unless there would be more of them than are worth it.
pub(super) const RANGE_ROWS: usize = 8192;
const RANGE_BYTES: u64 = 256 << 10;
/// Ranges have this many rows on average even where rows are large: the first key of each range is copied.
const RANGE_ROWS_MIN: usize = 32;
/// Rows that are looked at to find where ranges begin, for each range.
const SAMPLED_ROWS: usize = 64;

/// The rows of one of several sorters.
pub struct Portion {
    shared: Arc<Shared>,
    held: Held,
    parts: Vec<Part>,
    /// The number of its first batch among those of all sorters.
    first_batch: usize,
}

/// What portions have in common.
struct Shared {
    job: Arc<Job>,
    selection: Selection,
    splitters: Splitters,
    gather: Arc<Gather>,
    row_bytes: u64,
    stats: SortStats,
}

/// Cuts what sorters hold into ranges of `range_rows` rows and more.
pub(super) fn portions(first: Sorter, others: Vec<Sorter>, range_rows: usize) -> Vec<Portion> {
    let job = Arc::clone(&first.job);
    let mut stats = SortStats::default();
    let mut held = Vec::new();
    for sorter in std::iter::once(first).chain(others) {
        stats.add(sorter.stats());
        held.push(sorter.held);
    }
    let parts: Vec<Vec<Part>> = held.iter_mut().map(Held::take_parts).collect();
    let shared = Arc::new(Shared::new(job, &parts, range_rows, stats));
    let mut first_batch = 0;
    let portion = |(held, parts): (Held, Vec<Part>)| {
        first_batch += parts.len();
        Portion {
            shared: Arc::clone(&shared),
            held,
            first_batch: first_batch - parts.len(),
            parts,
        }
    };
    held.into_iter().zip(parts).map(portion).collect()
}

impl Shared {
    fn new(job: Arc<Job>, parts: &[Vec<Part>], range_rows: usize, stats: SortStats) -> Self {
        let parts: Vec<&Part> = parts.iter().flatten().collect();
        let mut survey = KeySurvey::default();
        parts.iter().for_each(|part| survey.add_all(&part.survey));
        let selection = survey.selection();
        let batches: Vec<_> = parts.iter().map(|part| part.batch.clone()).collect();
        let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let bytes: u64 = parts.iter().map(|part| part.needed_bytes).sum();
        let range_count = (row_count / range_rows).max((bytes / RANGE_BYTES) as usize);
        let range_count = range_count
            .min(row_count / RANGE_ROWS_MIN)
            .clamp(1, RANGE_COUNT_MAX);
        let sample = match range_count {
            1 => Vec::new(),
            _ => sample(&parts, &selection, row_count / (range_count * SAMPLED_ROWS)),
        };
        Self {
            splitters: Splitters::new(sample, range_count),
            gather: Arc::new(Gather::new(&job.schema, &batches)),
            row_bytes: bytes / row_count.max(1) as u64 + 1,
            selection,
            stats,
            job,
        }
    }
}

/// About one row of this many: its entry, and what of its key its prefix does not say.
fn sample<'a>(parts: &[&'a Part], selection: &Selection, every: usize) -> Vec<(Entry, &'a [u8])> {
    // Rows often repeat in even numbers.
    let every = every | 1;
    let mut sample = Vec::new();
    let mut row = 0;
    for (batch, part) in parts.iter().enumerate() {
        while row < part.keys.num_rows() {
            let key = part.keys.row(row);
            let entry = Entry::new(selection.prefix(key.data()), batch as u32, row as u32);
            sample.push((entry, selection.rest(key.data())));
            row += every;
        }
        row -= part.keys.num_rows();
    }
    sample
}

impl Portion {
    /// Finds the ranges of its rows. This takes a while, and portions may be distributed side by side.
    ///
    /// # Errors
    /// [`Stopped`](crate::OperatorError::Stopped).
    pub fn distribute(mut self) -> Result<Distributed> {
        let Shared {
            job,
            selection,
            splitters,
            ..
        } = &*self.shared;
        let row_count: usize = self.parts.iter().map(|part| part.keys.num_rows()).sum();
        let range_count = splitters.range_count();
        // Most ranges have little more than their share, and pages that are not used take no memory.
        let capacity = row_count.div_ceil(range_count) * 5 / 4;
        let mut ranges: Vec<_> = (0..range_count)
            .map(|_| Vec::with_capacity(capacity))
            .collect();
        for (part, batch) in self.parts.iter().zip(self.first_batch..) {
            job.stop().check()?;
            for (row, key) in part.keys.iter().enumerate() {
                let entry = Entry::new(selection.prefix(key.data()), batch as u32, row as u32);
                ranges[splitters.range_of(entry, selection.rest(key.data()))].push(entry);
            }
        }
        let parts = std::mem::take(&mut self.parts);
        let mut keys: Vec<Rows> = parts.into_iter().map(|part| part.keys).collect();
        if selection.is_complete() {
            let bytes = keys.iter().map(|keys| keys.size() as u64).sum();
            keys.clear();
            self.held.give_back(bytes);
        }
        Ok(Distributed {
            shared: self.shared,
            _held: self.held,
            keys,
            ranges,
        })
    }
}

/// The rows of one of several sorters, by range.
pub struct Distributed {
    shared: Arc<Shared>,
    /// Has the charge of the rows.
    _held: Held,
    /// Empty: the entries say it all.
    keys: Vec<Rows>,
    ranges: Vec<Vec<Entry>>,
}

/// The rows of several sorters in ranges, which threads may sort in any order.
pub struct SortedRanges {
    shared: Arc<Shared>,
    portions: Vec<Distributed>,
    keys: Vec<Rows>,
    /// How many rows of each range are wanted.
    row_counts: Vec<usize>,
    charged_bytes: u64,
}

impl SortedRanges {
    /// The ranges of all sorters' rows, given in the order of the sorters. `None`: there are no sorters.
    pub fn new(mut portions: Vec<Distributed>) -> Option<Self> {
        let shared = Arc::clone(&portions.first()?.shared);
        let keys = portions
            .iter_mut()
            .flat_map(|portion| std::mem::take(&mut portion.keys));
        let keys = keys.collect();
        let mut remaining = shared.job.options.limit.unwrap_or(usize::MAX);
        let mut row_counts = Vec::new();
        for range in 0..shared.splitters.range_count() {
            let found = portions.iter().map(|portion| portion.ranges[range].len());
            let wanted = found.sum::<usize>().min(remaining);
            remaining -= wanted;
            row_counts.push(wanted);
            if remaining == 0 {
                break;
            }
        }
        Some(Self {
            shared,
            portions,
            keys,
            row_counts,
            charged_bytes: 0,
        })
    }
}

impl Ranges for SortedRanges {
    fn range_count(&self) -> usize {
        self.row_counts.len()
    }

    fn reserve(&mut self, count_max: usize) -> usize {
        let row_bytes = self.shared.row_bytes + size_of::<Entry>() as u64;
        let row_count = self.row_counts.iter().max().copied().unwrap_or(0);
        let range_bytes = row_count as u64 * row_bytes;
        let grant = &self.shared.job.grant;
        grant.grow(2 * range_bytes);
        let mut count = 1;
        while count < count_max && grant.try_grow(range_bytes) {
            count += 1;
        }
        self.charged_bytes += (count as u64 + 1) * range_bytes;
        count
    }

    fn rows(&self, range: usize) -> Result<Vec<RecordBatch>> {
        let (shared, stop) = (&*self.shared, self.shared.job.stop());
        let entries = || {
            self.portions
                .iter()
                .flat_map(|portion| &portion.ranges[range])
        };
        let key = |entry: Entry| self.keys[entry.batch()].row(entry.row()).data();
        let mut order = order::sorted(
            || entries().copied(),
            order::common_bits(entries().copied()),
            &shared.selection,
            &key,
            stop,
        )?;
        order.truncate(self.row_counts[range]);
        let rows = RowsInOrder::new(Arc::clone(&shared.gather), order, shared.row_bytes);
        rows.batches(shared.job.options.batch_row_count, stop)
    }

    fn stats(&self) -> SortStats {
        self.shared.stats
    }
}

impl Drop for SortedRanges {
    fn drop(&mut self) {
        self.shared.job.grant.shrink(self.charged_bytes);
    }
}
