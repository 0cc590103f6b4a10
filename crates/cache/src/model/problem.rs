//! The model of pipeline time under a placement, and what it needs.

use super::window::TemplateTerm;
use crate::key::{ColumnId, Map};
use std::collections::BTreeMap;

/// Bandwidths of the machine, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tiers {
    /// Of the storage.
    pub storage_bandwidth: f64,
    /// Of the memory.
    pub memory_bandwidth: f64,
}

impl Tiers {
    /// Whether a model can be made of them: both positive numbers.
    pub fn is_known(&self) -> bool {
        self.storage_bandwidth.is_finite()
            && self.storage_bandwidth > 0.0
            && self.memory_bandwidth > 0.0
    }
}

/// How the columns of a pipeline share the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ModelForm {
    /// All missing bytes pass through one device: `sum of b (1 - x) / S`. Physically right for one device and a
    /// reader that always has the next bytes under way. As far as it has not, reading and processing do not overlap:
    /// [`Problem::overlap_loss`].
    #[default]
    Shared,
    /// The paper's Equations 1-3: each column has its part of the bandwidth, and the slowest column decides:
    /// `max of (1 - x) B / S`.
    Paper,
}

/// A column read by a term.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TermColumn {
    /// Its index in [`Problem::columns`].
    pub column_idx: usize,
    /// Bytes read of it, at most its size.
    pub bytes: f64,
}

/// One pipeline of the window.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// How much its time matters.
    pub weight: f64,
    /// What it reads; no column twice.
    pub columns: Vec<TermColumn>,
    /// Its own throughput in bytes per second; may be infinite.
    pub processing_bandwidth: f64,
    /// Which query it is part of: pipelines of one query run one after the other.
    pub query_idx: usize,
    /// Fingerprint of the query's plan without literals.
    pub template: u64,
    /// Number of the pipeline in its query.
    pub pipeline: u32,
}

impl Term {
    /// Bytes it reads.
    pub fn bytes(&self) -> f64 {
        self.columns.iter().map(|column| column.bytes).sum()
    }
}

/// A column that may be cached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProblemColumn {
    /// Which column.
    pub column: ColumnId,
    /// Its size in bytes: what a proportion is a proportion of.
    pub bytes: f64,
}

/// The optimisation problem of §4.2: which proportion `x` of each column to keep so that the weighted time of all
/// terms is least and the kept bytes fit into the budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The columns, each of positive size.
    pub columns: Vec<ProblemColumn>,
    /// The pipelines.
    pub terms: Vec<Term>,
    /// The machine.
    pub tiers: Tiers,
    /// Bytes that may be kept.
    pub budget_bytes: f64,
    /// The model.
    pub form: ModelForm,
    /// The part of the shorter of reading and processing that is not hidden behind the longer, 0 to 1. Of the
    /// shared form only; the paper's has none.
    pub overlap_loss: f64,
}

impl Problem {
    /// Puts a window's terms and the columns that exist together. Terms lose columns that exist no more.
    pub fn new(
        terms: &[TemplateTerm],
        sizes: &BTreeMap<ColumnId, u64>,
        tiers: Tiers,
        budget_bytes: u64,
        form: ModelForm,
    ) -> Self {
        let mut problem = Self {
            columns: Vec::new(),
            terms: Vec::new(),
            tiers,
            budget_bytes: budget_bytes as f64,
            form,
            overlap_loss: 0.0,
        };
        let mut column_idxs: Map<ColumnId, usize> = Map::default();
        let mut query_idxs: Map<u64, usize> = Map::default();
        for term in terms {
            let mut columns: Vec<TermColumn> = Vec::new();
            for (column, bytes) in &term.columns {
                let size = sizes.get(column).copied().unwrap_or(0) as f64;
                let bytes = bytes.min(size);
                if bytes <= 0.0 {
                    continue;
                }
                let column_idx = *column_idxs.entry(*column).or_insert_with(|| {
                    problem.columns.push(ProblemColumn {
                        column: *column,
                        bytes: size,
                    });
                    problem.columns.len() - 1
                });
                match columns
                    .iter_mut()
                    .find(|known| known.column_idx == column_idx)
                {
                    Some(known) => known.bytes = size.min(known.bytes + bytes),
                    None => columns.push(TermColumn { column_idx, bytes }),
                }
            }
            let next_idx = query_idxs.len();
            if !columns.is_empty() {
                problem.terms.push(Term {
                    weight: term.weight,
                    columns,
                    processing_bandwidth: term.processing_bandwidth,
                    query_idx: *query_idxs.entry(term.template).or_insert(next_idx),
                    template: term.template,
                    pipeline: term.pipeline,
                });
            }
        }
        problem
    }

