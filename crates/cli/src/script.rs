//! Runs SQL statements and writes their answers: what `sql` and `shell` share.

mod running;

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use hotshelf::{Session, Statement};

use crate::failure::{Failure, Result};
use crate::output::{Answer, Output};
use running::Running;

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
    let mut running = Running::start(session, statement)?;
    let (schema, message) = running.head().await?;
    let has_rows = message.is_none() && !schema.fields().is_empty();
    // A statement that fails before its first row leaves nothing of an answer.
    let first = running.next().await?;
    let written = match has_rows {
        true => Some(output.begin(&schema)?),
        false => None,
    };
    let row_count = write_all(&mut running, first, written).await?;
    output.flush()?;
    Ok(Outcome {
        row_count: has_rows.then_some(row_count),
        message,
        elapsed: start.elapsed(),
    })
}

/// Writes the rows, if they are an answer; returns their number.
async fn write_all(
    running: &mut Running,
    first: Option<RecordBatch>,
    mut written: Option<Answer<'_>>,
) -> Result<u64> {
    let mut row_count = 0;
    let mut next = first;
    while let Some(batch) = next {
        row_count += batch.num_rows() as u64;
        if let Some(written) = &mut written {
            written.write(&batch)?;
        }
        next = running.next().await?;
    }
    if let Some(written) = written {
        written.finish()?;
    }
    Ok(row_count)
}

/// Runs all statements of a text, one after the other; `done` hears of each. Nothing runs if the text cannot
/// be read to its end.
pub async fn run_all(
    session: &Session,
    text: &str,
    output: &mut Output,
    mut done: impl FnMut(usize, &Outcome),
) -> Result<()> {
    let statements = session.parse(without_mark(text))?;
    let count = statements.len();
    for (idx, statement) in statements.into_iter().enumerate() {
        let number = idx + 1;
        match run(session, statement, output).await {
            Ok(outcome) => done(number, &outcome),
            Err(failure) if count > 1 => {
                return Err(Failure::Statement {
                    number,
                    count,
                    source: Box::new(failure),
                });
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Text without the byte order mark that some editors write before it.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
