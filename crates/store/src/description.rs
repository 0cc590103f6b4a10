//! The description of a table beside its files, `data/<folder>/TABLE`: what it takes to make the catalog again.

use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use hotshelf_tier::Corruption;

use crate::catalog::entries::TableRow;
use crate::catalog::{decode_schema, encode_schema};
use crate::error::{Result, StoreError};
use crate::fields::{Fields, put_bytes, put_number, put_word};
use crate::index::{IndexCache, IndexDefinition};
use crate::root::Root;
use crate::shelf::Shelf;

/// Its name in the table's folder.
pub(crate) const TABLE: &str = "TABLE";
/// While it is being replaced.
pub(crate) const TABLE_TEMPORARY: &str = "TABLE.tmp";
const MAGIC: &[u8; 8] = b"HSTABLE1";

/// What a description says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    pub database: u64,
    pub name: String,
    pub schema: SchemaRef,
    pub indexes: Vec<IndexDefinition>,
}

impl Description {
    /// The description of a table of the catalog, without what it says about memory.
    pub fn new(database: u64, row: &TableRow) -> Self {
        let indexes = row.indexes.iter();
        Self {
            database,
            name: row.name.clone(),
            schema: row.schema.clone(),
            indexes: indexes
                .map(|index| IndexDefinition {
                    cache: IndexCache::default(),
                    shelf: Shelf::default(),
                    ..index.definition.clone()
                })
                .collect(),
        }
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        put_number(&mut bytes, self.database);
        put_bytes(&mut bytes, self.name.as_bytes());
        put_bytes(&mut bytes, &encode_schema(&self.schema)?);
        put_word(&mut bytes, self.indexes.len() as u32);
        for index in &self.indexes {
            put_number(&mut bytes, index.id as u64);
            put_bytes(&mut bytes, index.name.as_bytes());
            put_word(&mut bytes, index.clustered.into());
            put_word(&mut bytes, index.columns.len() as u32);
            for column in &index.columns {
                put_word(&mut bytes, *column as u32);
            }
        }
        let sum = crc32fast::hash(&bytes);
        put_word(&mut bytes, sum);
        Ok(bytes)
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Self> {
        let mut input = Fields::new(path, bytes, "description of a table");
        if input.take(8)? != MAGIC {
            return Err(input.corrupt("a header 'HSTABLE1'", "other bytes").into());
        }
        input.check_sum(bytes)?;
        let database = input.number()?;
        let name = input.text()?;
        let schema = decode_schema(input.bytes()?)?;
        let count = input.word()?;
        let indexes = (0..count).map(|_| read_index(&mut input, schema.fields().len()));
        let indexes = indexes.collect::<Result<_, Corruption>>()?;
        input.end()?;
        Ok(Self {
            database,
            name,
            schema,
            indexes,
        })
    }

    /// Reads the description in a table's folder.
    pub fn read(root: &Root, folder: &str) -> Result<Self> {
        let path = path(root, folder);
        Self::decode(&path, &root.read(&path)?)
    }

    /// Writes the description into a table's folder, whole or not at all.
    pub fn write(&self, root: &Root, folder: &str) -> Result<()> {
        let temporary = root.table(folder).join(TABLE_TEMPORARY);
        root.write_synced(&temporary, &self.encode()?)?;
        root.rename(&temporary, &path(root, folder))?;
        root.sync_folder(&root.table(folder))
    }

    /// Writes the description unless it exists and is right.
    pub fn ensure(&self, root: &Root, folder: &str) -> Result<()> {
        let is_as_it_should_be = match Self::read(root, folder) {
            Ok(found) => found == *self,
            Err(StoreError::Io { .. } | StoreError::Corruption(_)) => false,
            Err(other) => return Err(other),
        };
        if is_as_it_should_be && !root.exists(&root.table(folder).join(TABLE_TEMPORARY)) {
            return Ok(());
        }
        self.write(root, folder)
    }
}

fn path(root: &Root, folder: &str) -> PathBuf {
    root.table(folder).join(TABLE)
}

fn read_index(input: &mut Fields<'_>, column_count: usize) -> Result<IndexDefinition, Corruption> {
    let id = input.number()? as i64;
    let name = input.text()?;
    let clustered = input.word()? != 0;
    let count = input.word()?;
    input.expect(u64::from(count) * 4)?;
    let columns = (0..count).map(|_| match input.word()? as usize {
        column if column < column_count => Ok(column),
        column => Err(input.corrupt(format!("a column below {column_count}"), column)),
    });
    Ok(IndexDefinition {
        columns: columns.collect::<Result<_, _>>()?,
        id,
        name,
        clustered,
        cache: IndexCache::default(),
        shelf: Shelf::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use std::sync::Arc;

    #[test]
    fn a_description_is_read_as_it_was_written_and_damage_is_noticed() {
        let description = Description {
            database: 12,
            name: "größe".into(),
            schema: Arc::new(Schema::new(vec![Field::new("a", DataType::Int8, true)])),
            indexes: vec![IndexDefinition {
                id: 4,
                name: "i".into(),
                columns: vec![0],
                clustered: true,
                cache: IndexCache::default(),
                shelf: Shelf::default(),
            }],
        };
        let bytes = description.encode().unwrap();
        let path = Path::new("TABLE");
        assert_eq!(Description::decode(path, &bytes).unwrap(), description);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Description::decode(path, &damaged).is_err(), "{at}");
            assert!(Description::decode(path, &bytes[..at]).is_err(), "{at}");
        }
    }
}
