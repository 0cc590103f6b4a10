//! `ntile`, `percent_rank` and `cume_dist` by row numbers and counts, conditions of aggregates as part of what they
//! aggregate, frames that reach to a partition's end as ones from its beginning in the reverse order, and frames up to
//! all rows with equal keys as frames up to the row, where a partition may not fit in memory.
//!
//! The engine's functions need all rows of a partition at once. A row's number, its rank and the count of rows up to
//! it are known when it comes, and the partition's count is one value for all its rows, which are spilled until it is
//! known (`operators/window.rs`). So are other aggregates of a partition, if they have no FILTER clause.

mod peers;
mod to_the_end;

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType::{Float64, Int64, UInt64};
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::rank::rank_udwf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Sort, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Window, WindowFrame, WindowFunctionDefinition, cast,
    lit, when,
};
use datafusion::optimizer::ApplyOrder;

use super::decisions::{all_shown, megabytes, wanted_of};
use super::join_order::{Estimate, estimate};
use super::node_rule::NodeRule;
use crate::settings::{SessionSettings, Use};
use crate::statistics::sizes::{GROUP_PARTS, VALUE_BYTES};
use to_the_end::{FewRows, of_few_rows};

/// Computes them so where what a partition may hold is not known to fit, and wherever a query begins again.
pub(super) const WINDOW_SHARES: NodeRule = NodeRule {
    name: "window_shares",
    says: None,
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, settings: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    let LogicalPlan::Window(window) = plan else {
        return Ok(None);
    };
    let may_keep = |expr: &Expr| keeps_rows(expr) || peers::of_peers(expr).is_some();
    if settings.operators == Use::Off || !window.window_expr.iter().any(may_keep) {
        return Ok(None);
    }
    let input = estimate(&window.input);
    let has_peers = |expr: &Expr| {
        let input = input.as_ref();
        input.is_some_and(|input| peers::are_many(expr, input, window.input.schema()))
    };
    let keeps = |expr: &&Expr| keeps_rows(expr) || has_peers(expr);
    let keeping = || window.window_expr.iter().filter(keeps);
    if keeping().next().is_none() {
        return Ok(None);
    }
    let size = Size::of(window, input.as_ref(), settings);
    let rewrites = settings.operators == Use::Always || size.may_not_fit();
    let rewritten = match rewrites {
        true => by_counts(window, has_peers)?,
        false => None,
    };
    if let Some(notes) = wanted_of(settings) {
        let how = match (rewrites, &rewritten) {
            (true, Some(_)) => "computed of numbers and counts of rows",
            (true, None) => "left to the engine, as a name is taken or a value differs each time",
            (false, _) => "left to the engine",
        };
        let size = match settings.operators {
            Use::Always => "hotshelf.operators is always".to_owned(),
            Use::On | Use::Off => size.describe(),
        };
        notes.note(format!("{}: {how}; {size}", all_shown(keeping())));
    }
    Ok(rewritten)
}

/// What a partition may hold: all rows, in bytes.
struct Size {
    /// `None`: nothing is known about the rows.
    expected: Option<f64>,
    most: u64,
}

impl Size {
    fn of(window: &Window, input: Option<&Estimate>, settings: &SessionSettings) -> Self {
        let row_bytes = window.input.schema().fields().len() * VALUE_BYTES;
        Self {
            expected: input.map(|input| input.rows * row_bytes as f64),
            most: settings.operator_bytes_max() / GROUP_PARTS,
        }
    }

    fn may_not_fit(&self) -> bool {
        self.expected.is_none_or(|bytes| bytes > self.most as f64)
    }

    /// The same whichever columns a later rule leaves.
    fn describe(&self) -> String {
        let most = megabytes(self.most as f64);
        match self.may_not_fit() {
            true => format!("its rows may take more than the {most} that one operator should"),
            false => format!("its rows are expected to fit, as one operator may take {most}"),
        }
    }
}

