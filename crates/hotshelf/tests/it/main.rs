//! Tests of the database as its users see it: one binary, one topic a module.

mod again;
mod aggregating;
mod answers;
mod api;
mod budget;
mod correlated;
mod damage;
mod damaged_input;
mod early_groups;
mod exchanging;
mod expecting;
mod explaining;
mod fresh;
mod import;
mod index;
mod input;
mod inserting;
mod join_order;
mod joining;
mod kept;
mod key_sets;
mod keys;
mod late_columns;
mod late_rows;
mod literals;
mod look_ups;
mod merging;
mod outlines;
mod padded_joins;
mod profile;
mod robust;
mod semi_joins;
mod shared;
mod shelves;
mod sorting;
mod sql;
mod stored_values;
mod subqueries;
mod surface;
mod tuning;
mod upstream;
mod windowing;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use hotshelf::{Database, Error, Options, Result};

/// A database in a folder of its own.
struct Fixture {
    folder: tempfile::TempDir,
    database: Option<Database>,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path().join("db"), options).unwrap();
        Self {
            folder,
            database: Some(database),
        }
    }

    /// Operators have little more than the budget's bytes.
    fn with_little_memory(budget_bytes: u64, threads: usize) -> Self {
        Self::with(Options {
            budget_bytes,
            operator_bytes_min: 2 << 20,
            threads,
            ..Options::default()
        })
    }

    fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    /// Closes and opens the database again.
    fn reopen(&mut self) -> &Database {
        self.database = None;
        self.database =
            Some(Database::open(self.folder.path().join("db"), Options::default()).unwrap());
        self.database()
    }

    fn run(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let session = self.database().session();
        self.database()
            .block_on(async { session.sql(sql).await?.collect().await })
    }

    /// The answer as text, one line a row, cells separated by `|`.
    fn rows(&self, sql: &str) -> Vec<String> {
        lines(&self.run(sql).unwrap())
    }

    fn error(&self, sql: &str) -> Error {
        self.run(sql).expect_err(sql)
    }

    /// A path next to the database.
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }
}

/// What operators hold; footers and what the question itself takes are among it.
fn operator_bytes(fixture: &Fixture) -> u64 {
    let held = fixture.rows("SELECT operator_bytes FROM cache_stats()");
    held[0].parse().unwrap()
}

fn lines(batches: &[RecordBatch]) -> Vec<String> {
    table_lines(&pretty_format_batches(batches).unwrap().to_string())
}

/// The rows of a printed table, cells separated by `|`.
fn table_lines(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with('|'))
        .skip(1)
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect()
}
