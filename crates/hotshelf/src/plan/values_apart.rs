//! Aggregates that keep every value are computed apart, each by operators that spill.
//!
//! `count(DISTINCT a), count(DISTINCT b)`, medians and percentiles keep the values of all rows of a group, and cannot
//! write them to disk. Distinct values are groups of an aggregation of their own instead, and a value in the middle is
//! the one that `row_number()` finds among the sorted ones. What they come to is joined by the group's keys.

mod computed;

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, when};
use datafusion::optimizer::ApplyOrder;

use super::decisions::{all_shown, megabytes, wanted_of};
use super::is_repeatable;
use super::join_order::{Estimate, estimate};
use super::node_rule::NodeRule;
use crate::settings::{SessionSettings, Use};
use crate::statistics::sizes::{GROUP_PARTS, TABLE_ROW_BYTES, VALUE_BYTES};

/// Functions that say the same of the distinct values whether these are groups or kept by the function.
const OF_DISTINCT: [&str; 5] = ["count", "sum", "avg", "min", "max"];
/// Groups that are joined have at least this many rows each: those of fewer rows keep few values.
const GROUP_ROWS_MIN: f64 = 100.0;
/// Functions that say which value is at a rank.
const RANKED: [&str; 2] = ["median", "percentile_cont"];
/// What parts are called, before their numbers.
const PART: &str = "__part_";

/// Computes aggregates apart where their values are not expected to fit in memory, and wherever a query begins again.
pub(super) const VALUES_APART: NodeRule = NodeRule {
    name: "values_apart",
    says: None,
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, settings: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    if let LogicalPlan::Aggregate(aggregate) = plan
        && settings.operators != Use::Off
        && let Some(parts) = parts_of(aggregate)
    {
        let choice = choose(aggregate, &parts, settings)?;
        if let Some(notes) = wanted_of(settings) {
            notes.note(choice.describe(aggregate));
        }
        if choice.is_apart {
            return computed::joined(aggregate, parts).map(Some);
        }
    }
    Ok(None)
}

/// Whether aggregates are computed apart, and why.
struct Choice {
    is_apart: bool,
    reason: Reason,
}

enum Reason {
    /// Its rows may be others each time, or cost much to make.
    Rows,
    /// Nothing is known about the rows: a setting decides.
    Unknown,
    /// A setting, and this many groups of this many rows.
    Groups { groups: f64, rows: f64 },
    /// Bytes of values, and the most that one aggregation should keep.
    Bytes { kept: f64, most: u64 },
    /// It is grouped, or its rows are not those of a scan: bytes of values, and how many rows are in how many groups.
    NotCheap { kept: f64, groups: f64, rows: f64 },
}

impl Choice {
    /// What EXPLAIN VERBOSE says.
    fn describe(&self, aggregate: &Aggregate) -> String {
        let functions = all_shown(&aggregate.aggr_expr);
        let how = match self.is_apart {
            true => "computed apart",
            false => "computed together",
        };
        let reason = match self.reason {
            Reason::Rows => {
                "their rows may be others when they are read again, or take long to make".to_owned()
            }
            Reason::Unknown => "nothing is known about the rows".to_owned(),
            Reason::Groups { groups, rows } => format!(
                "hotshelf.operators is always, and about {rows:.0} rows are in about {groups:.0} groups"
            ),
            Reason::Bytes { kept, most } => format!(
                "their values take about {}, and one aggregation should take {} at most",
                megabytes(kept),
                megabytes(most as f64)
            ),
            Reason::NotCheap { kept, groups, rows } => format!(
                "they have groups, or reading their rows again takes more than a scan; their values take about {}, \
                 and about {rows:.0} rows are in about {groups:.0} groups",
                megabytes(kept)
            ),
        };
        format!("{functions}: {how}, as {reason}")
    }
}

/// Aggregates that are computed together, with their numbers among all.
enum Part {
    /// Those that keep no values.
    Plain(Vec<(usize, AggregateFunction)>),
    /// Functions of the distinct values of an expression.
    Distinct {
        value: Expr,
        functions: Vec<(usize, AggregateFunction)>,
    },
    /// Values at ranks of the sorted values of an expression.
    Ranked {
        value: Expr,
        is_distinct: bool,
        ranks: Vec<(usize, Rank)>,
    },
}

/// Where a value is among the sorted ones.
enum Rank {
    /// In the middle: a function of one or two values.
    Median(AggregateFunction),
    /// At this share of them, between 0 and 1.
    Share(f64),
}

