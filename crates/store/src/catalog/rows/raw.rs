//! The rows of `tables` and `files` as they are stored, whether or not their checksums are right.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, params};

use super::sums::RowSum;
use crate::error::Result;
use crate::statistics::{ColumnStats, DistinctSketch};

/// The fields of a row of `tables`.
pub(super) struct RawTable {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) folder: String,
    pub(super) schema: Vec<u8>,
    pub(super) files_sum: i64,
    pub(super) sum: u32,
}

impl RawTable {
    pub(super) fn computed(&self) -> u32 {
        RowSum::new("table")
            .bytes(self.name.as_bytes())
            .bytes(self.folder.as_bytes())
            .bytes(&self.schema)
            .finish()
    }
}

/// The fields of a row of `files` and of its rows of `file_columns`.
pub(super) struct RawFile {
    pub(super) id: i64,
    pub(super) number: u64,
    pub(super) row_count: u64,
    pub(super) file_bytes: u64,
    pub(super) bounds: Vec<u8>,
    pub(super) content_id: u64,
    pub(super) columns: Vec<ColumnStats>,
    pub(super) sum: u32,
}

impl RawFile {
    pub(super) fn computed(&self, folder: &str) -> u32 {
        let sum = RowSum::new("file")
            .bytes(folder.as_bytes())
            .number(self.number)
            .number(self.row_count)
            .number(self.file_bytes)
            .number(self.content_id)
            .bytes(&self.bounds);
        let columns = self.columns.iter().fold(sum, |sum, column| {
            sum.bytes(
                &column
                    .null_count
                    .map_or(vec![], |nulls| nulls.to_le_bytes().to_vec()),
            )
            .number(column.encoded_bytes)
            .number(column.bounds_exact.into())
            .bytes(column.distinct.to_bytes())
        });
        columns.finish()
    }
}

pub(super) fn raw_tables(connection: &Connection, version: i64) -> Result<Vec<RawTable>> {
    let sums = if version >= 2 {
        "files_sum, sum"
    } else {
        "0, 0"
    };
    let mut statement = connection.prepare(&format!(
        "SELECT id, name, folder, arrow_schema, {sums} FROM tables ORDER BY name"
    ))?;
    let rows = statement.query_map([], |row| {
        Ok(RawTable {
            id: row.get(0)?,
            name: row.get(1)?,
            folder: row.get(2)?,
            schema: row.get(3)?,
            files_sum: row.get(4)?,
            sum: row.get::<_, i64>(5)? as u32,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn raw_files(
    connection: &Connection,
    table_id: i64,
    version: i64,
) -> Result<Vec<RawFile>> {
    let sums = if version >= 2 {
        "content_id, sum"
    } else {
        "0, 0"
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, number, row_count, file_bytes, bounds, {sums} FROM files WHERE table_id = ?1 ORDER BY number"
    ))?;
    let rows = statement.query_map(params![table_id], |row| {
        Ok(RawFile {
            id: row.get(0)?,
            number: row.get::<_, i64>(1)? as u64,
            row_count: row.get::<_, i64>(2)? as u64,
            file_bytes: row.get::<_, i64>(3)? as u64,
            bounds: row.get(4)?,
            content_id: row.get::<_, i64>(5)? as u64,
            columns: Vec::new(),
            sum: row.get::<_, i64>(6)? as u32,
        })
    })?;
    let mut files = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut columns = columns_of_files(connection, table_id)?;
    for file in &mut files {
        let of_file = columns.remove(&file.id).unwrap_or_default();
        file.columns = of_file.into_values().collect();
    }
    Ok(files)
}

/// Statistics by file and column, for all files of a table.
type ColumnsByFile = HashMap<i64, BTreeMap<i64, ColumnStats>>;

fn columns_of_files(connection: &Connection, table_id: i64) -> Result<ColumnsByFile> {
    let mut statement = connection.prepare_cached(
        "SELECT file_id, column_idx, null_count, encoded_bytes, bounds_exact, distinct_sketch
         FROM files JOIN file_columns ON file_id = files.id WHERE table_id = ?1",
    )?;
    let mut rows = statement.query(params![table_id])?;
    let mut columns = ColumnsByFile::new();
    while let Some(row) = rows.next()? {
        let nulls: Option<i64> = row.get(2)?;
        let sketch = row.get_ref(5)?.as_blob();
        let column = ColumnStats {
            null_count: nulls.map(|nulls| nulls as u64),
            encoded_bytes: row.get::<_, i64>(3)? as u64,
            bounds_exact: row.get::<_, i64>(4)? != 0,
            distinct: DistinctSketch::from_bytes(sketch.map_err(rusqlite::Error::from)?),
        };
        let of_file = columns.entry(row.get(0)?).or_default();
        of_file.insert(row.get(1)?, column);
    }
    Ok(columns)
}
