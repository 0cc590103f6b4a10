//! Generated tables straight into a database, without files between.

use std::ops::Range;

use hotshelf::{BatchIter, Database, ExistingTable, ImportProgress};
use hotshelf_datagen::Dataset;

use super::missing_tables;
use crate::failure::{Result, note};
use crate::interrupt;
use crate::progress::{Progress, count, watch};

/// Generates the tables that the database lacks.
///
/// # Errors
/// The database has tables of another scale, or a table cannot be written.
pub fn prepare<D>(database: &Database, dataset: &D, threads: usize) -> Result<()>
where
    D: Dataset + Clone + Send + 'static,
{
    let missing = missing_tables(database, dataset)?;
    fill(database, dataset, &missing, ExistingTable::Fail, threads)
}

/// Makes the tables in a database.
pub(crate) fn fill<D>(
    database: &Database,
    dataset: &D,
    tables: &[D::Table],
    existing: ExistingTable,
    threads: usize,
) -> Result<()>
where
    D: Dataset + Clone + Send + 'static,
{
    for table in tables {
        let expected = dataset.row_count(*table);
        let counters = ImportProgress::default();
        let mut progress = Progress::start(format!("generate {table}"), "rows");
        let load = load_table(database, dataset, *table, existing, threads, &counters);
        let look = || (counters.rows_done(), expected);
        let work = async { Ok(watch(load, look, &mut progress).await?) };
        let row_count = interrupt::run(database, work)?;
        progress.clear();
        let seconds = progress.elapsed().as_secs_f64();
        note(&format!(
            "{table}: {} rows generated and stored in {seconds:.1} s",
            count(row_count)
        ));
    }
    Ok(())
}

/// Generates `table` into the database's table of the same name, one data file for each of `threads` threads;
/// returns the number of rows. On failure, or when the future is dropped, nothing has changed.
///
/// # Errors
/// Those of [`Database::import_batches`].
async fn load_table<D>(
    database: &Database,
    dataset: &D,
    table: D::Table,
    existing: ExistingTable,
    threads: usize,
    progress: &ImportProgress,
) -> hotshelf::Result<u64>
where
    D: Dataset + Clone + Send + 'static,
{
    let inputs = split(dataset.partition_count(table), threads).map(|partitions| {
        let dataset = dataset.clone();
        Box::new(partitions.flat_map(move |idx| dataset.partition(table, idx))) as BatchIter
    });
    let name = table.to_string();
    let schema = dataset.schema(table);
    database
        .import_batches(&name, schema, inputs.collect(), existing, progress)
        .await
}

/// Cuts `count` things into at most `part_count` runs of nearly equal length, none empty unless `count` is 0.
fn split(count: usize, part_count: usize) -> impl Iterator<Item = Range<usize>> {
    let part_count = part_count.min(count).max(1);
    (0..part_count).map(move |idx| count * idx / part_count..count * (idx + 1) / part_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once_and_differ_by_one_at_most() {
        for count in 1..20 {
            for part_count in 1..8 {
                let parts: Vec<_> = split(count, part_count).collect();
                assert!(parts.iter().cloned().flatten().eq(0..count));
                let lens = parts.iter().map(ExactSizeIterator::len);
                let (min, max) = (lens.clone().min().unwrap(), lens.max().unwrap());
                assert!(min >= 1 && max - min <= 1, "{parts:?}");
            }
        }
    }
}
