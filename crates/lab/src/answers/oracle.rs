//! Another engine that answers the same statements: DuckDB behind a pipe, or a stub in tests.
//!
//! The protocol is a line of JSON each way: `{"sql": …}` is answered with `{"rows": …}` or `{"error": …}`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use parquet::arrow::ArrowWriter;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::answers::engine;
use crate::answers::render;
use crate::answers::rows::{Rows, from_json};
use crate::answers::schema::{Dialect, World};

/// What can go wrong with an oracle.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    #[error("cannot start the oracle '{command}': {source}")]
    Start {
        command: String,
        source: std::io::Error,
    },
    #[error("the oracle has ended: {0}")]
    Pipe(#[from] std::io::Error),
    #[error("the oracle's answer is not JSON with rows or an error: {0}")]
    Answer(String),
    #[error("cannot write a table for the oracle: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    #[error("cannot write a table for the oracle: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    #[error("the oracle refuses '{sql}': {message}")]
    Refused { sql: String, message: String },
}

/// Answers statements about the same tables. Statements are sent first and answered later, in their order.
pub trait Oracle {
    /// Drops what there is and makes the tables.
    fn load(&mut self, world: &World) -> Result<(), OracleError>;
    /// Sends a statement; its answer is to be fetched.
    fn send(&mut self, sql: &str) -> Result<(), OracleError>;
    /// The rows, or why there are none.
    fn answer(&mut self) -> Result<Result<Rows, String>, OracleError>;
}

/// A program behind a pipe.
pub struct Pipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Tables on their way.
    folder: TempDir,
}

impl Pipe {
    /// Starts a program; its words are separated by blanks.
    pub fn start(command: &str) -> Result<Self, OracleError> {
        let failed = |source| OracleError::Start {
            command: command.to_owned(),
            source,
        };
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        let mut process = Command::new(program);
        process
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = process.spawn().map_err(failed)?;
        let closed = || std::io::Error::other("it has no pipes");
        let input = child.stdin.take().ok_or_else(|| failed(closed()))?;
        let output = child.stdout.take().ok_or_else(|| failed(closed()))?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
            folder: tempfile::tempdir().map_err(failed)?,
        })
    }

    fn must(&mut self, sql: &str) -> Result<(), OracleError> {
        self.send(sql)?;
        self.answer()?
            .map(|_| ())
            .map_err(|message| OracleError::Refused {
                sql: sql.to_owned(),
                message,
            })
    }

    fn request(&mut self, request: &Json) -> Result<(), OracleError> {
        writeln!(self.input, "{request}")?;
        Ok(self.input.flush()?)
    }
}

impl Oracle for Pipe {
    fn load(&mut self, world: &World) -> Result<(), OracleError> {
        self.request(&json!({"reset": true}))?;
        self.answer()?.map_err(OracleError::Answer)?;
        for table in &world.tables {
            self.must(&render::create_table(table, Dialect::Duckdb))?;
            if table.row_count() == 0 {
                continue;
            }
            let path = self.folder.path().join(format!("{}.parquet", table.name));
            let batch = engine::batch(table, None)?;
            let mut writer = ArrowWriter::try_new(File::create(&path)?, batch.schema(), None)?;
            writer.write(&batch)?;
            writer.close()?;
            let (name, path) = (&table.name, path.display());
            self.must(&format!(
                "INSERT INTO {name} SELECT * FROM read_parquet('{path}')"
            ))?;
        }
        Ok(())
    }

    fn send(&mut self, sql: &str) -> Result<(), OracleError> {
        self.request(&json!({ "sql": sql }))
    }

    fn answer(&mut self) -> Result<Result<Rows, String>, OracleError> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(OracleError::Answer("nothing".into()));
        }
        let invalid = || OracleError::Answer(line.chars().take(200).collect());
        let json: Json = serde_json::from_str(&line).map_err(|_| invalid())?;
        match (&json["rows"], json["error"].as_str()) {
            (_, Some(error)) => Ok(Err(error.to_owned())),
            (rows, None) => from_json(rows).map(Ok).ok_or_else(invalid),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
