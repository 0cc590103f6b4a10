//! Statements that write begin again where memory is short, and nothing of their first run remains.

use std::path::Path;

use super::aggregating::with_budget;
use super::*;

/// A join by texts whose rows the statistics do not know, so that it is the engine's first, which cannot spill it,
/// beside rows that may come first.
const JOIN: &str = "SELECT a.id, a.small, a.d FROM \
    (SELECT repeat('a text that fills the memory, ', 9) || unnest([id]) AS text FROM t) b \
    JOIN (SELECT unnest([id]) AS id, small, d FROM t) a \
    ON repeat('a text that fills the memory, ', 9) || a.id = b.text \
    UNION ALL SELECT id, small, d FROM t";
const ROWS: usize = 2 * 60_000;

/// A database in which the join does not fit, and its rows.
fn short_of_memory() -> (Fixture, Vec<String>) {
    let expected = sorted(with_budget(64 << 20).rows(JOIN));
    assert_eq!(expected.len(), ROWS);
    (with_budget(2 << 20), expected)
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}

fn run(fixture: &Fixture, statement: &str) -> Result<Vec<RecordBatch>> {
    fixture.run(&format!("SET hotshelf.threads = 4; {statement}"))
}

/// Whether a run ends with another plan than it begins with.
fn begins_again(fixture: &Fixture, statement: &str) -> bool {
    let plan =
        |explain: &str| lines(&run(fixture, &format!("{explain} {statement}")).unwrap()).join("\n");
    let is_first = |plan: &str| !plan.contains("SpillingHashJoinExec");
    is_first(&plan("EXPLAIN")) && !is_first(&plan("EXPLAIN ANALYZE"))
}

/// The names of all files and folders below a folder.
fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        names.push(entry.file_name().to_string_lossy().into_owned());
        if entry.path().is_dir() {
            names.extend(names_below(&entry.path()));
        }
    }
    names
}

#[test]
fn an_insert_begins_again() {
    let (fixture, expected) = short_of_memory();
    run(
        &fixture,
        &format!("CREATE TABLE r AS SELECT * FROM ({JOIN}) LIMIT 0"),
    )
    .unwrap();
    let insert = format!("INSERT INTO r {JOIN}");
    assert_eq!(lines(&run(&fixture, &insert).unwrap()), [ROWS.to_string()]);
    assert!(sorted(fixture.rows("SELECT * FROM r")) == expected);
    assert!(begins_again(&fixture, &insert));
    assert_eq!(
        fixture.rows("SELECT count(*) FROM r"),
        [(2 * ROWS).to_string()]
    );
}

#[test]
fn a_table_of_a_query_is_made_again() {
    let (fixture, expected) = short_of_memory();
    assert!(begins_again(&fixture, JOIN));
    let data = fixture.folder.path().join("db").join("data");
    let tables_before = std::fs::read_dir(&data).unwrap().count();
    run(&fixture, &format!("CREATE TABLE r AS {JOIN}")).unwrap();
    assert!(sorted(fixture.rows("SELECT * FROM r")) == expected);
    let tables = std::fs::read_dir(&data).unwrap().count();
    assert_eq!(tables, tables_before + 1, "{:?}", names_below(&data));
    run(
        &fixture,
        &format!("CREATE OR REPLACE TABLE r CLUSTER BY elf (id) AS {JOIN}"),
    )
    .unwrap();
    assert!(sorted(fixture.rows("SELECT * FROM r")) == expected);
}

#[test]
fn what_another_plan_cannot_change_fails_and_leaves_nothing() {
    let (fixture, _) = short_of_memory();
    let data = fixture.folder.path().join("db").join("data");
    let before = names_below(&data);
    let failing = "SELECT id, sum(9223372036854775807 - id) FROM t, (VALUES (1), (2)) v(v) GROUP BY ROLLUP (id)";
    run(&fixture, &format!("CREATE TABLE r AS {failing}")).unwrap_err();
    run(
        &fixture,
        &format!("COPY ({failing}) TO '{}'", fixture.path("r.parquet")),
    )
    .unwrap_err();
    assert_eq!(names_below(&data), before);
    assert_eq!(
        names_below(fixture.folder.path())
            .iter()
            .filter(|name| name.contains("hotshelf-copy"))
            .count(),
        0
    );
    assert!(!Path::new(&fixture.path("r.parquet")).exists());
}

#[test]
fn a_copy_begins_again() {
    let (fixture, expected) = short_of_memory();
    let (file, folder) = (fixture.path("r.parquet"), fixture.path("r"));
    for target in [&file, &format!("{folder}/")] {
        let copy = format!("COPY ({JOIN}) TO '{target}' STORED AS PARQUET");
        assert_eq!(lines(&run(&fixture, &copy).unwrap()), [ROWS.to_string()]);
        assert!(sorted(fixture.rows(&format!("SELECT * FROM '{target}'"))) == expected);
    }
    let names = names_below(fixture.folder.path());
    assert!(
        !names.iter().any(|name| name.contains("hotshelf-copy")),
        "{names:?}"
    );
}
