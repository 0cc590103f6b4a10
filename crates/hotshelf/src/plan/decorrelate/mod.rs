//! Correlated subqueries that the engine cannot join to the rows around them become joins here
//! (Neumann and Kemper, Unnesting Arbitrary Queries, BTW 2015).
//!
//! A subquery is computed once for each combination of values that the columns it refers to have (its *domain*), and
//! joined back to the rows around it by these columns. The engine's own rules know aggregates whose rows are found by
//! equality, and semi-joins: those are left to them, as they need no domain.
//!
//! ```text
//! SELECT a, (SELECT d FROM s WHERE s.b < t.b ORDER BY d LIMIT 1) FROM t
//!
//! Projection: t.a, __value_1.value
//!   Left Join: t.b = __value_1.key (NULL equals NULL)
//!     TableScan: t
//!     SubqueryAlias: __value_1
//!       Projection: __domain_0.key, s.d
//!         Filter: row_number() <= 1            (partitioned by __domain_0.key, ordered by s.d)
//!           Filter: s.b < __domain_0.key
//!             Cross Join:
//!               SubqueryAlias: __domain_0      (DISTINCT t.b AS key)
//!               TableScan: s
//! ```

mod domain;
mod no_rows;
mod numbered;
mod one_row;
mod parts;
mod references;
mod repeatable;
mod simple;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, LogicalPlan, Projection, Sort, Subquery, SubqueryAlias, Window,
    lit,
};
use datafusion::optimizer::AnalyzerRule;

use super::expressions::{has_expression, is_subquery, node_has_expression};
use super::subqueries::count_rows;
use crate::settings::SessionSettings;
use domain::Domain;
use one_row::one_row;
use parts::{Names, column, columns_of, join, named, qualified, refused};
use references::{refers_out, refuse_hidden_laterals, with_outer_columns};
use repeatable::columns_read;
use simple::{at_most_one_row, is_simple, is_simple_lateral};

#[derive(Debug)]
pub(super) struct Decorrelate;

