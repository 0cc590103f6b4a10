//! A dynamic cache of lists: hash tables from a list's place on the shelf to its copy in DRAM.
//!
//! One table slows down as it grows (the paper's first hot spot), so lists are spread over many small ones. Each has a
//! policy and its part of the capacity, in lists and in bytes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};

use super::policy::{MARK_MAX, OnHit, Policy};

/// Lists of one table, about.
const PARTITION_LISTS: usize = 2048;

/// What the allocator adds to a copy.
const ALLOCATION_BYTES: u64 = 16;

/// Multiplies: places are distinct numbers already.
#[derive(Debug, Default, Clone, Copy)]
pub struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// Slots by place.
pub type Places = HashMap<u64, u32, BuildHasherDefault<PlaceHasher>>;

/// Bytes of such a table in memory: one control byte for each entry.
pub fn places_bytes(places: &Places) -> u64 {
    let bucket_count = (places.capacity() as u64 * 8).div_ceil(7);
    bucket_count.next_power_of_two() * (size_of::<(u64, u32)>() as u64 + 1)
}

/// How much a dynamic cache may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Lists.
    pub lists: usize,
    /// Bytes of their copies.
    pub bytes: u64,
}

#[derive(Debug)]
struct Slot {
    place: u64,
    words: Box<[u32]>,
}

#[derive(Debug)]
struct Partition<P> {
    places: Places,
    slots: Vec<Slot>,
    free: Vec<u32>,
    marks: Vec<AtomicU8>,
    policy: P,
    slot_max: usize,
    bytes: u64,
    bytes_max: u64,
}

impl<P: Policy> Partition<P> {
    fn new(slot_max: usize, bytes_max: u64) -> Self {
        Self {
            places: Places::default(),
            slots: Vec::new(),
            free: Vec::new(),
            marks: (0..slot_max).map(|_| AtomicU8::new(0)).collect(),
            policy: P::new(slot_max),
            slot_max,
            bytes: 0,
            bytes_max,
        }
    }

    #[inline]
    fn get(&mut self, place: u64) -> Option<&[u32]> {
        let slot = *self.places.get(&place)?;
        match P::ON_HIT {
            OnHit::Nothing => {}
            OnHit::Order => self.policy.hit(slot),
            OnHit::Mark => {
                let mark = self.marks[slot as usize].get_mut();
                *mark = (*mark + 1).min(MARK_MAX);
            }
        }
        Some(&self.slots[slot as usize].words)
    }

    fn is_full_for(&self, word_count: usize) -> bool {
        self.places.len() >= self.slot_max || self.bytes + word_count as u64 * 4 > self.bytes_max
    }

    fn offer(&mut self, place: u64, weight: u32, words: &[u32]) {
        let is_full = self.is_full_for(words.len());
        if words.len() as u64 * 4 > self.bytes_max || !self.policy.wants(place, weight, is_full) {
            return;
        }
        while self.is_full_for(words.len()) {
            let slots = &self.slots;
            let key_of = |slot: u32| slots[slot as usize].place;
            let Some(slot) = self.policy.evict(&self.marks, &key_of) else {
                return;
            };
            let gone = &mut self.slots[slot as usize];
            self.places.remove(&gone.place);
            self.bytes -= gone.words.len() as u64 * 4;
            gone.words = Box::default();
            self.free.push(slot);
        }
        let words: Box<[u32]> = words.into();
        self.bytes += words.len() as u64 * 4;
        let new = Slot { place, words };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                (self.slots.len() - 1) as u32
            }
        };
        self.marks[slot as usize].store(0, Ordering::Relaxed);
        self.places.insert(place, slot);
        self.policy.insert(slot, place, weight);
    }

    fn size_bytes(&self) -> u64 {
        let slots = self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * 4;
        let copies = self.bytes + self.places.len() as u64 * ALLOCATION_BYTES;
        let tables = places_bytes(&self.places) + (slots + self.marks.len()) as u64;
        tables + copies + self.policy.size_bytes() + size_of::<Self>() as u64
    }
}

/// Copies of lists.
#[derive(Debug)]
pub struct ListCache<P> {
    partitions: Vec<Partition<P>>,
}

impl<P: Policy> ListCache<P> {
    /// An empty cache.
    pub fn new(capacity: Capacity) -> Self {
        let count = capacity.lists.div_ceil(PARTITION_LISTS).max(1);
        let slot_max = capacity.lists.div_ceil(count).max(1);
        let bytes_max = capacity.bytes / count as u64;
        Self {
            partitions: (0..count)
                .map(|_| Partition::new(slot_max, bytes_max))
                .collect(),
        }
    }

    #[inline]
    fn partition(&mut self, place: u64) -> &mut Partition<P> {
        let spread = place.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        let at = (spread * self.partitions.len() as u64) >> 32;
        &mut self.partitions[at as usize]
    }

    /// The list of a place, if it is held.
    #[inline]
    pub fn get(&mut self, place: u64) -> Option<&[u32]> {
        self.partition(place).get(place)
    }

    /// Offers a list that was missed: the policy decides whether to take it.
    pub fn offer(&mut self, place: u64, weight: u32, words: &[u32]) {
        self.partition(place).offer(place, weight, words);
    }

    /// Bytes in memory: copies, tables, slots and what the policy needs.
    pub fn size_bytes(&self) -> u64 {
        self.partitions.iter().map(Partition::size_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Lfu, Lla, Lru, Naive, S3Fifo, Sieve, TwoQueues};
    use super::*;

    const SMALL: Capacity = Capacity {
        lists: 3,
        bytes: 1 << 10,
    };

    /// What a cache of three lists holds after some places were looked up and offered; the weight is the place.
    fn held<P: Policy>(places: &[u64]) -> Vec<u64> {
        let mut cache = ListCache::<P>::new(SMALL);
        for &place in places {
            match cache.get(place).map(<[u32]>::to_vec) {
                Some(words) => assert_eq!(words, [place as u32; 3]),
                None => cache.offer(place, place as u32, &[place as u32; 3]),
            }
        }
        (0..10)
            .filter(|&place| cache.get(place).is_some())
            .collect()
    }

    #[test]
    fn policies_keep_what_they_say() {
        let places = [1, 2, 3, 1, 1, 3, 4, 5];
        assert_eq!(held::<Naive>(&places), [1, 2, 3]);
        assert_eq!(held::<Lru>(&places), [3, 4, 5]);
        assert_eq!(held::<Lfu>(&places), [1, 3, 5]);
        assert_eq!(held::<Lla>(&places), [3, 4, 5]);
        assert_eq!(held::<Lla>(&[5, 4, 3, 2, 1]), [3, 4, 5]);
        assert_eq!(held::<TwoQueues>(&places), [1, 3]);
        assert_eq!(held::<Sieve>(&places), [1, 3, 5]);
        assert_eq!(held::<S3Fifo>(&places).len(), 3);
    }

    #[test]
    fn a_cache_never_holds_more_bytes_than_it_may() {
        let capacity = Capacity {
            lists: 100,
            bytes: 64,
        };
        let mut cache = ListCache::<Lru>::new(capacity);
        for place in 0..50 {
            cache.offer(place, 1, &vec![7; 1 + place as usize]);
            assert!(cache.partitions[0].bytes <= 64);
        }
        assert_eq!(cache.partitions[0].places.len(), 1);
    }
}
