//! Semi joins that come early, and groups that are not made because no join asks for them: answers beside those over
//! stored groups, which no rule can reduce.

use hotshelf::Options;

use crate::{Fixture, lines};

const ASKED: &str = "__asked_keys";

/// 40 000 rows of 500 keys, some of them NULL, and 100 shops, of which keys repeat and some have no rows.
fn market() -> Fixture {
    let db = Fixture::with(Options::default());
    let statements = [
        "CREATE TABLE sales AS SELECT value AS id, CASE WHEN value % 11 = 0 THEN NULL ELSE value * 7 % 500 END AS k, \
         value % 97 AS v FROM generate_series(1, 40000) AS g(value)",
        "CREATE TABLE shops AS SELECT CASE WHEN value % 19 = 0 THEN NULL ELSE value * 6 % 540 END AS k, \
         value % 4 AS tag, concat('shop ', value % 40) AS name FROM generate_series(1, 100) AS g(value)",
        "CREATE TABLE towns AS SELECT value AS tag, concat('town ', value) AS town \
         FROM generate_series(0, 2) AS g(value)",
        "CREATE TABLE groups AS SELECT k, sum(v) AS total, avg(v) AS mean, count(*) AS n FROM sales GROUP BY k",
    ];
    statements.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    db
}

fn plan(db: &Fixture, sql: &str) -> String {
    db.rows(&format!("EXPLAIN {sql}")).join("\n")
}

#[test]
fn groups_that_a_join_asks_for_are_those_that_all_groups_would_give() {
    let db = market();
    let groups = "(SELECT k, sum(v) AS total, avg(v) AS mean, count(*) AS n FROM sales GROUP BY k)";
    let queries = [
        "SELECT s.k, s.name, a.total FROM shops AS s JOIN $ AS a ON s.k = a.k WHERE s.tag = 2",
        "SELECT s.k, s.name, a.total FROM shops AS s LEFT JOIN $ AS a ON s.k = a.k WHERE s.tag = 2",
        "SELECT s.k, s.name FROM shops AS s JOIN $ AS a ON s.k = a.k AND a.total > 3500 WHERE s.tag < 2",
        "SELECT count(*), sum(b.v) FROM sales AS b JOIN shops AS s ON b.k = s.k JOIN $ AS a ON a.k = b.k \
         WHERE s.tag = 1 AND b.v < a.mean",
        "SELECT s.name, t.town, a.n FROM shops AS s JOIN towns AS t ON s.tag = t.tag JOIN $ AS a ON s.k = a.k \
         WHERE s.name LIKE 'shop 1%'",
        "SELECT x.key, a.total + 1 FROM (SELECT k AS key, tag AS mark FROM shops WHERE tag = 3) AS x \
         JOIN (SELECT total, k AS other FROM $ AS g WHERE n > 70) AS a ON a.other = x.key",
        "SELECT s.k FROM shops AS s WHERE s.tag = 0 \
         AND EXISTS (SELECT 1 FROM $ AS a WHERE a.k = s.k AND a.n > s.tag + 70)",
    ];
    for query in queries {
        let [asked, all] = [groups, "groups"].map(|groups| query.replace('$', groups));
        let sorted = |sql: &str| {
            let mut rows = db.rows(sql);
            rows.sort();
            rows
        };
        let expected = sorted(&all);
        assert!(!expected.is_empty(), "{query}");
        assert_eq!(sorted(&asked), expected, "{query}");
        assert!(plan(&db, &asked).contains(ASKED), "{query}");
    }
    let scalar = "SELECT count(*), sum(b.v) FROM sales AS b, shops AS s WHERE b.k = s.k AND s.tag = 1 \
                  AND b.v < (SELECT avg(v) FROM sales AS c WHERE c.k = s.k)";
    let joined = "SELECT count(*), sum(b.v) FROM sales AS b, shops AS s, groups AS g \
                  WHERE b.k = s.k AND s.tag = 1 AND g.k = s.k AND b.v < g.mean";
    assert_eq!(db.rows(scalar), db.rows(joined));
    assert!(plan(&db, scalar).contains(ASKED));
}

