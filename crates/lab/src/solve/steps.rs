//! How long a whole step of the tuner takes: what a query that ended teaches, the contest of the windows, the problem
//! and its solution.

use std::collections::BTreeMap;

use hotshelf_cache::model::{ItemUse, Observation, Problem, Smoothing, Term};
use hotshelf_cache::tuner::{StorageProgress, Tuner, TunerInput, TunerOptions, TunerStep};
use hotshelf_cache::{ColumnId, PolicyKind};

/// Time between steps, in nanoseconds.
const PERIOD_NS: u64 = 200_000_000;

/// A tuner, and queries of as many templates as a problem has terms.
pub struct Steps {
    tuner: Tuner,
    runs: Vec<Observation>,
    sizes: BTreeMap<ColumnId, u64>,
    resident: BTreeMap<ColumnId, u64>,
    capacity_bytes: u64,
    uses: Vec<ItemUse>,
    step_count: u64,
    query_count: u64,
}

impl Steps {
    /// A tuner that has seen a query of each of the problem's terms.
    pub fn new(problem: &Problem, uses: Vec<ItemUse>) -> Self {
        let mut options = TunerOptions {
            storage_bandwidth: Some(problem.storage_bandwidth()),
            memory_bandwidth: problem.memory_bandwidth(),
            ..TunerOptions::default()
        };
        // The shortest memory that does not forget the first of them.
        options.window.smoothing = Smoothing::half_life(64.0);
        let sizes: BTreeMap<ColumnId, u64> = problem
            .items
            .iter()
            .filter_map(|item| Some((item.id.as_column()?, item.bytes as u64)))
            .collect();
        let terms = problem.terms.iter().zip(0..);
        let mut steps = Self {
            tuner: Tuner::new(options),
            runs: terms
                .map(|(term, number)| run(problem, term, number))
                .collect(),
            resident: sizes
                .iter()
                .map(|(column, size)| (*column, size / 4))
                .collect(),
            capacity_bytes: problem.budget_bytes() as u64,
            sizes,
            uses,
            step_count: 0,
            query_count: 0,
        };
        (0..steps.runs.len()).for_each(|_| drop(steps.after_a_query()));
        steps
    }

    /// A step after a query has ended.
    pub fn after_a_query(&mut self) -> TunerStep {
        self.query_count += 1;
        let idx = self.query_count as usize % self.runs.len();
        let run = Observation {
            query: self.query_count,
            ..self.runs[idx].clone()
        };
        self.step(&[run])
    }

    /// A step without news.
    pub fn without_news(&mut self) -> TunerStep {
        self.step(&[])
    }

    /// How many terms and items the latest problem had.
    pub fn size(&self) -> (usize, usize) {
        let stats = self.tuner.stats();
        (stats.term_count, stats.column_count)
    }

    fn step(&mut self, observations: &[Observation]) -> TunerStep {
        self.step_count += 1;
        let input = TunerInput {
            observations,
            storage: StorageProgress::default(),
            sizes: &self.sizes,
            resident: &self.resident,
            capacity_bytes: self.capacity_bytes,
            policy: PolicyKind::HpCache,
            between: &[],
            uses: &self.uses,
            use_s: self.step_count as f64 * PERIOD_NS as f64 * 1e-9,
        };
        self.tuner.step(self.step_count * PERIOD_NS, &input)
    }
}

/// A run of a term on one worker, as the engine reports it.
fn run(problem: &Problem, term: &Term, template: u64) -> Observation {
    let columns = term.reads.iter().filter_map(|read| {
        let column = problem.items[read.item_idx].id.as_column()?;
        Some((column, read.bytes as u64))
    });
    let bytes = term.bytes();
    Observation {
        query: 0,
        pipeline: 0,
        template,
        columns: columns.collect(),
        processed_bytes: bytes as u64,
        storage_bytes: bytes as u64,
        busy_ns: (bytes / term.processing_bandwidth * 1e9) as u64,
        wait_ns: 0,
        worker_count: 1,
        priority: 1.0,
        finished: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_cache::tune::{InstanceSize, random_instance};

    #[test]
    fn steps_solve_after_queries_and_skip_without_news_and_know_every_term() {
        let size = InstanceSize {
            column_count: 20,
            representation_count: 1,
            other_count: 0,
            term_count: 40,
        };
        let mut steps = Steps::new(&random_instance(7, size), Vec::new());
        assert!(matches!(steps.after_a_query(), TunerStep::Placed(_)));
        assert_eq!(steps.size().0, 40);
        assert_eq!(steps.without_news(), TunerStep::Skipped);
    }
}
