//! 2Q, full version (Johnson and Shasha, VLDB 1994): a segment must come back before it counts as hot.

use super::{
    Admission, Candidate, Ghosts, Policy, Reach, Removal, Room, SegmentKey, Slot, SlotList,
};

/// `A1in` holds a quarter of the bytes in order of arrival, `A1out` the keys of half as many segments as are
/// resident, `Am` the segments that came back, by recency.
#[derive(Default)]
pub(super) struct TwoQueue {
    arrived: SlotList,
    arrived_bytes: u64,
    hot: SlotList,
    hot_bytes: u64,
    ghosts: Ghosts,
    /// By slot: key and bytes.
    segments: Vec<Option<(SegmentKey, u64)>>,
}

impl TwoQueue {
    fn is_arrived_over(&self) -> bool {
        4 * self.arrived_bytes > self.arrived_bytes + self.hot_bytes
    }
}

impl Policy for TwoQueue {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, segment: &Candidate) {
        if self.segments.len() <= slot.idx() {
            self.segments.resize(slot.idx() + 1, None);
        }
        self.segments[slot.idx()] = Some((segment.key, segment.bytes));
        if self.ghosts.take(segment.key) {
            self.hot.push_front(slot);
            self.hot_bytes += segment.bytes;
        } else {
            self.arrived.push_front(slot);
            self.arrived_bytes += segment.bytes;
        }
    }

    fn hit(&mut self, slot: Slot) {
        if self.hot.contains(slot) {
            self.hot.move_to_front(slot);
        }
    }

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        let mut arrived = self.arrived.iter_back().filter(|slot| idle(*slot));
        let mut hot = self.hot.iter_back().filter(|slot| idle(*slot));
        if self.is_arrived_over() {
            arrived.next().or_else(|| hot.next())
        } else {
            hot.next().or_else(|| arrived.next())
        }
    }

    fn remove(&mut self, slot: Slot, removal: Removal) {
        let Some((key, bytes)) = self.segments.get_mut(slot.idx()).and_then(Option::take) else {
            return;
        };
        if self.hot.remove(slot) {
            self.hot_bytes -= bytes;
        } else if self.arrived.remove(slot) {
            self.arrived_bytes -= bytes;
            if removal == Removal::Evicted {
                let resident_count = self.arrived.len() + self.hot.len() + 1;
                self.ghosts.push(key, resident_count.div_ceil(2));
            }
        }
    }
}
