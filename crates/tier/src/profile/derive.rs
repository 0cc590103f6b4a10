//! The rules. Each looks at the rows it needs and gives a value with its reason, or nothing if they were not measured.

use std::collections::{BTreeMap, BTreeSet};

use super::insights;
use super::measured::{Measured, best_of, gb, is_alone, is_ground, size, smallest_within};
use super::{TierProfile, Value};
use crate::axes::{Operation, Pattern, PersistInstruction, Pinning, Placement, Row, word};

/// What comes within this of the best is as good.
const AS_GOOD: f64 = 0.95;
/// A tighter pinning must gain more than this.
const PINNING_GAIN: f64 = 0.97;
/// A random access must reach this part of the plateau: half of what the first persistent memory loses below 256
/// bytes.
const RANDOM_PLATEAU: f64 = 0.7;
/// A size is a dip if a smaller one is this much faster.
const DIP: f64 = 0.8;
/// Reads and writes at once must reach this part of the better of the two alone.
const MIXED_WORTH: f64 = 0.9;
/// Two sockets must reach this times one socket's bandwidth for striping to pay.
const STRIPING_GAIN: f64 = 1.5;
/// Readers of slow memory must leave DRAM this part of its bandwidth.
const DRAM_KEPT: f64 = 0.9;
/// Interleave weights larger than this say nothing more.
const WEIGHT_MAX: u32 = 16;

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
    let (dram, rows): (Vec<Row>, Vec<Row>) = input
        .rows
        .iter()
        .cloned()
        .partition(|row| row.point.on_dram);
    let measured = Measured { rows: &rows };
    let dram = Measured { rows: &dram };
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
    set(&mut profile.random_bytes_min, random_bytes_min(&measured));
    set(
        &mut profile.random_bytes_avoid,
        random_bytes_avoid(&measured),
    );
    set(
        &mut profile.read_bandwidth_bytes_per_s,
        bandwidth(best_of(&sequential_reads(&measured))),
    );
    set(
        &mut profile.write_bandwidth_bytes_per_s,
        bandwidth(best_of(&durable_writes(&measured))),
    );
    set(&mut profile.queue_depth, queue_depth(&measured));
    set(&mut profile.slow_reader_cap, slow_reader_cap(&dram));
    set(&mut profile.interleave, interleave(&measured, &dram));
    profile.insights = insights::of(&measured, &profile, input.physical_cores);
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
            "{threads} threads read {} sequentially, the best of all counts is {} with {} (insight 2)",
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
             or larger ones write {} (insight 7)",
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
    let insight = match operation {
        Operation::Read => 1,
        Operation::Write => 6,
    };
    Some(Value::measured(
        bytes,
        format!(
            "{threads} threads get {} in pieces of {}, the best is {} in pieces of {} (insight {insight})",
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
    Some(Value::measured(
        value,
        format!("{} (insight 3)", all.join(", ")),
    ))
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
            "near memory is read at {}, far memory at {}{first} (insights 4 and 9)",
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
            "one socket reads {}, all sockets their own memory {} (insight 5)",
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
            "{} readers and {} writers together move at most {}, one kind alone {} (insight 11)",
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

fn random_bytes_min(measured: &Measured<'_>) -> Option<Value<u64>> {
    let rows = random_reads(measured);
    let (bytes, row, best) = smallest_within(&rows, RANDOM_PLATEAU, |row| row.point.access_bytes)?;
    let smaller = rows.iter().rfind(|row| row.point.access_bytes < bytes);
    let smaller = smaller.map_or(String::new(), |row| {
        format!(
            ", of {} only {}",
            size(row.point.access_bytes),
            gb(row.bandwidth_bytes_per_s)
        )
    });
    Some(Value::measured(
        bytes,
        format!(
            "random reads of {} get {}{smaller}; the best is {} (insight 12)",
            size(bytes),
            gb(row.bandwidth_bytes_per_s),
            gb(best.bandwidth_bytes_per_s)
        ),
    ))
}

fn random_bytes_avoid(measured: &Measured<'_>) -> Option<Value<Vec<u64>>> {
    let rows = random_reads(measured);
    let mut best_smaller: Option<&Row> = None;
    let mut dips = Vec::new();
    for row in &rows {
        if best_smaller
            .is_some_and(|best| row.bandwidth_bytes_per_s < DIP * best.bandwidth_bytes_per_s)
        {
            dips.push(row.point.access_bytes);
        }
        best_smaller = best_of(&[row, best_smaller.unwrap_or(row)]);
    }
    let reason = match dips.first() {
        None => "no size is slower than a smaller one".to_owned(),
        Some(_) => "smaller random reads are faster".to_owned(),
    };
    (rows.len() > 1).then(|| Value::measured(dips, reason))
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

/// How many readers leave DRAM nearly all of its bandwidth. Reads of files do not read memory.
fn slow_reader_cap(dram: &Measured<'_>) -> Option<Value<Option<u32>>> {
    let rows = dram.matching(|row| row.point.queue_depth.is_none());
    let readers = rows.iter().map(|row| row.point.threads).max()?;
    let rows = rows.into_iter().filter(|row| row.point.threads == readers);
    let (alone, beside): (Vec<&Row>, Vec<&Row>) =
        rows.partition(|row| row.point.beside_threads == 0);
    let alone = best_of(&alone)?.bandwidth_bytes_per_s;
    let harmless = beside
        .iter()
        .filter(|row| row.bandwidth_bytes_per_s >= DRAM_KEPT * alone);
    let cap = harmless
        .map(|row| row.point.beside_threads)
        .max()
        .unwrap_or(1);
    let most = beside.iter().map(|row| row.point.beside_threads).max()?;
    let worst = beside
        .iter()
        .map(|row| row.bandwidth_bytes_per_s)
        .fold(f64::INFINITY, f64::min);
    Some(Value::measured(
        (cap < most).then_some(cap),
        format!(
            "DRAM alone is read at {}, at {} beside readers of this tier",
            gb(alone),
            gb(worst)
        ),
    ))
}

/// Pages in proportion to the bandwidth of many readers.
fn interleave(measured: &Measured<'_>, dram: &Measured<'_>) -> Option<Value<Option<(u32, u32)>>> {
    let memory = |row: &Row| is_ground(row, Operation::Read) && row.point.queue_depth.is_none();
    let readers = dram.best(memory)?.point.threads;
    let (dram, slow) = (
        dram.peak(memory)?,
        measured.peak(|row| memory(row) && row.point.threads <= readers)?,
    );
    let best = (1..=WEIGHT_MAX)
        .flat_map(|a| (1..=WEIGHT_MAX).map(move |b| (a, b)))
        .map(|(a, b)| {
            (
                ((f64::from(a) / f64::from(b)) / (dram / slow)).ln().abs(),
                a + b,
                (a, b),
            )
        })
        // Near enough is as good, and then small numbers are better.
        .map(|(error, sum, weights)| (error.max(0.03), sum, weights))
        .min_by(|x, y| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)))?;
    Some(Value::measured(
        Some(best.2),
        format!("DRAM is read at {}, this tier at {}", gb(dram), gb(slow)),
    ))
}
