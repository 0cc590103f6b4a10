//! Aggregate functions in two steps: of groups of some rows, and of what these groups have once they are joined.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit, when,
};

/// What the keys and values of early groups are called in the plan, with a number behind.
pub(super) const KEY: &str = "__early_key";
pub(super) const VALUE: &str = "__early_value";
/// Digits of decimals whose averages are a sum by a count: with as many more for the rows and for the average's
/// fraction they have room in 128 bits.
const AVERAGE_DIGITS_MAX: u8 = 24;
const AVERAGE_SCALE_MAX: i8 = 24;
/// A decimal that has room for every count.
const COUNT: DataType = DataType::Decimal128(20, 0);

/// What is computed of groups, and what the functions of an aggregation are of that.
pub(super) struct Values {
    /// Of the early groups, each once.
    pub parts: Vec<AggregateFunction>,
    /// Functions over the other tables' columns. That rows are there once instead of several times changes none.
    whole: Vec<AggregateFunction>,
    /// The aggregation's functions.
    calls: Vec<Call>,
}

/// An aggregate function of an aggregation.
enum Call {
    /// Of these parts.
    Merged { kind: Kind, parts: Vec<usize> },
    /// One over the other tables' columns.
    Whole(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Count,
    /// A sum by a count.
    Average,
    /// What is put together by the same function.
    Same,
}

/// What joined rows without a group have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Padded {
    /// There are none.
    Never,
    /// No values, and each counts as one row.
    Rows,
}

impl Values {
    /// Of functions over what is joined, and whether they are over early rows.
    pub fn of<'a>(calls: impl Iterator<Item = (&'a AggregateFunction, bool)>) -> Self {
        let (mut parts, mut whole) = (Vec::new(), Vec::new());
        let calls = calls.map(|(call, is_early)| {
            if !is_early {
                return Call::Whole(place(&mut whole, call.clone()));
            }
            let (kind, of_call) = match call.func.name() {
                "count" => (Kind::Count, vec![call.clone()]),
                "avg" => {
                    let of = |func| AggregateFunction {
                        func,
                        ..call.clone()
                    };
                    (Kind::Average, vec![of(sum_udaf()), of(count_udaf())])
                }
                _ => (Kind::Same, vec![call.clone()]),
            };
            let of_call = of_call.into_iter();
            Call::Merged {
                kind,
                parts: of_call.map(|part| place(&mut parts, part)).collect(),
            }
        });
        let calls = calls.collect();
        Self {
            parts,
            whole,
            calls,
        }
    }

    /// Groups of rows by these keys, with names of their own for keys and values; none where not each of them has a
    /// column of its own.
    pub fn grouped(&self, rows: LogicalPlan, keys: &[Expr]) -> QueryResult<Option<LogicalPlan>> {
        let parts = self.parts.iter().cloned().map(Expr::AggregateFunction);
        let groups = LogicalPlanBuilder::from(rows).aggregate(keys.to_vec(), parts)?;
        // Below the names of a subquery, different columns may be the same.
        if groups.schema().fields().len() != keys.len() + self.parts.len() {
            return Ok(None);
        }
        let columns = groups.schema().columns().into_iter().enumerate();
        let named = columns.map(|(idx, column)| {
            let name = match idx.checked_sub(keys.len()) {
                None => format!("{KEY}_{idx}"),
                Some(value) => format!("{VALUE}_{value}"),
            };
            Expr::Column(column).alias(name)
        });
        let named: Vec<Expr> = named.collect();
        groups.project(named)?.build().map(Some)
    }

    /// The columns of an aggregation from early groups that are joined, by these keys over that; none where there are
    /// not as many.
    pub fn merged(
        &self,
        joined: LogicalPlan,
        keys: Vec<Expr>,
        aggregate: &Aggregate,
        padded: Padded,
    ) -> QueryResult<Option<LogicalPlan>> {
        let key_count = keys.len();
        let parts = self.parts.iter().enumerate();
        let mut merging = parts
            .map(|(idx, part)| Ok(Expr::AggregateFunction(merging(part, idx, padded)?)))
            .collect::<QueryResult<Vec<_>>>()?;
        merging.extend(self.whole.iter().cloned().map(Expr::AggregateFunction));
        let count = key_count + merging.len();
        let merged = LogicalPlanBuilder::from(joined).aggregate(keys, merging)?;
        let schema = merged.schema().clone();
        let columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        if columns.len() != count || aggregate.schema.fields().len() != key_count + self.calls.len()
        {
            return Ok(None);
        }
        let (keys, values) = columns.split_at(key_count);
        let (values, whole) = values.split_at(self.parts.len());
        // Without keys, there is a group of no rows.
        let may_be_none = key_count == 0 || padded == Padded::Rows;
        let calls = self.calls.iter().map(|call| match call {
            Call::Whole(place) => Ok(whole[*place].clone()),
            Call::Merged { kind, parts } => {
                let values: Vec<&Expr> = parts.iter().map(|part| &values[*part]).collect();
                kind.of(&values, &schema, may_be_none)
            }
        });
        let calls = calls.collect::<QueryResult<Vec<_>>>()?;
        let columns = keys.iter().cloned().chain(calls);
        let columns = columns.zip(aggregate.schema.iter());
        let columns = columns.map(|(column, (qualifier, field))| {
            let column = column.cast_to(field.data_type(), &schema)?;
            Ok(column.alias_qualified(qualifier.cloned(), field.name()))
        });
        let columns = columns.collect::<QueryResult<Vec<_>>>()?;
        merged.project(columns)?.build().map(Some)
    }
}

