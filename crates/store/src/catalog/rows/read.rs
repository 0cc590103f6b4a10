//! Reading tables with their files and indexes. Rows that are not what was written are marked.

use arrow::datatypes::SchemaRef;
use hotshelf_tier::Corruption;
use rusqlite::{Connection, params};

use super::super::damage::damaged;
use super::super::entries::{FileRow, IndexRow, TableRow};
use super::super::ipc::{decode_bounds, decode_doubtful_schema, decode_schema};
use super::super::schema::Choice;
use super::raw::{RawFile, RawTable, raw_files, raw_tables};
use super::sums::{index_sum, mismatch, share};
use crate::error::Result;
use crate::index::{IndexCache, IndexDefinition};
use crate::placement::Placement;
use crate::shelf::Shelf;
use crate::statistics::FileStats;

/// All tables with their files and indexes, by name. Rows that are not what was written are marked.
pub fn tables(connection: &Connection, version: i64) -> Result<Vec<TableRow>> {
    let tables = raw_tables(connection, version)?;
    tables
        .into_iter()
        .map(|table| read_table(connection, version, table))
        .collect()
}

fn read_table(connection: &Connection, version: i64, table: RawTable) -> Result<TableRow> {
    let is_checked = version >= 2;
    let is_sound = !is_checked || table.sum == table.computed();
    let schema = match is_sound {
        true => decode_schema(&table.schema)?,
        false => decode_doubtful_schema(&table.schema)?,
    };
    let raw = raw_files(connection, table.id, version)?;
    let mut damage = None;
    if !is_sound {
        damage = Some(mismatch(
            format!("table '{}'", table.name),
            table.sum,
            table.computed(),
        ));
    }
    let files_sum: i64 = raw.iter().map(|file| share(file.sum)).sum();
    if is_checked && files_sum != table.files_sum {
        let what = format!("files of table '{}'", table.name);
        damage = damage.or(Some(mismatch(what, table.files_sum, files_sum)));
    }
    let mut files = Vec::with_capacity(raw.len());
    for file in raw {
        let is_sound = !is_checked || file.sum == file.computed(&table.folder);
        if is_sound && file.columns.len() != schema.fields().len() {
            let (number, count) = (file.number, file.columns.len());
            return Err(damaged(format!(
                "file {number} has statistics of {count} columns"
            )));
        }
        files.push(read_file(file, is_sound, &schema)?);
    }
    let (indexes, index_damages) = read_indexes(connection, &table, version, &schema)?;
    Ok(TableRow {
        placement: Placement::of(connection, table.id)?,
        id: table.id,
        name: table.name,
        folder: table.folder,
        schema,
        files,
        indexes,
        damage,
        index_damages,
    })
}

fn read_file(file: RawFile, is_sound: bool, schema: &SchemaRef) -> Result<FileRow> {
    let stats = match is_sound {
        true => FileStats {
            row_count: file.row_count,
            columns: file.columns,
            bounds: decode_bounds(&file.bounds)?,
        },
        false => FileStats::empty(schema.fields().len()),
    };
    Ok(FileRow {
        number: file.number,
        file_bytes: file.file_bytes,
        id: file.content_id,
        is_sound,
        stats,
    })
}

type ReadIndexes = (Vec<IndexRow>, Vec<Corruption>);

fn read_indexes(
    connection: &Connection,
    table: &RawTable,
    version: i64,
    schema: &SchemaRef,
) -> Result<ReadIndexes> {
    let sums = if version >= 2 { "sum" } else { "0" };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT number, name, columns, clustered, {sums} FROM indexes WHERE table_id = ?1 ORDER BY number"
    ))?;
    let rows = statement
        .query_map(params![table.id], |row| {
            let clustered = row.get::<_, i64>(3)? != 0;
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                clustered,
                row.get(4)?,
            ))
        })?
        .collect::<rusqlite::Result<Vec<(i64, String, String, bool, i64)>>>()?;
    let (mut indexes, mut damages) = (Vec::new(), Vec::new());
    for (id, name, columns, clustered, sum) in rows {
        let computed = index_sum(&table.folder, id, &name, &columns, clustered);
        if version >= 2 && sum as u32 != computed {
            damages.push(mismatch(format!("index '{name}'"), sum, computed));
            continue;
        }
        let columns = column_numbers(&columns, schema)
            .map_err(|error| damaged(format!("index {name}: {error}")))?;
        let definition = IndexDefinition {
            id,
            name,
            columns,
            clustered,
            cache: IndexCache::of(connection, id)?,
            shelf: Shelf::of(connection, id)?,
        };
        let files = index_files_of(connection, id)?;
        indexes.push(IndexRow { definition, files });
    }
    Ok((indexes, damages))
}

fn column_numbers(names: &str, schema: &SchemaRef) -> Result<Vec<usize>, String> {
    let names: Vec<String> = serde_json::from_str(names).map_err(|error| error.to_string())?;
    let columns = names.iter().map(|column| schema.index_of(column));
    columns
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

fn index_files_of(connection: &Connection, index: i64) -> Result<Vec<(u64, u64)>> {
    let mut statement = connection.prepare_cached(
        "SELECT files.number, index_files.file_bytes FROM index_files JOIN files ON files.id = file_id
         WHERE index_number = ?1 ORDER BY files.number",
    )?;
    let files = statement.query_map(params![index], |row| {
        Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64))
    })?;
    Ok(files.collect::<rusqlite::Result<_>>()?)
}
