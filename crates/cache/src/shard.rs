//! A part of the cache with a lock of its own: the segments whose key falls here, and their policy.

use crate::budget::Budget;
use crate::event::{Event, EventKind, EventRing};
use crate::flight::Flight;
use crate::key::{ColumnId, Map, SegmentInfo, SegmentKey, SegmentKind};
use crate::lease::{HeldSegment, Lease};
use crate::ledger::{Ledger, MissCost};
use crate::model::ItemId;
use crate::policy::{Admission, Candidate, Policy, Reach, Removal, Room, Slot, SlotList};
use crate::scan::ScanContext;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The events of a kind are counted even when the log is off.
pub(crate) type EventCounts = [u64; EventKind::COUNT];

pub(crate) enum Entry {
    Resident(Slot),
    Flight(Arc<Flight>),
}

pub(crate) struct Resident {
    pub(crate) key: SegmentKey,
    pub(crate) info: SegmentInfo,
    pub(crate) held: Arc<HeldSegment>,
    pub(crate) hit_count: u64,
}

impl Resident {
    /// Only the cache refers to the bytes. New leases are only made under the shard's lock, so the
    /// answer `true` stays true while the lock is held.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }

    fn candidate(&self) -> Candidate {
        candidate(self.key, &self.info)
    }
}

fn candidate(key: SegmentKey, info: &SegmentInfo) -> Candidate {
    Candidate {
        key,
        column: info.column,
        row_group_idx: info.row_group_idx,
        bytes: info.charged_bytes,
    }
}

/// What is known about a segment when it has arrived.
pub(crate) struct Arrival {
    /// Whether it may be kept.
    pub(crate) populate: bool,
    /// Seconds that reading it took.
    pub(crate) read_s: f64,
    pub(crate) room: Room,
}

/// The state of one shard, behind its lock.
pub(crate) struct Shard {
    pub(crate) map: Map<SegmentKey, Entry>,
    residents: Vec<Option<Resident>>,
    vacant: Vec<Slot>,
    policy: Box<dyn Policy>,
    /// Resident metadata, most recently used first.
    metadata: SlotList,
    pub(crate) events: EventRing,
    pub(crate) counts: EventCounts,
    /// Uses of metadata, and what reading it took.
    ledger: Arc<Ledger>,
    budget: Arc<Budget>,
    sequence: Arc<AtomicU64>,
    /// Charged bytes of residents; readable without the lock (see `ShardCell`).
    cached_bytes: Arc<AtomicU64>,
    /// Charged bytes of resident data by column.
    column_bytes: Map<ColumnId, u64>,
}

impl Shard {
    pub(crate) fn new(
        policy: Box<dyn Policy>,
        events: EventRing,
        budget: Arc<Budget>,
        ledger: Arc<Ledger>,
        sequence: Arc<AtomicU64>,
        cached_bytes: Arc<AtomicU64>,
    ) -> Self {
        Self {
            map: Map::default(),
            residents: Vec::new(),
            vacant: Vec::new(),
            policy,
            metadata: SlotList::default(),
            events,
            counts: [0; EventKind::COUNT],
            ledger,
            budget,
            sequence,
            cached_bytes,
            column_bytes: Map::default(),
        }
    }

    /// Charged bytes of resident data by column.
    pub(crate) fn column_bytes(&self) -> &Map<ColumnId, u64> {
        &self.column_bytes
    }

    /// Counts and logs an event.
    pub(crate) fn record(
        &mut self,
        kind: EventKind,
        key: SegmentKey,
        info: &SegmentInfo,
        query: Option<u64>,
    ) {
        self.counts[kind as usize] += 1;
        if self.events.is_on() {
            self.events.push(Event {
                sequence: self.sequence.fetch_add(1, Relaxed),
                kind,
                key,
                column: info.column,
                bytes: info.charged_bytes,
                query,
            });
        }
    }

    /// Answers a request from the resident in `slot`.
    pub(crate) fn hit(&mut self, slot: Slot, scan: &ScanContext) -> Option<Lease> {
        let resident = self.residents.get_mut(slot.idx())?.as_mut()?;
        let (key, info) = (resident.key, resident.info);
        let lease = Lease::new(&resident.held);
        if scan.populate {
            resident.hit_count += 1;
            match info.kind {
                SegmentKind::Data => self.policy.hit(slot),
                SegmentKind::Metadata => {
                    self.metadata.remove(slot);
                    self.metadata.push_front(slot);
                    let item = ItemId::metadata_segment(key);
                    self.ledger.hit(item.number, scan.weight);
                }
            }
        }
        scan.count_hit(info.charged_bytes);
        self.record(EventKind::Hit, key, &info, Some(scan.query));
        Some(lease)
    }

