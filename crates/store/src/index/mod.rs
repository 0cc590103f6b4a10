//! Index files: an Elf for every stretch of rows of a data file.
//!
//! `keys` turns columns into the Elf's codes, `file` is the file, `write` writes it, `reading` reads it and `verify`
//! checks it. `zones` keeps bounds of codes. An Elf is asked where it lies, on a `shelf`: `elfs` opens it, `heads` has
//! its head, and `blocks` those of its blocks that a `policy` wants; `choice` reads them where that is known before.
//! `copies` puts leaves on other shelves. What the user chose is in `cache`.

pub mod blocks;
mod cache;
mod choice;
mod copies;
pub mod elfs;
pub mod file;
mod heads;
pub mod keys;
mod paths;
pub mod policy;
mod reading;
pub mod shelf;
mod unavailable;
pub mod verify;
pub mod write;
pub mod zones;

pub use cache::{IndexCache, UnknownIndexCache};
pub use paths::IndexPaths;

use crate::shelf::Shelf;

/// Most rows of one Elf.
pub const STRETCH_ROWS_MAX: u64 = 1 << 22;
/// Stretches are powers of two from this, the largest row group, so that whole row groups fill them.
pub const STRETCH_ROWS_MIN: u64 = 1 << 17;

/// An index as the user defined it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Its number, unique in the database.
    pub id: i64,
    /// Its name, unique in the database.
    pub name: String,
    /// Columns of the table in the Elf's order.
    pub columns: Vec<usize>,
    /// Whether data files hold their rows in the Elf's order.
    pub clustered: bool,
    /// Which of its blocks stay in memory.
    pub cache: IndexCache,
    /// Where its leaves are read from.
    pub shelf: Shelf,
}
