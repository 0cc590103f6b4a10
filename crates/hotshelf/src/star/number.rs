//! Numbers the groups of rows by their values as they come. Where all keys are small dictionaries in a row group, a
//! row's group is found by its codes, and only codes that come together for the first time are looked for in
//! a hash table; the same where the only key is an integer whose values lie close together. Other keys are
//! looked for in the hash table, runs of equal ones once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{partition, take};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use hotshelf_operators::OperatorError;
use hotshelf_operators::aggregate::GroupNumbers;

use super::accumulate::{Keys, arrays};
use super::lookup::MISS;
use super::narrow::Computation;
use super::rows::{Codes, Rows, Value};
use super::words::{Words, are_words};
use crate::error::Error;
use crate::look_ups::LookUpShelf;

/// Rows that a run of equal keys must have on average to be worth finding.
const RUN_ROWS_MIN: usize = 2;
/// Rows after which runs are looked for again where keys came without.
const ROWS_WITHOUT_RUNS: usize = 122_880;
/// Up to this many combinations of codes have a table.
const CODES_MAX: usize = 4096;
/// Up to this many integers, from the least to the greatest, have a table.
const SPAN_MAX: usize = 1 << 20;
/// Marks a place that gets a group next.
const UNNUMBERED: u32 = MISS - 1;

/// The numbers of groups by their values.
pub(super) struct Numbering {
    values: Values,
    pub group_of_row: Vec<u32>,
    /// Numbers as DataFusion gives them.
    found: Vec<usize>,
    rows_without_runs: usize,
    /// Group by combination of codes, in the present row group; `MISS` where it has not come yet.
    by_codes: Vec<u32>,
    by_value: ByValue,
}

/// Finds the groups of keys.
enum Values {
    /// Hotshelf's table, which has many loads under way at once.
    Own(Box<GroupNumbers>),
    /// For several columns of texts, for others whose keys are neither words nor texts, and for floats, of which groups
    /// tell zero from minus zero.
    Engine(Box<dyn GroupValues>),
}

impl Values {
    fn new(keys: SchemaRef) -> QueryResult<Self> {
        let types = keys.fields().iter();
        let types = types.map(|field| (field.data_type().clone(), true));
        let types: Vec<_> = types.collect();
        let is_known = !types.is_empty() && types.iter().all(|(each, _)| !each.is_floating());
        if is_known
            && let Ok(own) = GroupNumbers::try_new(&types)
            && own.is_quick()
        {
            return Ok(Self::Own(Box::new(own)));
        }
        new_group_values(keys, &GroupOrdering::None).map(Self::Engine)
    }

    fn len(&self) -> usize {
        match self {
            Self::Own(own) => own.len(),
            Self::Engine(engine) => engine.len(),
        }
    }

    fn number(&mut self, keys: &[ArrayRef], numbers: &mut Vec<usize>) -> QueryResult<()> {
        match self {
            Self::Own(own) => {
                let rows = keys.first().map_or(0, |key| key.len());
                own.number(keys, rows, numbers).map_err(failed)
            }
            Self::Engine(engine) => engine.intern(keys, numbers),
        }
    }

    /// Takes the keys of all groups out.
    fn take(&mut self) -> QueryResult<Vec<ArrayRef>> {
        match self {
            Self::Own(own) => own.take().map_err(failed),
            Self::Engine(engine) => {
                let keys = engine.emit(EmitTo::All)?;
                engine.clear_shrink(0);
                Ok(keys)
            }
        }
    }

    /// Memory in bytes.
    fn size_bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.bytes() as usize,
            Self::Engine(engine) => engine.size(),
        }
    }
}

fn failed(error: OperatorError) -> DataFusionError {
    Error::from(error).into()
}

/// Groups by the value of a key that is an integer.
#[derive(Default)]
struct ByValue {
    /// The value at the first place.
    first: i64,
    /// The greatest value that came.
    last: i64,
    /// `MISS` where a value has not come yet.
    groups: Vec<u32>,
    /// Values came that are too far apart.
    is_far_apart: bool,
}

