//! The keys of the build side as sets: those of each key column that a scan could test, and those of several columns
//! together, which leave fewer rows where no column alone does, and which star pipelines alone test.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::NullEquality;
use datafusion::error::Result as QueryResult;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::HashJoinExec;
use parking_lot::Mutex;

use super::listeners::Listeners;
use super::spec::Spec;
use crate::scan::is_key_type;
use crate::star::{InKeys, KeyCollector, key_words};

/// The sets of a join's keys.
pub(super) struct KeySets {
    columns: Vec<KeyColumns>,
    /// For each of them.
    sets: Mutex<Vec<KeyCollector>>,
    /// Whether NULL is a key like others: the join takes two of them for equal. The other side's NULLs find one that is
    /// in the build side, and every test of a set would drop them.
    nulls_are_equal: bool,
}

/// Columns whose keys are in a set together.
struct KeyColumns {
    /// Their numbers among the columns of the build side.
    numbers: Vec<usize>,
    /// The other side's keys.
    others: Vec<Arc<dyn PhysicalExpr>>,
}

impl KeySets {
    /// Sets without keys yet.
    pub fn of(join: &HashJoinExec, spec: &Spec, listeners: &Listeners) -> Self {
        let pairs = spec.join.on.iter().zip(join.on());
        let keys = pairs.map(|((number, _), (_, other))| (*number, other.clone()));
        let keys: Vec<(usize, Arc<dyn PhysicalExpr>)> = keys.collect();
        let is_word = |(number, _): &&(usize, _)| is_key_type(spec.left.data_type(*number));
        let together: KeyColumns = keys.iter().filter(is_word).cloned().collect();
        let alone = keys.into_iter().map(|key| KeyColumns::from_iter([key]));
        let together =
            Some(together).filter(|together| together.numbers.len() > 1 && listeners.have_star);
        let columns: Vec<KeyColumns> = alone.chain(together).collect();
        let set = |columns: &KeyColumns| {
            let types = columns.numbers.iter();
            let types: Vec<&DataType> = types.map(|number| spec.left.data_type(*number)).collect();
            KeyCollector::of(&types)
        };
        Self {
            sets: Mutex::new(columns.iter().map(set).collect()),
            columns,
            nulls_are_equal: join.null_equality() == NullEquality::NullEqualsNull,
        }
    }

    /// Has what is remembered accounted for.
    pub fn account(&self, context: &TaskContext) {
        let mut sets = self.sets.lock();
        for set in sets.iter_mut().filter(|set| set.is_open()) {
            let consumer = MemoryConsumer::new("join keys for a scan");
            set.account(consumer.register(context.memory_pool()));
        }
    }

    /// Takes rows of the build side into account. Hashes are computed by all that build at the same time.
    pub fn add(&self, batch: &RecordBatch) -> QueryResult<()> {
        for (idx, columns) in self.columns.iter().enumerate() {
            if !self.sets.lock()[idx].is_open() {
                continue;
            }
            let keys = columns.of(batch);
            let has_null = || keys.iter().any(|keys| keys.logical_null_count() > 0);
            if self.nulls_are_equal && has_null() {
                self.sets.lock()[idx].give_up();
                continue;
            }
            let words = key_words(&keys)?;
            self.sets.lock()[idx].add(&words)?;
        }
        Ok(())
    }

    /// What rows of the other side have to meet to find a partner. Where a column alone has no key twice, it leaves
    /// about as many rows as several together would.
    pub fn finish(&self) -> Vec<InKeys> {
        let mut tests: Vec<InKeys> = Vec::new();
        let mut sets = self.sets.lock();
        for (set, columns) in sets.iter_mut().zip(&self.columns) {
            let is_needed = columns.others.len() == 1 || !tests.iter().any(InKeys::is_unique);
            match is_needed {
                true => tests.extend(set.finish(columns.others.clone())),
                false => set.give_up(),
            }
        }
        tests
    }
}

impl KeyColumns {
    fn of(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        let keys = self.numbers.iter().map(|number| batch.column(*number));
        keys.cloned().collect()
    }
}

impl FromIterator<(usize, Arc<dyn PhysicalExpr>)> for KeyColumns {
    fn from_iter<I: IntoIterator<Item = (usize, Arc<dyn PhysicalExpr>)>>(keys: I) -> Self {
        let (numbers, others) = keys.into_iter().unzip();
        Self { numbers, others }
    }
}
