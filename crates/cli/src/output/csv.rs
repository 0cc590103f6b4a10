//! CSV and TSV: a line of names, then a line per row. NULL is nothing, an empty text is `""`.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::FormatOptions;

use super::AnswerWriter;
use super::cells::Cells;
use super::sink::Sink;
use crate::failure::{Failure, Result};

pub(super) struct CsvWriter<'a> {
    sink: &'a mut Sink,
    delimiter: char,
}

impl<'a> CsvWriter<'a> {
    /// Writes the names.
    pub fn new(sink: &'a mut Sink, schema: &SchemaRef, delimiter: char) -> Result<Self> {
        let mut line = String::new();
        for (idx, field) in schema.fields().iter().enumerate() {
            if idx > 0 {
                line.push(delimiter);
            }
            push_text(&mut line, field.name(), delimiter);
        }
        writeln!(sink, "{line}").map_err(failure)?;
        Ok(Self { sink, delimiter })
    }
}

impl AnswerWriter for CsvWriter<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default().with_display_error(false);
        let columns = Cells::of(batch, &options).map_err(failure)?;
        let (mut line, mut value) = (String::new(), String::new());
        for row_idx in 0..batch.num_rows() {
            line.clear();
            for (idx, column) in columns.iter().enumerate() {
                if idx > 0 {
                    line.push(self.delimiter);
                }
                if !column.is_null(row_idx) {
                    value.clear();
                    column.push(row_idx, &mut value).map_err(failure)?;
                    push_text(&mut line, &value, self.delimiter);
                }
            }
            line.push('\n');
            self.sink.write_all(line.as_bytes()).map_err(failure)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Adds a text, in quotes if it could be taken for something else.
fn push_text(line: &mut String, text: &str, delimiter: char) {
    if text.is_empty() || text.contains([delimiter, '"', '\n', '\r']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(text);
    }
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Format {
        format: "csv",
        what: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_they_could_be_taken_for_something_else() {
        let mut line = String::new();
        for text in ["a", "", "b,c", "d\"e", "f\ng", " h "] {
            push_text(&mut line, text, ',');
            line.push(',');
        }
        assert_eq!(line, "a,\"\",\"b,c\",\"d\"\"e\",\"f\ng\", h ,");
    }
}
