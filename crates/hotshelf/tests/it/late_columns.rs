//! Columns that depend on a group key. Those that are taken after a limit: answers beside those of the same query
//! without one. Those that groups carry: answers beside DataFusion's.

use hotshelf::Options;

use crate::Fixture;

const LATE: &str = "__late_0";

/// 60 000 customers of 25 nations, and orders of some of them.
fn market() -> Fixture {
    market_of(Fixture::with(Options::default()))
}

fn market_of(db: Fixture) -> Fixture {
    let statements = [
        "CREATE TABLE customers AS SELECT value * 3 AS k, concat('customer ', value) AS name, \
         CASE WHEN value % 7 = 0 THEN NULL ELSE concat('street ', value % 100) END AS address, value % 25 AS nation, \
         value % 11 AS rank FROM generate_series(1, 60000) AS g(value)",
        "CREATE TABLE nations AS SELECT value AS n, concat('nation ', value) AS country \
         FROM generate_series(0, 23) AS g(value)",
        "CREATE TABLE orders AS SELECT value AS o, value * 31 % 45000 AS customer, value % 997 AS price \
         FROM generate_series(1, 70000) AS g(value)",
    ];
    statements.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    db
}

/// The first rows of a query without a limit.
fn first(db: &Fixture, sql: &str, count: usize) -> Vec<String> {
    let rows = db.rows(sql);
    rows.into_iter().take(count).collect()
}

fn is_late(db: &Fixture, sql: &str) -> bool {
    db.rows(&format!("EXPLAIN {sql} LIMIT 5"))
        .join("\n")
        .contains(LATE)
}

#[test]
fn columns_that_are_taken_last_are_those_of_the_groups() {
    let db = market();
    let queries = [
        "SELECT k, name, sum(price) AS total, country, address FROM customers, orders, nations \
         WHERE customer = k AND nation = n GROUP BY k, name, address, country ORDER BY total DESC, k",
        "SELECT name, count(*) FROM customers JOIN orders ON customer = k GROUP BY k, name, nation ORDER BY 2 DESC, k",
        "SELECT sum(price) + 1 AS more, upper(address), name AS called, k FROM customers JOIN orders ON customer = k \
         WHERE rank < 7 GROUP BY k, name, address HAVING count(*) > 1 ORDER BY more, k DESC",
        "SELECT k, name, rank FROM customers GROUP BY rank, name, k ORDER BY rank, k",
        "SELECT a.k, b.k, a.name, b.name, count(*) AS n FROM customers AS a JOIN customers AS b ON a.k = b.k + 300 \
         JOIN orders ON customer = a.k GROUP BY a.k, b.k, a.name, b.name ORDER BY n DESC, a.k, b.k",
        "SELECT k, name, count(o) AS n FROM customers LEFT JOIN orders ON customer = k GROUP BY k, name \
         ORDER BY n DESC, k",
        "SELECT k, name, total FROM (SELECT k, name, sum(price) AS total FROM customers, orders WHERE k = customer \
         AND k IN (SELECT customer FROM orders WHERE price > 990) GROUP BY name, k) AS x WHERE total > 100 \
         ORDER BY total, k",
    ];
    let queries = queries.into_iter().chain([
        // Two keys that are not selected; names of the answer that are names of columns that are taken last.
        "SELECT a.name, b.name, max(o) AS latest FROM customers AS a JOIN customers AS b ON a.k = b.k + 300 \
         JOIN orders ON customer = a.k GROUP BY a.k, a.name, b.k, b.name ORDER BY latest DESC",
        "SELECT abs(k) AS address, name, sum(price) AS k FROM customers JOIN orders ON customer = k GROUP BY k, name \
         ORDER BY 3 DESC, 1",
        "SELECT k, name, count(*) AS rank FROM customers JOIN orders ON customer = k GROUP BY k, name, nation \
         ORDER BY 3 DESC, k",
    ]);
    for sql in queries {
        let expected = first(&db, sql, 5);
        assert_eq!(expected.len(), 5, "{sql}");
        assert_eq!(db.rows(&format!("{sql} LIMIT 5")), expected, "{sql}");
        assert!(is_late(&db, sql), "{sql}");
    }
}

