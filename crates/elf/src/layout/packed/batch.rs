//! Batched exact match: the memory accesses of many keys overlap.
//!
//! A key that has found its group asks for the rows it is to be compared with, and waits for [`LANES`] others to do
//! so; a row that equals its key asks for its TID, and waits as long. Many keys are
//! ordered first, so that neighbours share nodes, pages and lines of the head; few move through the head
//! level by level together, because each of its lines may be far away as well.

use hotshelf_tier::simd::prefetch;

use crate::error::Result;

use super::PackedElf;
use super::blocks::BlockSource;
use super::exact::Step;
use super::leaf::{Run, TidPlace};
use super::probe::Probe;

/// Keys in flight. More than the memory system's outstanding loads per core, so that it stays busy.
const LANES: usize = 32;

/// Keys are ordered first when there is at least one for this many rows.
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

/// A key that reached a group, whose rows are on their way.
#[derive(Clone, Copy)]
struct Reached {
    /// Place in the order.
    at: usize,
    probe: Probe,
}

/// A row equal to a key, whose TID is on its way.
#[derive(Clone, Copy)]
struct Hit {
    key_idx: usize,
    tid: TidPlace,
}

/// The last items of a sequence, this many.
struct Ring<T> {
    items: [Option<T>; LANES],
    next: usize,
}

impl<T: Copy> Ring<T> {
    fn new() -> Self {
        Self {
            items: [None; LANES],
            next: 0,
        }
    }

    /// Takes an item in and, once full, the oldest out.
    #[inline(always)]
    fn swap(&mut self, item: Option<T>) -> Option<T> {
        let place = &mut self.items[self.next % LANES];
        self.next += 1;
        std::mem::replace(place, item)
    }
}

/// Keys in flight.
struct Flight<'a, S, F> {
    elf: &'a PackedElf<S>,
    keys: Keys<'a>,
    reached: Ring<Reached>,
    hits: Ring<Hit>,
    found: F,
}

impl<S: BlockSource> PackedElf<S> {
    /// Looks up many keys. `keys` holds one code per dimension for each, one key after the other. Calls
    /// `found(key_idx, tid)` for every row equal to a key; the hits of one key come together, ascending.
    ///
    /// # Errors
    /// When `keys` is not a whole number of keys.
    pub fn exact_batch(&self, keys: &[u32], found: impl FnMut(usize, u32)) -> Result<()> {
        self.check_keys(keys)?;
        let dimension_count = self.dimension_count();
        let key_count = keys.len() / dimension_count;
        let keys = Keys {
            codes: keys,
            dimension_count,
            order: self.order_of(keys, key_count),
        };
        let mut flight = Flight {
            elf: self,
            keys,
            reached: Ring::new(),
            hits: Ring::new(),
            found,
        };
        if flight.keys.order.is_empty() {
            flight.descend_together(key_count);
        } else {
            flight.descend_in_order(key_count);
        }
        flight.land();
        Ok(())
    }

    /// The order in which to look keys up: by their first codes, roughly, when there are enough that neighbours then
    /// share pages and lines; otherwise as they come, which is an empty order.
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
}

