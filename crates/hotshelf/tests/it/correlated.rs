//! Correlated subqueries of every shape: each answers as it does with the values around it written in its place.

use super::Fixture;
use super::answers::sorted;

fn tables() -> Fixture {
    let db = Fixture::new();
    for sql in [
        "CREATE TABLE t AS SELECT * FROM (VALUES (1, 10, 'x'), (2, 20, 'y'), (3, NULL, 'x'), \
         (NULL, 20, NULL), (2, 20, 'y'), (7, 5, 'z')) v(a, b, c)",
        "CREATE TABLE s AS SELECT * FROM (VALUES (1, 1, 100), (2, 2, NULL), (3, 20, 50), \
         (2, 20, 60), (2, 1, 60), (NULL, 5, 70), (4, NULL, 80)) v(k, m, d)",
        "CREATE TABLE u AS SELECT * FROM (VALUES (1, 1), (2, 2), (20, 3), (NULL, 4), (5, NULL)) v(x, y)",
    ] {
        db.run(sql).unwrap();
    }
    db
}

/// Subqueries of at most one row and one column. `{a}` and `{b}` are columns of the row around it.
const VALUES: [&str; 30] = [
    "SELECT max(d) FROM s WHERE s.k < {a}",
    "SELECT count(*) FROM s WHERE s.k < {a} OR s.m = {b}",
    "SELECT count(*) + 1 FROM s WHERE s.m IS NOT DISTINCT FROM {b}",
    "SELECT d FROM s WHERE s.k = {a} ORDER BY d DESC NULLS LAST, m LIMIT 1",
    "SELECT k FROM s WHERE s.m < {b} ORDER BY m, k LIMIT 1 OFFSET 1",
    "SELECT {a} + {b}",
    "SELECT {a} WHERE {b} > 10",
    "SELECT {b} LIMIT 1",
    "SELECT count(*) FROM s WHERE s.k < {a} GROUP BY {b}",
    "SELECT max(d) FROM s WHERE s.k = {a} GROUP BY {a}, {b}, s.k, s.k",
    "SELECT sum(n + c) FROM (SELECT count(*) AS n, {b} AS b, s.m AS c FROM s WHERE s.k <= {a} GROUP BY {b}, s.m) g",
    "SELECT max({b} + d) FROM s WHERE s.k = {a}",
    "SELECT {b} + max(d) FROM s WHERE s.k = {a}",
    "SELECT sum(n) FROM (SELECT count(*) AS n FROM s WHERE s.k <= {a} GROUP BY s.m) g",
    "SELECT count(*) FROM s WHERE s.k = {a} HAVING count(*) > 1",
    "SELECT DISTINCT count(*) FROM s WHERE s.k = {a}",
    "SELECT count(*) FROM (SELECT DISTINCT m FROM s WHERE s.k = {a}) g",
    "SELECT count(*) FROM s LEFT JOIN u ON u.x = s.k AND u.y = {a}",
    "SELECT count(u.x) FROM u RIGHT JOIN s ON u.x = s.k AND u.y <= {a}",
    "SELECT count(r.x) FROM s LEFT JOIN (SELECT x FROM u WHERE u.y >= {a}) r ON r.x = s.k",
    "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY d, m) AS n FROM s WHERE s.k >= {a}) g",
    "SELECT sum(v) FROM (SELECT d AS v FROM s WHERE s.k = {a} UNION ALL SELECT x FROM u WHERE u.y < {a}) g",
    "SELECT count(*) FROM (SELECT k FROM s WHERE s.m < {b} INTERSECT SELECT x FROM u WHERE u.y <= {a}) g",
    "SELECT count(*) FROM (SELECT k FROM s WHERE s.m < {b} EXCEPT SELECT x FROM u WHERE u.y <= {a}) g",
    "SELECT count(*) FROM s WHERE s.k < {a} AND EXISTS (SELECT 1 FROM u WHERE u.x = s.m)",
    "SELECT count(*) FROM s WHERE s.k < {a} AND s.m NOT IN (SELECT x FROM u WHERE u.y = s.k)",
    "SELECT min(d) FROM s, u WHERE s.k = u.x AND u.y + s.m > {a} + 1",
    "SELECT max(d) FROM (SELECT * FROM s WHERE s.m < {b} ORDER BY d LIMIT 2) g",
    "WITH w AS (SELECT d FROM s WHERE s.k = {a}) SELECT count(*) FROM w",
    "SELECT count(*) FROM s WHERE s.k = {a} AND s.m > (SELECT avg(u.y) FROM u WHERE u.x < s.d)",
];

