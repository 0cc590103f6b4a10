//! The limit that queries are compared with: how fast all threads read consecutive memory, measured in turn with them.

use std::hint::black_box;
use std::time::Instant;

use hotshelf_tier::TierError;
use hotshelf_tier::region::{AnonymousOptions, Region, numbers, numbers_mut};

use super::crew::{self, Crew};

/// Larger than any cache several times over.
const BYTES_MIN: usize = 512 << 20;

/// Memory that is only read.
#[derive(Debug)]
pub struct Sequential {
    /// Of each node.
    regions: Vec<Region>,
    words_per_region: usize,
}

impl Sequential {
    /// Near memory for each of a crew's sockets.
    ///
    /// # Errors
    /// That there is no memory for it.
    pub fn new(crew: &Crew) -> Result<Self, TierError> {
        let nodes = crew.nodes();
        let words_per_region = BYTES_MIN / 8 / nodes.len();
        let mut regions = Vec::new();
        for node in nodes {
            let options = AnonymousOptions {
                node,
                ..AnonymousOptions::default()
            };
            let mut region = Region::anonymous(words_per_region * 8, &options)?;
            // Untouched pages would all be one page of zeros.
            numbers_mut::<u64>(region.volatile_bytes_mut().unwrap_or_default()).fill(3);
            regions.push(region);
        }
        Ok(Self {
            regions,
            words_per_region,
        })
    }

    /// Bytes per second that the threads of the crew read together now, each its own part.
    pub fn measure(&self, crew: &Crew) -> f64 {
        let workers = crew.workers(&vec![self.words_per_region; self.regions.len()]);
        let start = Instant::now();
        crew::run(&workers, |worker| {
            for (stripe, part) in &worker.parts {
                let words = numbers::<u64>(self.regions[*stripe].bytes());
                black_box(sum(&words[part.clone()]));
            }
        });
        let bytes = self.words_per_region * 8 * self.regions.len();
        bytes as f64 / start.elapsed().as_secs_f64()
    }
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
