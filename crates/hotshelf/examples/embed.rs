//! A program with a database inside: opens it with a memory budget, imports a CSV file, asks a question twice and
//! looks at what the cache did for the second answer.
//!
//! `cargo run --release -p hotshelf --example embed`

use std::error::Error;
use std::io::Write;
use std::path::Path;

use hotshelf::arrow::util::pretty::pretty_format_batches;
use hotshelf::{Database, ImportOptions, ImportProgress, Options};

const QUESTION: &str = "SELECT region, count(*) AS orders, sum(price) AS revenue \
    FROM orders GROUP BY region ORDER BY region";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    print!("{}", tour(folder.path())?);
    Ok(())
}

/// The whole tour in a new database below `folder`; what there was to see.
pub fn tour(folder: &Path) -> Result<String, Box<dyn Error>> {
    let csv = folder.join("orders.csv");
    write_orders(&csv, 100_000)?;

    let options = Options {
        budget_bytes: 64 << 20,
        ..Options::default()
    };
    let database = Database::open(folder.join("shop"), options)?;
    let import = ImportOptions {
        table: "orders".into(),
        inputs: vec![csv.to_string_lossy().into_owned()],
        ..ImportOptions::default()
    };
    let report = database.block_on(database.import(&import, &ImportProgress::default()))?;
    let mut seen = format!("{} rows imported\n", report.row_count);

    let session = database.session();
    for _ in 0..2 {
        let rows = session.query(QUESTION)?;
        seen += &format!("{}\n", pretty_format_batches(&rows)?);
    }
    let stats = session.query("SELECT policy, cached_bytes, hits, misses FROM cache_stats()")?;
    seen += &format!("{}\n", pretty_format_batches(&stats)?);

    // An error says what to do about it.
    if let Err(error) = session.query("SELECT count(*) FROM ordres") {
        seen += &format!("{error}: {}\n", error.hint().unwrap_or_default());
    }
    Ok(seen)
}

fn write_orders(path: &Path, row_count: u32) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "id,region,price")?;
    for id in 0..row_count {
        let region = ["north", "east", "south", "west"][id as usize % 4];
        writeln!(file, "{id},{region},{}", id % 997)?;
    }
    file.flush()
}
