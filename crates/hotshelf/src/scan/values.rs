//! The values of a table's column without its rows: from indexes and from the dictionaries of its files. What reads
//! them may ask which values there are, not how often.

use std::collections::BTreeSet;
use std::iter::repeat;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::datasource::source::DataSource;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use hotshelf_cache::ScanContext;
use hotshelf_store::data_file::TableFile;

use super::dictionaries::Dictionaries;
use super::queue::open_files;
use super::source::TableScan;
use super::stream::rows_on_the_way;
use crate::error::Result;
use crate::index::ElfValues;
use crate::settings::SessionSettings;

/// Fewer rows are read as fast.
const ROWS_MIN: u64 = 65_536;
/// Files whose values are not stored may have one part in this many of the rows.
const OTHERS_PARTS: u64 = 8;
/// Rows for each stored value, at least; and for each value of a first dimension, whose lists lead to rows.
const ROWS_PER_VALUE_MIN: u64 = 8;
const ROWS_PER_LIST_MIN: u64 = 16;
/// Files that are opened together, and whose values are read together.
const OPENED_TOGETHER: usize = 32;
const READ_TOGETHER: usize = 4;

/// The values of a table's column in some of its files.
#[derive(Clone)]
pub(crate) struct StoredValues {
    /// Of that column alone, in these and other files.
    scan: TableScan,
    files: Arc<[(Arc<TableFile>, FileValues)]>,
    /// How many values files have, added up.
    pub count: u64,
}

/// Where the values of a file are.
enum FileValues {
    Elf(ElfValues),
    Dictionaries,
}

/// What is known about the values of a scan's column.
pub(crate) enum KnownValues {
    /// They are stored, and these rows have others.
    Stored(Box<(StoredValues, Option<TableScan>)>),
    /// They have to be read row by row: why.
    Unknown(&'static str),
}

impl TableScan {
    /// The values of the column that it reads. `None` if it does anything else, or is small.
    pub fn stored_values(&self) -> Option<KnownValues> {
        let [column] = self.columns[..] else {
            return None;
        };
        let is_nested = self.schema.field(0).data_type().is_nested();
        if !self.is_all_rows() || is_nested || self.table.row_count() < ROWS_MIN {
            return None;
        }
        let rows = self.table.row_count();
        let (mut found, mut others, mut count) = (Vec::new(), Vec::new(), 0);
        for files in self.table.files.chunks(OPENED_TOGETHER) {
            for (file, values) in files.iter().zip(self.values_of(files, column)) {
                match values {
                    Some((values, value_count)) => {
                        count += value_count;
                        found.push((file.clone(), values));
                    }
                    None => others.push(file.clone()),
                }
            }
            let other_rows: u64 = others.iter().map(|file| file.stats.row_count).sum();
            if other_rows * OTHERS_PARTS > rows {
                return Some(KnownValues::Unknown(
                    "neither dictionaries nor an index have them",
                ));
            }
            if count * ROWS_PER_VALUE_MIN > rows {
                return Some(KnownValues::Unknown("they hardly repeat"));
            }
        }
        let stored = StoredValues {
            scan: self.without_metrics(),
            files: found.into(),
            count,
        };
        let rest = (!others.is_empty()).then(|| self.of_files(others));
        Some(KnownValues::Stored(Box::new((stored, rest))))
    }

    /// Whether all rows of the table come from it, as they are.
    fn is_all_rows(&self) -> bool {
        let is_filtered = !self.filters.is_empty() || !self.dynamic.is_empty();
        let is_part = self.wanted.is_some() || self.has_limit();
        !(is_filtered || is_part || self.numbers_rows || self.first.is_some())
    }

    /// Where the values of a column are in each of some files, and how many, if they are stored.
    fn values_of(&self, files: &[Arc<TableFile>], column: usize) -> Vec<Option<(FileValues, u64)>> {
        let listed = files.iter().map(|file| {
            let values = ElfValues::listed(&self.table, file.paths.number, column);
            let values = values.filter(|_| self.can_use_elfs())?;
            let count = values.count()?;
            Some((FileValues::Elf(values), count))
        });
        let mut found: Vec<Option<(FileValues, u64)>> = listed.collect();
        let missing = found.iter().zip(files).filter(|(found, _)| found.is_none());
        let missing: Vec<Arc<TableFile>> = missing.map(|(_, file)| file.clone()).collect();
        // What cannot be opened is an error of the scan.
        let mut opened = TableFile::open_all(&missing, 1.0).into_iter();
        let unlisted = found.iter_mut().zip(files);
        for (found, file) in unlisted.filter(|(found, _)| found.is_none()) {
            let opened = opened.next().and_then(std::result::Result::ok);
            let dictionaries = opened.and_then(|file| Dictionaries::of(&file, column));
            *found = match dictionaries {
                Some(dictionaries) => Some((FileValues::Dictionaries, dictionaries.value_count())),
                None => self.first_values(file, column),
            };
        }
        found
    }

