//! Sorting the TIDs of an answer.

use hotshelf_tier::simd::{Backend, SORT_LANES};

use crate::rows::for_each_parallel;

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

/// From here on, several threads sort faster than one.
const PARALLEL_LEN_MIN: usize = 1 << 16;

/// Joins parts of an answer and sorts it. Each thread sorts the TIDs of its share of the numbers there are.
pub(crate) fn sort_parts(backend: Backend, parts: Vec<Vec<u32>>, thread_count: usize) -> Vec<u32> {
    let len: usize = parts.iter().map(Vec::len).sum();
    let join = |parts: Vec<Vec<u32>>| {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        all.reserve(len - all.len());
        parts.for_each(|part| all.extend(part));
        all
    };
    let is_sorted = || parts.iter().flatten().is_sorted();
    if thread_count < 2 || len < PARALLEL_LEN_MIN || is_sorted() {
        let mut all = join(parts);
        sort_tids(backend, &mut all);
        return all;
    }
    let max = parts.iter().flatten().copied().max().unwrap_or(0);
    let share = u64::from(max) / thread_count as u64 + 1;
    let mut shares: Vec<Vec<u32>> = vec![Vec::new(); thread_count];
    for_each_parallel(
        thread_count,
        shares.iter_mut().zip(0u64..).collect(),
        |(own, idx)| {
            let numbers = idx * share..(idx + 1) * share;
            own.reserve(len / thread_count + len / 64);
            let is_own = |tid: &u32| numbers.contains(&u64::from(*tid));
            own.extend(parts.iter().flatten().copied().filter(is_own));
            sort_tids(backend, own);
        },
    );
    join(shares)
}

fn sort_by_bitmap(tids: &mut Vec<u32>, min: u32, max: u32) {
    let base = min / 64 * 64;
    let mut bitmap = vec![0u64; (max - base) as usize / 64 + 1];
    for &tid in tids.iter() {
        bitmap[(tid - base) as usize / 64] |= 1 << (tid % 64);
    }
    tids.clear();
    for (word, first) in bitmap.into_iter().zip((base..).step_by(64)) {
        let mut rest = word;
        while rest != 0 {
            tids.push(first + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
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
                    let parts = tids.chunks(7).map(<[u32]>::to_vec).collect();
                    assert_eq!(sort_parts(backend, parts, 3), expected);
                }
            }
        }
    }
}
