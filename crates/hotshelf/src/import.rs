//! Import: files of other formats into a table, streaming, in parallel, all or nothing.

mod batches;
mod pieces;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::prelude::SessionContext;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::input::files::{self, InputFile, find_files};
use crate::input::schema::{CommonColumns, check_overrides, with_overrides};
use crate::input::{FileFormat, FileTables, Limits};
use crate::session::aside;
use pieces::pieces;

pub use batches::BatchIter;

/// Input of this size and more is written by all threads, one file each.
const PARALLEL_BYTES_MIN: u64 = 128 << 20;

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
    /// Types of columns that should not be inferred: `"a INT, b VARCHAR"`. Others keep the inferred type.
    pub schema: Option<String>,
    /// What happens when the table exists.
    pub existing: ExistingTable,
    /// Separator of CSV columns. A file that is called `.tsv` has tabs unless this is something else than a comma.
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

/// How far an import is. Shared with what shows it.
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
#[non_exhaustive]
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
    ///
    /// Columns are matched by name. A column that only some files have is NULL in the others; one that the table
    /// lacks is an error. A value that the table's column cannot hold as it is fails the import.
    ///
    /// # Errors
    /// A file cannot be read or does not fit ([`ErrorKind::Input`](crate::ErrorKind::Input)), the table exists and
    /// shall not be changed, or its files cannot be written.
    ///
    /// # Examples
    /// ```
    /// use hotshelf::{Database, ImportOptions, ImportProgress, Options};
    ///
    /// # fn main() -> hotshelf::Result<()> {
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let file = scratch.path().join("towns.csv");
    /// # let database = Database::temporary(Options::default())?;
    /// std::fs::write(&file, "town,people\nUlm,130000\nJena,111000\n").unwrap();
    /// let options = ImportOptions {
    ///     table: "towns".to_owned(),
    ///     inputs: vec![file.display().to_string()],
    ///     schema: Some("people BIGINT".to_owned()),
    ///     ..ImportOptions::default()
    /// };
    /// let progress = ImportProgress::default();
    /// let report = database.block_on(database.import(&options, &progress))?;
    /// assert_eq!((report.row_count, report.input_count), (2, 1));
    /// assert_eq!(progress.rows_done(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn import(
        &self,
        options: &ImportOptions,
        progress: &ImportProgress,
    ) -> crate::Result<ImportReport> {
        Ok(self.import_files(options, progress).await?)
    }

    async fn import_files(
        &self,
        options: &ImportOptions,
        progress: &ImportProgress,
    ) -> Result<ImportReport> {
        if options.table.is_empty() {
            return Err(no_name());
        }
        let files = find_files(&options.inputs)?;
        let format = common_format(options, &files)?;
        let input_bytes = files.iter().map(|file| file.bytes).sum();
        let context = self.import_context();
        let target = self.target_schema(options)?;
        let input = self.input(&context, options, format, files).await?;
        let wanted = wanted_columns(options, &input.common, target)?;
        let threads = self.import_threads(input_bytes);
        let pieces = pieces(&context, &input, &wanted, threads).await?;
        let expected = pieces
            .known_rows
            .unwrap_or_else(|| estimate_rows(format, &input.files));
        progress.rows_expected.store(expected, Ordering::Relaxed);
        let rows_done = progress.rows_done.clone();
        let streams = pieces.streams(threads);
        let row_count = self
            .add_rows(&options.table, wanted, streams, options.existing, rows_done)
            .await?;
        Ok(ImportReport {
            row_count,
            input_count: input.files.len(),
            input_bytes,
        })
    }

    fn import_context(&self) -> SessionContext {
        let context = self.session().context().clone();
        let state = context.state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        options.execution.target_partitions = 1;
        options.optimizer.repartition_file_min_size = 1 << 20;
        drop(state);
        context
    }

    /// One stream for small inputs, one per thread for large ones.
    fn import_threads(&self, input_bytes: u64) -> usize {
        match input_bytes < PARALLEL_BYTES_MIN {
            true => 1,
            false => self.machine().threads,
        }
    }

    /// The columns of all files; an error names the first file that does not fit.
    async fn input(
        &self,
        context: &SessionContext,
        options: &ImportOptions,
        format: FileFormat,
        files: Vec<InputFile>,
    ) -> Result<ImportInput> {
        let overrides = self.type_overrides(options)?;
        let limits = Limits::of_budget(self.engine().budget_bytes());
        let mut tables = FileTables::new(format, limits);
        tables.options.header = options.csv_header;
        tables.options.delimiter = (options.csv_delimiter != b',').then_some(options.csv_delimiter);
        let state = context.state();
        let mut common = CommonColumns::default();
        let mut own = Vec::with_capacity(files.len());
        for file in &files {
            let (one, state) = (file.clone(), state.clone());
            let read = move || async move { tables.columns(&state, &one).await };
            let handle = self.machine().workers.handle();
            let columns = aside::run_async("reading the columns", handle, read).await?;
            let table = format!("'{}'", options.table);
            common.add(&file.path, &with_overrides(&columns, &overrides), &table)?;
            own.push(columns);
        }
        let common = common.finish();
        check_overrides(&common, &overrides)?;
        Ok(ImportInput {
            tables,
            files,
            own,
            common,
        })
    }

    /// The table's own columns when rows are appended to it.
    fn target_schema(&self, options: &ImportOptions) -> Result<Option<SchemaRef>> {
        let table = self.storage().table(&options.table);
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

/// What an import reads.
struct ImportInput {
    tables: FileTables,
    files: Vec<InputFile>,
    /// The columns of each file.
    own: Vec<SchemaRef>,
    /// Those of all files.
    common: SchemaRef,
}

fn common_format(options: &ImportOptions, files: &[InputFile]) -> Result<FileFormat> {
    if let Some(format) = options.format {
        return Ok(format);
    }
    let mut common = None;
    for file in files {
        let ending = files::ending(&file.path).ok_or_else(|| Error::BadInput {
            path: file.path.clone(),
            what: "its ending does not say the format; say --format parquet, csv, json or arrow"
                .into(),
        })?;
        if common.is_some_and(|common| common != ending.format) {
            return Err(Error::BadInput {
                path: file.path.clone(),
                what: "all files of an import must have one format".into(),
            });
        }
        common = Some(ending.format);
    }
    common.ok_or_else(|| Error::NoInput {
        pattern: options.inputs.join(" "),
    })
}

/// The columns that the table gets: its own, if it exists.
fn wanted_columns(
    options: &ImportOptions,
    input: &SchemaRef,
    target: Option<SchemaRef>,
) -> Result<SchemaRef> {
    let Some(target) = target else {
        let fields: Vec<Field> = input.fields().iter().map(|field| storable(field)).collect();
        return Ok(Arc::new(Schema::new(fields)));
    };
    let mismatch = |what| Error::SchemaMismatch {
        input: options.inputs.join(" "),
        table: format!("'{}'", options.table),
        what,
    };
    let lacks = |schema: &SchemaRef, field: &Field| schema.field_with_name(field.name()).is_err();
    if let Some(extra) = input.fields().iter().find(|field| lacks(&target, field)) {
        return Err(mismatch(format!(
            "the table has no column '{}'",
            extra.name()
        )));
    }
    if let Some(missing) = target.fields().iter().find(|field| lacks(input, field)) {
        return Err(mismatch(format!("column '{}' is missing", missing.name())));
    }
    Ok(target)
}

/// The field in a type that tables store: dictionaries become their values, columns without values are text.
fn storable(field: &Field) -> Field {
    match field.data_type() {
        DataType::Null => field.clone().with_data_type(DataType::Utf8),
        DataType::Dictionary(_, values) => field.clone().with_data_type(values.as_ref().clone()),
        _ => field.clone(),
    }
}

fn no_name() -> Error {
    Error::InvalidValue {
        what: "table name",
        value: String::new(),
        expected: "at least one character".into(),
    }
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
    if files::packing(&largest.path).is_compressed() {
        return 0;
    }
    let read =
        std::fs::File::open(&largest.path).map(|file| file.take(1 << 20).read_to_end(&mut sample));
    let lines = sample.iter().filter(|byte| **byte == b'\n').count() as u64;
    if read.is_err() || lines == 0 {
        return 0;
    }
    files.iter().map(|file| file.bytes).sum::<u64>() * lines / sample.len() as u64
}
