//! Scans of tables: what the planner pushed down, and how a scan turns row groups into batches.
//!
//! `env` is all that a scan sees of the database. `source` is what DataFusion plans with (`describe` for EXPLAIN),
//! `begin` makes a `plan` of it when it runs. `queue` hands row groups to workers and looks ahead, where workers take
//! `turn`s; `file` is one data file as a scan reads it, `segments` connects Vortex's readers to the cache, `stream` is
//! a worker, `work` counts what workers did. `filters` decides which predicates a scan may take over, `implied` which
//! zone maps can judge, `keys` reads what joins say about theirs, `text_keys` tests texts by them. `top` learns what a
//! sort with a limit wants first, `read_first` and `zones` put row groups in order. `numbers` has the numbers of rows,
//! and `numbered` the scans that give them or read the rows of some. `values` has a column's values without its rows,
//! some of them from the `dictionaries` of files.

mod begin;
mod comparison;
mod describe;
mod dictionaries;
mod env;
mod file;
mod filters;
mod implied;
mod in_order;
mod keys;
mod metrics;
mod numbered;
mod numbers;
mod plan;
mod queue;
mod read_first;
mod segments;
mod source;
mod stream;
mod text_keys;
mod top;
mod turn;
mod values;
mod work;
mod zones;

pub(crate) use begin::{StarColumns, StarKeys};
pub(crate) use comparison::{Comparing, Comparison, is_key_type};
pub(crate) use env::ScanEnv;
pub(crate) use file::Morsel;
pub(crate) use filters::{DynamicFilter, IntegerRange, word_list};
pub(crate) use in_order::read_in_order;
pub(crate) use metrics::{Reported, ScanMetrics};
pub(crate) use queue::ScanQueue;
pub(crate) use segments::{ScanSegments, SegmentAdapter};
pub(crate) use source::{TableScan, Taker};
pub(crate) use stream::{ScanStream, filter, narrow_rows, rows_on_the_way};
pub(crate) use top::TopRows;
pub(crate) use values::{KnownValues, StoredValues};
