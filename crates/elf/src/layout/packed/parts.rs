//! Queries over leaf blocks that are elsewhere: which blocks a query reads is known from the head, so they are fetched
//! together, as many at a time as there is room for.
//!
//! Nothing here reads: the caller fetches the blocks of a [`Part`] and hands them over.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::error::Result;
use crate::keys::QueryBox;

use super::blocks::{BlockSource, FetchedBlocks};
use super::leaf::{LeafTest, Run};
use super::output::{Bits, Count, Output, Ranges, Tids};
use super::search::{Select, Waiting};
use super::tids::{sort_tids, tids_of};
use super::walk::{Start, TakeRuns, Walk};
use super::{ElfHead, PackedElf};

/// What a search is to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// TIDs.
    Tids,
    /// Rows in the Elf's order.
    Rows,
    /// How many rows there are.
    Count,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// TIDs, ascending.
    Tids(Vec<u32>),
    /// Rows in the Elf's order, as ranges that do not touch.
    Rows(Vec<Range<u32>>),
    /// The number of rows.
    Count(u64),
}

/// Collects what a search finds.
enum Out {
    Tids(Tids),
    Bits(Bits),
    Rows(Ranges),
    Count(Count),
}

/// A query, the runs that it has yet to look at, and what it found in the others.
pub struct Search<'q> {
    upper: Arc<ElfHead>,
    query: &'q QueryBox,
    wants_tids: bool,
    runs: VecDeque<Waiting>,
    /// Which regions are read: of each level rows that are not all accepted.
    reads: Vec<bool>,
    out: Out,
}

/// A part of a search.
#[derive(Debug)]
pub struct Part {
    runs: Vec<Waiting>,
    /// The blocks it reads, ascending and not touching.
    pub blocks: Vec<Range<u32>>,
}

/// Keeps the runs of a walk, joined where they touch.
struct Keep<const WANTS_TIDS: bool>(VecDeque<Waiting>);

impl<const WANTS_TIDS: bool> TakeRuns for Keep<WANTS_TIDS> {
    const WANTS_TIDS: bool = WANTS_TIDS;
    const IS_FENCED: bool = true;

    fn take(&mut self, run: Run, is_accepted: bool) -> ControlFlow<()> {
        let rows_only = is_accepted && !WANTS_TIDS;
        match self.0.back_mut() {
            Some(last)
                if last.is_accepted == is_accepted
                    && last.run.level == run.level
                    && last.run.rows().end == run.row
                    && (rows_only || last.run.slots.end == run.slots.start) =>
            {
                last.run.slots.end += run.slots.len();
            }
            _ => self.0.push_back(Waiting { run, is_accepted }),
        }
        ControlFlow::Continue(())
    }
}

impl ElfHead {
    /// Begins a query.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn search<'q>(self: &Arc<Self>, query: &'q QueryBox, wanted: Wanted) -> Result<Search<'q>> {
        query.check(self.dimension_count())?;
        let start = self.start_of(query);
        let out = match wanted {
            Wanted::Tids if self.accepts_many(query, &start) => {
                Out::Bits(Bits::new(self.row_count))
            }
            Wanted::Tids => Out::Tids(Tids::all()),
            Wanted::Rows => Out::Rows(Ranges::default()),
            Wanted::Count => Out::Count(Count::all()),
        };
        let wants_tids = wanted == Wanted::Tids;
        let tests = self.geometry.shapes.iter().enumerate();
        let tests = tests.map(|(level, shape)| LeafTest::new(query, level, shape));
        let reads = tests.map(|test| !test.accepts_none && (wants_tids || !test.accepts_all));
        let runs = match (query.is_none(), wants_tids) {
            (true, _) => VecDeque::new(),
            (false, true) => self.runs_of::<true>(query, start),
            (false, false) => self.runs_of::<false>(query, start),
        };
        Ok(Search {
            reads: reads.collect(),
            upper: self.clone(),
            query,
            wants_tids,
            runs,
            out,
        })
    }

    fn runs_of<const WANTS_TIDS: bool>(
        &self,
        query: &QueryBox,
        (step, level): Start,
    ) -> VecDeque<Waiting> {
        let mut walk = Walk::new(self, query, Keep::<WANTS_TIDS>(VecDeque::new()));
        let _ = walk.step(step, level, false);
        walk.taker.0
    }

    /// The blocks of a run.
    pub(crate) fn blocks_of(&self, run: &Run) -> Range<u32> {
        let shape = &self.geometry.shapes[run.level];
        if shape.rows_per_block == 0 || run.slots.is_empty() {
            return 0..0;
        }
        let first = self.geometry.first_blocks[run.level];
        let (start, _) = shape.locate(run.slots.start);
        let (last, _) = shape.locate(run.slots.end - 1);
        (first + start) as u32..(first + last + 1) as u32
    }

    /// The blocks that reading rows back reads, ascending and not touching: see [`PackedElf::read_rows`] and
    /// [`PackedElf::read_tids`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn blocks_of_rows(
        &self,
        rows: &[Range<u32>],
        wanted: &RowParts<'_>,
    ) -> Result<Vec<Range<u32>>> {
        let (columns, end) = match wanted {
            RowParts::Codes(columns) => (*columns, columns.iter().max().map_or(0, |last| last + 1)),
            RowParts::Tids if self.is_clustered() => (&[][..], 0),
            RowParts::Tids => (&[][..], usize::MAX),
        };
        let mut blocks = Vec::new();
        self.for_runs(rows, columns, |run, _| {
            if run.level < end {
                blocks.push(self.blocks_of(run));
            }
        })?;
        Ok(joined(blocks))
    }
}

