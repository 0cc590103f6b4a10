//! Inner joins, and which of their tables only name groups.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, Filter, Join, JoinType, LogicalPlan, Operator, TableScan,
};

use super::values::{KEY, VALUE};
use crate::plan::expressions::is_wide;
use crate::plan::join_order::{RelSet, cannot_fail, estimate};
use crate::statistics::column::number;

/// No query joins more rows than this.
const ROWS_MAX: f64 = 1e12;

/// A tree of inner joins and filters.
pub(super) struct Joins<'a> {
    pub tree: &'a LogicalPlan,
    pub relations: Vec<&'a LogicalPlan>,
    pub pairs: Vec<(&'a Expr, &'a Expr)>,
    pub predicates: Vec<&'a Expr>,
}

/// A table that gives groups names and nothing else.
pub(super) struct Names {
    relation: usize,
    /// The table that it is joined with.
    side: usize,
    pub plan: LogicalPlan,
    /// What of the rows is equal to which of its columns.
    pub on: Vec<(Expr, Column)>,
}

impl Names {
    /// Whether a group key is over this table's columns.
    pub fn gives(&self, key: &Expr) -> bool {
        is_of(key, &self.plan)
    }

    /// What the rows are joined with it by.
    pub fn row_keys(&self) -> impl Iterator<Item = &Expr> {
        self.on.iter().map(|(key, _)| key)
    }
}

impl<'a> Joins<'a> {
    /// None for a plan that is not joined, or whose groups are made early already.
    pub fn of(tree: &'a LogicalPlan) -> Option<Self> {
        let joins = Self::all(tree);
        // One that reads nothing belongs to no table.
        let reads_nothing = |test: &&Expr| test.column_refs().is_empty();
        let is_joined = joins.relations.len() > 1 && !joins.predicates.iter().any(reads_nothing);
        let is_early = || joins.relations.iter().any(|table| has_early_groups(table));
        (is_joined && !is_early()).then_some(joins)
    }

    /// Also of a plan that is not joined.
    pub fn all(tree: &'a LogicalPlan) -> Self {
        let mut joins = Self {
            tree,
            relations: Vec::new(),
            pairs: Vec::new(),
            predicates: Vec::new(),
        };
        joins.take(tree);
        joins
    }

    fn take(&mut self, plan: &'a LogicalPlan) {
        match plan {
            LogicalPlan::Join(join) if is_inner(join) => {
                self.pairs
                    .extend(join.on.iter().map(|(left, right)| (left, right)));
                self.predicates
                    .extend(join.filter.iter().flat_map(split_conjunction));
                self.take(&join.left);
                self.take(&join.right);
            }
            LogicalPlan::Filter(filter) if is_joined(&filter.input) => {
                self.predicates.extend(split_conjunction(&filter.predicate));
                self.take(&filter.input);
            }
            _ => self.relations.push(plan),
        }
    }

