//! What the tuner knows and did, as rows for table functions.

use super::{Solved, Tuner};
use crate::key::ColumnId;
use crate::model::{ModelForm, Problem, Smoothing, Term};
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
    /// Time of all steps, in nanoseconds (0 if nobody measured it).
    pub step_ns_total: u64,
    /// Time of the last solution, in nanoseconds (0 if nobody measured it).
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
        self.column_count = problem.columns.len();
        self.term_count = problem.terms.len();
        self.budget_bytes = problem.budget_bytes as u64;
        self.kept_bytes = problem.kept_bytes(&solution.x) as u64;
        self.gap = solution.gap();
        self.saved_s = solution.saved_s;
        self.saved_s_per_byte = solution.saved_s_per_byte;
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
                    .columns
                    .first()
                    .map(|of| solved.problem.columns[of.column_idx].column),
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
        let columns = problem.columns.iter();
        let x: Vec<f64> = columns.map(|column| share(column.column)).collect();
        Some(problem.term_s(term, &x))
    }

    /// The columns of the last placement.
    pub fn targets(&self) -> Vec<TargetRow> {
        let Some(solved) = &self.solved else {
            return Vec::new();
        };
        let columns = solved.problem.columns.iter().enumerate();
        let row = |(column_idx, column): (usize, &crate::model::ProblemColumn)| TargetRow {
            column: column.column,
            bytes: column.bytes as u64,
            proportion: solved.solution.x[column_idx],
            saved_s_per_byte: solved.worth(column_idx),
        };
        columns.map(row).collect()
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
            let at = Problem {
                budget_bytes: all_bytes * f64::from(step) / f64::from(row_count.max(1)),
                ..solved.problem.clone()
            };
            let solution = solve(&at, &options).ok()?;
            Some(solved.advice(at.budget_bytes, &solution))
        };
        (0..=row_count).filter_map(row).collect()
    }

    /// The dual problem (§4.2): the least memory with which no query of the window takes longer than `slowdown` times its
    /// time in memory. `None` before anything is known.
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
        let kept_bytes = solved.problem.kept_bytes(&solution.x);
        let columns = 0..solution.x.len();
        let worth = columns.map(|column_idx| worth(&solved.problem, &solution.x, column_idx, 1.0));
        solution.saved_s_per_byte = worth.fold(0.0, f64::max);
        Ok(Some(solved.advice(kept_bytes, &solution)))
    }
}

impl Solved {
    /// What takes longest by itself.
    fn bound(&self, term: &Term) -> Bound {
        let (problem, bytes) = (&self.problem, term.bytes());
        let columns = || {
            term.columns
                .iter()
                .map(|c| (c.bytes, self.solution.x[c.column_idx]))
        };
        let (missing_bytes, cached_bytes) = match problem.form {
            ModelForm::Shared => {
                let cached_bytes: f64 = columns().map(|(bytes, x)| bytes * x).sum();
                (bytes - cached_bytes, cached_bytes)
            }
            ModelForm::Paper => {
                let missing = columns().map(|(_, x)| bytes * (1.0 - x));
                let cached = columns().map(|(_, x)| bytes * x);
                (missing.fold(0.0, f64::max), cached.fold(0.0, f64::max))
            }
        };
        let storage_s = missing_bytes / problem.tiers.storage_bandwidth;
        let memory_s = cached_bytes / problem.tiers.memory_bandwidth;
        let processing_s = bytes / term.processing_bandwidth;
        if processing_s * (1.0 + 1e-9) >= storage_s.max(memory_s) {
            return Bound::Processing;
        }
        match memory_s >= storage_s {
            true => Bound::Memory,
            false => Bound::Storage,
        }
    }

    /// Everything in memory.
    fn all(&self) -> Vec<f64> {
        vec![1.0; self.problem.columns.len()]
    }

    /// A solution of this problem as a point of the curve.
    fn advice(&self, budget_bytes: f64, solution: &Solution) -> AdviceRow {
        let in_memory_s = self.problem.total_s(&self.all()).max(f64::MIN_POSITIVE);
        AdviceRow {
            budget_bytes: budget_bytes as u64,
            total_s: solution.total_s,
            slowdown: solution.total_s / in_memory_s,
            saved_s_per_byte: solution.saved_s_per_byte,
        }
    }

    /// What the last kept byte of a column saves, or its first if none is kept.
    fn worth(&self, column_idx: usize) -> f64 {
        let x = &self.solution.x;
        let sign = if x[column_idx] > WORTH_STEP {
            -1.0
        } else {
            1.0
        };
        worth(&self.problem, x, column_idx, sign)
    }
}

/// The part of a column that is added or taken away to see what it is worth.
const WORTH_STEP: f64 = 1e-6;

/// What a byte of a column saves: one more, or one less with a `sign` of -1.
fn worth(problem: &Problem, x: &[f64], column_idx: usize, sign: f64) -> f64 {
    let mut changed = x.to_vec();
    changed[column_idx] = (changed[column_idx] + sign * WORTH_STEP).clamp(0.0, 1.0);
    let saved_s = problem.total_s(x) - problem.total_s(&changed);
    let bytes = WORTH_STEP * problem.columns[column_idx].bytes;
    (sign * saved_s / bytes).max(0.0)
}
