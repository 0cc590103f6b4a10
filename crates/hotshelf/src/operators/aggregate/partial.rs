//! Aggregations whose groups others merge.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count};
use futures::Stream;
use futures::stream::try_unfold;
use hotshelf_operators::OperatorError;
use hotshelf_operators::aggregate::PartialAggregate;

use super::super::work::{OpenStream, Piece, Pieces, blocking, failed};
use super::spec::Spec;

/// One partition's rows on their way to groups.
pub(super) struct PartialWork {
    pub input: Pieces,
    pub spec: Arc<Spec>,
    pub stream: OpenStream,
    pub groups: PartialAggregate,
    pub baseline: BaselineMetrics,
    /// Rows that were handed on as groups without being looked up.
    pub passed: Count,
}

impl PartialWork {
    /// The groups with their states, as they are handed on.
    pub fn run(self) -> impl Stream<Item = QueryResult<RecordBatch>> + Send {
        try_unfold((self, false), |(mut work, mut has_ended)| async move {
            loop {
                if let Some(batch) = work.next()? {
                    return Ok(Some((batch, (work, has_ended))));
                }
                if has_ended {
                    work.stream.end();
                    return Ok::<_, DataFusionError>(None);
                }
                let piece = work.input.next().await?;
                has_ended = piece.is_last;
                work = match work.groups.is_large() || work.spec.has_several_sets() {
                    true => blocking(move || work.with(piece)).await?,
                    false => work.with(piece).map_err(failed)?,
                };
            }
        })
    }

    fn next(&mut self) -> QueryResult<Option<RecordBatch>> {
        let _timer = self.baseline.elapsed_compute().timer();
        let batch = self.groups.next_batch().map_err(failed)?;
        let batch = batch.map(|batch| self.spec.as_output(batch)).transpose()?;
        let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
        self.baseline.output_rows().add(rows);
        Ok(batch)
    }

    /// With more rows. All groups of a large table may be handed on.
    fn with(mut self, piece: Piece) -> Result<Self, OperatorError> {
        let timer = self.baseline.elapsed_compute().timer();
        let before = self.groups.blind_count();
        let groups = &mut self.groups;
        self.spec.give(piece.batches, |batch| groups.push(batch))?;
        if piece.is_last {
            self.groups.finish()?;
        }
        drop(timer);
        let passed = self.groups.blind_count() - before;
        self.passed.add(passed as usize);
        Ok(self)
    }
}
