//! Checksums of the catalog's rows: one in each over what answers depend on, and sums that miss a row that is lost.

use hotshelf_tier::Corruption;
use rusqlite::Connection;

use super::super::damage::corruption;
use crate::error::Result;

/// A checksum over fields, each with its length.
#[derive(Debug, Clone)]
pub struct RowSum(crc32fast::Hasher);

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

/// What a file adds to the sum over the files of its table, which misses a row that is lost.
pub(super) fn share(sum: u32) -> i64 {
    (1 << 32) + i64::from(sum)
}

pub(super) fn index_sum(folder: &str, id: i64, name: &str, columns: &str, clustered: bool) -> u32 {
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
pub fn listing_sum(connection: &Connection) -> Result<i64> {
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

pub fn mismatch(
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
