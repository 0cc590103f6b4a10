//! [`CacheManager`]: requests in, bytes out.
//!
//! # Locks
//! Taken in this order, none held while calling a reader, waking a task, or dropping bytes that others may own:
//!
//! 1. the queue of waiting reads ([`Admissions`]),
//! 2. one shard (never two),
//! 3. the table of files, or the state of one flight (leaves).
//!
//! A hit takes one shard lock and nothing else.
//!
//! `reads` decides which reads may start, `lying` answers where none is needed, `evictions` decides what goes and what
//! stays; `memory_market` answers who has the memory and what it is worth.

mod evictions;
mod lying;
mod memory_market;
mod options;
mod reads;

use lying::LyingRequest;
pub(crate) use memory_market::lent;
pub use options::CacheOptions;

use crate::admission::Admissions;
use crate::budget::{Budget, Evictor};
use crate::clock::UseClock;
use crate::error::ReadError;
use crate::event::{Event, EventKind, EventRing};
use crate::files::{FileEntry, FileTable};
use crate::flight::{Flight, Phase};
use crate::future::SegmentFuture;
use crate::key::{ColumnId, FileId, SegmentInfo, SegmentKey};
use crate::ladder::{Ladder, Lender};
use crate::lease::{HeldSegment, Lease};
use crate::ledger::Ledger;
use crate::market::Market;
use crate::model::ItemClass;
use crate::placement::Placement;
use crate::policy::{Policy, PolicyContext, PolicyKind, Room};
use crate::price::PriceBoard;
use crate::reader::SegmentReader;
use crate::scan::ScanContext;
use crate::shard::{Arrival, Entry, EventCounts, Shard};
use crate::tuner::StorageProgress;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// A shard and the part of its state that is read without its lock.
struct ShardCell {
    cached_bytes: Arc<AtomicU64>,
    shard: Mutex<Shard>,
}

/// The segment cache. Made with [`CacheManager::new`], shared by all queries of a database.
pub struct CacheManager {
    budget: Arc<Budget>,
    shards: Box<[ShardCell]>,
    files: RwLock<FileTable>,
    policy: Mutex<PolicyKind>,
    policy_context: PolicyContext,
    prices: PriceBoard,
    ladder: Ladder,
    /// By which uses of everything become rates.
    clock: Arc<UseClock>,
    /// Uses of the segments that are metadata, and what reading them took.
    metadata: Arc<Ledger>,
    market: Market,
    segment_bytes_min: u64,
    pub(crate) admissions: Admissions,
}

impl CacheManager {
    /// An empty cache.
    pub fn new(options: CacheOptions) -> Arc<Self> {
        let partitions = options.partitions.max(1);
        let events_per_shard = options.event_log_capacity.div_ceil(partitions);
        let sequence = Arc::new(AtomicU64::new(0));
        let clock = Arc::default();
        let metadata = Arc::new(Ledger::new(ItemClass::Metadata, Arc::clone(&clock)));
        let policy_context = PolicyContext {
            partitions,
            ..PolicyContext::default()
        };
        Arc::new_cyclic(|cache| {
            let budget = Arc::new(Budget::new(
                options.budget_bytes,
                options.transit_bytes,
                cache.clone() as Weak<dyn Evictor>,
            ));
            let cell = |_| {
                let cached_bytes = Arc::new(AtomicU64::new(0));
                let shard = Shard::new(
                    options.policy.build(&policy_context),
                    EventRing::new(events_per_shard),
                    Arc::clone(&budget),
                    Arc::clone(&metadata),
                    Arc::clone(&sequence),
                    Arc::clone(&cached_bytes),
                );
                ShardCell {
                    cached_bytes,
                    shard: Mutex::new(shard),
                }
            };
            Self {
                shards: (0..partitions).map(cell).collect(),
                budget,
                files: RwLock::default(),
                policy: Mutex::new(options.policy),
                policy_context,
                prices: PriceBoard::default(),
                ladder: Ladder::default(),
                clock,
                metadata,
                market: Market::default(),
                segment_bytes_min: options.segment_bytes_min,
                admissions: Admissions::default(),
            }
        })
    }

    /// Makes a file known. The reader must not own this cache (it would never be freed).
    pub fn add_file(&self, reader: Arc<dyn SegmentReader>, segments: Vec<SegmentInfo>) -> FileId {
        self.files.write().add(reader, segments)
    }

    /// Says which segments a file has that was added without any. Files that have segments, and unknown ones, stay as
    /// they are.
    pub fn describe_file(&self, file: FileId, segments: Vec<SegmentInfo>) {
        self.files.write().describe(file, segments);
    }

    /// Forgets a file and drops its segments. Reads under way still finish; bytes in use stay valid. Unknown files are
    /// ignored.
    pub fn remove_file(&self, file: FileId) {
        let removed = self.files.write().remove(file);
        if removed.is_none() {
            return;
        }
        self.for_each_shard(|shard| shard.drop_where(|resident| resident.key.file == file));
    }

