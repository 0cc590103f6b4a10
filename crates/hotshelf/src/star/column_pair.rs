//! Two columns of a row group that are compared: `l_commitdate < l_receiptdate`.

use hotshelf_tier::simd::{Backend, Combine};

use super::chunk::{CHUNK_ROWS, ChunkBuffer, ChunkColumn};
use super::row_set::{WORDS, is_set};
use super::validity::Valid;
use crate::scan::Comparing;

/// The other column that one is compared with, and how.
pub(super) struct ColumnPair {
    /// Its place among those that are tested.
    pub other: usize,
    op: Comparing,
    /// Bits of words whose differences have no more with their signs, if both columns are stored as such words: whole
    /// chunks are tested by them.
    difference_bits: Option<u32>,
}

/// A column and its decoded chunk.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub column: &'a ChunkColumn,
    pub buffer: &'a ChunkBuffer,
}

impl Side<'_> {
    /// The value at a row, as an integer of the same order; none for NULL.
    fn value(&self, chunk: usize, row: usize) -> Option<i64> {
        let word = self.column.word(self.buffer, row);
        let is_null = self.column.is_null(self.buffer, chunk, row);
        (!is_null).then(|| ordered(word, self.column.signed))
    }

    /// Clears the bits of NULLs.
    fn drop_nulls(&self, chunk: usize, len: usize, found: &mut [u64; WORDS]) {
        self.column.valid.keep_rows(chunk, found);
        if let Valid::Codes(valid) = &self.column.valid {
            for (row, code) in self.buffer.narrow[..len].iter().enumerate() {
                found[row / 64] &= !(u64::from(!is_set(valid, *code)) << (row % 64));
            }
        }
    }
}

/// A word as a number with a sign; those without begin at its least.
fn ordered(word: u64, signed: bool) -> i64 {
    match signed {
        true => word as i64,
        false => (word ^ 1 << 63) as i64,
    }
}

impl ColumnPair {
    pub fn new(op: Comparing, [left, right]: [&ChunkColumn; 2], other: usize) -> Self {
        let is_plain = left.dictionary.is_none() && right.dictionary.is_none();
        let bits = match (left.is_wide(), right.is_wide()) {
            (true, true) => Some(64),
            (false, false) => Some(32),
            _ => None,
        };
        let fits = |bits: &u32| {
            let (Some(left), Some(right)) = (left.bounds(), right.bounds()) else {
                return false;
            };
            let ends = [(left.min, right.max), (left.max, right.min)];
            let mut differences = ends
                .iter()
                .map(|(left, right)| i128::from(*left) - i128::from(*right));
            let negative = -1i128 << (bits - 1);
            differences.all(|difference| (negative..-negative).contains(&difference))
        };
        Self {
            other,
            op,
            difference_bits: bits.filter(|_| is_plain).filter(fits),
        }
    }

    /// Whether a row passes.
    pub fn passes(&self, [left, right]: [Side; 2], chunk: usize, row: usize) -> bool {
        match (left.value(chunk, row), right.value(chunk, row)) {
            (Some(left), Some(right)) => self.op.passes(left.cmp(&right)),
            _ => false,
        }
    }

