//! Star-shaped joins: a large table with small ones joined by their unique keys, filtered on both sides and aggregated.

use super::from::source;
use super::generate::{Col, Generator, Scope, TableFacts};
use super::{Expr, Join, JoinKind, On, Query, Select};
use crate::answers::schema::Kind;

impl Generator<'_> {
    /// A star over the largest table; an ordinary grouped query if there is none.
    pub(super) fn star(&mut self) -> Query {
        let tables = self.tables.clone();
        let Some(fact) = tables.iter().max_by_key(|table| table.row_count) else {
            return self.grouped();
        };
        let alias = self.alias();
        let mut scope = Scope {
            columns: under(fact, &alias),
            rows: fact.row_count as f64,
            has_outer: false,
        };
        let mut select = Select {
            from: vec![source(JoinKind::Inner, fact, alias.clone(), On::Nothing)],
            ..Select::default()
        };
        for dimension in tables.iter().filter(|table| table.name != fact.name) {
            if let Some(join) = self.look_up(&mut scope, &alias, dimension) {
                select.from.push(join);
            }
        }
        if select.from.len() == 1 {
            return self.grouped();
        }
        select.filter = self.filter(&scope, 3);
        self.groups_over(select, &scope)
    }

    /// A join of the fact by the dimension's unique integer key.
    fn look_up(&mut self, scope: &mut Scope, fact: &str, dimension: &TableFacts) -> Option<Join> {
        let alias = self.alias();
        let columns = under(dimension, &alias);
        let mut unique = columns.iter();
        let key = unique.find(|column| column.facts.is_unique && column.ty.kind() == Kind::Int)?;
        let foreign: Vec<Col> = scope
            .columns
            .iter()
            .filter(|column| {
                column.relation.as_deref() == Some(fact) && column.ty.kind() == Kind::Int
            })
            .cloned()
            .collect();
        if foreign.is_empty() {
            return None;
        }
        let foreign = self.pick(&foreign);
        let mut on = vec![Expr::test("{} = {}", vec![foreign.expr(), key.expr()])];
        if self.one_in(3) {
            let own = Scope {
                columns: columns.clone(),
                ..Scope::default()
            };
            on.extend(self.plain_filter(&own));
        }
        let kinds = [
            JoinKind::Inner,
            JoinKind::Inner,
            JoinKind::Left,
            JoinKind::Semi,
            JoinKind::Anti,
        ];
        let kind = self.pick(&kinds);
        if matches!(kind, JoinKind::Inner | JoinKind::Left) {
            scope.columns.extend(columns);
        }
        Some(source(kind, dimension, alias, On::All(on)))
    }
}

fn under(table: &TableFacts, alias: &str) -> Vec<Col> {
    let columns = table.columns.iter().cloned();
    columns
        .map(|column| Col {
            relation: Some(alias.to_owned()),
            ..column
        })
        .collect()
}
