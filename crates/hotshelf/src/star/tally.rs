//! Sums and extremes of words by group. A batch of few groups is added up in 64 bits, in several copies side by side
//! so that rows of one group do not wait for each other, and then to totals of 128 bits.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;

use super::words::{Bounds, Values, Words, array_of, values_of};

/// Up to this many groups are added up beside each other first.
const FEW_GROUPS: usize = 64;
/// Copies of their sums.
const LANES: usize = 4;

/// Which group each row of a batch belongs to.
#[derive(Clone, Copy)]
pub(super) enum GroupNumbers<'a> {
    /// All rows to the only one.
    One,
    /// Each row to the group of its number, which is below `count`.
    Each { numbers: &'a [u32], count: usize },
}

/// What is kept of a group's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Their sum, modulo 2^64.
    Sum64,
    /// Their sum, modulo 2^128.
    Sum128,
    Least,
    Greatest,
}

/// The values that are added up, of one batch.
pub(super) enum Numbers {
    Words(Words),
    Wide(Vec<i128>),
}

/// One number for each group.
pub(super) enum Tally {
    Sum64(Vec<i64>),
    Sum128(Vec<i128>),
    Least(Vec<i128>),
    Greatest(Vec<i128>),
}

impl GroupNumbers<'_> {
    pub fn count(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Each { count, .. } => *count,
        }
    }

    fn of(&self, row: usize) -> usize {
        match self {
            Self::One => 0,
            Self::Each { numbers, .. } => numbers[row] as usize,
        }
    }

    /// Counts the rows of each group.
    pub fn count_rows(&self, row_count: usize, totals: &mut [i64]) {
        match self {
            Self::One => totals[0] += row_count as i64,
            Self::Each { numbers, count } if *count <= FEW_GROUPS => {
                let sums = few_sums(numbers.chunks(LANES).map(|numbers| (numbers, [1; LANES])));
                totals
                    .iter_mut()
                    .zip(sums)
                    .for_each(|(total, sum)| *total += sum);
            }
            Self::Each { numbers, .. } => {
                numbers
                    .iter()
                    .for_each(|number| totals[*number as usize] += 1);
            }
        }
    }

    /// Counts the rows of each group that are not valid.
    pub fn count_missing(&self, valid: &BooleanBuffer, totals: &mut Vec<i64>) {
        totals.resize(self.count(), 0);
        (!valid)
            .set_indices()
            .for_each(|row| totals[self.of(row)] += 1);
    }
}

/// The sums of up to `FEW_GROUPS` groups, of steps of `LANES` rows.
fn few_sums<'a>(steps: impl Iterator<Item = (&'a [u32], [i64; LANES])>) -> [i64; FEW_GROUPS] {
    let mut lanes = [[0i64; FEW_GROUPS]; LANES];
    for (numbers, values) in steps {
        for ((lane, number), value) in lanes.iter_mut().zip(numbers).zip(values) {
            let sum = &mut lane[*number as usize % FEW_GROUPS];
            *sum = sum.wrapping_add(value);
        }
    }
    let [mut sums, rest @ ..] = lanes;
    for lane in rest {
        sums.iter_mut()
            .zip(lane)
            .for_each(|(sum, value)| *sum = sum.wrapping_add(value));
    }
    sums
}

impl Numbers {
    pub fn of_array(array: &ArrayRef) -> QueryResult<Self> {
        if let Some(words) = Words::of_array(array) {
            return Ok(Self::Words(words));
        }
        let data = array.to_data();
        let wide = match array.data_type() {
            DataType::Decimal128(..) => values_of::<i128>(&data).map(<[i128]>::to_vec),
            DataType::UInt64 => values_of::<u64>(&data)
                .map(|values| values.iter().map(|value| i128::from(*value)).collect()),
            _ => None,
        };
        match wide {
            Some(wide) => Ok(Self::Wide(wide)),
            None => internal_err!("{} is not added up", array.data_type()),
        }
    }
}

