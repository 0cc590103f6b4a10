//! What the cache's numbers mean: it knows columns and files by number, people know them by name.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;
use hotshelf_cache::{ColumnId, FileId};
use parking_lot::RwLock;

/// A column of a table, by name. What belongs to no column has the empty name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ColumnName {
    pub table: String,
    pub column: String,
}

/// The names of the columns and files that the cache has seen since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct CacheNames {
    /// By number.
    columns: RwLock<Vec<ColumnName>>,
    /// Paths below `data`.
    files: RwLock<BTreeMap<FileId, String>>,
}

impl CacheNames {
    /// New numbers for a table's columns, and one for what belongs to the whole table.
    pub fn number_columns(&self, table: &str, schema: &Schema) -> Vec<ColumnId> {
        let mut names = self.columns.write();
        let fields = schema.fields().iter();
        let columns = fields.map(|field| field.name().clone());
        columns
            .chain([String::new()])
            .map(|column| {
                let id = ColumnId(names.len() as u32);
                let table = table.to_owned();
                names.push(ColumnName { table, column });
                id
            })
            .collect()
    }

    pub fn add_file(&self, id: FileId, name: String) {
        self.files.write().insert(id, name);
    }

    pub fn column(&self, id: ColumnId) -> ColumnName {
        let names = self.columns.read();
        names.get(id.0 as usize).cloned().unwrap_or_default()
    }

    pub fn file(&self, id: FileId) -> String {
        let names = self.files.read();
        let name = names.get(&id).cloned();
        name.unwrap_or_else(|| format!("#{}", id.0))
    }
}
