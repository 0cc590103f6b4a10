//! The rows that a domain is made of: they are computed twice, once for the domain and once to be joined with what
//! the subquery has for it.
//!
//! What the second run has and the first had not would find no partner. So what may differ from run to run is left out
//! of the domain's rows where that makes them more, and refused elsewhere.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, Join, LogicalPlan, Projection, SubqueryAlias,
    Union,
};

use super::super::expressions::{node_has_expression, subquery_of};
use super::parts::{columns_of, is_made_up, refused};
use super::references::outer_columns;

/// Rows that have all values that `wanted` has in `rows` in any run.
pub(super) fn all_values(rows: &LogicalPlan, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    match rows {
        LogicalPlan::Limit(limit) => all_values(&limit.input, wanted),
        LogicalPlan::Sort(sort) => all_values(&sort.input, wanted),
        LogicalPlan::Distinct(Distinct::All(input)) => all_values(input, wanted),
        LogicalPlan::Window(window) if has_all(&window.input, wanted) => {
            all_values(&window.input, wanted)
        }
        LogicalPlan::Filter(filter) => of_filter(filter, wanted),
        LogicalPlan::Projection(projection) => of_projection(projection, wanted),
        LogicalPlan::SubqueryAlias(alias) => of_alias(alias, wanted),
        LogicalPlan::Aggregate(groups) => of_groups(groups, wanted),
        LogicalPlan::Join(join) => of_join(rows, join, wanted),
        LogicalPlan::Union(union) if !wanted.is_empty() => of_union(union, wanted),
        rows => same_in_each_run(rows),
    }
}

fn has_all(rows: &LogicalPlan, columns: &[Column]) -> bool {
    columns
        .iter()
        .all(|column| rows.schema().has_column(column))
}

/// A filter may be left out, and is where it reads the value of another subquery, or rows that differ.
fn of_filter(filter: &Filter, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    let (predicate, below) = (&filter.predicate, filter.input.schema());
    let read = columns_read(predicate, below)?;
    let kept = match read.iter().any(is_made_up) || differs_itself(predicate)? {
        true => None,
        false => all_values(&filter.input, &with(wanted, read)).ok(),
    };
    match kept {
        Some(input) => Filter::try_new(predicate.clone(), Arc::new(input)).map(LogicalPlan::Filter),
        None => all_values(&filter.input, wanted),
    }
}

/// A projection to the wanted columns alone.
fn of_projection(projection: &Projection, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    let exprs = at_places(&projection.expr, &projection.schema, wanted)?;
    values_of(&projection.input, exprs)
}

fn values_of(input: &LogicalPlan, exprs: Vec<Expr>) -> QueryResult<LogicalPlan> {
    let mut read = Vec::new();
    for expr in &exprs {
        if differs_itself(expr)? {
            return Err(differs());
        }
        read = with(&read, columns_read(expr, input.schema())?);
    }
    let input = all_values(input, &read)?;
    match exprs.is_empty() {
        true => Ok(input),
        false => Projection::try_new(exprs, Arc::new(input)).map(LogicalPlan::Projection),
    }
}

fn of_alias(alias: &SubqueryAlias, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    if matches!(alias.input.as_ref(), LogicalPlan::Subquery(_)) {
        return same_in_each_run(&LogicalPlan::SubqueryAlias(alias.clone()));
    }
    let below = columns_of(&alias.input);
    let exprs = at_places(&below, &alias.schema, wanted)?.into_iter();
    let exprs = exprs.zip(wanted).map(|(expr, wanted)| {
        let table = Some(alias.alias.clone());
        expr.alias_qualified(table, &wanted.name)
    });
    values_of(&alias.input, exprs.collect())
}

/// The wanted columns of all inputs, which are known by their places.
fn of_union(union: &Union, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    let name = |idx: usize| format!("value_{idx}");
    let inputs = union.inputs.iter().map(|input| {
        let exprs = at_places(&columns_of(input), &union.schema, wanted)?;
        let exprs = exprs.into_iter().enumerate();
        let exprs = exprs.map(|(idx, expr)| expr.alias(name(idx)));
        values_of(input, exprs.collect()).map(Arc::new)
    });
    let union = Union::try_new_with_loose_types(inputs.collect::<QueryResult<_>>()?)?;
    let exprs = wanted.iter().enumerate().map(|(idx, wanted)| {
        let value = Expr::Column(Column::from_name(name(idx)));
        value.alias_qualified(wanted.relation.clone(), &wanted.name)
    });
    let union = Arc::new(LogicalPlan::Union(union));
    Projection::try_new(exprs.collect(), union).map(LogicalPlan::Projection)
}

