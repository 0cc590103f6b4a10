//! A broker that refuses at random, for tests.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Account, Broker, FixedPool};

/// A pool of fixed size that also refuses every other question or so.
pub(crate) struct FickleBroker {
    pool: Arc<FixedPool>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl FickleBroker {
    pub(crate) fn new(limit_bytes: u64, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            pool: FixedPool::new(limit_bytes),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        })
    }

    pub(crate) fn lent_bytes(&self) -> u64 {
        self.pool.lent_bytes()
    }
}

impl Broker for FickleBroker {
    fn open(&self, name: &str) -> Box<dyn Account> {
        Box::new(FickleAccount {
            account: self.pool.open(name),
            random: Arc::clone(&self.random),
        })
    }
}

struct FickleAccount {
    account: Box<dyn Account>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl Account for FickleAccount {
    fn try_grow(&self, bytes: u64) -> bool {
        self.random.lock().bool() && self.account.try_grow(bytes)
    }

    fn grow(&self, bytes: u64) {
        self.account.grow(bytes);
    }

    fn shrink(&self, bytes: u64) {
        self.account.shrink(bytes);
    }
}
