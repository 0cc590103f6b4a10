//! Behaviour of the tuner: adaptation, skipping, failure, bad input; and with a cache, resident shares.

use super::*;
use crate::key::mix;
use crate::testing::*;
use crate::{CacheManager, CacheOptions, ScanContext, SegmentKey};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const GB: u64 = 1_000_000_000;

/// A run of the template that reads columns `4 t .. 4 t + 4`, 10 bytes of each per unit.
pub(super) fn run(query: u64, template: u64, bandwidth: f64) -> Observation {
    let columns: Vec<(ColumnId, u64)> = (0..4)
        .map(|column| (ColumnId(4 * template as u32 + column), GB))
        .collect();
    Observation {
        query,
        pipeline: 0,
        template,
        columns,
        processed_bytes: 4 * GB,
        storage_bytes: 4 * GB,
        busy_ns: (4.0 * GB as f64 / bandwidth * 1e9) as u64,
        wait_ns: 0,
        worker_count: 1,
        priority: 1.0,
        finished: true,
    }
}

pub(super) fn sizes(column_count: u32) -> BTreeMap<ColumnId, u64> {
    (0..column_count)
        .map(|column| (ColumnId(column), GB))
        .collect()
}

pub(super) fn tuner(a: f64) -> Tuner {
    Tuner::new(TunerOptions {
        storage_bandwidth: Some(1e9),
        window: WindowOptions {
            smoothing: crate::model::Smoothing::Exponential { a },
            ..WindowOptions::default()
        },
        ..TunerOptions::default()
    })
}

pub(super) fn step(
    tuner: &mut Tuner,
    observations: &[Observation],
    capacity_bytes: u64,
) -> TunerStep {
    let sizes = sizes(40);
    let input = TunerInput {
        observations,
        storage: StorageProgress::default(),
        sizes: &sizes,
        resident: &BTreeMap::new(),
        capacity_bytes,
        policy: PolicyKind::HpCache,
        between: &[],
        uses: &[],
        use_s: 0.0,
    };
    tuner.step(0, &input)
}

fn placed(step: TunerStep) -> Placement {
    match step {
        TunerStep::Placed(placement) => placement,
        other => panic!("no placement: {other:?}"),
    }
}

#[test]
fn memory_goes_to_the_pipeline_that_gains_from_it() {
    let mut tuner = tuner(0.1);
    // Template 0 is bound by its own processing at 0.9 GB/s, template 1 could go ten times faster.
    let observations = [run(0, 0, 0.9e9), run(1, 0, 0.9e9), run(2, 1, 10e9)];
    let placement = placed(step(&mut tuner, &observations, 4 * GB));
    // The remaining time hides what reading adds to the first.
    let of_second: f64 = (4..8)
        .map(|column| placement.proportion(ColumnId(column)))
        .sum();
    assert!((3.5..3.7).contains(&of_second), "{of_second}");
    let rows = tuner.pipelines();
    let by_template = |template| *rows.iter().find(|row| row.template == template).unwrap();
    assert_eq!(by_template(0).bound, Bound::Processing);
    let predicted_s = by_template(0).predicted_s;
    assert!((4.444..4.444 + 0.4).contains(&predicted_s), "{predicted_s}");
    assert!(by_template(1).predicted_s < 0.5);
    let advice = tuner.advice(8);
    assert_eq!(advice.len(), 9);
    assert!(
        advice
            .windows(2)
            .all(|pair| pair[1].total_s <= pair[0].total_s * 1.001)
    );
    assert!((advice[8].slowdown - 1.0).abs() < 1e-6 || advice[8].slowdown < 1.0);
    assert!(tuner.targets().iter().any(|row| row.saved_s_per_byte > 0.0));
}

