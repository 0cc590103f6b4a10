//! The paper's model and its solvers.

use super::greedy_paper::greedy as greedy_paper;
use super::*;
use crate::policy::mix;
use hotshelf_cache::ColumnId;
use hotshelf_cache::model::Tiers;
use hotshelf_cache::tune::{Solution, greedy};

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
    problem.term_time = Some(PAPER_TIME);
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
    exact(problem).expect("the solver solves")
}

/// The same problem under the product's model.
fn shared(problem: &Problem) -> Problem {
    Problem {
        term_time: None,
        ..problem.clone()
    }
}

/// 96 GB in four columns of 24 GB, 28 GB/s storage, 116 GB/s memory.
fn four_columns(processing_bandwidth: f64) -> Problem {
    let tiers = Tiers {
        storage_bandwidth: 28e9,
        memory_bandwidth: 116e9,
    };
    let mut problem = Problem::empty(tiers.shelves(80e9));
    problem.term_time = Some(PAPER_TIME);
    let reads = (0..4).map(|column| TermRead {
        item_idx: problem.add_column(ColumnId(column), 24e9),
        bytes: 24e9,
    });
    let reads = reads.collect();
    problem.terms = vec![Term {
        weight: 1.0,
        reads,
        processing_bandwidth,
        query_idx: 0,
        template: 1,
        pipeline: 0,
    }];
    problem
}

#[test]
fn both_models_agree_when_all_columns_have_the_same_proportion() {
    for processing_bandwidth in [10e9, 28e9, 80e9, f64::INFINITY] {
        for x in [0.0, 0.3, 0.65, 1.0] {
            let problem = four_columns(processing_bandwidth);
            let (paper_s, shared_s) = (problem.total_s(&[x; 4]), shared(&problem).total_s(&[x; 4]));
            assert!((paper_s - shared_s).abs() < 1e-9, "{paper_s} {shared_s}");
        }
    }
}

#[test]
fn one_missing_column_costs_the_paper_everything() {
    let (problem, x) = (four_columns(80e9), [1.0, 1.0, 1.0, 0.0]);
    assert!((problem.total_s(&x) - 96.0 / 28.0).abs() < 1e-9);
    assert!((shared(&problem).total_s(&x) - 96.0 / 80.0).abs() < 1e-9);
}

#[test]
fn more_budget_is_never_slower() {
    for seed in 0..24 {
        let tight = random_problem(seed, 12, 12);
        let wide = tight.with_budget(tight.budget_bytes() * 1.7);
        assert!(best(&wide).total_s <= best(&tight).total_s * (1.0 + 1e-6));
    }
}

#[test]
fn greedy_solutions_stay_within_the_budget_and_their_certificate() {
    for seed in 0..25 {
        let problem = random_problem(seed, 2 + seed as usize, 1 + 2 * seed as usize);
        let (by_greedy, exact) = (greedy_paper(&problem), best(&problem));
        assert!(problem.kept_bytes(&by_greedy.x) <= problem.budget_bytes() * (1.0 + 1e-9));
        assert!(by_greedy.x.iter().all(|x| (0.0..=1.0).contains(x)));
        assert!(exact.saved_s <= by_greedy.saved_s_max * (1.0 + 1e-5) + 1e-9);
    }
}

#[test]
fn the_products_solver_is_near_the_exact_one() {
    for seed in 0..10 {
        let problem = shared(&random_problem(seed, 30, 40));
        let (by_greedy, exact) = (greedy(&problem), best(&problem));
        assert!(by_greedy.saved_s >= 0.99 * exact.saved_s, "seed {seed}");
        assert!(by_greedy.saved_s <= exact.saved_s * (1.0 + 1e-5));
    }
}

/// The problem of an instance that `benchmarks/paper_formulation.py` solved.
fn fixture_problem(instance: &serde_json::Value) -> Problem {
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let list = |value: &serde_json::Value| value.as_array().expect("a list").clone();
    let sizes: Vec<f64> = list(&instance["sizes"]).iter().map(number).collect();
    let terms = list(&instance["terms"]);
    let terms = terms.iter().enumerate().map(|(query_idx, term)| Term {
        weight: number(&term["weight"]),
        reads: list(&term["columns"])
            .iter()
            .map(|column| number(column) as usize)
            .map(|item_idx| TermRead {
                item_idx,
                bytes: sizes[item_idx] * 1e9,
            })
            .collect(),
        processing_bandwidth: 1e9 * number(&term["processing_bandwidth"]),
        query_idx,
        template: query_idx as u64,
        pipeline: 0,
    });
    let tiers = Tiers {
        storage_bandwidth: 1e9 * number(&instance["storage_bandwidth"]),
        memory_bandwidth: 1e9 * number(&instance["memory_bandwidth"]),
    };
    let shelves = tiers.shelves(1e9 * number(&instance["budget"]));
    let mut problem = Problem::empty(shelves);
    problem.term_time = Some(PAPER_TIME);
    for (size, column) in sizes.iter().zip(0..) {
        problem.add_column(ColumnId(column), size * 1e9);
    }
    problem.terms = terms.collect();
    problem
}

#[test]
fn exact_equals_cvxpy_on_the_papers_formulation() {
    let fixture = include_str!("paper_formulation.json");
    let instances: Vec<serde_json::Value> = serde_json::from_str(fixture).expect("the fixture");
    assert_eq!(instances.len(), 50);
    for instance in instances {
        let ours_s = best(&fixture_problem(&instance)).total_s;
        let theirs_s = instance["total_s"].as_f64().expect("a number");
        assert!(
            (ours_s / theirs_s - 1.0).abs() < 1e-5,
            "{ours_s} {theirs_s}"
        );
    }
}
