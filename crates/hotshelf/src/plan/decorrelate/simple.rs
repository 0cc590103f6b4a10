//! Which correlated subqueries the engine joins by itself.

use datafusion::common::{DFSchema, JoinType, internal_err};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::utils::{split_binary, split_conjunction};
use datafusion::logical_expr::{
    Expr, FetchType, Join, LogicalPlan, Operator, Subquery, SubqueryAlias,
};

use super::super::correlated::{SubqueryKind, is_sound};
use super::super::expressions::{has_expression, node_has_expression};
use super::references::{has_outer, is_outer, refers_far, refers_out};

/// Whether the engine's rules answer a subquery among rows with these columns, and answer it right.
pub(super) fn is_simple(expr: &Expr, around: &DFSchema) -> QueryResult<bool> {
    let (subquery, kind) = match expr {
        Expr::InSubquery(test) if has_outer(&test.expr) => return Ok(false),
        Expr::SetComparison(test) if has_outer(&test.expr) => return Ok(false),
        Expr::ScalarSubquery(subquery) => (subquery, SubqueryKind::Scalar),
        Expr::Exists(exists) => (&exists.subquery, SubqueryKind::Exists),
        Expr::InSubquery(test) => (&test.subquery, SubqueryKind::Membership),
        Expr::SetComparison(test) => (&test.subquery, SubqueryKind::Membership),
        _ => return internal_err!("{expr} is not a subquery"),
    };
    is_simple_subquery(subquery, kind, around)
}

fn is_simple_subquery(
    subquery: &Subquery,
    kind: SubqueryKind,
    around: &DFSchema,
) -> QueryResult<bool> {
    let plan = subquery.subquery.as_ref();
    if !refers_out(plan)? {
        return Ok(true);
    }
    let needs_more = kind == SubqueryKind::Scalar && !always_one_row(plan);
    if needs_more || refers_far(plan, around)? {
        return Ok(false);
    }
    Ok(is_sound(plan, kind)? && correlates_by_equality(plan, kind == SubqueryKind::Exists)?)
}

/// The same for what LATERAL joins.
pub(super) fn is_simple_lateral(join: &Join, subquery: &Subquery) -> QueryResult<bool> {
    let is_inner = join.join_type == JoinType::Inner;
    let is_plain = join.on.is_empty() && join.filter.is_none();
    let plan = subquery.subquery.as_ref();
    Ok(is_inner
        && is_plain
        && !refers_far(plan, join.left.schema())?
        && is_sound(plan, SubqueryKind::Lateral)?
        && correlates_by_equality(plan, false)?)
}

/// Whether outer columns are in filters alone, each beside a column of the subquery that must equal it. `or_other`: in
/// a semi-join, any condition may be, where rows are only filtered and joined.
fn correlates_by_equality(plan: &LogicalPlan, or_other: bool) -> QueryResult<bool> {
    if !has_expression(plan, is_outer)? {
        return Ok(true);
    }
    let here = match plan {
        LogicalPlan::Filter(filter) => {
            let conjuncts = split_conjunction(&filter.predicate);
            let mut conjuncts = conjuncts.into_iter();
            or_other || conjuncts.all(|conjunct| !has_outer(conjunct) || names_equal(conjunct))
        }
        _ => !node_has_expression(plan, is_outer)?,
    };
    let passes = match plan {
        // A name hides the columns that the join is by.
        LogicalPlan::SubqueryAlias(_) => false,
        LogicalPlan::Filter(_) | LogicalPlan::Projection(_) => true,
        LogicalPlan::Join(join) => join.join_type == JoinType::Inner,
        LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) => !or_other,
        _ => false,
    };
    let mut inputs = plan.inputs().into_iter();
    Ok(here
        && passes
        && inputs.try_fold(true, |simple, input| {
            Ok::<_, datafusion::error::DataFusionError>(
                simple && correlates_by_equality(input, or_other)?,
            )
        })?)
}

/// Whether a condition with outer columns is an equality, or a choice between conditions that all have the same
/// equalities, which the engine takes out of them.
fn names_equal(conjunct: &Expr) -> bool {
    let equalities = |choice| {
        let parts = split_conjunction(choice).into_iter();
        parts.filter(|part| has_outer(part)).collect::<Vec<_>>()
    };
    let mut choices = split_binary(conjunct, Operator::Or)
        .into_iter()
        .map(equalities);
    let Some(first) = choices.next() else {
        return false;
    };
    let is_same = |other: Vec<&Expr>| {
        other.len() == first.len() && other.iter().all(|part| first.contains(part))
    };
    !first.is_empty() && first.iter().all(|part| is_equality(part)) && choices.all(is_same)
}

fn is_equality(conjunct: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = conjunct else {
        return false;
    };
    let (inner, outer) = match has_outer(left) {
        true => (right, left),
        false => (left, right),
    };
    let is_column = matches!(inner.as_ref(), Expr::Column(_));
    *op == Operator::Eq && is_column && has_outer(outer) && outer.column_refs().is_empty()
}

/// Whether a subquery has one row, for any values of outer columns.
pub(super) fn always_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => always_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => always_one_row(input),
        LogicalPlan::Aggregate(groups) => groups.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(rows) => rows.produce_one_row,
        _ => false,
    }
}

/// Whether a subquery has a row or none, for any values of outer columns.
pub(super) fn at_most_one_row(plan: &LogicalPlan) -> QueryResult<bool> {
    Ok(match plan {
        LogicalPlan::Projection(projection) => at_most_one_row(&projection.input)?,
        LogicalPlan::SubqueryAlias(alias) => at_most_one_row(&alias.input)?,
        LogicalPlan::Filter(filter) => at_most_one_row(&filter.input)?,
        LogicalPlan::Sort(sort) => at_most_one_row(&sort.input)?,
        LogicalPlan::Aggregate(groups) => groups.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Limit(limit) => {
            let is_one = matches!(limit.get_fetch_type()?, FetchType::Literal(Some(0 | 1)));
            is_one || at_most_one_row(&limit.input)?
        }
        _ => false,
    })
}
