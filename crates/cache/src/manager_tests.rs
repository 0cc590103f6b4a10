//! Behaviour of the whole cache, as traces of events and as accounts.

use crate::policy::PolicyKind;
use crate::testing::*;
use crate::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;

/// A cache over one file of 16 segments of 10 bytes, read at once.
fn instant(budget_bytes: u64, policy: PolicyKind) -> (Arc<CacheManager>, Arc<ScanContext>) {
    let cache = cache(budget_bytes, policy);
    cache.add_file(Arc::new(InstantReader), data_segments(16, 10));
    (cache, Arc::new(ScanContext::new(7, 0, 0)))
}

/// A cache over one file of 16 segments of 10 bytes, read when the test says so.
fn manual(
    budget_bytes: u64,
    policy: PolicyKind,
) -> (Arc<CacheManager>, Arc<ManualReader>, Arc<ScanContext>) {
    let cache = cache(budget_bytes, policy);
    let reader = ManualReader::new(10);
    cache.add_file(reader.clone(), data_segments(16, 10));
    (cache, reader, Arc::new(ScanContext::new(7, 0, 0)))
}

fn read_all(cache: &Arc<CacheManager>, scan: &Arc<ScanContext>, segments: &[u32]) {
    for segment_idx in segments {
        drop(now(cache.request(key(*segment_idx), scan)));
    }
}

#[test]
fn lru_evicts_what_was_used_longest_ago() {
    let (cache, scan) = instant(30, PolicyKind::Lru);
    read_all(&cache, &scan, &[0, 1, 2, 0, 3, 1]);
    let expected = "miss 0, insert 0, miss 1, insert 1, miss 2, insert 2, hit 0, \
                    miss 3, evict 1, insert 3, miss 1, evict 2, insert 1";
    assert_eq!(trace(&cache), expected);
    let counters = scan.counters();
    assert_eq!((counters.bytes_cache, counters.bytes_storage), (10, 50));
    assert_eq!((counters.segments_hit, counters.segments_miss), (1, 5));
}

#[test]
fn all_keeps_what_came_first_and_evicts_nothing_for_reads() {
    let (cache, scan) = instant(40, PolicyKind::All);
    read_all(&cache, &scan, &[0, 1, 2, 3, 4, 0]);
    let expected = "miss 0, insert 0, miss 1, insert 1, miss 2, insert 2, \
                    miss 3, reject 3, miss 4, reject 4, hit 0";
    assert_eq!(trace(&cache), expected);
    cache.budget().try_reserve_operator(20).unwrap();
    assert_eq!(cache.budget().snapshot().cached_bytes, 20);
}

#[test]
fn none_keeps_nothing() {
    let (cache, scan) = instant(40, PolicyKind::None);
    read_all(&cache, &scan, &[0, 0]);
    assert_eq!(trace(&cache), "miss 0, reject 0, miss 0, reject 0");
    assert_eq!(cache.budget().snapshot().used_bytes, 0);
}

#[test]
fn a_request_starts_its_read_before_anybody_awaits_it() {
    let (cache, reader, scan) = manual(100, PolicyKind::Lru);
    let ahead = cache.request(key(3), &scan);
    assert_eq!(reader.asked(), [3]);
    assert!(!ahead.is_ready());
    reader.answer(3);
    assert_eq!(&now(ahead)[..], 3u32.to_le_bytes());
}

#[test]
fn askers_of_a_missing_segment_share_one_read() {
    let (cache, reader, scan) = manual(100, PolicyKind::None);
    let other = Arc::new(ScanContext::new(8, 0, 0));
    let mut futures = [
        cache.request(key(1), &scan),
        cache.request(key(1), &other),
        cache.request(key(1), &other),
    ];
    let waker = Arc::new(CountingWaker::default());
    for future in &mut futures {
        assert!(poll_with(future, &waker).is_pending());
    }
    assert_eq!(reader.asked(), [1]);
    reader.answer(1);
    assert_eq!(waker.0.load(SeqCst), 3);
    let bytes: Vec<_> = futures.into_iter().map(now).collect();
    assert!(bytes.iter().all(|bytes| bytes[..] == 1u32.to_le_bytes()));
    assert_eq!(cache.budget().snapshot().detached_bytes, 10);
    drop(bytes);
    assert_eq!(cache.budget().snapshot().used_bytes, 0);
    assert_eq!(scan.counters().bytes_storage, 10);
    assert_eq!(other.counters().segments_shared, 2);
}

