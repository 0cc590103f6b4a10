//! Grouping sets: each row becomes one row for every set, with NULL for the keys that the set does not have, and the
//! set's number as one more key.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::error::Result as QueryResult;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, PhysicalGroupBy, evaluate_group_by};
use hotshelf_operators::OperatorError;
use hotshelf_operators::batches::slices;

use super::spec::failed;

/// Rows are given with the keys of all sets as long as these come to no more rows than this.
const SET_ROWS: usize = 1 << 16;

/// The sets of an aggregation, and what rows are with their keys.
pub(super) struct Sets {
    sets: PhysicalGroupBy,
    /// The input's columns, and after these the keys.
    schema: SchemaRef,
}

impl Sets {
    /// The sets by which rows with these columns are grouped. `None`: they are not grouped by sets.
    pub fn of(exec: &AggregateExec, input: &SchemaRef) -> Option<Self> {
        let sets = exec.group_expr();
        if sets.is_single() {
            return None;
        }
        let output = exec.schema();
        let keys = output.fields().iter().take(sets.num_group_exprs());
        // Rows may be groups of another set, whose keys are missing.
        let fields = input.fields().iter();
        let fields = fields.map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let fields: Vec<FieldRef> = fields.chain(keys.cloned()).collect();
        Some(Self {
            sets: sets.clone(),
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// The columns of rows with their keys.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Which columns the keys are.
    pub fn keys(&self) -> Range<usize> {
        let end = self.schema.fields().len();
        end - self.sets.num_group_exprs()..end
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sets.groups().len()
    }

    /// The keys of rows in the first set.
    pub fn keys_of(&self, rows: &RecordBatch) -> QueryResult<Vec<ArrayRef>> {
        let keys = evaluate_group_by(&self.sets, rows)?.into_iter().next();
        Ok(keys.unwrap_or_default())
    }

    /// Whether there is a group of all rows, also of none.
    pub fn has_empty_set(&self) -> bool {
        let mut sets = self.sets.groups().iter();
        sets.any(|set| is_empty(set))
    }

    /// The keys of the groups of empty sets, a row each.
    pub fn keys_of_empty_sets(&self) -> QueryResult<Vec<ArrayRef>> {
        let nulls = self.sets.null_expr().to_vec();
        let sets = self.sets.groups().to_vec();
        let of_nulls = PhysicalGroupBy::new(nulls.clone(), nulls, sets, true);
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let schema = Arc::new(Schema::empty());
        let row = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
        let keys = evaluate_group_by(&of_nulls, &row)?;
        let sets = keys.iter().zip(self.sets.groups());
        let empty = sets.filter(|(_, set)| is_empty(set));
        let empty: Vec<&Vec<ArrayRef>> = empty.map(|(keys, _)| keys).collect();
        let column = |number: usize| {
            let parts: Vec<&dyn Array> = empty.iter().map(|keys| keys[number].as_ref()).collect();
            Ok(concat(&parts)?)
        };
        (0..self.sets.num_group_exprs()).map(column).collect()
    }

    /// Gives rows with the keys of each set to `take`, few rows at a time where there are many sets.
    ///
    /// # Errors
    /// Those of `take`, and if a key cannot be computed.
    pub fn give(
        &self,
        batch: &RecordBatch,
        take: &mut impl FnMut(RecordBatch) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let rows = (SET_ROWS / self.sets.groups().len().max(1)).max(1);
        for part in slices(batch, rows) {
            for keys in evaluate_group_by(&self.sets, &part).map_err(failed)? {
                let columns = part.columns().iter().cloned().chain(keys);
                take(RecordBatch::try_new(
                    self.schema.clone(),
                    columns.collect(),
                )?)?;
            }
        }
        Ok(())
    }
}

/// Whether a set, which says for each key whether it does not have it, has none.
fn is_empty(set: &[bool]) -> bool {
    set.iter().all(|is_null| *is_null)
}
