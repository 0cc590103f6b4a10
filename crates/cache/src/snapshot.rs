//! What the cache holds, as rows for table functions.

use crate::budget::BudgetSnapshot;
use crate::event::EventKind;
use crate::flight::Phase;
use crate::key::{ColumnId, SegmentInfo, SegmentKey, SegmentKind};
use crate::manager::CacheManager;
use crate::policy::PolicyKind;
use crate::shard::{Entry, Shard};
use std::collections::BTreeMap;

/// Where a known segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SegmentState {
    /// Kept, and not in use now.
    Idle,
    /// Kept, and its bytes are in use.
    InUse,
    /// Being read.
    Reading,
    /// Its read waits for memory.
    Waiting,
}

/// One segment that is in memory or on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRow {
    /// Which segment.
    pub key: SegmentKey,
    /// Column, row group, charge, kind.
    pub info: SegmentInfo,
    /// Where it is.
    pub state: SegmentState,
    /// How often it was found in memory since it was kept.
    pub hit_count: u64,
}

/// One column, summed over its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnRow {
    /// Which column.
    pub column: ColumnId,
    /// Charged bytes of its data segments.
    pub total_bytes: u64,
    /// Number of its data segments.
    pub segment_count: u64,
    /// Charged bytes of its data segments that are kept.
    pub cached_bytes: u64,
    /// Number of its data segments that are kept.
    pub cached_count: u64,
}

/// Counters since the cache was made, and the budget now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// The policy in force.
    pub policy: PolicyKind,
    /// Requests answered from memory.
    pub hit_count: u64,
    /// Requests that registered a read.
    pub miss_count: u64,
    /// Requests that joined a read.
    pub shared_count: u64,
    /// Reads that had to wait for memory.
    pub wait_count: u64,
    /// Segments kept on arrival.
    pub insert_count: u64,
    /// Segments not kept on arrival.
    pub reject_count: u64,
    /// Segments evicted.
    pub evict_count: u64,
    /// Reads cancelled.
    pub cancel_count: u64,
    /// Reads failed.
    pub fail_count: u64,
    /// The budget.
    pub budget: BudgetSnapshot,
}

impl CacheManager {
    /// Every segment in memory or on its way there, by key.
    pub fn segments(&self) -> Vec<SegmentRow> {
        let mut rows = Vec::new();
        self.inspect(|shard| rows.extend(shard_rows(shard)));
        rows.sort_by_key(|row| row.key);
        rows
    }

    /// Every column of the files that exist.
    pub fn columns(&self) -> Vec<ColumnRow> {
        let mut rows: BTreeMap<ColumnId, ColumnRow> = BTreeMap::new();
        let files = self.files();
        let known = files.iter().flat_map(|file| file.segments());
        for info in known.filter(|info| info.kind == SegmentKind::Data) {
            let row = rows
                .entry(info.column)
                .or_insert_with(|| empty(info.column));
            row.total_bytes += info.charged_bytes;
            row.segment_count += 1;
        }
        self.inspect(|shard| {
            let infos = shard.residents().map(|resident| &resident.info);
            for info in infos.filter(|info| info.kind == SegmentKind::Data) {
                if let Some(row) = rows.get_mut(&info.column) {
                    row.cached_bytes += info.charged_bytes;
                    row.cached_count += 1;
                }
            }
        });
        rows.into_values().collect()
    }

    /// Counters and budget.
    pub fn stats(&self) -> CacheStats {
        let counts = self.event_counts();
        let count = |kind: EventKind| counts[kind as usize];
        CacheStats {
            policy: self.policy(),
            hit_count: count(EventKind::Hit),
            miss_count: count(EventKind::Miss),
            shared_count: count(EventKind::Shared),
            wait_count: count(EventKind::Wait),
            insert_count: count(EventKind::Insert),
            reject_count: count(EventKind::Reject),
            evict_count: count(EventKind::Evict),
            cancel_count: count(EventKind::Cancel),
            fail_count: count(EventKind::Fail),
            budget: self.budget().snapshot(),
        }
    }
}

fn empty(column: ColumnId) -> ColumnRow {
    ColumnRow {
        column,
        total_bytes: 0,
        segment_count: 0,
        cached_bytes: 0,
        cached_count: 0,
    }
}

fn shard_rows(shard: &Shard) -> Vec<SegmentRow> {
    let residents = shard.residents().map(|resident| SegmentRow {
        key: resident.key,
        info: resident.info,
        state: if resident.is_idle() {
            SegmentState::Idle
        } else {
            SegmentState::InUse
        },
        hit_count: resident.hit_count,
    });
    let flights = shard.map.values().filter_map(|entry| match entry {
        Entry::Flight(flight) => Some(SegmentRow {
            key: flight.key,
            info: flight.info,
            state: match flight.state.lock().phase {
                Phase::Queued => SegmentState::Waiting,
                _ => SegmentState::Reading,
            },
            hit_count: 0,
        }),
        Entry::Resident(_) => None,
    });
    residents.chain(flights).collect()
}
