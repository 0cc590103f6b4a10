//! A join's steps, in the order in which a stream takes them: build, probe, and what was spilled.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, Time,
};
use futures::stream::{Stream, try_unfold};
use hotshelf_operators::OperatorError;
use hotshelf_operators::join::{HashJoin, Prober, Step};

use super::super::columns::Columns;
use super::super::work::{
    OpenStream, Piece, Pieces, Streams, blocking, environment_with_tables, failed,
};
use super::key_ranges::KeyRanges;
use super::rest::{Rest, work};
use super::small_batches::SmallBatches;
use super::spec::Spec;

/// A join whose left rows are not there yet.
pub(super) struct Build {
    join: Arc<HashJoin>,
    columns: Arc<Columns>,
    key_ranges: Option<Arc<KeyRanges>>,
    streams: Streams,
    threads_max: usize,
    context: Arc<TaskContext>,
}

impl Build {
    /// A join for this many probers, begun for one partition of the output.
    pub fn begin(
        spec: &Spec,
        key_ranges: Option<Arc<KeyRanges>>,
        context: &Arc<TaskContext>,
        metrics: &ExecutionPlanMetricsSet,
        (partition, probers): (usize, usize),
    ) -> QueryResult<Self> {
        let environment = environment_with_tables(context, metrics, partition)?;
        let join = HashJoin::try_new(spec.join.clone(), &environment, probers);
        if let Some(key_ranges) = &key_ranges {
            key_ranges.account(context);
        }
        Ok(Self {
            join: join.map_err(failed)?,
            columns: spec.left.clone(),
            key_ranges,
            streams: Streams::new(environment.stop.clone()),
            threads_max: context.session_config().target_partitions().max(1),
            context: context.clone(),
        })
    }

    /// What is to be opened for each stream before the first of them may end.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Takes the rows of the left side, those of each input by a task of its own.
    pub async fn run(
        self,
        inputs: Vec<SendableRecordBatchStream>,
        baseline: &BaselineMetrics,
    ) -> QueryResult<Built> {
        let mut stream = self.streams.open();
        let threads = inputs.len().min(self.threads_max);
        let build = Arc::new(self);
        let inserts = inputs.into_iter().map(|input| {
            let elapsed = baseline.elapsed_compute().clone();
            SpawnedTask::spawn(build.clone().insert_all(input, elapsed))
        });
        let mut is_small = true;
        for insert in inserts.collect::<Vec<_>>() {
            let inserted = insert.join_unwind().await;
            is_small &=
                inserted.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
        }
        if let Some(key_ranges) = &build.key_ranges {
            key_ranges.end_build()?;
        }
        let (join, elapsed) = (build.join.clone(), baseline.elapsed_compute().clone());
        let finish = move || {
            let _timer = elapsed.timer();
            join.finish_build(if is_small { 1 } else { threads })
        };
        match is_small {
            true => finish().map_err(failed)?,
            false => blocking(finish).await?,
        }
        stream.end();
        Ok(Built(build.join.clone()))
    }

    /// Takes the rows of one input, and says whether they were few. Many are inserted where blocking is allowed.
    async fn insert_all(
        self: Arc<Self>,
        input: SendableRecordBatchStream,
        elapsed: Time,
    ) -> QueryResult<bool> {
        let mut input = Pieces::new(input, self.columns.clone(), &self.context);
        let mut builder = self.join.builder();
        let mut is_small = true;
        loop {
            let Piece { batches, is_last } = input.next().await?;
            if let Some(key_ranges) = &self.key_ranges {
                key_ranges.add(&batches)?;
            }
            let elapsed = elapsed.clone();
            let insert = move || {
                let _timer = elapsed.timer();
                let mut batches = batches.into_iter();
                batches.try_for_each(|batch| builder.insert(batch))?;
                Ok::<_, OperatorError>(builder)
            };
            is_small &= is_last;
            builder = match is_small {
                true => insert().map_err(failed)?,
                false => blocking(insert).await?,
            };
            if is_last {
                return Ok(is_small);
            }
        }
    }
}

/// A join that can be probed.
#[derive(Clone)]
pub(super) struct Built(Arc<HashJoin>);

/// What a stream of the output is made of.
pub(super) struct ProbeSide {
    pub input: Pieces,
    pub stream: OpenStream,
    pub metrics: ExecutionPlanMetricsSet,
    pub partition: usize,
    /// For what remains in the end.
    pub threads: usize,
    /// Rows that are wanted.
    pub fetch: Option<usize>,
}

impl Built {
    /// The output for a partition of the right side.
    pub fn probe(self, side: ProbeSide) -> impl Stream<Item = QueryResult<RecordBatch>> {
        let Self(join) = self;
        let begun = join.prober().map_err(failed).map(|prober| {
            let probe = Probe {
                input: Some(side.input),
                step: ProbeStep::Pull,
                given: VecDeque::new(),
                found: VecDeque::new(),
                has_ended: false,
                joined: SmallBatches::new(side.fetch),
                threads: side.threads,
                stream: side.stream,
                join,
                baseline: BaselineMetrics::new(&side.metrics, side.partition),
                metrics: side.metrics,
                partition: side.partition,
            };
            (Box::new(probe), prober)
        });
        try_unfold(begun, |begun| async move {
            let (mut probe, prober) = begun?;
            let next = probe.next(prober).await?;
            Ok(next.map(|(batch, prober)| (batch, Ok((probe, prober)))))
        })
    }
}

