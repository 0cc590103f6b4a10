//! One query on several threads.
//!
//! Threads take morsels of about equal rows (see `plan`). Every thread has its own output: counts, lists of TIDs or,
//! where many rows are accepted, bits. A query that reaches few rows is answered by the calling thread, from the places
//! already found: nothing is done twice.

use std::sync::Mutex;

use crate::error::Result;
use crate::keys::QueryBox;
use crate::rows::{for_each_parallel, next};

use super::PackedElf;
use super::blocks::BlockSource;
use super::output::{Bits, Count, Output, Tids};
use super::plan::{BITS_SHARE_PARALLEL, ParallelOptions, Part, Plan};
use super::search::Select;
use super::tids::{join_bits, sort_parts};

impl<S: BlockSource + Sync> PackedElf<S> {
    /// [`Self::select`] on several threads.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn select_parallel(&self, query: &QueryBox, options: &ParallelOptions) -> Result<Vec<u32>> {
        query.check(self.dimension_count())?;
        if query.is_none() {
            return Ok(Vec::new());
        }
        let start = self.start_of(query);
        let row_count = self.rows_from(query, &start);
        if !options.is_worth(row_count as f64) {
            return Ok(self.select_from(query, start));
        }
        let is_many = self.is_many(self.accepted_estimate(query, &start), BITS_SHARE_PARALLEL);
        let morsels = match self.plan(query, start, row_count, options, 1.0) {
            Plan::Start(start) => return Ok(self.select_from(query, start)),
            Plan::Morsels(morsels) => morsels,
        };
        let thread_count = options.thread_count.min(morsels.len());
        if is_many {
            let bits = || Bits::new(self.row_count);
            let parts = self.answer_morsels(query, morsels, thread_count, bits);
            return Ok(join_bits(parts, thread_count));
        }
        let outputs = self.answer_morsels(query, morsels, thread_count, Tids::all);
        let parts = outputs.into_iter().map(|out| out.tids).collect();
        Ok(sort_parts(self.backend, parts, thread_count))
    }

    /// [`Self::count`] on several threads.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn count_parallel(&self, query: &QueryBox, options: &ParallelOptions) -> Result<u64> {
        query.check(self.dimension_count())?;
        if query.is_none() {
            return Ok(0);
        }
        let start = self.start_of(query);
        let count = |start| Select::new(self, query, Count::all()).run_one(start).count;
        let row_count = self.rows_from(query, &start);
        if !options.is_worth(row_count as f64) {
            return Ok(count(start));
        }
        match self.plan(query, start, row_count, options, self.counting_cost(query)) {
            Plan::Start(start) => Ok(count(start)),
            Plan::Morsels(morsels) => {
                let outputs = self.answer_morsels(query, morsels, options.thread_count, Count::all);
                Ok(outputs.into_iter().map(|out| out.count).sum())
            }
        }
    }

    /// One output per thread that took part.
    fn answer_morsels<O: Output + Send>(
        &self,
        query: &QueryBox,
        morsels: Vec<Vec<Part>>,
        thread_count: usize,
        output: impl Fn() -> O + Sync,
    ) -> Vec<O> {
        let mut outputs: Vec<Option<O>> = Vec::new();
        outputs.resize_with(thread_count.min(morsels.len()), || None);
        let morsels = Mutex::new(morsels.into_iter());
        for_each_parallel(thread_count, outputs.iter_mut().collect(), |out| {
            let mut own = output();
            while let Some(parts) = next(&morsels) {
                let starts = parts.into_iter().map(|part| part.start);
                own = Select::new(self, query, own).run(starts);
            }
            *out = Some(own);
        });
        outputs.into_iter().flatten().collect()
    }
}
