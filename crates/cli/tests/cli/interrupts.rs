//! Ctrl-C and readers who leave.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Bench, entries, folders};

pub(super) fn press_ctrl_c(child: &Child) {
    send(child, "-INT");
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &pid])
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
    while folders(&bench.path("db/data")).len() < 2 {
        assert!(started.elapsed() < Duration::from_secs(30) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    press_ctrl_c(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let list = bench.ok(&["tables", "--db", "db", "--format", "csv"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert_eq!(folders(&bench.path("db/data")).len(), 1);
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

/// A call whose temporary files are in the folder `tmp`.
fn start(bench: &Bench, arguments: &[&str]) -> Child {
    std::fs::create_dir_all(bench.path("tmp")).unwrap();
    bench
        .command(arguments)
        .env("TMPDIR", bench.path("tmp"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a condition while the program runs.
fn wait_until(child: &mut Child, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A join in whose every step lies more work than anybody waits for.
const STUCK: &str = "SELECT count(*) FROM generate_series(1, 200000) AS a(x) \
    JOIN generate_series(1, 200000) AS b(x) ON a.x % 2 = b.x % 2 WHERE a.x * b.x < 0";

#[test]
fn ctrl_c_does_not_wait_for_operators_that_do_not_let_go() {
    let bench = Bench::new();
    for threads in ["1", "2"] {
        let mut child = start(&bench, &["sql", "--threads", threads, "-c", STUCK]);
        std::thread::sleep(Duration::from_secs(1));
        let pressed = Instant::now();
        press_ctrl_c(&child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        // 200 ms, and what a machine that runs other tests needs.
        assert!(pressed.elapsed() < Duration::from_secs(2));
        let done: super::Done = child.wait_with_output().unwrap().into();
        assert_eq!(done.stderr, "error: interrupted\n");
        assert_eq!(entries(&bench.path("tmp")).len(), 0);
    }
}

/// What is in a folder; nothing if it is not there.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn a_signal_ends_a_spilling_sort_and_leaves_no_files() {
    let bench = Bench::new();
    let sort = "SELECT value, repeat('x', 100) AS t FROM generate_series(1, 100000000) ORDER BY value % 1000, t";
    let call = [
        "sql",
        "--budget",
        "64MB",
        "--threads",
        "1",
        "--format",
        "csv",
        "-c",
        sort,
    ];
    for (signal, code) in [("-TERM", 143), ("-HUP", 129), ("-QUIT", 131), ("-INT", 130)] {
        let mut child = start(&bench, &call);
        // The files have no names: they are gone with the process, however it ends.
        let open_files = PathBuf::from(format!("/proc/{}/fd", child.id()));
        let spilled = || {
            let mut files = below(&open_files).into_iter();
            files.any(|file| {
                let name = std::fs::read_link(&file).unwrap_or_default();
                let size = file.metadata().map_or(0, |file| file.len());
                size > 0 && name.to_string_lossy().contains(".spill")
            })
        };
        wait_until(&mut child, spilled);
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert_eq!(entries(&bench.path("tmp")).len(), 0, "{signal}");
    }
}

#[test]
fn a_signal_ends_the_shell_and_takes_its_temporary_database_away() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("tmp")).unwrap();
    let mut child = bench
        .command(&["shell"])
        .env("TMPDIR", bench.path("tmp"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let folder = bench.path("tmp");
    wait_until(&mut child, || {
        entries(&folder)
            .iter()
            .any(|made| made.join("catalog.sqlite").exists())
    });
    send(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(entries(&folder).len(), 0);
}

#[test]
fn an_unfinished_output_file_goes_with_the_program() {
    let bench = Bench::new();
    let sql = "SELECT value FROM generate_series(1, 1000000000)";
    let mut child = start(&bench, &["sql", "--output", "out.csv", "-c", sql]);
    let unfinished = || {
        let files = entries(bench.folder.path());
        files
            .iter()
            .any(|file| file.to_string_lossy().contains("out.csv."))
    };
    wait_until(&mut child, unfinished);
    send(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!unfinished() && !bench.path("out.csv").exists());
}
