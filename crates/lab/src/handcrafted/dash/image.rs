//! A segment's words as private memory: what a split makes of them, and what a crash left of them put right.

use super::layout::{
    BUCKET_WORDS, Hash, Head, MARKS, Marks, NORMAL_BUCKETS, SEGMENT_WORDS, SLOTS, STASH_BUCKETS,
    fingerprint_place, right,
};

/// The words of one segment.
#[derive(Debug, Clone)]
pub struct Image {
    pub words: Vec<u64>,
}

/// A record and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub bucket: usize,
    pub slot: usize,
    pub key: u64,
    pub value: u64,
}

impl Image {
    pub fn head(&self, bucket: usize) -> Head {
        Head(self.words[bucket * BUCKET_WORDS])
    }

    fn set_head(&mut self, bucket: usize, head: Head) {
        self.words[bucket * BUCKET_WORDS] = head.0;
    }

    /// The records of a bucket.
    fn bucket(&self, bucket: usize) -> impl Iterator<Item = Record> + '_ {
        let taken = self.head(bucket).taken();
        let slots = (0..SLOTS).filter(move |slot| taken >> slot & 1 == 1);
        slots.map(move |slot| {
            let at = bucket * BUCKET_WORDS + 4 + slot * 2;
            let (key, value) = (self.words[at], self.words[at + 1]);
            Record {
                bucket,
                slot,
                key,
                value,
            }
        })
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        (0..NORMAL_BUCKETS + STASH_BUCKETS).flat_map(move |bucket| self.bucket(bucket))
    }

    /// The records whose hash has this bit behind `depth` others; they stay in their buckets, except that
    /// those in the stash go where they belong if there is room now.
    pub fn half(&self, depth: u32, bit: u64) -> Self {
        let mut half = self.clone();
        for record in self.records() {
            if Hash::of(record.key).prefix(depth + 1) & 1 != bit {
                half.remove(record);
            }
        }
        half.settle();
        half.mark();
        half
    }

    /// Removes what an interrupted move left twice, and all locks.
    pub fn repair(&mut self) {
        debug_assert_eq!(self.words.len(), SEGMENT_WORDS);
        for bucket in 0..NORMAL_BUCKETS + STASH_BUCKETS {
            let head = self.head(bucket).unlocked();
            self.set_head(bucket, head);
        }
        for bucket in 0..NORMAL_BUCKETS {
            let guests = self.head(right(bucket)).guests();
            let moved: Vec<Record> = self.bucket(right(bucket)).collect();
            let twice = |other: &Record| {
                let is_guest = guests >> other.slot & 1 == 1;
                is_guest && self.bucket(bucket).any(|record| record.key == other.key)
            };
            let twice: Vec<Record> = moved.into_iter().filter(twice).collect();
            twice.into_iter().for_each(|record| self.remove(record));
        }
        self.mark();
    }

    fn remove(&mut self, record: Record) {
        let head = self.head(record.bucket).without(record.slot);
        self.set_head(record.bucket, head);
    }

    /// Moves records from the stash to where they belong, as far as there is room.
    fn settle(&mut self) {
        for record in self.stash() {
            let home = Hash::of(record.key).bucket();
            for bucket in [home, right(home)] {
                if let Some(slot) = self.head(bucket).free_slot() {
                    self.put(bucket, slot, &record, bucket != home);
                    self.remove(record);
                    break;
                }
            }
        }
    }

    fn stash(&self) -> Vec<Record> {
        let stash = NORMAL_BUCKETS..NORMAL_BUCKETS + STASH_BUCKETS;
        stash.flat_map(|bucket| self.bucket(bucket)).collect()
    }

    fn put(&mut self, bucket: usize, slot: usize, record: &Record, is_guest: bool) {
        let at = bucket * BUCKET_WORDS;
        self.words[at + 4 + slot * 2] = record.key;
        self.words[at + 5 + slot * 2] = record.value;
        let (word, shift) = fingerprint_place(slot);
        let fingerprint = u64::from(Hash::of(record.key).fingerprint());
        self.words[at + word] = self.words[at + word] & !(0xff << shift) | fingerprint << shift;
        let head = self.head(bucket).with(slot, is_guest);
        self.set_head(bucket, head);
    }

    fn marks(&self, bucket: usize) -> Marks {
        let at = bucket * BUCKET_WORDS;
        Marks {
            word2: self.words[at + 2],
            word3: self.words[at + 3],
        }
    }

    fn set_marks(&mut self, bucket: usize, marks: Marks) {
        let at = bucket * BUCKET_WORDS;
        (self.words[at + 2], self.words[at + 3]) = (marks.word2, marks.word3);
    }

    /// Makes the marks of all records in the stash anew.
    fn mark(&mut self) {
        for bucket in 0..NORMAL_BUCKETS {
            let cleared = Marks::cleared(self.marks(bucket).word2);
            self.set_marks(bucket, cleared);
        }
        for record in self.stash() {
            let hash = Hash::of(record.key);
            let (home, stash) = (hash.bucket(), record.bucket - NORMAL_BUCKETS);
            let marked = [home, right(home)].into_iter().find_map(|bucket| {
                let marks = self
                    .marks(bucket)
                    .with(hash.fingerprint(), bucket != home, stash)?;
                Some((bucket, marks))
            });
            let unmarked = || {
                let marks = self.marks(home);
                (home, marks.with_unmarked(marks.unmarked() + 1))
            };
            let (bucket, marks) = marked.unwrap_or_else(unmarked);
            self.set_marks(bucket, marks);
        }
    }
}

const _: () = assert!(
    MARKS == 4 && STASH_BUCKETS <= 4,
    "a mark names a stash bucket in two bits"
);
