//! `hotshelf generate`: a benchmark's tables, as Parquet files or in a database.

use std::path::Path;

use hotshelf::{Database, ExistingTable, Options};
use hotshelf_datagen::Dataset;
use hotshelf_datagen::export::{WriteOptions, write_parquet};
use hotshelf_datagen::ssb::SsbGenerator;
use hotshelf_datagen::tpch::TpchGenerator;

use crate::benchmark::fill;
use crate::failure::{Failure, Result, note};
use crate::flags::{Benchmark, Generate, GenerateTarget};
use crate::opened::Opened;
use crate::progress::{Progress, bytes, count};

pub fn run(generate: &Generate) -> Result<()> {
    match generate.benchmark {
        Benchmark::Ssb => {
            let dataset = SsbGenerator::new(generate.scale, 0)?;
            tables(generate, &dataset)
        }
        Benchmark::Tpch => {
            let dataset = TpchGenerator::new(generate.scale)?;
            tables(generate, &dataset)
        }
    }
}

fn tables<D>(generate: &Generate, dataset: &D) -> Result<()>
where
    D: Dataset + Clone + Send + 'static,
{
    let tables = dataset.tables();
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
            let database = Opened::open(Some(folder), options)?;
            let existing = match generate.replace {
                true => ExistingTable::Replace,
                false => {
                    refuse_existing(&database, tables)?;
                    ExistingTable::Fail
                }
            };
            fill(&database, dataset, tables, existing, generate.threads)
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

/// Names the tables that are there already, before any is made.
fn refuse_existing<T: ToString>(database: &Database, tables: &[T]) -> Result<()> {
    let present = database.table_names();
    let names = tables.iter().map(T::to_string);
    let names: Vec<String> = names.filter(|name| present.contains(name)).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Failure::TablesExist { names }),
    }
}
