//! Group keys and sort keys: which of them count, whatever holds for the rows below.

use super::answers::{sorted, with_nulls};
use super::*;

#[test]
fn rows_of_grouping_sets_are_sorted_though_their_keys_were_equal_or_constant_below() {
    let db = with_nulls();
    assert_eq!(
        db.rows(
            "SELECT c, count(*) AS n FROM (SELECT count(*) AS c FROM t)
             GROUP BY GROUPING SETS ((c), (c), ()) ORDER BY 1 NULLS LAST, 2"
        ),
        ["4|1", "4|1", "|1"]
    );
    assert_eq!(
        db.rows(
            "SELECT x.k AS a, y.k AS b FROM s x JOIN s y ON x.k = y.k WHERE x.k = 1
             GROUP BY CUBE (x.k, y.k) ORDER BY 1 NULLS FIRST, 2 NULLS LAST"
        ),
        ["|1", "|", "1|1", "1|"]
    );
}

#[test]
fn groups_of_columns_that_a_full_join_leaves_null_are_found_once() {
    let db = Fixture::new();
    let statements = "CREATE TABLE t AS SELECT value AS id FROM generate_series(1, 9) AS s(value);
        SET hotshelf.threads = 1;
        SET datafusion.execution.batch_size = 2;
        SELECT c1 + 8 AS g, count(*) AS n
        FROM t FULL JOIN (SELECT count(*) AS c0, count(DISTINCT id) AS c1 FROM t WHERE id < 5) s ON t.id = s.c0
        GROUP BY c1 + 8";
    assert_eq!(sorted(&db, statements), ["12|1", "|8"]);
}

#[test]
fn nulls_are_equal_in_is_not_distinct_from_alone() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1, 1), (2, 3), (NULL, NULL)) v(a, b)")
        .unwrap();
    let pairs = "t JOIN t s ON t.a IS NOT DISTINCT FROM s.a";
    for (sql, expected) in [
        (
            format!("SELECT t.a FROM {pairs} WHERE t.b = s.b"),
            vec!["1", "2"],
        ),
        (
            format!("SELECT t.a, u.b FROM ({pairs}) CROSS JOIN t u WHERE u.a = s.b"),
            vec!["1|1"],
        ),
        (
            format!("SELECT t.a, u.b FROM t u CROSS JOIN {pairs} WHERE u.b > 1 OR u.b = t.b"),
            vec!["1|1", "1|3", "2|3", "|3"],
        ),
    ] {
        assert_eq!(sorted(&db, &sql), expected, "{sql}");
    }
}

#[test]
fn literals_among_group_keys_make_no_groups() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1, 5), (1, 6), (2, 7)) v(a, b)")
        .unwrap();
    let sql = "SELECT 'x' AS x, a, true AS y, count(*) AS n, sum(b) AS s FROM t WHERE b > {}
               GROUP BY x, a, y ORDER BY a";
    assert_eq!(
        db.rows(&sql.replace("{}", "0")),
        ["x|1|true|2|11", "x|2|true|1|7"]
    );
    assert_eq!(db.rows(&sql.replace("{}", "9")), Vec::<String>::new());
    let correlated = "SELECT a FROM t WHERE b > (SELECT avg(s.b) FROM t s WHERE s.a = t.a)";
    assert_eq!(db.rows(correlated), ["1"]);
    let plan = db.rows(&format!("EXPLAIN {correlated}")).join("\n");
    assert!(!plan.contains("__always_true@"), "{plan}");
}

#[test]
fn keys_computed_from_other_keys_are_grouped_by() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT CAST('2020-02-03' AS DATE) AS d")
        .unwrap();
    assert_eq!(
        db.rows("SELECT count(*) AS n FROM t GROUP BY CAST(d AS DATE), d"),
        ["1"]
    );
}

