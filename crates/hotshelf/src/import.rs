//! Import: files of other formats into a table, streaming, in parallel, all or nothing.

mod batches;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::file_format::options::ArrowReadOptions;
use datafusion::logical_expr::{cast, ident};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::prelude::{
    CsvReadOptions, DataFrame, JsonReadOptions, ParquetReadOptions, SessionContext,
};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::session::execute_partitions;

pub use batches::BatchIter;

/// Input of this size and more is written by all threads, one file each.
const PARALLEL_BYTES_MIN: u64 = 128 << 20;
/// Lines that are looked at to guess the types of a text file.
const INFER_LINES: usize = 10_000;

/// Formats that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values.
    Csv,
    /// One JSON object per line.
    Json,
    /// Arrow IPC, file or stream.
    Arrow,
}

impl FromStr for FileFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "parquet" | "parq" => Self::Parquet,
            "csv" | "tsv" => Self::Csv,
            "json" | "ndjson" | "jsonl" => Self::Json,
            "arrow" | "ipc" | "feather" => Self::Arrow,
            _ => {
                return Err(Error::InvalidValue {
                    what: "file format",
                    value: text.to_owned(),
                    expected: "parquet, csv, json or arrow".into(),
                });
            }
        })
    }
}

/// What happens when the table exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExistingTable {
    /// The import fails.
    #[default]
    Fail,
    /// Its rows are added.
    Append,
    /// The table is replaced.
    Replace,
}

/// What to import and how.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Name of the table.
    pub table: String,
    /// Files, folders or globs.
    pub inputs: Vec<String>,
    /// Format; by the files' endings if not given.
    pub format: Option<FileFormat>,
    /// Columns whose type is not to be guessed: `"a INT, b VARCHAR"`. Others keep the inferred type.
    pub schema: Option<String>,
    /// What happens when the table exists.
    pub existing: ExistingTable,
    /// Separator of CSV columns.
    pub csv_delimiter: u8,
    /// Whether a CSV file starts with a line of names.
    pub csv_header: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            table: String::new(),
            inputs: Vec::new(),
            format: None,
            schema: None,
            existing: ExistingTable::Fail,
            csv_delimiter: b',',
            csv_header: true,
        }
    }
}

/// How far an import is. Shared with whoever shows it.
#[derive(Debug, Default)]
pub struct ImportProgress {
    rows_done: Arc<AtomicU64>,
    rows_expected: AtomicU64,
}

impl ImportProgress {
    /// Rows taken from the input so far.
    pub fn rows_done(&self) -> u64 {
        self.rows_done.load(Ordering::Relaxed)
    }

    /// Rows there will be: exact for formats that say so, an estimate for text, 0 while unknown.
    pub fn rows_expected(&self) -> u64 {
        self.rows_expected.load(Ordering::Relaxed)
    }
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportReport {
    /// Rows added.
    pub row_count: u64,
    /// Input files read.
    pub input_count: usize,
    /// Their bytes.
    pub input_bytes: u64,
}

impl Database {
    /// Imports files into a table. On failure, or when the future is dropped, nothing has changed.
    pub async fn import(
        &self,
        options: &ImportOptions,
        progress: &ImportProgress,
    ) -> Result<ImportReport> {
        let files = find_files(&options.inputs)?;
        let format = common_format(options, &files)?;
        let input_bytes = files.iter().map(|file| file.bytes).sum();
        let context = self.import_context(input_bytes);
        let schema = self.input_schema(&context, options, format, &files).await?;
        let paths = files
            .iter()
            .map(|file| file.path.to_string_lossy().into_owned())
            .collect::<Vec<_>>();
        let frame = read(&context, paths, format, options, Some(&schema)).await?;
        let frame = shape(frame, options, self.target_schema(options)?)?;
        let schema: SchemaRef = frame.schema().inner().clone();
        let plan = frame
            .create_physical_plan()
            .await
            .map_err(Error::from_query)?;
        let known = known_rows(&plan);
        let expected = known.map_or_else(|| estimate_rows(format, &files), |rows| rows as u64);
        progress.rows_expected.store(expected, Ordering::Relaxed);
        let inputs = execute_partitions(&plan, &context.task_ctx())?;
        let rows_done = progress.rows_done.clone();
        let row_count = self
            .add_rows(&options.table, schema, inputs, options.existing, rows_done)
            .await?;
        Ok(ImportReport {
            row_count,
            input_count: files.len(),
            input_bytes,
        })
    }

