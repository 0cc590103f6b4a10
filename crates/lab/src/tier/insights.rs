//! Whether each of the twelve insights of Daase et al. (`Maximizing persistent memory bandwidth utilization for OLAP
//! workloads`, SIGMOD 2021) holds on a measured tier.

use std::collections::BTreeMap;

use hotshelf_tier::probe::{Grouping, Operation, Pattern, Pinning, Placement, Row};
use hotshelf_tier::profile::measured::{Measured, gb, is_alone, is_ground, size, smallest_within};
use hotshelf_tier::profile::{TierProfile, Value};

/// One insight and what the measurements say about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Insight {
    /// Its number among the twelve.
    pub number: u8,
    /// What it advises.
    pub advice: &'static str,
    /// Whether the advice is right on this tier; `None` if that was not measured.
    pub holds: Option<bool>,
    /// The measurements.
    pub evidence: String,
}

/// Less than this part is a loss worth an advice.
const CLEAR_LOSS: f64 = 0.8;
/// The grain of the first persistent memory.
const GRAIN_BYTES: u64 = 256;
/// A random access must reach this part of the plateau: half of what the first persistent memory loses below 256
/// bytes.
const RANDOM_PLATEAU: f64 = 0.7;
/// Pieces from this size on are "large" in the advice on writers.
const LARGE_BYTES: u64 = 1024;

/// What measurements say about each insight; `profile` was derived from them.
pub fn of(rows: &[Row], profile: &TierProfile, physical_cores: u32) -> Vec<Insight> {
    let measured = &Measured { rows };
    let found = |number, advice: &'static str, finding: Option<(bool, String)>| {
        let (holds, evidence) = finding.unzip();
        Insight {
            number,
            advice,
            holds,
            evidence: evidence.unwrap_or_else(|| "not measured".to_owned()),
        }
    };
    vec![
        found(
            1,
            "read from ranges of one's own, or in pages",
            grouped_small(measured, Operation::Read),
        ),
        found(2, "read with all cores", all_cores(profile, physical_cores)),
        found(
            3,
            "pin readers near their data",
            pinned(measured, Operation::Read),
        ),
        found(4, "read near memory only", far(measured, Operation::Read)),
        found(
            5,
            "stripe over sockets",
            if_measured(&profile.stripe_sockets),
        ),
        found(
            6,
            "write in 256 B or 4 KiB, not less",
            small_writes(measured, profile),
        ),
        found(
            7,
            "write large pieces with few threads",
            few_writers(measured, profile),
        ),
        found(8, "pin writers", pinned(measured, Operation::Write)),
        found(9, "write near memory only", far(measured, Operation::Write)),
        found(
            10,
            "do not write one memory from two sockets",
            contended(measured),
        ),
        found(
            11,
            "let reads and writes take turns",
            if_measured(&profile.serialise),
        ),
        found(12, "make random accesses at least 256 B", random(measured)),
    ]
}

fn if_measured(value: &Value<bool>) -> Option<(bool, String)> {
    value.measured.then(|| (value.value, value.reason.clone()))
}

/// Taking turns in small pieces is clearly worse than ranges of one's own.
fn grouped_small(measured: &Measured<'_>, operation: Operation) -> Option<(bool, String)> {
    let grouped = measured
        .matching(|row| is_alone(row, operation) && row.point.grouping == Grouping::Grouped);
    let smallest = grouped.iter().map(|row| row.point.access_bytes).min()?;
    let at_smallest = |grouping| {
        measured.peak(move |row: &Row| {
            is_alone(row, operation)
                && row.point.grouping == grouping
                && row.point.access_bytes == smallest
                && row.point.placement == Placement::Near
        })
    };
    let (turns, own) = (
        at_smallest(Grouping::Grouped)?,
        at_smallest(Grouping::Individual)?,
    );
    let evidence = format!(
        "pieces of {}: {} taking turns, {} in ranges of one's own",
        size(smallest),
        gb(turns),
        gb(own)
    );
    Some((turns < CLEAR_LOSS * own, evidence))
}

fn all_cores(profile: &TierProfile, physical_cores: u32) -> Option<(bool, String)> {
    let threads = profile.read_threads.value;
    let holds = threads * 4 >= physical_cores * 3;
    profile
        .read_threads
        .measured
        .then(|| (holds, profile.read_threads.reason.clone()))
}

