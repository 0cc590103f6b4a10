//! Exact match: one path through the head, then one group.

use hotshelf_tier::simd::prefetch;

use crate::error::{ElfError, Result};

use super::blocks::BlockSource;
use super::geometry::LeafShape;
use super::head::{Link, Node};
use super::leaf::Run;
use super::{ElfHead, PackedElf};

/// Suffix words that need no allocation.
const SUFFIX_WORDS: usize = 4;

/// Calls `with` with a key's codes packed like the suffixes of their level's region; `None` when a code is
/// wider than its column's.
#[inline]
fn with_suffix<R>(shape: &LeafShape, codes: &[u32], with: impl FnOnce(&[u64]) -> R) -> Option<R> {
    let (mut few, mut many) = ([0; SUFFIX_WORDS], Vec::new());
    let words = if shape.word_count() <= SUFFIX_WORDS {
        &mut few[..shape.word_count()]
    } else {
        many.resize(shape.word_count(), 0);
        many.as_mut_slice()
    };
    let mut excess = 0;
    for (field, &code) in shape.fields.iter().zip(codes) {
        excess |= u64::from(code) & !field.mask;
        field.put(words, code);
    }
    (excess == 0).then(|| with(words))
}

/// One step of a descent.
pub(crate) enum Step {
    /// On to this node.
    Node(usize),
    /// The key can only be in this group.
    Group(Run),
    /// The key is not there.
    Absent,
}

impl ElfHead {
    pub(crate) fn check_key(&self, key: &[u32]) -> Result<()> {
        let expected = self.dimension_count();
        if key.len() == expected {
            Ok(())
        } else {
            Err(ElfError::DimensionMismatch {
                expected,
                found: key.len(),
            })
        }
    }

    /// Whether these are whole keys.
    pub(crate) fn check_keys(&self, keys: &[u32]) -> Result<()> {
        let expected = self.dimension_count();
        match keys.len() % expected {
            0 => Ok(()),
            found => Err(ElfError::DimensionMismatch { expected, found }),
        }
    }

    /// Where a descent starts.
    #[inline(always)]
    pub(crate) fn first_step(&self) -> Step {
        match self.root {
            Link::Node(node) => Step::Node(node),
            _ if self.row_count == 0 => Step::Absent,
            _ => Step::Group(Run {
                level: 0,
                slots: 0..self.row_count,
                row: 0,
            }),
        }
    }

    /// The step from the child entry of a node on `level`.
    #[inline(always)]
    pub(crate) fn child_step(&self, node: usize, child: usize, level: usize) -> Step {
        let node = self.node(node);
        if let Some(run) = self.head.groups(node, child..child + 1, level) {
            return if run.slots.is_empty() {
                Step::Absent
            } else {
                Step::Group(run)
            };
        }
        let rows = self.head.rows_of(node, child);
        if rows.is_empty() {
            return Step::Absent;
        }
        let (level, slot) = match self.head.link_of(node, child) {
            Link::Node(node) => return Step::Node(node),
            Link::Below(slot) => (level + 1, slot),
            Link::Here(slot) => (level, slot),
        };
        Step::Group(Run {
            level,
            slots: slot..slot + rows.len(),
            row: rows.start,
        })
    }

    /// Starts loading what a step to a node looks at first.
    #[inline]
    pub(crate) fn prefetch_node(&self, node: usize) {
        prefetch(&self.head.nodes, node);
    }

    #[inline(always)]
    pub(crate) fn node(&self, node: usize) -> &Node {
        &self.head.nodes[node]
    }

    /// The only group that may hold a key.
    #[inline(always)]
    pub(crate) fn descend(&self, key: &[u32]) -> Option<Run> {
        let mut step = self.first_step();
        for (level, &code) in key.iter().enumerate() {
            match step {
                Step::Absent => return None,
                Step::Group(run) => return Some(run),
                Step::Node(node) => {
                    let child = self.head.child_of(self.node(node), code)?;
                    step = self.child_step(node, child, level);
                }
            }
        }
        match step {
            Step::Group(run) => Some(run),
            _ => None,
        }
    }

    /// The part of a run where a key most likely stands.
    #[inline]
    pub(crate) fn likely_part(&self, run: &Run, key: &[u32]) -> Run {
        let rows = self.likely_rows(run, key.get(run.level).copied());
        Run {
            level: run.level,
            slots: run.slots.start + rows.start..run.slots.start + rows.end,
            row: run.row + rows.start as u32,
        }
    }
}

