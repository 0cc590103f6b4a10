//! The changes of the catalog, each one transaction.

use rusqlite::params;

use super::entries::{FileChange, IndexFileRow, Obsolete, TableRef, TableRow};
use super::rows::{self, Owner};
use super::schema::Choice;
use super::{Catalog, journal, names};
use crate::error::Result;
use crate::index::IndexCache;
use crate::placement::Placement;
use crate::shelf::Shelf;

impl Catalog {
    /// Adds a table with its files and indexes in one transaction and returns its id, whatever id it has so far;
    /// `replaces` names a table to drop with it, by its id.
    pub fn add_table(&self, table: &TableRow, replaces: Option<i64>) -> Result<i64> {
        self.change(|transaction, sum| {
            if let Some(id) = replaces {
                journal::drop_row(transaction, id)?;
            }
            let (id, row_sum) = rows::insert_table(transaction, table)?;
            table.placement.keep(transaction, id)?;
            *sum = sum.clone().number(row_sum.into());
            let owner = Owner {
                table_id: id,
                folder: &table.folder,
                schema: &table.schema,
            };
            for file in &table.files {
                let row_sum = rows::insert_file(transaction, owner, file)?;
                *sum = sum.clone().number(row_sum.into());
            }
            for index in &table.indexes {
                rows::insert_index(transaction, owner, &index.definition)?;
                for (data_file, bytes) in &index.files {
                    let file = IndexFileRow {
                        index: index.definition.id,
                        data_file: *data_file,
                        bytes: *bytes,
                    };
                    rows::insert_index_file(transaction, id, file)?;
                }
            }
            Ok(id)
        })
    }

    /// Changes a table's files and indexes in one transaction.
    pub fn change_files(&self, table: &TableRef<'_>, change: &FileChange<'_>) -> Result<()> {
        let owner = Owner {
            table_id: table.id,
            folder: table.folder,
            schema: table.schema,
        };
        self.change(|transaction, sum| {
            for number in change.removed {
                let row_sum = rows::remove_file(transaction, table.id, *number)?;
                *sum = sum.clone().number(row_sum.into());
                let file = Obsolete::File {
                    folder: table.folder.to_owned(),
                    number: *number,
                };
                journal::note(transaction, &file)?;
            }
            for file in change.added {
                let row_sum = rows::insert_file(transaction, owner, file)?;
                *sum = sum.clone().number(row_sum.into());
            }
            if let Some(index) = change.new_index {
                rows::insert_index(transaction, owner, index)?;
            }
            for file in change.index_files {
                rows::insert_index_file(transaction, table.id, *file)?;
            }
            Ok(())
        })
    }

    /// Keeps what the user says about the blocks and the shelf of an index from here on.
    pub fn set_index_choices(&self, number: i64, cache: IndexCache, shelf: &Shelf) -> Result<()> {
        self.change(|transaction, sum| {
            *sum = sum.clone().number(number as u64);
            cache.keep(transaction, number)?;
            shelf.keep(transaction, number)
        })
    }

    /// Keeps where the user wants a table to be.
    pub fn set_placement(&self, table_id: i64, placement: &Placement) -> Result<()> {
        self.change(|transaction, sum| {
            *sum = sum.clone().number(table_id as u64);
            placement.keep(transaction, table_id)
        })
    }

    /// Forgets an index and its files.
    pub fn drop_index(&self, folder: &str, number: i64) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            *sum = sum.clone().number(number as u64);
            transaction.execute("DELETE FROM indexes WHERE number = ?1", params![number])?;
            IndexCache::default().keep(transaction, number)?;
            Shelf::default().keep(transaction, number)?;
            let files = Obsolete::Index {
                folder: folder.to_owned(),
                index: number,
            };
            journal::note(transaction, &files)
        })
    }

    /// Forgets a table and its files.
    pub fn drop_table(&self, table_id: i64) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            *sum = sum.clone().number(table_id as u64);
            journal::drop_row(transaction, table_id)
        })
    }

    /// Keeps a schema.
    pub fn add_schema(&self, name: &str) -> Result<()> {
        self.change(|transaction, sum| {
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("INSERT INTO schemas (name) VALUES (?1)", params![name])?;
            Ok(())
        })
    }

    /// Forgets a schema with what it holds: tables, by their ids, and views.
    pub fn drop_schema(&self, name: &str, tables: &[i64], views: &[String]) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            for table_id in tables {
                *sum = sum.clone().number(*table_id as u64);
                journal::drop_row(transaction, *table_id)?;
            }
            for view in views {
                *sum = sum.clone().bytes(view.as_bytes());
                transaction.execute("DELETE FROM views WHERE name = ?1", params![view])?;
            }
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("DELETE FROM schemas WHERE name = ?1", params![name])?;
            Ok(())
        })
    }

    /// Keeps a view, in the place of one of that name.
    pub fn put_view(&self, name: &str, sql: &str) -> Result<()> {
        let view = names::view_sum(name, sql);
        self.change(|transaction, sum| {
            *sum = sum.clone().number(view.into());
            transaction.execute(
                "INSERT OR REPLACE INTO views (name, sql, sum) VALUES (?1, ?2, ?3)",
                params![name, sql, view],
            )?;
            Ok(())
        })
    }

    /// Forgets a view.
    pub fn drop_view(&self, name: &str) -> Result<()> {
        self.change_that_frees(|transaction, sum| {
            *sum = sum.clone().bytes(name.as_bytes());
            transaction.execute("DELETE FROM views WHERE name = ?1", params![name])?;
            Ok(())
        })
    }
}
