//! Bounds hold for any tables: joined by hand, they never have more rows or fewer.

use std::sync::Arc;

use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};
use proptest::prelude::*;

use super::super::estimate::Estimate;
use super::super::graph::Relation;
use super::super::tree::Tree;
use super::*;
use crate::statistics::column::ColumnEstimate;

/// A table of two columns, and which of its rows filters leave; `None` where there are none.
#[derive(Debug, Clone)]
struct Table {
    rows: Vec<[Option<i64>; 2]>,
    left: Option<Vec<bool>>,
}

impl Table {
    fn rows_left(&self) -> Vec<[Option<i64>; 2]> {
        let rows = self.rows.iter().enumerate();
        let is_left = |row: usize| self.left.as_ref().is_none_or(|left| left[row]);
        rows.filter(|(row, _)| is_left(*row))
            .map(|(_, values)| *values)
            .collect()
    }

    /// What a catalog knows about a column.
    fn column(&self, column: usize) -> ColumnEstimate {
        let values = self.rows.iter().filter_map(|row| row[column]);
        let mut values: Vec<i64> = values.collect();
        let filled = values.len();
        values.sort_unstable();
        values.dedup();
        let ends = values.first().zip(values.last());
        ColumnEstimate {
            nulls: (self.rows.len() - filled) as f64 / self.rows.len().max(1) as f64,
            bounds: ends.map(|(low, high)| (*low as f64, *high as f64)),
            is_whole: true,
            is_unique: values.len() == filled,
            is_plain: true,
            ..ColumnEstimate::unknown(self.rows.len() as f64)
        }
    }

    fn relation(&self) -> Relation {
        let rows = self.rows.len() as f64;
        let bounds = RowBounds::exactly(rows);
        Relation {
            plan: Arc::new(LogicalPlan::EmptyRelation(EmptyRelation {
                produce_one_row: false,
                schema: Arc::new(DFSchema::empty()),
            })),
            estimate: Estimate {
                rows,
                unfiltered: rows,
                table_rows: rows,
                bounds: match self.left {
                    Some(_) => bounds.thinned(),
                    None => bounds,
                },
                columns: Vec::new(),
                sampled: None,
            },
            reducer: None,
        }
    }
}

/// Rows of tables joined: members of a class, by table and column, are equal.
fn joined_rows(tables: &[Table], classes: &[Vec<(usize, usize)>]) -> usize {
    let mut joined: Vec<Vec<[Option<i64>; 2]>> = vec![Vec::new()];
    for table in tables {
        let rows = table.rows_left();
        let longer = joined.iter().flat_map(|before| {
            let rows = rows.iter();
            rows.map(move |row| before.iter().copied().chain([*row]).collect())
        });
        joined = longer.collect();
    }
    let passes = |rows: &&Vec<[Option<i64>; 2]>| {
        classes.iter().all(|class| {
            let mut values = class.iter().map(|(table, column)| rows[*table][*column]);
            let first = values.next().flatten();
            first.is_some() && values.all(|value| value == first)
        })
    };
    joined.iter().filter(passes).count()
}

fn table() -> impl Strategy<Value = Table> {
    let value = || prop_oneof![8 => (0i64..4).prop_map(Some), 1 => Just(None)];
    let anything = proptest::collection::vec([value(), value()], 0..6);
    // All whole numbers of a range, each once.
    let keys = (1i64..6, value()).prop_map(|(count, other)| {
        let rows = (0..count).map(|key| [Some(key), other]);
        rows.collect::<Vec<_>>()
    });
    let rows = prop_oneof![anything, keys];
    (rows, proptest::option::weighted(0.2, any::<[bool; 6]>())).prop_map(|(rows, left)| Table {
        left: left.map(|left| left[..rows.len()].to_vec()),
        rows,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn joined_rows_are_within_their_bounds(
        tables in proptest::collection::vec(table(), 2..5),
        picked in proptest::collection::vec(proptest::collection::vec((0usize..4, 0usize..2), 2..4), 1..4),
    ) {
        // A column is in one class, and a class has one column of a table.
        let mut used = Vec::new();
        let mut classes: Vec<Vec<(usize, usize)>> = Vec::new();
        for class in picked {
            let mut members: Vec<(usize, usize)> = Vec::new();
            for (table, column) in class {
                let is_new = members.iter().all(|(other, _)| *other != table);
                if table < tables.len() && is_new && !used.contains(&(table, column)) {
                    members.push((table, column));
                }
            }
            if members.len() > 1 {
                used.extend(members.iter().copied());
                classes.push(members);
            }
        }
        let member = |(table, column): &(usize, usize)| Member {
            relation: *table,
            column: Column::from_name(format!("c{column}")),
            values: tables[*table].column(*column),
            spread: None,
            is_looked_up: true,
        };
        let graph = Graph {
            relations: tables.iter().map(Table::relation).collect(),
            classes: classes.iter().map(|class| class.iter().map(member).collect()).collect(),
            edges: Vec::new(),
            conditions: Vec::new(),
            last: Vec::new(),
            order: Tree::Leaf(0),
        };
        let bounds = SetBounds::of(&graph).rows(graph.all());
        let rows = joined_rows(&tables, &classes) as f64;
        // An empty table counts as one row.
        prop_assert!(bounds.least <= rows && rows <= bounds.most.max(1.0), "{rows} rows, {bounds:?}");
    }
}

#[test]
fn what_finds_its_key_for_sure_has_as_many_rows() {
    let items = Table {
        rows: (0..3).map(|key| [Some(key), None]).collect(),
        left: None,
    };
    let sales = Table {
        rows: (0..5).map(|row| [Some(row % 3), None]).collect(),
        left: None,
    };
    let bounds = |tables: &[Table; 2]| {
        let member = |relation: usize| Member {
            relation,
            column: Column::from_name("k"),
            values: tables[relation].column(0),
            spread: None,
            is_looked_up: true,
        };
        let graph = Graph {
            relations: tables.iter().map(Table::relation).collect(),
            classes: vec![vec![member(0), member(1)]],
            edges: Vec::new(),
            conditions: Vec::new(),
            last: Vec::new(),
            order: Tree::Leaf(0),
        };
        SetBounds::of(&graph).rows(graph.all())
    };
    let exactly = RowBounds::exactly(5.0);
    assert_eq!(bounds(&[sales.clone(), items.clone()]), exactly);
    // One that a filter may have dropped is not found.
    let left = Some(vec![true, false, true]);
    let dropped = Table {
        left,
        ..items.clone()
    };
    assert_eq!(bounds(&[sales.clone(), dropped]), exactly.thinned());
    let twice = Table {
        rows: items.rows.iter().chain(&items.rows).copied().collect(),
        left: None,
    };
    assert_eq!(
        bounds(&[sales, twice]),
        RowBounds {
            least: 0.0,
            most: 30.0
        }
    );
}
