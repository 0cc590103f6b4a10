//! Ternary logic partitioning (Rigger and Su, 2020): a predicate divides rows into three parts that make up the whole.

use super::{Bench, Case, Verdict, compare};
use crate::answers::query::{Body, Expr, Form, Query};
use crate::answers::render;
use crate::answers::rows::{Cell, Rows};
use crate::answers::schema::Dialect;

const PARTS: [&str; 3] = ["({})", "(NOT ({}))", "(({}) IS NULL)"];

impl Bench {
    pub(super) fn in_parts(&mut self, case: &Case) -> Verdict {
        let whole = self.run(
            &render::query(&case.query, Dialect::Hotshelf),
            &case.settings,
        );
        let mut parts = Ok(Vec::new());
        for query in statements(case) {
            let rows = self.run(&render::query(&query, Dialect::Hotshelf), &case.settings);
            parts = parts.and_then(|mut parts: Vec<Rows>| {
                parts.push(rows?);
                Ok(parts)
            });
        }
        compare(whole, parts.map(|parts| together(case, parts)), false)
    }
}

/// The query for each value of the predicate.
pub fn statements(case: &Case) -> Vec<Query> {
    let part = |pattern| {
        let mut query = case.query.clone();
        if let (Some(predicate), Body::Select(select)) = (&case.predicate, &mut query.body) {
            select
                .filter
                .push(Expr::test(pattern, vec![predicate.clone()]));
        }
        query
    };
    PARTS.into_iter().map(part).collect()
}

fn together(case: &Case, parts: Vec<Rows>) -> Rows {
    let Body::Select(select) = &case.query.body else {
        return Vec::new();
    };
    let folds: Option<Vec<Fold>> = select.items.iter().map(fold_of).collect();
    let all: Rows = match folds {
        Some(folds) if !folds.is_empty() => {
            let mut rows = parts.into_iter().flatten();
            let first = rows.next();
            return first
                .map(|first| rows.fold(first, |a, b| folded(&folds, a, b)))
                .into_iter()
                .collect();
        }
        _ => parts.into_iter().flatten().collect(),
    };
    if select.is_distinct {
        crate::answers::rows::distinct(all)
    } else {
        all
    }
}

type Fold = fn(Cell, Cell) -> Cell;

/// How the aggregates of parts make that of the whole; `None` if it is not one.
fn fold_of(item: &Expr) -> Option<Fold> {
    let Form::Pattern(pattern) = item.form else {
        return None;
    };
    match pattern.split('(').next()? {
        "count" | "sum" => Some(Cell::sum),
        "min" => Some(|a, b| if b.is_before(&a) { b } else { a }),
        "max" => Some(|a, b| if a.is_before(&b) { b } else { a }),
        _ => None,
    }
}

fn folded(folds: &[Fold], a: Vec<Cell>, b: Vec<Cell>) -> Vec<Cell> {
    let pairs = a.into_iter().zip(b).zip(folds);
    pairs
        .map(|((a, b), fold)| match (a, b) {
            (Cell::Null, other) | (other, Cell::Null) => other,
            (a, b) => fold(a, b),
        })
        .collect()
}