impl Tally {
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sum64 => Self::Sum64(Vec::new()),
            Kind::Sum128 => Self::Sum128(Vec::new()),
            Kind::Least => Self::Least(Vec::new()),
            Kind::Greatest => Self::Greatest(Vec::new()),
        }
    }

    /// Makes room for groups.
    pub fn resize(&mut self, count: usize) {
        match self {
            Self::Sum64(totals) => totals.resize(count, 0),
            Self::Sum128(totals) => totals.resize(count, 0),
            Self::Least(totals) => totals.resize(count, i128::MAX),
            Self::Greatest(totals) => totals.resize(count, i128::MIN),
        }
    }

    pub fn clear(&mut self) {
        *self = match self {
            Self::Sum64(_) => Self::Sum64(Vec::new()),
            Self::Sum128(_) => Self::Sum128(Vec::new()),
            Self::Least(_) => Self::Least(Vec::new()),
            Self::Greatest(_) => Self::Greatest(Vec::new()),
        };
    }

    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Sum64(totals) => totals.capacity() * size_of::<i64>(),
            Self::Sum128(totals) | Self::Least(totals) | Self::Greatest(totals) => {
                totals.capacity() * size_of::<i128>()
            }
        }
    }

    /// Adds the valid rows of a batch.
    pub fn update(
        &mut self,
        numbers: &Numbers,
        valid: Option<&BooleanBuffer>,
        groups: GroupNumbers<'_>,
        row_count: usize,
    ) {
        match (self, numbers) {
            (Self::Sum64(totals), Numbers::Words(words)) => {
                let words = valid_words(words, valid, row_count);
                match groups {
                    GroupNumbers::One => {
                        let sum = words.values.each().iter();
                        totals[0] = sum.fold(totals[0], |sum, word| sum.wrapping_add(*word));
                    }
                    GroupNumbers::Each { numbers, count } => {
                        let words = words.values.each();
                        add(words, numbers, count, totals, |total, sum| {
                            total.wrapping_add(sum)
                        });
                    }
                }
            }
            (Self::Sum128(totals), Numbers::Words(words)) => {
                add_words(&valid_words(words, valid, row_count), groups, totals);
            }
            (Self::Sum64(totals), Numbers::Wide(values)) => {
                each_valid(values, valid, |row, value| {
                    let total = &mut totals[groups.of(row)];
                    *total = total.wrapping_add(value as i64);
                });
            }
            (Self::Sum128(totals), Numbers::Wide(values)) => {
                each_valid(values, valid, |row, value| {
                    let total = &mut totals[groups.of(row)];
                    *total = total.wrapping_add(value);
                });
            }
            (Self::Least(totals), numbers) => {
                extreme(numbers, valid, groups, row_count, totals, |a, b| a.min(b));
            }
            (Self::Greatest(totals), numbers) => {
                extreme(numbers, valid, groups, row_count, totals, |a, b| a.max(b));
            }
        }
    }

    /// The numbers as an array, NULL where a group has none.
    pub fn array(&self, data_type: &DataType, nulls: Option<NullBuffer>) -> QueryResult<ArrayRef> {
        let (bytes, count) = match self {
            Self::Sum64(totals) => (Buffer::from_slice_ref(totals), totals.len()),
            Self::Sum128(totals) | Self::Least(totals) | Self::Greatest(totals) => {
                (narrow(data_type, totals, nulls.as_ref()), totals.len())
            }
        };
        match array_of(data_type, count, bytes, nulls) {
            Some(array) => Ok(array),
            None => internal_err!("{data_type} is not made of words"),
        }
    }
}

