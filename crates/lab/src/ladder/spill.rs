//! Batches written to spill files and read again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use hotshelf_operators::spill::{PendingBatch, SpilledBatch};
use hotshelf_operators::{Environment, Result};

use super::on_threads;

/// What operators write at once.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that each thread has asked for before it takes the first.
const AHEAD: usize = 4;

/// A batch of numbers that do not become smaller, or of which the upper half is the same.
fn batch(random: &mut fastrand::Rng, is_random: bool) -> RecordBatch {
    let mask = if is_random { i64::MAX } else { 0xffff };
    let numbers = (0..BATCH_BYTES / 8).map(|_| random.i64(..) & mask);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    RecordBatch::try_from_iter([("n", numbers)]).expect("one column")
}

/// Writes and reads with this many threads, and prints how long each took.
pub fn run(environment: &Environment, megabytes: u64, threads: usize) -> Result<()> {
    for (what, is_random) in [("random", true), ("compressible", false)] {
        let before = environment.spill.stats();
        let batch_count = (megabytes << 20) / (BATCH_BYTES * threads) as u64;
        let write = |thread: usize, ()| -> Result<Vec<SpilledBatch>> {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            let batch = batch(&mut random, is_random);
            let file = environment.spill_file(batch.schema())?;
            (0..batch_count).map(|_| file.write(&batch)).collect()
        };
        let start = Instant::now();
        let spilled = on_threads(vec![(); threads], write)?;
        let written = start.elapsed();
        let read = |_, spilled: Vec<SpilledBatch>| -> Result<()> {
            let mut pending: VecDeque<PendingBatch> = VecDeque::new();
            for batch in &spilled {
                pending.push_back(batch.start_read());
                if pending.len() == AHEAD
                    && let Some(first) = pending.pop_front()
                {
                    first.wait()?;
                }
            }
            pending
                .into_iter()
                .try_for_each(|batch| batch.wait().map(drop))
        };
        on_threads(spilled, read)?;
        let read = start.elapsed() - written;
        let after = environment.spill.stats();
        let raw = after.raw_bytes - before.raw_bytes;
        let stored = after.written_bytes - before.written_bytes;
        let rate = |bytes: u64, time: std::time::Duration| bytes as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{what}: {} MB as {} MB on the device; written with {:.0} MB/s (raw {:.0}), \
             read with {:.0} MB/s (raw {:.0})",
            raw / 1_000_000,
            stored / 1_000_000,
            rate(stored, written),
            rate(raw, written),
            rate(stored, read),
            rate(raw, read),
        );
    }
    Ok(())
}
