//! What the cache holds and did, and what was read for it.

use hotshelf_cache::{SegmentKind, SegmentState};

use super::listing::{Columns, Listing};
use crate::engine::Engine;
use crate::storage::Storage;

/// One row per segment in memory or on its way.
pub(super) fn segments(storage: &Storage) -> Columns {
    let names = &storage.cache_names;
    Listing::of(storage.cache.segments())
        .text("table_name", |row| names.column(row.info.column).table)
        .text("column_name", |row| names.column(row.info.column).column)
        .text("file", |row| names.file(row.key.file))
        .count("segment", |row| u64::from(row.key.segment_idx))
        .count("row_group", |row| u64::from(row.info.row_group_idx))
        .text("kind", |row| kind_name(row.info.kind).to_owned())
        .text("state", |row| state_name(row.state).to_owned())
        .count("bytes", |row| row.info.charged_bytes)
        .count("hits", |row| row.hit_count)
        .columns()
}

fn kind_name(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Metadata => "metadata",
        SegmentKind::Data => "data",
    }
}

fn state_name(state: SegmentState) -> &'static str {
    match state {
        SegmentState::Idle => "cached",
        SegmentState::InUse => "in use",
        SegmentState::Reading => "being read",
        SegmentState::Waiting => "waiting",
        _ => "other",
    }
}

/// One row per column of a table: how much of it is in memory.
pub(super) fn columns(storage: &Storage) -> Columns {
    let names = &storage.cache_names;
    Listing::of(storage.cache.columns())
        .text("table_name", |row| names.column(row.column).table)
        .text("column_name", |row| names.column(row.column).column)
        .count("bytes", |row| row.total_bytes)
        .count("cached_bytes", |row| row.cached_bytes)
        .count("segments", |row| row.segment_count)
        .count("cached_segments", |row| row.cached_count)
        .columns()
}

/// The latest events of the cache, oldest first.
pub(super) fn events(storage: &Storage) -> Columns {
    let names = &storage.cache_names;
    Listing::of(storage.cache.events())
        .count("sequence", |row| row.sequence)
        .text("event", |row| row.kind.to_string())
        .count("query", |row| row.query)
        .text("table_name", |row| names.column(row.column).table)
        .text("column_name", |row| names.column(row.column).column)
        .text("file", |row| names.file(row.key.file))
        .count("segment", |row| u64::from(row.key.segment_idx))
        .count("bytes", |row| row.bytes)
        .columns()
}

/// One row: counters of the cache and the state of the budget.
pub(super) fn stats(engine: &Engine) -> Columns {
    let operator_bytes_max = engine.pool.reserved_bytes_max();
    Listing::of(vec![engine.cache.stats()])
        .text("policy", |row| row.policy.to_string())
        .count("budget_bytes", |row| row.budget.limit_bytes)
        .count("used_bytes", |row| row.budget.used_bytes)
        .count("used_bytes_max", |row| row.budget.used_bytes_max)
        .count("cached_bytes", |row| row.budget.cached_bytes)
        .count("detached_bytes", |row| row.budget.detached_bytes)
        .count("in_flight_bytes", |row| row.budget.in_flight_bytes)
        .count("operator_bytes", |row| row.budget.operator_bytes)
        .count("operator_bytes_max", |_| operator_bytes_max)
        .count("overcommits", |row| row.budget.overcommit_count)
        .count("hits", |row| row.hit_count)
        .count("misses", |row| row.miss_count)
        .count("shared", |row| row.shared_count)
        .count("inserts", |row| row.insert_count)
        .count("rejects", |row| row.reject_count)
        .count("evictions", |row| row.evict_count)
        .columns()
}

/// One row: counters of the I/O engine since the database was opened, and of what operators spilled through it.
pub(super) fn io_stats(engine: &Engine) -> Columns {
    let io = &engine.machine.io;
    let spill = engine.spill.stats();
    let cap = io.bandwidth_max();
    Listing::of(vec![io.stats()])
        .text("engine", |_| io.describe())
        .flag("capped", |_| cap.is_some())
        .count("bandwidth_max", |_| cap)
        .count("reads", |row| row.reads)
        .count("device_operations", |row| row.device_operations)
        .count("merged", |row| row.merged)
        .count("requested_bytes", |row| row.requested_bytes)
        .count("device_bytes", |row| row.device_bytes)
        .count("errors", |row| row.errors)
        .count("cancelled", |row| row.cancelled)
        .count("in_flight", |row| row.in_flight)
        .count("throttled_ns", |row| row.throttled_ns)
        .count("busy_ns", |row| row.busy_ns)
        .count("writes", |row| row.writes)
        .count("written_bytes", |row| row.written_bytes)
        .count("spilled_raw_bytes", |_| spill.raw_bytes)
        .count("spilled_bytes", |_| spill.written_bytes)
        .count("unspilled_bytes", |_| spill.read_bytes)
        .count("spill_used_bytes", |_| spill.used_bytes)
        .count("spill_used_bytes_max", |_| spill.used_bytes_max)
        .count("spill_limit_bytes", |_| spill.limit_bytes)
        .columns()
}
