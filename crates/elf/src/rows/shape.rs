//! Where codes lie in packed words.

/// One field of a packed row: `(words[word] >> shift) & mask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) word: usize,
    pub(crate) shift: u32,
    pub(crate) mask: u64,
}

impl Field {
    #[inline]
    pub(crate) fn get(self, words: &[u64]) -> u32 {
        ((words[self.word] >> self.shift) & self.mask) as u32
    }

    #[inline]
    pub(crate) fn put(self, words: &mut [u64], code: u32) {
        words[self.word] |= u64::from(code) << self.shift;
    }
}

/// Bits that hold every code up to `max`; at least one.
pub(crate) fn code_bits(max: u32) -> u32 {
    (32 - max.leading_zeros()).max(1)
}

/// Places fields of the given widths from the top bit of the first word on, none across two words.
/// Returns the fields and the number of words.
pub(crate) fn place(widths: impl Iterator<Item = u32>, guard_bits: u32) -> (Vec<Field>, usize) {
    let (mut fields, mut word, mut free) = (Vec::new(), 0, 64);
    for width in widths {
        if width + guard_bits > free {
            (word, free) = (word + 1, 64);
        }
        free -= width + guard_bits;
        fields.push(Field {
            word,
            shift: free,
            mask: (1 << width) - 1,
        });
    }
    let word_count = if fields.is_empty() { 0 } else { word + 1 };
    (fields, word_count)
}

/// Places fields of the given widths, each with a guard bit: as [`place`] does, unless filling one word
/// after the other as far as possible saves words. The first field is always the first of the first word,
/// and fields within a word are in the order given.
pub(crate) fn place_tightly(widths: &[u32]) -> (Vec<Field>, usize) {
    let (in_order, word_count) = place(widths.iter().copied(), 1);
    let mut fields = in_order.clone();
    let mut remaining: Vec<usize> = (0..widths.len()).collect();
    let mut word = 0;
    while !remaining.is_empty() {
        let members = fullest_word(&remaining, widths);
        let mut shift = 64;
        for &idx in &members {
            shift -= widths[idx] + 1;
            let mask = (1 << widths[idx]) - 1;
            fields[idx] = Field { word, shift, mask };
        }
        remaining.retain(|idx| !members.contains(idx));
        word += 1;
    }
    if word < word_count {
        (fields, word)
    } else {
        (in_order, word_count)
    }
}

/// The first of some fields and those others that fill a word best with it, in order.
fn fullest_word(remaining: &[usize], widths: &[u32]) -> Vec<usize> {
    let size = |idx: usize| widths[idx] as usize + 1;
    let first = remaining[0];
    let room = 64 - size(first);
    // The last field of a selection of that size, and the size without it.
    let mut reached: Vec<Option<(usize, usize)>> = vec![None; room + 1];
    for &idx in &remaining[1..] {
        for sum in (size(idx)..=room).rev() {
            let before = sum - size(idx);
            if reached[sum].is_none() && (before == 0 || reached[before].is_some()) {
                reached[sum] = Some((idx, before));
            }
        }
    }
    let mut members = vec![first];
    let mut sum = (0..=room).rev().find(|&sum| reached[sum].is_some());
    while let Some((idx, before)) = sum.and_then(|sum| reached[sum]) {
        members.push(idx);
        sum = Some(before);
    }
    members.sort_unstable();
    members
}

/// The layout of a row to be sorted: all codes in dimension order, then the TID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowShape {
    code_max: Vec<u32>,
    fields: Vec<Field>,
    tid: Field,
    word_count: usize,
    /// The level whose field holds a given bit of the row, counted from the top of the first word;
    /// the number of dimensions for TID bits.
    level_of_bit: Vec<u8>,
}

impl RowShape {
    /// The shape of rows with the given largest code per dimension and the largest TID.
    pub(crate) fn new(code_max: &[u32], tid_max: u32) -> Self {
        let widths = code_max.iter().chain([&tid_max]).map(|&max| code_bits(max));
        let (mut fields, word_count) = place(widths, 0);
        let mut level_of_bit = vec![code_max.len() as u8; word_count * 64];
        for (level, field) in fields.iter().enumerate() {
            let width = field.mask.count_ones();
            let first = field.word * 64 + (64 - field.shift - width) as usize;
            level_of_bit[first..first + width as usize].fill(level as u8);
        }
        let tid = fields.pop().unwrap_or(Field {
            word: 0,
            shift: 0,
            mask: 0,
        });
        Self {
            code_max: code_max.to_vec(),
            fields,
            tid,
            word_count,
            level_of_bit,
        }
    }

