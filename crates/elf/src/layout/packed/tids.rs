//! Sorting the TIDs of an answer.

use hotshelf_tier::region::prefer_huge_pages;
use hotshelf_tier::simd::{Backend, SORT_LANES};

use super::output::Bits;

/// From here on, counting digits beats comparing.
const RADIX_LEN_MIN: usize = 512;

/// Bits of one digit, at most.
const DIGIT_BITS_MAX: u32 = 11;

/// Sorts TIDs: few with vector instructions, many by digits, and through a bitmap when they are many of
/// those possible.
pub(crate) fn sort_tids(backend: Backend, tids: &mut Vec<u32>) {
    if tids.len() <= SORT_LANES {
        backend.sort_few(tids);
        return;
    }
    if tids.is_sorted() {
        return;
    }
    let fold = |(min, max): (u32, u32), &tid: &u32| (min.min(tid), max.max(tid));
    let (min, max) = tids.iter().fold((u32::MAX, 0), fold);
    let is_dense = tids.len() >= 4096 && ((max - min) / 64) as usize <= tids.len();
    match tids.len() {
        _ if is_dense => sort_by_bitmap(tids, min, max),
        len if len >= RADIX_LEN_MIN => sort_by_digits(tids, max),
        _ => tids.sort_unstable(),
    }
}

/// The TIDs that are set, ascending.
pub(crate) fn tids_of(bits: Bits) -> Vec<u32> {
    let (words, mut beyond) = bits.finish();
    let count = words.iter().map(|word| word.count_ones() as usize).sum();
    let mut tids = vec![0; count];
    prefer_huge_pages(&mut tids);
    let mut places = tids.iter_mut();
    for_each_bit(&words, 0, |tid| {
        if let Some(place) = places.next() {
            *place = tid;
        }
    });
    // All of these are larger than any bit.
    beyond.sort_unstable();
    tids.extend(beyond);
    tids
}

/// Shows the number of every set bit, ascending from `first`.
#[inline]
fn for_each_bit(words: &[u64], first: u32, mut show: impl FnMut(u32)) {
    for (idx, word) in words.iter().enumerate() {
        let (first, mut rest) = (first + idx as u32 * 64, *word);
        while rest != 0 {
            show(first + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
}

fn sort_by_bitmap(tids: &mut Vec<u32>, min: u32, max: u32) {
    let base = min / 64 * 64;
    let mut bitmap = vec![0u64; (max - base) as usize / 64 + 1];
    for &tid in tids.iter() {
        bitmap[(tid - base) as usize / 64] |= 1 << (tid % 64);
    }
    tids.clear();
    for_each_bit(&bitmap, base, |tid| tids.push(tid));
}

/// Least significant digit first.
fn sort_by_digits(tids: &mut Vec<u32>, max: u32) {
    let bits = 32 - max.leading_zeros();
    let pass_count = bits.div_ceil(DIGIT_BITS_MAX);
    let digit_bits = bits.div_ceil(pass_count);
    let digit_count = 1usize << digit_bits;
    let mut sorted = vec![0; tids.len()];
    for pass in 0..pass_count {
        let digit = |tid: u32| (tid >> (pass * digit_bits)) as usize & (digit_count - 1);
        let mut starts = vec![0u32; digit_count];
        tids.iter().for_each(|&tid| starts[digit(tid)] += 1);
        let mut end = 0;
        for start in &mut starts {
            end += std::mem::replace(start, end);
        }
        for &tid in tids.iter() {
            let start = &mut starts[digit(tid)];
            sorted[*start as usize] = tid;
            *start += 1;
        }
        std::mem::swap(tids, &mut sorted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_out_as_ascending_tids() {
        let mut bits = Bits::new(300_000);
        bits.waiting.extend([7, 299_999, u32::MAX, 400_000]);
        bits.waiting.extend([300_032, 262_144, 0, 63, 64]);
        let expected = [0, 7, 63, 64, 262_144, 299_999, 300_032, 400_000, u32::MAX];
        assert_eq!(tids_of(bits), expected);
        assert!(tids_of(Bits::new(0)).is_empty());
    }

    #[test]
    fn any_number_of_tids_comes_out_sorted() {
        for count in [
            0u32, 1, 2, 15, 16, 17, 63, 64, 65, 100, 511, 512, 5_000, 50_000,
        ] {
            for spread in [1u32, 1_000, 53_661] {
                let mut tids: Vec<u32> = (0..count)
                    .map(|i| (i.wrapping_mul(7919) % 80_021).wrapping_mul(spread))
                    .collect();
                let mut expected = tids.clone();
                expected.sort_unstable();
                expected.dedup();
                tids.sort_by_key(|tid| tid.reverse_bits());
                tids.dedup();
                for backend in Backend::available() {
                    let mut sorted = tids.clone();
                    sort_tids(backend, &mut sorted);
                    assert_eq!(sorted, expected);
                }
            }
        }
    }
}
