//! Physical plans that are kept as far as they are the same each time, and finished for each run.

use crate::{Fixture, lines};

/// With texts as keys, keys that repeat, and NULLs.
const TABLES: [&str; 3] = [
    "CREATE TABLE t AS SELECT value AS n, value % 100 AS k, value % 7 AS v, 'text ' || (value % 50) AS w
        FROM generate_series(1, 20000) AS g(value)",
    "CREATE TABLE s AS SELECT value AS k, 'text ' || value AS w, value % 10 AS x
        FROM generate_series(0, 99) AS g(value)",
    "CREATE TABLE o AS SELECT CASE WHEN value % 3 = 0 THEN NULL ELSE value END AS k, value AS y
        FROM generate_series(50, 149) AS g(value)",
];

/// Queries whose operators keep something of a run.
const QUERIES: [&str; 23] = [
    // Bounds that an aggregation tells its scan.
    "SELECT min(n), max(n), min(v) FROM t WHERE n + v > 100",
    "SELECT max(n) FROM t WHERE w LIKE '%4%'",
    // A limit tells the scan which rows it still needs.
    "SELECT n, w FROM t WHERE v > 2 ORDER BY v DESC, n LIMIT 5",
    "SELECT k, sum(n) AS total FROM t GROUP BY k ORDER BY total DESC LIMIT 3",
    "SELECT count(*) FROM (SELECT n FROM t LIMIT 17)",
    "SELECT count(*), max(a) FROM (SELECT 1 AS a UNION ALL SELECT n FROM t WHERE n < 3 UNION ALL SELECT 7)",
    // Build sides.
    "SELECT s.x, count(*), sum(t.n) FROM t JOIN s ON t.k = s.k WHERE s.x < 4 GROUP BY s.x",
    "SELECT s.x, count(*) FROM t JOIN s ON t.w = s.w GROUP BY s.x",
    "SELECT s.k, o.y FROM s LEFT JOIN o ON s.k = o.k WHERE s.x = 3",
    "SELECT s.k, o.y FROM s FULL JOIN o ON s.k = o.k WHERE coalesce(s.x, 3) = 3",
    "SELECT count(*) FROM s WHERE k NOT IN (SELECT y FROM o)",
    "SELECT count(*) FROM t WHERE EXISTS (SELECT 1 FROM o WHERE o.k = t.k AND o.y > t.v + 60)",
    "SELECT count(*) FROM s JOIN o ON s.k < o.k AND s.x > o.y % 9",
    "SELECT a.x, b.c FROM s AS a CROSS JOIN (SELECT count(*) AS c FROM o) AS b WHERE a.k < 5",
    // Rows that are made once.
    "WITH q AS (SELECT k, sum(n) AS total FROM t GROUP BY k)
        SELECT count(*), sum(a.total) FROM q AS a JOIN q AS b ON a.total < b.total",
    "WITH q AS (SELECT k, sum(n) AS total FROM t GROUP BY k),
            r AS (SELECT total % 7 AS g, count(*) AS c FROM q GROUP BY 1)
        SELECT a.g, a.c, b.c FROM r AS a JOIN r AS b ON a.g = b.g + 1 WHERE a.c < (SELECT max(total) FROM q)",
    // Values of subqueries.
    "SELECT count(*) FROM t WHERE n > (SELECT avg(y) * 100 FROM o) AND v < (SELECT max(x) FROM s WHERE x < 5)",
    "SELECT k, CASE WHEN k > (SELECT avg(k) FROM o) THEN (SELECT max(n) FROM t) ELSE (SELECT min(y) FROM o) END FROM s",
    "WITH q AS (SELECT k, sum(n) AS total FROM t GROUP BY k HAVING sum(n) > (SELECT avg(y) FROM o))
        SELECT count(*) FROM q AS a JOIN q AS b ON a.k = b.k + 1",
    // Order, windows, sets.
    "SELECT k, r FROM (SELECT k, n, rank() OVER (PARTITION BY k ORDER BY n DESC) AS r FROM t) WHERE r <= 2",
    "SELECT k, sum(x) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM s",
    "SELECT k, v, count(*), count(DISTINCT w) FROM t GROUP BY GROUPING SETS ((k), (v), ())",
    "SELECT k FROM s EXCEPT SELECT k FROM o UNION ALL SELECT y FROM o WHERE k IS NULL",
];

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// Whether the operators of a query are kept.
fn has_outline(db: &Fixture, query: &str) -> bool {
    let rows = db.rows("SELECT outline, query FROM kept_plans()");
    let plain =
        |text: &str| -> String { text.chars().filter(char::is_ascii_alphanumeric).collect() };
    let query = plain(query).to_lowercase();
    rows.iter()
        .filter_map(|row| row.strip_prefix("true|"))
        .any(|row| plain(row).to_lowercase() == query)
}

#[test]
fn a_kept_plan_gives_the_same_each_time_also_at_once() {
    let db = Fixture::new();
    TABLES.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    for query in QUERIES {
        let expected = sorted(db.rows(&format!("SET hotshelf.keep_plans = off; {query}")));
        assert!(!expected.is_empty());
        for time in 0..4 {
            assert_eq!(sorted(db.rows(query)), expected, "time {time}: {query}");
        }
        assert!(has_outline(&db, query), "{query}");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let session = db.database().session();
                    for time in 0..4 {
                        let rows = lines(&session.query(query).unwrap());
                        assert_eq!(sorted(rows), expected, "time {time}, at once: {query}");
                    }
                });
            }
        });
    }
}

#[test]
fn rows_that_come_are_in_the_next_answer() {
    let db = Fixture::new();
    TABLES.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    let query = "SELECT s.x, count(*), max(t.n) FROM t JOIN s ON t.k = s.k GROUP BY s.x ORDER BY 3 DESC LIMIT 1";
    for _ in 0..3 {
        assert_eq!(db.rows(query), ["0|2000|20000"]);
    }
    assert!(has_outline(&db, query));
    db.run("INSERT INTO t VALUES (30000, 1, 1, 'new')").unwrap();
    for _ in 0..3 {
        assert_eq!(db.rows(query), ["1|2001|30000"]);
    }
    db.run("CREATE INDEX i ON t USING elf (k, v)").unwrap();
    for _ in 0..3 {
        assert_eq!(db.rows(query), ["1|2001|30000"]);
    }
    db.run("CREATE OR REPLACE TABLE s AS SELECT 1 AS k, 5 AS x")
        .unwrap();
    for _ in 0..3 {
        assert_eq!(db.rows(query), ["5|201|30000"]);
    }
}

#[test]
fn what_reads_more_than_stored_tables_has_no_outline() {
    let db = Fixture::new();
    TABLES.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    let recursive = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 9)
        SELECT count(*) FROM r JOIN s ON r.n = s.k";
    let explained = "EXPLAIN SELECT count(*) FROM t JOIN s ON t.k = s.k WHERE s.x = 3";
    for query in [recursive, explained] {
        let first = db.rows(query);
        for _ in 0..3 {
            assert_eq!(db.rows(query).len(), first.len());
        }
        assert!(!has_outline(&db, query), "{query}");
    }
}