    pub(crate) fn dimension_count(&self) -> usize {
        self.fields.len()
    }

    /// Largest code of each dimension that there is room for.
    pub(crate) fn code_max(&self) -> &[u32] {
        &self.code_max
    }

    pub(crate) fn word_count(&self) -> usize {
        self.word_count
    }

    pub(crate) fn field(&self, level: usize) -> Field {
        self.fields[level]
    }

    pub(crate) fn tid_field(&self) -> Field {
        self.tid
    }

    #[inline]
    pub(crate) fn code(&self, row: &[u64], level: usize) -> u32 {
        self.fields[level].get(row)
    }

    #[inline]
    pub(crate) fn tid(&self, row: &[u64]) -> u32 {
        self.tid.get(row)
    }

    /// Writes one row.
    #[cfg(test)]
    pub(crate) fn pack(&self, codes: impl Iterator<Item = u32>, tid: u32, row: &mut [u64]) {
        row.fill(0);
        for (field, code) in self.fields.iter().zip(codes) {
            field.put(row, code);
        }
        self.tid.put(row, tid);
    }

    /// The first level at which two rows differ; the number of dimensions when only TIDs do.
    #[inline]
    pub(crate) fn first_difference(&self, a: &[u64], b: &[u64]) -> usize {
        for word in 0..self.word_count {
            let different = a[word] ^ b[word];
            if different != 0 {
                let bit = word * 64 + different.leading_zeros() as usize;
                return self.level_of_bit[bit].into();
            }
        }
        self.fields.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_of_lineitem_need_two_words_instead_of_three() {
        let widths = [12, 12, 12, 17, 21, 21, 24];
        assert_eq!(place(widths.into_iter(), 1).1, 3);
        let (fields, word_count) = place_tightly(&widths);
        assert_eq!((word_count, fields[0].word, fields[0].shift), (2, 0, 51));
    }

    proptest! {
        #[test]
        fn fields_never_overlap(widths in proptest::collection::vec(1u32..=32, 1..30)) {
            let (fields, word_count) = place_tightly(&widths);
            let mut words = vec![0u64; word_count];
            for (field, width) in fields.iter().zip(&widths) {
                prop_assert_eq!(field.mask.count_ones(), *width);
                let with_guard = (field.mask << 1 | 1) << field.shift;
                prop_assert_eq!(words[field.word] & with_guard, 0);
                words[field.word] |= with_guard;
            }
            prop_assert!(word_count <= place(widths.into_iter(), 1).1);
            prop_assert_eq!((fields[0].word, fields[0].shift), (0, 63 - fields[0].mask.count_ones()));
        }

        #[test]
        fn packed_rows_compare_like_their_codes(
            max in proptest::collection::vec(any::<u32>(), 1..20),
            seeds in proptest::collection::vec(any::<(u32, u32)>(), 20),
            keep in 0usize..20,
        ) {
            let shape = RowShape::new(&max, 1_000);
            let codes = |left: bool| -> Vec<u32> {
                max.iter().zip(&seeds).enumerate().map(|(i, (&max, &(a, b)))| {
                    let seed = if left || i < keep { a } else { b };
                    (u64::from(seed) % (u64::from(max) + 1)) as u32
                }).collect()
            };
            let mut rows = [vec![0; shape.word_count()], vec![0; shape.word_count()]];
            let keys = [codes(true), codes(false)];
            for (row, key) in rows.iter_mut().zip(&keys) {
                shape.pack(key.iter().copied(), 7, row);
                prop_assert_eq!(shape.tid(row), 7);
                for (level, &code) in key.iter().enumerate() {
                    prop_assert_eq!(shape.code(row, level), code);
                }
            }
            prop_assert_eq!(rows[0].cmp(&rows[1]), keys[0].cmp(&keys[1]));
            let expected = keys[0].iter().zip(&keys[1]).position(|(a, b)| a != b);
            let found = shape.first_difference(&rows[0], &rows[1]);
            prop_assert_eq!(found, expected.unwrap_or(max.len()));
        }
    }
}
