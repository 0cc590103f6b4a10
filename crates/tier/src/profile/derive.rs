//! The rules. Each looks at the rows it needs and gives a value with its reason, or nothing if they were not measured.

use std::collections::BTreeSet;

use super::measured::{Measured, best_of, gb, is_alone, is_ground, size, smallest_within};
use super::{TierProfile, Value};
use crate::axes::{Operation, Pattern, PersistInstruction, Pinning, Placement, Row, word};

/// What comes within this of the best is as good.
const AS_GOOD: f64 = 0.95;
/// A tighter pinning must gain more than this.
const PINNING_GAIN: f64 = 0.97;
/// Reads and writes at once must reach this part of the better of the two alone.
const MIXED_WORTH: f64 = 0.9;
/// Two sockets must reach this times one socket's bandwidth for striping to pay.
const STRIPING_GAIN: f64 = 1.5;

/// What a profile is derived from.
#[derive(Debug, Clone, Copy)]
pub struct DeriveInput<'a> {
    /// The tier's name.
    pub tier: &'a str,
    /// Its measurements, and those of DRAM beside it.
    pub rows: &'a [Row],
    /// How many physical cores are near the tier.
    pub physical_cores: u32,
}

/// Derives a tier's profile. Whatever was not measured keeps its conservative default.
pub fn derive(input: &DeriveInput<'_>) -> TierProfile {
    let of_tier = input.rows.iter().filter(|row| !row.point.on_dram);
    let rows: Vec<Row> = of_tier.cloned().collect();
    let measured = Measured { rows: &rows };
    let mut profile = TierProfile::defaults(input.tier, input.physical_cores);
    profile.emulated = profile.emulated || input.rows.iter().any(|row| row.emulated);
    set(
        &mut profile.read_threads,
        read_threads(&measured, input.physical_cores),
    );
    let readers = profile.read_threads.value;
    set(
        &mut profile.read_grain_bytes,
        grain(&measured, Operation::Read, readers),
    );
    set(&mut profile.write_threads, write_threads(&measured));
    let writers = profile.write_threads.value;
    set(
        &mut profile.write_grain_bytes,
        grain(&measured, Operation::Write, writers),
    );
    set(&mut profile.read_pinning, read_pinning(&measured));
    set(&mut profile.near_only, near_only(&measured));
    set(&mut profile.stripe_sockets, stripe_sockets(&measured));
    set(&mut profile.serialise, serialise(&measured));
    set(&mut profile.access_ns, access_ns(&measured));
    set(
        &mut profile.read_bandwidth_bytes_per_s,
        bandwidth(best_of(&sequential_reads(&measured))),
    );
    set(
        &mut profile.write_bandwidth_bytes_per_s,
        bandwidth(best_of(&durable_writes(&measured))),
    );
    set(&mut profile.queue_depth, queue_depth(&measured));
    profile
}

fn set<T>(value: &mut Value<T>, derived: Option<Value<T>>) {
    if let Some(derived) = derived {
        *value = derived;
    }
}

/// The smallest count that is as good as the best; more than the physical cores only if that is better.
fn read_threads(measured: &Measured<'_>, physical_cores: u32) -> Option<Value<u32>> {
    let ground = measured.matching(|row| is_ground(row, Operation::Read));
    let on_cores: Vec<&Row> = ground
        .iter()
        .filter(|row| row.point.threads <= physical_cores)
        .copied()
        .collect();
    let best = best_of(&ground)?;
    let enough = best_of(&on_cores)
        .is_some_and(|row| row.bandwidth_bytes_per_s >= AS_GOOD * best.bandwidth_bytes_per_s);
    let candidates = if enough { on_cores } else { ground };
    let (threads, row, _) = smallest_within(&candidates, AS_GOOD, |row| row.point.threads)?;
    Some(Value::measured(
        threads,
        format!(
            "{threads} threads read {} sequentially, the best of all counts is {} with {}",
            gb(row.bandwidth_bytes_per_s),
            gb(best.bandwidth_bytes_per_s),
            best.point.threads
        ),
    ))
}

