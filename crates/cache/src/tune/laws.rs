//! Laws of the model and of its solvers, on random problems.

use super::exact::{exact, exact_least_memory};
use super::*;
use crate::key::mix;
use crate::model::{Observation, Term, TermRead, WindowOptions};
use proptest::prelude::*;

/// A random number generator that needs no crate.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn random_problem(seed: u64, column_count: usize, term_count: usize) -> Problem {
    let mut draw = Draw(mix(seed) >> 8);
    let bytes: Vec<f64> = (0..column_count).map(|_| draw.between(1e8, 4e9)).collect();
    let all_bytes: f64 = bytes.iter().sum();
    let storage_bandwidth = draw.between(5e8, 3e9);
    let terms = (0..term_count)
        .map(|query_idx| random_term(&mut draw, &bytes, storage_bandwidth, query_idx))
        .collect();
    let tiers = Tiers {
        storage_bandwidth,
        memory_bandwidth: draw.between(1e10, 1e11),
    };
    let budget_bytes = all_bytes * draw.between(0.05, 0.7);
    let mut problem = Problem::empty(tiers.shelves(budget_bytes));
    for (bytes, column) in bytes.iter().zip(0..) {
        problem.add_column(ColumnId(column), *bytes);
    }
    problem.terms = terms;
    problem.overlap_loss = [0.0, 0.1, 0.3][seed as usize % 3];
    problem
}

fn random_term(draw: &mut Draw, sizes: &[f64], storage_bandwidth: f64, query_idx: usize) -> Term {
    let mut read: Vec<TermRead> = Vec::new();
    for _ in 0..1 + draw.below(5) {
        let item_idx = draw.below(sizes.len());
        let share = if draw.below(2) == 0 {
            1.0
        } else {
            draw.between(0.2, 1.0)
        };
        if read.iter().all(|column| column.item_idx != item_idx) {
            read.push(TermRead {
                item_idx,
                bytes: share * sizes[item_idx],
            });
        }
    }
    Term {
        weight: draw.between(0.01, 2.0),
        reads: read,
        processing_bandwidth: storage_bandwidth * draw.between(0.5, 12.0),
        query_idx,
        template: query_idx as u64,
        pipeline: 0,
    }
}

fn best(problem: &Problem) -> Solution {
    exact(problem, Goal::Total).expect("the solver solves")
}

/// The least ratio of greedy's savings to the exact ones, over random problems.
fn least_ratio(seeds: std::ops::Range<u64>) -> (f64, f64) {
    let (mut least, mut sum, count) = (1.0f64, 0.0, seeds.end - seeds.start);
    for seed in seeds {
        let column_count = 2 + (mix(seed) % 60) as usize;
        let term_count = 1 + (mix(seed + 7) % 100) as usize;
        let problem = random_problem(seed, column_count, term_count);
        let (greedy, exact) = (greedy(&problem), best(&problem));
        assert!(problem.kept_bytes(&greedy.x) <= problem.budget_bytes() * (1.0 + 1e-9));
        assert!(greedy.x.iter().all(|x| (0.0..=1.0).contains(x)));
        let bound = greedy.saved_s_max * (1.0 + 1e-5) + 1e-9;
        assert!(exact.saved_s <= bound, "seed {seed}: the certificate lies");
        if exact.saved_s > 1e-9 {
            least = least.min(greedy.saved_s / exact.saved_s);
            sum += greedy.saved_s / exact.saved_s;
        } else {
            sum += 1.0;
        }
    }
    (least, sum / count as f64)
}

#[test]
fn greedy_saves_at_least_099_of_exact() {
    let (least, _) = least_ratio(0..25);
    assert!(least >= 0.99, "{least}");
}

#[test]
#[ignore = "a thousand exact solutions take minutes unoptimised"]
fn greedy_saves_at_least_099_of_exact_on_a_thousand_problems() {
    let (least, mean) = least_ratio(0..1000);
    let gaps = (0..1000).map(|seed| greedy(&random_problem(seed, 100, 100)).gap());
    let gap_max = gaps.fold(0.0, f64::max);
    println!("largest gap that a certificate of 100 columns x 100 terms leaves open: {gap_max:.4}");
    println!("greedy / exact at least {least:.4}, {mean:.5} on average");
    assert!(least >= 0.99, "{least}");
}

