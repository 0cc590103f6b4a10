//! Times a hash join: `join_ladder BUILD_ROWS PROBE_ROWS THREADS [MEGABYTES]`. Half of the probe rows have one partner.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use hotshelf_operators::join::{HashJoin, JoinKind, JoinSpec, Prober, Side};
use hotshelf_operators::keys::Nulls;
use hotshelf_operators::memory::FixedPool;
use hotshelf_operators::spill::{SpillFolder, SpillOptions};
use hotshelf_operators::{Environment, Result, Stop};
use hotshelf_tier::io::{IoEngine, IoOptions};

const BATCH_ROWS: usize = 8192;

fn batches(columns: usize, rows: usize, key: impl Fn(u64) -> i64) -> Vec<RecordBatch> {
    let names = ["key", "a", "b"];
    let fields = names[..columns]
        .iter()
        .map(|name| Field::new(*name, DataType::Int64, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = |start: usize| {
        let rows = start as u64..(start + BATCH_ROWS).min(rows) as u64;
        let keys = Int64Array::from_iter_values(rows.clone().map(&key));
        let other = Int64Array::from_iter_values(rows.map(|row| row as i64 & 1023));
        let all = [keys, other.clone(), other].map(|column| Arc::new(column) as _);
        let all = all.into_iter().take(columns).collect();
        RecordBatch::try_new(Arc::clone(&schema), all).expect("columns of one length")
    };
    (0..rows).step_by(BATCH_ROWS).map(batch).collect()
}

fn main() {
    let words = std::env::args().skip(1);
    let numbers: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
    let [build_rows, probe_rows, threads, ref more @ ..] = numbers[..] else {
        panic!("BUILD_ROWS PROBE_ROWS THREADS [MEGABYTES]");
    };
    let limit_bytes = more
        .first()
        .map_or(u64::MAX / 2, |&megabytes| (megabytes as u64) << 20);
    let mask = (build_rows as u64).next_power_of_two() - 1;
    let shuffled = |row: u64| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask) as i64;
    let left = batches(3, build_rows, |row| 2 * shuffled(row));
    let right = batches(2, probe_rows, |row| {
        let random = row.wrapping_mul(0xd1b5_4a32_d192_ed03) >> 20;
        let partner = 2 * shuffled(random % build_rows as u64);
        partner + (random >> 40 & 1) as i64
    });
    let options = SpillOptions {
        path: std::env::temp_dir().join(format!("join-ladder-{}", std::process::id())),
        limit_bytes: u64::MAX,
    };
    let engine = IoEngine::start(IoOptions::default()).expect("an I/O engine");
    let environment = Environment {
        broker: FixedPool::new(limit_bytes),
        spill: SpillFolder::open(options, engine).expect("a folder"),
        stop: Stop::default(),
    };
    for _ in 0..3 {
        run(&environment, &left, &right, threads).expect("a join");
    }
    std::fs::remove_dir(environment.spill.path()).expect("an empty folder");
}

/// Joins with this many threads, and prints how long each step took.
fn run(
    environment: &Environment,
    left: &[RecordBatch],
    right: &[RecordBatch],
    threads: usize,
) -> Result<()> {
    let start = Instant::now();
    let join = HashJoin::try_new(spec(left, right), environment, threads)?;
    let insert = |part: usize| {
        let mut builder = join.builder();
        let mut mine = left.iter().skip(part).step_by(threads);
        mine.try_for_each(|batch| builder.insert(batch.clone()))
    };
    on_threads(threads, insert)?;
    let inserted = start.elapsed();
    join.finish_build(threads)?;
    let built = start.elapsed();
    let probe = |part: usize| sum(join.prober()?, right.iter().skip(part).step_by(threads));
    let sums = on_threads(threads, probe)?;
    let all = start.elapsed();
    let rows: usize = sums.iter().map(|sum| sum.0).sum();
    let total: i64 = sums.iter().map(|sum| sum.1).sum();
    println!(
        "insert {:.3}, table {:.3}, probe {:.3}, all {:.3} s, {rows} rows, sum {total}, {} MB held, {} MB written",
        inserted.as_secs_f64(),
        (built - inserted).as_secs_f64(),
        (all - built).as_secs_f64(),
        all.as_secs_f64(),
        join.stats().used_bytes_max >> 20,
        environment.spill.stats().written_bytes >> 20,
    );
    Ok(())
}

fn on_threads<T: Send>(threads: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let running = (0..threads).map(|part| scope.spawn(move || work(part)));
        let running: Vec<_> = running.collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

fn spec(left: &[RecordBatch], right: &[RecordBatch]) -> JoinSpec {
    let (left, right) = (left[0].schema(), right[0].schema());
    let output = vec![(Side::Left, 1), (Side::Left, 2), (Side::Right, 1)];
    let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
    JoinSpec {
        left,
        right,
        on: vec![(0, 0)],
        kind: JoinKind::Inner,
        nulls: Nulls::Distinct,
        null_aware: false,
        condition: None,
        output,
        schema: Arc::new(Schema::new(fields.to_vec())),
    }
}

fn sum<'a>(
    mut prober: Prober,
    right: impl Iterator<Item = &'a RecordBatch>,
) -> Result<(usize, i64)> {
    let (mut rows, mut sum) = (0, 0);
    let mut add = |batch: &RecordBatch| {
        rows += batch.num_rows();
        let columns = batch.columns().iter();
        sum += columns
            .map(|column| {
                column
                    .as_primitive::<Int64Type>()
                    .values()
                    .iter()
                    .sum::<i64>()
            })
            .sum::<i64>();
    };
    for batch in right {
        prober.push(batch.clone())?;
        while let Some(batch) = prober.next_batch()? {
            add(&batch);
        }
    }
    prober.finish()?;
    while let Some(batch) = prober.next_batch()? {
        add(&batch);
    }
    Ok((rows, sum))
}