    /// Asks for a segment. Found: the future is ready. Not found: its read is started at once (or waits for
    /// memory), shared with all requests made meanwhile. Must not be called with a lock held that the
    /// file's reader takes.
    pub fn request(self: &Arc<Self>, key: SegmentKey, scan: &Arc<ScanContext>) -> SegmentFuture {
        let mut shard = self.shard(key);
        let flight = match shard.map.get(&key) {
            Some(Entry::Resident(slot)) => {
                let slot = *slot;
                let lease = shard.hit(slot, scan);
                drop(shard);
                let bytes = lease.map(Lease::into_bytes);
                return SegmentFuture::ready(bytes.ok_or(ReadError::UnknownSegment { key }));
            }
            Some(Entry::Flight(flight)) => {
                let flight = Arc::clone(flight);
                let future = SegmentFuture::of_flight(self, &flight, scan);
                scan.count_shared(flight.info.charged_bytes);
                shard.record(EventKind::Shared, key, &flight.info, Some(scan.query));
                return future;
            }
            None => {
                let Some((file, info)) = self.files.read().segment(key) else {
                    return SegmentFuture::ready(Err(ReadError::UnknownSegment { key }));
                };
                if let Some(lying) = file.reader.lying(key.segment_idx) {
                    drop(shard);
                    let request = LyingRequest::new(self, (key, info), file, lying, scan);
                    return SegmentFuture::lying(Box::new(move || request.take()));
                }
                Flight::new(key, info, file, scan)
            }
        };
        let future = SegmentFuture::of_flight(self, &flight, scan);
        shard.map.insert(key, Entry::Flight(Arc::clone(&flight)));
        shard.record(EventKind::Miss, key, &flight.info, Some(scan.query));
        drop(shard);
        scan.count_miss();
        self.start_or_queue(flight);
        future
    }

    /// The memory budget.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Changes the budget and evicts what no longer fits.
    pub fn set_budget_bytes(&self, budget_bytes: u64) {
        self.budget.set_limit_bytes(budget_bytes);
        while self.budget.is_over() && self.evict_one_of_all() {}
        self.budget.memory_may_be_free();
    }

    /// The policy in force.
    pub fn policy(&self) -> PolicyKind {
        *self.policy.lock()
    }

    /// Changes the policy. What is resident stays, unless the new policy is [`PolicyKind::None`].
    pub fn set_policy(&self, kind: PolicyKind) {
        self.set_own_policy(kind, |context, _| kind.build(context));
    }

    /// Puts a policy of the caller's own in force: `make` makes an instance for the shard of the given number. The
    /// tuner and the order of eviction treat it as they treat `like`, the kind that it resembles:
    /// [`PolicyKind::HpCache`] if it carries out placements.
    pub fn set_own_policy(
        &self,
        like: PolicyKind,
        make: impl Fn(&PolicyContext, usize) -> Box<dyn Policy>,
    ) {
        let mut policy = self.policy.lock();
        *policy = like;
        let keep = like != PolicyKind::None;
        let mut dropped = Vec::new();
        for (shard_idx, cell) in self.shards.iter().enumerate() {
            let fresh = make(&self.policy_context, shard_idx);
            dropped.extend(cell.shard.lock().set_policy(fresh, keep));
        }
        drop(policy);
        drop(dropped);
        if !keep {
            self.ladder.clear();
        }
        self.budget.memory_may_be_free();
    }

    /// The proportions that the HPCache policies carry out.
    pub fn placement(&self) -> Arc<Placement> {
        self.policy_context.placement.current()
    }

    /// Publishes new proportions. Takes effect at the next decision of each shard; nothing is evicted now.
    pub fn set_placement(&self, placement: Placement) {
        self.policy_context.placement.publish(placement);
    }

    /// What a byte of each shelf is worth, by the tuner's last step. Read without a lock.
    pub fn price_board(&self) -> &PriceBoard {
        &self.prices
    }

    /// Drops every resident segment, and what lenders made of segments. Bytes in use stay valid and count until they
    /// are dropped.
    pub fn clear(&self) {
        self.for_each_shard(|shard| shard.drop_where(|_| true));
        self.ladder.clear();
    }

    /// The columns of the files that exist, and their sizes in charged bytes of data.
    pub fn column_sizes(&self) -> Arc<BTreeMap<ColumnId, u64>> {
        Arc::clone(self.files.read().sizes())
    }

    /// Charged bytes of data in memory by column; columns without any are left out. Cheap.
    pub fn resident_bytes(&self) -> BTreeMap<ColumnId, u64> {
        let mut resident: BTreeMap<ColumnId, u64> = BTreeMap::new();
        self.inspect(|shard| {
            for (column, bytes) in shard.column_bytes() {
                *resident.entry(*column).or_default() += bytes;
            }
        });
        resident
    }

    /// What reading did since the cache was made.
    pub fn storage_progress(&self) -> StorageProgress {
        self.admissions.progress()
    }

