//! Subqueries: right answers, or refusals where the engine would be wrong.

use super::Fixture;
use super::answers::{sorted, with_nulls};

#[test]
fn not_in_a_subquery_with_nulls_is_unknown_wherever_it_stands() {
    let db = with_nulls();
    for (predicate, rows) in [
        ("a NOT IN (SELECT b FROM s)", vec![]),
        ("NOT (a IN (SELECT b FROM s))", vec![]),
        ("a < 0 OR a NOT IN (SELECT b FROM s)", vec![]),
        ("a = 3 OR a NOT IN (SELECT b FROM s)", vec!["3"]),
        ("NOT (a IN (SELECT b FROM s) OR a > 9)", vec![]),
        ("(a IN (SELECT b FROM s)) IS NULL", vec!["", "2", "3"]),
        (
            "a < 0 OR a NOT IN (SELECT b FROM s WHERE b > 0)",
            vec!["2", "3"],
        ),
        (
            "a < 0 OR a NOT IN (SELECT b FROM s WHERE b > 9)",
            vec!["", "1", "2", "3"],
        ),
        ("a NOT IN (SELECT b FROM s WHERE s.k = t.a)", vec!["", "3"]),
        (
            "a = 9 OR a NOT IN (SELECT b FROM s WHERE s.k = t.a)",
            vec!["", "3"],
        ),
        ("a IN (SELECT b FROM s) OR a = 2", vec!["1", "2"]),
        (
            "CASE WHEN a IN (SELECT b FROM s) THEN false ELSE true END",
            vec!["", "2", "3"],
        ),
    ] {
        let sql = format!("SELECT a FROM t WHERE {predicate}");
        assert_eq!(sorted(&db, &sql), rows, "{predicate}");
    }
    assert_eq!(
        sorted(&db, "SELECT a, a NOT IN (SELECT b FROM s) AS n FROM t"),
        ["1|false", "2|", "3|", "|"]
    );
}

#[test]
fn subqueries_are_tested_in_a_select_list() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1), (2), (NULL)) v(a)")
        .unwrap();
    db.run("CREATE TABLE s AS SELECT * FROM (VALUES (1), (3)) v(b)")
        .unwrap();
    for (sql, expected) in [
        ("SELECT 1 IN (SELECT 2)", vec!["false"]),
        ("SELECT 3 IN (SELECT b FROM s)", vec!["true"]),
        ("SELECT 3 NOT IN (SELECT b FROM s)", vec!["false"]),
        (
            "SELECT exists(SELECT 1), NOT exists(SELECT 1 WHERE false)",
            vec!["true|true"],
        ),
        (
            "SELECT CASE WHEN EXISTS (SELECT 1 FROM s) THEN 'some' ELSE 'none' END",
            vec!["some"],
        ),
        (
            "SELECT a, exists(SELECT 1 FROM s WHERE b = a) FROM t ORDER BY a",
            vec!["1|true", "2|false", "|false"],
        ),
        (
            "SELECT a, a IN (SELECT b FROM s) FROM t ORDER BY a",
            vec!["1|true", "2|false", "|"],
        ),
        (
            "SELECT a, a = ANY (SELECT b FROM s) FROM t ORDER BY a",
            vec!["1|true", "2|false", "|"],
        ),
        (
            "SELECT 2 < ANY (SELECT b FROM s), 2 > ALL (SELECT b FROM s)",
            vec!["true|false"],
        ),
        (
            "SELECT 5 > ALL (SELECT b FROM s), 6 > ALL (SELECT a FROM t)",
            vec!["true|"],
        ),
        (
            "SELECT count(*) FILTER (WHERE a IN (SELECT b FROM s)) FROM t",
            vec!["1"],
        ),
    ] {
        assert_eq!(db.rows(sql), expected, "{sql}");
    }
}

#[test]
fn aggregates_without_rows_count_as_a_row() {
    let db = with_nulls();
    for sql in [
        "SELECT count(*) FROM t WHERE exists(SELECT max(k) FROM s WHERE false)",
        "SELECT count(*) FROM t WHERE (SELECT count(*) FROM s WHERE s.b = t.a) >= 0",
        "SELECT count(*) FROM t WHERE (SELECT 1 + coalesce(max(k), 0) FROM s WHERE s.b = t.a) > 0",
    ] {
        assert_eq!(db.rows(sql), ["4"], "{sql}");
    }
    db.run("SELECT a FROM t WHERE exists(SELECT 1 FROM s LEFT JOIN s r ON r.k = s.k WHERE s.b = t.a GROUP BY s.b)")
        .unwrap();
}

#[test]
fn a_correlated_subquery_inside_an_aggregate_answers() {
    let db = with_nulls();
    assert_eq!(
        db.rows("SELECT sum((SELECT max(s.k) FROM s WHERE s.b = t.a)) AS n, count(*) FROM t"),
        ["1|4"]
    );
    assert_eq!(
        sorted(
            &db,
            "SELECT a > 1 AS g, max((SELECT count(*) FROM s WHERE s.k = t.a)) AS n FROM t GROUP BY a > 1"
        ),
        ["false|1", "true|1", "|0"]
    );
    assert_eq!(
        db.rows("SELECT sum((SELECT max(s.k) FROM s WHERE s.k < t.a)) AS n FROM t"),
        ["3"]
    );
}

#[test]
fn a_lateral_aggregate_answers_for_rows_without_matches_too() {
    let db = with_nulls();
    for (lateral, expected) in [
        (
            "SELECT count(*) AS n FROM s WHERE s.b = t.a",
            ["1|1", "2|0", "3|0", "|0"],
        ),
        (
            "SELECT max(k) AS n FROM s WHERE s.b = t.a",
            ["1|1", "2|", "3|", "|"],
        ),
        (
            "SELECT 1 + coalesce(sum(k), 6) AS n FROM s WHERE s.b = t.a",
            ["1|2", "2|7", "3|7", "|7"],
        ),
    ] {
        for join in ["CROSS JOIN", "LEFT JOIN"] {
            let on = if join == "LEFT JOIN" { "ON true" } else { "" };
            let sql = format!("SELECT a, n FROM t {join} LATERAL ({lateral}) r {on}");
            assert_eq!(sorted(&db, &sql), expected, "{sql}");
        }
    }
}
