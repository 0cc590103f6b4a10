//! Batched exact match: the memory accesses of many keys overlap.
//!
//! Keys are taken [`LANES`] at a time and moved through the head step by step together; before a step
//! needs a cache line, all lanes have asked for theirs; the suffixes come after the head, and the TIDs of the hits last.

use hotshelf_tier::simd::prefetch;

use crate::error::{ElfError, Result};

use super::PackedElf;
use super::exact::Step;
use super::leaf::Run;

/// Keys in flight. More than the memory system's outstanding loads per core, so that it stays busy.
const LANES: usize = 32;

/// Keys are ordered first when there is one for every so many rows, or more.
const ORDERED_SHARE: usize = 256;

/// First bits of the packed key that decide the order.
const ORDER_BITS: u32 = 16;

/// Where the key of a lane has got to.
enum Lane {
    /// About to look at this node.
    Node(usize),
    /// About to look at this child entry.
    Child(usize),
    /// About to compare with this group, or found in this part of it.
    Group(Run),
    Done,
}

impl<S: AsRef<[u64]>> PackedElf<S> {
    /// Looks up many keys. `keys` holds one code per dimension for each, one key after the other. Calls
    /// `found(key_idx, tid)` for every row equal to a key; the hits of one key come together, ascending.
    ///
    /// # Errors
    /// When `keys` is not a whole number of keys.
    pub fn exact_batch(&self, keys: &[u32], mut found: impl FnMut(usize, u32)) -> Result<()> {
        let dimension_count = self.dimension_count();
        if !keys.len().is_multiple_of(dimension_count) {
            return Err(ElfError::DimensionMismatch {
                expected: dimension_count,
                found: keys.len() % dimension_count,
            });
        }
        let key_count = keys.len() / dimension_count;
        let order = self.order_of(keys, key_count);
        let idx_at = |at: usize| order.get(at).map_or(at, |&idx| idx as usize);
        let key_at = |at: usize| &keys[idx_at(at) * dimension_count..][..dimension_count];
        let mut lanes = Vec::with_capacity(LANES);
        for first in (0..key_count).step_by(LANES) {
            let end = key_count.min(first + LANES);
            (end..key_count.min(end + LANES)).for_each(|at| prefetch(key_at(at), 0));
            self.descend_all(|lane| key_at(first + lane), end - first, &mut lanes);
            for (idx, lane) in lanes.iter_mut().enumerate() {
                if let Lane::Group(run) = lane {
                    *lane = match self.match_run(run, key_at(first + idx)) {
                        Some(run) => {
                            self.leaf_view().prefetch_tids(&run);
                            Lane::Group(run)
                        }
                        None => Lane::Done,
                    };
                }
            }
            for (idx, lane) in lanes.iter().enumerate() {
                if let Lane::Group(run) = lane {
                    for piece in self.leaf_view().pieces(run) {
                        (0..piece.len).for_each(|at| found(idx_at(first + idx), piece.tid(at)));
                    }
                }
            }
        }
        Ok(())
    }

    /// The order in which to look keys up: by their first codes, roughly, when they are so many that
    /// neighbours then share pages and lines; otherwise as they come, which is an empty order.
    fn order_of(&self, keys: &[u32], key_count: usize) -> Vec<u32> {
        let is_few = key_count < LANES || key_count < self.row_count / ORDERED_SHARE;
        if is_few || u32::try_from(key_count).is_err() {
            return Vec::new();
        }
        let shape = &self.geometry.shapes[0];
        let digit = |key: &[u32]| {
            let codes = shape
                .fields
                .iter()
                .zip(key)
                .filter(|(field, _)| field.word == 0);
            let word = codes.fold(0, |word, (field, &code)| {
                word | u64::from(code).min(field.mask) << field.shift
            });
            (word >> (64 - ORDER_BITS)) as usize
        };
        let mut starts = vec![0u32; (1 << ORDER_BITS) + 1];
        let keys = || keys.chunks_exact(self.dimension_count());
        keys().for_each(|key| starts[digit(key) + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut order = vec![0; key_count];
        for (idx, key) in keys().enumerate() {
            let start = &mut starts[digit(key)];
            order[*start as usize] = idx as u32;
            *start += 1;
        }
        order
    }

    /// Moves the keys of all lanes to their groups, whose suffixes are then on their way.
    fn descend_all<'k>(
        &self,
        key_of: impl Fn(usize) -> &'k [u32],
        lane_count: usize,
        lanes: &mut Vec<Lane>,
    ) {
        lanes.clear();
        lanes.extend((0..lane_count).map(|lane| self.enter(self.first_step(), key_of(lane))));
        for level in 0..self.dimension_count() {
            let mut is_busy = false;
            for (idx, lane) in lanes.iter_mut().enumerate() {
                if let Lane::Node(node) = *lane {
                    *lane = match self.head.child_of(self.node(node), key_of(idx)[level]) {
                        Some(child) => {
                            prefetch(&self.head.children, child);
                            Lane::Child(child)
                        }
                        None => Lane::Done,
                    };
                    is_busy = true;
                }
            }
            if !is_busy {
                break;
            }
            for (idx, lane) in lanes.iter_mut().enumerate() {
                if let Lane::Child(child) = *lane {
                    *lane = self.enter(self.child_step(child, level), key_of(idx));
                }
            }
        }
    }

    /// The lane's state after a step, with what it needs next on its way.
    #[inline]
    fn enter(&self, step: Step, key: &[u32]) -> Lane {
        match step {
            Step::Absent => Lane::Done,
            Step::Node(node) => {
                prefetch(&self.head.nodes, node);
                Lane::Node(node)
            }
            Step::Group(run) => match self.narrow(run, key) {
                Some(run) => {
                    self.leaf_view().prefetch(&self.likely_part(&run, key));
                    Lane::Group(run)
                }
                None => Lane::Done,
            },
        }
    }
}
