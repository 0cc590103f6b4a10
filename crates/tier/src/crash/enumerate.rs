//! Walking a trace and trying the states of its critical moments.
//!
//! The states just before a fence include those of every earlier moment since the last one, except that an
//! acknowledgement raises what must be found; so states are tried before each fence, after each acknowledgement, and
//! at the end.

use std::collections::HashSet;

use super::memory_model::{Choice, MediaState, Model, Piece, choices};
use crate::persist::{Event, Note, TraceLog};

/// How many states to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnumerateOptions {
    /// A moment with at most this many states has all of them tried.
    pub exhaustive_states_max: usize,
    /// Of other moments: this many at random, besides nothing, everything, and each unit alone or missing.
    pub sample_count: usize,
    /// Where the random choices start.
    pub seed: u64,
    /// Stop after this many violations.
    pub violations_max: usize,
}

impl Default for EnumerateOptions {
    fn default() -> Self {
        Self {
            exhaustive_states_max: 4096,
            sample_count: 1000,
            seed: 1,
            violations_max: 1,
        }
    }
}

/// What recovery may and must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promise {
    /// No state later than this one may be found.
    pub started: u64,
    /// No state earlier than this one may be found.
    pub acked: u64,
}

/// A state in which recovery was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The power cut came just before this event.
    pub event_idx: usize,
    /// What the check said.
    pub reason: String,
}

/// What was tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// States checked; within one moment all different.
    pub state_count: u64,
    /// Moments looked at.
    pub moment_count: u64,
    /// How many of them had all their states tried.
    pub exhaustive_moment_count: u64,
    /// What went wrong.
    pub violations: Vec<Violation>,
}

/// Tries the states a power cut may leave at every critical moment of a trace. `check` gets the bytes on the media and
/// what was promised, and answers whether recovery is right.
pub fn enumerate(
    log: &TraceLog,
    model: Model,
    options: &EnumerateOptions,
    check: impl FnMut(&[u8], Promise) -> Result<(), String>,
) -> Report {
    let mut run = Enumeration {
        options,
        check,
        report: Report::default(),
        random: fastrand::Rng::with_seed(options.seed),
    };
    let mut media = MediaState::new(model, &log.initial);
    let mut promise = Promise::default();
    for (event_idx, event) in log.events.iter().enumerate() {
        if matches!(event, Event::Fence { .. }) {
            run.moment(&media, promise, event_idx);
        }
        media.apply(event_idx, event);
        match event {
            Event::Note(Note::Started(n)) => promise.started = *n,
            Event::Note(Note::Acked(n)) => {
                promise.acked = *n;
                run.moment(&media, promise, event_idx + 1);
            }
            _ => {}
        }
    }
    run.moment(&media, promise, log.events.len());
    run.report
}

struct Enumeration<'a, C> {
    options: &'a EnumerateOptions,
    check: C,
    report: Report,
    random: fastrand::Rng,
}

impl<C: FnMut(&[u8], Promise) -> Result<(), String>> Enumeration<'_, C> {
    fn moment(&mut self, media: &MediaState, promise: Promise, event_idx: usize) {
        let units: Vec<(&[Piece], Vec<Choice>)> = media
            .units()
            .map(|pieces| (pieces, choices(pieces)))
            .collect();
        let counts = units.iter().map(|(_, choices)| choices.len());
        let state_count = counts.fold(1usize, usize::saturating_mul);
        self.report.moment_count += 1;
        let combinations = match state_count <= self.options.exhaustive_states_max {
            true => {
                self.report.exhaustive_moment_count += 1;
                all_combinations(&units)
            }
            false => self.some_combinations(&units),
        };
        for combination in combinations {
            if self.report.violations.len() >= self.options.violations_max {
                return;
            }
            let mut image = media.certain().to_vec();
            for ((pieces, choices), choice_idx) in units.iter().zip(&combination) {
                choices[*choice_idx].apply(pieces, &mut image);
            }
            self.report.state_count += 1;
            if let Err(reason) = (self.check)(&image, promise) {
                self.report.violations.push(Violation { event_idx, reason });
            }
        }
    }

    fn some_combinations(&mut self, units: &[(&[Piece], Vec<Choice>)]) -> Vec<Vec<usize>> {
        let nothing = vec![0; units.len()];
        let everything: Vec<usize> = units.iter().map(|(_, choices)| choices.len() - 1).collect();
        let mut combinations = vec![nothing.clone(), everything.clone()];
        for (unit_idx, (_, choices)) in units.iter().enumerate() {
            for choice_idx in 0..choices.len() {
                for rest in [&nothing, &everything] {
                    let mut combination = rest.clone();
                    combination[unit_idx] = choice_idx;
                    combinations.push(combination);
                }
            }
        }
        for _ in 0..self.options.sample_count {
            // Uniform choices alone would almost never leave a unit untouched or complete; every third sample is
            // made of extremes only.
            let extremes = self.random.u32(..3) == 0;
            let choose = |choices: &Vec<Choice>| match extremes {
                true => self.random.usize(..2) * (choices.len() - 1),
                false => self.random.usize(..choices.len()),
            };
            combinations.push(
                units
                    .iter()
                    .map(|(_, choices)| choices)
                    .map(choose)
                    .collect(),
            );
        }
        let mut seen = HashSet::new();
        combinations.retain(|combination| seen.insert(combination.clone()));
        combinations
    }
}

fn all_combinations(units: &[(&[Piece], Vec<Choice>)]) -> Vec<Vec<usize>> {
    let mut combinations = vec![Vec::new()];
    for (_, choices) in units {
        combinations = combinations
            .into_iter()
            .flat_map(|combination: Vec<usize>| {
                (0..choices.len()).map(move |choice_idx| {
                    let mut longer = combination.clone();
                    longer.push(choice_idx);
                    longer
                })
            })
            .collect();
    }
    combinations
}