#[test]
fn what_is_in_memory_stays_unless_something_better_is_known() {
    let mut tuner = tuner(0.2);
    let sizes = sizes(8);
    let resident: BTreeMap<ColumnId, u64> = (0..4).map(|c| (ColumnId(c), GB / 2)).collect();
    let observations = [run(0, 0, 10e9)];
    let input = TunerInput {
        observations: &observations,
        storage: StorageProgress::default(),
        sizes: &sizes,
        resident: &resident,
        capacity_bytes: 2 * GB,
        policy: PolicyKind::HpCache,
        between: &[],
        uses: &[],
        use_s: 0.0,
    };
    // All four columns are worth the same: a half of each, as it is, is as good as two whole ones.
    let placement = placed(tuner.step(0, &input));
    assert!((0..4).all(|column| placement.proportion(ColumnId(column)) == 0.5));
    // With a budget of nearly everything that is no longer so.
    let input = TunerInput {
        observations: &[],
        capacity_bytes: 7 * GB / 2,
        ..input
    };
    assert!(placed(tuner.step(1, &input)).kept_bytes() > 3.4e9);
}

#[test]
fn reading_that_processing_does_not_hide_is_learned() {
    let mut tuner = tuner(0.2);
    assert!((tuner.stats().overlap_loss - OVERLAP_LOSS).abs() < 1e-9);
    // Four seconds of reading and two of processing took five: half of the two was not hidden.
    let half_hidden = |query| Observation {
        busy_ns: 2_000_000_000,
        wait_ns: 3_000_000_000,
        ..run(query, 0, 10e9)
    };
    let observations: Vec<Observation> = (0..30).map(half_hidden).collect();
    let _ = step(&mut tuner, &observations, 2 * GB);
    assert!((tuner.stats().overlap_loss - 0.5).abs() < 0.01);
    let all_hidden = |query| Observation {
        wait_ns: 2_000_000_000,
        ..half_hidden(query)
    };
    let observations: Vec<Observation> = (30..60).map(all_hidden).collect();
    let _ = step(&mut tuner, &observations, 2 * GB);
    assert!(tuner.stats().overlap_loss < 0.01);
}

#[test]
fn nothing_is_solved_when_nothing_moved() {
    let mut tuner = tuner(0.2);
    assert!(matches!(
        step(&mut tuner, &[run(0, 1, 5e9)], 2 * GB),
        TunerStep::Placed(_)
    ));
    assert_eq!(step(&mut tuner, &[], 2 * GB), TunerStep::Skipped);
    assert_eq!(
        step(&mut tuner, &[run(1, 1, 5.01e9)], 2 * GB),
        TunerStep::Skipped
    );
    assert_eq!(step(&mut tuner, &[], 2 * GB + 1000), TunerStep::Skipped);
    assert!(matches!(
        step(&mut tuner, &[], 3 * GB),
        TunerStep::Placed(_)
    ));
    assert!(matches!(
        step(&mut tuner, &[run(2, 2, 5e9)], 3 * GB),
        TunerStep::Placed(_)
    ));
    let stats = tuner.stats();
    assert_eq!(
        (stats.step_count, stats.skip_count, stats.solve_count),
        (6, 3, 3)
    );
}

#[test]
fn with_strong_smoothing_a_change_of_template_is_followed_within_two_queries() {
    let mut tuner = tuner(0.5);
    let first: Vec<Observation> = (0..8).map(|query| run(query, 0, 10e9)).collect();
    let placement = placed(step(&mut tuner, &first, 2 * GB));
    assert_eq!(placement.proportion(ColumnId(4)), 0.0);
    let _ = step(&mut tuner, &[run(8, 1, 10e9)], 2 * GB);
    let placement = placed(step(&mut tuner, &[run(9, 1, 10e9)], 2 * GB));
    let of_second: f64 = (4..8)
        .map(|column| placement.proportion(ColumnId(column)))
        .sum();
    assert!(of_second >= 0.9 * 2.0, "{of_second}");
}

