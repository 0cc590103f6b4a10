//! Plans and expressions that joins to a domain are made of.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, TableReference};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::logical_expr::{Expr, Join, LogicalPlan};

use crate::error::Error;
use crate::settings::Notes;

/// Numbers for the names of made-up tables, unique in a statement, and where it is noted what these are for.
pub(super) struct Names {
    next: Cell<usize>,
    pub decisions: Notes,
}

impl Names {
    pub fn new(decisions: Notes) -> Self {
        Self {
            next: Cell::default(),
            decisions,
        }
    }

    /// A name of a kind of table that no other has.
    pub fn next(&self, kind: &str) -> String {
        let number = self.next.get();
        self.next.set(number + 1);
        format!("__{kind}_{number}")
    }

    /// A name for the values of a subquery: [`is_made_up`] knows its columns.
    pub fn next_value(&self) -> String {
        self.next(VALUE)
    }
}

const VALUE: &str = "value";

/// Whether a column is the value of a subquery.
pub(super) fn is_made_up(column: &Column) -> bool {
    let table = column.relation.as_ref().map(TableReference::table);
    let kind = table.and_then(|table| table.strip_prefix("__"));
    kind.and_then(|kind| kind.strip_prefix(VALUE))
        .is_some_and(|rest| rest.starts_with('_'))
}

/// A join in which NULLs of `on` are equal.
pub(super) fn join(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    join_type: JoinType,
) -> QueryResult<LogicalPlan> {
    // Without keys, the engine may make keys of the condition, whose NULLs are not equal.
    let null_equality = match on.is_empty() {
        true => NullEquality::NullEqualsNothing,
        false => NullEquality::NullEqualsNull,
    };
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        filter,
        join_type,
        JoinConstraint::On,
        null_equality,
        false,
    );
    join.map(LogicalPlan::Join)
}

/// The columns of a plan.
pub(super) fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns().into_iter();
    columns.map(Expr::Column).collect()
}

/// A part of a correlated subquery that is not known here.
pub(super) fn refused(what: impl std::fmt::Display) -> DataFusionError {
    let what = format!("a correlated subquery with {what}");
    Error::NotSupported { what }.into()
}

/// A column by its table and name, as they are written.
pub(super) fn qualified(table: &str, name: &str) -> Expr {
    Expr::Column(Column::new(Some(TableReference::bare(table)), name))
}

/// The column of a plan at a place.
pub(super) fn column(plan: &LogicalPlan, place: usize) -> Expr {
    let (qualifier, field) = plan.schema().qualified_field(place);
    Expr::Column(Column::from((qualifier, field.as_ref())))
}

/// An expression under a column's name.
pub(super) fn named(expr: Expr, qualifier: Option<&TableReference>, name: &str) -> Expr {
    match &expr {
        Expr::Column(column) if column.relation.as_ref() == qualifier && column.name == name => {
            expr
        }
        _ => expr.unalias().alias_qualified(qualifier.cloned(), name),
    }
}
