//! Times an aggregation: `group_ladder ROWS GROUPS THREADS [MEGABYTES]`. Keys are spread evenly.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use hotshelf_operators::aggregate::{
    Accumulate, Aggregate, AggregateFunction, AggregateSpec, HashAggregate, Phase, Worker,
};
use hotshelf_operators::memory::FixedPool;
use hotshelf_operators::spill::{SpillFolder, SpillOptions};
use hotshelf_operators::{Environment, Result, Stop};
use hotshelf_tier::io::{IoEngine, IoOptions};

const BATCH_ROWS: usize = 8192;

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

fn batch(start: usize, end: usize, group_count: u64) -> RecordBatch {
    let rows = || start as u64..end as u64;
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

fn main() {
    let words = std::env::args().skip(1);
    let numbers: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
    let [row_count, group_count, threads, ref more @ ..] = numbers[..] else {
        panic!("ROWS GROUPS THREADS [MEGABYTES]");
    };
    let limit_bytes = more
        .first()
        .map_or(u64::MAX / 2, |&megabytes| (megabytes as u64) << 20);
    let starts = (0..row_count).step_by(BATCH_ROWS);
    let input: Vec<RecordBatch> = starts
        .map(|start| batch(start, row_count.min(start + BATCH_ROWS), group_count as u64))
        .collect();
    let options = SpillOptions {
        path: std::env::temp_dir().join(format!("group-ladder-{}", std::process::id())),
        limit_bytes: u64::MAX,
    };
    let engine = IoEngine::start(IoOptions::default()).expect("an I/O engine");
    let environment = Environment {
        broker: FixedPool::new(limit_bytes),
        spill: SpillFolder::open(options, engine).expect("a folder"),
        stop: Stop::default(),
    };
    for _ in 0..3 {
        run(&environment, &input, threads).expect("an aggregation");
    }
    std::fs::remove_dir(environment.spill.path()).expect("an empty folder");
}

/// Aggregates with this many threads, and prints how long each step took.
fn run(environment: &Environment, input: &[RecordBatch], threads: usize) -> Result<()> {
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

fn on_threads<I: Send, T: Send>(
    parts: Vec<I>,
    work: impl Fn(usize, I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let parts = parts.into_iter().enumerate();
        let running = parts.map(|(idx, part)| scope.spawn(move || work(idx, part)));
        let running: Vec<_> = running.collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}