#[test]
fn a_failed_solution_leaves_the_last_placement_and_is_reported() {
    let mut tuner = tuner(0.2);
    tuner.options.goal = Goal::Threshold {
        threshold_s: 0.0,
        scale: 1e-3,
    };
    let good = placed(step(&mut tuner, &[run(0, 1, 5e9)], 2 * GB));
    let mut broken = run(1, 2, 5e9);
    broken.priority = 1e9;
    broken.columns = vec![(ColumnId(0), u64::MAX)];
    let _ = step(&mut tuner, &[broken], 2 * GB);
    // A problem that no solver can make sense of.
    let mut nonsense = tuner.solved.clone().unwrap().problem.clone();
    nonsense
        .terms
        .iter_mut()
        .for_each(|term| term.weight = f64::NAN);
    let sizes = sizes(40);
    let nothing = BTreeMap::new();
    let situation = tuner.situation(&TunerInput {
        observations: &[],
        storage: StorageProgress::default(),
        sizes: &sizes,
        resident: &nothing,
        capacity_bytes: 2 * GB,
        policy: PolicyKind::HpCache,
        between: &[],
        uses: &[],
        use_s: 0.0,
    });
    assert!(matches!(
        tuner.solve(nonsense, &situation, &nothing),
        TunerStep::Failed(_)
    ));
    let stats = tuner.stats();
    assert_eq!(stats.failure_count, 1);
    assert!(stats.last_error.is_some());
    assert!(good.kept_bytes() > 0.0);
    assert!(!tuner.targets().is_empty(), "the last solution stands");
}

#[test]
fn without_any_knowledge_of_the_storage_the_tuner_waits() {
    let mut tuner = Tuner::new(TunerOptions::default());
    assert_eq!(step(&mut tuner, &[run(0, 1, 5e9)], GB), TunerStep::Skipped);
    assert!(tuner.pipelines().is_empty() && tuner.advice(4).is_empty());
}

#[test]
fn a_budget_of_nothing_ten_thousand_templates_and_two_thousand_columns_are_survived() {
    let mut tuner = tuner(0.01);
    let sizes: BTreeMap<ColumnId, u64> = (0..2000)
        .map(|column| (ColumnId(column), mix(u64::from(column)) % GB))
        .collect();
    let observations: Vec<Observation> = (0..10_000)
        .map(|query| Observation {
            columns: (0..8)
                .map(|n| (ColumnId((mix(query * 8 + n) % 2000) as u32), mix(n) % GB))
                .collect(),
            ..run(query, query, 2e9)
        })
        .collect();
    for capacity_bytes in [0, 1, 50 * GB, u64::MAX] {
        let input = TunerInput {
            observations: &observations,
            storage: StorageProgress::default(),
            sizes: &sizes,
            resident: &BTreeMap::new(),
            capacity_bytes,
            policy: PolicyKind::HpCache,
            between: &[],
            uses: &[],
            use_s: 0.0,
        };
        let placement = placed(tuner.step(0, &input));
        assert!(placement.kept_bytes() <= capacity_bytes as f64 * (1.0 + 1e-6));
    }
    assert!(tuner.stats().term_count <= 640);
}

/// A cache over a file of four columns of 100 segments, `row group x column`.
fn wide_cache(policy: PolicyKind, budget_bytes: u64) -> Arc<CacheManager> {
    let cache = CacheManager::new(CacheOptions {
        budget_bytes,
        policy,
        transit_bytes: Some(budget_bytes / 10),
        ..CacheOptions::default()
    });
    let mut segments = data_segments(400, 1000);
    for (idx, info) in segments.iter_mut().enumerate() {
        info.column = ColumnId(idx as u32 % 4);
        info.row_group_idx = idx as u32 / 4;
    }
    cache.add_file(Arc::new(InstantReader), segments);
    cache
}

fn scan_columns(cache: &Arc<CacheManager>, columns: std::ops::Range<u32>) {
    let scan = Arc::new(ScanContext::new(1, 0, 0));
    for row_group in 0..100 {
        for column in columns.clone() {
            let key = SegmentKey {
                segment_idx: 4 * row_group + column,
                ..key(0)
            };
            drop(now(cache.request(key, &scan)));
        }
    }
}

