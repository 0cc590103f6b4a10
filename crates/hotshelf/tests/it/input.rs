//! Input files as they come: columns in any order, values that do not fit, names that look like globs, COPY that fails.

use std::path::Path;

use hotshelf::{Error, ExistingTable, ImportOptions};

use crate::Fixture;

fn options(table: &str, inputs: &[&str]) -> ImportOptions {
    ImportOptions {
        table: table.into(),
        inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
        ..ImportOptions::default()
    }
}

fn appending(table: &str, input: &str) -> ImportOptions {
    ImportOptions {
        existing: ExistingTable::Append,
        ..options(table, &[input])
    }
}

/// A folder beside the database with these files.
fn folder(db: &Fixture, name: &str, files: &[(&str, &str)]) -> String {
    let path = db.path(name);
    std::fs::create_dir(&path).unwrap();
    for (file, text) in files {
        std::fs::write(Path::new(&path).join(file), text).unwrap();
    }
    path
}

fn text_of(error: &Error) -> String {
    error.to_string()
}

#[test]
fn appending_fractions_to_integers_fails_with_file_row_column_and_value() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT 1::INT AS n, 1::INT AS v")
        .unwrap();
    for ending in ["parquet", "csv", "json", "arrow"] {
        let path = db.path(&format!("half.{ending}"));
        db.run(&format!(
            "COPY (SELECT value::INT AS n, CASE WHEN value < 3 THEN value::DOUBLE ELSE 3.5 END AS v
             FROM generate_series(1, 4) AS g(value) ORDER BY n) TO '{path}' STORED AS {ending}"
        ))
        .unwrap();
        let error = db.import(&appending("t", &path)).unwrap_err();
        assert_eq!(error.code(), "misfit");
        let text = error.to_string();
        let what = format!("half.{ending}: row 3, column 'v': '3.5' does not fit type");
        assert!(text.contains(&what), "{text}");
    }
    db.file(
        "whole.json",
        "{\"n\": 2, \"v\": 2.0}\n{\"n\": 3, \"v\": 4.0}\n",
    );
    db.import(&appending("t", &db.path("whole.json"))).unwrap();
    assert_eq!(db.rows("SELECT count(*), sum(v) FROM t"), ["3|7"]);
}

#[test]
fn values_that_overflow_or_lose_digits_are_not_appended() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (i SMALLINT, d DECIMAL(8, 2), s TIMESTAMP(0), day DATE)")
        .unwrap();
    let cases = [
        ("i", "40000"),
        ("d", "1.255"),
        ("s", "2024-01-01T00:00:00.5"),
        ("day", "soon"),
    ];
    for (column, value) in cases {
        let good = [
            ("i", "1"),
            ("d", "1.25"),
            ("s", "2024-01-01T00:00:01"),
            ("day", "2024-01-01"),
        ];
        let values = good.map(|(name, good)| if name == column { value } else { good });
        let path = db.file("bad.csv", &format!("i,d,s,day\n{}\n", values.join(",")));
        let error = text_of(&db.import(&appending("t", &path)).unwrap_err());
        assert!(
            error.contains(&format!("'{column}'")) && error.contains("bad.csv"),
            "{error}"
        );
    }
    let path = db.file(
        "good.csv",
        "day,d,i,s\n2024-01-02,1234.50,7,2024-01-01 00:00:01\n",
    );
    db.import(&appending("t", &path)).unwrap();
    assert_eq!(db.rows("SELECT i, d, day FROM t"), ["7|1234.50|2024-01-02"]);
}

