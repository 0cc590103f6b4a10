//! The search of a range or partial-match query: depth first through the head, then packed tests of whole groups.
//!
//! Groups that follow each other in a leaf region are tested as one run. A run waits in a short queue
//! while its cache lines are on their way.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use crate::keys::{QueryBox, Restriction};

use super::PackedElf;
use super::exact::Step;
use super::head::{Link, Node, NodeKind};
use super::leaf::{LeafTest, Run};
use super::output::Output;

/// Runs that wait for their cache lines.
const QUEUE_RUNS: usize = 8;

/// Longer runs are not prefetched as a whole, but block by block while they are read.
pub(crate) const PREFETCH_ROWS: usize = 256;

/// In long runs, pieces with accepted rows wait for their TIDs.
const DELAYED_PIECES: usize = 8;

/// Siblings looked ahead.
const AHEAD_STEPS: usize = 8;

/// A part of the Elf to search: where it starts and the level of that place.
pub(crate) type Start = (Step, usize);

/// A query being answered.
pub(crate) struct Select<'a, S, O> {
    elf: &'a PackedElf<S>,
    query: &'a QueryBox,
    /// No dimension from here on is restricted.
    restricted_end: usize,
    /// The tests of leaf regions, by level, made when first needed.
    tests: Vec<(usize, LeafTest<'a>)>,
    queue: VecDeque<Waiting>,
    out: O,
}

/// A run, and whether all its rows are known to be accepted.
struct Waiting {
    run: Run,
    is_accepted: bool,
}

/// The first dimension from which on none is restricted.
pub(crate) fn restricted_end(query: &QueryBox) -> usize {
    let last = query.dimensions().iter().rposition(|one| !one.is_any());
    last.map_or(0, |last| last + 1)
}

impl<'a, S: AsRef<[u64]>, O: Output> Select<'a, S, O> {
    pub(crate) fn new(elf: &'a PackedElf<S>, query: &'a QueryBox, out: O) -> Self {
        Self {
            elf,
            query,
            restricted_end: restricted_end(query),
            tests: Vec::new(),
            queue: VecDeque::new(),
            out,
        }
    }

    /// Searches everything below one place and returns the output.
    pub(crate) fn run_one(mut self, (step, level): Start) -> O {
        if let Step::Group(run) = step {
            let is_accepted = run.level >= self.restricted_end;
            self.prefetch(&run, is_accepted);
            let _ = self.answer(&Waiting { run, is_accepted });
            return self.out;
        }
        self.run([(step, level)])
    }

    /// Searches everything below the given places, in order, and returns the output.
    pub(crate) fn run(mut self, starts: impl IntoIterator<Item = Start>) -> O {
        let mut starts = starts.into_iter();
        let mut flow = starts.try_for_each(|(step, level)| self.step(step, level, false));
        while flow.is_continue() {
            let Some(waiting) = self.queue.pop_front() else {
                break;
            };
            flow = self.answer(&waiting);
        }
        self.out
    }

    fn step(&mut self, step: Step, level: usize, is_accepted: bool) -> ControlFlow<()> {
        match step {
            Step::Absent => ControlFlow::Continue(()),
            Step::Group(run) => self.enqueue(run, is_accepted),
            Step::Node(at) => {
                let node = self.elf.node(at);
                let is_accepted = is_accepted || level >= self.restricted_end;
                match if is_accepted {
                    Some(true)
                } else {
                    self.zone_verdict(at, level)
                } {
                    Some(false) => ControlFlow::Continue(()),
                    Some(true) if !O::WANTS_TIDS => {
                        let rows = self.elf.head.node_rows(node);
                        let slots = 0..rows.len();
                        self.enqueue(
                            Run {
                                level: 0,
                                slots,
                                row: rows.start,
                            },
                            true,
                        )
                    }
                    verdict => self.visit(at, level, verdict.is_some()),
                }
            }
        }
    }

    /// Whether all rows below a node are accepted, or none are, as far as its zone says.
    fn zone_verdict(&self, node: usize, level: usize) -> Option<bool> {
        let bounds = self
            .elf
            .zones
            .of(node, self.elf.dimension_count() - level)?;
        let mut is_inside = true;
        for (column, &(min, max)) in (level..self.restricted_end).zip(bounds) {
            let (lo, hi) = self.query.dimensions()[column].hull();
            if max < lo || min > hi {
                return Some(false);
            }
            let is_set = matches!(self.query.dimensions()[column], Restriction::Set(_));
            is_inside &= lo <= min && max <= hi && !is_set;
        }
        is_inside.then_some(true)
    }

