//! Sessions: SQL text in, batches out.
//!
//! Everything is DataFusion's but what concerns our storage: CREATE TABLE streams into data files, DROP and
//! INSERT go to the catalog, and every query gets a number and a template fingerprint.

mod answer;
pub(crate) mod aside;
mod batch_rows;
mod catalog;
mod copy;
mod depth;
mod explain;
mod fingerprint;
mod index;
mod insert;
mod interrupt;
mod order_by;
mod prepared;
mod shape;
mod syntax;
mod using;
mod value;
mod views;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{
    CreateMemoryTable, DdlStatement, DropTable, LogicalPlan, Statement as PlanStatement,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use vortex_datafusion::VortexFormatFactory;

use crate::database::{Database, IfExists, NewTable, PUBLIC};
use crate::error::{Error, Result, nearest};
use crate::settings::SessionSettings;

use catalog::HotshelfCatalog;
pub(crate) use interrupt::Interrupt;
use prepared::PreparedStatements;

pub use answer::Answer;
pub use value::Value;

/// Names under which our tables are found when a query does not qualify them.
const CATALOG: &str = "hotshelf";

/// A build side up to this size is collected once and shared by all workers of a join.
const BROADCAST_ROWS_MAX: usize = 4_000_000;
const BROADCAST_BYTES_MAX: usize = 64 << 20;

/// A session: SQL with its own settings over the shared tables of a [`Database`].
///
/// `Send + Sync` and cheap to clone. Clones are the same session: they share settings and prepared statements.
#[derive(Clone)]
pub struct Session {
    database: Database,
    context: SessionContext,
    prepared: PreparedStatements,
}

/// One parsed SQL statement. It prints as SQL.
#[derive(Debug, Clone)]
pub struct Statement(ParsedStatement);

impl std::fmt::Display for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A statement that has been planned: what is left to do.
enum Planned {
    /// Nothing, or what the database does itself.
    Done(String),
    /// A plan whose rows are the answer.
    Rows(Runnable),
    /// A plan that changes a table; its rows say what it did.
    Change(Runnable),
    /// A table of a plan's rows.
    Table(Box<PlannedTable>),
    /// Files of a plan's rows, to be published at its end.
    Copy(Runnable, copy::Unfinished),
}

/// A plan and what it runs with.
struct Runnable {
    plan: Arc<dyn ExecutionPlan>,
    state: SessionState,
    /// Whether the rules' notes follow the rows.
    with_notes: bool,
}

/// A table to be made of a plan's rows.
struct PlannedTable {
    name: String,
    schema: SchemaRef,
    if_exists: IfExists,
    cluster_by: Vec<String>,
    input: Runnable,
    note: &'static str,
}

impl Session {
    pub(crate) fn new(database: &Database) -> Self {
        let inner = database.inner();
        let threads = inner.options.read().threads;
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_target_partitions(threads)
            .with_default_catalog_and_schema(CATALOG, PUBLIC)
            .with_create_default_catalog_and_schema(false)
            .with_option_extension(SessionSettings::new(Arc::downgrade(inner), threads));
        let optimizer = &mut config.options_mut().optimizer;
        optimizer.hash_join_single_partition_threshold = BROADCAST_BYTES_MAX;
        optimizer.hash_join_single_partition_threshold_rows = BROADCAST_ROWS_MAX;
        let mut builder = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(inner.runtime_env.clone())
            .with_default_features()
            .with_analyzer_rules(crate::plan::analyzer_rules())
            .with_optimizer_rules(crate::plan::logical_rules())
            .with_physical_optimizer_rules(crate::plan::physical_rules());
        if let Some(formats) = builder.file_formats() {
            formats.push(Arc::new(VortexFormatFactory::new_with_session(
                inner.vortex.clone(),
            )));
        }
        let context = SessionContext::new_with_state(builder.build());
        let catalog = HotshelfCatalog::new(database.clone(), context.state_weak_ref());
        context.register_catalog(CATALOG, Arc::new(catalog));
        crate::functions::register(&context, inner);
        Self {
            database: database.clone(),
            context,
            prepared: PreparedStatements::default(),
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
        let (state, sql) = (self.context.state(), sql.to_owned());
        Ok(aside::run("parsing the statement", move || {
            parse(&state, &sql)
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
        if let ParsedStatement::Statement(own) = &statement.0
            && let Some(answer) = self.run_own(own).await
        {
            return answer;
        }
        let cluster_by = index::take_clustering(&mut statement.0)?;
        let handle = self.database.inner().handle();
        let session = self.clone();
        let plan = move || async move { session.plan(statement, cluster_by, values).await };
        match aside::run_async("planning the statement", handle, plan).await? {
            Planned::Done(message) => Ok(Answer::done(message)),
            Planned::Rows(runnable) => run(runnable),
            Planned::Change(runnable) => run(runnable)?.taken().await,
            Planned::Table(table) => self.store(*table).await,
            Planned::Copy(runnable, unfinished) => {
                let mut answer = run(runnable)?;
                answer.batches = copy::published(answer.batches, unfinished);
                Ok(answer)
            }
        }
    }

    /// Plans a statement; those that only change settings or the catalog are done with that.
    async fn plan(
        &self,
        statement: Statement,
        cluster_by: Vec<String>,
        values: Option<Vec<ScalarAndMetadata>>,
    ) -> Result<Planned> {
        let _planning = views::Planning::begin();
        let state = self.context.state();
        let statement = match shows_profile(&statement) {
            true => self.parse(SHOW_PROFILE)?.pop().unwrap_or(statement),
            false => statement,
        };
        let written = matches!(&statement.0, ParsedStatement::Statement(statement)
            if matches!(statement.as_ref(), SqlStatement::Prepare { .. }));
        let written = written.then(|| statement.0.clone());
        let plan = state
            .statement_to_plan(statement.0)
            .await
            .map_err(|error| self.name_the_nearest(error))?;
        if let (Some(written), LogicalPlan::Statement(PlanStatement::Prepare(prepare))) =
            (written, &plan)
        {
            return self.prepared.keep(prepare, written).map(Planned::Done);
        }
        let plan = Self::with_parameters(self.expanded(plan).await?, values)?;
        if let LogicalPlan::Ddl(ddl) = &plan {
            self.keep_other_kinds(ddl)?;
        }
        match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                self.plan_table(create, cluster_by).await
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop))
                if self.is_stored_or_missing(&drop.name) =>
            {
                self.drop_table(&drop).map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) => {
                self.create_view(create).await.map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) => {
                self.drop_view(&drop).map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::CreateCatalogSchema(create)) => {
                self.create_schema(&create).map(Planned::Done)
            }
            LogicalPlan::Ddl(DdlStatement::DropCatalogSchema(drop)) => {
                self.drop_schema(&drop).map(Planned::Done)
            }
            LogicalPlan::Statement(PlanStatement::SetVariable(set)) => {
                crate::settings::check_engine_setting(&set.variable, &set.value)?;
                let threads = (set.variable == "hotshelf.threads").then(|| set.value.clone());
                self.plan_rows(LogicalPlan::Statement(PlanStatement::SetVariable(set)))
                    .await?;
                if let Some(threads) = threads {
                    self.follow_threads(&threads).await?;
                }
                Ok(Planned::Done("set".into()))
            }
            LogicalPlan::Statement(PlanStatement::Deallocate(forget)) => {
                self.prepared.forget(&forget.name).map(Planned::Done)
            }
            LogicalPlan::Copy(copy) => self.plan_copy(copy).await,
            LogicalPlan::Dml(dml) => {
                let dml = LogicalPlan::Dml(insert::exact(dml)?);
                self.plan_rows(dml).await.map(Planned::Change)
            }
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) => {
                crate::input::files::check_locations(&create.locations)?;
                let create = LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create));
                self.plan_rows(create).await.map(Planned::Rows)
            }
            plan => self.plan_rows(plan).await.map(Planned::Rows),
        }
    }

    async fn plan_rows(&self, plan: LogicalPlan) -> Result<Runnable> {
        let frame = self
            .context
            .execute_logical_plan(plan)
            .await
            .map_err(|error| self.name_the_nearest(error))?;
        let (_, plan) = frame.into_parts();
        self.plan_physical(&plan).await
    }

    async fn plan_physical(&self, plan: &LogicalPlan) -> Result<Runnable> {
        let mut state = self.numbered_state(plan);
        let optimized = state.optimize(plan).map_err(Error::from_query)?;
        self.bound_batches(&mut state, &optimized)
            .map_err(Error::from_query)?;
        let physical = state
            .query_planner()
            .create_physical_plan(&optimized, &state)
            .await
            .map_err(Error::from_query)?;
        depth::check(&physical).map_err(Error::from_query)?;
        let interrupt = interrupt_of(&state);
        Ok(Runnable {
            plan: interrupt::interruptible(physical, &interrupt).map_err(Error::from_query)?,
            state,
            with_notes: explain::takes_notes(plan),
        })
    }

    /// Has the plan's long literals repeated for no more rows than fit.
    fn bound_batches(&self, state: &mut SessionState, plan: &LogicalPlan) -> QueryResult<()> {
        let config = state.config();
        let (usual, threads) = (config.batch_size(), config.target_partitions());
        let bytes = self.database.inner().pool.limit_bytes();
        let rows = batch_rows::batch_rows(plan, usual, bytes, threads)?;
        if rows < usual {
            *state.config_mut() = config.clone().with_batch_size(rows);
        }
        Ok(())
    }

    /// The session's state with the next query number and the plan's fingerprint in it.
    fn numbered_state(&self, plan: &LogicalPlan) -> SessionState {
        let mut state = self.context.state();
        let query_id = self
            .database
            .inner()
            .queries
            .fetch_add(1, Ordering::Relaxed)
            + 1;
        if let Some(settings) = state
            .config_mut()
            .options_mut()
            .extensions
            .get_mut::<SessionSettings>()
        {
            settings.query_id = query_id;
            settings.template = fingerprint::template(plan);
            settings.notes = Arc::default();
            settings.interrupt = Interrupt::default();
        }
        state
    }

    async fn follow_threads(&self, threads: &str) -> Result<()> {
        let sql = format!("SET datafusion.execution.target_partitions = {threads}");
        self.context.sql(&sql).await.map_err(Error::from_query)?;
        Ok(())
    }

    /// Refuses to put a view or an external table in the place of a stored table, or the other way round.
    fn keep_other_kinds(&self, ddl: &DdlStatement) -> Result<()> {
        let (name, wanted) = match ddl {
            DdlStatement::CreateView(create) => (&create.name, "view"),
            DdlStatement::CreateExternalTable(create) => (&create.name, "external table"),
            DdlStatement::CreateMemoryTable(create) => (&create.name, "stored table"),
            _ => return Ok(()),
        };
        if !self.context.table_exist(name.clone()).unwrap_or(false) {
            return Ok(());
        }
        let (name, inner) = (self.stored_name(name)?, self.database.inner());
        let found = match inner.table(&name).is_some() {
            true => "stored table",
            false if inner.view(&name).is_some() => "view",
            false => "external table",
        };
        if found == wanted {
            return Ok(());
        }
        Err(Error::OtherKind {
            name,
            found,
            wanted,
        })
    }

    /// Whether a table to drop is the database's, or nobody's (then the database says so, with the nearest name).
    fn is_stored_or_missing(&self, name: &TableReference) -> bool {
        let stored = self.stored_name(name);
        let stored = stored.is_ok_and(|name| self.database.inner().table(&name).is_some());
        stored || !self.context.table_exist(name.clone()).unwrap_or(false)
    }

    async fn plan_table(
        &self,
        create: CreateMemoryTable,
        cluster_by: Vec<String>,
    ) -> Result<Planned> {
        let name = self.stored_name(&create.name)?;
        if create.temporary {
            return Err(Error::NotSupported {
                what: "CREATE TEMPORARY TABLE".into(),
            });
        }
        if !create.column_defaults.is_empty() {
            return Err(Error::NotSupported {
                what: "a column DEFAULT".into(),
            });
        }
        if create.if_not_exists && create.or_replace {
            // DataFusion's words.
            let text = "'IF NOT EXISTS' cannot coexist with 'REPLACE'".into();
            return Err(Error::Query(DataFusionError::Execution(text)));
        }
        let exists = self.database.inner().table(&name).is_some();
        if exists && create.if_not_exists {
            return Ok(Planned::Done(format!("table {name} exists already")));
        }
        let declared: SchemaRef = create.input.schema().inner().clone();
        ensure_unique_columns(&declared)?;
        let input = self.plan_physical(&create.input).await?;
        Ok(Planned::Table(Box::new(PlannedTable {
            name,
            schema: with_types_of(&declared, &input.plan.schema()),
            if_exists: match create.or_replace {
                true => IfExists::Replace,
                false => IfExists::Fail,
            },
            cluster_by,
            input,
            note: match create.constraints.is_empty() {
                true => "",
                false => "; its keys are neither checked nor kept",
            },
        })))
    }

    async fn store(&self, table: PlannedTable) -> Result<Answer> {
        let new = NewTable {
            name: &table.name,
            schema: table.schema,
            if_exists: table.if_exists,
            cluster_by: &table.cluster_by,
        };
        let input = run(table.input)?.batches;
        let rows = self
            .database
            .inner()
            .create_table(new, vec![input], Arc::new(AtomicU64::new(0)))
            .await?;
        let (name, note) = (&table.name, table.note);
        Ok(Answer::done(format!("table {name}: {rows} rows{note}")))
    }

    fn drop_table(&self, drop: &DropTable) -> Result<String> {
        let name = self.stored_name(&drop.name)?;
        match self.database.inner().drop_table(&name) {
            Err(Error::UnknownTable { .. }) if drop.if_exists => Ok(format!("no table {name}")),
            result => result.map(|()| format!("table {name} dropped")),
        }
    }

    /// Offers the nearest table where DataFusion says only that there is none.
    fn name_the_nearest(&self, error: DataFusionError) -> Error {
        let text = error.to_string();
        let missing = text
            .split_once("table '")
            .and_then(|(_, rest)| rest.split_once("' not found"))
            .map(|(name, _)| name.splitn(3, '.').last().unwrap_or(name).to_owned());
        match missing {
            Some(table) => {
                let names = self.database.table_names();
                let nearest = nearest(&table, names.iter().map(String::as_str));
                Error::UnknownTable { table, nearest }
            }
            None => Error::from_query(error),
        }
    }
}