#[test]
fn inserting_what_does_not_fit_fails_and_what_fits_arrives() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (n INT, d DECIMAL(8, 2))").unwrap();
    db.run("CREATE TABLE f AS SELECT 0.5::DOUBLE AS x, 2.0::DOUBLE AS y")
        .unwrap();
    for statement in [
        "INSERT INTO t SELECT x, 1 FROM f",
        "INSERT INTO t (n) SELECT x FROM f",
        "INSERT INTO t VALUES (0.5, 1)",
        "INSERT INTO t VALUES (1, -1.255)",
        "INSERT INTO t SELECT 3000000000, 1",
    ] {
        let error = db.error(statement);
        assert!(!text_of(&error).is_empty());
        assert_eq!(db.rows("SELECT count(*) FROM t"), ["0"], "{statement}");
    }
    let misfit = db.error("INSERT INTO t (n) SELECT x FROM f");
    assert_eq!(misfit.code(), "misfit");
    assert!(misfit.to_string().contains("column 'n'"), "{misfit}");
    db.run("INSERT INTO t SELECT y, y AS z FROM f").unwrap();
    db.run("INSERT INTO t VALUES (3.0, 1.25), (CAST(round(0.6) AS INT), NULL)")
        .unwrap();
    db.run("INSERT INTO t (n) SELECT CAST(x AS INT) FROM f")
        .unwrap();
    assert_eq!(
        db.rows("SELECT n, d FROM t ORDER BY n"),
        ["0|", "1|", "2|2.00", "3|1.25"]
    );
}

#[test]
fn columns_of_csv_files_are_matched_by_name_in_import_and_in_place() {
    let db = Fixture::new();
    let names = folder(
        &db,
        "names",
        &[
            ("a.csv", "first,last\nAda,Lovelace\n"),
            ("b.csv", "last,first\nHopper,Grace\n"),
            ("c.csv", "last\nTuring\n"),
        ],
    );
    let expected = ["Ada|Lovelace", "Grace|Hopper", "|Turing"];
    db.import(&options("t", &[&names])).unwrap();
    let sql =
        |table: &str| format!("SELECT first, last FROM {table} ORDER BY last = 'Turing', first");
    assert_eq!(db.rows(&sql("t")), expected);
    assert_eq!(db.rows(&sql(&format!("'{names}'"))), expected);
    assert_eq!(db.rows(&sql(&format!("'{names}/*.csv'"))), expected);
    assert_eq!(
        db.rows(&format!(
            "SELECT count(*) FROM '{names}' WHERE first = 'Grace'"
        )),
        ["1"]
    );
}

#[test]
fn doubled_names_and_foreign_files_are_errors_with_file_and_column() {
    let db = Fixture::new();
    let doubled = db.file("doubled.csv", "a,b,a\n1,2,3\n");
    for error in [
        db.import(&options("t", &[&doubled])).unwrap_err(),
        db.error(&format!("SELECT * FROM '{doubled}'")),
    ] {
        let text = text_of(&error);
        assert!(
            text.contains("doubled.csv") && text.contains("'a'"),
            "{text}"
        );
    }
    let mixed = folder(
        &db,
        "mixed",
        &[("a.csv", "id,v\n1,2\n"), ("b.csv", "7,8\n9,10\n")],
    );
    for error in [
        db.import(&options("t", &[&mixed])).unwrap_err(),
        db.error(&format!("SELECT * FROM '{mixed}'")),
    ] {
        assert!(text_of(&error).contains("b.csv"), "{error}");
    }
}

#[test]
fn tabs_objects_per_line_and_compressed_text_are_read_by_their_endings() {
    let db = Fixture::new();
    let files = [
        db.file("t.tsv", "id\tname\n1\tAnn, or Bob\n"),
        db.file("t.ndjson", "{\"id\": 1, \"name\": \"Ann, or Bob\"}\n"),
        db.file("t.jsonl", "{\"name\": \"Ann, or Bob\", \"id\": 1}\n"),
    ];
    db.run(&format!(
        "COPY (SELECT 1 AS id, 'Ann, or Bob' AS name) TO '{}' STORED AS CSV
         OPTIONS ('format.compression' 'gzip')",
        db.path("t.csv.gz")
    ))
    .unwrap();
    for (idx, file) in files
        .iter()
        .cloned()
        .chain([db.path("t.csv.gz")])
        .enumerate()
    {
        assert_eq!(
            db.rows(&format!("SELECT id, name FROM '{file}'")),
            ["1|Ann, or Bob"],
            "{file}"
        );
        db.import(&options(&format!("t{idx}"), &[&file])).unwrap();
        assert_eq!(
            db.rows(&format!("SELECT id, name FROM t{idx}")),
            ["1|Ann, or Bob"],
            "{file}"
        );
    }
}

