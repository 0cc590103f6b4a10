//! Text files, compressed or not, into batches of bounded memory.
//!
//! Arrow's decoders buffer as many rows as a batch has, whatever their length. Here the bytes of a batch are kept
//! until it is complete: if they grow too many, they are decoded again in batches of fewer rows. Only a single row
//! that is too long is an error.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv::reader::Format;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use super::file_format::FileFormat;
use super::text_errors::{csv_fields_error, csv_value_error, plain, uneven};
use super::{Limits, bad, files};
use crate::error::{Error, Result};

/// Lines that are looked at to guess the types of a text file.
const INFER_LINES: usize = 10_000;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Rows of a batch where memory allows.
const BATCH_ROWS_MAX: usize = 8192;

/// How a text file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextOptions {
    pub format: FileFormat,
    /// Separator of CSV columns; by the file's ending if not given.
    pub delimiter: Option<u8>,
    /// Whether a CSV file starts with a line of names.
    pub header: bool,
}

impl TextOptions {
    fn delimiter_of(&self, path: &Path) -> u8 {
        let implied = || files::ending(path).map_or(b',', |ending| ending.delimiter);
        self.delimiter.unwrap_or_else(implied)
    }

    fn csv_format(&self, path: &Path) -> Format {
        Format::default()
            .with_header(self.header)
            .with_delimiter(self.delimiter_of(path))
    }
}

/// The bytes of a text file, decompressed.
pub(crate) fn unpacked(file: File, path: &Path) -> Result<Box<dyn Read + Send>> {
    files::packing(path)
        .convert_read(file)
        .map_err(|error| bad(path, error.to_string()))
}

fn open_unpacked(path: &Path) -> Result<Box<dyn Read + Send>> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    unpacked(file, path)
}

/// The columns of a text file, with the types of its first lines.
pub(crate) fn infer(path: &Path, options: TextOptions, limits: Limits) -> Result<SchemaRef> {
    let mut lines = INFER_LINES;
    loop {
        let mut input = open_unpacked(path)?.take(limits.text_bytes_max);
        let inferred = infer_lines(&mut input, path, options, lines);
        // Lines that end behind the limit would be judged by their first part.
        if input.limit() == 0 && lines > 0 {
            lines /= 4;
            continue;
        }
        if input.limit() == 0 {
            return Err(too_long(path, limits));
        }
        let schema = inferred?;
        if schema.fields().is_empty() {
            return Err(bad(path, "it has no columns"));
        }
        ensure_unique(&schema, path)?;
        return Ok(Arc::new(schema));
    }
}

fn infer_lines(
    input: &mut (impl Read + ?Sized),
    path: &Path,
    options: TextOptions,
    lines: usize,
) -> Result<Schema> {
    let inferred = match options.format {
        FileFormat::Json => {
            arrow::json::reader::infer_json_schema(BufReader::new(input), Some(lines.max(1)))
        }
        _ => options.csv_format(path).infer_schema(input, Some(lines)),
    };
    match inferred {
        Ok((schema, _)) => Ok(schema),
        Err(error) => {
            let text = plain(&error);
            Err(bad(path, uneven(&text).unwrap_or(text)))
        }
    }
}

fn ensure_unique(schema: &Schema, path: &Path) -> Result<()> {
    let mut seen = BTreeMap::new();
    for (idx, field) in schema.fields().iter().enumerate() {
        if let Some(first) = seen.insert(field.name(), idx) {
            return Err(bad(
                path,
                format!(
                    "columns {} and {} are both named '{}'",
                    first + 1,
                    idx + 1,
                    field.name()
                ),
            ));
        }
    }
    Ok(())
}

fn too_long(path: &Path, limits: Limits) -> Error {
    Error::InputTooLarge {
        path: path.to_owned(),
        what: "one row".into(),
        needed_bytes: limits.text_bytes_max,
        allowed_bytes: limits.text_bytes_max,
    }
}

/// The columns that a text file is read with.
pub(crate) struct TextColumns {
    /// Its own columns, in its order.
    pub own: SchemaRef,
    /// Which of them are wanted.
    pub wanted: Vec<usize>,
}