/// Splits SQL text into statements. Call it on a large stack.
fn parse(state: &SessionState, sql: &str) -> Result<Vec<Statement>> {
    let name = state.config().options().sql_parser.dialect;
    let dialect = dialect_from_str(name)
        .unwrap_or_else(|| Box::new(datafusion::sql::sqlparser::dialect::GenericDialect));
    shape::check_text(sql, dialect.as_ref())?;
    let sql = syntax::prepare(sql, dialect.as_ref())?;
    let mut parser = DFParserBuilder::new(sql.as_ref())
        .with_dialect(dialect.as_ref())
        .with_recursion_limit(shape::DEPTH_MAX)
        .build()?;
    let known = syntax::Known {
        aggregates: &|name| {
            state.aggregate_functions().contains_key(name)
                || state.window_functions().contains_key(name)
        },
    };
    let mut statements = Vec::new();
    for mut statement in parser.parse_statements().map_err(shape::name_the_limit)? {
        syntax::check(&mut statement, &known)?;
        shape::reshape(&mut statement)?;
        statements.push(Statement(statement));
    }
    Ok(statements)
}

/// Starts a plan; its rows come as they are taken.
fn run(runnable: Runnable) -> Result<Answer> {
    let Runnable {
        plan,
        state,
        with_notes,
    } = runnable;
    let context = Arc::new(TaskContext::from(&state));
    let mut batches = answer::start(plan.clone(), context, interrupt_of(&state));
    if with_notes {
        batches = explain::with_notes(batches, &state)?;
    }
    Ok(Answer {
        batches,
        message: None,
        plan: Some(plan),
    })
}

