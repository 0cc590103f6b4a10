//! What can go wrong inside the engine, with the fields a front end needs to say it well.
//!
//! Callers of the crate see [`public::Error`], which hides the errors of the libraries underneath.

pub(crate) mod hint;
mod misfit;
mod nearest;
pub mod public;
pub(crate) mod room;

use std::path::{Path, PathBuf};

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use hotshelf_operators::OperatorError;
use hotshelf_store::StoreError;
use hotshelf_tier::{Corruption, TierError};
use vortex::error::VortexError;

use misfit::misfit;
pub(crate) use nearest::nearest;

/// Everything that work inside the engine can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file-system call failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb ("create", "sync", …).
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Stored bytes are not what was written.
    #[error(transparent)]
    Corruption(#[from] Corruption),
    /// The storage layer failed.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The database's folder or catalog cannot be used.
    #[error(transparent)]
    Store(StoreError),
    /// The cache could not hand out a segment.
    #[error(transparent)]
    Read(hotshelf_cache::ReadError),
    /// No such table.
    #[error("table '{table}' does not exist")]
    UnknownTable {
        /// The name asked for.
        table: String,
        /// The nearest existing name.
        nearest: Option<String>,
    },
    /// The table exists already.
    #[error("table '{table}' already exists")]
    TableExists {
        /// Its name.
        table: String,
    },
    /// CREATE OR REPLACE names something of another kind.
    #[error("cannot create {wanted} '{name}': {found} '{name}' exists already")]
    OtherKind {
        /// Its name.
        name: String,
        /// What it is.
        found: &'static str,
        /// What was to take its place.
        wanted: &'static str,
    },
    /// The name of a view is taken.
    #[error("view '{name}' exists already")]
    ViewExists {
        /// Its name.
        name: String,
    },
    /// No such view.
    #[error("there is no view '{name}'")]
    UnknownView {
        /// The name asked for.
        name: String,
    },
    /// A view that refers to itself.
    #[error("view '{name}' refers to itself")]
    CircularView {
        /// The view.
        name: String,
    },
    /// The name of a schema is taken.
    #[error("schema '{name}' exists already")]
    SchemaExists {
        /// Its name.
        name: String,
    },
    /// No such schema.
    #[error("there is no schema '{name}'")]
    UnknownSchema {
        /// The name asked for.
        name: String,
    },
    /// A schema that cannot be dropped.
    #[error("schema '{name}' cannot be dropped: it has {count} tables and views")]
    SchemaInUse {
        /// Its name.
        name: String,
        /// Tables and views in it.
        count: usize,
    },
    /// No such column.
    #[error("table '{table}' has no column '{column}'")]
    UnknownColumn {
        /// The table.
        table: String,
        /// The name asked for.
        column: String,
        /// The nearest existing name.
        nearest: Option<String>,
    },
    /// No such index.
    #[error("index '{index}' does not exist")]
    UnknownIndex {
        /// The name asked for.
        index: String,
        /// The nearest existing name.
        nearest: Option<String>,
    },
    /// The index exists already.
    #[error("index '{index}' already exists, on table '{table}'")]
    IndexExists {
        /// Its name.
        index: String,
        /// The table it is on.
        table: String,
    },
    /// A column of this type has no order that an Elf knows.
    #[error("column '{column}' has type {data_type}, which an Elf cannot index")]
    NotIndexable {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// Building or asking an index failed.
    #[error("index: {0}")]
    Elf(hotshelf_elf::ElfError),
    /// A value given by the user cannot be understood.
    #[error("invalid {what} '{value}': {expected}")]
    InvalidValue {
        /// What was being read ("size", "policy", …).
        what: &'static str,
        /// The text.
        value: String,
        /// What would have been right.
        expected: String,
    },
    /// No such setting.
    #[error("there is no setting '{setting}'")]
    UnknownSetting {
        /// The name asked for.
        setting: String,
        /// The nearest existing name.
        nearest: Option<String>,
    },
    /// A setting does not take this value.
    #[error("'{value}' is not a value of {setting}: {expected}")]
    InvalidSetting {
        /// The setting.
        setting: String,
        /// The text.
        value: String,
        /// What would have been right.
        expected: String,
    },
    /// A value that can be seen and not set.
    #[error("{setting} is measured and cannot be set")]
    MeasuredSetting {
        /// Its name.
        setting: String,
    },
    /// The memory budget cannot hold what the engine needs to move at all.
    #[error(
        "a budget of {budget_bytes} bytes is too small to run: at least {needed_bytes} bytes are needed"
    )]
    BudgetTooSmall {
        /// The budget asked for.
        budget_bytes: u64,
        /// The least that works.
        needed_bytes: u64,
    },
    /// An input file or glob names nothing.
    #[error("no file matches '{pattern}'")]
    NoInput {
        /// The path or pattern.
        pattern: String,
    },
    /// An input file cannot be used.
    #[error("cannot read {}: {what}", path.display())]
    BadInput {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}: {what}", path.display())]
    BadTarget {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        what: String,
    },
    /// A piece of an input file needs more memory than the budget leaves for it.
    #[error(
        "{what} of {} needs {} MB or more; the budget allows {} MB",
        path.display(), needed_bytes >> 20, allowed_bytes >> 20
    )]
    InputTooLarge {
        /// The file.
        path: PathBuf,
        /// The piece ("one row", "one page of column 'c'").
        what: String,
        /// Bytes it takes in memory, as far as they are known.
        needed_bytes: u64,
        /// The most that a piece may take.
        allowed_bytes: u64,
    },
    /// A value has no equal in the type of the column it is for.
    #[error("{input}: {} {data_type}", misfit(column, *row, value.as_deref()))]
    Misfit {
        /// The input (file or statement).
        input: String,
        /// The column.
        column: String,
        /// The row of the input, from 1, where it is known.
        row: Option<u64>,
        /// The value; `None` if no value of the input's type fits.
        value: Option<String>,
        /// The column's type.
        data_type: String,
    },
    /// Input columns do not fit the table's.
    #[error("columns of {input} do not fit table '{table}': {what}")]
    SchemaMismatch {
        /// The input (file or query).
        input: String,
        /// The table.
        table: String,
        /// The first difference.
        what: String,
    },
    /// A column type cannot be stored.
    #[error("column '{column}' has type {data_type}, which tables cannot store yet")]
    UnsupportedType {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The statement is valid SQL that Hotshelf does not do yet.
    #[error("{what} is not supported yet")]
    NotSupported {
        /// The statement or feature.
        what: String,
    },
    /// The engine panicked. The statement ended; the database goes on.
    #[error("{what} panicked: {message}")]
    Panic {
        /// What was being done ("parsing the statement", …).
        what: &'static str,
        /// The panic's message.
        message: String,
    },
    /// A statement is nested so deeply that working on it could exhaust the stack.
    #[error("{what} nested deeper than {limit} levels")]
    TooDeep {
        /// What is nested ("expression", "plan", …).
        what: &'static str,
        /// The deepest nesting allowed.
        limit: usize,
    },
    /// A statement has more parts of a kind than planning can handle in reasonable time.
    #[error("a statement with {found} {what}: at most {limit} are allowed")]
    TooWide {
        /// The parts ("joins", …).
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A function would make more bytes at once than operators may hold.
    #[error("function {function} would make {bytes} bytes at once: at most {limit} fit in memory")]
    TooLarge {
        /// The function.
        function: String,
        /// Bytes it would make for one batch of rows.
        bytes: u64,
        /// Bytes it may make.
        limit: u64,
    },
    /// An operator could not spill, or not read what it had spilled.
    #[error(transparent)]
    Operator(OperatorError),
    /// What operators spill found no room.
    #[error("{error}{}", room::all_rows(*rows_bytes))]
    NoRoomToSpill {
        /// What was full.
        error: OperatorError,
        /// All rows that the statement's joins, sorts and aggregations keep, in bytes, by estimate. 0: not known.
        rows_bytes: u64,
    },
    /// The answer was dropped before the statement was done.
    #[error("the statement was cancelled")]
    Cancelled,
    /// Planning or running a query failed.
    #[error("{0}")]
    Query(#[from] DataFusionError),
    /// Reading or writing a table file failed.
    #[error("table file: {0}")]
    Format(#[from] VortexError),
}

/// Result of work inside the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What operators and the engine both know has one variant here.
impl From<OperatorError> for Error {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Tier(error) => Self::Tier(error),
            OperatorError::Damaged(found) => Self::Corruption(found),
            OperatorError::Stopped => Self::Cancelled,
            other => Self::Operator(other),
        }
    }
}

impl From<hotshelf_elf::ElfError> for Error {
    fn from(error: hotshelf_elf::ElfError) -> Self {
        StoreError::from(error).into()
    }
}

/// What the store and the engine both know has one variant here.
impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io {
                operation,
                path,
                source,
            } => Self::Io {
                operation,
                path,
                source,
            },
            StoreError::Corruption(found) => Self::Corruption(found),
            StoreError::Tier(error) => Self::Tier(error),
            StoreError::NotIndexable { column, data_type } => {
                Self::NotIndexable { column, data_type }
            }
            StoreError::UnsupportedType { column, data_type } => {
                Self::UnsupportedType { column, data_type }
            }
            StoreError::NotSupported { what } => Self::NotSupported { what },
            StoreError::Elf(error) => Self::Elf(error),
            StoreError::Format(error) => Self::Format(error),
            StoreError::Arrow(error) => Self::Query(error.into()),
            StoreError::Input(error) => match error.downcast::<DataFusionError>() {
                Ok(error) => Self::from_query(*error),
                Err(other) => Self::from_query(DataFusionError::External(other)),
            },
            other => Self::Store(other),
        }
    }
}

