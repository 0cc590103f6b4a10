//! Reads everything of a database again and compares all checksums.

use std::sync::Arc;

use hotshelf_tier::TierError;

use crate::catalog::Catalog;
use crate::catalog::entries::{FileRow, TableRow};
use crate::data_file::{DataFile, FilePaths, Sums, footer};
use crate::error::{Result, StoreError};
use crate::in_use::{InUse, Use};
use crate::index::IndexPaths;
use crate::index::file::Indexes;
use crate::index::verify::verify as verify_index;
use crate::root::Root;

/// What `verify` found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files read.
    pub file_count: usize,
    /// Their bytes.
    pub file_bytes: u64,
    /// SQLite's opinion of the catalog: `ok` when it is.
    pub catalog: String,
    /// Everything that is wrong except for what SQLite says.
    pub damage: Vec<Damage>,
    /// Beside damage, what could not be read: another try may.
    pub unread: Vec<Damage>,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The table that it belongs to; `views` for entries of the catalog that belong to no table.
    pub what: String,
    /// What is wrong with it.
    pub error: String,
}

/// Reads every file that the catalog names. Where some cannot be read that is an error, once all others were; with
/// damage in those it is the report that says so. `progress` gets data files done and data files in all.
pub(crate) fn verify(
    root: &Root,
    catalog: &Catalog,
    in_use: &Arc<InUse>,
    mut progress: impl FnMut(usize, usize),
) -> Result<VerifyReport> {
    let (rows, _kept) = keep_files(catalog, in_use)?;
    let file_count = rows.iter().map(|row| row.files.len()).sum();
    let mut report = VerifyReport {
        catalog: catalog.integrity()?,
        ..VerifyReport::default()
    };
    let mut unread = None;
    let names = catalog.names()?;
    for damage in &names.damages {
        report.note("views", damage);
    }
    for row in &rows {
        for damage in row.damage.iter().chain(&row.index_damages) {
            report.note(&row.name, damage);
        }
        for file in row.files.iter().filter(|file| !file.is_sound) {
            let what = format!(
                "catalog.sqlite: the entry of file {} is damaged; the data file says what its rows are",
                file.number
            );
            report.note(&row.name, what);
        }
        for file in &row.files {
            let paths = FilePaths::new(root, &row.folder, file.number);
            match DataFile::verify(&paths, file, &row.schema) {
                Ok(found) => {
                    for damage in found {
                        report.note(&row.name, damage);
                    }
                }
                Err(error) => report.add(&row.name, error, &mut unread),
            }
            report.file_count += 1;
            report.file_bytes += file.file_bytes;
            progress(report.file_count, file_count);
        }
        verify_indexes(root, row, &mut report, &mut unread);
    }
    match unread {
        Some(error) if report.damage.is_empty() && report.catalog == "ok" => Err(error.into()),
        _ => Ok(report),
    }
}

/// All tables, and what keeps their files from being removed meanwhile.
fn keep_files(catalog: &Catalog, in_use: &Arc<InUse>) -> Result<(Vec<TableRow>, Vec<Use>)> {
    loop {
        let before = catalog.last();
        let rows = catalog.tables()?;
        let mut kept = Vec::new();
        for row in &rows {
            let files = row.files.iter();
            kept.extend(files.map(|file| in_use.data_file(&row.folder, file.number)));
            for index in &row.indexes {
                let (files, id) = (index.files.iter(), index.definition.id);
                kept.extend(files.map(|(number, _)| in_use.index_file(&row.folder, *number, id)));
            }
        }
        // A change in between may have removed some.
        if catalog.last() == before {
            return Ok((rows, kept));
        }
    }
}

/// Reads all index files of a table.
fn verify_indexes(
    root: &Root,
    row: &TableRow,
    report: &mut VerifyReport,
    unread: &mut Option<TierError>,
) {
    for index in &row.indexes {
        for (number, bytes) in &index.files {
            let paths = IndexPaths::new(root, &row.folder, *number, index.definition.id);
            let mut files = row.files.iter();
            let file = files.find(|file| file.number == *number);
            let indexes = file.and_then(|file| indexed(root, &row.folder, file));
            let columns = index.definition.columns.len();
            if let Err(error) = verify_index(&paths, indexes, columns) {
                report.add(&row.name, error, unread);
            }
            report.file_count += 1;
            report.file_bytes += bytes;
        }
    }
}

impl VerifyReport {
    /// Notes damage of a table, or of `views`.
    fn note(&mut self, what: &str, error: impl ToString) {
        self.damage.push(Damage {
            what: what.to_owned(),
            error: error.to_string(),
        });
    }

    /// Notes an error as damage, or that a file merely could not be read; the first such error is kept.
    fn add(&mut self, table: &str, error: StoreError, unread: &mut Option<TierError>) {
        match error.into_unavailable() {
            Ok(error) => {
                self.unread.push(Damage {
                    what: table.to_owned(),
                    error: error.to_string(),
                });
                unread.get_or_insert(error);
            }
            Err(damage) => self.note(table, damage),
        }
    }
}

/// What an index file of a data file must name, if the data file's checksums can be read.
fn indexed(root: &Root, folder: &str, file: &FileRow) -> Option<Indexes> {
    let paths = FilePaths::new(root, folder, file.number);
    let sums = Sums::of(&paths, file).ok()?;
    let footer = footer::read(&paths, &sums, &crate::vortex_session()).ok()?;
    Some(Indexes {
        row_count: footer.row_count(),
        file_bytes: sums.file_bytes,
        footer_sum: sums.footer,
        id: sums.origin.map_or(0, |origin| origin.id),
    })
}
