//! Generated tables straight into a database, without files between.

use std::ops::Range;

use hotshelf::{BatchIter, Database, ExistingTable, ImportProgress};

use hotshelf_datagen::Dataset;

/// Generates `table` into the database's table of the same name, one data file for each of `threads` threads;
/// returns the number of rows. On failure, or when the future is dropped, nothing has changed.
///
/// # Errors
/// Those of [`Database::import_batches`].
pub async fn load_table<D>(
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
