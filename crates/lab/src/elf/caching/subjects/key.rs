//! The codes of a row as one number, in 32-bit words, and as a string of bytes. Both order as the rows do.

use hotshelf_elf::keys::{CodeTable, Restriction};

/// One dimension's place in a key.
#[derive(Debug, Clone, Copy)]
struct Field {
    /// The word with its lowest bit.
    word: usize,
    shift: u32,
    mask: u32,
}

/// Where codes are in a key of words: all close together, the last one at the lowest bits of the last word.
#[derive(Debug, Clone)]
pub struct KeyShape {
    fields: Vec<Field>,
    /// Words of a key.
    pub word_count: usize,
}

impl KeyShape {
    /// For the codes of a table.
    pub fn new(table: &CodeTable) -> Self {
        let maxima = table.columns().iter().map(|column| column.max());
        let widths: Vec<u32> = maxima.map(|max| 32 - max.leading_zeros()).collect();
        let bit_count: u32 = widths.iter().sum();
        let word_count = bit_count.div_ceil(32).max(1) as usize;
        let mut after = bit_count;
        let fields = widths.into_iter().map(|width| {
            after -= width;
            Field {
                word: (word_count - 1).saturating_sub(after as usize / 32),
                shift: after % 32,
                mask: ((1u64 << width) - 1) as u32,
            }
        });
        Self {
            fields: fields.collect(),
            word_count,
        }
    }

    /// Number of dimensions.
    pub fn dimension_count(&self) -> usize {
        self.fields.len()
    }

    /// The largest code of a dimension that a key has room for.
    pub fn max(&self, dimension: usize) -> u32 {
        self.fields[dimension].mask
    }

    /// Puts a code that there is room for into a key that has none in this dimension yet.
    #[inline]
    pub fn put(&self, key: &mut [u32], dimension: usize, code: u32) {
        let field = self.fields[dimension];
        let bits = u64::from(code) << field.shift;
        key[field.word] |= bits as u32;
        if field.word > 0 {
            key[field.word - 1] |= (bits >> 32) as u32;
        }
    }

    /// The code of a dimension.
    #[inline]
    pub fn code(&self, key: &[u32], dimension: usize) -> u32 {
        let field = self.fields[dimension];
        let before = match field.word {
            0 => 0,
            word => key[word - 1],
        };
        let bits = u64::from(before) << 32 | u64::from(key[field.word]);
        (bits >> field.shift) as u32 & field.mask
    }

    /// Writes the key of some codes; says whether there is room for all of them.
    pub fn encode(&self, codes: &[u32], key: &mut [u32]) -> bool {
        key.fill(0);
        for (dimension, &code) in codes.iter().enumerate() {
            if code > self.max(dimension) {
                return false;
            }
            self.put(key, dimension, code);
        }
        true
    }
}

/// The smallest code from `code` on that is accepted and at most `max`.
#[inline]
pub fn accepted_from(restriction: &Restriction, code: u32, max: u32) -> Option<u32> {
    let next = match restriction {
        Restriction::Any => code,
        Restriction::Range { lo, hi } => {
            let next = code.max(*lo);
            if next > *hi {
                return None;
            }
            next
        }
        Restriction::Set(set) => {
            let at = set.ranges().partition_point(|&(_, hi)| hi < code);
            code.max(set.ranges().get(at)?.0)
        }
    };
    (next <= max).then_some(next)
}

/// One byte of a key of bytes.
#[derive(Debug, Clone, Copy)]
pub struct Spot {
    /// The dimension that it belongs to.
    pub dimension: usize,
    /// Whether it is the highest one of the code.
    pub is_first: bool,
    /// Bits of the code in the bytes after it.
    pub bits_after: u32,
}

/// Bytes of a key, the highest of each code first.
pub fn spots(table: &CodeTable) -> Vec<Spot> {
    let mut spots = Vec::new();
    for (dimension, column) in table.columns().iter().enumerate() {
        let byte_count = (32 - column.max().leading_zeros()).div_ceil(8).max(1);
        spots.extend((0..byte_count).rev().map(|after| Spot {
            dimension,
            is_first: after + 1 == byte_count,
            bits_after: after * 8,
        }));
    }
    spots
}

/// Up to four bytes as a word, the first one highest.
#[inline]
pub fn pack(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use hotshelf_elf::keys::{CodeColumn, CodeSet};

    use super::*;

    #[test]
    fn keys_order_as_rows_do_and_have_their_codes() {
        let mut random = fastrand::Rng::with_seed(7);
        for maxima in [[1, 99, 70_000], [u32::MAX; 3], [0, 0, 0], [0, 300, 0]] {
            let columns = maxima.map(|max| {
                let codes = [0, max]
                    .into_iter()
                    .chain((0..60).map(|_| random.u32(..=max)));
                CodeColumn::from_codes(codes.collect::<Vec<_>>().into_iter(), max)
            });
            let table = CodeTable::new(columns.into()).unwrap();
            let shape = KeyShape::new(&table);
            let key = |row: usize| {
                let mut key = vec![0; shape.word_count];
                assert!(shape.encode(&table.row(row), &mut key));
                key
            };
            for a in 0..62 {
                let codes = (0..3).map(|dimension| shape.code(&key(a), dimension));
                assert!(codes.eq(table.row(a)));
                for b in 0..62 {
                    assert_eq!(key(a).cmp(&key(b)), table.row(a).cmp(&table.row(b)));
                }
            }
        }
    }

    #[test]
    fn the_next_accepted_code_is_the_smallest() {
        let restrictions = [
            Restriction::Any,
            Restriction::NONE,
            Restriction::Range { lo: 3, hi: 5 },
            Restriction::Set(CodeSet::from_codes([2, 3, 8])),
        ];
        for restriction in restrictions {
            for code in 0..12 {
                let naive = (code..=7).find(|&code| restriction.contains(code));
                assert_eq!(accepted_from(&restriction, code, 7), naive);
            }
        }
    }
}