impl Error {
    /// Wraps an operating-system error with what was being done to which path.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }

    /// The error for a caught panic.
    pub(crate) fn panicked(what: &'static str, payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&'static str>()
            .map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self::Panic {
            what,
            message: message.unwrap_or_else(|| "it left no message".to_owned()),
        }
    }
}

/// Carries our error through DataFusion's streams.
impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Query(inner) => inner,
            other => DataFusionError::External(Box::new(other)),
        }
    }
}

impl Error {
    /// Takes our own error out of DataFusion's wrapping, where one is inside: for errors from an answer's batches.
    pub fn from_query(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(other) => find_corruption(other.as_ref()).map_or_else(
                    || Self::Query(DataFusionError::External(other)),
                    Self::Corruption,
                ),
            },
            DataFusionError::Context(text, inner) => match Self::from_query(*inner) {
                Self::Query(inner) => Self::Query(DataFusionError::Context(text, Box::new(inner))),
                ours => ours,
            },
            DataFusionError::ArrowError(inner, trace) => match *inner {
                ArrowError::IoError(text, io) => match io.downcast::<DataFusionError>() {
                    Ok(ours) => Self::from_query(ours),
                    Err(io) => {
                        let inner = Box::new(ArrowError::IoError(text, io));
                        Self::from_engine(DataFusionError::ArrowError(inner, trace))
                    }
                },
                other => Self::from_engine(DataFusionError::ArrowError(Box::new(other), trace)),
            },
            DataFusionError::NotImplemented(text) if names_a_subquery(&text) => {
                Self::NotSupported {
                    what: "a subquery that refers to the query around it other than by equality"
                        .into(),
                }
            }
            DataFusionError::ExecutionJoin(stopped) if stopped.is_panic() => {
                Self::panicked("running the statement", stopped.into_panic().as_ref())
            }
            other => Self::from_engine(other),
        }
    }

    fn from_engine(error: DataFusionError) -> Self {
        find_corruption(&error).map_or_else(|| Self::Query(error), Self::Corruption)
    }
}

/// Whether an operator was refused memory.
pub(crate) fn is_shortage(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Whether the engine could not make a join of a subquery, and found it in the plan that was to run.
fn names_a_subquery(text: &str) -> bool {
    text.contains("Physical plan does not support")
        && ["ScalarSubquery", "InSubquery", "Exists"]
            .iter()
            .any(|name| text.contains(name))
}

/// Searches a chain of causes for a corruption report.
fn find_corruption(error: &(dyn std::error::Error + 'static)) -> Option<Corruption> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Corruption>() {
            return Some(found.clone());
        }
        if let Some(Error::Corruption(found)) = error.downcast_ref::<Error>() {
            return Some(found.clone());
        }
        if let Some(shared) = error.downcast_ref::<std::sync::Arc<DataFusionError>>() {
            return find_corruption(shared.as_ref());
        }
        next = error.source();
    }
    None
}
