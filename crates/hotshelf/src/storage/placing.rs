//! Which shelf a table is on.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use hotshelf_store::catalog::FileRow;
use hotshelf_store::data_file::{DataFile, FilePaths, MadeCopies, TableFile, ensure_there};
use hotshelf_store::placement::Placement;
use hotshelf_store::{ShelfUse, StoreError};

use super::Storage;
use super::indexes::column_named;
use crate::error::{Error, Result};
use crate::table::Table;

impl Storage {
    /// Puts a table on a shelf, or some of its columns, and returns the bytes that are there. Where that fails, the
    /// table is where it was. Queries that read it finish where they are; files that are added meanwhile follow by
    /// themselves.
    pub async fn place_table(self: &Arc<Self>, name: &str, placement: Placement) -> Result<u64> {
        // Two moves of a table, or one beside the merging of its files, would undo each other.
        let _turn = self.rewrites.lock().await;
        let table = self.require_table(name)?;
        table.ensure_readable()?;
        self.check_placement(name, &table.schema, &placement)?;
        let before = self.opener.shelves().placement(&table.folder);
        let moves = [&*before, &placement].map(|placement| placement.folder().is_some());
        let placed = self.place(&table, placement).await;
        if placed.is_err() && moves.contains(&true) {
            // What has moved moves back, now or when it is next opened.
            let undone = self.place(&table, (*before).clone()).await;
            if let Err(error) = undone {
                tracing::warn!(%error, table = name, "files that moved to a shelf stay there for now");
            }
        }
        if placed.is_err() {
            let files = table.files.iter().filter(|file| file.bytes_on_shelf() == 0);
            let files: Vec<_> = files.cloned().collect();
            files.iter().for_each(|file| file.leave_shelf());
            self.follow_shelf(&files);
        }
        placed
    }

    async fn place(self: &Arc<Self>, table: &Table, placement: Placement) -> Result<u64> {
        let shelves = self.opener.shelves().clone();
        let (of, folder) = (shelves.clone(), table.folder.clone());
        let being_placed = self.blocking(move || Ok(of.begin_placing(&folder))).await?;
        if placement.folder().is_some() {
            // First where they are to be: a crash leaves files on their way, and a shelf that is known.
            self.set_placement(table, &placement)?;
            shelves.put(&table.folder, placement.clone());
        }
        // Files that are added meanwhile are where the shelf says that they should be.
        let files = table.files.iter().map(|file| file.paths.clone());
        let folder = placement.files_in(self.store.root(), &table.folder);
        let how = shelves.use_of(&placement.shelf);
        self.move_files(files.collect(), folder, how).await?;
        let files = match placement.is_file() {
            true => Vec::new(),
            false => TableFile::open_all(&table.files, 1.0)
                .into_iter()
                .collect::<Result<_, _>>()?,
        };
        let made = self.make_copies(files, &placement).await?;
        let on_shelf = match placement.folder() {
            Some(_) => table.file_bytes(),
            None => made.bytes(),
        };
        let _change = self.changes.lock();
        let current = self.still_there(table)?;
        if placement.folder().is_none() {
            self.store.set_placement(table.id, &placement)?;
        }
        current.files.iter().for_each(|file| file.leave_shelf());
        shelves.put_made(&table.folder, placement, made);
        drop(being_placed);
        self.follow_shelf(&current.files);
        Ok(on_shelf)
    }

    /// Has files that are open brought to where their table is. The others follow when they are opened.
    pub(super) fn follow_shelf(&self, files: &[Arc<TableFile>]) {
        for opened in files.iter().filter_map(|file| file.opened()) {
            self.opener.shelves().note_opened(&opened);
        }
    }

    fn set_placement(&self, table: &Table, placement: &Placement) -> Result<()> {
        let _change = self.changes.lock();
        self.still_there(table)?;
        Ok(self.store.set_placement(table.id, placement)?)
    }

    /// The table as it is now, unless it has been dropped, or another has its name.
    fn still_there(&self, table: &Table) -> Result<Arc<Table>> {
        let current = self.require_table(&table.name)?;
        match current.id == table.id {
            true => Ok(current),
            false => Err(Error::UnknownTable {
                table: table.name.clone(),
                nearest: None,
            }),
        }
    }

    /// Moves data files to a folder, or back to the database's.
    async fn move_files(
        &self,
        files: Vec<FilePaths>,
        folder: Option<PathBuf>,
        how: ShelfUse,
    ) -> Result<()> {
        let moved = self.blocking(move || {
            let mut files = files.iter();
            files.try_for_each(|paths| paths.move_to(folder.as_deref(), &how))
        });
        moved.await
    }

    /// Copies files for a placement that is not in force yet.
    async fn make_copies(
        &self,
        files: Vec<Arc<DataFile>>,
        placement: &Placement,
    ) -> Result<MadeCopies> {
        let (shelves, placement) = (self.opener.shelves().clone(), placement.clone());
        let made = self.blocking(move || shelves.make(files, &placement));
        made.await
    }

    /// Does work that waits for devices, on a thread of its own.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, StoreError> + Send + 'static,
    ) -> Result<T> {
        let done = self.machine.workers.handle().spawn_blocking(work);
        let stopped = |_| Error::NotSupported {
            what: "placing a table while the database closes".into(),
        };
        Ok(done.await.map_err(stopped)??)
    }

    /// Moves files that were just written to their table's shelf, if it has a file system.
    pub(super) async fn shelve_new(&self, table_folder: &str, files: &[FileRow]) -> Result<()> {
        let Some(folder) = self
            .opener
            .shelves()
            .folder(self.store.root(), table_folder)
        else {
            return Ok(());
        };
        let tables = self.all_tables();
        let table = tables.iter().find(|table| table.folder == table_folder);
        let known = table.into_iter().flat_map(|table| &table.files);
        ensure_there(&folder, known.map(|file| &file.paths))?;
        let root = self.store.root();
        let paths = files
            .iter()
            .map(|file| FilePaths::new(root, table_folder, file.number));
        let shelves = self.opener.shelves();
        let how = shelves.use_of(&shelves.placement(table_folder).shelf);
        self.move_files(paths.collect(), Some(folder), how).await
    }

    /// Begins to put the files of a new table on its shelf. Whatever is wrong with one is found when it is read.
    pub(super) fn begin_shelf(&self, name: &str) {
        let Some(table) = self.table_as_is(name) else {
            return;
        };
        if !self.opener.shelves().placement(&table.folder).is_file() {
            drop(TableFile::open_all(&table.files, 0.0));
        }
    }

    /// A table is gone: queries that still read it do so where they are.
    pub(super) fn forget_shelf(&self, table: &Table) {
        let nowhere = Placement::default();
        self.opener.shelves().put(&table.folder, nowhere);
    }

    /// Refuses columns that the table does not have, and places that the database cannot have.
    pub(super) fn check_placement(
        &self,
        name: &str,
        schema: &SchemaRef,
        placement: &Placement,
    ) -> Result<()> {
        let mut columns = placement.columns.iter();
        columns.try_for_each(|column| column_named(name, schema, column).map(drop))?;
        Ok(self.store.check_placement(placement)?)
    }
}
