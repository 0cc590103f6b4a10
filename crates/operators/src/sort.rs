//! Sorting batches of any number in a bounded part of the memory, and finding the first rows.
//!
//! ```text
//! push ─► held in memory ─► sorted ─────────────────────────────► batches
//!              │ no more memory                           ▲
//!              └─► sorted ─► runs of spilled batches ─► merged (in several passes if there are too many)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `job` | what a sort's parts have in common |
//! | `keys` | what rows are sorted by, as bytes |
//! | `survey` | pure: which bits of keys tell rows apart |
//! | `order` | pure: rows put in order |
//! | `gather` | rows of many batches, picked one by one |
//! | `small` | few rows made more |
//! | `held` | rows in memory |
//! | `run` | a sorted run of spilled batches |
//! | `marks` | pure: what is remembered of a run's keys |
//! | `cuts` | pure: where runs are cut into ranges of keys |
//! | `division` | pure: how runs are divided into ranges, and what memory merging them takes |
//! | `block` | batches of runs, in memory while ranges need them |
//! | `merge` | several runs as one, in ranges that threads merge one by one |
//! | `passes` | which runs are merged together, given the memory |
//! | `ranges` | rows of several sorters, cut into ranges of keys that threads sort one by one |
//! | `splitters` | pure: where ranges begin |
//!
//! Equal rows stay in the order in which they came. With a limit, rows that come after as many others are dropped when
//! they are pushed, and what remains is sorted and cut now and then.

mod block;
mod cuts;
mod division;
mod gather;
mod held;
mod job;
mod keys;
mod marks;
mod merge;
mod order;
mod passes;
mod ranges;
mod run;
mod small;
mod splitters;
mod survey;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use crate::batches::with_schema;
use crate::memory::Grant;
use crate::spill::SpillFile;
use crate::{Environment, Result};
use held::{Held, SortedRows};
use job::Job;
pub use job::SortOptions;
use keys::OrderEncoder;
pub use keys::SortKey;
pub use merge::MergedRanges;
use merge::{Merge, Reserved};
pub use ranges::{Distributed, Portion, SortedRanges};
use run::{Run, RunWriter, WrittenBatch};
use small::SmallBatches;

/// What a sort did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SortStats {
    /// Rows pushed.
    pub row_count: u64,
    /// Runs that were spilled, those made by merging included.
    pub run_count: u64,
    /// How often all rows, or some of them, were merged to fewer runs before the last merge.
    pub merge_count: u64,
    /// The most memory in use at once, in bytes; of several sorters, the sum of what each had at most.
    pub used_bytes_max: u64,
}

impl SortStats {
    fn add(&mut self, other: Self) {
        self.row_count += other.row_count;
        self.run_count += other.run_count;
        self.merge_count += other.merge_count;
        self.used_bytes_max += other.used_bytes_max;
    }
}

/// The rows of several sorters, once no more come.
pub enum Together {
    /// All are in memory. Each portion is to be [distributed](Portion::distribute), on any thread, and what comes of
    /// them is given to [`SortedRanges::new`].
    Held(Vec<Portion>),
    /// Some were spilled.
    Merged(Box<MergedRanges>),
}

/// Rows in ranges, which threads may put in order side by side.
pub trait Ranges: Send + Sync {
    /// How many ranges there are. All rows of a range come before those of the next.
    fn range_count(&self) -> usize;

    /// Takes memory for consecutive ranges that are put in order, or were and are not handed on yet: at most
    /// `count_max`, as many as the broker lends memory for, and at least one. Returns how many. One more is being
    /// handed on.
    fn reserve(&mut self, count_max: usize) -> usize;

    /// The rows of a range in order, as batches. Ranges are numbered from 0 to [`Ranges::range_count`], and each is
    /// asked for once. With a limit, there may be more rows than are wanted.
    ///
    /// # Errors
    /// [`Stopped`](crate::OperatorError::Stopped), those of reading what was spilled, and rows that Arrow could not
    /// copy.
    fn rows(&self, range: usize) -> Result<Vec<RecordBatch>>;

    /// What the sorts did.
    fn stats(&self) -> SortStats;
}

/// Takes rows in any order.
pub struct Sorter {
    job: Arc<Job>,
    small: SmallBatches,
    held: Held,
    runs: Vec<Run>,
    file: Option<Arc<SpillFile>>,
    stats: SortStats,
}

