//! An aggregation over keys that are spread evenly.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::cast::AsArray;
use arrow::array::types::Int64Type;
use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use hotshelf_operators::aggregate::{
    Accumulate, Aggregate, AggregateFunction, AggregateSpec, HashAggregate, Phase, Worker,
};
use hotshelf_operators::{Environment, Result};

use super::{BATCH_ROWS, on_threads};

/// `sum` of numbers that are never NULL.
struct Sum;

struct Sums(Vec<i64>);

impl AggregateFunction for Sum {
    fn accumulator(&self) -> Result<Box<dyn Accumulate>> {
        Ok(Box::new(Sums(Vec::new())))
    }
}

impl Accumulate for Sums {
    fn update(
        &mut self,
        arguments: &[ArrayRef],
        _: Option<&BooleanArray>,
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.0.resize(group_count, 0);
        let values = arguments[0].as_primitive::<Int64Type>().values();
        for (&group, value) in groups.iter().zip(values) {
            self.0[group] = self.0[group].wrapping_add(*value);
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        self.update(states, None, groups, group_count)
    }

    fn state(&mut self) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(std::mem::take(&mut self.0))))
    }

    fn bytes(&self) -> u64 {
        8 * self.0.capacity() as u64
    }
}

fn batch(start: u64, end: u64, group_count: u64) -> RecordBatch {
    let rows = || start..end;
    let key = |row: u64| {
        let random = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ row >> 7;
        (random.wrapping_mul(0xd1b5_4a32_d192_ed03) >> 20) % group_count
    };
    let keys = Int64Array::from_iter_values(rows().map(|row| key(row) as i64));
    let values = Int64Array::from_iter_values(rows().map(|row| row as i64 & 1023));
    let columns = [
        ("key", Arc::new(keys) as _),
        ("value", Arc::new(values) as _),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn spec(input: &RecordBatch) -> AggregateSpec {
    let state: FieldRef = Arc::new(Field::new("sum", DataType::Int64, true));
    AggregateSpec {
        input: input.schema(),
        keys: vec![0],
        aggregates: vec![Aggregate {
            function: Arc::new(Sum),
            columns: vec![1],
            filter: None,
            states: vec![Arc::clone(&state)],
        }],
        phase: Phase::Single,
        schema: Arc::new(Schema::new(vec![
            Arc::new(Field::new("key", DataType::Int64, true)),
            state,
        ])),
    }
}

/// The rows in batches.
pub fn input(row_count: u64, group_count: u64) -> Vec<RecordBatch> {
    let starts = (0..row_count).step_by(BATCH_ROWS);
    let end = |start| row_count.min(start + BATCH_ROWS as u64);
    starts
        .map(|start| batch(start, end(start), group_count))
        .collect()
}

/// Aggregates with this many threads, and prints how long each step took.
pub fn run(environment: &Environment, input: &[RecordBatch], threads: usize) -> Result<()> {
    let start = Instant::now();
    let written = environment.spill.stats().written_bytes;
    let aggregation = HashAggregate::try_new(spec(&input[0]), environment, threads)?;
    let workers = (0..threads).map(|_| aggregation.worker());
    let workers: Vec<Worker> = workers.collect::<Result<_>>()?;
    let push = |part: usize, mut worker: Worker| -> Result<Worker> {
        let mut mine = input.iter().skip(part).step_by(threads);
        mine.try_for_each(|batch| worker.push(batch.clone()))?;
        worker.finish()?;
        Ok(worker)
    };
    let workers = on_threads(workers, push)?;
    let pushed = start.elapsed();
    let take = |_, mut worker: Worker| -> Result<(usize, i64)> {
        let (mut rows, mut sum) = (0, 0);
        while let Some(batch) = worker.next_batch()? {
            rows += batch.num_rows();
            sum += batch
                .column(1)
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .sum::<i64>();
        }
        Ok((rows, sum))
    };
    let sums = on_threads(workers, take)?;
    let all = start.elapsed();
    println!(
        "push {:.3}, output {:.3}, all {:.3} s, {} groups, sum {}, {} MB written, {:?}",
        pushed.as_secs_f64(),
        (all - pushed).as_secs_f64(),
        all.as_secs_f64(),
        sums.iter().map(|sum| sum.0).sum::<usize>(),
        sums.iter().map(|sum| sum.1).sum::<i64>(),
        (environment.spill.stats().written_bytes - written) >> 20,
        aggregation.stats(),
    );
    Ok(())
}
