//! Memory that operators borrow.
//!
//! Nothing waits for memory, so nothing can deadlock: a [`Broker`] answers at once, and an operator that is refused
//! spills and makes do with what it has. Each [`Grant`] has a minimum that is lent without a question when it is
//! opened. What an operator cannot do without (the batch that it was just given, a row longer than its minimum) is
//! added by [`Grant::grow`], which is never refused; the broker sees it as an overdraft.

mod charge;
mod pool;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;

use parking_lot::Mutex;

pub(crate) use charge::Charge;
pub use pool::FixedPool;

/// Owns the memory that operators borrow.
pub trait Broker: Send + Sync {
    /// Opens an account for an operator called `name`, with nothing on it.
    fn open(&self, name: &str) -> Box<dyn Account>;
}

/// The memory of one operator, as its broker knows it. Dropping the account returns what is on it.
pub trait Account: Send + Sync {
    /// Lends `bytes` more, or refuses: then the operator spills.
    fn try_grow(&self, bytes: u64) -> bool;

    /// Lends `bytes` more to an operator that cannot do without.
    fn grow(&self, bytes: u64);

    /// Takes `bytes` back.
    fn shrink(&self, bytes: u64);
}

/// An operator asks its broker for steps of this many bytes, and keeps up to one more step than it uses.
const STEP_BYTES: u64 = 64 << 10;

/// What one operator may use, in bytes. Threads of the operator may share it.
///
/// Invariant: `used <= lent`, `minimum <= lent`, and `lent` is what the account was asked for and did not get back.
pub struct Grant {
    account: Box<dyn Account>,
    minimum_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used_bytes: u64,
    lent_bytes: u64,
    used_bytes_max: u64,
    refusal_count: u64,
}

impl Grant {
    /// A grant of `minimum_bytes`, which is never refused and stays until the grant is dropped.
    pub fn open(broker: &dyn Broker, name: &str, minimum_bytes: u64) -> Self {
        let account = broker.open(name);
        account.grow(minimum_bytes);
        let state = State {
            lent_bytes: minimum_bytes,
            ..State::default()
        };
        Self {
            account,
            minimum_bytes,
            state: Mutex::new(state),
        }
    }

    /// Uses `bytes` more if the broker agrees. False: nothing changed, and the operator should spill.
    #[must_use]
    pub fn try_grow(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let missing = (state.used_bytes + bytes).saturating_sub(state.lent_bytes);
        if missing > 0 {
            let step = missing.next_multiple_of(STEP_BYTES);
            let lent = [step, missing]
                .into_iter()
                .find(|&bytes| self.account.try_grow(bytes));
            let Some(lent) = lent else {
                state.refusal_count += 1;
                return false;
            };
            state.lent_bytes += lent;
        }
        state.use_more(bytes);
        true
    }

    /// Uses `bytes` more, whatever the broker thinks of it.
    pub fn grow(&self, bytes: u64) {
        let mut state = self.state.lock();
        let missing = (state.used_bytes + bytes).saturating_sub(state.lent_bytes);
        if missing > 0 {
            self.account.grow(missing);
            state.lent_bytes += missing;
        }
        state.use_more(bytes);
    }

    /// Uses `bytes` less. What is above the minimum goes back to the broker, except for part of a step.
    pub fn shrink(&self, bytes: u64) {
        let mut state = self.state.lock();
        debug_assert!(bytes <= state.used_bytes, "{bytes} of {state:?}");
        state.used_bytes = state.used_bytes.saturating_sub(bytes);
        let kept = state.used_bytes.next_multiple_of(STEP_BYTES);
        let kept = kept.max(self.minimum_bytes);
        if state.lent_bytes > kept {
            self.account.shrink(state.lent_bytes - kept);
            state.lent_bytes = kept;
        }
    }

