//! Aggregates up to all rows with equal keys, as those up to the row.
//!
//! `sum(x) OVER (ORDER BY k)` has one value for all rows with the same `k`, which the engine keeps in memory until the
//! next `k`, and copies once more for each batch that comes. The sum up to each row is known with that row; the sum for
//! all of them is that of the last, a value of the partition `k`, whose rows are spilled (`operators/window.rs`).

use datafusion::common::DFSchema;
use datafusion::functions_aggregate::first_last::last_value_udaf;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};

use super::super::join_order::Estimate;
use super::to_the_end::{UNORDERED, up_to_the_row, whole_partition};

/// Rows with equal keys, on average, that are worth a partition of their own.
const PEERS_MIN: f64 = 64.0;

/// Whether this is such an aggregate, and of many rows each time.
pub(super) fn are_many(expr: &Expr, input: &Estimate, schema: &DFSchema) -> bool {
    of_peers(expr).is_some_and(|function| {
        let params = &function.params;
        let keys = params.order_by.iter().map(|sort| &sort.expr);
        let keys = keys.chain(&params.partition_by);
        let keys = keys.map(|key| input.of_expr(key, schema).distinct);
        keys.product::<f64>() * PEERS_MIN <= input.rows
    })
}

/// An aggregate up to all rows with equal keys, whatever it is called.
pub(super) fn of_peers(mut expr: &Expr) -> Option<&WindowFunction> {
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    let Expr::WindowFunction(function) = expr else {
        return None;
    };
    let params = &function.params;
    let frame = &params.window_frame;
    let is_known = match &function.fun {
        WindowFunctionDefinition::AggregateUDF(named) => UNORDERED.contains(&named.name()),
        WindowFunctionDefinition::WindowUDF(_) => false,
    };
    let is_of_peers = is_known
        && !params.distinct
        && params.filter.is_none()
        && !params.order_by.is_empty()
        && frame.units != WindowFrameUnits::Rows
        && frame.start_bound.is_unbounded()
        && frame.end_bound == WindowFrameBound::CurrentRow;
    is_of_peers.then_some(function)
}

/// The function up to each row, and the row's number in the same order.
pub(super) fn up_to_row(function: &WindowFunction) -> [Expr; 2] {
    let mut to_row = function.clone();
    to_row.params.window_frame = up_to_the_row();
    let mut number = to_row.clone();
    number.fun = row_number_udwf().into();
    number.params.args.clear();
    [to_row.into(), number.into()]
}

/// What the function is for all rows with equal keys, of its values up to each row and the rows' numbers.
pub(super) fn of_last(function: &WindowFunction, value: Expr, number: Expr) -> Expr {
    let mut last = function.clone();
    let params = &mut last.params;
    let keys = std::mem::take(&mut params.order_by);
    params
        .partition_by
        .extend(keys.into_iter().map(|sort| sort.expr));
    params.order_by.push(number.sort(true, false));
    params.args = vec![value];
    params.null_treatment = None;
    params.window_frame = whole_partition();
    last.fun = last_value_udaf().into();
    last.into()
}

#[cfg(test)]
mod tests {
    use super::super::super::before_after::before_after;

    #[test]
    fn the_value_of_equal_keys_is_that_of_the_last_row() {
        let statements = [
            "SET hotshelf.operators = always",
            "SELECT sum(v) OVER (ORDER BY k) AS c FROM t",
        ];
        before_after("window_shares", &statements).is(
            "
            Projection: sum(t.v) ORDER BY [t.k ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW \
                AS c
              WindowAggr: windowExpr=[[sum(t.v) ORDER BY [t.k ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING \
                  AND CURRENT ROW]]
                TableScan: t
            ",
            "
            Projection: sum(t.v) ORDER BY [t.k ASC NULLS LAST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW \
                AS c
              Projection: t.k, t.n, t.v, t.w, last_value(sum(t.v) ORDER BY [t.k ASC NULLS LAST] ROWS BETWEEN \
                  UNBOUNDED PRECEDING AND CURRENT ROW) PARTITION BY [t.k] ORDER BY [row_number() ORDER BY [t.k \
                  ASC NULLS LAST] ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW ASC NULLS LAST] ROWS BETWEEN \
                  UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING AS sum(t.v) ORDER BY [t.k ASC NULLS LAST] RANGE \
                  BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                WindowAggr: windowExpr=[[last_value(sum(t.v) ORDER BY [t.k ASC NULLS LAST] ROWS BETWEEN \
                    UNBOUNDED PRECEDING AND CURRENT ROW) PARTITION BY [t.k] ORDER BY [row_number() ORDER BY [t.k \
                    ASC NULLS LAST] ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW ASC NULLS LAST] ROWS \
                    BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING]]
                  WindowAggr: windowExpr=[[sum(t.v) ORDER BY [t.k ASC NULLS LAST] ROWS BETWEEN UNBOUNDED \
                      PRECEDING AND CURRENT ROW, row_number() ORDER BY [t.k ASC NULLS LAST] ROWS BETWEEN \
                      UNBOUNDED PRECEDING AND CURRENT ROW]]
                    TableScan: t
            ",
        );
    }
}