#[test]
fn the_last_asker_to_leave_cancels_and_the_charge_returns_with_the_buffer() {
    let (cache, reader, scan) = manual(100, PolicyKind::Lru);
    let first = cache.request(key(1), &scan);
    let second = cache.request(key(1), &scan);
    drop(first);
    let read = reader.take(0);
    assert!(read.wanted.load(SeqCst));
    drop(second);
    assert!(!read.wanted.load(SeqCst));
    assert_eq!(cache.budget().snapshot().in_flight_bytes, 10);
    let again = cache.request(key(1), &scan);
    assert_eq!(reader.asked(), [1], "a cancelled read cannot be joined");
    (read.done)(Ok(reader.buffer(1)));
    assert_eq!(cache.budget().snapshot().used_bytes, 10);
    reader.answer(1);
    drop(now(again));
    assert_eq!(
        trace(&cache),
        "miss 1, shared 1, cancel 1, miss 1, insert 1"
    );
}

#[test]
fn reads_that_do_not_fit_wait_in_order_and_start_when_bytes_are_dropped() {
    let (cache, reader, scan) = manual(20, PolicyKind::Lru);
    let held: Vec<_> = [0, 1].map(|idx| cache.request(key(idx), &scan)).into();
    reader.answer(0);
    reader.answer(1);
    let held: Vec<_> = held.into_iter().map(now).collect();
    let waiting = [2, 3, 4].map(|idx| cache.request(key(idx), &scan));
    assert!(reader.asked().is_empty());
    assert_eq!(cache.budget().snapshot().waiting_count, 3);
    drop(held);
    assert_eq!(reader.asked(), [2, 3]);
    reader.answer(3);
    reader.answer(2);
    assert!(
        reader.asked().is_empty(),
        "both are still held by their futures"
    );
    let [second, third, fourth] = waiting;
    drop(now(second));
    assert_eq!(reader.asked(), [4]);
    reader.answer(4);
    drop((now(third), now(fourth)));
    assert_eq!(cache.budget().snapshot().used_bytes_max, 20);
    assert_eq!(cache.budget().snapshot().overcommit_count, 0);
}

#[test]
fn with_no_budget_at_all_one_awaited_read_at_a_time_still_advances() {
    let (cache, reader, scan) = manual(0, PolicyKind::Lru);
    let mut futures = [0, 1].map(|idx| cache.request(key(idx), &scan));
    assert!(reader.asked().is_empty());
    assert!(poll(&mut futures[1]).is_pending());
    assert_eq!(
        reader.asked(),
        [1],
        "only what is awaited may exceed the budget"
    );
    assert!(poll(&mut futures[0]).is_pending());
    assert_eq!(reader.asked(), [1]);
    reader.answer(1);
    assert_eq!(reader.asked(), [0]);
    reader.answer(0);
    drop(futures.map(now));
    assert_eq!(cache.budget().snapshot().overcommit_count, 2);
}

#[test]
fn a_few_segments_are_read_at_once_though_operators_hold_the_whole_budget() {
    let cache = CacheManager::new(CacheOptions {
        budget_bytes: 100,
        segment_bytes_min: 30,
        ..CacheOptions::default()
    });
    let reader = ManualReader::new(10);
    cache.add_file(reader.clone(), data_segments(16, 10));
    let scan = Arc::new(ScanContext::new(7, 0, 0));
    cache.budget().reserve_operator(150);
    let futures = [0, 1, 2, 3].map(|idx| cache.request(key(idx), &scan));
    assert_eq!(reader.asked(), [0, 1, 2], "of ten bytes each");
    [0, 1, 2].into_iter().for_each(|idx| reader.answer(idx));
    let [first, second, third, fourth] = futures;
    drop((now(first), now(second), now(third)));
    assert_eq!(reader.asked(), [3]);
    reader.answer(3);
    drop(now(fourth));
    let now = cache.budget().snapshot();
    assert!(now.used_bytes_max <= 180, "{now:?}");
}

