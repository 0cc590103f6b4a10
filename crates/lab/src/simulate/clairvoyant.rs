//! What no policy can beat on three shelves: Belady's rule over memory and disk together, with the trace known.

use super::shelves::ShelfMachine;
use super::{Trace, TraceQuery};
use hotshelf_cache::ColumnId;
use std::collections::BTreeMap;

/// No policy, not even one that reads ahead of queries, takes less time for a trace, in virtual seconds.
///
/// Memory and disk together hold this many bytes, and both begin empty. Of what a query brings and what was there,
/// Belady's rule keeps what is wanted again soonest, and no other choice reads fewer bytes from remote storage. What
/// it reads passes through remote storage one byte after the other, and everything passes through the processors.
pub fn least_s(machine: &ShelfMachine, trace: &Trace) -> f64 {
    let remote_s = machine.shelves[2].pace_s(trace.segment_bytes as f64);
    let processing_s = |query: &TraceQuery| {
        let bytes = query.columns.iter().map(|column| trace.columns[column]);
        bytes.sum::<u64>() as f64 / query.processing_bandwidth
    };
    let processing_s: f64 = trace.queries.iter().map(processing_s).sum();
    processing_s.max(remote_s * least_remote_bytes(machine, trace))
}

/// The fewest bytes that have to come from remote storage.
pub fn least_remote_bytes(machine: &ShelfMachine, trace: &Trace) -> f64 {
    let capacity_bytes = machine.shelves[0].budget_bytes + machine.shelves[1].budget_bytes;
    let mut held: BTreeMap<ColumnId, f64> = BTreeMap::new();
    let mut remote_bytes = 0.0;
    for (query_idx, query) in trace.queries.iter().enumerate() {
        for column in &query.columns {
            let bytes = trace.columns[column] as f64;
            remote_bytes += bytes - held.insert(*column, bytes).unwrap_or(0.0);
        }
        let rest = &trace.queries[query_idx + 1..];
        let wanted_in = |column: &ColumnId| {
            let is_wanted = |query: &TraceQuery| query.columns.contains(column);
            rest.iter().position(is_wanted).unwrap_or(usize::MAX)
        };
        let mut by_use: Vec<(usize, ColumnId)> = held
            .keys()
            .map(|column| (wanted_in(column), *column))
            .collect();
        by_use.sort();
        let mut room_bytes = capacity_bytes;
        for (_, column) in by_use {
            let there = held.entry(column).or_default();
            *there = there.min(room_bytes);
            room_bytes -= *there;
        }
    }
    remote_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::CachePolicy;
    use crate::simulate::{Benchmark, Order, benchmark_trace, simulate_shelves};

    fn trace(queries: &[&[u32]]) -> Trace {
        let query = |columns: &&[u32]| TraceQuery {
            items: Vec::new(),
            name: "q",
            columns: columns.iter().copied().map(ColumnId).collect(),
            processing_bandwidth: 1e12,
            priority: 1.0,
        };
        Trace {
            items: Vec::new(),
            queries: queries.iter().map(query).collect(),
            columns: (0..4).map(|column| (ColumnId(column), 100)).collect(),
            segment_bytes: 10,
        }
    }

    #[test]
    fn what_is_wanted_soonest_stays() {
        let machine = ShelfMachine::small(30.0);
        // 150 bytes: half of the second column goes when the third comes, for it is wanted last.
        let bytes = least_remote_bytes(&machine, &trace(&[&[0], &[1], &[0], &[2], &[0], &[1]]));
        assert_eq!(bytes, 100.0 + 100.0 + 0.0 + 100.0 + 0.0 + 50.0);
        assert_eq!(
            least_remote_bytes(&machine, &trace(&[&[0, 1, 2, 3][..]; 2])),
            400.0 + 250.0
        );
    }

    #[test]
    fn no_policy_is_faster() {
        for order in Order::ALL {
            let mut trace = benchmark_trace(Benchmark::TpcH, order);
            trace.queries.truncate(20);
            trace.segment_bytes = 20_000_000;
            let machine = ShelfMachine::small(200e6);
            let least_s = least_s(&machine, &trace);
            for policy in [
                CachePolicy::Lru,
                CachePolicy::WTinyLfu,
                CachePolicy::HpCache,
            ] {
                let run = simulate_shelves(&machine, &trace, policy);
                assert!(run.total_s() >= least_s, "{order:?} {policy}: {least_s}");
                let remote_bytes = least_remote_bytes(&machine, &trace);
                assert!(run.bytes[2] as f64 >= remote_bytes, "{order:?} {policy}");
            }
        }
    }
}