    /// The tables that only name groups of these keys, of which nothing is aggregated.
    pub fn names<'b>(
        &self,
        keys: &[Expr],
        arguments: impl Iterator<Item = &'b Expr>,
    ) -> Vec<Names> {
        let arguments: Vec<&Expr> = arguments.collect();
        let places = 0..self.relations.len();
        let names = places.filter_map(|relation| self.names_of(relation, keys, &arguments));
        let names: Vec<Names> = names.collect();
        let all: Vec<usize> = names.iter().map(|table| table.relation).collect();
        let names = names.into_iter();
        names.filter(|table| !all.contains(&table.side)).collect()
    }

    fn names_of(&self, relation: usize, keys: &[Expr], arguments: &[&Expr]) -> Option<Names> {
        let plan = self.relations[relation];
        if !is_whole_table(plan) {
            return None;
        }
        let reads = |expr: &Expr| reads(expr, plan);
        let mut gives_text = false;
        for key in keys.iter().filter(|key| reads(key)) {
            if self.relation_of(key) != Some(relation) {
                return None;
            }
            gives_text |= is_wide(&key.get_type(plan.schema()).ok()?);
        }
        let others = self.predicates.iter().chain(arguments).copied();
        if !gives_text || others.into_iter().any(reads) {
            return None;
        }
        let mut on = Vec::new();
        for (left, right) in &self.pairs {
            let (key, name) = match (reads(left), reads(right)) {
                (false, false) => continue,
                (true, false) => (*right, *left),
                (false, true) => (*left, *right),
                (true, true) => return None,
            };
            let (Expr::Column(_), Expr::Column(column)) = (key, name) else {
                return None;
            };
            if self.relation_of(name) != Some(relation) {
                return None;
            }
            on.push((key.clone(), column.clone()));
        }
        // Without it the others must still be joined.
        let mut sides = on.iter().map(|(key, _)| self.relation_of(key));
        let side = sides.next()??;
        sides.all(|other| other == Some(side)).then(|| Names {
            relation,
            side,
            plan: plan.clone(),
            on,
        })
    }

    /// The table whose columns an expression reads, if it is one that has them by their names alone.
    pub fn relation_of(&self, expr: &Expr) -> Option<usize> {
        let mut having = (0..self.relations.len()).filter(|idx| is_of(expr, self.relations[*idx]));
        having.next().filter(|_| having.next().is_none())
    }

    /// The tables whose columns an expression reads; none where a column is not of one of them by its name alone.
    pub fn tables_of(&self, expr: &Expr) -> Option<RelSet> {
        let columns = expr.column_refs().into_iter();
        let mut tables = columns.map(|column| {
            let table = self.relation_of(&Expr::Column(column.clone()));
            table.map(RelSet::of)
        });
        tables.try_fold(RelSet::EMPTY, |all, table| Some(all.union(table?)))
    }

    /// Whether expressions, and what the joins compute themselves, may be computed for rows that other tables drop.
    pub fn can_compute<'b>(&self, mut exprs: impl Iterator<Item = &'b Expr>) -> bool {
        let schema = self.tree.schema();
        let keys = self.pairs.iter().flat_map(|(left, right)| [*left, *right]);
        let mut own = keys.chain(self.predicates.iter().copied());
        let can_compute = |expr: &Expr| cannot_fail(expr, schema);
        own.all(can_compute) && exprs.all(can_compute)
    }

    /// Whether the sums of any groups of the rows have room in their type: those of all do not say that.
    pub fn can_sum(&self, functions: &[AggregateFunction]) -> bool {
        let schema = self.tree.schema();
        let mut sums = functions.iter().filter(|call| call.func.name() == "sum");
        sums.all(|call| {
            let Ok(sum) = Expr::AggregateFunction(call.clone()).get_type(schema) else {
                return false;
            };
            let room = greatest(&sum);
            let value = call
                .params
                .args
                .first()
                .and_then(|value| self.greatest(value));
            let (Some(room), Some(value)) = (room, value) else {
                return false;
            };
            sum.is_floating() || value * ROWS_MAX < room
        })
    }

    /// The greatest value that an expression may have, without its sign.
    fn greatest(&self, expr: &Expr) -> Option<f64> {
        let by_parts = match expr {
            Expr::Alias(alias) => self.greatest(&alias.expr),
            Expr::Cast(cast) => self.greatest(&cast.expr),
            Expr::Literal(value, _) => number(value).map(f64::abs),
            Expr::Column(column) => self.relation_of(expr).and_then(|relation| {
                let relation = self.relations[relation];
                let estimated = estimate(relation)?;
                let (least, greatest) = estimated.column(column, relation.schema())?.bounds?;
                Some(least.abs().max(greatest.abs()))
            }),
            Expr::BinaryExpr(binary) => {
                let sides = self
                    .greatest(&binary.left)
                    .zip(self.greatest(&binary.right));
                sides.and_then(|(left, right)| match binary.op {
                    Operator::Plus | Operator::Minus => Some(left + right),
                    Operator::Multiply => Some(left * right),
                    _ => None,
                })
            }
            _ => None,
        };
        by_parts.or_else(|| greatest(&expr.get_type(self.tree.schema()).ok()?))
    }

    /// Whether two of the others are joined by more than one key.
    pub fn have_several_keys(&self, names: &[Names]) -> bool {
        let is_name = |relation: usize| names.iter().any(|table| table.relation == relation);
        let sides = self.pairs.iter().filter_map(|(left, right)| {
            let (left, right) = (self.relation_of(left)?, self.relation_of(right)?);
            let sides = (left.min(right), left.max(right));
            (!is_name(left) && !is_name(right)).then_some(sides)
        });
        let mut sides: Vec<_> = sides.collect();
        let all = sides.len();
        sides.sort_unstable();
        sides.dedup();
        sides.len() < all
    }

    /// How many combinations of values the keys have at most; none where a table has no statistics.
    pub fn group_count(&self, keys: &[Expr]) -> Option<f64> {
        let counts = keys.iter().map(|key| {
            let relation = self.relations[self.relation_of(key)?];
            Some(estimate(relation)?.of_expr(key, relation.schema()).distinct)
        });
        counts.product()
    }

    /// The same joins without these tables.
    pub fn without(&self, names: &[Names]) -> QueryResult<LogicalPlan> {
        let dropped: Vec<&LogicalPlan> = names
            .iter()
            .map(|table| self.relations[table.relation])
            .collect();
        Ok(rest(self.tree, &dropped)?.unwrap_or_default())
    }
}