#[test]
fn operators_push_idle_segments_out_but_not_in_vain() {
    let (cache, scan) = instant(50, PolicyKind::Lru);
    read_all(&cache, &scan, &[0, 1, 2, 3, 4]);
    let in_use = now(cache.request(key(4), &scan));
    let budget = cache.budget();
    assert!(budget.try_reserve_operator(51).is_err());
    assert_eq!(
        budget.snapshot().cached_bytes,
        50,
        "hopeless: nothing evicted"
    );
    budget.try_reserve_operator(30).unwrap();
    assert_eq!(budget.snapshot().cached_bytes, 20);
    let shortage = budget.try_reserve_operator(20).unwrap_err();
    assert_eq!((shortage.requested, shortage.available), (20, 10));
    assert_eq!((shortage.cached, shortage.operators), (10, 30));
    budget.reserve_operator(20);
    assert_eq!(budget.snapshot().used_bytes, 60);
    budget.release_operator(50);
    drop(in_use);
    assert_eq!(budget.snapshot().used_bytes, 10);
}

#[test]
fn dropped_but_used_bytes_count_until_they_are_let_go() {
    let (cache, scan) = instant(50, PolicyKind::Lru);
    let in_use = now(cache.request(key(0), &scan)).slice(1..2);
    let clone = in_use.clone();
    cache.clear();
    assert_eq!(trace(&cache), "miss 0, insert 0, detach 0");
    drop(in_use);
    assert_eq!(cache.budget().snapshot().detached_bytes, 10);
    drop(clone);
    assert_eq!(cache.budget().snapshot().used_bytes, 0);
}

#[test]
fn a_file_can_go_while_it_is_cached_and_while_it_is_read() {
    let (cache, reader, scan) = manual(100, PolicyKind::Lru);
    let cached = cache.request(key(0), &scan);
    reader.answer(0);
    drop(now(cached));
    let reading = cache.request(key(1), &scan);
    cache.remove_file(FileId(0));
    assert_eq!(cache.budget().snapshot().cached_bytes, 0);
    reader.answer(1);
    assert_eq!(&now(reading)[..], 1u32.to_le_bytes());
    assert_eq!(cache.budget().snapshot().used_bytes, 0);
    let mut gone = cache.request(key(1), &scan);
    assert!(matches!(
        poll(&mut gone),
        Poll::Ready(Err(ReadError::UnknownSegment { .. }))
    ));
    assert!(cache.columns().is_empty());
}

#[test]
fn a_file_may_be_described_after_it_was_added_and_only_once() {
    let cache = cache(100, PolicyKind::Lru);
    let scan = Arc::new(ScanContext::new(7, 0, 0));
    let file = cache.add_file(Arc::new(InstantReader), Vec::new());
    assert!(cache.column_sizes().is_empty());
    assert!(matches!(
        poll(&mut cache.request(key(1), &scan)),
        Poll::Ready(Err(ReadError::UnknownSegment { .. }))
    ));
    cache.describe_file(file, data_segments(3, 10));
    cache.describe_file(file, data_segments(16, 10));
    assert_eq!(cache.column_sizes().values().sum::<u64>(), 30);
    assert_eq!(&now(cache.request(key(1), &scan))[..], 1u32.to_le_bytes());
    cache.remove_file(file);
    cache.describe_file(file, data_segments(3, 10));
    assert!(cache.column_sizes().is_empty());
}

#[test]
fn a_failed_read_reaches_every_asker_and_the_next_request_tries_again() {
    let (cache, reader, scan) = manual(100, PolicyKind::Lru);
    let mut futures = [cache.request(key(2), &scan), cache.request(key(2), &scan)];
    drop(reader.take(0).done); // given up without an answer
    for future in &mut futures {
        let answer = poll(future);
        assert!(matches!(
            answer,
            Poll::Ready(Err(ReadError::Abandoned { .. }))
        ));
    }
    assert_eq!(cache.budget().snapshot().used_bytes, 0);
    let again = cache.request(key(2), &scan);
    reader.answer(2);
    drop(now(again));
    assert_eq!(trace(&cache), "miss 2, shared 2, fail 2, miss 2, insert 2");
}

