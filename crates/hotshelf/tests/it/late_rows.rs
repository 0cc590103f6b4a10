//! Sorts with a limit that compare keys alone, beside sorts of whole rows.

use super::*;

/// A table in several files, of which the key of a row does not tell its place.
fn wide(bytes: u64) -> Fixture {
    let fixture = Fixture::with_little_memory(bytes, 2);
    let rows = |from: u64, to: u64| {
        format!(
            "SELECT value AS id, value * 7919 % 100003 AS k, CASE WHEN value % 11 = 0 THEN NULL ELSE value % 90 END \
             AS g, 'a text with the number ' || (value * 31 % 60013) AS text, value * 3 AS a, \
             CAST(value AS DOUBLE) / 7 AS f, \
             CASE WHEN value % 5 = 0 THEN NULL ELSE 'another ' || value END AS other FROM range({from}, {to})"
        )
    };
    fixture
        .run(&format!("CREATE TABLE t AS {}", rows(0, 70_000)))
        .unwrap();
    for part in 1..4 {
        let (from, to) = (part * 70_000, part * 70_000 + 30_000);
        fixture
            .run(&format!("INSERT INTO t {}", rows(from, to)))
            .unwrap();
    }
    fixture
}

const QUERIES: &[&str] = &[
    "SELECT * FROM t ORDER BY k, id LIMIT 10",
    "SELECT * FROM t ORDER BY id DESC LIMIT 1",
    "SELECT text, other, f, k FROM t ORDER BY k DESC, id LIMIT 100 OFFSET 77",
    "SELECT other, text, a + id AS s FROM t WHERE g = 7 ORDER BY k, id LIMIT 300",
    "SELECT other, upper(text) AS u, k FROM t WHERE length(other) = 11 AND k % 2 = 1 ORDER BY k, id LIMIT 20",
    "SELECT id, text, other FROM t WHERE text LIKE '%77%' ORDER BY g NULLS FIRST, k DESC, id LIMIT 50",
    "SELECT id, text, other FROM t ORDER BY (k + a) % 1009, length(text), id LIMIT 40",
    "SELECT * FROM t WHERE id < 0 ORDER BY k LIMIT 10",
    "SELECT * FROM t WHERE id < 5 ORDER BY k LIMIT 10",
    "SELECT * FROM t ORDER BY f DESC LIMIT 5000",
    "SELECT * FROM (SELECT id, text, other, k FROM t WHERE a % 4 = 2 ORDER BY k, id LIMIT 1000) x \
     ORDER BY text, id LIMIT 9",
    "SELECT x.id, y.text FROM (SELECT id, text, k, other FROM t ORDER BY k, id LIMIT 30) x JOIN \
     (SELECT id, text, f, a FROM t ORDER BY a DESC LIMIT 9000) y ON x.k % 100 = y.id % 100 \
     ORDER BY x.id, y.text, y.id LIMIT 7000",
    "SELECT max(other), count(text), sum(a) FROM (SELECT * FROM t WHERE g > 80 ORDER BY k, id LIMIT 2000) x",
    "SELECT text, text AS again, k, 1 AS one FROM t ORDER BY k, id LIMIT 3",
    "SELECT other FROM t ORDER BY text DESC, id LIMIT 12",
];

#[test]
fn the_first_rows_are_those_of_whole_rows_whatever_the_memory() {
    for fixture in [wide(256 << 20), wide(1 << 20)] {
        for query in QUERIES {
            let answer = |operators: &str| {
                fixture.rows(&format!("SET hotshelf.operators = {operators}; {query}"))
            };
            let expected = answer("off");
            for operators in ["on", "always"] {
                assert_eq!(answer(operators), expected, "{operators}: {query}");
            }
            let plan = fixture.rows(&format!("SET hotshelf.operators = always; EXPLAIN {query}"));
            assert!(
                plan.join("\n").contains("FetchRowsExec"),
                "{query}: {plan:?}"
            );
        }
    }
}

#[test]
fn rows_are_read_late_where_the_others_are_many_and_wide() {
    let fixture = wide(64 << 20);
    let is_late = |query: &str| {
        let plan = fixture.rows(&format!("SET hotshelf.operators = on; EXPLAIN {query}"));
        plan.join("\n").contains("FetchRowsExec")
    };
    assert!(is_late("SELECT * FROM t ORDER BY k LIMIT 10"));
    assert!(is_late(
        "SELECT upper(text), other FROM t ORDER BY k LIMIT 10"
    ));
    for query in [
        "SELECT id, k FROM t ORDER BY k LIMIT 10",
        "SELECT * FROM t ORDER BY k",
        "SELECT * FROM t ORDER BY k LIMIT 5000",
        "SELECT * FROM t WHERE id = 17 ORDER BY k LIMIT 10",
        "SELECT *, random() FROM t ORDER BY k LIMIT 10",
    ] {
        assert!(!is_late(query), "{query}");
    }
}

