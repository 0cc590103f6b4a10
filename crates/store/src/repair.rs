//! Makes a lost or damaged catalog again from the tables' descriptions and the data files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use arrow::datatypes::SchemaRef;
use vortex::session::VortexSession;
use vortex_arrow::ArrowSessionExt;

use crate::catalog::Catalog;
use crate::catalog::entries::{FileRow, IndexRow, Names, TableRow};
use crate::data_file::{FilePaths, SegmentMap, Sums, footer};
use crate::description::Description;
use crate::error::{Result, StoreError};
use crate::folder::{file_name, trailing_number};
use crate::head::{Acknowledged, Change, HEAD, Head};
use crate::ids::random_id;
use crate::index::IndexPaths;
use crate::index::file::Indexes;
use crate::index::verify::check as check_index;
use crate::links::away;
use crate::names_file;
use crate::root::{CATALOG, LOST, Root};
use crate::shelf::Shelf;
use crate::sweep::GONE;

/// What a repair did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Whether there was nothing to repair: the catalog is sound and was not changed.
    pub is_sound: bool,
    /// The tables that were found, by name.
    pub tables: Vec<RepairedTable>,
    /// What could not be recovered, and what was omitted and why.
    pub notes: Vec<String>,
}

/// A table that was found again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedTable {
    /// Its name.
    pub name: String,
    /// Its data files.
    pub file_count: usize,
    /// Their rows.
    pub row_count: u64,
    /// Its indexes.
    pub index_count: usize,
}

/// Makes the catalog of the database in `folder` again if it is missing, damaged or does not fit the data. The old
/// one is kept in `lost+found`. Data files are only read.
///
/// # Errors
/// The folder is open elsewhere, holds no data, is of a newer format, or cannot be read or written.
pub fn repair(folder: &Path) -> Result<RepairReport> {
    let root = Root::open(folder)?;
    let _lock = root.lock()?;
    match is_sound(&root) {
        Ok(true) => {
            return Ok(RepairReport {
                is_sound: true,
                ..RepairReport::default()
            });
        }
        Err(newer @ StoreError::NewerFormat { .. }) => return Err(newer),
        Ok(false) | Err(_) => {}
    }
    if !root.exists(&root.data()) {
        return Err(StoreError::NotADatabase {
            path: folder.to_owned(),
            what: "it has no folder 'data'".into(),
        });
    }
    ensure_shelves(&root)?;
    let mut search = Search::new(&root)?;
    let mut rows = search.tables()?;
    let last = search.last();
    root.set_database(last.database);
    search.place(&mut rows);
    set_aside(&root)?;
    let catalog = Catalog::create_again(&root, last)?;
    let names = search.names();
    for schema in &names.schemas {
        catalog.add_schema(schema)?;
    }
    for (name, sql) in &names.views {
        catalog.put_view(name, sql)?;
    }
    for row in &rows {
        catalog.add_table(row, None)?;
        Description::new(last.database, row).ensure(&root, &row.folder)?;
    }
    Ok(search.report(&rows))
}

/// Refuses to go on without shelves that data files are on: their rows would be taken for lost.
fn ensure_shelves(root: &Root) -> Result<()> {
    for folder in root.list(&root.data())? {
        if !root.real(&folder).is_dir() {
            continue;
        }
        for path in root.list(&folder)? {
            if away(root, &path).is_some() {
                root.open_file(&path)?;
            }
        }
    }
    Ok(())
}

/// Whether the catalog can be opened and every entry is what was written.
fn is_sound(root: &Root) -> Result<bool> {
    if root
        .real(&root.join(CATALOG))
        .metadata()
        .map_or(0, |file| file.len())
        == 0
    {
        return Ok(false);
    }
    let catalog = Catalog::open(root)?;
    let rows = catalog.tables()?;
    let is_whole = catalog.integrity()? == "ok" && catalog.names()?.damages.is_empty();
    Ok(is_whole && rows.iter().all(|row| row.is_sound() && agrees(root, row)))
}

