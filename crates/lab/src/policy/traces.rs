//! What each policy does, as the list of segments it evicts; and how they fare on a cyclic scan.

use super::*;
use crate::simulate::{NoDevice, ready};
use hotshelf_cache::{
    CacheOptions, ColumnShare, EventKind, FileId, Placement, ScanContext, SegmentInfo, SegmentKind,
};

/// A cache of one shard over a file of segments of 10 bytes, with room for some of them.
fn cache(policy: CachePolicy, room: u64, segments: Vec<SegmentInfo>) -> Arc<CacheManager> {
    let cache = CacheManager::new(CacheOptions {
        budget_bytes: 10 * room,
        policy: PolicyKind::Lru,
        event_log_capacity: 4096,
        partitions: 1,
        transit_bytes: Some(0),
        segment_bytes_min: 0,
    });
    cache.add_file(Arc::new(NoDevice), segments);
    policy.put_in_force(&cache);
    cache
}

fn segments(count: u32) -> Vec<SegmentInfo> {
    let segment = |row_group_idx| SegmentInfo {
        column: ColumnId(0),
        row_group_idx,
        charged_bytes: 10,
        kind: SegmentKind::Data,
    };
    (0..count).map(segment).collect()
}

fn read(cache: &Arc<CacheManager>, scan: &Arc<ScanContext>, segment_idx: u32) {
    let file = FileId(0);
    drop(ready(cache.request(SegmentKey { file, segment_idx }, scan)));
}

/// Reads the segments one after the other with room for `room` of them; returns what was evicted.
fn evicted(policy: CachePolicy, room: u64, read_idxs: &[u32]) -> Vec<u32> {
    let cache = cache(policy, room, segments(64));
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    read_idxs.iter().for_each(|idx| read(&cache, &scan, *idx));
    let events = cache.events();
    let evictions = events.iter().filter(|event| event.kind == EventKind::Evict);
    evictions.map(|event| event.key.segment_idx).collect()
}

#[test]
fn mru_evicts_the_latest() {
    assert_eq!(
        evicted(CachePolicy::Mru, 3, &[0, 1, 2, 0, 3, 4, 1, 5]),
        [0, 3, 1]
    );
}

#[test]
fn clock_gives_a_second_chance_to_what_was_used() {
    assert_eq!(
        evicted(CachePolicy::Clock, 3, &[0, 1, 2, 0, 3, 4, 5]),
        [1, 2, 0]
    );
}

#[test]
fn two_queue_keeps_what_came_back_after_it_had_left() {
    // 0 leaves A1in, comes back as hot, and survives a scan that fills A1in again and again.
    let segments = [0, 1, 2, 3, 4, 0, 5, 6, 7, 8];
    assert_eq!(
        evicted(CachePolicy::TwoQueue, 4, &segments),
        [0, 1, 2, 3, 4, 5]
    );
}

#[test]
fn lfu_evicts_what_was_used_least_and_longest_ago() {
    assert_eq!(
        evicted(CachePolicy::Lfu, 3, &[0, 0, 0, 1, 1, 2, 3, 4, 1]),
        [2, 3]
    );
}

#[test]
fn sieve_passes_over_what_was_used_and_leaves_it_in_place() {
    assert_eq!(
        evicted(CachePolicy::Sieve, 3, &[0, 1, 2, 0, 3, 4, 5]),
        [1, 2, 3]
    );
}

#[test]
fn wtinylfu_turns_newcomers_away_that_are_not_more_popular() {
    // 2 is no more popular than 0 and 1, and 3 to 5 are less.
    let segments = [0, 0, 1, 1, 2, 2, 3, 4, 5, 6];
    assert_eq!(evicted(CachePolicy::WTinyLfu, 4, &segments), [2, 3, 4]);
    // Unlike 2 after two more uses.
    let segments = [0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 5, 6];
    assert_eq!(evicted(CachePolicy::WTinyLfu, 4, &segments), [0, 3, 4]);
}

#[test]
fn random_repeats_itself_and_evicts_residents_only() {
    let segments: Vec<u32> = (0..64).collect();
    let first = evicted(CachePolicy::Random, 4, &segments);
    assert_eq!(first, evicted(CachePolicy::Random, 4, &segments));
    assert_ne!(first, evicted(CachePolicy::Lru, 4, &segments));
    assert_eq!(first.len(), 60);
}

#[test]
fn hpcache_paper_evicts_what_is_not_soft_pinned_first() {
    let [first, second] = kept_by_column(CachePolicy::HpCachePaper, [1.0, 0.0]);
    assert_eq!((first, second), (20, 10));
}

/// Share of hits in the last of several scans over 64 segments with room for half of them.
fn cyclic_hit_rate(policy: CachePolicy) -> f64 {
    let cache = cache(policy, 32, segments(64));
    let mut hit_rate = 0.0;
    for query in 0..6 {
        let scan = Arc::new(ScanContext::new(query, 0, 0));
        (0..64).for_each(|idx| read(&cache, &scan, idx));
        hit_rate = scan.counters().segments_hit as f64 / 64.0;
    }
    hit_rate
}

#[test]
fn on_a_cyclic_scan_recency_finds_nothing_and_stable_policies_their_share() {
    use CachePolicy::*;
    for policy in [Clock, Sieve] {
        assert_eq!(cyclic_hit_rate(policy), 0.0, "{policy}");
    }
    assert!(cyclic_hit_rate(Mru) > 0.4);
    assert!(cyclic_hit_rate(Random) > 0.1);
}

/// Two columns of 20 segments; returns how many segments of each are kept after three scans of both.
fn kept_by_column(policy: CachePolicy, proportions: [f64; 2]) -> [u64; 2] {
    let mut both = segments(40);
    for (idx, info) in both.iter_mut().enumerate() {
        info.column = ColumnId(idx as u32 % 2);
        info.row_group_idx = idx as u32 / 2;
    }
    let cache = cache(policy, 30, both);
    let share = |column: u32, proportion| ColumnShare {
        column: ColumnId(column),
        bytes: 200,
        proportion,
        from: 0.0,
    };
    cache.set_placement(Placement::new([
        share(0, proportions[0]),
        share(1, proportions[1]),
    ]));
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    (0..120).for_each(|idx| read(&cache, &scan, idx % 40));
    let columns = cache.columns();
    [columns[0].cached_count, columns[1].cached_count]
}

#[test]
fn every_policy_is_found_by_its_own_name() {
    for policy in CachePolicy::ALL {
        assert_eq!(policy.name().parse(), Ok(*policy));
    }
    assert!("lrru".parse::<CachePolicy>().is_err());
}
