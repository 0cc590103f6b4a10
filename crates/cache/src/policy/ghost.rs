//! The keys of segments that left not long ago, without their bytes.

use crate::key::{Map, SegmentKey};
use std::collections::VecDeque;

/// A queue of keys, oldest out first.
#[derive(Debug, Default)]
pub struct Ghosts {
    queue: VecDeque<(SegmentKey, u64)>,
    /// The stamp under which each key is in the queue; entries of the queue with other stamps are void.
    stamps: Map<SegmentKey, u64>,
    next_stamp: u64,
}

impl Ghosts {
    /// Remembers a key as the latest, and forgets the oldest beyond `capacity`.
    pub fn push(&mut self, key: SegmentKey, capacity: usize) {
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
    pub fn take(&mut self, key: SegmentKey) -> bool {
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
