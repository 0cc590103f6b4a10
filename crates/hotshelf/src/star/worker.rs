//! One worker of a star pipeline: takes row groups from the scan's queue through filters and look-ups, most
//! selective first, and decodes the other columns for surviving rows only.

use std::collections::VecDeque;
use std::sync::Arc;

use super::accumulate::{arrays, output};
use super::aggregate::Groups;
use super::chunk::Decodable;
use super::prepare::{Output, Ready};
use super::rows::Rows;
use super::select::Selector;
use super::stored::Payload;
use super::survivors::Survivors;
use crate::error::{Error, Result};
use crate::prices::computed;
use crate::scan::{Morsel, filter, narrow_rows, rows_on_the_way};
use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result as QueryResult;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use hotshelf_tier::thread_time_ns;

/// Survivors that are taken on together: some columns of them as words fit in a core's second cache.
const BATCH_ROWS: usize = 4096;

/// Groups to be merged above may take one part in this many of the memory, over all workers.
const GROUP_PARTS: usize = 4;

/// The state of one worker.
pub(super) struct Worker {
    ready: Arc<Ready>,
    schema: SchemaRef,
    sink: Sink,
    reservation: MemoryReservation,
    /// For the values of survivors that are decoded at once.
    decoded: MemoryReservation,
    /// What groups may take that others merge, in bytes: a part of the memory, and half of what they had when it ran
    /// short. The rest is for those who merge them.
    group_bytes_max: usize,
    batch_rows: usize,
    selector: Selector,
    /// Row groups whose bytes have arrived.
    taken: VecDeque<Morsel>,
    /// Groups that are on their way out.
    pending: VecDeque<RecordBatch>,
    finished: bool,
    /// What the groups took when they were last put on their shelf.
    placed_bytes: usize,
}

enum Sink {
    Rows(Box<BatchCoalescer>),
    Groups(Box<Groups>),
}

