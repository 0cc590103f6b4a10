//! Which reads may start now. Reads that do not fit into the budget wait in order of arrival.
//!
//! A thread that returns memory calls [`CacheManager::start_waiting_reads`]; one that begins to wait calls it too,
//! after it has become visible as waiting. One of the two sees the other, so no wake-up is lost. One thread at a time
//! starts waiting reads; the others leave a ticket and continue, so there is neither recursion nor contention.

use super::CacheManager;
use crate::error::ReadError;
use crate::event::EventKind;
use crate::flight::{Flight, Phase};
use crate::policy::Reach;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Instant;

impl CacheManager {
    /// Starts the read of a new flight, or queues it behind others that wait.
    pub(crate) fn start_or_queue(self: &Arc<Self>, flight: Arc<Flight>) {
        let charged_bytes = flight.info.charged_bytes;
        if !self.budget().has_waiting() && self.make_room(charged_bytes) {
            self.admissions.read_begins();
            return self.start(flight);
        }
        let (key, info, query) = (flight.key, flight.info, flight.scan.query);
        self.admissions.queue.lock().push_back(flight);
        self.budget().add_waiting();
        self.shard(key)
            .record(EventKind::Wait, key, &info, Some(query));
        self.start_waiting_reads();
    }

    /// Starts every waiting read that may start now.
    pub(crate) fn start_waiting_reads(self: &Arc<Self>) {
        if !self.budget().has_waiting() || self.admissions.tickets.fetch_add(1, SeqCst) > 0 {
            return;
        }
        loop {
            let seen = self.admissions.tickets.load(SeqCst);
            while let Some(flight) = self.next_admitted() {
                self.start(flight);
            }
            let tickets = &self.admissions.tickets;
            if tickets.compare_exchange(seen, 0, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }

    /// Takes the next read that may start out of the queue and charges it.
    fn next_admitted(self: &Arc<Self>) -> Option<Arc<Flight>> {
        // Pairs with the fence of a lease that is dropped.
        fence(SeqCst);
        let mut cancelled = Vec::new(); // outlives the lock
        let mut queue = self.admissions.queue.lock();
        while queue.front().is_some_and(|flight| flight.is_cancelled()) {
            cancelled.extend(queue.pop_front());
            self.budget().remove_waiting();
        }
        let charged_bytes = queue.front()?.info.charged_bytes;
        let flight_idx = if self.make_room(charged_bytes) {
            0
        } else if self.is_within_minimum(charged_bytes) {
            self.budget().charge_in_flight(charged_bytes);
            0
        } else {
            self.overcommit(&queue)?
        };
        self.admissions.read_begins();
        self.budget().remove_waiting();
        queue.remove(flight_idx)
    }

    /// Whether segments take no more than they always may with these bytes, once idle ones are evicted.
    fn is_within_minimum(&self, charged_bytes: u64) -> bool {
        let budget = self.budget();
        let in_use_bytes = budget.segment_bytes().saturating_sub(budget.cached_bytes());
        if in_use_bytes + charged_bytes > self.segment_bytes_min {
            return false;
        }
        while budget.segment_bytes() + charged_bytes > self.segment_bytes_min {
            if !self.evict_one(Reach::Free) {
                return false;
            }
        }
        true
    }

    /// If nothing is being read and nothing is evictable, no memory may ever become free: the holders of bytes may be
    /// waiting for more. Then the first read that a request waits for is charged, whether it fits or not.
    fn overcommit(&self, queue: &VecDeque<Arc<Flight>>) -> Option<usize> {
        if self.admissions.reading_count.load(SeqCst) > 0 {
            return None;
        }
        let awaited = |flight: &Arc<Flight>| flight.awaited.load(SeqCst) && !flight.is_cancelled();
        let flight_idx = queue.iter().position(awaited)?;
        let flight = &queue[flight_idx];
        let charged_bytes = flight.info.charged_bytes;
        while !self.budget().try_charge_in_flight(charged_bytes) {
            if !self.evict_one_of_all() {
                self.budget().charge_in_flight(charged_bytes);
                let query = Some(flight.scan.query);
                self.shard(flight.key).record(
                    EventKind::Overcommit,
                    flight.key,
                    &flight.info,
                    query,
                );
                break;
            }
        }
        Some(flight_idx)
    }

    /// Charges a read about to start, evicting what the policy would drop for any other segment, and soft
    /// pins only while more is kept than may be. Evicts nothing if that could not be enough.
    pub(super) fn make_room(&self, charged_bytes: u64) -> bool {
        let budget = self.budget();
        loop {
            if budget.try_charge_in_flight(charged_bytes) {
                return true;
            }
            if !budget.could_fit(charged_bytes) {
                return false;
            }
            let is_over_capacity = budget.cached_bytes() > budget.capacity_bytes();
            let freed =
                self.evict_one(Reach::Free) || (is_over_capacity && self.evict_one(Reach::Pinned));
            if !freed {
                return false;
            }
        }
    }

    /// Starts a read that is charged and counted as under way.
    fn start(self: &Arc<Self>, flight: Arc<Flight>) {
        let mut state = flight.state.lock();
        let is_cancelled = matches!(state.phase, Phase::Cancelled);
        if !is_cancelled {
            state.phase = Phase::Reading(None);
            state.begun = Some(Instant::now());
        }
        drop(state);
        let completion = Completion {
            of: Some((Arc::clone(self), Arc::clone(&flight))),
        };
        if is_cancelled {
            return; // dropping the completion returns the charge
        }
        let done = Box::new(move |result| completion.complete(result));
        let mut handle = Some(flight.file.reader.read(flight.key.segment_idx, done));
        if let Phase::Reading(slot) = &mut flight.state.lock().phase {
            *slot = handle.take();
        }
    }
}

/// Ends a read exactly once, even if the reader drops its callback.
struct Completion {
    of: Option<(Arc<CacheManager>, Arc<Flight>)>,
}

impl Completion {
    fn complete(mut self, result: Result<Bytes, ReadError>) {
        if let Some((cache, flight)) = self.of.take() {
            cache.complete(&flight, result);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some((cache, flight)) = self.of.take() {
            let key = flight.key;
            cache.complete(&flight, Err(ReadError::Abandoned { key }));
        }
    }
}
