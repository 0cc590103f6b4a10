//! An aggregation below a sort with a limit: which of its keys are only passed on.

use std::collections::BTreeSet;

use datafusion::common::Column;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, LogicalPlan, Projection, Sort, SubqueryAlias,
};

use crate::plan::semi_join::plain_column;

/// An aggregation below a sort, with what lies between.
pub(super) struct Groups<'a> {
    pub aggregate: &'a Aggregate,
    /// Filters, projections and names, the lowest first.
    pub above: Vec<&'a LogicalPlan>,
    /// Group keys that something above computes with, by index.
    pub used: BTreeSet<usize>,
    /// Of each column of the sorted rows the group key that it is.
    pub columns: Vec<Option<usize>>,
}

impl<'a> Groups<'a> {
    pub fn below(sort: &'a Sort) -> Option<Self> {
        let (mut above, mut plan) = (Vec::new(), sort.input.as_ref());
        let aggregate = loop {
            plan = match plan {
                LogicalPlan::Filter(Filter { input, .. })
                | LogicalPlan::Projection(Projection { input, .. })
                | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => {
                    above.push(plan);
                    input
                }
                LogicalPlan::Aggregate(aggregate) => break aggregate,
                _ => return None,
            }
        };
        above.reverse();
        let mut groups = Self::of(aggregate)?;
        for node in &above {
            groups.pass(node)?;
        }
        let sorted_by = sort.expr.iter().map(|sort| &sort.expr);
        sorted_by.for_each(|expr| groups.compute(expr, sort.input.as_ref()));
        Some(Self { above, ..groups })
    }

    /// An aggregation with nothing above. `None` if it has one key, or sets of them.
    pub fn of(aggregate: &'a Aggregate) -> Option<Self> {
        let keys = aggregate.group_expr.len();
        let is_plain = |expr: &Expr| !matches!(expr, Expr::GroupingSet(_));
        if keys < 2 || !aggregate.group_expr.iter().all(is_plain) {
            return None;
        }
        let columns = 0..aggregate.schema.fields().len();
        Some(Self {
            aggregate,
            above: Vec::new(),
            used: BTreeSet::new(),
            columns: columns.map(|idx| (idx < keys).then_some(idx)).collect(),
        })
    }

    /// Takes the columns through a node.
    fn pass(&mut self, node: &LogicalPlan) -> Option<()> {
        match node {
            LogicalPlan::SubqueryAlias(_) => {}
            LogicalPlan::Filter(filter) => self.compute(&filter.predicate, &filter.input),
            LogicalPlan::Projection(projection) => {
                let mut columns = Vec::with_capacity(projection.expr.len());
                for expr in &projection.expr {
                    columns.push(self.key_of(expr, &projection.input));
                    if plain_column(expr).is_none() {
                        self.compute(expr, &projection.input);
                    }
                }
                self.columns = columns;
            }
            _ => return None,
        }
        Some(())
    }

    fn compute(&mut self, expr: &Expr, input: &LogicalPlan) {
        let read = expr.column_refs().into_iter();
        let read = read.filter_map(|column| self.column(column, input));
        let read: Vec<usize> = read.collect();
        self.used.extend(read);
    }

    /// The group key that an expression over this input is.
    fn key_of(&self, expr: &Expr, input: &LogicalPlan) -> Option<usize> {
        self.column(&plain_column(expr)?, input)
    }

    fn column(&self, column: &Column, input: &LogicalPlan) -> Option<usize> {
        let idx = input.schema().maybe_index_of_column(column)?;
        *self.columns.get(idx)?
    }
}
