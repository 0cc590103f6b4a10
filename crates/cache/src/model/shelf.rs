//! Shelves as the model sees them: where bytes can be, how fast they come from there, and how many fit.

/// Bandwidths of a machine with memory and one storage, in bytes per second; zero where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tiers {
    /// Of the storage.
    pub storage_bandwidth: f64,
    /// Of the memory.
    pub memory_bandwidth: f64,
}

impl Tiers {
    /// Whether a model can be made of them: both positive numbers.
    pub fn is_known(&self) -> bool {
        self.storage_bandwidth.is_finite()
            && self.storage_bandwidth > 0.0
            && self.memory_bandwidth > 0.0
    }

    /// The two as shelves: memory with a budget, and storage that holds everything.
    pub fn shelves(&self, budget_bytes: f64) -> Vec<Shelf> {
        vec![
            Shelf {
                budget_bytes,
                ..Shelf::unbounded(self.memory_bandwidth)
            },
            Shelf::unbounded(self.storage_bandwidth),
        ]
    }
}

/// A problem has at most this many shelves: memory, slow memory, local disk, remote.
pub const SHELF_COUNT_MAX: usize = 4;

/// One storage tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shelf {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Time of a request before its first byte, in seconds.
    pub latency_s: f64,
    /// Requests that are under way at once.
    pub in_flight: f64,
    /// Bytes that may be kept there beside what is stored there anyway; infinite where nothing is bounded.
    pub budget_bytes: f64,
}

impl Shelf {
    /// A shelf without latency that keeps whatever comes.
    pub fn unbounded(bandwidth: f64) -> Self {
        Self {
            bandwidth,
            latency_s: 0.0,
            in_flight: 1.0,
            budget_bytes: f64::INFINITY,
        }
    }

    /// Seconds that requests add to each byte, if each request brings this many bytes.
    pub fn request_s_per_byte(&self, request_bytes: f64) -> f64 {
        if self.latency_s <= 0.0 {
            return 0.0;
        }
        self.latency_s / self.in_flight.max(1.0) / request_bytes.max(1.0)
    }

    /// Seconds per byte, requests included.
    pub fn pace_s(&self, request_bytes: f64) -> f64 {
        1.0 / self.bandwidth + self.request_s_per_byte(request_bytes)
    }
}