impl Sorter {
    /// A sort of rows of this schema. Its grant is called `name`.
    ///
    /// # Errors
    /// A type that cannot be compared.
    pub fn new(
        environment: &Environment,
        name: &str,
        schema: SchemaRef,
        options: SortOptions,
    ) -> Result<Self> {
        let encoder = OrderEncoder::new(&schema, &options.keys)?;
        let grant = Grant::open(&*environment.broker, name, options.minimum_bytes);
        let grant = Arc::new(grant);
        grant.grow(held::base_bytes(options.minimum_bytes));
        let job = Job {
            schema,
            options,
            encoder,
            grant,
            environment: environment.clone(),
        };
        let job = Arc::new(job);
        Ok(Self {
            small: SmallBatches::default(),
            held: Held::new(Arc::clone(&job)),
            job,
            runs: Vec::new(),
            file: None,
            stats: SortStats::default(),
        })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Those of spilling, columns that are not those of the schema, and [`Stopped`](crate::OperatorError::Stopped).
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.job.stop().check()?;
        let batch = with_schema(batch, &self.job.schema)?;
        self.stats.row_count += batch.num_rows() as u64;
        if batch.num_rows() == 0 || self.job.options.limit == Some(0) {
            return Ok(());
        }
        match self.small.add(batch)? {
            Some(batch) => self.hold(batch),
            None => Ok(()),
        }
    }

    fn hold(&mut self, batch: RecordBatch) -> Result<()> {
        let Some(part) = self.held.prepare(batch)? else {
            return Ok(());
        };
        if let Some(part) = self.held.add(part) {
            self.spill()?;
            if let Some(part) = self.held.add(part) {
                self.held.add_anyway(part);
                self.spill()?;
            }
        }
        if self.held.has_surplus() && !self.held.cut()? {
            self.spill()?;
        }
        Ok(())
    }

    /// With a limit, once it is known: as bytes that compare like rows, the key that rows must be before.
    pub fn bound(&self) -> Option<&[u8]> {
        self.held.bound()
    }

    /// The values that make up such a key, a column of one row for each.
    ///
    /// # Errors
    /// Bytes that are not such a key's.
    pub fn key_values(&self, key: &[u8]) -> Result<Vec<ArrayRef>> {
        Ok(self.job.encoder.values(key)?)
    }

    /// All rows in order, once no more come.
    ///
    /// # Errors
    /// Those of [`Sorter::push`], and of reading what was spilled.
    pub fn finish(mut self) -> Result<Sorted> {
        self.end()?;
        if self.runs.is_empty() {
            let rows = Rows::Held(self.held.take_sorted()?);
            return Ok(self.sorted(rows));
        }
        let runs = std::mem::take(&mut self.runs);
        let merge = Merge::new(self.merge_all(runs, 1)?);
        Ok(self.sorted(Rows::Merged(Box::new(merge))))
    }

    /// Notes that no more rows come. This does the last work that is for this sorter alone, so that sorters that are
    /// [finished together](Sorter::finish_with) do it side by side.
    ///
    /// # Errors
    /// Those of [`Sorter::push`].
    pub fn end(&mut self) -> Result<()> {
        if let Some(batch) = self.small.take()? {
            self.hold(batch)?;
        }
        match self.has_spilled() {
            true => self.spill(),
            false => Ok(()),
        }
    }

    /// Whether it has spilled rows.
    pub fn has_spilled(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Spills what it holds, after the [end](Sorter::end): for sorters that are finished together with one that
    /// [has spilled](Sorter::has_spilled), side by side.
    ///
    /// # Errors
    /// Those of [`Sorter::push`].
    pub fn spill_rest(&mut self) -> Result<()> {
        self.spill()
    }

    /// All rows of this sorter and of others with the same schema and options, in one order. Equal rows of different
    /// sorters are in the order of the sorters.
    ///
    /// # Errors
    /// Those of [`Sorter::finish`].
    pub fn finish_with(self, others: Vec<Self>) -> Result<Together> {
        self.finish_in_ranges(others, ranges::RANGE_ROWS)
    }

    fn finish_in_ranges(mut self, mut others: Vec<Self>, range_rows: usize) -> Result<Together> {
        self.end()?;
        others.iter_mut().try_for_each(Self::end)?;
        if !self.has_spilled() && !others.iter().any(Self::has_spilled) {
            let portions = ranges::portions(self, others, range_rows);
            return Ok(Together::Held(portions));
        }
        self.spill()?;
        let threads = 1 + others.len();
        let mut runs = std::mem::take(&mut self.runs);
        for mut other in others {
            other.spill()?;
            self.stats.add(other.stats());
            let others = other.runs.drain(..);
            runs.extend(others.map(|run| run.charged_to(&self.job)));
        }
        let merged = self.merge_all(runs, threads)?;
        Ok(Together::Merged(Box::new(merged)))
    }

    fn stats(&self) -> SortStats {
        SortStats {
            used_bytes_max: self.job.grant.used_bytes_max(),
            ..self.stats
        }
    }

    fn sorted(self, rows: Rows) -> Sorted {
        Sorted {
            remaining: self.job.options.limit.unwrap_or(usize::MAX),
            job: self.job,
            rows,
            stats: self.stats,
        }
    }

    /// Spills what is held as a run.
    fn spill(&mut self) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut rows = self.held.take_sorted()?;
        let batch_bytes = rows.spilled_batch_bytes();
        let file = self.file()?;
        let mut writer = RunWriter::new(&self.job, rows.key_row_bytes(), batch_bytes);
        while let Some(batch) = rows.next_batch(batch_bytes, run::BATCH_ROWS_MAX)? {
            writer.add(WrittenBatch::write(&self.job, &file, &batch)?);
        }
        self.add_run(writer.finish(rows.survey().clone()));
        Ok(())
    }

