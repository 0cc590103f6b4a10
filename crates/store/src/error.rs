//! What can go wrong in the store, with the fields a front end needs to say it well.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::error::ArrowError;
use hotshelf_tier::{Corruption, TierError};
use vortex::error::VortexError;

/// An error of the source of a file's rows.
pub type InputError = Box<dyn std::error::Error + Send + Sync>;

/// Everything a call of the store can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
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
    /// Another process has the database open.
    #[error(
        "database {} is open in another process{}",
        path.display(),
        owner.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The database folder.
        path: PathBuf,
        /// Its process id, where the lock file tells.
        owner: Option<u32>,
    },
    /// The folder holds something else than a database.
    #[error("{} is not a Hotshelf database: {what}", path.display())]
    NotADatabase {
        /// The folder.
        path: PathBuf,
        /// What speaks against it.
        what: String,
    },
    /// The database was written by a newer program.
    #[error("database format {found} is newer than this program's ({supported})")]
    NewerFormat {
        /// Format in the catalog.
        found: i64,
        /// Newest format this program reads.
        supported: i64,
    },
    /// The database cannot be written.
    #[error("database {} cannot be changed: its folder is read-only", path.display())]
    ReadOnly {
        /// The database folder.
        path: PathBuf,
    },
    /// There are tables, but no catalog that lists them.
    #[error("{} {found}, but data/ holds {entry_count} tables or files", path.display())]
    LostCatalog {
        /// The catalog.
        path: PathBuf,
        /// What is the matter with it.
        found: &'static str,
        /// Folders and files in the data folder.
        entry_count: usize,
    },
    /// The catalog does not know changes that were acknowledged.
    #[error(
        "{} knows changes up to {found}, but change {acknowledged} was acknowledged: its write-ahead log \
         (catalog.sqlite-wal) is missing, cut short or damaged, or it is older than data/",
        path.display()
    )]
    StaleCatalog {
        /// The catalog.
        path: PathBuf,
        /// The last change that it knows.
        found: u64,
        /// The last change that was acknowledged.
        acknowledged: u64,
    },
    /// The catalog is not that of the data.
    #[error("{} belongs to another database than data/", path.display())]
    ForeignCatalog {
        /// The catalog.
        path: PathBuf,
    },
    /// The record of the last change is missing.
    #[error("{} is missing: it is unknown whether the catalog has all changes", path.display())]
    LostHead {
        /// The record.
        path: PathBuf,
    },
    /// Stored bytes are not what was written.
    #[error(transparent)]
    Corruption(#[from] Corruption),
    /// The storage layer failed.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The catalog failed.
    #[error("catalog: {0}")]
    Catalog(#[from] rusqlite::Error),
    /// The catalog failed to commit a change: it may or may not be durable.
    #[error("catalog: {0}")]
    Commit(rusqlite::Error),
    /// A column of this type has no order that an Elf knows.
    #[error("column '{column}' has type {data_type}, which an Elf cannot index")]
    NotIndexable {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// A column type cannot be stored.
    #[error("column '{column}' has type {data_type}, which tables cannot store yet")]
    UnsupportedType {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// A table does not fit on a shelf.
    #[error(
        "shelf {shelf} has no room for {requested} bytes of a table: it may take {available} of the budget"
    )]
    ShelfFull {
        /// The shelf.
        shelf: String,
        /// Bytes of a file's segments.
        requested: u64,
        /// What the shelf may still take.
        available: u64,
    },
    /// The store cannot do this yet.
    #[error("{what} is not supported yet")]
    NotSupported {
        /// What it is.
        what: String,
    },
    /// Building or asking an index failed.
    #[error("index: {0}")]
    Elf(hotshelf_elf::ElfError),
    /// Rows cannot be converted.
    #[error("Arrow error: {0}")]
    Arrow(#[from] ArrowError),
    /// The source of a file's rows failed.
    #[error("{0}")]
    Input(InputError),
    /// Reading or writing a table file failed.
    #[error("table file: {0}")]
    Format(#[from] VortexError),
}

/// Result of a call of the store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl From<hotshelf_elf::ElfError> for StoreError {
    fn from(error: hotshelf_elf::ElfError) -> Self {
        use hotshelf_elf::ElfError;
        match error {
            ElfError::Corruption(found) => Self::Corruption(found),
            ElfError::Io { operation, source } => Self::Io {
                operation,
                path: "an index that is being made".into(),
                source: io::Error::new(source.kind(), source),
            },
            other => Self::Elf(other),
        }
    }
}

impl StoreError {
    /// Wraps an operating-system error with what was being done to which path.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }

    /// The error of the operating system, if there is nothing the matter with the stored bytes: another try may
    /// succeed. A file that is missing or cut short is damage.
    pub fn into_unavailable(self) -> std::result::Result<TierError, Self> {
        match self {
            Self::Io {
                operation,
                path,
                source,
            } if source.kind() != io::ErrorKind::NotFound => Ok(TierError::Io {
                path,
                operation,
                offset: None,
                source: Arc::new(source),
            }),
            Self::Tier(TierError::Io { ref source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Err(self)
            }
            Self::Tier(TierError::ShortRead { .. }) => Err(self),
            Self::Tier(error) => Ok(error),
            other => Err(other),
        }
    }

    /// The damage that this error is, if it is one; `path` is the file that could not be read.
    pub fn into_damage(self, path: &Path, what: &'static str) -> Corruption {
        match self {
            Self::Corruption(found) => found,
            other => Corruption {
                file: path.to_owned(),
                offset: 0,
                what: what.into(),
                expected: "a readable file".into(),
                found: other.to_string(),
            },
        }
    }

    /// Whether the catalog could not grow.
    pub fn is_disk_full(&self) -> bool {
        let (Self::Catalog(error) | Self::Commit(error)) = self else {
            return false;
        };
        error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
    }

    /// A sentence that says what to do about it, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Locked { .. } => {
                Some("close the other program, or open a copy of the folder".into())
            }
            Self::NotADatabase { .. } => {
                Some("name a new or empty folder, or one that `hotshelf` made".into())
            }
            Self::NewerFormat { .. } => Some("use a newer hotshelf".into()),
            Self::LostCatalog { .. } | Self::StaleCatalog { .. } | Self::ForeignCatalog { .. } => Some(
                "put catalog.sqlite and catalog.sqlite-wal back as they were, or make the catalog again with \
                 `hotshelf repair --db DIR`; nothing was changed or removed"
                    .into(),
            ),
            Self::LostHead { .. } => Some(
                "put it back from the same copy as the rest, or make the catalog again with `hotshelf repair --db DIR`; \
                 nothing was changed or removed"
                    .into(),
            ),
            full if full.is_disk_full() => {
                Some("the disk is full: free some space, or drop a table; nothing was changed".into())
            }
            Self::ShelfFull { .. } => Some(
                "raise the budget (`--budget`, SET hotshelf.budget), or put fewer columns there: SET (shelf = 'dram', \
                 shelf_columns = '…')"
                    .into(),
            ),
            Self::ReadOnly { .. } => Some("copy the folder to where it can be written".into()),
            Self::Catalog(error) if is_damaged(error) => {
                Some("`hotshelf repair --db DIR` makes the catalog again from the data files".into())
            }
            Self::Tier(error) => error.hint(),
            _ => None,
        }
    }
}

/// Whether SQLite says that the catalog's file is not one, or is damaged.
fn is_damaged(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    let code = error.sqlite_error_code();
    matches!(code, Some(DatabaseCorrupt | NotADatabase))
}
