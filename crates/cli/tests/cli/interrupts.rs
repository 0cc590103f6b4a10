//! Ctrl-C and readers who leave.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Bench, entries};

pub(super) fn press_ctrl_c(child: &Child) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn ctrl_c_ends_a_query_after_the_answers_before_it() {
    let bench = Bench::new();
    let endless = "SELECT 1 AS one; SELECT count(*) FROM generate_series(1, 1000000000000) AS a";
    let mut child = bench
        .command(&["sql", "--format", "csv", "-c", endless])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = [String::new(), String::new()];
    for line in &mut lines {
        stdout.read_line(line).unwrap();
    }
    assert_eq!(lines, ["one\n", "1\n"]);
    press_ctrl_c(&child);
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
}

#[test]
fn ctrl_c_takes_an_import_back() {
    let bench = Bench::with_table();
    let rows: String = (0..400_000)
        .map(|a| format!("{a},{},text {a}\n", a * 7))
        .collect();
    bench.write("large.csv", format!("a,b,c\n{rows}"));
    let mut child = bench
        .command(&["import", "--db", "db", "large", "large.csv"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while entries(&bench.path("db/data")).len() < 2 {
        assert!(started.elapsed() < Duration::from_secs(30) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    press_ctrl_c(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let list = bench.ok(&["tables", "--db", "db", "--format", "csv"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(entries(&bench.path("db/data")).len(), 1);
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let bench = Bench::new();
    for format in ["csv", "ndjson", "markdown", "arrow", "parquet"] {
        let sql = "SELECT value, value * 3 AS b FROM generate_series(1, 3000000)";
        let mut child = bench
            .command(&["sql", "--format", format, "-c", sql])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let done: super::Done = child.wait_with_output().unwrap().into();
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{format}");
    }
}