#[test]
fn columns_are_group_keys_where_they_are_needed_or_their_key_may_repeat() {
    let db = market();
    let by = |keys: &str, rest: &str| {
        format!(
            "SELECT {keys}, sum(price) AS total FROM customers JOIN orders ON customer = k GROUP BY {keys} \
             ORDER BY total DESC, {keys}{rest}"
        )
    };
    let expect = |sql: &str, late: bool| {
        assert_eq!(
            db.rows(&format!("{sql} LIMIT 5")),
            first(&db, sql, 5),
            "{sql}"
        );
        assert_eq!(is_late(&db, sql), late, "{sql}");
    };
    expect(&by("k, name", ""), false);
    expect(&by("name, nation", ""), false);
    let by_key = "SELECT k, name, sum(price) AS total FROM customers JOIN orders ON customer = k \
                  GROUP BY k, name ORDER BY total DESC, k";
    expect(by_key, true);
    // Outer joins give rows that no customer has.
    expect(
        "SELECT k, name, count(*) AS n FROM orders LEFT JOIN customers ON customer = k GROUP BY k, name \
         ORDER BY n DESC, k NULLS LAST",
        false,
    );
    // Few groups.
    expect(&by_key.replace("GROUP", "WHERE k = 93 GROUP"), false);
    db.run("INSERT INTO customers SELECT 31 * 3, 'another', 'elsewhere', 3, 5")
        .unwrap();
    expect(by_key, false);
    let both = "SELECT k, name, sum(price) AS total FROM customers JOIN orders ON customer = k \
                WHERE k = 93 GROUP BY k, name ORDER BY total DESC, k, name";
    assert_eq!(db.rows(&format!("{both} LIMIT 5")).len(), 2);
}

/// Queries whose groups carry what depends on a key, with these columns.
const CARRIED: &[(&str, &str)] = &[
    (
        "SELECT k, name, sum(price) AS total, country, address FROM customers, orders, nations \
         WHERE customer = k AND nation = n GROUP BY k, name, address, country",
        "name, address, country",
    ),
    (
        "SELECT name, count(*), min(o) FILTER (WHERE price > 5) FROM customers JOIN orders ON customer = k \
         GROUP BY nation, name, k HAVING count(*) > 0",
        "nation, name",
    ),
    (
        "SELECT k, name, rank FROM customers GROUP BY rank, name, k",
        "rank, name",
    ),
    (
        "SELECT a.k, b.k, a.name, b.name, count(DISTINCT price) FROM customers AS a JOIN customers AS b \
         ON a.k = b.k + 300 JOIN orders ON customer = a.k GROUP BY a.k, b.k, a.name, b.name",
        "name, name",
    ),
    (
        "SELECT k, name, count(o) FROM customers LEFT JOIN orders ON customer = k GROUP BY k, name",
        "name",
    ),
    // The rows of orders without a customer are a group of NULLs.
    (
        "SELECT k, name, address, count(*) FROM orders LEFT JOIN customers ON customer = k GROUP BY k, name, address",
        "name, address",
    ),
    (
        "SELECT k, address, count(*), sum(price) FROM orders FULL JOIN customers ON customer = k AND price < 900 \
         GROUP BY k, address",
        "address",
    ),
    (
        "SELECT k, called, country, count(*) FROM orders LEFT JOIN (SELECT k, name AS called, country FROM customers \
         JOIN nations ON nation = n) AS c ON customer = c.k GROUP BY k, called, country",
        "called, country",
    ),
    // The key is a column that is equal to the one without a value twice.
    (
        "SELECT customer, name, sum(price) FROM orders JOIN customers ON customer = k GROUP BY customer, name",
        "name",
    ),
    // Groups of groups.
    (
        "SELECT name, k, max(n) FROM (SELECT k, name, rank, count(*) AS n FROM customers JOIN orders ON customer = k \
         GROUP BY k, name, rank) AS x GROUP BY name, k",
        "name",
    ),
];

const NO_STARS: &str = "SET hotshelf.star_pipelines = off;";
const DATAFUSION: &str = "SET hotshelf.star_pipelines = off; SET hotshelf.operators = off;";

fn sorted(db: &Fixture, settings: &str, sql: &str) -> Vec<String> {
    let mut rows = db.rows(&format!("{settings} {sql}"));
    rows.sort_unstable();
    rows
}