#[test]
fn other_columns_are_read_of_few_row_groups_only() {
    let fixture = wide(64 << 20);
    let plan = |operators: &str| {
        let query = "SELECT * FROM t ORDER BY id LIMIT 10";
        let sql = format!("SET hotshelf.operators = {operators}; EXPLAIN ANALYZE {query}");
        fixture.rows(&sql).join("\n")
    };
    let plan = plan("on");
    let line = plan.lines().find(|line| line.contains("FetchRowsExec"));
    let line = line.unwrap_or_else(|| panic!("{plan}"));
    assert!(line.contains("output_rows=10,"), "{line}");
    assert!(
        line.contains("columns=[id, k, g, text, a, f, other]"),
        "{line}"
    );
    let scan = plan.lines().find(|line| line.contains("HotshelfScan"));
    let scan = scan.unwrap_or_else(|| panic!("{plan}"));
    assert!(scan.contains("columns=[id, row number]"), "{scan}");
}

#[test]
fn a_row_that_is_chosen_is_read_from_the_files_that_the_statement_sees() {
    let fixture = wide(64 << 20);
    let query = "SELECT id, text, other, a FROM t ORDER BY k, id LIMIT 2000";
    let expected = fixture.rows(query);
    let rows = std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for _ in 0..4 {
                fixture
                    .run("INSERT INTO t SELECT id, k + 1000000, g, text, a, f, other FROM t WHERE id < 300")
                    .unwrap();
            }
        });
        let mut rows = Vec::new();
        while !changes.is_finished() {
            rows.push(fixture.rows(query));
        }
        rows
    });
    assert!(!rows.is_empty());
    for found in rows {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_limit_below_the_sort_stays() {
    let fixture = Fixture::new();
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS id, value * 7919 % 1009 AS k, 'a text ' || value AS text, \
             'another ' || value AS other FROM range(1000)",
        )
        .unwrap();
    for (rows, sql) in [
        (
            "5",
            "SELECT * FROM (SELECT * FROM t WHERE length(other) = 11 LIMIT 5) x ORDER BY k LIMIT 10",
        ),
        (
            "3",
            "SELECT * FROM (SELECT * FROM t LIMIT 3) x ORDER BY k LIMIT 10",
        ),
        (
            "2",
            "SELECT * FROM (SELECT * FROM t WHERE id % 3 = 1 LIMIT 9) x ORDER BY k LIMIT 2",
        ),
    ] {
        let sql = format!("SET hotshelf.operators = always; SELECT count(*) FROM ({sql}) y");
        assert_eq!(fixture.rows(&sql), [rows], "{sql}");
    }
}

#[test]
fn one_worker_reads_late_too_whatever_finds_the_rows() {
    let fixture = Fixture::with_little_memory(64 << 20, 1);
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS id, value * 7919 % 100003 AS k, value % 50 AS g, \
             'a text ' || value AS text, 'another ' || value AS other FROM range(150000); \
             CREATE INDEX i ON t USING elf (g, k); \
             INSERT INTO t SELECT id + 1000000, k, g, text, other FROM t WHERE id < 9000",
        )
        .unwrap();
    for query in [
        "SELECT * FROM t ORDER BY k, id LIMIT 30",
        "SELECT * FROM t WHERE g = 17 ORDER BY k, id LIMIT 30",
        "SELECT * FROM t WHERE g IN (3, 17) AND k < 900 ORDER BY text LIMIT 30",
        "SELECT k, g FROM t WHERE g = 9 AND k > 70000 ORDER BY k DESC, g LIMIT 30",
    ] {
        let expected = fixture.rows(&format!("SET hotshelf.operators = off; {query}"));
        for elf in ["on", "always", "off"] {
            let sql = format!("SET hotshelf.elf = {elf}; SET hotshelf.operators = always; {query}");
            assert_eq!(fixture.rows(&sql), expected, "{sql}");
        }
    }
    let plan = fixture.rows("EXPLAIN SELECT * FROM t ORDER BY k, id LIMIT 30");
    assert!(plan.join("\n").contains("FetchRowsExec"), "{plan:?}");
}

#[test]
fn expressions_that_double_with_each_step_are_not_written_out() {
    let fixture = wide(64 << 20);
    let mut sql = "SELECT id, k, text AS x, other FROM t WHERE id < 100".to_owned();
    for _ in 0..40 {
        sql = format!(
            "SELECT id, k, CASE WHEN upper(x) > lower(x) THEN upper(x) ELSE lower(x) END AS x, other FROM ({sql})"
        );
    }
    let sql = format!("SET hotshelf.operators = always; EXPLAIN {sql} ORDER BY k LIMIT 3");
    assert!(!fixture.rows(&sql).is_empty());
}

#[test]
fn wide_rows_are_read_some_at_a_time() {
    let fixture = Fixture::with_little_memory(64 << 20, 2);
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS id, value * 7919 % 100003 AS k, repeat(value || ' ', 1500) AS text \
             FROM range(800)",
        )
        .unwrap();
    let sql = "SET hotshelf.operators = always; SELECT count(*), sum(length(text)), max(k) FROM \
         (SELECT * FROM t ORDER BY k, id LIMIT 600) x";
    let expected = fixture.rows(&sql.replace("always", "off"));
    assert_eq!(fixture.rows(sql), expected);
    assert!(operator_bytes(&fixture) < 64 << 10);
}