/// The flag of the query that a state is for.
fn interrupt_of(state: &SessionState) -> Interrupt {
    let extensions = &state.config().options().extensions;
    let settings = extensions.get::<SessionSettings>();
    settings.map_or_else(Interrupt::default, |settings| settings.interrupt.clone())
}

/// SHOW answers with one row per setting, and the profile has many values.
const SHOW_PROFILE: &str = "SELECT name, value, source, reason FROM machine_profile()";

fn shows_profile(statement: &Statement) -> bool {
    statement
        .to_string()
        // The parser prints the parts of a variable with blanks between.
        .replace('.', " ")
        .eq_ignore_ascii_case("SHOW hotshelf profile")
}

/// The streams of all partitions of a plan.
pub(crate) fn execute_partitions(
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

/// The fields as declared, with the types that the analysed plan really gives.
fn with_types_of(declared: &SchemaRef, planned: &SchemaRef) -> SchemaRef {
    let fields = declared.fields().iter().zip(planned.fields());
    let fields: Vec<_> = fields
        .map(|(field, planned)| {
            let field = field.as_ref().clone();
            field.with_data_type(planned.data_type().clone())
        })
        .collect();
    let schema = arrow::datatypes::Schema::new(fields);
    Arc::new(schema.with_metadata(declared.metadata().clone()))
}

fn ensure_unique_columns(schema: &SchemaRef) -> Result<()> {
    let mut names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::InvalidValue {
            what: "column list",
            value: pair[0].to_owned(),
            expected: "every column name once; rename with AS".into(),
        }),
        None => Ok(()),
    }
}
