//! Whole queries: rows, groups, set operations, common table expressions, derived tables.

use std::sync::Arc;

use super::generate::{Col, Generator, Predicated, Scope, TableFacts, count_all};
use super::{Body, Expr, Form, Grouping, Join, JoinKind, On, Order, Query, Relation, Select};
use crate::answers::render;
use crate::answers::schema::{BIGINT, Dialect, Facts, Kind};

impl Generator<'_> {
    pub(super) fn rows(&mut self) -> Query {
        let (mut select, scope) = self.source();
        select.filter = self.filter(&scope, 3);
        self.rows_over(select, &scope)
    }

    pub(super) fn grouped(&mut self) -> Query {
        let (mut select, scope) = self.source();
        select.filter = self.filter(&scope, 3);
        self.groups_over(select, &scope)
    }

    /// Rows of a FROM clause. Many rows are counted, or cut off after they were ordered.
    fn rows_over(&mut self, mut select: Select, scope: &Scope) -> Query {
        select.items = self.items(scope, 5);
        select.is_distinct = self.one_in(4);
        let mut query = Query::select(select);
        let is_long = scope.rows > 300.0;
        if is_long && self.one_in(8) {
            return self.counted_query(query);
        }
        if is_long || self.one_in(3) {
            self.order(&mut query);
            self.limit(&mut query, is_long);
        }
        query
    }

    /// Aggregates of a FROM clause, in groups or not.
    pub(super) fn groups_over(&mut self, mut select: Select, scope: &Scope) -> Query {
        let key_count = self.pick(&[0, 1, 1, 2, 2, 3]);
        let keys = self.keys(scope, key_count);
        let aggregate_count = self.rng.usize(1..5);
        select.items = keys.clone();
        select
            .items
            .extend((0..aggregate_count).map(|_| self.aggregate(scope)));
        if !keys.is_empty() {
            select.group = self.grouping(keys);
            if self.one_in(5) {
                select.having = vec![self.having(scope)];
            }
        }
        let mut query = Query::select(select);
        if self.percent(60) {
            self.order(&mut query);
            self.limit(&mut query, scope.rows > 2_000.0);
        }
        query
    }

    /// Different keys; approximate values are not grouped by.
    fn keys(&mut self, scope: &Scope, count: usize) -> Vec<Expr> {
        let mut keys: Vec<Expr> = Vec::new();
        let text = |expr: &Expr| render::expression(expr, Dialect::Hotshelf);
        for _ in 0..count {
            let key = self.scalar(scope, 0);
            if !key.is_approximate && keys.iter().all(|other| text(other) != text(&key)) {
                keys.push(key);
            }
        }
        keys
    }

    fn grouping(&mut self, keys: Vec<Expr>) -> Grouping {
        match self.rng.u8(0..20) {
            0 => Grouping::Rollup(keys),
            1 => Grouping::Cube(keys),
            2 => {
                let all = (0..keys.len()).collect();
                let some = (0..keys.len()).filter(|_| self.rng.bool()).collect();
                Grouping::Sets(keys, vec![all, some, Vec::new()])
            }
            _ => Grouping::By(keys),
        }
    }

    /// Expressions of rows that are exact.
    pub(super) fn items(&mut self, scope: &Scope, count_max: usize) -> Vec<Expr> {
        let count = self.rng.usize(1..=count_max);
        let exact = |expr: Expr, column: Col| {
            if expr.is_approximate {
                column.expr()
            } else {
                expr
            }
        };
        (0..count)
            .map(|_| {
                // Subqueries beside rows are mostly refused.
                let depth = usize::from(self.one_in(12));
                let expr = self.scalar(scope, depth);
                exact(expr, self.column(scope))
            })
            .collect()
    }

    /// A select filled by `fill`, and a predicate over its FROM clause.
    pub(super) fn divided(
        &mut self,
        fill: impl FnOnce(&mut Self, &mut Select, &Scope),
    ) -> Predicated {
        let (mut select, mut scope) = self.source();
        if scope.has_outer && !self.taste.features.outer_filters {
            (select, scope) = self.small_source();
        }
        if self.one_in(3) {
            select.filter = self.plain_filter(&scope);
        }
        fill(self, &mut select, &scope);
        Predicated {
            predicate: self.predicate(&scope, 2),
            query: Query::select(select),
        }
    }

    pub(super) fn set_operation(&mut self) -> Query {
        let (select, scope) = self.source();
        let items = self.items(&scope, 3);
        let mut query = self.branch(select, &scope, items.clone());
        for _ in 0..self.rng.usize(1..3) {
            let (select, scope) = self.small_source();
            let similar = items.iter().map(|item| self.similar(&scope, item));
            let similar = similar.collect();
            let right = self.branch(select, &scope, similar);
            let all = self.taste.features.set_all && self.one_in(8);
            let operator = match self.rng.u8(0..10) {
                0..3 => "UNION ALL",
                3..6 => "UNION",
                6..8 if all => "INTERSECT ALL",
                6..8 => "INTERSECT",
                _ if all => "EXCEPT ALL",
                _ => "EXCEPT",
            };
            query = Query::plain(Body::Set {
                operator,
                left: Box::new(query),
                right: Box::new(right),
            });
        }
        if self.one_in(2) {
            return self.counted_query(query);
        }
        self.order(&mut query);
        self.limit(&mut query, true);
        query
    }

    fn branch(&mut self, mut select: Select, scope: &Scope, items: Vec<Expr>) -> Query {
        select.items = items;
        select.filter = self.filter(scope, 2);
        Query::select(select)
    }

    /// A column that a set operation can put under another one.
    fn similar(&mut self, scope: &Scope, item: &Expr) -> Expr {
        let columns = scope.columns.iter();
        let fitting: Vec<&Col> = columns
            .filter(|column| match item.kind() {
                Kind::Decimal => column.ty == item.ty,
                kind => column.ty.kind() == kind,
            })
            .collect();
        if fitting.is_empty() {
            return Self::null(item.ty);
        }
        let name = match &item.form {
            Form::Column { name, .. } => name.as_str(),
            _ => "",
        };
        let same = fitting.iter().find(|column| column.name == name);
        match same.filter(|_| self.rng.bool()) {
            Some(same) => same.expr(),
            None => self.pick(&fitting).expr(),
        }
    }

    pub(super) fn with_ctes(&mut self) -> Query {
        let before = self.tables.len();
        let mut ctes = Vec::new();
        for idx in 0..self.rng.usize(1..3) {
            let cte = if self.rng.bool() {
                self.rows()
            } else {
                self.grouped()
            };
            let name = format!("w{idx}");
            if let Some(facts) = self.facts_of(&cte, &name) {
                self.tables.push(facts);
                ctes.push((name, cte));
            }
        }
        let mut query = if self.rng.bool() {
            self.rows()
        } else {
            self.grouped()
        };
        self.tables.truncate(before);
        query.ctes = ctes;
        query
    }

    pub(super) fn over_derived(&mut self) -> Query {
        let inner = match self.rng.u8(0..4) {
            0 => self.rows(),
            1 => self.set_operation(),
            2 => self.window(),
            _ => self.grouped(),
        };
        let alias = self.alias();
        let Some(facts) = self.facts_of(&inner, "derived") else {
            return inner;
        };
        let columns = facts.columns.into_iter().map(|column| Col {
            relation: Some(alias.clone()),
            ..column
        });
        let scope = Scope {
            columns: columns.collect(),
            rows: facts.row_count as f64,
            has_outer: false,
        };
        let mut select = derived(inner, alias);
        select.filter = self.filter(&scope, 2);
        if self.one_in(3) {
            return self.rows_over(select, &scope);
        }
        self.groups_over(select, &scope)
    }

    /// `SELECT count(*), …` over a query.
    fn counted_query(&mut self, inner: Query) -> Query {
        let alias = self.alias();
        let facts = self.facts_of(&inner, "derived");
        let mut items = vec![count_all()];
        for column in facts.map(|facts| facts.columns).unwrap_or_default() {
            let column = Col {
                relation: Some(alias.clone()),
                ..column
            };
            let form = self.pick(&["count({})", "count(DISTINCT {})"]);
            items.push(Expr::pattern(BIGINT, form, vec![column.expr()]).with_bound(1e6));
        }
        let mut select = derived(inner, alias);
        select.items = items;
        Query::select(select)
    }

    /// A query's result as a table; without its approximate columns.
    fn facts_of(&mut self, query: &Query, name: &str) -> Option<TableFacts> {
        let mut body = &query.body;
        while let Body::Set { left, .. } = body {
            body = &left.body;
        }
        let Body::Select(select) = body else {
            return None;
        };
        let row_count = query.limit.unwrap_or(2_000) as usize;
        let items = select.items.iter().enumerate();
        let exact = items.filter(|(_, item)| !item.is_approximate);
        let columns: Vec<Col> = exact
            .map(|(idx, item)| Col {
                relation: None,
                name: format!("c{idx}"),
                ty: item.ty,
                facts: Arc::new(Facts {
                    bound: item.bound,
                    frequency_max: row_count,
                    is_unique: false,
                    samples: self.samples_of(item),
                }),
            })
            .collect();
        (!columns.is_empty()).then(|| TableFacts {
            name: name.to_owned(),
            row_count,
            columns,
        })
    }

    /// Values of the stored column that an expression begins with, if it has the column's type.
    fn samples_of(&self, item: &Expr) -> Vec<crate::answers::schema::Value> {
        let Form::Column { name, .. } = &item.form else {
            return Vec::new();
        };
        let columns = self.tables.iter().flat_map(|table| &table.columns);
        let mut same = columns.filter(|column| column.name == *name && column.ty == item.ty);
        same.next()
            .map(|column| column.facts.samples.clone())
            .unwrap_or_default()
    }

    /// Orders by all columns, those that engines may differ in last.
    pub(super) fn order(&mut self, query: &mut Query) {
        let approximate = approximate_items(&query.body);
        let mut positions: Vec<usize> = (0..approximate.len()).collect();
        self.rng.shuffle(&mut positions);
        positions.sort_by_key(|position| approximate[*position]);
        query.order = positions
            .into_iter()
            .map(|position| Order {
                position,
                is_descending: self.rng.bool(),
                nulls_first: self.rng.bool(),
            })
            .collect();
    }

    /// Cuts an ordered query off where the order is total.
    pub(super) fn limit(&mut self, query: &mut Query, must: bool) {
        let is_total = !approximate_items(&query.body).contains(&true);
        if is_total && (must || self.one_in(2)) {
            query.limit = Some(self.pick(&[5, 20, 100, 200]));
            query.offset = self.one_in(10).then(|| self.rng.u64(0..4));
        }
    }
}

fn derived(inner: Query, alias: String) -> Select {
    Select {
        from: vec![Join {
            kind: JoinKind::Inner,
            relation: Relation::Derived(Box::new(inner)),
            alias,
            on: On::Nothing,
        }],
        ..Select::default()
    }
}

/// Which columns of a result engines may differ in.
pub fn approximate_items(body: &Body) -> Vec<bool> {
    match body {
        Body::Select(select) => select
            .items
            .iter()
            .map(|item| item.is_approximate)
            .collect(),
        Body::Set { left, right, .. } => {
            let (left, right) = (
                approximate_items(&left.body),
                approximate_items(&right.body),
            );
            left.iter()
                .zip(&right)
                .map(|(left, right)| *left || *right)
                .collect()
        }
    }
}
