//! Answers that were wrong once, in us or in the engine below: the minimal case of each.

use hotshelf::Options;

use crate::Fixture;

/// Two tables with equal column names.
fn sides() -> Fixture {
    let db = Fixture::new();
    db.run("CREATE TABLE l AS SELECT * FROM (VALUES (1,10,1),(2,-10,1)) v(k,x,y)")
        .unwrap();
    db.run("CREATE TABLE r AS SELECT * FROM (VALUES (1,-10,1),(3,-10,1),(4,10,-1)) v(k,x,y)")
        .unwrap();
    db
}

pub(super) fn sorted(db: &Fixture, sql: &str) -> Vec<String> {
    let mut rows = db.rows(sql);
    rows.sort();
    rows
}

#[test]
fn a_filter_on_one_side_of_a_right_join_is_not_applied_to_the_other() {
    let db = sides();
    let join = "SELECT r.k, r.x, l.x AS lx FROM l RIGHT JOIN r ON l.k = r.k WHERE";
    assert_eq!(
        sorted(&db, &format!("{join} l.x IS NULL")),
        ["3|-10|", "4|10|"]
    );
    assert_eq!(
        sorted(&db, &format!("{join} l.x > 5 OR r.y < 0")),
        ["1|-10|10", "4|10|"]
    );
}

#[test]
fn a_filter_on_one_side_of_a_full_join_is_not_applied_to_the_other() {
    let db = sides();
    assert_eq!(
        sorted(
            &db,
            "SELECT r.k, r.x, l.x AS lx FROM l FULL JOIN r ON l.k = r.k
             WHERE (l.x > 5 OR r.y < 0) AND r.k IS NOT NULL"
        ),
        ["1|-10|10", "4|10|"]
    );
    assert_eq!(
        sorted(
            &db,
            "SELECT l.k, l.x, r.x AS rx FROM l FULL JOIN r ON l.k = r.k WHERE r.x IS NULL"
        ),
        ["2|-10|"]
    );
}

#[test]
fn a_filter_on_a_semi_joins_key_is_not_applied_to_a_column_of_that_name_on_the_other_side() {
    let db = sides();
    // The key of the right side is `y`; its column `x` has other values.
    db.run("CREATE TABLE s AS SELECT * FROM (VALUES (10, -1, 10), (7, -1, -10)) v(k, x, y)")
        .unwrap();
    for join in [
        "SELECT l.k, l.x FROM l LEFT SEMI JOIN s ON l.x = s.y WHERE l.x > 5",
        "SELECT l.k, l.x FROM l WHERE x IN (SELECT y FROM s) AND x > 5",
        "SELECT l.k, l.x FROM s RIGHT SEMI JOIN l ON l.x = s.y WHERE l.x > 5",
    ] {
        assert_eq!(sorted(&db, join), ["1|10"], "{join}");
    }
}

#[test]
fn a_filter_on_a_computed_group_key_is_not_applied_to_the_column_of_its_name() {
    let db = sides();
    assert_eq!(
        sorted(
            &db,
            "SELECT * FROM (SELECT x + 100 AS x, count(*) AS n FROM r GROUP BY x + 100) WHERE x > 100"
        ),
        ["110|1"]
    );
    assert_eq!(
        sorted(
            &db,
            "SELECT * FROM (SELECT -x AS x, y AS k, k AS y FROM r) WHERE x > 0 AND k > 0 AND y > 1"
        ),
        ["10|1|3"]
    );
}

#[test]
fn filters_pass_chains_of_joins_over_equal_names() {
    let db = sides();
    let sql = "SELECT a.k, b.x, c.x FROM l a LEFT JOIN r b ON a.k = b.k RIGHT JOIN r c ON a.k = c.k
               WHERE b.x IS NULL AND c.x > 0";
    assert_eq!(sorted(&db, sql), ["||10"]);
    let sql = "SELECT a.k, b.k, c.k FROM (l a JOIN r b ON a.y = b.y) FULL JOIN l c ON c.k = b.k
               WHERE a.x < 0 OR c.x < 0";
    assert_eq!(sorted(&db, sql), ["2|1|1", "2|3|", "||2"]);
}

