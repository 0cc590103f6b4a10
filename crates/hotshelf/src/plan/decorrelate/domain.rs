//! The values that the columns around a subquery have, and the subquery computed for each of them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinConstraint, JoinType};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, EmptyRelation, Expr, Filter, Join, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SubqueryAlias, Union, Window, lit, when,
};

use super::numbered;
use super::parts::{Names, column, columns_of, join, named, qualified, refused};
use super::references::{has_outer, outer_columns, refuse_outer_aggregates};
use super::repeatable::all_values;
use crate::plan::expressions::distinct;

/// The combinations of values that a subquery refers to, each once.
pub(super) struct Domain {
    /// Where the values are from.
    rows: LogicalPlan,
    /// A table of them, under a name that no other has.
    plan: LogicalPlan,
    name: String,
    /// The columns of the rows around the subquery: the table has a column for each.
    outer: Vec<Column>,
}

impl Domain {
    /// The values in `rows` of what `subquery` refers to there. What it refers to farther away stays in it.
    pub fn of(rows: &LogicalPlan, subquery: &LogicalPlan, names: &Names) -> QueryResult<Self> {
        refuse_outer_aggregates(subquery)?;
        let mut outer = outer_columns(subquery)?;
        outer.retain(|column| rows.schema().has_column(column));
        if names.decisions.are_wanted() {
            names.decisions.note(why_joined(&outer, subquery));
        }
        let rows = match outer.is_empty() {
            true => one_row(),
            false => all_values(rows, &outer)?,
        };
        Self::named(&rows, names, outer)
    }

    fn named(rows: &LogicalPlan, names: &Names, outer: Vec<Column>) -> QueryResult<Self> {
        let name = names.next("domain");
        let keys = outer.iter().enumerate();
        let keys =
            keys.map(|(key, column)| Expr::Column(column.clone()).alias(key_name(&name, key)));
        let values = LogicalPlanBuilder::from(rows.clone())
            .project(keys.collect::<Vec<_>>())?
            .distinct()?
            .build()?;
        let plan = SubqueryAlias::try_new(Arc::new(values), name.as_str())?;
        Ok(Self {
            rows: rows.clone(),
            plan: LogicalPlan::SubqueryAlias(plan),
            name,
            outer,
        })
    }

    /// The same values under another name.
    fn again(&self, names: &Names) -> QueryResult<Self> {
        Self::named(&self.rows, names, self.outer.clone())
    }