    /// The predicted time of a term, in seconds, under proportions `x` of the columns.
    pub fn term_s(&self, term: &Term, x: &[f64]) -> f64 {
        let storage = self.tiers.storage_bandwidth;
        let memory = self.tiers.memory_bandwidth;
        let bytes = term.bytes();
        let floor_s = bytes / term.processing_bandwidth;
        let proportion = |column: &TermColumn| x[column.column_idx];
        let transfer_s = match self.form {
            ModelForm::Shared => {
                let cached = term.columns.iter().map(|c| c.bytes * proportion(c));
                let cached_bytes: f64 = cached.sum();
                let reading_s = (bytes - cached_bytes).max(0.0) / storage;
                let by_storage_s = reading_s + self.overlap_loss * floor_s;
                let by_processing_s = floor_s + self.overlap_loss * reading_s;
                by_storage_s.max(by_processing_s).max(cached_bytes / memory)
            }
            ModelForm::Paper => {
                let column_s = |column: &TermColumn| {
                    let x = proportion(column);
                    (bytes * (1.0 - x) / storage).max(bytes * x / memory)
                };
                term.columns.iter().map(column_s).fold(0.0, f64::max)
            }
        };
        transfer_s.max(floor_s)
    }

    /// The weighted time of all terms, in seconds.
    pub fn total_s(&self, x: &[f64]) -> f64 {
        let weighted = |term: &Term| term.weight * self.term_s(term, x);
        self.terms.iter().map(weighted).sum()
    }

    /// The time of each query, in seconds: the sum of its pipelines.
    pub fn query_s(&self, x: &[f64]) -> Vec<f64> {
        let query_count = self.terms.iter().map(|term| term.query_idx + 1).max();
        let mut times_s = vec![0.0; query_count.unwrap_or(0)];
        for term in &self.terms {
            times_s[term.query_idx] += self.term_s(term, x);
        }
        times_s
    }

    /// Whether any input differs from another problem's by more than a part of it. Weights are compared relative
    /// to their sum: only proportions between them matter.
    pub fn differs(&self, other: &Self, part: f64) -> bool {
        let moved = |a: f64, b: f64| a != b && (a - b).abs() > part * a.abs().max(b.abs());
        let total = |problem: &Self| problem.terms.iter().map(|t| t.weight).sum::<f64>();
        let (ours, theirs) = (total(self), total(other));
        let column_moved = |(a, b): (&ProblemColumn, &ProblemColumn)| {
            a.column != b.column || moved(a.bytes, b.bytes)
        };
        let term_moved = |(a, b): (&Term, &Term)| {
            (a.template, a.pipeline) != (b.template, b.pipeline)
                || moved(a.weight / ours, b.weight / theirs)
                || moved(a.processing_bandwidth, b.processing_bandwidth)
                || a.columns.len() != b.columns.len()
                || a.columns
                    .iter()
                    .zip(&b.columns)
                    .any(|(a, b)| a.column_idx != b.column_idx || moved(a.bytes, b.bytes))
        };
        self.form != other.form
            || (self.overlap_loss - other.overlap_loss).abs() > part
            || moved(self.budget_bytes, other.budget_bytes)
            || moved(self.tiers.storage_bandwidth, other.tiers.storage_bandwidth)
            || moved(self.tiers.memory_bandwidth, other.tiers.memory_bandwidth)
            || self.columns.len() != other.columns.len()
            || self.terms.len() != other.terms.len()
            || self.columns.iter().zip(&other.columns).any(column_moved)
            || self.terms.iter().zip(&other.terms).any(term_moved)
    }