    /// A context that reads with one partition for small inputs and one per thread for large ones.
    fn import_context(&self, input_bytes: u64) -> SessionContext {
        let context = self.session().context().clone();
        let threads = if input_bytes < PARALLEL_BYTES_MIN {
            1
        } else {
            self.inner().options.read().threads
        };
        let state = context.state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        options.execution.target_partitions = threads;
        options.optimizer.repartition_file_min_size = 1 << 20;
        options.optimizer.enable_round_robin_repartition = false;
        drop(state);
        context
    }

    /// The columns all files have; an error names the first file that does not fit.
    async fn input_schema(
        &self,
        context: &SessionContext,
        options: &ImportOptions,
        format: FileFormat,
        files: &[InputFile],
    ) -> Result<SchemaRef> {
        let mut common: Option<SchemaRef> = None;
        for file in files {
            let path = file.path.to_string_lossy().into_owned();
            let bad = |what: String| Error::BadInput {
                path: file.path.clone(),
                what,
            };
            if file.bytes == 0 {
                return Err(bad("it is empty".into()));
            }
            let frame = read(context, vec![path.clone()], format, options, None)
                .await
                .map_err(|error| bad(error.to_string()))?;
            let schema: SchemaRef = frame.schema().inner().clone();
            if schema.fields().is_empty() {
                return Err(bad("it has no columns".into()));
            }
            common = Some(match common {
                None => schema,
                Some(common) => merge(&common, &schema).map_err(|what| Error::SchemaMismatch {
                    input: path,
                    table: options.table.clone(),
                    what,
                })?,
            });
        }
        let schema = common.ok_or_else(|| Error::NoInput {
            pattern: options.inputs.join(" "),
        })?;
        override_types(&schema, &self.type_overrides(options)?)
    }

    /// The table's own columns when rows are appended to it.
    fn target_schema(&self, options: &ImportOptions) -> Result<Option<SchemaRef>> {
        let table = self.inner().table(&options.table);
        match (options.existing, table) {
            (ExistingTable::Append, Some(table)) => Ok(Some(table.schema.clone())),
            (ExistingTable::Fail, Some(_)) => Err(Error::TableExists {
                table: options.table.clone(),
            }),
            _ => Ok(None),
        }
    }

    fn type_overrides(&self, options: &ImportOptions) -> Result<Vec<(String, DataType)>> {
        let Some(text) = &options.schema else {
            return Ok(Vec::new());
        };
        let invalid = |expected: String| Error::InvalidValue {
            what: "schema",
            value: text.clone(),
            expected,
        };
        let statement = format!("CREATE EXTERNAL TABLE s ({text}) STORED AS CSV LOCATION '/'");
        let context = SessionContext::new();
        let plan = futures::executor::block_on(context.state().create_logical_plan(&statement))
            .map_err(|error| {
                invalid(format!(
                    "columns as in CREATE TABLE, such as 'a INT, b VARCHAR' ({error})"
                ))
            })?;
        Ok(plan
            .schema()
            .fields()
            .iter()
            .map(|field| (field.name().clone(), field.data_type().clone()))
            .collect())
    }
}

/// The rows a plan says it will make.
fn known_rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let statistics = StatisticsContext::default()
        .compute(plan.as_ref(), &StatisticsArgs::default())
        .ok()?;
    statistics.num_rows.get_value().copied()
}

