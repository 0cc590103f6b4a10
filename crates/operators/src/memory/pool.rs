//! A broker with a fixed number of bytes: first come, first served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Account, Broker};

/// A fixed number of bytes, lent in the order of requests.
#[derive(Debug)]
pub struct FixedPool {
    limit_bytes: u64,
    counts: Arc<PoolCounts>,
}

#[derive(Debug, Default)]
struct PoolCounts {
    lent_bytes: AtomicU64,
    lent_bytes_max: AtomicU64,
}

impl FixedPool {
    /// A pool of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            counts: Arc::default(),
        })
    }

    /// What operators hold now.
    pub fn lent_bytes(&self) -> u64 {
        self.counts.lent_bytes.load(Ordering::SeqCst)
    }

    /// The most that operators ever held, overdrafts included.
    pub fn lent_bytes_max(&self) -> u64 {
        self.counts.lent_bytes_max.load(Ordering::SeqCst)
    }
}

impl Broker for FixedPool {
    fn open(&self, _name: &str) -> Box<dyn Account> {
        Box::new(PoolAccount {
            limit_bytes: self.limit_bytes,
            counts: Arc::clone(&self.counts),
            held_bytes: AtomicU64::new(0),
        })
    }
}

struct PoolAccount {
    limit_bytes: u64,
    counts: Arc<PoolCounts>,
    held_bytes: AtomicU64,
}

impl PoolAccount {
    fn lend(&self, bytes: u64, limit_bytes: u64) -> bool {
        let fits = |lent: u64| Some(lent + bytes).filter(|&sum| sum <= limit_bytes);
        let lent = &self.counts.lent_bytes;
        let before = lent.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
        if let Ok(before) = before {
            self.held_bytes.fetch_add(bytes, Ordering::SeqCst);
            let peak = &self.counts.lent_bytes_max;
            peak.fetch_max(before + bytes, Ordering::SeqCst);
        }
        before.is_ok()
    }
}

impl Account for PoolAccount {
    fn try_grow(&self, bytes: u64) -> bool {
        self.lend(bytes, self.limit_bytes)
    }

    fn grow(&self, bytes: u64) {
        self.lend(bytes, u64::MAX);
    }

    fn shrink(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.counts.lent_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl Drop for PoolAccount {
    fn drop(&mut self) {
        self.shrink(self.held_bytes.load(Ordering::SeqCst));
    }
}
