//! Probing from a thread, and its share of what remains in the end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow_array::RecordBatch;

use super::HashJoin;
use super::cursor::{Cursor, Step};
use super::layout::Block;
use super::rest::{Next, Work};
use super::run::Run;
use super::spec::Side;
use super::table::Tables;
use crate::Result;
use crate::batches::{piece_rows, with_schema};
use crate::partitions::{Scatter, partition_of};

/// Probes with right rows, and then takes part in what remains.
pub struct Prober {
    join: Arc<HashJoin>,
    /// The table, until there are no more rows.
    tables: Option<Arc<Tables>>,
    is_last: bool,
    /// The rows of a batch that come next.
    batch: Option<RecordBatch>,
    piece_rows: usize,
    cursor: Cursor,
    is_probing: bool,
    scatter: Scatter,
    block: Block,
    work: Option<Work>,
    /// The pair it has worked on, while there is nothing to do.
    own: Option<Arc<Run>>,
    /// The changes of the join that it knows about.
    seen: u64,
}

impl Prober {
    /// Without tables it only takes part in what remains.
    pub(super) fn new(join: &Arc<HashJoin>, tables: Option<Arc<Tables>>) -> Self {
        Self {
            join: Arc::clone(join),
            tables,
            is_last: false,
            batch: None,
            piece_rows: 1,
            cursor: Cursor::default(),
            is_probing: false,
            scatter: Scatter::default(),
            block: Block::default(),
            work: None,
            own: None,
            seen: 0,
        }
    }

    /// Adds a batch of right rows, after [`Self::next_batch`] has returned `None`.
    ///
    /// # Errors
    /// Columns that are not those of the schema.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        assert!(
            self.batch.is_none() && !self.is_probing,
            "output of the last batch remains"
        );
        let batch = with_schema(batch, &self.join.shared.plan.spec.right)?;
        self.piece_rows = piece_rows(&batch);
        self.batch = Some(batch);
        Ok(())
    }

    /// The next batch of output. `None` means that [`Self::push`] or [`Self::finish`] comes next, and the end after
    /// [`Self::finish`]. Then this waits until all probers have finished, and each takes a share of the rows without
    /// partners and of what was spilled. It also waits while there is nothing to do for it until others have done
    /// theirs: so each prober needs a thread of its own.
    ///
    /// # Errors
    /// Those of spilling, those of the condition, and if Arrow cannot encode a column.
    /// [`Stopped`](crate::OperatorError::Stopped), also where another prober failed or was dropped while it worked on
    /// what remains.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match self.next_step()? {
                Step::Batch(batch) => return Ok(Some(batch)),
                Step::Pause => {}
                Step::Later => self.join.wait(self.seen),
                Step::End => return Ok(None),
            }
        }
    }

    /// As [`Self::next_batch`], but with a pause where much work comes to nothing, and without waiting for other
    /// probers: after [`Step::Later`], [`Self::later`] says when to call this again.
    ///
    /// # Errors
    /// Those of [`Self::next_batch`].
    pub fn next_step(&mut self) -> Result<Step> {
        if let Some(tables) = self.tables.clone() {
            return self.probe(&tables);
        }
        self.work()
    }

    /// After [`Step::Later`]: ends when there may be something to do. A raised flag does not end it.
    pub fn later(&self) -> impl Future<Output = ()> + Send + use<> {
        let (join, seen) = (Arc::clone(&self.join), self.seen);
        poll_fn(move |context| join.poll_change(seen, context))
    }

    /// Whether right rows make a difference: not if no left row can be their partner and they count only with one.
    pub fn needs_rows(&self) -> bool {
        let plan = &self.join.shared.plan;
        let is_void = |tables: &Arc<Tables>| tables.is_void();
        let finds_none = self.tables.as_ref().is_some_and(is_void);
        !finds_none || plan.keeps_lonely(Side::Right) || plan.spec.null_aware
    }

    /// Whether [`Self::next_batch`] and [`Self::finish`] may wait for the device or for other threads.
    pub fn may_wait(&self) -> bool {
        let tables = self.tables.as_ref();
        tables.is_none_or(|tables| !tables.is_complete())
    }

    /// Notes that there are no more right rows.
    ///
    /// # Errors
    /// Those of spilling.
    pub fn finish(&mut self) -> Result<()> {
        if self.tables.take().is_some() {
            self.is_last = self.join.finish_probing()?;
        }
        Ok(())
    }

    /// Whether this has been the last prober of its join to finish. What remains can be left to it and its helpers.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    fn probe(&mut self, tables: &Tables) -> Result<Step> {
        let join = Arc::clone(&self.join);
        let shared = &join.shared;
        loop {
            shared.environment.stop.check()?;
            if self.is_probing {
                let probing = shared.probing(tables, Side::Right, true);
                match self.cursor.step(probing)? {
                    Step::End => self.is_probing = false,
                    step => return Ok(step),
                }
            }
            let Some(batch) = self.batch.take() else {
                return Ok(Step::End);
            };
            let rows = batch.num_rows().min(self.piece_rows);
            if rows < batch.num_rows() {
                self.batch = Some(batch.slice(rows, batch.num_rows() - rows));
            }
            self.begin(tables, &batch.slice(0, rows))?;
        }
    }

    fn begin(&mut self, tables: &Tables, batch: &RecordBatch) -> Result<()> {
        let plan = &self.join.shared.plan;
        let rows = &mut self.cursor.rows;
        plan.rows_of(Side::Right, batch, tables.needs_hashes(), rows)?;
        if !tables.is_complete() {
            let keys = &rows.keys;
            self.join.probed_rows.fetch_add(keys.len() as u64, Relaxed);
            self.scatter.sort(keys.hashes(), |row, hash| {
                let is_absent = !tables.is_resident(hash) && keys.has_key(row);
                is_absent.then(|| partition_of(hash, 0))
            });
            if !self.scatter.is_empty() {
                let layout = plan.layout(Side::Right);
                layout.pack(keys, &rows.columns, &mut self.block)?;
                self.join.probe.append_sorted(&self.scatter, &self.block)?;
            }
        }
        let probing = self.join.shared.probing(tables, Side::Right, true);
        self.cursor.start(probing);
        self.is_probing = true;
        Ok(())
    }

    /// Takes part in what remains when all right rows have arrived.
    fn work(&mut self) -> Result<Step> {
        let shared = &self.join.shared;
        loop {
            let worked = match &mut self.work {
                Some(Work::Scan(tables, scan)) => {
                    scan.next(shared.probing(tables, Side::Right, true))
                }
                Some(Work::Share(share)) => share.next(shared, &mut self.cursor, &mut self.scatter),
                None => Ok(None),
            };
            if let Ok(Some(batch)) = worked {
                return Ok(Step::Batch(batch));
            }
            // Others do not wait for what has failed.
            let done = self.work.take();
            if let Err(error) = worked {
                self.join.break_off();
                return Err(error);
            }
            let own = match done {
                Some(Work::Share(share)) => Some(self.join.end_share(*share)),
                _ => self.own.take(),
            };
            let (next, seen) = self.join.next_work(own.as_ref())?;
            self.seen = seen;
            match next {
                Next::Work(work) => self.work = Some(work),
                Next::Later => {
                    self.own = own;
                    return Ok(Step::Later);
                }
                Next::End => return Ok(Step::End),
            }
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        if self.tables.is_some() {
            self.join.abandon();
        }
        if self.work.is_some() {
            self.join.break_off();
        }
    }
}
