//! Gives freed memory back to the system while operators work. The C library keeps what one thread has freed for that
//! thread, so a query whose operators run on many threads would hold several times what it uses.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotshelf_cache::CacheManager;
use hotshelf_tier::allocator::{give_back_freed_memory, private_bytes};
use parking_lot::Mutex;

/// The process may hold this much more than cache and operators together: code's own data, batches between operators.
const OWN_BYTES: u64 = 32 << 20;
/// How often the process's memory is looked at, at first.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Giving memory back pays if it returns at least one part in this many.
const GAIN_PARTS: u64 = 16;

/// At most one part in this many of the budget is withheld.
const WITHHELD_PARTS: u64 = 4;

/// When freed memory is given back.
#[derive(Debug)]
pub(super) struct FreedMemory {
    is_busy: AtomicBool,
    next: Mutex<Next>,
    withheld: Option<Withheld>,
}

/// What is taken off the budget, because the process holds as much beyond it that cannot be given back: batches on
/// their way, what the C library cannot return.
pub(crate) struct Withheld {
    cache: Arc<CacheManager>,
    bytes: Mutex<u64>,
}

impl Withheld {
    pub fn new(cache: Arc<CacheManager>) -> Self {
        Self {
            cache,
            bytes: Mutex::new(0),
        }
    }

    /// Withholds more, or less, where the process holds this much and may hold that much.
    fn follow(&self, held_bytes: u64, allowed_bytes: u64) {
        let budget = self.cache.budget();
        let most = budget.limit_bytes() / WITHHELD_PARTS;
        let mut bytes = self.bytes.lock();
        let next = (*bytes + held_bytes)
            .saturating_sub(allowed_bytes)
            .min(most);
        match next.checked_sub(*bytes) {
            Some(more) => budget.reserve_operator(more),
            None => budget.release_operator(*bytes - next),
        }
        *bytes = next;
    }
}

impl fmt::Debug for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Withheld").field(&self.bytes).finish()
    }
}

#[derive(Debug)]
struct Next {
    at: Instant,
    pause: Duration,
}

impl FreedMemory {
    pub fn new(withheld: Option<Withheld>) -> Arc<Self> {
        let next = Next {
            at: Instant::now(),
            pause: PAUSE,
        };
        Arc::new(Self {
            is_busy: AtomicBool::new(false),
            next: Mutex::new(next),
            withheld,
        })
    }

    /// An operator takes more memory. Where the process holds clearly more than the limit of cache and operators, what
    /// is free is given back, on a thread of its own.
    pub fn look(self: &Arc<Self>, limit_bytes: u64) {
        let Some(mut next) = self.next.try_lock() else {
            return;
        };
        let now = Instant::now();
        if now < next.at {
            return;
        }
        next.at = now + next.pause;
        drop(next);
        let allowed = limit_bytes + limit_bytes / 20 + OWN_BYTES;
        let Some(held) = private_bytes() else {
            return;
        };
        if held <= allowed {
            self.withhold(held, allowed);
            return;
        }
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let freed = self.clone();
        let begun = thread::Builder::new()
            .name("hotshelf-freed".into())
            .spawn(move || freed.give_back(allowed));
        if begun.is_err() {
            self.is_busy.store(false, Ordering::Release);
        }
    }

    fn withhold(&self, held_bytes: u64, allowed_bytes: u64) {
        if let Some(withheld) = &self.withheld {
            withheld.follow(held_bytes, allowed_bytes);
        }
    }

    fn give_back(&self, allowed_bytes: u64) {
        let before = private_bytes().unwrap_or(0);
        give_back_freed_memory();
        let after = private_bytes().unwrap_or(before);
        self.withhold(after, allowed_bytes);
        self.next.lock().note(before, after);
        self.is_busy.store(false, Ordering::Release);
    }
}

impl Next {
    /// Looks less often where little was given back: then the memory is in use, here or elsewhere in the process.
    fn note(&mut self, before_bytes: u64, after_bytes: u64) {
        let gain = before_bytes.saturating_sub(after_bytes);
        self.pause = match gain >= before_bytes / GAIN_PARTS {
            true => PAUSE,
            false => (2 * self.pause).min(PAUSE_MAX),
        };
        self.at = Instant::now() + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use hotshelf_cache::CacheOptions;

    use super::*;

    #[test]
    fn the_pause_grows_while_little_comes_back_and_is_short_again_when_much_does() {
        let mut next = Next {
            at: Instant::now(),
            pause: PAUSE,
        };
        next.note(1000, 950);
        assert_eq!(next.pause, 2 * PAUSE);
        (0..20).for_each(|_| next.note(1000, 990));
        assert_eq!(next.pause, PAUSE_MAX);
        next.note(1000, 900);
        assert_eq!(next.pause, PAUSE);
    }

    #[test]
    fn what_is_withheld_follows_what_the_process_holds() {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: 1000,
            ..CacheOptions::default()
        });
        let withheld = Withheld::new(cache.clone());
        // What is withheld is held no more the next time.
        for (held, expected) in [
            (900, 0),
            (1100, 100),
            (1020, 120),
            (5000, 250),
            (900, 150),
            (0, 0),
        ] {
            withheld.follow(held, 1000);
            let charged = cache.budget().snapshot().operator_bytes;
            assert_eq!(charged, expected, "{held}");
        }
    }

    #[test]
    fn looking_twice_at_once_does_nothing_twice() {
        let freed = FreedMemory::new(None);
        freed.look(0);
        freed.look(0);
        while freed.is_busy.load(Ordering::Acquire) {
            thread::yield_now();
        }
        assert!(freed.next.lock().at > Instant::now());
    }
}
