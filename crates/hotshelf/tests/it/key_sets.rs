//! Keys of a join's build side that scans of the other side test: of several columns together, and texts.

use super::joining::{answers, kept_by_keys};
use super::*;

/// Rows that have each value of a column often and each pair of two columns once, by type; some have NULL.
fn with_pairs() -> Fixture {
    let fixture = Fixture::new();
    let columns = |value: &str, nulls: &str| {
        format!(
            "CASE WHEN {nulls} = 3 THEN NULL ELSE {value} % 400 END AS a, \
             CASE WHEN {nulls} = 5 THEN NULL ELSE {value} / 400 % 400 - 200 END AS b, \
             arrow_cast({value} % 100 - 50, 'Int8') AS i8, arrow_cast({value} / 100 % 200 - 100, 'Int16') AS i16, \
             arrow_cast({value} / 100 % 100 - 7, 'Int32') AS i32, arrow_cast({value} % 100, 'UInt8') AS u8, \
             arrow_cast({value} % 400, 'UInt16') AS u16, arrow_cast({value} / 400 % 400, 'UInt32') AS u32, \
             arrow_cast(18446744073709551000, 'UInt64') + arrow_cast({value} / 400 % 400, 'UInt64') AS u64, \
             date '2020-01-01' + CAST({value} % 400 AS INT) AS day, \
             arrow_cast({value} / 400 % 400 * 3600000000, 'Timestamp(Microsecond, None)') AS at"
        )
    };
    let facts = columns("value", "value % 31");
    // 1200 rows of 400 pairs, so that no column alone has all of its keys once.
    let picks = columns("(value % 400 * 401)", "value % 29");
    for sql in [
        format!("CREATE TABLE facts AS SELECT value AS id, {facts} FROM range(160000)"),
        format!("CREATE TABLE picks AS SELECT value AS n, {picks} FROM range(1200)"),
    ] {
        fixture.run(&sql).unwrap();
    }
    fixture
}

const PAIRS: &[[&str; 2]] = &[
    ["a", "b"],
    ["day", "at"],
    ["u16", "u32"],
    ["u16", "u64"],
    ["day", "u64"],
];

fn is_narrowed(kept: &[(u64, u64)]) -> bool {
    matches!(kept, [(kept, of)] if kept * 3 < *of)
}

#[test]
fn keys_of_two_columns_narrow_a_scan_that_neither_of_them_does() {
    let fixture = with_pairs();
    for [one, other] in PAIRS {
        let sql = format!(
            "SELECT count(*), sum(id), sum(n) FROM facts f JOIN picks p \
             ON f.{one} = p.{one} AND f.{other} = p.{other}"
        );
        let kept = kept_by_keys(&fixture, "", &sql);
        assert!(is_narrowed(&kept), "{sql}: {kept:?}");
    }
    for sql in [
        "SELECT count(*), sum(id) FROM facts f LEFT SEMI JOIN picks p ON f.a = p.a AND f.b = p.b",
        "SELECT count(*), sum(id) FROM picks p LEFT JOIN facts f ON f.a = p.a AND f.b = p.b AND f.u16 = p.u16",
        "SELECT count(*), sum(id), sum(n) FROM facts f JOIN picks p ON f.i8 = p.i8 AND f.i16 = p.i16 AND f.u8 = p.u8 \
         AND f.i32 = p.i32",
        "SELECT count(*), sum(id) FROM (SELECT id, a, b FROM facts UNION ALL SELECT -id, b, a FROM facts) f \
         JOIN picks p ON f.a = p.a AND f.b = p.b",
        "SELECT count(*), sum(id) FROM facts f JOIN (SELECT DISTINCT b AS x, a AS y FROM picks) p \
         ON f.a = p.y AND f.b = p.x",
        // Rows without a partner are wanted.
        "SELECT count(*), sum(id), sum(n) FROM facts f FULL JOIN picks p ON f.a = p.a AND f.b = p.b",
        "SELECT count(*), sum(id) FROM facts f LEFT ANTI JOIN picks p ON f.a = p.a AND f.b = p.b",
    ] {
        kept_by_keys(&fixture, "", sql);
    }
}

#[test]
fn keys_of_two_columns_are_those_of_the_rows_that_are_there_now() {
    let fixture = with_pairs();
    let sql =
        "SELECT count(*), sum(id), sum(n) FROM facts f JOIN picks p ON f.a = p.a AND f.b = p.b";
    let before = fixture.rows(sql);
    for (table, added) in [
        (
            "picks",
            [
                "1 AS a, 1 AS b",
                "17 AS a, -3 AS b",
                "NULL AS a, 5 AS b",
                "2 AS a, NULL AS b",
            ],
        ),
        (
            "facts",
            [
                "17 AS a, -3 AS b",
                "NULL AS a, 5 AS b",
                "1000 AS a, 1000 AS b",
                "2 AS a, 2 AS b",
            ],
        ),
    ] {
        for row in added {
            let sql = format!("INSERT INTO {table} SELECT * REPLACE ({row}) FROM {table} LIMIT 1");
            fixture.run(&sql).unwrap();
        }
    }
    assert!(is_narrowed(&kept_by_keys(&fixture, "", sql)));
    assert_ne!(fixture.rows(sql), before);
}