    /// Clears the bits of the rows of a chunk of `len` rows that do not pass.
    pub fn test_all(
        &self,
        backend: Backend,
        [left, right]: [Side; 2],
        (chunk, len): (usize, usize),
        found: &mut [u64; WORDS],
    ) {
        match self.difference_bits {
            Some(32) => {
                let (lo, span) = self.op.differences(32);
                let [left, right] = [left, right].map(|side| side.buffer.narrow.as_ref());
                let differences: [u32; CHUNK_ROWS] =
                    std::array::from_fn(|row| left[row].wrapping_sub(right[row]));
                let (lo, span) = (lo as u32, span as u32);
                backend.in_range(&differences[..len], lo, span, Combine::And, found);
            }
            Some(_) => {
                let (lo, span) = self.op.differences(64);
                let [left, right] = [left, right].map(|side| side.buffer.wide());
                let differences: [u64; CHUNK_ROWS] =
                    std::array::from_fn(|row| left[row].wrapping_sub(right[row]));
                backend.in_range(&differences[..len], lo, span, Combine::And, found);
            }
            None => {
                let value = |side: Side, row| {
                    ordered(side.column.word(side.buffer, row), side.column.signed)
                };
                for (idx, word) in found.iter_mut().enumerate() {
                    let rows = idx * 64..len.min(idx * 64 + 64);
                    let bits = rows.enumerate().map(|(bit, row)| {
                        let order = value(left, row).cmp(&value(right, row));
                        u64::from(self.op.passes(order)) << bit
                    });
                    *word &= bits.fold(0, |bits, bit| bits | bit);
                }
            }
        }
        left.drop_nulls(chunk, len, found);
        right.drop_nulls(chunk, len, found);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vortex::VortexSessionDefault;
    use vortex::array::arrays::{DictArray, PrimitiveArray};
    use vortex::array::{ArrayRef, IntoArray, VortexSessionExecute};
    use vortex::encodings::fastlanes::FoRData;
    use vortex::session::VortexSession;

    use super::*;

    const ROWS: usize = 1500;

    /// A column of these values in an encoding by number, as far as it can have the values.
    fn stored(values: &[Option<i64>], encoding: usize) -> ArrayRef {
        let mut context = VortexSession::default().create_execution_ctx();
        let narrow = || values.iter().map(|value| value.map(|value| value as i32));
        let narrow = || PrimitiveArray::from_option_iter(narrow());
        let wide = || PrimitiveArray::from_option_iter(values.iter().copied());
        match encoding {
            0 => narrow().into_array(),
            1 => FoRData::encode(narrow(), &mut context)
                .unwrap()
                .into_array(),
            2 => wide().into_array(),
            3 => FoRData::encode(wide(), &mut context).unwrap().into_array(),
            4 => {
                let unsigned = values.iter().map(|value| value.map(|value| value as u64));
                PrimitiveArray::from_option_iter(unsigned).into_array()
            }
            _ => {
                let codes: Vec<u16> = (0..values.len()).map(|row| row as u16).collect();
                let codes = PrimitiveArray::from_iter(codes).into_array();
                DictArray::try_new(codes, narrow().into_array())
                    .unwrap()
                    .into_array()
            }
        }
    }

    /// The same values as numbers in their order.
    fn number(value: i64, encoding: usize) -> i128 {
        match encoding {
            2 | 3 => i128::from(value),
            4 => i128::from(value as u64),
            _ => i128::from(value as i32),
        }
    }

    fn columns() -> impl Strategy<Value = (Vec<Option<i64>>, Vec<Option<i64>>)> {
        let value = || {
            let value = prop_oneof![6 => -9i64..9, 1 => any::<i64>(), 1 => any::<i32>().prop_map(i64::from)];
            let near = (-40i64..40).boxed();
            prop_oneof![Just(value.boxed()), Just(near)].prop_flat_map(|value| {
                proptest::collection::vec(proptest::option::weighted(0.9, value), ROWS)
            })
        };
        (value(), value())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn columns_are_compared_as_their_values(
            (left, right) in columns(),
            (first, second) in prop_oneof![
                (prop_oneof![Just(0), Just(1), Just(5)], prop_oneof![Just(0), Just(1), Just(5)]),
                (2usize..4, 2usize..4),
                Just((4, 4)),
            ],
            op in prop_oneof![
                Just(Comparing::Equal),
                Just(Comparing::Different),
                Just(Comparing::Less),
                Just(Comparing::LessOrEqual),
                Just(Comparing::Greater),
                Just(Comparing::GreaterOrEqual),
            ],
        ) {
            let mut context = VortexSession::default().create_execution_ctx();
            let columns = [stored(&left, first), stored(&right, second)]
                .map(|array| ChunkColumn::of_stored(&array, &mut context).unwrap().unwrap());
            let pair = ColumnPair::new(op, [&columns[0], &columns[1]], 1);
            let mut buffers = [ChunkBuffer::default(), ChunkBuffer::default()];
            for chunk in 0..2 {
                let len = columns[0].chunk_len(chunk);
                for (column, buffer) in columns.iter().zip(&mut buffers) {
                    column.decode(chunk, buffer).unwrap();
                }
                let sides = [0, 1].map(|idx| Side { column: &columns[idx], buffer: &buffers[idx] });
                let mut found = [u64::MAX; WORDS];
                pair.test_all(Backend::detect(), sides, (chunk, len), &mut found);
                for row in 0..len {
                    let at = chunk * 1024 + row;
                    let expected = match (left[at], right[at]) {
                        (Some(left), Some(right)) => {
                            op.passes(number(left, first).cmp(&number(right, second)))
                        }
                        _ => false,
                    };
                    prop_assert_eq!(is_set(&found, row as u32), expected, "row {}", at);
                    prop_assert_eq!(pair.passes(sides, chunk, row), expected, "row {}", at);
                }
            }
        }
    }
}