/// The columns of one CSV file: its own names and order, with the table's types.
pub(crate) fn csv_columns(
    path: &Path,
    options: TextOptions,
    limits: Limits,
    table: &SchemaRef,
    wanted: &[usize],
) -> Result<TextColumns> {
    let mut input = open_unpacked(path)?.take(limits.text_bytes_max);
    let header = infer_lines(&mut input, path, options, 0)?;
    ensure_unique(&header, path)?;
    if !options.header && header.fields().len() != table.fields().len() {
        return Err(bad(
            path,
            format!(
                "its first row has {} fields instead of {}",
                header.fields().len(),
                table.fields().len()
            ),
        ));
    }
    let mut own = Vec::with_capacity(header.fields().len());
    for (idx, field) in header.fields().iter().enumerate() {
        let known = match options.header {
            true => table.field_with_name(field.name()).ok(),
            false => table.fields().get(idx).map(AsRef::as_ref),
        };
        let known = known.ok_or_else(|| unknown_column(path, field, table))?;
        own.push(known.clone().with_nullable(true));
    }
    let own: SchemaRef = Arc::new(Schema::new(own));
    let wanted = wanted
        .iter()
        .filter_map(|idx| own.index_of(table.field(*idx).name()).ok())
        .collect();
    Ok(TextColumns { own, wanted })
}

fn unknown_column(path: &Path, field: &Field, table: &SchemaRef) -> Error {
    let names: Vec<&str> = table
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    bad(
        path,
        format!(
            "it has a column '{}' besides those of the other files: {}",
            field.name(),
            names.join(", ")
        ),
    )
}

enum Decoder {
    Csv(Box<arrow::csv::reader::Decoder>),
    Json(arrow::json::reader::Decoder),
}

impl Decoder {
    fn decode(&mut self, bytes: &[u8]) -> Result<usize, ArrowError> {
        match self {
            Self::Csv(decoder) => decoder.decode(bytes),
            Self::Json(decoder) => decoder.decode(bytes),
        }
    }

    fn flush(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        match self {
            Self::Csv(decoder) => decoder.flush(),
            Self::Json(decoder) => decoder.flush(),
        }
    }
}

/// Reads a text file, or a range of its lines, batch by batch.
pub(crate) struct TextBatches {
    path: PathBuf,
    options: TextOptions,
    columns: TextColumns,
    limits: Limits,
    input: Box<dyn Read + Send>,
    ended: bool,
    decoder: Decoder,
    batch_rows: usize,
    /// Bytes since the last complete batch.
    bytes: Vec<u8>,
    /// How many of them the decoder has.
    fed: usize,
    /// Whether the line of names is still to come.
    header_ahead: bool,
    /// Rows of complete batches.
    row_count: u64,
    /// Whether the input starts with the file's first row.
    from_start: bool,
}

