//! A stored table as DataFusion's planner wants it: what scans it and what appends to it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Statistics, not_impl_err};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::{TableProvider, TableType, source_as_provider};
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableScan as PlannedScan};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};

use crate::operators::in_elf_order;
use crate::scan::{ScanEnv, TableScan};
use crate::storage::Storage;
use crate::table::Table;

/// A table of a database as DataFusion's planner wants it.
#[derive(Clone)]
pub(crate) struct StoredTable {
    pub table: Arc<Table>,
    pub storage: Arc<Storage>,
    pub env: Arc<ScanEnv>,
}

impl StoredTable {
    /// The stored table that is read, if it is one.
    pub fn of(scan: &PlannedScan) -> Option<Self> {
        let provider = source_as_provider(&scan.source).ok()?;
        provider.downcast_ref::<Self>().cloned()
    }

    /// Whether an operator appends to a table whose rows are in the order of an index.
    pub fn sorts_what_it_takes(plan: &Arc<dyn ExecutionPlan>) -> bool {
        let appends = plan.downcast_ref::<DataSinkExec>();
        let sink = appends.and_then(|appends| appends.sink().downcast_ref::<AppendSink>());
        sink.is_some_and(|sink| !sink.table.order().is_empty())
    }
}

impl std::fmt::Debug for StoredTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StoredTable")
            .field(&self.table.name)
            .finish()
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.table.statistics.clone())
    }

    /// Every filter stays in the plan too; the physical push-down takes those that the scan can do exactly.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> QueryResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![
            TableProviderFilterPushDown::Unsupported;
            filters.len()
        ])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        self.table.ensure_readable()?;
        let scan = TableScan::new(
            self.env.clone(),
            self.table.clone(),
            projection.cloned(),
            limit,
            state.config_options(),
        )?;
        Ok(DataSourceExec::from_data_source(scan))
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        if insert_op != InsertOp::Append {
            return not_impl_err!(
                "{insert_op} is not supported yet; CREATE OR REPLACE TABLE … AS SELECT replaces a table"
            );
        }
        let sink = AppendSink {
            storage: self.storage.clone(),
            table: self.table.clone(),
        };
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }

    async fn delete_from(
        &self,
        _state: &dyn Session,
        _filters: Vec<Expr>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        not_impl_err!(
            "DELETE is not supported yet; CREATE OR REPLACE TABLE … AS SELECT keeps the rows you want"
        )
    }

    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        not_impl_err!(
            "UPDATE is not supported yet; CREATE OR REPLACE TABLE … AS SELECT computes new rows"
        )
    }
}

/// Appends one file per INSERT.
struct AppendSink {
    storage: Arc<Storage>,
    table: Arc<Table>,
}

impl std::fmt::Debug for AppendSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AppendSink").field(&self.table.name).finish()
    }
}

impl DisplayAs for AppendSink {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "HotshelfAppend: table={}", self.table.name)
    }
}

#[async_trait]
impl DataSink for AppendSink {
    fn schema(&self) -> &SchemaRef {
        &self.table.schema
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> QueryResult<u64> {
        let rows = in_elf_order(vec![data], self.table.order(), context)?;
        Ok(self
            .storage
            .append(&self.table.name, rows, Arc::new(AtomicU64::new(0)))
            .await?)
    }
}
