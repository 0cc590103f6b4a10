//! The same queries through the product.

use arrow::array::{Array, RecordBatch};
use arrow::util::display::array_value_to_string;
use hotshelf::{Database, Session};
use hotshelf_cli::benchmark::{Measurement, measure};
use hotshelf_datagen::ssb;

use super::queries::{Answer, StarQuery};
use crate::failure::{ExperimentError, Result};
use crate::work;

/// A database with the benchmark's tables.
pub struct Engine<'a> {
    database: &'a Database,
    session: Session,
}

impl<'a> Engine<'a> {
    pub fn new(database: &'a Database) -> Self {
        let session = database.session();
        Self { database, session }
    }

    /// A query's answer.
    pub fn answer(&self, query: &StarQuery) -> Result<Answer> {
        let sql = sql(query);
        let batches: Vec<RecordBatch> = work(self.database, async {
            Ok(self.session.sql(sql.1).await?.collect().await?)
        })?;
        answer_of(query, &batches)
    }

    /// One run of a query.
    pub fn measure(&self, query: &StarQuery) -> Result<Measurement> {
        work(self.database, async {
            Ok(measure(&self.session, sql(query)).await?)
        })
    }
}

fn sql(query: &StarQuery) -> (&'static str, &'static str) {
    let found = ssb::queries().iter().find(|(name, _)| *name == query.name);
    found.copied().expect("the benchmark has every query")
}

/// Rows as texts of the groups and the sum.
fn answer_of(query: &StarQuery, batches: &[RecordBatch]) -> Result<Answer> {
    let mut answer = Answer::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let (mut groups, mut sum) = (Vec::new(), None);
            let schema = batch.schema();
            for (field, column) in schema.fields().iter().zip(batch.columns()) {
                let text = array_value_to_string(column, row).map_err(other)?;
                match field.name() == query.measure.name() {
                    // The sum of no rows is NULL.
                    true if column.is_null(row) => {}
                    true => sum = Some(text.parse().map_err(other)?),
                    false => groups.push(text),
                }
            }
            answer.extend(sum.map(|sum| (groups, sum)));
        }
    }
    answer.sort();
    Ok(answer)
}

fn other(error: impl std::error::Error + 'static) -> ExperimentError {
    ExperimentError::Other(Box::new(error))
}
