//! Table functions that show the inside: `SELECT * FROM cache_segments()` and the like.
//!
//! Each takes a snapshot when the query is planned.

mod bounded;
mod cache;
mod engines;
mod extremes;
mod hpcache;
mod indexes;
mod listing;
mod market;
mod purposes;
mod round;
mod sliding;
mod sum;
mod tables;

use std::sync::{Arc, Weak};

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{exec_datafusion_err, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::prelude::SessionContext;

use crate::database::Parts;
use crate::engine::Engine;
use crate::kept_plans::KeptPlans;
use listing::{Columns, Listing, table};

pub(crate) use bounded::with_years_in_range;
pub(crate) use round::with_settled_type;

/// Makes the rows of one function.
type Rows = fn(&Parts) -> Columns;

const FUNCTIONS: &[(&str, Rows)] = &[
    ("hotshelf_functions", |_| purposes::hotshelf_functions()),
    ("cache_segments", |parts| cache::segments(&parts.storage)),
    ("cache_columns", |parts| cache::columns(&parts.storage)),
    ("cache_events", |parts| cache::events(&parts.storage)),
    ("cache_stats", |parts| cache::stats(&parts.engine)),
    ("io_stats", |parts| cache::io_stats(&parts.engine)),
    ("machine_profile", |parts| machine_profile(&parts.engine)),
    ("pipelines", |parts| pipelines(&parts.engine)),
    ("hpcache_columns", hpcache::columns),
    ("hpcache_pipelines", hpcache::pipelines),
    ("hpcache_tuner", |parts| hpcache::tuner(&parts.engine)),
    ("hotshelf_indexes", |parts| indexes::indexes(&parts.storage)),
    ("elf_stats", |parts| indexes::elfs(&parts.storage)),
    ("hotshelf_merges", |parts| indexes::merges(&parts.storage)),
    ("kept_plans", |parts| kept_plans(&parts.plans)),
    ("memory_market", |parts| {
        market::memory_market(&parts.storage, &parts.engine)
    }),
    ("hotshelf_shelves", |parts| market::shelves(&parts.storage)),
    ("hotshelf_tables", |parts| tables::tables(&parts.storage)),
];

/// Makes all functions callable in a session.
pub(crate) fn register(context: &SessionContext, parts: &Arc<Parts>) {
    for (name, rows) in FUNCTIONS {
        context.register_udtf(
            name,
            Arc::new(Snapshot {
                name,
                rows: *rows,
                parts: Arc::downgrade(parts),
            }),
        );
    }
    context.register_udaf(sum::checked_sum());
    for function in extremes::extremes().into_iter().chain(sliding::sliding()) {
        context.register_udaf(function);
    }
    bounded::register(context, parts);
    let advice = hpcache::Advice(Arc::downgrade(&parts.engine));
    context.register_udtf("hpcache_advice", Arc::new(advice));
}

struct Snapshot {
    name: &'static str,
    rows: Rows,
    parts: Weak<Parts>,
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
        table((self.rows)(&*open(&self.parts)?))
    }
}

/// A part of the database, while it is open.
fn open<T>(part: &Weak<T>) -> QueryResult<Arc<T>> {
    let part = part.upgrade();
    part.ok_or_else(|| exec_datafusion_err!("the database is closed"))
}

/// One row per value that follows from the machine profile, and per price: what is in force and from where.
fn machine_profile(engine: &Engine) -> Columns {
    Listing::of(engine.profile_lines())
        .text("name", |row| row.name.to_owned())
        .text("value", |row| row.value.clone())
        .text("source", |row| row.source.clone())
        .text("reason", |row| row.reason.clone())
        .columns()
}

/// One row per plan of a query that is kept for the next time, the most used first.
fn kept_plans(plans: &KeptPlans) -> Columns {
    Listing::of(plans.list())
        .text("query", |row| row.query.clone())
        .count("uses", |row| row.uses)
        .count("bytes", |row| row.bytes as u64)
        .flag("outline", |row| row.has_outline)
        .columns()
}

/// The latest runs of pipelines, oldest first.
fn pipelines(engine: &Engine) -> Columns {
    let seconds = |ns: u64| ns as f64 * 1e-9;
    Listing::of(engine.pipelines.runs())
        .count("query", |row| row.query)
        .count("pipeline", |row| u64::from(row.pipeline))
        .text("template", |row| format!("{:016x}", row.template))
        .text("table_name", |row| row.table.clone())
        .text("operator", |row| row.operator.name().to_owned())
        .count("workers", |row| u64::from(row.workers))
        .count("row_groups", |row| row.row_groups)
        .count("row_groups_pruned", |row| row.row_groups_pruned)
        .count("rows_in", |row| row.rows_in)
        .count("rows_kept", |row| row.rows_kept)
        .count("encoded_bytes", |row| row.encoded_bytes)
        .count("decoded_bytes", |row| row.decoded_bytes)
        .count("bytes_cache", |row| row.counters.bytes_cache)
        .count("bytes_storage", |row| row.counters.bytes_storage)
        .real("busy_s", |row| seconds(row.busy_ns))
        .real("wait_s", |row| seconds(row.wait_ns))
        .real("elapsed_s", |row| seconds(row.elapsed_ns))
        .real("p_bw_encoded", |row| row.bandwidth(row.encoded_bytes))
        .real("p_bw_decoded", |row| row.bandwidth(row.decoded_bytes))
        .flag("finished", |row| row.finished)
        .columns()
}
