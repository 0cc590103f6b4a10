//! Aggregate functions for tests, the aggregation by a map, and random inputs for it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array,
    LargeBinaryArray, RecordBatch, StringArray, StringViewArray,
};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::super::{Accumulate, Aggregate, AggregateFunction, AggregateSpec, Phase};
use crate::Result;

/// What a function knows about one group.
pub trait Fold: Default + Clone + Send + 'static {
    /// The types of its states.
    const STATES: &'static [DataType];
    /// The type of its result.
    const RESULT: DataType;
    fn add(&mut self, arguments: &[ArrayRef], row: usize);
    fn merge(&mut self, states: &[ArrayRef], row: usize);
    fn states(all: &[Self]) -> Vec<ArrayRef>;
    fn results(all: &[Self]) -> ArrayRef;
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// The sum of the numbers that are not NULL, and how many there are.
#[derive(Default, Clone)]
pub struct Sum(i64, i64);

impl Fold for Sum {
    const STATES: &'static [DataType] = &[DataType::Int64, DataType::Int64];
    const RESULT: DataType = DataType::Int64;

    fn add(&mut self, arguments: &[ArrayRef], row: usize) {
        if arguments[0].is_valid(row) {
            self.0 += arguments[0].as_primitive::<Int64Type>().value(row);
            self.1 += 1;
        }
    }

    fn merge(&mut self, states: &[ArrayRef], row: usize) {
        self.0 += states[0].as_primitive::<Int64Type>().value(row);
        self.1 += states[1].as_primitive::<Int64Type>().value(row);
    }

    fn states(all: &[Self]) -> Vec<ArrayRef> {
        let column = |value: fn(&Self) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(all.iter().map(value)))
        };
        vec![column(|one| one.0), column(|one| one.1)]
    }

    fn results(all: &[Self]) -> ArrayRef {
        let sums = all.iter().map(|one| (one.1 > 0).then_some(one.0));
        Arc::new(Int64Array::from_iter(sums))
    }
}

/// How many rows there are.
#[derive(Default, Clone)]
pub struct Count(i64);

impl Fold for Count {
    const STATES: &'static [DataType] = &[DataType::Int64];
    const RESULT: DataType = DataType::Int64;

    fn add(&mut self, _: &[ArrayRef], _: usize) {
        self.0 += 1;
    }

    fn merge(&mut self, states: &[ArrayRef], row: usize) {
        self.0 += states[0].as_primitive::<Int64Type>().value(row);
    }

    fn states(all: &[Self]) -> Vec<ArrayRef> {
        vec![Self::results(all)]
    }

    fn results(all: &[Self]) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(all.iter().map(|one| one.0)))
    }
}

/// The least text.
#[derive(Default, Clone)]
pub struct Min(Option<String>);

impl Fold for Min {
    const STATES: &'static [DataType] = &[DataType::Utf8View];
    const RESULT: DataType = DataType::Utf8View;

    fn add(&mut self, arguments: &[ArrayRef], row: usize) {
        let texts = arguments[0].as_string_view();
        if texts.is_valid(row)
            && self
                .0
                .as_deref()
                .is_none_or(|least| texts.value(row) < least)
        {
            self.0 = Some(texts.value(row).to_owned());
        }
    }

    fn merge(&mut self, states: &[ArrayRef], row: usize) {
        self.add(states, row);
    }

    fn states(all: &[Self]) -> Vec<ArrayRef> {
        vec![Self::results(all)]
    }

    fn results(all: &[Self]) -> ArrayRef {
        let texts = all.iter().map(|one| one.0.as_deref());
        Arc::new(StringViewArray::from_iter(texts))
    }

    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, String::capacity)
    }
}

/// All numbers, NULLs as zeros, in order: its state grows with the rows.
#[derive(Default, Clone)]
pub struct Bag(Vec<u8>);

