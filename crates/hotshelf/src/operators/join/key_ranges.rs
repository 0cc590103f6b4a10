//! What a build side says about the rows that can match: a filter for the scan of the other side, which learns it while
//! it runs.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{NullEquality, ScalarValue};
use datafusion::error::Result as QueryResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Accumulator, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, in_list, lit};
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_functions_aggregate_common::min_max::{MaxAccumulator, MinAccumulator};
use parking_lot::Mutex;

use super::key_sets::KeySets;
use super::listeners::Listeners;
use super::spec::Spec;
use crate::index::JOIN_KEYS_MAX;
use crate::scan::is_key_type;
use crate::star::KeyColumn;

/// Build sides with more rows are not searched for different keys.
const KEY_ROWS_MAX: usize = 1 << 16;

/// The ranges of the build side's keys, and the keys themselves where they are not too many, over all its partitions.
pub(super) struct KeyRanges {
    filter: Arc<DynamicFilterPhysicalExpr>,
    /// Columns of the other side.
    others: SchemaRef,
    state: Mutex<State>,
    sets: KeySets,
}

struct State {
    /// Partitions whose rows are not all known.
    builds_open: usize,
    keys: Vec<KeyRange>,
}

/// The range of a key column.
struct KeyRange {
    /// Its number among the columns of the build side.
    column: usize,
    /// The other side's key.
    other: Arc<dyn PhysicalExpr>,
    min: MinAccumulator,
    max: MaxAccumulator,
    few: FewKeys,
    /// Whether NULL is a key like others: the join takes two of them for equal.
    nulls_are_equal: bool,
    /// Whether a row of the build side has NULL for such a key. The other side's NULLs find it, and every test here
    /// would drop them.
    finds_nulls: bool,
}

/// The keys of a column, as long as they are few.
#[derive(Default)]
struct FewKeys {
    row_count: usize,
    keys: Vec<ScalarValue>,
    /// The same, to find them: as words where they have them.
    words: HashSet<u64>,
    others: HashSet<ScalarValue>,
}

impl KeyRanges {
    /// `None`: no scan waits for them, or keys that they say nothing about.
    pub fn of(join: &HashJoinExec, spec: &Spec) -> QueryResult<Option<Self>> {
        let mut filters = join.dynamic_expressions_produced().into_iter();
        let filter =
            filters.find_map(|filter| (filter as Arc<dyn Any + Send + Sync>).downcast().ok());
        let Some(filter) = filter else {
            return Ok(None);
        };
        if join.null_aware {
            return Ok(None);
        }
        let listeners = Listeners::of(join.right(), &filter)?;
        if !listeners.are_some {
            return Ok(None);
        }
        let nulls_are_equal = join.null_equality() == NullEquality::NullEqualsNull;
        let pairs = spec.join.on.iter().zip(join.on());
        let ranges = pairs.filter_map(|((column, _), (_, other))| {
            let data_type = spec.left.data_type(*column);
            let range = || KeyRange::try_new(*column, other.clone(), data_type, nulls_are_equal);
            has_range(data_type).then(range)
        });
        let keys: Vec<KeyRange> = ranges.collect::<QueryResult<_>>()?;
        if keys.is_empty() {
            return Ok(None);
        }
        let builds_open = match join.partition_mode() {
            PartitionMode::Partitioned => join.left().output_partitioning().partition_count(),
            _ => 1,
        };
        let state = Mutex::new(State { builds_open, keys });
        let others = join.right().schema();
        Ok(Some(Self {
            filter,
            others,
            state,
            sets: KeySets::of(join, spec, &listeners),
        }))
    }

    /// Has what is remembered of the keys accounted for.
    pub fn account(&self, context: &TaskContext) {
        self.sets.account(context);
    }

    /// Takes rows of the build side into account.
    pub fn add(&self, batches: &[RecordBatch]) -> QueryResult<()> {
        batches.iter().try_for_each(|batch| self.sets.add(batch))?;
        let mut state = self.state.lock();
        for batch in batches {
            for key in &mut state.keys {
                key.add(batch)?;
            }
        }
        Ok(())
    }

