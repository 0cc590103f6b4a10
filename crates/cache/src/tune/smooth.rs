//! The smooth maximum of [`super::descent`]: the arguments of a term's time, and how much each of them decides.

use crate::model::{SHELF_COUNT_MAX, TermLoad};

/// Memory, and twice each lower shelf: reading longer than processing, and the other way round. One is for nothing: an
/// even number is computed faster.
pub(super) const ARGUMENT_COUNT_MAX: usize = 2 * SHELF_COUNT_MAX - 1;

/// What the time of a term is the largest of, in seconds: memory's time first, then for each lower shelf reading with
/// what processing adds and processing with what reading adds. Linear in the load.
pub(super) type Arguments = [f64; ARGUMENT_COUNT_MAX];

/// What a unit of a shelf's or of the processors' time costs, in weighted seconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Slopes {
    pub(super) shelf: [f64; SHELF_COUNT_MAX],
    pub(super) processing: f64,
}

/// The arguments of a load. Those of shelves that there are not come last.
pub(super) fn arguments(load: &TermLoad, loss: f64) -> Arguments {
    let mut arguments = [load.shelf_s[0]; ARGUMENT_COUNT_MAX];
    for shelf in 1..SHELF_COUNT_MAX {
        let reading_s = load.shelf_s[shelf];
        arguments[2 * shelf - 1] = reading_s + loss * load.processing_s;
        arguments[2 * shelf] = load.processing_s + loss * reading_s;
    }
    arguments
}

/// Arguments after a part of a change.
pub(super) fn moved(from: &Arguments, change: &Arguments, part: f64) -> Arguments {
    std::array::from_fn(|idx| from[idx] + part * change[idx])
}

/// The largest argument.
pub(super) fn largest(arguments: &Arguments) -> f64 {
    arguments.iter().copied().fold(0.0, f64::max)
}

/// Further behind the largest, in units of softness, an argument decides nothing.
const BEHIND_MAX: f64 = 32.0;

/// Added to a number and taken away again, this rounds it; the last bits of the sum are the whole number.
const ROUNDING: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// `exp(-behind)` for `behind` from 0 to [`BEHIND_MAX`], to six digits: two to a whole number times a polynomial.
fn shrunk(behind: f64) -> f64 {
    let twos = behind * -std::f64::consts::LOG2_E;
    let shifted = twos + ROUNDING;
    let rest = (twos - (shifted - ROUNDING)) * std::f64::consts::LN_2;
    let whole = shifted.to_bits().wrapping_add(1023) << 52;
    let square = rest * rest;
    let low = 1.0 + rest + square * (0.5 + rest * (1.0 / 6.0));
    let high = 1.0 / 24.0 + rest * (1.0 / 120.0) + square * (1.0 / 720.0);
    f64::from_bits(whole) * (low + square * square * high)
}

/// How much of the weighted time each of the first arguments decides; they add up to the weight.
pub(super) fn shares(arguments: &Arguments, count: usize, weight: f64, softness: f64) -> Arguments {
    let largest = largest(arguments);
    let per_softness = 1.0 / softness;
    let mut shares = [0.0; ARGUMENT_COUNT_MAX];
    let mut sum = 0.0;
    for (share, argument) in shares.iter_mut().zip(&arguments[..count]) {
        *share = shrunk(((largest - argument) * per_softness).min(BEHIND_MAX));
        sum += *share;
    }
    let scale = weight / sum;
    shares.map(|share| scale * share)
}

/// The slopes that follow from shares.
pub(super) fn slopes(shares: &Arguments, loss: f64) -> Slopes {
    let mut slopes = Slopes::default();
    slopes.shelf[0] = shares[0];
    for shelf in 1..SHELF_COUNT_MAX {
        let (by_reading, by_processing) = (shares[2 * shelf - 1], shares[2 * shelf]);
        slopes.shelf[shelf] = by_reading + loss * by_processing;
        slopes.processing += by_processing + loss * by_reading;
    }
    slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_right_to_six_digits() {
        for step in 0..=3200 {
            let behind = f64::from(step) * 0.01;
            let ratio = shrunk(behind) / (-behind).exp();
            assert!((ratio - 1.0).abs() < 2e-7, "{behind}: {ratio}");
        }
        assert_eq!(shrunk(0.0), 1.0);
    }
}
