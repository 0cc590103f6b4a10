//! Table functions that show the inside: `SELECT * FROM cache_segments()` and the like.
//!
//! Each takes a snapshot when the query is planned.

mod bounded;
mod hpcache;
mod market;
mod purposes;
mod sum;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::catalog::{MemTable, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{exec_datafusion_err, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::prelude::SessionContext;
use hotshelf_cache::{ColumnId, SegmentKey, SegmentKind, SegmentState};

use crate::database::Inner;
use crate::index::{IndexFile, Stretch, TableIndex};
use crate::pipelines::PipelineRun;
use crate::table::Table;

pub(crate) use bounded::with_years_in_range;

/// Makes the rows of one function.
type Rows = fn(&Inner) -> Columns;
type Columns = Vec<(&'static str, ArrayRef)>;

const FUNCTIONS: &[(&str, Rows)] = &[
    ("hotshelf_functions", |_| purposes::hotshelf_functions()),
    ("cache_segments", cache_segments),
    ("cache_columns", cache_columns),
    ("cache_events", cache_events),
    ("cache_stats", cache_stats),
    ("io_stats", io_stats),
    ("machine_profile", machine_profile),
    ("pipelines", pipelines),
    ("hpcache_columns", hpcache::columns),
    ("hpcache_pipelines", hpcache::pipelines),
    ("hpcache_tuner", hpcache::tuner),
    ("hotshelf_indexes", hotshelf_indexes),
    ("elf_stats", elf_stats),
    ("hotshelf_merges", hotshelf_merges),
    ("memory_market", market::memory_market),
    ("hotshelf_shelves", market::hotshelf_shelves),
];

/// Makes all functions callable in a session.
pub(crate) fn register(context: &SessionContext, inner: &Arc<Inner>) {
    for (name, rows) in FUNCTIONS {
        context.register_udtf(
            name,
            Arc::new(Snapshot {
                name,
                rows: *rows,
                inner: Arc::downgrade(inner),
            }),
        );
    }
    context.register_udaf(sum::checked_sum());
    bounded::register(context, inner);
    let advice = hpcache::Advice(Arc::downgrade(inner));
    context.register_udtf("hpcache_advice", Arc::new(advice));
}

struct Snapshot {
    name: &'static str,
    rows: Rows,
    inner: Weak<Inner>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl TableFunctionImpl for Snapshot {
    fn call_with_args(&self, args: TableFunctionArgs) -> QueryResult<Arc<dyn TableProvider>> {
        if !args.exprs().is_empty() {
            return plan_err!("{}() takes no arguments", self.name);
        }
        table((self.rows)(&*open(&self.inner)?))
    }
}

fn open(inner: &Weak<Inner>) -> QueryResult<Arc<Inner>> {
    let inner = inner.upgrade();
    inner.ok_or_else(|| exec_datafusion_err!("the database is closed"))
}

fn table(columns: Columns) -> QueryResult<Arc<dyn TableProvider>> {
    let batch = RecordBatch::try_from_iter(columns)?;
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
    Ok(Arc::new(table))
}

fn text(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn real(values: impl Iterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

fn count(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

impl Inner {
    fn column_name(&self, column: ColumnId) -> (String, String) {
        self.column_names
            .read()
            .get(column.0 as usize)
            .cloned()
            .unwrap_or_default()
    }

    /// File names by the cache's file number.
    fn file_name(&self, key: SegmentKey) -> String {
        let names = self.file_names.read();
        names
            .get(&key.file)
            .cloned()
            .unwrap_or_else(|| format!("#{}", key.file.0))
    }
}

/// One row per merge of small files in the background, oldest first.
fn hotshelf_merges(inner: &Inner) -> Columns {
    let merges = inner.merging.log();
    let errors = merges.iter().map(|merge| merge.error.clone());
    vec![
        (
            "table_name",
            text(merges.iter().map(|merge| merge.table.clone())),
        ),
        ("seconds", real(merges.iter().map(|merge| merge.seconds))),
        (
            "files_before",
            count(merges.iter().map(|merge| merge.files_before as u64)),
        ),
        (
            "files_after",
            count(merges.iter().map(|merge| merge.files_after as u64)),
        ),
        ("rows", count(merges.iter().map(|merge| merge.rows))),
        ("error", Arc::new(StringArray::from_iter(errors))),
    ]
}

/// One row per segment in memory or on its way.
fn cache_segments(inner: &Inner) -> Columns {
    let rows = inner.cache.segments();
    let name = |column| inner.column_name(column);
    vec![
        (
            "table_name",
            text(rows.iter().map(|row| name(row.info.column).0)),
        ),
        (
            "column_name",
            text(rows.iter().map(|row| name(row.info.column).1)),
        ),
        (
            "file",
            text(rows.iter().map(|row| inner.file_name(row.key))),
        ),
        (
            "segment",
            count(rows.iter().map(|row| u64::from(row.key.segment_idx))),
        ),
        (
            "row_group",
            count(rows.iter().map(|row| u64::from(row.info.row_group_idx))),
        ),
        (
            "kind",
            text(rows.iter().map(|row| kind_name(row.info.kind).to_owned())),
        ),
        (
            "state",
            text(rows.iter().map(|row| state_name(row.state).to_owned())),
        ),
        (
            "bytes",
            count(rows.iter().map(|row| row.info.charged_bytes)),
        ),
        ("hits", count(rows.iter().map(|row| row.hit_count))),
    ]
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
fn cache_columns(inner: &Inner) -> Columns {
    let rows = inner.cache.columns();
    vec![
        (
            "table_name",
            text(rows.iter().map(|row| inner.column_name(row.column).0)),
        ),
        (
            "column_name",
            text(rows.iter().map(|row| inner.column_name(row.column).1)),
        ),
        ("bytes", count(rows.iter().map(|row| row.total_bytes))),
        (
            "cached_bytes",
            count(rows.iter().map(|row| row.cached_bytes)),
        ),
        ("segments", count(rows.iter().map(|row| row.segment_count))),
        (
            "cached_segments",
            count(rows.iter().map(|row| row.cached_count)),
        ),
    ]
}

/// The latest events of the cache, oldest first.
fn cache_events(inner: &Inner) -> Columns {
    let rows = inner.cache.events();
    let query: UInt64Array = rows.iter().map(|row| row.query).collect();
    vec![
        ("sequence", count(rows.iter().map(|row| row.sequence))),
        ("event", text(rows.iter().map(|row| row.kind.to_string()))),
        ("query", Arc::new(query)),
        (
            "table_name",
            text(rows.iter().map(|row| inner.column_name(row.column).0)),
        ),
        (
            "column_name",
            text(rows.iter().map(|row| inner.column_name(row.column).1)),
        ),
        (
            "file",
            text(rows.iter().map(|row| inner.file_name(row.key))),
        ),
        (
            "segment",
            count(rows.iter().map(|row| u64::from(row.key.segment_idx))),
        ),
        ("bytes", count(rows.iter().map(|row| row.bytes))),
    ]
}

/// One row: counters of the cache and the state of the budget.
fn cache_stats(inner: &Inner) -> Columns {
    let stats = inner.cache.stats();
    let budget = stats.budget;
    let one = |value: u64| count(std::iter::once(value));
    vec![
        ("policy", text(std::iter::once(stats.policy.to_string()))),
        ("budget_bytes", one(budget.limit_bytes)),
        ("used_bytes", one(budget.used_bytes)),
        ("used_bytes_max", one(budget.used_bytes_max)),
        ("cached_bytes", one(budget.cached_bytes)),
        ("detached_bytes", one(budget.detached_bytes)),
        ("in_flight_bytes", one(budget.in_flight_bytes)),
        ("operator_bytes", one(budget.operator_bytes)),
        ("operator_bytes_max", one(inner.pool.reserved_bytes_max())),
        ("overcommits", one(budget.overcommit_count)),
        ("hits", one(stats.hit_count)),
        ("misses", one(stats.miss_count)),
        ("shared", one(stats.shared_count)),
        ("inserts", one(stats.insert_count)),
        ("rejects", one(stats.reject_count)),
        ("evictions", one(stats.evict_count)),
    ]
}

/// One row: counters of the I/O engine since the database was opened.
fn io_stats(inner: &Inner) -> Columns {
    let stats = inner.engine.stats();
    let one = |value: u64| count(std::iter::once(value));
    let cap = inner.engine.bandwidth_max();
    vec![
        ("engine", text(std::iter::once(inner.engine.describe()))),
        ("capped", Arc::new(BooleanArray::from(vec![cap.is_some()]))),
        ("bandwidth_max", Arc::new(UInt64Array::from(vec![cap]))),
        ("reads", one(stats.reads)),
        ("device_operations", one(stats.device_operations)),
        ("merged", one(stats.merged)),
        ("requested_bytes", one(stats.requested_bytes)),
        ("device_bytes", one(stats.device_bytes)),
        ("errors", one(stats.errors)),
        ("cancelled", one(stats.cancelled)),
        ("in_flight", one(stats.in_flight)),
        ("throttled_ns", one(stats.throttled_ns)),
        ("busy_ns", one(stats.busy_ns)),
    ]
}

/// One row per value that follows from the machine profile: what is in force and from where.
fn machine_profile(inner: &Inner) -> Columns {
    let rows = inner.profile.lines();
    vec![
        ("name", text(rows.iter().map(|row| row.name.to_owned()))),
        ("value", text(rows.iter().map(|row| row.value.clone()))),
        ("source", text(rows.iter().map(|row| row.source.clone()))),
        ("reason", text(rows.iter().map(|row| row.reason.clone()))),
    ]
}

/// The latest runs of pipelines, oldest first.
fn pipelines(inner: &Inner) -> Columns {
    let rows = inner.pipelines.runs();
    let number = |value: fn(&PipelineRun) -> u64| count(rows.iter().map(value));
    let seconds =
        |value: fn(&PipelineRun) -> u64| real(rows.iter().map(|row| value(row) as f64 * 1e-9));
    vec![
        ("query", number(|row| row.query)),
        ("pipeline", number(|row| u64::from(row.pipeline))),
        (
            "template",
            text(rows.iter().map(|row| format!("{:016x}", row.template))),
        ),
        ("table_name", text(rows.iter().map(|row| row.table.clone()))),
        (
            "operator",
            text(rows.iter().map(|row| row.operator.name().to_owned())),
        ),
        ("workers", number(|row| u64::from(row.workers))),
        ("row_groups", number(|row| row.row_groups)),
        ("row_groups_pruned", number(|row| row.row_groups_pruned)),
        ("rows_in", number(|row| row.rows_in)),
        ("rows_kept", number(|row| row.rows_kept)),
        ("encoded_bytes", number(|row| row.encoded_bytes)),
        ("decoded_bytes", number(|row| row.decoded_bytes)),
        ("bytes_cache", number(|row| row.counters.bytes_cache)),
        ("bytes_storage", number(|row| row.counters.bytes_storage)),
        ("busy_s", seconds(|row| row.busy_ns)),
        ("wait_s", seconds(|row| row.wait_ns)),
        ("elapsed_s", seconds(|row| row.elapsed_ns)),
        (
            "p_bw_encoded",
            real(rows.iter().map(|row| row.bandwidth(row.encoded_bytes))),
        ),
        (
            "p_bw_decoded",
            real(rows.iter().map(|row| row.bandwidth(row.decoded_bytes))),
        ),
        (
            "finished",
            Arc::new(
                rows.iter()
                    .map(|row| Some(row.finished))
                    .collect::<BooleanArray>(),
            ),
        ),
    ]
}

/// One row per index.
fn hotshelf_indexes(inner: &Inner) -> Columns {
    let tables = inner.opened_tables();
    let rows: Vec<_> = tables
        .iter()
        .flat_map(|table| table.indexes.iter().map(move |index| (table, index)))
        .collect();
    let files = |row: &(&Arc<Table>, &TableIndex)| -> Vec<Arc<IndexFile>> {
        row.1
            .files
            .values()
            .filter_map(|file| file.as_ref().ok().cloned())
            .collect()
    };
    let damages = rows
        .iter()
        .map(|(_, index)| index.damage().map(ToString::to_string));
    vec![
        (
            "index_name",
            text(rows.iter().map(|(_, index)| index.definition.name.clone())),
        ),
        (
            "table_name",
            text(rows.iter().map(|(table, _)| table.name.clone())),
        ),
        ("kind", text(rows.iter().map(|_| "elf".to_owned()))),
        (
            "columns",
            text(
                rows.iter()
                    .map(|(table, index)| index.column_names(&table.schema).join(", ")),
            ),
        ),
        (
            "clustered",
            Arc::new(BooleanArray::from_iter(
                rows.iter()
                    .map(|(_, index)| Some(index.definition.clustered)),
            )),
        ),
        (
            "files",
            count(rows.iter().map(|(table, _)| table.files.len() as u64)),
        ),
        (
            "indexed_files",
            count(rows.iter().map(|row| files(row).len() as u64)),
        ),
        (
            "rows",
            count(rows.iter().map(|row| {
                files(row)
                    .iter()
                    .flat_map(|file| &file.stretches)
                    .map(|stretch| stretch.rows.end - stretch.rows.start)
                    .sum()
            })),
        ),
        (
            "bytes",
            count(
                rows.iter()
                    .map(|row| files(row).iter().map(|file| file.file_bytes()).sum()),
            ),
        ),
        ("damage", Arc::new(StringArray::from_iter(damages))),
    ]
}

/// One row per Elf, with the store's counters in every row.
fn elf_stats(inner: &Inner) -> Columns {
    let tables = inner.opened_tables();
    let mut rows = Vec::new();
    for table in &tables {
        for index in &table.indexes {
            for (number, file) in &index.files {
                let Ok(file) = file else { continue };
                for idx in 0..file.stretches.len() {
                    rows.push((index.definition.name.clone(), *number, file.clone(), idx));
                }
            }
        }
    }
    let elfs = &inner.elfs;
    let stretch = |row: &(String, u64, Arc<IndexFile>, usize)| row.3;
    let of = |row: &(String, u64, Arc<IndexFile>, usize), what: fn(&Stretch) -> u64| {
        what(&row.2.stretches[row.3])
    };
    let resident = rows
        .iter()
        .map(|row| Some(elfs.is_resident(&row.2.stretches[row.3])));
    let every = |value: u64| count(rows.iter().map(move |_| value));
    vec![
        ("index_name", text(rows.iter().map(|row| row.0.clone()))),
        ("file", count(rows.iter().map(|row| row.1))),
        ("stretch", count(rows.iter().map(|row| stretch(row) as u64))),
        (
            "rows",
            count(
                rows.iter()
                    .map(|row| of(row, |one| one.rows.end - one.rows.start)),
            ),
        ),
        (
            "clustered",
            Arc::new(BooleanArray::from_iter(
                rows.iter().map(|row| Some(row.2.clustered)),
            )),
        ),
        (
            "bytes",
            count(rows.iter().map(|row| of(row, Stretch::file_bytes))),
        ),
        (
            "head_bytes",
            count(rows.iter().map(|row| of(row, Stretch::head_bytes))),
        ),
        ("resident", Arc::new(BooleanArray::from_iter(resident))),
        ("resident_bytes", every(elfs.resident_bytes())),
        ("limit_bytes", every(elfs.limit_bytes())),
        ("reads", every(elfs.read_count.load(Ordering::Relaxed))),
        ("read_bytes", every(elfs.read_bytes.load(Ordering::Relaxed))),
        ("evictions", every(elfs.evict_count.load(Ordering::Relaxed))),
        ("queries", every(elfs.query_count.load(Ordering::Relaxed))),
    ]
}