impl AnalyzerRule for Decorrelate {
    fn name(&self) -> &str {
        "decorrelate"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> QueryResult<LogicalPlan> {
        if !has_expression(&plan, is_subquery)? && !plan.exists(is_lateral)? {
            return Ok(plan);
        }
        refuse_hidden_laterals(&plan)?;
        let settings = config.extensions.get::<SessionSettings>();
        let decisions = settings.map(|settings| settings.decisions.clone());
        let names = Names::new(decisions.unwrap_or_default());
        let plan = plan.transform_up_with_subqueries(|node| rewrite_node(node, &names));
        let plan = plan.data()?;
        match refers_out(&plan)? {
            true => Err(refused("columns that the rows around it do not have")),
            false => no_rows::may_be_null(plan),
        }
    }
}

fn is_lateral(node: &LogicalPlan) -> QueryResult<bool> {
    Ok(matches!(node, LogicalPlan::Subquery(_)))
}

fn rewrite_node(node: LogicalPlan, names: &Names) -> QueryResult<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = &node
        && let Some((subquery, alias)) = lateral(join)
        && !is_simple_lateral(join, subquery)?
    {
        return lateral_join(join, subquery, alias, names).map(Transformed::yes);
    }
    if !node_has_expression(&node, is_subquery)? {
        return Ok(Transformed::no(node));
    }
    match with_outer_columns(node)? {
        LogicalPlan::Filter(filter) => rewrite_filter(filter, names),
        LogicalPlan::Projection(projection) => rewrite_projection(projection, names),
        LogicalPlan::Join(mut join) if join.join_type == JoinType::Inner => {
            let filter = join.filter.take();
            let joined = LogicalPlan::Join(join);
            let Some(predicate) = filter else {
                return Ok(Transformed::no(joined));
            };
            let filter = Filter::try_new(predicate, Arc::new(joined))?;
            Ok(Transformed::yes(rewrite_filter(filter, names)?.data))
        }
        LogicalPlan::Sort(sort) => {
            let exprs = sort.expr.iter().map(|key| key.expr.clone()).collect();
            let (input, exprs) = computed_below(&with_sorted_columns(&sort)?, exprs, names)?;
            let keys = sort.expr.iter().zip(exprs);
            let expr = keys.map(|(key, expr)| SortKey::new(expr, key.asc, key.nulls_first));
            let sorted = LogicalPlan::Sort(Sort {
                expr: expr.collect(),
                input: Arc::new(input),
                fetch: sort.fetch,
            });
            only_columns_of(&sort.input, sorted).map(Transformed::yes)
        }
        LogicalPlan::Window(window) => {
            let old = LogicalPlan::Window(window.clone());
            let (input, exprs) = computed_below(&window.input, window.window_expr, names)?;
            let new = LogicalPlan::Window(Window::try_new(exprs, Arc::new(input))?);
            let (all, kept) = (
                new.schema().fields().len(),
                window.input.schema().fields().len(),
            );
            let computed = all - old.schema().fields().len();
            let places = (0..kept).chain(kept + computed..all);
            renamed(&old, new, places.collect()).map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    }
}

/// A filter whose hard conditions are tested after the easy ones, on the rows with the subqueries' values.
fn rewrite_filter(filter: Filter, names: &Names) -> QueryResult<Transformed<LogicalPlan>> {
    let conjuncts = split_conjunction_owned(filter.predicate.clone());
    let mut easy = Vec::new();
    let mut hard = Vec::new();
    for conjunct in conjuncts {
        match is_hard(&conjunct, filter.input.schema())? {
            true => hard.push(conjunct),
            false => easy.push(conjunct),
        }
    }
    if hard.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let mut input = filter.input.as_ref().clone();
    if let Some(easy) = conjunction(easy) {
        input = LogicalPlan::Filter(Filter::try_new(easy, Arc::new(input))?);
    }
    let base = input.clone();
    for conjunct in hard {
        let (with_values, conjunct) = attach(input, &base, conjunct, names)?;
        input = LogicalPlan::Filter(Filter::try_new(conjunct, Arc::new(with_values))?);
    }
    only_columns_of(&filter.input, input).map(Transformed::yes)
}

fn rewrite_projection(
    projection: Projection,
    names: &Names,
) -> QueryResult<Transformed<LogicalPlan>> {
    let mut input = projection.input.as_ref().clone();
    let mut exprs = Vec::with_capacity(projection.expr.len());
    let mut is_changed = false;
    for (expr, place) in projection.expr.iter().zip(0..) {
        if !is_hard(expr, projection.input.schema())? {
            exprs.push(expr.clone());
            continue;
        }
        let (with_values, value) = attach(input, &projection.input, expr.clone(), names)?;
        let (qualifier, field) = projection.schema.qualified_field(place);
        (input, is_changed) = (with_values, true);
        exprs.push(named(value.unalias(), qualifier, field.name()));
    }
    if !is_changed {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    }
    let projection = Projection::try_new(exprs, Arc::new(input))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// Whether an expression has a subquery that the engine cannot join.
fn is_hard(expr: &Expr, around: &DFSchema) -> QueryResult<bool> {
    expr.exists(|part| Ok(is_subquery(part) && !is_simple(part, around)?))
}

/// The rows with the values of an expression's hard subqueries, and the expression that reads them. `base`: the same
/// rows or more, without such values.
fn attach(
    input: LogicalPlan,
    base: &LogicalPlan,
    expr: Expr,
    names: &Names,
) -> QueryResult<(LogicalPlan, Expr)> {
    let schema = input.schema().clone();
    let mut input = Some(input);
    let expr = expr
        .transform_up(
            |part| match is_subquery(&part) && !is_simple(&part, &schema)? {
                // Tests of rows are counts of them.
                true => count_rows(part, &schema),
                false => Ok(Transformed::no(part)),
            },
        )
        .data()?;
    let expr = expr
        .transform_up(|part| match part {
            Expr::ScalarSubquery(ref subquery) if !is_simple(&part, &schema)? => {
                let Some(rows) = input.take() else {
                    return Ok(Transformed::no(part));
                };
                let (rows, value) = join_value(rows, base, subquery, names)?;
                input = Some(rows);
                Ok(Transformed::yes(value))
            }
            part => Ok(Transformed::no(part)),
        })
        .data()?;
    let lost = || datafusion::common::internal_datafusion_err!("a subquery's rows are lost");
    Ok((input.ok_or_else(lost)?, expr))
}

/// The rows joined to the value that a subquery has for each. `base`: the same
/// rows or more, without other such values.
fn join_value(
    rows: LogicalPlan,
    base: &LogicalPlan,
    subquery: &Subquery,
    names: &Names,
) -> QueryResult<(LogicalPlan, Expr)> {
    let plan = subquery.subquery.as_ref();
    let domain = Domain::of(base, plan, names)?;
    let values = domain.push(plan, names)?;
    let value = column(plan, 0);
    let alias = names.next_value();
    let (values, is_one) = match at_most_one_row(plan)? {
        true => (values, true),
        false => {
            let exprs = vec![
                first_value(value.clone(), Vec::new()).alias("value"),
                count(lit(1i64)).alias("rows"),
            ];
            let groups = Aggregate::try_new(Arc::new(values), domain.keys(), exprs)?;
            (LogicalPlan::Aggregate(groups), false)
        }
    };
    let mut exprs = domain.plain_keys();
    match is_one {
        true => exprs.push(value.alias("value")),
        false => exprs.extend(["value", "rows"].map(|name| Expr::Column(Column::from_name(name)))),
    }
    let values = Projection::try_new(exprs, Arc::new(values))?;
    let values = SubqueryAlias::try_new(Arc::new(LogicalPlan::Projection(values)), alias.as_str())?;
    let on = domain.on(&alias);
    let joined = join(
        rows,
        LogicalPlan::SubqueryAlias(values),
        on,
        None,
        JoinType::Left,
    )?;
    let value = qualified(&alias, "value");
    Ok(match is_one {
        true => (joined, value),
        false => (joined, one_row(value, qualified(&alias, "rows"))),
    })
}

/// A join whose right side refers to the rows of its left, and the name of that side.
fn lateral(join: &Join) -> Option<(&Subquery, Option<&SubqueryAlias>)> {
    match join.right.as_ref() {
        LogicalPlan::Subquery(subquery) => Some((subquery, None)),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => Some((subquery, Some(alias))),
            _ => None,
        },
        _ => None,
    }
}

fn lateral_join(
    whole: &Join,
    subquery: &Subquery,
    alias: Option<&SubqueryAlias>,
    names: &Names,
) -> QueryResult<LogicalPlan> {
    let plan = match alias {
        Some(alias) => {
            let named = SubqueryAlias::try_new(subquery.subquery.clone(), alias.alias.clone())?;
            LogicalPlan::SubqueryAlias(named)
        }
        None => subquery.subquery.as_ref().clone(),
    };
    let domain = Domain::of(&whole.left, &plan, names)?;
    let rows = domain.push(&plan, names)?;
    let mut conditions: Vec<Expr> = whole.filter.iter().cloned().collect();
    let equalities = whole.on.iter().cloned();
    conditions.extend(equalities.map(|(left, right)| left.eq(right)));
    let left = whole.left.as_ref().clone();
    let joined = join(
        left,
        rows,
        domain.on_keys(),
        conjunction(conditions),
        whole.join_type,
    )?;
    only_columns_of(&LogicalPlan::Join(whole.clone()), joined)
}

/// The rows of a sort with the columns that subqueries of its keys read and SELECT leaves out.
fn with_sorted_columns(sort: &Sort) -> QueryResult<LogicalPlan> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else {
        return Ok(sort.input.as_ref().clone());
    };
    let mut exprs = projection.expr.clone();
    for key in &sort.expr {
        for column in columns_read(&key.expr, projection.input.schema())? {
            let is_new = !exprs.contains(&Expr::Column(column.clone()));
            if is_new && !projection.schema.has_column(&column) {
                exprs.push(Expr::Column(column));
            }
        }
    }
    Projection::try_new(exprs, projection.input.clone()).map(LogicalPlan::Projection)
}

