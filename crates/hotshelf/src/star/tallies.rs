//! The aggregates that are tallies of words: counts, sums, averages and extremes of integers, decimals, dates and
//! times. What several of them need (the rows of a group, a sum that is part of an average) is computed once. They
//! give the states of DataFusion's functions, whose NULL, overflow and type rules are theirs.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, UInt64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::narrow::Computation;
use super::rows::{Rows, Value};
use super::tally::{GroupNumbers, Kind, Numbers, Tally};
use super::words::are_words;
use crate::look_ups::LookUpShelf;

/// Which of an aggregation's functions are tallies, and of what.
#[derive(Debug, Clone, Default)]
pub(super) struct TallyPlan {
    arguments: Vec<Argument>,
    /// Index of an argument, what is kept of it.
    kinds: Vec<(usize, Kind)>,
    /// By function: what its states are made of. `None`: DataFusion's accumulator does it.
    functions: Vec<Option<Vec<State>>>,
}

/// What is added up: an expression, for the rows that meet a condition.
#[derive(Debug, Clone)]
struct Argument {
    /// `None` if only the rows count.
    value: Option<Computation>,
    condition: Option<Computation>,
}

#[derive(Debug, Clone)]
struct State {
    data_type: DataType,
    source: Source,
    /// Whether it must not leave its type.
    is_sum: bool,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    /// The rows where an argument has a value.
    Count(usize),
    /// A tally, NULL where the argument has no value.
    Tally { tally: usize, argument: usize },
}

impl TallyPlan {
    pub fn new(
        functions: &[Arc<AggregateFunctionExpr>],
        arguments: &[Vec<Computation>],
        conditions: &[Option<Computation>],
    ) -> QueryResult<Self> {
        let mut plan = Self::default();
        for ((function, arguments), condition) in functions.iter().zip(arguments).zip(conditions) {
            let types = function.state_fields()?;
            let types: Vec<&DataType> = types.iter().map(|field| field.data_type()).collect();
            let states = match arguments.as_slice() {
                [argument] => plan.states(function.fun().name(), argument, condition, &types),
                _ => None,
            };
            plan.functions.push(states);
        }
        Ok(plan)
    }

    /// Whether a function is among them.
    pub fn has(&self, function: usize) -> bool {
        self.functions.get(function).is_some_and(Option::is_some)
    }

    fn states(
        &mut self,
        name: &str,
        value: &Computation,
        condition: &Option<Computation>,
        types: &[&DataType],
    ) -> Option<Vec<State>> {
        let sum_kind = match (&value.data_type, types.last()?) {
            (DataType::Int64, DataType::Int64) | (DataType::UInt64, DataType::UInt64) => {
                Some(Kind::Sum)
            }
            (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) if from == to => {
                Some(Kind::Sum)
            }
            _ => None,
        };
        let extreme = |kind| {
            let fits = are_words(&value.data_type) && *types == [&value.data_type];
            fits.then_some(Some(kind))
        };
        let (counts, kind) = match name {
            "count" => (true, None),
            "sum" => (false, Some(sum_kind?)),
            "avg" if matches!(value.data_type, DataType::Decimal128(..)) => (true, Some(sum_kind?)),
            "min" => (false, extreme(Kind::Least)?),
            "max" => (false, extreme(Kind::Greatest)?),
            _ => return None,
        };
        let value = match kind {
            None if !value.nullable => None,
            _ => Some(value.clone()),
        };
        let argument = self.argument(value, condition.clone());
        let mut sources = Vec::new();
        if counts {
            // Values that are never NULL are counted as their rows are.
            let counted = match &self.arguments[argument].value {
                Some(value) if value.nullable => argument,
                _ => self.argument(None, condition.clone()),
            };
            sources.push(Source::Count(counted));
        }
        if let Some(kind) = kind {
            let tally = self.tally(argument, kind);
            sources.push(Source::Tally { tally, argument });
        }
        let typed = sources.into_iter().zip(types);
        let states = typed.map(|(source, data_type)| State {
            data_type: (*data_type).clone(),
            source,
            is_sum: name == "sum",
        });
        Some(states.collect())
    }