struct InputFile {
    path: PathBuf,
    bytes: u64,
}

/// The files that paths, folders and globs name, sorted within each.
fn find_files(inputs: &[String]) -> Result<Vec<InputFile>> {
    let mut files = Vec::new();
    for pattern in inputs {
        let before = files.len();
        let mut paths = Vec::new();
        if Path::new(pattern).exists() {
            paths.push(PathBuf::from(pattern));
        } else {
            let found = glob::glob(pattern).map_err(|error| Error::InvalidValue {
                what: "glob",
                value: pattern.clone(),
                expected: error.to_string(),
            })?;
            paths.extend(found.flatten());
        }
        for path in paths {
            push_files(&path, &mut files)?;
        }
        if files.len() == before {
            return Err(Error::NoInput {
                pattern: pattern.clone(),
            });
        }
        files[before..].sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(files)
}

fn push_files(path: &Path, files: &mut Vec<InputFile>) -> Result<()> {
    let metadata = std::fs::metadata(path).map_err(Error::io("read", path))?;
    if metadata.is_dir() {
        let entries = std::fs::read_dir(path).map_err(Error::io("list", path))?;
        for entry in entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
        {
            push_files(&entry, files)?;
        }
    } else {
        files.push(InputFile {
            path: path.to_owned(),
            bytes: metadata.len(),
        });
    }
    Ok(())
}

fn common_format(options: &ImportOptions, files: &[InputFile]) -> Result<FileFormat> {
    if let Some(format) = options.format {
        return Ok(format);
    }
    let mut common = None;
    for file in files {
        let ending = file
            .path
            .extension()
            .map(|ending| ending.to_string_lossy().into_owned())
            .unwrap_or_default();
        let format: FileFormat = ending.parse().map_err(|_| Error::BadInput {
            path: file.path.clone(),
            what: "its ending does not tell the format; say --format parquet, csv, json or arrow"
                .into(),
        })?;
        if common.is_some_and(|common| common != format) {
            return Err(Error::BadInput {
                path: file.path.clone(),
                what: "all files of an import must have one format".into(),
            });
        }
        common = Some(format);
    }
    common.ok_or_else(|| Error::NoInput {
        pattern: options.inputs.join(" "),
    })
}

async fn read(
    context: &SessionContext,
    paths: Vec<String>,
    format: FileFormat,
    options: &ImportOptions,
    schema: Option<&SchemaRef>,
) -> Result<DataFrame> {
    let ending = paths
        .first()
        .and_then(|path| {
            Path::new(path)
                .extension()
                .map(|ending| format!(".{}", ending.to_string_lossy()))
        })
        .unwrap_or_default();
    let schema = schema.map(AsRef::as_ref);
    let frame = match format {
        FileFormat::Parquet => {
            let read = ParquetReadOptions {
                file_extension: &ending,
                schema,
                ..ParquetReadOptions::default()
            };
            context.read_parquet(paths, read).await
        }
        FileFormat::Csv => {
            let mut read = CsvReadOptions::new()
                .delimiter(options.csv_delimiter)
                .has_header(options.csv_header);
            read.file_extension = &ending;
            read.schema_infer_max_records = INFER_LINES;
            read.schema = schema;
            context.read_csv(paths, read).await
        }
        FileFormat::Json => {
            let read = JsonReadOptions {
                file_extension: &ending,
                schema_infer_max_records: INFER_LINES,
                schema,
                ..JsonReadOptions::default()
            };
            context.read_json(paths, read).await
        }
        FileFormat::Arrow => {
            let read = ArrowReadOptions {
                file_extension: &ending,
                schema,
                ..ArrowReadOptions::default()
            };
            context.read_arrow(paths, read).await
        }
    };
    frame.map_err(Error::from_query)
}

/// Casts and orders the columns of the input as the table wants them.
fn shape(
    frame: DataFrame,
    options: &ImportOptions,
    target: Option<SchemaRef>,
) -> Result<DataFrame> {
    let input: SchemaRef = frame.schema().inner().clone();
    let wanted: Vec<Arc<Field>> = match &target {
        Some(target) => target.fields().iter().cloned().collect(),
        None => input
            .fields()
            .iter()
            .map(|field| Arc::new(storable(field)))
            .collect(),
    };
    let mismatch = |what| Error::SchemaMismatch {
        input: options.inputs.join(" "),
        table: options.table.clone(),
        what,
    };
    if let Some(extra) = input
        .fields()
        .iter()
        .find(|field| wanted.iter().all(|want| want.name() != field.name()))
    {
        return Err(mismatch(format!(
            "the table has no column '{}'",
            extra.name()
        )));
    }
    let mut columns = Vec::with_capacity(wanted.len());
    for want in &wanted {
        let Ok(have) = input.field_with_name(want.name()) else {
            return Err(mismatch(format!("column '{}' is missing", want.name())));
        };
        let column = ident(have.name());
        columns.push(if have.data_type() == want.data_type() {
            column
        } else {
            cast(column, want.data_type().clone()).alias(want.name())
        });
    }
    frame.select(columns).map_err(Error::from_query)
}

/// The field in a type that tables store: dictionaries become their values.
fn storable(field: &Field) -> Field {
    match field.data_type() {
        DataType::Dictionary(_, values) => field.clone().with_data_type(values.as_ref().clone()),
        _ => field.clone(),
    }
}

/// The columns of both schemas, which must agree on types. NULL-only text columns take the other's type.
fn merge(common: &SchemaRef, other: &SchemaRef) -> Result<SchemaRef, String> {
    let mut fields: Vec<Field> = common
        .fields()
        .iter()
        .map(|field| field.as_ref().clone())
        .collect();
    for field in other.fields() {
        match fields.iter_mut().find(|known| known.name() == field.name()) {
            None => fields.push(field.as_ref().clone().with_nullable(true)),
            Some(known) if known.data_type() == &DataType::Null => *known = field.as_ref().clone(),
            Some(known)
                if known.data_type() == field.data_type()
                    || field.data_type() == &DataType::Null =>
            {
                known.set_nullable(known.is_nullable() || field.is_nullable());
            }
            Some(known) => {
                return Err(format!(
                    "column '{}' is {} here and {} in the files before",
                    field.name(),
                    field.data_type(),
                    known.data_type()
                ));
            }
        }
    }
    for field in &mut fields {
        if other.field_with_name(field.name()).is_err() {
            field.set_nullable(true);
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn override_types(schema: &SchemaRef, overrides: &[(String, DataType)]) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone())
        .collect();
    for (name, data_type) in overrides {
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let field = fields
            .iter_mut()
            .find(|field| field.name() == name)
            .ok_or_else(|| Error::InvalidValue {
                what: "schema",
                value: name.clone(),
                expected: format!("a column of the files: {}", names.join(", ")),
            })?;
        *field = field.clone().with_data_type(data_type.clone());
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Rows of text files, from the length of their first lines.
fn estimate_rows(format: FileFormat, files: &[InputFile]) -> u64 {
    use std::io::Read;
    if !matches!(format, FileFormat::Csv | FileFormat::Json) {
        return 0;
    }
    let Some(largest) = files.iter().max_by_key(|file| file.bytes) else {
        return 0;
    };
    let mut sample = Vec::new();
    let read =
        std::fs::File::open(&largest.path).map(|file| file.take(1 << 20).read_to_end(&mut sample));
    let lines = sample.iter().filter(|byte| **byte == b'\n').count() as u64;
    if read.is_err() || lines == 0 {
        return 0;
    }
    files.iter().map(|file| file.bytes).sum::<u64>() * lines / sample.len() as u64
}
