//! A table's words for reading: where a key would be, and whether the table has it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{
    BUCKET_WORDS, DEPTH_WORD, Entry, Hash, Head, Marks, NORMAL_BUCKETS, STASH_BUCKETS, Shape,
    equal_bytes, right,
};

/// The words, fetched once for a look-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) words: &'a [AtomicU64],
    pub(super) shape: Shape,
}

/// Where a key would be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) hash: Hash,
    pub(super) entry: Entry,
    /// First words of the home bucket and its right neighbour.
    pub(super) home: usize,
    pub(super) next: usize,
}

impl View<'_> {
    #[inline]
    pub(super) fn load(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    /// Whether and where a key is; `None` if a bucket of the stash changed meanwhile. The home and its neighbour are
    /// locked or their heads compared afterwards.
    #[inline]
    pub(super) fn find(
        &self,
        place: &Place,
        home: Head,
        next: Head,
        key: u64,
        buckets: &mut u32,
    ) -> Option<Option<(usize, u64)>> {
        let fingerprint = place.hash.fingerprint();
        *buckets += 1;
        let own = home.taken() & !home.guests();
        if let Some(found) = self.find_in(place.home, own, fingerprint, key) {
            return Some(Some(found));
        }
        *buckets += 1;
        if let Some(found) =
            self.find_in(place.next, next.taken() & next.guests(), fingerprint, key)
        {
            return Some(Some(found));
        }
        let (marks, guests) = (self.marks(place.home), self.marks(place.next));
        let stashes = match marks.unmarked() {
            0 if marks.is_empty() && guests.is_empty() => return Some(None),
            0 => marks.stashes(fingerprint, false) | guests.stashes(fingerprint, true),
            _ => u8::MAX,
        };
        for stash in (0..STASH_BUCKETS).filter(|stash| stashes >> stash & 1 == 1) {
            let bucket = self.stash(place.entry, stash);
            *buckets += 1;
            let head = Head(self.load(bucket));
            let found = self.find_in(bucket, head.taken(), fingerprint, key);
            if head.is_locked() || self.load(bucket) != head.0 {
                return None;
            }
            if found.is_some() {
                return Some(found);
            }
        }
        Some(None)
    }

    /// The word of a record among these slots of a bucket, and its value.
    #[inline]
    fn find_in(
        &self,
        bucket: usize,
        slots: u16,
        fingerprint: u8,
        key: u64,
    ) -> Option<(usize, u64)> {
        let first = equal_bytes(self.load(bucket + 1), fingerprint);
        let second = equal_bytes(self.load(bucket + 2), fingerprint);
        let mut equal = (first | second << 8) & slots;
        while equal != 0 {
            let at = bucket + 4 + equal.trailing_zeros() as usize * 2;
            if self.load(at) == key {
                return Some((at, self.load(at + 1)));
            }
            equal &= equal - 1;
        }
        None
    }

    #[inline]
    pub(super) fn place(&self, hash: Hash) -> Place {
        let entry = self.entry(hash);
        let bucket = hash.bucket();
        Place {
            hash,
            entry,
            home: self.bucket(entry, bucket),
            next: self.bucket(entry, right(bucket)),
        }
    }

    /// The directory's entry of a hash.
    #[inline]
    pub(super) fn entry(&self, hash: Hash) -> Entry {
        let depth = self.load(DEPTH_WORD) as u32;
        Entry::from_word(self.load(Shape::entry(depth, hash.prefix(depth))))
    }

    #[inline]
    pub(super) fn bucket(&self, entry: Entry, bucket: usize) -> usize {
        self.shape.segment(entry.segment) + bucket * BUCKET_WORDS
    }

    #[inline]
    pub(super) fn stash(&self, entry: Entry, stash: usize) -> usize {
        self.bucket(entry, NORMAL_BUCKETS + stash)
    }

    #[inline]
    pub(super) fn marks(&self, bucket: usize) -> Marks {
        Marks {
            word2: self.load(bucket + 2),
            word3: self.load(bucket + 3),
        }
    }
}