impl ByValue {
    /// Makes places for values. False if they are too far apart.
    fn cover(&mut self, values: &[i64]) -> bool {
        let start = values.first().copied().unwrap_or(0);
        let (min, max) = values.iter().fold((start, start), |(min, max), value| {
            (min.min(*value), max.max(*value))
        });
        let len = self.groups.len();
        let (mut first, mut last) = (i128::from(min), i128::from(max));
        if len > 0 {
            let known = i128::from(self.first);
            let is_covered = known <= first && last < known + len as i128;
            (first, last) = (first.min(known), last.max(i128::from(self.last)));
            if is_covered {
                self.last = last as i64;
                return true;
            }
        }
        if last - first >= SPAN_MAX as i128 {
            self.is_far_apart = true;
            self.groups = Vec::new();
            return false;
        }
        // Values that rise or fall batch by batch must not move the table each time.
        let end = last
            .max(first + 2 * len as i128)
            .min(first + SPAN_MAX as i128 - 1);
        let mut groups = vec![MISS; (end - first + 1) as usize];
        if len > 0 {
            let offset = (i128::from(self.first) - first) as usize;
            let kept = len.min(groups.len() - offset);
            groups[offset..offset + kept].copy_from_slice(&self.groups[..kept]);
        }
        self.last = last as i64;
        self.first = first as i64;
        self.groups = groups;
        true
    }
}

/// Numbers rows whose place has a group. Returns the places that have none, each once.
fn number_known(places: &mut [u32], groups: &mut [u32]) -> Vec<u32> {
    let mut new = Vec::new();
    for place in places.iter() {
        let group = &mut groups[*place as usize];
        if *group == MISS {
            *group = UNNUMBERED;
            new.push(*place);
        }
    }
    if new.is_empty() {
        places
            .iter_mut()
            .for_each(|place| *place = groups[*place as usize]);
    }
    new
}

/// Numbers all rows, once new places have groups.
fn number_new(places: &mut [u32], groups: &mut [u32], new: &[u32], found: &[usize]) {
    for (place, group) in new.iter().zip(found) {
        groups[*place as usize] = *group as u32;
    }
    places
        .iter_mut()
        .for_each(|place| *place = groups[*place as usize]);
}

impl Numbering {
    pub fn new(keys: &Keys, schema: &SchemaRef) -> QueryResult<Self> {
        let key_count = match keys {
            Keys::Values(keys) => keys.len(),
            _ => 0,
        };
        let keys = Arc::new(Schema::new(schema.fields()[..key_count].to_vec()));
        Ok(Self {
            values: Values::new(keys)?,
            group_of_row: Vec::new(),
            found: Vec::new(),
            rows_without_runs: 0,
            by_codes: Vec::new(),
            by_value: ByValue::default(),
        })
    }

    pub fn group_count(&self) -> usize {
        self.values.len()
    }

    /// Codes mean other values in another row group.
    pub fn begin_row_group(&mut self) {
        self.by_codes.clear();
    }

    /// Numbers the group of each row.
    pub fn number(&mut self, keys: &[Computation], rows: &mut Rows<'_>) -> QueryResult<()> {
        if self.number_by_codes(keys, rows)? || self.number_by_value(keys, rows)? {
            return Ok(());
        }
        let keys = arrays(keys, rows)?;
        self.group_of_row.clear();
        if self.rows_without_runs > 0 {
            self.rows_without_runs = self.rows_without_runs.saturating_sub(rows.count());
            return self.look_up(&keys);
        }
        // Tables are often sorted by what they are grouped by, or by what it depends on.
        let runs = partition(&keys)?.ranges();
        if runs.len() * RUN_ROWS_MIN > rows.count() {
            self.rows_without_runs = ROWS_WITHOUT_RUNS;
            return self.look_up(&keys);
        }
        let starts: UInt32Array = runs.iter().map(|run| run.start as u32).collect();
        let firsts = keys.iter().map(|key| Ok(take(key, &starts, None)?));
        let firsts = firsts.collect::<QueryResult<Vec<_>>>()?;
        self.values.number(&firsts, &mut self.found)?;
        for (run, group) in runs.iter().zip(&self.found) {
            let numbers = std::iter::repeat_n(*group as u32, run.len());
            self.group_of_row.extend(numbers);
        }
        Ok(())
    }

    fn look_up(&mut self, keys: &[ArrayRef]) -> QueryResult<()> {
        self.values.number(keys, &mut self.found)?;
        let numbers = self.found.iter().map(|group| *group as u32);
        self.group_of_row.extend(numbers);
        Ok(())
    }

