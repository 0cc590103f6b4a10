//! The measured grids that come with the crate, as rows.

use crate::axes::{Operation, Pattern, PersistInstruction, Pinning, Point, Row};

/// Bandwidths and latencies from PerMA-Bench (MIT licence); the file's head says more.
const OPTANE: &str = include_str!("optane.csv");

const GIB: f64 = (1u64 << 30) as f64;

/// Every recorded measurement of a device: `optane100-128`, `optane100-256`, `optane100-512`, `optane200-256`,
/// `optane-1-dimm`, `optane-4-dimms`, `dram-beside-optane100`, `dram-beside-optane200`. Empty for other names.
///
/// The threads were pinned to the memory's node; those of a sequential run took chunks of 64 MiB in turn, so each has a
/// range of its own.
pub fn recorded_rows(device: &str) -> Vec<Row> {
    let lines = OPTANE.lines().filter(|line| !line.starts_with('#'));
    let mut rows = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        if let [name, pattern, operation, instruction, access_bytes, values] = fields[..]
            && name == device
        {
            let key = (pattern, operation, instruction);
            let bytes = access_bytes.parse().unwrap_or(0);
            rows.extend(
                values
                    .split(' ')
                    .filter_map(|value| row(device, key, bytes, value)),
            );
        }
    }
    rows
}

fn row(device: &str, key: (&str, &str, &str), access_bytes: u64, value: &str) -> Option<Row> {
    let (pattern, operation, instruction) = key;
    let (threads, value) = value.split_once(':')?;
    let (threads, value): (u32, f64) = (threads.parse().ok()?, value.parse().ok()?);
    let operation = match operation {
        "read" => Operation::Read,
        _ => Operation::Write,
    };
    let latency_ns = (pattern == "latency").then_some(value);
    let point = Point {
        pinning: Pinning::Node,
        pattern: match pattern {
            "latency" => Pattern::Dependent,
            "random" | "mixed" => Pattern::Random,
            _ => Pattern::Sequential,
        },
        persist: match (operation, instruction) {
            (Operation::Read, _) => None,
            (_, "nt") => Some(PersistInstruction::NonTemporal),
            (_, "clwb" | "clflushopt") => Some(PersistInstruction::Flush),
            _ => Some(PersistInstruction::None),
        },
        beside_threads: match pattern {
            "mixed" => threads,
            _ => 0,
        },
        ..Point::new(operation, access_bytes, threads)
    };
    Some(Row {
        tier: device.to_owned(),
        emulated: false,
        point,
        bandwidth_bytes_per_s: latency_ns.map_or(value * GIB, |ns| access_bytes as f64 * 1e9 / ns),
        latency_ns,
        beside_bandwidth_bytes_per_s: None,
        spread: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_line_of_every_device_becomes_rows() {
        let devices = [
            "optane100-128",
            "optane100-256",
            "optane100-512",
            "optane200-256",
            "optane-1-dimm",
        ];
        let others = [
            "optane-4-dimms",
            "dram-beside-optane100",
            "dram-beside-optane200",
        ];
        let count: usize = devices
            .iter()
            .chain(&others)
            .map(|device| recorded_rows(device).len())
            .sum();
        assert_eq!(count, 1176 + 2 * 8 + 6 * 8);
        assert!(recorded_rows("nothing").is_empty());
    }

    #[test]
    fn a_recorded_point_has_its_published_value() {
        let point = Point {
            pinning: Pinning::Node,
            ..Point::new(Operation::Read, 4096, 16)
        };
        let rows = recorded_rows("optane100-256");
        let row = rows.iter().find(|row| row.point == point).unwrap();
        assert_eq!(row.bandwidth_bytes_per_s, 42.44 * GIB);
    }
}
