//! Group keys that are called alike: `GROUP BY CAST(t AS DATE), t`.
//!
//! Casts are left out of names, and the engine derives what determines what by name: it takes both keys for one, and
//! drops sort and group keys that seem to follow from it (`docs/upstream/cast-and-column-keys.md`). Such casts are
//! computed below the groups under names of their own, which the nodes above use, too.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection};
use datafusion::optimizer::AnalyzerRule;

use super::decisions::{shown, wanted};
use super::expressions::with_names_kept;
use crate::settings::Notes;

#[derive(Debug)]
pub(super) struct NameCastKeys;

impl AnalyzerRule for NameCastKeys {
    fn name(&self) -> &str {
        "name_cast_keys"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> QueryResult<LogicalPlan> {
        let notes = wanted(config);
        let mut is_needed = false;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Aggregate(groups) = node {
                let alike = alike(groups);
                is_needed |= !alike.is_empty();
                if let Some(notes) = notes {
                    note_names(groups, &alike, notes);
                }
            }
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })?;
        if is_needed { separate(plan) } else { Ok(plan) }
    }
}

/// Columns that have other names below: what they are called, and what they should be called.
type Names = HashMap<Column, Column>;

/// Numbers of the keys that are casts and called like another key.
fn alike(aggregate: &Aggregate) -> Vec<usize> {
    let keys = &aggregate.group_expr;
    if keys.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
        return Vec::new();
    }
    let names: Vec<String> = keys
        .iter()
        .map(|key| key.schema_name().to_string())
        .collect();
    let is_alike = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
    let is_cast = |key: &Expr| matches!(key, Expr::Cast(_) | Expr::TryCast(_));
    (0..keys.len())
        .filter(|key_idx| is_cast(&keys[*key_idx]) && is_alike(&names[*key_idx]))
        .collect()
}

fn note_names(aggregate: &Aggregate, alike: &[usize], notes: &Notes) {
    let keys = alike
        .iter()
        .filter_map(|key| aggregate.group_expr.get(*key));
    for key in keys {
        let name = key.schema_name().to_string();
        notes.note(format!(
            "the group key {} is computed below under a name of its own, as another key is called {}, too",
            shown(key),
            shown(&name)
        ));
    }
}

/// The plan with different names inside and the same outside.
fn separate(plan: LogicalPlan) -> QueryResult<LogicalPlan> {
    let (plan, names) = rename(plan)?;
    restore(plan, &names)
}

fn rename(plan: LogicalPlan) -> QueryResult<(LogicalPlan, Names)> {
    let plan = plan
        .map_subqueries(|subquery| separate(subquery).map(Transformed::yes))
        .data()?;
    let mut names = Names::new();
    let carries = matches!(
        plan,
        LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Limit(_)
    );
    let plan = plan
        .map_children(|child| {
            let (child, child_names) = rename(child)?;
            if carries {
                names = child_names;
                return Ok(Transformed::yes(child));
            }
            restore(child, &child_names).map(Transformed::yes)
        })
        .data()?;
    match plan {
        LogicalPlan::Aggregate(aggregate) if !alike(&aggregate).is_empty() => name_keys(aggregate),
        plan if names.is_empty() => Ok((plan, names)),
        LogicalPlan::Projection(projection) => through_projection(projection, &names),
        plan => through(plan, names),
    }
}

/// The aggregation over a projection that computes the casts.
fn name_keys(aggregate: Aggregate) -> QueryResult<(LogicalPlan, Names)> {
    let mut names = Names::new();
    let mut keys = aggregate.group_expr.clone();
    let input_columns = aggregate.input.schema().columns();
    let mut below: Vec<Expr> = input_columns.into_iter().map(Expr::Column).collect();
    for key_idx in alike(&aggregate) {
        let (qualifier, field) = aggregate.schema.qualified_field(key_idx);
        let called = Column::new(qualifier.cloned(), field.name());
        let name = Column::new_unqualified(format!("__key_{key_idx}"));
        let column = Expr::Column(name.clone());
        let cast = std::mem::replace(&mut keys[key_idx], column);
        below.push(cast.alias(&name.name));
        names.insert(called, name);
    }
    let input = LogicalPlanBuilder::new_from_arc(aggregate.input)
        .project(below)?
        .build()?;
    let aggregate = Aggregate::try_new(Arc::new(input), keys, aggregate.aggr_expr)?;
    Ok((LogicalPlan::Aggregate(aggregate), names))
}

fn with_names(expr: Expr, names: &Names) -> QueryResult<Transformed<Expr>> {
    expr.transform(|expr| match &expr {
        Expr::Column(column) => Ok(match names.get(column) {
            Some(name) => Transformed::yes(Expr::Column(name.clone())),
            None => Transformed::no(expr),
        }),
        _ => Ok(Transformed::no(expr)),
    })
}

/// A projection whose bare columns keep the names from below.
fn through_projection(projection: Projection, names: &Names) -> QueryResult<(LogicalPlan, Names)> {
    let mut kept = Names::new();
    let preserver = NamePreserver::new_for_projection();
    let exprs = projection
        .expr
        .into_iter()
        .map(|expr| {
            if let Expr::Column(column) = &expr
                && let Some(name) = names.get(column)
            {
                kept.insert(column.clone(), name.clone());
                return Ok(Expr::Column(name.clone()));
            }
            let saved = preserver.save(&expr);
            let renamed = with_names(expr, names)?;
            Ok(renamed.update_data(|expr| saved.restore(expr)).data)
        })
        .collect::<QueryResult<Vec<_>>>()?;
    let plan = Projection::try_new(exprs, projection.input)?;
    Ok((LogicalPlan::Projection(plan), kept))
}

fn through(plan: LogicalPlan, names: Names) -> QueryResult<(LogicalPlan, Names)> {
    let plan = with_names_kept(plan, |expr| with_names(expr, &names))
        .data()?
        .recompute_schema()?;
    Ok((plan, names))
}

/// The plan's columns under the names they are known by.
fn restore(plan: LogicalPlan, names: &Names) -> QueryResult<LogicalPlan> {
    if names.is_empty() {
        return Ok(plan);
    }
    let called: HashMap<&Column, &Column> =
        names.iter().map(|(called, name)| (name, called)).collect();
    let columns = plan.schema().columns().into_iter().map(|column| {
        match called.get(&column).copied().cloned() {
            Some(called) => Expr::Column(column).alias_qualified(called.relation, called.name),
            None => Expr::Column(column),
        }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::new(plan).project(columns)?.build()
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_cast_has_a_name_of_its_own() {
        let query = "SELECT CAST(k AS INT) AS i, k, count(*) FROM t GROUP BY CAST(k AS INT), k";
        before_after("name_cast_keys", &[query]).is(
            "
            Projection: t.k AS i, t.k, count(Int64(1)) AS count(*)
              Aggregate: groupBy=[[CAST(t.k AS Int32), t.k]], aggr=[[count(Int64(1))]]
                TableScan: t
            ",
            "
            Projection: __key_0 AS i, t.k, count(Int64(1)) AS count(*)
              Aggregate: groupBy=[[__key_0, t.k]], aggr=[[count(Int64(1))]]
                Projection: t.k, t.n, t.v, t.w, CAST(t.k AS Int32) AS __key_0
                  TableScan: t
            ",
        );
    }
}