    fn argument(&mut self, value: Option<Computation>, condition: Option<Computation>) -> usize {
        let is = |a: &Option<Computation>, b: &Option<Computation>| match (a, b) {
            (Some(a), Some(b)) => a.expr.as_ref() == b.expr.as_ref(),
            (None, None) => true,
            _ => false,
        };
        let same = |known: &Argument| is(&known.value, &value) && is(&known.condition, &condition);
        if let Some(known) = self.arguments.iter().position(same) {
            return known;
        }
        self.arguments.push(Argument { value, condition });
        self.arguments.len() - 1
    }

    fn tally(&mut self, argument: usize, kind: Kind) -> usize {
        if let Some(known) = self.kinds.iter().position(|each| *each == (argument, kind)) {
            return known;
        }
        self.kinds.push((argument, kind));
        self.kinds.len() - 1
    }

    /// Whether the rows of each group must be known.
    fn counts_rows(&self) -> bool {
        let may_miss = |argument: &Argument| {
            let value = argument.value.as_ref();
            argument.condition.is_some() || value.is_none_or(|value| value.nullable)
        };
        self.arguments.iter().any(may_miss)
    }
}

/// The tallies of all groups.
pub(super) struct Tallies {
    plan: Arc<TallyPlan>,
    counts_rows: bool,
    /// Whether there is a single group, even of no rows.
    one: bool,
    /// Rows by group.
    rows: Vec<i64>,
    /// By argument: rows without a value, by group; empty while there are none.
    missing: Vec<Vec<i64>>,
    each: Vec<Tally>,
}

impl Tallies {
    /// `one`: there is a single group, even of no rows.
    pub fn new(plan: Arc<TallyPlan>, one: bool) -> Self {
        Self {
            counts_rows: one || plan.counts_rows(),
            one,
            rows: Vec::new(),
            missing: vec![Vec::new(); plan.arguments.len()],
            each: plan
                .kinds
                .iter()
                .map(|(_, kind)| Tally::new(*kind))
                .collect(),
            plan,
        }
    }

    pub fn update(&mut self, rows: &mut Rows<'_>, groups: GroupNumbers<'_>) -> QueryResult<()> {
        let (plan, row_count) = (self.plan.clone(), rows.count());
        self.resize(groups.count());
        if self.counts_rows {
            groups.count_rows(row_count, &mut self.rows);
        }
        for (idx, argument) in plan.arguments.iter().enumerate() {
            let value = argument
                .value
                .as_ref()
                .map(|value| rows.value(value))
                .transpose()?;
            let condition = argument.condition.as_ref();
            let condition = condition.map(|condition| rows.set(condition)).transpose()?;
            let nulls = match &value {
                Some(Value::Words(words)) => words.nulls.clone(),
                Some(Value::Array(array)) => array.logical_nulls(),
                None => None,
            };
            let valid = valid_rows(nulls, condition);
            if let Some(valid) = &valid {
                groups.count_missing(valid, &mut self.missing[idx]);
            }
            let mut own = self.each.iter_mut().zip(&plan.kinds);
            let mut own = own.by_ref().filter(|(_, (of, _))| *of == idx).peekable();
            let (Some(value), true) = (value, own.peek().is_some()) else {
                continue;
            };
            let numbers = match value {
                Value::Words(words) => Numbers::Words(words),
                Value::Array(array) => Numbers::of_array(&array)?,
            };
            own.for_each(|(tally, _)| tally.update(&numbers, valid.as_ref(), groups, row_count));
        }
        Ok(())
    }

    fn resize(&mut self, count: usize) {
        if self.counts_rows {
            self.rows.resize(count, 0);
        }
        self.each.iter_mut().for_each(|tally| tally.resize(count));
    }

