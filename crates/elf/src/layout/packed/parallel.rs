//! One query on several threads.
//!
//! The places that a query reaches are opened level by level, so that it is known, from the head alone,
//! how many rows lie below each. They are then dealt out in morsels of about equal rows; every thread has
//! its own output, and outputs are joined in row order. A query that reaches few rows is answered by the
//! calling thread, from the places already found: nothing is done twice.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::keys::{QueryBox, Restriction};
use crate::rows::for_each_parallel;

use super::PackedElf;
use super::exact::Step;
use super::leaf::Run;
use super::output::{Count, Output, Tids};
use super::select::{Select, Start, restricted_end};
use super::tids::sort_parts;

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

/// A place and the rows below it.
struct Part {
    start: Start,
    row_count: u64,
}

/// A query's places: worth several threads or not.
enum Plan {
    Sequential(Vec<Part>),
    Morsels(Vec<Vec<Part>>),
}

impl<S: AsRef<[u64]> + Sync> PackedElf<S> {
    /// [`Self::select`] on several threads.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn select_parallel(&self, query: &QueryBox, options: &ParallelOptions) -> Result<Vec<u32>> {
        let outputs = self.answer_parallel(query, options, Tids::all)?;
        let parts = outputs.into_iter().map(|out| out.tids).collect();
        Ok(sort_parts(self.backend, parts, options.thread_count))
    }

    /// [`Self::count`] on several threads.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn count_parallel(&self, query: &QueryBox, options: &ParallelOptions) -> Result<u64> {
        let outputs = self.answer_parallel(query, options, || Count {
            count: 0,
            enough: u64::MAX,
        })?;
        Ok(outputs.into_iter().map(|out| out.count).sum())
    }

    fn answer_parallel<O: Output + Send>(
        &self,
        query: &QueryBox,
        options: &ParallelOptions,
        output: impl Fn() -> O + Sync,
    ) -> Result<Vec<O>> {
        query.check(self.dimension_count())?;
        if query.is_none() {
            return Ok(Vec::new());
        }
        let start = self.start_of(query);
        if options.thread_count < 2 || self.rows_from(query, &start) < options.rows_min {
            return Ok(vec![Select::new(self, query, output()).run_one(start)]);
        }
        let run = |parts: Vec<Part>| {
            let starts = parts.into_iter().map(|part| part.start);
            Select::new(self, query, output()).run(starts)
        };
        match self.plan(query, start, options) {
            Plan::Sequential(parts) => Ok(vec![run(parts)]),
            Plan::Morsels(morsels) => {
                let mut outputs: Vec<Option<O>> = morsels.iter().map(|_| None).collect();
                let work: Vec<_> = morsels.into_iter().zip(&mut outputs).collect();
                for_each_parallel(options.thread_count, work, |(parts, out)| {
                    *out = Some(run(parts))
                });
                Ok(outputs.into_iter().flatten().collect())
            }
        }
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

    fn plan(&self, query: &QueryBox, start: Start, options: &ParallelOptions) -> Plan {
        let row_count = self.rows_from(query, &start);
        let mut parts = vec![Part { start, row_count }];
        let restricted_end = restricted_end(query);
        let morsel_count = (options.thread_count * options.morsels_per_thread.max(1)) as u64;
        let mut total = row_count;
        loop {
            if total < options.rows_min {
                return Plan::Sequential(parts);
            }
            let is_large = |part: &Part| {
                matches!(part.start.0, Step::Node(_)) && part.row_count > total / morsel_count
            };
            // Below the restricted dimensions a node is taken whole, unless it is too much for one morsel.
            let narrows = |part: &Part| {
                matches!(part.start.0, Step::Node(_)) && part.start.1 < restricted_end
            };
            let is_enough = parts.len() as u64 >= 4 * morsel_count;
            if !parts
                .iter()
                .any(|part| is_large(part) || narrows(part) && !is_enough)
            {
                break;
            }
            let mut opened = Vec::with_capacity(parts.len() * 4);
            for part in parts {
                match part.start {
                    (Step::Node(node), level)
                        if is_large(&part) || !is_enough && narrows(&part) =>
                    {
                        self.open(query, node, level, &mut opened);
                    }
                    _ => opened.push(part),
                }
            }
            parts = opened;
            total = parts.iter().map(|part| part.row_count).sum();
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
