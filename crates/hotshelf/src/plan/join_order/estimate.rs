//! How many rows a part of a logical plan gives, and what its columns are like.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, FetchType, Join, JoinType, LogicalPlan, TableScan,
};

use super::sampled::Sampled;
use super::selectivity::filtered;
use crate::statistics::column::ColumnEstimate;
use crate::statistics::row_bounds::RowBounds;
use crate::stored_table::StoredTable;

/// A column with fewer distinct values, by its table's rows, is not a key in any case.
const KEY_SHARE_MIN: f64 = 0.5;

/// The rows of a part of a plan.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    pub rows: f64,
    /// Rows before predicates dropped some.
    pub unfiltered: f64,
    /// Rows of the largest table below.
    pub table_rows: f64,
    /// What holds of the number of rows.
    pub bounds: RowBounds,
    /// In the order of the plan's schema.
    pub columns: Vec<ColumnEstimate>,
    /// Where all rows are of one table, a sample of them.
    pub sampled: Option<Sampled>,
}

impl Estimate {
    /// The column that a plan's expression is, if it is one.
    pub fn column(&self, column: &Column, schema: &DFSchema) -> Option<&ColumnEstimate> {
        self.columns.get(schema.maybe_index_of_column(column)?)
    }

    /// What is expected of an expression's values.
    pub fn of_expr(&self, expr: &Expr, schema: &DFSchema) -> ColumnEstimate {
        match expr {
            Expr::Column(column) => {
                let known = self.column(column, schema).copied();
                known.unwrap_or_else(|| ColumnEstimate::unknown(self.rows))
            }
            Expr::Alias(alias) => self.of_expr(&alias.expr, schema),
            Expr::Cast(cast) => self.of_expr(&cast.expr, schema).computed(),
            Expr::TryCast(cast) => self.of_expr(&cast.expr, schema).computed(),
            _ => {
                let columns = expr.column_refs().into_iter();
                let counts = columns.filter_map(|column| self.column(column, schema));
                let values = counts.map(|column| column.distinct).product::<f64>();
                ColumnEstimate::unknown(values.min(self.rows))
            }
        }
    }

    /// The same with this share of its rows.
    pub fn thinned(self, share: f64) -> Self {
        let columns = self.columns.into_iter();
        let columns = columns.map(|column| column.thinned(share, self.rows));
        Self {
            rows: (self.rows * share).max(1.0).min(self.rows),
            bounds: self.bounds.thinned(),
            columns: columns.collect(),
            ..self
        }
    }

    fn limited(self, rows: f64) -> Self {
        let share = rows / self.rows.max(1.0);
        let bounds = self.bounds.first(rows);
        match share < 1.0 {
            true => Self {
                bounds,
                ..self.thinned(share)
            },
            false => Self { bounds, ..self },
        }
    }
}

/// The rows of a plan; `None` where there is a table without statistics.
pub(crate) fn estimate(plan: &LogicalPlan) -> Option<Estimate> {
    match plan {
        LogicalPlan::TableScan(scan) => of_scan(scan),
        LogicalPlan::Filter(filter) => {
            let input = estimate(&filter.input)?;
            Some(filtered(input, &filter.predicate, filter.input.schema()))
        }
        LogicalPlan::Projection(projection) => {
            let input = estimate(&projection.input)?;
            let exprs = projection.expr.iter();
            let columns = exprs.map(|expr| input.of_expr(expr, projection.input.schema()));
            let columns = columns.collect();
            let sampled = input.sampled.as_ref();
            let sampled =
                sampled.map(|rows| rows.projected(&projection.expr, projection.input.schema()));
            Some(Estimate {
                columns,
                sampled,
                ..input
            })
        }
        LogicalPlan::SubqueryAlias(alias) => estimate(&alias.input),
        LogicalPlan::Sort(sort) => {
            let input = estimate(&sort.input)?;
            Some(input.limited(sort.fetch.map_or(f64::MAX, |rows| rows as f64)))
        }
        LogicalPlan::Repartition(repartition) => estimate(&repartition.input),
        LogicalPlan::Limit(limit) => {
            let input = estimate(&limit.input)?;
            let input = match limit.get_fetch_type() {
                Ok(FetchType::Literal(Some(rows))) => input.limited(rows as f64),
                _ => input,
            };
            Some(Estimate {
                bounds: input.bounds.thinned(),
                ..input
            })
        }
        LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let input = estimate(input)?;
            let groups = group_count(input.columns.iter(), input.rows);
            let keys = input.columns.len();
            Some(grouped(input, groups, keys))
        }
        LogicalPlan::Join(join) => of_join(join),
        LogicalPlan::Window(window) => {
            let mut input = estimate(&window.input)?;
            let unknown = ColumnEstimate::unknown(input.rows);
            input.columns.resize(window.schema.fields().len(), unknown);
            input.sampled = None;
            Some(input)
        }
        LogicalPlan::Union(union) => of_union(plan, &union.inputs),
        LogicalPlan::Values(values) => {
            let rows = values.values.len() as f64;
            Some(unknown(plan, rows, RowBounds::exactly(rows)))
        }
        LogicalPlan::EmptyRelation(_) => {
            Some(unknown(plan, 1.0, RowBounds::exactly(1.0).thinned()))
        }
        _ => None,
    }
}

