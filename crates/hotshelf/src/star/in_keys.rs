//! The keys of a join's build side, as a condition that a scan of the other side can test before the join does
//! (predicate transfer, Yang et al., CIDR 2024, with sets in place of Bloom filters). A key is a word: the value of an
//! integer, date or time column itself, or else the hash of a text, or of several such values together. Hashes of
//! 64 bits may let a row pass that has no partner, which the join drops.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use hotshelf_operators::keys::{hash_bytes, hash_word};

use super::key_set::KeySet;
use super::keys::KeyColumn;
use super::lookup::Lookup;
use super::matching::Matching;
use crate::scan::is_key_type;

/// No more build rows are remembered.
const ROWS_MAX: usize = 1 << 22;
/// Nor of keys of several columns: these are in a hash table, which is filled at random.
const SEVERAL_ROWS_MAX: usize = 1 << 20;

/// Whether one column, or several together, have one of some keys; a row with NULL has none.
#[derive(Debug, Clone)]
pub(crate) struct InKeys {
    columns: Vec<Arc<dyn PhysicalExpr>>,
    keys: Arc<Keys>,
}

/// The keys, and the memory that is accounted for them.
struct Keys {
    lookup: Lookup,
    _reservation: Option<MemoryReservation>,
}

impl InKeys {
    /// The columns that have to have a key.
    pub fn columns(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.columns
    }

    /// The keys.
    pub(super) fn lookup(&self) -> &Lookup {
        &self.keys.lookup
    }

    /// Whether a text is one of the keys, where keys are texts.
    pub fn has_text(&self, text: &[u8]) -> bool {
        self.lookup().find(hash_bytes(text)).is_some()
    }

    /// Whether no two rows of the build side have the same key, as far as that is seen at a glance.
    pub fn is_unique(&self) -> bool {
        let Some((_, bits)) = self.lookup().dense() else {
            return false;
        };
        let key_count: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
        key_count == self.lookup().row_count()
    }

    /// The condition that a column has one of some values.
    pub fn of_list(
        column: &Arc<dyn PhysicalExpr>,
        values: impl IntoIterator<Item = ScalarValue>,
    ) -> QueryResult<Option<Self>> {
        let values = ScalarValue::iter_to_array(values)?;
        let mut keys = KeyCollector::of(&[values.data_type()]);
        keys.add(&key_words(&[values])?)?;
        Ok(keys.finish(vec![column.clone()]))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.lookup.row_count())
    }
}

impl fmt::Display for InKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.columns.as_slice() {
            [column] => write!(f, "{column}")?,
            columns => {
                let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
                write!(f, "({})", columns.join(", "))?;
            }
        }
        write!(f, " IN {:?}", self.keys)
    }
}

impl PartialEq for InKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys) && self.columns == other.columns
    }
}

impl Eq for InKeys {}