/// The greatest number of a type.
fn greatest(data_type: &DataType) -> Option<f64> {
    Some(match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => f64::MAX,
        DataType::Decimal128(precision, scale) => {
            10f64.powi(i32::from(*precision) - i32::from(*scale))
        }
        integer if integer.is_integer() => {
            let bits = 8 * data_type.primitive_width()? as i32;
            2f64.powi(bits - i32::from(integer.is_signed_integer()))
        }
        _ => return None,
    })
}

/// What remains of joins without some of their tables.
fn rest(plan: &LogicalPlan, dropped: &[&LogicalPlan]) -> QueryResult<Option<LogicalPlan>> {
    if dropped.iter().any(|table| std::ptr::eq(*table, plan)) {
        return Ok(None);
    }
    Ok(Some(match plan {
        LogicalPlan::Join(join) if is_inner(join) => {
            match (rest(&join.left, dropped)?, rest(&join.right, dropped)?) {
                (Some(left), Some(right)) => {
                    let keeps = |expr: &Expr| !dropped.iter().any(|table| reads(expr, table));
                    let on = join
                        .on
                        .iter()
                        .filter(|(left, right)| keeps(left) && keeps(right));
                    LogicalPlan::Join(Join::try_new(
                        Arc::new(left),
                        Arc::new(right),
                        on.cloned().collect(),
                        join.filter.clone(),
                        join.join_type,
                        join.join_constraint,
                        join.null_equality,
                        join.null_aware,
                    )?)
                }
                (Some(one), None) | (None, Some(one)) => {
                    let predicates = join.filter.iter().flat_map(split_conjunction).cloned();
                    let tested = conjunction(predicates)
                        .map(|predicate| Filter::try_new(predicate, Arc::new(one.clone())))
                        .transpose()?;
                    tested.map_or(one, LogicalPlan::Filter)
                }
                (None, None) => return Ok(None),
            }
        }
        LogicalPlan::Filter(filter) if is_joined(&filter.input) => {
            let Some(input) = rest(&filter.input, dropped)? else {
                return Ok(None);
            };
            LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input))?)
        }
        plan => plan.clone(),
    }))
}

/// Whether a plan gives columns of early groups.
pub(super) fn has_early_groups(plan: &LogicalPlan) -> bool {
    let mut fields = plan.schema().fields().iter();
    fields.any(|field| field.name().starts_with(KEY) || field.name().starts_with(VALUE))
}

fn is_joined(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => is_inner(join),
        LogicalPlan::Filter(filter) => is_joined(&filter.input),
        _ => false,
    }
}

pub(super) fn is_inner(join: &Join) -> bool {
    join.join_type == JoinType::Inner
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.null_aware
}

/// Whether a plan gives all rows of a table.
fn is_whole_table(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => is_whole_table(&alias.input),
        LogicalPlan::TableScan(TableScan { filters, fetch, .. }) => {
            filters.is_empty() && fetch.is_none()
        }
        _ => false,
    }
}

fn reads(expr: &Expr, plan: &LogicalPlan) -> bool {
    let columns = expr.column_refs();
    columns
        .iter()
        .any(|column| plan.schema().has_column(column))
}

/// Whether an expression is over the columns of one plan.
fn is_of(expr: &Expr, plan: &LogicalPlan) -> bool {
    let columns = expr.column_refs();
    let has = |column: &&Column| plan.schema().has_column(column);
    !columns.is_empty() && columns.iter().all(has)
}
