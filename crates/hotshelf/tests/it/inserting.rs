//! What an INSERT stores is what its query gives, or it fails.

use crate::Fixture;

fn table() -> Fixture {
    let db = Fixture::new();
    db.run("CREATE TABLE t (k INT, i INT, b BIGINT, d DECIMAL(20, 1), s VARCHAR)")
        .unwrap();
    db
}

#[test]
fn nothing_is_rounded_wherever_the_value_stands() {
    let db = table();
    for (columns, rows) in [
        ("i", "VALUES (2.5)"),
        ("i", "VALUES (coalesce(NULL, 2.5))"),
        ("b", "VALUES (1), (CASE WHEN 1 = 2 THEN 1 ELSE 2.5 END)"),
        ("i", "VALUES (1/2.0)"),
        ("i", "SELECT coalesce(NULL, 2.5)"),
        ("k, i", "VALUES (1, 1), (1, 2.5)"),
        ("k, i", "(VALUES (1, 1), (1, 2.5)) ORDER BY 1"),
        ("k, i", "VALUES (1, 1), (1, 2.5) LIMIT 5"),
        ("k, i", "SELECT 1, 3 UNION ALL SELECT 1, 2.5"),
        ("k, b", "SELECT 1, 3 UNION SELECT 1, 2.5"),
        ("k, i", "SELECT * FROM (VALUES (1, 2.5), (2, 3))"),
        (
            "i",
            "SELECT CASE WHEN value = 1 THEN 1 ELSE 2.5 END FROM range(3)",
        ),
        (
            "b",
            "SELECT CASE WHEN value = 1 THEN 1 ELSE 2.5 END FROM range(3)",
        ),
        ("i", "WITH w AS (SELECT 2.5 AS x) SELECT x FROM w"),
        ("b, i", "VALUES (9007199254740993, 1), (0.5, 1)"),
        ("i", "VALUES (3000000000)"),
        ("d", "VALUES ('1.25')"),
    ] {
        let insert = format!("INSERT INTO t ({columns}) {rows}");
        let error = db.error(&insert);
        assert_eq!(error.code(), "misfit", "{insert}: {error}");
        let last = columns.split(", ").map(|name| format!("column '{name}'"));
        let text = error.to_string();
        assert!(
            last.into_iter().any(|name| text.contains(&name)),
            "{insert}: {text}"
        );
        assert_eq!(db.rows("SELECT count(*) FROM t"), ["0"], "{insert}");
    }
}

#[test]
fn each_of_the_values_keeps_its_own_type() {
    let db = table();
    db.run(
        "INSERT INTO t (b, d, s) VALUES (9007199254740993, 0.5, 7), (2.0, 9007199254740993, 'x'),
         (CAST(2.5 AS INT), CAST(2.75 AS DECIMAL(8, 1)), NULL), (NULL, '1.50', DATE '2024-01-02')",
    )
    .unwrap();
    assert_eq!(
        db.rows("SELECT b, d, s FROM t ORDER BY b NULLS FIRST, d DESC"),
        [
            "|1.5|2024-01-02",
            "2|9007199254740993.0|x",
            "2|2.8|",
            "9007199254740993|0.5|7"
        ]
    );
}

#[test]
fn queries_within_an_insert_have_columns_of_their_own() {
    let db = table();
    db.run(
        "INSERT INTO t (s, k) SELECT c, a FROM (VALUES (1, 2.5, 'x'), (2, 3.5, 'y')) v(a, b, c)",
    )
    .unwrap();
    db.run("INSERT INTO t (k, s) VALUES (7, 'b'), (6, 'a') ORDER BY 1 LIMIT 1")
        .unwrap();
    assert_eq!(
        db.rows("SELECT k, i, s FROM t ORDER BY k"),
        ["1||x", "2||y", "6||a"]
    );
    for (statement, says) in [
        (
            "INSERT INTO t (k, i) VALUES (1, 2), (3)",
            "differ in length",
        ),
        ("INSERT INTO t (k, i) VALUES (1, 2, 3)", "Column count"),
        ("INSERT INTO t (k, i) SELECT 1", "Column count"),
        ("INSERT INTO t (k, k) VALUES (1, 2)", "k"),
        ("INSERT INTO t (nothing) VALUES (1)", "nothing"),
        ("INSERT INTO nowhere VALUES (1)", "nowhere"),
        ("INSERT INTO t (k) VALUES (c0)", "c0"),
    ] {
        let error = db.error(statement).to_string();
        assert!(error.contains(says), "{statement}: {error}");
    }
    assert_eq!(db.rows("SELECT count(*) FROM t"), ["3"]);
}

