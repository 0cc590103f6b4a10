//! The keys of things that were dropped not long ago, without their bytes.

use crate::key::{Map, SegmentKey};
use std::collections::VecDeque;
use std::hash::Hash;

/// A queue of keys, oldest out first.
#[derive(Debug)]
pub struct Ghosts<K = SegmentKey> {
    queue: VecDeque<(K, u64)>,
    /// The stamp under which each key is in the queue; entries of the queue with other stamps are void.
    stamps: Map<K, u64>,
    next_stamp: u64,
}

impl<K> Default for Ghosts<K> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            stamps: Map::default(),
            next_stamp: 0,
        }
    }
}

impl<K: Copy + Eq + Hash> Ghosts<K> {
    /// Remembers a key as the latest, and forgets the oldest beyond `capacity`.
    pub fn push(&mut self, key: K, capacity: usize) {
        self.next_stamp += 1;
        self.stamps.insert(key, self.next_stamp);
        self.queue.push_back((key, self.next_stamp));
        while self.stamps.len() > capacity || self.queue.len() > 2 * capacity + 16 {
            let Some((oldest, stamp)) = self.queue.pop_front() else {
                return;
            };
            if self.stamps.get(&oldest) == Some(&stamp) {
                self.stamps.remove(&oldest);
            }
        }
    }

    /// Forgets a key; says whether it was remembered.
    pub fn take(&mut self, key: K) -> bool {
        self.stamps.remove(&key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    #[test]
    fn ghosts_are_forgotten_oldest_first() {
        let mut ghosts = Ghosts::default();
        (0..4).for_each(|idx| ghosts.push(key(idx), 3));
        assert!(!ghosts.take(key(0)));
        assert!(ghosts.take(key(1)));
        assert!(!ghosts.take(key(1)));
        ghosts.push(key(2), 3);
        ghosts.push(key(5), 2);
        assert!(!ghosts.take(key(3)), "2 was remembered again after 3");
        assert!(ghosts.take(key(2)));
    }
}
