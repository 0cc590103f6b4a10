//! A join's steps, in the order in which a stream takes them: build, probe, and what was spilled.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, Time,
};
use futures::StreamExt;
use futures::stream::{Stream, try_unfold};
use hotshelf_operators::OperatorError;
use hotshelf_operators::join::{HashJoin, Prober};

use super::super::columns::Columns;
use super::super::work::{OpenStream, Piece, Pieces, Streams, blocking, environment, failed};
use super::key_ranges::KeyRanges;
use super::spec::Spec;

/// A join whose left rows are not there yet.
pub(super) struct Build {
    join: Arc<HashJoin>,
    columns: Arc<Columns>,
    key_ranges: Option<Arc<KeyRanges>>,
    streams: Streams,
}

impl Build {
    /// A join for this many probers.
    pub fn begin(
        spec: &Spec,
        key_ranges: Option<Arc<KeyRanges>>,
        context: &TaskContext,
        probers: usize,
    ) -> QueryResult<Self> {
        let environment = environment(context)?;
        let join = HashJoin::try_new(spec.join.clone(), &environment, probers);
        Ok(Self {
            join: join.map_err(failed)?,
            columns: spec.left.clone(),
            key_ranges,
            streams: Streams::new(environment.stop.clone()),
        })
    }

    /// Takes the rows of the left side.
    pub async fn run(
        self,
        input: SendableRecordBatchStream,
        baseline: &BaselineMetrics,
    ) -> QueryResult<Built> {
        let mut stream = self.streams.open();
        let mut input = Pieces::new(input, self.columns);
        let mut builder = self.join.builder();
        loop {
            let Piece { batches, is_last } = input.next().await?;
            if let Some(key_ranges) = &self.key_ranges {
                key_ranges.add(&batches)?;
            }
            let elapsed = baseline.elapsed_compute().clone();
            let insert = move || {
                let _timer = elapsed.timer();
                let mut batches = batches.into_iter();
                batches.try_for_each(|batch| builder.insert(batch))?;
                Ok::<_, OperatorError>(builder)
            };
            builder = blocking(insert).await?;
            if is_last {
                break;
            }
        }
        drop((input, builder));
        if let Some(key_ranges) = &self.key_ranges {
            key_ranges.end_build()?;
        }
        let (join, elapsed) = (self.join.clone(), baseline.elapsed_compute().clone());
        let finish = move || {
            let _timer = elapsed.timer();
            join.finish_build(1)
        };
        blocking(finish).await?;
        stream.end();
        Ok(Built {
            join: self.join,
            streams: self.streams,
        })
    }
}

/// A join that can be probed.
#[derive(Clone)]
pub(super) struct Built {
    join: Arc<HashJoin>,
    streams: Streams,
}

impl Built {
    /// The output for a partition of the right side.
    pub fn probe(
        self,
        input: SendableRecordBatchStream,
        columns: Arc<Columns>,
        metrics: ExecutionPlanMetricsSet,
        partition: usize,
    ) -> impl Stream<Item = QueryResult<RecordBatch>> {
        let begun = self.join.prober().map_err(failed).map(|prober| {
            let probe = Probe {
                input: Some(input),
                columns,
                step: ProbeStep::Pull,
                stream: self.streams.open(),
                join: self.join,
                baseline: BaselineMetrics::new(&metrics, partition),
                metrics,
                partition,
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
    input: Option<SendableRecordBatchStream>,
    columns: Arc<Columns>,
    step: ProbeStep,
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
}

impl Probe {
    async fn next(&mut self, mut prober: Prober) -> QueryResult<Option<(RecordBatch, Prober)>> {
        loop {
            let batch;
            match self.step {
                ProbeStep::Pull => {
                    self.pull(&mut prober).await?;
                    continue;
                }
                // The last to end does what remains: none waits for another, which may not be read at all.
                ProbeStep::Rest if self.join.is_probing() => batch = None,
                ProbeStep::Give | ProbeStep::Rest => {
                    let elapsed = self.baseline.elapsed_compute().clone();
                    (batch, prober) = work(elapsed, prober).await?;
                }
            }
            if let Some(batch) = batch {
                self.baseline.output_rows().add(batch.num_rows());
                return Ok(Some((batch, prober)));
            }
            if let ProbeStep::Rest = self.step {
                self.stream.end();
                self.note();
                return Ok(None);
            }
            self.step = ProbeStep::Pull;
        }
    }

    /// What EXPLAIN ANALYZE shows, by the last to end.
    fn note(&self) {
        if self.join.is_probing() {
            return;
        }
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

    async fn pull(&mut self, prober: &mut Prober) -> QueryResult<()> {
        let next = match &mut self.input {
            Some(input) => input.next().await.transpose()?,
            None => None,
        };
        match next {
            Some(batch) => {
                prober.push(self.columns.add(batch)?).map_err(failed)?;
                self.step = ProbeStep::Give;
            }
            None => {
                self.input = None;
                prober.finish().map_err(failed)?;
                self.step = ProbeStep::Rest;
            }
        }
        Ok(())
    }
}

/// Has a prober work where blocking is allowed: rows may be on disk, and a batch may meet very many others. What holds
/// the stream open remains, so that dropping it ends the work.
async fn work(elapsed: Time, mut prober: Prober) -> QueryResult<(Option<RecordBatch>, Prober)> {
    let work = move || {
        let _timer = elapsed.timer();
        let batch = prober.next_batch()?;
        Ok((batch, prober))
    };
    blocking(work).await
}