#[test]
fn decimals_are_compared_with_literals_as_decimals() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT column1::DECIMAL(12, 2) AS d, column2 AS id
         FROM (VALUES ('-9128.22', 1), ('0.07', 2), ('1234567890.12', 3), (NULL, 4)) v",
    )
    .unwrap();
    for (predicate, ids) in [
        ("d = -9128.22", vec!["1"]),
        ("-9128.22 = d", vec!["1"]),
        ("d < -9128.22", vec![]),
        ("d <= -9128.22", vec!["1"]),
        ("d IN (-9128.22, 0.07, 5)", vec!["1", "2"]),
        ("d NOT IN (-9128.22, 0.07)", vec!["3"]),
        ("d BETWEEN 0.07 AND 0.07", vec!["2"]),
        ("d = 1234567890.12", vec!["3"]),
        ("d + 0.01 = 0.08", vec!["2"]),
        ("d * 0.1 = 0.007", vec!["2"]),
        ("d = 0.0700000000001", vec![]),
        ("coalesce(d, 0.5) = 0.5", vec!["4"]),
        ("CASE WHEN id = 2 THEN d ELSE 0.25 END = 0.07", vec!["2"]),
        ("nullif(d, 0.07) IS NULL", vec!["2", "4"]),
    ] {
        let sql = format!("SELECT id FROM t WHERE {predicate}");
        assert_eq!(sorted(&db, &sql), ids, "{predicate}");
    }
}

#[test]
fn is_distinct_from_binds_tighter_than_and() {
    let db = Fixture::new();
    for (expr, value) in [
        ("NULL::BOOLEAN IS DISTINCT FROM true AND false", "false"),
        ("false AND true IS DISTINCT FROM true OR true", "true"),
        (
            "1 IS NOT DISTINCT FROM 1 AND 2 IS DISTINCT FROM 3 AND false",
            "false",
        ),
        (
            "1 IS DISTINCT FROM CASE WHEN true AND true THEN 1 END OR true",
            "true",
        ),
        ("1 IS DISTINCT FROM (1) AND true", "false"),
        ("1 IS DISTINCT FROM left('12', 1)::INT OR false", "false"),
        ("(true IS DISTINCT FROM (true AND false))", "true"),
    ] {
        assert_eq!(db.rows(&format!("SELECT {expr} AS v")), [value], "{expr}");
    }
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1, true, 1), (2, NULL, NULL), (3, false, 7)) v(id, b, i)")
        .unwrap();
    let sql = "SELECT id FROM t WHERE id < 9 AND b IS DISTINCT FROM true AND i IS NOT NULL";
    assert_eq!(db.rows(sql), ["3"]);
}

pub(super) fn with_nulls() -> Fixture {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1), (2), (3), (NULL)) v(a)")
        .unwrap();
    db.run("CREATE TABLE s AS SELECT * FROM (VALUES (1, 1), (NULL, 2), (5, 3)) v(b, k)")
        .unwrap();
    db
}

#[test]
fn lists_of_one_column_are_combined_with_null_in_mind() {
    let db = with_nulls();
    for (predicate, rows) in [
        ("a NOT IN (1) OR a NOT IN (2)", vec!["1", "2", "3"]),
        ("NOT (a IN (1) AND a IN (2))", vec!["1", "2", "3"]),
        (
            "NOT ((a = 1 OR a = 2) AND (a = 3 OR a = 4))",
            vec!["1", "2", "3"],
        ),
        ("a NOT IN (1, NULL) OR a NOT IN (2)", vec!["1", "3"]),
        ("a IN (1, 2) AND a NOT IN (2, NULL)", vec![]),
        ("a IN (1, 2) AND a NOT IN (2)", vec!["1"]),
        ("a IN (1, 2, 3) AND a IN (2, 3, 4)", vec!["2", "3"]),
        ("a NOT IN (1, 2) OR a NOT IN (2, 3)", vec!["1", "3"]),
        ("(a IN (1) AND a IN (2)) IS NULL", vec![""]),
        ("(a NOT IN (1) OR a NOT IN (2)) IS NOT TRUE", vec![""]),
        ("NOT (a IN (1, 2) AND a NOT IN (1, 2))", vec!["1", "2", "3"]),
    ] {
        let sql = format!("SELECT a FROM t WHERE {predicate}");
        assert_eq!(sorted(&db, &sql), rows, "{predicate}");
    }
}