fn pinned(measured: &Measured<'_>, operation: Operation) -> Option<(bool, String)> {
    let peaks = measured.by_pinning(|row| is_ground(row, operation));
    let free = peaks
        .iter()
        .find(|(pinning, _)| *pinning == Pinning::None)?
        .1;
    let bound = peaks
        .iter()
        .filter(|(pinning, _)| *pinning != Pinning::None)
        .map(|(_, peak)| *peak);
    let bound = bound.max_by(f64::total_cmp)?;
    Some((
        free < 0.97 * bound,
        format!("{} free, {} pinned", gb(free), gb(bound)),
    ))
}

fn far(measured: &Measured<'_>, operation: Operation) -> Option<(bool, String)> {
    let at = |placement| {
        measured.peak(|row| is_alone(row, operation) && row.point.placement == placement)
    };
    let (near, far) = (at(Placement::Near)?, at(Placement::Far)?);
    Some((
        far < 0.95 * near,
        format!("{} near, {} far", gb(near), gb(far)),
    ))
}

/// Pieces below the device's grain are clearly slower: with the chosen threads, or with any if they wrote none so
/// small.
fn small_writes(measured: &Measured<'_>, profile: &TierProfile) -> Option<(bool, String)> {
    let small =
        |row: &Row| is_ground(row, Operation::Write) && row.point.access_bytes < GRAIN_BYTES;
    let chosen = |row: &Row| row.point.threads == profile.write_threads.value;
    let by_chosen = measured.peak(|row| small(row) && chosen(row));
    let small = by_chosen.or_else(|| measured.peak(small))?;
    let best = measured.peak(|row| is_ground(row, Operation::Write))?;
    Some((
        small < CLEAR_LOSS * best,
        format!(
            "pieces below {}: {}, best {}",
            size(GRAIN_BYTES),
            gb(small),
            gb(best)
        ),
    ))
}

/// The most threads measured write large pieces clearly slower than few do.
fn few_writers(measured: &Measured<'_>, profile: &TierProfile) -> Option<(bool, String)> {
    let large =
        |row: &Row| is_ground(row, Operation::Write) && row.point.access_bytes >= LARGE_BYTES;
    let most = measured
        .matching(large)
        .iter()
        .map(|row| row.point.threads)
        .max()?;
    // At the worst size: the advice is for pieces whose size others choose.
    let with_most = measured.matching(|row| large(row) && row.point.threads == most);
    let with_most = with_most
        .iter()
        .map(|row| row.bandwidth_bytes_per_s)
        .min_by(f64::total_cmp)?;
    let best = measured.peak(large)?;
    let few = profile.write_threads.value;
    let holds = few * 2 <= most && with_most < 0.95 * best;
    let evidence = format!(
        "large pieces: {} with {most} threads, {} at best; {few} threads are enough",
        gb(with_most),
        gb(best)
    );
    Some((holds, evidence))
}

fn contended(measured: &Measured<'_>) -> Option<(bool, String)> {
    let at = |placement| {
        measured.peak(|row| is_alone(row, Operation::Write) && row.point.placement == placement)
    };
    let (near, shared) = (at(Placement::Near)?, at(Placement::BothShared)?);
    Some((
        shared < 0.95 * near,
        format!("{} from one socket, {} from two", gb(near), gb(shared)),
    ))
}

fn random(measured: &Measured<'_>) -> Option<(bool, String)> {
    let rows = random_reads(measured);
    let smallest = rows.first()?.point.access_bytes;
    let (bytes, row, best) = smallest_within(&rows, RANDOM_PLATEAU, |row| row.point.access_bytes)?;
    let evidence = format!(
        "random reads of {} get {}, the best is {}",
        size(bytes),
        gb(row.bandwidth_bytes_per_s),
        gb(best.bandwidth_bytes_per_s)
    );
    Some((smallest <= 256 && bytes >= 256, evidence))
}

/// The smallest random read that is worth making.
pub fn random_bytes_min(rows: &[Row]) -> Option<u64> {
    let rows = random_reads(&Measured { rows });
    let found = smallest_within(&rows, RANDOM_PLATEAU, |row| row.point.access_bytes);
    found.map(|(bytes, ..)| bytes)
}

