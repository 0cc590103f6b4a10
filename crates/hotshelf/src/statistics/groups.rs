//! How many groups an aggregation gives at most, by the columns that its keys are made of: rows with the same values
//! there are in the same group.

use std::collections::BTreeSet;
use std::ptr;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::origin::origin;
use crate::scan::TableScan;

/// How many groups an aggregation of these rows gives, by the values of its keys; `None` where these are not known.
/// Each grouping set has at most one for each row.
pub(super) fn group_count(aggregate: &AggregateExec, rows: &Statistics) -> Option<f64> {
    let keys = aggregate.group_expr();
    let row_count = rows.num_rows.get_value();
    let groups_max = row_count.map_or(f64::INFINITY, |rows| *rows as f64);
    let sets = keys.groups().iter().map(|is_null| {
        let own = keys.expr().iter().zip(is_null);
        let own: Vec<_> = own
            .filter_map(|((key, _), is_null)| (!is_null).then_some(key))
            .collect();
        let by_columns = combinations(own.iter().copied(), aggregate.input(), rows);
        let groups = match by_results(&own, aggregate.input(), rows) {
            Some(groups) => Some(by_columns.map_or(groups, |others| others.min(groups))),
            None => by_columns,
        };
        groups.map(|groups| groups.min(groups_max))
    });
    sets.sum()
}

/// How many combinations keys have at most where some cannot have many values, whatever they are computed of. `None` if
/// there are no such keys.
fn by_results(
    keys: &[&Arc<dyn PhysicalExpr>],
    input: &Arc<dyn ExecutionPlan>,
    rows: &Statistics,
) -> Option<f64> {
    let schema = input.schema();
    let (mut product, mut others) = (None, Vec::new());
    for key in keys {
        match most_values(key, &schema) {
            Some(values) => product = Some(product.unwrap_or(1.0) * values),
            None => others.push(*key),
        }
    }
    Some(product? * combinations(others.into_iter(), input, rows)?)
}

/// How many values an expression has at most by its last step, if that is a remainder or a test. NULL is one.
fn most_values(key: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<f64> {
    if key.data_type(schema).ok()? == DataType::Boolean {
        return Some(3.0);
    }
    if let Some(cast) = key.downcast_ref::<CastExpr>() {
        return most_values(cast.expr(), schema);
    }
    let binary = key.downcast_ref::<BinaryExpr>()?;
    let divisor = binary.right().downcast_ref::<Literal>()?.value();
    if *binary.op() != Operator::Modulo || !divisor.data_type().is_integer() {
        return None;
    }
    match divisor.cast_to(&DataType::Int64).ok()? {
        // A remainder has the sign of what is divided.
        ScalarValue::Int64(Some(divisor)) => Some(2.0 * divisor.unsigned_abs() as f64),
        _ => None,
    }
}

/// How many combinations of values some keys have at most: of columns of one scan, those that were counted in its
/// table, or as many as if they were independent; columns of several scans are taken for independent.
fn combinations<'a>(
    keys: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
    input: &Arc<dyn ExecutionPlan>,
    rows: &Statistics,
) -> Option<f64> {
    let mut columns = BTreeSet::new();
    for key in keys {
        if is_volatile(key) {
            return None;
        }
        columns.extend(collect_columns(key).iter().map(|column| column.index()));
    }
    let mut scans: Vec<Scanned> = Vec::new();
    let mut others = 1.0;
    for column in columns {
        let values = rows.column_statistics.get(column).and_then(value_count);
        let Some((scan, number)) = origin(input, column) else {
            others *= values?;
            continue;
        };
        let known = scans.iter().position(|known| ptr::eq(known.scan, scan));
        let place = known.unwrap_or_else(|| {
            scans.push(Scanned::new(scan));
            scans.len() - 1
        });
        scans[place].add(number, values);
    }
    let scans = scans.into_iter().map(Scanned::combinations);
    scans.chain([Some(others)]).product()
}

/// Columns of one scan.
struct Scanned<'a> {
    scan: &'a TableScan,
    /// Their numbers in the table.
    numbers: BTreeSet<usize>,
    /// Combinations of their values if they are independent.
    product: Option<f64>,
}

impl<'a> Scanned<'a> {
    fn new(scan: &'a TableScan) -> Self {
        Self {
            scan,
            numbers: BTreeSet::new(),
            product: Some(1.0),
        }
    }

    fn add(&mut self, number: usize, values: Option<f64>) {
        if self.numbers.insert(number) {
            let product = self.product.zip(values);
            self.product = product.map(|(product, values)| product * values);
        }
    }

    fn combinations(self) -> Option<f64> {
        let numbers: Vec<usize> = self.numbers.into_iter().collect();
        let counted = self.scan.table.combinations.counted(&numbers);
        match (counted, self.product) {
            (Some(counted), Some(product)) => Some(counted.min(product)),
            (counted, product) => counted.or(product),
        }
    }
}

/// How many values a column has; NULL is one.
fn value_count(column: &ColumnStatistics) -> Option<f64> {
    let has_nulls = column
        .null_count
        .get_value()
        .is_some_and(|count| *count > 0);
    let values = *column.distinct_count.get_value()? as f64;
    Some((values + f64::from(u8::from(has_nulls))).max(1.0))
}
