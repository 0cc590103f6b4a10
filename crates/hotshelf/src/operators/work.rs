//! How an operator of `crates/operators`, whose calls block, runs in DataFusion's streams, which must not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::Fuse;
use futures::{Stream, StreamExt, TryStreamExt};
use hotshelf_operators::batches::needed_bytes;
use hotshelf_operators::spill::SpillFolder;
use hotshelf_operators::{Environment, OperatorError, Stop, TableShelf};
use hotshelf_store::data_file::TableShelves;
use hotshelf_store::shelf::Shelf;

use super::columns::Columns;
use super::memory::PoolBroker;
use crate::error::Error;
use crate::look_ups::LookUpShelf;
use crate::scan::rows_on_the_way;
use crate::settings::SessionSettings;

/// Rows are given to an operator in pieces of this many rows or bytes: each may be written to disk, and is worked on
/// where blocking is allowed. All partitions' pieces of an operator take at most one part in PIECE_PARTS of the memory.
const PIECE_ROWS: usize = 32_768;
const PIECE_BYTES: u64 = 1 << 20;
const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECE_PARTS: u64 = 32;
/// Partitions with less memory than this have less than they need for their rows on the way alone.
const PARTITION_BYTES_MIN: u64 = 8 << 20;
/// This many partitions there may be in any case.
const PARTITIONS_MIN: usize = 4;

/// What all operators of a query may hold.
pub(super) fn memory_bytes(context: &TaskContext) -> u64 {
    match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => bytes as u64,
        _ => u64::MAX,
    }
}

/// How many partitions an operator may have, where all of a query's may hold this many bytes.
pub(crate) fn partitions_max(bytes: u64) -> usize {
    let partitions = bytes / PARTITION_BYTES_MIN;
    usize::try_from(partitions).map_or(usize::MAX, |partitions| partitions.max(PARTITIONS_MIN))
}

/// Where an operator of a query gets memory and spills. What is spilled counts as one of the metrics.
pub(crate) fn environment(
    context: &TaskContext,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
) -> QueryResult<Environment> {
    let Some(spill) = context.session_config().get_extension::<SpillFolder>() else {
        return internal_err!("a session without a folder for what does not fit");
    };
    let spilled = MetricBuilder::new(metrics).spilled_bytes(partition);
    Ok(Environment {
        spilled: Arc::new(move |bytes| spilled.add(bytes as usize)),
        broker: Arc::new(PoolBroker(context.memory_pool().clone())),
        spill,
        stop: Stop::default(),
        table_shelf: None,
    })
}

/// The same for an operator that has tables: they are where `hotshelf.look_up_shelf` says.
pub(crate) fn environment_with_tables(
    context: &TaskContext,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
) -> QueryResult<Environment> {
    let environment = environment(context, metrics, partition)?;
    let config = context.session_config();
    let shelf = SessionSettings::look_up_shelf_of(config);
    if *shelf == Shelf::Dram {
        return Ok(environment);
    }
    let Some(shelves) = config.get_extension::<TableShelves>() else {
        return internal_err!("a session without the shelves of its database");
    };
    let shelf = OperatorShelf {
        shelf: LookUpShelf::open(shelf, &shelves).map_err(DataFusionError::from)?,
        accesses: MetricBuilder::new(metrics).counter("shelf_accesses", partition),
    };
    Ok(Environment {
        table_shelf: Some(Arc::new(shelf)),
        ..environment
    })
}

/// The shelf of an operator's tables, and how often it is asked, processor's cache or not.
struct OperatorShelf {
    shelf: LookUpShelf,
    accesses: Count,
}

impl TableShelf for OperatorShelf {
    fn place(&self, memory: &[u8]) {
        self.shelf.place(memory);
    }

    fn read(&self, table_bytes: u64, count: u64) {
        self.accesses.add(count as usize);
        self.shelf.read(table_bytes as usize, count);
    }

    fn update(&self, table_bytes: u64, count: u64) {
        self.accesses.add(count as usize);
        self.shelf.update(table_bytes as usize, count);
    }
}

