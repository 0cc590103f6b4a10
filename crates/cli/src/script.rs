//! Runs SQL statements and writes their answers: what `sql` and `shell` share.

use std::time::{Duration, Instant};

use futures::StreamExt;
use hotshelf::{Session, Statement};

use crate::failure::{Failure, Result};
use crate::output::Output;

/// What a statement did.
pub struct Outcome {
    /// Rows written, for statements that answer with rows.
    pub row_count: Option<u64>,
    /// What was done, for statements that do not.
    pub message: Option<String>,
    /// From the text to the last row.
    pub elapsed: Duration,
}

impl Outcome {
    /// `3 rows` or what was done.
    pub fn summary(&self) -> String {
        match (self.row_count, &self.message) {
            (Some(1), _) => "1 row".to_owned(),
            (Some(count), _) => format!("{count} rows"),
            (None, Some(message)) => message.clone(),
            (None, None) => "done".to_owned(),
        }
    }
}

/// Runs one statement and writes its rows as they come.
pub async fn run(session: &Session, statement: Statement, output: &mut Output) -> Result<Outcome> {
    let start = Instant::now();
    let answer = session.execute(statement).await?;
    let mut batches = answer.batches;
    let has_rows = answer.message.is_none() && !answer.schema.fields().is_empty();
    let mut row_count = 0;
    if has_rows {
        let mut written = output.begin(&answer.schema)?;
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(hotshelf::Error::from_query)?;
            row_count += batch.num_rows() as u64;
            if !written.write(&batch)? {
                break;
            }
        }
        written.finish()?;
        output.flush()?;
    } else {
        while let Some(batch) = batches.next().await {
            batch.map_err(hotshelf::Error::from_query)?;
        }
    }
    Ok(Outcome {
        row_count: has_rows.then_some(row_count),
        message: answer.message,
        elapsed: start.elapsed(),
    })
}

/// Runs all statements of a text, one after the other; `done` hears of each. Nothing runs if the text cannot
/// be read to its end.
pub async fn run_all(
    session: &Session,
    text: &str,
    output: &mut Output,
    mut done: impl FnMut(usize, &Outcome),
) -> Result<()> {
    let statements = session.parse(text)?;
    let many = statements.len() > 1;
    for (idx, statement) in statements.into_iter().enumerate() {
        let number = idx + 1;
        match run(session, statement, output).await {
            Ok(outcome) => done(number, &outcome),
            Err(failure) if many => {
                return Err(Failure::Statement {
                    number,
                    source: Box::new(failure),
                });
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}
