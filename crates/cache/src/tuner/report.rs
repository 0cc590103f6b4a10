//! What the tuner knows and did, as rows for table functions.

use super::{Solved, Tuner};
use crate::key::ColumnId;
use crate::model::{Choice, Item, ItemClass, Problem, Representation, Smoothing, Term};
use crate::tune::{Goal, Solution, TuneError, TuneOptions, least_memory, solve};

/// What the tuner did so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TunerStats {
    /// Steps taken.
    pub step_count: u64,
    /// Steps without anything to do.
    pub skip_count: u64,
    /// Problems solved, or tried to.
    pub solve_count: u64,
    /// Problems that could not be solved.
    pub failure_count: u64,
    /// Why the latest of those could not be.
    pub last_error: Option<String>,
    /// Columns of the last problem.
    pub column_count: usize,
    /// Pipelines of the last problem.
    pub term_count: usize,
    /// Bytes that could be kept in the last problem.
    pub budget_bytes: u64,
    /// Bytes that the last placement keeps.
    pub kept_bytes: u64,
    /// By how much the savings of the last placement may fall short of the best, as a part.
    pub gap: f64,
    /// Weighted time that the last placement is predicted to save, in seconds.
    pub saved_s: f64,
    /// What a further byte of budget would save, in seconds.
    pub saved_s_per_byte: f64,
    /// Time of all steps, in nanoseconds (0 if it was not measured).
    pub step_ns_total: u64,
    /// Time of the last solution, in nanoseconds (0 if it was not measured).
    pub solve_ns: u64,
    /// Time of the longest solution, in nanoseconds.
    pub solve_ns_max: u64,
    /// Storage bandwidth as measured, in bytes per second; 0 while unknown.
    pub storage_bandwidth: f64,
    /// Memory bandwidth as known, in bytes per second.
    pub memory_bandwidth: f64,
    /// The part of the shorter of reading and processing that the longer does not hide, as measured.
    pub overlap_loss: f64,
    /// How the window fades that served the latest queries best.
    pub smoothing: Smoothing,
}

/// What limits a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Missing bytes come too slowly.
    Storage,
    /// Cached bytes come too slowly.
    Memory,
    /// The pipeline itself.
    Processing,
}

/// A pipeline of the look-back window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PipelineRow {
    /// Fingerprint of the plan without literals.
    pub template: u64,
    /// Number of the pipeline in its query.
    pub pipeline: u32,
    /// How much it counts.
    pub weight: f64,
    /// Charged bytes it reads.
    pub bytes: f64,
    /// One of the columns it reads (all belong to one table).
    pub column: Option<ColumnId>,
    /// Its own throughput in bytes per second; infinite while unknown.
    pub processing_bandwidth: f64,
    /// Predicted time under the placement in force, in seconds.
    pub predicted_s: f64,
    /// Predicted time with everything in memory, in seconds.
    pub in_memory_s: f64,
    /// Time of its latest finished run, in seconds.
    pub actual_s: Option<f64>,
    /// What limits it under the placement in force, by the prediction.
    pub bound: Bound,
}

/// A column of the last placement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetRow {
    /// Which column.
    pub column: ColumnId,
    /// Its size in charged bytes.
    pub bytes: u64,
    /// The proportion to keep.
    pub proportion: f64,
    /// What its last kept byte saves (its first byte, if none is kept), in seconds.
    pub saved_s_per_byte: f64,
}

/// A point of the curve of time against memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdviceRow {
    /// Bytes that could be kept.
    pub budget_bytes: u64,
    /// Weighted time of the window's pipelines, in seconds.
    pub total_s: f64,
    /// That time relative to everything in memory.
    pub slowdown: f64,
    /// What a further byte would save there, in seconds.
    pub saved_s_per_byte: f64,
}

impl TunerStats {
    pub(super) fn note(&mut self, problem: &Problem, solution: &Solution) {
        self.column_count = problem.items.len();
        self.term_count = problem.terms.len();
        self.budget_bytes = problem.budget_bytes() as u64;
        self.kept_bytes = problem.kept_bytes(&solution.x) as u64;
        self.gap = solution.gap();
        self.saved_s = solution.saved_s;
        self.saved_s_per_byte = solution.saved_s_per_byte();
    }
}

impl Tuner {
    /// What the tuner did so far.
    pub fn stats(&self) -> TunerStats {
        let tiers = self.tiers();
        TunerStats {
            storage_bandwidth: tiers.storage_bandwidth,
            memory_bandwidth: tiers.memory_bandwidth,
            overlap_loss: self.overlap_loss,
            smoothing: self.contest.window().options().smoothing,
            ..self.stats.clone()
        }
    }

