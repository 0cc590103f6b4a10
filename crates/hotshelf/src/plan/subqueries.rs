//! Tests against the rows of subqueries with NULL in mind, also outside filters.
//!
//! The engine turns `x IN (subquery)` below OR or NOT into a join that marks matches, which is false where SQL says
//! unknown (`docs/upstream/not-in-subquery.md`). Where the difference shows, the test is spelled out: true if there
//! is a match, else unknown if `x` or a value of the subquery is NULL, else false. It has no plan for IN, EXISTS, ANY
//! and ALL outside WHERE and HAVING (`docs/upstream/subquery-tests.md`): there each is spelled out in counts of rows.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue, Spans};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{
    BinaryExpr, Exists, InSubquery, SetComparison, SetQuantifier,
};
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, not, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::expressions::{has_expression, node_has_expression, with_names_kept};

#[derive(Debug)]
pub(super) struct SpellOutMembership;

impl AnalyzerRule for SpellOutMembership {
    fn name(&self) -> &str {
        "spell_out_membership"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> QueryResult<LogicalPlan> {
        match has_expression(&plan, tests_rows)? {
            true => plan.transform_up_with_subqueries(rewrite_node).data(),
            false => Ok(plan),
        }
    }
}

fn rewrite_node(plan: LogicalPlan) -> QueryResult<Transformed<LogicalPlan>> {
    if !node_has_expression(&plan, tests_rows)? {
        return Ok(Transformed::no(plan));
    }
    let schema = merge_schema(&plan.inputs());
    if let LogicalPlan::Filter(mut filter) = plan {
        let conjuncts = split_conjunction_owned(filter.predicate);
        let conjuncts = conjuncts
            .into_iter()
            .map(|conjunct| rewrite_conjunct(conjunct, &schema))
            .collect::<QueryResult<Vec<_>>>()?;
        filter.predicate = conjunction(conjuncts).unwrap_or_else(|| lit(true));
        return Ok(Transformed::yes(LogicalPlan::Filter(filter)));
    }
    with_names_kept(plan, |expr| {
        expr.transform_up(|expr| count_rows(expr, &schema))
    })
}

fn tests_rows(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)
    )
}