/// Groups of more rows are more groups, where only what they are by is wanted.
fn of_groups(groups: &Aggregate, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    let keys = at_places(&groups.group_expr, &groups.schema, wanted)?;
    let has_sets = |key: &Expr| matches!(key, Expr::GroupingSet(_));
    let is_keyed = !groups.group_expr.is_empty() && !groups.group_expr.iter().any(has_sets);
    match is_keyed && keys.len() == wanted.len() {
        true => values_of(&groups.input, keys),
        false => same_in_each_run(&LogicalPlan::Aggregate(groups.clone())),
    }
}

/// A side that has all that is wanted is enough where the other has what was made for its rows.
fn of_join(rows: &LogicalPlan, join: &Join, wanted: &[Column]) -> QueryResult<LogicalPlan> {
    let (left, right) = (join.left.as_ref(), join.right.as_ref());
    let is_made = join.null_equality == NullEquality::NullEqualsNull;
    match join.join_type {
        JoinType::Left if has_all(left, wanted) => all_values(left, wanted),
        JoinType::Right if has_all(right, wanted) => all_values(right, wanted),
        JoinType::Inner if is_made && has_all(left, wanted) => all_values(left, wanted),
        JoinType::Inner if is_made && has_all(right, wanted) => all_values(right, wanted),
        JoinType::Inner if !node_has_expression(rows, Expr::is_volatile_node)? => {
            let sides = vec![all_rows(left)?, all_rows(right)?];
            rows.with_new_exprs(rows.expressions(), sides)
        }
        JoinType::LeftSemi | JoinType::LeftAnti => {
            same_in_each_run(rows).or_else(|_| all_values(left, wanted))
        }
        _ => same_in_each_run(rows),
    }
}

fn all_rows(rows: &LogicalPlan) -> QueryResult<LogicalPlan> {
    all_values(rows, &rows.schema().columns())
}

/// Those of `exprs` that make these columns of `schema`.
fn at_places(exprs: &[Expr], schema: &DFSchema, wanted: &[Column]) -> QueryResult<Vec<Expr>> {
    let mut found = Vec::with_capacity(wanted.len());
    for column in wanted {
        found.extend(exprs.get(schema.index_of_column(column)?).cloned());
    }
    Ok(found)
}

fn with(wanted: &[Column], more: Vec<Column>) -> Vec<Column> {
    let mut all = wanted.to_vec();
    all.extend(more.into_iter().filter(|column| !wanted.contains(column)));
    all
}

/// The columns that an expression reads of rows with these, also in subqueries.
pub(super) fn columns_read(expr: &Expr, rows: &DFSchema) -> QueryResult<Vec<Column>> {
    let mut read = Vec::new();
    let mut note = |column: &Column| {
        if rows.has_column(column) && !read.contains(column) {
            read.push(column.clone());
        }
    };
    expr.apply(|part| {
        if let Expr::Column(column) = part {
            note(column);
        }
        if let Some(subquery) = subquery_of(part) {
            outer_columns(&subquery.subquery)?
                .iter()
                .for_each(&mut note);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(read)
}

/// Whether the values of an expression may differ from run to run for the same rows.
fn differs_itself(expr: &Expr) -> QueryResult<bool> {
    expr.exists(|part| {
        let Some(subquery) = subquery_of(part) else {
            return Ok(part.is_volatile_node());
        };
        // Whether there are rows does not depend on which.
        let rows = match (part, subquery.subquery.as_ref()) {
            (Expr::Exists(_), LogicalPlan::Limit(limit)) => limit.input.as_ref(),
            (_, rows) => rows,
        };
        Ok(same_in_each_run(rows).is_err())
    })
}

/// The rows, which must be the same in any run.
fn same_in_each_run(rows: &LogicalPlan) -> QueryResult<LogicalPlan> {
    rows.apply(|node| {
        let mut is_same = match node {
            LogicalPlan::Limit(_) | LogicalPlan::Window(_) => false,
            LogicalPlan::Distinct(Distinct::On(_)) => false,
            LogicalPlan::Sort(sort) => sort.fetch.is_none(),
            LogicalPlan::Aggregate(groups) => is_exact(groups)?,
            _ => true,
        };
        node.apply_expressions(|expr| {
            is_same = is_same && !differs_itself(expr)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        match is_same {
            true => Ok(TreeNodeRecursion::Continue),
            false => Err(differs()),
        }
    })?;
    Ok(rows.clone())
}

/// Whether groups have the same values in any order of their rows.
fn is_exact(groups: &Aggregate) -> QueryResult<bool> {
    for expr in &groups.aggr_expr {
        let Expr::AggregateFunction(function) = expr.clone().unalias() else {
            return Ok(false);
        };
        let is_exact = match function.func.name() {
            "count" | "min" | "max" | "bool_and" | "bool_or" => true,
            "sum" | "avg" => !expr.get_type(groups.input.schema())?.is_floating(),
            _ => false,
        };
        if !is_exact {
            return Ok(false);
        }
    }
    Ok(true)
}

fn differs() -> datafusion::error::DataFusionError {
    refused("rows around it that may differ from run to run: a table of them can be made first")
}