impl Hash for InKeys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.columns.hash(state);
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
        let values = |column: &Arc<dyn PhysicalExpr>| {
            let values = column.evaluate(batch)?;
            values.into_array(batch.num_rows())
        };
        let values = self.columns.iter().map(values);
        let words = key_words(&values.collect::<QueryResult<Vec<_>>>()?)?;
        let words = KeyColumn::new(&words)?;
        let is_in = |row| {
            let word = words.word(row);
            word.is_some_and(|word| self.lookup().find(word).is_some())
        };
        let found: BooleanArray = (0..words.len()).map(|row| Some(is_in(row))).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.columns.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> QueryResult<Arc<dyn PhysicalExpr>> {
        if children.len() != self.columns.len() {
            return plan_err!("keys are of {} columns", self.columns.len());
        }
        Ok(Arc::new(Self {
            columns: children,
            keys: self.keys.clone(),
        }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The keys of some rows as words, NULL where a column has NULL.
pub(crate) fn key_words(columns: &[ArrayRef]) -> QueryResult<ArrayRef> {
    if let [column] = columns {
        return match is_key_type(column.data_type()) {
            true => Ok(column.clone()),
            false => text_words(column),
        };
    }
    let row_count = columns.first().map_or(0, Array::len);
    let columns = columns.iter().map(KeyColumn::new);
    let columns = columns.collect::<QueryResult<Vec<_>>>()?;
    let word = |row| word_of_several(columns.iter().map(|column| column.word(row)));
    Ok(Arc::new(UInt64Array::from_iter((0..row_count).map(word))))
}

/// The word of a key of several columns. `None`: one of them is NULL.
pub(super) fn word_of_several(mut words: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    words.try_fold(0, |hash, word| Some(hash_word(hash ^ word?)))
}

/// The words of texts, however they are stored.
fn text_words(texts: &ArrayRef) -> QueryResult<ArrayRef> {
    if let Some(dictionary) = texts.as_any_dictionary_opt() {
        let words = text_words(dictionary.values())?;
        return Ok(take(&words, dictionary.keys(), None)?);
    }
    let word = |text: Option<&str>| text.map(|text| hash_bytes(text.as_bytes()));
    let words: UInt64Array = match texts.data_type() {
        DataType::Utf8 => texts.as_string::<i32>().iter().map(word).collect(),
        DataType::LargeUtf8 => texts.as_string::<i64>().iter().map(word).collect(),
        DataType::Utf8View => texts.as_string_view().iter().map(word).collect(),
        other => return exec_err!("{other} has no keys that a scan could test"),
    };
    Ok(Arc::new(words))
}

/// Collects the keys of a build side as words, as long as they are not too many for the memory.
#[derive(Default)]
pub(crate) struct KeyCollector {
    /// `None`: they were given up.
    set: Option<KeySet>,
    rows_max: usize,
    reservation: Option<MemoryReservation>,
}

impl KeyCollector {
    /// For keys of columns of these types, if a scan could test them.
    pub fn of(types: &[&DataType]) -> Self {
        let is_known = match types {
            [data_type] => is_key_type(data_type) || data_type.is_string(),
            types => types.iter().all(|data_type| is_key_type(data_type)),
        };
        Self {
            set: is_known.then(|| KeySet::new(Matching::Semi)),
            rows_max: match types {
                [_] => ROWS_MAX,
                _ => SEVERAL_ROWS_MAX,
            },
            reservation: None,
        }
    }

    /// Whether keys are wanted.
    pub fn is_open(&self) -> bool {
        self.set.is_some()
    }

    /// Has what it holds accounted for.
    pub fn account(&mut self, reservation: MemoryReservation) {
        self.reservation.get_or_insert(reservation);
    }

    /// Takes the [`key_words`] of some rows.
    pub fn add(&mut self, words: &ArrayRef) -> QueryResult<()> {
        let Some(set) = &mut self.set else {
            return Ok(());
        };
        let is_known = set.add(words)?.is_ok();
        let bytes = set.size_bytes();
        if !is_known || set.row_count() > self.rows_max || !self.reserve(bytes) {
            self.give_up();
        }
        Ok(())
    }

    /// Forgets the keys: nothing is said about them. Gives back what was reserved.
    pub fn give_up(&mut self) {
        *self = Self::default();
    }

    fn reserve(&self, bytes: usize) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_none_or(|reservation| reservation.try_resize(bytes).is_ok())
    }

    /// The condition that columns have one of the keys, if they are known.
    pub fn finish(&mut self, columns: Vec<Arc<dyn PhysicalExpr>>) -> Option<InKeys> {
        let set = self.set.take()?;
        if !self.reserve(set.size_bytes() + set.look_up_bytes()) {
            self.give_up();
            return None;
        }
        let lookup = set.look_up_at_once().ok()?;
        self.reserve(lookup.size_bytes());
        Some(InKeys {
            columns,
            keys: Arc::new(Keys {
                lookup,
                _reservation: self.reservation.take(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        DictionaryArray, Int32Array, LargeStringArray, StringArray, StringViewArray,
    };
    use arrow::datatypes::{Field, Int8Type};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use datafusion::physical_expr::expressions::Column;

    use super::*;

    fn numbers(values: impl IntoIterator<Item = Option<i32>>) -> ArrayRef {
        Arc::new(Int32Array::from_iter(values))
    }

    fn columns(names: &[&str]) -> Vec<Arc<dyn PhysicalExpr>> {
        let column = |(idx, name): (usize, &&str)| Arc::new(Column::new(name, idx)) as _;
        names.iter().enumerate().map(column).collect()
    }

    fn collected(names: &[&str], batches: &[Vec<ArrayRef>]) -> Option<InKeys> {
        let types: Vec<&DataType> = batches[0].iter().map(Array::data_type).collect();
        let mut keys = KeyCollector::of(&types);
        for batch in batches {
            keys.add(&key_words(batch).unwrap()).unwrap();
        }
        keys.finish(columns(names))
    }

    fn found(keys: &dyn PhysicalExpr, rows: Vec<ArrayRef>) -> Vec<bool> {
        let field = |(idx, array): (usize, &ArrayRef)| {
            Field::new(idx.to_string(), array.data_type().clone(), true)
        };
        let fields: Vec<Field> = rows.iter().enumerate().map(field).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), rows).unwrap();
        let found = keys.evaluate(&batch).unwrap();
        let found = found.into_array(batch.num_rows()).unwrap();
        found.as_boolean().iter().flatten().collect()
    }

    #[test]
    fn a_column_has_keys_that_were_added_and_null_is_none() {
        let batches = [
            vec![numbers([Some(3), None, Some(-7)])],
            vec![numbers([Some(3), Some(i32::MAX)])],
        ];
        let keys = collected(&["a"], &batches).unwrap();
        assert_eq!(keys.to_string(), "a@0 IN 4 keys");
        assert!(!keys.is_unique(), "3 is there twice");
        let rows = numbers([Some(-7), Some(2), None, Some(i32::MAX), Some(3)]);
        assert_eq!(found(&keys, vec![rows]), [true, false, false, true, true]);
    }

    #[test]
    fn columns_have_keys_together_and_none_where_one_is_null() {
        let batches = [vec![
            numbers([Some(1), Some(2), None, Some(-1)]),
            numbers([Some(2), Some(1), Some(1), None]),
        ]];
        let keys = collected(&["a", "b"], &batches).unwrap();
        assert_eq!(keys.to_string(), "(a@0, b@1) IN 2 keys");
        let first = [Some(1), Some(2), Some(1), Some(2), None, Some(-1)];
        let second = [Some(2), Some(1), Some(1), Some(2), Some(1), None];
        let expected = [true, true, false, false, false, false];
        let rows = vec![numbers(first), numbers(second)];
        assert_eq!(found(&keys, rows), expected);
        // The same over columns that change places.
        let children = columns(&["b", "a"]).into_iter().rev().collect();
        let turned = Arc::new(keys.clone()).with_new_children(children).unwrap();
        assert_eq!(turned.to_string(), "(a@1, b@0) IN 2 keys");
        let rows = vec![numbers(second), numbers(first)];
        assert_eq!(found(turned.as_ref(), rows), expected);
        let one = Arc::new(keys).with_new_children(columns(&["a"]));
        assert!(one.is_err());
    }

    #[test]
    fn sides_without_rows_have_no_keys() {
        let none = numbers([]);
        let keys = collected(&["a", "b"], &[vec![none.clone(), none]]).unwrap();
        let zeros = numbers([Some(0), None]);
        assert_eq!(found(&keys, vec![zeros.clone(), zeros]), [false, false]);
    }

    #[test]
    fn texts_are_the_same_keys_however_they_are_stored() {
        let long = "a text that is longer than a view has room for";
        let build = StringArray::from(vec![Some("a"), None, Some(long), Some("")]);
        let keys = collected(&["t"], &[vec![Arc::new(build)]]).unwrap();
        assert!(keys.has_text(b"a") && keys.has_text(b"") && !keys.has_text(b"b"));
        let rows = [Some("b"), Some(long), None, Some(""), Some("a")];
        let stored: [ArrayRef; 4] = [
            Arc::new(StringArray::from_iter(rows)),
            Arc::new(LargeStringArray::from_iter(rows)),
            Arc::new(StringViewArray::from_iter(rows)),
            Arc::new(DictionaryArray::<Int8Type>::from_iter(rows)),
        ];
        for texts in stored {
            assert_eq!(found(&keys, vec![texts]), [false, true, false, true, true]);
        }
    }

    #[test]
    fn keys_are_given_up_where_memory_is_short() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 10));
        let far = numbers((0..10_000).map(|n| Some(n * 200_000 % 1_999_999_999)));
        for batch in [vec![far.clone()], vec![far.clone(), far]] {
            let types: Vec<&DataType> = batch.iter().map(Array::data_type).collect();
            let mut keys = KeyCollector::of(&types);
            keys.account(MemoryConsumer::new("keys").register(&pool));
            keys.add(&key_words(&batch).unwrap()).unwrap();
            assert_eq!(pool.reserved(), 0);
            assert!(!keys.is_open());
            assert!(keys.finish(columns(&["a", "b"])).is_none());
        }
    }

    #[test]
    fn keys_that_no_scan_tests_are_not_collected() {
        assert!(!KeyCollector::of(&[&DataType::Float64]).is_open());
        assert!(!KeyCollector::of(&[&DataType::Int64, &DataType::Utf8]).is_open());
        assert!(KeyCollector::of(&[&DataType::Int64, &DataType::Date32]).is_open());
    }
}