#[test]
fn sums_that_leave_their_type_are_errors() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT 9223372036854775807 AS a, value AS g FROM generate_series(1, 3) AS s(value)")
        .unwrap();
    db.run(
        "CREATE TABLE d AS SELECT 99999999999999999999999999999999999999::DECIMAL(38, 0) AS a, value AS g
         FROM generate_series(1, 4) AS s(value)",
    )
        .unwrap();
    for sql in [
        "SELECT sum(a) FROM t",
        "SELECT g % 1, sum(a) FROM t GROUP BY g % 1",
        "SELECT sum(a) FROM d",
        "SELECT g % 1, sum(a) FROM d GROUP BY g % 1",
        "SELECT sum(a) OVER (ORDER BY g) FROM t",
        "SELECT sum(a) OVER (ORDER BY g ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT sum(DISTINCT a - g), count(DISTINCT g), max(a) FROM t",
        "SELECT sum(x) FROM (VALUES (9223372036854775807), (1)) v(x)",
        "SELECT sum(x) FROM (SELECT 18446744073709551615::BIGINT UNSIGNED AS x FROM t)",
    ] {
        let error = db.error(sql).to_string();
        assert!(error.contains("overflow"), "{sql}: {error}");
    }
    assert_eq!(
        db.rows("SELECT sum(a) FROM t WHERE g = 1"),
        ["9223372036854775807"]
    );
    assert_eq!(
        db.rows("SELECT sum(a) OVER (ORDER BY g ROWS BETWEEN CURRENT ROW AND CURRENT ROW) FROM t"),
        ["9223372036854775807"; 3]
    );
    assert_eq!(
        db.rows("SELECT sum(a::DECIMAL(38, 0)) FROM t"),
        ["27670116110564327421"]
    );
}

#[test]
fn negative_zero_equals_zero() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT column1::DOUBLE AS f, column2 AS id
         FROM (VALUES ('0.0', 1), ('-0.0', 2), ('1.5', 3), ('-2.5', 4)) v",
    )
    .unwrap();
    for (predicate, ids) in [
        ("f IN (0.0, 7.0, 8.0, 9.0)", vec!["1", "2"]),
        ("f IN (-0.0, 7.0, 8.0, 9.0)", vec!["1", "2"]),
        ("f NOT IN (-0.0, 7.0, 8.0, 9.0)", vec!["3", "4"]),
        ("f = 0.0", vec!["1", "2"]),
        ("f = -0.0", vec!["1", "2"]),
        ("-0.0 <> f", vec!["3", "4"]),
        ("f < 0.0", vec!["4"]),
        ("f >= 0", vec!["1", "2", "3"]),
        ("f > -0.0", vec!["3"]),
        ("f <= -0.0", vec!["1", "2", "4"]),
        ("f BETWEEN 0.0 AND 1.0", vec!["1", "2"]),
        ("f BETWEEN -1.0 AND -0.0", vec!["1", "2"]),
        (
            "CASE f WHEN 0 THEN true WHEN 7.0 THEN false ELSE id = 3 END",
            vec!["1", "2", "3"],
        ),
        (
            "CASE f WHEN 1.5 THEN true WHEN -0.0 THEN true END",
            vec!["1", "2", "3"],
        ),
        ("nullif(f, 0) IS NULL", vec!["1", "2"]),
        ("nullif(f, 1.5) IS NULL", vec!["3"]),
        ("f IS DISTINCT FROM 0", vec!["3", "4"]),
        ("f IS NOT DISTINCT FROM -0.0", vec!["1", "2"]),
    ] {
        let sql = format!("SELECT id FROM t WHERE {predicate}");
        assert_eq!(sorted(&db, &sql), ids, "{predicate}");
    }
}

#[test]
fn negative_zero_in_one_column_equals_zero_in_another() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT column1::DOUBLE AS f, column2::DOUBLE AS g
         FROM (VALUES ('0.0', '-0.0'), ('1.5', '-1.5')) v",
    )
    .unwrap();
    assert_eq!(db.rows("SELECT f FROM t WHERE f = g"), ["0.0"]);
    assert_eq!(db.rows("SELECT f FROM t WHERE f <= g"), ["0.0"]);
    assert_eq!(db.rows("SELECT f FROM t WHERE f > g"), ["1.5"]);
}