impl Part {
    fn numbers(&self) -> Vec<usize> {
        match self {
            Self::Plain(functions) | Self::Distinct { functions, .. } => {
                functions.iter().map(|(number, _)| *number).collect()
            }
            Self::Ranked { ranks, .. } => ranks.iter().map(|(number, _)| *number).collect(),
        }
    }

    /// Bytes of the values that are kept of rows like these.
    fn kept_bytes(&self, input: &Estimate, schema: &DFSchema) -> QueryResult<f64> {
        let width = |value: &Expr| -> QueryResult<usize> {
            Ok(value
                .get_type(schema)?
                .primitive_width()
                .unwrap_or(VALUE_BYTES))
        };
        Ok(match self {
            Self::Plain(_) => 0.0,
            Self::Ranked {
                value,
                is_distinct: false,
                ..
            } => input.rows * width(value)? as f64,
            Self::Distinct { value, .. } | Self::Ranked { value, .. } => {
                let values = input.of_expr(value, schema).distinct;
                values * (width(value)? + TABLE_ROW_BYTES) as f64
            }
        })
    }

    /// Takes in what another part computes, if that is of the same values; else gives it back.
    fn absorb(&mut self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Plain(functions), Self::Plain(more)) => functions.extend(more),
            (
                Self::Distinct { value, functions },
                Self::Distinct {
                    value: other,
                    functions: more,
                },
            ) if *value == other => functions.extend(more),
            (
                Self::Ranked {
                    value,
                    is_distinct,
                    ranks,
                },
                Self::Ranked {
                    value: other,
                    is_distinct: others,
                    ranks: more,
                },
            ) if *value == other && *is_distinct == others => ranks.extend(more),
            (_, other) => return Some(other),
        }
        None
    }
}

/// Whether an aggregation has an aggregate that keeps values.
fn keeps_values(aggregate: &Aggregate) -> bool {
    aggregate.aggr_expr.iter().any(|expr| {
        let expr = match expr {
            Expr::Alias(alias) => alias.expr.as_ref(),
            expr => expr,
        };
        matches!(expr, Expr::AggregateFunction(function)
            if function.params.distinct || RANKED.contains(&function.func.name()))
    })
}

/// The parts of an aggregation; `None` if none keeps values, or they cannot be computed apart.
fn parts_of(aggregate: &Aggregate) -> Option<Vec<Part>> {
    if !keeps_values(aggregate) {
        return None;
    }
    let schema = aggregate.input.schema();
    let is_joinable = |key: &Expr| {
        let is_set = matches!(key, Expr::GroupingSet(_));
        let data_type = (!is_set).then(|| key.get_type(schema).ok()).flatten();
        // Whether NaN is NaN is another question in joins than in groups.
        data_type.is_some_and(|data_type| !data_type.is_floating() && !data_type.is_nested())
    };
    if !aggregate.group_expr.iter().all(is_joinable) {
        return None;
    }
    let mut parts: Vec<Part> = Vec::new();
    for (number, expr) in aggregate.aggr_expr.iter().enumerate() {
        let Expr::AggregateFunction(function) = expr.clone().unalias() else {
            return None;
        };
        let mut alone = Some(part_of(number, function)?);
        for part in &mut parts {
            alone = alone.and_then(|alone| part.absorb(alone));
        }
        parts.extend(alone);
    }
    Some(parts)
}

/// The part that computes one aggregate; `None` if values are kept that cannot be kept apart.
fn part_of(number: usize, function: AggregateFunction) -> Option<Part> {
    let (name, params) = (function.func.name(), &function.params);
    if RANKED.contains(&name) {
        let (value, rank) = match &params.args[..] {
            [value] if params.order_by.is_empty() => (value, Rank::Median(function.clone())),
            [value, Expr::Literal(ScalarValue::Float64(Some(share)), _)]
                if (0.0..=1.0).contains(share) =>
            {
                let is_descending = params.order_by.first().is_some_and(|order| !order.asc);
                (
                    value,
                    Rank::Share(if is_descending { 1.0 - share } else { *share }),
                )
            }
            _ => return None,
        };
        return Some(Part::Ranked {
            value: filtered(value, params)?,
            is_distinct: params.distinct,
            ranks: vec![(number, rank)],
        });
    }
    if !params.distinct {
        return Some(Part::Plain(vec![(number, function)]));
    }
    match &params.args[..] {
        [value] if OF_DISTINCT.contains(&name) && params.order_by.is_empty() => {
            Some(Part::Distinct {
                value: filtered(value, params)?,
                functions: vec![(number, function)],
            })
        }
        _ => None,
    }
}

/// An argument, NULL where the filter leaves a row out: these functions do not see NULLs.
fn filtered(value: &Expr, params: &AggregateFunctionParams) -> Option<Expr> {
    match &params.filter {
        Some(filter) => when(filter.as_ref().clone(), value.clone()).end().ok(),
        None => Some(value.clone()),
    }
}