#[test]
fn prepared_inserts_take_values_as_they_are() {
    let db = table();
    let session = db.database().session();
    let run = |sql: &str| session.query(sql).map_err(|error| error.code().to_string());
    run("PREPARE two AS INSERT INTO t (k, s) VALUES ($1 + 1, $2), (0, 'x')").unwrap();
    run("EXECUTE two(4, 'y')").unwrap();
    assert_eq!(run("EXECUTE two(2.5, 'y')").err(), Some("misfit".into()));
    run("PREPARE one(INT) AS INSERT INTO t (k) SELECT $1 + 100").unwrap();
    run("EXECUTE one(3)").unwrap();
    run("PREPARE some(INT, DOUBLE) AS INSERT INTO t (k, i) VALUES ($1, $2)").unwrap();
    run("EXECUTE some(20, 21)").unwrap();
    assert_eq!(run("EXECUTE some(20, 21.5)").err(), Some("misfit".into()));
    assert_eq!(
        db.rows("SELECT k, i, s FROM t ORDER BY k"),
        ["0||x", "5||y", "20|21|", "103||"]
    );
    let plan = db.rows("EXPLAIN INSERT INTO t (k) VALUES (2.0)").join("\n");
    assert!(plan.contains("HotshelfAppend"), "{plan}");
}

#[test]
fn a_null_for_a_column_without_nulls_is_named() {
    let db = Fixture::new();
    db.run("CREATE TABLE n (a INT NOT NULL, b INT)").unwrap();
    for rows in [
        "VALUES (NULL, 1)",
        "VALUES (1, 1), (NULL, 1)",
        "SELECT NULL, 1",
        "SELECT nullif(value, 2), 1 FROM range(5)",
        "(b) SELECT 1",
    ] {
        let separator = if rows.starts_with('(') { "" } else { " " };
        let error = db.error(&format!("INSERT INTO n{separator}{rows}"));
        assert!(error.to_string().contains("column 'a'"), "{rows}: {error}");
        assert!(
            error.hint().is_some_and(|hint| hint.contains("NOT NULL")),
            "{rows}"
        );
    }
    db.run("INSERT INTO n VALUES (1, NULL)").unwrap();
    assert_eq!(db.rows("SELECT * FROM n"), ["1|"]);
}

#[test]
fn many_values_are_inserted_at_once() {
    let db = table();
    let rows: Vec<String> = (0..3_000).map(|k| format!("({k}, {k}, 'n{k}')")).collect();
    db.run(&format!(
        "INSERT INTO t (k, i, s) VALUES {}",
        rows.join(", ")
    ))
    .unwrap();
    assert_eq!(
        db.rows("SELECT count(*), sum(k), max(i), count(DISTINCT s) FROM t"),
        ["3000|4498500|2999|3000"]
    );
}

#[test]
fn decimals_are_what_floats_and_texts_are_shown_as() {
    let db = Fixture::new();
    db.run("CREATE TABLE n (a DECIMAL(38, 10), b DECIMAL(18, 1), c DECIMAL(15, 5))")
        .unwrap();
    db.run(
        "INSERT INTO n VALUES (CAST(4294967295 AS DOUBLE), CAST(9007199254740994 AS DOUBLE), CAST(999.99 AS FLOAT)),
         ('1e10', '1.5e1', '-25e-5')",
    )
    .unwrap();
    assert_eq!(
        db.rows("SELECT * FROM n ORDER BY a"),
        [
            "4294967295.0000000000|9007199254740994.0|999.99000",
            "10000000000.0000000000|15.0|-0.00025"
        ]
    );
    for value in ["'1e-2'", "CAST(0.25 AS DOUBLE)", "CAST(0.25 AS FLOAT)"] {
        let error = db.error(&format!("INSERT INTO n (b) SELECT {value}"));
        assert_eq!(error.code(), "misfit", "{value}: {error}");
    }
}

#[test]
fn texts_of_dates_and_times_are_not_cut() {
    let db = Fixture::new();
    db.run("CREATE TABLE n (d DATE, s TIMESTAMP, t TIME)")
        .unwrap();
    for (column, text) in [
        ("d", "2020-01-01 12:00:00"),
        ("s", "2020-01-01 00:00:00.1234567891"),
        ("t", "10:00:00.1234567891"),
    ] {
        let error = db.error(&format!("INSERT INTO n ({column}) VALUES ('{text}')"));
        assert_eq!(error.code(), "misfit", "{text}: {error}");
    }
    db.run(
        "INSERT INTO n VALUES ('2020-01-01 00:00:00', '2020-01-01 00:00:00.1234567890', '10:00:00.123456789')",
    )
    .unwrap();
    assert_eq!(
        db.rows("SELECT * FROM n"),
        ["2020-01-01|2020-01-01T00:00:00.123456789|10:00:00.123456789"]
    );
}

