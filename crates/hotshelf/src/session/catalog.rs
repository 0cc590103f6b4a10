//! The schema `public`: the database's tables, and the session's views over them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::exec_err;
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::prelude::SessionContext;
use parking_lot::RwLock;

use crate::database::{Database, IfExists, NewTable};
use crate::error::{Error, Result};
use crate::input::{Limits, file_table};
use crate::session::execute_partitions;
use crate::table::TableHandle;

pub(super) struct HotshelfSchema {
    database: Database,
    /// Views and external tables: they live as long as the session.
    transient: RwLock<HashMap<String, Arc<dyn TableProvider>>>,
}

impl HotshelfSchema {
    pub fn new(database: Database) -> Self {
        Self {
            database,
            transient: RwLock::default(),
        }
    }

    /// Stores the rows of an in-memory table: how a CREATE TABLE arrives that did not come through
    /// [`crate::Session`]. Runs on a thread of its own because the caller may be a worker.
    fn store(&self, name: String, table: Arc<dyn TableProvider>) -> Result<()> {
        let database = self.database.clone();
        let stored = std::thread::spawn(move || {
            database.clone().block_on(async move {
                let context = SessionContext::new();
                let plan = table
                    .scan(&context.state(), None, &[], None)
                    .await
                    .map_err(Error::from_query)?;
                let inputs = execute_partitions(&plan, &context.task_ctx())?;
                let rows = Arc::new(AtomicU64::new(0));
                let new = NewTable {
                    name: &name,
                    schema: table.schema(),
                    if_exists: IfExists::Fail,
                    cluster_by: &[],
                };
                database.inner().create_table(new, inputs, rows).await
            })
        });
        let stopped = || Error::NotSupported {
            what: "a table whose rows cannot be computed".into(),
        };
        stored.join().map_err(|_| stopped())?.map(|_| ())
    }
}

impl std::fmt::Debug for HotshelfSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HotshelfSchema").finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaProvider for HotshelfSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.database.table_names();
        names.extend(self.transient.read().keys().cloned());
        names
    }

    async fn table(
        &self,
        name: &str,
    ) -> QueryResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let inner = self.database.inner();
        if let Some(table) = inner.table(name) {
            return Ok(Some(Arc::new(TableHandle {
                table,
                inner: inner.clone(),
            })));
        }
        let transient = self.transient.read().get(name).cloned();
        if transient.is_some() {
            return Ok(transient);
        }
        let limits = Limits::of_budget(inner.options.read().budget_bytes);
        Ok(file_table(name, &inner.runtime_env, limits).await?)
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> QueryResult<Option<Arc<dyn TableProvider>>> {
        if self.table_exist(&name) {
            return exec_err!("table '{name}' already exists");
        }
        if table.downcast_ref::<MemTable>().is_some() {
            self.store(name, table)?;
            return Ok(None);
        }
        Ok(self.transient.write().insert(name, table))
    }

    fn deregister_table(&self, name: &str) -> QueryResult<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.transient.write().remove(name) {
            return Ok(Some(table));
        }
        let inner = self.database.inner();
        let Some(table) = inner.table(name) else {
            return Ok(None);
        };
        inner.drop_table(name)?;
        Ok(Some(Arc::new(TableHandle {
            table,
            inner: inner.clone(),
        })))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.database.inner().table(name).is_some() || self.transient.read().contains_key(name)
    }
}