/// Runs work that may wait for the device.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperatorError> + Send + 'static,
) -> QueryResult<T> {
    begin(work).await
}

/// Begins such work at once.
pub(super) fn begin<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperatorError> + Send + 'static,
) -> impl Future<Output = QueryResult<T>> + Send {
    let task = SpawnedTask::spawn_blocking(work);
    async move { joined(task).await?.map_err(failed) }
}

/// What a task returns.
pub(super) async fn joined<T: Send + 'static>(task: SpawnedTask<T>) -> QueryResult<T> {
    let done = task.join_unwind().await;
    done.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))
}

pub(super) fn failed(error: OperatorError) -> DataFusionError {
    Error::from(error).into()
}

/// A stream whose latest batch is on the query's account, while others work on it.
pub(super) fn handed_on(
    schema: SchemaRef,
    batches: impl Stream<Item = QueryResult<RecordBatch>> + Send + 'static,
    context: &TaskContext,
) -> SendableRecordBatchStream {
    let rows = Arc::new(rows_on_the_way(context));
    let at_end = rows.clone();
    let charged = batches.inspect_ok(move |batch| rows.resize(needed_bytes(batch) as usize));
    let end = futures::stream::poll_fn(move |_| {
        at_end.free();
        Poll::Ready(None)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, charged.chain(end)))
}

/// An operator's input, in pieces.
pub(super) struct Pieces {
    input: Fuse<SendableRecordBatchStream>,
    columns: Arc<Columns>,
    bytes_max: u64,
    /// For a piece without its latest batch, which is on the account of the operator that made it.
    rows: MemoryReservation,
}

/// Some batches of an input.
pub(super) struct Piece {
    pub batches: Vec<RecordBatch>,
    pub is_last: bool,
}

impl Pieces {
    pub fn new(
        input: SendableRecordBatchStream,
        columns: Arc<Columns>,
        context: &TaskContext,
    ) -> Self {
        let partitions = context.session_config().target_partitions().max(1) as u64;
        let bytes_max = memory_bytes(context) / (PIECE_PARTS * partitions);
        Self {
            input: input.fuse(),
            columns,
            bytes_max: bytes_max.clamp(PIECE_BYTES_MIN, PIECE_BYTES),
            rows: rows_on_the_way(context),
        }
    }

    /// A batch alone.
    pub async fn next_batch(&mut self) -> QueryResult<Option<RecordBatch>> {
        let batch = self.input.next().await.transpose()?;
        batch.map(|batch| self.columns.add(batch)).transpose()
    }

    /// The next piece. The one before has been worked on. After the last one, those that follow are empty.
    pub async fn next(&mut self) -> QueryResult<Piece> {
        let mut batches = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < PIECE_ROWS && bytes < self.bytes_max {
            self.rows.resize(bytes as usize);
            let Some(batch) = self.input.next().await.transpose()? else {
                return Ok(Piece {
                    batches,
                    is_last: true,
                });
            };
            rows += batch.num_rows();
            bytes += needed_bytes(&batch);
            batches.push(self.columns.add(batch)?);
        }
        Ok(Piece {
            batches,
            is_last: false,
        })
    }
}

/// The streams that use an operator. When the last of them is dropped before its end, the operator stops, also in the
/// middle of its work.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    stop: Stop,
    open: Arc<AtomicUsize>,
}

impl Streams {
    pub fn new(stop: Stop) -> Self {
        Self {
            stop,
            open: Arc::default(),
        }
    }

    pub fn open(&self) -> OpenStream {
        self.open.fetch_add(1, Ordering::SeqCst);
        OpenStream {
            streams: self.clone(),
            has_ended: false,
        }
    }
}

pub(super) struct OpenStream {
    streams: Streams,
    has_ended: bool,
}

impl OpenStream {
    pub fn end(&mut self) {
        self.has_ended = true;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let is_last = self.streams.open.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && !self.has_ended {
            self.streams.stop.raise();
        }
    }
}
