//! Splitting a segment, doubling the directory.

use super::image::Image;
use super::layout::{
    BUCKET_WORDS, DEPTH_WORD, Entry, GROWTH_WORD, Growth, Hash, Head, SEGMENT_BUCKETS,
    SEGMENT_WORDS, Shape,
};
use super::store::Store;
use super::{Dash, DashError};

/// Segments without records. A thread that holds them may split.
#[derive(Debug, Default)]
pub(super) struct Free {
    pub(super) segments: Vec<u32>,
}

impl<S: Store> Dash<S> {
    /// Splits the segment that a hash leads to, unless it is no longer `seen`.
    ///
    /// The old segment stays as it is, and locked, until the directory leads to its halves; a power cut before the end
    /// leads back to it. It is free then, still locked, so that readers who come late look into the directory again.
    pub(super) fn grow(&self, hash: Hash, seen: Entry) -> Result<(), DashError> {
        let mut free = self.growth.lock();
        if self.entry(hash) != seen {
            return Ok(());
        }
        let depth = self.store.load(DEPTH_WORD) as u32;
        let segments = self.shape.capacity - free.segments.len() as u32;
        let full = Err(DashError::Full { segments });
        if free.segments.len() < 2 || seen.depth >= self.shape.depth_max {
            return full;
        }
        let depth = match seen.depth == depth {
            true => self.double_directory(depth),
            false => depth,
        };
        let halves = [free.segments.remove(0), free.segments.remove(0)];
        for bucket in 0..SEGMENT_BUCKETS {
            self.lock_bucket(self.bucket(seen, bucket));
        }
        let image = self.image(seen.segment);
        for (bit, segment) in halves.into_iter().enumerate() {
            self.write_locked(segment, &image.half(seen.depth, bit as u64));
        }
        self.store.fence();
        self.lead_to(hash, seen, halves, depth);
        for segment in halves {
            self.unlock_segment(segment);
        }
        free.segments.push(seen.segment);
        Ok(self.store.check()?)
    }

    /// Makes the next depth's directory out of the present one.
    fn double_directory(&self, depth: u32) -> u32 {
        for (idx, at) in Shape::entries(depth).enumerate() {
            let word = self.store.load(at);
            self.store
                .store(Shape::entry(depth + 1, idx as u64 * 2), word);
            self.store
                .store(Shape::entry(depth + 1, idx as u64 * 2 + 1), word);
        }
        self.store.persist(Shape::entries(depth + 1));
        self.store.store(DEPTH_WORD, u64::from(depth + 1));
        self.store.persist(DEPTH_WORD..DEPTH_WORD + 1);
        depth + 1
    }

    /// Lets the directory lead to the halves.
    fn lead_to(&self, hash: Hash, old: Entry, halves: [u32; 2], depth: u32) {
        let growth = Growth {
            old,
            prefix: hash.prefix(old.depth),
        };
        self.set_growth(growth.word());
        let entries = growth.entries(depth);
        let count = entries.end - entries.start;
        for (half, segment) in (0u64..).zip(halves) {
            let entry = Entry {
                segment,
                depth: old.depth + 1,
            };
            for idx in 0..count / 2 {
                let at = Shape::entry(depth, entries.start + half * (count / 2) + idx);
                self.store.store(at, entry.word());
            }
        }
        let first = Shape::entry(depth, entries.start);
        self.store.persist(first..first + count as usize);
        self.set_growth(0);
    }

    pub(super) fn set_growth(&self, word: u64) {
        self.store.store(GROWTH_WORD, word);
        self.store.persist(GROWTH_WORD..GROWTH_WORD + 1);
    }

    /// The words of a segment that no thread changes.
    pub(super) fn image(&self, segment: u32) -> Image {
        let start = self.shape.segment(segment);
        let words = (start..start + SEGMENT_WORDS).map(|at| self.store.load(at));
        Image {
            words: words.collect(),
        }
    }

    /// Fills a free segment, whose buckets stay locked.
    fn write_locked(&self, segment: u32, image: &Image) {
        let start = self.shape.segment(segment);
        for bucket in 0..SEGMENT_BUCKETS {
            let at = start + bucket * BUCKET_WORDS;
            let head = Head(self.store.load(at)).with_slots_of(image.head(bucket));
            self.store.store(at, head.locked().0);
            for word in 1..BUCKET_WORDS {
                self.store
                    .store(at + word, image.words[bucket * BUCKET_WORDS + word]);
            }
        }
        self.store.flush(start..start + SEGMENT_WORDS);
    }

    fn unlock_segment(&self, segment: u32) {
        for bucket in 0..SEGMENT_BUCKETS {
            let at = self.shape.segment(segment) + bucket * BUCKET_WORDS;
            self.store
                .store(at, Head(self.store.load(at)).next_version().0);
        }
    }
}