/// Subqueries of any number of rows, of numbers.
const ROWS: [&str; 14] = [
    "SELECT s.m FROM s WHERE s.k < {a}",
    "SELECT s.m FROM s WHERE s.k = {a} OR s.d > {b} + 40",
    "SELECT max(s.m) FROM s WHERE s.k = {a}",
    "SELECT count(*) FROM s WHERE s.k = {a}",
    "SELECT s.m FROM s WHERE s.k <= {a} ORDER BY s.d, s.m LIMIT 2",
    "SELECT s.m FROM s WHERE s.k = {a} OFFSET 1",
    "SELECT {b}",
    "SELECT s.m FROM s WHERE s.m + {a} > 3",
    "SELECT s.m FROM s WHERE s.k < {a} UNION SELECT u.x FROM u WHERE u.y = {a}",
    "SELECT s.m FROM s LEFT JOIN u ON u.x = s.k AND u.y = {a} WHERE u.x IS NULL",
    "SELECT row_number() OVER (ORDER BY d, m) FROM s WHERE s.k = {a}",
    "SELECT s.m FROM s GROUP BY s.m HAVING count(*) < {a}",
    "SELECT u.x FROM u WHERE u.y > {a} AND u.x IN (SELECT s.m FROM s WHERE s.d > 50)",
    "SELECT CAST(NULL AS BIGINT) FROM s WHERE s.k > {a}",
];

/// What `select` is for each row of `t`.
fn row_by_row(db: &Fixture, select: &dyn Fn(&str, &str) -> String) -> Vec<String> {
    let of_row = |row: String| {
        let cells: Vec<String> = row.split('|').map(literal).collect();
        format!("({})", select(&cells[0], &cells[1]))
    };
    let rows = db.rows("SELECT a, b FROM t").into_iter().map(of_row);
    let rows: Vec<String> = rows.collect();
    sorted(db, &rows.join(" UNION ALL "))
}

fn literal(cell: &str) -> String {
    match cell {
        "" => "CAST(NULL AS BIGINT)".into(),
        value => format!("CAST({value} AS BIGINT)"),
    }
}

fn with(text: &str, a: &str, b: &str) -> String {
    text.replace("{a}", a).replace("{b}", b)
}

