//! What one query takes of the memory that all share, for EXPLAIN ANALYZE.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;

/// Passes everything on to the shared pool and keeps an account of it.
pub(crate) struct QueryPool {
    shared: Arc<dyn MemoryPool>,
    account: Mutex<Account>,
}

/// What the operators of a query took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct QueryMemory {
    /// The most that they held at once, in bytes.
    pub bytes_max: u64,
    /// Bytes times the seconds for which they were held.
    pub byte_s: f64,
    /// How often they were refused more and spilled or did with less.
    pub refusal_count: u64,
}

#[derive(Debug, Default)]
struct Account {
    held_bytes: u64,
    changed_at: Option<Instant>,
    total: QueryMemory,
}

impl Account {
    /// Charges what was held since the last change.
    fn settle(&mut self, now: Instant) {
        let since = self.changed_at.replace(now);
        let seconds = since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        self.total.byte_s += self.held_bytes as f64 * seconds;
    }

    fn add(&mut self, bytes: usize, now: Instant) {
        self.settle(now);
        self.held_bytes += bytes as u64;
        self.total.bytes_max = self.total.bytes_max.max(self.held_bytes);
    }

    fn take(&mut self, bytes: usize, now: Instant) {
        self.settle(now);
        self.held_bytes = self.held_bytes.saturating_sub(bytes as u64);
    }
}

impl QueryPool {
    pub fn new(shared: Arc<dyn MemoryPool>) -> Self {
        Self {
            shared,
            account: Mutex::default(),
        }
    }

    /// What was taken up to now.
    pub fn taken(&self) -> QueryMemory {
        let mut account = self.account.lock();
        account.settle(Instant::now());
        account.total
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &str {
        self.shared.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.shared.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.shared.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.shared.grow(reservation, additional);
        self.account.lock().add(additional, Instant::now());
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.shared.shrink(reservation, shrink);
        self.account.lock().take(shrink, Instant::now());
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let granted = self.shared.try_grow(reservation, additional);
        let mut account = self.account.lock();
        match &granted {
            Ok(()) => account.add(additional, Instant::now()),
            Err(_) => account.total.refusal_count += 1,
        }
        granted
    }

    fn reserved(&self) -> usize {
        self.shared.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.shared.memory_limit()
    }
}

impl fmt::Debug for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryPool")
            .field("shared", &self.shared)
            .field("account", &*self.account.lock())
            .finish()
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.shared, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use std::time::Duration;

    #[test]
    fn an_account_charges_bytes_for_the_time_they_are_held() {
        let mut account = Account::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        account.add(100, at(0));
        account.add(50, at(2));
        account.take(150, at(3));
        account.add(10, at(9));
        assert_eq!(
            account.total,
            QueryMemory {
                bytes_max: 150,
                byte_s: 350.0,
                refusal_count: 0
            }
        );
    }

    #[test]
    fn a_query_is_charged_for_what_it_was_granted_and_the_shared_pool_keeps_its_limit() {
        let shared: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let query = Arc::new(QueryPool::new(shared.clone()));
        let pool: Arc<dyn MemoryPool> = query.clone();
        let reservation = MemoryConsumer::new("sort").register(&pool);
        reservation.try_grow(80).unwrap();
        assert!(reservation.try_grow(30).is_err());
        assert_eq!(shared.reserved(), 80);
        drop(reservation);
        assert_eq!(shared.reserved(), 0);
        let taken = query.taken();
        assert_eq!((taken.bytes_max, taken.refusal_count), (80, 1));
    }
}