    /// The values of a file from the first dimension of an index, where rows repeat them.
    fn first_values(&self, file: &TableFile, column: usize) -> Option<(FileValues, u64)> {
        let stats = file.stats.columns.get(column)?;
        let count = stats.distinct.estimate();
        let repeats = count * ROWS_PER_LIST_MIN <= file.stats.row_count;
        if !repeats || !self.can_use_elfs() {
            return None;
        }
        let (number, bytes_max) = (file.paths.number, stats.encoded_bytes);
        let values = ElfValues::first(&self.table, number, column, bytes_max)?;
        Some((FileValues::Elf(values), count))
    }

    /// The same of some files only, without indexes.
    fn of_files(&self, files: Vec<Arc<TableFile>>) -> Self {
        let mut scan = self.without_metrics();
        scan.table = Arc::new(self.table.changed(files, Vec::new()));
        scan.partitions = self.env.workers(&scan.table, self.partitions);
        scan
    }
}

impl StoredValues {
    /// The scan of all rows.
    pub fn scan(&self) -> &TableScan {
        &self.scan
    }

    /// The values of all files, each value of a file at least once.
    pub fn open(self, context: Arc<TaskContext>) -> BoxStream<'static, QueryResult<RecordBatch>> {
        let files = 0..self.files.len();
        let batches = stream::iter(files).map(move |file_idx| {
            let (values, context) = (self.clone(), context.clone());
            async move { values.batches(file_idx, context).await }
        });
        batches.buffered(READ_TOGETHER).try_flatten().boxed()
    }

    /// The values of a file; those of its rows where something keeps its index from being asked.
    async fn batches(
        self,
        file_idx: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<BoxStream<'static, QueryResult<RecordBatch>>> {
        let batch_rows = context.session_config().batch_size();
        let (file, values) = &self.files[file_idx];
        let settings = SessionSettings::of(context.session_config());
        let reader = Arc::new(self.scan.read_context(&settings));
        let columns = match values {
            FileValues::Elf(values) => {
                let wanted = (self.scan.schema.field(0).data_type(), batch_rows);
                values
                    .read(&self.scan.env.elfs, reader.weight, wanted)
                    .await
            }
            FileValues::Dictionaries => self.dictionaries(file, reader).await?,
        };
        let Some(columns) = columns else {
            return Ok(self.rows(file, context)?.boxed());
        };
        let account = rows_on_the_way(&context);
        let pieces = columns.iter().flat_map(|column| pieces(column, batch_rows));
        let schema = &self.scan.schema;
        let batches = pieces.map(|piece| Ok(RecordBatch::try_new(schema.clone(), vec![piece])?));
        let batches = batches.collect::<QueryResult<Vec<_>>>()?;
        for column in &columns {
            account.grow(column.get_array_memory_size());
        }
        // They are held until the last one has been taken.
        let held = stream::iter(batches.into_iter().zip(repeat(Arc::new(account))));
        Ok(held.map(|(batch, _)| Ok(batch)).boxed())
    }

    async fn dictionaries(
        &self,
        file: &Arc<TableFile>,
        reader: Arc<ScanContext>,
    ) -> Result<Option<Vec<ArrayRef>>> {
        let opened = open_files(vec![file.clone()], reader.weight).await?;
        let Some(opened) = opened.into_iter().next().transpose()? else {
            return Ok(None);
        };
        let [column] = self.scan.columns[..] else {
            return Ok(None);
        };
        let Some(dictionaries) = Dictionaries::of(&opened, column) else {
            return Ok(None);
        };
        let field = self.scan.schema.field(0);
        let values = dictionaries.read(&opened, field, (reader, &self.scan.env.vortex));
        values.await.map(Some)
    }

    fn rows(
        &self,
        file: &Arc<TableFile>,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let mut scan = self.scan.of_files(vec![file.clone()]);
        scan.partitions = 1;
        scan.open(0, context)
    }

    /// What it reads, for EXPLAIN.
    pub fn described(&self) -> Vec<String> {
        let sources = self.files.iter().map(|(_, values)| match values {
            FileValues::Elf(values) => values.name(),
            FileValues::Dictionaries => "dictionaries",
        });
        let sources: BTreeSet<&str> = sources.collect();
        let sources: Vec<&str> = sources.into_iter().collect();
        let mut parts = self.scan.read_of_rows(&[0]);
        parts.push(format!("values=[{}]", sources.join(", ")));
        parts
    }
}

/// A column in pieces of at most this many rows.
fn pieces(column: &ArrayRef, rows: usize) -> impl Iterator<Item = ArrayRef> {
    let starts = (0..column.len()).step_by(rows.max(1));
    starts.map(move |start| column.slice(start, rows.min(column.len() - start)))
}