/// Numbers in the width of a type; zero where there is none.
fn narrow(data_type: &DataType, totals: &[i128], nulls: Option<&NullBuffer>) -> Buffer {
    let present = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let totals = totals.iter().enumerate();
    let mut totals = totals.map(|(row, total)| if present(row) { *total } else { 0 });
    match data_type.primitive_width() {
        Some(1) => Buffer::from_vec(totals.map(|total| total as u8).collect::<Vec<_>>()),
        Some(2) => Buffer::from_vec(totals.map(|total| total as u16).collect::<Vec<_>>()),
        Some(4) => Buffer::from_vec(totals.map(|total| total as u32).collect::<Vec<_>>()),
        Some(8) => Buffer::from_vec(totals.map(|total| total as u64).collect::<Vec<_>>()),
        _ => Buffer::from_vec(totals.by_ref().collect::<Vec<i128>>()),
    }
}

/// The words with zeros where rows are not valid, and one for each row.
fn valid_words(words: &Words, valid: Option<&BooleanBuffer>, row_count: usize) -> Words {
    let bounds = Bounds {
        min: words.bounds.min.min(0),
        max: words.bounds.max.max(0),
    };
    let values = match (&words.values, valid) {
        (Values::Each(_), None) => return words.clone(),
        (Values::Each(each), Some(valid)) => {
            let rows = each.iter().zip(valid.iter());
            rows.map(|(word, valid)| word & -i64::from(valid)).collect()
        }
        (Values::All(word), None) => vec![*word; row_count],
        (Values::All(word), Some(valid)) => {
            valid.iter().map(|valid| word & -i64::from(valid)).collect()
        }
    };
    Words::each(values, None, Some(bounds))
}

fn each_valid(values: &[i128], valid: Option<&BooleanBuffer>, mut row: impl FnMut(usize, i128)) {
    match valid {
        None => values
            .iter()
            .enumerate()
            .for_each(|(idx, value)| row(idx, *value)),
        Some(valid) => valid.set_indices().for_each(|idx| row(idx, values[idx])),
    }
}

/// Adds words to totals of 128 bits.
fn add_words(words: &Words, groups: GroupNumbers<'_>, totals: &mut [i128]) {
    let values = words.values.each();
    let rows = values.len().max(1) as u64;
    let fits = words.bounds.magnitude() <= i64::MAX as u64 / rows;
    match groups {
        GroupNumbers::One if fits => {
            totals[0] = totals[0].wrapping_add(i128::from(values.iter().sum::<i64>()));
        }
        GroupNumbers::One => {
            let values = values.iter().map(|word| i128::from(*word));
            totals[0] = values.fold(totals[0], i128::wrapping_add);
        }
        GroupNumbers::Each { numbers, count } => {
            let few = if fits { count } else { usize::MAX };
            let plus = |total: i128, word: i64| total.wrapping_add(i128::from(word));
            add(values, numbers, few, totals, plus);
        }
    }
}

/// Adds words to the totals of their groups.
fn add<T: Copy>(
    values: &[i64],
    numbers: &[u32],
    count: usize,
    totals: &mut [T],
    plus: impl Fn(T, i64) -> T,
) {
    if count > FEW_GROUPS {
        for (word, number) in values.iter().zip(numbers) {
            let total = &mut totals[*number as usize];
            *total = plus(*total, *word);
        }
        return;
    }
    let (values, values_rest) = values.as_chunks::<LANES>();
    let (numbers, numbers_rest) = numbers.split_at(values.len() * LANES);
    let whole = numbers.chunks(LANES).zip(values.iter().copied());
    let mut last = [0; LANES];
    last.iter_mut()
        .zip(values_rest)
        .for_each(|(last, value)| *last = *value);
    let sums = few_sums(whole.chain(std::iter::once((numbers_rest, last))));
    for (total, sum) in totals.iter_mut().zip(sums) {
        *total = plus(*total, sum);
    }
}

