//! Which items a dynamic cache takes in, and which it gives up: the papers' five policies, SIEVE and S3-FIFO.
//!
//! A policy knows slots, not contents. The cache around it looks items up, counts bytes and holds the `marks`: a small
//! counter for each slot that a hit raises without a lock, for policies that need no more than that.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};

use super::chain::{Chain, Ends};

/// What a hit has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHit {
    /// Nothing.
    Nothing,
    /// Raise the slot's mark.
    Mark,
    /// Change the policy's order.
    Order,
}

/// Hits that a mark counts up to.
pub const MARK_MAX: u8 = 3;

/// The marks of all slots.
pub trait Marks {
    /// Changes a mark; returns what it was.
    fn swap(&self, slot: u32, mark: u8) -> u8;
}

impl Marks for Vec<AtomicU8> {
    fn swap(&self, slot: u32, mark: u8) -> u8 {
        self[slot as usize].swap(mark, Ordering::Relaxed)
    }
}

/// Bytes of an item in a set of ghosts and its queue.
const GHOST_BYTES: u64 = 8 + 18;

/// Decides what a dynamic cache holds.
pub trait Policy: Send {
    /// What a hit has to do.
    const ON_HIT: OnHit;

    /// For this many slots.
    fn new(slot_count: usize) -> Self;

    /// A slot was hit; called if that changes the order.
    fn hit(&mut self, _slot: u32) {}

    /// Whether to take in an item that was missed: `weight` is the number of rows below it.
    fn wants(&mut self, key: u64, weight: u32, is_full: bool) -> bool;

    /// An item was put into a free slot.
    fn insert(&mut self, slot: u32, key: u64, weight: u32);

    /// Gives up a slot that is in use.
    fn evict(&mut self, marks: &dyn Marks, key_of: &dyn Fn(u32) -> u64) -> Option<u32>;

    /// Bytes in memory.
    fn size_bytes(&self) -> u64;
}

/// Takes everything until it is full, and never gives anything up.
#[derive(Debug)]
pub struct Naive;

impl Policy for Naive {
    const ON_HIT: OnHit = OnHit::Nothing;

    fn new(_slot_count: usize) -> Self {
        Self
    }

    fn wants(&mut self, _key: u64, _weight: u32, is_full: bool) -> bool {
        !is_full
    }

    fn insert(&mut self, _slot: u32, _key: u64, _weight: u32) {}

    fn evict(&mut self, _marks: &dyn Marks, _key_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        None
    }

    fn size_bytes(&self) -> u64 {
        0
    }
}

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    chain: Chain,
    ends: Ends,
}

impl Policy for Lru {
    const ON_HIT: OnHit = OnHit::Order;

    fn new(slot_count: usize) -> Self {
        Self {
            chain: Chain::new(slot_count),
            ends: Ends::default(),
        }
    }

    fn hit(&mut self, slot: u32) {
        self.chain.remove(&mut self.ends, slot);
        self.chain.push_front(&mut self.ends, slot);
    }

    fn wants(&mut self, _key: u64, _weight: u32, _is_full: bool) -> bool {
        true
    }

    fn insert(&mut self, slot: u32, _key: u64, _weight: u32) {
        self.chain.push_front(&mut self.ends, slot);
    }

    fn evict(&mut self, _marks: &dyn Marks, _key_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        let slot = self.ends.last()?;
        self.chain.remove(&mut self.ends, slot);
        Some(slot)
    }

    fn size_bytes(&self) -> u64 {
        self.chain.size_bytes()
    }
}

/// Least frequently used, the least recent of those. Counts end at 255.
#[derive(Debug)]
pub struct Lfu {
    chain: Chain,
    by_count: Vec<Ends>,
    counts: Vec<u8>,
}

impl Policy for Lfu {
    const ON_HIT: OnHit = OnHit::Order;

    fn new(slot_count: usize) -> Self {
        Self {
            chain: Chain::new(slot_count),
            by_count: vec![Ends::default(); 256],
            counts: vec![0; slot_count],
        }
    }

    fn hit(&mut self, slot: u32) {
        let count = &mut self.counts[slot as usize];
        self.chain
            .remove(&mut self.by_count[usize::from(*count)], slot);
        *count = count.saturating_add(1);
        self.chain
            .push_front(&mut self.by_count[usize::from(*count)], slot);
    }

    fn wants(&mut self, _key: u64, _weight: u32, _is_full: bool) -> bool {
        true
    }

    fn insert(&mut self, slot: u32, _key: u64, _weight: u32) {
        self.counts[slot as usize] = 0;
        self.chain.push_front(&mut self.by_count[0], slot);
    }

    fn evict(&mut self, _marks: &dyn Marks, _key_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        let ends = self
            .by_count
            .iter_mut()
            .find(|ends| ends.first().is_some())?;
        let slot = ends.last()?;
        self.chain.remove(ends, slot);
        Some(slot)
    }

    fn size_bytes(&self) -> u64 {
        self.chain.size_bytes() + (self.counts.len() + self.by_count.len() * 8) as u64
    }
}