#[test]
fn a_value_is_that_of_the_row_around_it() {
    let db = tables();
    for text in VALUES {
        let value = with(text, "t.a", "t.b");
        let found = sorted(&db, &format!("SELECT a, b, ({value}) AS v FROM t"));
        let expected = row_by_row(&db, &|a, b| {
            format!("SELECT {a}, {b}, ({}) AS v", with(text, a, b))
        });
        assert_eq!(found, expected, "{text}");
        db.run(&format!(
            "CREATE OR REPLACE VIEW w AS SELECT a, b, ({value}) AS v FROM t"
        ))
        .unwrap();
        assert_eq!(sorted(&db, "SELECT * FROM w"), expected, "view of {text}");
        let found = sorted(
            &db,
            &format!("SELECT a FROM t WHERE b > 5 AND ({value}) > 1"),
        );
        let expected = row_by_row(&db, &|a, b| {
            format!("SELECT {a} WHERE {b} > 5 AND ({}) > 1", with(text, a, b))
        });
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn tests_of_rows_are_those_of_the_row_around_them() {
    let db = tables();
    for text in ROWS {
        let rows = with(text, "t.a", "t.b");
        for test in [
            "EXISTS ({})",
            "NOT EXISTS ({})",
            "{b} IN ({})",
            "{b} NOT IN ({})",
            "{b} > ANY ({})",
            "{b} < ALL ({})",
            "({b} IN ({})) IS NULL",
            "EXISTS ({}) OR {a} = 3",
        ] {
            let correlated = with(&test.replace("{}", &rows), "t.a", "t.b");
            let alone = |a: &str, b: &str| with(&test.replace("{}", &with(text, a, b)), a, b);
            let found = sorted(&db, &format!("SELECT a, {correlated} AS v FROM t"));
            let expected = row_by_row(&db, &|a, b| format!("SELECT {a}, {} AS v", alone(a, b)));
            assert_eq!(found, expected, "{correlated}");
            let found = sorted(&db, &format!("SELECT a FROM t WHERE {correlated}"));
            let kept = expected.iter().filter_map(|row| row.strip_suffix("|true"));
            let mut kept: Vec<&str> = kept.collect();
            kept.sort_unstable();
            assert_eq!(found, kept, "{correlated}");
        }
    }
}

#[test]
fn lateral_rows_are_those_of_the_row_beside_them() {
    let db = tables();
    for text in VALUES.into_iter().chain(ROWS) {
        let rows = with(text, "t.a", "t.b");
        let found = sorted(&db, &format!("SELECT a, v FROM t, LATERAL ({rows}) r(v)"));
        let expected = row_by_row(&db, &|a, b| {
            format!("SELECT {a}, v FROM ({}) r(v)", with(text, a, b))
        });
        assert_eq!(found, expected, "{text}");
        let join = format!("LEFT JOIN LATERAL ({rows}) r(v) ON v > 2");
        let found = sorted(&db, &format!("SELECT a, v FROM t {join}"));
        let expected = row_by_row(&db, &|a, b| {
            let rows = with(text, a, b);
            format!("SELECT {a}, v FROM (SELECT 1) o LEFT JOIN ({rows}) r(v) ON v > 2")
        });
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn subqueries_stand_in_conditions_of_joins_orders_and_windows() {
    let db = tables();
    for (sql, expected) in [
        (
            "SELECT t.a, s.d FROM t JOIN s ON t.a = s.k AND EXISTS (SELECT 1 FROM u WHERE u.x = s.m AND u.y < t.a + 2)",
            vec!["1|100", "2|", "2|", "2|60", "2|60", "2|60", "2|60", "3|50"],
        ),
        (
            "SELECT a FROM t WHERE a > 0 ORDER BY (SELECT max(d) FROM s WHERE s.k <= t.a), a DESC LIMIT 2",
            vec!["3", "7"],
        ),
        (
            "SELECT t.a AS x FROM t WHERE a > 0 \
             ORDER BY (SELECT count(*) FROM s WHERE s.k < t.a AND s.m < t.b), x LIMIT 2",
            vec!["1", "3"],
        ),
        (
            "SELECT t.c FROM t WHERE a > 0 \
             ORDER BY (SELECT count(*) FROM s WHERE s.k < (SELECT max(x) FROM u WHERE u.y < t.a)) DESC, c LIMIT 1",
            vec!["z"],
        ),
        (
            "SELECT t.a, r.x FROM t, LATERAL (SELECT u.x FROM u, LATERAL (SELECT s.d FROM s WHERE s.k = u.y) q \
             WHERE u.y = t.a) r",
            vec!["1|1", "2|2", "2|2", "2|2", "2|2", "2|2", "2|2", "3|20"],
        ),
        (
            "SELECT a, (SELECT d FROM s WHERE s.k = t.a ORDER BY d NULLS LAST LIMIT 1) AS x, \
             (SELECT m FROM s WHERE s.k < t.a ORDER BY m DESC NULLS LAST LIMIT 1) AS y FROM t WHERE a < 3",
            vec!["1|100|", "2|60|1", "2|60|1"],
        ),
        (
            "SELECT a FROM t WHERE (SELECT m FROM s WHERE s.k <= t.a ORDER BY m LIMIT 1) = 1 \
             AND (SELECT k FROM s WHERE s.k > t.a ORDER BY k LIMIT 1) < 4",
            vec!["1", "2", "2"],
        ),
        (
            "SELECT a, sum((SELECT count(*) FROM s WHERE s.k < t.a)) OVER () AS n FROM t",
            vec!["1|12", "2|12", "2|12", "3|12", "7|12", "|12"],
        ),
    ] {
        assert_eq!(sorted(&db, sql), expected, "{sql}");
    }
}

#[test]
fn two_rows_are_not_one_value() {
    let db = tables();
    assert_eq!(
        sorted(
            &db,
            "SELECT a, (SELECT d FROM s WHERE s.k = t.a) AS d FROM t WHERE a <> 2"
        ),
        ["1|100", "3|50", "7|"]
    );
    let error = db.error("SELECT a, (SELECT d FROM s WHERE s.k = t.a) AS d FROM t");
    assert!(error.to_string().contains("more than one row"), "{error}");
}

#[test]
fn rows_of_which_there_are_others_in_each_run_are_refused_or_need_no_second_run() {
    let db = tables();
    let value = "(SELECT count(*) FROM s WHERE s.k < g.v OR s.k > 9)";
    for (rows, expected) in [
        ("SELECT a AS v FROM t WHERE a = 2 LIMIT 1", "2|1"),
        ("SELECT max(a) AS v FROM t", "7|6"),
        ("SELECT sum(a) AS v FROM t WHERE a < 3", "5|6"),
        ("SELECT a AS v FROM t ORDER BY a NULLS LAST LIMIT 1", "1|0"),
    ] {
        let found = db.rows(&format!("SELECT v, {value} AS n FROM ({rows}) g"));
        assert_eq!(found, [expected], "{rows}");
    }
    for rows in [
        "SELECT random() AS v FROM t",
        "SELECT sum(a * 0.1e0) AS v FROM t",
        "SELECT sum(a) AS v FROM (SELECT a FROM t LIMIT 2) l",
        "SELECT row_number() OVER (ORDER BY c) AS v FROM t",
    ] {
        let error = db.error(&format!("SELECT v, {value} AS n FROM ({rows}) g"));
        assert!(error.to_string().contains("run to run"), "{rows}: {error}");
    }
}

/// Rows of which it does not matter to another subquery which there are, or what else they have.
#[test]
fn rows_that_differ_in_each_run_are_left_out_of_what_a_second_run_needs() {
    let db = tables();
    let first = "(SELECT d FROM s WHERE s.m > {a} ORDER BY d LIMIT 1)";
    let second = "(SELECT d FROM s WHERE s.k > {a} ORDER BY d LIMIT 1)";
    let (kept, value) = (with(first, "t.a", "t.b"), with(second, "t.a", "t.b"));
    let found = sorted(
        &db,
        &format!("SELECT a, {value} AS v FROM t WHERE {kept} > 1"),
    );
    let expected = row_by_row(&db, &|a, b| {
        let (kept, value) = (with(first, a, b), with(second, a, b));
        format!("SELECT {a}, {value} AS v WHERE {kept} > 1")
    });
    assert_eq!(found, expected);
    let value = "(SELECT count(*) FROM s WHERE s.k < g.v OR s.k > 9)";
    for rows in [
        "SELECT a AS v FROM t WHERE random() < 2 AND a = 2",
        "SELECT a AS v, row_number() OVER () AS n, random() AS r FROM t WHERE a = 2",
        "SELECT a AS v, sum(a * 0.1e0) AS n FROM t WHERE a = 2 GROUP BY a, b UNION ALL SELECT 2, 1",
        "SELECT t.a AS v FROM t LEFT JOIN (SELECT k FROM s LIMIT 3) s ON false WHERE t.a = 2",
        "SELECT a AS v FROM t WHERE a = 2 AND EXISTS (SELECT 1 FROM u LIMIT 1)",
    ] {
        let found = db.rows(&format!("SELECT v, {value} AS n FROM ({rows}) g"));
        assert_eq!(found, ["2|1", "2|1"], "{rows}");
    }
}

#[test]
fn columns_are_read_more_than_one_level_up() {
    let db = tables();
    for text in [
        "SELECT max(k) FROM s WHERE EXISTS (SELECT 1 FROM u WHERE u.x = s.m AND u.y = {a})",
        "SELECT max(k) FROM s WHERE EXISTS (SELECT 1 FROM u WHERE u.y = {a})",
        "SELECT max(k) FROM s WHERE s.m > (SELECT count(*) FROM u WHERE u.y < {a})",
        "SELECT max(k) FROM s WHERE s.m = {b} AND s.k > (SELECT count(*) FROM u WHERE u.y < {a})",
        "SELECT max(k) FROM s WHERE {a} IN (SELECT x FROM u)",
        "SELECT count(*) FROM s WHERE {a} NOT IN (SELECT x FROM u WHERE u.y = s.k) OR {b} > ALL (SELECT x FROM u)",
        "SELECT max((SELECT min(u.x) FROM u WHERE u.y >= {a} OR u.y = s.k)) FROM s WHERE s.m <= {b}",
        "SELECT count(*) FROM s, LATERAL (SELECT x FROM u WHERE u.y = s.k AND u.x < {b}) l",
        "SELECT count(*) FROM s, LATERAL (SELECT x FROM u WHERE u.y < {a}) l WHERE l.x < s.m",
        "SELECT count(*) FROM s, LATERAL (SELECT x FROM u WHERE u.y = s.k LIMIT 1) l WHERE l.x < 9",
        "SELECT count(*) FROM s WHERE s.k IN (SELECT u.x FROM u WHERE u.y IN \
         (SELECT s.k FROM s WHERE s.m = {b} OR s.k = {a} OR s.m > u.x LIMIT 3))",
    ] {
        let found = sorted(
            &db,
            &format!("SELECT a, ({}) AS v FROM t", with(text, "t.a", "t.b")),
        );
        let expected = row_by_row(&db, &|a, b| {
            format!("SELECT {a}, ({}) AS v", with(text, a, b))
        });
        assert_eq!(found, expected, "{text}");
    }
    let far = "(SELECT max(s.d) FROM s WHERE s.k < (SELECT max(u.x) FROM u WHERE u.y < {a}))";
    let value = with(far, "t.a", "t.b");
    let found = sorted(
        &db,
        &format!("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.y = t.a AND {value} > 50)"),
    );
    assert_eq!(found, ["3"]);
}

#[test]
fn a_condition_of_lateral_does_not_find_nulls_equal() {
    let db = tables();
    let rows = "LATERAL (SELECT s.m FROM s WHERE s.k > t.a OR t.b IS NULL LIMIT 9) l(v)";
    let found = sorted(&db, &format!("SELECT a, v FROM t JOIN {rows} ON l.v = t.b"));
    assert_eq!(found, ["2|20", "2|20"]);
    let found = sorted(
        &db,
        &format!("SELECT a, v FROM t LEFT JOIN {rows} ON l.v = t.b"),
    );
    assert_eq!(found, ["1|", "2|20", "2|20", "3|", "7|", "|"]);
}

#[test]
fn not_in_has_a_plan_where_only_the_correlated_column_may_be_null() {
    let db = tables();
    db.run("CREATE TABLE n AS SELECT * FROM (VALUES (1, 1), (2, NULL), (3, 2)) v(x, y)")
        .unwrap();
    let groups = "(SELECT m, count(*) AS q FROM s GROUP BY m) g";
    let sql =
        format!("SELECT n.x FROM n WHERE n.x NOT IN (SELECT g.q FROM {groups} WHERE g.q = n.y)");
    assert_eq!(sorted(&db, &sql), ["2", "3"]);
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let db = tables();
    for (sql, part) in [
        (
            "SELECT (SELECT count(*) FROM s FULL JOIN u ON u.x = s.k AND u.y = t.a) FROM t",
            "FULL JOIN",
        ),
        (
            "SELECT (SELECT count(*) FROM (SELECT k FROM s WHERE k < t.a GROUP BY ROLLUP (k, m)) g) FROM t",
            "grouping sets",
        ),
        (
            "SELECT (SELECT DISTINCT ON (k) d FROM s WHERE k < t.a ORDER BY k, d LIMIT 1) FROM t",
            "DISTINCT ON",
        ),
        (
            "SELECT t.a FROM t, LATERAL (SELECT 1 FROM s WHERE EXISTS (SELECT 1 FROM u WHERE u.y = t.a)) l",
            "LATERAL around it",
        ),
        (
            "SELECT (SELECT sum(t.a)) FROM t",
            "aggregate of columns around it",
        ),
        (
            "SELECT t.a FROM t LEFT JOIN s ON s.k = (SELECT max(x) FROM u WHERE u.y = t.a)",
            "outer join",
        ),
    ] {
        let error = db.error(sql);
        assert!(error.to_string().contains(part), "{sql}: {error}");
        assert_eq!(error.code(), "not_supported", "{error}");
    }
}
