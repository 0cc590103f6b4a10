//! Changing records: locks of buckets, balanced insertion, displacement, stash.

use std::hint::spin_loop;

use super::layout::{
    BUCKET_WORDS, Hash, Head, Marks, SLOTS, STASH_BUCKETS, fingerprint_place, left, right,
};
use super::store::Store;
use super::view::Place;
use super::{Dash, DashError};

/// A locked bucket: where it begins, and its head without the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Locked {
    pub(super) at: usize,
    pub(super) head: Head,
}

impl<S: Store> Dash<S> {
    /// Gives a key this value and returns the one it had. Durable when it returns.
    ///
    /// # Errors
    /// [`DashError::Full`], and what the operating system says where it is involved.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>, DashError> {
        let hash = Hash::of(key);
        loop {
            let Some((place, home, next)) = self.lock(hash) else {
                continue;
            };
            // Both buckets are locked, so that only the stash may change meanwhile.
            let Some(found) = self.view().find(&place, home.head, next.head, key, &mut 0) else {
                self.unlock_unchanged(&[home, next]);
                continue;
            };
            if let Some((at, old)) = found {
                self.store.store(at + 1, value);
                self.store.persist(at + 1..at + 2);
                self.unlock(&[home.at, next.at]);
                self.store.check()?;
                return Ok(Some(old));
            }
            let is_placed = self.put_somewhere(&place, home, next, key, value);
            self.unlock(&[home.at, next.at]);
            self.store.check()?;
            if is_placed {
                return Ok(None);
            }
            self.grow(hash, place.entry)?;
        }
    }

    /// Takes a key out and returns its value. Durable when it returns.
    ///
    /// # Errors
    /// What the operating system says where it is involved.
    pub fn remove(&self, key: u64) -> Result<Option<u64>, DashError> {
        let hash = Hash::of(key);
        loop {
            let Some((place, home, next)) = self.lock(hash) else {
                continue;
            };
            let Some(found) = self.view().find(&place, home.head, next.head, key, &mut 0) else {
                self.unlock_unchanged(&[home, next]);
                continue;
            };
            if let Some((at, _)) = found {
                self.take_out(&place, at);
            }
            self.unlock(&[home.at, next.at]);
            self.store.check()?;
            return Ok(found.map(|(_, value)| value));
        }
    }

    /// Locks a key's two buckets; `None` if another thread has one of them or the segment is being replaced.
    fn lock(&self, hash: Hash) -> Option<(Place, Locked, Locked)> {
        let place = self.view().place(hash);
        let home = self.try_lock(place.home)?;
        let Some(next) = self.try_lock(place.next) else {
            self.unlock_unchanged(&[home]);
            return None;
        };
        if self.entry(hash) != place.entry {
            self.unlock_unchanged(&[home, next]);
            return None;
        }
        Some((place, home, next))
    }

    fn try_lock(&self, at: usize) -> Option<Locked> {
        let head = Head(self.store.load(at));
        let is_mine = !head.is_locked() && self.store.replace(at, head.0, head.locked().0);
        if !is_mine {
            spin_loop();
        }
        is_mine.then_some(Locked { at, head })
    }

    pub(super) fn lock_bucket(&self, at: usize) -> Locked {
        loop {
            if let Some(locked) = self.try_lock(at) {
                return locked;
            }
        }
    }

    fn unlock(&self, buckets: &[usize]) {
        for at in buckets {
            let head = Head(self.store.load(*at)).next_version();
            self.store.store(*at, head.0);
        }
    }

    fn unlock_unchanged(&self, buckets: &[Locked]) {
        for bucket in buckets {
            self.store.store(bucket.at, bucket.head.0);
        }
    }

    fn put_somewhere(
        &self,
        place: &Place,
        home: Locked,
        next: Locked,
        key: u64,
        value: u64,
    ) -> bool {
        let is_guest = next.head.count() < home.head.count();
        let bucket = if is_guest { next } else { home };
        if let Some(slot) = bucket.head.free_slot() {
            self.put(bucket.at, slot, key, value, is_guest);
            return true;
        }
        if let Some(slot) = self.make_room_next(place, next) {
            self.put(next.at, slot, key, value, true);
            return true;
        }
        if let Some(slot) = self.make_room_at_home(place, home) {
            self.put(home.at, slot, key, value, false);
            return true;
        }
        self.put_in_stash(place, key, value)
    }

    /// Moves a record that has its home in the right neighbour one further.
    fn make_room_next(&self, place: &Place, next: Locked) -> Option<usize> {
        let own = next.head.taken() & !next.head.guests();
        let after = self.bucket(place.entry, right(right(place.hash.bucket())));
        self.displace(next.at, own, after, true)
    }

    /// Moves a record that is a guest here back to its home, the left neighbour.
    fn make_room_at_home(&self, place: &Place, home: Locked) -> Option<usize> {
        let before = self.bucket(place.entry, left(place.hash.bucket()));
        self.displace(home.at, home.head.guests(), before, false)
    }

    /// Moves one of these slots' records to another bucket. A power cut in between leaves it in both.
    fn displace(&self, from: usize, slots: u16, to: usize, is_guest: bool) -> Option<usize> {
        let slot = slots.trailing_zeros() as usize;
        if slot >= SLOTS {
            return None;
        }
        let target = self.try_lock(to)?;
        let Some(target_slot) = target.head.free_slot() else {
            self.unlock_unchanged(&[target]);
            return None;
        };
        let record = from + 4 + slot * 2;
        let (key, value) = (self.store.load(record), self.store.load(record + 1));
        self.put(to, target_slot, key, value, is_guest);
        self.clear(from, slot);
        self.unlock(&[to]);
        Some(slot)
    }

    fn put_in_stash(&self, place: &Place, key: u64, value: u64) -> bool {
        for stash in 0..STASH_BUCKETS {
            let bucket = self.lock_bucket(self.stash(place.entry, stash));
            let Some(slot) = bucket.head.free_slot() else {
                self.unlock_unchanged(&[bucket]);
                continue;
            };
            self.put(bucket.at, slot, key, value, false);
            self.mark(place, stash);
            self.unlock(&[bucket.at]);
            return true;
        }
        false
    }

    /// Remembers near a record's home that it is in the stash. Recovery makes all marks anew, so they are not flushed.
    fn mark(&self, place: &Place, stash: usize) {
        let fingerprint = place.hash.fingerprint();
        for (bucket, is_guest) in [(place.home, false), (place.next, true)] {
            if let Some(marks) = self.marks(bucket).with(fingerprint, is_guest, stash) {
                return self.set_marks(bucket, marks);
            }
        }
        let marks = self.marks(place.home);
        self.set_marks(place.home, marks.with_unmarked(marks.unmarked() + 1));
    }

    fn unmark(&self, place: &Place, stash: usize) {
        let fingerprint = place.hash.fingerprint();
        for (bucket, is_guest) in [(place.home, false), (place.next, true)] {
            if let Some(marks) = self.marks(bucket).without(fingerprint, is_guest, stash) {
                return self.set_marks(bucket, marks);
            }
        }
        let marks = self.marks(place.home);
        self.set_marks(
            place.home,
            marks.with_unmarked(marks.unmarked().saturating_sub(1)),
        );
    }

    fn set_marks(&self, bucket: usize, marks: Marks) {
        self.store.store(bucket + 2, marks.word2);
        self.store.store(bucket + 3, marks.word3);
    }

    /// Writes a record to a free slot of a locked bucket: durable before its head names it.
    fn put(&self, bucket: usize, slot: usize, key: u64, value: u64, is_guest: bool) {
        let record = bucket + 4 + slot * 2;
        self.store.store(record, key);
        self.store.store(record + 1, value);
        self.store.persist(record..record + 2);
        let (word, shift) = fingerprint_place(slot);
        let fingerprint = u64::from(Hash::of(key).fingerprint());
        let others = self.store.load(bucket + word) & !(0xff << shift);
        // The same line as the head, and so never behind it.
        self.store
            .store(bucket + word, others | fingerprint << shift);
        let head = Head(self.store.load(bucket)).with(slot, is_guest);
        self.store.store(bucket, head.0);
        self.store.persist(bucket..bucket + 1);
    }

    /// Frees a slot of a locked bucket, durably, so that it can be written again.
    fn clear(&self, bucket: usize, slot: usize) {
        let head = Head(self.store.load(bucket)).without(slot);
        self.store.store(bucket, head.0);
        self.store.persist(bucket..bucket + 1);
    }

    fn take_out(&self, place: &Place, record: usize) {
        let start = self.bucket(place.entry, 0);
        let bucket_idx = (record - start) / BUCKET_WORDS;
        let bucket = start + bucket_idx * BUCKET_WORDS;
        let slot = (record - bucket - 4) / 2;
        match (0..STASH_BUCKETS).find(|stash| self.stash(place.entry, *stash) == bucket) {
            None => self.clear(bucket, slot),
            Some(stash) => {
                self.lock_bucket(bucket);
                self.clear(bucket, slot);
                self.unmark(place, stash);
                self.unlock(&[bucket]);
            }
        }
    }
}
