//! Random queries over a database: the generator's state and the choice between kinds of queries.

use std::sync::Arc;

use fastrand::Rng;

use super::{Expr, Form, Join, JoinKind, On, Query, Relation, Select};
use crate::answers::data::pick;
use crate::answers::features::Features;
use crate::answers::schema::{Facts, Type, World};

/// The most rows that a query's joins may make.
#[derive(Debug, Clone, Copy)]
pub struct Taste {
    pub joined_rows_max: f64,
    pub features: Features,
}

impl Default for Taste {
    fn default() -> Self {
        Self {
            joined_rows_max: 60_000.0,
            features: Features::USUAL,
        }
    }
}

/// A query whose rows a predicate may divide: it has neither order nor limit.
#[derive(Debug, Clone)]
pub struct Predicated {
    pub query: Query,
    pub predicate: Expr,
}

/// A table as queries see it.
#[derive(Debug, Clone)]
pub(super) struct TableFacts {
    pub name: String,
    pub row_count: usize,
    pub columns: Vec<Col>,
}

/// A column that can be named.
#[derive(Debug, Clone)]
pub(super) struct Col {
    /// `None` where joins have merged it.
    pub relation: Option<String>,
    pub name: String,
    pub ty: Type,
    pub facts: Arc<Facts>,
}

impl Col {
    pub fn expr(&self) -> Expr {
        let form = Form::Column {
            relation: self.relation.clone(),
            name: self.name.clone(),
        };
        Expr::new(self.ty, form, Vec::new()).with_bound(self.facts.bound)
    }
}

/// What a query's FROM clause offers.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub columns: Vec<Col>,
    /// Rows at most.
    pub rows: f64,
    /// Whether the rows may include some made of NULLs for a missing partner on the left.
    pub has_outer: bool,
}

/// Makes random queries over one database.
pub struct Generator<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) tables: Vec<TableFacts>,
    pub(super) taste: Taste,
    next_alias: usize,
}

impl<'a> Generator<'a> {
    /// `None` if there are no tables.
    pub fn new(rng: &'a mut Rng, world: &World, taste: Taste) -> Option<Self> {
        let tables = world.tables.iter().map(|table| TableFacts {
            name: table.name.clone(),
            row_count: table.row_count(),
            columns: table
                .columns
                .iter()
                .map(|column| Col {
                    relation: None,
                    name: column.name.clone(),
                    ty: column.ty,
                    facts: column.facts(),
                })
                .collect(),
        });
        let tables: Vec<_> = tables.collect();
        (!tables.is_empty()).then_some(Self {
            rng,
            tables,
            taste,
            next_alias: 0,
        })
    }

    /// A query of any kind, the same on every run.
    pub fn query(&mut self) -> Query {
        self.next_alias = 0;
        match self.rng.u8(0..100) {
            0..26 => self.rows(),
            26..54 => self.grouped(),
            54..64 => self.star(),
            64..72 => self.set_operation(),
            72..80 => self.with_ctes(),
            80..90 => self.window(),
            _ => self.over_derived(),
        }
    }

    /// Rows, or aggregates of them, and a predicate that divides them.
    pub fn predicated(&mut self) -> Predicated {
        if self.one_in(2) {
            self.predicated_rows()
        } else {
            self.predicated_aggregates()
        }
    }

    /// Rows and a predicate over them.
    pub fn predicated_rows(&mut self) -> Predicated {
        self.next_alias = 0;
        self.divided(|generator, select, scope| {
            select.items = generator.items(scope, 4);
            select.is_distinct = generator.one_in(4);
        })
    }

    /// Aggregates that can be put together from those of parts.
    pub fn predicated_aggregates(&mut self) -> Predicated {
        self.next_alias = 0;
        self.divided(|generator, select, scope| select.items = generator.additive_aggregates(scope))
    }

    /// A count of rows and a predicate over them.
    pub fn predicated_count(&mut self) -> Predicated {
        self.next_alias = 0;
        self.divided(|_, select, _| select.items = vec![count_all()])
    }

    /// A condition over the columns of the first table, under the alias `r1`.
    pub fn condition(&mut self) -> Expr {
        let columns = self.tables[0].columns.iter().cloned().map(|column| Col {
            relation: Some("r1".into()),
            ..column
        });
        let scope = Scope {
            columns: columns.collect(),
            rows: self.tables[0].row_count as f64,
            has_outer: false,
        };
        self.predicate(&scope, 0)
    }

    /// All rows of a table.
    pub fn contents(table: &str, columns: &[(String, Type)]) -> Query {
        let column = |(name, ty): &(String, Type)| {
            let form = Form::Column {
                relation: Some("r1".into()),
                name: name.clone(),
            };
            Expr::new(*ty, form, Vec::new())
        };
        Query::select(Select {
            items: columns.iter().map(column).collect(),
            from: vec![Join {
                kind: JoinKind::Inner,
                relation: Relation::Table(table.to_owned()),
                alias: "r1".into(),
                on: On::Nothing,
            }],
            ..Select::default()
        })
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.rng.usize(0..count) == 0
    }

    pub(super) fn percent(&mut self, percent: u8) -> bool {
        self.rng.u8(0..100) < percent
    }

    pub(super) fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        pick(self.rng, values).clone()
    }

    pub(super) fn alias(&mut self) -> String {
        self.next_alias += 1;
        format!("r{}", self.next_alias)
    }
}

pub(super) fn count_all() -> Expr {
    Expr::pattern(crate::answers::schema::BIGINT, "count(*)", Vec::new()).with_bound(1e6)
}