/// Least likely to be accessed: by the rows below an item, which are known and do not change. What is less likely than
/// everything held stays outside.
#[derive(Debug)]
pub struct Lla {
    least: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Policy for Lla {
    const ON_HIT: OnHit = OnHit::Nothing;

    fn new(slot_count: usize) -> Self {
        Self {
            least: BinaryHeap::with_capacity(slot_count),
        }
    }

    fn wants(&mut self, _key: u64, weight: u32, is_full: bool) -> bool {
        !is_full
            || self
                .least
                .peek()
                .is_some_and(|Reverse((least, _))| weight > *least)
    }

    fn insert(&mut self, slot: u32, _key: u64, weight: u32) {
        self.least.push(Reverse((weight, slot)));
    }

    fn evict(&mut self, _marks: &dyn Marks, _key_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        self.least.pop().map(|Reverse((_, slot))| slot)
    }

    fn size_bytes(&self) -> u64 {
        self.least.capacity() as u64 * 8
    }
}

/// Keys of items that are not held, the oldest of which are forgotten.
#[derive(Debug)]
struct Ghosts {
    queue: VecDeque<u64>,
    keys: HashSet<u64>,
    count_max: usize,
}

impl Ghosts {
    fn new(count_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            keys: HashSet::new(),
            count_max: count_max.max(1),
        }
    }

    fn push(&mut self, key: u64) {
        if !self.keys.insert(key) {
            return;
        }
        self.queue.push_back(key);
        if self.queue.len() > self.count_max
            && let Some(oldest) = self.queue.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    /// Whether the key is known. It stays in the queue and is forgotten there.
    fn take(&mut self, key: u64) -> bool {
        self.keys.remove(&key)
    }

    fn size_bytes(&self) -> u64 {
        self.queue.capacity().max(self.keys.capacity()) as u64 * GHOST_BYTES
    }
}

/// 2Q as the paper has it: an item is taken in when it is missed for the second time.
#[derive(Debug)]
pub struct TwoQueues {
    recent: Lru,
    seen: Ghosts,
}

impl Policy for TwoQueues {
    const ON_HIT: OnHit = OnHit::Order;

    fn new(slot_count: usize) -> Self {
        Self {
            recent: Lru::new(slot_count),
            seen: Ghosts::new(slot_count),
        }
    }

    fn hit(&mut self, slot: u32) {
        self.recent.hit(slot);
    }

    fn wants(&mut self, key: u64, _weight: u32, _is_full: bool) -> bool {
        let is_known = self.seen.take(key);
        if !is_known {
            self.seen.push(key);
        }
        is_known
    }

    fn insert(&mut self, slot: u32, key: u64, weight: u32) {
        self.recent.insert(slot, key, weight);
    }

    fn evict(&mut self, marks: &dyn Marks, key_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        self.recent.evict(marks, key_of)
    }

    fn size_bytes(&self) -> u64 {
        self.recent.size_bytes() + self.seen.size_bytes()
    }
}

/// SIEVE (NSDI 2024): first in, first out, but a hand spares what was hit since it last came by.
#[derive(Debug)]
pub struct Sieve {
    chain: Chain,
    ends: Ends,
    hand: Option<u32>,
}

impl Policy for Sieve {
    const ON_HIT: OnHit = OnHit::Mark;

    fn new(slot_count: usize) -> Self {
        Self {
            chain: Chain::new(slot_count),
            ends: Ends::default(),
            hand: None,
        }
    }

    fn wants(&mut self, _key: u64, _weight: u32, _is_full: bool) -> bool {
        true
    }

    fn insert(&mut self, slot: u32, _key: u64, _weight: u32) {
        self.chain.push_front(&mut self.ends, slot);
    }

    fn evict(&mut self, marks: &dyn Marks, _key_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        let mut slot = self.hand.or(self.ends.last())?;
        while marks.swap(slot, 0) > 0 {
            slot = self.chain.before(slot).or(self.ends.last())?;
        }
        self.hand = self.chain.before(slot);
        self.chain.remove(&mut self.ends, slot);
        Some(slot)
    }

    fn size_bytes(&self) -> u64 {
        self.chain.size_bytes()
    }
}

/// S3-FIFO (SOSP 2023): a small queue for the new, a main one for what was hit there or comes back soon.
#[derive(Debug)]
pub struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: Ghosts,
    small_max: usize,
}

impl Policy for S3Fifo {
    const ON_HIT: OnHit = OnHit::Mark;

    fn new(slot_count: usize) -> Self {
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::new(slot_count),
            small_max: (slot_count / 10).max(1),
        }
    }

    fn wants(&mut self, _key: u64, _weight: u32, _is_full: bool) -> bool {
        true
    }

    fn insert(&mut self, slot: u32, key: u64, _weight: u32) {
        if self.ghosts.take(key) {
            self.main.push_back(slot);
        } else {
            self.small.push_back(slot);
        }
    }

    fn evict(&mut self, marks: &dyn Marks, key_of: &dyn Fn(u32) -> u64) -> Option<u32> {
        while self.small.len() >= self.small_max || self.main.is_empty() {
            let slot = self.small.pop_front()?;
            if marks.swap(slot, 0) <= 1 {
                self.ghosts.push(key_of(slot));
                return Some(slot);
            }
            self.main.push_back(slot);
        }
        loop {
            let slot = self.main.pop_front()?;
            let hits = marks.swap(slot, 0);
            if hits == 0 {
                return Some(slot);
            }
            marks.swap(slot, hits - 1);
            self.main.push_back(slot);
        }
    }

    fn size_bytes(&self) -> u64 {
        (self.small.capacity() + self.main.capacity()) as u64 * 4 + self.ghosts.size_bytes()
    }
}
