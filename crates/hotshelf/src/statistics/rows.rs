//! What is expected of the rows of an operator.
//!
//! As the engine has it, apart from groups, whose keys may be computed or have fewer combinations of values than they
//! could, and from joins: the engine divides by the values that are left of a key, as if two sides with few rows each
//! had all their values in common, and of several keys it takes one. Here rows of a table that a filter dropped still
//! count as values that a row of the other side may look for (containment; Selinger et al., SIGMOD 1979).

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, JoinType, Statistics};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};

use super::column::{common_values, number, together};
use super::groups::group_count;
use super::origin::{aggregation, hash_join};
use crate::operators::SpillingHashJoinExec;

/// What is expected of all rows of a plan.
pub(crate) fn expected(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<Arc<Statistics>> {
    Expectations::default().of(plan)
}

/// What is expected of the operators of one plan, each looked at once. To be dropped before the plan.
#[derive(Default)]
pub(crate) struct Expectations(HashMap<*const (), Arc<Statistics>>);

impl Expectations {
    /// What is expected of all rows of an operator.
    pub fn of(&mut self, plan: &Arc<dyn ExecutionPlan>) -> QueryResult<Arc<Statistics>> {
        let place = Arc::as_ptr(plan).cast();
        if let Some(known) = self.0.get(&place) {
            return Ok(known.clone());
        }
        let found = found(plan, self)?;
        self.0.insert(place, found.clone());
        Ok(found)
    }
}

fn found(plan: &Arc<dyn ExecutionPlan>, others: &mut Expectations) -> QueryResult<Arc<Statistics>> {
    let requests = plan.child_stats_requests(None);
    let children = plan.children().into_iter().zip(requests);
    let inputs = children.map(|(child, request)| match request {
        ChildStats::At(None) => others.of(child),
        ChildStats::At(Some(_)) | ChildStats::Skip => {
            Ok(Arc::new(Statistics::new_unknown(&child.schema())))
        }
    });
    let inputs = inputs.collect::<QueryResult<Vec<_>>>()?;
    let own = plan.statistics_from_inputs(&inputs, &StatisticsArgs::default())?;
    if let (Some(aggregate), [input]) = (aggregation(plan), inputs.as_slice()) {
        return Ok(grouped(own, aggregate, input));
    }
    let (Some(join), [left, right]) = (hash_join(plan), inputs.as_slice()) else {
        return Ok(own);
    };
    let own_join = plan.downcast_ref::<SpillingHashJoinExec>();
    let chosen = own_join.and_then(SpillingHashJoinExec::expected);
    let chosen = chosen.map(|expected| expected.rows);
    let Some(rows) = chosen.or_else(|| joined_rows(join, left, right)) else {
        return Ok(own);
    };
    let rows = (rows.max(1.0) as usize).min(join.fetch().unwrap_or(usize::MAX));
    Ok(with_rows(own, rows))
}

fn with_rows(statistics: Arc<Statistics>, rows: usize) -> Arc<Statistics> {
    Arc::new(Statistics {
        num_rows: Precision::Inexact(rows),
        total_byte_size: Precision::Absent,
        ..Arc::unwrap_or_clone(statistics)
    })
}

/// What the engine expects of an aggregation, unless its keys cannot have as many combinations of values.
fn grouped(own: Arc<Statistics>, aggregate: &AggregateExec, input: &Statistics) -> Arc<Statistics> {
    let keys = aggregate.group_expr();
    let is_sure = matches!(own.num_rows, Precision::Exact(_));
    let groups = match is_sure || keys.expr().is_empty() {
        true => None,
        false => group_count(aggregate, input),
    };
    // Of several grouping sets, the engine expects no more groups than rows, although each row is in a group of each.
    let is_bounded = !keys.has_grouping_set() || aggregate.limit_options().is_some();
    let rows = own.num_rows.get_value().filter(|_| is_bounded);
    let rows = rows.map_or(f64::INFINITY, |rows| *rows as f64);
    match groups {
        Some(groups) if groups < rows => with_rows(own, groups.max(1.0) as usize),
        _ => own,
    }
}

/// How many rows a join gives; `None` where that is not known.
fn joined_rows(join: &HashJoinExec, left: &Statistics, right: &Statistics) -> Option<f64> {
    let rows = |side: &Statistics| side.num_rows.get_value().map(|rows| *rows as f64);
    let (left_rows, right_rows) = (rows(left)?, rows(right)?);
    let keys = join.on().iter().map(|(a, b)| {
        let (a, b) = (Key::of(a, left)?, Key::of(b, right)?);
        Some((a, b))
    });
    let keys: Vec<(Key, Key)> = keys.collect::<Option<_>>()?;
    let pairs = keys
        .iter()
        .map(|(a, b)| 1.0 / a.values_beside(b).max(b.values_beside(a)));
    let inner = left_rows * right_rows * together(pairs.collect());
    // The share of rows of one side that find a partner among those of the other.
    let found = |of: fn(&(Key, Key)) -> (&Key, &Key), other_rows: f64| {
        let each = keys.iter().map(|pair| {
            let (own, other) = of(pair);
            other.values_among(other_rows).min(own.values) / own.values
        });
        each.fold(1.0, f64::min).clamp(0.0, 1.0)
    };
    let of_left = || left_rows * found(|(a, b)| (a, b), right_rows);
    let of_right = || right_rows * found(|(a, b)| (b, a), left_rows);
    Some(match join.join_type() {
        JoinType::Inner => inner,
        JoinType::Left => inner.max(left_rows),
        JoinType::Right => inner.max(right_rows),
        JoinType::Full => inner.max(left_rows).max(right_rows),
        JoinType::LeftSemi => of_left(),
        JoinType::RightSemi => of_right(),
        JoinType::LeftAnti => (left_rows - of_left()).max(left_rows * LONELY_MIN),
        JoinType::RightAnti => (right_rows - of_right()).max(right_rows * LONELY_MIN),
        JoinType::LeftMark => left_rows,
        JoinType::RightMark => right_rows,
    })
}

/// At least this share of rows is expected to find no partner.
const LONELY_MIN: f64 = 0.1;

/// A column by which rows are joined.
struct Key {
    /// How many values it has where no row was dropped.
    values: f64,
    /// The least and the greatest, where values are whole numbers.
    bounds: Option<(f64, f64)>,
}

impl Key {
    fn of(key: &Arc<dyn PhysicalExpr>, side: &Statistics) -> Option<Self> {
        let column = key.downcast_ref::<Column>()?;
        let known = side.column_statistics.get(column.index())?;
        let bounds = whole_bounds(known);
        let values = known.distinct_count.get_value().map(|count| *count as f64);
        let rows = side.num_rows.get_value().map(|rows| *rows as f64);
        let values = values.or(rows)?.max(1.0);
        let within = bounds.map_or(f64::INFINITY, |(low, high)| high - low + 1.0);
        Some(Self {
            values: values.min(within.max(1.0)),
            bounds,
        })
    }

    /// Values that it can have in common with another.
    fn values_beside(&self, other: &Self) -> f64 {
        common_values(self.values, self.bounds.zip(other.bounds))
    }

    /// Values that this many rows have.
    fn values_among(&self, rows: f64) -> f64 {
        // Rows that were chosen by something else have values at random.
        self.values * (1.0 - (-rows / self.values).exp())
    }
}

fn whole_bounds(column: &ColumnStatistics) -> Option<(f64, f64)> {
    let low = column.min_value.get_value()?;
    let data_type = low.data_type();
    let is_whole =
        data_type.is_integer() || matches!(data_type, arrow::datatypes::DataType::Date32);
    let high = column.max_value.get_value()?;
    let bounds = number(low)?.min(f64::MAX)..=number(high)?;
    (is_whole && !bounds.is_empty()).then(|| bounds.into_inner())
}
