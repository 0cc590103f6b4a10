//! Subqueries in VALUES: `VALUES ((SELECT max(a) FROM t), 1)`.
//!
//! The engine evaluates VALUES before any subquery has run (`docs/upstream/queries-in-values.md`). Rows with subqueries
//! become SELECTs without FROM, which UNION ALL joins with the others.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, Projection, Union, Values};
use datafusion::optimizer::AnalyzerRule;

use super::expressions::{has_expression, is_subquery};

#[derive(Debug)]
pub(super) struct SelectQueriesInValues;

impl AnalyzerRule for SelectQueriesInValues {
    fn name(&self) -> &str {
        "select_queries_in_values"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> QueryResult<LogicalPlan> {
        if !has_expression(&plan, is_subquery)? {
            return Ok(plan);
        }
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Values(values) if values.values.iter().any(|row| asks(row)) => {
                selected(values).map(Transformed::yes)
            }
            node => Ok(Transformed::no(node)),
        })
        .data()
    }
}

/// Whether a row has a subquery.
fn asks(row: &[Expr]) -> bool {
    row.iter()
        .any(|value| value.exists(|part| Ok(is_subquery(part))).unwrap_or(true))
}

fn selected(values: Values) -> QueryResult<LogicalPlan> {
    let schema = values.schema;
    let mut parts = Vec::new();
    for rows in values
        .values
        .chunk_by(|one, next| !asks(one) && !asks(next))
    {
        let part = match rows {
            [row] if asks(row) => select(row, &schema)?,
            rows => LogicalPlan::Values(Values {
                schema: schema.clone(),
                values: rows.to_vec(),
            }),
        };
        parts.push(Arc::new(part));
    }
    Ok(match parts.len() {
        1 => Arc::unwrap_or_clone(parts.remove(0)),
        _ => LogicalPlan::Union(Union {
            inputs: parts,
            schema,
        }),
    })
}

/// One row as a SELECT.
fn select(row: &[Expr], schema: &DFSchemaRef) -> QueryResult<LogicalPlan> {
    let one_row = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: true,
        schema: Arc::new(DFSchema::empty()),
    });
    let named = |(value, column): (&Expr, Column)| value.clone().alias(column.name);
    let exprs = row.iter().zip(schema.columns()).map(named).collect();
    Projection::try_new_with_schema(exprs, Arc::new(one_row), schema.clone())
        .map(LogicalPlan::Projection)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_row_with_a_subquery_is_selected() {
        let query = "SELECT * FROM (VALUES ((SELECT max(x) FROM s), 1))";
        before_after("select_queries_in_values", &[query]).is(
            "
            Projection: column1, column2
              Values: ((<subquery>), Int64(1))
                Subquery:
                  Projection: max(s.x)
                    Aggregate: groupBy=[[]], aggr=[[max(s.x)]]
                      TableScan: s
            ",
            "
            Projection: column1, column2
              Projection: (<subquery>) AS column1, Int64(1) AS column2
                Subquery:
                  Projection: max(s.x)
                    Aggregate: groupBy=[[]], aggr=[[max(s.x)]]
                      TableScan: s
                EmptyRelation: rows=1
            ",
        );
    }
}
