//! Tables over files: those that `FROM 'file'`, `FROM 'folder'` and `FROM '*.csv'` name, and those that an import
//! reads.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::file_format::FileFormat as DataFusionFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::parquet::file::metadata::ParquetMetaDataReader;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;

use super::file_format::FileFormat;
use super::files::{self, InputFile, find_files};
use super::format::{InputFormat, ParquetInput, infer, named_error};
use super::schema::CommonColumns;
use super::text::TextOptions;
use super::{Limits, bad, decode, panicked};
use crate::error::{Error, Result};

/// Bytes of a batch that Parquet files are decoded into.
const BATCH_BYTES: u64 = 16 << 20;
const BATCH_ROWS_MAX: u64 = 8192;

/// Reads files of one format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileTables {
    pub options: TextOptions,
    pub limits: Limits,
}

impl FileTables {
    /// How files of this format are read when nothing else is said.
    pub fn new(format: FileFormat, limits: Limits) -> Self {
        Self {
            options: TextOptions {
                format,
                delimiter: None,
                header: true,
            },
            limits,
        }
    }

    fn format(
        &self,
        state: &dyn Session,
        files: &[InputFile],
    ) -> Result<Arc<dyn DataFusionFormat>> {
        if self.options.format != FileFormat::Parquet {
            return Ok(Arc::new(InputFormat {
                options: self.options,
                limits: self.limits,
            }));
        }
        let mut batch_rows = BATCH_ROWS_MAX;
        for file in files {
            batch_rows = batch_rows.min(parquet_batch_rows(&file.path)?);
        }
        let options = state.default_table_options().parquet;
        Ok(Arc::new(ParquetInput::new(
            options,
            self.limits,
            batch_rows as usize,
        )))
    }

    fn listing(&self, state: &dyn Session, files: &[InputFile]) -> Result<ListingOptions> {
        let format = self.format(state, files)?;
        Ok(ListingOptions::new(format).with_file_extension(""))
    }

    /// The columns of one file.
    pub async fn columns(&self, state: &dyn Session, file: &InputFile) -> Result<SchemaRef> {
        if file.bytes == 0 {
            return Err(bad(&file.path, "it is empty"));
        }
        if self.options.format != FileFormat::Parquet {
            return infer(&file.path, self.options, self.limits);
        }
        let listing = self.listing(state, std::slice::from_ref(file))?;
        let url = file.url()?;
        let inferred = AssertUnwindSafe(listing.infer_schema(state, &url))
            .catch_unwind()
            .await;
        let schema = match inferred {
            Ok(schema) => {
                schema.map_err(|error| named_error(&file.path, Error::from_query(error)))?
            }
            Err(panic) => return Err(panicked(&file.path, panic.as_ref())),
        };
        match schema.fields().is_empty() {
            true => Err(bad(&file.path, "it has no columns")),
            false => Ok(schema),
        }
    }

    /// A table of the files' rows with the columns of `schema`.
    pub fn table(
        &self,
        state: &dyn Session,
        files: &[InputFile],
        schema: SchemaRef,
    ) -> Result<Arc<dyn TableProvider>> {
        let urls = files
            .iter()
            .map(InputFile::url)
            .collect::<Result<Vec<_>>>()?;
        let config = ListingTableConfig::new_with_multi_paths(urls)
            .with_listing_options(self.listing(state, files)?)
            .with_schema(schema);
        let table = ListingTable::try_new(config).map_err(Error::from_query)?;
        Ok(Arc::new(table))
    }
}

/// Rows of a batch such that average rows of the widest row group fit.
fn parquet_batch_rows(path: &Path) -> Result<u64> {
    decode(path, || {
        let file = std::fs::File::open(path).map_err(Error::io("open", path))?;
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .map_err(|error| {
                bad(
                    path,
                    format!("it is damaged, or not what its name says: {error}"),
                )
            })?;
        let groups = metadata.row_groups().iter();
        let row_bytes = groups.map(|group| {
            let bytes = u64::try_from(group.total_byte_size()).unwrap_or(0);
            let values: i64 = group
                .columns()
                .iter()
                .fold(0, |sum, column| sum.saturating_add(column.num_values()));
            let values = u64::try_from(values).unwrap_or(0);
            bytes.max(values.saturating_mul(8))
                / u64::try_from(group.num_rows()).unwrap_or(1).max(1)
        });
        Ok((BATCH_BYTES / row_bytes.max().unwrap_or(1).max(1)).clamp(1, BATCH_ROWS_MAX))
    })
}

