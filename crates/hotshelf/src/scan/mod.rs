//! Scans of tables: what the planner pushed down, and how a scan turns row groups into batches.
//!
//! `env` is all that a scan sees of the database. `source` is what DataFusion plans with, `queue` hands row groups to workers and looks ahead, `segments`
//! connects Vortex's readers to the cache, `filters` decides which predicates a scan may take over.

mod env;
mod filters;
mod in_order;
mod queue;
mod segments;
mod source;
mod stream;

pub(crate) use env::ScanEnv;
pub(crate) use filters::{DynamicFilter, IntegerRange};
pub(crate) use in_order::read_in_order;
pub(crate) use queue::{Morsel, ScanQueue};
pub(crate) use segments::{ScanSegments, SegmentAdapter};
pub(crate) use source::TableScan;
pub(crate) use stream::{Reported, ScanMetrics, ScanStream, filter};