    /// All rows of a partition are known. After the last one, the scan of the other side learns the ranges.
    pub fn end_build(&self) -> QueryResult<()> {
        let mut state = self.state.lock();
        state.builds_open = state.builds_open.saturating_sub(1);
        if state.builds_open > 0 {
            return Ok(());
        }
        let keys = state.keys.iter_mut();
        let ranges = keys.filter_map(|key| key.test(&self.others).transpose());
        let ranges = ranges.collect::<QueryResult<Vec<_>>>()?;
        let sets = self.sets.finish().into_iter();
        let sets = sets.map(|keys| Arc::new(keys) as Arc<dyn PhysicalExpr>);
        self.filter
            .update(conjunction(ranges.into_iter().chain(sets)))?;
        self.filter.mark_complete();
        Ok(())
    }
}

impl KeyRange {
    fn try_new(
        column: usize,
        other: Arc<dyn PhysicalExpr>,
        data_type: &DataType,
        nulls_are_equal: bool,
    ) -> QueryResult<Self> {
        Ok(Self {
            column,
            other,
            min: MinAccumulator::try_new(data_type)?,
            max: MaxAccumulator::try_new(data_type)?,
            few: FewKeys::default(),
            nulls_are_equal,
            finds_nulls: false,
        })
    }

    fn add(&mut self, batch: &RecordBatch) -> QueryResult<()> {
        let keys = batch.column(self.column);
        if self.nulls_are_equal && keys.logical_null_count() > 0 {
            self.finds_nulls = true;
        }
        if self.finds_nulls {
            return Ok(());
        }
        self.min.update_batch(std::slice::from_ref(keys))?;
        self.max.update_batch(std::slice::from_ref(keys))?;
        self.few.add(keys)
    }

    /// Whether a key of the other side lies in the range and is one of the keys, where these are few. `None`: any key
    /// may have a partner.
    fn test(&mut self, others: &Schema) -> QueryResult<Option<Arc<dyn PhysicalExpr>>> {
        if self.finds_nulls {
            return Ok(None);
        }
        let (min, max) = (self.min.evaluate()?, self.max.evaluate()?);
        if min.is_null() {
            return Ok(Some(lit(false)));
        }
        let compare = |operator, bound| {
            Arc::new(BinaryExpr::new(self.other.clone(), operator, lit(bound))) as _
        };
        let range = [compare(Operator::GtEq, min), compare(Operator::LtEq, max)];
        let listed = self.few.are_all().then(|| {
            let keys = self.few.keys.iter().cloned().map(lit).collect();
            in_list(self.other.clone(), keys, &false, others)
        });
        Ok(Some(conjunction(
            range.into_iter().chain(listed.transpose()?),
        )))
    }
}

impl FewKeys {
    fn add(&mut self, column: &ArrayRef) -> QueryResult<()> {
        self.row_count = self.row_count.saturating_add(column.len());
        match is_key_type(column.data_type()) {
            true => self.add_words(column)?,
            false => self.add_others(column)?,
        }
        if !self.are_all() {
            *self = Self {
                row_count: usize::MAX,
                ..Self::default()
            };
        }
        Ok(())
    }

    fn add_words(&mut self, column: &ArrayRef) -> QueryResult<()> {
        if !self.are_all() {
            return Ok(());
        }
        let words = KeyColumn::new(column)?;
        for (word, row) in words.words(0..words.len()) {
            if self.words.insert(word) {
                let key = ScalarValue::try_from_array(column, row as usize)?;
                self.keys.push(key);
                if !self.are_all() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn add_others(&mut self, column: &ArrayRef) -> QueryResult<()> {
        let present = (0..column.len()).filter(|row| column.is_valid(*row));
        for row in present {
            if !self.are_all() {
                break;
            }
            let key = ScalarValue::try_from_array(column, row)?;
            if self.others.insert(key.clone()) {
                self.keys.push(key);
            }
        }
        Ok(())
    }

    fn are_all(&self) -> bool {
        self.row_count <= KEY_ROWS_MAX && self.keys.len() <= JOIN_KEYS_MAX
    }
}

/// Whether comparing says the same as being equal: floating-point numbers have two zeros.
fn has_range(data_type: &DataType) -> bool {
    let is_text = matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    is_text
        || data_type.is_integer()
        || data_type.is_decimal()
        || matches!(
            data_type,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
        )
}
