//! The formats as DataFusion's listing tables want them.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Statistics, not_impl_err};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::file_format::FileFormat as DataFusionFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result as QueryResult;
use datafusion::physical_plan::ExecutionPlan;
use object_store::{ObjectMeta, ObjectStore};

use super::file_format::FileFormat;
use super::named::NamedSource;
use super::pages::CheckedReaders;
use super::source::InputSource;
use super::text::{self, TextOptions};
use super::{Limits, arrow_file, decode};
use crate::error::{Error, Result};

/// CSV, JSON or Arrow.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputFormat {
    pub options: TextOptions,
    pub limits: Limits,
}

/// The columns of one file, as it says, or as its first lines suggest.
pub(super) fn infer(
    path: &std::path::Path,
    options: TextOptions,
    limits: Limits,
) -> Result<SchemaRef> {
    decode(path, || match options.format {
        FileFormat::Arrow => arrow_file::schema(path, limits),
        _ => text::infer(path, options, limits),
    })
}

#[async_trait]
impl DataFusionFormat for InputFormat {
    fn get_ext(&self) -> String {
        match self.options.format {
            FileFormat::Csv => "csv",
            FileFormat::Json => "json",
            FileFormat::Arrow => "arrow",
            FileFormat::Parquet => "parquet",
        }
        .to_owned()
    }

    fn get_ext_with_compression(&self, packing: &FileCompressionType) -> QueryResult<String> {
        use datafusion::common::GetExt;
        Ok(format!("{}{}", self.get_ext(), packing.get_ext()))
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        None
    }

    async fn infer_schema(
        &self,
        _state: &dyn Session,
        _store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> QueryResult<SchemaRef> {
        let mut schemas = Vec::with_capacity(objects.len());
        for object in objects {
            let path = PathBuf::from(format!("/{}", object.location));
            let schema = infer(&path, self.options, self.limits)?;
            schemas.push(schema.as_ref().clone());
        }
        Ok(Arc::new(Schema::try_merge(schemas)?))
    }

    async fn infer_stats(
        &self,
        _state: &dyn Session,
        _store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        _object: &ObjectMeta,
    ) -> QueryResult<Statistics> {
        Ok(Statistics::new_unknown(&table_schema))
    }

    async fn create_physical_plan(
        &self,
        _state: &dyn Session,
        config: FileScanConfig,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        Ok(DataSourceExec::from_data_source(config))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(InputSource::new(self.options, self.limits, table_schema))
    }
}

/// DataFusion's Parquet, with errors that name the file and pages that fit in the budget.
#[derive(Debug)]
pub(super) struct ParquetInput {
    pub inner: ParquetFormat,
    pub limits: Limits,
    /// Rows of a batch, such that a batch of the widest rows is not too large.
    pub batch_rows: usize,
}

impl ParquetInput {
    pub fn new(options: TableParquetOptions, limits: Limits, batch_rows: usize) -> Self {
        Self {
            inner: ParquetFormat::default().with_options(options),
            limits,
            batch_rows,
        }
    }
}

#[async_trait]
impl DataFusionFormat for ParquetInput {
    fn get_ext(&self) -> String {
        self.inner.get_ext()
    }

    fn get_ext_with_compression(&self, packing: &FileCompressionType) -> QueryResult<String> {
        self.inner.get_ext_with_compression(packing)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.inner.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> QueryResult<SchemaRef> {
        self.inner.infer_schema(state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> QueryResult<Statistics> {
        self.inner
            .infer_stats(state, store, table_schema, object)
            .await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let plan = self.inner.create_physical_plan(state, config).await?;
        let Some(config) = plan
            .downcast_ref::<DataSourceExec>()
            .and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>())
        else {
            return not_impl_err!("a Parquet scan that is not a file scan");
        };
        let Some(source) = config.file_source().downcast_ref::<ParquetSource>() else {
            return not_impl_err!("a Parquet scan without a Parquet source");
        };
        let mut source = source.clone();
        if let Some(readers) = source.parquet_file_reader_factory().cloned() {
            source = source.with_parquet_file_reader_factory(Arc::new(CheckedReaders {
                inner: readers,
                limits: self.limits,
            }));
        }
        let config = FileScanConfigBuilder::from(config.clone())
            .with_source(Arc::new(NamedSource(Arc::new(source))))
            .with_batch_size(Some(self.batch_rows))
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.inner.file_source(table_schema)
    }
}

/// An error of ours for DataFusion, about this file.
pub(super) fn named_error(path: &std::path::Path, error: Error) -> Error {
    match error {
        Error::Query(error) => super::bad(
            path,
            format!("it is damaged, or not what its name says: {error}"),
        ),
        own => own,
    }
}
