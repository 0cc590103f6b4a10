//! Queries on one thread: the TIDs or rows that a query accepts, or how many there are.

use std::ops::Range;

use crate::error::Result;
use crate::keys::{QueryBox, Restriction};

use super::PackedElf;
use super::blocks::BlockSource;
use super::exact::Step;
use super::leaf::Run;
use super::output::{Bits, Count, Output, Ranges, Tids};
use super::search::{PREFETCH_ROWS, Select};
use super::tids::{sort_tids, tids_of};
use super::walk::Start;

impl<S: BlockSource> PackedElf<S> {
    fn answer<O: Output>(&self, query: &QueryBox, out: O) -> Result<O> {
        query.check(self.dimension_count())?;
        if query.is_none() {
            return Ok(out);
        }
        Ok(Select::new(self, query, out).run_one(self.start_of(query)))
    }

    /// The TIDs of accepted rows, ascending.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn select(&self, query: &QueryBox) -> Result<Vec<u32>> {
        query.check(self.dimension_count())?;
        if query.is_none() {
            return Ok(Vec::new());
        }
        Ok(self.select_from(query, self.start_of(query)))
    }

    /// The TIDs of accepted rows below one place, ascending.
    pub(crate) fn select_from(&self, query: &QueryBox, start: Start) -> Vec<u32> {
        if let (Step::Group(run), _) = &start
            && run.slots.len() < PREFETCH_ROWS
            && let Some(mut tids) = self.select_in(query, run)
        {
            self.backend.sort_few(&mut tids);
            return tids;
        }
        if self.accepts_many(query, &start) {
            let bits = Select::new(self, query, Bits::new(self.row_count)).run_one(start);
            return tids_of(bits);
        }
        let mut tids = Select::new(self, query, Tids::all()).run_one(start).tids;
        sort_tids(self.backend, &mut tids);
        tids
    }

    /// The TIDs of accepted rows in a short run where all rows are accepted, or only one key; `None` where it takes
    /// more to find them.
    #[inline]
    fn select_in(&self, query: &QueryBox, run: &Run) -> Option<Vec<u32>> {
        let rest = &query.dimensions()[run.level..];
        if rest.iter().all(Restriction::is_any) {
            let leaves = self.leaf_view();
            leaves.prefetch_tids(run);
            let mut tids = Vec::with_capacity(run.slots.len());
            leaves
                .pieces(run)
                .for_each(|piece| piece.extend_tids(&mut tids));
            return Some(tids);
        }
        let is_one = |one: &Restriction| matches!(one, Restriction::Range { lo, hi } if lo == hi);
        if !rest.iter().all(is_one) {
            return None;
        }
        let mut tids = Vec::new();
        let codes = rest.iter().map(|one| one.hull().0);
        self.exact_probe(run, codes, &mut tids).then_some(tids)
    }

    /// The accepted rows in Elf order, as ranges that do not touch. With a clustered Elf these are
    /// ranges of the table.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn select_rows(&self, query: &QueryBox) -> Result<Vec<Range<u32>>> {
        Ok(self.answer(query, Ranges::default())?.ranges)
    }

    /// The TIDs of up to `row_count_max` accepted rows, the first in key order, ascending.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn limit(&self, query: &QueryBox, row_count_max: usize) -> Result<Vec<u32>> {
        if row_count_max == 0 {
            query.check(self.dimension_count())?;
            return Ok(Vec::new());
        }
        let out = Tids {
            enough: row_count_max,
            ..Tids::all()
        };
        let mut tids = self.answer(query, out)?.tids;
        sort_tids(self.backend, &mut tids);
        Ok(tids)
    }

    /// How many rows are accepted. Ranges on the first dimensions alone never read a leaf.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn count(&self, query: &QueryBox) -> Result<u64> {
        Ok(self.answer(query, Count::all())?.count)
    }

    /// Whether any row is accepted.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn exists(&self, query: &QueryBox) -> Result<bool> {
        Ok(self
            .answer(
                query,
                Count {
                    count: 0,
                    enough: 1,
                },
            )?
            .count
            > 0)
    }
}
