//! A literal is the number that is written, next to whatever type it stands.

use crate::{Fixture, lines};

#[test]
fn negative_zero_equals_the_zero_of_numbers_that_are_no_floats() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (id INT, c INT, b BIGINT, s SMALLINT, d DECIMAL(8, 2))")
        .unwrap();
    db.run("INSERT INTO t VALUES (1, 0, 0, 0, 0), (2, 5, 5, 5, 5)")
        .unwrap();
    let session = db.database().session();
    session
        .query("PREPARE listed AS SELECT id FROM t WHERE c IN ($1, $2)")
        .unwrap();
    let rows = lines(&session.query("EXECUTE listed(-0.0, 1.5)").unwrap());
    assert_eq!(rows, ["1"]);
    for column in ["c", "b", "s", "d"] {
        for (predicate, id) in [
            ("$ IN (-0.0, 1.5)", "1"),
            ("$ NOT IN (-0.0, 1.5, 2.5, 3.5, 4.5)", "2"),
            ("$ IN (CAST(-0.0 AS DOUBLE), -(0.0), 1.5)", "1"),
            ("$ = -0.0", "1"),
            ("-0.0 < $", "2"),
            ("$ BETWEEN -0.0 AND 1.5", "1"),
            ("$ IS DISTINCT FROM -0.0", "2"),
            ("nullif($, -0.0) IS NULL", "1"),
            ("CASE $ WHEN -0.0 THEN true ELSE false END", "1"),
            ("CASE -0.0 WHEN $ THEN true ELSE false END", "1"),
        ] {
            let predicate = predicate.replace('$', column);
            let rows = db.rows(&format!("SELECT id FROM t WHERE {predicate}"));
            assert_eq!(rows, [id], "{predicate}");
        }
    }
}

#[test]
fn texts_that_are_compared_as_numbers_have_one_zero() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS VALUES ('-0.0'), ('0.0')")
        .unwrap();
    for predicate in [
        "column1 IN (-0.0, 1.5, 2.5, 3.5)",
        "column1 IN (0.0, 1.5)",
        "column1 = -0.0",
        "CASE column1 WHEN 0.0 THEN true END",
        "nullif(column1, 0.0) IS NULL",
    ] {
        let rows = db.rows(&format!("SELECT count(*) FROM t WHERE {predicate}"));
        assert_eq!(rows, ["2"], "{predicate}");
    }
}

#[test]
fn numbers_with_more_digits_than_a_double_are_not_rounded() {
    let db = Fixture::new();
    db.run("CREATE TABLE w (w DECIMAL(38, 0), d DECIMAL(18, 1))")
        .unwrap();
    db.run(
        "INSERT INTO w VALUES (18446744073709551617, 9007199254740993.0), (-9223372036854775809, 0),
         (12345678901234567890123456789012345678, 12345678901234567.0)",
    )
    .unwrap();
    assert_eq!(
        db.rows("SELECT * FROM w ORDER BY w"),
        [
            "-9223372036854775809|0.0",
            "18446744073709551617|9007199254740993.0",
            "12345678901234567890123456789012345678|12345678901234567.0"
        ]
    );
    for (predicate, count) in [
        ("w = 12345678901234567890123456789012345678", "1"),
        ("w = -9223372036854775809", "1"),
        ("w = 18446744073709551617", "1"),
        ("w = 18446744073709551616", "0"),
        ("w > 18446744073709551616", "2"),
        ("d = 12345678901234567.0", "1"),
        ("d = 12345678901234568.0", "0"),
    ] {
        let rows = db.rows(&format!("SELECT count(*) FROM w WHERE {predicate}"));
        assert_eq!(rows, [count], "{predicate}");
    }
}

