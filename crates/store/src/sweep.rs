//! What is in the folder without being named by the catalog: removed if the catalog's journal names it, else kept in
//! `lost+found`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::catalog::entries::{Journal, Obsolete, TableRow};
use crate::data_file::Sums;
use crate::description::{TABLE, TABLE_TEMPORARY};
use crate::error::{Result, StoreError};
use crate::folder::{file_name, highest_number, is_beside_tables, trailing_number};
use crate::head::Acknowledged;
use crate::left_on_shelves::sweep_shelves;
use crate::root::{CATALOG, LOST, Root};

/// What a folder's name ends in while the folder is being removed: nothing takes half a table for a whole one.
pub(crate) const GONE: &str = ".gone";

/// What is in the folder without being named by the catalog.
#[derive(Debug, Default)]
pub(crate) struct Unknown {
    /// Files and folders that the journal names.
    leftovers: Vec<PathBuf>,
    /// Others.
    lost: Vec<PathBuf>,
    /// The highest number that any file has, or had when the catalog was written.
    pub highest_number: u64,
}

/// Goes through the data folder.
pub(crate) fn look(root: &Root, rows: &[TableRow], journal: &Journal) -> Result<Unknown> {
    let mut unknown = Unknown {
        highest_number: rows.iter().map(highest_number).max().unwrap_or(0),
        ..Unknown::default()
    };
    let is_sure = is_sure(rows);
    for entry in root.list(&root.data())? {
        let name = file_name(&entry);
        if is_beside_tables(&name) {
            continue;
        }
        unknown.see(trailing_number(&name));
        match rows.iter().find(|row| row.folder == name) {
            Some(row) => unknown.look_into(root, row, journal)?,
            None => unknown.add(entry, is_sure && is_of_journal(&name, journal)),
        }
    }
    Ok(unknown)
}

/// Where an entry of the catalog is damaged, files may only seem to be unknown.
fn is_sure(rows: &[TableRow]) -> bool {
    rows.iter().all(TableRow::is_sound)
}

/// Removes leftovers and sets aside what is lost. Returns the obsolete files that are gone.
pub(crate) fn sweep(
    root: &Root,
    rows: &[TableRow],
    journal: &Journal,
    unknown: &Unknown,
) -> Vec<Obsolete> {
    for path in &unknown.leftovers {
        root.remove(path);
    }
    if !is_sure(rows) {
        return Vec::new();
    }
    sweep_shelves(root, rows, journal);
    unknown.lost.iter().for_each(|path| set_aside(root, path));
    let obsolete = journal.obsolete.iter();
    let gone = obsolete.filter(|one| !is_damaged(one, rows) && remove(root, one));
    gone.cloned().collect()
}

impl Unknown {
    fn see(&mut self, number: Option<u64>) {
        self.highest_number = self.highest_number.max(number.unwrap_or(0));
    }

    fn add(&mut self, path: PathBuf, is_leftover: bool) {
        match is_leftover {
            true => self.leftovers.push(path),
            false => self.lost.push(path),
        }
    }

    /// Goes through the folder of a table.
    fn look_into(&mut self, root: &Root, row: &TableRow, journal: &Journal) -> Result<()> {
        let folder = root.table(&row.folder);
        let known = known_files(row);
        let mut files = root.list(&folder)?;
        for inner in ["sums", "elf"] {
            files.retain(|path| !path.ends_with(inner));
            files.extend(root.list(&folder.join(inner))?);
        }
        for path in files {
            let name = path.strip_prefix(&folder).unwrap_or(&path).to_str();
            if name.is_some_and(|name| known.contains(name)) {
                continue;
            }
            // What a move of a known file was making.
            let moved = name.and_then(|name| {
                let ends = [".tmp", ".link"];
                ends.iter().find_map(|end| name.strip_suffix(end))
            });
            if row.is_sound() && moved.is_some_and(|name| known.contains(name)) {
                self.leftovers.push(path);
                continue;
            }
            let numbers = numbers_in(&file_name(&path));
            self.see(numbers.iter().copied().max());
            let is_leftover = row.is_sound() && is_leftover(&numbers, &row.folder, journal);
            self.add(path, is_leftover);
        }
        Ok(())
    }

    /// An error if a data file among these was written after a change that the catalog does not know either: it is an
    /// older catalog, and what it does not know was acknowledged.
    pub fn ensure_older(&self, root: &Root, last: Acknowledged) -> Result<()> {
        for path in self.leftovers.iter().chain(&self.lost) {
            let sums = match root.real(path).is_dir() {
                true => root.list(&path.join("sums")).unwrap_or_default(),
                false => vec![path.clone()],
            };
            let mut sums = sums
                .iter()
                .filter(|path| path.extension() == Some("crc".as_ref()));
            let Some(after) = sums.find_map(|path| change_beyond(root, path, last)) else {
                continue;
            };
            return Err(StoreError::StaleCatalog {
                path: root.join(CATALOG),
                found: last.change.number,
                acknowledged: after,
            });
        }
        Ok(())
    }
}

/// The change before a data file of this database was written, by its checksums, if it is later than `last`.
fn change_beyond(root: &Root, sums: &Path, last: Acknowledged) -> Option<u64> {
    let origin = Sums::read(root, sums).ok()?.origin?;
    let is_beyond = origin.database == last.database && origin.after.number > last.change.number;
    is_beyond.then_some(origin.after.number)
}

