//! What window functions compute for a partition, and how its rows are kept until that is known.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{concat, concat_batches};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Accumulator, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_plan::metrics::Time;
use datafusion::scalar::ScalarValue;
use hotshelf_operators::Environment;
use hotshelf_operators::batches::{held_bytes, own};
use hotshelf_operators::memory::Grant;
use hotshelf_operators::sort::{SortOptions, Sorter};

use super::super::work::{blocking, failed};

/// What is computed for each partition, and with what.
pub(super) struct Job {
    pub exprs: Vec<Arc<dyn WindowExpr>>,
    pub partition_keys: Vec<PhysicalSortExpr>,
    pub output: SchemaRef,
    pub batch_rows: usize,
    pub environment: Environment,
    pub grant: Grant,
    pub elapsed: Time,
}

impl Job {
    /// Where partitions begin and end in rows that are in their order.
    pub fn partitions(&self, rows: &RecordBatch) -> QueryResult<Vec<Range<usize>>> {
        let keys = self.partition_keys.iter();
        let keys = keys.map(|key| key.evaluate_to_sort_column(rows));
        evaluate_partition_ranges(rows.num_rows(), &keys.collect::<QueryResult<Vec<_>>>()?)
    }

    /// How many rows of a batch belong to the partition of the row before it.
    pub fn len_after(&self, before: &RecordBatch, batch: &RecordBatch) -> QueryResult<usize> {
        let both = concat_batches(&batch.schema(), [before, &batch.slice(0, 1)])?;
        if self.partitions(&both)?.len() > 1 {
            return Ok(0);
        }
        let partitions = self.partitions(batch)?;
        Ok(partitions.first().map_or(0, Range::len))
    }

    /// Whole partitions with their values.
    pub fn answer(
        &self,
        rows: &RecordBatch,
        partitions: &[Range<usize>],
    ) -> QueryResult<RecordBatch> {
        let mut columns = rows.columns().to_vec();
        let slices = partitions.iter();
        let slices = slices.map(|range| rows.slice(range.start, range.len()));
        let slices: Vec<RecordBatch> = slices.collect();
        for expr in &self.exprs {
            let values = slices.iter().map(|partition| expr.evaluate(partition));
            let values = values.collect::<QueryResult<Vec<_>>>()?;
            let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
            columns.push(concat(&values)?);
        }
        Ok(RecordBatch::try_new(self.output.clone(), columns)?)
    }

    /// For each function how to compute its only value. `None`: one of them has many.
    fn totals(&self) -> QueryResult<Option<Totals>> {
        let mut accumulators = Vec::new();
        for expr in &self.exprs {
            match with_one_value(expr) {
                Some(aggregate) => accumulators.push(aggregate.create_accumulator()?),
                None => return Ok(None),
            }
        }
        Ok(Some(Totals(accumulators)))
    }

    pub async fn begin_long(self: &Arc<Self>, rows: RecordBatch) -> QueryResult<LongPartition> {
        let kept = match self.totals()? {
            Some(totals) => {
                let options = SortOptions {
                    batch_row_count: self.batch_rows,
                    ..SortOptions::default()
                };
                // Without keys rows stay in their order.
                let name = "window functions";
                let sorter = Sorter::new(&self.environment, name, rows.schema(), options);
                Kept::Spilling {
                    rows: Box::new(sorter.map_err(failed)?),
                    totals,
                    totals_bytes: 0,
                }
            }
            None => Kept::Held {
                rows: Vec::new(),
                bytes: 0,
            },
        };
        let last = last_row(&rows)?;
        let kept = self.keep(kept, vec![rows]).await?;
        Ok(LongPartition { kept, last })
    }

    /// More rows of a long partition.
    pub async fn keep(
        self: &Arc<Self>,
        kept: Kept,
        batches: Vec<RecordBatch>,
    ) -> QueryResult<Kept> {
        let job = self.clone();
        match kept {
            Kept::Held {
                mut rows,
                mut bytes,
            } => {
                for batch in batches {
                    let more = held_bytes(&batch);
                    job.grant.grow(more);
                    bytes += more;
                    rows.push(batch);
                }
                Ok(Kept::Held { rows, bytes })
            }
            Kept::Spilling {
                mut rows,
                mut totals,
                totals_bytes,
            } => {
                let kept = blocking(move || {
                    let _timer = job.elapsed.timer();
                    for batch in batches {
                        if let Err(error) = totals.add(&job, &batch) {
                            return Ok(Err(error));
                        }
                        rows.push(batch)?;
                    }
                    let bytes = totals.bytes();
                    job.grant.replace(totals_bytes, bytes);
                    Ok(Ok(Kept::Spilling {
                        rows,
                        totals,
                        totals_bytes: bytes,
                    }))
                });
                kept.await?
            }
        }
    }
}

/// A function that is an aggregate of the same rows for every row of a partition: all of them.
fn with_one_value(expr: &Arc<dyn WindowExpr>) -> Option<&AggregateFunctionExpr> {
    let window = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>()?;
    let frame = window.get_window_frame();
    let peers_are_all = frame.units == WindowFrameUnits::Range && window.order_by().is_empty();
    let reaches_the_end = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => peers_are_all,
        bound => bound.is_unbounded(),
    };
    // Nothing else shows the condition of a FILTER clause.
    let has_no_condition = format!("{window:?}").ends_with("filter: None }");
    let bounds = [&frame.start_bound, &frame.end_bound];
    (has_no_condition && bounds.into_iter().all(reaches_the_end))
        .then(|| window.get_aggregate_expr())
}

/// What each function has seen of a partition.
pub(super) struct Totals(Vec<Box<dyn Accumulator>>);

impl Totals {
    pub fn add(&mut self, job: &Job, rows: &RecordBatch) -> QueryResult<()> {
        for (expr, total) in job.exprs.iter().zip(&mut self.0) {
            total.update_batch(&expr.evaluate_args(rows)?)?;
        }
        Ok(())
    }

    pub fn values(mut self) -> QueryResult<Vec<ScalarValue>> {
        let totals = self.0.iter_mut();
        totals.map(|total| total.evaluate()).collect()
    }

    pub fn bytes(&self) -> u64 {
        let sizes = self.0.iter().map(|total| total.size() as u64);
        sizes.sum()
    }
}

/// A copy of the last row: it is kept longer than the others.
pub(super) fn last_row(rows: &RecordBatch) -> QueryResult<RecordBatch> {
    Ok(own(rows.slice(rows.num_rows().saturating_sub(1), 1))?)
}

/// A partition that takes much memory.
pub(super) struct LongPartition {
    pub kept: Kept,
    /// Its last row.
    pub last: RecordBatch,
}

pub(super) enum Kept {
    /// On disk if need be.
    Spilling {
        rows: Box<Sorter>,
        totals: Totals,
        totals_bytes: u64,
    },
    /// In memory, with what the grant lends for it.
    Held { rows: Vec<RecordBatch>, bytes: u64 },
}