#[test]
fn metadata_outlives_data_and_takes_at_most_half() {
    let cache = cache(100, PolicyKind::Lru);
    let mut segments = data_segments(20, 10);
    segments[..6]
        .iter_mut()
        .for_each(|info| info.kind = SegmentKind::Metadata);
    cache.add_file(Arc::new(InstantReader), segments);
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    read_all(&cache, &scan, &(0..20).collect::<Vec<_>>());
    let kept: Vec<u32> = cache
        .segments()
        .iter()
        .map(|row| row.key.segment_idx)
        .collect();
    assert_eq!(kept, [2, 3, 4, 5, 14, 15, 16, 17, 18, 19]);
    cache.budget().try_reserve_operator(60).unwrap();
    assert_eq!(cache.budget().snapshot().metadata_bytes, 40);
    cache.budget().try_reserve_operator(10).unwrap();
    assert_eq!(cache.budget().snapshot().metadata_bytes, 30);
}

#[test]
fn a_scan_that_must_not_populate_leaves_no_trace_in_the_cache() {
    let (cache, scan) = instant(30, PolicyKind::Lru);
    read_all(&cache, &scan, &[0, 1]);
    let silent = Arc::new(ScanContext::new(9, 0, 0).with_populate(false));
    read_all(&cache, &silent, &[0, 5, 6]);
    let kept: Vec<u32> = cache
        .segments()
        .iter()
        .map(|row| row.key.segment_idx)
        .collect();
    assert_eq!(kept, [0, 1]);
    read_all(&cache, &scan, &[2, 3]);
    assert!(
        trace(&cache).contains("evict 0"),
        "the silent hit does not count as a use"
    );
}

#[test]
fn budget_and_policy_change_while_running() {
    let (cache, scan) = instant(50, PolicyKind::Lru);
    read_all(&cache, &scan, &[0, 1, 2, 3, 4]);
    cache.set_budget_bytes(20);
    assert_eq!(cache.stats().budget.cached_bytes, 20);
    assert_eq!(cache.stats().evict_count, 3);
    cache.set_policy(PolicyKind::All);
    assert_eq!(cache.stats().budget.cached_bytes, 20);
    cache.set_policy(PolicyKind::None);
    assert_eq!(cache.stats().budget.cached_bytes, 0);
    assert_eq!(cache.policy(), PolicyKind::None);
}

#[test]
fn a_cache_without_an_event_log_counts_all_the_same() {
    let cache = CacheManager::new(CacheOptions {
        event_log_capacity: 0,
        ..CacheOptions::default()
    });
    cache.add_file(Arc::new(InstantReader), data_segments(4, 10));
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    read_all(&cache, &scan, &[0, 1, 0]);
    assert!(cache.events().is_empty());
    assert_eq!((cache.stats().hit_count, cache.stats().miss_count), (1, 2));
}

#[test]
fn columns_are_summed_over_files() {
    let (cache, scan) = instant(50, PolicyKind::Lru);
    cache.add_file(Arc::new(InstantReader), data_segments(4, 10));
    read_all(&cache, &scan, &[0, 1]);
    let expected = ColumnRow {
        column: ColumnId(0),
        total_bytes: 200,
        segment_count: 20,
        cached_bytes: 20,
        cached_count: 2,
    };
    assert_eq!(cache.columns(), [expected]);
}

#[test]
#[ignore = "measures time, wants an optimised build"]
fn a_hit_costs_less_than_two_microseconds() {
    let keeping = PolicyKind::ALL
        .iter()
        .filter(|kind| **kind != PolicyKind::None);
    for policy in keeping {
        let (cache, scan) = instant(1 << 20, *policy);
        read_all(&cache, &scan, &(0..16).collect::<Vec<_>>());
        let start = std::time::Instant::now();
        for turn in 0..1_000_000u32 {
            drop(now(cache.request(key(turn % 16), &scan)));
        }
        let hit_ns = start.elapsed().as_nanos() / 1_000_000;
        println!("{policy}: {hit_ns} ns per request and release");
        assert!(hit_ns < 2_000, "{policy}: {hit_ns} ns");
    }
}