    /// False if a key is not a small dictionary in this row group.
    fn number_by_codes(&mut self, keys: &[Computation], rows: &mut Rows<'_>) -> QueryResult<bool> {
        let columns = keys
            .iter()
            .map(Computation::column)
            .collect::<Option<Vec<_>>>();
        let Some(columns) = columns else {
            return Ok(false);
        };
        let mut counts = columns.iter().map(|column| rows.code_count(*column));
        let code_count = counts.try_fold(1usize, |product, count| product.checked_mul(count?));
        let Some(code_count) = code_count.filter(|count| *count <= CODES_MAX) else {
            return Ok(false);
        };
        let dictionaries = columns.iter().map(|column| rows.codes(*column));
        let Some(mut dictionaries) = dictionaries.collect::<Option<Vec<Codes<'_>>>>() else {
            return Ok(false);
        };
        self.group_of_row.clear();
        let mut stride = 1;
        for (place, dictionary) in dictionaries.iter_mut().enumerate() {
            if place == 0 {
                self.group_of_row.append(&mut dictionary.codes);
            } else {
                let rows = self.group_of_row.iter_mut().zip(&dictionary.codes);
                rows.for_each(|(total, code)| *total += code * stride);
            }
            stride *= dictionary.values.len() as u32;
        }
        self.by_codes.resize(code_count, MISS);
        let new = number_known(&mut self.group_of_row, &mut self.by_codes);
        if new.is_empty() {
            return Ok(true);
        }
        let mut rest = new.clone();
        let keys = dictionaries.iter().map(|dictionary| {
            let count = dictionary.values.len() as u32;
            let codes: UInt32Array = rest.iter().map(|code| code % count).collect();
            rest.iter_mut().for_each(|code| *code /= count);
            Ok(take(dictionary.values, &codes, None)?)
        });
        let keys = keys.collect::<QueryResult<Vec<_>>>()?;
        self.values.number(&keys, &mut self.found)?;
        number_new(
            &mut self.group_of_row,
            &mut self.by_codes,
            &new,
            &self.found,
        );
        Ok(true)
    }

    /// False if there is not one key alone, or it is not an integer, has NULLs, or its values are far apart.
    fn number_by_value(&mut self, keys: &[Computation], rows: &mut Rows<'_>) -> QueryResult<bool> {
        let [key] = keys else {
            return Ok(false);
        };
        if self.by_value.is_far_apart || !are_words(&key.data_type) || key.node.is_none() {
            return Ok(false);
        }
        let Value::Words(words) = rows.value(key)? else {
            return Ok(false);
        };
        let values = words.values.each();
        if words.nulls.is_some() || values.is_empty() || !self.by_value.cover(values) {
            return Ok(false);
        }
        let first = self.by_value.first;
        let place = |value: &i64| value.wrapping_sub(first) as u32;
        self.group_of_row.clear();
        self.group_of_row.extend(values.iter().map(place));
        let new = number_known(&mut self.group_of_row, &mut self.by_value.groups);
        if new.is_empty() {
            return Ok(true);
        }
        let keys = new.iter().map(|place| first + i64::from(*place)).collect();
        let keys = Words::each(keys, None, None);
        let Some(keys) = keys.to_array(&key.data_type, new.len()) else {
            return internal_err!("{} is not made of words", key.data_type);
        };
        self.values.number(&[keys], &mut self.found)?;
        let groups = &mut self.by_value.groups;
        number_new(&mut self.group_of_row, groups, &new, &self.found);
        Ok(true)
    }

    /// Takes the keys of all groups out.
    pub fn take(&mut self) -> QueryResult<Vec<ArrayRef>> {
        let keys = self.values.take()?;
        self.group_of_row = Vec::new();
        self.found = Vec::new();
        self.by_codes.clear();
        self.by_value = ByValue {
            is_far_apart: self.by_value.is_far_apart,
            ..ByValue::default()
        };
        Ok(keys)
    }

    /// Has the tables of small and near keys on a shelf.
    pub fn place_on(&self, shelf: &LookUpShelf) {
        shelf.place(&self.by_codes);
        shelf.place(&self.by_value.groups);
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let tables = self.by_codes.capacity() + self.by_value.groups.capacity();
        let numbers = self.group_of_row.capacity() + tables;
        let found = self.found.capacity() * size_of::<usize>();
        self.values.size_bytes() + numbers * size_of::<u32>() + found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_by_value_keeps_its_groups_as_it_grows() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..50 {
            let mut table = ByValue::default();
            let mut known = std::collections::HashMap::new();
            let start = [i64::MIN, -3, 0, i64::MAX - 200_000][random.usize(0..4)];
            for _ in 0..20 {
                let at = start + random.i64(0..150_000);
                let values: Vec<i64> = (0..30).map(|_| at + random.i64(0..40_000)).collect();
                assert!(table.cover(&values));
                for value in values {
                    let next = known.len() as u32;
                    let group = *known.entry(value).or_insert(next);
                    let place = &mut table.groups[(value - table.first) as usize];
                    assert!(*place == MISS && group == next || *place == group);
                    *place = group;
                }
            }
        }
        let mut table = ByValue::default();
        assert!(table.cover(&[5]) && !table.cover(&[5 + SPAN_MAX as i64]));
        assert!(table.is_far_apart);
    }
}
