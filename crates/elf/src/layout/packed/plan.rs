//! How much a query has to do, and how that is divided.
//!
//! The places that a query reaches are opened level by level, so that it is known, from the head alone, how many rows
//! lie below each. Of the dimensions that have not been looked at, each is taken to accept as large a share of the rows
//! as of its codes. Places are then dealt out in morsels of about equal rows.

use std::ops::{ControlFlow, Range};

use crate::keys::{QueryBox, Restriction};

use super::ElfHead;
use super::exact::Step;
use super::leaf::Run;
use super::walk::{Start, restricted_end};

/// How a query is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParallelOptions {
    /// Threads to use.
    pub thread_count: usize,
    /// Fewer rows than this below the places a query reaches are not worth a second thread.
    pub rows_min: u64,
    /// Morsels per thread: more balance better, fewer cost less.
    pub morsels_per_thread: usize,
}

impl Default for ParallelOptions {
    fn default() -> Self {
        Self {
            thread_count: 1,
            rows_min: 1 << 19,
            morsels_per_thread: 8,
        }
    }
}

impl ParallelOptions {
    /// Whether this many rows may be worth a second thread.
    pub(crate) fn is_worth(&self, row_count: f64) -> bool {
        self.thread_count > 1 && row_count >= self.rows_min as f64
    }
}

/// A place and the rows below it.
pub(crate) struct Part {
    pub(crate) start: Start,
    row_count: u64,
}

/// A query's places.
pub(crate) enum Plan {
    /// Few rows below the place where the search starts.
    Start(Start),
    /// What threads share; one morsel where few rows turned out to be reached.
    Morsels(Vec<Vec<Part>>),
}

/// Visiting a node takes about as long as testing this many rows.
const NODE_COST_ROWS: usize = 8;

/// One thread collects TIDs as bits when at least one row in this many is accepted.
pub(crate) const BITS_SHARE: f64 = 128.0;

/// The same for several threads: their TIDs need no common order otherwise.
pub(crate) const BITS_SHARE_PARALLEL: f64 = 512.0;

/// Fewer TIDs are sorted faster than read from bits.
const MANY_ROWS_MIN: f64 = 64.0;

