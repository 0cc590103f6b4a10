//! Files of other formats as tables: what `import` and `FROM 'file'` read.
//!
//! `files` finds them, `schema` says what columns they have together, `source` reads one file as DataFusion's scans
//! want it. Columns are matched by name, errors name the file, and no piece of a file (a page, a batch, a row) may
//! take more memory than [`Limits`] allow.

mod arrow_file;
pub(crate) mod exact;
mod file_format;
pub(crate) mod files;
mod format;
mod named;
mod pages;
pub(crate) mod schema;
mod source;
mod table;
mod text;
mod text_errors;
mod written;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{Error, Result};

pub use file_format::FileFormat;
pub(crate) use table::{FileTables, file_table};

/// The most that one piece of a file may take in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A page of a Parquet file or a batch of an Arrow file, decompressed, in bytes.
    pub piece_bytes_max: u64,
    /// The rows of a batch of a text file, and so also one row, in bytes of text.
    pub text_bytes_max: u64,
}

impl Limits {
    const PIECE_BYTES_MIN: u64 = 128 << 20;
    const PIECE_BYTES_MAX: u64 = 1 << 30;
    const TEXT_BYTES_MIN: u64 = 16 << 20;
    const TEXT_BYTES_MAX: u64 = 256 << 20;

    /// The limits under a budget: shares of it, but never so little that ordinary files are refused.
    pub fn of_budget(budget_bytes: u64) -> Self {
        Self {
            piece_bytes_max: (budget_bytes / 2).clamp(Self::PIECE_BYTES_MIN, Self::PIECE_BYTES_MAX),
            text_bytes_max: (budget_bytes / 16).clamp(Self::TEXT_BYTES_MIN, Self::TEXT_BYTES_MAX),
        }
    }
}

/// Runs another project's decoder over bytes that may be damaged: a panic becomes an error that names the file.
pub(crate) fn decode<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(path, panic.as_ref())))
}

/// What a panic of a decoder means for the reader of the file.
pub(crate) fn panicked(path: &Path, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given");
    let first_line = text.lines().next().unwrap_or_default();
    bad(
        path,
        format!("it is damaged: its decoder stopped ({first_line})"),
    )
}

/// An input file that cannot be used.
pub(crate) fn bad(path: &Path, what: impl Into<String>) -> Error {
    Error::BadInput {
        path: path.to_owned(),
        what: what.into(),
    }
}
