//! `hotshelf repair`: a lost or damaged catalog is made again from the data files.

use std::path::Path;

use hotshelf::{Database, RepairReport};

use crate::failure::{Result, note};
use crate::output::print_lines;

pub fn run(folder: &Path) -> Result<()> {
    let report = Database::repair(folder)?;
    if report.is_sound {
        note("the catalog is sound: nothing was changed (`hotshelf verify` reads the data, too)");
        return Ok(());
    }
    print_lines(&lines(&report))?;
    for what in &report.notes {
        note(what);
    }
    note("the catalog was made again; what there was of the old one is in lost+found");
    Ok(())
}

fn lines(report: &RepairReport) -> Vec<String> {
    let tables = report.tables.iter();
    tables
        .map(|table| {
            format!(
                "{}: {} rows in {} files, {} indexes",
                table.name, table.row_count, table.file_count, table.index_count
            )
        })
        .collect()
}
