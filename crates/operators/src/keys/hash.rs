//! 64-bit hashes by folded multiplication: the halves of a 128-bit product, combined.
//!
//! Users cut the hash into parts: partitions and slots take upper bits, tags take lower bits. So every bit of the key
//! has to reach both ends; the tests below look at the patterns that keys have in practice.

const START: u64 = 0x9e37_79b9_7f4a_7c15;
const FIRST: u64 = 0xd1b5_4a32_d192_ed03;
const SECOND: u64 = 0x8cb9_2ba7_2f3d_8dd7;

#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The hash of a key of one word.
#[inline(always)]
pub fn hash_word(word: u64) -> u64 {
    let mixed = fold(word ^ START, FIRST);
    fold(mixed, SECOND)
}

/// The hash of a key of several words.
#[inline(always)]
pub fn hash_words(words: &[u64]) -> u64 {
    if let [word] = words {
        return hash_word(*word);
    }
    let mixed = words
        .iter()
        .fold(START, |hash, word| fold(hash ^ word, FIRST));
    fold(mixed, SECOND)
}

/// The hash of a key of pairs of words.
#[inline(always)]
pub(crate) fn hash_pairs(pairs: &[[u64; 2]]) -> u64 {
    let add = |hash, pair: &[u64; 2]| fold(pair[0] ^ hash, pair[1] ^ FIRST);
    fold(pairs.iter().fold(START, add) ^ START, SECOND)
}

/// The hash of a key of bytes.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = START ^ (bytes.len() as u64).wrapping_mul(SECOND);
    let (pairs, rest) = bytes.as_chunks::<16>();
    for pair in pairs {
        hash = fold_bytes(hash, pair);
    }
    match bytes.last_chunk::<16>() {
        // Some bytes come twice, which is quicker than to count them.
        Some(last) if !rest.is_empty() => hash = fold_bytes(hash, last),
        Some(_) => {}
        None => {
            let (lower, upper) = rest.split_at(rest.len().min(8));
            hash = fold(word_of(lower) ^ hash, word_of(upper) ^ FIRST);
        }
    }
    fold(hash ^ START, SECOND)
}

#[inline(always)]
fn fold_bytes(hash: u64, pair: &[u8; 16]) -> u64 {
    let both = u128::from_le_bytes(*pair);
    fold(both as u64 ^ hash, (both >> 64) as u64 ^ FIRST)
}

/// Up to eight bytes as a word.
#[inline(always)]
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_le_bytes(*whole);
    }
    let half = |half: &[u8; 4]| u64::from(u32::from_le_bytes(*half));
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        // The halves overlap.
        return half(first) | half(last) << (8 * (bytes.len() - 4));
    }
    let add = |(place, word): (u32, u64), &byte: &u8| (place + 8, word | u64::from(byte) << place);
    bytes.iter().fold((0, 0), add).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 1 << 16;

    /// The largest number of keys in one of 1 024 buckets, 64 expected.
    fn fullest(hashes: impl Iterator<Item = u64>, bucket: impl Fn(u64) -> u64) -> u32 {
        let mut counts = vec![0; 1024];
        hashes.for_each(|hash| counts[(bucket(hash) & 1023) as usize] += 1);
        counts.into_iter().max().expect("1 024 buckets")
    }

    fn assert_even(name: &str, hash: impl Fn(u64) -> u64) {
        for shift in [0, 11, 24, 40, 54] {
            let most = fullest((0..KEYS).map(&hash), |hash| hash >> shift);
            assert!(most < 112, "{name}: {most} keys in a bucket at bit {shift}");
        }
    }

    #[test]
    fn words_of_every_pattern_fill_upper_and_lower_buckets_evenly() {
        for shift in [0, 7, 16, 32, 48] {
            assert_even("one word", |key| hash_word(key << shift));
            assert_even("low word", |key| hash_words(&[key << shift, 7]));
            assert_even("high word", |key| hash_words(&[7, key << shift]));
        }
        assert_even("decimal steps", |key| hash_word(key * 1_000_000));
        assert_even("two halves", |key| hash_word((key & 255) << 32 | key >> 8));
        assert_even("doubles", |key| hash_word((key as f64).to_bits()));
    }

    #[test]
    fn bytes_of_every_length_fill_buckets_evenly() {
        for len in [8, 9, 15, 16, 17, 31, 40] {
            assert_even("at the start", |key| {
                let mut bytes = vec![b' '; len];
                bytes[..8].copy_from_slice(&key.to_le_bytes());
                hash_bytes(&bytes)
            });
            assert_even("at the end", |key| {
                let mut bytes = vec![0; len];
                bytes[len - 8..].copy_from_slice(&key.to_be_bytes());
                hash_bytes(&bytes)
            });
        }
        assert_even("digits", |key| {
            hash_bytes(format!("Customer#{key:09}").as_bytes())
        });
    }

    #[test]
    fn length_counts() {
        let hashes: std::collections::HashSet<u64> =
            (0..100).map(|len| hash_bytes(&vec![0; len])).collect();
        assert_eq!(hashes.len(), 100);
    }
}
