//! Reading and writing the catalog's rows, with a checksum in each.

mod raw;
mod read;
mod sums;
mod write;

pub(super) use read::tables;
pub(super) use sums::{RowSum, listing_sum, mismatch};
pub(super) use write::{
    Owner, insert_file, insert_index, insert_index_file, insert_table, remove_file, sum_all,
};
