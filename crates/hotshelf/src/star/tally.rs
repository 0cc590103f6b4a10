//! Sums and extremes of words by group. A batch of few groups is added up in 64 bits, in several copies side by side
//! so that rows of one group do not wait for each other, and then to totals of 128 bits.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result as QueryResult;

use super::words::{Bounds, Values, Words, array_of, values_of};
use crate::look_ups::LookUpShelf;

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
    Sum,
    Least,
    Greatest,
}

/// The values that are added up, of one batch.
pub(super) enum Numbers {
    Words(Words),
    Wide(Vec<i128>),
}

/// One number for each group.
pub(super) struct Tally {
    kind: Kind,
    totals: Vec<i128>,
    /// Whether a sum has left 128 bits; it is a sum modulo 2^128 then.
    pub has_overflowed: bool,
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
        Self {
            kind,
            totals: Vec::new(),
            has_overflowed: false,
        }
    }

    /// Makes room for groups.
    pub fn resize(&mut self, count: usize) {
        let none = match self.kind {
            Kind::Sum => 0,
            Kind::Least => i128::MAX,
            Kind::Greatest => i128::MIN,
        };
        self.totals.resize(count, none);
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.kind);
    }

    pub fn place_on(&self, shelf: &LookUpShelf) {
        shelf.place(&self.totals);
    }

    pub fn size_bytes(&self) -> usize {
        self.totals.capacity() * size_of::<i128>()
    }

    /// Adds the valid rows of a batch.
    pub fn update(
        &mut self,
        numbers: &Numbers,
        valid: Option<&BooleanBuffer>,
        groups: GroupNumbers<'_>,
        row_count: usize,
    ) {
        let totals = &mut self.totals;
        match (self.kind, numbers) {
            (Kind::Sum, Numbers::Words(words)) => {
                add_words(&valid_words(words, valid, row_count), groups, totals);
            }
            (Kind::Sum, Numbers::Wide(values)) => {
                let mut has_overflowed = self.has_overflowed;
                each_valid(values, valid, |row, value| {
                    let total = &mut totals[groups.of(row)];
                    let (sum, over) = total.overflowing_add(value);
                    *total = sum;
                    has_overflowed |= over;
                });
                self.has_overflowed = has_overflowed;
            }
            (Kind::Least, numbers) => extreme(numbers, valid, groups, totals, |a, b| a < b),
            (Kind::Greatest, numbers) => extreme(numbers, valid, groups, totals, |a, b| a > b),
        }
    }

    /// Whether the numbers of all groups are within a type's integers, or have at most its number of digits.
    pub fn fits(&self, data_type: &DataType, checks_digits: bool) -> bool {
        let mut totals = self.totals.iter();
        !self.has_overflowed
            && match data_type {
                DataType::Int64 => totals.all(|total| i64::try_from(*total).is_ok()),
                DataType::UInt64 => totals.all(|total| u64::try_from(*total).is_ok()),
                DataType::Decimal128(precision, _) if checks_digits => {
                    let limit = 10u128.pow(u32::from(*precision));
                    totals.all(|total| total.unsigned_abs() < limit)
                }
                _ => true,
            }
    }

    /// The numbers as an array, NULL where a group has none.
    pub fn array(&self, data_type: &DataType, nulls: Option<NullBuffer>) -> QueryResult<ArrayRef> {
        let bytes = narrow(data_type, &self.totals, nulls.as_ref());
        match array_of(data_type, self.totals.len(), bytes, nulls) {
            Some(array) => Ok(array),
            None => internal_err!("{data_type} is not made of words"),
        }
    }
}

