//! The catalog as DataFusion asks for it: schemas, their tables and views, and the session's external tables.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider, UrlTableFactory};
use datafusion::common::exec_err;
use datafusion::datasource::dynamic_file::DynamicListTableFactory;
use datafusion::datasource::{MemTable, TableType};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use hotshelf_store::placement::Placement;
use parking_lot::RwLock;

use super::views::{BrokenView, is_planning, view_table};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::input::{Limits, file_table};
use crate::storage::{IfExists, NewTable, PUBLIC, Storage, full_name, split};
use crate::stored_table::StoredTable;
use crate::table::Table;

/// Whether a name can be that of files: a path or a pattern, or a name with an ending. Other names are those of
/// tables alone, whatever the working directory has.
fn may_name_files(name: &str) -> bool {
    name.contains(['.', '/', '\\', '*', '?', '['])
}

/// The schemas of a database, for one session.
pub(super) struct HotshelfCatalog(Arc<Shared>);

/// What the schemas of a session have in common.
struct Shared {
    database: Database,
    /// External tables by their full names: they live as long as the session.
    transient: RwLock<HashMap<String, Arc<dyn TableProvider>>>,
    /// The session's state, which plans views.
    state: Weak<RwLock<SessionState>>,
    /// Makes tables of files of other formats that DataFusion knows, by path or URL.
    others: DynamicListTableFactory,
}

impl HotshelfCatalog {
    pub fn new(database: Database, state: Weak<RwLock<SessionState>>) -> Self {
        let others = DynamicListTableFactory::default();
        others.session_store().with_state(state.clone());
        Self(Arc::new(Shared {
            database,
            transient: RwLock::default(),
            state,
            others,
        }))
    }
}

impl std::fmt::Debug for HotshelfCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HotshelfCatalog").finish_non_exhaustive()
    }
}

impl CatalogProvider for HotshelfCatalog {
    fn schema_names(&self) -> Vec<String> {
        let schemas = self.0.database.storage().schemas();
        std::iter::once(PUBLIC.to_owned()).chain(schemas).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let exists = self.0.database.storage().has_schema(name);
        exists.then(|| {
            Arc::new(HotshelfSchema {
                schema: name.to_owned(),
                shared: self.0.clone(),
            }) as _
        })
    }
}

/// One schema.
struct HotshelfSchema {
    schema: String,
    shared: Arc<Shared>,
}

impl HotshelfSchema {
    fn full(&self, name: &str) -> String {
        full_name(&self.schema, name)
    }

    fn storage(&self) -> &Arc<Storage> {
        self.shared.database.storage()
    }

    fn stored(&self, table: Arc<Table>) -> Arc<StoredTable> {
        Arc::new(StoredTable {
            table,
            storage: self.storage().clone(),
            env: self.shared.database.engine().scan_env.clone(),
        })
    }

    /// Stores the rows of an in-memory table: how a CREATE TABLE arrives that did not come through
    /// [`crate::Session`]. Runs on a thread of its own because the caller may be a worker.
    fn store(&self, name: String, table: Arc<dyn TableProvider>) -> Result<()> {
        let database = self.shared.database.clone();
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
                    placement: Placement::default(),
                };
                database.storage().create_table(new, inputs, rows).await
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
        let mut names = self.storage().names_in(&self.schema);
        let transient = self.shared.transient.read();
        let is_here = |name: &&String| split(name).0 == self.schema;
        names.extend(transient.keys().filter(is_here).cloned());
        let own = names.iter().map(|name| split(name).1.to_owned());
        own.collect()
    }

    async fn table(
        &self,
        name: &str,
    ) -> QueryResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        // `FROM 'sales'` where there are a table and a folder of that name.
        let name = match name.strip_suffix('/') {
            Some(plain) if self.table_exist(plain) => plain,
            _ => name,
        };
        let (storage, full) = (self.storage(), self.full(name));
        if let Some(table) = storage.table(&full) {
            return Ok(Some(self.stored(table)));
        }
        if let Some(text) = storage.view(&full) {
            let state = self.shared.state.upgrade();
            let state = state.ok_or(Error::Cancelled)?.read().clone();
            return match view_table(&state, &full, &text).await {
                // A list of all tables shows a view that cannot be planned, too.
                Err(error) if !is_planning() => Ok(Some(Arc::new(BrokenView(error.to_string())))),
                planned => Ok(Some(planned?)),
            };
        }
        let transient = self.shared.transient.read().get(&full).cloned();
        if transient.is_some() || self.schema != PUBLIC {
            return Ok(transient);
        }
        if !may_name_files(name) {
            return Ok(None);
        }
        let engine = self.shared.database.engine();
        let limits = Limits::of_budget(engine.budget_bytes());
        match file_table(name, &engine.runtime_env, limits).await? {
            Some(table) => Ok(Some(table)),
            None => self.shared.others.try_new(name).await,
        }
    }

    async fn table_type(&self, name: &str) -> QueryResult<Option<TableType>> {
        let full = self.full(name);
        if self.storage().view(&full).is_some() {
            return Ok(Some(TableType::View));
        }
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> QueryResult<Option<Arc<dyn TableProvider>>> {
        if self.table_exist(&name) {
            return exec_err!("table '{name}' already exists");
        }
        let full = self.full(&name);
        if table.downcast_ref::<MemTable>().is_some() {
            self.store(full, table)?;
            return Ok(None);
        }
        Ok(self.shared.transient.write().insert(full, table))
    }

    fn deregister_table(&self, name: &str) -> QueryResult<Option<Arc<dyn TableProvider>>> {
        let full = self.full(name);
        if let Some(table) = self.shared.transient.write().remove(&full) {
            return Ok(Some(table));
        }
        let storage = self.storage();
        let Some(table) = storage.table(&full) else {
            return Ok(None);
        };
        storage.drop_table(&full)?;
        Ok(Some(self.stored(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        let full = self.full(name);
        self.storage().table(&full).is_some()
            || self.storage().view(&full).is_some()
            || self.shared.transient.read().contains_key(&full)
    }
}

/// The streams of all partitions of a plan.
fn execute_partitions(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<Vec<SendableRecordBatchStream>> {
    (0..plan.output_partitioning().partition_count())
        .map(|partition| {
            plan.execute(partition, context.clone())
                .map_err(Error::from_query)
        })
        .collect()
}
