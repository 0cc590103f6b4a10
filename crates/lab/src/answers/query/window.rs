//! Window functions. Those that depend on the order of equal rows need a unique column to order by.

use super::generate::{Col, Generator, Scope};
use super::{Expr, Form, Query};
use crate::answers::schema::{BIGINT, Kind, Type};

/// With partition, order, and a unique column as the last argument.
const NUMBERED: &[&str] = &[
    "row_number() OVER (PARTITION BY {} ORDER BY {} DESC NULLS LAST, {})",
    "ntile(3) OVER (PARTITION BY {} ORDER BY {} NULLS FIRST, {})",
    "rank() OVER (PARTITION BY {} ORDER BY {} NULLS FIRST, {})",
];

/// The same for values, which come first.
const ORDERED: &[&str] = &[
    "lag({}) OVER (PARTITION BY {} ORDER BY {} NULLS LAST, {})",
    "lead({}, 2) OVER (PARTITION BY {} ORDER BY {} DESC NULLS LAST, {})",
    "first_value({}) OVER (PARTITION BY {} ORDER BY {} NULLS FIRST, {})",
    "last_value({}) OVER (PARTITION BY {} ORDER BY {} NULLS FIRST, {} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    "min({}) OVER (PARTITION BY {} ORDER BY {} NULLS FIRST, {} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)",
    "max({}) OVER (PARTITION BY {} ORDER BY {} NULLS LAST, {} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
    "count({}) OVER (PARTITION BY {} ORDER BY {} NULLS LAST, {} ROWS BETWEEN 1 FOLLOWING AND 4 FOLLOWING)",
];

/// Equal rows get equal results: partition and order.
const PEERS: &[&str] = &[
    "rank() OVER (PARTITION BY {} ORDER BY {} NULLS FIRST)",
    "dense_rank() OVER (PARTITION BY {} ORDER BY {} DESC NULLS LAST)",
    "count(*) OVER (PARTITION BY {} ORDER BY {} NULLS LAST)",
    "count(*) OVER (PARTITION BY {})",
];

/// A value, then partition and order.
const PEER_VALUES: &[&str] = &[
    "min({}) OVER (PARTITION BY {})",
    "max({}) OVER (PARTITION BY {} ORDER BY {} NULLS FIRST)",
    "count({}) OVER (ORDER BY {} NULLS LAST)",
    "first_value({}) OVER (PARTITION BY {} ORDER BY {} NULLS LAST, {})",
];

impl Generator<'_> {
    pub(super) fn window(&mut self) -> Query {
        let (mut select, scope) = self.small_source();
        select.filter = self.filter(&scope, 2);
        let unique = scope
            .columns
            .iter()
            .find(|column| column.facts.is_unique)
            .cloned();
        select.items = (0..self.rng.usize(1..3))
            .map(|_| self.over(&scope, unique.as_ref()))
            .collect();
        select.items.push(self.column(&scope).expr());
        select.items.extend(unique.iter().map(Col::expr));
        let mut query = Query::select(select);
        self.order(&mut query);
        self.limit(&mut query, scope.rows > 300.0);
        query
    }

    fn over(&mut self, scope: &Scope, unique: Option<&Col>) -> Expr {
        let partition = self.column(scope).expr();
        let order = self.column(scope).expr();
        let value = self.column(scope);
        let unique = unique.filter(|_| self.percent(70)).map(Col::expr);
        let number = |form, args| Expr::new(BIGINT, Form::Whole(form), args).with_bound(1e6);
        let (form, rest) = match unique {
            Some(unique) if self.one_in(3) => {
                return number(self.pick(NUMBERED), vec![partition, order, unique]);
            }
            Some(unique) => (self.pick(ORDERED), vec![partition, order, unique]),
            None if self.one_in(2) => return number(self.pick(PEERS), vec![partition, order]),
            // Of equal rows the first value may be any: the value itself is ordered by.
            None => (self.pick(PEER_VALUES), vec![partition, order, value.expr()]),
        };
        let mut args = vec![self.window_value(scope, &value, form)];
        args.extend(rest);
        let ty = if form.starts_with("count") {
            BIGINT
        } else {
            args[0].ty
        };
        let bound = args[0].bound.max(if ty == BIGINT { 1e6 } else { 0.0 });
        Expr::new(ty, Form::Whole(form), args).with_bound(bound)
    }

    /// The value, or another one where booleans have no least and greatest.
    fn window_value(&mut self, scope: &Scope, value: &Col, form: &str) -> Expr {
        let is_extreme = form.starts_with("min") || form.starts_with("max");
        if is_extreme && value.ty == Type::Boolean {
            return self.scalar_of(scope, Kind::Int, 0);
        }
        value.expr()
    }
}
