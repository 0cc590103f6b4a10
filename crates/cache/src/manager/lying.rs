//! Segments that loads can read where they lie. They are handed out as they are and take no memory, unless the policy
//! keeps them: then they are copied, and hits are answered from the copy.

use super::CacheManager;
use crate::error::ReadError;
use crate::event::EventKind;
use crate::files::FileEntry;
use crate::key::{SegmentInfo, SegmentKey};
use crate::lease::{HeldSegment, Lease};
use crate::ledger::MissCost;
use crate::policy::Room;
use crate::reader::LyingSegment;
use crate::scan::ScanContext;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;

/// A request for a segment that lies where loads can read it. Its device works from here on; the thread that takes the
/// bytes waits for it.
pub(super) struct LyingRequest {
    cache: Arc<CacheManager>,
    key: SegmentKey,
    info: SegmentInfo,
    file: Arc<FileEntry>,
    scan: Arc<ScanContext>,
    /// Gone once the bytes were taken.
    segment: Option<LyingSegment>,
}

impl LyingRequest {
    pub(super) fn new(
        cache: &Arc<CacheManager>,
        (key, info): (SegmentKey, SegmentInfo),
        file: Arc<FileEntry>,
        segment: LyingSegment,
        scan: &Arc<ScanContext>,
    ) -> Self {
        scan.count_miss();
        cache.admissions.clock_begins();
        Self {
            cache: Arc::clone(cache),
            key,
            info,
            file,
            scan: Arc::clone(scan),
            segment: Some(segment),
        }
    }

    /// Waits for the device and takes the bytes.
    pub(super) fn take(mut self) -> Result<Bytes, ReadError> {
        let Some(segment) = self.segment.take() else {
            return Err(ReadError::Abandoned { key: self.key });
        };
        let begun = Instant::now();
        let found = segment();
        let wait = begun.elapsed();
        let arrived = found.as_ref().map_or(0, |_| self.info.charged_bytes);
        self.cache.admissions.clock_ended(arrived);
        self.scan.count_wait(wait);
        self.cache.admissions.count_wait(wait);
        if found.is_err() {
            self.record(EventKind::Fail);
        }
        let cost = MissCost {
            seconds: wait.as_secs_f64(),
            weight: self.scan.weight,
        };
        let taken = found.map(|bytes| {
            self.scan.count_storage(self.info.charged_bytes);
            let may_keep = self.scan.populate && !self.file.is_removed();
            let kept = may_keep.then(|| self.keep_copy(&bytes, cost));
            kept.flatten().unwrap_or(bytes)
        });
        // What went for a copy that was not kept may be what a read waits for.
        self.cache.budget.memory_may_be_free();
        taken
    }

    /// Copies the segment into memory if the policy keeps it and there is room. Returns the copy.
    fn keep_copy(&self, bytes: &Bytes, cost: MissCost) -> Option<Bytes> {
        let (cache, key, info) = (&self.cache, self.key, self.info);
        let has_room = self.is_wanted() && cache.make_room(info.charged_bytes);
        let copy = has_room.then(|| self.file.reader.copied(bytes)).flatten();
        let held = copy.map(|copy| {
            cache.budget.in_flight_to_detached(info.charged_bytes);
            HeldSegment::new(copy, info.charged_bytes, Arc::clone(&cache.budget))
        });
        if has_room && held.is_none() {
            cache.budget.release_in_flight(info.charged_bytes);
        }
        let mut shard = cache.shard(key);
        // Another request may have been faster.
        let kept = held.filter(|_| !shard.map.contains_key(&key));
        let event = match &kept {
            Some(held) => {
                shard.keep(key, info, held, cost);
                EventKind::Insert
            }
            None => EventKind::Reject,
        };
        shard.record(event, key, &info, Some(self.scan.query));
        drop(shard);
        Some(Lease::new(&kept?).into_bytes())
    }

    /// Whether the policy keeps the segment. Older metadata goes for it.
    fn is_wanted(&self) -> bool {
        let budget = &self.cache.budget;
        let room = Room {
            cached_bytes: budget.cached_bytes(),
            capacity_bytes: budget.capacity_bytes(),
            is_copied: true,
        };
        let mut displaced = Vec::new();
        let mut shard = self.cache.shard(self.key);
        shard.record(EventKind::Miss, self.key, &self.info, Some(self.scan.query));
        let wanted = !shard.map.contains_key(&self.key)
            && shard.wants(self.key, &self.info, room, &mut displaced);
        drop(shard);
        drop(displaced);
        wanted
    }

