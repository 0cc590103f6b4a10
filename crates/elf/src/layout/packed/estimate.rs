//! About how many rows a query accepts, as far as the place where it starts can tell.
//!
//! Each dimension that has not been looked at is taken to accept as large a share of the rows as of its codes.

use std::ops::Range;

use crate::keys::QueryBox;

use super::ElfHead;
use super::exact::Step;
use super::walk::Start;

/// TIDs are collected as bits when at least one row in this many is accepted.
const BITS_SHARE: f64 = 128.0;

/// Fewer TIDs are sorted faster than read from bits.
const MANY_ROWS_MIN: f64 = 64.0;

impl ElfHead {
    /// Whether the TIDs of what a query accepts are better collected as bits. The bits of all rows have to
    /// be read then: that must be worth it.
    pub(crate) fn accepts_many(&self, query: &QueryBox, start: &Start) -> bool {
        self.is_many(self.accepted_estimate(query, start))
    }

    fn is_many(&self, row_count: f64) -> bool {
        let is_many = row_count >= MANY_ROWS_MIN && row_count * BITS_SHARE >= self.row_count as f64;
        is_many && !self.is_clustered()
    }

    /// About how many rows below a place a query accepts.
    fn accepted_estimate(&self, query: &QueryBox, start: &Start) -> f64 {
        let row_count = self.rows_from(query, start) as f64;
        if !self.is_many(row_count) {
            return row_count;
        }
        // The rows from a node are those that the node's own dimension accepts.
        let (step, level) = start;
        let next = level + usize::from(matches!(step, Step::Node(_)));
        row_count * self.accepted_share(query, next..self.dimension_count())
    }

    /// The share of rows that some dimensions accept, were codes equally frequent and independent.
    fn accepted_share(&self, query: &QueryBox, dimensions: Range<usize>) -> f64 {
        let share = |dimension: usize| {
            let code_max = self.geometry.code_max[dimension];
            let (lo, hi) = query.dimensions()[dimension].hull();
            let width = (f64::from(hi.min(code_max)) - f64::from(lo) + 1.0).max(0.0);
            width / (f64::from(code_max) + 1.0)
        };
        dimensions.map(share).product()
    }

    /// How many rows a query reaches at most, as far as the place where it starts can tell.
    pub(crate) fn rows_from(&self, query: &QueryBox, (step, level): &Start) -> u64 {
        let rows = match step {
            Step::Absent => 0,
            Step::Group(run) => run.slots.len(),
            Step::Node(node) => {
                let hull = query.dimensions()[*level].hull();
                let node = self.node(*node);
                let children = self.head.children_within(node, hull);
                let row = |child: usize| self.head.row_at(node, child) as usize;
                row(children.end) - row(children.start)
            }
        };
        rows as u64
    }
}