#[test]
fn pairs_of_nulls_are_found_where_they_are_equal() {
    let fixture = with_pairs();
    let both = "SELECT a, b FROM facts INTERSECT SELECT a, b FROM picks";
    kept_by_keys(&fixture, "", both);
    let nulls = format!("SELECT count(*) FROM ({both}) WHERE a IS NULL OR b IS NULL");
    assert_ne!(fixture.rows(&nulls), ["0"]);
    let whole = "SELECT count(*), sum(id) FROM facts f \
         JOIN (SELECT a, b FROM picks WHERE a IS NOT NULL AND b IS NOT NULL) p \
         ON f.a IS NOT DISTINCT FROM p.a AND f.b IS NOT DISTINCT FROM p.b";
    let kept = kept_by_keys(&fixture, "", whole);
    assert!(is_narrowed(&kept), "{kept:?}");
}

/// Texts of few and of many values, short and long ones, and NULL; and 200 that are looked for.
fn with_texts() -> Fixture {
    let fixture = Fixture::new();
    for sql in [
        "CREATE TABLE facts AS SELECT value AS id, concat('word ', value % 1000) AS word, \
         CASE WHEN value % 37 = 0 THEN NULL WHEN value % 41 = 0 THEN '' \
         ELSE concat(repeat('long ', value % 5), value % 20000) END AS t FROM range(60000)",
        "CREATE TABLE picks AS SELECT value AS n, concat('word ', value * 7 % 1000) AS word, \
         CASE WHEN value % 23 = 0 THEN NULL ELSE concat(repeat('long ', value % 5), value * 91) END AS t \
         FROM range(200)",
    ] {
        fixture.run(sql).unwrap();
    }
    fixture
}

/// The rows that the scan of a table gave.
fn rows_of_scan(plan: &[String], table: &str) -> f64 {
    let scan = plan
        .iter()
        .find(|line| line.contains(&format!("table={table},")));
    let rows = scan.and_then(|line| line.split("output_rows=").nth(1));
    let rows = rows.and_then(|rows| rows.split([',', ']']).next()).unwrap();
    match rows.strip_suffix(" K") {
        Some(thousands) => thousands.parse::<f64>().unwrap() * 1000.0,
        None => rows.parse().unwrap(),
    }
}

#[test]
fn scans_give_the_rows_whose_texts_are_keys_of_a_join_above() {
    let fixture = with_texts();
    let own = "SET hotshelf.operators = always;";
    for key in ["t", "word"] {
        let sql = format!(
            "SELECT count(*), sum(id), sum(n) FROM facts f JOIN picks p ON f.{key} = p.{key}"
        );
        kept_by_keys(&fixture, "", &sql);
        let plan = fixture.rows(&format!("{own} EXPLAIN ANALYZE {sql}"));
        let rows = rows_of_scan(&plan, "facts");
        assert!(rows > 0.0 && rows < 13_000.0, "{rows}: {}", plan.join("\n"));
    }
}

#[test]
fn texts_that_are_keys_are_found_by_all_kinds_of_joins() {
    let fixture = with_texts();
    let theirs = "SET datafusion.optimizer.enable_dynamic_filter_pushdown = false; SET hotshelf.operators = off;";
    for sql in [
        "SELECT t FROM facts INTERSECT SELECT t FROM picks",
        "SELECT t FROM picks EXCEPT SELECT t FROM facts",
        "SELECT f.id, p.n FROM picks p LEFT JOIN facts f ON f.t = p.t AND f.id > p.n",
        "SELECT f.id, p.n FROM facts f JOIN picks p ON f.t = p.t AND f.word = p.word",
        "SELECT f.id, p.n FROM facts f JOIN picks p ON f.t = p.t AND f.id = p.n * 91",
        "SELECT f.id FROM facts f WHERE NOT EXISTS (SELECT 1 FROM picks p WHERE p.t = f.t) AND f.id < 500",
        "SELECT f.id FROM facts f JOIN picks p ON concat(f.word, '') = p.word AND f.t = p.t",
        "SELECT f.id, p.n FROM facts f \
         JOIN (SELECT n, arrow_cast(word, 'Dictionary(Int32, Utf8)') AS word FROM picks) p \
         ON f.word = p.word AND f.id < 3000",
        "SELECT f.id, p.n FROM facts f JOIN picks p ON f.t = p.t WHERE p.n < 0",
        "SELECT o.id, f.id AS other FROM facts o JOIN facts f ON o.t = f.t JOIN picks p ON p.t = o.t WHERE f.id < o.id",
    ] {
        let expected = answers(&fixture, theirs, sql);
        for partitions in [1, 4] {
            let own = format!(
                "SET hotshelf.operators = always; SET datafusion.execution.target_partitions = {partitions}; \
                 SET datafusion.optimizer.hash_join_single_partition_threshold = 0; \
                 SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0;"
            );
            let rows = answers(&fixture, &own, sql);
            assert!(
                rows == expected,
                "{sql}: {} rows, not {}",
                rows.len(),
                expected.len()
            );
        }
    }
}