/// The smallest count that is as good as the best of all sizes and counts: the two must be chosen together.
fn write_threads(measured: &Measured<'_>) -> Option<Value<u32>> {
    let ground = durable_writes(measured);
    let (threads, row, best) = smallest_within(&ground, AS_GOOD, |row| row.point.threads)?;
    let most = ground.iter().map(|row| row.point.threads).max()?;
    let with_most: Vec<&Row> = ground
        .iter()
        .filter(|r| r.point.threads == most && r.point.access_bytes >= row.point.access_bytes)
        .copied()
        .collect();
    let with_most = best_of(&with_most).map_or(0.0, |row| row.bandwidth_bytes_per_s);
    Some(Value::measured(
        threads,
        format!(
            "{threads} threads write {} in pieces of {}, the best of all is {} with {}; {most} threads in such pieces \
             or larger ones write {}",
            gb(row.bandwidth_bytes_per_s),
            size(row.point.access_bytes),
            gb(best.bandwidth_bytes_per_s),
            best.point.threads,
            gb(with_most)
        ),
    ))
}

/// Sequential durable writes by the better instruction, of either grouping's own ranges.
fn durable_writes<'a>(measured: &Measured<'a>) -> Vec<&'a Row> {
    let non_temporal = measured.matching(|row| {
        is_ground(row, Operation::Write)
            && row.point.persist == Some(PersistInstruction::NonTemporal)
    });
    match non_temporal.is_empty() {
        true => measured.matching(|row| is_ground(row, Operation::Write)),
        false => non_temporal,
    }
}

/// The smallest access that is as good as the best at the chosen count of threads.
fn grain(measured: &Measured<'_>, operation: Operation, threads: u32) -> Option<Value<u64>> {
    let ground = match operation {
        Operation::Read => sequential_reads(measured),
        Operation::Write => durable_writes(measured),
    };
    let at_threads: Vec<&Row> = ground
        .into_iter()
        .filter(|row| row.point.threads == threads)
        .collect();
    let (bytes, row, best) = smallest_within(&at_threads, AS_GOOD, |row| row.point.access_bytes)?;
    Some(Value::measured(
        bytes,
        format!(
            "{threads} threads get {} in pieces of {}, the best is {} in pieces of {}",
            gb(row.bandwidth_bytes_per_s),
            size(bytes),
            gb(best.bandwidth_bytes_per_s),
            size(best.point.access_bytes)
        ),
    ))
}

/// The loosest that is as good.
fn read_pinning(measured: &Measured<'_>) -> Option<Value<Pinning>> {
    let peaks = measured.by_pinning(|row| is_ground(row, Operation::Read));
    if peaks.len() < 2 {
        return None;
    }
    let best = peaks.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
    let (value, _) = peaks
        .iter()
        .find(|(_, peak)| *peak >= PINNING_GAIN * best)
        .copied()?;
    let all: Vec<String> = peaks
        .iter()
        .map(|(pinning, peak)| format!("{} pinned to {}", gb(*peak), word(pinning)))
        .collect();
    Some(Value::measured(value, all.join(", ")))
}

fn near_only(measured: &Measured<'_>) -> Option<Value<bool>> {
    let at = |operation, placement| {
        measured.peak(|row| is_alone(row, operation) && row.point.placement == placement)
    };
    let near = at(Operation::Read, Placement::Near)?;
    let far = at(Operation::Read, Placement::Far)?;
    let first = at(Operation::Read, Placement::FarFirst);
    let first = first.map_or(String::new(), |first| {
        format!(" ({} at first touch)", gb(first))
    });
    Some(Value::measured(
        far < AS_GOOD * near,
        format!(
            "near memory is read at {}, far memory at {}{first}",
            gb(near),
            gb(far)
        ),
    ))
}

fn stripe_sockets(measured: &Measured<'_>) -> Option<Value<bool>> {
    let at = |placement| {
        measured.peak(|row| is_alone(row, Operation::Read) && row.point.placement == placement)
    };
    let (one, both) = (at(Placement::Near)?, at(Placement::BothNear)?);
    Some(Value::measured(
        both >= STRIPING_GAIN * one,
        format!(
            "one socket reads {}, all sockets their own memory {}",
            gb(one),
            gb(both)
        ),
    ))
}

