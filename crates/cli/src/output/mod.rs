//! Answers on their way out: which format, which place.
//!
//! Every format writes batches as they come; `table` keeps the first rows, to know how wide columns are.

mod cells;
mod csv;
mod formats;
mod markdown;
mod sink;
mod table;

use std::fmt;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::failure::{Failure, Result};
use sink::Sink;

/// How rows are written.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Table,
    Csv,
    Tsv,
    Json,
    Ndjson,
    Markdown,
    Parquet,
    Arrow,
}

impl Format {
    const ALL: [(Format, &'static str); 8] = [
        (Format::Table, "table"),
        (Format::Csv, "csv"),
        (Format::Tsv, "tsv"),
        (Format::Json, "json"),
        (Format::Ndjson, "ndjson"),
        (Format::Markdown, "markdown"),
        (Format::Parquet, "parquet"),
        (Format::Arrow, "arrow"),
    ];

    /// The format of that name.
    pub fn parse(name: &str) -> Result<Self> {
        let found = Self::ALL
            .iter()
            .find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(format, _)| *format).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name)| name).join(", ");
            Failure::usage(
                format!("there is no output format '{name}'"),
                format!("the formats are {names}"),
            )
        })
    }

    /// The format that files of this name's ending have.
    pub fn of_file(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "csv" => Some(Self::Csv),
            "tsv" => Some(Self::Tsv),
            "json" => Some(Self::Json),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "md" | "markdown" => Some(Self::Markdown),
            "parquet" => Some(Self::Parquet),
            "arrow" => Some(Self::Arrow),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether it is not for reading, and one answer is all that a file of it holds.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where answers go.
#[allow(missing_docs)]
#[derive(Debug, Clone)]
pub enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    fn is_terminal(&self) -> bool {
        matches!(self, Self::Stdout) && std::io::stdout().is_terminal()
    }

    /// Refuses to write bytes onto a terminal.
    pub fn check(&self, format: Format) -> Result<()> {
        if format.is_binary() && self.is_terminal() {
            return Err(Failure::usage(
                format!("{format} is not for a terminal"),
                "add --output FILE or redirect the output",
            ));
        }
        Ok(())
    }
}

/// Writes one answer.
trait AnswerWriter {
    /// Takes a batch.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Writes what is left.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Writes answers one after the other to one place.
pub struct Output {
    format: Format,
    sink: Sink,
    /// It goes to a terminal: long tables are cut.
    is_watched: bool,
    answer_count: usize,
}

impl Output {
    /// Opens the place. A file appears under its name only when [`Output::close`] is called.
    pub fn open(target: Target, format: Format) -> Result<Self> {
        Ok(Self {
            format,
            is_watched: target.is_terminal(),
            sink: Sink::open(target)?,
            answer_count: 0,
        })
    }

    /// Starts the next answer.
    pub fn begin(&mut self, schema: &SchemaRef) -> Result<Answer<'_>> {
        if self.format.is_binary() && self.answer_count > 0 {
            return Err(Failure::usage(
                format!("a file of format {} holds one answer", self.format),
                "run one statement that answers with rows, or choose csv, json or ndjson",
            ));
        }
        self.answer_count += 1;
        let sink = &mut self.sink;
        let broken = sink.broken();
        let writer: Box<dyn AnswerWriter + '_> = match self.format {
            Format::Table => Box::new(table::TableWriter::new(sink, schema, self.is_watched)),
            Format::Markdown => Box::new(markdown::MarkdownWriter::new(sink, schema)?),
            Format::Csv => Box::new(csv::CsvWriter::new(sink, schema, ',')?),
            Format::Tsv => Box::new(csv::CsvWriter::new(sink, schema, '\t')?),
            Format::Json => Box::new(formats::json(sink)),
            Format::Ndjson => Box::new(formats::ndjson(sink)),
            Format::Parquet => Box::new(formats::ParquetWriter::new(sink, schema)?),
            Format::Arrow => Box::new(formats::ArrowWriter::new(sink, schema)?),
        };
        Ok(Answer { writer, broken })
    }

    /// Writes a whole answer that is at hand.
    pub fn print(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut answer = self.begin(&batch.schema())?;
        answer.write(batch)?;
        answer.finish()
    }

    /// Pushes out what is buffered, so that an answer is seen before the next is computed.
    pub fn flush(&mut self) -> Result<()> {
        self.sink.flush_all()
    }

    /// All is written: the file gets its name.
    pub fn close(self) -> Result<()> {
        self.sink.close()
    }
}

/// Prints lines of text on standard output.
pub fn print_lines(lines: &[String]) -> Result<()> {
    write_lines(Target::Stdout, lines)
}

/// Writes lines of text.
pub fn write_lines(target: Target, lines: &[String]) -> Result<()> {
    use std::io::Write;
    let mut sink = Sink::open(target)?;
    for line in lines {
        writeln!(sink, "{line}").map_err(|error| sink.failure(error))?;
    }
    sink.close()
}

/// One answer being written.
pub struct Answer<'a> {
    writer: Box<dyn AnswerWriter + 'a>,
    broken: sink::Broken,
}

impl Answer<'_> {
    /// Takes a batch.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = self.writer.write(batch);
        written.map_err(|failure| self.broken.or(failure))
    }

    /// Writes what is left.
    pub fn finish(self) -> Result<()> {
        let finished = self.writer.finish();
        finished.map_err(|failure| self.broken.or(failure))
    }
}
