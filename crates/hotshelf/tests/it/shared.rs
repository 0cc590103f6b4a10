//! Parts that a query has more than once: computed once, with the answers of computing each.

use crate::{Fixture, lines};

const TABLE: &str =
    "CREATE TABLE t AS SELECT value AS n, value % 100 AS k, CAST(value AS DOUBLE) / 3 AS x
                     FROM generate_series(1, 20000) AS g(value)";

/// The rows with parts shared, which are those of computing each; and how many leaves the plan has.
fn answers(db: &Fixture, sql: &str) -> (Vec<String>, usize) {
    let session = db.database().session();
    let rows = |sql: &str| {
        let answer = async { session.sql(sql).await?.collect().await };
        lines(&db.database().block_on(answer).unwrap())
    };
    rows("SET hotshelf.shared_subplans = off");
    let plan = rows(&format!("EXPLAIN {sql}")).join("\n");
    assert!(!plan.contains("SharedExec"), "{plan}");
    let mut apart = rows(sql);
    rows("SET hotshelf.shared_subplans = on");
    let plan = rows(&format!("EXPLAIN {sql}")).join("\n");
    let mut shared = rows(sql);
    apart.sort();
    shared.sort();
    assert_eq!(shared, apart, "{sql}\n{plan}");
    (shared, plan.matches("Shared: part").count())
}

#[test]
fn a_with_that_is_used_twice_is_computed_once() {
    let db = Fixture::new();
    db.run(TABLE).unwrap();
    let sums = "WITH s AS (SELECT k, sum(n) AS v FROM t GROUP BY k)";
    for (sql, leaves) in [
        (
            format!("{sums} SELECT a.v, b.v FROM s a JOIN s b ON a.k = b.k + 1"),
            2,
        ),
        (
            format!("{sums} SELECT k FROM s WHERE v = (SELECT max(v) FROM s)"),
            2,
        ),
        (
            format!(
                "{sums} SELECT * FROM s UNION ALL SELECT * FROM s UNION ALL SELECT v, k FROM s"
            ),
            3,
        ),
        (
            format!("{sums} SELECT count(*) FROM s a, s b WHERE a.v < b.v"),
            2,
        ),
        (
            format!(
                "{sums}, r AS (SELECT k, rank() OVER (ORDER BY v) AS r FROM s)
                 SELECT a.r FROM r a JOIN r b ON a.r = b.r + 1 JOIN s ON s.k = a.k"
            ),
            2,
        ),
        (format!("{sums} SELECT k FROM s"), 0),
        // A filter that reaches one of them makes them differ.
        (
            format!("{sums} SELECT a.k, b.k FROM s a JOIN s b ON a.v = b.v WHERE a.k = 5"),
            0,
        ),
    ] {
        let (rows, found) = answers(&db, &sql);
        assert!(!rows.is_empty(), "{sql}");
        assert_eq!(
            found,
            leaves,
            "{sql}\n{}",
            db.rows(&format!("EXPLAIN {sql}")).join("\n")
        );
    }
}

#[test]
fn what_differs_each_time_is_not_shared() {
    let db = Fixture::new();
    db.run(TABLE).unwrap();
    let sql = "WITH s AS (SELECT k, max(random()) AS r FROM t GROUP BY k)
               SELECT count(*) FROM s a JOIN s b ON a.k = b.k AND a.r = b.r";
    let plan = db.rows(&format!("EXPLAIN {sql}")).join("\n");
    assert!(!plan.contains("SharedExec"), "{plan}");
    assert_eq!(db.rows(sql), ["0"]);
    let numbers = "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 5),
                   s AS (SELECT n % 2 AS k, count(*) AS v FROM c GROUP BY 1)
                   SELECT a.v FROM s a JOIN s b ON a.k = b.k";
    assert_eq!(answers(&db, numbers), (vec!["2".into(), "3".into()], 0));
}

#[test]
fn a_use_may_stop_early_and_an_error_reaches_every_use() {
    let db = Fixture::new();
    db.run(TABLE).unwrap();
    let groups = "WITH s AS (SELECT n, max(k) AS v FROM t GROUP BY n)";
    let sql = format!(
        "{groups} SELECT count(*) FROM (SELECT * FROM s LIMIT 3) a CROSS JOIN (SELECT v FROM s LIMIT 70) b"
    );
    assert_eq!(answers(&db, &sql).0, ["210"]);
    let sql = format!("{groups} SELECT count(*) FROM s WHERE EXISTS (SELECT 1 FROM s LIMIT 1)");
    assert_eq!(answers(&db, &sql).0, ["20000"]);
    let failing = "WITH s AS (SELECT k, sum(10 / (n - 777)) AS v FROM t GROUP BY k)
                   SELECT a.v FROM s a JOIN s b ON a.v = b.v";
    let error = db.run(failing).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("divide"), "{error}");
}

