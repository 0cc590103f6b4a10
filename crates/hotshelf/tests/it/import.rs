//! Import of other formats.

use std::io::Write;

use hotshelf::{ExistingTable, ImportOptions, ImportProgress, ImportReport, Result};

use crate::Fixture;

impl Fixture {
    pub(crate) fn import(&self, options: &ImportOptions) -> Result<ImportReport> {
        self.database()
            .block_on(self.database().import(options, &ImportProgress::default()))
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        path
    }
}

fn options(table: &str, inputs: &[&str]) -> ImportOptions {
    ImportOptions {
        table: table.into(),
        inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
        ..ImportOptions::default()
    }
}

#[test]
fn every_format_arrives_with_its_rows() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT value AS a, concat('v', value) AS b
         FROM generate_series(1, 20000) AS g(value)",
    )
    .unwrap();
    for ending in ["parquet", "csv", "json", "arrow"] {
        let path = db.path(&format!("t.{ending}"));
        db.run(&format!("COPY t TO '{path}' STORED AS {ending}"))
            .unwrap();
        let table = format!("from_{ending}");
        let report = db.import(&options(&table, &[&path])).unwrap();
        assert_eq!(report.row_count, 20000, "{ending}");
        let sums = db.rows(&format!(
            "SELECT count(*), sum(a), min(b), max(b) FROM {table}"
        ));
        assert_eq!(sums, ["20000|200010000|v1|v9999"], "{ending}");
    }
}

#[test]
fn a_glob_imports_all_its_files_and_progress_counts_rows() {
    let db = Fixture::new();
    for i in 0..3 {
        db.file(
            &format!("part{i}.csv"),
            &format!("a,b\n{i},x\n{},y\n", i + 10),
        );
    }
    let progress = ImportProgress::default();
    let wanted = options("t", &[&db.path("part*.csv")]);
    let report = db
        .database()
        .block_on(db.database().import(&wanted, &progress))
        .unwrap();
    assert_eq!(
        (report.row_count, report.input_count, progress.rows_done()),
        (6, 3, 6)
    );
    assert_eq!(db.rows("SELECT sum(a) FROM t"), ["36"]);
}

#[test]
fn types_can_be_overridden_and_rows_appended() {
    let db = Fixture::new();
    let path = db.file("t.csv", "a,b\n1,2\n3,4\n");
    let mut wanted = ImportOptions {
        schema: Some("a VARCHAR".into()),
        ..options("t", &[&path])
    };
    db.import(&wanted).unwrap();
    assert_eq!(db.rows("SELECT arrow_typeof(b) FROM t LIMIT 1"), ["Int64"]);
    assert!(db.rows("SELECT arrow_typeof(a) FROM t LIMIT 1")[0].contains("Utf8"));
    assert!(
        db.import(&wanted)
            .is_err_and(|error| error.code() == "table_exists")
    );
    wanted.existing = ExistingTable::Append;
    db.import(&wanted).unwrap();
    assert_eq!(db.rows("SELECT count(*), min(a) FROM t"), ["4|1"]);
    wanted.existing = ExistingTable::Replace;
    db.import(&wanted).unwrap();
    assert_eq!(db.rows("SELECT count(*) FROM t"), ["2"]);
}

#[test]
fn bad_files_are_named_and_leave_nothing_behind() {
    let mut db = Fixture::new();
    db.run(&format!(
        "COPY (SELECT value AS a FROM generate_series(1, 50000) AS g(value)) TO '{}.parquet' STORED AS parquet",
        db.path("good")
    ))
    .unwrap();
    let bytes = std::fs::read(db.path("good.parquet")).unwrap();
    std::fs::write(db.path("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    let mut flipped = bytes.clone();
    let footer_byte = bytes.len() - 20;
    flipped[footer_byte] ^= 0xff;
    std::fs::write(db.path("flipped.parquet"), &flipped).unwrap();
    let empty = db.file("empty.csv", "");
    let mistyped = db.file(
        "mistyped.csv",
        &format!("a\n{}oops\n", "1\n".repeat(20_000)),
    );
    let other = db.file("other.csv", "a,b\n1,x\n");
    let numbers = db.file("numbers.csv", "a,b\n1,2\n");
    for (inputs, named) in [
        (vec![db.path("nowhere*.csv")], "nowhere"),
        (vec![db.path("cut.parquet")], "cut.parquet"),
        (vec![db.path("flipped.parquet")], "flipped.parquet"),
        (vec![empty], "empty.csv"),
        (vec![mistyped], "mistyped.csv"),
        (vec![numbers, other], "other.csv"),
        (vec![db.path("db")], "db"),
    ] {
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let error = db.import(&options("t", &inputs)).expect_err(inputs[0]);
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    db.reopen();
    assert!(db.database().table_names().is_empty());
    let left = std::fs::read_dir(db.path("db/data")).unwrap().flatten();
    let tables: Vec<_> = left.filter(|entry| entry.path().is_dir()).collect();
    assert!(tables.is_empty(), "{tables:?}");
}