/// Whether a folder without a table is one that was being made or removed.
pub(crate) fn is_of_journal(name: &str, journal: &Journal) -> bool {
    let folder_name = name.strip_suffix(GONE).unwrap_or(name);
    let is_reserved =
        trailing_number(folder_name).is_some_and(|number| journal.reserved.contains(&number));
    let is_obsolete =
        |one: &Obsolete| matches!(one, Obsolete::Table { folder } if folder == folder_name);
    is_reserved || journal.obsolete.iter().any(is_obsolete)
}

/// The files that a table has, below its folder.
fn known_files(row: &TableRow) -> HashSet<String> {
    let mut known: HashSet<String> = [TABLE.into(), TABLE_TEMPORARY.into()].into();
    for file in &row.files {
        known.insert(format!("{}.vortex", file.number));
        known.insert(format!("sums/{}.crc", file.number));
        known.insert(format!("sums/{}.sample", file.number));
    }
    for index in &row.indexes {
        for (number, _) in &index.files {
            known.insert(format!("elf/{number}-{}.elf", index.definition.id));
        }
    }
    known
}

/// The numbers in the name of a file that a table may have: `7-3.elf` has 7 and 3. None for other names.
pub(crate) fn numbers_in(name: &str) -> Vec<u64> {
    let Some((stem, ending)) = name.split_once('.') else {
        return Vec::new();
    };
    if !matches!(
        ending,
        "vortex" | "crc" | "sample" | "elf" | "tmp" | "vortex.tmp" | "crc.tmp" | "elf.tmp"
    ) {
        return Vec::new();
    }
    let numbers = stem.split('-').map(|number| number.parse().ok());
    numbers.collect::<Option<_>>().unwrap_or_default()
}

/// Whether the journal names the file of these numbers.
pub(crate) fn is_leftover(numbers: &[u64], table_folder: &str, journal: &Journal) -> bool {
    let is_obsolete = |one: &Obsolete| match one {
        Obsolete::Table { .. } => false,
        Obsolete::File { folder, number } => {
            folder == table_folder && numbers.first() == Some(number)
        }
        Obsolete::Index { folder, index } => {
            folder == table_folder && numbers.get(1) == Some(&(*index as u64))
        }
    };
    numbers
        .iter()
        .any(|number| journal.reserved.contains(number))
        || !numbers.is_empty() && journal.obsolete.iter().any(is_obsolete)
}

/// Whether an entry of the journal is not what was written: it names what the catalog has, or what cannot be a table's
/// folder.
fn is_damaged(obsolete: &Obsolete, rows: &[TableRow]) -> bool {
    let (Obsolete::Table { folder: name }
    | Obsolete::File { folder: name, .. }
    | Obsolete::Index { folder: name, .. }) = obsolete;
    let Some(row) = rows.iter().find(|row| row.folder == *name) else {
        return name.contains('/') || trailing_number(name).is_none();
    };
    match obsolete {
        Obsolete::Table { .. } => true,
        Obsolete::File { number, .. } => row.files.iter().any(|file| file.number == *number),
        Obsolete::Index { index, .. } => {
            let mut indexes = row.indexes.iter();
            indexes.any(|one| one.definition.id == *index)
        }
    }
}

/// Removes obsolete files; whether all are gone.
pub(crate) fn remove(root: &Root, obsolete: &Obsolete) -> bool {
    match obsolete {
        Obsolete::Table { folder } => {
            let (folder, gone) = (root.table(folder), root.table(&format!("{folder}{GONE}")));
            if root.exists(&folder) && root.rename(&folder, &gone).is_err() {
                return root.remove(&folder);
            }
            root.remove(&gone)
        }
        Obsolete::File { folder, number } => {
            let folder = root.table(folder);
            let data = root.remove(&folder.join(format!("{number}.vortex")));
            let sums = root.remove(&folder.join(format!("sums/{number}.crc")));
            let sample = root.remove(&folder.join(format!("sums/{number}.sample")));
            let first = |numbers: &[u64]| numbers.first() == Some(number);
            remove_elfs(root, &folder, first) && data && sums && sample
        }
        Obsolete::Index { folder, index } => {
            let second = |numbers: &[u64]| numbers.get(1) == Some(&(*index as u64));
            remove_elfs(root, &root.table(folder), second)
        }
    }
}

/// Removes index files by the numbers in their names.
fn remove_elfs(root: &Root, folder: &Path, is_one: impl Fn(&[u64]) -> bool) -> bool {
    let Ok(files) = root.list(&folder.join("elf")) else {
        return false;
    };
    let mut ones = files
        .iter()
        .filter(|path| is_one(&numbers_in(&file_name(path))));
    ones.all(|path| root.remove(path))
}

/// Moves unknown files out of the way, where they stay.
fn set_aside(root: &Root, path: &Path) {
    let lost = root.join(LOST);
    let name = path.strip_prefix(root.data()).unwrap_or(path);
    let name = name.to_string_lossy().replace('/', "_");
    let moved = root
        .create_folder(&lost)
        .and_then(|()| root.rename(path, &root.free_name(&lost, &name)));
    match moved {
        Ok(()) => {
            tracing::warn!(path = %path.display(), "a file that the catalog does not know was moved to lost+found")
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a file that the catalog does not know stays where it is")
        }
    }
}
