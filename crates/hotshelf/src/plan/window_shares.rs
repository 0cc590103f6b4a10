//! `ntile`, `percent_rank` and `cume_dist` by row numbers and counts, conditions of aggregates as part of what they
//! aggregate, and RANGE and GROUPS frames that reach to a partition's end as ones from its beginning in the reverse
//! order, where a partition may not fit in memory.
//!
//! The engine's functions need all rows of a partition at once. A row's number, its rank and the count of rows up to
//! it are known when it comes, and the partition's count is one value for all its rows, which are spilled until it is
//! known (`operators/window.rs`). So are other aggregates of a partition, if they have no FILTER clause.

use datafusion::arrow::datatypes::DataType::{Float64, Int64, UInt64};
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::rank::rank_udwf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Sort, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Window, WindowFrame, WindowFrameUnits,
    WindowFunctionDefinition, cast, lit, when,
};
use datafusion::optimizer::ApplyOrder;

use super::join_order::estimate;
use super::node_rule::NodeRule;
use crate::settings::{SessionSettings, Use};
use crate::statistics::sizes::{GROUP_PARTS, VALUE_BYTES};

/// Computes them so where what a partition may hold is not known to fit, and wherever a query begins again.
pub(super) const WINDOW_SHARES: NodeRule = NodeRule {
    name: "window_shares",
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, settings: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    let LogicalPlan::Window(window) = plan else {
        return Ok(None);
    };
    let rewrites = match settings.operators {
        Use::Off => false,
        Use::On => window.window_expr.iter().any(keeps_rows) && may_not_fit(window, settings),
        Use::Always => window.window_expr.iter().any(keeps_rows),
    };
    if rewrites {
        by_counts(window)
    } else {
        Ok(None)
    }
}

fn may_not_fit(window: &Window, settings: &SessionSettings) -> bool {
    let row_bytes = window.input.schema().fields().len() * VALUE_BYTES;
    let most = settings.operator_bytes_max() / GROUP_PARTS;
    estimate(&window.input).is_none_or(|input| input.rows * row_bytes as f64 > most as f64)
}

fn keeps_rows(expr: &Expr) -> bool {
    let expr = expr.clone().unalias();
    share_of(&expr).is_some() || of_few_rows(&expr).is_some()
}

/// The same function in a form that needs few rows at once.
fn of_few_rows(expr: &Expr) -> Option<Expr> {
    let without_condition = without_condition(expr);
    let from_the_beginning = from_the_beginning(without_condition.as_ref().unwrap_or(expr));
    from_the_beginning.or(without_condition)
}

/// An aggregate of a frame that reaches to the partition's end, as one of the same rows in the reverse order. Only of
/// frames that have all rows with equal keys or none: the reverse of an order does not reverse these, and functions of
/// one order have to see them in the same order.
fn from_the_beginning(expr: &Expr) -> Option<Expr> {
    let Expr::WindowFunction(function) = expr else {
        return None;
    };
    let WindowFunctionDefinition::AggregateUDF(named) = &function.fun else {
        return None;
    };
    let params = &function.params;
    let frame = &params.window_frame;
    let is_turned = !params.order_by.is_empty()
        && frame.units != WindowFrameUnits::Rows
        && frame.end_bound.is_unbounded()
        && !frame.start_bound.is_unbounded()
        && REVERSIBLE.contains(&named.name());
    let reversed = |sort: &Sort| Sort::new(sort.expr.clone(), !sort.asc, !sort.nulls_first);
    is_turned.then(|| {
        let params = WindowFunctionParams {
            order_by: params.order_by.iter().map(reversed).collect(),
            window_frame: frame.reverse(),
            ..params.clone()
        };
        let fun = function.fun.clone();
        Expr::from(WindowFunction { fun, params })
    })
}

/// Functions for which the order of rows does not matter.
const REVERSIBLE: [&str; 11] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
];

/// Functions that pass over NULL.
const WITHOUT_NULLS: [&str; 5] = ["count", "sum", "avg", "min", "max"];

/// An aggregate with a condition, as one of values that are NULL where it does not hold.
fn without_condition(expr: &Expr) -> Option<Expr> {
    let Expr::WindowFunction(function) = expr else {
        return None;
    };
    let WindowFunctionDefinition::AggregateUDF(named) = &function.fun else {
        return None;
    };
    let params = &function.params;
    let (condition, [value]) = (params.filter.as_ref()?, params.args.as_slice()) else {
        return None;
    };
    if params.distinct || !WITHOUT_NULLS.contains(&named.name()) {
        return None;
    }
    let value = when(condition.as_ref().clone(), value.clone()).end().ok()?;
    let params = WindowFunctionParams {
        args: vec![value],
        filter: None,
        ..params.clone()
    };
    let fun = function.fun.clone();
    Some(Expr::from(WindowFunction { fun, params }))
}