impl<S: BlockSource> PackedElf<S> {
    /// The part of a run whose rows equal the key.
    #[inline]
    pub(crate) fn match_run(&self, run: &Run, key: &[u32]) -> Option<Run> {
        let shape = &self.geometry.shapes[run.level];
        let run = &self.within_fences(run, key[run.level..].iter().copied());
        with_suffix(shape, &key[run.level..], |suffix| {
            let part = self.likely_part(run, key);
            let found = self.match_suffix(&part, suffix);
            if self.is_all(run, &part, found.as_ref(), suffix) {
                found
            } else {
                self.match_suffix(run, suffix)
            }
        })
        .flatten()
    }

    /// Whether what was found in a part is all that the run has: at both ends the part is the run's end, or
    /// has a row that does not match. Without a match, smaller and larger rows must be there.
    #[inline]
    fn is_all(&self, run: &Run, part: &Run, found: Option<&Run>, suffix: &[u64]) -> bool {
        let (starts, ends) = (
            part.slots.start == run.slots.start,
            part.slots.end == run.slots.end,
        );
        if starts && ends {
            return true;
        }
        if let Some(found) = found {
            return (starts || found.slots.start > part.slots.start)
                && (ends || found.slots.end < part.slots.end);
        }
        let Some(&key) = suffix.first() else {
            return false;
        };
        let (leaves, shape) = (self.leaf_view(), &self.geometry.shapes[run.level]);
        let order = |slot: usize| shape.order_of(leaves.first_word(run.level, slot));
        (starts || order(part.slots.start) < shape.order_of(key))
            && (ends || order(part.slots.end - 1) > shape.order_of(key))
    }

    #[inline]
    fn match_suffix(&self, run: &Run, suffix: &[u64]) -> Option<Run> {
        let (mut matched, mut before) = (None::<Run>, 0);
        for piece in self.leaf_view().pieces(run) {
            let mask = piece.equal_mask(self.backend, suffix);
            if mask != 0 {
                // Equal rows stand side by side.
                let first = before + mask.trailing_zeros() as usize;
                let end = before + 64 - mask.leading_zeros() as usize;
                let matched = matched.get_or_insert(Run {
                    level: run.level,
                    slots: run.slots.start + first..0,
                    row: run.row + first as u32,
                });
                matched.slots.end = run.slots.start + end;
            } else if matched.is_some() {
                break;
            }
            before += piece.len;
        }
        matched
    }

    /// Appends the TIDs of all rows equal to `key` to `tids`, ascending.
    ///
    /// # Errors
    /// When the key has another number of dimensions.
    pub fn exact(&self, key: &[u32], tids: &mut Vec<u32>) -> Result<()> {
        self.check_key(key)?;
        let Some(run) = self.descend(key) else {
            return Ok(());
        };
        let codes = key[run.level..].iter().copied();
        if !self.exact_probe(&run, codes, tids) {
            self.exact_in(&run, key, tids);
        }
        Ok(())
    }

    /// Appends the TIDs of all rows of a run whose suffixes are these codes; says whether that could be done without
    /// reading the whole run.
    #[inline(always)]
    pub(crate) fn exact_probe(
        &self,
        run: &Run,
        codes: impl Iterator<Item = u32> + Clone,
        tids: &mut Vec<u32>,
    ) -> bool {
        let Some(probe) = self.probe(run, codes) else {
            return false;
        };
        self.prefetch_probe(&probe);
        self.prefetch_probe_tids(&probe);
        let Some(mut mask) = self.compare(&probe) else {
            return false;
        };
        while mask != 0 {
            let place = self.tid_place(&probe, mask.trailing_zeros() as usize);
            tids.push(self.leaf_view().tid(place));
            mask &= mask - 1;
        }
        true
    }

    /// Appends the TIDs of all rows of a run that equal `key`.
    #[cold]
    fn exact_in(&self, run: &Run, key: &[u32], tids: &mut Vec<u32>) {
        if let Some(run) = self.match_run(run, key) {
            for piece in self.leaf_view().pieces(&run) {
                piece.extend_tids(tids);
            }
        }
    }
}
