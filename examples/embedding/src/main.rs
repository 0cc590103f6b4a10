//! The smallest program with a database inside. RUST_LOG=hotshelf=debug shows what the library says.

use hotshelf::arrow::util::pretty::print_batches;
use hotshelf::{Database, Options};
use tracing_subscriber::EnvFilter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).init();
    let options = Options {
        budget_bytes: 64 << 20,
        ..Options::default()
    };
    let session = Database::temporary(options)?.session();
    session.query("CREATE TABLE t AS SELECT value % 10 AS a FROM range(100000)")?;
    let rows = session.query("SELECT a, count(*) AS n FROM t GROUP BY a ORDER BY a LIMIT 3")?;
    print_batches(&rows)?;
    Ok(())
}
