//! Makes the index file of a data file: learns its columns, encodes them, builds an Elf per stretch.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use hotshelf_cache::ScanContext;
use hotshelf_elf::ElfError;
use hotshelf_elf::cost::{CostModel, advise};
use hotshelf_elf::keys::{CodeColumn, CodeTable};
use hotshelf_elf::layout::packed::{ExternalBuilder, PackedElf, PackedOptions};
use hotshelf_store::StoreError;
use hotshelf_store::root::Root;
use vortex::array::{MaskFuture, VortexSessionExecute};
use vortex::expr::{get_item, pack, root};
use vortex::layout::LayoutReader;
use vortex::session::VortexSession;
use vortex_arrow::ArrowSessionExt;

use super::file::Indexes;
use super::keys::{KeyColumn, KeyLearner};
use super::zones::Zones;
use crate::error::{Error, Result};
use crate::scan::{ScanSegments, SegmentAdapter};
use hotshelf_store::data_file::DataFile;
use hotshelf_store::index::write::{BuiltStretch, FileWriter};

/// Rows read together: those of a large row group.
const PIECE_ROWS: u64 = super::STRETCH_ROWS_MIN;
/// Bytes that a row takes while it is sorted, about.
const SORTED_ROW_BYTES: usize = 16;
/// Rows looked at to advise an order of columns.
const SAMPLE_ROWS: u64 = 1 << 17;

/// Reads whole columns of a data file, without a trace in the cache.
struct ColumnReader {
    segments: Arc<ScanSegments>,
    reader: Arc<dyn LayoutReader>,
    session: VortexSession,
    schema: SchemaRef,
}

impl ColumnReader {
    fn new(
        file: &Arc<DataFile>,
        schema: &SchemaRef,
        columns: &[usize],
        session: &VortexSession,
    ) -> Result<Self> {
        let context = Arc::new(ScanContext::new(0, 0, 0).with_populate(false));
        let segments = ScanSegments::new(file.clone(), context);
        let source = Arc::new(SegmentAdapter(segments.clone()));
        let layout = file.footer.layout();
        let reader = layout.new_reader("".into(), source, session, &Default::default())?;
        let schema = schema
            .project(columns)
            .map_err(DataFusionError::from)?
            .into();
        Ok(Self {
            segments,
            reader,
            session: session.clone(),
            schema,
        })
    }

    async fn read(&self, rows: &Range<u64>) -> Result<Vec<ArrayRef>> {
        let columns = self.schema.fields().iter().map(|field| {
            let name = field.name().clone();
            (name.clone(), get_item(name, root()))
        });
        let projection = pack(columns, vortex::dtype::Nullability::NonNullable);
        let projection = projection.bind(self.reader.dtype())?;
        let mask = MaskFuture::new_true((rows.end - rows.start) as usize);
        let typed = |error| self.segments.typed(error);
        let projected = self
            .reader
            .projection_evaluation(rows, &projection, mask)
            .map_err(typed)?;
        let projected = projected.await.map_err(typed)?;
        let target = Field::new_struct("", self.schema.fields().clone(), false);
        let mut context = self.session.create_execution_ctx();
        let arrow = self.session.arrow();
        let decoded = arrow
            .execute_arrow(projected, Some(&target), &mut context)
            .map_err(typed)?;
        Ok(decoded.as_struct().clone().into_parts().1)
    }
}

/// Builds index files.
pub(crate) struct IndexWriter {
    pub schema: SchemaRef,
    pub session: VortexSession,
    /// Number of the index.
    pub index: i64,
    /// Columns in the order of the Elf, by index in the table.
    pub columns: Vec<usize>,
    /// Whether the rows of data files should be in this order.
    pub clustered: bool,
    pub stretch_rows: u64,
    pub threads: usize,
}

/// Where a file is written.
#[derive(Clone, Copy)]
struct Place<'a> {
    root: &'a Root,
    path: &'a Path,
}

impl Place<'_> {
    /// An empty file that is gone when it is closed. It has the name of the file that is written only until this
    /// returns, so that a crash leaves nothing unknown.
    fn scratch(self) -> Result<std::fs::File> {
        let file = self.root.create_readable(self.path)?;
        self.root.remove(self.path);
        Ok(file)
    }
}

/// What happened to an index file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Indexed {
    /// It was written, with this many bytes.
    Written(u64),
    /// The data cannot be indexed; the file will be scanned.
    Refused(String),
}

