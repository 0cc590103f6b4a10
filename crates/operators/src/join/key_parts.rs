//! Partitions by ranges of keys, where keys are numbers.
//!
//! Rows of a partition by hashes have keys from everywhere, so that to put them in the order of their keys means to
//! write at random into all memory. Those of a range of keys lie close together there.

use crate::keys::Keys;
use crate::partitions::{PARTITION_BITS, PARTITIONS};

/// Keys of the first rows that are looked at,
const SAMPLE: usize = 64;
/// of which this many have to be different. Fewer say little about what else there is.
const DIFFERENT_MIN: usize = 48;
/// Keys less and greater than this many of them may be of another kind, such as -1 for none.
const EXTREME: usize = SAMPLE / 4;
/// No more different ones may be in one partition.
const TOGETHER_MAX: usize = SAMPLE / 8;

/// Ranges of equal width, as many as partitions for all keys but the extreme ones. Beyond them they begin again.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts {
    least: u64,
    /// Ranges for each key, times 2^64.
    factor: u64,
}

impl KeyParts {
    /// For keys like these. `None`: they are not numbers, or too few or too similar.
    pub fn of(keys: &Keys) -> Option<Self> {
        let words = keys.all_words();
        if words.len() != keys.len() || words.len() < SAMPLE || keys.valid().is_some() {
            return None;
        }
        let step = words.len() / SAMPLE;
        let mut sample: Vec<u64> = words.iter().step_by(step).take(SAMPLE).copied().collect();
        sample.sort_unstable();
        let (least, greatest) = (sample[EXTREME], sample[SAMPLE - 1 - EXTREME]);
        sample.dedup();
        // Half of the sample lies between these two.
        let beyond = (greatest - least) / 2;
        let all = u128::from(greatest - least) * 2 + 1;
        let factor = ((PARTITIONS as u128) << u64::BITS) / all;
        let parts = Self {
            least: least.saturating_sub(beyond),
            factor: u64::try_from(factor).unwrap_or(u64::MAX),
        };
        let mut counts = [0; PARTITIONS];
        sample
            .iter()
            .for_each(|&key| counts[parts.part(key) as usize] += 1);
        let are_apart = counts.iter().all(|&count| count <= TOGETHER_MAX);
        (sample.len() >= DIFFERENT_MIN && are_apart).then_some(parts)
    }

    #[inline(always)]
    fn part(&self, key: u64) -> u64 {
        let range = u128::from(key.wrapping_sub(self.least)) * u128::from(self.factor);
        (range >> u64::BITS) as u64 & (PARTITIONS as u64 - 1)
    }

    /// Replaces the bits of the keys' hashes that choose the partition.
    pub fn put_in(&self, keys: &mut Keys) {
        keys.set_upper_bits(PARTITION_BITS, |key| self.part(key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};
    use arrow_schema::DataType;

    use super::*;
    use crate::keys::{KeyEncoder, Nulls};
    use crate::partitions::partition_of;

    fn keys(values: impl Iterator<Item = i64>) -> Keys {
        let encoder = KeyEncoder::try_new(&[(DataType::Int64, false)], Nulls::Distinct).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let mut keys = Keys::default();
        let rows = column.len();
        encoder.encode(&[column], rows, &mut keys).unwrap();
        keys
    }

    /// The greatest share of keys that are in one partition, and the sum of distances from key to key of a partition.
    fn divided(mut keys: Keys, like: &Keys) -> (f64, u64) {
        if let Some(parts) = KeyParts::of(like) {
            parts.put_in(&mut keys);
        }
        let mut found = vec![Vec::new(); PARTITIONS];
        for (&hash, &key) in keys.hashes().iter().zip(keys.all_words()) {
            found[partition_of(hash, 0)].push(key);
        }
        let most = found.iter().map(Vec::len).max().unwrap();
        let distance = |keys: &Vec<u64>| -> u64 {
            keys.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum()
        };
        (
            most as f64 / keys.len() as f64,
            found.iter().map(distance).sum(),
        )
    }

    #[test]
    fn partitions_are_ranges_of_about_the_same_size() {
        let spread = |rows: i64| (0..rows).map(|row| row * 2_654_435_761 % 1_000_003);
        let first = keys(spread(8192));
        let (share, distance) = divided(keys(spread(100_000)), &first);
        assert!(share < 2.0 / PARTITIONS as f64, "{share}");
        let (_, by_hashes) = divided(keys(spread(100_000)), &keys(0..10));
        assert!(distance < by_hashes / 20, "{distance} {by_hashes}");
    }

    #[test]
    fn no_partition_has_most_of_the_rows() {
        let texts: Vec<(&str, Vec<i64>, Vec<i64>)> = vec![
            ("growing", (0..8192).collect(), (0..200_000).collect()),
            (
                "a step",
                (0..8192).map(|row| row * 4096).collect(),
                (0..200_000).map(|row| row * 4096).collect(),
            ),
            (
                "one for none",
                (0..8192)
                    .map(|row| if row % 10 == 0 { -1 } else { row })
                    .collect(),
                (0..200_000).collect(),
            ),
            (
                "many rows of a key",
                (0..8192).map(|row| row / 1000).collect(),
                (0..200_000).map(|row| row * 64).collect(),
            ),
            (
                "two kinds",
                (0..8192).map(|row| row % 2 * (1 << 40) + row).collect(),
                (0..200_000).map(|row| row % 2 * (1 << 40) + row).collect(),
            ),
            (
                "far away",
                (0..8192).collect(),
                (0..200_000).map(|row| i64::MIN + row).collect(),
            ),
        ];
        for (name, first, all) in texts {
            let (share, _) = divided(keys(all.into_iter()), &keys(first.into_iter()));
            assert!(share < 0.1, "{name}: {share}");
        }
    }
}