#[test]
fn groups_are_all_made_where_keys_may_differ_from_run_to_run_or_are_not_few() {
    let db = market();
    let asks = |from: &str, condition: &str| {
        let sql = format!(
            "SELECT s.k, a.total FROM {from} AS s JOIN (SELECT k, sum(v) AS total FROM sales GROUP BY k) AS a \
             ON s.k = a.k WHERE {condition}"
        );
        plan(&db, &sql).contains(ASKED)
    };
    assert!(asks("shops", "s.tag = 2"));
    assert!(!asks("shops", "s.tag = 2 AND random() < 0.5"));
    assert!(!asks("shops", "true"), "no filter");
    assert!(!asks("sales", "s.v = 2"), "a table as large as the other");
    assert!(!asks("(SELECT * FROM shops LIMIT 9)", "s.tag = 2"));
    let outer = "SELECT s.k, a.total FROM (SELECT * FROM shops WHERE tag = 2) AS s FULL JOIN \
                 (SELECT k, sum(v) AS total FROM sales GROUP BY k) AS a ON s.k = a.k";
    assert!(!plan(&db, outer).contains(ASKED), "it gives all groups");
}

#[test]
fn a_subquery_of_few_groups_reduces_the_side_of_a_join_that_has_its_key() {
    let db = market();
    let few = "SELECT k FROM sales GROUP BY k HAVING sum(v) > 3540";
    let query = |few: &str| {
        format!(
            "SELECT s.name, t.town, count(*), sum(b.v) FROM shops AS s, sales AS b, towns AS t \
             WHERE s.k = b.k AND s.tag = t.tag AND b.k IN ({few}) GROUP BY s.name, t.town ORDER BY s.name, t.town"
        )
    };
    let expected = db.rows(&query("SELECT k FROM groups WHERE total > 3540"));
    assert!(!expected.is_empty());
    let sql = query(few);
    assert_eq!(db.rows(&sql), expected);
    // Nodes come before their inputs.
    let in_order = db.rows(&format!("SET hotshelf.join_order = off; EXPLAIN {sql}"));
    let text = in_order.join("\n");
    let place = |what: &str| text.find(what).expect(&text);
    assert!(place("LeftSemi Join") > place("Inner Join"), "{text}");
    // Where joins are ordered, too, rows of sales are looked up there first.
    let text = plan(&db, &sql);
    assert!(text.contains("look-ups=[semi k = k@0"), "{text}");
}

/// The answer without star pipelines, and how many rows the scan of a table gave.
fn scanned(db: &Fixture, sql: &str, table: &str) -> (Vec<String>, String) {
    let [answer, plan] = ["", "EXPLAIN ANALYZE "].map(|explain| {
        let session = db.database().session();
        let rows = db.database().block_on(async {
            let off = session.sql("SET hotshelf.star_pipelines = off").await?;
            off.collect().await?;
            session
                .sql(&format!("{explain}{sql}"))
                .await?
                .collect()
                .await
        });
        lines(&rows.unwrap())
    });
    let scan = plan
        .iter()
        .find(|line| line.contains(&format!("table={table},")));
    let scan = scan.expect("there is a scan of the table");
    let rows = scan.split("output_rows=").nth(1).expect(scan);
    (
        answer,
        rows.split(',').next().unwrap_or_default().to_owned(),
    )
}

#[test]
fn a_scan_drops_rows_that_a_join_above_does_not_need_as_soon_as_that_is_known() {
    let db = market();
    let sql = "SELECT count(*), sum(b.v) FROM towns AS t JOIN shops AS s ON t.tag = s.tag JOIN sales AS b ON s.k = b.k \
               WHERE t.town = 'town 2'";
    let (answer, rows) = scanned(&db, sql, "shops");
    let expected =
        "SELECT count(*), sum(b.v) FROM shops AS s JOIN sales AS b ON s.k = b.k WHERE s.tag = 2";
    assert_eq!(answer, db.rows(expected));
    assert_eq!(db.rows(sql), answer, "with star pipelines");
    assert_eq!(rows, "25");
}
