//! `hotshelf import`: files into a table.

use hotshelf::{Database, ImportProgress, ImportReport};

use crate::failure::{Result, note};
use crate::flags::Import;
use crate::interrupt;
use crate::progress::{Progress, bytes, count, watch};

pub fn run(import: &Import) -> Result<()> {
    let database = import.engine.open()?;
    let table = &import.options.table;
    let counters = ImportProgress::default();
    let mut progress = Progress::start(format!("import {table}"), "rows");
    let work = async {
        let import = database.import(&import.options, &counters);
        let look = || (counters.rows_done(), counters.rows_expected());
        Ok(watch(import, look, &mut progress).await?)
    };
    let report = interrupt::run(&database, work)?;
    progress.clear();
    note(&summary(
        &database,
        table,
        &report,
        progress.elapsed().as_secs_f64(),
    ));
    Ok(())
}

fn summary(database: &Database, table: &str, report: &ImportReport, seconds: f64) -> String {
    let stored = database
        .tables()
        .into_iter()
        .find(|summary| summary.name == table)
        .map_or(0, |summary| summary.file_bytes);
    let rate = report.row_count as f64 / seconds.max(1e-9);
    let files = match report.input_count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    format!(
        "{table}: {} rows from {files} ({}) in {seconds:.1} s, {} rows/s; the table takes {}",
        count(report.row_count),
        bytes(report.input_bytes),
        count(rate as u64),
        bytes(stored),
    )
}