#[test]
fn the_resident_share_follows_the_target_through_changes() {
    let cache = wide_cache(PolicyKind::HpCache, 200_000);
    for targets in [
        [0.9, 0.3, 0.3, 0.0],
        [0.1, 0.9, 0.2, 0.5],
        [0.5, 0.0, 1.0, 0.2],
    ] {
        let share = |(column, proportion): (u32, f64)| crate::ColumnShare {
            column: ColumnId(column),
            bytes: 100_000,
            proportion,
            from: 0.0,
        };
        cache.set_placement(Placement::new((0..4).zip(targets).map(share)));
        (0..3).for_each(|_| scan_columns(&cache, 0..4));
        for (row, target) in cache.columns().iter().zip(targets) {
            let actual = row.cached_bytes as f64 / row.total_bytes as f64;
            assert!(actual >= target - 0.03, "{actual} of {target}");
        }
    }
}

#[test]
fn the_thread_tunes_a_cache_by_itself_and_ends_when_dropped() {
    let cache = wide_cache(PolicyKind::HpCache, 100_000);
    let options = TunerOptions {
        period_ms: 1,
        storage_bandwidth: Some(1e9),
        ..TunerOptions::default()
    };
    let thread = TunerThread::start(&cache, options).expect("threads can be started");
    thread.observe(Observation {
        columns: vec![(ColumnId(2), 100_000)],
        ..run(1, 1, 10e9)
    });
    until(|| cache.placement().proportion(ColumnId(2)) >= 0.8);
    let proportion = cache.placement().proportion(ColumnId(2));
    assert!((0.85..=0.95).contains(&proportion), "{proportion}");
    assert!(thread.inspect(|tuner| tuner.stats().solve_ns_max) > 0);
    let weak = Arc::downgrade(&cache);
    drop(cache);
    thread.step_now();
    drop(thread);
    assert!(
        weak.upgrade().is_none(),
        "the tuner does not keep the cache alive"
    );
}

/// A pipeline in the middle of its run.
struct HalfWay(Observation);

impl crate::model::RunningPipeline for HalfWay {
    fn observe(&self) -> Option<Observation> {
        Some(self.0.clone())
    }
}

/// Waits for another thread, which may have to wait for a processor itself.
fn until(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    holds()
}

fn fast_thread(cache: &Arc<CacheManager>) -> TunerThread {
    let options = TunerOptions {
        period_ms: 1,
        storage_bandwidth: Some(1e9),
        ..TunerOptions::default()
    };
    TunerThread::start(cache, options).expect("threads can be started")
}

#[test]
fn a_pipeline_under_way_is_tuned_for_before_it_ends_and_forgotten_when_it_is_gone() {
    let cache = wide_cache(PolicyKind::HpCache, 100_000);
    let thread = fast_thread(&cache);
    let half_way = Arc::new(HalfWay(Observation {
        columns: vec![(ColumnId(2), 100_000)],
        processed_bytes: 50_000,
        busy_ns: 5_000,
        finished: false,
        ..run(1, 1, 10e9)
    }));
    let weak: std::sync::Weak<HalfWay> = Arc::downgrade(&half_way);
    thread.watch(weak.clone());
    assert!(until(|| cache.placement().proportion(ColumnId(2)) > 0.8));
    let learned = thread.inspect(|tuner| tuner.pipelines()[0].processing_bandwidth);
    assert!((learned / 10e9 - 1.0).abs() < 1e-6, "{learned}");
    drop(half_way);
    assert!(until(|| weak.strong_count() == 0));
    thread.step_now();
}