fn of_union(union: &LogicalPlan, inputs: &[Arc<LogicalPlan>]) -> Option<Estimate> {
    let inputs = inputs.iter().map(|input| estimate(input));
    let inputs = inputs.collect::<Option<Vec<_>>>()?;
    let rows = inputs.iter().map(|input| input.rows).sum();
    let bounds = inputs.iter().map(|input| input.bounds);
    let bounds = bounds.fold(RowBounds::exactly(0.0), RowBounds::plus);
    Some(unknown(union, rows, bounds))
}

/// Rows that are known by their number alone.
fn unknown(plan: &LogicalPlan, rows: f64, bounds: RowBounds) -> Estimate {
    let columns = vec![ColumnEstimate::unknown(rows); plan.schema().fields().len()];
    Estimate {
        rows,
        unfiltered: rows,
        table_rows: rows,
        bounds,
        columns,
        sampled: None,
    }
}

fn of_scan(scan: &TableScan) -> Option<Estimate> {
    let provider = source_as_provider(&scan.source).ok()?;
    let statistics = provider.statistics()?;
    let rows = *statistics.num_rows.get_value()? as f64;
    let bounds = match statistics.num_rows {
        Precision::Exact(_) => RowBounds::exactly(rows),
        _ => RowBounds::UNKNOWN,
    };
    let fields = scan.source.schema();
    let columns = match &scan.projection {
        Some(picked) => picked.clone(),
        None => (0..fields.fields().len()).collect(),
    };
    let stored = provider.downcast_ref::<StoredTable>();
    let sampled = stored.and_then(|stored| Sampled::of(&stored.table, &columns));
    let columns = columns.into_iter().map(|idx| {
        let known = statistics.column_statistics.get(idx)?;
        let data_type = fields.fields().get(idx)?.data_type();
        let column = ColumnEstimate::of_table(known, data_type, rows);
        // Others are seen to repeat by their number.
        let may_be_key = column.distinct >= rows * KEY_SHARE_MIN;
        let repeats = may_be_key && stored.is_some_and(|stored| stored.table.repeats(idx));
        let unique = stored.and_then(|stored| stored.table.unique.get(idx));
        Some(ColumnEstimate {
            repeats,
            is_unique: unique == Some(true),
            ..column
        })
    });
    let mut scanned = Estimate {
        rows,
        unfiltered: rows,
        table_rows: rows,
        bounds,
        columns: columns.collect::<Option<_>>()?,
        sampled,
    };
    for predicate in &scan.filters {
        scanned = filtered(scanned, predicate, &scan.projected_schema);
    }
    Some(scanned.limited(scan.fetch.map_or(f64::MAX, |rows| rows as f64)))
}

fn of_aggregate(aggregate: &Aggregate) -> Option<Estimate> {
    let input = estimate(&aggregate.input)?;
    let schema = aggregate.input.schema();
    let keys = aggregate.group_expr.iter();
    let keys: Vec<_> = keys.map(|key| input.of_expr(key, schema)).collect();
    let sampled = input.sampled.as_ref();
    let combinations =
        sampled.and_then(|rows| rows.combinations(&aggregate.group_expr, schema, input.rows));
    let groups = group_count(keys.iter(), input.rows).min(combinations.unwrap_or(f64::MAX));
    let key_count = keys.len();
    let mut columns = keys;
    columns.resize(
        aggregate.schema.fields().len(),
        ColumnEstimate::unknown(groups),
    );
    let has_sets = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let grouped = grouped(Estimate { columns, ..input }, groups, key_count);
    Some(match has_sets {
        // Each set has groups of its own, and keys of others are NULL there.
        true => Estimate {
            bounds: RowBounds::UNKNOWN,
            columns: computed(&grouped.columns),
            ..grouped
        },
        false => grouped,
    })
}