    /// Uses `to` bytes where `from` were used before: grows without refusal, or shrinks.
    pub fn replace(&self, from: u64, to: u64) {
        match to.checked_sub(from) {
            Some(more) => self.grow(more),
            None => self.shrink(from - to),
        }
    }

    /// The bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes
    }

    /// The most bytes that were ever in use.
    pub fn used_bytes_max(&self) -> u64 {
        self.state.lock().used_bytes_max
    }

    /// The bytes that the broker lends at present, in use or not.
    pub fn lent_bytes(&self) -> u64 {
        self.state.lock().lent_bytes
    }

    /// The bytes that are always there.
    pub fn minimum_bytes(&self) -> u64 {
        self.minimum_bytes
    }

    /// How often the broker refused.
    pub fn refusal_count(&self) -> u64 {
        self.state.lock().refusal_count
    }
}

impl State {
    fn use_more(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.used_bytes_max = self.used_bytes_max.max(self.used_bytes);
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Grant")
            .field("minimum_bytes", &self.minimum_bytes)
            .field("state", &*state)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::FickleBroker;
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    #[test]
    fn the_minimum_is_lent_even_by_an_empty_pool_and_returned_at_the_end() {
        let pool = FixedPool::new(0);
        let grant = Grant::open(&*pool, "sort", 1000);
        assert!(grant.try_grow(1000));
        assert!(!grant.try_grow(1));
        assert_eq!((pool.lent_bytes(), grant.refusal_count()), (1000, 1));
        grant.shrink(1000);
        assert_eq!(pool.lent_bytes(), 1000, "the minimum stays");
        drop(grant);
        assert_eq!(pool.lent_bytes(), 0);
    }

    #[test]
    fn a_grant_asks_in_steps_and_takes_less_where_a_step_does_not_fit() {
        let pool = FixedPool::new(STEP_BYTES + 10);
        let grant = Grant::open(&*pool, "sort", 0);
        assert!(grant.try_grow(1));
        assert_eq!(pool.lent_bytes(), STEP_BYTES);
        assert!(grant.try_grow(STEP_BYTES + 9));
        assert_eq!(pool.lent_bytes(), STEP_BYTES + 10);
        assert!(!grant.try_grow(1));
        grant.grow(1);
        assert_eq!(pool.lent_bytes(), STEP_BYTES + 11, "an overdraft");
        grant.shrink(STEP_BYTES + 10);
        assert_eq!(pool.lent_bytes(), STEP_BYTES);
    }

    #[test]
    fn threads_share_a_grant() {
        let pool = FixedPool::new(1 << 20);
        let grant = Arc::new(Grant::open(&*pool, "join", 1 << 10));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        grant.grow(100);
                        assert!(grant.try_grow(100));
                        grant.shrink(200);
                    }
                });
            }
        });
        assert_eq!(grant.used_bytes(), 0);
        drop(grant);
        assert_eq!(pool.lent_bytes(), 0);
    }

    proptest! {
        #[test]
        fn what_is_lent_covers_what_is_used(
            minimum in 0u64..200_000,
            steps in proptest::collection::vec((0u8..4, 0u64..300_000), 1..60),
            seed: u64,
        ) {
            let broker = FickleBroker::new(1 << 20, seed);
            let grant = Grant::open(&*broker, "any", minimum);
            let mut used = 0;
            for (step, bytes) in steps {
                match step {
                    0 => used += if grant.try_grow(bytes) { bytes } else { 0 },
                    1 => { grant.grow(bytes); used += bytes; }
                    _ => { let bytes = bytes.min(used); grant.shrink(bytes); used -= bytes; }
                }
                prop_assert_eq!(grant.used_bytes(), used);
                prop_assert!(grant.lent_bytes() >= used.max(minimum));
                prop_assert!(grant.lent_bytes() <= used.max(minimum) + STEP_BYTES);
                prop_assert_eq!(broker.lent_bytes(), grant.lent_bytes());
            }
            drop(grant);
            prop_assert_eq!(broker.lent_bytes(), 0);
        }
    }
}
