//! What the parts of an aggregation come to, and how they are joined.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::functions::math::expr_fn::{ceil, floor};
use datafusion::functions_aggregate::expr_fn::{count, max};
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit,
    when,
};

use super::{PART, Part, Rank};

/// How finely the engine's function weighs the two values beside a percentile.
const WEIGHTS: f64 = 1_000_000.0;

const VALUE: &str = "__value";
const NUMBER: &str = "__number";
const COUNT: &str = "__count";
const COUNTED: &str = "__counted";
const NUMBERED: &str = "__numbered";

/// The parts, joined by the keys, under the names of the aggregation's columns.
pub(super) fn joined(aggregate: &Aggregate, parts: Vec<Part>) -> QueryResult<LogicalPlan> {
    let key_count = aggregate.group_expr.len();
    let mut outputs: Vec<Column> = (0..key_count)
        .map(|key| column_of(0, &key_name(key)))
        .collect();
    let mut values = vec![None; aggregate.aggr_expr.len()];
    let mut joined: Option<LogicalPlanBuilder> = None;
    for (at, part) in parts.into_iter().enumerate() {
        for number in part.numbers() {
            values[number] = Some(column_of(at, &value_name(number)));
        }
        let rows = computed(aggregate, part)?.alias(part_name(at))?.build()?;
        joined = Some(match joined {
            None => LogicalPlanBuilder::from(rows),
            Some(before) => {
                let keys = |at: usize| -> Vec<Column> {
                    (0..key_count)
                        .map(|key| column_of(at, &key_name(key)))
                        .collect()
                };
                by_keys(before, rows, keys(0), keys(at))?
            }
        });
    }
    outputs.extend(values.into_iter().flatten());
    let names = aggregate.schema.iter();
    let outputs = outputs
        .into_iter()
        .zip(names)
        .map(|(column, (qualifier, field))| {
            Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
        });
    let joined = joined.unwrap_or_else(|| LogicalPlanBuilder::empty(false));
    joined.project(outputs)?.build()
}

/// Rows joined by keys of which NULL is one; each with each if there are none.
fn by_keys(
    left: LogicalPlanBuilder,
    right: LogicalPlan,
    left_keys: Vec<Column>,
    right_keys: Vec<Column>,
) -> QueryResult<LogicalPlanBuilder> {
    if left_keys.is_empty() {
        return left.cross_join(right);
    }
    let keys = (left_keys, right_keys);
    left.join_detailed(
        right,
        JoinType::Inner,
        keys,
        None,
        NullEquality::NullEqualsNull,
    )
}

/// What one part comes to: the keys, and a column for each of its aggregates.
fn computed(aggregate: &Aggregate, part: Part) -> QueryResult<LogicalPlanBuilder> {
    let input = LogicalPlanBuilder::new_from_arc(Arc::clone(&aggregate.input));
    let keys = aggregate.group_expr.iter().enumerate();
    let keys: Vec<Expr> = keys
        .map(|(idx, key)| key.clone().unalias().alias(key_name(idx)))
        .collect();
    match part {
        Part::Plain(functions) => {
            let functions = functions.into_iter().map(|(number, function)| {
                Expr::AggregateFunction(function).alias(value_name(number))
            });
            input.aggregate(keys, functions)
        }
        Part::Distinct { value, functions } => {
            let functions = functions.into_iter().map(|(number, function)| {
                of_values(&function, vec![column(VALUE)], None).alias(value_name(number))
            });
            let groups = key_columns(keys.len());
            distinct(input, keys, value)?.aggregate(groups, functions)
        }
        Part::Ranked {
            value,
            is_distinct,
            ranks,
        } => {
            let rows = match is_distinct {
                true => distinct(input, keys.clone(), value)?,
                false => input.project(keys.iter().cloned().chain([value.alias(VALUE)]))?,
            };
            at_ranks(rows, keys.len(), ranks)
        }
    }
}

/// Each value of a group once.
fn distinct(
    input: LogicalPlanBuilder,
    keys: Vec<Expr>,
    value: Expr,
) -> QueryResult<LogicalPlanBuilder> {
    let groups = keys.into_iter().chain([value.alias(VALUE)]);
    input.aggregate(groups, Vec::<Expr>::new())
}

