//! Our own engine in a thread of its own, so that a hang or a panic is a finding and not the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::Schema;
use hotshelf::{BatchIter, Database, ExistingTable, ImportProgress, Options, Session};

use crate::answers::render;
use crate::answers::rows::{self, Rows};
use crate::answers::schema::{Column, Dialect, Table, Type, Value, World};
use crate::answers::settings::Settings;

/// Why a statement has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// The statement is not supported, or a value does not fit.
    Refused,
    /// Memory did not suffice.
    Memory,
    /// A bug that the engine itself noticed.
    Internal,
    Panic,
    Hang,
}

impl Failure {
    fn of(error: &hotshelf::Error) -> Self {
        let message = error.to_string();
        let kind = if message.contains("panicked") {
            FailureKind::Panic
        } else if message.contains("Resources exhausted") || message.contains("more memory") {
            FailureKind::Memory
        } else if message.contains("Internal error") {
            FailureKind::Internal
        } else {
            FailureKind::Refused
        };
        Self { kind, message }
    }

    fn other(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The first words, without names and numbers, to count failures by.
    pub fn summary(&self) -> String {
        let line = self.message.lines().next().unwrap_or_default();
        let plain: String = line
            .chars()
            .filter(|c| !c.is_ascii_digit())
            .take(70)
            .collect();
        format!("{:?}: {plain}", self.kind)
    }
}

enum Request {
    Statement(String),
    Load(Arc<World>),
}

type Reply = Result<Rows, Failure>;

/// A temporary database with one session.
pub struct Engine {
    requests: Sender<Request>,
    replies: Receiver<Reply>,
    timeout: Duration,
    settings: Option<Settings>,
}

impl Engine {
    pub fn start(timeout: Duration) -> Result<Self, Failure> {
        let (requests, to_do) = mpsc::channel();
        let (done, replies) = mpsc::channel();
        let work = move || serve(&to_do, &done);
        let name = "engine".to_owned();
        std::thread::Builder::new()
            .name(name)
            .stack_size(16 << 20)
            .spawn(work)
            .map_err(|error| Failure::other(FailureKind::Refused, error.to_string()))?;
        Ok(Self {
            requests,
            replies,
            timeout,
            settings: None,
        })
    }

    /// Runs statements; the rows of the last.
    pub fn run(&mut self, sql: &str) -> Reply {
        self.ask(Request::Statement(sql.to_owned()), self.timeout)
    }

    /// Drops what there is and makes the tables, their files and indexes.
    pub fn load(&mut self, world: &Arc<World>) -> Result<(), Failure> {
        self.ask(Request::Load(world.clone()), self.timeout * 6)?;
        Ok(())
    }

    /// Sets what differs from the settings in force.
    pub fn set(&mut self, settings: &Settings) -> Result<(), Failure> {
        let before = self.settings.take().map(|before| before.statements());
        for (idx, statement) in settings.statements().into_iter().enumerate() {
            if before
                .as_ref()
                .is_none_or(|before| before[idx] != statement)
            {
                self.run(&statement)?;
            }
        }
        self.settings = Some(*settings);
        Ok(())
    }