#[test]
fn parameters_keep_their_values_in_the_types_of_prepare() {
    let db = Fixture::new();
    db.run("CREATE TABLE n (a INT, c DECIMAL(10, 2), d DATE)")
        .unwrap();
    let session = db.database().session();
    for sql in [
        "PREPARE p(INT, DECIMAL(10, 2)) AS INSERT INTO n (a, c) VALUES ($1, $2)",
        "PREPARE q(DATE) AS SELECT a FROM n WHERE d = $1",
        "EXECUTE p(52.0, '1.5')",
        "EXECUTE p(NULL, 1.25)",
        "EXECUTE q(TIMESTAMP '2020-01-01 00:00:00')",
    ] {
        session.query(sql).unwrap();
    }
    for (sql, says) in [
        ("EXECUTE p(50.6, 1)", "parameter $1: '50.6'"),
        ("EXECUTE p(51, 1.239)", "parameter $2: '1.239'"),
        ("EXECUTE q(TIMESTAMP '2020-01-01 23:00:00')", "parameter $1"),
    ] {
        let error = session.query(sql).unwrap_err();
        assert_eq!(error.code(), "misfit", "{sql}: {error}");
        assert!(error.to_string().contains(says), "{sql}: {error}");
    }
    assert_eq!(
        db.rows("SELECT a, c FROM n ORDER BY c"),
        ["|1.25", "52|1.50"]
    );
}

#[test]
fn values_may_ask_queries() {
    let db = Fixture::new();
    db.run("CREATE TABLE n (a INT, c DECIMAL(10, 2))").unwrap();
    for rows in [
        "((SELECT 1), 1.5), (2, 9007199.5), (3, (SELECT 2.25)), (4, NULL)",
        "((SELECT max(a) + 1 FROM n), (SELECT count(*) FROM n))",
        "((SELECT a FROM n WHERE a > 100), CASE WHEN EXISTS (SELECT 1 FROM n) THEN 7 END)",
    ] {
        db.run(&format!("INSERT INTO n VALUES {rows}")).unwrap();
    }
    assert_eq!(
        db.rows("SELECT * FROM n ORDER BY a"),
        ["1|1.50", "2|9007199.50", "3|2.25", "4|", "5|4.00", "|7.00"]
    );
    let error = db.error("INSERT INTO n (a) VALUES (1), ((SELECT 2.5))");
    assert_eq!(error.code(), "misfit", "{error}");
    assert_eq!(
        db.rows("SELECT * FROM (VALUES ((SELECT 1), 'x'), (2, 'y')) ORDER BY 1"),
        ["1|x", "2|y"]
    );
}

#[test]
fn default_as_a_value_is_refused_with_what_to_do() {
    let error = table().error("INSERT INTO t (k, i) VALUES (1, 2), (DEFAULT, 1)");
    assert_eq!(error.code(), "not_supported");
    assert!(error.to_string().contains("DEFAULT"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("NULL")));
}

#[test]
fn nulls_inside_values_have_the_types_of_the_column() {
    let db = Fixture::new();
    db.run("CREATE TABLE s AS SELECT {'a': {'b': 1}, 'c': 2} AS s")
        .unwrap();
    db.run("INSERT INTO s VALUES ({'a': NULL, 'c': 5})")
        .unwrap();
    let rows = db.rows("SELECT s['a']['b'], s['c'] AS c FROM s ORDER BY c");
    assert_eq!(rows, ["1|2", "|5"]);
    db.run("CREATE TABLE m AS VALUES (MAP {'k': 1})").unwrap();
    db.run("INSERT INTO m VALUES (MAP {'k': NULL})").unwrap();
    let values = db.rows("SELECT map_values(column1)[1] AS v FROM m ORDER BY v");
    assert_eq!(values, ["1", ""]);
    db.run("CREATE TABLE l AS SELECT [1, 2] AS l").unwrap();
    db.run("INSERT INTO l VALUES ([NULL])").unwrap();
    let lens = db.rows("SELECT array_length(l) AS n, l[1] FROM l ORDER BY n");
    assert_eq!(lens, ["1|", "2|1"]);
    let error = db.run("INSERT INTO s VALUES ({'a': NULL, 'c': 0.5})");
    assert!(error.unwrap_err().to_string().contains("does not fit"));
}
