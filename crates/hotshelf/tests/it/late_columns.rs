//! Columns that depend on a group key and are taken after the limit: answers beside those of the same query without a
//! limit, which no rule changes.

use hotshelf::Options;

use crate::Fixture;

const LATE: &str = "__late_0";

/// 60 000 customers of 25 nations, and orders of some of them.
fn market() -> Fixture {
    let db = Fixture::with(Options::default());
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
