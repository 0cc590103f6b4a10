//! Scans: the naive oracle of every test, and what an Elf competes with.

mod column;
mod zone;

pub use column::ColumnScan;
pub use zone::ZoneScan;

use crate::error::Result;
use crate::keys::{CodeTable, QueryBox};

/// The TIDs of all rows that `query` accepts, ascending, found by looking at every row.
///
/// # Errors
/// When the query has another number of dimensions.
pub fn naive(table: &CodeTable, query: &QueryBox) -> Result<Vec<u32>> {
    query.check(table.dimension_count())?;
    let accepted = |row: &usize| {
        let codes = table.columns().iter().map(|column| column.get(*row));
        query
            .dimensions()
            .iter()
            .zip(codes)
            .all(|(one, code)| one.contains(code))
    };
    let mut tids: Vec<u32> = (0..table.row_count())
        .filter(accepted)
        .map(|row| table.tid(row))
        .collect();
    tids.sort_unstable();
    Ok(tids)
}