fn keeps_rows(expr: &Expr) -> bool {
    let expr = expr.clone().unalias();
    share_of(&expr).is_some() || of_few_rows(&expr).is_some()
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

/// The same columns, from functions that need few rows or one value. `None`: a column or another function has the name
/// of such a function.
fn by_counts(
    window: &Window,
    has_peers: impl Fn(&Expr) -> bool,
) -> QueryResult<Option<LogicalPlan>> {
    let schema = window.input.schema();
    let mut outputs: Vec<Expr> = schema
        .iter()
        .map(|field| Expr::Column(Column::from(field)))
        .collect();
    let names = window.schema.iter().skip(outputs.len());
    // Those of rows' numbers are computed after the others, of which the numbers are some.
    let mut layers = Layers {
        first: Functions::default(),
        later: Functions::default(),
        has_peers: &has_peers,
    };
    for (expr, (qualifier, field)) in window.window_expr.iter().zip(names) {
        if expr.is_volatile() {
            return Ok(None);
        }
        // Constants that were folded left a name.
        let expr = expr.clone().unalias();
        let output = match (share_of(&expr), of_few_rows(&expr)) {
            (Some((share, params)), _) => value_of(share, params, &mut layers)?,
            (None, Some(FewRows::Here(function))) => layers.column_of(function.into()),
            (
                None,
                Some(FewRows::ByNumber {
                    mut function,
                    descending,
                }),
            ) => {
                let params = &function.params;
                let order_by = params.order_by.clone();
                let number = over(params, row_number_udwf().into(), Vec::new(), order_by);
                let number = layers.first.column_of(number);
                // The one is the other's reverse also in where NULLs would be: `ForgetBelowPaddedRows` looks at that.
                function.params.order_by = vec![number.sort(!descending, descending)];
                layers.later.column_of(function.into())
            }
            (None, None) => layers.column_of(expr),
        };
        outputs.push(output.alias_qualified(qualifier.cloned(), field.name()));
    }
    let Layers { first, later, .. } = layers;
    let names = first.names.iter().chain(&later.names);
    let names: HashSet<&str> = names.map(String::as_str).collect();
    let are_apart = names.len() == first.names.len() + later.names.len()
        && first.names.len() == first.functions.len()
        && later.names.len() == later.functions.len();
    let is_taken = |name: &String| names.contains(name.as_str());
    if !are_apart || schema.fields().iter().any(|field| is_taken(field.name())) {
        return Ok(None);
    }
    let mut rows = window.input.as_ref().clone();
    for functions in [first, later] {
        rows = LogicalPlanBuilder::window_plan(rows, functions.functions)?;
    }
    LogicalPlanBuilder::from(rows)
        .project(outputs)?
        .build()
        .map(Some)
}

/// Window functions and the names of their columns.
#[derive(Default)]
struct Functions {
    functions: Vec<Expr>,
    /// Fewer than functions, if two have the same: names leave casts out.
    names: HashSet<String>,
}

impl Functions {
    fn column_of(&mut self, function: Expr) -> Expr {
        let name = function.schema_name().to_string();
        if !self.functions.contains(&function) {
            self.functions.push(function);
            self.names.insert(name.clone());
        }
        Expr::Column(Column::from_name(name))
    }
}

/// Functions that are computed one after the other.
struct Layers<'a> {
    first: Functions,
    /// Of what the first come to.
    later: Functions,
    has_peers: &'a dyn Fn(&Expr) -> bool,
}

impl Layers<'_> {
    fn column_of(&mut self, function: Expr) -> Expr {
        match &function {
            Expr::WindowFunction(of_peers) if (self.has_peers)(&function) => {
                let [value, number] =
                    peers::up_to_row(of_peers).map(|up_to| self.first.column_of(up_to));
                let of_last = peers::of_last(of_peers, value, number);
                self.later.column_of(of_last)
            }
            _ => self.first.column_of(function),
        }
    }
}

/// A function of all rows up to a row and its equals in an order, or of all rows where there is none.
fn over(
    params: &WindowFunctionParams,
    fun: WindowFunctionDefinition,
    args: Vec<Expr>,
    order_by: Vec<Sort>,
) -> Expr {
    let window_frame = WindowFrame::new((!order_by.is_empty()).then_some(false));
    let params = WindowFunctionParams {
        args,
        order_by,
        window_frame,
        filter: None,
        null_treatment: None,
        distinct: false,
        ..params.clone()
    };
    Expr::from(WindowFunction { fun, params })
}

fn value_of(
    share: Share,
    params: &WindowFunctionParams,
    functions: &mut Layers,
) -> QueryResult<Expr> {
    let in_order = |fun| over(params, fun, Vec::new(), params.order_by.clone());
    let counted = |order_by| over(params, count_udaf().into(), vec![lit(1_i64)], order_by);
    let all = functions.column_of(counted(Vec::new()));
    Ok(match share {
        Share::Part(parts) => {
            let number = functions.column_of(in_order(row_number_udwf().into()));
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
            let rank = functions.column_of(in_order(rank_udwf().into()));
            let before = cast(cast(rank, Int64) - lit(1_i64), Float64);
            let others =
                when(all.clone().gt(lit(1_i64)), all - lit(1_i64)).otherwise(lit(1_i64))?;
            before / cast(others, Float64)
        }
        Share::UpTo => {
            let up_to = functions.column_of(counted(params.order_by.clone()));
            cast(up_to, Float64) / cast(all, Float64)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_share_is_a_count_by_another() {
        let statements = [
            "SET hotshelf.operators = always",
            "SELECT cume_dist() OVER (PARTITION BY k ORDER BY n) AS c FROM t",
        ];
        before_after("window_shares", &statements).is(
            "
            Projection: cume_dist() PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE BETWEEN UNBOUNDED \
                PRECEDING AND CURRENT ROW AS c
              WindowAggr: windowExpr=[[cume_dist() PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE BETWEEN \
                  UNBOUNDED PRECEDING AND CURRENT ROW]]
                TableScan: t
            ",
            "
            Projection: cume_dist() PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE BETWEEN UNBOUNDED \
                PRECEDING AND CURRENT ROW AS c
              Projection: t.k, t.n, t.v, t.w, CAST(count(Int64(1)) PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] \
                  RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW AS Float64) / CAST(count(Int64(1)) PARTITION BY \
                  [t.k] ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING AS Float64) AS cume_dist() \
                  PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                WindowAggr: windowExpr=[[count(Int64(1)) PARTITION BY [t.k] ROWS BETWEEN UNBOUNDED PRECEDING AND \
                    UNBOUNDED FOLLOWING]]
                  WindowAggr: windowExpr=[[count(Int64(1)) PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE \
                      BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW]]
                    TableScan: t
            ",
        );
    }
}
