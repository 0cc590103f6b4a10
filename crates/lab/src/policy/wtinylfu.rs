//! W-TinyLFU (Einziger, Friedman, Manes, ACM TOS 2017): a small window by recency before a main part whose
//! newcomers must have been used more often than what they replace.

use super::{Admission, Candidate, Policy, Reach, Removal, Room, SegmentKey, Slot, SlotList, mix};

const SKETCH_ROWS: usize = 4;
const SKETCH_WIDTH: usize = 4096;
const COUNT_MAX: u8 = 15;

/// Approximate counts of uses, halved now and then so that the past fades.
struct Sketch {
    counts: Vec<u8>,
    addition_count: usize,
}

impl Sketch {
    fn new() -> Self {
        Self {
            counts: vec![0; SKETCH_ROWS * SKETCH_WIDTH],
            addition_count: 0,
        }
    }

    fn cells(key: SegmentKey) -> [usize; SKETCH_ROWS] {
        let word =
            mix((u64::from(key.file.0) << 32 | u64::from(key.segment_idx)) ^ 0x9e37_79b9_7f4a_7c15);
        std::array::from_fn(|row| row * SKETCH_WIDTH + (word >> (16 * row)) as usize % SKETCH_WIDTH)
    }

    fn count(&self, key: SegmentKey) -> u8 {
        let counts = Self::cells(key).map(|cell| self.counts[cell]);
        counts.into_iter().min().unwrap_or(0)
    }

    /// Counts a use; halves all counts once there were ten uses per resident segment.
    fn add(&mut self, key: SegmentKey, resident_count: usize) {
        for cell in Self::cells(key) {
            self.counts[cell] = (self.counts[cell] + 1).min(COUNT_MAX);
        }
        self.addition_count += 1;
        if self.addition_count >= 10 * resident_count.max(16) {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.addition_count /= 2;
        }
    }
}

/// Window (1 % of the bytes), probation and protected (at most 80 % of the main part's bytes), each by recency.
pub(super) struct WTinyLfu {
    window: SlotList,
    window_bytes: u64,
    probation: SlotList,
    /// The latest segment that came from the window and has not been compared with a victim.
    newcomer: Option<Slot>,
    protected: SlotList,
    protected_bytes: u64,
    total_bytes: u64,
    segments: Vec<Option<(SegmentKey, u64)>>,
    sketch: Sketch,
}

impl WTinyLfu {
    pub(super) fn new() -> Self {
        Self {
            window: SlotList::default(),
            window_bytes: 0,
            probation: SlotList::default(),
            newcomer: None,
            protected: SlotList::default(),
            protected_bytes: 0,
            total_bytes: 0,
            segments: Vec::new(),
            sketch: Sketch::new(),
        }
    }

    fn segment(&self, slot: Slot) -> Option<(SegmentKey, u64)> {
        self.segments.get(slot.idx()).copied().flatten()
    }

    fn use_count(&self, slot: Slot) -> u8 {
        let segment = self.segment(slot);
        segment.map_or(0, |(key, _)| self.sketch.count(key))
    }

    fn resident_count(&self) -> usize {
        self.window.len() + self.probation.len() + self.protected.len()
    }

    /// Moves the oldest of the window on to probation, where it must yet win against the next victim.
    fn shift_window(&mut self) {
        if let Some(slot) = self.window.back() {
            self.window.remove(slot);
            self.window_bytes -= self.segment(slot).map_or(0, |(_, bytes)| bytes);
            self.probation.push_front(slot);
            self.newcomer = Some(slot);
        }
    }

    fn protect(&mut self, slot: Slot, bytes: u64) {
        self.newcomer = self.newcomer.filter(|newcomer| *newcomer != slot);
        self.probation.remove(slot);
        self.protected.push_front(slot);
        self.protected_bytes += bytes;
        let main_bytes = self.total_bytes - self.window_bytes;
        while 5 * self.protected_bytes > 4 * main_bytes {
            let Some(demoted) = self.protected.back() else {
                return;
            };
            self.protected.remove(demoted);
            self.protected_bytes -= self.segment(demoted).map_or(0, |(_, bytes)| bytes);
            self.probation.push_front(demoted);
        }
    }
}

impl Policy for WTinyLfu {
    fn admit(&mut self, _incoming: &Candidate, _room: Room) -> Admission {
        Admission::Keep
    }

    fn insert(&mut self, slot: Slot, segment: &Candidate) {
        if self.segments.len() <= slot.idx() {
            self.segments.resize(slot.idx() + 1, None);
        }
        self.segments[slot.idx()] = Some((segment.key, segment.bytes));
        self.window.push_front(slot);
        self.window_bytes += segment.bytes;
        self.total_bytes += segment.bytes;
        self.sketch.add(segment.key, self.resident_count());
        while 100 * self.window_bytes > self.total_bytes && self.window.len() > 1 {
            self.shift_window();
        }
    }

    fn hit(&mut self, slot: Slot) {
        let Some((key, bytes)) = self.segment(slot) else {
            return;
        };
        self.sketch.add(key, self.resident_count());
        if self.probation.contains(slot) {
            self.protect(slot, bytes);
        } else if self.protected.contains(slot) {
            self.protected.move_to_front(slot);
        } else {
            self.window.move_to_front(slot);
        }
    }

    fn victim(&mut self, _reach: Reach, idle: &dyn Fn(Slot) -> bool) -> Option<Slot> {
        let main = self.probation.iter_back().chain(self.protected.iter_back());
        let victim = main
            .chain(self.window.iter_back())
            .find(|slot| idle(*slot))?;
        let newcomer = self.newcomer.take().filter(|slot| idle(*slot));
        let loser = newcomer.filter(|slot| self.use_count(*slot) <= self.use_count(victim));
        Some(loser.unwrap_or(victim))
    }

    fn remove(&mut self, slot: Slot, _removal: Removal) {
        let Some((_, bytes)) = self.segments.get_mut(slot.idx()).and_then(Option::take) else {
            return;
        };
        self.total_bytes -= bytes;
        self.newcomer = self.newcomer.filter(|newcomer| *newcomer != slot);
        if self.window.remove(slot) {
            self.window_bytes -= bytes;
        } else if self.protected.remove(slot) {
            self.protected_bytes -= bytes;
        } else {
            self.probation.remove(slot);
        }
    }
}
