//! Writes a benchmark's tables as Parquet without the engine: `generate ssb|tpch SCALE FOLDER [THREADS]`.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use hotshelf_datagen::export::{WriteOptions, write_parquet};
use hotshelf_datagen::ssb::{SsbGenerator, SsbTable};
use hotshelf_datagen::tpch::{TpchGenerator, TpchTable};
use hotshelf_datagen::{BatchIter, Dataset};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [benchmark, scale, folder, rest @ ..] = args.as_slice() else {
        return Err("usage: generate ssb|tpch SCALE FOLDER|- [THREADS]; - only generates".into());
    };
    let mut options = WriteOptions::default();
    if let Some(threads) = rest.first() {
        options.threads = threads.parse()?;
    }
    let scale = scale.parse()?;
    match benchmark.as_str() {
        "ssb" => run(
            &SsbGenerator::new(scale, 0)?,
            &SsbTable::ALL,
            folder,
            options,
        ),
        "tpch" => run(
            &TpchGenerator::new(scale)?,
            &TpchTable::ALL,
            folder,
            options,
        ),
        _ => Err(format!("no benchmark {benchmark:?}; there are ssb and tpch").into()),
    }
}

fn run<D: Dataset>(
    dataset: &D,
    tables: &[D::Table],
    folder: &str,
    options: WriteOptions,
) -> Result<(), Box<dyn Error>> {
    for table in tables {
        let start = Instant::now();
        let (row_count, file_bytes) = if folder == "-" {
            (generate_only(dataset, *table, options.threads), 0)
        } else {
            let written = write_parquet(dataset, *table, Path::new(folder), options, &mut |_| ())?;
            (written.row_count, written.file_bytes)
        };
        let seconds = start.elapsed().as_secs_f64();
        let million_rows_per_s = row_count as f64 / seconds / 1e6;
        println!(
            "{table} rows={row_count} bytes={file_bytes} s={seconds:.3} Mrows/s={million_rows_per_s:.2}"
        );
    }
    Ok(())
}

/// Generates all partitions on `threads` threads and drops the rows.
fn generate_only<D: Dataset>(dataset: &D, table: D::Table, threads: usize) -> u64 {
    let rows = |batches: BatchIter| batches.map(|batch| batch.num_rows() as u64).sum::<u64>();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first_idx| {
                scope.spawn(move || {
                    (first_idx..dataset.partition_count(table))
                        .step_by(threads)
                        .map(|idx| rows(dataset.partition(table, idx)))
                        .sum::<u64>()
                })
            })
            .collect();
        let counts = workers.into_iter().map(|worker| worker.join());
        counts
            .map(|count| count.expect("a generator panicked"))
            .sum()
    })
}