impl IndexWriter {
    /// Writes and syncs the index file of a data file at `path`. A failure leaves no file.
    pub async fn write(&self, file: &Arc<DataFile>, root: &Root, path: &Path) -> Result<Indexed> {
        let place = Place { root, path };
        let unfinished = Unfinished(Some((root.clone(), path.to_owned())));
        match self.write_file(file, place).await {
            Ok(bytes) => {
                unfinished.keep();
                Ok(Indexed::Written(bytes))
            }
            Err(Error::Elf(
                refused @ (ElfError::TooManyValues { .. } | ElfError::TooManyRows { .. }),
            )) => Ok(Indexed::Refused(refused.to_string())),
            Err(error) => Err(error),
        }
    }

    async fn write_file(&self, file: &Arc<DataFile>, place: Place<'_>) -> Result<u64> {
        let reader = ColumnReader::new(file, &self.schema, &self.columns, &self.session)?;
        let row_count = file.stats.row_count;
        let mut learners: Vec<KeyLearner> = Vec::new();
        learners.resize_with(self.columns.len(), KeyLearner::default);
        // A file of one stretch is read once.
        let keeps = row_count <= self.stretch_rows;
        let mut kept = Vec::new();
        for rows in pieces(0..row_count) {
            let columns = reader.read(&rows).await?;
            for (learner, column) in learners.iter_mut().zip(&columns) {
                learner.add(column)?;
            }
            if keeps {
                kept.push(columns);
            }
        }
        let keys = learners.into_iter().map(KeyLearner::finish);
        let keys = Arc::new(keys.collect::<Result<Vec<KeyColumn>, StoreError>>()?);
        let writer = match self.clustered || keeps {
            true => {
                let kept = kept.into_iter();
                let written = self.write_stretches(&reader, row_count, &keys, kept, place);
                match written.await? {
                    Some(writer) => writer,
                    None => return Box::pin(self.write_unclustered(file, place)).await,
                }
            }
            false => self.write_one_elf(&reader, row_count, &keys, place).await?,
        };
        let indexes = Indexes {
            row_count,
            file_bytes: file.file_bytes(),
            footer_sum: file.footer_sum,
            id: file.id,
        };
        let index = self.index;
        blocking(move || Ok(writer.finish(&keys, indexes, index)?)).await
    }

    /// Writes an Elf per stretch, from columns that were kept or are read again. `None` if the rows should be in the
    /// order of the index and are not.
    async fn write_stretches(
        &self,
        reader: &ColumnReader,
        row_count: u64,
        keys: &Arc<Vec<KeyColumn>>,
        mut kept: impl Iterator<Item = Vec<ArrayRef>>,
        place: Place<'_>,
    ) -> Result<Option<FileWriter>> {
        let mut out = FileWriter::create(place.root, place.path, self.clustered)?;
        for first in (0..row_count).step_by(self.stretch_rows as usize) {
            let end = row_count.min(first + self.stretch_rows);
            let mut batches = Vec::new();
            for rows in pieces(first..end) {
                batches.push(match kept.next() {
                    Some(columns) => columns,
                    None => reader.read(&rows).await?,
                });
            }
            let Some(built) = self.build(keys.clone(), batches).await? else {
                return Ok(None);
            };
            let add = move || Ok(out.add(first..end, &built).map(|()| out)?);
            out = blocking(add).await?;
        }
        Ok(Some(out))
    }

    /// Writes one Elf of all rows, sorted stretch by stretch into files without a name and merged.
    async fn write_one_elf(
        &self,
        reader: &ColumnReader,
        row_count: u64,
        keys: &Arc<Vec<KeyColumn>>,
        place: Place<'_>,
    ) -> Result<FileWriter> {
        let code_max: Vec<u32> = keys.iter().map(KeyColumn::code_max).collect();
        let rows = usize::try_from(row_count).unwrap_or(usize::MAX);
        // As much as a stretch takes while it is sorted.
        let buffer_bytes = self.stretch_rows as usize * SORTED_ROW_BYTES;
        let mut builder = ExternalBuilder::new(&code_max, rows, self.options(), buffer_bytes)?;
        let mut zones = Zones::default();
        for first in (0..row_count).step_by(self.stretch_rows as usize) {
            let end = row_count.min(first + self.stretch_rows);
            let mut batches = Vec::new();
            for rows in pieces(first..end) {
                batches.push(reader.read(&rows).await?);
            }
            let (keys, run, spare) = (keys.clone(), place.scratch()?, place.scratch()?);
            let add = move || {
                let table = encode(&keys, batches)?;
                let stretch = Zones::new(&table);
                let added = builder.add(table, run, spare);
                added.map_err(StoreError::from)?;
                Ok((builder, stretch))
            };
            let (added, stretch) = blocking(add).await?;
            builder = added;
            zones.append(stretch);
        }
        let scratch = place.scratch()?;
        let mut out = FileWriter::create(place.root, place.path, false)?;
        let finish = move || {
            out.add_external(0..row_count, builder, scratch, &zones)?;
            Ok(out)
        };
        blocking(finish).await
    }

