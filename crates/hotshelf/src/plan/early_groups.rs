//! Groups are made before small tables are joined that only give them names:
//! `SELECT n_name, sum(x) … WHERE s_nationkey = n_nationkey GROUP BY n_name`.
//!
//! The rows are grouped by the key of such a table, the few groups are joined with it, and those of the same names are
//! put together: eager aggregation (Yan and Larson, VLDB 1995) of rows by which no text has to go through joins (TPC-H
//! Q9). Stars have texts as codes and gain nothing, so that this is for rows that are joined by several keys at once.

mod joins;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::ApplyOrder;

use super::expressions::is_wide;
use super::join_order::{cannot_fail, estimate, join_work};
use super::node_rule::NodeRule;
use crate::settings::SessionSettings;
use joins::{Joins, Names};

/// What the keys and values of early groups are called in the plan, with a number behind.
const KEY: &str = "__early_key";
const VALUE: &str = "__early_value";
/// Rows that are grouped early, at least: below, one more operator costs as much as it saves.
const ROWS_MIN: f64 = 200_000.0;
/// Rows for each early group, at least.
const ROWS_PER_GROUP: f64 = 8.0;

/// Groups rows before tables are joined that only give the groups names.
pub(super) const EARLY_GROUPS: NodeRule = NodeRule {
    name: "early_groups",
    says: "rows are grouped before tables are joined that only name the groups",
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, _: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) if has_wide_key(aggregate) => {
            let early = Early::of(aggregate)?.map(|early| early.plan(aggregate));
            // A name of the plan may be a name of a table's column.
            let logged = early.map(|plan| {
                plan.inspect_err(|error| tracing::debug!(%error, "groups are not made early"))
            });
            Ok(logged.and_then(Result::ok).flatten())
        }
        _ => Ok(None),
    }
}

/// Whether a group key could be a name: most aggregations have none.
fn has_wide_key(aggregate: &Aggregate) -> bool {
    let fields = aggregate.schema.fields().iter();
    let mut keys = fields.take(aggregate.group_expr.len());
    keys.any(|key| is_wide(key.data_type()))
}

/// What is grouped early.
struct Early {
    /// Without the tables that name groups.
    rows: LogicalPlan,
    names: Vec<Names>,
    /// The group keys, over what is joined, and whether a table gives them that only names groups.
    keys: Vec<(Expr, bool)>,
    /// Over what is joined.
    functions: Vec<AggregateFunction>,
}

impl Early {
    /// None where no table only names groups, or the rows are few or the groups many.
    fn of(aggregate: &Aggregate) -> QueryResult<Option<Self>> {
        let functions = aggregate.aggr_expr.iter().map(mergeable);
        let is_plain = |key: &Expr| !matches!(key, Expr::GroupingSet(_)) && !key.is_volatile();
        let (Some(functions), true) = (
            functions.collect::<Option<Vec<_>>>(),
            aggregate.group_expr.iter().all(is_plain),
        ) else {
            return Ok(None);
        };
        let arguments = functions.iter().flat_map(|call| &call.params.args);
        let exprs: Vec<Expr> = aggregate
            .group_expr
            .iter()
            .chain(arguments)
            .cloned()
            .collect();
        let Some((input, exprs)) = below_names(&aggregate.input, exprs)? else {
            return Ok(None);
        };
        let (keys, arguments) = exprs.split_at(aggregate.group_expr.len());
        let Some(joins) = Joins::of(input) else {
            return Ok(None);
        };
        let names = joins.names(keys, arguments);
        if names.is_empty() || !joins.have_several_keys(&names) || !joins.can_compute(&exprs) {
            return Ok(None);
        }
        let of_names = |key: &Expr| names.iter().any(|table| table.gives(key));
        let keys: Vec<_> = keys
            .iter()
            .map(|key| (key.clone(), of_names(key)))
            .collect();
        let rows = joins.without(&names)?;
        let mut early: Vec<Expr> = keys
            .iter()
            .filter(|(_, is_name)| !is_name)
            .map(|(key, _)| key.clone())
            .collect();
        early.extend(names.iter().flat_map(Names::row_keys).cloned());
        let row_count = join_work(&rows).map_or(0.0, |work| work.rows);
        let groups = joins.group_count(&early);
        if row_count < ROWS_MIN || groups.is_none_or(|groups| groups * ROWS_PER_GROUP > row_count) {
            return Ok(None);
        }
        let mut arguments = arguments.iter().cloned();
        let functions = functions.into_iter().map(|call| {
            let args = arguments.by_ref().take(call.params.args.len()).collect();
            with_arguments(&call, args)
        });
        let functions: Vec<AggregateFunction> = functions.collect();
        Ok(joins.can_sum(&functions).then_some(Self {
            rows,
            names,
            keys,
            functions,
        }))
    }

