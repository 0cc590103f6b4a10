//! The error that callers of the crate see. It hides which libraries are underneath.

use datafusion::error::DataFusionError;
use hotshelf_cache::ReadError;
use hotshelf_operators::OperatorError;
use hotshelf_store::StoreError;
use hotshelf_tier::TierError;

use super::Error as Cause;

/// What a call failed with.
///
/// It prints as a sentence that names the table, column or file. [`Error::kind`] says what sort of failure it is,
/// [`Error::code`] which one, [`Error::hint`] what to do about it.
///
/// ```
/// use hotshelf::{Database, ErrorKind, Options};
///
/// # fn main() -> hotshelf::Result<()> {
/// let session = Database::temporary(Options::default())?.session();
/// session.query("CREATE TABLE orders AS VALUES (1)")?;
/// let error = session.query("SELECT * FROM ordres").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// assert_eq!(error.code(), "unknown_table");
/// assert_eq!(error.to_string(), "table 'ordres' does not exist");
/// assert_eq!(error.hint().as_deref(), Some("did you mean 'orders'?"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Error(Box<Cause>);

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Sorts of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not SQL, or its names and types do not fit together.
    Statement,
    /// Something that the call names does not exist.
    NotFound,
    /// Something of that name exists already, or is in use.
    Conflict,
    /// A setting, size or other value makes no sense.
    InvalidValue,
    /// An input or output file cannot be used, or its rows do not fit.
    Input,
    /// Hotshelf does not do that yet.
    Unsupported,
    /// A statement is too deep, too wide or makes too large values.
    Limit,
    /// The memory budget does not suffice.
    Memory,
    /// The statement was valid and failed on the data it met, for example with a division by zero.
    Execution,
    /// The caller is gone.
    Cancelled,
    /// The operating system or the storage failed; trying again may help.
    Io,
    /// The database's folder cannot be opened as it is.
    Database,
    /// Stored bytes are not what was written.
    Corruption,
    /// A bug of Hotshelf.
    Internal,
}

impl Error {
    /// The sort of failure: enough to decide what to do.
    pub fn kind(&self) -> ErrorKind {
        classify(&self.0).0
    }

    /// A short name of the failure that stays the same from version to version, such as `unknown_table`.
    pub fn code(&self) -> &'static str {
        classify(&self.0).1
    }

    /// A sentence that says what to do about it, where there is one.
    pub fn hint(&self) -> Option<String> {
        self.0.hint()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// For callers who work on the rows with Arrow between two calls.
impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Cause::from_query(error.into()).into()
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(Box::new(cause))
    }
}

/// The engine calls a few public functions itself.
impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        *error.0
    }
}

/// The sort and the name of a failure.
fn classify(cause: &Cause) -> (ErrorKind, &'static str) {
    use ErrorKind as Kind;
    match cause {
        Cause::Io { .. } => (Kind::Io, "io"),
        Cause::Corruption(_) => (Kind::Corruption, "corruption"),
        Cause::Tier(error) | Cause::Read(ReadError::Tier(error)) => classify_tier(error),
        Cause::Read(_) => (Kind::Io, "read"),
        Cause::Store(error) => classify_store(error),
        Cause::UnknownTable { .. } => (Kind::NotFound, "unknown_table"),
        Cause::UnknownView { .. } => (Kind::NotFound, "unknown_view"),
        Cause::UnknownSchema { .. } => (Kind::NotFound, "unknown_schema"),
        Cause::UnknownColumn { .. } => (Kind::NotFound, "unknown_column"),
        Cause::UnknownIndex { .. } => (Kind::NotFound, "unknown_index"),
        Cause::UnknownSetting { .. } => (Kind::NotFound, "unknown_setting"),
        Cause::TableExists { .. } => (Kind::Conflict, "table_exists"),
        Cause::ViewExists { .. } => (Kind::Conflict, "view_exists"),
        Cause::SchemaExists { .. } => (Kind::Conflict, "schema_exists"),
        Cause::IndexExists { .. } => (Kind::Conflict, "index_exists"),
        Cause::OtherKind { .. } => (Kind::Conflict, "other_kind"),
        Cause::SchemaInUse { .. } => (Kind::Conflict, "schema_in_use"),
        Cause::CircularView { .. } => (Kind::Statement, "circular_view"),
        Cause::NotIndexable { .. } => (Kind::Unsupported, "not_indexable"),
        Cause::UnsupportedType { .. } => (Kind::Unsupported, "unsupported_type"),
        Cause::NotSupported { .. } => (Kind::Unsupported, "not_supported"),
        Cause::Elf(_) => (Kind::Execution, "index"),
        Cause::InvalidValue { .. } => (Kind::InvalidValue, "invalid_value"),
        Cause::InvalidSetting { .. } => (Kind::InvalidValue, "invalid_value"),
        Cause::MeasuredSetting { .. } => (Kind::InvalidValue, "measured_setting"),
        Cause::BudgetTooSmall { .. } => (Kind::InvalidValue, "budget_too_small"),
        Cause::NoInput { .. } => (Kind::Input, "no_input"),
        Cause::BadInput { .. } => (Kind::Input, "bad_input"),
        Cause::BadTarget { .. } => (Kind::Input, "bad_target"),
        Cause::Misfit { .. } => (Kind::Input, "misfit"),
        Cause::SchemaMismatch { .. } => (Kind::Input, "schema_mismatch"),
        Cause::InputTooLarge { .. } => (Kind::Memory, "input_too_large"),
        Cause::TooDeep { .. } => (Kind::Limit, "too_deep"),
        Cause::TooWide { .. } => (Kind::Limit, "too_wide"),
        Cause::TooLarge { .. } => (Kind::Limit, "too_large"),
        Cause::Operator(error) | Cause::NoRoomToSpill { error, .. } => classify_operator(error),
        Cause::Cancelled => (Kind::Cancelled, "cancelled"),
        Cause::Panic { .. } => (Kind::Internal, "panic"),
        Cause::Query(error) => classify_query(error),
        Cause::Format(_) => (Kind::Io, "table_file"),
    }
}