/// Apart where the values may be more than memory has room for, and the rows can be read once for each part.
fn choose(
    aggregate: &Aggregate,
    parts: &[Part],
    settings: &SessionSettings,
) -> QueryResult<Choice> {
    let because = |is_apart: bool, reason: Reason| Ok(Choice { is_apart, reason });
    let whole = LogicalPlan::Aggregate(aggregate.clone());
    if !is_repeatable(&whole)? || picks_rows(&aggregate.input)? {
        return because(false, Reason::Rows);
    }
    let schema = aggregate.input.schema();
    let Some(input) = estimate(&aggregate.input) else {
        return because(settings.operators == Use::Always, Reason::Unknown);
    };
    let groups = aggregate.group_expr.iter();
    let plain = groups.filter(|key| matches!(key, Expr::Column(_)));
    let groups = plain.map(|key| input.of_expr(key, schema).distinct);
    let groups = groups.product::<f64>().max(1.0);
    let rows = input.rows;
    // Groups of few rows are written to disk with their values.
    let are_few = groups * GROUP_ROWS_MIN <= rows.max(GROUP_ROWS_MIN);
    if settings.operators == Use::Always {
        return because(are_few, Reason::Groups { groups, rows });
    }
    let kept = parts.iter().map(|part| part.kept_bytes(&input, schema));
    let kept = kept.sum::<QueryResult<f64>>()?;
    let all = settings.operator_bytes_max();
    let most = all / GROUP_PARTS;
    let is_large = kept > most as f64;
    let is_cheap = is_scan(&aggregate.input) && aggregate.group_expr.is_empty();
    match is_large && !is_cheap {
        true => {
            let is_apart = are_few && kept > all as f64;
            because(is_apart, Reason::NotCheap { kept, groups, rows })
        }
        false => because(is_large, Reason::Bytes { kept, most }),
    }
}

/// Whether a plan's rows may be others each time, or cost much to make: some of many, numbered where they are alike, of
/// an aggregation that depends on their order, of a query within itself, or of parts of this kind.
fn picks_rows(plan: &LogicalPlan) -> QueryResult<bool> {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::Limit(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Distinct(Distinct::On(_)) => true,
            LogicalPlan::Sort(sort) => sort.fetch.is_some(),
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source);
                let works = provider.is_ok_and(|provider| provider.is::<CteWorkTable>());
                scan.fetch.is_some() || works
            }
            LogicalPlan::Aggregate(aggregate) => {
                let is_known = |expr: &Expr| match expr.clone().unalias() {
                    Expr::AggregateFunction(function) => {
                        OF_DISTINCT.contains(&function.func.name())
                    }
                    _ => false,
                };
                keeps_values(aggregate) || !aggregate.aggr_expr.iter().all(is_known)
            }
            LogicalPlan::SubqueryAlias(alias) => alias.alias.table().starts_with(PART),
            _ => false,
        })
    })
}

/// Whether reading the rows again costs no more than a scan.
fn is_scan(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::Filter(_) | LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().into_iter().all(is_scan)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn distinct_values_are_groups_of_their_own() {
        let statements = [
            "SET hotshelf.operators = always",
            "SELECT k, count(DISTINCT v), sum(DISTINCT n) FROM t GROUP BY k",
        ];
        before_after("values_apart", &statements).is(
            "
            Projection: t.k, count(DISTINCT t.v), sum(DISTINCT t.n)
              Aggregate: groupBy=[[t.k]], aggr=[[count(DISTINCT t.v), sum(DISTINCT t.n)]]
                TableScan: t
            ",
            "
            Projection: t.k, count(DISTINCT t.v), sum(DISTINCT t.n)
              Projection: __part_0.__key_0 AS k, __part_0.__value_0 AS count(DISTINCT t.v), __part_1.__value_1 AS \
                  sum(DISTINCT t.n)
                Inner Join: __part_0.__key_0 = __part_1.__key_0
                  SubqueryAlias: __part_0
                    Aggregate: groupBy=[[__key_0]], aggr=[[count(__value) AS __value_0]]
                      Aggregate: groupBy=[[t.k AS __key_0, t.v AS __value]], aggr=[[]]
                        TableScan: t
                  SubqueryAlias: __part_1
                    Aggregate: groupBy=[[__key_0]], aggr=[[sum(__value) AS __value_1]]
                      Aggregate: groupBy=[[t.k AS __key_0, t.n AS __value]], aggr=[[]]
                        TableScan: t
            ",
        );
    }
}