impl TextBatches {
    /// Reads `input`, which starts with the line of names if `from_start` and the options say so.
    pub fn new(
        path: &Path,
        options: TextOptions,
        columns: TextColumns,
        limits: Limits,
        input: Box<dyn Read + Send>,
        from_start: bool,
    ) -> Result<Self> {
        let header_ahead = options.header && from_start;
        let batch_rows = BATCH_ROWS_MAX;
        Ok(Self {
            decoder: decoder(path, options, &columns, batch_rows, header_ahead)?,
            path: path.to_owned(),
            options,
            columns,
            limits,
            input,
            ended: false,
            batch_rows,
            bytes: Vec::new(),
            fed: 0,
            header_ahead,
            row_count: 0,
            from_start,
        })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let rest = &self.bytes[self.fed..];
            if !rest.is_empty() || self.ended {
                let was_empty = rest.is_empty();
                let taken = self
                    .decoder
                    .decode(rest)
                    .map_err(|error| self.explain(&error))?;
                self.fed += taken;
                if taken == 0 {
                    return self.complete(was_empty);
                }
            } else if self.bytes.len() as u64 >= self.limits.text_bytes_max {
                self.start_again()?;
            } else {
                self.read()?;
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        let before = self.bytes.len();
        self.bytes.resize(before + READ_BYTES, 0);
        let read = self
            .input
            .read(&mut self.bytes[before..])
            .map_err(Error::io("read", &self.path))?;
        self.bytes.truncate(before + read);
        self.ended = read == 0;
        Ok(())
    }

    /// Takes the decoder's rows: a full batch, or the last one.
    fn complete(&mut self, last: bool) -> Result<Option<RecordBatch>> {
        let batch = self.decoder.flush().map_err(|error| self.explain(&error))?;
        let Some(batch) = batch else {
            return match last {
                true => Ok(None),
                false => Err(bad(&self.path, "its rows cannot be separated")),
            };
        };
        self.header_ahead = false;
        self.row_count += batch.num_rows() as u64;
        let row_bytes = self.fed / batch.num_rows().max(1);
        self.bytes.drain(..self.fed);
        self.fed = 0;
        let fitting = (self.limits.text_bytes_max / 4) as usize / row_bytes.max(1);
        let fitting = fitting.clamp(1, BATCH_ROWS_MAX);
        if fitting < self.batch_rows || fitting / 4 > self.batch_rows {
            self.batch_rows = fitting;
        }
        // Row numbers in messages count from the decoder's first row.
        self.decoder = self.new_decoder()?;
        Ok(Some(batch))
    }

    /// Decodes the kept bytes again, in batches of fewer rows.
    fn start_again(&mut self) -> Result<()> {
        if self.batch_rows == 1 {
            return Err(too_long(&self.path, self.limits));
        }
        self.batch_rows = (self.batch_rows / 16).max(1);
        self.decoder = self.new_decoder()?;
        self.fed = 0;
        Ok(())
    }

    fn new_decoder(&self) -> Result<Decoder> {
        decoder(
            &self.path,
            self.options,
            &self.columns,
            self.batch_rows,
            self.header_ahead,
        )
    }

    fn explain(&self, error: &ArrowError) -> Error {
        let text = plain(error);
        let place = |line: u64| {
            let row = self.row_count + line;
            match self.from_start {
                true => format!("row {row}"),
                false => format!("a row behind its first {READ_BYTES} bytes"),
            }
        };
        let explained = csv_value_error(&text, &self.columns.own, &place, self.header_ahead)
            .or_else(|| csv_fields_error(&text, &place, self.header_ahead));
        bad(&self.path, explained.unwrap_or(text))
    }
}

impl Iterator for TextBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

fn decoder(
    path: &Path,
    options: TextOptions,
    columns: &TextColumns,
    batch_rows: usize,
    header: bool,
) -> Result<Decoder> {
    if options.format == FileFormat::Json {
        let decoder = arrow::json::ReaderBuilder::new(columns.own.clone())
            .with_batch_size(batch_rows)
            // Numbers for text columns come as their text.
            .with_coerce_primitive(true)
            .build_decoder()
            .map_err(|error| bad(path, plain(&error)))?;
        return Ok(Decoder::Json(decoder));
    }
    let decoder = arrow::csv::ReaderBuilder::new(columns.own.clone())
        .with_batch_size(batch_rows)
        .with_header(header)
        .with_delimiter(options.delimiter_of(path))
        .with_projection(columns.wanted.clone())
        .build_decoder();
    Ok(Decoder::Csv(Box::new(decoder)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Int64Type};

    const CSV: TextOptions = TextOptions {
        format: FileFormat::Csv,
        delimiter: None,
        header: true,
    };
    const TINY: Limits = Limits {
        piece_bytes_max: 1 << 20,
        text_bytes_max: 1 << 20,
    };

    fn batches(text: &str, limits: Limits) -> Result<Vec<RecordBatch>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        let table: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]));
        let columns = csv_columns(&path, CSV, limits, &table, &[0, 1])?;
        let input = open_unpacked(&path)?;
        TextBatches::new(&path, CSV, columns, limits, input, true)?.collect()
    }

    #[test]
    fn wide_rows_come_in_small_batches_and_none_is_lost() {
        let wide = "w".repeat(100_000);
        let mut text = String::from("n,s\n");
        for n in 0..200 {
            text += &format!("{n},\"{}\n\"\n", if n < 100 { "x" } else { &wide });
        }
        let batches = batches(&text, TINY).unwrap();
        assert!(batches.len() > 5, "{}", batches.len());
        let numbers = batches.iter().flat_map(|batch| {
            batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        });
        assert!(numbers.eq(0..200));
    }

    #[test]
    fn a_row_longer_than_the_limit_is_an_error() {
        let text = format!("n,s\n1,{}\n", "w".repeat(3 << 20));
        assert!(matches!(
            batches(&text, TINY),
            Err(Error::InputTooLarge { .. })
        ));
    }

    #[test]
    fn a_bad_value_is_reported_with_row_and_column() {
        let text = format!("n,s\n{}oops,x\n", "1,x\n".repeat(20_000));
        let error = batches(&text, TINY).unwrap_err().to_string();
        assert!(
            error.contains("row 20001, column 'n': 'oops' is not a value of type Int64"),
            "{error}"
        );
        let error = batches("n,s\n1,a\n2\n", TINY).unwrap_err().to_string();
        assert!(error.contains("row 2 has 1 fields instead of 2"), "{error}");
    }
}
