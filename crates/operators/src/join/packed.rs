//! Rows of words in fewer bytes, for blocks on disk.
//!
//! The words at a place of all rows are stored together: the least one, and the distances of all to it, in as many
//! bytes each as the greatest distance takes. That is much faster than compression, and most words need few bytes.

/// Appends a word's distances to the packed bytes, in this many bytes each.
type Put = fn(&[u64], Place, &mut Vec<u8>);
/// Reads them back, and returns the bytes behind them.
type Get = for<'a> fn(&'a [u8], Place, &mut [u64]) -> &'a [u8];

/// Where words are in rows, and the least of them.
#[derive(Clone, Copy)]
struct Place {
    column: usize,
    stride: usize,
    least: u64,
}

/// By width in bytes.
const PUT: [Put; 9] = [
    put::<0>, put::<1>, put::<2>, put::<3>, put::<4>, put::<5>, put::<6>, put::<7>, put::<8>,
];
const GET: [Get; 9] = [
    get::<0>, get::<1>, get::<2>, get::<3>, get::<4>, get::<5>, get::<6>, get::<7>, get::<8>,
];

/// The bytes of rows of `stride` words.
pub fn pack(words: &[u64], stride: usize) -> Vec<u8> {
    let mut packed = Vec::with_capacity(size_of_val(words) / 2);
    packed.extend((stride as u32).to_le_bytes());
    packed.extend((words.len() as u32).to_le_bytes());
    for column in 0..stride {
        let values = words.chunks_exact(stride).map(|row| row[column]);
        let (least, greatest) = values.fold((u64::MAX, 0), |(least, greatest), value| {
            (value.min(least), value.max(greatest))
        });
        let distance = greatest.saturating_sub(least);
        let width = (u64::BITS - distance.leading_zeros()).div_ceil(8) as usize;
        packed.extend(least.to_le_bytes());
        packed.push(width as u8);
        let place = Place {
            column,
            stride,
            least,
        };
        PUT[width](words, place, &mut packed);
    }
    packed
}

fn put<const WIDTH: usize>(words: &[u64], place: Place, packed: &mut Vec<u8>) {
    let start = packed.len();
    packed.resize(start + words.len() / place.stride * WIDTH, 0);
    let rows = words.chunks_exact(place.stride);
    for (bytes, row) in packed[start..].chunks_exact_mut(WIDTH.max(1)).zip(rows) {
        let distance = row[place.column] - place.least;
        bytes.copy_from_slice(&distance.to_le_bytes()[..WIDTH]);
    }
}

/// The words that [`pack`] made these bytes of.
pub fn unpack(packed: &[u8]) -> Vec<u64> {
    let mut rest = packed;
    let stride = u32::from_le_bytes(take(&mut rest)) as usize;
    let mut words = vec![0; u32::from_le_bytes(take(&mut rest)) as usize];
    for column in 0..stride {
        let least = u64::from_le_bytes(take(&mut rest));
        let [width] = take(&mut rest);
        let place = Place {
            column,
            stride,
            least,
        };
        rest = GET[usize::from(width)](rest, place, &mut words);
    }
    words
}

fn take<const LEN: usize>(bytes: &mut &[u8]) -> [u8; LEN] {
    let (taken, rest) = bytes.split_first_chunk().expect("bytes of packed rows");
    *bytes = rest;
    *taken
}

fn get<'a, const WIDTH: usize>(packed: &'a [u8], place: Place, words: &mut [u64]) -> &'a [u8] {
    let (packed, rest) = packed.split_at(words.len() / place.stride * WIDTH);
    let mut packed = packed.chunks_exact(WIDTH.max(1));
    for row in words.chunks_exact_mut(place.stride) {
        let mut bytes = [0; 8];
        bytes[..WIDTH].copy_from_slice(packed.next().unwrap_or_default());
        row[place.column] = place.least.wrapping_add(u64::from_le_bytes(bytes));
    }
    rest
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
            let header = 8 + 9 * stride;
            prop_assert!(packed.len() <= header + words.len() * bits.div_ceil(8) as usize);
            prop_assert_eq!(unpack(&packed), words);
        }
    }
}