    fn key_names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.outer.len()).map(|key| key_name(&self.name, key))
    }

    /// Its columns.
    pub fn keys(&self) -> Vec<Expr> {
        let keys = self.key_names();
        keys.map(|key| qualified(&self.name, &key)).collect()
    }

    /// Its columns under names without the table's.
    pub fn plain_keys(&self) -> Vec<Expr> {
        let keys = self.keys().into_iter().zip(self.key_names());
        keys.map(|(expr, name)| expr.alias(name)).collect()
    }

    /// What joins rows around the subquery to a table with these columns.
    pub fn on(&self, table: &str) -> Vec<(Expr, Expr)> {
        let outer = self.outer.iter().zip(self.key_names());
        outer
            .map(|(column, key)| (Expr::Column(column.clone()), qualified(table, &key)))
            .collect()
    }

    /// The same where the table is [`Self::push`]ed.
    pub fn on_keys(&self) -> Vec<(Expr, Expr)> {
        self.on(&self.name)
    }

    /// The rows that `node` has for each combination of values, with its columns and those of the domain.
    pub fn push(&self, node: &LogicalPlan, names: &Names) -> QueryResult<LogicalPlan> {
        if self.outer.is_empty() {
            return Ok(node.clone());
        }
        if !self.is_read_in(node)? {
            return LogicalPlanBuilder::from(self.plan.clone())
                .cross_join(node.clone())?
                .build();
        }
        match node {
            LogicalPlan::Projection(projection) => {
                let input = self.push(&projection.input, names)?;
                let exprs = projection.expr.iter().map(|expr| self.read(expr));
                self.project(node, input, exprs.collect::<QueryResult<_>>()?)
            }
            LogicalPlan::Filter(filter) => {
                let input = self.push(&filter.input, names)?;
                let filter = Filter::try_new(self.read(&filter.predicate)?, Arc::new(input))?;
                Ok(LogicalPlan::Filter(filter))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let input = self.push(&alias.input, names)?;
                self.project(node, input, columns_of(&alias.input))
            }
            // Order counts only below a limit.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.push(&sort.input, names),
            LogicalPlan::Limit(limit) => numbered::push(self, node, limit, names),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.push(input, names)?;
                Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(input))))
            }
            LogicalPlan::Aggregate(groups) => self.push_groups(node, groups, names),
            LogicalPlan::Window(window) => self.push_window(node, window, names),
            LogicalPlan::Union(union) => self.push_union(node, union, names),
            LogicalPlan::Join(join) => self.push_join(node, join, names),
            other => Err(refused(kind_of(other))),
        }
    }

    /// Whether a node or one below refers to its columns.
    fn is_read_in(&self, node: &LogicalPlan) -> QueryResult<bool> {
        let read = outer_columns(node)?;
        Ok(read.iter().any(|column| self.outer.contains(column)))
    }

    /// An expression that reads the domain where it read columns around the subquery.
    pub fn read(&self, expr: &Expr) -> QueryResult<Expr> {
        expr.clone()
            .transform_up(|part| match &part {
                Expr::OuterReferenceColumn(_, column) => {
                    let key = self.outer.iter().position(|own| own == column);
                    Ok(match key {
                        Some(key) => {
                            let name = key_name(&self.name, key);
                            Transformed::yes(qualified(&self.name, &name))
                        }
                        None => Transformed::no(part),
                    })
                }
                _ => Ok(Transformed::no(part)),
            })
            .data()
    }

    /// The domain's columns and `exprs` under the names of `node`'s columns.
    pub fn project(
        &self,
        node: &LogicalPlan,
        input: LogicalPlan,
        exprs: Vec<Expr>,
    ) -> QueryResult<LogicalPlan> {
        let mut columns = self.keys();
        let names = node.schema().iter();
        columns.extend(
            exprs
                .into_iter()
                .zip(names)
                .map(|(expr, (qualifier, field))| named(expr, qualifier, field.name())),
        );
        let projection = Projection::try_new(columns, Arc::new(input))?;
        Ok(LogicalPlan::Projection(projection))
    }

    fn push_groups(
        &self,
        node: &LogicalPlan,
        groups: &Aggregate,
        names: &Names,
    ) -> QueryResult<LogicalPlan> {
        let has_sets = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
        if groups.group_expr.iter().any(has_sets) {
            return Err(refused("grouping sets"));
        }
        let input = Arc::new(self.push(&groups.input, names)?);
        let mut keys = self.keys();
        let mut places = Vec::new();
        for expr in distinct(groups.group_expr.clone()) {
            let key = self.read(&expr)?;
            // A key from around the subquery is one of the domain's, and equal keys have one column.
            let known = keys.iter().position(|known| *known == key);
            places.push(known.unwrap_or(keys.len()));
            if known.is_none() {
                keys.push(key);
            }
        }
        let first = keys.len();
        let values = groups.aggr_expr.iter().map(|expr| self.read(expr));
        let values: Vec<Expr> = values.collect::<QueryResult<_>>()?;
        let made = Aggregate::try_new(input, keys, values)?;
        let made = LogicalPlan::Aggregate(made);
        places.extend(first..made.schema().fields().len());
        let values = places.into_iter().map(|place| column(&made, place));
        let values: Vec<Expr> = values.collect();
        match groups.group_expr.is_empty() {
            false => self.project(node, made, values),
            true => self.with_empty_groups(node, groups, made, names),
        }
    }

    /// A group of all rows is there without any row, too: where the domain's values have none, `made` lacks it.
    fn with_empty_groups(
        &self,
        node: &LogicalPlan,
        groups: &Aggregate,
        made: LogicalPlan,
        names: &Names,
    ) -> QueryResult<LogicalPlan> {
        let (table, first) = (names.next("groups"), self.outer.len());
        let mut columns = self.plain_keys();
        let count = groups.aggr_expr.len();
        columns.extend((0..count).map(|idx| column(&made, first + idx).alias(value_name(idx))));
        columns.push(lit(true).alias("found"));
        let made = Projection::try_new(columns, Arc::new(made))?;
        let made = Arc::new(LogicalPlan::Projection(made));
        let made = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(made, table.as_str())?);
        let on = self.keys().into_iter().zip(self.key_names());
        let on = on.map(|(own, key)| (own, qualified(&table, &key)));
        let joined = join(self.plan.clone(), made, on.collect(), None, JoinType::Left)?;
        let mut values = Vec::with_capacity(count);
        for (idx, expr) in groups.aggr_expr.iter().enumerate() {
            let value = qualified(&table, &value_name(idx));
            let none = match expr.clone().unalias() {
                Expr::AggregateFunction(function) => {
                    let (_, field) = node.schema().qualified_field(idx);
                    function.func.default_value(field.data_type())?
                }
                _ => return Err(refused("an aggregate inside an expression")),
            };
            values.push(match none.is_null() {
                true => value,
                false => when(qualified(&table, "found").is_null(), lit(none)).otherwise(value)?,
            });
        }
        self.project(node, joined, values)
    }

    fn push_window(
        &self,
        node: &LogicalPlan,
        window: &Window,
        names: &Names,
    ) -> QueryResult<LogicalPlan> {
        let input = self.push(&window.input, names)?;
        let input_columns = columns_of(&window.input);
        let exprs = window.window_expr.iter().map(|expr| {
            self.read(expr)?
                .transform_up(|part| match part {
                    Expr::WindowFunction(mut function) => {
                        function.params.partition_by.extend(self.keys());
                        Ok(Transformed::yes(Expr::WindowFunction(function)))
                    }
                    other => Ok(Transformed::no(other)),
                })
                .data()
        });
        let exprs: Vec<Expr> = exprs.collect::<QueryResult<_>>()?;
        let first = input.schema().fields().len();
        let made = LogicalPlan::Window(Window::try_new(exprs, Arc::new(input))?);
        let values = (first..made.schema().fields().len()).map(|place| column(&made, place));
        let columns = input_columns.into_iter().chain(values).collect();
        self.project(node, made, columns)
    }

    fn push_union(
        &self,
        node: &LogicalPlan,
        union: &Union,
        names: &Names,
    ) -> QueryResult<LogicalPlan> {
        let inputs = union.inputs.iter().map(|input| {
            let pushed = self.push(input, names)?;
            let columns = self.plain_keys().into_iter().chain(
                columns_of(input)
                    .into_iter()
                    .enumerate()
                    .map(|(idx, expr)| expr.alias(value_name(idx))),
            );
            let projection = Projection::try_new(columns.collect(), Arc::new(pushed))?;
            Ok(Arc::new(LogicalPlan::Projection(projection)))
        });
        let union = Union::try_new_with_loose_types(inputs.collect::<QueryResult<_>>()?)?;
        let union = LogicalPlan::Union(union);
        let alias = SubqueryAlias::try_new(Arc::new(union), self.name.as_str())?;
        let made = LogicalPlan::SubqueryAlias(alias);
        let count = node.schema().fields().len();
        let values = (0..count).map(|idx| qualified(&self.name, &value_name(idx)));
        self.project(node, made, values.collect())
    }

    /// The rows of a join: sides that refer to the domain have its values, and equal ones where both do.
    fn push_join(&self, node: &LogicalPlan, own: &Join, names: &Names) -> QueryResult<LogicalPlan> {
        let on = own.on.iter();
        let has_outer_keys = on
            .clone()
            .any(|(left, right)| has_outer(left) || has_outer(right));
        if has_outer_keys || own.null_aware {
            return Err(refused("such a join"));
        }
        // A side whose rows are kept without a partner has them for each of the domain's values.
        let (keeps_left, keeps_right) = match own.join_type {
            JoinType::Inner => (false, false),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => (true, false),
            JoinType::Right => (false, true),
            _ => return Err(refused("a FULL JOIN")),
        };
        let right_refers = self.is_read_in(&own.right)? || keeps_right;
        let left_refers = self.is_read_in(&own.left)? || keeps_left || !right_refers;
        let second = self.again(names)?;
        let (left, right, read) = match (left_refers, right_refers) {
            (true, false) => (
                self.push(&own.left, names)?,
                own.right.as_ref().clone(),
                self,
            ),
            (false, _) => (
                own.left.as_ref().clone(),
                self.push(&own.right, names)?,
                self,
            ),
            (true, true) if keeps_right => (
                second.push(&own.left, names)?,
                self.push(&own.right, names)?,
                self,
            ),
            (true, true) => (
                self.push(&own.left, names)?,
                second.push(&own.right, names)?,
                self,
            ),
        };
        let mut conditions = Vec::new();
        if let Some(filter) = &own.filter {
            conditions.push(read.read(filter)?);
        }
        if left_refers && right_refers {
            let keys = self.keys().into_iter().zip(second.keys());
            conditions.extend(keys.map(|(one, other)| same(one, other)));
        }
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            own.on.clone(),
            conjunction(conditions),
            own.join_type,
            JoinConstraint::On,
            own.null_equality,
            false,
        )?;
        self.project(node, LogicalPlan::Join(joined), columns_of(node))
    }
}