/// The place of a function among some, each of which is there once.
fn place(known: &mut Vec<AggregateFunction>, call: AggregateFunction) -> usize {
    let place = known.iter().position(|known| *known == call);
    place.unwrap_or_else(|| {
        known.push(call);
        known.len() - 1
    })
}

impl Kind {
    /// The value of a function from those of its parts.
    fn of(self, values: &[&Expr], schema: &DFSchema, may_be_none: bool) -> QueryResult<Expr> {
        match (self, values) {
            (Self::Count, [count]) if may_be_none => or(count, 0),
            (Self::Average, [sum, count]) => {
                let count = match sum.get_type(schema)? {
                    DataType::Float64 => cast((*count).clone(), DataType::Float64),
                    _ => cast((*count).clone(), COUNT),
                };
                Ok((*sum).clone() / count)
            }
            (_, values) => Ok(values.first().copied().cloned().unwrap_or_default()),
        }
    }
}

/// A number, or another one where there is none.
fn or(value: &Expr, other: i64) -> QueryResult<Expr> {
    when(value.clone().is_null(), lit(other)).otherwise(value.clone())
}

/// The aggregate functions of an aggregation, if values of them can be put together by others.
pub(super) fn mergeable(aggregate: &Aggregate) -> Option<Vec<AggregateFunction>> {
    let calls = aggregate.aggr_expr.iter();
    calls
        .map(|expr| {
            let Expr::AggregateFunction(call) = expr.clone().unalias() else {
                return None;
            };
            let params = &call.params;
            let is_plain =
                !params.distinct && params.order_by.is_empty() && params.null_treatment.is_none();
            let is_known = match call.func.name() {
                "sum" | "count" | "min" | "max" => true,
                "avg" => has_average(&call, aggregate.input.schema()),
                _ => false,
            };
            let is_volatile = exprs_of(&call).any(Expr::is_volatile);
            (is_plain && is_known && !is_volatile).then_some(call)
        })
        .collect()
}

/// Whether a sum by a count is the average to the last digit, as far as sums are.
fn has_average(call: &AggregateFunction, schema: &DFSchema) -> bool {
    let [value] = call.params.args.as_slice() else {
        return false;
    };
    match value.get_type(schema) {
        Ok(DataType::Float64) => true,
        Ok(DataType::Decimal128(precision, scale)) => {
            precision <= AVERAGE_DIGITS_MAX && (0..=AVERAGE_SCALE_MAX).contains(&scale)
        }
        _ => false,
    }
}

/// What an aggregate function reads: its arguments, and which rows it is of.
pub(super) fn exprs_of(call: &AggregateFunction) -> impl Iterator<Item = &Expr> {
    call.params.args.iter().chain(call.params.filter.as_deref())
}

/// The same function of other expressions, as many as [`exprs_of`] gives.
pub(super) fn with_exprs(
    call: &AggregateFunction,
    exprs: &mut impl Iterator<Item = Expr>,
) -> AggregateFunction {
    let args = exprs.by_ref().take(call.params.args.len()).collect();
    let filter = match call.params.filter {
        Some(_) => exprs.next().map(Box::new),
        None => None,
    };
    let params = AggregateFunctionParams {
        args,
        filter,
        ..call.params.clone()
    };
    let func = call.func.clone();
    AggregateFunction { func, params }
}

/// Whether an aggregate function counts all rows.
pub(super) fn counts_rows(call: &AggregateFunction) -> bool {
    let is_value = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if !value.is_null());
    call.func.name() == "count"
        && call.params.filter.is_none()
        && call.params.args.iter().all(is_value)
}

/// What puts the values of a part together.
fn merging(part: &AggregateFunction, idx: usize, padded: Padded) -> QueryResult<AggregateFunction> {
    let value = Expr::Column(Column::new_unqualified(format!("{VALUE}_{idx}")));
    let value = match padded == Padded::Rows && counts_rows(part) {
        true => or(&value, 1)?,
        false => value,
    };
    let func = match part.func.name() {
        "count" => sum_udaf(),
        _ => part.func.clone(),
    };
    let params = AggregateFunctionParams {
        args: vec![value],
        filter: None,
        ..part.params.clone()
    };
    Ok(AggregateFunction { func, params })
}
