//! Keys: values of any type as order-preserving codes, and predicates as restrictions on codes.
//!
//! Everything below this module sees a table as columns of `u32` codes with one TID per row
//! ([`CodeTable`]) and a query as one [`Restriction`] per dimension ([`QueryBox`]). How values become
//! codes is [`ColumnEncoding`]'s business.

mod column;
mod encoding;
mod mapping;
mod predicate;
mod restriction;
mod table;

#[cfg(test)]
mod encoding_tests;
#[cfg(test)]
mod typed;

pub use column::{Values, ValuesRef};
pub use encoding::ColumnEncoding;
pub use predicate::{Coverage, Predicate, Value};
pub use restriction::{CodeSet, QueryBox, Restriction};
pub use table::{CodeColumn, CodeTable};

/// Most dimensions of one Elf.
pub const DIMENSION_COUNT_MAX: usize = 64;

/// Most rows of one Elf: slot numbers share a word with two tag bits.
pub const ROW_COUNT_MAX: usize = (1 << 30) - 1;
