//! A filter in DRAM that answers most misses without a leaf block: a binary fuse filter of seven bits (Graf and Lemire,
//! *Binary Fuse Filters: Fast and Smaller Than Xor Filters*, 2022), by the keys' hashes.
//!
//! A key has three places in three neighbouring segments, and is absent if what is there does not make up its
//! fingerprint. One absent key in 128 is taken for present, and no present one for absent.

use hotshelf_elf::keys::CodeTable;
use hotshelf_tier::region::prefer_huge_pages;
use hotshelf_tier::simd::prefetch;

/// Bits of a fingerprint. One more and the filter of a large table is larger than 3 % of `linear` less the head.
const BITS: usize = 7;
const FINGERPRINT_MASK: u16 = (1 << BITS) - 1;

/// Of a segment's length, which is a power of two. Neighbours of 2^18 places are distinguished by 18 bits of a hash.
const SEGMENT_BITS_MAX: u32 = 18;

/// Places of a table that is not small, for each key: less cannot be built with certainty.
const PLACES_A_KEY: f64 = 1.125;

/// An odd number without a pattern: 2^64 by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Keys whose lines are asked for before they are looked at.
const AHEAD: usize = 16;

/// The keys of a table in a few bits each: most others are recognised.
#[derive(Debug, PartialEq)]
pub struct MissFilter {
    /// Fingerprints of seven bits, and a byte behind them.
    bits: Vec<u8>,
    shape: Shape,
    seed: u64,
    dimension_count: usize,
}

/// Where a hash's places are.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    segment_len: u32,
    /// Places at which the first of three can be.
    first_count: u32,
}

impl Shape {
    fn new(key_count: usize) -> Self {
        let count = key_count.max(2) as f64;
        let segment_bits = (count.ln() / 3.33f64.ln() + 2.25).floor() as u32;
        let segment_len = 1 << segment_bits.min(SEGMENT_BITS_MAX);
        let places = PLACES_A_KEY.max(0.875 + 0.25 * 1e6f64.ln() / count.ln()) * count;
        let segment_count = (places as u32).div_ceil(segment_len).max(3) - 2;
        Self {
            segment_len,
            first_count: segment_count * segment_len,
        }
    }

    fn place_count(self) -> usize {
        (self.first_count + 2 * self.segment_len) as usize
    }

    #[inline(always)]
    fn places(self, hash: u64) -> [usize; 3] {
        let mask = u64::from(self.segment_len - 1);
        let first = ((u128::from(hash) * u128::from(self.first_count)) >> 64) as u64;
        let second = first + u64::from(self.segment_len);
        let third = second + u64::from(self.segment_len);
        let within = |shift: u32| hash >> shift & mask;
        [first, second ^ within(SEGMENT_BITS_MAX), third ^ within(0)].map(|place| place as usize)
    }
}

#[inline(always)]
fn fingerprint_of(hash: u64) -> u16 {
    (hash ^ hash >> 32) as u16 & FINGERPRINT_MASK
}

/// All of two words in one.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn hash_of(key: &[u32], seed: u64) -> u64 {
    let pairs = key.chunks_exact(2);
    let last = pairs.remainder().first().copied().unwrap_or_default();
    let hash = pairs.fold(seed, |hash, pair| {
        fold(
            hash ^ (u64::from(pair[0]) << 32 | u64::from(pair[1])),
            GOLDEN,
        )
    });
    fold(hash ^ u64::from(last), GOLDEN)
}

impl MissFilter {
    /// Of the keys of a table.
    pub fn new(table: &CodeTable) -> Self {
        let mut seed = GOLDEN;
        loop {
            if let Some(filter) = Self::with_seed(table, seed) {
                return filter;
            }
            seed = fold(seed ^ 1, GOLDEN);
        }
    }

    /// `None` if no order of the keys gives each a place of its own: that is rare, and less rare with few keys.
    fn with_seed(table: &CodeTable, seed: u64) -> Option<Self> {
        let mut key = vec![0; table.dimension_count()];
        let mut hashes: Vec<u64> = Vec::with_capacity(table.row_count());
        for row in 0..table.row_count() {
            for (code, column) in key.iter_mut().zip(table.columns()) {
                *code = column.get(row);
            }
            hashes.push(hash_of(&key, seed));
        }
        // Equal keys count once; and keys whose places are near each other come after each other.
        hashes.sort_unstable();
        hashes.dedup();
        let shape = Shape::new(hashes.len());
        let mut bits = vec![0; (shape.place_count() * BITS).div_ceil(8) + 1];
        prefer_huge_pages(&mut bits);
        let mut filter = Self {
            bits,
            shape,
            seed,
            dimension_count: key.len(),
        };
        for (place, hash) in peel(&hashes, shape)?.into_iter().rev() {
            let found = filter.found(hash);
            filter.put(place as usize, found ^ fingerprint_of(hash));
        }
        Some(filter)
    }