    /// The states of a function, for all groups. Partial sums of groups may have more digits than their type.
    pub fn states(&mut self, function: usize, count: usize) -> QueryResult<Vec<ArrayRef>> {
        self.checked_states(function, count, self.one)
    }

    fn checked_states(
        &mut self,
        function: usize,
        count: usize,
        checks_digits: bool,
    ) -> QueryResult<Vec<ArrayRef>> {
        self.resize(count);
        let states = self.plan.functions.get(function).cloned().flatten();
        let state = |state: &State| -> QueryResult<ArrayRef> {
            match state.source {
                Source::Count(argument) => {
                    let counts = (0..count).map(|group| self.count(argument, group));
                    Ok(match state.data_type {
                        // An average's count, which is NULL where it would divide by zero.
                        DataType::UInt64 => {
                            let counts = counts.map(|count| (count > 0).then_some(count as u64));
                            Arc::new(counts.collect::<UInt64Array>())
                        }
                        _ => Arc::new(Int64Array::from_iter_values(counts)),
                    })
                }
                Source::Tally { tally, .. }
                    if state.is_sum && !self.each[tally].fits(&state.data_type, checks_digits) =>
                {
                    sum_overflow(&state.data_type)
                }
                Source::Tally { tally, argument } => {
                    let has_value = |group| self.count(argument, group) > 0;
                    let is_whole = !self.counts_rows || (0..count).all(has_value);
                    let valid = (!is_whole).then(|| (0..count).map(has_value).collect());
                    self.each[tally].array(&state.data_type, valid.map(NullBuffer::new))
                }
            }
        };
        states.iter().flatten().map(state).collect()
    }

    /// The rows of a group where an argument has a value.
    fn count(&self, argument: usize, group: usize) -> i64 {
        let missing = self.missing[argument].get(group).copied().unwrap_or(0);
        self.rows[group] - missing
    }

    /// The value of a function, for all groups.
    pub fn values(
        &mut self,
        function: &AggregateFunctionExpr,
        idx: usize,
        count: usize,
    ) -> QueryResult<ArrayRef> {
        let mut states = self.checked_states(idx, count, true)?;
        if function.fun().name() != "avg" {
            return Ok(states.swap_remove(0));
        }
        let mut accumulator = function.create_groups_accumulator()?;
        let numbers: Vec<usize> = (0..count).collect();
        accumulator.merge_batch(&states, &numbers, count)?;
        accumulator.evaluate(EmitTo::All)
    }

    pub fn clear(&mut self) {
        self.rows = Vec::new();
        self.missing
            .iter_mut()
            .for_each(|missing| *missing = Vec::new());
        self.each.iter_mut().for_each(Tally::clear);
    }

    /// Has them on a shelf.
    pub fn place_on(&self, shelf: &LookUpShelf) {
        shelf.place(&self.rows);
        self.missing.iter().for_each(|missing| shelf.place(missing));
        self.each.iter().for_each(|tally| tally.place_on(shelf));
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let missing = self.missing.iter().map(Vec::capacity).sum::<usize>();
        let counts = (missing + self.rows.capacity()) * size_of::<i64>();
        counts + self.each.iter().map(Tally::size_bytes).sum::<usize>()
    }
}

/// A sum has left its type.
pub(crate) fn sum_overflow<T>(data_type: &DataType) -> QueryResult<T> {
    exec_err!(
        "overflow: a sum leaves the range of {data_type}; sum a wider type, such as CAST(… AS DECIMAL(38, 0)) or DOUBLE"
    )
}

/// The rows that have a value and meet a condition. `None`: all.
fn valid_rows(
    nulls: Option<NullBuffer>,
    condition: Option<BooleanBuffer>,
) -> Option<BooleanBuffer> {
    match (nulls.filter(|nulls| nulls.null_count() > 0), condition) {
        (Some(nulls), Some(condition)) => Some(nulls.inner() & &condition),
        (Some(nulls), None) => Some(nulls.into_inner()),
        (None, condition) => condition,
    }
}