impl<S: BlockSource, F: FnMut(usize, u32)> Flight<'_, S, F> {
    /// Starts loading the codes of a key.
    #[inline]
    fn expect_key(&self, at: usize) {
        let codes = self.keys.key(at);
        prefetch(codes, 0);
        prefetch(codes, codes.len() - 1);
    }

    /// Moves keys to their groups, one after the other. A key goes where the one before it went as long as their codes
    /// are equal.
    fn descend_in_order(&mut self, key_count: usize) {
        let elf = self.elf;
        let Step::Node(root) = elf.first_step() else {
            return self.descend_together(key_count);
        };
        let (mut nodes, mut last) = (vec![root], self.keys.key(0));
        for at in 0..key_count {
            if at + LANES < key_count {
                self.expect_key(at + LANES);
            }
            let key = self.keys.key(at);
            let equal = last.iter().zip(key).take_while(|(last, code)| last == code);
            nodes.truncate(equal.count() + 1);
            last = key;
            let mut level = nodes.len() - 1;
            let mut node = nodes[level];
            while let Some(child) = elf.head.child_of(elf.node(node), key[level]) {
                match elf.child_step(node, child, level) {
                    Step::Absent => break,
                    Step::Group(run) => {
                        self.reach(at, run);
                        break;
                    }
                    Step::Node(next) => {
                        (node, level) = (next, level + 1);
                        nodes.push(node);
                    }
                }
            }
        }
    }

    /// Moves keys to their groups, level by level, some of them together.
    fn descend_together(&mut self, key_count: usize) {
        let (mut at_nodes, mut at_children) = (Travellers::new(), Vec::new());
        for first in (0..key_count).step_by(LANES) {
            let end = key_count.min(first + LANES);
            (end..key_count.min(end + LANES)).for_each(|at| self.expect_key(at));
            for at in first..end {
                self.enter(at, self.elf.first_step(), &mut at_nodes);
            }
            for level in 0..self.keys.dimension_count {
                for (at, node) in at_nodes.drain(..) {
                    let (elf, code) = (self.elf, self.keys.key(at)[level]);
                    if let Some(child) = elf.head.child_of(elf.node(node), code) {
                        elf.head.prefetch_entry(elf.node(node), child);
                        at_children.push((at, node, child));
                    }
                }
                for (at, node, child) in at_children.drain(..) {
                    self.enter(at, self.elf.child_step(node, child, level), &mut at_nodes);
                }
                if at_nodes.is_empty() {
                    break;
                }
            }
        }
    }

    /// Where a key goes after a step, with what it needs next on its way.
    #[inline]
    fn enter(&mut self, at: usize, step: Step, at_nodes: &mut Travellers) {
        match step {
            Step::Absent => {}
            Step::Node(node) => {
                self.elf.prefetch_node(node);
                at_nodes.push((at, node));
            }
            Step::Group(run) => self.reach(at, run),
        }
    }

    /// Asks for the rows that a key is compared with, and compares the key that waits longest.
    #[inline(always)]
    fn reach(&mut self, at: usize, run: Run) {
        let codes = self.keys.key(at)[run.level..].iter().copied();
        let Some(probe) = self.elf.probe(&run, codes) else {
            return self.compare_all(at, &run);
        };
        self.elf.prefetch_probe(&probe);
        if let Some(oldest) = self.reached.swap(Some(Reached { at, probe })) {
            self.compare(&oldest);
        }
    }

    #[inline(always)]
    fn compare(&mut self, reached: &Reached) {
        let Some(mut mask) = self.elf.compare(&reached.probe) else {
            let key = self.keys.key(reached.at);
            if let Some(run) = self.elf.descend(key) {
                self.compare_all(reached.at, &run);
            }
            return;
        };
        let key_idx = self.keys.idx(reached.at);
        while mask != 0 {
            let idx = mask.trailing_zeros() as usize;
            let tid = self.elf.tid_place(&reached.probe, idx);
            self.hit(Hit { key_idx, tid });
            mask &= mask - 1;
        }
    }

    /// Compares a key with all rows of its group.
    #[cold]
    fn compare_all(&mut self, at: usize, run: &Run) {
        let key_idx = self.keys.idx(at);
        if let Some(run) = self.elf.match_run(run, self.keys.key(at)) {
            for piece in self.elf.leaf_view().pieces(&run) {
                for row in 0..piece.len {
                    let tid = piece.tid_place(row);
                    self.hit(Hit { key_idx, tid });
                }
            }
        }
    }

    /// Asks for a TID, and shows the one that waits longest.
    #[inline(always)]
    fn hit(&mut self, hit: Hit) {
        self.elf.leaf_view().prefetch_tid(hit.tid);
        if let Some(oldest) = self.hits.swap(Some(hit)) {
            self.show(&oldest);
        }
    }

    #[inline(always)]
    fn show(&mut self, hit: &Hit) {
        (self.found)(hit.key_idx, self.elf.leaf_view().tid(hit.tid));
    }

    /// Brings all keys in flight home.
    fn land(&mut self) {
        for _ in 0..LANES {
            if let Some(oldest) = self.reached.swap(None) {
                self.compare(&oldest);
            }
        }
        for _ in 0..LANES {
            if let Some(oldest) = self.hits.swap(None) {
                self.show(&oldest);
            }
        }
    }
}