fn extreme(
    numbers: &Numbers,
    valid: Option<&BooleanBuffer>,
    groups: GroupNumbers<'_>,
    row_count: usize,
    totals: &mut [i128],
    better: impl Fn(i128, i128) -> i128,
) {
    let mut row = |idx: usize, value: i128| {
        let total = &mut totals[groups.of(idx)];
        *total = better(*total, value);
    };
    match numbers {
        Numbers::Wide(values) => each_valid(values, valid, row),
        Numbers::Words(words) => {
            let word = |idx: usize| match &words.values {
                Values::Each(each) => i128::from(each[idx]),
                Values::All(word) => i128::from(*word),
            };
            match valid {
                None => (0..row_count).for_each(|idx| row(idx, word(idx))),
                Some(valid) => valid.set_indices().for_each(|idx| row(idx, word(idx))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::Decimal128Type;

    /// What the tally of each kind must be, group by group, in 128 bits.
    fn expected(kind: Kind, rows: &[(i128, usize, bool)], group: usize) -> i128 {
        let values = rows.iter().filter(|(_, of, valid)| *of == group && *valid);
        let values = values.map(|(value, ..)| *value);
        match kind {
            Kind::Sum64 => {
                i128::from(values.fold(0i64, |sum, value| sum.wrapping_add(value as i64)))
            }
            Kind::Sum128 => values.fold(0i128, i128::wrapping_add),
            Kind::Least => values.min().unwrap_or(0),
            Kind::Greatest => values.max().unwrap_or(0),
        }
    }

    #[test]
    fn tallies_are_those_of_128_bit_arithmetic() {
        let mut random = fastrand::Rng::with_seed(3);
        let kinds = [Kind::Sum64, Kind::Sum128, Kind::Least, Kind::Greatest];
        for _ in 0..400 {
            let group_count = [1, 3, FEW_GROUPS, 500][random.usize(0..4)];
            let kind = kinds[random.usize(0..kinds.len())];
            let mut tally = Tally::new(kind);
            tally.resize(group_count);
            let mut all = Vec::new();
            for _ in 0..random.usize(1..4) {
                let bits = [8, 40, 62, 63, 90][random.usize(0..5)];
                let bits = if kind == Kind::Sum64 {
                    bits.min(63)
                } else {
                    bits
                };
                let range = -(1i128 << bits)..1i128 << bits;
                let valid_share = random.u8(0..3);
                let row = |random: &mut fastrand::Rng| {
                    let valid = valid_share == 0 || random.u8(0..3) < valid_share;
                    (
                        random.i128(range.clone()),
                        random.usize(0..group_count),
                        valid,
                    )
                };
                let rows: Vec<_> = (0..random.usize(0..300))
                    .map(|_| row(&mut random))
                    .collect();
                let numbers: Vec<u32> = rows.iter().map(|(_, group, _)| *group as u32).collect();
                let groups = match group_count {
                    1 => GroupNumbers::One,
                    count => GroupNumbers::Each {
                        numbers: &numbers,
                        count,
                    },
                };
                let valid: BooleanBuffer = rows.iter().map(|(.., valid)| *valid).collect();
                let valid = (valid_share > 0).then_some(&valid);
                let words: Option<Vec<i64>> = rows
                    .iter()
                    .map(|(value, ..)| i64::try_from(*value).ok())
                    .collect();
                let values = match words {
                    Some(words) => Numbers::Words(Words::each(words, None, None)),
                    None => Numbers::Wide(rows.iter().map(|(value, ..)| *value).collect()),
                };
                tally.update(&values, valid, groups, rows.len());
                all.extend(rows);
            }
            let has_value = |group| all.iter().any(|(_, of, valid)| *of == group && *valid);
            let nulls = NullBuffer::from((0..group_count).map(has_value).collect::<Vec<_>>());
            let data_type = match kind {
                Kind::Sum64 => DataType::Int64,
                _ => DataType::Decimal128(38, 0),
            };
            let array = tally.array(&data_type, Some(nulls)).unwrap();
            for group in 0..group_count {
                let wanted = has_value(group).then(|| expected(kind, &all, group));
                let found = array.is_valid(group).then(|| match &data_type {
                    DataType::Int64 => i128::from(
                        array
                            .as_primitive::<arrow::datatypes::Int64Type>()
                            .value(group),
                    ),
                    _ => array.as_primitive::<Decimal128Type>().value(group),
                });
                assert_eq!(found, wanted, "{kind:?} of group {group}");
            }
        }
    }
}
