//! The walk of a range or partial-match query through the head, depth first: the runs that it has to look at.

use std::ops::ControlFlow;

use crate::keys::{QueryBox, Restriction};

use super::ElfHead;
use super::exact::Step;
use super::head::{Link, Node};
use super::leaf::Run;

/// Siblings looked ahead.
const AHEAD_STEPS: usize = 8;

/// A part of the Elf to search: where it starts and the level of that place.
pub(crate) type Start = (Step, usize);

/// The first dimension from which on none is restricted.
pub(crate) fn restricted_end(query: &QueryBox) -> usize {
    let last = query.dimensions().iter().rposition(|one| !one.is_any());
    last.map_or(0, |last| last + 1)
}

/// Takes the runs that a walk reaches, in Elf order.
pub(crate) trait TakeRuns {
    /// Whether runs of accepted rows must be shown with the groups that they are in, for their TIDs.
    const WANTS_TIDS: bool;

    /// Whether fences say which blocks of a group are taken.
    const IS_FENCED: bool;

    /// A run, and whether all its rows are accepted. Where TIDs are not wanted, the slots of accepted rows only say
    /// how many they are.
    fn take(&mut self, run: Run, is_accepted: bool) -> ControlFlow<()>;
}

/// A query on its way through the head.
pub(crate) struct Walk<'a, T> {
    elf: &'a ElfHead,
    query: &'a QueryBox,
    /// No dimension from here on is restricted.
    restricted_end: usize,
    pub(crate) taker: T,
}

impl<'a, T: TakeRuns> Walk<'a, T> {
    pub(crate) fn new(elf: &'a ElfHead, query: &'a QueryBox, taker: T) -> Self {
        Self {
            elf,
            query,
            restricted_end: restricted_end(query),
            taker,
        }
    }

    #[inline]
    fn enqueue(&mut self, run: Run, is_accepted: bool) -> ControlFlow<()> {
        let is_accepted = is_accepted || run.level >= self.restricted_end;
        self.taker.take(run, is_accepted)
    }

    /// Takes a run of rows of one group.
    #[inline]
    fn enqueue_group(&mut self, run: Run, is_accepted: bool) -> ControlFlow<()> {
        match T::IS_FENCED && !is_accepted {
            true => self.enqueue(self.elf.within_box(&run, self.query), false),
            false => self.enqueue(run, is_accepted),
        }
    }

    /// Walks through everything below a place.
    pub(crate) fn step(&mut self, step: Step, level: usize, is_accepted: bool) -> ControlFlow<()> {
        match step {
            Step::Absent => ControlFlow::Continue(()),
            Step::Group(run) => self.enqueue_group(run, is_accepted),
            Step::Node(at) => {
                let node = self.elf.node(at);
                let is_accepted = is_accepted || level >= self.restricted_end;
                match if is_accepted {
                    Some(true)
                } else {
                    self.zone_verdict(at, level)
                } {
                    Some(false) => ControlFlow::Continue(()),
                    Some(true) if !T::WANTS_TIDS => {
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
            let is_one = children.len() == 1;
            if let Some(run) = elf.head.groups(node, children, level) {
                return match run.slots.is_empty() {
                    true => ControlFlow::Continue(()),
                    false if is_one => self.enqueue_group(run, is_accepted),
                    false => self.enqueue(run, is_accepted),
                };
            }
        }
        if hull.0 == hull.1 {
            return match elf.head.child_of(node, hull.0) {
                Some(child) => self.step(elf.child_step(at, child, level), level + 1, false),
                None => ControlFlow::Continue(()),
            };
        }
        if is_set
            && let Restriction::Set(set) = restriction
            && set.ranges().len() < elf.head.children_within(node, hull).len()
        {
            return self.visit_ranges(at, level, set.ranges());
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

    /// Visits the children of a node within some ranges of codes, which are fewer than the children between them.
    fn visit_ranges(&mut self, at: usize, level: usize, ranges: &[(u32, u32)]) -> ControlFlow<()> {
        let elf = self.elf;
        let node = elf.node(at);
        let mut ahead = [const { Step::Absent }; AHEAD_STEPS];
        let (mut count, mut end) = (0, 0);
        for range in ranges {
            let children = elf.head.children_within(node, *range);
            // One with several codes may be in two ranges.
            for child in children.start.max(end)..children.end {
                let step = elf.child_step(at, child, level);
                if let Step::Node(node) = step {
                    elf.prefetch_node(node);
                }
                ahead[count] = step;
                count += 1;
                if count == AHEAD_STEPS {
                    count = 0;
                    self.take_steps(&mut ahead, level + 1, false)?;
                }
            }
            end = end.max(children.end);
        }
        self.take_steps(&mut ahead[..count], level + 1, false)
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
}

impl ElfHead {
    /// Starts loading what finding the child of `code` takes.
    #[inline]
    fn prefetch_child(&self, at: usize, code: u32) {
        self.head.prefetch_child(self.node(at), code);
    }

    /// All rows below a node of `level` as one run, if they lie in one leaf region: they do when the
    /// first and the last child's groups do and nothing is missing between them.
    #[inline]
    fn single_run(&self, node: &Node, level: usize) -> Option<Run> {
        let head = &self.head;
        let first = node.child_at as usize;
        let last = first + node.child_count as usize - 1;
        let link_of = |child: usize| head.link_of(node, child);
        let (level, start, last_slot) = match (link_of(first), link_of(last)) {
            (Link::Below(start), Link::Below(last)) => (level + 1, start, last),
            (Link::Here(start), Link::Here(last)) => (level, start, last),
            _ => return None,
        };
        let (rows, end) = (
            head.node_rows(node),
            last_slot + head.rows_of(node, last).len(),
        );
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
