//! Differences from DuckDB that Hotshelf should not mend. Each has a name, a reason, and a predicate as narrow as
//! possible.
//!
//! What differs by definition is better not generated at all; this list has what only shows when a query runs.

use crate::answers::check::{Case, Check};
use crate::answers::query::{Body, Expr, Form, Query};
use crate::answers::rows::{self, Cell, Rows};
use crate::answers::schema::Kind;

/// A difference that is known.
pub struct Known {
    pub name: &'static str,
    pub reason: &'static str,
    holds: fn(&Case, &Rows, &Rows) -> bool,
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known {
        name: "duckdb-rounds-decimals-in-subqueries",
        reason: "`d IN (SELECT e …)` over decimals of two scales: DuckDB rounds the subquery's values to the scale of \
                 `d` (12 IN (11.87) holds); here both sides become the wider type",
        holds: |case, _, _| expressions(&case.query, &mut is_decimal_membership),
    },
    Known {
        name: "duckdb-exceeds-limits",
        reason: "DuckDB answers a query with LIMIT n with more than n rows (above groups of an outer join without \
                 keys)",
        holds: |case, found, expected| {
            let limit = case.query.limit.map(|limit| limit as usize);
            limit.is_some_and(|limit| expected.len() > limit && found.len() <= limit)
        },
    },
    Known {
        name: "duckdb-invents-null-above-unions",
        reason: "the largest rows of a UNION ALL over EXCEPT: DuckDB answers a NULL that no row has (right without its \
                 optimizer, or without LIMIT)",
        holds: |case, found, expected| {
            let is_limited_union =
                matches!(case.query.body, Body::Set { .. }) && case.query.limit.is_some();
            let invented = expected.iter().filter(|row| !found.contains(row));
            let mut invented = invented.flatten();
            is_limited_union
                && found.len() == expected.len()
                && invented.next() == Some(&Cell::Null)
                && invented.next().is_none()
        },
    },
    Known {
        name: "negative-zero-groups",
        reason: "-0.0 and 0.0 are two groups here and one in DuckDB (docs/upstream/negative-zero.md)",
        holds: |_, found, expected| {
            let is_negative_zero = |cell: &Cell| match cell {
                Cell::Float(value) => *value == 0.0 && value.is_sign_negative(),
                _ => false,
            };
            let has_zero = found.iter().flatten().any(is_negative_zero);
            has_zero
                && rows::same_rows(
                    &rows::distinct(found.clone()),
                    &rows::distinct(expected.clone()),
                    false,
                )
        },
    },
];

/// The known difference that explains these rows.
pub fn explain(case: &Case, found: &Rows, expected: &Rows) -> Option<&'static Known> {
    let applies = case.check == Check::Duckdb;
    KNOWN
        .iter()
        .find(|known| applies && (known.holds)(case, found, expected))
}

/// Whether `is` holds for an expression of the query or of one inside it.
fn expressions(query: &Query, is: &mut impl FnMut(&Expr) -> bool) -> bool {
    if query.ctes.iter().any(|(_, cte)| expressions(cte, is)) {
        return true;
    }
    match &query.body {
        Body::Set { left, right, .. } => expressions(left, is) || expressions(right, is),
        Body::Select(select) => {
            let derived = select
                .from
                .iter()
                .filter_map(|join| join.relation.derived());
            select.exprs().any(|expr| within(expr, is))
                || derived.into_iter().any(|query| expressions(query, is))
        }
    }
}

fn within(expr: &Expr, is: &mut impl FnMut(&Expr) -> bool) -> bool {
    is(expr)
        || expr.args.iter().any(|arg| within(arg, is))
        || expr
            .query
            .as_deref()
            .is_some_and(|query| expressions(query, is))
}

/// `d IN (SELECT e …)` or NOT IN with decimals of two types.
fn is_decimal_membership(expr: &Expr) -> bool {
    let Form::Pattern("{} IN ({q})" | "{} NOT IN ({q})") = expr.form else {
        return false;
    };
    let inner = expr.query.as_deref().and_then(|query| match &query.body {
        Body::Select(select) => select.items.first(),
        Body::Set { .. } => None,
    });
    let pair = expr.args.first().zip(inner);
    pair.is_some_and(|(value, item)| {
        value.kind() == Kind::Decimal && item.kind() == Kind::Decimal && value.ty != item.ty
    })
}