    #[inline(always)]
    fn get(&self, place: usize) -> u16 {
        let bit = place * BITS;
        let bytes = [self.bits[bit / 8], self.bits[bit / 8 + 1]];
        u16::from_le_bytes(bytes) >> (bit % 8) & FINGERPRINT_MASK
    }

    /// Sets a place that was zero.
    fn put(&mut self, place: usize, fingerprint: u16) {
        let bit = place * BITS;
        let [low, high] = (fingerprint << (bit % 8)).to_le_bytes();
        self.bits[bit / 8] |= low;
        self.bits[bit / 8 + 1] |= high;
    }

    /// What the places of a hash make up.
    #[inline(always)]
    fn found(&self, hash: u64) -> u16 {
        let [first, second, third] = self.shape.places(hash);
        self.get(first) ^ self.get(second) ^ self.get(third)
    }

    #[inline(always)]
    fn may_have(&self, hash: u64) -> bool {
        self.found(hash) == fingerprint_of(hash)
    }

    /// Whether a key is there, or is taken for one that is.
    #[inline]
    pub fn may_hold(&self, key: &[u32]) -> bool {
        self.may_have(hash_of(key, self.seed))
    }

    /// Appends those of many keys that are there, or taken for such: their lines are on their way together.
    pub fn retain(&self, keys: &[u32], retained: &mut Vec<u32>) {
        for some in keys.chunks(AHEAD * self.dimension_count) {
            let mut hashes = [0; AHEAD];
            for (hash, key) in hashes
                .iter_mut()
                .zip(some.chunks_exact(self.dimension_count))
            {
                *hash = hash_of(key, self.seed);
                for place in self.shape.places(*hash) {
                    prefetch(&self.bits, place * BITS / 8);
                }
            }
            for (hash, key) in hashes.iter().zip(some.chunks_exact(self.dimension_count)) {
                if self.may_have(*hash) {
                    retained.extend_from_slice(key);
                }
            }
        }
    }

    /// Bytes in memory.
    pub fn size_bytes(&self) -> u64 {
        self.bits.len() as u64
    }
}

/// Hashes in an order in which each, without those before it, is the only one at one of its places, with that place.
fn peel(hashes: &[u64], shape: Shape) -> Option<Vec<(u32, u64)>> {
    // Of each place, how many hashes have it, and all of those by exclusive or.
    let mut counts = vec![0u32; shape.place_count()];
    let mut sums = vec![0u64; shape.place_count()];
    prefer_huge_pages(&mut counts);
    prefer_huge_pages(&mut sums);
    for &hash in hashes {
        for place in shape.places(hash) {
            counts[place] += 1;
            sums[place] ^= hash;
        }
    }
    let mut peeled = Vec::with_capacity(hashes.len());
    let mut alone = Vec::new();
    for start in 0..counts.len() {
        alone.push(start as u32);
        while let Some(place) = alone.pop() {
            if counts[place as usize] != 1 {
                continue;
            }
            let hash = sums[place as usize];
            peeled.push((place, hash));
            for place in shape.places(hash) {
                counts[place] -= 1;
                sums[place] ^= hash;
                if counts[place] == 1 {
                    alone.push(place as u32);
                }
            }
        }
    }
    (peeled.len() == hashes.len()).then_some(peeled)
}

#[cfg(test)]
mod tests {
    use super::super::super::data::uniform;
    use super::super::tests::{rows_of, table};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_key_that_is_there_is_absent(table in table()) {
            let filter = MissFilter::new(&table);
            let keys = rows_of(&table);
            for key in keys.chunks_exact(table.dimension_count()) {
                prop_assert!(filter.may_hold(key));
            }
            let mut retained = Vec::new();
            filter.retain(&keys, &mut retained);
            prop_assert_eq!(retained, keys);
        }
    }

    #[test]
    fn one_absent_key_in_128_is_taken_for_present() {
        let table = uniform(200_000, 5, 1_000).unwrap();
        let filter = MissFilter::new(&table);
        // Beyond the table's codes, and near its keys.
        let absent = rows_of(&table)
            .chunks_exact(5)
            .map(|key| {
                let mut key = key.to_vec();
                key[4] += 1_000;
                key
            })
            .collect::<Vec<_>>()
            .concat();
        let mut retained = Vec::new();
        filter.retain(&absent, &mut retained);
        let part = absent.len() as f64 / retained.len() as f64;
        assert!((115.0..142.0).contains(&part), "one in {part}");
        let bits = filter.size_bytes() as f64 * 8.0 / 200_000.0;
        assert!(bits < 8.3, "{bits} bits a key");
    }
}