    /// Keeps or forgets a segment that has arrived and whose charge is counted as detached. Older metadata
    /// that makes room for new is returned, to be dropped outside the lock.
    pub(crate) fn arrive(
        &mut self,
        flight: &Flight,
        held: &Arc<HeldSegment>,
        arrival: Arrival,
    ) -> Vec<Arc<HeldSegment>> {
        let (key, info) = (flight.key, flight.info);
        let query = Some(flight.scan.query);
        let room = arrival.room;
        let mut displaced = Vec::new();
        let keep = arrival.populate && self.wants(key, &info, room, &mut displaced);
        if keep {
            let cost = MissCost {
                seconds: arrival.read_s,
                weight: flight.scan.weight,
            };
            self.keep(key, info, held, cost);
            self.record(EventKind::Insert, key, &info, query);
        } else {
            self.map.remove(&key);
            self.record(EventKind::Reject, key, &info, query);
        }
        displaced
    }

    /// Whether a segment is to be kept. Older metadata goes for it, to be dropped outside the lock.
    pub(crate) fn wants(
        &mut self,
        key: SegmentKey,
        info: &SegmentInfo,
        room: Room,
        displaced: &mut Vec<Arc<HeldSegment>>,
    ) -> bool {
        match info.kind {
            SegmentKind::Metadata => self.admit_metadata(info, room, displaced),
            SegmentKind::Data => self.policy.admit(&candidate(key, info), room) == Admission::Keep,
        }
    }

    /// Keeps a segment whose charge is counted as detached, and that took this long to read.
    pub(crate) fn keep(
        &mut self,
        key: SegmentKey,
        info: SegmentInfo,
        held: &Arc<HeldSegment>,
        cost: MissCost,
    ) {
        let slot = self.occupy(Resident {
            key,
            info,
            held: Arc::clone(held),
            hit_count: 0,
        });
        match info.kind {
            SegmentKind::Metadata => {
                self.metadata.push_front(slot);
                self.budget.add_metadata(info.charged_bytes);
                let item = ItemId::metadata_segment(key);
                self.ledger.miss(item.number, info.charged_bytes, cost);
            }
            SegmentKind::Data => {
                self.policy.insert(slot, &candidate(key, &info));
                *self.column_bytes.entry(info.column).or_default() += info.charged_bytes;
            }
        }
        self.map.insert(key, Entry::Resident(slot));
        self.budget.detached_to_cached(info.charged_bytes);
        self.cached_bytes.fetch_add(info.charged_bytes, Relaxed);
    }

    /// Metadata may take half of what can be kept, so that a small budget still caches some data.
    fn admit_metadata(
        &mut self,
        info: &SegmentInfo,
        room: Room,
        displaced: &mut Vec<Arc<HeldSegment>>,
    ) -> bool {
        let Some(others_bytes) = (room.capacity_bytes / 2).checked_sub(info.charged_bytes) else {
            return false;
        };
        while self.budget.metadata_bytes() > others_bytes {
            match self.evict(Reach::Metadata) {
                Some(held) => displaced.push(held),
                None => return false,
            }
        }
        true
    }

    /// Evicts one idle segment. The bytes are returned to be dropped outside the lock.
    pub(crate) fn evict(&mut self, reach: Reach) -> Option<Arc<HeldSegment>> {
        let slot = self.victim(reach)?;
        self.take_out(slot, Removal::Evicted)
    }

    fn victim(&mut self, reach: Reach) -> Option<Slot> {
        let residents = &self.residents;
        let idle = |slot: Slot| {
            let resident = residents.get(slot.idx()).and_then(Option::as_ref);
            resident.is_some_and(Resident::is_idle)
        };
        match reach {
            Reach::Free | Reach::Pinned => self.policy.victim(reach, &idle),
            Reach::Metadata => self.metadata.iter_back().find(|slot| idle(*slot)),
        }
    }