/// Numbers in the width of a type; zero where there is none.
fn narrow(data_type: &DataType, totals: &[i128], nulls: Option<&NullBuffer>) -> Buffer {
    let present = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let totals = totals.iter().enumerate();
    let totals = totals.map(|(row, total)| if present(row) { *total } else { 0 });
    match data_type.primitive_width() {
        Some(1) => Buffer::from_vec(totals.map(|total| total as u8).collect::<Vec<_>>()),
        Some(2) => Buffer::from_vec(totals.map(|total| total as u16).collect::<Vec<_>>()),
        Some(4) => Buffer::from_vec(totals.map(|total| total as u32).collect::<Vec<_>>()),
        Some(8) => Buffer::from_vec(totals.map(|total| total as u64).collect::<Vec<_>>()),
        _ => Buffer::from_vec(totals.collect::<Vec<i128>>()),
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

/// Adds words to totals. These would need 2^64 rows to overflow.
fn add_words(words: &Words, groups: GroupNumbers<'_>, totals: &mut [i128]) {
    let values = words.values.each();
    let rows = values.len().max(1) as u64;
    // Whether the batch's sums stay within 64 bits.
    let fits = words.bounds.magnitude() <= i64::MAX as u64 / rows;
    match groups {
        GroupNumbers::One if fits => {
            totals[0] = totals[0].wrapping_add(i128::from(values.iter().sum::<i64>()));
        }
        GroupNumbers::One => {
            let values = values.iter().map(|word| i128::from(*word));
            totals[0] = values.fold(totals[0], i128::wrapping_add);
        }
        GroupNumbers::Each { numbers, count } if fits && count <= FEW_GROUPS => {
            let (values, values_rest) = values.as_chunks::<LANES>();
            let (numbers, numbers_rest) = numbers.split_at(values.len() * LANES);
            let whole = numbers.chunks(LANES).zip(values.iter().copied());
            let mut last = [0; LANES];
            let rest = last.iter_mut().zip(values_rest);
            rest.for_each(|(last, value)| *last = *value);
            let sums = few_sums(whole.chain(std::iter::once((numbers_rest, last))));
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total = total.wrapping_add(i128::from(sum));
            }
        }
        GroupNumbers::Each { numbers, .. } => {
            for (word, number) in values.iter().zip(numbers) {
                let total = &mut totals[*number as usize];
                *total = total.wrapping_add(i128::from(*word));
            }
        }
    }
}

/// Keeps the better of each group's number and those of its rows.
fn extreme(
    numbers: &Numbers,
    valid: Option<&BooleanBuffer>,
    groups: GroupNumbers<'_>,
    totals: &mut [i128],
    is_better: impl Fn(i128, i128) -> bool + Copy,
) {
    let mut row = |idx: usize, value: i128| {
        let total = &mut totals[groups.of(idx)];
        if is_better(value, *total) {
            *total = value;
        }
    };
    match (numbers, valid) {
        (Numbers::Wide(values), _) => each_valid(values, valid, row),
        (Numbers::Words(words), Some(valid)) => {
            let word = |idx: usize| match &words.values {
                Values::Each(each) => each[idx],
                Values::All(word) => *word,
            };
            valid
                .set_indices()
                .for_each(|idx| row(idx, i128::from(word(idx))));
        }
        (Numbers::Words(words), None) => match (&words.values, groups) {
            (Values::Each(each), _) if groups.count() <= FEW_GROUPS => {
                few_extremes(each, groups, totals, is_better);
            }
            (Values::Each(each), _) => {
                let rows = each.iter().enumerate();
                rows.for_each(|(idx, word)| row(idx, i128::from(*word)));
            }
            (Values::All(word), GroupNumbers::One) => row(0, i128::from(*word)),
            (Values::All(word), GroupNumbers::Each { numbers, .. }) => {
                (0..numbers.len()).for_each(|idx| row(idx, i128::from(*word)));
            }
        },
    }
}

/// The same for up to `FEW_GROUPS` groups: words are compared with words first.
fn few_extremes(
    values: &[i64],
    groups: GroupNumbers<'_>,
    totals: &mut [i128],
    is_better: impl Fn(i128, i128) -> bool,
) {
    let better = |a: i64, b: i64| match is_better(a.into(), b.into()) {
        true => a,
        false => b,
    };
    let Some(first) = values.first() else {
        return;
    };
    let mut best = [*first; FEW_GROUPS];
    let mut seen = 0u64;
    match groups {
        GroupNumbers::One => {
            seen = 1;
            best[0] = values.iter().fold(*first, |best, word| better(*word, best));
        }
        GroupNumbers::Each { numbers, .. } => {
            for (word, number) in values.iter().zip(numbers) {
                let group = *number as usize % FEW_GROUPS;
                let is_first = (seen >> group) & 1 == 0;
                seen |= 1 << group;
                best[group] = match is_first {
                    true => *word,
                    false => better(*word, best[group]),
                };
            }
        }
    }
    for (group, total) in totals.iter_mut().enumerate() {
        let word = i128::from(best[group % FEW_GROUPS]);
        if (seen >> (group % FEW_GROUPS)) & 1 == 1 && is_better(word, *total) {
            *total = word;
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
            Kind::Sum => values.sum(),
            Kind::Least => values.min().unwrap_or(0),
            Kind::Greatest => values.max().unwrap_or(0),
        }
    }

    #[test]
    fn tallies_are_those_of_128_bit_arithmetic() {
        let mut random = fastrand::Rng::with_seed(3);
        let kinds = [Kind::Sum, Kind::Least, Kind::Greatest];
        for _ in 0..400 {
            let group_count = [1, 3, FEW_GROUPS, 500][random.usize(0..4)];
            let kind = kinds[random.usize(0..kinds.len())];
            let mut tally = Tally::new(kind);
            tally.resize(group_count);
            let mut all = Vec::new();
            for _ in 0..random.usize(1..4) {
                let bits = [8, 40, 62, 63, 90][random.usize(0..5)];
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
            let data_type = DataType::Decimal128(38, 0);
            let sums = (0..group_count).map(|group| expected(kind, &all, group));
            let mut sums = sums.filter(|_| kind == Kind::Sum);
            let fits = sums.all(|sum| i64::try_from(sum).is_ok());
            assert!(kind != Kind::Sum || tally.fits(&DataType::Int64, false) == fits);
            let array = tally.array(&data_type, Some(nulls)).unwrap();
            for group in 0..group_count {
                let wanted = has_value(group).then(|| expected(kind, &all, group));
                let decimals = array.as_primitive::<Decimal128Type>();
                let found = array.is_valid(group).then(|| decimals.value(group));
                assert_eq!(found, wanted, "{kind:?} of group {group}");
            }
        }
    }

    #[test]
    fn sums_that_leave_their_type_are_noticed() {
        let sum = |values: Vec<i128>, data_type: DataType, checks_digits| {
            let mut tally = Tally::new(Kind::Sum);
            tally.resize(1);
            let count = values.len();
            tally.update(&Numbers::Wide(values), None, GroupNumbers::One, count);
            tally.fits(&data_type, checks_digits)
        };
        let most = i128::from(i64::MAX);
        assert!(sum(vec![most, 1, -1], DataType::Int64, true));
        assert!(!sum(vec![most, 1], DataType::Int64, true));
        assert!(sum(vec![most, most, 1], DataType::UInt64, true));
        assert!(!sum(vec![-1], DataType::UInt64, true));
        assert!(!sum(vec![i128::MAX, 1], DataType::Decimal128(38, 0), false));
        assert!(sum(
            vec![10i128.pow(12)],
            DataType::Decimal128(12, 0),
            false
        ));
        assert!(!sum(
            vec![10i128.pow(12)],
            DataType::Decimal128(12, 0),
            true
        ));
    }
}
