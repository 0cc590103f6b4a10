//! The order of joins: whatever it is, the rows are those of the order in the text.

use fastrand::Rng;
use hotshelf::Options;

use crate::{Fixture, lines};

/// Tables of random sizes with keys that repeat, are missing, and are NULL.
fn world(random: &mut Rng) -> (Fixture, usize) {
    let db = Fixture::with(Options::default());
    let count = random.usize(3..=7);
    for table in 0..count {
        let rows = [1, 3, 40, 200, 900][random.usize(0..5)];
        let spread = [3, 17, 101][random.usize(0..3)];
        let sql = format!(
            "CREATE TABLE t{table} AS SELECT value AS id, \
             CASE WHEN value % 13 = 5 THEN NULL ELSE value * 7 % {spread} END AS a, \
             CASE WHEN value % 9 = 2 THEN NULL ELSE CAST(value % 23 AS INT) END AS b, \
             concat('k', value % 19) AS s, CAST(value % 11 AS DOUBLE) AS f, \
             CAST(value % 31 AS DECIMAL(9, 2)) AS d FROM generate_series(1, {rows}) AS g(value)"
        );
        db.run(&sql).unwrap();
    }
    (db, count)
}

/// An equality between two tables, now and then of another kind.
fn equality(random: &mut Rng, one: &str, other: &str) -> String {
    let text = [
        "a = $.a", "b = $.b", "id = $.a", "b = $.id", "s = $.s", "f = $.f", "d = $.b",
    ];
    let text = text[random.usize(0..text.len())].replace('$', other);
    format!("{one}.{text}")
}

fn condition(random: &mut Rng, table: &str) -> String {
    let text = [
        "$.id < 30",
        "$.a = 2",
        "$.a IS NULL",
        "$.b IS NOT NULL",
        "$.s IN ('k1', 'k7', 'k9')",
        "$.s LIKE 'k1%'",
        "($.a = 1 OR $.b = 4)",
        "NOT $.f > 5",
        "$.d BETWEEN 3 AND 20",
        "$.id % 3 = 1",
    ];
    text[random.usize(0..text.len())].replace('$', table)
}

/// A query that joins all tables, with its FROM clause in any form.
fn query(random: &mut Rng, count: usize) -> String {
    let mut wheres = Vec::new();
    let mut from = "t0".to_owned();
    for table in 1..count {
        let (this, other) = (format!("t{table}"), other_in(&from, random));
        let on = equality(random, &this, &other);
        match random.usize(0..6) {
            0 => from = format!("{from} JOIN {this} ON {on}"),
            1 => from = format!("{from} LEFT JOIN {this} ON {on}"),
            2 => from = format!("{from} CROSS JOIN (SELECT * FROM {this} WHERE id < 4) AS {this}"),
            3 => wheres.push(format!("EXISTS (SELECT 1 FROM {this} WHERE {on})")),
            _ => {
                from = format!("{from} CROSS JOIN {this}");
                wheres.push(on);
            }
        }
        let is_there = !wheres.last().is_some_and(|last| last.starts_with("EXISTS"));
        if is_there && random.usize(0..3) == 0 {
            let other = other_in(&from, random);
            wheres.push(equality(random, &this, &other));
        }
        if is_there && random.bool() {
            wheres.push(condition(random, &this));
        }
    }
    // Rows are few enough to be counted in any order.
    wheres.push("t0.id < 60".into());
    if random.usize(0..4) == 0 {
        let other = other_in(&from, random);
        wheres.push(format!("(t0.a < {other}.b OR {other}.a = 3)"));
    }
    let last = other_in(&from, random);
    format!(
        "SELECT count(*) AS n, sum(t0.id) AS ids, sum({last}.a) AS a, min({last}.s) AS s, max(t0.b) AS b FROM {from} \
         WHERE {}",
        wheres.join(" AND ")
    )
}

/// A table that FROM has.
fn other_in(from: &str, random: &mut Rng) -> String {
    let names = (0..8).map(|table| format!("t{table}"));
    let names: Vec<String> = names.filter(|name| from.contains(name.as_str())).collect();
    names[random.usize(0..names.len())].clone()
}

fn with(db: &Fixture, settings: &str, sql: &str) -> Vec<String> {
    let session = db.database().session();
    let rows = db.database().block_on(async {
        for set in settings.split(';') {
            session.sql(&format!("SET {set}")).await?.collect().await?;
        }
        session.sql(sql).await?.collect().await
    });
    lines(&rows.unwrap_or_else(|error| panic!("{settings}: {sql}: {error}")))
}

