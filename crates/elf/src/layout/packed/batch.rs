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
        let mut lanes = Vec::with_capacity(LANES);
        for (batch, keys) in keys.chunks(LANES * dimension_count).enumerate() {
            self.descend_all(keys, &mut lanes);
            for (lane, key) in lanes.iter_mut().zip(keys.chunks(dimension_count)) {
                if let Lane::Group(run) = lane {
                    *lane = match self.match_run(run, key) {
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
                        (0..piece.len).for_each(|at| found(batch * LANES + idx, piece.tid(at)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves all keys to their groups, whose suffixes are then on their way.
    fn descend_all(&self, keys: &[u32], lanes: &mut Vec<Lane>) {
        let dimension_count = self.dimension_count();
        lanes.clear();
        for key in keys.chunks(dimension_count) {
            let lane = self.enter(self.first_step(), key);
            lanes.push(lane);
        }
        for level in 0..dimension_count {
            let mut is_busy = false;
            for (lane, key) in lanes.iter_mut().zip(keys.chunks(dimension_count)) {
                if let Lane::Node(node) = *lane {
                    *lane = match self.head.child_of(self.node(node), key[level]) {
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
            for (lane, key) in lanes.iter_mut().zip(keys.chunks(dimension_count)) {
                if let Lane::Child(child) = *lane {
                    *lane = self.enter(self.child_step(child, level), key);
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
