//! Which share of a table's rows the predicates of a scan keep.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::split_conjunction;

use super::column::{COMPARISON, ColumnEstimate, EQUALITY, PATTERN, PREFIX, number, together};
use super::distribution::Distribution;
use super::sample::{SampledRows, Tries};
use crate::table::Table;

type Predicate = Arc<dyn PhysicalExpr>;

/// The columns of a table. Predicates know them by name: their numbers are those of an operator above the scan.
struct Columns<'a> {
    schema: &'a SchemaRef,
    statistics: &'a Statistics,
    sample: Option<&'a SampledRows>,
}

/// The share of a table's rows that pass all of some predicates: by a sample of its rows, and where that says little,
/// by what the statistics know about its columns.
pub(crate) fn kept_share<'a>(
    predicates: impl Iterator<Item = &'a Predicate>,
    schema: &SchemaRef,
    statistics: &Statistics,
    sample: Option<&SampledRows>,
) -> f64 {
    let columns = Columns {
        schema,
        statistics,
        sample,
    };
    let parts: Vec<&Predicate> = predicates.flat_map(split_conjunction).collect();
    let Some(sample) = sample else {
        return columns.share_of_all(&parts);
    };
    let mut tries = Tries::new(sample, None);
    let mut others = Vec::new();
    for part in parts {
        match sample.passing_physically(part, schema) {
            Some(own) => tries.add(own, columns.share(part)),
            None => others.push(part),
        }
    }
    let mut shares = vec![columns.share_of_all(&others)];
    shares.extend(tries.finish().map(|(share, _)| share));
    together(shares)
}

/// Fewer values for columns of a table, of these numbers, that predicates compare with values.
pub(crate) fn narrow<'a>(
    statistics: &mut [ColumnStatistics],
    numbers: &[usize],
    predicates: impl Iterator<Item = &'a Predicate>,
    table: &Table,
) {
    let columns = Columns {
        schema: &table.schema,
        statistics: &table.statistics,
        sample: None,
    };
    for part in predicates.flat_map(split_conjunction) {
        let Some((number, values)) = columns.narrowed(part) else {
            continue;
        };
        let mut places = numbers.iter().zip(statistics.iter_mut());
        if let Some((_, column)) = places.find(|(own, _)| **own == number) {
            let left = Precision::Inexact(values.max(1.0) as usize);
            column.distinct_count = column.distinct_count.min(&left);
        }
    }
}

