//! Sorting the TIDs of an answer.

use hotshelf_tier::simd::{Backend, SORT_LANES};

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
    let max = tids.iter().copied().max().unwrap_or(0);
    let is_dense = tids.len() >= 4096 && (max / 64) as usize <= tids.len();
    match tids.len() {
        _ if is_dense => sort_by_bitmap(tids, max),
        len if len >= RADIX_LEN_MIN => sort_by_digits(tids, max),
        _ => tids.sort_unstable(),
    }
}

fn sort_by_bitmap(tids: &mut Vec<u32>, max: u32) {
    let mut bitmap = vec![0u64; max as usize / 64 + 1];
    for &tid in tids.iter() {
        bitmap[tid as usize / 64] |= 1 << (tid % 64);
    }
    tids.clear();
    for (word, word_idx) in bitmap.into_iter().zip(0..) {
        let mut rest = word;
        while rest != 0 {
            tids.push(word_idx * 64 + rest.trailing_zeros());
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
            for spread in [1u32, 50_021, 85_847] {
                let mut tids: Vec<u32> = (0..count)
                    .map(|i| (i.wrapping_mul(7919) % 50_021).wrapping_mul(spread))
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