fn plan(db: &Fixture, settings: &str, sql: &str) -> String {
    db.rows(&format!("{settings} EXPLAIN {sql}")).join("\n")
}

#[test]
fn groups_carry_what_depends_on_their_keys() {
    let db = market();
    for (sql, carried) in CARRIED {
        let plan = plan(&db, NO_STARS, sql);
        assert!(
            plan.contains(&format!("carried=[{carried}]")),
            "{sql}: {plan}"
        );
        let expected = sorted(&db, DATAFUSION, sql);
        assert!(!expected.is_empty(), "{sql}");
        assert!(sorted(&db, NO_STARS, sql) == expected, "{sql}");
        assert!(sorted(&db, "", sql) == expected, "with stars: {sql}");
    }
}

#[test]
fn what_groups_carry_comes_back_from_disk() {
    let (rich, poor) = (market(), market_of(Fixture::with_little_memory(1 << 20, 2)));
    let always = "SET hotshelf.star_pipelines = off; SET hotshelf.operators = always;";
    for (sql, _) in CARRIED {
        let expected = sorted(&rich, DATAFUSION, sql);
        assert!(sorted(&poor, always, sql) == expected, "{sql}");
    }
}

#[test]
fn keys_are_compared_where_they_do_not_depend_on_others() {
    let db = market();
    let queries = [
        // Which nation a row has depends on its order, too.
        "SELECT k, country, count(*) FROM customers JOIN orders ON customer = k \
         LEFT JOIN nations ON nation = n AND o % 2 = 0 GROUP BY k, country",
        "SELECT name, nation, count(*) FROM customers JOIN orders ON customer = k GROUP BY name, nation",
        "SELECT k, name, count(*) FROM (SELECT k, name FROM customers UNION ALL \
         SELECT k, address FROM customers) AS x GROUP BY k, name",
        "SELECT k, upper(name) AS u, count(*) FROM customers GROUP BY k, upper(name)",
    ];
    for sql in queries {
        let plan = plan(&db, NO_STARS, sql);
        assert!(!plan.contains("carried"), "{sql}: {plan}");
        let expected = sorted(&db, DATAFUSION, sql);
        assert!(sorted(&db, NO_STARS, sql) == expected, "{sql}");
    }
}

#[test]
fn sets_of_keys_are_those_of_datafusion_where_one_key_determines_another() {
    let db = market();
    let sql = "SELECT k, name, count(*) FROM customers JOIN orders ON customer = k GROUP BY ROLLUP (k, name)";
    let expected = sorted(&db, DATAFUSION, sql);
    for settings in [NO_STARS, ""] {
        assert!(sorted(&db, settings, sql) == expected, "{settings}");
    }
}

#[test]
fn a_key_of_which_a_second_row_comes_determines_nothing_any_more() {
    let db = market();
    let sql = "SELECT k, name, address, count(*) FROM customers JOIN orders ON customer = k GROUP BY k, name, address";
    for _ in 0..3 {
        assert_eq!(sorted(&db, NO_STARS, sql), sorted(&db, DATAFUSION, sql));
    }
    assert!(plan(&db, NO_STARS, sql).contains("carried=[name, address]"));
    db.run("INSERT INTO customers SELECT 31 * 3, 'another', 'elsewhere', 3, 5")
        .unwrap();
    let rows = sorted(&db, NO_STARS, sql);
    assert_eq!(rows, sorted(&db, DATAFUSION, sql));
    let of_both = rows.iter().filter(|row| row.starts_with("93|"));
    assert_eq!(of_both.count(), 2);
    assert!(!plan(&db, NO_STARS, sql).contains("carried"));
}

#[test]
fn a_plan_says_why_keys_are_compared_that_depend_on_others() {
    let db = Fixture::with(Options::default());
    db.run(
        "CREATE TABLE t AS SELECT value AS k, value::double / 3 AS f, concat('name ', value) AS name \
         FROM generate_series(1, 60000) AS g(value)",
    )
    .unwrap();
    let sql = "VERBOSE SELECT k, f, name, count(*) FROM t GROUP BY k, f, name";
    let plan = plan(&db, NO_STARS, sql);
    let reason = "compares f, name, which other keys determine, as it is DataFusion's: a key is a floating-point";
    assert!(plan.contains(reason), "{plan}");
}