#[test]
fn output_columns_are_ordered_by_though_a_cast_key_has_their_name() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1, 30), (2, 20), (3, 10)) v(a, b)")
        .unwrap();
    let expected = ["3.0|10", "2.0|20", "1.0|30"];
    for (key, order) in [
        ("CAST(a AS DOUBLE)", "2"),
        ("CAST(t.a AS DOUBLE)", "a"),
        ("1", "2, 1"),
        ("x", "a"),
    ] {
        let sql = format!(
            "SELECT CAST(a AS DOUBLE) AS x, max(b) AS a FROM t GROUP BY {key} ORDER BY {order}"
        );
        assert_eq!(db.rows(&sql), expected, "{sql}");
    }
    assert_eq!(
        db.rows(
            "SELECT CAST(a AS DOUBLE) AS x, 7 AS a FROM t GROUP BY 1 ORDER BY 2, x DESC LIMIT 1"
        ),
        ["3.0|7"]
    );
}

#[test]
fn a_cast_key_and_its_column_are_two_keys() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT * FROM (VALUES (1.2, 1), (1.7, 2), (1.5, 3), (0.5, 4)) v(a, b)",
    )
    .unwrap();
    let sorted = ["0|0.5", "1|1.7", "1|1.5", "1|1.2"];
    let keys = "CAST(a AS INT) / 1 AS z, CAST(a AS INT) AS x, a AS y";
    for sql in [
        "SELECT CAST(a AS INT) AS x, a AS y FROM t GROUP BY CAST(a AS INT), a ORDER BY 1, 2 DESC",
        "SELECT CAST(r.a AS INT) AS x, r.a AS y FROM t r GROUP BY 1, 2 ORDER BY x, y DESC",
        "SELECT TRY_CAST(a AS INT) AS x, a FROM t GROUP BY 1, 2 ORDER BY 1, 2 DESC",
        "SELECT x, y FROM (SELECT CAST(a AS INT) AS x, a AS y FROM t GROUP BY 1, 2) ORDER BY x, y DESC",
        "SELECT x, y FROM (SELECT CAST(a AS INT) AS x, a AS y FROM t GROUP BY 1, 2) GROUP BY x, y ORDER BY x, y DESC",
        "SELECT CAST(a AS INT) AS x, a AS y FROM t GROUP BY CAST(a AS INT), a
         HAVING CAST(a AS INT) < 5 AND a > 0 ORDER BY 1, 2 DESC",
        "WITH g AS (SELECT CAST(a AS INT) AS x, a FROM t GROUP BY 1, 2) SELECT * FROM g ORDER BY 1, 2 DESC",
        &format!(
            "SELECT x, y FROM (SELECT {keys} FROM t GROUP BY CAST(a AS INT), a) ORDER BY z, y DESC"
        ),
        "SELECT CAST(a AS INT) AS x, a AS y FROM t GROUP BY CAST(a AS INT), a
         UNION ALL SELECT 1, 2 WHERE false ORDER BY 1, 2 DESC",
    ] {
        assert_eq!(db.rows(sql), sorted, "{sql}");
    }
    let ranks = "SELECT CAST(a AS INT) AS x, a AS y, rank() OVER (PARTITION BY CAST(a AS INT) ORDER BY a) AS r, sum(b)
                 FROM t GROUP BY CAST(a AS INT), a ORDER BY 1, 2 DESC LIMIT 2";
    assert_eq!(db.rows(ranks), ["0|0.5|1|4", "1|1.7|3|2"]);
}

