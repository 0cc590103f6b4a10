//! A hash join in which half of the probe rows have one partner.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::cast::AsArray;
use arrow::array::types::Int64Type;
use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use hotshelf_operators::join::{HashJoin, JoinKind, JoinSpec, Prober, Side};
use hotshelf_operators::keys::Nulls;
use hotshelf_operators::{Environment, Result};

use super::{BATCH_ROWS, on_threads};

/// The rows of both sides in batches.
pub struct Input {
    build: Vec<RecordBatch>,
    probe: Vec<RecordBatch>,
}

fn batches(columns: usize, row_count: u64, key: impl Fn(u64) -> i64) -> Vec<RecordBatch> {
    let names = ["key", "a", "b"];
    let fields = names[..columns]
        .iter()
        .map(|name| Field::new(*name, DataType::Int64, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = |start: u64| {
        let rows = start..row_count.min(start + BATCH_ROWS as u64);
        let keys = Int64Array::from_iter_values(rows.clone().map(&key));
        let other = Int64Array::from_iter_values(rows.map(|row| row as i64 & 1023));
        let all = [keys, other.clone(), other].map(|column| Arc::new(column) as _);
        let all = all.into_iter().take(columns).collect();
        RecordBatch::try_new(Arc::clone(&schema), all).expect("columns of one length")
    };
    (0..row_count).step_by(BATCH_ROWS).map(batch).collect()
}

/// Rows of which half of the probe side finds one of the build side.
pub fn input(build_rows: u64, probe_rows: u64) -> Input {
    let mask = build_rows.next_power_of_two() - 1;
    let shuffled = |row: u64| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask) as i64;
    Input {
        build: batches(3, build_rows, |row| 2 * shuffled(row)),
        probe: batches(2, probe_rows, |row| {
            let random = row.wrapping_mul(0xd1b5_4a32_d192_ed03) >> 20;
            let partner = 2 * shuffled(random % build_rows);
            partner + (random >> 40 & 1) as i64
        }),
    }
}

/// Joins with this many threads, and prints how long each step took.
pub fn run(environment: &Environment, input: &Input, threads: usize) -> Result<()> {
    let start = Instant::now();
    let join = HashJoin::try_new(spec(&input.build[0], &input.probe[0]), environment, threads)?;
    let insert = |part: usize, ()| {
        let mut builder = join.builder();
        let mut mine = input.build.iter().skip(part).step_by(threads);
        mine.try_for_each(|batch| builder.insert(batch.clone()))
    };
    on_threads(vec![(); threads], insert)?;
    let inserted = start.elapsed();
    join.finish_build(threads)?;
    let built = start.elapsed();
    let probe = |part: usize, ()| {
        sum(
            join.prober()?,
            input.probe.iter().skip(part).step_by(threads),
        )
    };
    let sums = on_threads(vec![(); threads], probe)?;
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

fn spec(left: &RecordBatch, right: &RecordBatch) -> JoinSpec {
    let (left, right) = (left.schema(), right.schema());
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
