//! Rows of a table's sample in place of the rows of a plan over that table alone.

use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;

use crate::statistics::distribution::Distribution;
use crate::statistics::sample::{SampledRows, Tries};
use crate::table::Table;

/// A sample of the rows that a plan gives.
#[derive(Debug, Clone)]
pub(crate) struct Sampled {
    table: Arc<Table>,
    rows: Arc<SampledRows>,
    /// The number in the table of each of the plan's columns that is one of the table's.
    numbers: Vec<Option<usize>>,
    /// Rows of the table's sample that the plan's predicates kept.
    passing: Option<BooleanBuffer>,
}

impl Sampled {
    /// Of a scan of a table's columns of these numbers.
    pub fn of(table: &Arc<Table>, columns: &[usize]) -> Option<Self> {
        Some(Self {
            table: table.clone(),
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

    /// How the values of one of the plan's columns are spread over all of the table's rows.
    pub fn distribution(&self, idx: usize) -> Option<Arc<Distribution>> {
        self.rows.distribution((*self.numbers.get(idx)?)?, None)
    }

    /// The same over the plan's rows.
    pub fn distribution_left(&self, idx: usize) -> Option<Arc<Distribution>> {
        let number = (*self.numbers.get(idx)?)?;
        self.rows.distribution(number, self.passing.as_ref())
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

    /// How many combinations of values some of the plan's columns have in the table; `None` where that has not been
    /// counted. A sample of a few rows of many cannot tell: what is not known yet is asked for.
    pub fn combinations_of(&self, columns: &[usize]) -> Option<f64> {
        let numbers = columns.iter().map(|idx| *self.numbers.get(*idx)?);
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        let rows = self.table.row_count();
        if rows <= self.rows.len() as u64 {
            return self.rows.combinations(&numbers, None, rows as f64);
        }
        self.table.combinations.get(&numbers)
    }

    /// How many combinations several keys have in this many rows of the plan; `None` for one key, of which sketches
    /// know more, and where the sample does not have the keys or has no row left.
    pub fn combinations(&self, keys: &[Expr], schema: &DFSchema, rows: f64) -> Option<f64> {
        let numbers = keys.iter().map(|key| self.number(key, schema));
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        if numbers.len() < 2 {
            return None;
        }
        let is_whole = self.rows.len() as u64 >= self.table.row_count();
        let counted = match is_whole {
            true => None,
            false => self.table.combinations.get(&numbers),
        };
        let passing = self.passing.as_ref();
        match (passing, counted) {
            (None, Some(counted)) => Some(counted),
            _ => {
                let guessed = self.rows.combinations(&numbers, passing, rows)?;
                Some(guessed.min(counted.unwrap_or(f64::MAX)))
            }
        }
    }
}