#[test]
fn numbers_of_several_files_widen_and_chosen_types_come_first() {
    let db = Fixture::new();
    let wide = folder(
        &db,
        "wide",
        &[
            ("a.csv", "v\n1\n"),
            ("b.csv", "v\n1.5\n"),
            ("c.csv", "v\n\n2\n"),
        ],
    );
    db.import(&options("t", &[&wide])).unwrap();
    assert_eq!(
        db.rows("SELECT sum(v), arrow_typeof(min(v)) FROM t"),
        ["4.5|Float64"]
    );
    assert_eq!(db.rows(&format!("SELECT sum(v) FROM '{wide}'")), ["4.5"]);
    for (name, data_type) in [("i.parquet", "INT"), ("l.parquet", "BIGINT")] {
        let path = db.path(name);
        db.run(&format!(
            "COPY (SELECT 7::{data_type} AS k) TO '{path}' STORED AS parquet"
        ))
        .unwrap();
    }
    let inputs = [db.path("i.parquet"), db.path("l.parquet")];
    db.import(&options("k", &[&inputs[0], &inputs[1]])).unwrap();
    assert_eq!(
        db.rows("SELECT sum(k), arrow_typeof(min(k)) FROM k"),
        ["14|Int64"]
    );
    let mixed = folder(&db, "types", &[("a.csv", "v\n1\n"), ("b.csv", "v\nx\n")]);
    let error = text_of(&db.import(&options("m", &[&mixed])).unwrap_err());
    assert!(error.contains("b.csv") && error.contains("'v'"), "{error}");
    let chosen = ImportOptions {
        schema: Some("v VARCHAR".into()),
        ..options("m", &[&mixed])
    };
    db.import(&chosen).unwrap();
    assert_eq!(db.rows("SELECT v FROM m ORDER BY v"), ["1", "x"]);
}

#[test]
fn text_columns_keep_zeros_and_late_fractions_of_json_are_not_cut() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (zip VARCHAR)").unwrap();
    let zip = db.file("zip.csv", "zip\n01234\n");
    db.import(&appending("t", &zip)).unwrap();
    assert_eq!(db.rows("SELECT zip FROM t"), ["01234"]);
    let late = db.file(
        "late.json",
        &format!("{}{{\"v\": 0.5}}\n", "{\"v\": 1}\n".repeat(11_000)),
    );
    let error = text_of(&db.import(&options("late", &[&late])).unwrap_err());
    assert!(
        error.contains("late.json") && error.contains("11001") && error.contains("0.5"),
        "{error}"
    );
}

#[test]
fn paths_with_glob_characters_mean_themselves() {
    let db = Fixture::new();
    let odd = folder(
        &db,
        "odd",
        &[
            ("x[1].csv", "v\nright\n"),
            ("x1.csv", "v\nwrong\n"),
            ("what?.csv", "v\nright\n"),
            ("a%20b #.csv", "v\nright\n"),
        ],
    );
    for (idx, name) in ["x[1].csv", "what?.csv", "a%20b #.csv"].iter().enumerate() {
        let path = format!("{odd}/{name}");
        db.import(&options(&format!("t{idx}"), &[&path])).unwrap();
        assert_eq!(
            db.rows(&format!("SELECT v FROM t{idx}")),
            ["right"],
            "{name}"
        );
        assert_eq!(
            db.rows(&format!("SELECT v FROM '{path}'")),
            ["right"],
            "{name}"
        );
    }
    assert!(
        db.import(&options("", &[&odd]))
            .is_err_and(|error| error.code() == "invalid_value")
    );
}