#[test]
fn a_paused_tuner_learns_nothing_and_forgetting_empties_the_placement() {
    let cache = wide_cache(PolicyKind::HpCache, 100_000);
    let thread = fast_thread(&cache);
    let observe = |query| {
        thread.observe(Observation {
            columns: vec![(ColumnId(2), 100_000)],
            ..run(query, 1, 10e9)
        });
    };
    observe(1);
    assert!(until(|| cache.placement().proportion(ColumnId(2)) > 0.8));
    thread.set_paused(true);
    thread.forget();
    assert_eq!(cache.placement().kept_bytes(), 0.0);
    observe(2);
    thread.step_now();
    assert_eq!(cache.placement().kept_bytes(), 0.0);
    thread.set_paused(false);
    thread.configure(|options| options.storage_bandwidth = Some(1e9));
    observe(3);
    assert!(until(|| cache.placement().proportion(ColumnId(2)) > 0.8));
}

#[test]
fn residency_decides_what_is_predicted_with_it() {
    let mut tuner = tuner(0.2);
    let _ = step(&mut tuner, &[run(0, 0, 10e9)], 2 * GB);
    let predicted = |share: f64| tuner.predicted_with(0, 0, |_| share).unwrap();
    let unhidden_s = tuner.stats().overlap_loss * 0.4;
    assert!((predicted(0.0) - 4.0 - unhidden_s).abs() < 1e-9);
    assert!((predicted(0.5) - 2.0 - unhidden_s).abs() < 1e-9);
    assert!((predicted(1.0) - 0.4).abs() < 1e-9);
    assert_eq!(tuner.predicted_with(7, 0, |_| 1.0), None);
}

#[test]
fn resident_bytes_follow_inserts_evictions_and_dropped_files() {
    let cache = wide_cache(PolicyKind::Lru, 100_000);
    scan_columns(&cache, 0..4);
    let by_rows = || {
        let rows = cache.columns().into_iter();
        let kept = rows.filter(|row| row.cached_bytes > 0);
        kept.map(|row| (row.column, row.cached_bytes)).collect()
    };
    let resident: BTreeMap<ColumnId, u64> = by_rows();
    assert!(!resident.is_empty());
    assert_eq!(cache.resident_bytes(), resident);
    cache.remove_file(crate::FileId(0));
    assert!(cache.resident_bytes().is_empty());
}

#[test]
fn bandwidths_of_zero_and_a_dropped_table_leave_a_tuner_that_works() {
    let mut tuner = Tuner::new(TunerOptions {
        storage_bandwidth: Some(0.0),
        memory_bandwidth: 0.0,
        ..TunerOptions::default()
    });
    assert_eq!(step(&mut tuner, &[run(0, 1, 0.0)], GB), TunerStep::Skipped);
    assert!(tuner.tiers().memory_bandwidth > 0.0);
    let mut tuner = self::tuner(0.2);
    let _ = step(&mut tuner, &[run(0, 1, 5e9), run(1, 2, 5e9)], 4 * GB);
    let sizes = BTreeMap::new(); // all tables are gone
    let input = TunerInput {
        observations: &[],
        storage: StorageProgress::default(),
        sizes: &sizes,
        resident: &BTreeMap::new(),
        capacity_bytes: 4 * GB,
        policy: PolicyKind::HpCache,
        between: &[],
        uses: &[],
        use_s: 0.0,
    };
    assert_eq!(placed(tuner.step(0, &input)).kept_bytes(), 0.0);
    assert!(tuner.pipelines().is_empty());
    // A clock that jumps back and forth.
    for now_ns in [u64::MAX, 0, 1 << 62, 5] {
        let _ = tuner.step(now_ns, &input);
    }
}

#[test]
fn reading_is_measured() {
    let cache = wide_cache(PolicyKind::None, 100_000);
    scan_columns(&cache, 0..2);
    let progress = cache.storage_progress();
    assert_eq!(progress.bytes, 200_000);
    assert!(progress.reading_ns > 0);
    assert_eq!(cache.column_sizes().len(), 4);
    cache.remove_file(crate::FileId(0));
    assert!(cache.column_sizes().is_empty());
}
