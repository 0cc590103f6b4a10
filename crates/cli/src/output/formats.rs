//! The formats that the libraries of Arrow and Parquet write.

use arrow::array::Array as _;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter as Ipc;
use arrow::json::writer::{JsonArray, JsonFormat, LineDelimited, Writer as Json, WriterBuilder};
use arrow::util::display::FormatOptions;
use parquet::arrow::ArrowWriter as Parquet;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::AnswerWriter;
use super::cells::Cells;
use super::sink::Sink;
use crate::failure::{Failure, Result};

/// Rows of a Parquet row group: what is held in memory while writing.
const PARQUET_ROW_GROUP_ROWS: usize = 131_072;

/// JSON, as one array or one object per line.
pub(super) struct JsonWriter<'a, F: JsonFormat> {
    json: Json<&'a mut Sink, F>,
    name: &'static str,
}

pub(super) fn json(sink: &mut Sink) -> JsonWriter<'_, JsonArray> {
    let json = WriterBuilder::new().with_explicit_nulls(true).build(sink);
    JsonWriter { json, name: "json" }
}

pub(super) fn ndjson(sink: &mut Sink) -> JsonWriter<'_, LineDelimited> {
    let json = WriterBuilder::new().with_explicit_nulls(true).build(sink);
    JsonWriter {
        json,
        name: "ndjson",
    }
}

impl<F: JsonFormat> AnswerWriter for JsonWriter<'_, F> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        check_times(batch).map_err(arrow_failure(self.name))?;
        self.json.write(batch).map_err(arrow_failure(self.name))?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        use std::io::Write;
        self.json.finish().map_err(arrow_failure(self.name))?;
        let sink = self.json.into_inner();
        if self.name == "json" {
            let ended = writeln!(sink);
            ended.map_err(|error| arrow_failure(self.name)(error.into()))?;
        }
        Ok(())
    }
}

/// Fails at a time beyond the calendar, which the library would write as the text of an error.
fn check_times(batch: &RecordBatch) -> std::result::Result<(), ArrowError> {
    let options = FormatOptions::default().with_display_error(false);
    let columns = batch.columns().iter();
    let times = columns.filter(|column| column.data_type().is_temporal());
    let mut text = String::new();
    for column in times {
        let cells = Cells::of_column(column, &options)?;
        for row_idx in 0..column.len() {
            text.clear();
            cells.push(row_idx, &mut text)?;
        }
    }
    Ok(())
}

/// Arrow IPC, the file format.
pub(super) struct ArrowWriter<'a>(Ipc<&'a mut Sink>);

impl<'a> ArrowWriter<'a> {
    pub fn new(sink: &'a mut Sink, schema: &SchemaRef) -> Result<Self> {
        Ipc::try_new(sink, schema)
            .map(Self)
            .map_err(arrow_failure("arrow"))
    }
}

impl AnswerWriter for ArrowWriter<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.0.write(batch).map_err(arrow_failure("arrow"))?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.0.finish().map_err(arrow_failure("arrow"))
    }
}

/// Parquet, compressed with Zstandard.
pub(super) struct ParquetWriter<'a>(Parquet<&'a mut Sink>);

impl<'a> ParquetWriter<'a> {
    pub fn new(sink: &'a mut Sink, schema: &SchemaRef) -> Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(PARQUET_ROW_GROUP_ROWS))
            .build();
        Parquet::try_new(sink, schema.clone(), Some(properties))
            .map(Self)
            .map_err(parquet_failure)
    }
}

impl AnswerWriter for ParquetWriter<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.0.write(batch).map_err(parquet_failure)?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.close().map(|_| ()).map_err(parquet_failure)
    }
}

fn arrow_failure(format: &'static str) -> impl Fn(ArrowError) -> Failure {
    move |error| Failure::Format {
        format,
        what: error.to_string(),
    }
}

fn parquet_failure(error: ParquetError) -> Failure {
    Failure::Format {
        format: "parquet",
        what: error.to_string(),
    }
}