/// A test outside filters as one of how many rows there are.
pub(super) fn count_rows(expr: Expr, schema: &DFSchema) -> QueryResult<Transformed<Expr>> {
    match expr {
        Expr::InSubquery(membership) => membership_test(&membership, schema).map(Transformed::yes),
        Expr::SetComparison(comparison) => {
            comparison_test(&comparison, schema).map(Transformed::yes)
        }
        Expr::Exists(exists) => {
            let rows = counted(&exists.subquery, None, Vec::new())?;
            Ok(Transformed::yes(match exists.negated {
                true => rows.eq(lit(0i64)),
                false => rows.gt(lit(0i64)),
            }))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// `x < ANY (…)` is true if it is for one row, `x < ALL (…)` false if it is for one row; else unknown if it is for one.
fn comparison_test(comparison: &SetComparison, schema: &DFSchema) -> QueryResult<Expr> {
    let SetComparison {
        expr,
        subquery,
        op,
        quantifier,
    } = comparison;
    let as_membership = match (op, quantifier) {
        (Operator::Eq, SetQuantifier::Any) => Some(false),
        (Operator::NotEq, SetQuantifier::All) => Some(true),
        _ => None,
    };
    if let Some(negated) = as_membership {
        let membership = InSubquery::new(expr.clone(), subquery.clone(), negated);
        return membership_test(&membership, schema);
    }
    let value = only_column(subquery);
    let (outer, columns) = as_outer(expr.as_ref().clone(), schema)?;
    let compared = Expr::BinaryExpr(BinaryExpr::new(Box::new(outer), *op, Box::new(value)));
    let (decides, decided) = match quantifier {
        SetQuantifier::Any => (compared.clone(), true),
        SetQuantifier::All => (not(compared.clone()), false),
    };
    let deciding = counted(subquery, Some(decides), columns.clone())?;
    let unknown = counted(subquery, Some(compared.is_null()), columns)?;
    when(deciding.gt(lit(0i64)), lit(decided))
        .when(unknown.gt(lit(0i64)), lit(ScalarValue::Boolean(None)))
        .otherwise(lit(!decided))
}

/// A conjunct of a filter. The engine knows NOT IN for NULLs where the whole conjunct is one; IN below AND and OR may
/// be false instead of unknown, as the row is dropped either way.
fn rewrite_conjunct(conjunct: Expr, schema: &DFSchema) -> QueryResult<Expr> {
    match conjunct {
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(mut membership) => {
                membership.negated = !membership.negated;
                rewrite_conjunct(Expr::InSubquery(membership), schema)
            }
            inner => rewrite_below(not(inner), schema),
        },
        Expr::InSubquery(membership) => {
            // Of a value that is the same for all rows it makes a filter of the subquery, which drops the NULLs.
            let is_column = !membership.expr.column_refs().is_empty();
            let is_alone = membership.subquery.outer_ref_columns.is_empty();
            let known = !membership.negated || (is_alone && is_column);
            match known {
                true => Ok(Expr::InSubquery(membership)),
                false => Ok(spell_out(membership, schema)?.data),
            }
        }
        other => rewrite_below(other, schema),
    }
}

fn rewrite_below(expr: Expr, schema: &DFSchema) -> QueryResult<Expr> {
    let rewritten = expr.transform_down(|expr| match expr {
        Expr::BinaryExpr(BinaryExpr {
            op: Operator::And | Operator::Or,
            ..
        }) => Ok(Transformed::no(expr)),
        Expr::InSubquery(ref membership) if !membership.negated => {
            Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump))
        }
        // Anything else may turn unknown into something that counts.
        other => {
            let other = other.transform_up(|expr| match expr {
                Expr::InSubquery(membership) => spell_out(membership, schema),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(Transformed::new(
                other.data,
                other.transformed,
                TreeNodeRecursion::Jump,
            ))
        }
    });
    rewritten.data()
}

/// The test in words that the engine takes at their word.
fn spell_out(membership: InSubquery, schema: &DFSchema) -> QueryResult<Transformed<Expr>> {
    let plan = &membership.subquery.subquery;
    let (_, field) = plan.schema().qualified_field(0);
    let nullable = membership.expr.nullable(schema)? || field.is_nullable();
    let is_alone = membership.subquery.outer_ref_columns.is_empty();
    match nullable {
        true => membership_test(&membership, schema).map(Transformed::yes),
        // The engine has no plan for it where the other columns that rows are found by may be NULL.
        false if membership.negated && !is_alone => {
            absence_test(membership, schema).map(Transformed::yes)
        }
        false => Ok(Transformed::no(Expr::InSubquery(membership))),
    }
}

/// `x NOT IN (subquery)` as NOT EXISTS, which it is where neither has NULLs.
fn absence_test(membership: InSubquery, schema: &DFSchema) -> QueryResult<Expr> {
    let value = only_column(&membership.subquery);
    let (outer, columns) = as_outer(*membership.expr, schema)?;
    let mut subquery = membership.subquery;
    let rows = LogicalPlanBuilder::from(subquery.subquery).filter(value.eq(outer))?;
    subquery.subquery = Arc::new(rows.build()?);
    subquery.outer_ref_columns.extend(columns);
    Ok(Expr::Exists(Exists {
        subquery,
        negated: true,
    }))
}

fn only_column(subquery: &Subquery) -> Expr {
    let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
    Expr::Column(Column::from((qualifier, field.as_ref())))
}

fn membership_test(membership: &InSubquery, schema: &DFSchema) -> QueryResult<Expr> {
    let (subject, subquery) = (membership.expr.as_ref(), &membership.subquery);
    let value = only_column(subquery);
    let (outer, columns) = as_outer(subject.clone(), schema)?;
    let matches = counted(subquery, Some(value.clone().eq(outer)), columns)?;
    let nulls = counted(subquery, Some(value.is_null()), Vec::new())?;
    let any = counted(subquery, None, Vec::new())?;
    let unknown = ScalarValue::Boolean(None);
    let test = when(matches.gt(lit(0i64)), lit(true))
        .when(
            subject.clone().is_null().and(any.gt(lit(0i64))),
            lit(unknown.clone()),
        )
        .when(nulls.gt(lit(0i64)), lit(unknown))
        .otherwise(lit(false))?;
    Ok(match membership.negated {
        true => not(test),
        false => test,
    })
}

/// How many rows of the subquery meet a condition.
fn counted(
    subquery: &Subquery,
    condition: Option<Expr>,
    more_outer_columns: Vec<Expr>,
) -> QueryResult<Expr> {
    let Subquery {
        subquery,
        outer_ref_columns,
        ..
    } = subquery;
    let mut rows = LogicalPlanBuilder::from(subquery.clone());
    if let Some(condition) = condition {
        rows = rows.filter(condition)?;
    }
    let none: Vec<Expr> = Vec::new();
    let rows = rows.aggregate(none, [count(lit(1i64))])?.build()?;
    let mut outer = outer_ref_columns.clone();
    outer.extend(more_outer_columns);
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(rows),
        outer_ref_columns: outer,
        spans: Spans::new(),
    }))
}