/// Whether the catalog agrees with a table's files. Damaged files say nothing.
fn agrees(root: &Root, row: &TableRow) -> bool {
    let session = crate::vortex_session();
    row.files.iter().all(|file| {
        let paths = FilePaths::new(root, &row.folder, file.number);
        let in_file = Sums::of(&paths, file).and_then(|sums| {
            let footer = footer::read(&paths, &sums, &session)?;
            let map = SegmentMap::new(&footer)?;
            footer::statistics(&footer, &map, &row.schema, &session, Vec::new())
        });
        in_file.map_or(true, |found| {
            footer::difference(&found, &file.stats).is_none()
        })
    })
}

/// Moves what there is of the old catalog to `lost+found`.
fn set_aside(root: &Root) -> Result<()> {
    let lost = root.join(LOST);
    root.create_folder(&lost)?;
    let names = ["", "-wal", "-shm", "-journal"].map(|end| root.join(format!("{CATALOG}{end}")));
    for path in names.into_iter().chain([root.data().join(HEAD)]) {
        if root.exists(&path) {
            root.rename(&path, &root.free_name(&lost, &file_name(&path)))?;
        }
    }
    root.sync_folder(root.path())?;
    root.sync_folder(&root.data())
}

/// A data file that was found.
struct FoundFile {
    row: FileRow,
    /// Files whose place it takes.
    replaces: Vec<u64>,
    /// The last change before it was written; `None` in format 1.
    after: Option<Change>,
    indexes: Indexes,
}