    fn visit(&mut self, at: usize, level: usize, is_accepted: bool) -> ControlFlow<()> {
        let elf = self.elf;
        let node = elf.node(at);
        let restriction = &self.query.dimensions()[level];
        let hull = if is_accepted {
            (0, u32::MAX)
        } else {
            restriction.hull()
        };
        if (is_accepted || restriction.is_any())
            && let Some(run) = elf.single_run(node, level)
        {
            return self.enqueue(run, is_accepted);
        }
        let is_set = !is_accepted && matches!(restriction, Restriction::Set(_));
        if !is_set {
            let children = elf.head.children_within(node, hull);
            if let Some(run) = elf.bottoms.groups(at, children, level) {
                return if run.slots.is_empty() {
                    ControlFlow::Continue(())
                } else {
                    self.enqueue(run, is_accepted)
                };
            }
        }
        if hull.0 == hull.1 {
            return match elf.head.child_of(node, hull.0) {
                Some(child) => self.step(elf.child_step(at, child, level), level + 1, false),
                None => ControlFlow::Continue(()),
            };
        }
        let mut ahead = [const { Step::Absent }; AHEAD_STEPS];
        let mut count = 0;
        elf.head.for_children(node, hull, |child, code| {
            if is_set && code.is_some_and(|code| !restriction.contains(code)) {
                return ControlFlow::Continue(());
            }
            let step = elf.child_step(at, child, level);
            if let Step::Node(node) = step {
                elf.prefetch_node(node);
            }
            ahead[count] = step;
            count += 1;
            if count == AHEAD_STEPS {
                count = 0;
                return self.take_steps(&mut ahead, level + 1, is_accepted);
            }
            ControlFlow::Continue(())
        })?;
        self.take_steps(&mut ahead[..count], level + 1, is_accepted)
    }

    /// Takes steps to siblings, after asking for what each will look at.
    #[inline]
    fn take_steps(
        &mut self,
        steps: &mut [Step],
        level: usize,
        is_accepted: bool,
    ) -> ControlFlow<()> {
        let elf = self.elf;
        if !is_accepted && level < self.restricted_end {
            let (lo, _) = self.query.dimensions()[level].hull();
            for step in steps.iter() {
                if let Step::Node(node) = step {
                    elf.prefetch_child(*node, lo);
                }
            }
        }
        for step in steps {
            self.step(std::mem::replace(step, Step::Absent), level, is_accepted)?;
        }
        ControlFlow::Continue(())
    }

    /// Queues a run, or lengthens the last one by it.
    #[inline]
    fn enqueue(&mut self, run: Run, is_accepted: bool) -> ControlFlow<()> {
        let is_accepted = is_accepted || run.level >= self.restricted_end;
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

impl<S: AsRef<[u64]>> PackedElf<S> {
    /// Starts loading what finding the child of `code` takes.
    #[inline]
    fn prefetch_child(&self, at: usize, code: u32) {
        let node = self.node(at);
        let child = node.child_at + code.saturating_sub(node.first_code).min(node.last_offset);
        if node.kind != NodeKind::Dense || !self.bottoms.prefetch_child(at, child as usize) {
            self.head.prefetch_child(node, code);
        }
    }

    /// All rows below a node of `level` as one run, if they lie in one leaf region: they do when the
    /// first and the last child's groups do and nothing is missing between them.
    #[inline]
    fn single_run(&self, node: &Node, level: usize) -> Option<Run> {
        let head = &self.head;
        let first = node.child_at as usize;
        let last = first + node.child_count as usize - 1;
        let link_of = |child: usize| Link::unpack(head.children[child].link);
        let (level, start, last_slot) = match (link_of(first), link_of(last)) {
            (Link::Below(start), Link::Below(last)) => (level + 1, start, last),
            (Link::Here(start), Link::Here(last)) => (level, start, last),
            _ => return None,
        };
        let (rows, end) = (head.node_rows(node), last_slot + head.rows_of(last).len());
        let is_gapless = start + rows.len() == end;
        is_gapless.then_some(Run {
            level,
            slots: start..end,
            row: rows.start,
        })
    }

    /// Where the search for a query starts: as long as its dimensions accept one code each, there is
    /// only one way to go.
    #[inline]
    pub(crate) fn start_of(&self, query: &QueryBox) -> Start {
        let mut step = self.first_step();
        for (level, restriction) in query.dimensions().iter().enumerate() {
            match (&step, restriction) {
                (Step::Node(node), Restriction::Range { lo, hi }) if lo == hi => {
                    step = match self.head.child_of(self.node(*node), *lo) {
                        Some(child) => self.child_step(*node, child, level),
                        None => Step::Absent,
                    }
                }
                _ => return (step, level),
            }
        }
        (step, self.dimension_count())
    }
}
