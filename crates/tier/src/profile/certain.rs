//! Which decisions would come out the same if the machine were measured again.
//!
//! Not every measurement has to be certain for a decision to be: one that rests on a twofold difference holds whatever
//! the last tenth of either side does. So the probe is repeated by calculation (Efron's bootstrap): rounds are drawn
//! from those that were measured, with replacement, the same rounds for all points, since what disturbs a round
//! disturbs all of it; each draw is derived from like a measurement. A value that nine of ten draws do not give is not
//! followed: its conservative default is.

use std::cmp::Ordering;

use super::derive::{DeriveInput, derive};
use super::{TierProfile, Value};
use crate::axes::Row;
use crate::error::TierError;
use crate::probe::{ProbeReport, Round};

const DRAW_COUNT: usize = 200;
/// This part of the draws must give the value that is kept.
const AGREEING_PART: f64 = 0.9;
/// Sizes and depths are measured by doubling: next to each other they are alike.
const STEP: f64 = 2.0;
/// Bandwidths within a tenth are alike.
const BANDWIDTH_STEP: f64 = 1.1;
/// Times of accesses that differ by less are alike.
const ACCESS_STEP: f64 = 1.25;

/// A profile of what is certain, and how much that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Derivation {
    /// Values that are certain; all others are defaults that say so.
    pub profile: TierProfile,
    /// How many values follow from measurements.
    pub certain_count: usize,
    /// Names of values that would follow from the measurements if these were certain.
    pub uncertain: Vec<&'static str>,
}

impl Derivation {
    /// Derives a profile from a probe.
    pub fn of(report: &ProbeReport) -> Self {
        let derived = |rows: &[Row]| {
            derive(&DeriveInput {
                tier: &report.tier,
                rows,
                physical_cores: report.fingerprint.physical_cores,
            })
        };
        // The same numbers each time: a profile is a function of its measurements.
        let mut random = fastrand::Rng::with_seed(1);
        let draws: Vec<TierProfile> = (0..DRAW_COUNT)
            .map(|_| derived(&drawn(report, &mut random)))
            .collect();
        let defaults = TierProfile::defaults(&report.tier, report.fingerprint.physical_cores);
        let mut settling = Settling {
            derivation: Self {
                profile: derived(&report.rows),
                certain_count: 0,
                uncertain: Vec::new(),
            },
            defaults,
            draws,
        };
        settling.derivation.profile.keep_used();
        settling.all();
        settling.derivation
    }

    /// Whether the profile is worth keeping.
    ///
    /// # Errors
    /// [`TierError::UnsteadyMeasurement`] if nothing that was measured is certain.
    pub fn check(&self) -> Result<(), TierError> {
        match self.certain_count == 0 && !self.uncertain.is_empty() {
            false => Ok(()),
            true => Err(TierError::UnsteadyMeasurement {
                tier: self.profile.tier.clone(),
                uncertain_count: self.uncertain.len(),
            }),
        }
    }
}

/// The medians of rounds drawn at random.
fn drawn(report: &ProbeReport, random: &mut fastrand::Rng) -> Vec<Row> {
    let round_count = report.rounds.iter().map(Vec::len).max().unwrap_or(0);
    let picked: Vec<usize> = (0..round_count)
        .map(|_| random.usize(..round_count))
        .collect();
    let of_row = |(row_idx, row): (usize, &Row)| {
        let rounds = report.rounds.get(row_idx).map_or(&[][..], Vec::as_slice);
        let picked = picked.iter().filter_map(|round_idx| rounds.get(*round_idx));
        let mut picked: Vec<Round> = picked.copied().collect();
        picked.sort_by(by_bandwidth);
        match picked.get(picked.len() / 2) {
            Some(median) => Row {
                bandwidth_bytes_per_s: median.bandwidth_bytes_per_s,
                beside_bandwidth_bytes_per_s: median.beside_bandwidth_bytes_per_s,
                ..row.clone()
            },
            // Without rounds, all is known that the row itself says about its certainty.
            None => Row {
                bandwidth_bytes_per_s: row.bandwidth_bytes_per_s
                    * (1.0 + row.spread * (random.f64() - 0.5)),
                ..row.clone()
            },
        }
    };
    report.rows.iter().enumerate().map(of_row).collect()
}

fn by_bandwidth(a: &Round, b: &Round) -> Ordering {
    a.bandwidth_bytes_per_s.total_cmp(&b.bandwidth_bytes_per_s)
}

struct Settling {
    derivation: Derivation,
    defaults: TierProfile,
    draws: Vec<TierProfile>,
}

impl Settling {
    fn all(&mut self) {
        self.settle("read_threads", |p| &mut p.read_threads, same);
        self.settle("read_grain_bytes", |p| &mut p.read_grain_bytes, step);
        self.settle("write_threads", |p| &mut p.write_threads, same);
        self.settle("write_grain_bytes", |p| &mut p.write_grain_bytes, step);
        self.settle("read_pinning", |p| &mut p.read_pinning, same);
        self.settle("near_only", |p| &mut p.near_only, same);
        self.settle("stripe_sockets", |p| &mut p.stripe_sockets, same);
        self.settle("serialise", |p| &mut p.serialise, same);
        self.settle(
            "access_ns",
            |p| &mut p.access_ns,
            |a, b| close(*a, *b, ACCESS_STEP),
        );
        self.settle(
            "read_bandwidth_bytes_per_s",
            |p| &mut p.read_bandwidth_bytes_per_s,
            same_bandwidth,
        );
        self.settle(
            "write_bandwidth_bytes_per_s",
            |p| &mut p.write_bandwidth_bytes_per_s,
            same_bandwidth,
        );
        self.settle(
            "queue_depth",
            |p| &mut p.queue_depth,
            |a, b| both(*a, *b, |a, b| step(&a, &b)),
        );
    }

