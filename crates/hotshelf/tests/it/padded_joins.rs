//! Outer joins of which some rows alone are kept, and semi joins that ask for other values: answers beside those of
//! plans that say the same in another way.

use hotshelf::Options;

use crate::Fixture;

/// 40 000 sales of 2 000 orders, a third of the rows returned; keys and values are NULL now and then.
fn market() -> Fixture {
    let db = Fixture::with(Options::default());
    let statements = [
        "CREATE TABLE sales AS SELECT value AS id, CASE WHEN value % 101 = 0 THEN NULL ELSE value % 2000 END AS o, \
         value % 17 AS item, CASE WHEN value % 13 = 0 THEN NULL ELSE value % 2000 % 7 + value / 39000 END AS w \
         FROM generate_series(1, 40000) AS g(value)",
        "CREATE TABLE returns AS SELECT o, item, CASE WHEN id % 5 = 0 THEN NULL ELSE id % 9 END AS reason \
         FROM sales WHERE id % 3 = 0",
        "CREATE TABLE reasons AS SELECT value AS r, concat('reason ', value) AS text \
         FROM generate_series(0, 6) AS g(value)",
    ];
    statements.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    db
}

fn sorted(db: &Fixture, sql: &str) -> Vec<String> {
    let mut rows = db.rows(sql);
    rows.sort();
    rows
}

/// Queries with a word in place of `$` for which the plan has to say the first, and the same rows with the other.
fn same(query: &str, [fast, slow]: [&str; 2], has: &str) {
    let db = market();
    let [fast, slow] = [fast, slow].map(|text| query.replace('$', text));
    let plan = |sql: &str| db.rows(&format!("EXPLAIN {sql}")).join("\n");
    assert!(plan(&fast).contains(has), "{}", plan(&fast));
    assert!(!plan(&slow).contains(has), "{}", plan(&slow));
    let rows = sorted(&db, &fast);
    assert!(!rows.is_empty(), "{fast}");
    assert_eq!(rows, sorted(&db, &slow), "{fast}");
}

#[test]
fn rows_without_a_partner() {
    let query = "SELECT s.id, r.item, r.reason FROM sales AS s LEFT JOIN returns AS r \
                 ON s.o = r.o AND s.item = r.item $";
    let conditions = ["WHERE r.o IS NULL", "WHERE coalesce(r.o, -1) = -1"];
    same(query, conditions, "LeftAnti");
    let conditions = [
        "AND r.reason > s.item WHERE r.item IS NULL AND (r.reason IS NULL OR s.id < 9)",
        "AND r.reason > s.item WHERE coalesce(r.item, -1) = -1",
    ];
    same(query, conditions, "LeftAnti");
}

#[test]
fn rows_with_a_partner() {
    let query = "SELECT s.id, r.reason, t.text FROM sales AS s $ returns AS r ON s.o = r.o AND s.item = r.item \
                 JOIN reasons AS t ON r.reason = t.r";
    let db = market();
    let [left, inner] = ["LEFT JOIN", "JOIN"].map(|join| query.replace('$', join));
    let rows = sorted(&db, &left);
    assert!(!rows.is_empty());
    assert_eq!(rows, sorted(&db, &inner));
    let plan = db.rows(&format!("EXPLAIN {left}")).join("\n");
    assert!(!plan.contains("Left Join"), "{plan}");
}

#[test]
fn other_values_of_a_key() {
    for not in ["", "NOT"] {
        let query = format!(
            "SELECT s.id FROM sales AS s WHERE {not} EXISTS (SELECT * FROM sales AS b WHERE b.o = s.o AND $)"
        );
        same(&query, ["b.w <> s.w", "abs(b.w - s.w) > 0"], "min(");
        let twice = query.replace("b.o = s.o", "b.o = s.o AND b.o = s.o2");
        let twice = twice.replace(
            "FROM sales AS s WHERE",
            "FROM (SELECT *, o AS o2 FROM sales) AS s WHERE",
        );
        same(&twice, ["b.w <> s.w", "abs(b.w - s.w) > 0"], "min(");
        same(&query, ["s.w <> b.w", "(b.w < s.w OR b.w > s.w)"], "min(");
    }
}
