//! Bad input gets a clear error with a hint, and nothing is lost.

use super::Bench;

fn import<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["import", "--db", "db", "n"], rest].concat()
}

#[test]
fn misuse_ends_with_2() {
    let bench = Bench::new();
    for (call, part) in [
        (&["sql", "--budget", "lots", "-c", "x"][..], "64MB"),
        (
            &["sql", "--policy", "lrru", "-c", "x"],
            "choose none, all, lru",
        ),
        (&["sql", "--format", "xml", "-c", "x"], "ndjson"),
        (&["sql", "--storage-bandwidth", "0", "-c", "x"], "none"),
        (&["generate", "tpcds", "--scale", "1", "--out", "o"], "tpch"),
        (&["bench", "ssb", "--scale", "1", "--runs", "0"], "--runs"),
        (&["nonsense"], "nonsense"),
        (&["import", "--db", "db", "t"], "FILE"),
    ] {
        bench.fails(2, call, &[part]);
    }
    assert_eq!(super::entries(bench.folder.path()).len(), 0);
}

#[test]
fn generate_says_where_tables_can_go() {
    let bench = Bench::new();
    let example = "hotshelf generate ssb --scale 1 --db mydb";
    let words = ["--db DIR", "--out DIR", example];
    bench.fails(2, &["generate", "ssb", "--scale", "0.001"], &words);
    let help = bench.ok(&["generate", "--help"]);
    for word in ["<--db <DIR>|--out <DIR>>", example] {
        assert!(help.contains(word), "{help}");
    }
    assert_eq!(super::entries(bench.folder.path()).len(), 0);
}

#[test]
fn values_that_only_the_work_can_refuse_end_with_1() {
    let bench = Bench::new();
    for (call, part) in [
        (
            &["sql", "--budget", "1KB", "-c", "SELECT 1"][..],
            "too small",
        ),
        (&["generate", "ssb", "--scale", "0", "--out", "o"], "0.001"),
        (
            &["bench", "ssb", "--scale", "0.001", "--query", "Q9"],
            "Q4.3",
        ),
        (&["sql", "-f", "nowhere.sql"], "nowhere.sql"),
    ] {
        bench.fails(1, call, &[part]);
    }
}

#[test]
fn files_that_cannot_be_imported_are_named_and_leave_nothing() {
    let bench = Bench::with_table();
    let sql = [
        "sql",
        "--db",
        "db",
        "-c",
        "SELECT * FROM t",
        "--format",
        "parquet",
    ];
    bench.ok(&[&sql[..], &["--output", "whole.parquet"]].concat());
    let whole = std::fs::read(bench.path("whole.parquet")).unwrap();
    bench.write("cut.parquet", &whole[..whole.len() / 2]);
    bench.write("text.parquet", "a,b\n1,2\n");
    bench.write("empty.csv", "");
    bench.write("words.csv", "a\n1\nword\n");
    bench.write("ints.csv", "a\n1\n");
    bench.write("data.xyz", "a\n1\n");
    for (rest, parts) in [
        (&["nowhere.csv"][..], &["nowhere.csv", "hint: "][..]),
        (&["nowhere/*.csv"], &["nowhere/*.csv", "quote"]),
        (&["empty.csv"], &["empty.csv", "empty"]),
        (&["cut.parquet"], &["cut.parquet"]),
        (&["text.parquet"], &["text.parquet"]),
        (&["data.xyz"], &["data.xyz", "--format"]),
        (&["words.csv", "--schema", "a INT"], &["word"]),
        (
            &["ints.csv", "--schema", "b INT"],
            &["schema", "a column of the files: a"],
        ),
        (
            &["ints.csv", "words.csv"],
            &["words.csv", "'a'", "hint: ", "--schema"],
        ),
    ] {
        bench.fails(1, &import(rest), parts);
    }
    let append = ["import", "--db", "db", "t", "ints.csv", "--append"];
    bench.fails(1, &append, &["'b' is missing"]);
    assert_eq!(bench.query("SELECT count(*) AS n FROM t"), "n\n1000\n");
    let list = bench.ok(&["tables", "--db", "db", "--format", "csv"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(super::folders(&bench.path("db/data")).len(), 1);
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let bench = Bench::with_table();
    bench.query("CREATE TABLE lineorder AS SELECT 1 AS quantity");
    let sql = |text| ["sql", "--db", "db", "-c", text];
    bench.fails(
        1,
        &sql("SELECT * FROM lineordr"),
        &["'lineordr'", "did you mean 'lineorder'?"],
    );
    bench.fails(
        1,
        &sql("SELECT quantiti FROM lineorder"),
        &["quantiti", "quantity"],
    );
    bench.fails(1, &sql("SET hotshelf.polici = 'lru'"), &["hotshelf.policy"]);
    bench.fails(1, &sql("SELEC 1"), &["SELEC"]);
}

#[test]
fn the_failing_statement_is_numbered_and_those_before_it_count() {
    let bench = Bench::new();
    let text = "CREATE TABLE a AS SELECT 1 AS x; SELECT * FROM b; CREATE TABLE c AS SELECT 1 AS x";
    bench.fails(
        1,
        &["sql", "--db", "db", "-c", text],
        &["statement 2", "'b'", "statement 3 did not run"],
    );
    let list = bench.ok(&["tables", "--db", "db", "--format", "csv"]);
    assert!(list.contains("a,1,1,1,") && !list.contains("c,"), "{list}");
}

#[test]
fn what_is_not_supported_says_so() {
    let bench = Bench::with_table();
    for (text, part) in [
        ("DELETE FROM t WHERE a = 1", "not supported yet"),
        ("UPDATE t SET a = 1", "not supported yet"),
    ] {
        bench.fails(1, &["sql", "--db", "db", "-c", text], &[part]);
    }
    assert_eq!(bench.query("SELECT count(*) AS n FROM t"), "n\n1000\n");
}

#[test]
fn folders_that_are_no_database_are_left_alone() {
    let bench = Bench::new();
    bench.write("photos/cat.jpg", "meow");
    bench.write("file", "text");
    bench.fails(
        1,
        &["sql", "--db", "photos", "-c", "SELECT 1"],
        &["other files", "hint: "],
    );
    bench.fails(
        1,
        &["sql", "--db", "file", "-c", "SELECT 1"],
        &["it is a file"],
    );
    bench.fails(
        1,
        &["sql", "--db", "/proc/nothing", "-c", "SELECT 1"],
        &["/proc/nothing"],
    );
    for command in ["tables", "verify"] {
        bench.fails(1, &[command, "--db", "nowhere"], &["nowhere", "hint: "]);
    }
    assert!(!bench.path("nowhere").exists());
    assert_eq!(super::entries(&bench.path("photos")).len(), 1);
}

#[test]
fn a_second_process_is_told_who_has_the_database() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let bench = Bench::with_table();
    let mut first = bench
        .command(&["shell", "--db", "db"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut typed = first.stdin.take().unwrap();
    typed.write_all(b"SELECT 1;\n").unwrap();
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(!line.is_empty());
    let owner = format!("process {}", first.id());
    bench.fails(
        1,
        &["sql", "--db", "db", "-c", "SELECT 1"],
        &["another process", &owner, "hint: "],
    );
    drop(typed);
    first.wait().unwrap();
    assert_eq!(bench.query("SELECT count(*) AS n FROM t"), "n\n1000\n");
}
