//! A table with borders, for reading. Long answers are cut: nobody reads them.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::FormatOptions;
use arrow::util::pretty::pretty_format_batches_with_options;

use super::AnswerWriter;
use super::sink::Sink;
use crate::failure::{Failure, Result, note};

/// Rows that are shown.
const ROWS_MAX: usize = 1_000;

pub(super) struct TableWriter<'a> {
    sink: &'a mut Sink,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    row_count: usize,
    is_cut: bool,
}

impl<'a> TableWriter<'a> {
    pub fn new(sink: &'a mut Sink, schema: SchemaRef) -> Self {
        Self {
            sink,
            schema,
            batches: Vec::new(),
            row_count: 0,
            is_cut: false,
        }
    }
}

impl AnswerWriter for TableWriter<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<bool> {
        let kept = batch.num_rows().min(ROWS_MAX - self.row_count);
        if kept > 0 {
            self.batches.push(batch.slice(0, kept));
        }
        self.row_count += kept;
        self.is_cut |= kept < batch.num_rows();
        Ok(!self.is_cut)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.batches.is_empty() {
            self.batches
                .push(RecordBatch::new_empty(self.schema.clone()));
        }
        let options = FormatOptions::default().with_null("NULL");
        let failure = |what: String| Failure::Format {
            format: "table",
            what,
        };
        let table = pretty_format_batches_with_options(&self.batches, &options)
            .map_err(|error| failure(error.to_string()))?;
        writeln!(self.sink, "{table}").map_err(|error| failure(error.to_string()))?;
        if self.is_cut {
            note(&format!(
                "the first {ROWS_MAX} rows; other formats (csv, parquet, …) give all"
            ));
        }
        Ok(())
    }
}