impl Fold for Bag {
    const STATES: &'static [DataType] = &[DataType::LargeBinary];
    const RESULT: DataType = DataType::LargeBinary;

    fn add(&mut self, arguments: &[ArrayRef], row: usize) {
        let number = arguments[0].as_primitive::<Int64Type>().value(row);
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn merge(&mut self, states: &[ArrayRef], row: usize) {
        self.0
            .extend_from_slice(states[0].as_binary::<i64>().value(row));
    }

    fn states(all: &[Self]) -> Vec<ArrayRef> {
        let bags = all.iter().map(|one| &one.0);
        vec![Arc::new(LargeBinaryArray::from_iter_values(bags))]
    }

    fn results(all: &[Self]) -> ArrayRef {
        let sorted = all.iter().map(|one| {
            let mut numbers: Vec<[u8; 8]> = one.0.as_chunks().0.to_vec();
            numbers.sort_unstable();
            numbers.concat()
        });
        Arc::new(LargeBinaryArray::from_iter_values(sorted))
    }

    fn heap_bytes(&self) -> usize {
        self.0.capacity()
    }
}

/// A function that keeps a [`Fold`] for each group.
struct Folding<F>(std::marker::PhantomData<fn() -> F>);

struct Folded<F>(Vec<F>);

impl<F: Fold> AggregateFunction for Folding<F> {
    fn accumulator(&self) -> Result<Box<dyn Accumulate>> {
        Ok(Box::new(Folded::<F>(Vec::new())))
    }
}

impl<F: Fold> Accumulate for Folded<F> {
    fn update(
        &mut self,
        arguments: &[ArrayRef],
        filter: Option<&BooleanArray>,
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        assert!(self.0.len() <= group_count, "groups have disappeared");
        self.0.resize(group_count, F::default());
        for (row, &group) in groups.iter().enumerate() {
            if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                self.0[group].add(arguments, row);
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        assert!(self.0.len() <= group_count, "groups have disappeared");
        self.0.resize(group_count, F::default());
        for (row, &group) in groups.iter().enumerate() {
            self.0[group].merge(states, row);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ArrayRef>> {
        assert!(!self.0.is_empty(), "no states are wanted");
        Ok(F::states(&std::mem::take(&mut self.0)))
    }

    fn evaluate(&mut self) -> Result<ArrayRef> {
        assert!(!self.0.is_empty(), "no results are wanted");
        Ok(F::results(&std::mem::take(&mut self.0)))
    }

    fn bytes(&self) -> u64 {
        let heaps = self.0.iter().map(Fold::heap_bytes);
        (self.0.capacity() * size_of::<F>() + heaps.sum::<usize>()) as u64
    }
}

/// How random rows are spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub rows: usize,
    /// Values of each key column.
    pub values: u32,
    pub nulls: bool,
    /// Half of the rows have one value.
    pub skewed: bool,
    /// Values come in runs.
    pub sorted: bool,
}

/// Columns that make keys. Those after them are arguments.
pub const KEYS: usize = 8;
const NUMBER: usize = KEYS;
const TEXT: usize = KEYS + 1;
const FILTER: usize = KEYS + 2;

/// Rows of many types.
pub fn rows(spread: Spread, seed: u64) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut picks = || -> Vec<Option<u32>> {
        let mut pick = || {
            let is_null = spread.nulls && random.u8(..8) == 0;
            let is_hot = spread.skewed && random.bool();
            let value = random.u32(..spread.values);
            (!is_null).then_some(if is_hot { 0 } else { value })
        };
        let mut picks: Vec<Option<u32>> = (0..spread.rows).map(|_| pick()).collect();
        if spread.sorted {
            picks.sort_unstable();
        }
        picks
    };
    let text = |pick: u32| format!("{pick}{}", "-".repeat(pick as usize % 3 * 9));
    let float = |pick: u32| match pick {
        0 => -0.0,
        1 => f64::NAN,
        2 => -f64::NAN,
        3 => 0.0,
        _ => f64::from(pick) / 3.0,
    };
    let mut words = StringDictionaryBuilder::<Int8Type>::new();
    words.extend(
        picks()
            .iter()
            .map(|pick| pick.map(|pick| ["a", "b", "c"][pick as usize % 3])),
    );
    fn each<T>(picks: Vec<Option<u32>>, map: impl Fn(u32) -> T) -> Vec<Option<T>> {
        picks.into_iter().map(|pick| pick.map(&map)).collect()
    }
    let columns: [ArrayRef; KEYS + 3] = [
        Arc::new(Int64Array::from(each(picks(), i64::from))),
        Arc::new(Int32Array::from(each(picks(), |pick| pick as i32 - 1))),
        Arc::new(BooleanArray::from(each(picks(), |pick| pick % 2 == 0))),
        Arc::new(Float64Array::from(each(picks(), float))),
        Arc::new(Decimal128Array::from(each(picks(), |pick| {
            i128::from(pick) << 65
        }))),
        Arc::new(StringArray::from(each(picks(), text))),
        Arc::new(StringViewArray::from_iter(each(picks(), text))),
        Arc::new(words.finish()),
        Arc::new(Int64Array::from(each(picks(), |pick| i64::from(pick) - 5))),
        Arc::new(StringViewArray::from_iter(each(picks(), text))),
        Arc::new(BooleanArray::from(each(picks(), |pick| pick % 3 > 0))),
    ];
    let columns = columns.into_iter().enumerate();
    let columns = columns.map(|(idx, column)| (format!("column {idx}"), column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn aggregate<F: Fold>(columns: Vec<usize>, filter: Option<usize>) -> (Aggregate, DataType) {
    let state = |data_type: &DataType| Arc::new(Field::new("state", data_type.clone(), true));
    let aggregate = Aggregate {
        function: Arc::new(Folding::<F>(std::marker::PhantomData)),
        columns,
        filter,
        states: F::STATES.iter().map(state).collect(),
    };
    (aggregate, F::RESULT)
}

/// The sum of the last column, of numbers, by all others.
pub fn sums_by_the_others(input: &SchemaRef) -> AggregateSpec {
    let number = input.fields().len() - 1;
    let (sum, result) = aggregate::<Sum>(vec![number], None);
    let keys = input.fields().iter().take(number).cloned();
    let result = Arc::new(Field::new("result", result, true));
    AggregateSpec {
        input: Arc::clone(input),
        keys: (0..number).collect(),
        aggregates: vec![sum],
        phase: Phase::Single,
        schema: Arc::new(Schema::new(keys.chain([result]).collect::<Vec<_>>())),
    }
}

/// The sum of a column of numbers by each of its values.
pub fn sums_of_numbers(input: &SchemaRef, with_bags: bool) -> AggregateSpec {
    let (aggregate, result) = match with_bags {
        true => aggregate::<Bag>(vec![0], None),
        false => aggregate::<Sum>(vec![0], None),
    };
    let result = Field::new("result", result, true);
    AggregateSpec {
        input: Arc::clone(input),
        keys: vec![0],
        aggregates: vec![aggregate],
        phase: Phase::Single,
        schema: Arc::new(Schema::new(vec![input.field(0).clone(), result])),
    }
}

/// An aggregation of [`rows`] by some of their columns.
pub fn spec(input: &SchemaRef, keys: &[usize], with_bags: bool) -> AggregateSpec {
    let mut aggregates = vec![
        aggregate::<Sum>(vec![NUMBER], None),
        aggregate::<Count>(vec![], Some(FILTER)),
        aggregate::<Min>(vec![TEXT], None),
        aggregate::<Sum>(vec![NUMBER], Some(FILTER)),
    ];
    if with_bags {
        aggregates.push(aggregate::<Bag>(vec![NUMBER], None));
    }
    let (aggregates, results): (Vec<Aggregate>, Vec<DataType>) = aggregates.into_iter().unzip();
    let mut fields: Vec<Field> = keys.iter().map(|&key| input.field(key).clone()).collect();
    let results = results.into_iter().enumerate();
    fields.extend(results.map(|(idx, result)| Field::new(format!("result {idx}"), result, true)));
    AggregateSpec {
        input: Arc::clone(input),
        keys: keys.to_vec(),
        aggregates,
        phase: Phase::Single,
        schema: Arc::new(Schema::new(fields)),
    }
}

/// The same aggregation in two steps: to states, and from states.
pub fn two_steps(spec: &AggregateSpec) -> [AggregateSpec; 2] {
    let keys = 0..spec.keys.len();
    let states = spec
        .aggregates
        .iter()
        .flat_map(|aggregate| &aggregate.states);
    let key_fields = spec.schema.fields().iter().take(keys.len());
    let fields: Vec<FieldRef> = key_fields.chain(states).cloned().collect();
    let between = Arc::new(Schema::new(fields));
    let mut next = keys.len();
    let mut last = spec.aggregates.clone();
    for aggregate in &mut last {
        aggregate.columns = (next..next + aggregate.states.len()).collect();
        aggregate.filter = None;
        next += aggregate.states.len();
    }
    let first = AggregateSpec {
        phase: Phase::Partial,
        schema: Arc::clone(&between),
        ..spec.clone()
    };
    let last = AggregateSpec {
        input: between,
        keys: keys.collect(),
        aggregates: last,
        phase: Phase::Final,
        schema: Arc::clone(&spec.schema),
    };
    [first, last]
}

/// What is written of a value. One zero, one NaN.
fn word(column: &ArrayRef, row: usize) -> Option<String> {
    let word = || array_value_to_string(column, row).unwrap();
    let word = column.is_valid(row).then(word);
    word.map(|word| {
        if word == "-0.0" {
            "0.0".to_owned()
        } else {
            word
        }
    })
}

/// What is written of rows, in order.
pub fn sorted(batches: &[RecordBatch]) -> Vec<Vec<Option<String>>> {
    let row = |batch: &RecordBatch, row: usize| {
        let columns = batch.columns().iter();
        columns.map(|column| word(column, row)).collect()
    };
    let rows = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |idx| row(batch, idx)));
    let mut rows: Vec<Vec<Option<String>>> = rows.collect();
    rows.sort_unstable();
    rows
}

/// What an aggregation must return: by a map from keys to groups.
pub fn oracle(spec: &AggregateSpec, input: &RecordBatch) -> Vec<Vec<Option<String>>> {
    let mut numbers: HashMap<Vec<Option<String>>, usize> = HashMap::new();
    let key = |row: usize| -> Vec<Option<String>> {
        let keys = spec.keys.iter();
        keys.map(|&key| word(input.column(key), row)).collect()
    };
    let groups = (0..input.num_rows()).map(|row| {
        let next = numbers.len();
        *numbers.entry(key(row)).or_insert(next)
    });
    let groups: Vec<usize> = groups.collect();
    let mut output = vec![Vec::new(); numbers.len()];
    if output.is_empty() {
        return output;
    }
    numbers
        .into_iter()
        .for_each(|(key, group)| output[group] = key);
    for aggregate in &spec.aggregates {
        let mut accumulator = aggregate.function.accumulator().unwrap();
        let column = |&idx: &usize| input.column(idx).clone();
        let columns: Vec<ArrayRef> = aggregate.columns.iter().map(column).collect();
        let filter = aggregate.filter.map(|idx| input.column(idx).as_boolean());
        accumulator
            .update(&columns, filter, &groups, output.len())
            .unwrap();
        let results = accumulator.evaluate().unwrap();
        let each = output.iter_mut().enumerate();
        each.for_each(|(group, row)| row.push(word(&results, group)));
    }
    output.sort_unstable();
    output
}