/// A function that says where a row is in its partition.
enum Share {
    /// In which of this many parts of equal size.
    Part(i64),
    /// Which share of the other rows come before it.
    Before,
    /// Which share of all rows do not come after it.
    UpTo,
}

fn share_of(expr: &Expr) -> Option<(Share, &WindowFunctionParams)> {
    let Expr::WindowFunction(function) = expr else {
        return None;
    };
    let params = &function.params;
    let WindowFunctionDefinition::WindowUDF(named) = &function.fun else {
        return None;
    };
    if params.filter.is_some() || params.distinct {
        return None;
    }
    let share = match (named.name(), params.args.as_slice()) {
        ("ntile", [Expr::Literal(parts, _)]) => Share::Part(positive(parts)?),
        ("percent_rank", []) => Share::Before,
        ("cume_dist", []) => Share::UpTo,
        _ => return None,
    };
    Some((share, params))
}

fn positive(value: &ScalarValue) -> Option<i64> {
    match value.cast_to(&Int64).ok()? {
        ScalarValue::Int64(number) => number.filter(|&number| number > 0),
        _ => None,
    }
}

/// The same columns, from functions that need few rows or one value. `None`: a column has the name of such a function,
/// or a partition is not the same for two of them.
fn by_counts(window: &Window) -> QueryResult<Option<LogicalPlan>> {
    let schema = window.input.schema();
    let mut outputs: Vec<Expr> = schema
        .iter()
        .map(|field| Expr::Column(Column::from(field)))
        .collect();
    let names = window.schema.iter().skip(outputs.len());
    let mut needed: Vec<(String, Expr)> = Vec::new();
    for (expr, (qualifier, field)) in window.window_expr.iter().zip(names) {
        if expr.is_volatile() {
            return Ok(None);
        }
        let mut column_of = |function: Expr| {
            let name = function.schema_name().to_string();
            if needed.iter().all(|(known, _)| *known != name) {
                needed.push((name.clone(), function));
            }
            Expr::Column(Column::from_name(name))
        };
        // Constants that were folded left a name.
        let expr = expr.clone().unalias();
        let output = match share_of(&expr) {
            Some((share, params)) => value_of(share, params, &mut column_of)?,
            None => column_of(of_few_rows(&expr).unwrap_or(expr)),
        };
        outputs.push(output.alias_qualified(qualifier.cloned(), field.name()));
    }
    let is_taken =
        |(name, _): &(String, Expr)| schema.fields().iter().any(|field| field.name() == name);
    if needed.iter().any(is_taken) {
        return Ok(None);
    }
    let input = window.input.as_ref().clone();
    let rows =
        LogicalPlanBuilder::window_plan(input, needed.into_iter().map(|(_, function)| function))?;
    LogicalPlanBuilder::from(rows)
        .project(outputs)?
        .build()
        .map(Some)
}

fn value_of(
    share: Share,
    params: &WindowFunctionParams,
    column_of: &mut impl FnMut(Expr) -> Expr,
) -> QueryResult<Expr> {
    let over = |fun: WindowFunctionDefinition, args: Vec<Expr>, order_by: Vec<Sort>| {
        let window_frame = WindowFrame::new((!order_by.is_empty()).then_some(false));
        let params = WindowFunctionParams {
            args,
            order_by,
            window_frame,
            ..params.clone()
        };
        Expr::from(WindowFunction { fun, params })
    };
    let in_order = |fun| over(fun, Vec::new(), params.order_by.clone());
    let counted = |order_by| over(count_udaf().into(), vec![lit(1_i64)], order_by);
    let all = column_of(counted(Vec::new()));
    Ok(match share {
        Share::Part(parts) => {
            let number = column_of(in_order(row_number_udwf().into()));
            let before = cast(number, Int64) - lit(1_i64);
            // The first parts, as many as remain, have a row more than the others.
            let (least, more) = (all.clone() / lit(parts), all % lit(parts));
            let in_larger = more.clone() * (least.clone() + lit(1_i64));
            let divisor =
                when(least.clone().eq(lit(0_i64)), lit(1_i64)).otherwise(least.clone())?;
            let larger = before.clone() / (least + lit(1_i64));
            let part = when(before.clone().lt(in_larger.clone()), larger)
                .otherwise(more + (before - in_larger) / divisor)?;
            cast(part + lit(1_i64), UInt64)
        }
        Share::Before => {
            let rank = column_of(in_order(rank_udwf().into()));
            let before = cast(cast(rank, Int64) - lit(1_i64), Float64);
            let others =
                when(all.clone().gt(lit(1_i64)), all - lit(1_i64)).otherwise(lit(1_i64))?;
            before / cast(others, Float64)
        }
        Share::UpTo => {
            let up_to = column_of(counted(params.order_by.clone()));
            cast(up_to, Float64) / cast(all, Float64)
        }
    })
}