#[test]
fn random_joins_give_the_same_rows_in_every_order() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let mut random = Rng::with_seed(seed.unwrap_or_else(|| fastrand::u64(..)));
    let (mut changed, mut with_rows) = (0, 0);
    for _ in 0..8 {
        let (db, count) = world(&mut random);
        for _ in 0..6 {
            let sql = query(&mut random, count);
            let expected = with(&db, "hotshelf.join_order = off", &sql);
            for stars in ["on", "off"] {
                let always =
                    format!("hotshelf.join_order = always;hotshelf.star_pipelines = {stars}");
                assert_eq!(with(&db, &always, &sql), expected, "{sql}");
            }
            let plan = with(
                &db,
                "hotshelf.join_order = always",
                &format!("EXPLAIN {sql}"),
            );
            changed += usize::from(plan.join("\n").contains("join_order"));
            with_rows += usize::from(!expected[0].starts_with("0|"));
        }
    }
    assert!(changed > 10, "{changed} orders changed");
    assert!(with_rows > 5, "{with_rows} queries have rows");
}

#[test]
fn columns_keep_their_names_and_their_order() {
    let db = Fixture::new();
    for (name, rows) in [("big", 90_000), ("mid", 3_000), ("small", 60)] {
        let sql = format!(
            "CREATE TABLE {name} AS SELECT value AS id, value % 50 AS k FROM generate_series(1, {rows}) AS g(value)"
        );
        db.run(&sql).unwrap();
    }
    let sql = "SELECT *, big.k + small.k AS k3 FROM big JOIN mid ON big.id = mid.id JOIN small ON mid.id = small.id \
               WHERE small.k = 7 ORDER BY big.id";
    let [changed, plain] = ["on", "off"].map(|order| {
        let session = db.database().session();
        let rows = db.database().block_on(async {
            let set = format!("SET hotshelf.join_order = {order}");
            session.sql(&set).await?.collect().await?;
            session.sql(sql).await?.collect().await
        });
        rows.unwrap()
    });
    assert_eq!(changed[0].schema(), plain[0].schema());
    assert_eq!(lines(&changed), lines(&plain));
    assert_eq!(lines(&changed), ["7|7|7|7|7|7|14", "57|7|57|7|57|7|14"]);
}

#[test]
fn explain_says_that_the_order_was_changed() {
    let db = Fixture::new();
    for (name, rows) in [("big", 90_000), ("mid", 30_000), ("small", 600)] {
        let sql = format!(
            "CREATE TABLE {name} AS SELECT value AS id, value % 500 AS k FROM generate_series(1, {rows}) AS g(value)"
        );
        db.run(&sql).unwrap();
    }
    let sql = "EXPLAIN SELECT count(*) FROM big, mid, small WHERE big.k = mid.id AND mid.id = small.id AND small.k = 3";
    let plan = db.rows(sql).join("\n");
    assert!(plan.contains("join_order|"), "{plan}");
    assert!(
        plan.contains("of the work of the order in the text"),
        "{plan}"
    );
    assert!(
        !with(&db, "hotshelf.join_order = off", sql)
            .join("\n")
            .contains("join_order")
    );
}

#[test]
fn left_joins_over_what_others_add_come_after_them() {
    let db = Fixture::with(Options::default());
    db.run(
        "CREATE TABLE a AS SELECT * FROM (VALUES (1, 1), (2, 2), (3, 3)) v(k, u); \
         CREATE TABLE b AS SELECT * FROM (VALUES (1, 1, 1), (2, 2, 2)) v(k, u, s); \
         CREATE TABLE c AS SELECT * FROM (VALUES (1)) v(s)",
    )
    .unwrap();
    let both = "a.k = b.k AND a.u = b.u";
    for (sql, expected) in [
        (
            format!("a LEFT JOIN b ON {both} LEFT JOIN c ON b.s = c.s"),
            "3",
        ),
        (
            format!("a LEFT JOIN b ON {both} WHERE NOT EXISTS (SELECT 1 FROM c WHERE b.s = c.s)"),
            "2",
        ),
        (
            format!("a LEFT JOIN b ON {both} WHERE EXISTS (SELECT 1 FROM c WHERE b.s = c.s)"),
            "1",
        ),
        (
            format!("a FULL JOIN b ON {both} LEFT JOIN c ON b.s = c.s WHERE a.k > 0"),
            "3",
        ),
        (
            format!(
                "a LEFT JOIN b ON {both} LEFT JOIN c ON b.s = c.s LEFT JOIN a a2 ON a2.k = c.s"
            ),
            "3",
        ),
        (
            format!("a LEFT JOIN b ON {both} LEFT JOIN c ON b.s = c.s, a a2 WHERE a2.u = a.k"),
            "3",
        ),
    ] {
        let sql = format!("SELECT count(*) FROM {sql}");
        assert_eq!(
            with(&db, "hotshelf.join_order = on", &sql),
            [expected],
            "{sql}"
        );
    }
}