    /// Bytes that proportions `x` keep.
    pub fn kept_bytes(&self, x: &[f64]) -> f64 {
        let kept = self
            .columns
            .iter()
            .zip(x)
            .map(|(column, x)| column.bytes * x);
        kept.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's numbers: 96 GB in four columns of 24 GB, 28 GB/s storage, 116 GB/s memory.
    fn paper(processing_bandwidth: f64, form: ModelForm) -> Problem {
        let columns = (0..4).map(|column| (ColumnId(column), 24e9)).collect();
        let term = TemplateTerm {
            template: 1,
            pipeline: 0,
            weight: 1.0,
            columns,
            processing_bandwidth,
            run_s: None,
        };
        let sizes = (0..4)
            .map(|column| (ColumnId(column), 24_000_000_000))
            .collect();
        let tiers = Tiers {
            storage_bandwidth: 28e9,
            memory_bandwidth: 116e9,
        };
        Problem::new(&[term], &sizes, tiers, 80_000_000_000, form)
    }

    #[test]
    fn both_forms_agree_when_all_columns_have_the_same_proportion() {
        for processing_bandwidth in [10e9, 28e9, 80e9, f64::INFINITY] {
            for x in [0.0, 0.3, 0.65, 1.0] {
                let times = [ModelForm::Shared, ModelForm::Paper]
                    .map(|form| paper(processing_bandwidth, form).total_s(&[x; 4]));
                assert!((times[0] - times[1]).abs() < 1e-9, "{times:?}");
            }
        }
    }

    #[test]
    fn equation_1_turns_flat_where_storage_meets_processing() {
        let problem = paper(80e9, ModelForm::Shared);
        let s = |x: f64| problem.total_s(&[x; 4]);
        assert!((s(0.0) - 96.0 / 28.0).abs() < 1e-9);
        assert!((s(0.5) - 48.0 / 28.0).abs() < 1e-9);
        let flat_from = 1.0 - 28.0 / 80.0;
        assert!((s(flat_from) - 96.0 / 80.0).abs() < 1e-9);
        assert_eq!(s(1.0), s(0.8));
    }

    #[test]
    fn one_missing_column_costs_the_paper_form_everything() {
        let x = [1.0, 1.0, 1.0, 0.0];
        assert!((paper(80e9, ModelForm::Paper).total_s(&x) - 96.0 / 28.0).abs() < 1e-9);
        assert!((paper(80e9, ModelForm::Shared).total_s(&x) - 96.0 / 80.0).abs() < 1e-9);
    }

    #[test]
    fn columns_that_are_gone_leave_the_model() {
        let mut problem = paper(80e9, ModelForm::Shared);
        assert_eq!(problem.terms[0].bytes(), 96e9);
        let term = TemplateTerm {
            template: 1,
            pipeline: 0,
            weight: 1.0,
            columns: vec![(ColumnId(9), 10.0), (ColumnId(8), 10.0)],
            processing_bandwidth: 1.0,
            run_s: None,
        };
        let sizes = [(ColumnId(8), 4)].into_iter().collect();
        problem = Problem::new(&[term], &sizes, problem.tiers, 1, ModelForm::Shared);
        assert_eq!(problem.columns.len(), 1);
        assert_eq!(problem.terms[0].bytes(), 4.0);
        assert_eq!(problem.query_s(&[0.0]).len(), 1);
    }
}
