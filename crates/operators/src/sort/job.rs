//! What a sort's parts have in common.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::keys::{OrderEncoder, SortKey};
use crate::memory::Grant;
use crate::{Environment, Stop};

/// What to sort by, and how.
#[derive(Debug, Clone)]
pub struct SortOptions {
    /// The columns to sort by, the most important first. Without any, rows stay in the order in which they came.
    pub keys: Vec<SortKey>,
    /// How many rows are wanted, if not all.
    pub limit: Option<usize>,
    /// The most rows of a batch that comes out.
    pub batch_row_count: usize,
    /// Memory that the sort has in any case, in bytes. With less than 64 KiB merges take many passes.
    pub minimum_bytes: u64,
}

impl Default for SortOptions {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            limit: None,
            batch_row_count: 8192,
            minimum_bytes: 256 << 10,
        }
    }
}

/// What a sort's parts have in common.
pub(super) struct Job {
    pub(super) schema: SchemaRef,
    pub(super) options: SortOptions,
    pub(super) encoder: OrderEncoder,
    pub(super) grant: Arc<Grant>,
    pub(super) environment: Environment,
}

impl Job {
    pub(super) fn stop(&self) -> &Stop {
        &self.environment.stop
    }
}
