//! Adding and removing rows, each with its checksum.

use arrow::datatypes::SchemaRef;
use rusqlite::{Transaction, params};

use super::super::entries::{FileRow, IndexFileRow, TableRow};
use super::super::ipc::{encode_bounds, encode_schema};
use super::super::schema::Choice;
use super::raw::{RawFile, RawTable, raw_files, raw_tables};
use super::sums::{index_sum, share};
use crate::error::Result;
use crate::index::IndexDefinition;

/// Adds a table's row; returns its number and its checksum.
pub fn insert_table(transaction: &Transaction<'_>, table: &TableRow) -> Result<(i64, u32)> {
    let raw = RawTable {
        id: 0,
        name: table.name.clone(),
        folder: table.folder.clone(),
        schema: encode_schema(&table.schema)?,
        files_sum: 0,
        sum: 0,
    };
    let sum = raw.computed();
    transaction.execute(
        "INSERT INTO tables (name, folder, arrow_schema, sum) VALUES (?1, ?2, ?3, ?4)",
        params![raw.name, raw.folder, raw.schema, sum],
    )?;
    Ok((transaction.last_insert_rowid(), sum))
}

/// Which table rows belong to.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    pub table_id: i64,
    pub folder: &'a str,
    pub schema: &'a SchemaRef,
}

/// Adds a file's row; returns its checksum.
pub fn insert_file(transaction: &Transaction<'_>, owner: Owner<'_>, file: &FileRow) -> Result<u32> {
    let raw = RawFile {
        id: 0,
        number: file.number,
        row_count: file.stats.row_count,
        file_bytes: file.file_bytes,
        bounds: encode_bounds(owner.schema, &file.stats.bounds)?,
        content_id: file.id,
        columns: file.stats.columns.clone(),
        sum: 0,
    };
    let sum = raw.computed(owner.folder);
    let mut statement = transaction.prepare_cached(
        "INSERT INTO files (table_id, number, row_count, file_bytes, bounds, content_id, sum)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    statement.execute(params![
        owner.table_id,
        raw.number as i64,
        raw.row_count as i64,
        raw.file_bytes as i64,
        raw.bounds,
        raw.content_id as i64,
        sum
    ])?;
    let file_id = transaction.last_insert_rowid();
    let mut statement =
        transaction.prepare_cached("INSERT INTO file_columns VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (column_idx, column) in raw.columns.iter().enumerate() {
        statement.execute(params![
            file_id,
            column_idx as i64,
            column.null_count.map(|nulls| nulls as i64),
            column.encoded_bytes as i64,
            column.bounds_exact,
            column.distinct.to_bytes()
        ])?;
    }
    add_to_files_sum(transaction, owner.table_id, share(sum))?;
    Ok(sum)
}

/// Removes a file's row; returns its checksum.
pub fn remove_file(transaction: &Transaction<'_>, table_id: i64, number: u64) -> Result<u32> {
    let mut statement = transaction
        .prepare_cached("DELETE FROM files WHERE table_id = ?1 AND number = ?2 RETURNING sum")?;
    let sum: i64 = statement.query_row(params![table_id, number as i64], |row| row.get(0))?;
    add_to_files_sum(transaction, table_id, -share(sum as u32))?;
    Ok(sum as u32)
}

fn add_to_files_sum(transaction: &Transaction<'_>, table_id: i64, share: i64) -> Result<()> {
    let mut statement =
        transaction.prepare_cached("UPDATE tables SET files_sum = files_sum + ?2 WHERE id = ?1")?;
    statement.execute(params![table_id, share])?;
    Ok(())
}

/// Adds an index; returns its checksum.
pub fn insert_index(
    transaction: &Transaction<'_>,
    owner: Owner<'_>,
    index: &IndexDefinition,
) -> Result<u32> {
    let columns = index.columns.iter();
    let columns: Vec<&str> = columns
        .map(|column| owner.schema.field(*column).name().as_str())
        .collect();
    let columns = serde_json::to_string(&columns).unwrap_or_default();
    let sum = index_sum(
        owner.folder,
        index.id,
        &index.name,
        &columns,
        index.clustered,
    );
    transaction.execute(
        "INSERT INTO indexes (number, table_id, name, columns, clustered, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![index.id, owner.table_id, index.name, columns, index.clustered, sum],
    )?;
    index.cache.keep(transaction, index.id)?;
    index.shelf.keep(transaction, index.id)?;
    Ok(sum)
}

/// Adds the file of an index for a data file, or puts a new one in its place.
pub fn insert_index_file(
    transaction: &Transaction<'_>,
    table_id: i64,
    file: IndexFileRow,
) -> Result<()> {
    let mut statement = transaction.prepare_cached(
        "INSERT OR REPLACE INTO index_files SELECT ?1, id, ?3 FROM files WHERE table_id = ?4 AND number = ?2",
    )?;
    let IndexFileRow {
        index,
        data_file,
        bytes,
    } = file;
    statement.execute(params![index, data_file as i64, bytes as i64, table_id])?;
    Ok(())
}

/// Computes the checksums of all rows of a catalog that had none.
pub fn sum_all(transaction: &Transaction<'_>) -> Result<()> {
    for table in raw_tables(transaction, 2)? {
        let files = raw_files(transaction, table.id, 2)?;
        let sums: Vec<u32> = files
            .iter()
            .map(|file| file.computed(&table.folder))
            .collect();
        for (file, sum) in files.iter().zip(&sums) {
            transaction.execute(
                "UPDATE files SET sum = ?2 WHERE id = ?1",
                params![file.id, sum],
            )?;
        }
        let files_sum: i64 = sums.into_iter().map(share).sum();
        transaction.execute(
            "UPDATE tables SET sum = ?2, files_sum = ?3 WHERE id = ?1",
            params![table.id, table.computed(), files_sum],
        )?;
        sum_indexes(transaction, &table)?;
    }
    Ok(())
}

fn sum_indexes(transaction: &Transaction<'_>, table: &RawTable) -> Result<()> {
    let mut statement = transaction
        .prepare("SELECT number, name, columns, clustered FROM indexes WHERE table_id = ?1")?;
    let rows = statement
        .query_map(params![table.id], |row| {
            let clustered = row.get::<_, i64>(3)? != 0;
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, clustered))
        })?
        .collect::<rusqlite::Result<Vec<(i64, String, String, bool)>>>()?;
    for (id, name, columns, clustered) in rows {
        let sum = index_sum(&table.folder, id, &name, &columns, clustered);
        transaction.execute(
            "UPDATE indexes SET sum = ?2 WHERE number = ?1",
            params![id, sum],
        )?;
    }
    Ok(())
}