fn serialise(measured: &Measured<'_>) -> Option<Value<bool>> {
    let mixed = measured
        .matching(|row| row.point.beside_threads > 0 && row.point.operation == Operation::Read);
    let with_total = mixed
        .into_iter()
        .filter_map(|row| Some((row, row.bandwidth_bytes_per_s + beside(measured, row)?)));
    let (row, total) = with_total.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let alone = |operation| {
        measured.peak(|other| {
            is_alone(other, operation)
                && other.point.placement == Placement::Near
                && other.point.pattern == row.point.pattern
        })
    };
    let better = f64::max(
        alone(Operation::Read)?,
        alone(Operation::Write).unwrap_or(0.0),
    );
    Some(Value::measured(
        total < MIXED_WORTH * better,
        format!(
            "{} readers and {} writers together move at most {}, one kind alone {}",
            row.point.threads,
            row.point.beside_threads,
            gb(total),
            gb(better)
        ),
    ))
}

/// The bandwidth of the other operation: in the same row, or in a row of its own.
pub(super) fn beside(measured: &Measured<'_>, row: &Row) -> Option<f64> {
    let other = |candidate: &&Row| {
        let (a, b) = (&candidate.point, &row.point);
        a.operation != b.operation
            && (a.threads, a.beside_threads) == (b.beside_threads, b.threads)
            && (a.pattern, a.access_bytes) == (b.pattern, b.access_bytes)
    };
    let in_own_row = || {
        measured
            .rows
            .iter()
            .find(other)
            .map(|row| row.bandwidth_bytes_per_s)
    };
    row.beside_bandwidth_bytes_per_s.or_else(in_own_row)
}

/// The time of the smallest access, each beginning when the one before has ended.
fn access_ns(measured: &Measured<'_>) -> Option<Value<Option<u64>>> {
    let one_by_one = measured.matching(|row| {
        let point = &row.point;
        let waits = match point.pattern {
            Pattern::Dependent => true,
            Pattern::Random => point.queue_depth == Some(1),
            Pattern::Sequential => false,
        };
        waits
            && point.threads == 1
            && is_alone(row, Operation::Read)
            && point.placement == Placement::Near
    });
    let by_size = one_by_one.iter().min_by_key(|row| row.point.access_bytes);
    let row = by_size.filter(|row| row.bandwidth_bytes_per_s > 0.0)?;
    let bytes = row.point.access_bytes;
    let access_ns = (bytes as f64 * 1e9 / row.bandwidth_bytes_per_s).round() as u64;
    Some(Value::measured(
        Some(access_ns),
        format!(
            "accesses of {}, one after the other, give {}: {access_ns} ns each",
            size(bytes),
            gb(row.bandwidth_bytes_per_s)
        ),
    ))
}

fn sequential_reads<'a>(measured: &Measured<'a>) -> Vec<&'a Row> {
    measured.matching(|row| is_ground(row, Operation::Read))
}

/// The bandwidth of the best.
fn bandwidth(best: Option<&Row>) -> Option<Value<Option<u64>>> {
    let best = best?;
    Some(Value::measured(
        Some(best.bandwidth_bytes_per_s as u64),
        format!(
            "{} sequentially in pieces of {}",
            gb(best.bandwidth_bytes_per_s),
            size(best.point.access_bytes)
        ),
    ))
}

/// For each size of sequential and random blocks the smallest depth that is as good as the best, and of these the
/// largest: deep enough for whatever is read.
fn queue_depth(measured: &Measured<'_>) -> Option<Value<Option<u32>>> {
    let rows =
        measured.matching(|row| is_alone(row, Operation::Read) && row.point.queue_depth.is_some());
    let kinds: BTreeSet<(u64, Pattern)> = rows
        .iter()
        .map(|row| (row.point.access_bytes, row.point.pattern))
        .collect();
    let of_kind = |kind: (u64, Pattern)| {
        let alike: Vec<&Row> = rows
            .iter()
            .filter(|row| (row.point.access_bytes, row.point.pattern) == kind)
            .copied()
            .collect();
        smallest_within(&alike, AS_GOOD, |row| row.point.queue_depth)
    };
    let (depth, row, best) = kinds
        .into_iter()
        .filter_map(of_kind)
        .max_by_key(|(depth, ..)| *depth)?;
    Some(Value::measured(
        depth,
        format!(
            "{} in flight of {} read {}, the best is {}; other sizes need no more",
            depth.unwrap_or(1),
            size(row.point.access_bytes),
            gb(row.bandwidth_bytes_per_s),
            gb(best.bandwidth_bytes_per_s)
        ),
    ))
}
