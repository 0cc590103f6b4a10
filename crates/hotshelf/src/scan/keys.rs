//! What became known about join keys while a query runs, as conditions on the scan's columns: rows need to meet them,
//! and the joins check that.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::datasource::source::DataSource;
use datafusion::physical_expr::expressions::{CaseExpr, CastExpr, InListExpr, Literal};
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::filters::{DynamicFilter, IntegerRange, word_list};
use super::source::TableScan;
use crate::index::{Condition, JOIN_KEYS_MAX, JoinKeys, KeyList, among, column_of, literal_as};

/// The keys that rows may have.
struct Keys {
    /// By index in the scan's output.
    columns: Vec<usize>,
    /// Values for these columns, without NULL.
    values: HashSet<Vec<ScalarValue>>,
}

impl TableScan {
    /// Whether joins may tell while they run which integers they need, and no index or sort has a say in its rows.
    pub fn waits_for_keys(&self) -> bool {
        let is_of_words = |filter: &DynamicFilter| {
            let columns = collect_columns(&filter.expr);
            let mut types = columns
                .iter()
                .filter_map(|column| Some(self.schema.fields().get(column.index())?.data_type()));
            types.any(|data_type| data_type.is_integer() || data_type.is_temporal())
        };
        let is_plain = self.first.is_none() && !self.numbers_rows && self.access.elf.is_none();
        is_plain && self.dynamic.iter().any(is_of_words)
    }

    /// The share of its rows that is expected to pass its filters, unless all of these are ranges and lists of words,
    /// which a star tests in the order that is best: then all of them.
    pub fn share_left_by_filters(&self) -> f64 {
        let is_of_words = |filter: &Arc<dyn PhysicalExpr>| {
            IntegerRange::of(filter).is_some() || word_list(filter, &self.schema).is_some()
        };
        let rows = self.table.statistics.num_rows.get_value();
        let passing = self.partition_statistics(None).ok();
        let passing = passing.and_then(|passing| passing.num_rows.get_value().copied());
        match rows.zip(passing) {
            Some((rows, passing))
                if !self.filters.iter().all(|filter| is_of_words(&filter.expr)) =>
            {
                passing as f64 / (*rows).max(1) as f64
            }
            _ => 1.0,
        }
    }

    /// The share of its rows that the rest of the query needs, by what has become known by now that the scan can test,
    /// and by a sample of the rows. Without a sample, none.
    pub fn share_needed(&self) -> f64 {
        let sample = self.table.sample.get();
        let share = |part: &Arc<dyn PhysicalExpr>| {
            let passing = sample
                .as_deref()
                .and_then(|sample| sample.passing_physically(part, &self.table.schema));
            passing.map_or(0.0, |passing| {
                passing.count_set_bits() as f64 / passing.len().max(1) as f64
            })
        };
        let shares = self.dynamic.iter().flat_map(|filter| {
            let parts = filter.tested_parts(&self.env.vortex);
            parts.map_or(vec![0.0], |parts| parts.iter().map(share).collect())
        });
        shares.fold(1.0, f64::min)
    }

    /// What filters say by now about the table's columns.
    pub(super) fn join_keys(&self, filters: &[DynamicFilter]) -> JoinKeys {
        let mut known = JoinKeys::default();
        for filter in filters {
            let Some(expr) = filter.expr_now() else {
                continue;
            };
            for part in split_conjunction(&expr) {
                if filter.is_exact(part) {
                    self.add_part(part, &mut known);
                }
            }
        }
        known
    }

