//! The scan that each request belongs to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The identity of one scan of one query, with counters of what its requests cost.
#[derive(Debug, Default)]
pub struct ScanContext {
    /// Number of the query, unique in the process.
    pub query: u64,
    /// Number of the pipeline in its query.
    pub pipeline: u32,
    /// Fingerprint of the plan without literals: equal for queries of one template.
    pub template: u64,
    /// Whether the scan may change what the cache holds. Off: it uses what is there and leaves no trace.
    pub populate: bool,
    /// How much a second of the query counts: [`query_weight`](crate::CacheManager::query_weight); 1 is normal.
    pub weight: f64,
    bytes_cache: AtomicU64,
    bytes_storage: AtomicU64,
    bytes_shared: AtomicU64,
    segments_hit: AtomicU64,
    segments_miss: AtomicU64,
    segments_shared: AtomicU64,
    wait_ns: AtomicU64,
}

/// What the requests of a scan cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanCounters {
    /// Charged bytes of segments found in memory.
    pub bytes_cache: u64,
    /// Charged bytes of segments read from storage for this scan.
    pub bytes_storage: u64,
    /// Charged bytes of segments that another request was already reading.
    pub bytes_shared: u64,
    /// Requests answered from memory.
    pub segments_hit: u64,
    /// Requests that started a read.
    pub segments_miss: u64,
    /// Requests that joined a read under way.
    pub segments_shared: u64,
    /// Time that futures waited, summed over futures, in nanoseconds.
    pub wait_ns: u64,
}

impl ScanContext {
    /// A scan that may populate the cache.
    pub fn new(query: u64, pipeline: u32, template: u64) -> Self {
        Self {
            query,
            pipeline,
            template,
            populate: true,
            weight: 1.0,
            ..Self::default()
        }
    }

    /// The same scan, allowed or not to change what the cache holds.
    pub fn with_populate(self, populate: bool) -> Self {
        Self { populate, ..self }
    }

    /// What the scan's requests cost so far.
    pub fn counters(&self) -> ScanCounters {
        ScanCounters {
            bytes_cache: self.bytes_cache.load(Relaxed),
            bytes_storage: self.bytes_storage.load(Relaxed),
            bytes_shared: self.bytes_shared.load(Relaxed),
            segments_hit: self.segments_hit.load(Relaxed),
            segments_miss: self.segments_miss.load(Relaxed),
            segments_shared: self.segments_shared.load(Relaxed),
            wait_ns: self.wait_ns.load(Relaxed),
        }
    }

    pub(crate) fn count_hit(&self, charged_bytes: u64) {
        self.segments_hit.fetch_add(1, Relaxed);
        self.bytes_cache.fetch_add(charged_bytes, Relaxed);
    }

    pub(crate) fn count_miss(&self) {
        self.segments_miss.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_shared(&self, charged_bytes: u64) {
        self.segments_shared.fetch_add(1, Relaxed);
        self.bytes_shared.fetch_add(charged_bytes, Relaxed);
    }

    pub(crate) fn count_storage(&self, charged_bytes: u64) {
        self.bytes_storage.fetch_add(charged_bytes, Relaxed);
    }

    pub(crate) fn count_wait(&self, wait: Duration) {
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.wait_ns.fetch_add(wait_ns, Relaxed);
    }
}
