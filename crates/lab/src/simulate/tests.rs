//! The simulator against times that can be computed by hand, and the paper's claims in outline.

use super::*;

fn machine() -> Machine {
    Machine {
        storage_bandwidth: 1e9,
        memory_bandwidth: 20e9,
        missing_byte_passes: 2.0,
        lookahead_bytes: 100_000_000,
        setup_s: 0.0,
    }
}

/// One template over two columns of 1 GB, a few times.
fn repeated(processing_bandwidth: f64, count: usize) -> Trace {
    let query = TraceQuery {
        items: Vec::new(),
        name: "Q",
        columns: vec![ColumnId(0), ColumnId(1)],
        processing_bandwidth,
        priority: 1.0,
    };
    Trace {
        items: Vec::new(),
        columns: (0..2)
            .map(|column| (ColumnId(column), 1_000_000_000))
            .collect(),
        segment_bytes: 10_000_000,
        queries: vec![query; count],
    }
}

fn times_s(policy: CachePolicy, budget_bytes: u64, is_warm: bool, trace: &Trace) -> Vec<f64> {
    let setup = Setup {
        policy,
        budget_bytes,
        is_warm,
        ..Setup::default()
    };
    let simulated = simulate(&machine(), trace, &setup);
    simulated.queries.iter().map(|query| query.time_s).collect()
}

fn close(time_s: f64, expected_s: f64) -> bool {
    (time_s / expected_s - 1.0).abs() < 0.03
}

#[test]
fn storage_processing_and_memory_bound_queries_take_what_the_model_says() {
    let all = 4_000_000_000;
    let by_storage = times_s(CachePolicy::None, all, false, &repeated(4e9, 1))[0];
    assert!(close(by_storage, 2.0), "{by_storage}");
    let by_processing = times_s(CachePolicy::None, all, false, &repeated(0.5e9, 1))[0];
    assert!(close(by_processing, 4.0), "{by_processing}");
    let in_memory = times_s(CachePolicy::All, all, true, &repeated(4e9, 1))[0];
    assert!(close(in_memory, 0.5), "{in_memory}");
    let by_memory = times_s(CachePolicy::All, all, true, &repeated(1e12, 1))[0];
    assert!(close(by_memory, 0.1), "{by_memory}");
}

#[test]
fn with_half_in_memory_hpcache_halves_the_time_and_lru_finds_nothing() {
    let trace = repeated(8e9, 4);
    let hpcache = times_s(CachePolicy::HpCache, 1_100_000_000, false, &trace);
    let lru = times_s(CachePolicy::Lru, 1_100_000_000, false, &trace);
    assert!(close(hpcache[0], 2.0), "{hpcache:?}");
    assert!(hpcache[3] < 1.1, "{hpcache:?}");
    assert!(lru[3] > 1.9, "{lru:?}");
}

#[test]
fn a_placed_query_takes_what_the_model_says() {
    let trace = repeated(4e9, 1);
    for (share, expected_s) in [(0.0, 2.0), (0.5, 1.0), (0.75, 0.5), (1.0, 0.5)] {
        let time_s = simulate_placed(&machine(), &trace, 0, share);
        assert!(
            (time_s / expected_s - 1.0).abs() < 0.15,
            "{share}: {time_s}"
        );
    }
}

#[test]
fn predictions_are_made_while_the_first_query_runs() {
    let setup = Setup {
        budget_bytes: 1_100_000_000,
        ..Setup::default()
    };
    let simulated = simulate(&machine(), &repeated(3e9, 1), &setup);
    let early = simulated.predictions.first().expect("steps were taken");
    assert!(early.at_s < 0.5 * simulated.total_s(), "{early:?}");
    assert!(
        (early.in_memory_s / (2.0 / 3.0) - 1.0).abs() < 0.1,
        "{early:?}"
    );
}

#[test]
fn the_tuner_predicts_what_the_machine_then_does() {
    let trace = repeated(3e9, 6);
    let setup = Setup {
        budget_bytes: 1_100_000_000,
        ..Setup::default()
    };
    let simulated = simulate(&machine(), &trace, &setup);
    for query in &simulated.queries[2..] {
        let predicted_s = query.predicted_s.expect("the template is known");
        assert!((predicted_s / query.time_s - 1.0).abs() < 0.1, "{query:?}");
    }
    assert!(simulated.tuner.solve_count < simulated.tuner.step_count);
}

#[test]
fn simulations_repeat_exactly() {
    let mut trace = mix_trace(Mix::Uniform, 200_000_000, 1e9);
    trace.segment_bytes *= 8;
    for policy in [
        CachePolicy::HpCache,
        CachePolicy::HpCachePaper,
        CachePolicy::Random,
    ] {
        let setup = Setup {
            policy,
            budget_bytes: 700_000_000,
            ..Setup::default()
        };
        let first = simulate(&machine(), &trace, &setup);
        assert_eq!(first.queries, simulate(&machine(), &trace, &setup).queries);
    }
}

#[test]
fn on_the_papers_server_hpcache_beats_lru_below_one_working_set() {
    let mut trace = paper_sequence();
    trace.segment_bytes = 240_000_000;
    let total_s = |policy| {
        let setup = Setup {
            policy,
            budget_bytes: 80_000_000_000,
            ..Setup::default()
        };
        simulate(&paper_machine(4), &trace, &setup).total_s()
    };
    let (lru, none, hpcache) = (
        total_s(CachePolicy::Lru),
        total_s(CachePolicy::None),
        total_s(CachePolicy::HpCache),
    );
    assert!(
        lru > 0.9 * none,
        "LRU is about no cache at all: {lru} {none}"
    );
    assert!(lru > 1.4 * hpcache, "{lru} {hpcache}");
}
