//! Which cache policy suits a workload? Runs the same queries under several policies with a budget that holds a
//! part of the data, and compares the bytes read from storage. No file is kept.
//!
//! `cargo run --release -p hotshelf --example policy`

use std::error::Error;
use std::path::Path;

use hotshelf::arrow::array::AsArray;
use hotshelf::arrow::datatypes::{ArrowPrimitiveType, Int64Type, UInt64Type};
use hotshelf::{Database, Options, PolicyKind, Session};

/// The policies that take part. `PolicyKind::None` reads everything from storage each time.
const POLICIES: [PolicyKind; 4] = [
    PolicyKind::None,
    PolicyKind::Lru,
    PolicyKind::S3Fifo,
    PolicyKind::HpCache,
];

/// Two columns are hot; a sweep over all columns comes by now and then.
const HOT: &str = "SELECT sum(a + b) FROM t";
const SWEEP: &str = "SELECT sum(a + b + c + d) FROM t";
const ROUNDS: usize = 6;

/// What one policy did.
#[derive(Debug)]
pub struct Outcome {
    /// The policy.
    pub policy: PolicyKind,
    /// Sums of all answers, to see that they are the same.
    pub answers: i64,
    /// Bytes read from storage.
    pub bytes_read: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    for outcome in race(folder.path(), 1_000_000)? {
        let megabytes = outcome.bytes_read as f64 * 1e-6;
        println!("{:8} {megabytes:8.1} MB read", outcome.policy.to_string());
    }
    Ok(())
}

/// The same queries under each policy, over one database below `folder`.
pub fn race(folder: &Path, row_count: usize) -> hotshelf::Result<Vec<Outcome>> {
    let folder = folder.join("db");
    let database = Database::open(&folder, Options::default())?;
    database.session().query(&format!(
        "CREATE TABLE t AS SELECT value * 7919 % 1000003 AS a, value * 104729 % 1000033 AS b, \
         value * 15485863 % 1000037 AS c, value * 32452843 % 1000039 AS d \
         FROM generate_series(1, {row_count}) AS g(value)"
    ))?;
    let data_bytes = database.tables()[0].file_bytes;
    drop(database);
    POLICIES
        .into_iter()
        .map(|policy| {
            let options = Options {
                policy,
                budget_bytes: data_bytes * 3 / 4,
                ..Options::default()
            };
            run(&Database::open(&folder, options)?, policy)
        })
        .collect()
}

fn run(database: &Database, policy: PolicyKind) -> hotshelf::Result<Outcome> {
    let session = database.session();
    let mut answers = 0;
    for _ in 0..ROUNDS {
        for sql in [HOT, HOT, SWEEP] {
            answers += number::<Int64Type>(&session, sql)?;
        }
    }
    let bytes_read = number::<UInt64Type>(&session, "SELECT device_bytes FROM io_stats()")?;
    Ok(Outcome {
        policy,
        answers,
        bytes_read,
    })
}

/// The only value of an answer.
fn number<T: ArrowPrimitiveType>(session: &Session, sql: &str) -> hotshelf::Result<T::Native> {
    let rows = session.query(sql)?;
    Ok(rows[0].column(0).as_primitive::<T>().value(0))
}
