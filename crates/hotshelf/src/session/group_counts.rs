//! How many combinations of values columns of a table have, as an aggregation that has run shows.

use std::ptr;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateOutputMode,
};

use crate::scan::TableScan;
use crate::star::{fallback, is_narrowed};
use crate::statistics::origin::{aggregation, column_of, origin};
use crate::statistics::rows::expected;

/// Remembers it if a part of a plan, all of whose rows were taken, gave the groups of all rows of a table by several of
/// its columns.
pub(super) fn learn(part: &Arc<dyn ExecutionPlan>) -> Option<()> {
    let last = aggregation(part).filter(|last| gives_all_groups(last))?;
    let first = first_of(part)?;
    let has_same_keys = first.group_expr().expr().len() == last.group_expr().expr().len();
    let (scan, numbers) = grouped_columns(first)?;
    if !has_same_keys || numbers.len() < 2 || is_narrowed(part) {
        return None;
    }
    let rows = scan.table.row_count();
    let input = expected(first.input()).ok()?;
    if input.num_rows == Precision::Exact(rows as usize) {
        let groups = part.metrics()?.output_rows()? as f64;
        scan.table
            .combinations
            .learn_unasked(&numbers, groups, rows);
    }
    Some(())
}

fn gives_all_groups(aggregate: &AggregateExec) -> bool {
    matches!(aggregate.mode().output_mode(), AggregateOutputMode::Final)
        && aggregate.limit_options().is_none()
        && !aggregate.group_expr().has_grouping_set()
}

/// The aggregation that takes rows, of which others up to this one merge the groups.
fn first_of(part: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let part = fallback(part).unwrap_or(part);
    if let Some(aggregate) = aggregation(part) {
        return match aggregate.mode().input_mode() {
            AggregateInputMode::Raw => Some(aggregate),
            AggregateInputMode::Partial => first_of(aggregate.input()),
        };
    }
    match part.children()[..] {
        [input] if input.schema() == part.schema() => first_of(input),
        _ => None,
    }
}

/// The scan whose columns all keys of an aggregation are, and their numbers in the table, each once.
fn grouped_columns(aggregate: &AggregateExec) -> Option<(&TableScan, Vec<usize>)> {
    let keys = aggregate.group_expr().expr().iter();
    let keys = keys.map(|(key, _)| origin(aggregate.input(), column_of(key)?));
    let keys: Vec<(&TableScan, usize)> = keys.collect::<Option<_>>()?;
    let (scan, _) = *keys.first()?;
    let is_one = keys.iter().all(|(other, _)| ptr::eq(*other, scan));
    let mut numbers: Vec<usize> = keys.into_iter().map(|(_, number)| number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    is_one.then_some((scan, numbers))
}
