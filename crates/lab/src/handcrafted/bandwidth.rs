//! The limit that queries are compared with: how fast all threads read consecutive memory.

use std::hint::black_box;
use std::time::Instant;

use hotshelf_tier::TierError;
use hotshelf_tier::region::{AnonymousOptions, Region, numbers, numbers_mut};

use super::crew::{self, Crew};

/// Larger than any cache several times over.
const BYTES_MIN: usize = 512 << 20;
const RUNS: usize = 9;

/// Bytes per second that the threads of a crew read together, each its own part of near memory: the best of some runs.
///
/// # Errors
/// That there is no memory for it.
pub fn sequential(crew: &Crew) -> Result<f64, TierError> {
    let nodes = crew.nodes();
    let words = BYTES_MIN / 8 / nodes.len();
    let mut regions = Vec::new();
    for node in &nodes {
        let options = AnonymousOptions {
            node: *node,
            ..AnonymousOptions::default()
        };
        let mut region = Region::anonymous(words * 8, &options)?;
        // Untouched pages would all be one page of zeros.
        numbers_mut::<u64>(region.volatile_bytes_mut().unwrap_or_default()).fill(3);
        regions.push(region);
    }
    let workers = crew.workers(&vec![words; nodes.len()]);
    let run = || {
        let start = Instant::now();
        crew::run(&workers, |worker| {
            for (stripe, part) in &worker.parts {
                black_box(sum(&numbers::<u64>(regions[*stripe].bytes())[part.clone()]));
            }
        });
        start.elapsed().as_secs_f64()
    };
    let best_s = (0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min);
    Ok((words * 8 * nodes.len()) as f64 / best_s)
}

/// Several sums at once, so that no addition waits for the one before.
fn sum(words: &[u64]) -> u64 {
    let (lines, _) = words.as_chunks::<16>();
    let mut sums = [0u64; 16];
    for line in lines {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}