impl ElfHead {
    /// Whether this many TIDs are better collected as bits. The bits of all rows have to be
    /// read then: that must be worth it.
    pub(crate) fn is_many(&self, row_count: f64, bits_share: f64) -> bool {
        let is_many = row_count >= MANY_ROWS_MIN && row_count * bits_share >= self.row_count as f64;
        is_many && !self.is_clustered()
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

    /// About how many rows below a place a query accepts.
    pub(crate) fn accepted_estimate(&self, query: &QueryBox, start: &Start) -> f64 {
        let row_count = self.rows_from(query, start) as f64;
        if !self.is_many(row_count, BITS_SHARE_PARALLEL) {
            return row_count;
        }
        // The rows from a node are those that the node's own dimension accepts.
        let (step, level) = start;
        let next = level + usize::from(matches!(step, Step::Node(_)));
        row_count * self.accepted_share(query, next..self.dimension_count())
    }

    /// What counting costs, as a share of what reading all rows below the same places would: rows of groups below the
    /// restricted dimensions are counted in the head.
    pub(crate) fn counting_cost(&self, query: &QueryBox) -> f64 {
        let end = restricted_end(query);
        let rows: usize = self.geometry.slot_counts[..end].iter().sum();
        let prefixes = self.prefix_counts[..end.saturating_sub(1)].iter();
        let prefixes = prefixes.fold(1, |all: u64, &more| all.saturating_add(more));
        let nodes = self.head.nodes.len().min(prefixes as usize);
        (rows + NODE_COST_ROWS * nodes) as f64 / self.row_count.max(1) as f64
    }

    /// The first dimension that most groups keep in their rows: those before it are looked at in the head.
    fn head_levels(&self) -> usize {
        let mut rows = 0;
        let is_most = |&slot_count: &usize| {
            rows += slot_count;
            rows >= self.row_count / 2
        };
        let level = self.geometry.slot_counts.iter().position(is_most);
        level.unwrap_or(0)
    }

    /// How many rows a query reaches at most, as far as the place where it starts can tell.
    pub(crate) fn rows_from(&self, query: &QueryBox, (step, level): &Start) -> u64 {
        let rows = match step {
            Step::Absent => 0,
            Step::Group(run) => run.slots.len(),
            Step::Node(node) => {
                let hull = query.dimensions()[*level].hull();
                let children = self.head.children_within(self.node(*node), hull);
                let row = |child: usize| self.head.children[child].row as usize;
                row(children.end) - row(children.start)
            }
        };
        rows as u64
    }

    /// How to answer a query that has `row_count` rows from where it starts and does `cost` for every row it reaches.
    pub(crate) fn plan(
        &self,
        query: &QueryBox,
        start: Start,
        row_count: u64,
        options: &ParallelOptions,
        cost: f64,
    ) -> Plan {
        let is_little = |row_count: f64| !options.is_worth(row_count * cost);
        if is_little(row_count as f64) {
            return Plan::Start(start);
        }
        let head_levels = self.head_levels();
        let reached =
            |level: usize| self.accepted_share(query, level.min(head_levels)..head_levels);
        if is_little(row_count as f64 * reached(start.1 + 1)) {
            return Plan::Start(start);
        }
        let restricted_end = restricted_end(query);
        let morsel_count = (options.thread_count * options.morsels_per_thread.max(1)) as u64;
        let (mut parts, mut total) = (vec![Part { start, row_count }], row_count);
        loop {
            let is_large = |part: &Part| {
                matches!(part.start.0, Step::Node(_)) && part.row_count > total / morsel_count
            };
            // Below the restricted dimensions a node is taken whole, unless it is too much for one morsel.
            let narrows = |part: &Part| {
                matches!(part.start.0, Step::Node(_)) && part.start.1 < restricted_end
            };
            let is_enough = parts.len() as u64 >= 4 * morsel_count;
            let opens = |part: &Part| is_large(part) || narrows(part) && !is_enough;
            if !parts.iter().any(opens) {
                break;
            }
            let mut opened = Vec::with_capacity(parts.len() * 4);
            for part in parts {
                match part.start {
                    (Step::Node(node), level) if opens(&part) => {
                        self.open(query, node, level, &mut opened);
                    }
                    _ => opened.push(part),
                }
            }
            parts = opened;
            total = parts.iter().map(|part| part.row_count).sum();
            let reach = |part: &Part| match part.start {
                (Step::Node(_), level) => part.row_count as f64 * reached(level),
                _ => part.row_count as f64,
            };
            if is_little(parts.iter().map(reach).sum()) {
                return Plan::Morsels(vec![parts]);
            }
        }
        Plan::Morsels(deal(parts, total / morsel_count + 1))
    }

    /// Replaces a node by those of its children that a query accepts; neighbouring groups become one.
    fn open(&self, query: &QueryBox, node: usize, level: usize, parts: &mut Vec<Part>) {
        let restriction = &query.dimensions()[level];
        let is_set = matches!(restriction, Restriction::Set(_));
        let children = self
            .head
            .children_within(self.node(node), restriction.hull());
        if !is_set && let Some(run) = self.bottoms.groups(node, children, level) {
            let row_count = run.slots.len() as u64;
            parts.push(Part {
                start: (Step::Group(run), level + 1),
                row_count,
            });
            return;
        }
        let _ = self
            .head
            .for_children::<()>(self.node(node), restriction.hull(), |child, code| {
                if is_set && code.is_some_and(|code| !restriction.contains(code)) {
                    return ControlFlow::Continue(());
                }
                let row_count = self.head.rows_of(child).len() as u64;
                match (self.child_step(node, child, level), parts.last_mut()) {
                    (Step::Absent, _) => {}
                    (
                        Step::Group(run),
                        Some(Part {
                            start: (Step::Group(last), _),
                            row_count: rows,
                        }),
                    ) if last.level == run.level
                        && last.slots.end == run.slots.start
                        && last.rows().end == run.row =>
                    {
                        last.slots.end = run.slots.end;
                        *rows += row_count;
                    }
                    (step, _) => parts.push(Part {
                        start: (step, level + 1),
                        row_count,
                    }),
                }
                ControlFlow::Continue(())
            });
    }
}

/// Deals parts into morsels of about `target` rows, in order. Groups are cut where a morsel is full.
fn deal(parts: Vec<Part>, target: u64) -> Vec<Vec<Part>> {
    let (mut morsels, mut morsel, mut filled) = (Vec::new(), Vec::new(), 0);
    for mut part in parts {
        while let (Step::Group(run), level) = &mut part.start
            && part.row_count > target - filled
        {
            let cut = (target - filled) as usize;
            let first = Run {
                slots: run.slots.start..run.slots.start + cut,
                ..run.clone()
            };
            run.slots.start += cut;
            run.row += cut as u32;
            part.row_count -= cut as u64;
            morsel.push(Part {
                start: (Step::Group(first), *level),
                row_count: cut as u64,
            });
            morsels.push(std::mem::take(&mut morsel));
            filled = 0;
        }
        filled += part.row_count;
        morsel.push(part);
        if filled >= target {
            morsels.push(std::mem::take(&mut morsel));
            filled = 0;
        }
    }
    morsels.push(morsel);
    morsels
}
