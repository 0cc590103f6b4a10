//! Batched exact match: the memory accesses of many keys overlap.
//!
//! Keys are taken [`LANES`] at a time. All of them descend to their groups, whose suffixes are then on their
//! way; next all suffixes are compared, and the TIDs of the hits asked for; the TIDs come last. Many keys are
//! ordered first, so that neighbours share nodes, pages and lines of the head; few move through the head
//! level by level together, because each of its lines may be far away as well.

use hotshelf_tier::simd::prefetch;

use crate::error::{ElfError, Result};

use super::PackedElf;
use super::exact::Step;
use super::leaf::Run;

/// Keys in flight. More than the memory system's outstanding loads per core, so that it stays busy.
const LANES: usize = 32;

/// Keys are ordered first when there is one for every so many rows, or more.
const ORDERED_SHARE: usize = 256;

/// First bits of the packed key that decide the order, at most.
const ORDER_BITS_MAX: u32 = 16;

/// The keys of a batch and the order in which they are looked up.
struct Keys<'k> {
    codes: &'k [u32],
    dimension_count: usize,
    /// Empty when keys are taken as they come.
    order: Vec<u32>,
}

impl<'k> Keys<'k> {
    /// Number of the key that comes `at`-th.
    #[inline]
    fn idx(&self, at: usize) -> usize {
        self.order.get(at).map_or(at, |&idx| idx as usize)
    }

    /// The key that comes `at`-th.
    #[inline]
    fn key(&self, at: usize) -> &'k [u32] {
        &self.codes[self.idx(at) * self.dimension_count..][..self.dimension_count]
    }
}

/// Keys at nodes: place in the order, and node.
type Travellers = Vec<(usize, usize)>;

/// Keys in flight.
#[derive(Default)]
struct Flight {
    at_nodes: Travellers,
    /// Place in the order, node and child entry.
    at_children: Vec<(usize, usize, usize)>,
    /// Keys that reached a group, or were found in this part of it.
    runs: Vec<(usize, Run)>,
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
        let keys = Keys {
            codes: keys,
            dimension_count,
            order: self.order_of(keys, key_count),
        };
        let mut flight = Flight::default();
        for first in (0..key_count).step_by(LANES) {
            let end = key_count.min(first + LANES);
            for at in end..key_count.min(end + LANES) {
                let codes = keys.key(at);
                prefetch(codes, 0);
                prefetch(codes, dimension_count - 1);
            }
            flight.runs.clear();
            if keys.order.is_empty() {
                self.descend_together(&keys, first..end, &mut flight);
            } else {
                for at in first..end {
                    if let Some(run) = self.locate(keys.key(at)) {
                        self.expect(at, run, keys.key(at), &mut flight.runs);
                    }
                }
            }
            flight.runs.retain_mut(|(at, run)| {
                let matched = self.match_run(run, keys.key(*at));
                if let Some(matched) = matched {
                    self.leaf_view().prefetch_tids(&matched);
                    *run = matched;
                    return true;
                }
                false
            });
            for (at, run) in &flight.runs {
                let key_idx = keys.idx(*at);
                for piece in self.leaf_view().pieces(run) {
                    (0..piece.len).for_each(|row| found(key_idx, piece.tid(row)));
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
        let order_bits = key_count.ilog2().min(ORDER_BITS_MAX);
        let fields = &self.geometry.shapes[0].fields;
        let leading = fields
            .iter()
            .take_while(|field| field.word == 0 && field.shift + 32 > 64 - order_bits);
        let leading = &fields[..leading.count()];
        let digit = |key: &[u32]| {
            let codes = leading.iter().zip(key);
            let word = codes.fold(0, |word, (field, &code)| {
                word | u64::from(code).min(field.mask) << field.shift
            });
            (word >> (64 - order_bits)) as u16
        };
        let mut starts = vec![0u32; (1 << order_bits) + 1];
        let keys = keys.chunks_exact(self.dimension_count());
        let digits: Vec<u16> = keys.map(digit).collect();
        digits
            .iter()
            .for_each(|&digit| starts[usize::from(digit) + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut order = vec![0; key_count];
        for (idx, &digit) in digits.iter().enumerate() {
            let start = &mut starts[usize::from(digit)];
            order[*start as usize] = idx as u32;
            *start += 1;
        }
        order
    }

    /// Notes the run where a key may be, and asks for what comparing it takes.
    #[inline]
    fn expect(&self, at: usize, run: Run, key: &[u32], runs: &mut Vec<(usize, Run)>) {
        self.leaf_view().prefetch(&self.likely_part(&run, key));
        runs.push((at, run));
    }

    /// Moves keys to their groups, level by level, all of them a step at a time.
    fn descend_together(
        &self,
        keys: &Keys<'_>,
        keys_at: std::ops::Range<usize>,
        flight: &mut Flight,
    ) {
        let Flight {
            at_nodes,
            at_children,
            runs,
        } = flight;
        at_nodes.clear();
        for at in keys_at {
            self.enter(at, self.first_step(), keys, at_nodes, runs);
        }
        for level in 0..self.dimension_count() {
            at_children.clear();
            for &(at, node) in at_nodes.iter() {
                if let Some(child) = self.head.child_of(self.node(node), keys.key(at)[level]) {
                    if !self.bottoms.prefetch_child(node, child) {
                        prefetch(&self.head.children, child);
                    }
                    at_children.push((at, node, child));
                }
            }
            at_nodes.clear();
            for &(at, node, child) in at_children.iter() {
                let step = self.child_step(node, child, level);
                self.enter(at, step, keys, at_nodes, runs);
            }
            if at_nodes.is_empty() {
                break;
            }
        }
    }

    /// Where a key goes after a step, with what it needs next on its way.
    #[inline]
    fn enter(
        &self,
        at: usize,
        step: Step,
        keys: &Keys<'_>,
        at_nodes: &mut Travellers,
        runs: &mut Vec<(usize, Run)>,
    ) {
        match step {
            Step::Absent => {}
            Step::Node(node) => {
                self.prefetch_node(node);
                at_nodes.push((at, node));
            }
            Step::Group(run) => {
                if let Some(run) = self.narrow(run, keys.key(at)) {
                    self.expect(at, run, keys.key(at), runs);
                }
            }
        }
    }
}
