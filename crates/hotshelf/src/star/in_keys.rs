//! The keys of a join's build side, as a condition that a scan of the other side can test before the join does
//! (predicate transfer, Yang et al., CIDR 2024, with exact sets in place of Bloom filters).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

use super::key_set::KeySet;
use super::keys::KeyColumn;
use super::lookup::Lookup;
use super::matching::Matching;
use crate::scan::is_key_type;

/// No more build rows are remembered.
const ROWS_MAX: usize = 1 << 22;

/// Whether a column has one of some keys; NULL has none.
#[derive(Debug, Clone)]
pub(crate) struct InKeys {
    column: Arc<dyn PhysicalExpr>,
    keys: Arc<Keys>,
}

/// The keys, and the memory that is accounted for them.
struct Keys {
    lookup: Lookup,
    _reservation: Option<MemoryReservation>,
}

impl InKeys {
    /// The column that has to have a key.
    pub fn column(&self) -> &Arc<dyn PhysicalExpr> {
        &self.column
    }

    /// The keys.
    pub(super) fn lookup(&self) -> &Lookup {
        &self.keys.lookup
    }

    /// The condition that a column has one of some values.
    pub fn of_list(
        column: &Arc<dyn PhysicalExpr>,
        values: impl IntoIterator<Item = ScalarValue>,
    ) -> QueryResult<Option<Self>> {
        let values = ScalarValue::iter_to_array(values)?;
        let mut keys = KeyCollector::of(values.data_type());
        keys.add(&values)?;
        Ok(keys.finish(column))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.lookup.row_count())
    }
}

impl fmt::Display for InKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IN {:?}", self.column, self.keys)
    }
}

impl PartialEq for InKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys) && self.column.eq(&other.column)
    }
}

impl Eq for InKeys {}

impl Hash for InKeys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
    }
}

impl PhysicalExpr for InKeys {
    fn data_type(&self, _schema: &Schema) -> QueryResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _schema: &Schema) -> QueryResult<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> QueryResult<ColumnarValue> {
        let values = self.column.evaluate(batch)?.into_array(batch.num_rows())?;
        let values = KeyColumn::new(&values)?;
        let rows = 0..values.len();
        let is_in = |row| {
            let word = values.word(row);
            word.is_some_and(|word| self.lookup().find(word).is_some())
        };
        let found: BooleanArray = rows.map(|row| Some(is_in(row))).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.column]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> QueryResult<Arc<dyn PhysicalExpr>> {
        let Ok([column]) = <[_; 1]>::try_from(children) else {
            return plan_err!("keys are of one column");
        };
        let keys = self.keys.clone();
        Ok(Arc::new(Self { column, keys }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Collects the keys of a build side, as long as they are not too many for the memory.
#[derive(Default)]
pub(crate) struct KeyCollector {
    /// `None`: they were given up.
    set: Option<KeySet>,
    reservation: Option<MemoryReservation>,
}

impl KeyCollector {
    /// For keys of this type, if a scan could test them.
    pub fn of(data_type: &DataType) -> Self {
        Self {
            set: is_key_type(data_type).then(|| KeySet::new(Matching::Semi)),
            reservation: None,
        }
    }

    /// Has what it holds accounted for.
    pub fn account(&mut self, reservation: MemoryReservation) {
        self.reservation.get_or_insert(reservation);
    }

    /// Takes the keys of some rows.
    pub fn add(&mut self, keys: &ArrayRef) -> QueryResult<()> {
        let Some(set) = &mut self.set else {
            return Ok(());
        };
        let is_known = set.add(keys)?.is_ok();
        let bytes = set.size_bytes();
        if !is_known || set.row_count() > ROWS_MAX || !self.reserve(bytes) {
            self.set = None;
            self.reservation = None;
        }
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_none_or(|reservation| reservation.try_resize(bytes).is_ok())
    }

    /// The condition that a column has one of the keys, if they are known.
    pub fn finish(&mut self, column: &Arc<dyn PhysicalExpr>) -> Option<InKeys> {
        let set = self.set.take()?;
        if !self.reserve(set.size_bytes() + set.look_up_bytes()) {
            self.reservation = None;
            return None;
        }
        let lookup = set.look_up_at_once().ok()?;
        self.reserve(lookup.size_bytes());
        Some(InKeys {
            column: column.clone(),
            keys: Arc::new(Keys {
                lookup,
                _reservation: self.reservation.take(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int32Array};
    use arrow::datatypes::Field;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use datafusion::physical_expr::expressions::col;

    use super::*;

    fn numbers(values: impl IntoIterator<Item = Option<i32>>) -> ArrayRef {
        Arc::new(Int32Array::from_iter(values))
    }

    fn column() -> (Arc<dyn PhysicalExpr>, Arc<Schema>) {
        let schema = Schema::new(vec![Field::new("a", DataType::Int32, true)]);
        (col("a", &schema).unwrap(), Arc::new(schema))
    }

    #[test]
    fn a_column_has_keys_that_were_added_and_null_is_none() {
        let mut keys = KeyCollector::of(&DataType::Int32);
        keys.add(&numbers([Some(3), None, Some(-7)])).unwrap();
        keys.add(&numbers([Some(3), Some(i32::MAX)])).unwrap();
        let (column, schema) = column();
        let found = keys.finish(&column).unwrap();
        assert_eq!(found.to_string(), "a@0 IN 4 keys");
        let rows = numbers([Some(-7), Some(2), None, Some(i32::MAX), Some(3)]);
        let batch = RecordBatch::try_new(schema, vec![rows]).unwrap();
        let found = found.evaluate(&batch).unwrap().into_array(5).unwrap();
        let found: Vec<_> = found.as_boolean().iter().flatten().collect();
        assert_eq!(found, [true, false, false, true, true]);
    }

    #[test]
    fn keys_are_given_up_where_memory_is_short() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 10));
        let mut keys = KeyCollector::of(&DataType::Int32);
        keys.account(MemoryConsumer::new("keys").register(&pool));
        let far = (0..10_000).map(|n| Some(n * 200_000 % 1_999_999_999));
        keys.add(&numbers(far)).unwrap();
        assert_eq!(pool.reserved(), 0);
        assert!(keys.finish(&column().0).is_none());
    }

    #[test]
    fn texts_are_not_collected() {
        let mut keys = KeyCollector::of(&DataType::Utf8);
        assert!(keys.finish(&column().0).is_none());
    }
}