#[test]
fn negative_zero_meets_zero_in_joins_whatever_a_build_side_tells_its_scan() {
    let db = Fixture::new();
    for (name, zero) in [
        ("mixed", "CASE WHEN value % 2 = 0 THEN -0.0 ELSE 1.0 END"),
        ("negative", "-0.0"),
    ] {
        db.run(&format!(
            "CREATE TABLE {name} AS SELECT ({zero})::DOUBLE AS f FROM range(10)"
        ))
        .unwrap();
    }
    db.run("CREATE TABLE ones AS SELECT value::DOUBLE AS x FROM range(2)")
        .unwrap();
    for (table, count) in [("mixed", "10"), ("negative", "10")] {
        for sql in [
            format!("SELECT count(*) FROM {table} JOIN ones ON {table}.f = ones.x"),
            format!("SELECT count(*) FROM {table} WHERE f IN (SELECT x FROM ones)"),
            format!("SELECT count(f) FROM ones LEFT JOIN {table} ON f = x"),
            format!("SELECT sum((SELECT count(*) FROM {table} WHERE f = x)) FROM ones"),
        ] {
            assert_eq!(db.rows(&sql), [count], "{sql}");
        }
    }
}

#[test]
fn case_compares_integers_of_different_widths() {
    let db = Fixture::new();
    db.run("CREATE TABLE a AS SELECT value::INT AS k, value AS v FROM generate_series(1, 5) AS s(value)")
        .unwrap();
    db.run("CREATE TABLE b AS SELECT value AS k, value::SMALLINT AS v FROM generate_series(3, 8) AS s(value)")
        .unwrap();
    for join in ["LEFT", "FULL", "RIGHT"] {
        let sql = format!(
            "SELECT count(*) FROM a t0 {join} JOIN b t1 ON t1.k = t0.k
             WHERE CASE WHEN t0.k >= 4 THEN t1.v > 3 ELSE t1.k IS NULL END"
        );
        let rows = db.rows(&sql);
        let expected = match join {
            "LEFT" => "4",
            "FULL" => "4",
            _ => "2",
        };
        assert_eq!(rows, [expected], "{join}");
    }
}

#[test]
fn syntax_without_an_effect_is_refused() {
    let db = with_nulls();
    for (sql, what) in [
        ("SELECT * FROM t TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE"),
        ("SELECT * FROM t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        (
            "SELECT * FROM (SELECT * FROM t TABLESAMPLE (10 PERCENT)) x",
            "TABLESAMPLE",
        ),
        ("SELECT * ILIKE '%x%' FROM t", "ILIKE"),
        ("SELECT 1_000_000", "1_000_000"),
        ("SELECT * FROM t FOR UPDATE", "FOR UPDATE"),
        ("SELECT upper(DISTINCT 'x')", "DISTINCT"),
        ("SELECT upper('x') FILTER (WHERE false)", "FILTER"),
        ("SELECT abs(a ORDER BY a) FROM t", "ORDER BY"),
        (
            "CREATE TABLE x AS SELECT * FROM t TABLESAMPLE (1 ROWS)",
            "TABLESAMPLE",
        ),
        (
            "EXPLAIN SELECT * FROM t TABLESAMPLE (1 ROWS)",
            "TABLESAMPLE",
        ),
        ("SELECT * FROM t EXCEPT ALL SELECT * FROM t", "EXCEPT ALL"),
        (
            "SELECT * FROM t UNION (SELECT * FROM t INTERSECT ALL SELECT * FROM t)",
            "INTERSECT ALL",
        ),
        ("SELECT * FROM t NATURAL FULL JOIN t u", "NATURAL"),
        (
            "SELECT a FROM t FULL JOIN t u USING (a) JOIN t v USING (a)",
            "USING (a)",
        ),
        ("SELECT * FROM t PIVOT (count(*) FOR a IN (1, 2))", "PIVOT"),
        ("SELECT a, count(*) FROM t GROUP BY a WITH TOTALS", "TOTALS"),
        ("CREATE TABLE x (n VARCHAR COLLATE nocase)", "COLLATE"),
        ("CREATE TABLE x (n INT COMMENT 'of course')", "COMMENT"),
        (
            "CREATE TABLE x (n INT, m INT GENERATED ALWAYS AS (n + 1))",
            "GENERATED",
        ),
    ] {
        let error = db.error(sql).to_string();
        assert!(error.contains(what), "{sql}: {error}");
        assert!(error.len() < 200, "{sql}: {error}");
    }
}

