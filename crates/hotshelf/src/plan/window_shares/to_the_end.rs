//! Functions of frames that reach to a partition's end, in forms that need few rows at once.

use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::functions_window::nth_value::first_value_udwf;
use datafusion::logical_expr::expr::{NullTreatment, Sort, WindowFunction};
use datafusion::logical_expr::{
    Expr, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, when,
};

/// The same function in another form.
pub(super) enum FewRows {
    /// In an order of the query, or in its reverse.
    Here(WindowFunction),
    /// In the order of the numbers that rows have in the function's own order, or in its reverse. Functions of one
    /// order have to see rows with equal keys in the same order, which only these numbers tell.
    ByNumber {
        function: WindowFunction,
        descending: bool,
    },
}

use FewRows::{ByNumber, Here};

/// A value further back in a frame is not looked for in this way.
const NTH_MAX: u64 = 4096;

/// Functions for which the order of rows does not matter.
pub(super) const UNORDERED: [&str; 14] = [
    "bit_and",
    "bit_or",
    "bit_xor",
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

/// A function in a form that needs few rows at once, if it has a condition or a frame that reaches to the end, and
/// there is such a form.
pub(super) fn of_few_rows(expr: &Expr) -> Option<FewRows> {
    let Expr::WindowFunction(function) = expr else {
        return None;
    };
    match &function.fun {
        WindowFunctionDefinition::AggregateUDF(named) => {
            let name = named.name().to_owned();
            let bare = without_condition(function, &name);
            let turned = aggregate(bare.as_ref().unwrap_or(function), &name);
            turned.or(bare.map(Here))
        }
        WindowFunctionDefinition::WindowUDF(named) => {
            let params = &function.params;
            let is_plain = params.filter.is_none() && !params.distinct;
            let ends = params.window_frame.end_bound.is_unbounded();
            let value = |named| value_of_a_row(function, named);
            (is_plain && ends).then(|| value(named.name())).flatten()
        }
    }
}

/// An aggregate with a condition, as one of values that are NULL where it does not hold.
fn without_condition(function: &WindowFunction, name: &str) -> Option<WindowFunction> {
    let params = &function.params;
    let (condition, [value]) = (params.filter.as_ref()?, params.args.as_slice()) else {
        return None;
    };
    if params.distinct || !WITHOUT_NULLS.contains(&name) {
        return None;
    }
    let value = when(condition.as_ref().clone(), value.clone()).end().ok()?;
    let mut bare = function.clone();
    bare.params.args = vec![value];
    bare.params.filter = None;
    Some(bare)
}

/// An aggregate of a frame that reaches to the end. That of a whole partition needs no order. Frames that have all rows
/// with equal keys or none are as well computed in the reverse order; the others in that of the rows' numbers.
fn aggregate(function: &WindowFunction, name: &str) -> Option<FewRows> {
    let params = &function.params;
    let frame = &params.window_frame;
    if !frame.end_bound.is_unbounded() || !UNORDERED.contains(&name) {
        return None;
    }
    let mut turned = function.clone();
    if frame.start_bound.is_unbounded() {
        turned.params.order_by.clear();
        turned.params.window_frame = WindowFrame::new(None);
        return (!params.order_by.is_empty()).then_some(Here(turned));
    }
    turned.params.window_frame = frame.reverse();
    if frame.units == WindowFrameUnits::Rows {
        return Some(ByNumber {
            function: turned,
            descending: true,
        });
    }
    let reversed = |sort: &Sort| Sort::new(sort.expr.clone(), !sort.asc, !sort.nulls_first);
    turned.params.order_by = params.order_by.iter().map(reversed).collect();
    (!params.order_by.is_empty()).then_some(Here(turned))
}

/// `first_value`, `last_value` or `nth_value` of a frame that reaches to the end.
fn value_of_a_row(function: &WindowFunction, name: &str) -> Option<FewRows> {
    let params = &function.params;
    let frame = &params.window_frame;
    let start = &frame.start_bound;
    let passes_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    let is_whole = start.is_unbounded();
    let counts_rows = is_whole || frame.units == WindowFrameUnits::Rows;
    let has_the_row = !matches!(start, WindowFrameBound::Following(_));
    let with = |fun: WindowFunctionDefinition, frame| {
        let mut other = function.clone();
        other.fun = fun;
        other.params.window_frame = frame;
        other
    };
    // The same first rows. The start of a whole partition has no type in a frame of rows.
    let until = |end| {
        let frame = match is_whole {
            true => rows_from_the_beginning(end),
            false => WindowFrame::new_bounds(frame.units, start.clone(), end),
        };
        Some(Here(with(function.fun.clone(), frame)))
    };
    // One value for all rows: an aggregate of the partition.
    let whole = |fun| {
        let function = with(fun, whole_partition());
        let descending = false;
        Some(ByNumber {
            function,
            descending,
        })
    };
    let from_the_end = |fun| {
        let function = with(fun, frame.reverse());
        let descending = true;
        Some(ByNumber {
            function,
            descending,
        })
    };
    match name {
        "first_value" if !passes_nulls && has_the_row => until(WindowFrameBound::CurrentRow),
        "first_value" if !passes_nulls && counts_rows => until(start.clone()),
        "first_value" if is_whole => whole(first_value_udaf().into()),
        "first_value" if counts_rows => from_the_end(last_value_udaf().into()),
        "last_value" if is_whole || !passes_nulls && has_the_row => whole(last_value_udaf().into()),
        "last_value" if counts_rows => from_the_end(first_value_udwf().into()),
        "nth_value" if !passes_nulls && counts_rows => {
            let [_, Expr::Literal(number, _)] = params.args.as_slice() else {
                return None;
            };
            let further = rows_of(number)?.checked_sub(1)?;
            let after = match start {
                WindowFrameBound::Following(rows) => rows_of(rows)?,
                _ => 0,
            };
            let end = after.checked_add(further).filter(|&end| end < NTH_MAX)?;
            until(WindowFrameBound::Following(ScalarValue::UInt64(Some(end))))
        }
        _ => None,
    }
}

/// A frame of all rows of a partition.
pub(super) fn whole_partition() -> WindowFrame {
    rows_from_the_beginning(WindowFrameBound::Following(ScalarValue::UInt64(None)))
}

/// A frame of all rows before one, and that.
pub(super) fn up_to_the_row() -> WindowFrame {
    rows_from_the_beginning(WindowFrameBound::CurrentRow)
}

fn rows_from_the_beginning(end: WindowFrameBound) -> WindowFrame {
    let start = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
    WindowFrame::new_bounds(WindowFrameUnits::Rows, start, end)
}

fn rows_of(value: &ScalarValue) -> Option<u64> {
    match value {
        ScalarValue::UInt64(rows) => *rows,
        ScalarValue::Int64(rows) => u64::try_from((*rows)?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::before_after::before_after;

    #[test]
    fn a_frame_to_the_end_is_one_from_the_beginning_in_the_reverse_order() {
        let statements = [
            "SET hotshelf.operators = always",
            "SELECT sum(v) OVER (PARTITION BY k ORDER BY n RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS c \
                FROM t",
        ];
        before_after("window_shares", &statements).is(
            "
            Projection: sum(t.v) PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE BETWEEN CURRENT ROW AND \
                UNBOUNDED FOLLOWING AS c
              WindowAggr: windowExpr=[[sum(t.v) PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE BETWEEN \
                  CURRENT ROW AND UNBOUNDED FOLLOWING]]
                TableScan: t
            ",
            "
            Projection: sum(t.v) PARTITION BY [t.k] ORDER BY [t.n ASC NULLS LAST] RANGE BETWEEN CURRENT ROW AND \
                UNBOUNDED FOLLOWING AS c
              Projection: t.k, t.n, t.v, t.w, sum(t.v) PARTITION BY [t.k] ORDER BY [t.n DESC NULLS FIRST] RANGE \
                  BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW AS sum(t.v) PARTITION BY [t.k] ORDER BY [t.n ASC NULLS \
                  LAST] RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
                WindowAggr: windowExpr=[[sum(t.v) PARTITION BY [t.k] ORDER BY [t.n DESC NULLS FIRST] RANGE BETWEEN \
                    UNBOUNDED PRECEDING AND CURRENT ROW]]
                  TableScan: t
            ",
        );
    }
}
