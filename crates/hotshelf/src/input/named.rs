//! Scans whose errors name the file: any `FileSource` of DataFusion, wrapped. A panic of its decoder is an error, too.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpener, FileScanConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use object_store::ObjectStore;

use super::{bad, panicked};
use crate::error::Error;

/// A source whose errors name the file they come from.
#[derive(Clone)]
pub(crate) struct NamedSource(pub Arc<dyn FileSource>);

impl FileSource for NamedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.0.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let inner = self.0.create_morselizer(store, config, partition)?;
        Ok(Box::new(NamedMorselizer(inner)))
    }

    fn table_schema(&self) -> &TableSchema {
        self.0.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self(self.0.with_batch_size(batch_size)))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.0.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.0.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.0.metrics()
    }

    fn file_type(&self) -> &str {
        self.0.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt_extra(format, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.0.supports_repartitioning()
    }

    fn repartitioned(
        &self,
        target_partitions: usize,
        repartition_file_min_size: usize,
        output_ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        self.0.repartitioned(
            target_partitions,
            repartition_file_min_size,
            output_ordering,
            config,
        )
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut pushed = self.0.try_pushdown_filters(filters, config)?;
        pushed.updated_node = pushed.updated_node.map(named);
        Ok(pushed)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        Ok(self.0.try_pushdown_sort(order, properties)?.map(named))
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.0.reorder_files(files)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        Ok(self.0.try_pushdown_projection(projection)?.map(named))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.0.apply_expressions(f)
    }
}

fn named(source: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
    Arc::new(NamedSource(source))
}

/// The path of a file that a scan reads.
pub(super) fn path_of(file: &PartitionedFile) -> PathBuf {
    PathBuf::from(format!("/{}", file.object_meta.location))
}

/// Our own errors name their file already.
fn name_file(path: &Path, error: DataFusionError) -> DataFusionError {
    match Error::from_query(error) {
        Error::Query(DataFusionError::ResourcesExhausted(text)) => {
            DataFusionError::ResourcesExhausted(text)
        }
        Error::Query(error) => match own_inside(&error) {
            Some(own) => own.into(),
            None => bad(
                path,
                format!("it is damaged, or not what its name says: {error}"),
            )
            .into(),
        },
        own => own.into(),
    }
}

/// An error of ours that the layers in between carry along as a cause.
fn own_inside(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(Error::InputTooLarge {
            path,
            what,
            needed_bytes,
            allowed_bytes,
        }) = error.downcast_ref()
        {
            return Some(Error::InputTooLarge {
                path: path.clone(),
                what: what.clone(),
                needed_bytes: *needed_bytes,
                allowed_bytes: *allowed_bytes,
            });
        }
        next = error.source();
    }
    None
}

fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| name_file(path, error)),
        Err(panic) => Err(panicked(path, panic.as_ref()).into()),
    }
}

#[derive(Debug)]
struct NamedMorselizer(Box<dyn Morselizer>);

impl Morselizer for NamedMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let path = path_of(&file);
        let inner = guarded(&path, || self.0.plan_file(file))?;
        Ok(Box::new(NamedPlanner { inner, path }))
    }
}

#[derive(Debug)]
struct NamedPlanner {
    inner: Box<dyn MorselPlanner>,
    path: PathBuf,
}

impl MorselPlanner for NamedPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { inner, path } = *self;
        let Some(mut plan) = guarded(&path, || inner.plan())? else {
            return Ok(None);
        };
        let wrap = |inner, path: &PathBuf| -> Box<dyn MorselPlanner> {
            Box::new(Self {
                inner,
                path: path.clone(),
            })
        };
        let planners = plan.take_ready_planners();
        let planners = planners
            .into_iter()
            .map(|planner| wrap(planner, &path))
            .collect();
        let morsels = plan
            .take_morsels()
            .into_iter()
            .map(|inner| -> Box<dyn Morsel> {
                Box::new(NamedMorsel {
                    inner,
                    path: path.clone(),
                })
            });
        let mut wrapped = MorselPlan::new()
            .with_morsels(morsels.collect())
            .with_planners(planners);
        if let Some(pending) = plan.take_pending_planner() {
            wrapped.set_pending_planner(async move {
                let planner = AssertUnwindSafe(pending).catch_unwind().await;
                match planner {
                    Ok(planner) => planner
                        .map(|planner| wrap(planner, &path))
                        .map_err(|error| name_file(&path, error)),
                    Err(panic) => Err(panicked(&path, panic.as_ref()).into()),
                }
            });
        }
        Ok(Some(wrapped))
    }
}

#[derive(Debug)]
struct NamedMorsel {
    inner: Box<dyn Morsel>,
    path: PathBuf,
}

impl Morsel for NamedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { inner, path } = *self;
        match guarded(&path, || Ok(inner.into_stream())) {
            Ok(inner) => NamedStream {
                inner: Some(inner),
                path,
            }
            .boxed(),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }
}

/// Ends with the first error or panic.
struct NamedStream {
    inner: Option<BoxStream<'static, Result<RecordBatch>>>,
    path: PathBuf,
}

impl Stream for NamedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let polled = catch_unwind(AssertUnwindSafe(|| inner.poll_next_unpin(context)));
        match polled {
            Ok(Poll::Ready(Some(Err(error)))) => {
                self.inner = None;
                Poll::Ready(Some(Err(name_file(&self.path, error))))
            }
            Ok(polled) => polled,
            Err(panic) => {
                self.inner = None;
                Poll::Ready(Some(Err(panicked(&self.path, panic.as_ref()).into())))
            }
        }
    }
}