#[test]
fn from_without_select_gives_all_columns() {
    let db = with_nulls();
    assert_eq!(db.rows("FROM s ORDER BY k LIMIT 2"), ["1|1", "|2"]);
    assert_eq!(db.rows("FROM s SELECT k WHERE b = 5"), ["3"]);
}

#[test]
fn literals_of_many_digits_are_exact() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT '12345678901234567890.123456'::DECIMAL(26, 6) AS d,
         0.1::DOUBLE + 0.2::DOUBLE AS f",
    )
    .unwrap();
    let count = |predicate: &str| db.rows(&format!("SELECT count(*) FROM t WHERE {predicate}"));
    assert_eq!(count("d = 12345678901234567890.123456"), ["1"]);
    assert_eq!(count("d = 12345678901234567890.123457"), ["0"]);
    assert_eq!(count("f = 0.30000000000000004"), ["1"]);
}

#[test]
fn merged_columns_of_outer_joins_have_the_value_of_the_side_that_has_a_row() {
    let db = Fixture::new();
    db.run("CREATE TABLE a AS SELECT * FROM (VALUES (1, 1), (2, 2)) v(k, x)")
        .unwrap();
    db.run("CREATE TABLE b AS SELECT * FROM (VALUES (2, 2), (3, 3)) v(k, y)")
        .unwrap();
    for (sql, rows) in [
        (
            "SELECT k, x, y FROM a FULL JOIN b USING (k)",
            vec!["1|1|", "2|2|2", "3||3"],
        ),
        (
            "SELECT * FROM a FULL JOIN b USING (k)",
            vec!["1|1|", "2|2|2", "3||3"],
        ),
        ("SELECT k FROM a RIGHT JOIN b USING (k)", vec!["2", "3"]),
        (
            "SELECT * FROM a RIGHT JOIN b USING (k)",
            vec!["2|2|2", "3||3"],
        ),
        ("SELECT a.k FROM a RIGHT JOIN b USING (k)", vec!["", "2"]),
        ("SELECT x FROM a JOIN b USING (k) WHERE k < 3", vec!["2"]),
        (
            "SELECT k AS n FROM a FULL JOIN b t USING (k) WHERE k > 1",
            vec!["2", "3"],
        ),
        (
            "SELECT k, count(*) AS n FROM a FULL JOIN b USING (k) GROUP BY k HAVING k <> 2",
            vec!["1|1", "3|1"],
        ),
        (
            "SELECT k FROM a JOIN b USING (k) WHERE EXISTS (SELECT 1 FROM b c WHERE c.k = b.k AND c.y = 2)",
            vec!["2"],
        ),
    ] {
        assert_eq!(sorted(&db, sql), rows, "{sql}");
    }
    assert_eq!(
        db.rows("SELECT k FROM a FULL JOIN b USING (k) ORDER BY k DESC"),
        ["3", "2", "1"]
    );
}

#[test]
fn no_rows_have_no_distinct_values_though_the_value_is_constant() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (b INT)").unwrap();
    let sql = "SELECT count(*) AS n, count(DISTINCT CASE WHEN 1 < 1 THEN b END) AS d FROM t";
    assert_eq!(db.rows(sql), ["0|0"]);
}

#[test]
fn a_limit_above_windows_is_kept() {
    let db = Fixture::new();
    let rows = db.rows(
        "CREATE TABLE t AS SELECT value % 7 AS a, value AS k FROM generate_series(1, 101) AS s(value);
         SET hotshelf.threads = 4;
         SET datafusion.execution.batch_size = 77;
         SELECT count(a) OVER (ORDER BY a NULLS LAST) AS c,
             dense_rank() OVER (PARTITION BY a ORDER BY k DESC NULLS LAST) AS d, a
         FROM t ORDER BY 1 NULLS LAST, 3 NULLS LAST, 2 NULLS FIRST LIMIT 100",
    );
    assert_eq!(rows.len(), 100);
}

