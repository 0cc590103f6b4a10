//! Solvers that the tuner's own is compared with: the exact one, and the HPCache paper's model with its solvers.

mod exact;
#[cfg(test)]
mod greedy_paper;
mod steps;
#[cfg(test)]
mod tests;
pub mod times;

pub use exact::exact;

use hotshelf_cache::model::{Problem, Term, TermRead, TermTime};
use hotshelf_cache::tune::Method;

/// The paper's Equations 1-3: each column has its part of the bandwidth, and the slowest column decides:
/// `max of (1 - x) B / S`. For memory and one storage only.
pub const PAPER_TIME: TermTime = TermTime {
    name: "paper",
    seconds: paper_term_s,
};

/// The paper's model and an exact solver, as the paper has it.
pub const PAPER: Method = Method {
    time: PAPER_TIME,
    solve: exact,
};

fn is_paper(problem: &Problem) -> bool {
    problem.term_time == Some(PAPER_TIME)
}

fn paper_term_s(problem: &Problem, term: &Term, x: &[f64]) -> f64 {
    let bytes = term.bytes();
    let read_s = |read: &TermRead| {
        let x = x[read.item_idx];
        let storage_s = bytes * (1.0 - x) / problem.storage_bandwidth();
        storage_s.max(bytes * x / problem.memory_bandwidth())
    };
    let transfer_s = term.reads.iter().map(read_s).fold(0.0, f64::max);
    transfer_s.max(bytes / term.processing_bandwidth)
}
