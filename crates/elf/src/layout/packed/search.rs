//! The search of a range or partial-match query: packed tests of the groups that its walk reaches.
//!
//! Groups that follow each other in a leaf region are tested as one run. A run waits in a short queue
//! while its cache lines are on their way.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use crate::keys::QueryBox;

use super::PackedElf;
use super::blocks::BlockSource;
use super::exact::Step;
use super::leaf::{LeafTest, Run};
use super::output::Output;
use super::walk::{Start, TakeRuns, Walk, restricted_end};

/// Runs that wait for their cache lines.
const QUEUE_RUNS: usize = 8;

/// Longer runs are not prefetched as a whole, but block by block while they are read.
pub(crate) const PREFETCH_ROWS: usize = 256;

/// In long runs, pieces with accepted rows wait for their TIDs.
const DELAYED_PIECES: usize = 8;

/// A query being answered.
pub(crate) struct Select<'a, S, O> {
    elf: &'a PackedElf<S>,
    query: &'a QueryBox,
    /// The tests of leaf regions, by level, made when first needed.
    tests: Vec<(usize, LeafTest<'a>)>,
    queue: VecDeque<Waiting>,
    out: O,
}

/// A run, and whether all its rows are known to be accepted.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) run: Run,
    pub(crate) is_accepted: bool,
}

impl<'a, S: BlockSource, O: Output> Select<'a, S, O> {
    pub(crate) fn new(elf: &'a PackedElf<S>, query: &'a QueryBox, out: O) -> Self {
        Self {
            elf,
            query,
            tests: Vec::new(),
            queue: VecDeque::new(),
            out,
        }
    }

    /// Searches everything below one place and returns the output.
    pub(crate) fn run_one(mut self, (step, level): Start) -> O {
        if let Step::Group(run) = step {
            let is_accepted = run.level >= restricted_end(self.query);
            let run = match S::IS_FENCED && !is_accepted {
                true => self.elf.within_box(&run, self.query),
                false => run,
            };
            self.prefetch(&run, is_accepted);
            let _ = self.answer(&Waiting { run, is_accepted });
            return self.out;
        }
        self.run([(step, level)])
    }

    /// Searches everything below the given places, in order, and returns the output.
    pub(crate) fn run(self, starts: impl IntoIterator<Item = Start>) -> O {
        let mut walk = Walk::new(&self.elf.upper, self.query, self);
        let mut starts = starts.into_iter();
        let flow = starts.try_for_each(|(step, level)| walk.step(step, level, false));
        walk.taker.finish(flow)
    }

    /// Answers runs that were found before, in order, and returns the output.
    pub(crate) fn run_all(mut self, runs: impl IntoIterator<Item = Waiting>) -> O {
        let mut runs = runs.into_iter();
        let flow = runs.try_for_each(|waiting| self.take(waiting.run, waiting.is_accepted));
        self.finish(flow)
    }

    fn finish(mut self, mut flow: ControlFlow<()>) -> O {
        while flow.is_continue() {
            let Some(waiting) = self.queue.pop_front() else {
                break;
            };
            flow = self.answer(&waiting);
        }
        self.out
    }

    /// Starts loading what answering a run will read.
    #[inline]
    fn prefetch(&self, run: &Run, is_accepted: bool) {
        if run.slots.len() >= PREFETCH_ROWS {
            return;
        }
        if !is_accepted {
            self.elf.leaf_view().prefetch(run);
        } else if O::WANTS_TIDS {
            self.elf.leaf_view().prefetch_tids(run);
        }
    }

    /// The index in `tests` of the test of a level's region.
    #[inline]
    fn test_of(&mut self, level: usize) -> usize {
        match self.tests.iter().position(|(one, _)| *one == level) {
            Some(at) => at,
            None => {
                let shape = &self.elf.geometry.shapes[level];
                self.tests
                    .push((level, LeafTest::new(self.query, level, shape)));
                self.tests.len() - 1
            }
        }
    }

    fn answer(&mut self, waiting: &Waiting) -> ControlFlow<()> {
        let Waiting { run, is_accepted } = waiting;
        let test = if *is_accepted {
            None
        } else {
            Some(self.test_of(run.level))
        };
        let test = test.map(|at| &self.tests[at].1);
        if test.is_some_and(|test| test.accepts_none) {
            return ControlFlow::Continue(());
        }
        let test = test.filter(|test| !test.accepts_all);
        if test.is_none() && !O::WANTS_TIDS {
            return self.out.rows(run.rows());
        }
        let elf = self.elf;
        let shape = &elf.geometry.shapes[run.level];
        let is_long = run.slots.len() >= PREFETCH_ROWS;
        let look_ahead = |words: Range<usize>| {
            let pieces = elf.leaf_view().pieces(run);
            if is_long {
                pieces.looking_ahead(words)
            } else {
                pieces
            }
        };
        let Some(test) = test else {
            self.out.expect(run.slots.len());
            let tid_words = if elf.is_clustered() {
                0..0
            } else {
                shape.tid_words()
            };
            return look_ahead(tid_words).try_for_each(|piece| self.out.piece(&piece, piece.all()));
        };
        let delays_tids = is_long && O::WANTS_TIDS && !elf.is_clustered();
        let mut delayed = VecDeque::new();
        for piece in look_ahead(test.words(shape)) {
            let mask = piece.test_mask(elf.backend, test);
            if mask == 0 {
                continue;
            }
            if !delays_tids {
                self.out.piece(&piece, mask)?;
                continue;
            }
            piece.prefetch_tids(mask);
            if delayed.len() == DELAYED_PIECES
                && let Some((piece, mask)) = delayed.pop_front()
            {
                self.out.piece(&piece, mask)?;
            }
            delayed.push_back((piece, mask));
        }
        delayed
            .into_iter()
            .try_for_each(|(piece, mask)| self.out.piece(&piece, mask))
    }
}

impl<S: BlockSource, O: Output> TakeRuns for Select<'_, S, O> {
    const WANTS_TIDS: bool = O::WANTS_TIDS;
    const IS_FENCED: bool = S::IS_FENCED;

    /// Queues a run, or lengthens the last one by it.
    #[inline]
    fn take(&mut self, run: Run, is_accepted: bool) -> ControlFlow<()> {
        if let Some(last) = self.queue.back_mut()
            && last.is_accepted == is_accepted
            && last.run.level == run.level
            && last.run.rows().end == run.row
        {
            let rows_only = is_accepted && !O::WANTS_TIDS;
            if rows_only || last.run.slots.end == run.slots.start {
                let is_short = last.run.slots.len() < PREFETCH_ROWS;
                last.run.slots.end += run.slots.len();
                if is_short {
                    self.prefetch(&run, is_accepted);
                }
                return ControlFlow::Continue(());
            }
        }
        if self.queue.len() == QUEUE_RUNS
            && let Some(waiting) = self.queue.pop_front()
        {
            self.answer(&waiting)?;
        }
        self.prefetch(&run, is_accepted);
        self.queue.push_back(Waiting { run, is_accepted });
        ControlFlow::Continue(())
    }
}
