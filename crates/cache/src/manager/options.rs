//! How a cache is set up.

use crate::policy::PolicyKind;

/// How a cache is set up.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The memory budget, in bytes, shared with the operators.
    pub budget_bytes: u64,
    /// What to keep.
    pub policy: PolicyKind,
    /// How many events are remembered; 0 switches the log off.
    pub event_log_capacity: usize,
    /// Into how many independently locked shards the cache is divided.
    pub partitions: usize,
    /// The share of the budget set aside for reads under way and bytes in use, in bytes. `None`: measured.
    pub transit_bytes: Option<u64>,
    /// What segments may take even if operators hold the whole budget, in bytes: else each read would wait for the one
    /// before it.
    pub segment_bytes_min: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            budget_bytes: 1 << 30,
            policy: PolicyKind::Lru,
            event_log_capacity: 4096,
            partitions: 8,
            transit_bytes: None,
            segment_bytes_min: 0,
        }
    }
}