    fn add_run(&mut self, run: Run) {
        self.stats.run_count += 1;
        self.runs.push(run);
    }

    fn file(&mut self) -> Result<Arc<SpillFile>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let schema = Arc::clone(&self.job.schema);
        let file = self.job.environment.spill_file(schema)?;
        Ok(Arc::clone(self.file.insert(file)))
    }

    /// Merges runs to fewer until one merge can read them all, and begins that one. Up to this many threads work.
    fn merge_all(&mut self, mut runs: Vec<Run>, threads: usize) -> Result<MergedRanges> {
        loop {
            let reserved = Reserved::new(&self.job, &runs, threads)?;
            let fan_in = reserved.run_count();
            if runs.len() <= fan_in {
                return MergedRanges::new(reserved, runs, self.stats);
            }
            let groups = passes::groups(runs.len(), fan_in);
            let (mut reserved, mut remaining) = (Some(reserved), runs.into_iter());
            let mut merged = Vec::new();
            for group in groups {
                let group: Vec<Run> = remaining.by_ref().take(group).collect();
                merged.extend(self.merge(group, reserved.take(), threads)?);
            }
            runs = merged;
        }
    }

    /// Merges runs to one, or to as few as there is memory for now.
    fn merge(
        &mut self,
        mut runs: Vec<Run>,
        mut reserved: Option<Reserved>,
        threads: usize,
    ) -> Result<Vec<Run>> {
        let mut merged = Vec::new();
        while runs.len() > 1 {
            let reserved = match reserved.take() {
                Some(reserved) => reserved,
                None => Reserved::new(&self.job, &runs, threads)?,
            };
            let others = runs.split_off(reserved.run_count().min(runs.len()));
            let most = |bytes: fn(&Run) -> u64| runs.iter().map(bytes).max().unwrap_or(0);
            let (key_row_bytes, target_bytes) = (most(Run::key_row_bytes), most(Run::target_bytes));
            let writer = RunWriter::new(&self.job, key_row_bytes, target_bytes);
            let ranges = MergedRanges::new(reserved, runs, self.stats)?;
            merged.push(ranges.write(&self.file()?, writer, threads)?);
            self.stats.merge_count += 1;
            self.stats.run_count += 1;
            runs = others;
        }
        merged.extend(runs);
        Ok(merged)
    }
}

/// Rows in order.
pub struct Sorted {
    job: Arc<Job>,
    rows: Rows,
    remaining: usize,
    stats: SortStats,
}

enum Rows {
    Held(SortedRows),
    Merged(Box<Merge>),
}

impl Sorted {
    /// The next rows. `None`: there are no more.
    ///
    /// # Errors
    /// Those of reading what was spilled, and [`Stopped`](crate::OperatorError::Stopped).
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.job.stop().check()?;
        if self.remaining == 0 {
            return Ok(None);
        }
        let row_count = self.job.options.batch_row_count.min(self.remaining);
        let batch = match &mut self.rows {
            Rows::Held(rows) => rows.next_batch(rows.output_batch_bytes(), row_count)?,
            Rows::Merged(merge) => merge.next_batch(row_count)?,
        };
        self.remaining -= batch.as_ref().map_or(0, RecordBatch::num_rows);
        Ok(batch)
    }

    /// What the sort did.
    pub fn stats(&self) -> SortStats {
        SortStats {
            used_bytes_max: self.job.grant.used_bytes_max() + self.stats.used_bytes_max,
            ..self.stats
        }
    }
}

impl Iterator for Sorted {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}