#[test]
#[ignore = "measures time, wants an optimised build"]
fn a_greedy_solve_of_100_columns_and_100_queries_takes_at_most_a_millisecond() {
    let mut times_ns = Vec::new();
    for seed in 0..200 {
        let problem = random_problem(seed, 100, 100);
        let start = std::time::Instant::now();
        std::hint::black_box(greedy(&problem));
        times_ns.push(start.elapsed().as_nanos());
    }
    times_ns.sort_unstable();
    println!(
        "greedy 100 x 100: median {} ns, maximum {} ns",
        times_ns[100], times_ns[199]
    );
    let problem = random_problem(1, 100, 100);
    let start = std::time::Instant::now();
    (0..20).for_each(|_| drop(std::hint::black_box(best(&problem))));
    println!(
        "exact 100 x 100: mean {} ns",
        start.elapsed().as_nanos() / 20
    );
    assert!(times_ns[100] <= 1_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn more_budget_is_never_slower(seed in any::<u64>(), factor in 1.0f64..3.0) {
        let tight = random_problem(seed, 12, 12);
        let wide = tight.with_budget(tight.budget_bytes() * factor);
        let slack = 1.0 + 1e-6;
        prop_assert!(best(&wide).total_s <= best(&tight).total_s * slack);
        // Greedy solutions are within a part in a hundred of the best savings, so nearly as monotone.
        let (wide, tight) = (greedy(&wide), greedy(&tight));
        prop_assert!(wide.saved_s >= 0.99 * tight.saved_s);
    }

    #[test]
    fn more_priority_is_never_slower_for_the_query_that_has_it(
        seed in any::<u64>(), which in 0usize..10, factor in 1.5f64..20.0,
    ) {
        let equal = random_problem(seed, 10, 10);
        let mut unequal = equal.clone();
        unequal.terms[which].weight *= factor;
        let time_s = |problem: &Problem| problem.term_s(&problem.terms[which], &best(problem).x);
        prop_assert!(time_s(&unequal) <= time_s(&equal) * (1.0 + 1e-4));
    }

    #[test]
    fn a_threshold_is_served_before_the_total(seed in any::<u64>()) {
        let problem = random_problem(seed, 10, 8);
        let slowest_s = |x: &[f64]| problem.query_s(x).into_iter().fold(0.0, f64::max);
        let total = best(&problem);
        let fair = linear::best(&problem, Goal::Threshold { threshold_s: 0.0, scale: 1e-3 });
        let fair = fair.expect("the solver solves");
        prop_assert!(slowest_s(&fair.x) <= slowest_s(&total.x) * (1.0 + 1e-3));
        // A threshold that every query meets anyway leaves the total alone.
        let lax = Goal::Threshold { threshold_s: slowest_s(&[0.0; 10]), scale: 1e-2 };
        let lax = linear::best(&problem, lax).expect("the solver solves");
        prop_assert!(lax.total_s <= total.total_s * (1.0 + 1e-3));
    }

    #[test]
    fn only_queries_at_the_limit_are_late(seed in any::<u64>(), part in 0.5f64..1.5) {
        let problem = random_problem(seed, 10, 8);
        let slowest_s = |x: &[f64]| problem.query_s(x).into_iter().fold(0.0, f64::max);
        let scale = 1e-3;
        let goal = |threshold_s| Goal::Threshold { threshold_s, scale };
        let strict = linear::best(&problem, goal(0.0)).expect("the solver solves");
        let threshold_s = part * slowest_s(&strict.x);
        let solution = linear::best(&problem, goal(threshold_s)).expect("the solver solves");
        let late: Vec<usize> = (0..solution.lateness.len())
            .filter(|idx| solution.lateness[*idx] * scale > 1e-5).collect();
        let is_met_anyway = slowest_s(&best(&problem).x) < threshold_s * (1.0 - 1e-3);
        let someone_must = part < 1.0;
        prop_assert!(!someone_must || !late.is_empty());
        prop_assert!(!is_met_anyway || late.is_empty(), "{:?}", solution.lateness);
        let (query_s, limit_s) = (problem.query_s(&solution.x), slowest_s(&solution.x));
        for idx in late {
            prop_assert!(query_s[idx] >= limit_s.min(threshold_s) * (1.0 - 1e-3), "{query_s:?} {limit_s}");
            let term = problem.terms.iter().find(|term| term.query_idx == idx).expect("it has one");
            prop_assert!(solution.urgency(&problem, term.template) > 1.0);
        }
        // They share one second of the slowest, in units of the scaled weights.
        let all: f64 = problem.terms.iter().map(|term| term.weight).sum();
        let of_all: f64 = solution.lateness.iter().sum();
        prop_assert!(of_all * scale <= all * (1.0 + 1e-4), "{of_all} {all}");
    }

    #[test]
    fn the_least_memory_keeps_the_slowdown_and_shrinks_with_it(
        seed in any::<u64>(), slowdown in 1.05f64..2.0,
    ) {
        let problem = random_problem(seed, 10, 8);
        let tight = least_memory(&problem, slowdown).expect("the solver solves");
        let in_memory_s = problem.query_s(&[1.0; 10]);
        for (time_s, in_memory_s) in problem.query_s(&tight.x).into_iter().zip(in_memory_s) {
            prop_assert!(time_s <= slowdown * in_memory_s * (1.0 + 1e-4));
        }
        let lax = least_memory(&problem, 2.0 * slowdown).expect("the solver solves");
        let kept_bytes = problem.kept_bytes(&tight.x);
        prop_assert!(problem.kept_bytes(&lax.x) <= kept_bytes * (1.0 + 1e-4) + 1e3);
        prop_assert!(least_memory(&problem, 0.5).is_err());
        let exact = exact_least_memory(&problem, slowdown).expect("the solver solves");
        let exact_bytes = problem.kept_bytes(&exact.x);
        prop_assert!((kept_bytes - exact_bytes).abs() <= 1e-4 * exact_bytes + 1e4, "{kept_bytes} {exact_bytes}");
    }

    #[test]
    fn the_price_of_memory_is_what_a_little_more_of_it_saves(seed in any::<u64>()) {
        let problem = random_problem(seed, 10, 10);
        let little = 1e-3 * problem.budget_bytes();
        let more = problem.with_budget(problem.budget_bytes() + little);
        let (before, after) = (best(&problem), best(&more));
        let saved_s = after.saved_s - before.saved_s;
        // Savings are concave: more memory saves no more than the price says.
        prop_assert!(saved_s <= before.saved_s_per_byte() * little * 1.01 + 1e-6 * before.saved_s);
    }
}

/// Observations of one query on columns 0 and 1, with column 2 existing but unread.
fn two_of_three_columns() -> (LookBackWindow, BTreeMap<ColumnId, u64>) {
    let mut window = LookBackWindow::new(WindowOptions::default());
    window.observe(&Observation {
        query: 1,
        pipeline: 0,
        template: 1,
        columns: vec![(ColumnId(0), 1000), (ColumnId(1), 500)],
        processed_bytes: 1500,
        busy_ns: 1_000,
        wait_ns: 0,
        storage_bytes: 0,
        worker_count: 1,
        priority: 1.0,
        finished: true,
    });
    let sizes = (0..3).map(|column| (ColumnId(column), 1000)).collect();
    (window, sizes)
}

const SLOWEST: Goal = Goal::Threshold {
    threshold_s: 0.0,
    scale: 1e-3,
};

const TIERS: Tiers = Tiers {
    storage_bandwidth: 1e8,
    memory_bandwidth: 1e10,
};

#[test]
fn an_unread_column_is_never_cached_however_large_the_budget() {
    let (window, sizes) = two_of_three_columns();
    for goal in [Goal::Total, SLOWEST] {
        let options = TuneOptions {
            goal,
            ..TuneOptions::default()
        };
        let decision = tune(&window, &sizes, TIERS, u64::MAX, &options).unwrap();
        assert_eq!(decision.placement.proportion(ColumnId(2)), 0.0);
        assert!(decision.placement.proportion(ColumnId(0)) > 0.8);
    }
}

#[test]
fn a_machine_that_is_not_known_is_an_error_and_an_empty_window_an_empty_placement() {
    let (window, sizes) = two_of_three_columns();
    let options = TuneOptions::default();
    for storage_bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let tiers = Tiers {
            storage_bandwidth,
            ..TIERS
        };
        let error = tune(&window, &sizes, tiers, 1000, &options).unwrap_err();
        assert!(matches!(error, TuneError::UnknownBandwidth { .. }));
    }
    for options in [
        options,
        TuneOptions {
            goal: SLOWEST,
            ..options
        },
    ] {
        let nothing = tune(&window, &BTreeMap::new(), TIERS, 1000, &options).unwrap();
        assert!(nothing.placement.shares().is_empty());
        let no_budget = tune(&window, &sizes, TIERS, 0, &options).unwrap();
        assert_eq!(no_budget.placement.kept_bytes(), 0.0);
    }
}

#[test]
#[ignore = "measures time, wants an optimised build"]
fn large_problems_are_solved() {
    let problem = random_problem(5, 2000, 512);
    let start = std::time::Instant::now();
    let by_greedy = greedy(&problem);
    let greedy_ms = start.elapsed().as_millis();
    let exact = best(&problem);
    let exact_ms = start.elapsed().as_millis() - greedy_ms;
    println!("2000 x 512: greedy {greedy_ms} ms, exact {exact_ms} ms");
    assert!(by_greedy.saved_s <= exact.saved_s * (1.0 + 1e-5));
}
