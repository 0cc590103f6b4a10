//! Subqueries inside aggregates: `sum((SELECT … WHERE s.k = t.k))`.
//!
//! The engine joins correlated subqueries of filters and projections, not of aggregations
//! (`docs/upstream/aggregated-subqueries.md`): they are computed by a projection below.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection};
use datafusion::optimizer::AnalyzerRule;

use super::decisions::{all_shown, wanted};
use super::{has_expression, is_subquery};
use crate::settings::Notes;

#[derive(Debug)]
pub(super) struct ComputeSubqueriesFirst;

impl AnalyzerRule for ComputeSubqueriesFirst {
    fn name(&self) -> &str {
        "compute_subqueries_first"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> QueryResult<LogicalPlan> {
        if !has_expression(&plan, is_subquery)? {
            return Ok(plan);
        }
        let notes = wanted(config);
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if has_subquery(&aggregate) => {
                if let Some(notes) = notes {
                    note_split(&aggregate, notes);
                }
                split(aggregate).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

fn has_subquery(aggregate: &Aggregate) -> bool {
    with_subquery(aggregate).next().is_some()
}

/// Its keys and functions that have subqueries.
fn with_subquery(aggregate: &Aggregate) -> impl Iterator<Item = &Expr> {
    let exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
    exprs.filter(|expr| expr.exists(|expr| Ok(is_subquery(expr))).unwrap_or(false))
}

fn note_split(aggregate: &Aggregate, notes: &Notes) {
    notes.note(format!(
        "the subqueries of {} are computed for the rows before these are grouped: the engine joins none within an \
         aggregation",
        all_shown(with_subquery(aggregate))
    ));
}

/// The aggregation over a projection that has the subqueries as columns, under the names it had.
fn split(aggregate: Aggregate) -> QueryResult<LogicalPlan> {
    let names = aggregate.schema.iter();
    let names: Vec<_> = names
        .map(|(qualifier, field)| (qualifier.cloned(), field.name().clone()))
        .collect();
    let mut computed = Vec::new();
    let mut replace = |exprs: Vec<Expr>| {
        let exprs = exprs.into_iter().map(|expr| {
            expr.transform_down(|expr| {
                if !is_subquery(&expr) {
                    return Ok(Transformed::no(expr));
                }
                let name = format!("__subquery_{}", computed.len());
                computed.push(expr.alias(&name));
                Ok(Transformed::yes(Expr::Column(Column::from_name(name))))
            })
            .data()
        });
        exprs.collect::<QueryResult<Vec<_>>>()
    };
    let groups = replace(aggregate.group_expr)?;
    let aggregates = replace(aggregate.aggr_expr)?;
    let mut columns: Vec<Expr> = aggregate
        .input
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    columns.extend(computed);
    let input = Projection::try_new(columns, aggregate.input)?;
    let inner = LogicalPlanBuilder::from(LogicalPlan::Projection(input))
        .aggregate(groups, aggregates)?
        .build()?;
    let outputs = inner.schema().columns().into_iter().zip(names);
    let outputs = outputs
        .map(|(column, (qualifier, name))| Expr::Column(column).alias_qualified(qualifier, name));
    let outputs = Projection::try_new(outputs.collect(), Arc::new(inner))?;
    Ok(LogicalPlan::Projection(outputs))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_subquery_is_computed_below_its_aggregate() {
        let query = "SELECT sum((SELECT max(x) FROM s WHERE s.k = t.k)) FROM t";
        before_after("compute_subqueries_first", &[query]).is(
            "
            Projection: sum(max(s.x))
              Aggregate: groupBy=[[]], aggr=[[sum((<subquery>))]]
                Subquery:
                  Projection: max(s.x)
                    Aggregate: groupBy=[[]], aggr=[[max(s.x)]]
                      Filter: s.k = outer_ref(t.k)
                        TableScan: s
                TableScan: t
            ",
            "
            Projection: sum(max(s.x))
              Projection: sum(__subquery_0) AS sum(max(s.x))
                Aggregate: groupBy=[[]], aggr=[[sum(__subquery_0)]]
                  Projection: t.k, t.n, t.v, t.w, (<subquery>) AS __subquery_0
                    Subquery:
                      Projection: max(s.x)
                        Aggregate: groupBy=[[]], aggr=[[max(s.x)]]
                          Filter: s.k = outer_ref(t.k)
                            TableScan: s
                    TableScan: t
            ",
        );
    }
}
