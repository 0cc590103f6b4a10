//! `FetchRowsExec`: columns of rows of which only the numbers are known, read when few rows are left.
//!
//! Below it a sort with a limit has compared all rows of a table by its keys alone. Rows are read some at a time: they
//! take little memory however wide they are.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::datasource::source::DataSource;
use datafusion::error::Result as QueryResult;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::stream::{once, try_unfold};
use futures::{StreamExt, TryStreamExt};
use hotshelf_operators::batches::{needed_bytes, own};

use super::work::handed_on;
use crate::scan::{TableScan, rows_on_the_way};

/// Rows in their order, of which the last column is their number, and what is read of them.
#[derive(Clone)]
pub(crate) struct FetchRowsExec {
    pub input: Arc<dyn ExecutionPlan>,
    pub fetched: Fetched,
    /// What comes out, in one partition in the order of the input.
    pub properties: Arc<PlanProperties>,
}

/// What is computed of rows with some numbers.
#[derive(Clone)]
pub(crate) struct Fetched {
    /// All rows with numbers.
    pub scan: TableScan,
    /// Columns of its output that are read.
    pub columns: Vec<usize>,
    /// Over these columns.
    pub exprs: Vec<Arc<dyn PhysicalExpr>>,
}

/// Rows that are read together at first, and bytes that they may take later: never more than twice as many rows as
/// before, whose texts may have been short.
const ROWS_AT_FIRST: usize = 32;
const BYTES_AT_ONCE: usize = 8 << 20;

/// What remains to be read.
struct Reading {
    fetched: Fetched,
    schema: SchemaRef,
    context: Arc<TaskContext>,
    numbers: VecDeque<u64>,
    rows_at_once: usize,
    account: MemoryReservation,
}

impl FetchRowsExec {
    /// The numbers of its input's rows.
    async fn numbers(&self, context: &Arc<TaskContext>) -> QueryResult<VecDeque<u64>> {
        let mut input = self.input.execute(0, context.clone())?;
        let mut numbers = VecDeque::new();
        while let Some(batch) = input.next().await.transpose()? {
            let last = batch.columns().last();
            let Some(batch) = last.and_then(|column| column.as_primitive_opt::<UInt64Type>())
            else {
                return internal_err!("rows to be read have no numbers");
            };
            numbers.extend(batch.values());
        }
        Ok(numbers)
    }

    async fn reading(self, context: Arc<TaskContext>) -> QueryResult<Reading> {
        Ok(Reading {
            numbers: self.numbers(&context).await?,
            fetched: self.fetched.clone(),
            schema: self.schema(),
            account: rows_on_the_way(&context),
            rows_at_once: ROWS_AT_FIRST,
            context,
        })
    }
}

impl Reading {
    /// The next rows. `None`: there are no more.
    async fn next(&mut self) -> QueryResult<Option<RecordBatch>> {
        if self.numbers.is_empty() {
            return Ok(None);
        }
        let most = self
            .rows_at_once
            .min(self.context.session_config().batch_size());
        let numbers: Vec<u64> = self.numbers.drain(..most.min(self.numbers.len())).collect();
        let rows = self.read(&numbers).await?;
        let row_bytes = needed_bytes(&rows) as usize / numbers.len();
        let rows_that_fit = (BYTES_AT_ONCE / row_bytes.max(1)).max(1);
        self.rows_at_once = rows_that_fit.min(2 * most);
        let rows = self.fetched.compute(&rows, self.schema.clone());
        // From here on they are on the account of what is handed on.
        self.account.free();
        rows.map(Some)
    }

    /// The rows of these numbers, in their order.
    async fn read(&mut self, numbers: &[u64]) -> QueryResult<RecordBatch> {
        let fetched = &self.fetched;
        let scan = fetched.scan.of_rows(&fetched.columns, numbers);
        let mut found = scan.open(0, self.context.clone())?;
        let mut batches = Vec::new();
        while let Some(batch) = found.next().await.transpose()? {
            // One row of a row group would keep the texts of all.
            let batch = own(batch)?;
            // For the rows as they come, and as they go out.
            self.account.grow(2 * needed_bytes(&batch) as usize);
            batches.push(batch);
            // The statement may have been interrupted, and what is in memory needs no wait.
            tokio::task::yield_now().await;
        }
        let rows = concat_batches(&found.schema(), &batches)?;
        drop(batches);
        let number = rows.num_columns() - 1;
        let found = rows.column(number).as_primitive::<UInt64Type>().values();
        let places: HashMap<u64, u64> = found.iter().copied().zip(0..).collect();
        let places = numbers.iter().map(|number| places.get(number).copied());
        let Some(places) = places.collect::<Option<Vec<u64>>>() else {
            return internal_err!("rows that were chosen are not where they were");
        };
        let stored: Vec<usize> = (0..number).collect();
        Ok(take_record_batch(
            &rows.project(&stored)?,
            &UInt64Array::from(places),
        )?)
    }
}

impl Fetched {
    fn compute(&self, rows: &RecordBatch, schema: SchemaRef) -> QueryResult<RecordBatch> {
        let count = rows.num_rows();
        let columns = self.exprs.iter();
        let columns = columns.map(|expr| expr.evaluate(rows)?.into_array(count));
        let columns = columns.collect::<QueryResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

impl ExecutionPlan for FetchRowsExec {
    fn name(&self) -> &str {
        "FetchRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        for expr in &self.fetched.exprs {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.into_iter().next() else {
            return internal_err!("rows to be read have one source");
        };
        Ok(Arc::new(Self {
            input,
            ..self.as_ref().clone()
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let partitions = self.input.output_partitioning().partition_count();
        if partition > 0 || partitions != 1 {
            return internal_err!("rows are read in partition {partition} of {partitions}");
        }
        let begun = once(self.clone().reading(context.clone()));
        let rows = begun.map_ok(|reading| {
            try_unfold(reading, |mut reading| async move {
                let rows = reading.next().await?;
                Ok(rows.map(|rows| (rows, reading)))
            })
        });
        Ok(handed_on(self.schema(), rows.try_flatten(), &context))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.fetched.scan.metrics().clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> QueryResult<Arc<Statistics>> {
        let num_rows = inputs
            .first()
            .map_or(Precision::Absent, |input| input.num_rows);
        Ok(Arc::new(Statistics {
            num_rows,
            ..Statistics::new_unknown(&self.schema())
        }))
    }
}

impl fmt::Debug for FetchRowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchRowsExec")
            .field("input", &self.input)
            .field("scan", &self.fetched.scan)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for FetchRowsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let parts = self.fetched.scan.read_of_rows(&self.fetched.columns);
        match format {
            DisplayFormatType::TreeRender => f.write_str(&parts.join("\n")),
            _ => write!(f, "FetchRowsExec: {}", parts.join(", ")),
        }
    }
}
