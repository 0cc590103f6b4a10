//! Dash: extendible hashing for persistent memory (Lu, Hao, Wang, Lo: *Dash: Scalable Hashing on Persistent Memory*,
//! PVLDB 13(8), 2020), the hash index of the persistent-memory paper's Star Schema Benchmark.
//!
//! Keys and values are words. A record goes to its home bucket or the right neighbour, whichever has more room;
//! otherwise one of their records moves on; otherwise it goes to a stash bucket of the segment, of which its home keeps
//! the fingerprint; otherwise the segment is split. Readers take no locks: they compare versions of buckets before and
//! after. Every change is durable before it can be read, and [`Dash::open`] continues with what a power cut left.
//!
//! Three things differ from the paper. A split writes both halves to new segments and lets the directory lead to them,
//! so that undoing one needs nothing but the directory. Splits run one at a time. Recovery looks at all segments when
//! the table is opened, not at each when it is first used.

mod growth;
mod image;
mod layout;
mod place;
mod recover;
mod store;
mod view;

#[cfg(test)]
mod tests;

use std::hint::spin_loop;

use hotshelf_tier::TierError;
use parking_lot::Mutex;

pub use layout::{BUCKET_BYTES, SEGMENT_BYTES};
use layout::{Entry, Hash, Head, Marks, NORMAL_BUCKETS, SLOTS, STASH_BUCKETS, Shape};
pub use store::{RegionStore, Store};
use view::View;

/// Why a table cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DashError {
    #[error("the table is full: {segments} segments are in use")]
    Full { segments: u32 },
    #[error("these bytes are not such a table: {what}")]
    NotATable { what: &'static str },
    #[error("the key {key} is lost")]
    Lost { key: u64 },
    #[error(transparent)]
    Tier(#[from] TierError),
}

/// A hash table in shared words.
#[derive(Debug)]
pub struct Dash<S> {
    store: S,
    shape: Shape,
    growth: Mutex<growth::Free>,
}

impl<S: Store> Dash<S> {
    /// Words that a table of this many segments takes.
    pub fn word_count(segments: u32) -> usize {
        Shape::new(segments).word_count()
    }

    /// The words, for [`Dash::open`].
    pub fn into_store(self) -> S {
        self.store
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        self.get_counted(key, &mut 0)
    }

    /// As [`Dash::get`], and adds how many buckets were read.
    #[inline]
    pub fn get_counted(&self, key: u64, buckets: &mut u32) -> Option<u64> {
        let hash = Hash::of(key);
        let view = self.view();
        loop {
            let place = view.place(hash);
            let home = Head(view.load(place.home));
            let next = Head(view.load(place.next));
            if home.is_locked() || next.is_locked() || view.entry(hash) != place.entry {
                spin_loop();
                continue;
            }
            let found = view.find(&place, home, next, key, buckets);
            let is_stable = view.load(place.home) == home.0 && view.load(place.next) == next.0;
            match found {
                Some(found) if is_stable => return found.map(|(_, value)| value),
                _ => spin_loop(),
            }
        }
    }

    #[inline]
    fn view(&self) -> View<'_> {
        View {
            words: self.store.words(),
            shape: self.shape,
        }
    }

    fn entry(&self, hash: Hash) -> Entry {
        self.view().entry(hash)
    }

    fn bucket(&self, entry: Entry, bucket: usize) -> usize {
        self.view().bucket(entry, bucket)
    }

    fn stash(&self, entry: Entry, stash: usize) -> usize {
        self.view().stash(entry, stash)
    }

    fn marks(&self, bucket: usize) -> Marks {
        self.view().marks(bucket)
    }

    /// How many segments hold records.
    pub fn segment_count(&self) -> u32 {
        self.shape.capacity - self.growth.lock().segments.len() as u32
    }

    /// How many records there are. No thread may change the table meanwhile.
    pub fn record_count(&self) -> usize {
        self.images()
            .map(|(_, image)| image.records().count())
            .sum()
    }

    /// Records by slots of all segments in use.
    pub fn load_factor(&self) -> f64 {
        let slots = self.segment_count() as usize * (NORMAL_BUCKETS + STASH_BUCKETS) * SLOTS;
        self.record_count() as f64 / slots as f64
    }
}