    /// Keeps a value that most draws give, too; takes the default otherwise.
    fn settle<T: Clone>(
        &mut self,
        name: &'static str,
        field: impl Fn(&mut TierProfile) -> &mut Value<T>,
        alike: impl Fn(&T, &T) -> bool,
    ) {
        let found = field(&mut self.derivation.profile);
        if !found.measured {
            return;
        }
        let draws = self.draws.iter_mut().map(|draw| &field(draw).value);
        let agreeing_count = draws.filter(|value| alike(value, &found.value)).count();
        if agreeing_count as f64 >= AGREEING_PART * self.draws.len() as f64 {
            self.derivation.certain_count += 1;
            return;
        }
        let default = field(&mut self.defaults).value.clone();
        *found = Value {
            value: default,
            reason: format!(
                "uncertain, so the default: only {agreeing_count} of {} draws from the rounds agree that {}",
                self.draws.len(),
                found.reason
            ),
            measured: false,
        };
        self.derivation.uncertain.push(name);
    }
}

fn same<T: PartialEq>(a: &T, b: &T) -> bool {
    a == b
}

fn step<T: Copy + TryInto<u64>>(a: &T, b: &T) -> bool {
    let number = |value: T| value.try_into().map_or(0.0, |value: u64| value as f64);
    within(number(*a), number(*b), STEP)
}

fn within(a: f64, b: f64, factor: f64) -> bool {
    a <= factor * b && b <= factor * a
}

fn same_bandwidth(a: &Option<u64>, b: &Option<u64>) -> bool {
    close(*a, *b, BANDWIDTH_STEP)
}

fn close(a: Option<u64>, b: Option<u64>, factor: f64) -> bool {
    both(a, b, |a, b| within(a as f64, b as f64, factor))
}

fn both<T>(a: Option<T>, b: Option<T>, alike: impl Fn(T, T) -> bool) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => alike(a, b),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::axes::{Operation, Point};
    use crate::topology::{Fingerprint, Topology};

    /// Reads by one thread and by two, gigabytes a second in thirteen rounds.
    fn report(one: impl Fn(usize) -> f64, two: impl Fn(usize) -> f64) -> ProbeReport {
        let rounds = |gb: &dyn Fn(usize) -> f64| -> Vec<Round> {
            let round = |idx| Round {
                bandwidth_bytes_per_s: gb(idx) * 1e9,
                beside_bandwidth_bytes_per_s: None,
            };
            (0..13).map(round).collect()
        };
        let row = |threads, rounds: &[Round]| {
            let mut rounds = rounds.to_vec();
            rounds.sort_by(by_bandwidth);
            Row {
                tier: "dram".to_owned(),
                emulated: false,
                point: Point::new(Operation::Read, 4096, threads),
                bandwidth_bytes_per_s: rounds[6].bandwidth_bytes_per_s,
                latency_ns: None,
                beside_bandwidth_bytes_per_s: None,
                spread: 0.5,
            }
        };
        let rounds = vec![rounds(&one), rounds(&two)];
        ProbeReport {
            tier: "dram".to_owned(),
            emulated: false,
            fingerprint: Fingerprint {
                physical_cores: 2,
                ..Fingerprint::of(&Topology::default())
            },
            conditions: BTreeMap::new(),
            working_set_bytes: 1,
            io_engine: None,
            copy_bandwidth_bytes_per_s: None,
            complete: true,
            rows: vec![row(1, &rounds[0]), row(2, &rounds[1])],
            rounds,
            refused: Vec::new(),
        }
    }

    /// Half of the rounds have twice the bandwidth of the other half.
    fn two_speeds(idx: usize) -> f64 {
        10.0 * (1 + idx % 2) as f64
    }

    #[test]
    fn what_every_round_says_is_certain_although_no_bandwidth_is() {
        let derivation = Derivation::of(&report(two_speeds, |idx| 3.0 * two_speeds(idx)));
        let profile = &derivation.profile;
        assert!(profile.read_threads.measured, "{derivation:#?}");
        assert_eq!(profile.read_threads.value, 2);
        assert_eq!(derivation.uncertain, ["read_bandwidth_bytes_per_s"]);
        assert_eq!(profile.read_bandwidth_bytes_per_s.value, None);
        let reason = &profile.read_bandwidth_bytes_per_s.reason;
        assert!(reason.starts_with("uncertain"), "{reason}");
        assert!(derivation.check().is_ok());
    }

    #[test]
    fn steady_rounds_make_every_value_certain_and_the_same_each_time() {
        let steady = report(|_| 10.0, |idx| 19.0 + 0.01 * idx as f64);
        let derivation = Derivation::of(&steady);
        assert!(derivation.uncertain.is_empty(), "{derivation:#?}");
        assert_eq!(derivation, Derivation::of(&steady));
    }

    #[test]
    fn a_probe_of_which_nothing_is_certain_makes_no_profile() {
        let derivation = Derivation {
            certain_count: 0,
            uncertain: vec!["read_threads"],
            profile: TierProfile::defaults("dram", 2),
        };
        let error = derivation.check().unwrap_err();
        assert!(matches!(
            error,
            TierError::UnsteadyMeasurement {
                uncertain_count: 1,
                ..
            }
        ));
    }

    #[test]
    fn without_rounds_a_rows_own_uncertainty_counts() {
        let mut report = report(|_| 10.0, |_| 20.0);
        report.rounds.clear();
        let derivation = Derivation::of(&report);
        assert_eq!(derivation.uncertain, ["read_bandwidth_bytes_per_s"]);
        report.rows.iter_mut().for_each(|row| row.spread = 0.01);
        assert!(Derivation::of(&report).uncertain.is_empty());
    }
}