#[test]
fn bounded_functions_take_no_rows() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (y VARCHAR, n INT)").unwrap();
    for call in [
        "replace(y, 'a', 'bb')",
        "repeat(y, n)",
        "lpad(y, n, y)",
        "concat(y, y)",
    ] {
        let sql = format!("SELECT count({call}) FILTER (WHERE n = 0) AS c FROM t");
        assert_eq!(db.rows(&sql), ["0"], "{call}");
    }
    let sql = "SELECT min(replace(r.y, 'a', 'bb')) FILTER (WHERE r.n = 0) AS c
        FROM (SELECT 'x' AS y) l LEFT JOIN t r ON l.y = r.y";
    assert_eq!(db.rows(sql), [""]);
}

#[test]
fn a_condition_that_never_holds_leaves_no_row_of_a_count() {
    let db = with_nulls();
    db.run("CREATE TABLE nothing (id BIGINT)").unwrap();
    for table in ["t", "nothing"] {
        for condition in [
            "n = 1 AND n = 2",
            "NOT (n <> 186) AND n = 228",
            "NOT (n IN (101, CAST(NULL AS BIGINT)))",
        ] {
            let sql = format!(
                "SELECT m FROM (SELECT count(*) AS n, count(1) AS m FROM {table}) s WHERE {condition}"
            );
            assert_eq!(db.rows(&sql), Vec::<String>::new(), "{sql}");
        }
    }
    let sets = "SELECT n FROM (SELECT count(*) AS n FROM t GROUP BY GROUPING SETS ((), ())) s WHERE n = 1 AND n = 2";
    assert_eq!(db.rows(sets), Vec::<String>::new());
}

#[test]
fn of_two_bounds_with_one_value_the_stricter_one_counts() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1), (2), (3), (NULL)) v(x)")
        .unwrap();
    for (condition, expected) in [
        ("NOT (x > 2 OR 2 <= x)", "1"),
        ("x <= 2 AND 2 > x", "1"),
        ("2 > x AND x <= 2", "1"),
        ("x < 2 AND 2 >= x", "1"),
        ("x >= 2 AND 2 < x", "3"),
        ("2 <= x AND 2 < x", "3"),
        ("2 < x AND x >= 2", "3"),
        ("NOT (x < 2 OR 2 >= x)", "3"),
        ("NOT (2 <= x OR x > 2)", "1"),
    ] {
        let sql = format!("SELECT x FROM t WHERE {condition}");
        assert_eq!(db.rows(&sql), [expected], "{condition}");
    }
    db.run(
        "CREATE TABLE days AS SELECT *
         FROM (VALUES (DATE '2000-01-02'), (DATE '2000-01-03'), (DATE '2000-01-04')) v(d)",
    )
    .unwrap();
    let day = "DATE '2000-01-03'";
    for condition in [
        format!("NOT (d > {day} OR {day} <= d)"),
        format!("d <= {day} AND {day} > d"),
    ] {
        let sql = format!("SELECT count(*) FROM days WHERE {condition}");
        assert_eq!(db.rows(&sql), ["1"], "{condition}");
    }
}

#[test]
fn a_sort_above_a_sort_with_a_limit_sorts() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1.5, 30), (2.5, 10), (3.5, 20)) v(b, a)")
        .unwrap();
    let inner = "SELECT b, count(*) AS n, max(a) AS x FROM t GROUP BY b ORDER BY n, b LIMIT 5";
    for sql in [
        format!("SELECT n, x FROM ({inner}) ORDER BY n, x"),
        format!("WITH w AS ({inner}) SELECT n, x FROM w WHERE n > 0 ORDER BY 1, 2"),
    ] {
        assert_eq!(db.rows(&sql), ["1|10", "1|20", "1|30"], "{sql}");
    }
    let ranked =
        format!("SELECT x, row_number() OVER (ORDER BY n, x) AS r FROM ({inner}) ORDER BY r");
    assert_eq!(db.rows(&ranked), ["10|1", "20|2", "30|3"]);
    let limited = format!("SELECT b FROM ({inner}) ORDER BY b DESC LIMIT 2");
    assert_eq!(db.rows(&limited), ["3.5", "2.5"]);
}