#[test]
fn parts_that_do_not_fit_are_computed_each() {
    let db = Fixture::with(hotshelf::Options {
        budget_bytes: 4 << 20,
        ..hotshelf::Options::default()
    });
    db.run("CREATE TABLE t AS SELECT value AS n, concat('a text that is not short ', value % 150000) AS k
            FROM generate_series(1, 300000) AS g(value)")
        .unwrap();
    let sql = "WITH s AS (SELECT k, count(*) AS v FROM t GROUP BY k)
               SELECT count(*), sum(a.v + b.v) FROM s a JOIN s b ON a.k = b.k";
    let (rows, _) = answers(&db, sql);
    assert_eq!(rows, ["150000|600000"]);
}

#[test]
fn joins_that_take_long_are_made_once() {
    let db = Fixture::new();
    db.run(TABLE).unwrap();
    db.run(
        "CREATE TABLE big AS SELECT value AS n, value % 4 AS k, value % 100 / 10.0 AS x \
         FROM generate_series(1, 600000) AS g(value)",
    )
    .unwrap();
    let joined = "WITH j AS (SELECT a.n, a.k, b.x FROM t a JOIN t b ON a.n = b.n AND a.k = b.k WHERE b.x > 50)";
    for (sql, leaves) in [
        (
            format!(
                "{joined} SELECT sum(n) FROM j UNION ALL SELECT count(*) FROM j WHERE k IN (SELECT k FROM j)"
            ),
            0,
        ),
        (
            format!("{joined} SELECT n, k, x FROM j UNION ALL SELECT n, k, x FROM j"),
            0,
        ),
        // Many rows are looked up for few.
        (
            "WITH j AS (SELECT a.n, a.k, b.x FROM big a JOIN big b ON a.n = b.n WHERE b.x > 9.8)
             SELECT n, k, x FROM j UNION ALL SELECT n, k, x FROM j"
                .to_owned(),
            2,
        ),
        // A look-up in a table of few rows.
        (
            "WITH s AS (SELECT n, v FROM t JOIN (VALUES (1, 2), (3, 4)) AS d (i, v) ON k = i)
             SELECT n, v FROM s UNION ALL SELECT n, v FROM s"
                .to_owned(),
            0,
        ),
    ] {
        let (rows, found) = answers(&db, &sql);
        assert!(!rows.is_empty(), "{sql}");
        let plan = db.rows(&format!("EXPLAIN {sql}")).join("\n");
        assert_eq!(found, leaves, "{sql}\n{plan}");
    }
}

#[test]
fn table_functions_with_other_arguments_are_other_parts() {
    let db = Fixture::new();
    let sum = |end: usize| format!("SELECT sum(value) FROM generate_series(1, {end})");
    let sql = format!("{} UNION ALL {} UNION ALL {}", sum(10), sum(20), sum(10));
    let mut rows = db.rows(&sql);
    rows.sort();
    assert_eq!(rows, ["210", "55", "55"]);
}

#[test]
fn a_join_in_groups_that_are_made_once_is_used_once_there() {
    let db = Fixture::new();
    db.run("CREATE TABLE big AS SELECT value AS n, value % 7 AS k FROM generate_series(1, 60000) AS g(value)")
        .unwrap();
    let sql = "WITH j AS (SELECT a.n, b.k FROM big a JOIN big b ON a.n = b.n AND a.k + b.k > 11), \
               g AS (SELECT k, count(*) AS v FROM j GROUP BY k) \
               SELECT count(*) FROM g g1 JOIN g g2 ON g1.v = g2.v JOIN j ON j.k = g1.k";
    let (rows, leaves) = answers(&db, sql);
    assert_eq!(rows.len(), 1);
    assert_eq!(leaves, 2);
}

/// WITHs that each take `step` of the one before, which is `{}`, and a query of the last.
fn chain(levels: usize, first: &str, step: &str, last: &str) -> String {
    let mut withs = format!("w0 AS ({first})");
    for level in 1..=levels {
        let step = step.replace("{}", &format!("w{}", level - 1));
        withs += &format!(", w{level} AS ({step})");
    }
    format!("WITH {withs} {}", last.replace("{}", &format!("w{levels}")))
}

const SUMS: &str = "SELECT k, sum(n) AS v FROM t GROUP BY k";
/// Doubles each value modulo 1000.
const JOINED: &str = "SELECT a.k, (a.v + b.v) % 1000 AS v FROM {} a JOIN {} b ON a.k = b.k";

#[test]
fn withs_that_are_too_long_written_out_are_refused() {
    let db = Fixture::new();
    db.run(TABLE).unwrap();
    let last = "SELECT count(*) FROM {}";
    assert_eq!(db.rows(&chain(5, SUMS, JOINED, last)), ["100"]);
    // Each once, however many.
    let step = "SELECT k, v + 1 AS v FROM {}";
    assert_eq!(db.rows(&chain(100, SUMS, step, last)), ["100"]);
    let in_subqueries = "SELECT k, v FROM {} WHERE v >= (SELECT min(v) FROM {})";
    for (levels, step) in [(12, JOINED), (70, JOINED), (400, in_subqueries)] {
        let sql = chain(levels, SUMS, step, last);
        for sql in [
            format!("EXPLAIN {sql}"),
            format!("SELECT * FROM ({sql})"),
            sql,
        ] {
            let error = db.run(&sql).unwrap_err().to_string();
            assert!(error.contains("written out"), "{error}");
        }
    }
}

/// Makes groups with texts of this length once, of six rows each, and gives the plan after it has run.
fn spilled_groups(db: &Fixture, groups: usize, length: usize) -> String {
    let texts = format!(
        "CREATE TABLE t AS SELECT value % {groups} AS k, concat(repeat('x', {length}), value % 7) AS v
         FROM generate_series(1, {}) AS g(value)",
        6 * groups
    );
    db.run(&texts).unwrap();
    let sql = "WITH s AS (SELECT k, max(v) AS v FROM t GROUP BY k)
               SELECT count(*), sum(length(a.v) + length(b.v)) FROM s a JOIN s b ON a.k = b.k";
    let (rows, leaves) = answers(db, sql);
    assert_eq!(rows, [format!("{groups}|{}", 2 * groups * (length + 1))]);
    assert_eq!(leaves, 2);
    db.rows(&format!("EXPLAIN ANALYZE {sql}")).join("\n")
}

fn assert_spilled(analyzed: &str) {
    // The part's own operators come first.
    let mut spilled = analyzed.split("], metrics=[spilled_bytes=").skip(1);
    let is_some = spilled.any(|bytes| !bytes.starts_with("0.0 B"));
    assert!(is_some, "{analyzed}");
}

#[test]
fn rows_that_were_expected_to_fit_are_spilled() {
    let db = Fixture::with(hotshelf::Options {
        budget_bytes: 4 << 20,
        ..hotshelf::Options::default()
    });
    assert_spilled(&spilled_groups(&db, 25_000, 2_000));
}

#[test]
fn few_rows_of_many_are_made_once_and_spilled_where_they_are_not_expected_to_fit() {
    let db = Fixture::with_little_memory(1 << 20, 2);
    assert_spilled(&spilled_groups(&db, 12_000, 500));
    // Also where the statement has run out of memory.
    let sql = "EXPLAIN WITH s AS (SELECT k, max(v) AS v FROM t GROUP BY k)
               SELECT count(*) FROM s a JOIN s b ON a.k = b.k";
    let session = db.database().session();
    let plan = async {
        session
            .sql("SET hotshelf.operators = always")
            .await?
            .collect()
            .await?;
        session.sql(sql).await?.collect().await
    };
    let plan = lines(&db.database().block_on(plan).unwrap()).join("\n");
    assert!(plan.contains("SharedExec"), "{plan}");
}

#[test]
fn parts_in_parts_have_numbers_of_their_own() {
    let db = Fixture::new();
    db.run(TABLE).unwrap();
    let sql = "WITH s AS (SELECT k, sum(n) AS v FROM t GROUP BY k),
               r AS (SELECT a.k, rank() OVER (ORDER BY a.v + b.v) AS r FROM s a JOIN s b ON a.k = b.k + 1)
               SELECT count(*) FROM r a JOIN r b ON a.r = b.r";
    let plan = db.rows(&format!("EXPLAIN {sql}")).join("\n");
    for part in [
        "SharedExec: part 1, used 2 times",
        "SharedExec: part 2, used 2 times",
    ] {
        assert!(plan.contains(part), "{plan}");
    }
}
