//! A table with borders, for reading. A terminal gets the first rows of a long answer; pipes and files get all.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::FormatOptions;
use unicode_width::UnicodeWidthStr;

use super::AnswerWriter;
use super::cells::Cells;
use super::sink::Sink;
use crate::failure::{Failure, Result, note};
use crate::progress::count;

/// Rows that a terminal shows: more is not read there.
const SHOWN_ROWS_MAX: u64 = 1_000;
/// Rows and bytes of text that decide how wide columns are. A wider cell of a later row is written whole and
/// pushes its neighbours to the right.
const MEASURED_ROWS_MAX: usize = 10_000;
const MEASURED_BYTES_MAX: usize = 16 << 20;

pub(super) struct TableWriter<'a> {
    sink: &'a mut Sink,
    is_watched: bool,
    row_count: u64,
    names: Vec<String>,
    /// The first rows, while they decide how wide columns are.
    measured: Vec<Vec<String>>,
    measured_bytes: usize,
    /// Known when the first rows are written.
    widths: Option<Vec<usize>>,
}

impl<'a> TableWriter<'a> {
    /// Of an answer that `is_watched` on a terminal, only the first rows are shown.
    pub fn new(sink: &'a mut Sink, schema: &SchemaRef, is_watched: bool) -> Self {
        let names = schema.fields().iter();
        Self {
            sink,
            is_watched,
            row_count: 0,
            names: names.map(|field| clean(field.name())).collect(),
            measured: Vec::new(),
            measured_bytes: 0,
            widths: None,
        }
    }

    fn row(&mut self, row: Vec<String>) -> Result<()> {
        if let Some(widths) = &self.widths {
            return write_row(self.sink, &row, widths);
        }
        self.measured_bytes += row.iter().map(String::len).sum::<usize>();
        self.measured.push(row);
        let enough =
            self.measured.len() >= MEASURED_ROWS_MAX || self.measured_bytes >= MEASURED_BYTES_MAX;
        if enough { self.start() } else { Ok(()) }
    }

    /// Writes the head and the rows so far.
    fn start(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.measured);
        let mut widths = vec![0; self.names.len()];
        for row in rows.iter().chain([&self.names]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell
                    .lines()
                    .map(|line| line.width())
                    .fold(*width, usize::max);
            }
        }
        write_line(self.sink, &widths)?;
        write_row(self.sink, &self.names, &widths)?;
        write_line(self.sink, &widths)?;
        for row in &rows {
            write_row(self.sink, row, &widths)?;
        }
        self.widths = Some(widths);
        Ok(())
    }

    /// Writes the last line, and the head if there were few rows.
    fn end(&mut self) -> Result<()> {
        if self.widths.is_none() {
            self.start()?;
        }
        match &self.widths {
            Some(widths) => write_line(self.sink, widths),
            None => Ok(()),
        }
    }

    fn rows_to_show(&self, batch: &RecordBatch) -> usize {
        let row_count = batch.num_rows();
        match self.is_watched {
            true => row_count.min(SHOWN_ROWS_MAX.saturating_sub(self.row_count) as usize),
            false => row_count,
        }
    }
}

impl AnswerWriter for TableWriter<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default().with_null("NULL");
        let columns = Cells::of(batch, &options).map_err(failure)?;
        let shown = self.rows_to_show(batch);
        for row_idx in 0..shown {
            let cells = columns.iter().map(|column| column.text(row_idx));
            let cells = cells.map(|cell| cell.map(|cell| clean(&cell)));
            self.row(
                cells
                    .collect::<std::result::Result<_, _>>()
                    .map_err(failure)?,
            )?;
        }
        let before = self.row_count;
        self.row_count += batch.num_rows() as u64;
        if self.is_watched && before <= SHOWN_ROWS_MAX && self.row_count > SHOWN_ROWS_MAX {
            // The rest is only counted; what is shown need not wait for that.
            self.end()?;
            self.sink.flush().map_err(failure)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.is_watched && self.row_count > SHOWN_ROWS_MAX {
            note(&format!(
                "showing the first {} of {} rows; --output FILE gets all",
                count(SHOWN_ROWS_MAX),
                count(self.row_count)
            ));
            return Ok(());
        }
        self.end()
    }
}

/// Without what would move the terminal's cursor.
fn clean(text: &str) -> String {
    text.replace('\t', "    ").replace('\r', "")
}

fn write_line(sink: &mut Sink, widths: &[usize]) -> Result<()> {
    let mut line = String::from("+");
    for width in widths {
        line += &"-".repeat(width + 2);
        line.push('+');
    }
    writeln!(sink, "{line}").map_err(failure)
}

/// Writes as many lines as the cell with the most of them has.
fn write_row(sink: &mut Sink, row: &[String], widths: &[usize]) -> Result<()> {
    let mut cells: Vec<_> = row.iter().map(|cell| cell.split('\n')).collect();
    let height = row.iter().map(|cell| cell.split('\n').count()).max();
    let mut line = String::new();
    for _ in 0..height.unwrap_or(0) {
        line.clear();
        line.push('|');
        for (cell, width) in cells.iter_mut().zip(widths) {
            let text = cell.next().unwrap_or_default();
            let blanks = width.saturating_sub(text.width()) + 1;
            line.push(' ');
            line.push_str(text);
            line.extend(std::iter::repeat_n(' ', blanks));
            line.push('|');
        }
        line.push('\n');
        sink.write_all(line.as_bytes()).map_err(failure)?;
    }
    Ok(())
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Format {
        format: "table",
        what: error.to_string(),
    }
}
