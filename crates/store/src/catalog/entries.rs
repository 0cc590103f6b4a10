//! What the catalog says: tables with their files and indexes, schemas and views, and the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use arrow::datatypes::SchemaRef;
use hotshelf_tier::Corruption;

use crate::index::IndexDefinition;
use crate::placement::Placement;
use crate::statistics::FileStats;

/// A table as the catalog knows it.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// Its number, never used again.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its folder below `data`.
    pub folder: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Its data files.
    pub files: Vec<FileRow>,
    /// Its indexes.
    pub indexes: Vec<IndexRow>,
    /// Where its files' segments are read from.
    pub placement: Placement,
    /// Why its rows cannot be relied on, if its entry is not what was written.
    pub damage: Option<Corruption>,
    /// Indexes whose entries are not what was written. They are not among [`Self::indexes`].
    pub index_damages: Vec<Corruption>,
}

impl TableRow {
    /// Whether every entry of the table is what was written.
    pub fn is_sound(&self) -> bool {
        let files = self.files.iter().all(|file| file.is_sound);
        files && self.damage.is_none() && self.index_damages.is_empty()
    }

    /// A table to be added.
    pub fn new(name: String, folder: String, schema: SchemaRef, files: Vec<FileRow>) -> Self {
        Self {
            id: 0,
            name,
            folder,
            schema,
            files,
            indexes: Vec::new(),
            placement: Placement::default(),
            damage: None,
            index_damages: Vec::new(),
        }
    }
}

/// An index as the catalog knows it.
#[derive(Debug, Clone)]
pub struct IndexRow {
    /// What the user defined.
    pub definition: IndexDefinition,
    /// Numbers of the data files that have an index file, with its length.
    pub files: Vec<(u64, u64)>,
}

/// A file of an index, as the catalog knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexFileRow {
    /// The index, by its number in the database.
    pub index: i64,
    /// The data file whose rows it has, by its number in the table.
    pub data_file: u64,
    /// Its length.
    pub bytes: u64,
}

/// A change of a table's files in one transaction.
#[derive(Debug, Default)]
pub struct FileChange<'a> {
    /// Numbers of files to forget.
    pub removed: &'a [u64],
    /// Files to add.
    pub added: &'a [FileRow],
    /// An index to add.
    pub new_index: Option<&'a IndexDefinition>,
    /// New index files.
    pub index_files: &'a [IndexFileRow],
}

/// A data file as the catalog knows it.
#[derive(Debug, Clone)]
pub struct FileRow {
    /// Its number in the table.
    pub number: u64,
    /// Its length.
    pub file_bytes: u64,
    /// What its checksum file calls it; 0 for a file of format 1.
    pub id: u64,
    /// Whether the entry is what was written. If not, the statistics are taken from the file.
    pub is_sound: bool,
    /// Statistics of its rows.
    pub stats: FileStats,
}

/// Files that a change made obsolete: they may be removed when they are no longer read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obsolete {
    /// A table's folder.
    Table {
        /// Its name below `data`.
        folder: String,
    },
    /// A data file with all that belongs to it.
    File {
        /// The table's folder.
        folder: String,
        /// The file's number.
        number: u64,
    },
    /// The files of an index.
    Index {
        /// The table's folder.
        folder: String,
        /// The index's number.
        index: i64,
    },
}

/// What the journal says may be in the folder without being named elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// Numbers of files that may have been being written.
    pub reserved: Range<u64>,
    /// What changes made obsolete.
    pub obsolete: Vec<Obsolete>,
}

/// The table that a change is about.
#[derive(Debug, Clone, Copy)]
pub struct TableRef<'a> {
    /// Its number.
    pub id: i64,
    /// Its folder below `data`.
    pub folder: &'a str,
    /// Its columns.
    pub schema: &'a SchemaRef,
}

/// Schemas beside `public`, and the text of each view by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Schemas beside `public`.
    pub schemas: BTreeSet<String>,
    /// The CREATE VIEW of each view.
    pub views: BTreeMap<String, String>,
    /// Views whose entries are not what was written. They are not among [`Self::views`].
    pub damages: Vec<Corruption>,
}