    /// Records how long a step with a solution took.
    pub fn note_solve_ns(&mut self, solve_ns: u64) {
        self.stats.solve_ns = solve_ns;
        self.stats.solve_ns_max = self.stats.solve_ns_max.max(solve_ns);
    }

    /// Records how long a step took, whatever came of it.
    pub fn note_step_ns(&mut self, step_ns: u64) {
        self.stats.step_ns_total += step_ns;
    }

    /// The pipelines that count, heaviest first.
    pub fn pipelines(&self) -> Vec<PipelineRow> {
        let Some(solved) = &self.solved else {
            return Vec::new();
        };
        let all = solved.all();
        let row = |term: &Term| {
            let learned = self.contest.window().term(term.template, term.pipeline);
            PipelineRow {
                template: term.template,
                pipeline: term.pipeline,
                weight: term.weight,
                bytes: term.bytes(),
                column: term
                    .reads
                    .first()
                    .and_then(|of| solved.problem.items[of.item_idx].id.as_column()),
                processing_bandwidth: term.processing_bandwidth,
                predicted_s: solved.problem.term_s(term, &solved.solution.x),
                in_memory_s: solved.problem.term_s(term, &all),
                actual_s: learned.and_then(|learned| learned.run_s),
                bound: solved.bound(term),
            }
        };
        solved.problem.terms.iter().map(row).collect()
    }

    /// The predicted time of a template's pipeline under the placement in force, in seconds.
    pub fn predicted_s(&self, template: u64, pipeline: u32) -> Option<f64> {
        let solved = self.solved.as_ref()?;
        let mut terms = solved.problem.terms.iter();
        let term = terms.find(|term| (term.template, term.pipeline) == (template, pipeline))?;
        Some(solved.problem.term_s(term, &solved.solution.x))
    }

    /// The predicted time of a template's pipeline when such shares of the columns are in memory, in seconds.
    pub fn predicted_with(
        &self,
        template: u64,
        pipeline: u32,
        share: impl Fn(ColumnId) -> f64,
    ) -> Option<f64> {
        let problem = &self.solved.as_ref()?.problem;
        let mut terms = problem.terms.iter();
        let term = terms.find(|term| (term.template, term.pipeline) == (template, pipeline))?;
        let in_memory = |choice: &Choice| {
            let column = problem.items[choice.item_idx].id.as_column();
            let is_there = choice.shelf == 0 && choice.representation == Representation::Stored;
            column.filter(|_| is_there).map_or(0.0, &share)
        };
        let x: Vec<f64> = problem.choices.iter().map(in_memory).collect();
        Some(problem.term_s(term, &x))
    }

    /// The columns of the last placement.
    pub fn targets(&self) -> Vec<TargetRow> {
        let Some(solved) = &self.solved else {
            return Vec::new();
        };
        let row = |item: &Item| {
            Some(TargetRow {
                column: item.id.as_column()?,
                bytes: item.bytes as u64,
                proportion: solved.solution.proportion(&solved.problem, item, 0),
                saved_s_per_byte: solved.worth(item),
            })
        };
        solved.problem.items.iter().filter_map(row).collect()
    }

    /// What other amounts of memory would buy: `row_count` steps from nothing to all columns that are read.
    pub fn advice(&self, row_count: u32) -> Vec<AdviceRow> {
        let Some(solved) = &self.solved else {
            return Vec::new();
        };
        let all_bytes = solved.problem.kept_bytes(&solved.all());
        let options = TuneOptions {
            goal: Goal::Total,
            ..solved.options
        };
        let row = |step: u32| {
            let part = f64::from(step) / f64::from(row_count.max(1));
            let at = solved.problem.with_budget(all_bytes * part);
            let solution = solve(&at, &options).ok()?;
            Some(solved.advice(at.budget_bytes(), &solution))
        };
        (0..=row_count).filter_map(row).collect()
    }