    fn record(&self, kind: EventKind) {
        let mut shard = self.cache.shard(self.key);
        shard.record(kind, self.key, &self.info, Some(self.scan.query));
    }
}

impl Drop for LyingRequest {
    fn drop(&mut self) {
        if self.segment.is_some() {
            self.cache.admissions.clock_ended(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::PolicyKind;
    use crate::testing::*;
    use crate::*;
    use bytes::Bytes;
    use std::sync::Arc;

    /// Segments that lie in a static array; those from 8 on must be read.
    struct LyingReader;

    static SHELF: [u8; 80] = [7; 80];

    impl SegmentReader for LyingReader {
        fn read(&self, segment_idx: u32, done: ReadDone) -> Box<dyn ReadHandle> {
            InstantReader.read(segment_idx, done)
        }

        fn lying(&self, segment_idx: u32) -> Option<LyingSegment> {
            let start = segment_idx as usize * 10;
            let found = SHELF.get(start..start + 10)?;
            Some(Box::new(move || Ok(Bytes::from_static(found))))
        }

        fn copied(&self, bytes: &[u8]) -> Option<Bytes> {
            Some(Bytes::copy_from_slice(bytes))
        }
    }

    fn shelved(budget_bytes: u64, policy: PolicyKind) -> (Arc<CacheManager>, Arc<ScanContext>) {
        let cache = cache(budget_bytes, policy);
        cache.add_file(Arc::new(LyingReader), data_segments(16, 10));
        (cache, Arc::new(ScanContext::new(7, 0, 0)))
    }

    fn lies(bytes: &Bytes) -> bool {
        SHELF.as_ptr_range().contains(&bytes.as_ptr())
    }

    #[test]
    fn what_is_not_kept_is_handed_out_where_it_lies_and_takes_no_memory() {
        let (cache, scan) = shelved(100, PolicyKind::None);
        let bytes = now(cache.request(key(3), &scan));
        assert!(lies(&bytes));
        assert_eq!(cache.budget().snapshot().used_bytes, 0);
        assert_eq!(trace(&cache), "miss 3, reject 3");
        assert_eq!(scan.counters().bytes_storage, 10);
        // Others of the same file are read as ever.
        assert!(!lies(&now(cache.request(key(9), &scan))));
    }

    #[test]
    fn what_is_kept_is_a_copy_on_the_budget() {
        let (cache, scan) = shelved(20, PolicyKind::Lru);
        for segment_idx in [1, 2, 1, 3, 3] {
            let bytes = now(cache.request(key(segment_idx), &scan));
            assert_eq!(bytes, SHELF[..10]);
            assert!(!lies(&bytes));
        }
        let expected =
            "miss 1, insert 1, miss 2, insert 2, hit 1, miss 3, evict 2, insert 3, hit 3";
        assert_eq!(trace(&cache), expected);
        let budget = cache.budget().snapshot();
        assert_eq!((budget.cached_bytes, budget.used_bytes), (20, 20));
        cache.clear();
        assert_eq!(cache.budget().snapshot().used_bytes, 0);
    }

    #[test]
    fn what_does_not_fit_or_may_leave_no_trace_stays_where_it_lies() {
        let (cache, scan) = shelved(20, PolicyKind::Lru);
        cache.budget().try_reserve_operator(15).unwrap();
        assert!(lies(&now(cache.request(key(0), &scan))));
        cache.budget().release_operator(15);
        let quiet = Arc::new(ScanContext::new(8, 0, 0).with_populate(false));
        assert!(lies(&now(cache.request(key(0), &quiet))));
        assert_eq!(cache.budget().snapshot().used_bytes, 0);
        assert!(!lies(&now(cache.request(key(0), &scan))));
    }

    #[test]
    fn requests_at_once_keep_one_copy_and_one_that_is_dropped_keeps_none() {
        let (cache, scan) = shelved(100, PolicyKind::Lru);
        let (first, second) = (cache.request(key(0), &scan), cache.request(key(0), &scan));
        let dropped = cache.request(key(5), &scan);
        let bytes = [now(first), now(second)];
        drop(dropped);
        assert_eq!(bytes[0], bytes[1]);
        drop(bytes);
        let budget = cache.budget().snapshot();
        assert_eq!((budget.cached_bytes, budget.used_bytes), (10, 10));
        assert_eq!(cache.storage_progress().bytes, 20);
        // The clock of reading stopped.
        let before = cache.storage_progress().reading_ns;
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(cache.storage_progress().reading_ns, before);
    }
}