#[test]
fn devices_are_refused_as_input() {
    let db = Fixture::new();
    for error in [
        db.error("SELECT * FROM '/dev/null'"),
        db.error("CREATE EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION '/dev/null'"),
        db.import(&options("t", &["/dev/null"])).unwrap_err(),
    ] {
        assert!(error.code() == "bad_input", "{error:?}");
    }
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_keeps_what_was_there() {
    let db = Fixture::new();
    let out = folder(&db, "out", &[("o.parquet", "old"), ("o.csv", "old")]);
    let entries = || {
        let mut names: Vec<_> = std::fs::read_dir(&out)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        names
    };
    let before = entries();
    let failing =
        "SELECT value, 1 / (value - 90000) AS x FROM generate_series(1, 100000) AS g(value)";
    for target in [
        "o.parquet",
        "o.csv",
        "new.json",
        "folder/",
        "a/new/place.csv",
    ] {
        let format = target
            .split_once('.')
            .map_or("parquet", |(_, ending)| ending);
        db.error(&format!(
            "COPY ({failing}) TO '{out}/{target}' STORED AS {format}"
        ));
        assert_eq!(entries(), before, "{target}");
        assert_eq!(std::fs::read(format!("{out}/o.csv")).unwrap(), b"old");
    }
    let session = db.database().session();
    db.database().block_on(async {
        let answer = session
            .sql(&format!(
                "COPY (SELECT * FROM generate_series(1, 100000000)) TO '{out}/o.csv'"
            ))
            .await
            .unwrap();
        tokio::time::timeout(std::time::Duration::from_millis(100), answer.collect())
            .await
            .unwrap_err();
    });
    assert_eq!(entries(), before);
}

#[test]
fn a_copy_that_works_replaces_its_target_and_counts_its_rows() {
    let db = Fixture::new();
    let out = folder(&db, "out", &[("o.csv", "old")]);
    let copy = |target: &str, tail: &str| {
        db.rows(&format!(
            "COPY (SELECT value AS a, value % 2 AS p FROM generate_series(1, 1000) AS g(value))
             TO '{out}/{target}' STORED AS csv {tail}"
        ))
    };
    assert_eq!(copy("o.csv", ""), ["1000"]);
    assert_eq!(copy("it[s]%.csv", ""), ["1000"]);
    assert_eq!(copy("parts", "PARTITIONED BY (p)"), ["1000"]);
    assert_eq!(copy("parts", "PARTITIONED BY (p)"), ["1000"]);
    let count = |name: &str| db.rows(&format!("SELECT count(*), sum(a) FROM '{out}/{name}'"));
    assert_eq!(count("o.csv"), ["1000|500500"]);
    assert_eq!(count("it[s]%.csv"), ["1000|500500"]);
    assert_eq!(count("parts"), ["2000|1001000"]);
    assert_eq!(
        db.rows(&format!(
            "SELECT p, count(*) FROM '{out}/parts' GROUP BY p ORDER BY p"
        )),
        ["0|1000", "1|1000"]
    );
    assert_eq!(copy("a/new/place/o.csv", ""), ["1000"]);
    assert_eq!(count("a/new/place/o.csv"), ["1000|500500"]);
    let error = db.error(&format!("COPY (SELECT 1) TO '{out}/o.csv/below/o.csv'"));
    assert!(error.code() == "bad_target", "{error:?}");
}

#[test]
fn a_copy_writes_behind_links_keeps_permissions_and_sweeps_what_killed_ones_left() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let db = Fixture::new();
    let out = folder(&db, "out", &[("real.csv", "old")]);
    let real = format!("{out}/real.csv");
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real.csv", format!("{out}/link.csv")).unwrap();
    std::fs::create_dir(format!("{out}/.hotshelf-copy-1-1")).unwrap();
    std::fs::write(format!("{out}/.hotshelf-copy-1-1/part"), "half").unwrap();
    let held = format!("{out}/.hotshelf-copy-2-2");
    std::fs::create_dir(&held).unwrap();
    let lock = std::fs::File::open(&held).unwrap();
    lock.lock().unwrap();
    db.run(&format!("COPY (SELECT 7 AS a) TO '{out}/link.csv'"))
        .unwrap();
    assert!(std::path::Path::new(&format!("{out}/link.csv")).is_symlink());
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "a\n7\n");
    let mode = std::fs::metadata(&real).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!std::path::Path::new(&format!("{out}/.hotshelf-copy-1-1")).exists());
    assert!(std::path::Path::new(&held).exists(), "another COPY's");
}