    /// The latest events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        self.inspect(|shard| events.extend(shard.events.iter()));
        events.sort_by_key(|event| event.sequence);
        events
    }

    /// Sums over the shards of how often each kind of event happened.
    pub(crate) fn event_counts(&self) -> EventCounts {
        let mut sums: EventCounts = [0; EventKind::COUNT];
        self.inspect(|shard| {
            let counts = sums.iter_mut().zip(shard.counts);
            counts.for_each(|(sum, count)| *sum += count);
        });
        sums
    }

    /// Calls `look` with each shard in turn.
    pub(crate) fn inspect(&self, mut look: impl FnMut(&Shard)) {
        for cell in &self.shards {
            look(&cell.shard.lock());
        }
    }

    /// The files that exist, in order of their ids.
    pub(crate) fn files(&self) -> Vec<Arc<FileEntry>> {
        self.files.read().entries().cloned().collect()
    }

    pub(crate) fn shard(&self, key: SegmentKey) -> MutexGuard<'_, Shard> {
        let shard_idx = (key.mixed() >> 32) as usize % self.shards.len();
        self.shards[shard_idx].shard.lock()
    }

    /// The clock by which uses become rates.
    pub fn clock(&self) -> &Arc<UseClock> {
        &self.clock
    }

    /// A ledger for a lender's items, by the clock of all.
    pub fn ledger(&self, class: ItemClass) -> Ledger {
        Ledger::new(class, Arc::clone(&self.clock))
    }

    /// What is kept for the rows of the memory market.
    pub(crate) fn market(&self) -> &Market {
        &self.market
    }

    /// Adds a lender, which keeps other things than segments in memory of this budget. Forgotten when it is gone.
    pub fn add_lender(&self, lender: Weak<dyn Lender>) {
        self.ladder.join(lender);
    }

    /// A read has ended: keeps or drops the bytes and wakes the requests.
    pub(crate) fn complete(&self, flight: &Arc<Flight>, result: Result<Bytes, ReadError>) {
        let charged_bytes = flight.info.charged_bytes;
        let outcome = match result {
            Ok(bytes) => {
                self.budget.in_flight_to_detached(charged_bytes);
                flight.scan.count_storage(charged_bytes);
                Ok(HeldSegment::new(
                    bytes,
                    charged_bytes,
                    Arc::clone(&self.budget),
                ))
            }
            Err(error) => {
                self.budget.release_in_flight(charged_bytes);
                Err(error)
            }
        };
        let arrived = outcome.as_ref().map_or(0, |_| charged_bytes);
        self.admissions.read_ended(arrived);
        let (wakers, former, displaced) = self.settle(flight, &outcome);
        for waker in wakers {
            waker.wake();
        }
        drop((former, displaced, outcome));
        self.budget.memory_may_be_free();
    }

    fn settle(
        &self,
        flight: &Arc<Flight>,
        outcome: &Result<Arc<HeldSegment>, ReadError>,
    ) -> (Vec<Waker>, Phase, Vec<Arc<HeldSegment>>) {
        let room = Room {
            cached_bytes: self.budget.cached_bytes(),
            capacity_bytes: self.budget.capacity_bytes(),
            is_copied: false,
        };
        let mut displaced = Vec::new();
        let mut shard = self.shard(flight.key);
        let mut state = flight.state.lock();
        if !matches!(state.phase, Phase::Cancelled) {
            match outcome {
                Ok(held) => {
                    let arrival = Arrival {
                        populate: state.populate && !flight.file.is_removed(),
                        read_s: state.begun.map_or(0.0, |at| at.elapsed().as_secs_f64()),
                        room,
                    };
                    displaced = shard.arrive(flight, held, arrival);
                }
                Err(_) => {
                    shard.map.remove(&flight.key);
                    let query = Some(flight.scan.query);
                    shard.record(EventKind::Fail, flight.key, &flight.info, query);
                }
            }
        }
        let result = outcome.as_ref().map(Lease::new).map_err(ReadError::clone);
        let (wakers, former) = state.finish(result);
        (wakers, former, displaced)
    }

    /// A request is dropped, with or without its bytes.
    pub(crate) fn leave(&self, flight: &Flight, asker_idx: usize) {
        let mut shard = self.shard(flight.key);
        let (waker, cancelled) = flight.state.lock().leave(asker_idx);
        if cancelled.is_some() {
            shard.map.remove(&flight.key);
            let query = Some(flight.scan.query);
            shard.record(EventKind::Cancel, flight.key, &flight.info, query);
        }
        drop(shard);
        drop((waker, cancelled));
        self.budget.memory_may_be_free();
    }

    /// Applies a change to each shard in turn and drops what the change lets go, outside the lock.
    fn for_each_shard(&self, change: impl Fn(&mut Shard) -> Vec<Arc<HeldSegment>>) {
        for cell in &self.shards {
            let dropped = change(&mut cell.shard.lock());
            drop(dropped);
        }
        self.budget.memory_may_be_free();
    }
}

impl Evictor for CacheManager {
    fn lent_bytes(&self) -> u64 {
        self.ladder.lent_bytes()
    }

    fn evict_one(&self) -> bool {
        self.evict_one_of_all()
    }

    fn start_waiting_reads(self: Arc<Self>) {
        CacheManager::start_waiting_reads(&self);
    }
}

impl std::fmt::Debug for CacheManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheManager")
            .field("policy", &self.policy())
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
