//! Whether each of the twelve insights of Daase et al. (SIGMOD 2021) holds on a measured tier.

use serde::{Deserialize, Serialize};

use super::TierProfile;
use super::derive::random_reads;
use super::measured::{Measured, gb, is_alone, is_ground, size};
use crate::axes::{Grouping, Operation, Pinning, Placement, Row};

/// One insight and what the measurements say about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Insight {
    /// Its number among the twelve.
    pub number: u8,
    /// What it advises.
    pub advice: String,
    /// Whether the advice is right on this tier; `None` if that was not measured.
    pub holds: Option<bool>,
    /// The measurements.
    pub evidence: String,
}

/// Less than this part is a loss worth an advice.
const CLEAR_LOSS: f64 = 0.8;
/// The grain of the first persistent memory.
const GRAIN_BYTES: u64 = 256;
/// Pieces from this size on are "large" in the advice on writers.
const LARGE_BYTES: u64 = 1024;

pub(super) fn of(
    measured: &Measured<'_>,
    profile: &TierProfile,
    physical_cores: u32,
) -> Vec<Insight> {
    let found = |number, advice: &str, finding: Option<(bool, String)>| {
        let (holds, evidence) = finding.unzip();
        Insight {
            number,
            advice: advice.to_owned(),
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
        found(
            12,
            "make random accesses at least 256 B",
            random(measured, profile),
        ),
    ]
}

fn if_measured(value: &super::Value<bool>) -> Option<(bool, String)> {
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

fn random(measured: &Measured<'_>, profile: &TierProfile) -> Option<(bool, String)> {
    let smallest = random_reads(measured).first()?.point.access_bytes;
    let holds = smallest <= 256 && profile.random_bytes_min.value >= 256;
    profile
        .random_bytes_min
        .measured
        .then(|| (holds, profile.random_bytes_min.reason.clone()))
}