impl Columns<'_> {
    /// The number of the column that a predicate compares with values, and how many of its values pass.
    fn narrowed(&self, predicate: &Predicate) -> Option<(usize, f64)> {
        if let Some((column, low, high)) = self.range(predicate) {
            let (left, _) = self.estimate(column)?.within(low, high)?;
            return Some((self.schema.index_of(column).ok()?, left.domain));
        }
        if let Some(list) = predicate.downcast_ref::<InListExpr>() {
            let column = column_name(list.expr()).filter(|_| !list.negated())?;
            return Some((self.schema.index_of(column).ok()?, list.list().len() as f64));
        }
        let binary = predicate.downcast_ref::<BinaryExpr>()?;
        match binary.op() {
            Operator::Eq => {
                let (column, ..) = compared(binary)?;
                Some((self.schema.index_of(column).ok()?, 1.0))
            }
            Operator::Or => {
                let (left, right) = (
                    self.narrowed(binary.left())?,
                    self.narrowed(binary.right())?,
                );
                (left.0 == right.0).then_some((left.0, left.1 + right.1))
            }
            _ => None,
        }
    }

    /// The share of rows that pass all of some predicates.
    fn share_of_all(&self, parts: &[&Predicate]) -> f64 {
        // Several bounds of a column are one range.
        let mut ranges: HashMap<&str, (ColumnEstimate, f64)> = HashMap::new();
        let mut shares = Vec::new();
        for predicate in parts {
            let Some((column, low, high)) = self.range(predicate) else {
                shares.push(self.share(predicate));
                continue;
            };
            let (known, share) = match ranges.get(column) {
                Some(range) => *range,
                None => match self.estimate(column) {
                    Some(estimate) => (estimate, 1.0 - estimate.nulls),
                    None => continue,
                },
            };
            let (narrowed, part) = known.within(low, high).unwrap_or((known, COMPARISON));
            ranges.insert(column, (narrowed, share * part));
        }
        shares.extend(ranges.into_values().map(|(_, share)| share));
        together(shares)
    }

    /// The share of rows whose column is within a range.
    fn share_within(&self, column: &str, low: f64, high: f64) -> Option<f64> {
        let known = self.estimate(column)?;
        let unit = if known.is_whole { 1.0 } else { 0.0 };
        let spread = self.spread(column);
        let spread = spread.and_then(|spread| spread.share_within(low, high, unit));
        spread.or_else(|| Some(known.within(low, high)?.1))
    }

    /// How a column's values are spread.
    fn spread(&self, column: &str) -> Option<Arc<Distribution>> {
        let number = self.schema.index_of(column).ok()?;
        self.sample?.distribution(number, None)
    }

    /// The share of rows that have one value of a column, which is not a frequent one.
    fn share_of_one(&self, expr: &Predicate) -> Option<f64> {
        let domain = self.domain(expr)?;
        let spread = column_name(expr).and_then(|column| self.spread(column));
        let rare = spread.and_then(|spread| spread.rare_share(domain));
        Some(rare.unwrap_or(1.0 / domain))
    }

    fn estimate(&self, column: &str) -> Option<ColumnEstimate> {
        let rows = *self.statistics.num_rows.get_value()? as f64;
        let (idx, field) = self.schema.column_with_name(column)?;
        let known = self.statistics.column_statistics.get(idx)?;
        Some(ColumnEstimate::of_table(known, field.data_type(), rows))
    }

    /// The column that a predicate compares with a number, and the range that it leaves.
    fn range<'a>(&self, predicate: &'a Predicate) -> Option<(&'a str, f64, f64)> {
        let binary = predicate.downcast_ref::<BinaryExpr>()?;
        let (column, value, op) = compared(binary)?;
        let value = number(value)?;
        let is_whole = self.estimate(column)?.is_whole && value.fract() == 0.0;
        let step = if is_whole { 1.0 } else { 0.0 };
        match op {
            Operator::Lt => Some((column, f64::MIN, value - step)),
            Operator::LtEq => Some((column, f64::MIN, value)),
            Operator::Gt => Some((column, value + step, f64::MAX)),
            Operator::GtEq => Some((column, value, f64::MAX)),
            _ => None,
        }
    }

    /// The share of rows that pass a predicate.
    fn share(&self, predicate: &Predicate) -> f64 {
        if let Some((column, low, high)) = self.range(predicate) {
            return self.share_within(column, low, high).unwrap_or(COMPARISON);
        }
        if let Some(binary) = predicate.downcast_ref::<BinaryExpr>() {
            return self.of_binary(binary);
        }
        if let Some(list) = predicate.downcast_ref::<InListExpr>() {
            let values = list.list().len() as f64;
            let share = match self.share_of_one(list.expr()) {
                Some(share) => (values * share).min(1.0),
                None => (values * EQUALITY).min(0.5),
            };
            return if list.negated() { 1.0 - share } else { share };
        }
        if let Some(like) = predicate.downcast_ref::<LikeExpr>() {
            let share = of_pattern(like.pattern());
            return if like.negated() { 1.0 - share } else { share };
        }
        if let Some(not) = predicate.downcast_ref::<NotExpr>() {
            return 1.0 - self.share(not.arg());
        }
        let nulls = |expr: &Predicate| {
            let column = expr.downcast_ref::<Column>()?;
            Some(self.estimate(column.name())?.nulls)
        };
        if let Some(is_null) = predicate.downcast_ref::<IsNullExpr>() {
            return nulls(is_null.arg()).unwrap_or(EQUALITY);
        }
        if let Some(is_not_null) = predicate.downcast_ref::<IsNotNullExpr>() {
            return 1.0 - nulls(is_not_null.arg()).unwrap_or(EQUALITY);
        }
        COMPARISON
    }

    fn of_binary(&self, binary: &BinaryExpr) -> f64 {
        let (left, right) = (binary.left(), binary.right());
        let equal = || {
            let shares = [self.share_of_one(left), self.share_of_one(right)];
            let least = shares.into_iter().flatten().reduce(f64::min);
            least.unwrap_or(EQUALITY)
        };
        match binary.op() {
            Operator::And => together(vec![self.share(left), self.share(right)]),
            Operator::Or => 1.0 - (1.0 - self.share(left)) * (1.0 - self.share(right)),
            Operator::Eq | Operator::IsNotDistinctFrom => equal(),
            Operator::NotEq | Operator::IsDistinctFrom => 1.0 - equal(),
            _ => COMPARISON,
        }
    }

    /// How many values a column could have.
    fn domain(&self, expr: &Predicate) -> Option<f64> {
        let column = expr.downcast_ref::<Column>()?;
        Some(self.estimate(column.name())?.domain.max(1.0))
    }
}