/// How many combinations of values rows have at most.
fn group_count<'a>(keys: impl Iterator<Item = &'a ColumnEstimate>, rows: f64) -> f64 {
    let combinations = keys.map(|key| key.distinct).product::<f64>();
    combinations.min(rows).max(1.0)
}

/// Columns of which no more is sure than that their values are among those.
fn computed(columns: &[ColumnEstimate]) -> Vec<ColumnEstimate> {
    columns.iter().map(|column| column.computed()).collect()
}

/// Groups of rows whose first columns are this many keys.
fn grouped(rows: Estimate, groups: f64, keys: usize) -> Estimate {
    let columns = rows.columns.into_iter().enumerate();
    let columns = columns.map(|(idx, column)| ColumnEstimate {
        distinct: column.distinct.min(groups),
        repeats: false,
        // Among the groups by one key, each value is there once.
        is_unique: keys == 1 && idx == 0,
        ..column
    });
    Estimate {
        rows: groups,
        unfiltered: groups,
        table_rows: rows.table_rows,
        bounds: match keys {
            0 => RowBounds::exactly(1.0),
            _ => rows.bounds.thinned(),
        },
        columns: columns.collect(),
        sampled: None,
    }
}

/// A join inside of a part that is not taken apart.
fn of_join(join: &Join) -> Option<Estimate> {
    let (left, right) = (estimate(&join.left)?, estimate(&join.right)?);
    let keys: Vec<_> = join
        .on
        .iter()
        .map(|(a, b)| {
            let left = left.of_expr(a, join.left.schema());
            (left, right.of_expr(b, join.right.schema()))
        })
        .collect();
    let table_rows = left.table_rows.max(right.table_rows);
    let matches = left.rows * right.rows / pair_count(&keys, left.unfiltered, right.unfiltered);
    let both = |rows: f64| Estimate {
        rows: rows.max(1.0),
        unfiltered: rows.max(1.0),
        table_rows,
        bounds: RowBounds::UNKNOWN,
        columns: [computed(&left.columns), computed(&right.columns)].concat(),
        sampled: None,
    };
    let semi = |side: &Estimate, other: &Estimate| {
        let shares = keys.iter().map(|(a, b)| (a.domain, b.domain));
        let share = shares.map(|(a, b)| a.min(b) / a.max(b)).product::<f64>();
        let covered = (other.rows / other.unfiltered.max(1.0)).min(1.0);
        (side.clone(), (share * covered).clamp(0.0, 1.0))
    };
    let condition = join.filter.as_ref();
    let condition = |rows: Estimate| match condition {
        Some(predicate) => filtered(rows, predicate, &join.schema),
        None => rows,
    };
    Some(match join.join_type {
        JoinType::Inner => condition(both(matches)),
        JoinType::Left => both(matches.max(left.rows)),
        JoinType::Right => both(matches.max(right.rows)),
        JoinType::Full => both(matches.max(left.rows + right.rows)),
        JoinType::LeftSemi => {
            let (side, share) = semi(&left, &right);
            side.thinned(share)
        }
        JoinType::RightSemi => {
            let (side, share) = semi(&right, &left);
            side.thinned(share)
        }
        JoinType::LeftAnti => left.thinned(0.5),
        JoinType::RightAnti => right.thinned(0.5),
        JoinType::LeftMark | JoinType::RightMark => {
            let mut side = match join.join_type {
                JoinType::LeftMark => left,
                _ => right,
            };
            side.columns.push(ColumnEstimate::unknown(2.0));
            side.sampled = None;
            side
        }
    })
}

/// How many combinations of key values rows of two sides are spread over: of one row of each, one pair in this many
/// belongs together. With several keys, one side's rows bound the combinations; which side's is not known, so that
/// the middle of both bounds is taken.
pub(super) fn pair_count(
    keys: &[(ColumnEstimate, ColumnEstimate)],
    left_rows: f64,
    right_rows: f64,
) -> f64 {
    let each = keys
        .iter()
        .map(|(a, b)| (a.common_domain(b), b.common_domain(a)));
    let each: Vec<_> = each.collect();
    let all = each.iter().map(|(a, b)| a.max(*b)).product::<f64>();
    if keys.len() < 2 {
        return all.max(1.0);
    }
    let left = each.iter().map(|(a, _)| a).product::<f64>().min(left_rows);
    let right = each.iter().map(|(_, b)| b).product::<f64>();
    let right = right.min(right_rows);
    (left * right).sqrt().clamp(1.0, all.max(1.0))
}
