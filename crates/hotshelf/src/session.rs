//! Sessions: SQL text in, batches out.
//!
//! Everything is DataFusion's but what concerns our storage: CREATE TABLE streams into data files, DROP and
//! INSERT go to the catalog, and every query gets a number and a template fingerprint.

mod account;
mod answer;
pub(crate) mod aside;
mod batch_rows;
mod catalog;
mod columns;
mod combinations;
mod copy;
mod depth;
mod exact_cast;
mod exact_number;
mod explain;
mod filling;
mod fingerprint;
mod group_counts;
mod index;
mod insert;
mod interrupt;
mod join_times;
mod lean;
mod learning;
mod options;
mod order_by;
mod parsing;
mod parts;
mod planned;
mod planning;
mod point;
mod prepared;
mod recall;
mod repeated;
mod room;
mod samples;
mod schemas;
mod shape;
mod shelves;
mod syntax;
mod tables;
mod target;
mod template;
mod text;
mod unique;
mod using;
mod value;
mod views;
mod written_out;

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as ParsedStatement;
use vortex_datafusion::VortexFormatFactory;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::index::JOIN_KEYS_MAX;
use crate::settings::{DatabaseSettings, SessionSettings};
use crate::storage::PUBLIC;

use catalog::HotshelfCatalog;
use lean::LeanState;
use options::TableClauses;
use parsing::parse;
use planned::Planned;
use prepared::PreparedStatements;

pub use answer::Answer;
pub use parsing::Statement;
pub(crate) use planned::{interrupt_of, plan_physically, ready};
pub use value::Value;

/// Names under which our tables are found when a query does not qualify them.
const CATALOG: &str = "hotshelf";

/// A build side up to this size is collected once and shared by all workers of a join.
const BROADCAST_ROWS_MAX: usize = 4_000_000;
const BROADCAST_BYTES_MAX: usize = 64 << 20;

/// A join's keys are listed for scans if they take no more than this.
const JOIN_KEY_BYTES_MAX: usize = 256 << 10;

/// A session: SQL with its own settings over the shared tables of a [`Database`].
///
/// `Send + Sync` and cheap to clone. Clones are the same session: they share settings and prepared statements.
#[derive(Clone)]
pub struct Session {
    database: Database,
    context: SessionContext,
    prepared: PreparedStatements,
    lean: LeanState,
}

impl Database {
    /// A session: SQL with its own settings over the shared tables.
    pub fn session(&self) -> Session {
        Session::new(self)
    }
}

impl Session {
    fn new(database: &Database) -> Self {
        let (engine, threads) = (database.engine(), database.machine().threads);
        let shared: Arc<dyn DatabaseSettings> = engine.clone();
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_target_partitions(threads)
            .with_default_catalog_and_schema(CATALOG, PUBLIC)
            .with_create_default_catalog_and_schema(false)
            .with_option_extension(SessionSettings::new(
                Arc::downgrade(&shared),
                database.parts().past_runs.clone(),
                threads,
            ))
            .with_extension(engine.spill.clone())
            .with_extension(database.storage().opener.shelves().clone());
        let optimizer = &mut config.options_mut().optimizer;
        optimizer.hash_join_single_partition_threshold = BROADCAST_BYTES_MAX;
        optimizer.hash_join_single_partition_threshold_rows = BROADCAST_ROWS_MAX;
        optimizer.hash_join_inlist_pushdown_max_distinct_values = JOIN_KEYS_MAX;
        optimizer.hash_join_inlist_pushdown_max_size = JOIN_KEY_BYTES_MAX;
        // It takes each NaN for a value of its own (`docs/upstream/first-groups-of-nan.md`).
        optimizer.enable_topk_aggregation = false;
        // Expressions that are never NULL are planned as such, and computed by what may give NULL by its type
        // (`docs/upstream/values-that-are-never-null.md`).
        let execution = &mut config.options_mut().execution;
        execution.skip_physical_aggregate_schema_check = true;
        let mut builder = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(engine.runtime_env.clone())
            .with_default_features()
            .with_analyzer_rules(crate::plan::analyzer_rules())
            .with_optimizer_rules(crate::plan::logical_rules())
            .with_physical_optimizer_rules(crate::plan::physical_rules());
        if let Some(formats) = builder.file_formats() {
            let vortex = database.storage().vortex.clone();
            formats.push(Arc::new(VortexFormatFactory::new_with_session(vortex)));
        }
        let context = SessionContext::new_with_state(builder.build());
        let catalog = HotshelfCatalog::new(database.clone(), context.state_weak_ref());
        context.register_catalog(CATALOG, Arc::new(catalog));
        crate::functions::register(&context, database.parts());
        Self {
            database: database.clone(),
            context,
            prepared: PreparedStatements::default(),
            lean: LeanState::default(),
        }
    }

