//! Groups that are made before tables are joined: answers beside those of the same query with an aggregate that cannot
//! be put together, for which no rule changes the plan.

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
        // A variance is not put together.
        let and = match sql.contains("HAVING") {
            true => "AND",
            false => "HAVING",
        };
        let of = ["s.n", "x.n"][usize::from(sql.contains("x.n"))];
        let other = format!("{sql} {and} var_pop({of}) > -1");
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
            &format!("SELECT * FROM ({sql} HAVING var_pop(1) > -1)"),
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
    // Nor does a condition on one table that a scan tests, on either side of the joins.
    for sql in [
        format!("SELECT n.name, count(*) {JOINED} WHERE 100 / (59 - s.code) > 1 GROUP BY n.name"),
        format!("SELECT n.kind, sum(s.n) {JOINED} WHERE CAST(substr(n.name, 6) AS INT) > 1 GROUP BY n.kind"),
        "SELECT l.c, sum(s.n) FROM lots AS l LEFT JOIN sales AS s ON l.a = s.a AND 100 / (59 - s.code) > 1 GROUP BY l.c"
            .to_owned(),
    ] {
        assert!(!is_early(&db, &sql), "{sql}");
    }
    // Code 59 has no name: what fails for its rows alone does not fail.
    let sql = format!("SELECT n.name, sum(10 / (59 - s.code)) {JOINED} GROUP BY n.name");
    assert!(!is_early(&db, &sql));
    assert!(!db.rows(&sql).is_empty());
}

/// Tables whose rows are joined with several of [`sales`], or with none. Some have no keys.
fn visits() -> Fixture {
    let db = sales();
    let made = "CREATE TABLE visits AS SELECT CASE WHEN value % 17 = 0 THEN NULL ELSE value % 1100 END AS a, \
        2 * (value % 1000) AS even, value % 650 AS code, value % 6 AS x, concat('visit ', value % 9) AS t \
        FROM generate_series(1, 2200) AS g(value)";
    db.run(made).unwrap();
    db
}

/// All functions that can be put together, over sales, and some over visits.
const VALUES: [&str; 3] = [
    "count(*) AS all_rows, count(s.price) AS c, sum(s.n) AS t, sum(s.price) AS p, min(s.price) AS least, \
     max(s.n) AS most, sum(s.weight) AS w",
    "avg(s.n) AS of_n, avg(s.price) AS of_price, avg(s.weight) AS of_weight, count(s.n + s.b) AS c, max(v.t) AS t",
    "sum(s.n) FILTER (WHERE s.b > 2) AS t, count(s.price) FILTER (WHERE s.day = 3) AS c, min(v.x) AS least, \
     avg(s.price) FILTER (WHERE s.day IS NULL) AS of_price",
];

/// The same query where no group is made early.
fn with_variance(sql: &str) -> String {
    format!("{sql} HAVING (var_pop(s.n) > -1) IS NOT FALSE")
}

/// Both plans have the same answer, and the first one has early groups.
fn check_early(db: &Fixture, sql: &str) {
    let other = with_variance(sql);
    assert!(is_early(db, sql), "{sql}");
    assert!(!is_early(db, &other), "{other}");
    check_same(db, sql, &other);
}

#[test]
fn rows_that_joins_repeat_have_the_same_groups() {
    let db = visits();
    for from in [
        "sales AS s JOIN visits AS v ON s.a = v.a",
        "visits AS v JOIN sales AS s ON s.a = v.a AND s.b + v.x < 9",
        "sales AS s JOIN visits AS v ON s.code = v.code",
        "sales AS s JOIN visits AS v ON s.a = v.a JOIN days AS d ON v.x = d.day",
    ] {
        for values in VALUES {
            for keys in ["", " GROUP BY v.t, s.b + v.x"] {
                check_early(&db, &format!("SELECT {values} FROM {from}{keys}"));
            }
        }
    }
}

#[test]
fn rows_that_left_joins_find_have_the_same_groups() {
    let db = visits();
    for on in [
        "s.a = v.a",
        "s.a = v.a AND s.b > v.x",
        "s.code = v.code AND s.day < 20",
    ] {
        for values in VALUES {
            for keys in ["", " GROUP BY v.x", " GROUP BY v.a, v.t"] {
                let from = format!("visits AS v LEFT JOIN sales AS s ON {on}");
                check_early(&db, &format!("SELECT {values} FROM {from}{keys}"));
            }
        }
    }
}

#[test]
fn groups_of_rows_that_are_joined_with_none_are_dropped() {
    let db = visits();
    for values in VALUES {
        // Twice a number and one is not even.
        let odd = "2 * s.a + 1 = v.even";
        let joined = format!("SELECT {values} FROM sales AS s JOIN visits AS v ON {odd}");
        check_early(&db, &joined);
        let by_key = format!("{joined} GROUP BY v.x");
        assert!(is_early(&db, &by_key), "{by_key}");
        assert!(db.rows(&by_key).is_empty(), "{by_key}");
        let left =
            format!("SELECT {values} FROM visits AS v LEFT JOIN sales AS s ON {odd} GROUP BY v.x");
        check_early(&db, &left);
    }
}

#[test]
fn rows_that_are_added_after_a_plan_was_made_are_counted() {
    let db = visits();
    let left = "SELECT v.a, count(s.n) AS c, sum(s.n) AS t FROM visits AS v LEFT JOIN sales AS s ON s.a = v.a \
        GROUP BY v.a";
    let inner =
        "SELECT v.x, avg(s.n) AS n FROM visits AS v JOIN sales AS s ON s.a = v.a GROUP BY v.x";
    let rows = [left, inner].map(|sql| db.rows(sql));
    for added in [
        "INSERT INTO sales SELECT a, b, code, day, n, price, weight FROM sales WHERE n < 500",
        "INSERT INTO visits VALUES (7, 8, 9, 10, 'visit'), (NULL, 8, 9, 10, 'visit'), (5000, 8, 9, 10, 'visit')",
    ] {
        db.run(added).unwrap();
        [left, inner].iter().for_each(|sql| check_early(&db, sql));
    }
    assert_ne!([left, inner].map(|sql| db.rows(sql)), rows);
}

#[test]
fn values_that_cannot_be_put_together_are_not_grouped_early() {
    let db = visits();
    for values in [
        "count(DISTINCT s.b)",
        "sum(s.n), sum(v.x)",
        "var_pop(s.n)",
        "sum(s.n) FILTER (WHERE v.x > 3)",
        "sum(100 / (s.b + 1))",
    ] {
        let sql =
            format!("SELECT {values} FROM sales AS s JOIN visits AS v ON s.a = v.a GROUP BY v.x");
        assert!(!is_early(&db, &sql), "{sql}");
        assert_eq!(db.rows(&sql).len(), 6, "{sql}");
    }
}

#[test]
fn explain_says_why_groups_are_not_made_early() {
    let db = visits();
    for (sql, reason) in [
        (
            "SELECT d.name, sum(s.n) FROM sales AS s JOIN days AS d ON s.day = d.day GROUP BY d.name",
            "one star pipeline joins and groups them",
        ),
        (
            "SELECT v.x, s.n, count(*) FROM sales AS s JOIN visits AS v ON s.a = v.a GROUP BY v.x, s.n",
            "groups are not few beside the rows",
        ),
    ] {
        let shown = db.rows(&format!("EXPLAIN VERBOSE {sql}")).join("\n");
        assert!(
            shown.contains("rows are not grouped before they are joined"),
            "{shown}"
        );
        assert!(shown.contains(reason), "{shown}");
    }
}
