//! A Markdown table, row by row.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::FormatOptions;

use super::AnswerWriter;
use super::cells::Cells;
use super::sink::Sink;
use crate::failure::{Failure, Result};

pub(super) struct MarkdownWriter<'a>(&'a mut Sink);

impl<'a> MarkdownWriter<'a> {
    /// Writes the names, and the line below them that aligns numbers to the right.
    pub fn new(sink: &'a mut Sink, schema: &SchemaRef) -> Result<Self> {
        let mut head = String::from("|");
        let mut line = String::from("|");
        for field in schema.fields() {
            head += &format!(" {} |", escape(field.name()));
            line += if is_number(field.data_type()) {
                "---:|"
            } else {
                "---|"
            };
        }
        writeln!(sink, "{head}\n{line}").map_err(failure)?;
        Ok(Self(sink))
    }
}

impl AnswerWriter for MarkdownWriter<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default().with_display_error(false);
        let columns = Cells::of(batch, &options).map_err(failure)?;
        let mut value = String::new();
        for row_idx in 0..batch.num_rows() {
            write!(self.0, "|").map_err(failure)?;
            for column in &columns {
                value.clear();
                column.push(row_idx, &mut value).map_err(failure)?;
                write!(self.0, " {} |", escape(&value)).map_err(failure)?;
            }
            writeln!(self.0).map_err(failure)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// A cell must stay in its row and column.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace("\r\n", "<br>")
        .replace('\n', "<br>")
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Format {
        format: "markdown",
        what: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_leave_their_row_or_column() {
        assert_eq!(escape("a|b\nc\\"), "a\\|b<br>c\\\\");
    }
}