    /// The query engine's own context.
    pub(crate) fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The database of the session.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Splits SQL text into statements.
    ///
    /// # Errors
    /// The text is not SQL ([`ErrorKind::Statement`](crate::ErrorKind::Statement)) or nested too deeply.
    pub fn parse(&self, sql: &str) -> crate::Result<Vec<Statement>> {
        let (state, sql) = (self.context.state_ref(), sql.to_owned());
        Ok(aside::run("parsing the statement", move || {
            parse(&state.read(), &sql)
        })?)
    }

    /// Runs SQL text of one or more statements, waits for the rows of the last one and returns them. Not to be called
    /// from async code: [`Session::sql`] is for that.
    ///
    /// # Errors
    /// Those of [`Session::sql`], and of the rows.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> hotshelf::Result<()> {
    /// let session = hotshelf::Database::temporary(hotshelf::Options::default())?.session();
    /// let rows = session.query("CREATE TABLE t AS VALUES (1), (2); SELECT sum(column1) FROM t")?;
    /// assert_eq!(rows[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(&self, sql: &str) -> crate::Result<Vec<RecordBatch>> {
        self.database
            .block_on(async { self.sql(sql).await?.collect().await })
    }

    /// Runs SQL text of one or more statements; the answer is the last one's.
    ///
    /// # Errors
    /// The text is not SQL, a statement names what does not exist, or one of the statements fails. Those before it have
    /// run then. What fails while rows are read comes with the rows.
    ///
    /// # Examples
    /// Rows come as they are made:
    /// ```
    /// # fn main() -> hotshelf::Result<()> {
    /// # let database = hotshelf::Database::temporary(hotshelf::Options::default())?;
    /// let session = database.session();
    /// let row_count = database.block_on(async {
    ///     let mut answer = session.sql("SELECT * FROM generate_series(1, 100000)").await?;
    ///     let mut row_count = 0;
    ///     while let Some(batch) = answer.next().await {
    ///         row_count += batch?.num_rows();
    ///     }
    ///     Ok::<_, hotshelf::Error>(row_count)
    /// })?;
    /// assert_eq!(row_count, 100_000);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn sql(&self, sql: &str) -> crate::Result<Answer> {
        let mut statements = self.parse(sql)?;
        let last = statements.pop().ok_or_else(|| Error::InvalidValue {
            what: "SQL",
            value: sql.trim().to_owned(),
            expected: "at least one statement".into(),
        })?;
        for statement in statements {
            let answer = self.execute(statement).await?;
            answer.drain().await?;
        }
        self.execute(last).await
    }

    /// Runs one statement. Rows come as the caller takes them; dropping the answer cancels the query. What changes a
    /// table has done so when this returns.
    ///
    /// # Errors
    /// Those of [`Session::sql`].
    pub async fn execute(&self, statement: Statement) -> crate::Result<Answer> {
        let run = self.run_planned(statement, None);
        Ok(answer::guarded("running the statement", run).await?)
    }

    async fn run_planned(
        &self,
        mut statement: Statement,
        values: Option<Vec<ScalarAndMetadata>>,
    ) -> Result<Answer> {
        if let Some(values) = &values
            && let Some(rows) = self.answer_point(&statement.point, values).await
        {
            return Ok(Answer::of(rows));
        }
        if let ParsedStatement::Statement(own) = &statement.parsed
            && let Some(answer) = self.run_own(own).await
        {
            return answer;
        }
        let clauses = TableClauses::take(&mut statement.parsed)?;
        let handle = self.database.machine().workers.handle();
        let session = self.clone();
        let plan = move || async move { session.plan(statement, clauses, values).await };
        match aside::run_async("planning the statement", handle, plan).await? {
            Planned::Done(message) => Ok(Answer::done(message)),
            Planned::Answered(rows) => Ok(Answer::of(rows)),
            Planned::Rows(runnable) => runnable.run(),
            Planned::Change(runnable) => runnable.run()?.taken().await,
            Planned::Table(table) => self.store(*table).await,
            Planned::Copy(runnable, files) => {
                let mut answer = runnable.run()?;
                answer.batches = target::published(answer.batches, files);
                Ok(answer)
            }
        }
    }
}