/// The expression as a subquery sees it, and the columns it reads.
fn as_outer(expr: Expr, schema: &DFSchema) -> QueryResult<(Expr, Vec<Expr>)> {
    let mut columns = Vec::new();
    let outer = expr.transform_up(|expr| match expr {
        Expr::Column(column) => {
            let (_, field) = schema.qualified_field_from_column(&column)?;
            let outer = Expr::OuterReferenceColumn(field.clone(), column);
            columns.push(outer.clone());
            Ok(Transformed::yes(outer))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok((outer.data()?, columns))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn membership_below_or_is_spelled_out() {
        let query = "SELECT n FROM t WHERE v = 3 OR k NOT IN (SELECT nullif(x, 3) FROM s)";
        before_after("spell_out_membership", &[query]).is(
            "
            Projection: t.n
              Filter: t.v = Int64(3) OR t.k NOT IN (<subquery>)
                Subquery:
                  Projection: nullif(s.x, Int64(3))
                    TableScan: s
                TableScan: t
            ",
            "
            Projection: t.n
              Filter: t.v = Int64(3) OR NOT CASE WHEN (<subquery>) > Int64(0) THEN Boolean(true) WHEN t.k IS NULL \
                  AND (<subquery>) > Int64(0) THEN Boolean(NULL) WHEN (<subquery>) > Int64(0) THEN Boolean(NULL) \
                  ELSE Boolean(false) END
                Subquery:
                  Aggregate: groupBy=[[]], aggr=[[count(Int64(1))]]
                    Filter: nullif(s.x,Int64(3)) = outer_ref(t.k)
                      Projection: nullif(s.x, Int64(3))
                        TableScan: s
                Subquery:
                  Aggregate: groupBy=[[]], aggr=[[count(Int64(1))]]
                    Projection: nullif(s.x, Int64(3))
                      TableScan: s
                Subquery:
                  Aggregate: groupBy=[[]], aggr=[[count(Int64(1))]]
                    Filter: nullif(s.x,Int64(3)) IS NULL
                      Projection: nullif(s.x, Int64(3))
                        TableScan: s
                TableScan: t
            ",
        );
    }

    #[test]
    fn a_test_outside_filters_counts_rows() {
        let query = "SELECT n, EXISTS (SELECT 1 FROM s WHERE x > 3) FROM t";
        before_after("spell_out_membership", &[query]).is(
            "
            Projection: t.n, EXISTS (<subquery>)
              Subquery:
                Projection: Int64(1)
                  Filter: s.x > Int64(3)
                    TableScan: s
              TableScan: t
            ",
            "
            Projection: t.n, (<subquery>) > Int64(0) AS EXISTS
              Subquery:
                Aggregate: groupBy=[[]], aggr=[[count(Int64(1))]]
                  Projection: Int64(1)
                    Filter: s.x > Int64(3)
                      TableScan: s
              TableScan: t
            ",
        );
    }
}