/// What is read back of rows.
pub(crate) enum RowParts<'a> {
    /// The codes of these columns.
    Codes(&'a [usize]),
    Tids,
}

/// Ranges in order, joined where they touch.
pub(crate) fn joined(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut all: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

impl Search<'_> {
    /// The next part, which reads at most this many blocks, or one; `None` when all runs are taken.
    pub fn next_part(&mut self, block_count_max: usize) -> Option<Part> {
        let (mut runs, mut blocks, mut room) = (Vec::new(), Vec::new(), block_count_max.max(1));
        // Runs of a region ascend: up to where its blocks are in this part.
        let mut ends = vec![0; self.reads.len()];
        while let Some(waiting) = self.runs.pop_front() {
            if !self.is_read(&waiting) {
                runs.push(waiting);
                continue;
            }
            let wanted = self.upper.blocks_of(&waiting.run);
            let end = &mut ends[waiting.run.level];
            let known = (*end).clamp(wanted.start, wanted.end) - wanted.start;
            let added = wanted.len() - known as usize;
            if added <= room {
                room -= added;
                *end = wanted.end;
                blocks.push(wanted);
                runs.push(waiting);
                continue;
            }
            if known as usize + room > 0 {
                let (first, rest) = self.cut(waiting, known as usize + room);
                blocks.push(self.upper.blocks_of(&first.run));
                runs.push(first);
                self.runs.push_front(rest);
            } else {
                self.runs.push_front(waiting);
            }
            break;
        }
        (!runs.is_empty()).then(|| Part {
            runs,
            blocks: joined(blocks),
        })
    }

    /// Whether a run's blocks are read at all.
    fn is_read(&self, waiting: &Waiting) -> bool {
        match waiting.is_accepted {
            true => self.wants_tids,
            false => self.reads[waiting.run.level],
        }
    }

    /// A run cut after this many of its blocks, of which it has more.
    fn cut(&self, waiting: Waiting, block_count: usize) -> (Waiting, Waiting) {
        let Waiting { run, is_accepted } = waiting;
        let shape = &self.upper.geometry.shapes[run.level];
        let (_, position) = shape.locate(run.slots.start);
        let row_count = block_count * shape.rows_per_block - position;
        let middle = run.slots.start + row_count;
        let part = |slots: Range<usize>, row: u32| Waiting {
            run: Run {
                level: run.level,
                slots,
                row,
            },
            is_accepted,
        };
        (
            part(run.slots.start..middle, run.row),
            part(middle..run.slots.end, run.row + row_count as u32),
        )
    }

    /// Answers a part from its blocks. Parts are answered in their order.
    pub fn answer(&mut self, part: Part, blocks: FetchedBlocks) {
        let elf = PackedElf::new(self.upper.clone(), blocks);
        fn run<S: BlockSource, O: Output>(
            elf: &PackedElf<S>,
            query: &QueryBox,
            runs: Vec<Waiting>,
            out: &mut O,
            none: O,
        ) {
            *out = Select::new(elf, query, std::mem::replace(out, none)).run_all(runs);
        }
        match &mut self.out {
            Out::Tids(out) => run(&elf, self.query, part.runs, out, Tids::all()),
            Out::Bits(out) => run(&elf, self.query, part.runs, out, Bits::new(0)),
            Out::Rows(out) => run(&elf, self.query, part.runs, out, Ranges::default()),
            Out::Count(out) => run(&elf, self.query, part.runs, out, Count::all()),
        }
    }

    /// What was found in all parts that were answered.
    pub fn finish(self) -> Found {
        match self.out {
            Out::Tids(mut out) => {
                sort_tids(self.upper.backend, &mut out.tids);
                Found::Tids(out.tids)
            }
            Out::Bits(out) => Found::Tids(tids_of(out)),
            Out::Rows(out) => Found::Rows(out.ranges),
            Out::Count(out) => Found::Count(out.count),
        }
    }
}
