//! A hash table whose records lie sorted by slot, as those of the product's joins do: a directory has the end of each
//! slot and a Bloom filter of its keys, so that most keys without a record cost one line.
//!
//! Method: Birler, Schmidt, Fent, Neumann, "Simple, Efficient, and Robust Hash Tables for Join Processing", DaMoN 2024.

/// Of a directory's word, the filter; the end of the slot's records is above it.
const FILTER_BITS: u32 = 16;
const FILTER_MASK: u64 = (1 << FILTER_BITS) - 1;

/// Values by key.
#[derive(Debug)]
pub struct Unchained<V> {
    /// One word before the slots' own, so that a slot's records begin where those before them end.
    directory: Vec<u64>,
    records: Vec<(u32, V)>,
    shift: u32,
}

impl<V: Copy> Unchained<V> {
    /// The table of these records. Of those with the same key, one is found.
    pub fn new(records: impl Iterator<Item = (u32, V)>) -> Self {
        let mut records: Vec<(u32, V)> = records.collect();
        let bits = records.len().next_power_of_two().trailing_zeros().max(1);
        let shift = u64::BITS - bits;
        records.sort_by_key(|(key, _)| hash(*key) >> shift);
        let mut directory = vec![0; (1 << bits) + 1];
        for (idx, (key, _)) in records.iter().enumerate() {
            let hash = hash(*key);
            let word: &mut u64 = &mut directory[(hash >> shift) as usize + 1];
            *word = (idx as u64 + 1) << FILTER_BITS | *word & FILTER_MASK | filter(hash);
        }
        let mut end = 0;
        for word in &mut directory {
            end = end.max(*word >> FILTER_BITS);
            *word = end << FILTER_BITS | *word & FILTER_MASK;
        }
        Self {
            directory,
            records,
            shift,
        }
    }

    /// The value of a key. `touched` counts the lines that were read: that of the directory, and that of the records.
    #[inline]
    pub fn get(&self, key: u32, touched: &mut u32) -> Option<V> {
        let hash = hash(key);
        let slot = (hash >> self.shift) as usize;
        let word = self.directory[slot + 1];
        *touched += 1;
        if word & filter(hash) != filter(hash) {
            return None;
        }
        *touched += 1;
        let places = self.directory[slot] >> FILTER_BITS..word >> FILTER_BITS;
        let records = &self.records[places.start as usize..places.end as usize];
        let found = records.iter().find(|(own, _)| *own == key);
        found.map(|(_, value)| *value)
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.directory) + size_of_val(&*self.records)
    }
}

#[inline]
fn hash(key: u32) -> u64 {
    let product = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ product >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Two or fewer of sixteen bits, by the hash's lowest.
#[inline]
fn filter(hash: u64) -> u64 {
    1 << (hash & 15) | 1 << (hash >> 4 & 15)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn keys_are_found_as_in_a_map() {
        let mut random = fastrand::Rng::with_seed(6);
        for records in [0, 1, 2, 3, 100, 5000] {
            let map: BTreeMap<u32, u8> = (0..records)
                .map(|_| (random.u32(..8000), random.u8(..)))
                .collect();
            let table = Unchained::new(map.iter().map(|(key, value)| (*key, *value)));
            let mut touched = 0;
            for key in 0..8000 {
                assert_eq!(
                    table.get(key, &mut touched),
                    map.get(&key).copied(),
                    "{key}"
                );
            }
            // Most keys that are not there cost the directory's line only.
            let hits = map.len() as u32;
            assert!(
                touched >= 8000 + hits && touched < 8000 + hits + 3000,
                "{touched}"
            );
        }
    }
}