/// Values at ranks: of the rows sorted by the value, those beside each rank are found by their number.
fn at_ranks(
    rows: LogicalPlanBuilder,
    key_count: usize,
    ranks: Vec<(usize, Rank)>,
) -> QueryResult<LogicalPlanBuilder> {
    let joined = numbered(rows, key_count)?;
    let qualified = |table: &str, name: &str| Expr::Column(Column::new(Some(table), name));
    let (number, rows) = (qualified(NUMBERED, NUMBER), qualified(COUNTED, COUNT));
    let value = || vec![qualified(NUMBERED, VALUE)];
    // The first row is kept so that the group is, where there is no value.
    let mut is_kept = number.clone().eq(lit(1_i64));
    let mut beside = vec![max(rows.clone()).alias(COUNT)];
    let mut outputs = key_columns(key_count);
    for (idx, rank) in ranks {
        let name = value_name(idx);
        let share = match rank {
            Rank::Median(function) => {
                let middle = |more: i64| (rows.clone() + lit(more)) / lit(2_i64);
                let is_middle = number.clone().between(middle(1), middle(2));
                is_kept = is_kept.or(is_middle.clone());
                let median = of_values(&function, value(), Some(is_middle));
                beside.push(median.alias(&name));
                outputs.push(column(&name));
                continue;
            }
            Rank::Share(share) => share,
        };
        let at = cast(number.clone() - lit(1_i64), DataType::Float64);
        let position = |rows: Expr| lit(share) * cast(rows - lit(1_i64), DataType::Float64);
        let [low, high] = ["__low", "__high"].map(|end| format!("{end}_{idx}"));
        for (rank, name) in [
            (floor(position(rows.clone())), &low),
            (ceil(position(rows.clone())), &high),
        ] {
            let is_there = at.clone().eq(rank);
            is_kept = is_kept.or(is_there.clone());
            // Of one value, whatever it is, the median is that value.
            let only = median_udaf().call(value()).filter(is_there).build()?;
            beside.push(only.alias(name));
        }
        let data_type = value()[0].get_type(joined.schema())?;
        let double = |name: &str| cast(column(name), DataType::Float64);
        let position = position(column(COUNT));
        let fraction = position.clone() - floor(position);
        let weight = floor(fraction.clone() * lit(WEIGHTS)) / lit(WEIGHTS);
        let between = double(&low) + (double(&high) - double(&low)) * weight;
        let value =
            when(fraction.eq(lit(0.0)), column(&low)).otherwise(cast(between, data_type))?;
        outputs.push(value.alias(name));
    }
    let groups = (0..key_count).map(|key| {
        let name = key_name(key);
        qualified(COUNTED, &name).alias(name)
    });
    let groups: Vec<Expr> = groups.collect();
    joined
        .filter(is_kept)?
        .aggregate(groups, beside)?
        .project(outputs)
}

/// Rows with their numbers among those of their group, sorted by value, NULLs last, and how many values it has.
fn numbered(rows: LogicalPlanBuilder, key_count: usize) -> QueryResult<LogicalPlanBuilder> {
    let keys = || key_columns(key_count);
    let rows = rows.build()?;
    let counted = LogicalPlanBuilder::from(rows.clone())
        .aggregate(keys(), [count(column(VALUE)).alias(COUNT)])?
        .alias(COUNTED)?;
    let number = row_number()
        .partition_by(keys())
        .order_by(vec![column(VALUE).sort(true, false)])
        .build()?;
    let rows = LogicalPlanBuilder::window_plan(rows, [number])?;
    let mut columns = rows.schema().columns().into_iter().map(Expr::Column);
    let number = columns.next_back();
    let number = number.map(|number| cast(number, DataType::Int64).alias(NUMBER));
    let columns: Vec<Expr> = columns.chain(number).collect();
    let numbered = LogicalPlanBuilder::from(rows)
        .project(columns)?
        .alias(NUMBERED)?
        .build()?;
    let names = |table: &str| -> Vec<Column> {
        let keys = 0..key_count;
        keys.map(|key| Column::new(Some(table), key_name(key)))
            .collect()
    };
    by_keys(counted, numbered, names(COUNTED), names(NUMBERED))
}

/// A function of values that have been made distinct and filtered.
fn of_values(function: &AggregateFunction, args: Vec<Expr>, filter: Option<Expr>) -> Expr {
    let (func, nulls) = (Arc::clone(&function.func), function.params.null_treatment);
    Expr::AggregateFunction(AggregateFunction::new_udf(
        func,
        args,
        false,
        filter.map(Box::new),
        Vec::new(),
        nulls,
    ))
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

fn key_columns(count: usize) -> Vec<Expr> {
    (0..count).map(|key| column(&key_name(key))).collect()
}

fn column_of(part: usize, name: &str) -> Column {
    Column::new(Some(part_name(part)), name)
}

fn part_name(part: usize) -> String {
    format!("{PART}{part}")
}

fn key_name(key: usize) -> String {
    format!("__key_{key}")
}

fn value_name(number: usize) -> String {
    format!("__value_{number}")
}
