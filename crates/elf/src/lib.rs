//! The Elf: a multi-dimensional index for conjunctions of predicates over several columns.
//!
//! A table's indexed columns become order-preserving codes ([`keys`]); an Elf is a prefix tree over
//! the codes of each row, one column per level. A query is one restriction per column
//! ([`keys::QueryBox`]); its answer is a set of TIDs. [`layout::packed`] is the structure.

#![forbid(unsafe_code)]

#[cfg(test)]
mod cases;
mod codec;
pub mod cost;
mod error;
pub mod keys;
pub mod layout;
mod rows;

pub use error::{ElfError, Result};
#[doc(hidden)]
pub use rows::SortedRows;