    /// Early groups, joined with the tables that name them, and those of the same names put together; none where not
    /// each column of the aggregation has one of its own.
    fn plan(self, aggregate: &Aggregate) -> QueryResult<Option<LogicalPlan>> {
        let mut early: Vec<Expr> = Vec::new();
        let mut key_of = |key: &Expr| {
            let place = early.iter().position(|known| known == key);
            let place = place.unwrap_or_else(|| {
                early.push(key.clone());
                early.len() - 1
            });
            Column::new_unqualified(format!("{KEY}_{place}"))
        };
        let keys: Vec<Expr> = self
            .keys
            .into_iter()
            .map(|(key, is_name)| match is_name {
                true => key,
                false => Expr::Column(key_of(&key)),
            })
            .collect();
        let on: Vec<(Vec<Column>, Vec<Column>)> = self
            .names
            .iter()
            .map(|table| {
                table
                    .on
                    .iter()
                    .map(|(key, name)| (key_of(key), name.clone()))
                    .unzip()
            })
            .collect();
        let calls = self.functions.iter().cloned().map(Expr::AggregateFunction);
        let groups = LogicalPlanBuilder::from(self.rows).aggregate(early.clone(), calls)?;
        // Below the names of a subquery, different columns may be the same.
        if groups.schema().fields().len() != early.len() + self.functions.len() {
            return Ok(None);
        }
        let named = groups
            .schema()
            .columns()
            .into_iter()
            .enumerate()
            .map(|(idx, column)| {
                let name = match idx.checked_sub(early.len()) {
                    None => format!("{KEY}_{idx}"),
                    Some(value) => format!("{VALUE}_{value}"),
                };
                Expr::Column(column).alias(name)
            });
        let named = named.collect::<Vec<_>>();
        let mut joined = groups.project(named)?;
        for (table, on) in self.names.iter().zip(on) {
            let nulls = NullEquality::NullEqualsNothing;
            joined = joined.join_detailed(table.plan.clone(), JoinType::Inner, on, None, nulls)?;
        }
        let merged = self.functions.iter().enumerate().map(|(idx, call)| {
            let value = Expr::Column(Column::new_unqualified(format!("{VALUE}_{idx}")));
            Expr::AggregateFunction(merging(call, value))
        });
        let merged = joined.aggregate(keys, merged.collect::<Vec<_>>())?;
        as_columns_of(aggregate, merged)
    }
}

/// The columns of an aggregation, by their order, from a plan that has as many; none for another one.
fn as_columns_of(
    aggregate: &Aggregate,
    merged: LogicalPlanBuilder,
) -> QueryResult<Option<LogicalPlan>> {
    if merged.schema().fields().len() != aggregate.schema.fields().len() {
        return Ok(None);
    }
    let columns = merged
        .schema()
        .columns()
        .into_iter()
        .zip(aggregate.schema.iter());
    let columns = columns.map(|(column, (qualifier, field))| {
        let column = Expr::Column(column).cast_to(field.data_type(), merged.schema())?;
        Ok(column.alias_qualified(qualifier.cloned(), field.name()))
    });
    let columns = columns.collect::<QueryResult<Vec<_>>>()?;
    merged.project(columns)?.build().map(Some)
}

/// The aggregate function that an expression is, if values of it can be put together by another one.
fn mergeable(expr: &Expr) -> Option<AggregateFunction> {
    let Expr::AggregateFunction(call) = expr.clone().unalias() else {
        return None;
    };
    let params = &call.params;
    let is_plain = !params.distinct
        && params.filter.is_none()
        && params.order_by.is_empty()
        && params.null_treatment.is_none();
    let is_known = matches!(call.func.name(), "sum" | "count" | "min" | "max");
    let is_volatile = params.args.iter().any(Expr::is_volatile);
    (is_plain && is_known && !is_volatile).then_some(call)
}

fn with_arguments(call: &AggregateFunction, args: Vec<Expr>) -> AggregateFunction {
    let params = AggregateFunctionParams {
        args,
        ..call.params.clone()
    };
    AggregateFunction {
        func: call.func.clone(),
        params,
    }
}