#[test]
fn an_offset_skips_the_first_rows_of_all() {
    let db = Fixture::with(Options {
        threads: 4,
        ..Options::default()
    });
    db.run("CREATE TABLE t AS SELECT value AS a, value % 7 AS b FROM generate_series(1, 40000) AS g(value)")
        .unwrap();
    for _ in 0..3 {
        db.run("INSERT INTO t SELECT a + 40000, b FROM t").unwrap();
    }
    let inner = "SELECT a, b FROM t ORDER BY a LIMIT 20 OFFSET 3";
    for (sql, expected) in [
        (
            "SELECT a FROM t ORDER BY a LIMIT 3 OFFSET 2".to_owned(),
            ["3", "4", "5"],
        ),
        (
            format!("SELECT a FROM ({inner}) ORDER BY a LIMIT 3"),
            ["4", "5", "6"],
        ),
        (
            format!(
                "SELECT min(a) FROM ({inner}) UNION ALL SELECT max(a) FROM ({inner})
                 UNION ALL SELECT count(*) FROM ({inner}) ORDER BY 1"
            ),
            ["4", "20", "23"],
        ),
    ] {
        assert_eq!(db.rows(&sql), expected, "{sql}");
    }
}

#[test]
fn what_narrows_its_scan_is_not_run_twice() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT true AS x, 1 AS k FROM generate_series(1, 6)")
        .unwrap();
    let five = "SELECT k FROM t ORDER BY k DESC NULLS LAST LIMIT 5";
    let sql = format!("SELECT count(a.x) FROM t a JOIN ({five}) b ON a.k = b.k");
    assert_eq!(db.rows(&sql), ["30"]);
    let sql = format!("SELECT a.x FROM t a JOIN ({five}) b ON a.k = b.k ORDER BY 1 LIMIT 200");
    assert_eq!(db.rows(&sql).len(), 30);
    let least = "SELECT min(k) AS k FROM t";
    let sql = format!("SELECT count(*) FROM t a JOIN ({least}) b ON a.k = b.k");
    assert_eq!(db.rows(&sql), ["6"]);
}

#[test]
fn null_is_not_outside_of_any_list() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT CAST(NULL AS INT) AS x, value AS v FROM range(3000) AS g(value)",
    )
    .unwrap();
    db.run("CREATE TABLE one AS SELECT CAST(NULL AS BIGINT) AS x, 1 AS v")
        .unwrap();
    db.run("CREATE TABLE half AS SELECT CASE WHEN value < 400000 THEN NULL ELSE value END AS x, value AS v
            FROM range(800000) AS g(value)")
        .unwrap();
    for (table, some) in [("t", 0), ("one", 0), ("half", 399_999)] {
        for (condition, count) in [
            ("x NOT IN (1, 2, 3, 400004)", some),
            ("NOT x IN (1, 2, 3, 400004)", some),
            ("x NOT IN (1, 2, 3, 400004) AND v >= 0", some),
            ("(x NOT IN (1, 2, 3, 400004) OR v < 0)", some),
            (
                "(x NOT IN (1, 2, 3, 400004)) IS NOT NULL AND x NOT IN (1, 2, 3, 400004)",
                some,
            ),
            ("x IN (1, 2, 3, -4)", 0),
            ("NOT (x NOT IN (1, 2, 3, -4))", 0),
            ("x NOT IN (1, 2, 3, 4, NULL)", 0),
        ] {
            let sql = format!("SELECT count(*) FROM {table} WHERE {condition}");
            assert_eq!(db.rows(&sql), [count.to_string()], "{sql}");
            let rows = format!(
                "SELECT count(*) FROM (SELECT v FROM {table} WHERE {condition} LIMIT 1000000)"
            );
            assert_eq!(db.rows(&rows), [count.to_string()], "{rows}");
        }
    }
}

