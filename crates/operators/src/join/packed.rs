//! Rows of words in fewer bytes, for blocks on disk.
//!
//! The words at a place of all rows are stored together: the least one, and the distances of all to it, in as many
//! bytes each as the greatest distance takes. That is much faster than compression, and most words need few bytes.

use std::array;

/// Distances are written and read as whole words, of which the next one takes what this one does not need.
const WORD_BYTES: usize = 8;
/// The least and the greatest of no words.
const NO_RANGE: (u64, u64) = (u64::MAX, 0);

/// The bytes of rows of `stride` words.
pub fn pack(words: &[u64], stride: usize) -> Vec<u8> {
    let rows = words.len() / stride;
    let mut packed = Vec::with_capacity(size_of_val(words) / 2 + WORD_BYTES);
    packed.extend((stride as u32).to_le_bytes());
    packed.extend((words.len() as u32).to_le_bytes());
    let ranges = match stride {
        1 => ranges::<1>(words),
        2 => ranges::<2>(words),
        3 => ranges::<3>(words),
        4 => ranges::<4>(words),
        _ => {
            let values = |column| words.iter().skip(column).step_by(stride);
            let range = |column| values(column).copied().fold(NO_RANGE, widen);
            (0..stride).map(range).collect()
        }
    };
    for (column, (least, greatest)) in ranges.into_iter().enumerate() {
        let values = || words.iter().skip(column).step_by(stride);
        let distance = greatest.saturating_sub(least);
        let width = (u64::BITS - distance.leading_zeros()).div_ceil(8) as usize;
        packed.extend(least.to_le_bytes());
        packed.push(width as u8);
        let start = packed.len();
        let end = start + rows * width;
        packed.resize(end + WORD_BYTES, 0);
        let mut place = start;
        for &value in values() {
            let distance = value - least;
            packed[place..place + WORD_BYTES].copy_from_slice(&distance.to_le_bytes());
            place += width;
        }
        packed.truncate(end);
    }
    packed.extend([0; WORD_BYTES]);
    packed
}

/// The least and the greatest word at each place of rows of this many.
fn ranges<const STRIDE: usize>(words: &[u64]) -> Vec<(u64, u64)> {
    let (rows, _) = words.as_chunks::<STRIDE>();
    let widen = |ranges: [(u64, u64); STRIDE], row: &[u64; STRIDE]| {
        array::from_fn(|place| widen(ranges[place], row[place]))
    };
    rows.iter().fold([NO_RANGE; STRIDE], widen).to_vec()
}

fn widen((least, greatest): (u64, u64), value: u64) -> (u64, u64) {
    (value.min(least), value.max(greatest))
}

/// The words that [`pack`] made these bytes of.
pub fn unpack(packed: &[u8]) -> Vec<u64> {
    let mut rest = packed;
    let stride = u32::from_le_bytes(take(&mut rest)) as usize;
    let mut words = vec![0; u32::from_le_bytes(take(&mut rest)) as usize];
    let rows = words.len() / stride;
    for column in 0..stride {
        let least = u64::from_le_bytes(take(&mut rest));
        let [width] = take(&mut rest);
        let bits = 8 * u32::from(width);
        let mask = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
        let mut place = 0;
        for word in words.iter_mut().skip(column).step_by(stride) {
            let bytes = rest[place..].first_chunk().expect("bytes of packed rows");
            *word = least.wrapping_add(u64::from_le_bytes(*bytes) & mask);
            place += usize::from(width);
        }
        rest = &rest[rows * usize::from(width)..];
    }
    words
}

fn take<const LEN: usize>(bytes: &mut &[u8]) -> [u8; LEN] {
    let (taken, rest) = bytes.split_first_chunk().expect("bytes of packed rows");
    *bytes = rest;
    *taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_come_back_whatever_they_are(
            stride in 1_usize..5,
            rows in 0_usize..50,
            (least, bits) in (any::<u64>(), 0_u32..=64),
            seed: u64,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |bit| bit - 1);
            let mut word = || (random.u64(..) & mask).saturating_add(least);
            let words: Vec<u64> = (0..rows * stride).map(|_| word()).collect();
            let packed = pack(&words, stride);
            let header = 16 + 9 * stride;
            prop_assert!(packed.len() <= header + words.len() * bits.div_ceil(8) as usize);
            prop_assert_eq!(unpack(&packed), words);
        }
    }
}