    fn ask(&mut self, request: Request, timeout: Duration) -> Reply {
        let gone = || Failure::other(FailureKind::Panic, "the engine's thread has ended");
        self.requests.send(request).map_err(|_| gone())?;
        match self.replies.recv_timeout(timeout) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => {
                let seconds = timeout.as_secs();
                Err(Failure::other(
                    FailureKind::Hang,
                    format!("no answer after {seconds} s"),
                ))
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

fn serve(requests: &Receiver<Request>, replies: &Sender<Reply>) {
    let options = Options {
        budget_bytes: 1 << 30,
        threads: 4,
        // Small budgets are small for operators too, which then spill.
        operator_bytes_min: 0,
        ..Options::default()
    };
    let opened = Database::temporary(options);
    for request in requests {
        let reply = match &opened {
            Ok(database) => caught(|| answer(database, request)),
            Err(error) => Err(Failure::of(error)),
        };
        if replies.send(reply).is_err() {
            return;
        }
    }
}

fn caught(work: impl FnOnce() -> Reply) -> Reply {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(Failure::other(FailureKind::Panic, text.unwrap_or_default()))
    })
}

thread_local! {
    static SESSION: std::cell::RefCell<Option<Session>> = const { std::cell::RefCell::new(None) };
}

fn answer(database: &Database, request: Request) -> Reply {
    let session = SESSION
        .with_borrow_mut(|session| session.get_or_insert_with(|| database.session()).clone());
    let done = match request {
        Request::Statement(sql) => run(database, &session, &sql),
        Request::Load(world) => load(database, &session, &world).map(|()| Vec::new()),
    };
    done.map_err(|error| Failure::of(&error))
}

fn run(database: &Database, session: &Session, sql: &str) -> hotshelf::Result<Rows> {
    let batches = database.block_on(async { session.sql(sql).await?.collect().await })?;
    Ok(rows::from_batches(&batches)?)
}

fn load(database: &Database, session: &Session, world: &World) -> hotshelf::Result<()> {
    for name in database.table_names() {
        run(database, session, &format!("DROP TABLE {name}"))?;
    }
    for table in &world.tables {
        run(
            database,
            session,
            &render::create_table(table, Dialect::Hotshelf),
        )?;
        append(database, table)?;
        for statement in render::create_indexes(table) {
            run(database, session, &statement)?;
        }
    }
    Ok(())
}

/// Writes the table's rows, one data file after the other.
fn append(database: &Database, table: &Table) -> hotshelf::Result<()> {
    let tables = database.tables();
    let Some(summary) = tables.iter().find(|summary| summary.name == table.name) else {
        return Ok(());
    };
    let whole = batch(table, Some(&summary.schema))?;
    let mut start = 0;
    let mut inputs: Vec<BatchIter> = Vec::new();
    for rows in &table.files {
        inputs.push(Box::new(std::iter::once(whole.slice(start, *rows))));
        start += rows;
    }
    let (schema, progress) = (summary.schema.clone(), ImportProgress::default());
    let import = database.import_batches(
        &table.name,
        schema,
        inputs,
        ExistingTable::Append,
        &progress,
    );
    database.block_on(import).map(|_| ())
}

/// A table's rows as a batch: of the given columns, or with the widest types of each kind.
pub fn batch(
    table: &Table,
    schema: Option<&Arc<Schema>>,
) -> Result<RecordBatch, arrow::error::ArrowError> {
    let arrays = table
        .columns
        .iter()
        .map(array)
        .collect::<Result<Vec<_>, _>>()?;
    match schema {
        Some(schema) => {
            let pairs = arrays.iter().zip(schema.fields());
            let arrays = pairs.map(|(array, field)| cast(array, field.data_type()));
            RecordBatch::try_new(schema.clone(), arrays.collect::<Result<_, _>>()?)
        }
        None => {
            let names = table.columns.iter().map(|column| column.name.as_str());
            RecordBatch::try_from_iter_with_nullable(
                names.zip(arrays).map(|(name, array)| (name, array, true)),
            )
        }
    }
}

fn array(column: &Column) -> Result<ArrayRef, arrow::error::ArrowError> {
    let values = column.values.iter();
    Ok(match column.ty {
        Type::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        }))),
        Type::Int { signed: true, .. } => {
            Arc::new(Int64Array::from_iter(values.map(|value| match value {
                Value::Int(value) => i64::try_from(*value).ok(),
                _ => None,
            })))
        }
        Type::Int { .. } => Arc::new(UInt64Array::from_iter(values.map(|value| match value {
            Value::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }))),
        Type::Real | Type::Double => {
            Arc::new(Float64Array::from_iter(values.map(|value| match value {
                Value::Float(value) => Some(*value),
                _ => None,
            })))
        }
        Type::Decimal { precision, scale } => {
            let unscaled = values.map(|value| match value {
                Value::Decimal(value) => Some(*value),
                _ => None,
            });
            let array = Decimal128Array::from_iter(unscaled);
            Arc::new(array.with_precision_and_scale(precision, scale as i8)?)
        }
        Type::Text => Arc::new(StringArray::from_iter(values.map(|value| match value {
            Value::Text(value) => Some(value.as_str()),
            _ => None,
        }))),
        Type::Date => Arc::new(Date32Array::from_iter(values.map(|value| match value {
            Value::Date(value) => Some(*value),
            _ => None,
        }))),
        Type::Timestamp => {
            Arc::new(TimestampMicrosecondArray::from_iter(values.map(
                |value| match value {
                    Value::Timestamp(value) => Some(*value),
                    _ => None,
                },
            )))
        }
    })
}