/// Random reads at the count of threads that reads most at random: the best of each size, by size.
pub(super) fn random_reads<'a>(measured: &Measured<'a>) -> Vec<&'a Row> {
    let random = |row: &Row| {
        is_alone(row, Operation::Read)
            && row.point.pattern == Pattern::Random
            && row.point.placement == Placement::Near
    };
    let threads = measured.best(random).map(|row| row.point.threads);
    let rows = measured.matching(|row| random(row) && Some(row.point.threads) == threads);
    let mut best: BTreeMap<u64, &Row> = BTreeMap::new();
    for row in rows {
        let known = best.entry(row.point.access_bytes).or_insert(row);
        if row.bandwidth_bytes_per_s > known.bandwidth_bytes_per_s {
            *known = row;
        }
    }
    best.into_values().collect()
}

#[cfg(test)]
mod tests {
    use hotshelf_tier::emulated::recorded_rows;
    use hotshelf_tier::probe::Point;
    use hotshelf_tier::profile::{DeriveInput, derive};

    use super::*;
    use crate::tier::emulated::RECORDED_CORES;

    const PUBLISHED: &str = include_str!("published-figures.csv");

    fn published_rows() -> Vec<Row> {
        let word = |text: &str| serde_json::Value::String(text.to_owned());
        let row = |line: &str| {
            let f: Vec<&str> = line.split(',').collect();
            let number = |at: usize| f[at].parse::<f64>().unwrap();
            let operation = serde_json::from_value(word(f[0])).unwrap();
            Row {
                tier: "dax:/dev/dax0.0".to_owned(),
                emulated: false,
                point: Point {
                    pattern: serde_json::from_value(word(f[1])).unwrap(),
                    grouping: serde_json::from_value(word(f[2])).unwrap(),
                    pinning: serde_json::from_value(word(f[3])).unwrap(),
                    placement: serde_json::from_value(word(f[4])).unwrap(),
                    beside_threads: number(7) as u32,
                    ..Point::new(operation, number(5) as u64, number(6) as u32)
                },
                bandwidth_bytes_per_s: number(8) * 1e9,
                latency_ns: None,
                beside_bandwidth_bytes_per_s: f[9].parse::<f64>().ok().map(|gb| gb * 1e9),
                spread: 0.0,
            }
        };
        let lines = PUBLISHED.lines().filter(|line| !line.starts_with('#'));
        lines.map(row).collect()
    }

    /// The number of each insight and whether it holds.
    fn holds(rows: &[Row]) -> BTreeMap<u8, Option<bool>> {
        let profile = derive(&DeriveInput {
            tier: "dax",
            rows,
            physical_cores: RECORDED_CORES,
        });
        let insights = of(rows, &profile, RECORDED_CORES);
        insights.iter().map(|one| (one.number, one.holds)).collect()
    }

    #[test]
    fn all_insights_hold_by_the_papers_own_figures() {
        let rows = published_rows();
        let holds = holds(&rows);
        assert!(
            holds.len() == 12 && holds.values().all(|holds| *holds == Some(true)),
            "{holds:?}"
        );
        assert_eq!(random_bytes_min(&rows), Some(256));
    }

    #[test]
    fn a_profile_of_the_papers_own_figures_gives_the_papers_advice() {
        let profile = derive(&DeriveInput {
            tier: "dax:/dev/dax0.0",
            rows: &published_rows(),
            physical_cores: RECORDED_CORES,
        });
        let (readers, writers) = (&profile.read_threads, &profile.write_threads);
        assert!((16..=18).contains(&readers.value), "{readers:?}");
        assert!((4..=6).contains(&writers.value), "{writers:?}");
        assert_eq!(profile.read_grain_bytes.value, 4096);
        assert_eq!(profile.write_grain_bytes.value, 4096);
        assert_eq!(profile.read_pinning.value, Pinning::Node);
        assert!(profile.near_only.value && profile.stripe_sockets.value && profile.serialise.value);
    }

    #[test]
    fn recorded_persistent_memory_is_like_the_papers_and_dram_is_not() {
        for (device, smallest, expected) in [
            ("optane100-128", 256, [true; 3]),
            ("optane100-256", 256, [true; 3]),
            ("optane100-512", 256, [true; 3]),
            ("optane200-256", 256, [true; 3]),
            ("optane-4-dimms", 256, [true; 3]),
            ("dram-beside-optane100", 64, [false; 3]),
            ("dram-beside-optane200", 64, [false; 3]),
        ] {
            let rows = recorded_rows(device);
            let holds = holds(&rows);
            let found = [7, 11, 12].map(|number: u8| holds[&number]);
            assert_eq!(found, expected.map(Some), "{device}: {holds:?}");
            assert_eq!(random_bytes_min(&rows), Some(smallest), "{device}");
        }
        assert!(holds(&[]).values().all(Option::is_none));
    }
}
