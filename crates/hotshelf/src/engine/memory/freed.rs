//! Gives freed memory back to the system while operators work. The C library keeps what one thread has freed for that
//! thread, so a query whose operators run on many threads would hold several times what it uses.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hotshelf_cache::CacheManager;
use hotshelf_tier::allocator::{give_back_freed_memory, map_large_blocks, private_bytes};
use parking_lot::Mutex;

/// The process may hold this much more than cache and operators together: code's own data, batches between operators.
const OWN_BYTES: u64 = 16 << 20;
/// How often the process's memory is looked at. In this time two threads fill some 10 MB.
const PAUSE: Duration = Duration::from_millis(5);
/// How often freed memory is given back, at most and at least, while the process holds too much.
const TURN: Duration = Duration::from_millis(10);
const TURN_MAX: Duration = Duration::from_secs(1);
/// Giving memory back pays if it returns at least one part in this many.
const GAIN_PARTS: u64 = 128;
/// For how long after an operator's growth the memory is looked at: what operators give on grows without them.
const WATCH: Duration = Duration::from_millis(500);

/// Where the budget is this small, large blocks are mapped: holes in the heap would be a tenth of it.
const TIGHT_BYTES: u64 = 128 << 20;

/// At most one part in this many of the budget is withheld.
const WITHHELD_PARTS: u64 = 4;

/// When freed memory is given back.
#[derive(Debug)]
pub(super) struct FreedMemory {
    began: Instant,
    /// When an operator last took memory, in milliseconds since `began`.
    grown_ms: AtomicU64,
    /// What cache and operators may hold together, in bytes.
    limit_bytes: AtomicU64,
    is_watched: AtomicBool,
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

    /// Withholds what the process holds beyond its account and its own bytes.
    fn follow(&self, held_bytes: u64, own_bytes: u64) {
        let budget = self.cache.budget();
        let most = budget.limit_bytes() / WITHHELD_PARTS;
        let mut bytes = self.bytes.lock();
        let charged = budget.snapshot().used_bytes.saturating_sub(*bytes);
        let next = held_bytes
            .saturating_sub(charged)
            .saturating_sub(own_bytes)
            .min(most);
        self.set(&mut bytes, next);
    }

    fn end(&self) {
        self.set(&mut self.bytes.lock(), 0);
    }

    fn set(&self, bytes: &mut u64, next: u64) {
        let budget = self.cache.budget();
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

impl FreedMemory {
    pub fn new(withheld: Option<Withheld>) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            grown_ms: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            withheld,
        })
    }

    /// An operator takes more memory. For a while, a thread of its own looks at what the process holds. Where that is
    /// clearly more than the limit of cache and operators, what is free is given back.
    pub fn look(self: &Arc<Self>, limit_bytes: u64) {
        let now_ms = self.began.elapsed().as_millis() as u64;
        self.grown_ms.fetch_max(now_ms, Ordering::Relaxed);
        if self.limit_bytes.load(Ordering::Relaxed) != limit_bytes {
            self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
            if self.withheld.is_some() {
                map_large_blocks(limit_bytes <= TIGHT_BYTES);
            }
        }
        if self.is_watched.load(Ordering::Relaxed) || self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let freed = Arc::downgrade(self);
        let begun = thread::Builder::new()
            .name("hotshelf-freed".into())
            .spawn(move || watch(&freed));
        if begun.is_err() {
            self.is_watched.store(false, Ordering::Release);
        }
    }

    /// Looks at the memory once. Returns whether to look again: not once no operator has taken any for a while.
    fn watched(&self, turns: &mut Turns) -> bool {
        let was_growing = self.is_growing();
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let mut held = private_bytes().unwrap_or(0);
        match held <= limit + OWN_BYTES {
            true => *turns = Turns::default(),
            false if turns.is_due() => held = turns.give_back(held),
            false => {}
        }
        if was_growing {
            if let Some(withheld) = &self.withheld {
                withheld.follow(held, OWN_BYTES);
            }
            return true;
        }
        if let Some(withheld) = &self.withheld {
            withheld.end();
        }
        self.is_watched.store(false, Ordering::Release);
        // One may have grown meanwhile.
        self.is_growing() && !self.is_watched.swap(true, Ordering::AcqRel)
    }

    /// What is withheld now, in bytes.
    pub fn withheld_bytes(&self) -> u64 {
        self.withheld
            .as_ref()
            .map_or(0, |withheld| *withheld.bytes.lock())
    }

    fn is_growing(&self) -> bool {
        let grown = Duration::from_millis(self.grown_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(grown) < WATCH
    }
}