    fn options(&self) -> PackedOptions {
        PackedOptions {
            clustered: self.clustered,
            thread_count: self.threads,
            salt: hotshelf_store::random_id(),
            ..PackedOptions::default()
        }
    }

    /// Once more, with TIDs: the rows are not in the order of the index.
    async fn write_unclustered(&self, file: &Arc<DataFile>, place: Place<'_>) -> Result<u64> {
        let plain = Self {
            schema: self.schema.clone(),
            session: self.session.clone(),
            columns: self.columns.clone(),
            clustered: false,
            ..*self
        };
        plain.write_file(file, place).await
    }

    /// The Elf of a stretch and what is known about its rows. `None` if they should be in its order and are not.
    async fn build(
        &self,
        keys: Arc<Vec<KeyColumn>>,
        batches: Vec<Vec<ArrayRef>>,
    ) -> Result<Option<BuiltStretch>> {
        let options = self.options();
        blocking(move || {
            let table = encode(&keys, batches)?;
            let elf = match options.clustered {
                true => {
                    let (elf, order) = PackedElf::build_with_order(&table, &options)?;
                    if (0..).zip(&order).any(|(row, tid)| row != *tid) {
                        return Ok(None);
                    }
                    elf
                }
                false => PackedElf::build(&table, &options)?,
            };
            Ok(Some(BuiltStretch {
                model: CostModel::new(&elf, &table),
                zones: Zones::new(&table),
                elf,
            }))
        })
        .await
    }
}

/// Rows that are read together.
fn pieces(rows: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let starts = rows.clone().step_by(PIECE_ROWS as usize);
    starts.map(move |start| start..rows.end.min(start + PIECE_ROWS))
}

/// The codes of some batches as one table.
fn encode(keys: &[KeyColumn], batches: Vec<Vec<ArrayRef>>) -> Result<CodeTable> {
    let columns = keys.iter().enumerate().map(|(idx, key)| {
        let encoded = batches.iter().map(|batch| key.encode(&batch[idx]));
        let encoded = encoded.collect::<Result<Vec<CodeColumn>, StoreError>>()?;
        let max = encoded.iter().map(CodeColumn::max).max().unwrap_or(0);
        let codes = encoded
            .iter()
            .flat_map(|column| (0..column.len()).map(|row| column.get(row)));
        Ok(CodeColumn::from_codes(codes, max))
    });
    Ok(CodeTable::new(columns.collect::<Result<_>>()?)?)
}

/// Runs work that keeps a core busy away from the runtime's threads.
async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<R> {
    let stopped = |error| Error::Query(DataFusionError::ExecutionJoin(Box::new(error)));
    SpawnedTask::spawn_blocking(work).await.map_err(stopped)?
}

/// Removes a file that was not finished.
struct Unfinished(Option<(Root, PathBuf)>);

impl Unfinished {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some((root, path)) = &self.0 {
            root.remove(path);
        }
    }
}

/// The columns in the order that suits an Elf best, from a sample of a data file.
pub(crate) async fn advise_order(
    file: &Arc<DataFile>,
    schema: &SchemaRef,
    columns: &[usize],
    session: &VortexSession,
    row_count: u64,
) -> Result<Vec<usize>> {
    let reader = ColumnReader::new(file, schema, columns, session)?;
    let sample = 0..file.stats.row_count.min(SAMPLE_ROWS);
    let arrays = reader.read(&sample).await?;
    let codes = arrays.iter().map(|array| {
        let mut learner = KeyLearner::default();
        learner.add(array)?;
        learner.finish()?.encode(array)
    });
    let table = CodeTable::new(codes.collect::<Result<_, StoreError>>()?)?;
    let advice = advise(&table, row_count, &[])?;
    Ok(advice.order.into_iter().map(|at| columns[at]).collect())
}
