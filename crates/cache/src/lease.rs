//! Bytes that pay for themselves: the charge of a segment lives exactly as long as its bytes.

use crate::budget::Budget;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};

/// A segment's bytes and its charge. Held by the cache (resident) and by every [`Lease`].
///
/// The charge is counted as *cached* while the cache holds it, else as *detached*; the last owner returns the detached
/// charge, so the cache moves the charge to *detached* before it drops its reference.
#[derive(Debug)]
pub(crate) struct HeldSegment {
    bytes: Bytes,
    charged_bytes: u64,
    budget: Arc<Budget>,
}

impl HeldSegment {
    /// Wraps bytes that have arrived and whose charge is already counted as detached.
    pub(crate) fn new(bytes: Bytes, charged_bytes: u64, budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            charged_bytes,
            budget,
        })
    }

    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }
}

impl Drop for HeldSegment {
    fn drop(&mut self) {
        // Free the buffer before its charge is given to another.
        self.bytes = Bytes::new();
        self.budget.release_detached(self.charged_bytes);
    }
}

/// A reference to a segment's bytes outside the cache. The number of leases is the segment's pin count.
#[derive(Debug)]
pub(crate) struct Lease {
    held: Option<Arc<HeldSegment>>,
}

impl Lease {
    pub(crate) fn new(held: &Arc<HeldSegment>) -> Self {
        Self {
            held: Some(Arc::clone(held)),
        }
    }

    /// The bytes, owned by a lease of their own.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from_owner(Self {
            held: self.held.clone(),
        })
    }

    /// The bytes, owned by this lease.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.held.as_ref().map_or(&[], |held| &held.bytes)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let budget = Arc::clone(&held.budget);
        drop(held);
        // Pairs with the fence of a read that has just begun to wait: it sees this segment idle, or we see it wait.
        fence(SeqCst);
        budget.memory_may_be_free();
    }
}