    /// Whether an idle segment is here that the policy would let go for any other.
    pub(crate) fn has_free(&mut self) -> bool {
        self.victim(Reach::Free).is_some()
    }

    /// What the metadata saves that would be evicted next, in seconds per byte and second.
    pub(crate) fn cheapest_metadata(&self) -> Option<f64> {
        let residents = self.metadata.iter_back();
        let mut residents = residents.filter_map(|slot| self.resident(slot));
        let oldest = residents.find(|resident| resident.is_idle())?;
        let item = ItemId::metadata_segment(oldest.key);
        Some(self.ledger.density(item.number))
    }

    /// Drops all residents for which `which` holds, in use or not. To be dropped outside the lock.
    pub(crate) fn drop_where(
        &mut self,
        which: impl Fn(&Resident) -> bool,
    ) -> Vec<Arc<HeldSegment>> {
        let slots: Vec<Slot> = self.slots(which);
        let taken = slots
            .into_iter()
            .map(|slot| self.take_out(slot, Removal::Dropped));
        taken.flatten().collect()
    }

    /// Replaces the policy. What is resident stays, if `keep` says so.
    pub(crate) fn set_policy(
        &mut self,
        policy: Box<dyn Policy>,
        keep: bool,
    ) -> Vec<Arc<HeldSegment>> {
        let is_data = |resident: &Resident| resident.info.kind == SegmentKind::Data;
        let dropped = match keep {
            true => Vec::new(),
            false => self.drop_where(is_data),
        };
        self.policy = policy;
        let mut slots = self.slots(is_data);
        slots.sort_by_key(|slot| self.resident(*slot).map(|resident| resident.key));
        for slot in slots {
            if let Some(candidate) = self.resident(slot).map(Resident::candidate) {
                self.policy.insert(slot, &candidate);
            }
        }
        dropped
    }

    pub(crate) fn residents(&self) -> impl Iterator<Item = &Resident> {
        self.residents.iter().flatten()
    }

    fn slots(&self, which: impl Fn(&Resident) -> bool) -> Vec<Slot> {
        let numbered = (0u32..).map(Slot).zip(&self.residents);
        let chosen = numbered.filter(|(_, resident)| resident.as_ref().is_some_and(&which));
        chosen.map(|(slot, _)| slot).collect()
    }

    fn resident(&self, slot: Slot) -> Option<&Resident> {
        self.residents.get(slot.idx())?.as_ref()
    }

    fn occupy(&mut self, resident: Resident) -> Slot {
        if let Some(slot) = self.vacant.pop() {
            self.residents[slot.idx()] = Some(resident);
            return slot;
        }
        self.residents.push(Some(resident));
        Slot((self.residents.len() - 1) as u32)
    }

    fn take_out(&mut self, slot: Slot, removal: Removal) -> Option<Arc<HeldSegment>> {
        let resident = self.residents.get_mut(slot.idx())?.take()?;
        self.vacant.push(slot);
        match resident.info.kind {
            SegmentKind::Data => {
                self.policy.remove(slot, removal);
                self.forget_column_bytes(&resident.info);
            }
            SegmentKind::Metadata => {
                self.metadata.remove(slot);
                self.budget.remove_metadata(resident.info.charged_bytes);
                let item = ItemId::metadata_segment(resident.key);
                match removal {
                    Removal::Evicted => self.ledger.gave_back(item.number),
                    Removal::Dropped => self.ledger.forget(item.number),
                }
            }
        }
        self.map.remove(&resident.key);
        let kind = if resident.is_idle() {
            EventKind::Evict
        } else {
            EventKind::Detach
        };
        self.record(kind, resident.key, &resident.info, None);
        self.cached_bytes
            .fetch_sub(resident.info.charged_bytes, Relaxed);
        self.budget.cached_to_detached(resident.info.charged_bytes);
        Some(resident.held)
    }

    fn forget_column_bytes(&mut self, info: &SegmentInfo) {
        if let Some(bytes) = self.column_bytes.get_mut(&info.column) {
            *bytes -= info.charged_bytes;
            if *bytes == 0 {
                self.column_bytes.remove(&info.column);
            }
        }
    }
}

impl Drop for Shard {
    /// Bytes in use outlive the cache; their charges do too.
    fn drop(&mut self) {
        self.drop_where(|_| true);
    }
}