    /// The dual problem (§4.2): the least memory with which no query of the window takes longer than `slowdown` times
    /// its time in memory. `None` before anything is known.
    ///
    /// # Errors
    /// [`TuneError::Infeasible`] for a slowdown below 1, [`TuneError::Unsolved`] if the solver gives up.
    pub fn least_memory(&self, slowdown: f64) -> Result<Option<AdviceRow>, TuneError> {
        if slowdown.is_nan() || slowdown < 1.0 {
            return Err(TuneError::Infeasible { slowdown });
        }
        let Some(solved) = &self.solved else {
            return Ok(None);
        };
        let mut solution = least_memory(&solved.problem, slowdown)?;
        solved.keep_what_no_query_times(&mut solution);
        let kept_bytes = solved.problem.kept_bytes(&solution.x);
        let worth = solved
            .in_memory()
            .map(|idx| worth(&solved.problem, &solution.x, idx, 1.0));
        solution.prices[0] = worth.fold(0.0, f64::max);
        Ok(Some(solved.advice(kept_bytes, &solution)))
    }
}

impl Solved {
    /// What takes longest by itself.
    fn bound(&self, term: &Term) -> Bound {
        let load = self.problem.load(term, &self.solution.x);
        let (storage_s, memory_s) = (load.reading_s(), load.shelf_s[0]);
        let processing_s = load.processing_s;
        if processing_s * (1.0 + 1e-9) >= storage_s.max(memory_s) {
            return Bound::Processing;
        }
        match memory_s >= storage_s {
            true => Bound::Memory,
            false => Bound::Storage,
        }
    }

    /// How often, in the window, a byte that is kept on a shelf was read, weighted as the pipelines are.
    pub(super) fn uses_per_byte(&self, shelf: usize) -> f64 {
        let (problem, x) = (&self.problem, &self.solution.x);
        let part = |item_idx: usize| {
            let item = &problem.items[item_idx];
            self.solution.proportion(problem, item, shelf)
        };
        let reads = problem.terms.iter().flat_map(|term| {
            let reads = term.reads.iter();
            reads.map(|read| term.weight * read.bytes * part(read.item_idx))
        });
        reads.sum::<f64>() / problem.kept_on(shelf, x).max(1.0)
    }

    /// Puts index blocks, metadata and look-ups into memory: they are not part of the queries' times that were asked
    /// for.
    fn keep_what_no_query_times(&self, solution: &mut Solution) {
        let all = self.all();
        let items = self.problem.items.iter();
        for item in items.filter(|item| item.id.class != ItemClass::Column) {
            solution.x[item.choices.clone()].copy_from_slice(&all[item.choices.clone()]);
        }
        solution.total_s = self.problem.total_s(&solution.x);
    }

    /// Everything in memory.
    fn all(&self) -> Vec<f64> {
        self.problem.all_in_memory()
    }

    /// The choices that put something into memory.
    fn in_memory(&self) -> impl Iterator<Item = usize> + '_ {
        let choices = self.problem.choices.iter().enumerate();
        choices
            .filter(|(_, choice)| choice.shelf == 0)
            .map(|(choice_idx, _)| choice_idx)
    }

    /// A solution of this problem as a point of the curve.
    fn advice(&self, budget_bytes: f64, solution: &Solution) -> AdviceRow {
        let in_memory_s = self.problem.total_s(&self.all()).max(f64::MIN_POSITIVE);
        AdviceRow {
            budget_bytes: budget_bytes as u64,
            total_s: solution.total_s,
            slowdown: solution.total_s / in_memory_s,
            saved_s_per_byte: solution.saved_s_per_byte(),
        }
    }

    /// What the last byte of an item in memory saves, or its first if none is there.
    fn worth(&self, item: &Item) -> f64 {
        let x = &self.solution.x;
        let of_choice = |choice_idx: usize| {
            let sign = if x[choice_idx] > WORTH_STEP {
                -1.0
            } else {
                1.0
            };
            worth(&self.problem, x, choice_idx, sign)
        };
        let in_memory = |choice_idx: &usize| self.problem.choices[*choice_idx].shelf == 0;
        let choices = item.choices.clone().filter(in_memory);
        choices.map(of_choice).fold(0.0, f64::max)
    }
}

/// The part of an item that is added or taken away to see what it is worth.
const WORTH_STEP: f64 = 1e-6;

/// What a byte of a choice saves: one more, or one less with a `sign` of -1.
pub(super) fn worth(problem: &Problem, x: &[f64], choice_idx: usize, sign: f64) -> f64 {
    let mut changed = x.to_vec();
    changed[choice_idx] = (changed[choice_idx] + sign * WORTH_STEP).clamp(0.0, 1.0);
    let saved_s = problem.total_s(x) - problem.total_s(&changed);
    let bytes = WORTH_STEP * problem.choices[choice_idx].bytes;
    (sign * saved_s / bytes).max(0.0)
}