#[test]
fn years_that_no_timestamp_has_are_compared_as_years() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT TIMESTAMP '2000-01-01 08:00:04' AS s UNION ALL SELECT NULL")
        .unwrap();
    for (condition, count) in [
        ("> 12", "1"),
        ("<> 12", "1"),
        ("< 12", "0"),
        ("= 12", "0"),
        ("< 12000", "1"),
        ("> 1999", "1"),
        ("= 2000", "1"),
        ("BETWEEN 12 AND 2000", "1"),
        ("NOT IN (12, 13)", "1"),
    ] {
        let sql = format!("SELECT count(*) AS n FROM t WHERE EXTRACT(year FROM s) {condition}");
        assert_eq!(db.rows(&sql), [count], "{sql}");
    }
    let plan = db
        .rows("EXPLAIN SELECT s FROM t WHERE EXTRACT(year FROM s) = 1999")
        .join("\n");
    assert!(plan.contains("filter=s@0 >="), "{plan}");
}

#[test]
fn running_extremes_that_begin_with_null_are_sorted() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (83, 148), (NULL, 148), (84, 148)) v(x, d)")
        .unwrap();
    let sql = "SELECT max(x) OVER (PARTITION BY d ORDER BY x NULLS FIRST) AS m, d FROM t
               ORDER BY 2 NULLS LAST, 1 NULLS LAST";
    assert_eq!(db.rows(sql), ["83|148", "84|148", "|148"]);
}

#[test]
fn all_nans_are_one_of_the_first_groups() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT CAST(v AS DOUBLE) AS x FROM (VALUES ('NaN'), ('NaN'), ('1')) v(v)")
        .unwrap();
    let sql = "SELECT DISTINCT x FROM t ORDER BY x LIMIT 10";
    let settings = "SET hotshelf.star_pipelines = off; SET hotshelf.threads = 1;";
    assert_eq!(db.rows(&format!("{settings} {sql}")), ["1.0", "NaN"]);
}

#[test]
fn no_distinct_values_are_counted_where_no_row_passes() {
    let fixture = Fixture::new();
    fixture
        .run("CREATE TABLE t AS SELECT value AS a, value AS b FROM range(50, 90)")
        .unwrap();
    for operators in ["off", "on", "always"] {
        let counts = |sql: &str| {
            let set = format!("SET hotshelf.operators = {operators}");
            fixture.rows(&format!(
                "{set}; SELECT count(DISTINCT x.a), count(DISTINCT x.b) {sql}"
            ))
        };
        assert_eq!(counts("FROM t x WHERE a = 161 AND b = 161"), ["0|0"]);
        assert_eq!(counts("FROM t x WHERE a = 61 AND b = 61"), ["1|1"]);
        let join = "FROM t x JOIN t y ON x.a = y.b WHERE";
        assert_eq!(counts(&format!("{join} y.b = 161")), ["0|0"]);
        assert_eq!(counts(&format!("{join} x.b = 61 AND y.b = 62")), ["0|0"]);
        assert_eq!(counts("FROM t x"), ["40|40"]);
    }
}

#[test]
fn what_is_never_null_is_aggregated_whatever_its_parts_are() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE g (k BIGINT NOT NULL, n BIGINT, v BIGINT NOT NULL);
         INSERT INTO g VALUES (1, 2, 0), (4, NULL, 3), (5, 6, 6);",
    )
    .unwrap();
    let chosen = "(SELECT CASE WHEN n > k THEN n ELSE k END AS n FROM g)";
    let rows = db.rows(&format!("SELECT max(n), count(n), sum(n) FROM {chosen}"));
    assert_eq!(rows, ["6|3|12"]);
    let rows = db.rows(&format!(
        "SELECT n, count(n) FROM {chosen} GROUP BY n ORDER BY n"
    ));
    assert_eq!(rows, ["2|1", "4|1", "6|1"]);
    let counts = "SELECT (SELECT count(*) FROM g y WHERE y.n = x.n) AS v FROM g x";
    let both = format!("SELECT sum(v), count(v) FROM ({counts} UNION ALL SELECT v FROM g)");
    assert_eq!(db.rows(&both), ["11|6"]);
}

#[test]
fn a_condition_negates_columns_whose_least_value_has_no_negative() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE b AS SELECT value AS k, CAST(value - 128 AS TINYINT) AS t FROM range(201)",
    )
    .unwrap();
    let below = db.rows("SELECT count(*) FROM b WHERE t > -128 AND - t > 5");
    assert_eq!(below, ["122"]);
    let joined = "SELECT count(*) FROM b, b c WHERE b.k = c.k AND c.k + 100 < - b.t";
    assert_eq!(db.rows(joined), ["13"]);
}
