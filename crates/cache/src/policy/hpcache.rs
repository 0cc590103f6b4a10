//! HPCache with stable soft pins: keep of each column the proportion that the tuner asks for.
//!
//! Nicholson et al. (§5.3) draw a soft pin at random whenever a segment enters the cache. Here a segment is pinned iff
//! its row group's place in a fixed, evenly spread order lies below its column's proportion. Nothing is stored
//! per segment, a new placement only moves the difference, and what is kept is spread evenly over the column.
//!
//! Segments are ranked by *excess* = place - proportion. Below zero: soft-pinned. Whatever memory the pins leave
//! is filled in the same order, so that scans larger than memory keep a stable part even before the tuner knows
//! anything.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, Slot};
use crate::placement::{Placement, PublishedPlacement, keep_order};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An excess as an integer: totally ordered.
type Excess = i64;

pub(super) struct HpCache {
    published: Arc<PublishedPlacement>,
    generation: u64,
    placement: Arc<Placement>,
    /// By slot: the segment and its excess.
    segments: Vec<Option<(Candidate, Excess)>>,
    order: BTreeSet<(Excess, u32)>,
}

impl HpCache {
    pub(super) fn new(published: Arc<PublishedPlacement>) -> Self {
        Self {
            generation: published.generation(),
            placement: published.current(),
            published,
            segments: Vec::new(),
            order: BTreeSet::new(),
        }
    }

    fn excess(&self, segment: &Candidate) -> Excess {
        let place = keep_order(segment.key.file, segment.row_group_idx);
        let excess = self.placement.excess(segment.column, place);
        (excess * (1u64 << 52) as f64) as Excess
    }

    /// Ranks all segments anew if a placement was published since.
    fn refresh(&mut self) {
        let generation = self.published.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.placement = self.published.current();
        self.order.clear();
        for slot_idx in 0..self.segments.len() {
            if let Some((segment, _)) = self.segments[slot_idx] {
                let excess = self.excess(&segment);
                self.segments[slot_idx] = Some((segment, excess));
                self.order.insert((excess, slot_idx as u32));
            }
        }
    }
}

impl Policy for HpCache {
    fn admit(&mut self, incoming: &Candidate, room: Room) -> Admission {
        self.refresh();
        let excess = self.excess(incoming);
        let fits = room.cached_bytes.saturating_add(incoming.bytes) <= room.capacity_bytes;
        // A copy displaces nothing that is as good as it.
        let beats_worst =
            || !room.is_copied && self.order.last().is_some_and(|(worst, _)| excess < *worst);
        if fits || excess < 0 || beats_worst() {
            Admission::Keep
        } else {
            Admission::Forget
        }
    }

    fn insert(&mut self, slot: Slot, segment: &Candidate) {
        self.refresh();
        if self.segments.len() <= slot.idx() {
            self.segments.resize(slot.idx() + 1, None);
        }
        let excess = self.excess(segment);
        self.segments[slot.idx()] = Some((*segment, excess));
        self.order.insert((excess, slot.0));
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        self.refresh();
        let least = match reach {
            Reach::Free => 0,
            Reach::Pinned | Reach::Metadata => Excess::MIN,
        };
        let worst_first = self.order.range((least, 0)..).rev();
        worst_first
            .map(|(_, slot)| Slot(*slot))
            .find(|slot| idle(*slot))
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        if let Some((_, excess)) = self.segments.get_mut(slot.idx()).and_then(Option::take) {
            self.order.remove(&(excess, slot.0));
        }
    }
}