/// How often a subquery is computed, for EXPLAIN VERBOSE.
fn why_joined(outer: &[Column], subquery: &LogicalPlan) -> String {
    let columns: Vec<String> = outer.iter().map(Column::flat_name).collect();
    let times = match columns.is_empty() {
        true => "once".to_owned(),
        false => format!("once for each combination of {}", columns.join(", ")),
    };
    let subquery = subquery.display();
    format!(
        "a subquery is computed {times} and joined to the rows around it, as the engine has no join for it: {subquery}"
    )
}

fn one_row() -> LogicalPlan {
    LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: true,
        schema: Arc::new(DFSchema::empty()),
    })
}

/// Equality of values of which NULLs are equal, too.
fn same(one: Expr, other: Expr) -> Expr {
    let op = Operator::IsNotDistinctFrom;
    Expr::BinaryExpr(BinaryExpr::new(Box::new(one), op, Box::new(other)))
}

fn kind_of(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Distinct(_) => "DISTINCT ON",
        LogicalPlan::Unnest(_) => "UNNEST",
        LogicalPlan::Values(_) => "VALUES",
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE",
        LogicalPlan::Subquery(_) => "LATERAL inside it",
        _ => "such a part",
    }
}

/// Names of columns are of one domain alone: one may be inside another.
fn key_name(domain: &str, key: usize) -> String {
    format!("{domain}_key_{key}")
}

fn value_name(idx: usize) -> String {
    format!("value_{idx}")
}