/// What a prober works on. The prober itself may be on another thread.
struct Probe {
    /// Dropped when it has ended.
    input: Option<Pieces>,
    step: ProbeStep,
    /// For the prober, when it has ended with the batch before.
    given: VecDeque<RecordBatch>,
    /// What it has come to, and whether that is all.
    found: VecDeque<RecordBatch>,
    has_ended: bool,
    joined: SmallBatches,
    threads: usize,
    stream: OpenStream,
    join: Arc<HashJoin>,
    baseline: BaselineMetrics,
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
}

enum ProbeStep {
    /// The prober has nothing to do.
    Pull,
    /// It has rows.
    Give,
    /// All right rows were pushed.
    Rest,
    /// It works on what remains.
    Alone,
    /// Several threads do.
    Shared(Rest),
    /// There is nothing more.
    End,
}

impl Probe {
    async fn next(&mut self, mut prober: Prober) -> QueryResult<Option<(RecordBatch, Prober)>> {
        loop {
            let batch;
            match &mut self.step {
                ProbeStep::Pull => {
                    prober = self.pull(prober).await?;
                    continue;
                }
                ProbeStep::Give if !prober.may_wait() => {
                    let step = {
                        let _timer = self.baseline.elapsed_compute().timer();
                        prober.next_step().map_err(failed)?
                    };
                    batch = match step {
                        Step::Batch(batch) => Some(batch),
                        Step::Pause | Step::Later => {
                            // There may be very many pairs, and others want to run, too.
                            tokio::task::yield_now().await;
                            continue;
                        }
                        Step::End => None,
                    };
                }
                // The last to end sees to what remains: none waits for another, which may not be read at all.
                ProbeStep::Rest if !prober.is_last() => batch = None,
                // Decided once: a prober that has begun with a pair has to end it.
                ProbeStep::Rest => {
                    let elapsed = self.baseline.elapsed_compute();
                    self.step = match self.join.waiting_pair_count() > 0 {
                        true => ProbeStep::Shared(Rest::begin(&self.join, self.threads, elapsed)),
                        false => ProbeStep::Alone,
                    };
                    continue;
                }
                ProbeStep::Give | ProbeStep::Alone => match self.found.pop_front() {
                    Some(found) => batch = Some(found),
                    None if take(&mut self.has_ended) => batch = None,
                    None => {
                        prober = self.find(prober).await?;
                        continue;
                    }
                },
                ProbeStep::Shared(rest) => batch = rest.next().await?,
                ProbeStep::End => return Ok(None),
            }
            let joined = match batch {
                Some(batch) => self.joined.push(batch)?,
                None if matches!(self.step, ProbeStep::Give) => {
                    self.step = ProbeStep::Pull;
                    continue;
                }
                None => {
                    self.stream.end();
                    if prober.is_last() {
                        self.note();
                    }
                    self.step = ProbeStep::End;
                    self.joined.take()?
                }
            };
            if let Some(batch) = joined {
                self.baseline.output_rows().add(batch.num_rows());
                return Ok(Some((batch, prober)));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Has the prober find more, where blocking is allowed.
    async fn find(&mut self, prober: Prober) -> QueryResult<Prober> {
        let elapsed = self.baseline.elapsed_compute();
        let (done, prober) = work(elapsed, prober, take(&mut self.given)).await?;
        let done = done.map_err(failed)?;
        self.found = done.batches.into();
        (self.given, self.has_ended) = (done.given, done.has_ended);
        Ok(prober)
    }

    /// What EXPLAIN ANALYZE shows, by the last to end.
    fn note(&self) {
        let stats = self.join.stats();
        let metric = || MetricBuilder::new(&self.metrics);
        let spilled_rows = stats.spilled_left_rows + stats.spilled_right_rows;
        metric()
            .spilled_rows(self.partition)
            .add(spilled_rows as usize);
        let pairs = metric().counter("pair_count", self.partition);
        pairs.add(stats.pair_count as usize);
        let peak = metric().gauge("peak_mem_used", self.partition);
        peak.set_max(stats.used_bytes_max as usize);
    }

    async fn pull(&mut self, mut prober: Prober) -> QueryResult<Prober> {
        let may_wait = prober.may_wait();
        let next = match self.input.as_mut().filter(|_| prober.needs_rows()) {
            Some(input) if may_wait => {
                self.given = input.next().await?.batches.into();
                self.given.pop_front()
            }
            Some(input) => input.next_batch().await?,
            None => None,
        };
        match next {
            Some(batch) => {
                prober.push(batch).map_err(failed)?;
                self.step = ProbeStep::Give;
            }
            None => {
                self.input = None;
                // What remains of spilled rows is written.
                let finish = move || prober.finish().map(|()| prober);
                prober = match may_wait {
                    true => blocking(finish).await?,
                    false => finish().map_err(failed)?,
                };
                self.step = ProbeStep::Rest;
            }
        }
        Ok(prober)
    }
}