#[test]
fn numbers_of_many_digits_are_doubles_next_to_doubles() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (f DOUBLE, r REAL)").unwrap();
    db.run(
        "INSERT INTO t VALUES (0.10000000000000001, 0.10000000000000001), (12345678901234567.0, NULL),
         (18446744073709551617, NULL), (-0.30000000000000000001, 1)",
    )
    .unwrap();
    assert_eq!(
        db.rows("SELECT * FROM t ORDER BY f"),
        [
            "-0.3|1.0",
            "0.1|0.1",
            "1.2345678901234568e16|",
            "1.8446744073709552e19|"
        ]
    );
    let session = db.database().session();
    session
        .query("PREPARE equal AS SELECT f FROM t WHERE f = $1")
        .unwrap();
    let rows = lines(&session.query("EXECUTE equal(0.10000000000000001)").unwrap());
    assert_eq!(rows, ["0.1"]);
    for (predicate, found) in [
        ("f = 0.10000000000000001", "0.1"),
        ("f = 0.1000000000000000055511151231257827", "0.1"),
        ("-0.30000000000000000001 = f", "-0.3"),
        ("f IN (0.10000000000000001, 7.5)", "0.1"),
        ("f BETWEEN 0.10000000000000001 AND 1", "0.1"),
        ("f > 12345678901234568.0", "1.8446744073709552e19"),
        ("f = 18446744073709551617", "1.8446744073709552e19"),
        ("f = CAST('-0.3' AS DECIMAL(3, 1))", "-0.3"),
        ("CASE f WHEN 0.10000000000000001 THEN true END", "0.1"),
    ] {
        let rows = db.rows(&format!("SELECT f FROM t WHERE {predicate}"));
        assert_eq!(rows, [found], "{predicate}");
    }
    assert_eq!(
        db.rows("SELECT arrow_typeof(coalesce(f, 0.10000000000000001)) FROM t LIMIT 1"),
        ["Float64"]
    );
}

#[test]
fn numbers_printed_with_the_digits_of_a_double_are_doubles_where_nothing_says_otherwise() {
    let db = Fixture::new();
    let values = "SELECT * FROM (VALUES (1e300), (0.10000000000000001)) ORDER BY 1";
    assert_eq!(db.rows(values), ["0.1", "1e300"]);
    db.run("CREATE TABLE d (d DECIMAL(20, 17))").unwrap();
    db.run("INSERT INTO d VALUES (0.1), (0.10000000000000001), (-0.10000000000000001)")
        .unwrap();
    assert_eq!(
        db.rows("SELECT d FROM d WHERE d = 0.10000000000000001"),
        ["0.10000000000000001"]
    );
    assert_eq!(
        db.rows("SELECT d FROM d WHERE d < 0.1 OR d IN (0.1, 7.5) ORDER BY d"),
        ["-0.10000000000000001", "0.10000000000000000"]
    );
}

#[test]
fn the_places_of_round_settle_the_type_of_a_case() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (d DECIMAL(38, 10))").unwrap();
    db.run("INSERT INTO t VALUES (1.239), (0), (NULL)").unwrap();
    for (value, expected) in [
        (
            "CASE WHEN d = 0 THEN d ELSE round(d, 2) END",
            ["0.0000000000", "1.2400000000", ""],
        ),
        (
            "CASE WHEN d = 0 THEN 100.0 ELSE round(d, 2) END",
            ["100.00", "1.24", ""],
        ),
        ("coalesce(round(d, 1), 7)", ["0.0", "1.2", "7.0"]),
        ("round(d, 2)", ["0.00", "1.24", ""]),
        ("round(d, -1)", ["0", "0", ""]),
        ("round(d)", ["0", "1", ""]),
    ] {
        let rows = db.rows(&format!("SELECT {value} AS v FROM t ORDER BY d"));
        assert_eq!(rows, expected, "{value}");
    }
    assert_eq!(db.rows("SELECT max(round(d, 2)) FROM t"), ["1.24"]);
}