/// The input with a column for each subquery of the expressions, which read it there.
fn computed_below(
    input: &LogicalPlan,
    exprs: Vec<Expr>,
    names: &Names,
) -> QueryResult<(LogicalPlan, Vec<Expr>)> {
    let mut columns: Vec<Expr> = columns_of(input);
    let exprs = exprs.into_iter().map(|expr| {
        expr.transform_down(|part| match is_subquery(&part) {
            true => {
                let name = names.next("computed");
                let part = count_rows(part, input.schema())?.data;
                columns.push(part.alias(&name));
                Ok(Transformed::yes(Expr::Column(Column::from_name(name))))
            }
            false => Ok(Transformed::no(part)),
        })
        .data()
    });
    let exprs: Vec<Expr> = exprs.collect::<QueryResult<_>>()?;
    let projection = Projection::try_new(columns, Arc::new(input.clone()))?;
    Ok((rewrite_projection(projection, names)?.data, exprs))
}

/// `plan` with the columns of `wanted`, which it has, and no others.
fn only_columns_of(wanted: &LogicalPlan, plan: LogicalPlan) -> QueryResult<LogicalPlan> {
    let projection = Projection::try_new(columns_of(wanted), Arc::new(plan))?;
    Ok(LogicalPlan::Projection(projection))
}

/// The columns of `plan` at these places under the names that `wanted` has.
fn renamed(
    wanted: &LogicalPlan,
    plan: LogicalPlan,
    places: Vec<usize>,
) -> QueryResult<LogicalPlan> {
    let columns = places.into_iter().zip(wanted.schema().iter());
    let columns = columns
        .map(|(place, (qualifier, field))| named(column(&plan, place), qualifier, field.name()));
    let columns: Vec<Expr> = columns.collect();
    let projection = Projection::try_new(columns, Arc::new(plan))?;
    Ok(LogicalPlan::Projection(projection))
}
