//! The operators' broker: what they borrow is a reservation in DataFusion's pool, like that of any other operator.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use hotshelf_operators::memory::{Account, Broker};

/// Lends the memory of a pool.
pub(super) struct PoolBroker(pub Arc<dyn MemoryPool>);

impl Broker for PoolBroker {
    fn open(&self, name: &str) -> Box<dyn Account> {
        let consumer = MemoryConsumer::new(name).with_can_spill(true);
        Box::new(PoolAccount(consumer.register(&self.0)))
    }
}

struct PoolAccount(MemoryReservation);

impl Account for PoolAccount {
    fn try_grow(&self, bytes: u64) -> bool {
        self.0.try_grow(bytes as usize).is_ok()
    }

    fn grow(&self, bytes: u64) {
        self.0.grow(bytes as usize);
    }

    fn shrink(&self, bytes: u64) {
        self.0.shrink(bytes as usize);
    }
}
