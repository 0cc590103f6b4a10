//! Rows of a table's sample in place of the rows of a plan over that table alone.

use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;

use crate::statistics::column::together;
use crate::statistics::sample::{SampledRows, share};
use crate::table::Table;

/// A sample of the rows that a plan gives.
#[derive(Debug, Clone)]
pub(crate) struct Sampled {
    rows: Arc<SampledRows>,
    /// The number in the table of each of the plan's columns that is one of the table's.
    numbers: Vec<Option<usize>>,
    /// Rows of the table's sample that the plan's predicates kept.
    passing: Option<BooleanBuffer>,
}

impl Sampled {
    /// Of a scan of a table's columns of these numbers.
    pub fn of(table: &Table, columns: &[usize]) -> Option<Self> {
        Some(Self {
            rows: table.sample.get()?,
            numbers: columns.iter().copied().map(Some).collect(),
            passing: None,
        })
    }

    /// Of a projection of these rows, whose columns are those of the schema.
    pub fn projected(&self, exprs: &[Expr], schema: &DFSchema) -> Self {
        Self {
            numbers: exprs.iter().map(|expr| self.number(expr, schema)).collect(),
            ..self.clone()
        }
    }

    /// The number of the table's column that an expression is.
    fn number(&self, expr: &Expr, schema: &DFSchema) -> Option<usize> {
        match expr {
            Expr::Column(column) => {
                let idx = schema.maybe_index_of_column(column)?;
                *self.numbers.get(idx)?
            }
            Expr::Alias(alias) => self.number(&alias.expr, schema),
            _ => None,
        }
    }

    /// How many of the sample's rows the plan still has.
    fn len(&self) -> usize {
        let passing = self.passing.as_ref();
        passing.map_or(self.rows.len(), BooleanBuffer::count_set_bits)
    }

    /// How many combinations several keys have in this many rows of the plan; `None` for one key, of which sketches
    /// know more, and where the sample does not have the keys or has no row left.
    pub fn combinations(&self, keys: &[Expr], schema: &DFSchema, rows: f64) -> Option<f64> {
        let numbers = keys.iter().map(|key| self.number(key, schema));
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        if numbers.len() < 2 || self.len() == 0 {
            return None;
        }
        self.rows
            .combinations(&numbers, self.passing.as_ref(), rows)
    }
}

/// Predicates that are tried on a sample, one after the other.
pub(super) struct Tries<'a> {
    sampled: &'a Sampled,
    /// The rows that pass all of them.
    passing: Option<BooleanBuffer>,
    /// What each keeps by itself.
    shares: Vec<f64>,
}

impl<'a> Tries<'a> {
    pub fn new(sampled: &'a Sampled) -> Self {
        Self {
            sampled,
            passing: None,
            shares: Vec::new(),
        }
    }

    /// Tries a predicate, of which it is known `otherwise` that it keeps this share; whether that was possible.
    pub fn add(&mut self, predicate: &Expr, schema: &DFSchema, otherwise: f64) -> bool {
        let before = self.sampled;
        let own = before.rows.passing(predicate, |column| {
            let idx = schema.maybe_index_of_column(column)?;
            *before.numbers.get(idx)?
        });
        let Some(own) = own else {
            return false;
        };
        let own = match &before.passing {
            Some(passing) => passing & &own,
            None => own,
        };
        let kept = share(own.count_set_bits(), before.len(), otherwise);
        self.shares.push(kept);
        self.passing = Some(match self.passing.take() {
            Some(passing) => &passing & &own,
            None => own,
        });
        true
    }

    /// The share of rows that all tried predicates keep together, and these rows of the sample; `None` if none was
    /// tried.
    pub fn finish(self) -> Option<(f64, Sampled)> {
        let passing = self.passing?;
        let kept = share(
            passing.count_set_bits(),
            self.sampled.len(),
            together(self.shares),
        );
        let sampled = Sampled {
            passing: Some(passing),
            ..self.sampled.clone()
        };
        Some((kept, sampled))
    }
}
