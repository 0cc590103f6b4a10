//! `hotshelf generate`: a benchmark's tables, as Parquet files or in a database.

use std::path::Path;

use hotshelf::{Database, ExistingTable, ImportProgress, Options};
use hotshelf_bench::export::{WriteOptions, write_parquet};
use hotshelf_bench::ssb::{SsbGenerator, SsbTable};
use hotshelf_bench::tpch::{TpchGenerator, TpchTable};
use hotshelf_bench::{Dataset, load_table};

use super::import::watch;
use crate::failure::{Result, note};
use crate::flags::{Benchmark, Generate, GenerateTarget};
use crate::interrupt;
use crate::progress::{Progress, bytes, count};

pub fn run(generate: &Generate) -> Result<()> {
    match generate.benchmark {
        Benchmark::Ssb => {
            let dataset = SsbGenerator::new(generate.scale, 0)?;
            tables(generate, &dataset, &SsbTable::ALL)
        }
        Benchmark::Tpch => {
            let dataset = TpchGenerator::new(generate.scale)?;
            tables(generate, &dataset, &TpchTable::ALL)
        }
    }
}

fn tables<D>(generate: &Generate, dataset: &D, tables: &[D::Table]) -> Result<()>
where
    D: Dataset + Clone + Send + 'static,
{
    match &generate.target {
        GenerateTarget::Parquet(folder) => {
            let options = WriteOptions {
                threads: generate.threads,
                ..WriteOptions::default()
            };
            for table in tables {
                write_file(dataset, *table, folder, options)?;
            }
            Ok(())
        }
        GenerateTarget::Database(folder) => {
            let options = Options {
                threads: generate.threads,
                ..Options::default()
            };
            let database = Database::open(folder, options)?;
            fill(&database, dataset, tables, generate.threads)
        }
    }
}

fn write_file<D: Dataset>(
    dataset: &D,
    table: D::Table,
    folder: &Path,
    options: WriteOptions,
) -> Result<()> {
    let expected = dataset.row_count(table);
    let mut progress = Progress::start(format!("generate {table}"), "rows");
    let mut show = |rows| progress.show(rows, expected);
    let written = write_parquet(dataset, table, folder, options, &mut show)?;
    progress.clear();
    note(&format!(
        "{table}: {} rows, {} in {}",
        count(written.row_count),
        bytes(written.file_bytes),
        written.path.display()
    ));
    Ok(())
}

/// Makes or replaces the tables in a database.
pub(super) fn fill<D>(
    database: &Database,
    dataset: &D,
    tables: &[D::Table],
    threads: usize,
) -> Result<()>
where
    D: Dataset + Clone + Send + 'static,
{
    for table in tables {
        let expected = dataset.row_count(*table);
        let counters = ImportProgress::default();
        let mut progress = Progress::start(format!("generate {table}"), "rows");
        let replace = ExistingTable::Replace;
        let load = load_table(database, dataset, *table, replace, threads, &counters);
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
