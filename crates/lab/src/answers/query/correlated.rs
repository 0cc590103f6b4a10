//! Correlated subqueries of every shape: joins, groups, HAVING, windows and limits inside, equalities and other
//! comparisons with the rows outside.

use super::generate::{Col, Generator, Scope, count_all};
use super::{Expr, Grouping, Order, Query, Select};
use crate::answers::schema::{BIGINT, Kind};

/// How a subquery is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Exists,
    Member,
    Scalar,
}

impl Generator<'_> {
    /// A test by a subquery that names a column of the rows outside. `None` if its tables have no column to compare
    /// with.
    pub(super) fn correlated_test(&mut self, scope: &Scope) -> Option<Expr> {
        let table_count = self.pick(&[1, 1, 2]);
        let (mut select, inner) = self.subquery_source(table_count);
        select.filter = self.plain_filter(&inner);
        let outer = self.column(scope);
        let partner = self.column_of(&inner, outer.ty.kind())?;
        self.correlate(&mut select, &partner, &outer);
        let usage = self.pick(&[Use::Exists, Use::Exists, Use::Member, Use::Scalar]);
        match usage {
            Use::Exists => {
                let query = self.body(select, &inner, usage, partner.expr());
                let form = self.pick(&["EXISTS ({q})", "NOT EXISTS ({q})"]);
                Some(Expr::test(form, Vec::new()).with_query(query))
            }
            Use::Member => {
                let tested = self.column(scope);
                let item = self.column_of(&inner, tested.ty.kind())?;
                let query = self.body(select, &inner, usage, item.expr());
                let form = self.pick(&[
                    "{} IN ({q})",
                    "{} NOT IN ({q})",
                    "{} = ANY ({q})",
                    "{} > ANY ({q})",
                    "{} <> ALL ({q})",
                    "{} <= ALL ({q})",
                ]);
                Some(Expr::test(form, vec![tested.expr()]).with_query(query))
            }
            Use::Scalar => {
                let query = self.body(select, &inner, usage, count_all());
                let form = self.pick(&["({q}) > {}", "({q}) = {}", "coalesce(({q}), 0) < {}"]);
                let number = Expr::int(self.rng.i64(0..4));
                Some(Expr::test(form, vec![number]).with_query(query))
            }
        }
    }

    /// Compares a column inside with one outside, mostly by equality and in WHERE.
    fn correlate(&mut self, select: &mut Select, partner: &Col, outer: &Col) {
        let form = match outer.ty.kind() {
            Kind::Boolean => "{} = {}",
            _ => self.pick(&[
                "{} = {}", "{} = {}", "{} = {}", "{} < {}", "{} >= {}", "{} <> {}",
            ]),
        };
        let condition = Expr::test(form, vec![partner.expr(), outer.expr()]);
        let joined = select.from.last_mut().filter(|_| self.rng.u8(0..6) == 0);
        match joined.map(|join| &mut join.on) {
            Some(super::On::All(conditions)) => conditions.push(condition),
            _ => select.filter.push(condition),
        }
    }

    /// What the subquery makes of its rows.
    fn body(&mut self, mut select: Select, inner: &Scope, usage: Use, item: Expr) -> Query {
        let kind = item.kind();
        select.items = vec![item];
        if usage == Use::Scalar {
            select.having = self.maybe_having(inner);
            return Query::select(select);
        }
        match self.rng.u8(0..8) {
            0 | 1 => {}
            2 if kind != Kind::Boolean => self.aggregate_items(&mut select),
            3 if kind != Kind::Boolean => {
                self.aggregate_items(&mut select);
                select.having = self.maybe_having(inner);
            }
            4 => {
                let keys = select.items.clone();
                select.group = Grouping::By(keys);
                select.having = self.maybe_having(inner);
            }
            5 => select.is_distinct = true,
            6 if kind == Kind::Int => {
                select.items = vec![Expr::pattern(BIGINT, "count(*) OVER ()", Vec::new())];
            }
            _ => {
                let mut query = Query::select(select);
                query.order = vec![Order {
                    position: 0,
                    is_descending: self.one_in(2),
                    nulls_first: self.one_in(2),
                }];
                query.limit = Some(self.rng.u64(0..4));
                query.offset = self.one_in(2).then(|| self.rng.u64(0..3));
                return query;
            }
        }
        Query::select(select)
    }

    /// The least or greatest of the items instead of all of them.
    fn aggregate_items(&mut self, select: &mut Select) {
        let form = self.pick(&["min({})", "max({})"]);
        let items = select.items.drain(..);
        select.items = items
            .map(|item| Expr::pattern(item.ty, form, vec![item]))
            .collect();
    }

    fn maybe_having(&mut self, inner: &Scope) -> Vec<Expr> {
        match self.one_in(3) {
            true => vec![self.having(inner)],
            false => Vec::new(),
        }
    }
}