/// A column, what it is compared with, and how, the column on the left.
fn compared(binary: &BinaryExpr) -> Option<(&str, &ScalarValue, Operator)> {
    let (left, right) = (binary.left(), binary.right());
    match (
        left.downcast_ref::<Literal>(),
        right.downcast_ref::<Literal>(),
    ) {
        (None, Some(value)) => Some((column_name(left)?, value.value(), *binary.op())),
        (Some(value), None) => Some((column_name(right)?, value.value(), binary.op().swap()?)),
        _ => None,
    }
}

fn column_name(expr: &Predicate) -> Option<&str> {
    Some(expr.downcast_ref::<Column>()?.name())
}

/// The share of texts that are like a pattern.
fn of_pattern(pattern: &Predicate) -> f64 {
    let text = pattern.downcast_ref::<Literal>();
    let text = text.and_then(|literal| literal.value().try_as_str().flatten());
    match text {
        Some(text) if !text.starts_with(['%', '_']) => PREFIX,
        _ => PATTERN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::{in_list, lit};

    #[test]
    fn shares_follow_bounds_and_distinct_values() {
        let fields = ["z", "a"].map(|name| Field::new(name, DataType::Int32, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let bound = |value: i32| Precision::Exact(ScalarValue::Int32(Some(value)));
        let statistics = Statistics {
            num_rows: Precision::Exact(1_000),
            total_byte_size: Precision::Absent,
            column_statistics: vec![
                ColumnStatistics::new_unknown(),
                ColumnStatistics {
                    null_count: Precision::Exact(0),
                    distinct_count: Precision::Inexact(50),
                    min_value: bound(1),
                    max_value: bound(100),
                    ..ColumnStatistics::new_unknown()
                },
            ],
        };
        // As operators above a scan see it, which may give other columns.
        let a = || Arc::new(Column::new("a", 0)) as Predicate;
        let is = |op, value: i32| Arc::new(BinaryExpr::new(a(), op, lit(value))) as Predicate;
        let share =
            |predicates: &[Predicate]| kept_share(predicates.iter(), &schema, &statistics, None);
        assert_eq!(share(&[]), 1.0);
        assert_eq!(share(&[is(Operator::Eq, 7)]), 0.02);
        assert_eq!(share(&[is(Operator::LtEq, 25)]), 0.25);
        let both = [is(Operator::Gt, 50), is(Operator::LtEq, 60)];
        assert!((share(&both) - 0.1).abs() < 1e-9);
        assert_eq!(share(&[is(Operator::Gt, 100)]), 0.0);
        let list = in_list(a(), vec![lit(1), lit(2)], &false, &schema).unwrap();
        assert_eq!(share(&[list]), 0.04);
    }
}
