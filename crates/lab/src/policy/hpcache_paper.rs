//! HPCache as the paper has it (§5.3): a soft pin is drawn with the column's proportion as its probability
//! whenever a segment enters the cache; a placement that lowers a proportion takes pins away at random; eviction
//! walks the frames and takes unpinned ones first.

use super::{
    Admission, Candidate, ColumnId, Policy, PublishedPlacement, Reach, Removal, Room, Slot, mix,
};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Copy)]
struct Frame {
    column: ColumnId,
    bytes: u64,
    soft_pinned: bool,
}

pub(super) struct HpCachePaper {
    published: Arc<PublishedPlacement>,
    generation: u64,
    /// Into how many shards the columns are divided.
    partitions: usize,
    frames: Vec<Option<Frame>>,
    hand: usize,
    draws: u64,
}

impl HpCachePaper {
    pub(super) fn new(published: Arc<PublishedPlacement>, partitions: usize, seed: u64) -> Self {
        Self {
            generation: published.generation(),
            published,
            partitions,
            frames: Vec::new(),
            hand: 0,
            draws: mix(seed),
        }
    }

    /// True with the given probability.
    fn draw(&mut self, probability: f64) -> bool {
        self.draws = self.draws.wrapping_add(1);
        ((mix(self.draws) >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// After a new placement: columns with more pins than their proportion lose the excess, each pin with
    /// probability `1 - recommended / current`. The current proportion is measured, which also corrects the
    /// drift that repeated draws cause.
    fn refresh(&mut self) {
        let generation = self.published.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let placement = self.published.current();
        let mut pinned_bytes: HashMap<ColumnId, u64> = HashMap::new();
        for frame in self.frames.iter().flatten() {
            if frame.soft_pinned {
                *pinned_bytes.entry(frame.column).or_default() += frame.bytes;
            }
        }
        for frame_idx in 0..self.frames.len() {
            let Some(frame) = self.frames[frame_idx] else {
                continue;
            };
            if !frame.soft_pinned {
                continue;
            }
            let share = placement.share(frame.column);
            let target = share.map_or(0.0, |share| share.proportion * share.bytes as f64);
            let current = self.partitions as f64 * pinned_bytes[&frame.column] as f64;
            if self.draw(1.0 - target / current) {
                self.frames[frame_idx] = Some(Frame {
                    soft_pinned: false,
                    ..frame
                });
            }
        }
    }
}

impl Policy for HpCachePaper {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, segment: &Candidate) {
        self.refresh();
        if self.frames.len() <= slot.idx() {
            self.frames.resize(slot.idx() + 1, None);
        }
        let proportion = self.published.current().proportion(segment.column);
        self.frames[slot.idx()] = Some(Frame {
            column: segment.column,
            bytes: segment.bytes,
            soft_pinned: self.draw(proportion),
        });
    }

    fn hit(&mut self, _slot: Slot) {}

    fn victim(&mut self, reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        self.refresh();
        let frame_count = self.frames.len();
        for step in 0..frame_count {
            let frame_idx = (self.hand + step) % frame_count;
            let Some(frame) = self.frames[frame_idx] else {
                continue;
            };
            let slot = Slot(frame_idx as u32);
            if (reach > Reach::Free || !frame.soft_pinned) && idle(slot) {
                self.hand = (frame_idx + 1) % frame_count;
                return Some(slot);
            }
        }
        None
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        if let Some(frame) = self.frames.get_mut(slot.idx()) {
            *frame = None;
        }
    }
}
