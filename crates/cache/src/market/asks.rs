//! What operators asked for: how often they were granted memory, and what they make of it.

use crate::price::{Answer, Ask};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How much one answer changes what operators are known to make of memory.
const LEARNING: f64 = 0.1;

/// Counters without a lock. What two threads write at once may get lost: they are for averages.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    granted: Answers,
    refused: Answers,
}

#[derive(Debug, Default)]
struct Answers {
    count: AtomicU64,
    /// Bits of the average of what the bytes save, in seconds per byte and second.
    density: AtomicU64,
}

impl Asks {
    pub(crate) fn note(&self, ask: &Ask, answer: Answer) {
        let density = ask.saved_s_per_byte_s();
        match answer {
            Answer::Grant => self.granted.add(density),
            Answer::Refuse => self.refused.add(density),
        }
    }

    /// How many were granted and how many refused.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = |answers: &Answers| answers.count.load(Relaxed);
        (count(&self.granted), count(&self.refused))
    }

    /// What a granted byte saves and what a refused one would, in seconds per byte and second.
    pub(crate) fn densities(&self) -> (Option<f64>, Option<f64>) {
        (self.granted.density(), self.refused.density())
    }
}

impl Answers {
    fn add(&self, density: f64) {
        let learning = match self.count.fetch_add(1, Relaxed) {
            0 => 1.0,
            _ => LEARNING,
        };
        let before = f64::from_bits(self.density.load(Relaxed));
        if density.is_finite() {
            let after = before + learning * (density - before);
            self.density.store(after.to_bits(), Relaxed);
        }
    }

    fn density(&self) -> Option<f64> {
        let is_known = self.count.load(Relaxed) > 0;
        is_known.then(|| f64::from_bits(self.density.load(Relaxed)))
    }
}
