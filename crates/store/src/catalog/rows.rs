//! Reading and writing the catalog's rows, with a checksum in each over what answers depend on.

use std::collections::{BTreeMap, HashMap};

use arrow::datatypes::SchemaRef;
use hotshelf_tier::Corruption;
use rusqlite::{Connection, Transaction, params};

use super::damage::{corruption, damaged};
use super::entries::{FileRow, IndexRow, TableRow};
use super::ipc::{
    decode_bounds, decode_doubtful_schema, decode_schema, encode_bounds, encode_schema,
};
use crate::error::Result;
use crate::index::IndexDefinition;
use crate::statistics::{ColumnStats, DistinctSketch, FileStats};

/// A checksum over fields, each with its length.
#[derive(Debug, Clone)]
pub(super) struct RowSum(crc32fast::Hasher);

impl RowSum {
    pub fn new(kind: &str) -> Self {
        Self(crc32fast::Hasher::new()).bytes(kind.as_bytes())
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    pub fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

/// The fields of a row of `tables`.
struct RawTable {
    id: i64,
    name: String,
    folder: String,
    schema: Vec<u8>,
    files_sum: i64,
    sum: u32,
}

impl RawTable {
    fn computed(&self) -> u32 {
        RowSum::new("table")
            .bytes(self.name.as_bytes())
            .bytes(self.folder.as_bytes())
            .bytes(&self.schema)
            .finish()
    }
}

/// The fields of a row of `files` and of its rows of `file_columns`.
struct RawFile {
    id: i64,
    number: u64,
    row_count: u64,
    file_bytes: u64,
    bounds: Vec<u8>,
    content_id: u64,
    columns: Vec<ColumnStats>,
    sum: u32,
}

impl RawFile {
    fn computed(&self, folder: &str) -> u32 {
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

/// What a file adds to the sum over the files of its table, which misses a row that is lost.
fn share(sum: u32) -> i64 {
    (1 << 32) + i64::from(sum)
}

fn index_sum(folder: &str, id: i64, name: &str, columns: &str, clustered: bool) -> u32 {
    RowSum::new("index")
        .bytes(folder.as_bytes())
        .number(id as u64)
        .bytes(name.as_bytes())
        .bytes(columns.as_bytes())
        .number(clustered.into())
        .finish()
}

/// The sum over everything that the catalog lists besides files, which each table's own sum covers: it misses rows that
/// are lost.
pub(super) fn listing_sum(connection: &Connection) -> Result<i64> {
    let lists = [
        ("table", "SELECT id, sum, 0 FROM tables"),
        ("index", "SELECT number, table_id, sum FROM indexes"),
        (
            "index file",
            "SELECT index_number, file_id, file_bytes FROM index_files",
        ),
        ("view", "SELECT sum, 0, 0 FROM views"),
    ];
    let mut total = 0_i64;
    for (kind, sql) in lists {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (first, second, third): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let sum = RowSum::new(kind)
                .number(first as u64)
                .number(second as u64)
                .number(third as u64);
            total = total.wrapping_add(share(sum.finish()));
        }
    }
    let mut schemas = connection.prepare_cached("SELECT name FROM schemas")?;
    let mut rows = schemas.query([])?;
    while let Some(row) = rows.next()? {
        let sum =
            RowSum::new("schema").bytes(row.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?);
        total = total.wrapping_add(share(sum.finish()));
    }
    Ok(total)
}

/// All tables with their files and indexes, by name. Rows that are not what was written are marked.
pub(super) fn tables(connection: &Connection, version: i64) -> Result<Vec<TableRow>> {
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

pub(super) fn mismatch(
    what: String,
    expected: impl std::fmt::LowerHex,
    found: impl std::fmt::LowerHex,
) -> Corruption {
    corruption(
        what,
        format!("checksum {expected:08x}"),
        format!("{found:08x}"),
    )
}

fn raw_tables(connection: &Connection, version: i64) -> Result<Vec<RawTable>> {
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

fn raw_files(connection: &Connection, table_id: i64, version: i64) -> Result<Vec<RawFile>> {
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

/// Adds a table's row; returns its number and its checksum.
pub(super) fn insert_table(transaction: &Transaction<'_>, table: &TableRow) -> Result<(i64, u32)> {
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
pub(super) struct Owner<'a> {
    pub table_id: i64,
    pub folder: &'a str,
    pub schema: &'a SchemaRef,
}

/// Adds a file's row; returns its checksum.
pub(super) fn insert_file(
    transaction: &Transaction<'_>,
    owner: Owner<'_>,
    file: &FileRow,
) -> Result<u32> {
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
pub(super) fn remove_file(
    transaction: &Transaction<'_>,
    table_id: i64,
    number: u64,
) -> Result<u32> {
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
pub(super) fn insert_index(
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
    Ok(sum)
}

/// Adds the file of an index for a data file, or puts a new one in its place.
pub(super) fn insert_index_file(
    transaction: &Transaction<'_>,
    table_id: i64,
    (index, number, bytes): (i64, u64, u64),
) -> Result<()> {
    let mut statement = transaction.prepare_cached(
        "INSERT OR REPLACE INTO index_files SELECT ?1, id, ?3 FROM files WHERE table_id = ?4 AND number = ?2",
    )?;
    statement.execute(params![index, number as i64, bytes as i64, table_id])?;
    Ok(())
}

/// Computes the checksums of all rows of a catalog that had none.
pub(super) fn sum_all(transaction: &Transaction<'_>) -> Result<()> {
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
