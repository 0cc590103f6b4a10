//! How DataFusion's scans read CSV, JSON and Arrow files: one file after the other, each with its own columns.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{
    FileGroupPartitioner, FileOpenFuture, FileOpener, FileScanConfig, FileSource,
};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::StreamExt;
use object_store::ObjectStore;

use super::exact::{exact_cast, nulls};
use super::file_format::FileFormat;
use super::text::{TextBatches, TextColumns, TextOptions, csv_columns, unpacked};
use super::{Limits, arrow_file, bad, decode, files, named};
use crate::error::{Error, Result};

/// The files of a scan.
#[derive(Clone)]
pub(crate) struct InputSource {
    options: TextOptions,
    limits: Limits,
    table_schema: TableSchema,
    projection: SplitProjection,
    metrics: ExecutionPlanMetricsSet,
}

impl InputSource {
    pub fn new(options: TextOptions, limits: Limits, table_schema: TableSchema) -> Self {
        Self {
            options,
            limits,
            projection: SplitProjection::unprojected(&table_schema),
            table_schema,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl FileSource for InputSource {
    fn create_file_opener(
        &self,
        _store: Arc<dyn ObjectStore>,
        _config: &FileScanConfig,
        _partition: usize,
    ) -> QueryResult<Arc<dyn FileOpener>> {
        let opener = Arc::new(InputOpener {
            options: self.options,
            limits: self.limits,
            table: self.table_schema.file_schema().clone(),
            wanted: self.projection.file_indices.clone(),
        });
        ProjectionOpener::try_new(
            self.projection.clone(),
            opener,
            self.table_schema.file_schema(),
        )
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table_schema
    }

    fn with_batch_size(&self, _batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(self.clone())
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> QueryResult<Option<Arc<dyn FileSource>>> {
        let mut source = self.clone();
        let merged = self.projection.source.try_merge(projection)?;
        source.projection = SplitProjection::new(self.table_schema.file_schema(), &merged);
        Ok(Some(Arc::new(source)))
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        match self.options.format {
            FileFormat::Csv => "csv",
            FileFormat::Json => "json",
            FileFormat::Arrow => "arrow",
            FileFormat::Parquet => "parquet",
        }
    }

    /// Only plain text can be cut at line ends. Arrow files are read batch by batch.
    fn repartitioned(
        &self,
        target_partitions: usize,
        repartition_file_min_size: usize,
        output_ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> QueryResult<Option<FileScanConfig>> {
        let is_packed =
            |file: &PartitionedFile| files::packing(&named::path_of(file)).is_compressed();
        let mut scanned = config.file_groups.iter().flat_map(|group| group.iter());
        if self.options.format == FileFormat::Arrow || scanned.any(is_packed) {
            return Ok(None);
        }
        let groups = FileGroupPartitioner::new()
            .with_target_partitions(target_partitions)
            .with_repartition_file_min_size(repartition_file_min_size)
            .with_preserve_order_within_groups(output_ordering.is_some())
            .repartition_file_groups(&config.file_groups);
        Ok(groups.map(|groups| {
            let mut config = config.clone();
            config.file_groups = groups;
            config
        }))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        datafusion::physical_plan::apply_expression_roots(self.projection.source.iter(), f)
    }
}

#[derive(Clone)]
struct InputOpener {
    options: TextOptions,
    limits: Limits,
    /// Columns of the table's files, of which a file may lack some.
    table: SchemaRef,
    wanted: Vec<usize>,
}

impl FileOpener for InputOpener {
    fn open(&self, file: PartitionedFile) -> QueryResult<FileOpenFuture> {
        let opener = self.clone();
        Ok(Box::pin(async move {
            let path = named::path_of(&file);
            let batches = decode(&path, || opener.batches(&path, file.range.as_ref()))?;
            let batches = Caught {
                batches,
                path,
                failed: false,
            };
            Ok(futures::stream::iter(batches).boxed())
        }))
    }
}

type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl InputOpener {
    fn batches(&self, path: &Path, range: Option<&FileRange>) -> Result<Batches> {
        let found: Batches = match self.options.format {
            FileFormat::Arrow => Box::new(arrow_file::batches(path, self.limits)?),
            _ => Box::new(self.text(path, range)?),
        };
        let columns = Arc::new(TableColumns {
            path: path.to_owned(),
            wanted: Arc::new(
                self.table
                    .project(&self.wanted)
                    .map_err(DataFusionError::from)?,
            ),
        });
        Ok(Box::new(found.map(move |batch| columns.arrange(&batch?))))
    }

    fn text(&self, path: &Path, range: Option<&FileRange>) -> Result<TextBatches> {
        let columns = match self.options.format {
            FileFormat::Json => TextColumns {
                own: Arc::new(
                    self.table
                        .project(&self.wanted)
                        .map_err(DataFusionError::from)?,
                ),
                wanted: Vec::new(),
            },
            _ => csv_columns(path, self.options, self.limits, &self.table, &self.wanted)?,
        };
        let mut file = std::fs::File::open(path).map_err(Error::io("open", path))?;
        let (input, from_start): (Box<dyn Read + Send>, bool) = match range {
            None => (unpacked(file, path)?, true),
            Some(range) => {
                let (start, end) = (
                    line_start(&mut file, range.start, path)?,
                    line_start(&mut file, range.end, path)?,
                );
                file.seek(SeekFrom::Start(start))
                    .map_err(Error::io("read", path))?;
                (Box::new(file.take(end.saturating_sub(start))), start == 0)
            }
        };
        TextBatches::new(path, self.options, columns, self.limits, input, from_start)
    }
}

/// The first line start at or behind an offset: both neighbours of a cut find the same one.
fn line_start(file: &mut std::fs::File, offset: i64, path: &Path) -> Result<u64> {
    let Some(before) = u64::try_from(offset)
        .ok()
        .and_then(|offset| offset.checked_sub(1))
    else {
        return Ok(0);
    };
    file.seek(SeekFrom::Start(before))
        .map_err(Error::io("read", path))?;
    let mut at = before;
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = file.read(&mut piece).map_err(Error::io("read", path))?;
        if read == 0 {
            return Ok(at);
        }
        if let Some(end) = piece[..read].iter().position(|byte| *byte == b'\n') {
            return Ok(at + end as u64 + 1);
        }
        at += read as u64;
    }
}

/// The columns a scan wants of a file.
struct TableColumns {
    path: PathBuf,
    wanted: SchemaRef,
}

impl TableColumns {
    /// Puts the columns of a batch in order; those that the file lacks are NULL.
    fn arrange(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(self.wanted.fields().len());
        for field in self.wanted.fields() {
            columns.push(match batch.column_by_name(field.name()) {
                None => nulls(field.data_type(), batch.num_rows()),
                Some(column) => exact_cast(column, field.data_type()).map_err(|misfit| {
                    misfit.in_file(&self.path, field.name(), field.data_type(), None)
                })?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let nullable: Vec<_> = self
            .wanted
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        RecordBatch::try_new_with_options(Arc::new(Schema::new(nullable)), columns, &options)
            .map_err(|error| bad(&self.path, error.to_string()))
    }
}

/// Batches of a decoder that may panic; the last item is the first error.
struct Caught {
    batches: Batches,
    path: PathBuf,
    failed: bool,
}

impl Iterator for Caught {
    type Item = QueryResult<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = decode(&self.path, || self.batches.next().transpose()).transpose()?;
        self.failed = next.is_err();
        Some(next.map_err(DataFusionError::from))
    }
}