/// What is known while the data folder is gone through.
struct Search<'a> {
    root: &'a Root,
    session: VortexSession,
    /// The record of the last change, if it can be read.
    head: Option<Acknowledged>,
    database: Option<u64>,
    highest_change: u64,
    /// Folders whose files are all omitted because their changes were not acknowledged.
    pending: BTreeSet<String>,
    notes: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(root: &'a Root) -> Result<Self> {
        let mut notes = Vec::new();
        let head = match Head::read(root) {
            Ok(head) => head,
            Err(newer @ StoreError::NewerFormat { .. }) => return Err(newer),
            Err(error) => {
                notes.push(error.to_string());
                None
            }
        };
        if head.is_none() {
            notes.push("without data/HEAD nothing shows whether the last change was acknowledged: its rows are in".into());
        }
        Ok(Self {
            root,
            session: crate::vortex_session(),
            database: head.map(|head| head.database),
            highest_change: head.map_or(0, |head| head.change.number),
            pending: BTreeSet::new(),
            head,
            notes,
        })
    }

    /// Where the new catalog goes on.
    fn last(&self) -> Acknowledged {
        Acknowledged {
            database: self.database.unwrap_or_else(random_id),
            change: Change {
                number: self.highest_change + 1,
                sum: 0,
            },
        }
    }

    fn note(&mut self, place: &str, what: impl std::fmt::Display) {
        self.notes.push(format!("{place}: {what}"));
    }

    /// Schemas and views, if they can be read.
    fn names(&mut self) -> Names {
        names_file::read(self.root).unwrap_or_else(|error| {
            self.notes
                .push(format!("schemas and views are lost: {error}"));
            Names::default()
        })
    }

    /// All tables that can be found, one for each name.
    fn tables(&mut self) -> Result<Vec<TableRow>> {
        let mut by_name: BTreeMap<String, TableRow> = BTreeMap::new();
        for path in self.root.list(&self.root.data())? {
            let folder = file_name(&path);
            let is_folder = self.root.real(&path).is_dir();
            if !is_folder || folder.ends_with(GONE) {
                continue;
            }
            let Some(row) = self.table(&folder)? else {
                continue;
            };
            // If all files are omitted as pending, the table's creation was not acknowledged.
            let is_made = |row: &TableRow| !self.pending.contains(&row.folder);
            let order = |row: &TableRow| (is_made(row), trailing_number(&row.folder));
            let older = match by_name.get(&row.name) {
                Some(other) if order(other) > order(&row) => Some(row.folder.clone()),
                _ => by_name
                    .insert(row.name.clone(), row)
                    .map(|other| other.folder),
            };
            if let Some(older) = older {
                self.note(&older, "left out: another table has its name");
            }
        }
        self.notes.push(
            "distinct values are not known until a table is merged or made again; \
             a table dropped just before may be back; shelves of copies and of empty tables are forgotten"
                .into(),
        );
        Ok(by_name.into_values().collect())
    }

    /// The table in a folder, if there is one.
    fn table(&mut self, folder: &str) -> Result<Option<TableRow>> {
        let description = match Description::read(self.root, folder) {
            Ok(description) => Some(description),
            Err(error) => {
                self.note(folder, format!("no description ({error})"));
                None
            }
        };
        if let Some(description) = &description {
            self.database.get_or_insert(description.database);
        }
        let schema = match &description {
            Some(description) => description.schema.clone(),
            None => match self.guess_schema(folder)? {
                Some(schema) => schema,
                None => return Ok(None),
            },
        };
        let found = self.files(folder, &schema)?;
        let found = self.choose(folder, found);
        let name = match &description {
            Some(description) => description.name.clone(),
            None => {
                let slug = folder.rsplit_once('-').map_or(folder, |(slug, _)| slug);
                let what = format!(
                    "the table is named after its folder, '{slug}'; its indexes are not known"
                );
                self.note(folder, what);
                slug.to_owned()
            }
        };
        let mut row = TableRow::new(name, folder.to_owned(), schema, Vec::new());
        for definition in description.into_iter().flat_map(|known| known.indexes) {
            let files = found.iter().filter_map(|file| {
                let paths = IndexPaths::new(self.root, folder, file.row.number, definition.id);
                let bytes = check_index(&paths, file.indexes, definition.columns.len()).ok()?;
                Some((file.row.number, bytes))
            });
            let files = files.collect();
            row.indexes.push(IndexRow { definition, files });
        }
        row.files = found.into_iter().map(|file| file.row).collect();
        Ok(Some(row))
    }

    /// Finds out which tables are on other disks.
    fn place(&mut self, rows: &mut [TableRow]) {
        for row in rows {
            let files = row.files.iter();
            let files = files.map(|file| FilePaths::new(self.root, &row.folder, file.number));
            let files: Vec<_> = files.collect();
            let own = files.iter().find_map(FilePaths::shelved);
            let what = match (own, files.iter().find_map(FilePaths::away)) {
                (Some(file), _) => {
                    let shelf = file.ancestors().nth(3).unwrap_or(&file).to_owned();
                    let at = shelf.display().to_string();
                    row.placement.shelf = Shelf::Folder(shelf);
                    format!(
                        "its files are on file:{at}; if that was dax:{at}, ALTER TABLE … SET (shelf = …) says so"
                    )
                }
                (None, Some(other)) => format!(
                    "another database has put its files on a shelf ({}); new rows come here",
                    other.display()
                ),
                (None, None) => continue,
            };
            self.note(&row.folder, what);
        }
    }

    /// Columns as the first readable data file has them.
    fn guess_schema(&mut self, folder: &str) -> Result<Option<SchemaRef>> {
        for number in self.numbers(folder)? {
            let paths = FilePaths::new(self.root, folder, number);
            let read = Sums::read(self.root, &paths.sums())
                .and_then(|sums| footer::read(&paths, &sums, &self.session));
            let Ok(footer) = read else { continue };
            let schema = self.session.arrow().to_arrow_schema(footer.dtype())?;
            self.note(
                folder,
                "the columns' types are those of the data files, not those that were declared",
            );
            return Ok(Some(schema.into()));
        }
        Ok(None)
    }

    /// Numbers of a folder's data files.
    fn numbers(&self, folder: &str) -> Result<Vec<u64>> {
        let files = self.root.list(&self.root.table(folder))?;
        let numbers = files.iter().filter_map(|path| {
            let name = file_name(path);
            name.strip_suffix(".vortex")?.parse().ok()
        });
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The data files of a folder that are whole.
    fn files(&mut self, folder: &str, schema: &SchemaRef) -> Result<Vec<FoundFile>> {
        let mut found = Vec::new();
        for number in self.numbers(folder)? {
            let paths = FilePaths::new(self.root, folder, number);
            match self.file(&paths, schema) {
                Ok(file) => found.push(file),
                Err(error) => self.note(folder, format!("file {number} is left out: {error}")),
            }
        }
        Ok(found)
    }

    fn file(&mut self, paths: &FilePaths, schema: &SchemaRef) -> Result<FoundFile> {
        let sums = Sums::read(self.root, &paths.sums())?;
        let origin = sums.origin.clone();
        // Whether the file is the one that stands here is compared as when it is opened.
        let mut row = FileRow {
            number: paths.number,
            file_bytes: sums.file_bytes,
            id: origin.as_ref().map_or(0, |origin| origin.id),
            is_sound: true,
            stats: crate::statistics::FileStats::empty(0),
        };
        Sums::of(paths, &row)?;
        let footer = footer::read(paths, &sums, &self.session)?;
        let expected = self.session.arrow().from_arrow_schema(schema)?;
        if footer.dtype() != &expected && !footer.dtype().eq_ignore_nullability(&expected) {
            return Err(StoreError::NotSupported {
                what: format!("a file of {} in a table of {expected}", footer.dtype()),
            });
        }
        let map = SegmentMap::new(&footer)?;
        row.stats = footer::statistics(&footer, &map, schema, &self.session, Vec::new())?;
        if let Some(origin) = &origin {
            self.highest_change = self.highest_change.max(origin.after.number);
            self.database.get_or_insert(origin.database);
        }
        let indexes = Indexes {
            row_count: row.stats.row_count,
            file_bytes: sums.file_bytes,
            footer_sum: sums.footer,
            id: row.id,
        };
        Ok(FoundFile {
            row,
            indexes,
            after: origin.as_ref().map(|origin| origin.after),
            replaces: origin.map_or(Vec::new(), |origin| origin.replaces),
        })
    }

    /// Leaves out files that were never acknowledged, and of files and their merger one side.
    fn choose(&mut self, folder: &str, found: Vec<FoundFile>) -> Vec<FoundFile> {
        let mut left_out = BTreeSet::new();
        if let Some(head) = self.head {
            for file in &found {
                let was_pending = file
                    .after
                    .is_some_and(|after| after.number >= head.change.number);
                if was_pending {
                    left_out.insert(file.row.number);
                    self.note(
                        folder,
                        format!(
                            "file {} is left out: its change was not acknowledged",
                            file.row.number
                        ),
                    );
                }
            }
        }
        if !found.is_empty() && left_out.len() == found.len() {
            self.pending.insert(folder.to_owned());
        }
        let present: BTreeSet<u64> = found.iter().map(|file| file.row.number).collect();
        // The newest first: a merger of mergers decides about them.
        for file in found.iter().rev().filter(|file| !file.replaces.is_empty()) {
            if left_out.contains(&file.row.number) {
                continue;
            }
            let merged = &file.replaces;
            if merged.iter().all(|number| present.contains(number)) {
                left_out.insert(file.row.number);
            } else {
                left_out.extend(merged.iter().copied());
            }
        }
        let kept = found.into_iter();
        kept.filter(|file| !left_out.contains(&file.row.number))
            .collect()
    }

    fn report(self, rows: &[TableRow]) -> RepairReport {
        let tables = rows.iter().map(|row| RepairedTable {
            name: row.name.clone(),
            file_count: row.files.len(),
            row_count: row.files.iter().map(|file| file.stats.row_count).sum(),
            index_count: row.indexes.len(),
        });
        RepairReport {
            is_sound: false,
            tables: tables.collect(),
            notes: self.notes,
        }
    }
}
