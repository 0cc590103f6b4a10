//! Groups that are made before their names are joined: answers beside those of the same query with an aggregate that
//! cannot be put together, for which no rule changes the plan.

use hotshelf::Options;

use crate::Fixture;

const EARLY: &str = "__early_key_0";

/// 400 000 rows that match by two keys. Of the codes some have no name, some several, some the same one as others, and
/// some rows have none.
fn sales() -> Fixture {
    let db = Fixture::with(Options::default());
    let statements = [
        "CREATE TABLE sales AS SELECT value % 1000 AS a, value % 7 AS b, \
         CASE WHEN value % 11 = 0 THEN NULL ELSE value % 60 END AS code, value % 13 AS day, value AS n, \
         CASE WHEN value % 5 = 0 THEN NULL ELSE CAST(value % 1000 AS DECIMAL(10, 2)) / 4 END AS price, \
         value / 8.0 AS weight FROM generate_series(1, 400000) AS g(value)",
        "CREATE TABLE lots AS SELECT value % 1000 AS a, value % 7 AS b, value % 5 AS c, concat('lot ', value % 3) AS l \
         FROM generate_series(1, 7000) AS g(value)",
        "CREATE TABLE names AS SELECT CASE WHEN value = 49 THEN NULL ELSE value % 45 END AS code, \
         CASE WHEN value % 9 = 0 THEN NULL ELSE concat('name ', value % 20) END AS name, value % 4 AS kind \
         FROM generate_series(1, 50) AS g(value)",
        "CREATE TABLE days AS SELECT value AS day, concat('day ', value % 7) AS name FROM generate_series(0, 12) AS \
         g(value)",
    ];
    statements.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    db
}

fn is_early(db: &Fixture, sql: &str) -> bool {
    db.rows(&format!("EXPLAIN {sql}"))
        .join("\n")
        .contains(EARLY)
}

/// Both queries have the same rows, and some.
fn check_same(db: &Fixture, sql: &str, other: &str) {
    let [mut found, mut expected] = [sql, other].map(|sql| db.rows(sql));
    found.sort();
    expected.sort();
    assert!(!found.is_empty(), "{sql}");
    assert_eq!(found, expected, "{sql}");
}

/// FROM and WHERE of the queries.
const JOINED: &str =
    "FROM sales AS s JOIN lots AS l ON s.a = l.a AND s.b = l.b JOIN names AS n ON s.code = n.code";

#[test]
fn names_that_are_looked_up_last_are_those_of_the_groups() {
    let db = sales();
    let queries = [
        format!("SELECT n.name, count(*) AS c, sum(s.n) AS t {JOINED} GROUP BY n.name"),
        format!(
            "SELECT c + 1, upper(n.name) AS u, count(price), sum(price), min(price), max(s.n) {JOINED} \
                 GROUP BY c, upper(n.name)"
        ),
        format!(
            "SELECT n.name, d.name, sum(s.weight), count(s.code) {JOINED} JOIN days AS d ON s.day = d.day \
                 GROUP BY d.name, n.name"
        ),
        format!(
            "SELECT name AS a, max(l.l), min(s.b) {JOINED} WHERE s.n > 1000 AND l.c < 4 GROUP BY name, kind \
                 HAVING count(*) > 10"
        ),
        format!(
            "SELECT x.name, sum(x.n) FROM (SELECT n.name, s.n, l.c AS code {JOINED}) AS x GROUP BY x.code, x.name"
        ),
    ];
    for sql in &queries {
        assert!(is_early(&db, sql), "{sql}");
        // An average is not put together.
        let and = match sql.contains("HAVING") {
            true => "AND",
            false => "HAVING",
        };
        let of = ["s.n", "x.n"][usize::from(sql.contains("x.n"))];
        let other = format!("{sql} {and} avg({of}) > -1");
        assert!(!is_early(&db, &other), "{other}");
        check_same(&db, sql, &other);
    }
}

#[test]
fn columns_that_are_the_same_below_their_names_keep_their_names() {
    let db = sales();
    for sql in [
        format!(
            "SELECT n1, n2, b1 FROM (SELECT n.name AS n1, n.name AS n2, s.b AS b1 {JOINED}) AS v GROUP BY n1, n2, b1"
        ),
        format!(
            "SELECT b1, b2 FROM (SELECT n.name AS n1, s.b AS b1, s.b AS b2 {JOINED}) AS v GROUP BY b1, b2, n1"
        ),
        format!(
            "SELECT name, sum(x), sum(y), min(z) FROM (SELECT n.name, s.b AS x, s.b AS y, l.c AS z {JOINED}) AS v \
                 GROUP BY name"
        ),
        format!(
            "SELECT name, min(x), min(y) FROM (SELECT n.name, s.n AS x, CAST(s.n AS DOUBLE) AS y {JOINED}) AS v \
                 GROUP BY name"
        ),
        format!(
            "SELECT name, count(x), count(y), count(*) FROM (SELECT n.name, 1 AS x, 2 AS y {JOINED}) AS v \
                 GROUP BY name"
        ),
    ] {
        check_same(
            &db,
            &sql,
            &format!("SELECT * FROM ({sql} HAVING avg(1) > 0)"),
        );
    }
}

#[test]
fn rows_without_names_are_not_computed_with() {
    let db = sales();
    // Sums of rows without names have no room.
    let large = "CASE WHEN s.code < 45 THEN 1 ELSE 9000000000000000000 END";
    let made = format!("CREATE TABLE large AS SELECT *, {large} AS x FROM sales AS s");
    db.run(&made).unwrap();
    let summed = JOINED.replace("FROM sales", "FROM large");
    let of = |column: &str| format!("SELECT n.name, sum({column}) {summed} GROUP BY n.name");
    assert!(is_early(&db, &of("s.n")));
    assert!(!is_early(&db, &of("s.x")));
    assert!(!db.rows(&of("s.x")).is_empty());
    let sql =
        format!("SELECT n.name, count(*) {JOINED} AND 100 / (59 - s.code) > l.c GROUP BY n.name");
    assert!(!is_early(&db, &sql));
    assert!(!db.rows(&sql).is_empty());
    // Code 59 has no name: what fails for its rows alone does not fail.
    let sql = format!("SELECT n.name, sum(10 / (59 - s.code)) {JOINED} GROUP BY n.name");
    assert!(!is_early(&db, &sql));
    assert!(!db.rows(&sql).is_empty());
}
