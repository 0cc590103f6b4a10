//! Rows that a program computes, into a table: what generators and embedding programs use.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use hotshelf_store::placement::Placement;

use super::{ExistingTable, ImportProgress};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::operators::in_elf_order;
use crate::storage::{IfExists, NewTable};

/// Batches of one schema, computed as they are taken.
pub type BatchIter = Box<dyn Iterator<Item = RecordBatch> + Send>;

impl Database {
    /// Writes the rows of `inputs` into a table, in parallel, one data file for each input that has rows;
    /// returns the number of rows. On failure, or when the future is dropped, nothing has changed.
    ///
    /// All batches must have the columns of `schema`; when rows are appended, these must be the table's.
    ///
    /// # Errors
    /// The table exists and shall not be changed, a column's type cannot be stored, or files cannot be written.
    pub async fn import_batches(
        &self,
        table: &str,
        schema: SchemaRef,
        inputs: Vec<BatchIter>,
        existing: ExistingTable,
        progress: &ImportProgress,
    ) -> crate::Result<u64> {
        let streams = inputs.into_iter().map(|batches| {
            let stream = futures::stream::iter(batches.map(Ok));
            Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream)) as _
        });
        let streams = streams.collect();
        let rows_done = progress.rows_done.clone();
        let rows = self.add_rows(table, schema.clone(), streams, existing, rows_done);
        Ok(rows.await?)
    }

    /// Appends to a table, makes it or replaces it.
    pub(super) async fn add_rows(
        &self,
        table: &str,
        schema: SchemaRef,
        inputs: Vec<SendableRecordBatchStream>,
        existing: ExistingTable,
        rows_done: Arc<AtomicU64>,
    ) -> Result<u64> {
        let storage = self.storage();
        if let (ExistingTable::Append, Some(known)) = (existing, storage.table(table)) {
            let context = self.engine().task_context();
            let inputs =
                in_elf_order(inputs, known.order(), &context).map_err(Error::from_query)?;
            return storage.append(table, inputs, rows_done).await;
        }
        let if_exists = match existing {
            ExistingTable::Replace => IfExists::Replace,
            ExistingTable::Append | ExistingTable::Fail => IfExists::Fail,
        };
        let new = NewTable {
            name: table,
            schema,
            if_exists,
            cluster_by: &[],
            placement: Placement::default(),
        };
        storage.create_table(new, inputs, rows_done).await
    }
}