/// The table that a name in FROM means, if it names files.
pub(crate) async fn file_table(
    name: &str,
    runtime: &Arc<RuntimeEnv>,
    limits: Limits,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let path = Path::new(name);
    if path.exists() && !path.is_file() && !path.is_dir() {
        return Err(files::not_regular(path));
    }
    let Some((format, files)) = named_files(name)? else {
        return Ok(None);
    };
    let state = session_state(runtime);
    let tables = FileTables::new(format, limits);
    let schema = common_schema(&tables, &state, &files).await?;
    if files.iter().any(|file| has_partition(&file.path, name)) {
        return partitioned_table(&tables, &state, name, &files, schema)
            .await
            .map(Some);
    }
    tables.table(&state, &files, schema).map(Some)
}

/// The state that file formats ask for settings.
fn session_state(runtime: &Arc<RuntimeEnv>) -> SessionState {
    SessionContext::new_with_config_rt(SessionConfig::new(), runtime.clone()).state()
}

async fn common_schema(
    tables: &FileTables,
    state: &SessionState,
    files: &[InputFile],
) -> Result<SchemaRef> {
    let mut common = CommonColumns::default();
    for file in files {
        let own = tables.columns(state, file).await?;
        common.add(&file.path, &own, "of these files")?;
    }
    Ok(common.finish())
}

/// The files that a name means, if their endings imply one format that we read.
fn named_files(name: &str) -> Result<Option<(FileFormat, Vec<InputFile>)>> {
    let path = Path::new(name);
    let mut files = match path.is_dir() {
        true => {
            let mut found = Vec::new();
            push_tree(path, &mut found)?;
            found.sort_by(|a: &InputFile, b| a.path.cmp(&b.path));
            found
        }
        false => find_files(&[name.to_owned()]).unwrap_or_default(),
    };
    files.retain(|file| files::ending(&file.path).is_some());
    let mut formats = files
        .iter()
        .filter_map(|file| Some(files::ending(&file.path)?.format));
    let Some(format) = formats.next() else {
        return Ok(None);
    };
    match formats.position(|other| other != format) {
        None => Ok(Some((format, files))),
        Some(idx) => Err(bad(
            &files[idx + 1].path,
            "all files of a query's table must have one format",
        )),
    }
}

/// All files below a folder but hidden ones.
fn push_tree(folder: &Path, files: &mut Vec<InputFile>) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(Error::io("list", folder))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with(['.', '_']);
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        match () {
            () if hidden => {}
            () if metadata.is_dir() => push_tree(&path, files)?,
            () if metadata.is_file() => files.push(InputFile {
                path,
                bytes: metadata.len(),
            }),
            () => {}
        }
    }
    Ok(())
}

/// Whether a folder between the name's fixed part and the file is called `column=value`.
fn has_partition(path: &Path, name: &str) -> bool {
    let fixed = fixed_part(name);
    let below = path.strip_prefix(&fixed).unwrap_or(path);
    let folders = below.parent().into_iter().flat_map(Path::components);
    folders
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .any(|part| part.contains('='))
}

/// The folders of a name before the first that is a glob.
fn fixed_part(name: &str) -> PathBuf {
    let path = Path::new(name);
    if path.exists() {
        return path.to_owned();
    }
    let is_glob =
        |part: &std::path::Component| part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    path.components()
        .take_while(|part| !is_glob(part))
        .collect()
}

/// A table whose folders are columns, as DataFusion lists them.
async fn partitioned_table(
    tables: &FileTables,
    state: &SessionState,
    name: &str,
    files: &[InputFile],
    schema: SchemaRef,
) -> Result<Arc<dyn TableProvider>> {
    let url = ListingTableUrl::parse(name).map_err(Error::from_query)?;
    let ending = files.first().and_then(|file| file.path.extension());
    let ending = ending
        .map(|ending| ending.to_string_lossy().into_owned())
        .unwrap_or_default();
    let listing = tables.listing(state, files)?.with_file_extension(ending);
    let partitions = listing
        .infer_partitions(state, &url)
        .await
        .map_err(Error::from_query)?;
    let text = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
    let fields = schema
        .fields()
        .iter()
        .filter(|field| !partitions.contains(field.name()));
    let schema = Schema::new(fields.cloned().collect::<Vec<_>>());
    let columns = partitions
        .iter()
        .map(|column| (column.clone(), text.clone()))
        .collect();
    let config = ListingTableConfig::new(url)
        .with_listing_options(listing.with_table_partition_cols(columns))
        .with_schema(Arc::new(schema));
    let table = ListingTable::try_new(config).map_err(Error::from_query)?;
    Ok(Arc::new(table))
}
