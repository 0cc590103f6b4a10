//! The public interface: what it promises to threads, that the examples run, and that nothing comes or goes unseen.

use std::path::Path;
use std::process::Command;

use hotshelf::arrow::array::AsArray;
use hotshelf::arrow::datatypes::Int64Type;
use hotshelf::{
    Answer, Database, Error, ErrorKind, ImportProgress, Options, PolicyKind, Session, Statement,
    Value,
};

use crate::Fixture;

#[allow(dead_code)]
#[path = "../../examples/embed.rs"]
mod embed;
#[allow(dead_code)]
#[path = "../../examples/policy.rs"]
mod policy;

#[test]
fn handles_may_be_shared_between_threads_and_answers_sent() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + Unpin + 'static>() {}
    shared::<Database>();
    shared::<Session>();
    shared::<Options>();
    shared::<Statement>();
    shared::<Value>();
    shared::<ImportProgress>();
    shared::<Error>();
    sent::<Answer>();
}

#[test]
fn the_embedding_example_imports_asks_and_finds_the_second_answer_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let seen = embed::tour(folder.path()).unwrap();
    assert!(seen.starts_with("100000 rows imported\n"), "{seen}");
    assert_eq!(seen.matches("| east   | 25000  |").count(), 2, "{seen}");
    assert!(seen.contains("hpcache"), "{seen}");
    assert!(
        seen.ends_with("table 'ordres' does not exist: did you mean 'orders'?\n"),
        "{seen}"
    );
}

#[test]
fn the_policy_example_reads_less_with_a_cache_and_answers_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let outcomes = policy::race(folder.path(), 200_000).unwrap();
    let bare = &outcomes[0];
    assert_eq!(bare.policy, PolicyKind::None);
    assert!(bare.bytes_read > 0);
    for outcome in &outcomes[1..] {
        assert_eq!(outcome.answers, bare.answers, "{outcome:?}");
        assert!(outcome.bytes_read < bare.bytes_read, "{outcome:?} {bare:?}");
    }
}

#[test]
fn parameters_take_the_type_that_the_statement_wants() {
    let db = Fixture::new();
    let session = db.database().session();
    session
        .query("CREATE TABLE t AS SELECT 7::INT AS a, 1.5::DOUBLE AS b, 'x' AS c, DATE '2020-02-29' AS d")
        .unwrap();
    let count = |condition: &str, value: Value| {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let statement = session.parse(&sql).unwrap().remove(0);
        let values = [value];
        let run = async {
            session
                .execute_with(&statement, &values)
                .await?
                .collect()
                .await
        };
        let rows = db.database().block_on(run);
        rows.unwrap()[0]
            .column(0)
            .as_primitive::<Int64Type>()
            .value(0)
    };
    assert_eq!(count("a = $1", 7.into()), 1);
    assert_eq!(count("b < $1", 2.0.into()), 1);
    assert_eq!(count("c = $1", "x".into()), 1);
    assert_eq!(count("d = $1", "2020-02-29".into()), 1);
    assert_eq!(count("a = $1", Value::Null), 0);
    assert_eq!(count("$1", false.into()), 0);
}

#[test]
fn each_kind_of_failure_has_its_name() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT 1 AS a").unwrap();
    for (sql, kind, code) in [
        ("SELEC 1", ErrorKind::Statement, "syntax"),
        (
            "SELECT a + DATE '2020-01-01' + true FROM t",
            ErrorKind::Statement,
            "plan",
        ),
        ("SELECT * FROM u", ErrorKind::NotFound, "unknown_table"),
        (
            "CREATE TABLE t AS SELECT 1 AS a",
            ErrorKind::Conflict,
            "table_exists",
        ),
        (
            "SET hotshelf.budget = 'lots'",
            ErrorKind::InvalidValue,
            "invalid_value",
        ),
        (
            "SELECT 1 / (a - 1) FROM t",
            ErrorKind::Execution,
            "execution",
        ),
        (
            "CREATE EXTERNAL TABLE e (a INT) STORED AS CSV LOCATION '/dev/null'",
            ErrorKind::Input,
            "bad_input",
        ),
        (
            "CREATE TEMPORARY TABLE u AS SELECT 1",
            ErrorKind::Unsupported,
            "not_supported",
        ),
    ] {
        let error = db.error(sql);
        assert_eq!((error.kind(), error.code()), (kind, code), "{sql}: {error}");
    }
}

#[test]
fn a_program_outside_the_workspace_needs_no_libclang() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = root.join("examples/embedding");
    // The versions that the workspace has, so that nothing is asked of a registry.
    std::fs::copy(root.join("Cargo.lock"), example.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .current_dir(&example)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let find = |name: &str| tree.lines().find(|line| line.starts_with(name));
    assert!(find("bindgen ").is_none() && find("clang-sys ").is_none());
    let labels = find("custom-labels ").unwrap();
    assert!(labels.contains("stand-ins"), "{labels}");
}