/// What puts values of an aggregate function together.
fn merging(call: &AggregateFunction, value: Expr) -> AggregateFunction {
    let merging = with_arguments(call, vec![value]);
    match call.func.name() {
        "count" => AggregateFunction {
            func: sum_udaf(),
            ..merging
        },
        _ => merging,
    }
}

/// What lies below projections and names, and expressions over it; none where one is not the same each time.
fn below_names(
    mut plan: &Arc<LogicalPlan>,
    mut exprs: Vec<Expr>,
) -> QueryResult<Option<(&LogicalPlan, Vec<Expr>)>> {
    loop {
        let (input, columns): (_, Vec<Expr>) = match plan.as_ref() {
            LogicalPlan::SubqueryAlias(alias) => {
                let columns = alias.input.schema().columns().into_iter();
                (&alias.input, columns.map(Expr::Column).collect())
            }
            LogicalPlan::Projection(projection) => {
                let columns = projection.expr.iter().cloned();
                (&projection.input, columns.map(Expr::unalias).collect())
            }
            plan => return Ok(Some((plan, exprs))),
        };
        if columns.iter().any(Expr::is_volatile) {
            return Ok(None);
        }
        let over_input = |expr: Expr| {
            let column = |expr: Expr| {
                let Expr::Column(column) = &expr else {
                    return Ok(Transformed::no(expr));
                };
                let idx = plan.schema().index_of_column(column)?;
                Ok(Transformed::yes(columns[idx].clone()))
            };
            expr.transform_up(column).data()
        };
        exprs = exprs
            .into_iter()
            .map(over_input)
            .collect::<QueryResult<_>>()?;
        plan = input;
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    const ROWS: &str =
        "CREATE TABLE f AS SELECT value % 1000 AS a, value % 7 AS b, value % 100 AS k, value AS n
        FROM generate_series(1, 300000) AS g(value)";
    const PAIRS: &str = "CREATE TABLE p AS SELECT value % 1000 AS a, value % 7 AS b, value AS c
        FROM generate_series(1, 7000) AS g(value)";

    #[test]
    fn rows_are_grouped_by_keys_before_the_names_of_groups_are_looked_up() {
        let query = "SELECT s.name, p.b, count(*) AS c, sum(f.n) AS a FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND \
            f.k = s.k GROUP BY s.name, p.b";
        before_after("early_groups", &[ROWS, PAIRS, query]).is(
            "
            Projection: s.name, p.b, count(Int64(1)) AS count(*) AS c, sum(f.n) AS a
              Aggregate: groupBy=[[s.name, p.b]], aggr=[[count(Int64(1)), sum(f.n)]]
                Inner Join: f.k = s.k
                  Inner Join: f.a = p.a, f.b = p.b
                    TableScan: f
                    TableScan: p
                  TableScan: s
            ",
            "
            Projection: s.name, p.b, count(Int64(1)) AS count(*) AS c, sum(f.n) AS a
              Projection: s.name AS name, __early_key_0 AS b, sum(__early_value_0) AS count(Int64(1)), \
                    sum(__early_value_1) AS sum(f.n)
                Aggregate: groupBy=[[s.name, __early_key_0]], aggr=[[sum(__early_value_0), sum(__early_value_1)]]
                  Inner Join: __early_key_1 = s.k
                    Projection: p.b AS __early_key_0, f.k AS __early_key_1, count(Int64(1)) AS __early_value_0, \
                    sum(f.n) AS __early_value_1
                      Aggregate: groupBy=[[p.b, f.k]], aggr=[[count(Int64(1)), sum(f.n)]]
                        Inner Join: f.a = p.a, f.b = p.b
                          TableScan: f
                          TableScan: p
                    TableScan: s
            ",
        );
    }

    #[test]
    fn a_table_that_does_more_than_name_groups_stays_where_it_is() {
        for query in [
            "SELECT s.name, sum(f.n + s.x) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k GROUP BY s.name",
            "SELECT s.name, sum(f.n) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k AND s.x > 3 \
                GROUP BY s.name",
            "SELECT s.name, sum(f.n) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k AND s.x < p.c \
                GROUP BY s.name",
            "SELECT s.name, sum(f.n) FROM f, s WHERE f.k = s.k GROUP BY s.name",
            "SELECT s.name, avg(f.n) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k GROUP BY s.name",
            "SELECT s.name, f.n, count(*) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k \
                GROUP BY s.name, f.n",
        ] {
            before_after("early_groups", &[ROWS, PAIRS, query]).is_the_same();
        }
    }
}