#[test]
fn decimals_are_rounded_to_one_type_whatever_says_the_places() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (d DECIMAL(38, 10), e DECIMAL(12, 4), n INT)")
        .unwrap();
    db.run("INSERT INTO t VALUES (1.239, 1.2399, 1), (-5.555, -5.5555, 1), (NULL, 7, 1)")
        .unwrap();
    let places = [
        "1",
        "3-2",
        "1+0",
        "CAST(1 AS BIGINT)",
        "'1'::INT",
        "arrow_cast(1, 'UInt8')",
        "n",
        "abs(-1)",
        "(SELECT max(n) FROM t)",
    ];
    for one in places {
        for two in ["1", "3-2", "n"] {
            let both = |query: &str| {
                query
                    .replace("E1", &format!("round(e, {one})"))
                    .replace("D1", &format!("round(d, {two})"))
            };
            for (query, expected) in [
                (
                    "SELECT count(*) FROM t a, (SELECT D1 AS k FROM t) b WHERE E1 = k",
                    "2",
                ),
                ("SELECT count(*) FROM t WHERE E1 IN (SELECT D1 FROM t)", "2"),
                (
                    "SELECT count(*) FROM t WHERE E1 NOT IN (SELECT D1 FROM t WHERE d IS NOT NULL)",
                    "1",
                ),
                (
                    "SELECT count(*) FROM t x WHERE EXISTS (SELECT 1 FROM t WHERE D1 = x.e) OR E1 = D1",
                    "2",
                ),
                (
                    "SELECT count(*) FROM (SELECT E1 FROM t INTERSECT SELECT D1 FROM t) u",
                    "2",
                ),
                ("SELECT count(*) FROM t WHERE E1 = 1.2", "1"),
                ("SELECT count(*) FROM t WHERE E1 > 0.5 AND D1 > 0", "1"),
                (
                    "SELECT count(*) FROM (SELECT E1 AS r FROM t GROUP BY 1 HAVING r > 0) u",
                    "2",
                ),
                (
                    "SELECT count(*) FROM (SELECT unnest([E1, e, D1]) AS v FROM t) u WHERE v > 1.2",
                    "3",
                ),
                (
                    "SELECT sum(CASE WHEN E1 = 0 THEN e ELSE coalesce(D1, 0.05) END) = -4.35 FROM t",
                    "true",
                ),
            ] {
                let query = both(query);
                assert_eq!(db.rows(&query), [expected], "{query}");
            }
        }
        db.run(&format!(
            "CREATE OR REPLACE VIEW v AS SELECT round(e, {one}) AS r, e, d FROM t"
        ))
        .unwrap();
        assert_eq!(
            db.rows("SELECT count(*) FROM v WHERE r > 1.2"),
            ["1"],
            "{one}"
        );
        assert_eq!(
            db.rows("SELECT count(*) FROM v WHERE coalesce(r, 1) = round(d, 1)"),
            ["2"],
            "{one}"
        );
    }
    let session = db.database().session();
    session
        .query("PREPARE p(BIGINT) AS SELECT count(*) FROM t a JOIN t b ON round(a.e, $1 + 0) = round(b.d, $1 + 0)")
        .unwrap();
    assert_eq!(lines(&session.query("EXECUTE p(1)").unwrap()), ["2"]);
    let error = db.error("SELECT round(d, 3000000000) FROM t").to_string();
    assert!(error.contains("places 3000000000"), "{error}");
}

#[test]
fn literals_in_keys_of_grouping_sets_keep_the_names_of_the_keys() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT CAST(value AS INT) AS id, CAST(value * 1.37 AS DECIMAL(12, 2)) AS y,
         CAST(value AS DOUBLE) AS k FROM range(10)",
    )
    .unwrap();
    for (key, expected) in [
        ("y > 4.68", vec!["false|4", "true|6", "|10"]),
        ("k = 0", vec!["false|9", "true|1", "|10"]),
        (
            "CASE WHEN y > 4.68 THEN 1 ELSE 0 END",
            vec!["0|4", "1|6", "|10"],
        ),
        ("round(y, -1)", vec!["0|4", "10|6", "|10"]),
        ("round(y / 100, 3 - 3)", vec!["0|10", "|10"]),
        (
            "y IN (1.37, 2.74) OR y IN (4.11)",
            vec!["false|7", "true|3", "|10"],
        ),
        (
            "id IN (SELECT max(id) FROM t)",
            vec!["false|9", "true|1", "|10"],
        ),
    ] {
        for sets in ["ROLLUP ($)", "CUBE ($)", "GROUPING SETS (($), ())"] {
            let sets = sets.replace('$', key);
            let query =
                format!("SELECT {key} AS a, count(*) AS n FROM t GROUP BY {sets} ORDER BY 1");
            assert_eq!(db.rows(&query), expected, "{query}");
            let having = query.replace("ORDER BY", &format!("HAVING ({key}) IS NULL ORDER BY"));
            assert_eq!(db.rows(&having), ["|10"], "{having}");
        }
    }
}