fn classify_store(error: &StoreError) -> (ErrorKind, &'static str) {
    use ErrorKind as Kind;
    match error {
        StoreError::Locked { .. } => (Kind::Database, "locked"),
        StoreError::NotADatabase { .. } => (Kind::Database, "not_a_database"),
        StoreError::NewerFormat { .. } => (Kind::Database, "newer_format"),
        StoreError::ReadOnly { .. } => (Kind::Database, "read_only"),
        StoreError::LostCatalog { .. } => (Kind::Database, "lost_catalog"),
        StoreError::StaleCatalog { .. } => (Kind::Database, "stale_catalog"),
        StoreError::ForeignCatalog { .. } => (Kind::Database, "foreign_catalog"),
        StoreError::LostHead { .. } => (Kind::Database, "lost_head"),
        StoreError::ShelfFull { .. } => (Kind::Memory, "shelf_full"),
        _ => (Kind::Io, "catalog"),
    }
}

fn classify_operator(error: &OperatorError) -> (ErrorKind, &'static str) {
    match error {
        OperatorError::DiskFull { .. } => (ErrorKind::Io, "disk_full"),
        OperatorError::SpillLimit { .. } => (ErrorKind::Limit, "spill_limit"),
        OperatorError::Spill { .. } => (ErrorKind::Io, "spill"),
        _ => (ErrorKind::Execution, "operator"),
    }
}

fn classify_tier(error: &TierError) -> (ErrorKind, &'static str) {
    match error {
        TierError::Corruption(_) | TierError::ShortRead { .. } => {
            (ErrorKind::Corruption, "corruption")
        }
        TierError::OutOfMemory { .. } => (ErrorKind::Memory, "out_of_memory"),
        TierError::Cancelled { .. } | TierError::EngineStopped { .. } => {
            (ErrorKind::Cancelled, "cancelled")
        }
        TierError::InvalidOption { .. } => (ErrorKind::InvalidValue, "invalid_value"),
        _ => (ErrorKind::Io, "io"),
    }
}

fn classify_query(error: &DataFusionError) -> (ErrorKind, &'static str) {
    use ErrorKind as Kind;
    match error.find_root() {
        DataFusionError::SQL(..) => (Kind::Statement, "syntax"),
        DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::Diagnostic(..) => (Kind::Statement, "plan"),
        DataFusionError::NotImplemented(_) => (Kind::Unsupported, "not_supported"),
        DataFusionError::ResourcesExhausted(_) => (Kind::Memory, "out_of_memory"),
        DataFusionError::Configuration(_) => (Kind::InvalidValue, "invalid_value"),
        DataFusionError::Internal(_) => (Kind::Internal, "internal"),
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => (Kind::Io, "io"),
        _ => (Kind::Execution, "execution"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_way_through_the_query_engine() {
        let cause = Cause::UnknownTable {
            table: "t".into(),
            nearest: None,
        };
        let wrapped = DataFusionError::Context("while planning".into(), Box::new(cause.into()));
        let error = Error::from(Cause::from_query(wrapped));
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::NotFound, "unknown_table")
        );
        assert_eq!(
            error.hint().as_deref(),
            Some("SHOW TABLES lists what there is")
        );
    }

    #[test]
    fn errors_of_the_query_engine_have_kinds() {
        let kind = |error: DataFusionError| Error::from(Cause::from_query(error)).kind();
        assert_eq!(
            kind(DataFusionError::Plan("no".into())),
            ErrorKind::Statement
        );
        assert_eq!(
            kind(DataFusionError::ResourcesExhausted("no".into())),
            ErrorKind::Memory
        );
        assert_eq!(
            kind(DataFusionError::Execution("no".into())),
            ErrorKind::Execution
        );
    }
}
