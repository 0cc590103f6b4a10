//! Memory of the budget that the store holds.

use std::sync::Arc;

use hotshelf_cache::CacheManager;

/// Memory of the budget, until dropped.
pub struct Reservation {
    cache: Arc<CacheManager>,
    bytes: u64,
}

impl Reservation {
    /// Memory that cannot be refused.
    pub fn reserve(cache: &Arc<CacheManager>, bytes: u64) -> Self {
        cache.budget().reserve_operator(bytes);
        Self {
            cache: cache.clone(),
            bytes,
        }
    }

    /// Memory that is held otherwise until `release` returns it. No other thread can take it in between: for a moment
    /// it counts twice.
    pub fn take_over(cache: &Arc<CacheManager>, bytes: u64, release: impl FnOnce()) -> Self {
        cache.budget().hold_operator(bytes);
        release();
        Self {
            cache: cache.clone(),
            bytes,
        }
    }

    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory, if there is enough.
    pub fn try_reserve(cache: &Arc<CacheManager>, bytes: u64) -> Option<Self> {
        cache.budget().try_reserve_operator(bytes).ok()?;
        Some(Self {
            cache: cache.clone(),
            bytes,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cache.budget().release_operator(self.bytes);
    }
}
