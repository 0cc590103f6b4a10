//! Rows of a table's sample in place of the rows of a plan over that table alone.

use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;

use crate::statistics::sample::{SampledRows, Tries};
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

    /// Nothing tried yet on these rows.
    pub fn tries(&self) -> Tries {
        Tries::new(&self.rows, self.passing.clone())
    }

    /// Those of the sample's rows that a predicate of the plan keeps; `None` if that cannot be tried.
    pub fn keeping(&self, predicate: &Expr, schema: &DFSchema) -> Option<BooleanBuffer> {
        self.rows.passing(predicate, |column| {
            let idx = schema.maybe_index_of_column(column)?;
            *self.numbers.get(idx)?
        })
    }

    /// The rows with fewer of them, of which these are left.
    pub fn with(self, passing: BooleanBuffer) -> Self {
        Self {
            passing: Some(passing),
            ..self
        }
    }

    /// How many combinations several keys have in this many rows of the plan; `None` for one key, of which sketches
    /// know more, and where the sample does not have the keys or has no row left.
    pub fn combinations(&self, keys: &[Expr], schema: &DFSchema, rows: f64) -> Option<f64> {
        let numbers = keys.iter().map(|key| self.number(key, schema));
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        if numbers.len() < 2 {
            return None;
        }
        self.rows
            .combinations(&numbers, self.passing.as_ref(), rows)
    }
}