impl Worker {
    pub fn new(
        ready: Arc<Ready>,
        schema: SchemaRef,
        partition: usize,
        context: &TaskContext,
    ) -> QueryResult<Self> {
        let batch_rows = context.session_config().batch_size().max(1);
        let sink = match &ready.star.output {
            Output::Groups(aggregates) => {
                let groups = Groups::new(ready.codes.as_ref(), aggregates, &schema, context)?;
                Sink::Groups(Box::new(groups))
            }
            Output::Rows(_) => {
                let coalescer = BatchCoalescer::new(schema.clone(), batch_rows);
                Sink::Rows(Box::new(coalescer))
            }
        };
        let consumer = MemoryConsumer::new(format!("StarPipelineExec[{partition}]"));
        let workers = context.session_config().target_partitions().max(1);
        let group_bytes_max = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(bytes) => bytes / (GROUP_PARTS * workers),
            _ => usize::MAX,
        };
        Ok(Self {
            selector: Selector::new(&ready),
            ready,
            schema,
            sink,
            reservation: consumer.register(context.memory_pool()),
            decoded: rows_on_the_way(context),
            group_bytes_max,
            batch_rows,
            taken: VecDeque::new(),
            pending: VecDeque::new(),
            finished: false,
            placed_bytes: 0,
        })
    }

    /// The next batch of the output.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.next_pending() {
                return Ok(Some(batch));
            }
            if let Sink::Rows(coalescer) = &mut self.sink
                && let Some(batch) = coalescer.next_completed_batch()
            {
                return Ok(Some(batch));
            }
            if self.finished {
                return Ok(None);
            }
            if self.ready.nothing {
                self.ready.queue.work.drain();
            } else if self.taken.is_empty() {
                self.taken = self.ready.queue.take().await?;
            }
            let Some(mut morsel) = self.taken.pop_front() else {
                self.finished = true;
                let last = self.finish().map_err(Error::from_query)?;
                self.pending.extend(last);
                continue;
            };
            let read = self.read(&morsel).await;
            let matched = !matches!(read, Ok(false));
            self.ready.queue.release(&mut morsel, matched);
            read?;
            // Lets a cancelled query stop here even when no read ever makes it wait.
            tokio::task::yield_now().await;
        }
    }

    /// The next groups, at most as many as a batch of the usual size has rows.
    fn next_pending(&mut self) -> Option<RecordBatch> {
        while let Some(batch) = self.pending.pop_front() {
            let rows = batch.num_rows().min(self.batch_rows);
            if rows < batch.num_rows() {
                let rest = batch.slice(rows, batch.num_rows() - rows);
                self.pending.push_front(rest);
            }
            if rows > 0 {
                return Some(batch.slice(0, rows));
            }
        }
        None
    }

    /// The remaining output when there are no more rows.
    fn finish(&mut self) -> QueryResult<Option<RecordBatch>> {
        match &mut self.sink {
            Sink::Rows(coalescer) => {
                coalescer.finish_buffered_batch()?;
                Ok(None)
            }
            Sink::Groups(groups) => groups.finish(),
        }
    }

    /// Takes a row group through the pipeline. Whether rows survived the look-ups.
    async fn read(&mut self, morsel: &Morsel) -> Result<bool> {
        let typed = |error| morsel.file.segments.typed(error);
        let ready = self.ready.clone();
        let (mask, filter_ns) = computed(filter(morsel)).await;
        let mask = mask.map_err(typed)?;
        let mask = narrow_rows(&ready.queue, morsel, mask)
            .await
            .map_err(typed)?;
        ready.queue.work.filter();
        if mask.all_false() {
            ready.queue.work.test(morsel, filter_ns);
            return Ok(false);
        }
        let tested_by = self.selector.columns(&ready);
        let mut columns = Vec::with_capacity(tested_by.len());
        for column in &tested_by {
            columns.push(ready.chunk_column(morsel, *column).await?);
            let data_type = ready.star.scan.table.schema.field(*column).data_type();
            let width = data_type.primitive_width().unwrap_or(0);
            ready.queue.work.decode_bytes((mask.len() * width) as u64);
        }
        let tested = Decodable {
            indices: &tested_by,
            columns: &columns,
        };
        let start_ns = thread_time_ns();
        let survivors = self.selector.select(&ready, tested, &mask).map_err(typed)?;
        let select_ns = thread_time_ns().saturating_sub(start_ns) as f64;
        ready.queue.work.test(morsel, filter_ns + select_ns);
        ready.wait_for_look_ups(survivors.asked, survivors.count());
        if survivors.count() == 0 {
            return Ok(false);
        }
        ready.queue.work.survive();
        let mut payload = ready.payload(morsel, (&tested_by, columns)).await?;
        let bytes = payload.decoded_bytes(survivors.count(), &ready.star);
        ready.queue.work.decode_bytes(bytes);
        if let Sink::Groups(groups) = &mut self.sink {
            let early = groups.begin_row_group().map_err(Error::from_query)?;
            self.pending.extend(early);
        }
        let part_rows = match payload.whole.is_empty() {
            true => survivors.count(),
            false => ready.queue.rows_at_once(&payload.whole_schema()),
        };
        let mut start = 0;
        while start < survivors.count() {
            let part = (start, survivors.batch_end(start, part_rows));
            let decoded = ready.decode_part(&mut payload, &survivors, part);
            let bytes = decoded.map_err(typed)?;
            ready.queue.work.decode_bytes(bytes);
            self.decoded.resize(bytes as usize);
            self.push(&survivors, &payload, part)
                .map_err(Error::from_query)?;
            start = part.1;
        }
        self.decoded.free();
        Ok(true)
    }

    /// Hands survivors to the output, a batch at a time: what expressions compute on the way stays in the core's cache.
    fn push(
        &mut self,
        survivors: &Survivors,
        payload: &Payload,
        (mut start, end): (usize, usize),
    ) -> QueryResult<()> {
        while start < end {
            let batch_end = survivors.batch_end(start, self.batch_rows.min(BATCH_ROWS));
            let batch = (start, batch_end.min(end));
            self.push_batch(survivors, payload, batch)?;
            start = batch.1;
        }
        Ok(())
    }

    fn push_batch(
        &mut self,
        survivors: &Survivors,
        payload: &Payload,
        range: (usize, usize),
    ) -> QueryResult<()> {
        let ready = self.ready.clone();
        let attached = ready.attached();
        let payload = (payload, range.0);
        let numbers = survivors.part(range);
        let buffer = self.selector.buffer();
        let mut rows = Rows::new(&ready.star.narrow, &attached, payload, numbers, buffer);
        for condition in &ready.star.filters {
            let kept = rows.set(condition)?;
            rows.keep(&kept)?;
        }
        if rows.count() == 0 {
            return Ok(());
        }
        ready.queue.work.keep(rows.count());
        let early = match (&mut self.sink, &ready.star.output) {
            (Sink::Rows(coalescer), Output::Rows(exprs)) => {
                let columns = arrays(exprs, &mut rows)?;
                coalescer.push_batch(output(&self.schema, columns, rows.count())?)?;
                return Ok(());
            }
            (Sink::Groups(groups), _) => {
                let early = groups.add(&mut rows)?;
                if !ready.shelf.is_memory() && !matches!(**groups, Groups::One(_)) {
                    let bytes = groups.size_bytes();
                    ready.shelf.update(bytes, rows.count() as u64);
                    if std::mem::replace(&mut self.placed_bytes, bytes) != bytes {
                        groups.place_on(&ready.shelf);
                    }
                }
                if early.is_some() {
                    // What was given away is the receiver's to account for.
                    self.reservation.try_resize(groups.size_bytes()).ok();
                }
                early
            }
            _ => None,
        };
        let early = match early {
            Some(early) => Some(early),
            None => self.bound_groups()?,
        };
        self.pending.extend(early);
        Ok(())
    }

    /// Accounts for the groups, and gives them away when there is no memory for more (they are merged above).
    fn bound_groups(&mut self) -> QueryResult<Option<RecordBatch>> {
        let Sink::Groups(groups) = &mut self.sink else {
            return Ok(None);
        };
        let bytes = groups.size_bytes();
        let shortage = self.reservation.try_resize(bytes).err();
        let merged = match &self.ready.star.output {
            Output::Groups(aggregates) => !aggregates.finish,
            Output::Rows(_) => false,
        };
        if !merged {
            return shortage.map_or(Ok(None), Err);
        }
        if shortage.is_some() {
            self.group_bytes_max = self.group_bytes_max.min(bytes / 2);
        } else if bytes <= self.group_bytes_max {
            return Ok(None);
        }
        let early = groups.take_early()?;
        self.reservation.try_resize(groups.size_bytes()).ok();
        match (early, shortage) {
            (None, Some(shortage)) => Err(shortage),
            (early, _) => Ok(early),
        }
    }
}