    /// The condition that a column of the output has one of some values, which may be of a wider type.
    pub(super) fn listed<'v>(
        &self,
        column: usize,
        values: impl IntoIterator<Item = &'v ScalarValue>,
    ) -> Option<Condition> {
        let data_type = self.schema.field(column).data_type();
        let values = values.into_iter();
        let values: Vec<ScalarValue> = values
            .filter_map(|value| narrow(value, data_type))
            .collect();
        let found = among(column, &values, &self.schema)?;
        Some(Condition {
            column: *self.columns.get(found.column)?,
            ..found
        })
    }

    fn add_part(&self, part: &Arc<dyn PhysicalExpr>, known: &mut JoinKeys) {
        let Some(lists) = self.lists(part) else {
            known.conditions.extend(self.condition(part));
            return;
        };
        for list in lists {
            if list.values.len() > JOIN_KEYS_MAX {
                continue;
            }
            for (place, column) in list.columns.iter().enumerate() {
                let values: HashSet<_> = list.values.iter().map(|key| &key[place]).collect();
                known.conditions.extend(self.listed(*column, values));
            }
            if list.columns.len() > 1 {
                known.lists.extend(self.key_list(&list));
            }
        }
    }

    /// The keys in the Elf's words.
    fn key_list(&self, list: &Keys) -> Option<KeyList> {
        let columns = list.columns.iter();
        let columns = columns.map(|column| self.columns.get(*column).copied());
        let key = |values: &Vec<ScalarValue>| {
            let pairs = values.iter().zip(&list.columns);
            let values = pairs.map(|(value, column)| literal_as(value, *column, &self.schema));
            values.collect::<Option<Vec<_>>>()
        };
        Some(KeyList {
            columns: columns.collect::<Option<_>>()?,
            keys: list.values.iter().map(key).collect::<Option<_>>()?,
        })
    }

    /// The lists of a predicate that is made of them; `None` if it is of another kind.
    fn lists(&self, part: &Arc<dyn PhysicalExpr>) -> Option<Vec<Keys>> {
        if let Some(list) = part.downcast_ref::<InListExpr>() {
            return (!list.negated()).then(|| self.keys_of(list).into_iter().collect());
        }
        // One alternative for each partition of a join.
        let case = part.downcast_ref::<CaseExpr>()?;
        let thens = case.when_then_expr().iter().map(|(_, then)| then);
        let mut all: Option<Vec<Keys>> = None;
        for then in thens.chain(case.else_expr()) {
            let Some(lists) = self.alternative(then) else {
                continue;
            };
            all = Some(match all {
                None => lists,
                Some(all) => either(all, lists),
            });
        }
        Some(all.unwrap_or_default())
    }

    /// The lists that an alternative has beside other conditions; `None` if no row meets it.
    fn alternative(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Vec<Keys>> {
        let mut lists = Vec::new();
        for part in split_conjunction(expr) {
            if let Some(literal) = part.downcast_ref::<Literal>()
                && *literal.value() == ScalarValue::Boolean(Some(false))
            {
                return None;
            }
            lists.extend(self.lists(part).unwrap_or_default());
        }
        Some(lists)
    }

    /// The column of the output that a key is, under a wider type or its own.
    fn key_column(&self, key: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let Some(cast) = key.downcast_ref::<CastExpr>() else {
            return column_of(key, &self.schema);
        };
        let column = column_of(cast.expr(), &self.schema)?;
        widens(self.schema.field(column).data_type(), cast.cast_type()).then_some(column)
    }

    /// The values in a list of values, or of structs of several, for those columns that an index can have.
    fn keys_of(&self, list: &InListExpr) -> Option<Keys> {
        let subjects = match list.expr().downcast_ref::<ScalarFunctionExpr>() {
            Some(call) if call.name() == "struct" => call.args(),
            Some(_) => return None,
            None => std::slice::from_ref(list.expr()),
        };
        let is_struct = list.expr().is::<ScalarFunctionExpr>();
        let places = subjects.iter().enumerate();
        let places = places.filter_map(|(place, subject)| Some((place, self.key_column(subject)?)));
        let (places, columns): (Vec<usize>, Vec<usize>) = places.unzip();
        let mut values = HashSet::new();
        for literal in list.list() {
            let literal = literal.downcast_ref::<Literal>()?.value();
            let key = match is_struct {
                true => fields(literal, &places)?,
                false => vec![literal.clone()],
            };
            if key.iter().any(ScalarValue::is_null) {
                continue;
            }
            let pairs = key.iter().zip(&columns);
            let narrowed = pairs.map(|(value, column)| {
                let data_type = self.schema.field(*column).data_type();
                narrow(value, data_type)
            });
            values.extend(narrowed.collect::<Option<Vec<_>>>());
        }
        (!columns.is_empty()).then_some(Keys { columns, values })
    }
}

/// Whether each value of a type is one of another, and different ones stay different.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::Decimal128;
    match (from, to) {
        (Decimal128(digits, scale), Decimal128(wider, finer)) => {
            let whole = |digits: &u8, scale: &i8| i16::from(*digits) - i16::from(*scale);
            finer >= scale && whole(wider, finer) >= whole(digits, scale)
        }
        (from, to) if from.is_integer() && to.is_integer() => {
            let is_larger = to.primitive_width() > from.primitive_width();
            from == to || is_larger && (to.is_signed_integer() || from.is_unsigned_integer())
        }
        (from, to) => from.is_string() && to.is_string(),
    }
}

/// A value as one of a narrower type, if it is one.
fn narrow(value: &ScalarValue, data_type: &DataType) -> Option<ScalarValue> {
    let own = value.data_type();
    if own == *data_type || own.is_string() && data_type.is_string() {
        return Some(value.clone());
    }
    let narrowed = value.cast_to(data_type).ok()?;
    let is_equal = !narrowed.is_null() && narrowed.cast_to(&own).ok()? == *value;
    is_equal.then_some(narrowed)
}

/// Some fields of a struct.
fn fields(value: &ScalarValue, places: &[usize]) -> Option<Vec<ScalarValue>> {
    let ScalarValue::Struct(fields) = value else {
        return None;
    };
    let field = |place: &usize| ScalarValue::try_from_array(fields.columns().get(*place)?, 0).ok();
    places.iter().map(field).collect()
}

/// What holds if one of two alternatives does: each list of columns that both have.
fn either(all: Vec<Keys>, mut lists: Vec<Keys>) -> Vec<Keys> {
    let merge = |mut keys: Keys| {
        let same = |other: &Keys| other.columns == keys.columns;
        let other = lists.iter().position(same)?;
        keys.values.extend(lists.swap_remove(other).values);
        Some(keys)
    };
    all.into_iter().filter_map(merge).collect()
}
