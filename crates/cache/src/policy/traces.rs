//! What each policy does, as the list of segments it evicts; and how they fare on a cyclic scan.

use crate::policy::PolicyKind;
use crate::testing::*;
use crate::*;
use std::sync::Arc;

/// Reads the segments one after the other with room for `room` segments of 10 bytes; returns what was evicted.
fn evicted(kind: PolicyKind, room: u64, segments: &[u32]) -> Vec<u32> {
    let cache = cache(10 * room, kind);
    cache.add_file(Arc::new(InstantReader), data_segments(64, 10));
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    for segment_idx in segments {
        drop(now(cache.request(key(*segment_idx), &scan)));
    }
    let events = cache.events();
    let evictions = events.iter().filter(|event| event.kind == EventKind::Evict);
    evictions.map(|event| event.key.segment_idx).collect()
}

#[test]
fn s3fifo_lets_one_time_segments_go_and_keeps_what_was_used_twice() {
    let segments = [0, 0, 0, 1, 2, 3, 4, 5];
    assert_eq!(evicted(PolicyKind::S3Fifo, 3, &segments), [1, 2, 3]);
    // 0 comes back while its ghost is remembered: straight to the main queue.
    let segments = [0, 1, 2, 3, 0, 4, 5, 6];
    assert_eq!(evicted(PolicyKind::S3Fifo, 3, &segments), [0, 1, 2, 3, 4]);
}

#[test]
fn s3fifo_gives_a_tenth_of_the_room_to_segments_that_were_used_once() {
    let used_again: Vec<u32> = (0..20).flat_map(|idx| [idx; 3]).collect();
    let segments = [used_again, (20..24).collect()].concat();
    assert_eq!(evicted(PolicyKind::S3Fifo, 20, &segments), [0, 1, 20, 21]);
}

/// Share of hits in the last of several scans over 64 segments with room for half of them.
fn cyclic_hit_rate(kind: PolicyKind) -> f64 {
    let cache = cache(320, kind);
    cache.add_file(Arc::new(InstantReader), data_segments(64, 10));
    let mut hit_rate = 0.0;
    for query in 0..6 {
        let scan = Arc::new(ScanContext::new(query, 0, 0));
        for segment_idx in 0..64 {
            drop(now(cache.request(key(segment_idx), &scan)));
        }
        hit_rate = scan.counters().segments_hit as f64 / 64.0;
    }
    hit_rate
}

#[test]
fn on_a_cyclic_scan_recency_finds_nothing_and_stable_policies_their_share() {
    use PolicyKind::*;
    for kind in [None, Lru] {
        assert_eq!(cyclic_hit_rate(kind), 0.0, "{kind}");
    }
    for kind in [All, HpCache] {
        assert!(
            cyclic_hit_rate(kind) > 0.4,
            "{kind}: {}",
            cyclic_hit_rate(kind)
        );
    }
}

/// Two columns of 20 segments; returns how many segments of each are kept after three scans of both.
fn kept_by_column(kind: PolicyKind, proportions: [f64; 2]) -> [u64; 2] {
    let cache = cache(300, kind);
    let mut segments = data_segments(40, 10);
    for (idx, info) in segments.iter_mut().enumerate() {
        info.column = ColumnId(idx as u32 % 2);
        info.row_group_idx = idx as u32 / 2;
    }
    cache.add_file(Arc::new(InstantReader), segments);
    let share = |column: u32, proportion| ColumnShare {
        column: ColumnId(column),
        bytes: 200,
        proportion,
        from: 0.0,
    };
    let placement = Placement::new([share(0, proportions[0]), share(1, proportions[1])]);
    cache.set_placement(placement);
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    for segment_idx in (0..40).chain(0..40).chain(0..40) {
        drop(now(cache.request(key(segment_idx), &scan)));
    }
    let columns = cache.columns();
    [columns[0].cached_count, columns[1].cached_count]
}

#[test]
fn hpcache_keeps_the_proportions_and_fills_the_rest() {
    let [first, second] = kept_by_column(PolicyKind::HpCache, [0.9, 0.2]);
    assert!(
        (17..=20).contains(&first) && second >= 4,
        "{first} {second}"
    );
    assert!(
        first + second >= 26,
        "free memory is used: {first} {second}"
    );
}

#[test]
fn a_new_placement_lets_go_what_it_no_longer_wants() {
    let cache = cache(200, PolicyKind::HpCache);
    cache.add_file(Arc::new(InstantReader), data_segments(40, 10));
    let share = |proportion| ColumnShare {
        column: ColumnId(0),
        bytes: 400,
        proportion,
        from: 0.0,
    };
    cache.set_placement(Placement::new([share(0.5)]));
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    let read_all = || (0..40).for_each(|idx| drop(now(cache.request(key(idx), &scan))));
    read_all();
    read_all();
    cache.budget().try_reserve_operator(100).unwrap();
    cache.budget().release_operator(100);
    read_all();
    cache.set_placement(Placement::default());
    cache.budget().try_reserve_operator(200).unwrap();
    assert_eq!(cache.budget().snapshot().cached_bytes, 0);
}
