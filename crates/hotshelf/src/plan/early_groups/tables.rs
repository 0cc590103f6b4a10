//! Some tables of inner joins whose rows are grouped before the others are joined.
//!
//! Of rows that agree in everything that the other tables are joined by, and in the group keys, all are joined with the
//! same rows: their sums are joined instead, once for each of these rows (Yan and Larson, VLDB 1995).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, ExprSchemable, Filter, Join, JoinConstraint, JoinType, LogicalPlan,
};

use super::joins::Joins;
use super::values::{KEY, Values, exprs_of};
use crate::plan::join_order::{Estimate, RelSet, cannot_fail, estimate};

/// Of joins of more tables, no other ones are grouped early: there are too many ways.
const TABLES_MAX: usize = 10;

/// Inner joins, and which of the tables each of their expressions reads.
pub(super) struct Tables<'a> {
    joins: Joins<'a>,
    estimates: Vec<Estimate>,
    /// Equalities between two tables.
    pairs: Vec<[(RelSet, &'a Expr); 2]>,
    predicates: Vec<(RelSet, &'a Expr)>,
    keys: Vec<(RelSet, &'a Expr)>,
    calls: Vec<(RelSet, &'a AggregateFunction)>,
}

/// Tables whose rows may be grouped first.
pub(super) struct First {
    tables: RelSet,
    /// By what.
    pub keys: Vec<Expr>,
    /// How many there are at most.
    pub groups: f64,
}

impl<'a> Tables<'a> {
    /// None where statistics are missing, or what is computed may fail for rows that other tables drop.
    pub fn of(
        tree: &'a LogicalPlan,
        keys: &'a [Expr],
        calls: &'a [AggregateFunction],
    ) -> Option<Self> {
        let joins = Joins::of(tree).filter(|joins| joins.relations.len() <= TABLES_MAX)?;
        let estimates = joins.relations.iter().map(|table| estimate(table));
        let estimates = estimates.collect::<Option<Vec<_>>>()?;
        let side = |expr: &'a Expr| Some((RelSet::of(joins.relation_of(expr)?), expr));
        let pairs = joins.pairs.iter();
        let pairs = pairs.map(|(left, right)| Some([side(left)?, side(right)?]));
        let pairs = pairs.collect::<Option<Vec<_>>>()?;
        let read = |expr: &'a Expr| Some((joins.tables_of(expr)?, expr));
        let predicates = joins.predicates.iter().copied().map(read);
        let predicates = predicates.collect::<Option<Vec<_>>>()?;
        let read_keys = keys.iter().map(read).collect::<Option<Vec<_>>>()?;
        let read_calls = calls.iter().map(|call| {
            let mut tables = exprs_of(call).map(|expr| joins.tables_of(expr));
            let all = tables.try_fold(RelSet::EMPTY, |all, read| Some(all.union(read?)));
            Some((all?, call))
        });
        let read_calls = read_calls.collect::<Option<Vec<_>>>()?;
        let can_compute = joins.can_compute(calls.iter().flat_map(exprs_of));
        can_compute.then_some(Self {
            joins,
            estimates,
            pairs,
            predicates,
            keys: read_keys,
            calls: read_calls,
        })
    }

    /// Tables that are joined with each other and have what is aggregated, those with the fewest groups first.
    pub fn firsts(&self) -> Vec<First> {
        let all = (1_u64 << self.joins.relations.len()) - 1;
        let firsts = (1..all).filter_map(|tables| self.first(RelSet(tables)));
        let mut firsts: Vec<First> = firsts.collect();
        firsts.sort_by(|a, b| {
            let sizes = a.tables.len().cmp(&b.tables.len());
            a.groups.total_cmp(&b.groups).then(sizes)
        });
        firsts
    }

    fn first(&self, tables: RelSet) -> Option<First> {
        // That rows of other tables are there once instead of several times does not change these functions.
        let is_whole = |(read, call): &(RelSet, &AggregateFunction)| {
            matches!(call.func.name(), "min" | "max") && !read.meets(tables)
        };
        let is_early = |(read, _): &(RelSet, &AggregateFunction)| tables.contains(*read);
        let mut calls = self.calls.iter();
        let has_values = self.calls.iter().any(is_early);
        if !has_values || !calls.all(|call| is_early(call) || is_whole(call)) {
            return None;
        }
        let keys = self.early_keys(tables);
        let schema = self.joins.tree.schema();
        let are_keys = keys.iter().all(|key| is_early_key(key, schema));
        if keys.is_empty() || !are_keys || !self.are_joined(tables) {
            return None;
        }
        let groups = self.group_count(tables, &keys)?;
        Some(First {
            tables,
            keys,
            groups,
        })
    }

    /// What of these tables the other ones are joined by, or the groups are named by.
    fn early_keys(&self, tables: RelSet) -> Vec<Expr> {
        let mut early: Vec<Expr> = Vec::new();
        let mut add = |key: Expr| {
            if !early.contains(&key) {
                early.push(key);
            }
        };
        let columns_of = |expr: &Expr| {
            let columns = expr.column_refs().into_iter().cloned().map(Expr::Column);
            let of_tables = |column: &Expr| {
                let table = self.joins.relation_of(column);
                table.is_some_and(|table| tables.has(table))
            };
            let mut columns: Vec<Expr> = columns.filter(of_tables).collect();
            columns.sort_by_key(Expr::to_string);
            columns
        };
        for (read, key) in &self.keys {
            match tables.contains(*read) {
                true if read.is_empty() => {}
                true => add((*key).clone()),
                false => columns_of(key).into_iter().for_each(&mut add),
            }
        }
        for [(left, left_key), (right, right_key)] in &self.pairs {
            match (tables.contains(*left), tables.contains(*right)) {
                (true, false) => add((*left_key).clone()),
                (false, true) => add((*right_key).clone()),
                _ => {}
            }
        }
        let across = self.predicates.iter();
        let across = across.filter(|(read, _)| !tables.contains(*read));
        across.for_each(|(_, test)| columns_of(test).into_iter().for_each(&mut add));
        early
    }

    /// How many combinations of values these keys have at most.
    fn group_count(&self, tables: RelSet, keys: &[Expr]) -> Option<f64> {
        let count = |key: &Expr| {
            let relation = self.joins.relation_of(key)?;
            let schema = self.joins.relations[relation].schema();
            Some(self.estimates[relation].of_expr(key, schema).distinct)
        };
        let combinations = keys.iter().map(|key| match count(key) {
            Some(count) => Some(count),
            None => {
                let columns = key.column_refs().into_iter();
                let counts = columns.map(|column| count(&Expr::Column(column.clone())));
                counts.product()
            }
        });
        let groups = combinations.product::<Option<f64>>()?;
        let one = tables.iter().next().filter(|_| tables.len() == 1);
        let counted = one.map(|table| {
            let (rows, plan) = (&self.estimates[table], self.joins.relations[table]);
            let sampled = rows.sampled.as_ref();
            let counted = sampled.and_then(|of| of.combinations(keys, plan.schema(), rows.rows));
            counted.unwrap_or(rows.rows).min(rows.rows)
        });
        Some(groups.min(counted.unwrap_or(f64::MAX)))
    }

    /// Whether equalities join all of some tables with each other.
    fn are_joined(&self, tables: RelSet) -> bool {
        let mut joined = tables.iter().next().map_or(RelSet::EMPTY, RelSet::of);
        loop {
            let next = self.pairs.iter().find_map(|[(left, _), (right, _)]| {
                let (left, right) = (left.and(tables), right.and(tables));
                let both = left.union(right);
                let is_next = !left.is_empty() && !right.is_empty() && joined.meets(both);
                (is_next && !joined.contains(both)).then_some(both)
            });
            match next {
                Some(next) => joined = joined.union(next),
                None => return joined == tables,
            }
        }
    }

    /// What is computed of the rows of these tables; none where a sum might not have room.
    pub fn values(&self, first: &First) -> Option<Values> {
        let calls = self.calls.iter();
        let calls = calls.map(|(read, call)| (*call, first.tables.contains(*read)));
        let values = Values::of(calls);
        self.joins.can_sum(&values.parts).then_some(values)
    }

    /// The group keys of the aggregation over joined groups.
    pub fn last_keys(&self, first: &First) -> QueryResult<Vec<Expr>> {
        let keys = self.keys.iter();
        keys.map(|(_, key)| over_groups(key, &first.keys)).collect()
    }

    /// The rows that are grouped first; none where no equality joins them.
    pub fn rows(&self, first: &First) -> QueryResult<Option<LogicalPlan>> {
        let within = |tables: RelSet| first.tables.contains(tables);
        let pairs = self.pairs.iter();
        let pairs = pairs.filter(|[(left, _), (right, _)]| within(*left) && within(*right));
        let pairs = pairs.map(|sides| {
            sides
                .each_ref()
                .map(|(table, expr)| (*table, (*expr).clone()))
        });
        let predicates = self.predicates.iter().filter(|(read, _)| within(*read));
        let predicates = predicates.map(|(_, test)| (*test).clone());
        joined(
            self.parts(first.tables),
            pairs.collect(),
            predicates.collect(),
        )
    }

    /// These groups joined with the other tables; none where no equality joins them.
    pub fn with_others(
        &self,
        first: &First,
        groups: LogicalPlan,
    ) -> QueryResult<Option<LogicalPlan>> {
        let within = |tables: RelSet| first.tables.contains(tables);
        let over_groups = |expr: &Expr| over_groups(expr, &first.keys);
        let pairs = self.pairs.iter();
        let pairs = pairs.filter(|[(left, _), (right, _)]| !within(*left) || !within(*right));
        let pairs = pairs.map(|[(left, left_key), (right, right_key)]| {
            Ok([
                (*left, over_groups(left_key)?),
                (*right, over_groups(right_key)?),
            ])
        });
        let predicates = self.predicates.iter().filter(|(read, _)| !within(*read));
        let predicates = predicates.map(|(_, test)| over_groups(test));
        let all = RelSet((1 << self.joins.relations.len()) - 1);
        let mut parts = vec![(first.tables, groups)];
        parts.extend(self.parts(all.without(first.tables)));
        joined(
            parts,
            pairs.collect::<QueryResult<_>>()?,
            predicates.collect::<QueryResult<_>>()?,
        )
    }

    fn parts(&self, tables: RelSet) -> Vec<(RelSet, LogicalPlan)> {
        let part = |table: usize| (RelSet::of(table), self.joins.relations[table].clone());
        tables.iter().map(part).collect()
    }
}

/// Parts joined one after the other, each with those that an equality compares it with, and what is tested of all.
fn joined(
    parts: Vec<(RelSet, LogicalPlan)>,
    pairs: Vec<[(RelSet, Expr); 2]>,
    predicates: Vec<Expr>,
) -> QueryResult<Option<LogicalPlan>> {
    let mut rest = parts;
    if rest.is_empty() {
        return Ok(None);
    }
    let (mut tables, mut plan) = rest.remove(0);
    while !rest.is_empty() {
        let keys = |part: RelSet| {
            let pairs = pairs.iter().filter_map(|[left, right]| {
                let is_between = |a: RelSet, b: RelSet| tables.contains(a) && part.contains(b);
                let in_order =
                    is_between(left.0, right.0).then(|| (left.1.clone(), right.1.clone()));
                let turned =
                    || is_between(right.0, left.0).then(|| (right.1.clone(), left.1.clone()));
                in_order.or_else(turned)
            });
            pairs.collect::<Vec<_>>()
        };
        let next = rest.iter().enumerate().find_map(|(place, (part, _))| {
            let on = keys(*part);
            (!on.is_empty()).then_some((place, on))
        });
        let Some((place, on)) = next else {
            return Ok(None);
        };
        let (part, right) = rest.remove(place);
        plan = LogicalPlan::Join(Join::try_new(
            Arc::new(plan),
            Arc::new(right),
            on,
            None,
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?);
        tables = tables.union(part);
    }
    let Some(predicate) = conjunction(predicates) else {
        return Ok(Some(plan));
    };
    let tested = Filter::try_new(predicate, Arc::new(plan))?;
    Ok(Some(LogicalPlan::Filter(tested)))
}

/// Whether rows may be grouped by an expression before others are joined. Equal floats may differ in what is computed
/// of them.
pub(super) fn is_early_key(key: &Expr, schema: &DFSchema) -> bool {
    let data_type = key.get_type(schema);
    let is_exact = data_type.is_ok_and(|of_key| !of_key.is_floating() && !of_key.is_nested());
    is_exact && cannot_fail(key, schema)
}

/// An expression with the columns of groups in the place of their keys.
pub(super) fn over_groups(expr: &Expr, keys: &[Expr]) -> QueryResult<Expr> {
    let replace = |part: Expr| {
        let key = keys.iter().position(|key| *key == part);
        Ok(match key {
            Some(key) => {
                let column = Column::new_unqualified(format!("{KEY}_{key}"));
                let recursion = TreeNodeRecursion::Jump;
                Transformed::new(Expr::Column(column), true, recursion)
            }
            None => Transformed::no(part),
        })
    };
    expr.clone().transform_down(replace).data()
}