/// Looks at the memory now and then while operators grow and the pool is there.
fn watch(freed: &Weak<FreedMemory>) {
    let mut turns = Turns::default();
    while let Some(freed) = freed.upgrade() {
        if !freed.watched(&mut turns) {
            return;
        }
        drop(freed);
        thread::sleep(PAUSE);
    }
}

/// When freed memory has its next turn to be given back.
struct Turns {
    /// None: at once.
    last: Option<Instant>,
    pause: Duration,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            last: None,
            pause: TURN,
        }
    }
}

impl Turns {
    fn is_due(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= self.pause)
    }

    /// Gives back what is free of what the process holds. Returns what it holds then.
    fn give_back(&mut self, held_bytes: u64) -> u64 {
        let begun = Instant::now();
        give_back_freed_memory();
        let took = begun.elapsed();
        let after_bytes = private_bytes().unwrap_or(held_bytes);
        let gained = held_bytes.saturating_sub(after_bytes);
        self.pause = next_pause(self.pause, gained, held_bytes, took);
        self.last = Some(Instant::now());
        after_bytes
    }
}

/// At least as long as that took, and longer where little was given back: then the memory is in use, here or elsewhere
/// in the process.
fn next_pause(pause: Duration, gained_bytes: u64, held_bytes: u64, took: Duration) -> Duration {
    let next = match gained_bytes >= held_bytes / GAIN_PARTS {
        true => TURN,
        false => 2 * pause,
    };
    next.max(took).min(TURN_MAX)
}

#[cfg(test)]
mod tests {
    use hotshelf_cache::CacheOptions;

    use super::*;

    #[test]
    fn the_pause_grows_while_little_comes_back_and_is_short_again_when_much_does() {
        let quick = Duration::from_micros(100);
        let mut pause = next_pause(TURN, 1, 1000, quick);
        assert_eq!(pause, 2 * TURN);
        for _ in 0..20 {
            pause = next_pause(pause, 1, 1000, quick);
        }
        assert_eq!(pause, TURN_MAX);
        assert_eq!(next_pause(pause, 100, 1000, quick), TURN);
        assert_eq!(next_pause(pause, 100, 1000, 3 * TURN), 3 * TURN);
    }

    #[test]
    fn what_is_withheld_follows_what_the_process_holds() {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: 1000,
            ..CacheOptions::default()
        });
        let withheld = Withheld::new(cache.clone());
        let operators = 700;
        cache.budget().reserve_operator(operators);
        for (held, expected) in [
            (700, 0),
            (800, 50),
            (800, 50),
            (5000, 250),
            (770, 20),
            (0, 0),
        ] {
            withheld.follow(held, 50);
            let charged = cache.budget().snapshot().operator_bytes;
            assert_eq!(charged, operators + expected, "{held}");
        }
        withheld.follow(900, 50);
        withheld.end();
        assert_eq!(cache.budget().snapshot().operator_bytes, operators);
    }

    #[test]
    fn one_thread_looks_while_operators_grow_and_ends_after_that() {
        let freed = FreedMemory::new(None);
        freed.look(0);
        freed.look(0);
        assert!(freed.is_watched.load(Ordering::Acquire));
        assert!(freed.is_growing());
        while freed.is_watched.load(Ordering::Acquire) {
            thread::sleep(PAUSE);
        }
        assert!(!freed.is_growing());
    }
}