#[test]
fn a_key_of_one_side_of_a_join_is_not_a_key_of_its_groups() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1, 5), (2, 5), (3, 6)) v(n, k)")
        .unwrap();
    db.run("CREATE TABLE s AS SELECT * FROM (VALUES (5), (6), (5)) v(k)")
        .unwrap();
    let keys = "(SELECT DISTINCT k FROM s)";
    let crossed = format!("SELECT DISTINCT t.n, s.k FROM t JOIN {keys} s ON true");
    let pairs = ["3|6", "2|6", "1|6", "3|5", "2|5", "1|5"];
    assert_eq!(
        db.rows(&format!("{crossed} ORDER BY 2 DESC, 1 DESC")),
        pairs
    );
    let counted = format!("SELECT k, count(*) FROM ({crossed}) x GROUP BY k, n ORDER BY k");
    let ones = ["5|1", "5|1", "5|1", "6|1", "6|1", "6|1"];
    assert_eq!(db.rows(&counted), ones);
    let joined = format!(
        "SELECT t.n, s.k, count(*) AS c FROM t JOIN {keys} s ON s.k = t.k GROUP BY t.n, s.k"
    );
    let ordered = format!("{joined} ORDER BY s.k, t.n DESC");
    assert_eq!(db.rows(&ordered), ["2|5|1", "1|5|1", "3|6|1"]);
    let ordered = format!("WITH x AS ({joined}) SELECT k FROM x GROUP BY k, n ORDER BY k");
    assert_eq!(db.rows(&ordered), ["5", "5", "6"]);
    let distinct = format!("SELECT DISTINCT k, n FROM ({joined}) x ORDER BY k DESC, n DESC");
    assert_eq!(db.rows(&distinct), ["6|3", "5|2", "5|1"]);
    let padded = format!("SELECT t.n FROM t LEFT JOIN ({joined}) x ON x.k = t.k ORDER BY 1");
    assert_eq!(db.rows(&padded), ["1", "1", "2", "2", "3"]);
}

#[test]
fn rows_padded_by_an_outer_join_are_sorted_though_the_padding_side_has_one_row() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (-7.125, 1), (-6.0, 2), (-5.0, 3)) v(n, k)")
        .unwrap();
    for join in ["FULL", "LEFT"] {
        let sql = format!(
            "WITH w AS (SELECT max(n) AS c1, min(k) AS c2 FROM t)
             SELECT w.c1 AS c0, k FROM t {join} JOIN w ON t.k = w.c2
             WHERE t.n > -100 ORDER BY 1 NULLS FIRST, 2 DESC"
        );
        assert_eq!(db.rows(&sql), ["|3", "|2", "-5.0|1"], "{sql}");
    }
    let constant =
        "SELECT r.c, t.k FROM (SELECT 4 AS c, k FROM t WHERE k = 2) r RIGHT JOIN t ON r.k = t.k
        ORDER BY 1 NULLS FIRST, 2";
    assert_eq!(db.rows(constant), ["|1", "|3", "4|2"]);
}

#[test]
fn groups_by_what_a_build_side_has_looked_up_are_those_of_all_columns() {
    let db = Fixture::new();
    let statements = [
        "CREATE TABLE people AS SELECT value AS id, 'name ' || (value % 7) AS name, value % 3 AS region \
         FROM range(200)",
        "CREATE TABLE trips AS SELECT value AS id, \
         CASE WHEN value % 11 = 0 THEN NULL ELSE value * 13 % 250 END AS person, value % 2 AS kind FROM range(4000)",
        "CREATE TABLE steps AS SELECT value * 7 % 4100 AS trip, value % 5 AS n FROM range(60000)",
    ];
    statements.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    let groups = [
        "p.id, p.name, p.region",
        "t.person, p.name",
        "p.name, p.region",
        "p.name, t.kind",
        "t.person, p.name, t.kind",
        "t.id, p.name",
    ];
    for (join, groups) in ["JOIN", "LEFT JOIN"]
        .into_iter()
        .flat_map(|join| groups.map(|groups| (join, groups)))
    {
        let sql = format!(
            "SELECT {groups}, count(*) AS n, sum(s.n) AS s FROM steps s JOIN trips t ON s.trip = t.id \
             {join} people p ON t.person = p.id GROUP BY {groups}"
        );
        let off = format!("SET hotshelf.star_pipelines = off; {sql}");
        assert_eq!(sorted(&db, &sql), sorted(&db, &off), "{sql}");
    }
    // A key of the small side that repeats is found out when it runs.
    db.run("INSERT INTO people VALUES (5, 'name 1', 2), (6, 'other', 0)")
        .unwrap();
    let sql = "SELECT p.id, p.name, p.region, count(*) AS n FROM steps s JOIN trips t ON s.trip = t.id \
               JOIN people p ON t.person = p.id GROUP BY p.id, p.name, p.region";
    let off = format!("SET hotshelf.star_pipelines = off; {sql}");
    assert_eq!(sorted(&db, sql), sorted(&db, &off));
}
