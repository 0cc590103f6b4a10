//! Index files: an Elf for every stretch of rows of a data file.
//!
//! `keys` turns columns into the Elf's codes, `file` is the file and `reading` reads it, `elfs` holds its Elfs in
//! memory under the budget, `zones` keeps bounds of codes. An Elf that is asked where it lies is on a `shelf`: `heads`
//! holds its head, `blocks` those of its blocks that a `policy` wants.

pub mod blocks;
pub mod elfs;
pub mod file;
mod heads;
pub mod keys;
pub mod policy;
mod reading;
pub mod shelf;
mod unavailable;
pub mod zones;

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
}
