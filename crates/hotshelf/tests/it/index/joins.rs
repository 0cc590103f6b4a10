//! Joins whose other side has few keys: the scan asks an index for them.

use fastrand::Rng;

use super::*;

/// How joins are made: by star pipelines, by DataFusion's operator with one build or one for each partition, and by
/// Hotshelf's own.
const WAYS: &[&str] = &[
    "SET hotshelf.star_pipelines = on;",
    "SET hotshelf.star_pipelines = off; SET hotshelf.operators = off;",
    "SET hotshelf.star_pipelines = off; SET hotshelf.operators = off; \
     SET datafusion.optimizer.hash_join_single_partition_threshold = 0; \
     SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0;",
    "SET hotshelf.star_pipelines = off; SET hotshelf.operators = always;",
];

const JOINS: &[&str] = &[
    "SELECT t.id, t.v, d.x FROM d JOIN t ON d.k = t.k",
    "SELECT t.id, d.x FROM t JOIN d ON t.s = d.s",
    "SELECT t.id, d.x FROM t JOIN d ON t.k = d.k AND t.s = d.s",
    "SELECT count(*), sum(t.v) FROM t JOIN d ON t.k = d.k WHERE t.a < 7",
    "SELECT t.k, t.s, count(*) FROM t JOIN d ON t.k = d.k AND t.a = d.x GROUP BY t.k, t.s",
    "SELECT t.k, t.a FROM t WHERE t.k IN (SELECT k FROM d)",
    "SELECT t.id FROM t WHERE t.s IN (SELECT s FROM d WHERE x > 2) AND a <> 3",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM d WHERE d.k = t.k AND d.s = t.s)",
    "SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.k = t.k)",
    "SELECT t.id FROM t WHERE t.k NOT IN (SELECT k FROM d WHERE k IS NOT NULL)",
    "SELECT t.id, d.x FROM d LEFT JOIN t ON t.k = d.k",
    "SELECT t.id, d.x FROM t LEFT JOIN d ON t.k = d.k AND t.s = d.s",
    "SELECT t.id, d.x FROM t FULL JOIN d ON t.k = d.k",
    "SELECT t.id, d.x FROM t JOIN d ON t.k IS NOT DISTINCT FROM d.k",
    "SELECT t.id, d.x FROM t JOIN d ON t.f = d.f",
    "SELECT t.id, d.x FROM t JOIN d ON t.k = d.wide",
    "SELECT t.id, d.x FROM t JOIN d ON t.k = d.wide AND t.s = d.s",
    "SELECT t.id, d.x FROM t JOIN d ON t.m = d.k",
    "SELECT t.id FROM t WHERE t.m IN (SELECT n FROM d)",
    "SELECT t.id, d.x FROM t JOIN d ON t.k = d.n",
    "SELECT t.id, e.x FROM t JOIN d ON t.k = d.k JOIN d AS e ON t.s = e.s AND e.x = 1",
];

/// A table of several files with NULLs and repeats, and an index made when two of them were there.
fn random_tables(chance: &mut Rng) -> Fixture {
    let db = Fixture::new();
    let (keys, texts) = (chance.u32(1..3000), chance.u32(1..400));
    let rows = |first: u32, count: u32, step: u32| {
        let end = first + count;
        format!(
            "SELECT value AS id, CASE WHEN value % 17 > 0 THEN CAST(value * {step} % {keys} AS INT) END AS k, \
             CASE WHEN value % 13 > 0 THEN concat('text ', value * {step} % {texts}) END AS s, \
             value % 11 AS a, CASE WHEN value % 3 > 0 THEN (value % 5 - 2) * 0.0 ELSE value % 50 / 4.0 END AS f, \
             CAST(value % 1000 AS DECIMAL(7, 2)) / 4 AS m, value * 3 AS v FROM range({first}, {end})"
        )
    };
    let step = || 1 + 2 * fastrand::Rng::with_seed(u64::from(keys)).u32(1..2000);
    db.run(&format!("CREATE TABLE t AS {}", rows(0, 4000, step())))
        .unwrap();
    let append = |first, count| {
        let rows = rows(first, count, step());
        db.run(&format!("INSERT INTO t {rows}")).unwrap();
    };
    append(4000, chance.u32(1..2000));
    let columns = ["k, s, a", "s, k", "k, a", "k", "f, k", "m, k, s", "a, s, k"];
    let first = chance.usize(..columns.len());
    let clustered = chance.bool();
    for (idx, columns) in [columns[first], columns[(first + 1) % columns.len()]]
        .iter()
        .enumerate()
    {
        let clustered = clustered && idx == 0;
        db.run(&format!(
            "CREATE INDEX i{idx} ON t USING elf ({columns}) WITH (clustered = {clustered})"
        ))
        .unwrap();
    }
    append(20_000, chance.u32(1..1000));
    db
}

/// The other side of the joins, with this many rows: of many, there are too many keys to list.
fn set_other_side(db: &Fixture, chance: &mut Rng, rows: u32) {
    let step = chance.u32(1..500);
    db.run(&format!(
        "CREATE OR REPLACE TABLE d AS SELECT \
         CASE WHEN value % 7 <> 2 THEN CAST(value * {step} % 7001 AS INT) END AS k, \
         CASE WHEN value % 5 <> 3 THEN concat('text ', value * {step} % 410) END AS s, \
         CASE WHEN value % 2 = 0 THEN -0.0 ELSE value % 50 / 4.0 END AS f, value % 12 AS x, \
         CASE WHEN value % 9 = 4 THEN 1099511627776 + value ELSE value * {step} % 7001 END AS wide, \
         CAST(value * 10 AS DECIMAL(12, 4)) / 16 AS n FROM range({rows})"
    ))
    .unwrap();
}

fn sorted(db: &Fixture, settings: &str, query: &str) -> Vec<String> {
    let mut rows = db.rows(&format!("{settings} {query}"));
    rows.sort_unstable();
    rows
}

#[test]
fn joins_give_the_same_rows_with_and_without_an_index() {
    for seed in 0..3 {
        let mut chance = Rng::with_seed(seed);
        let db = random_tables(&mut chance);
        for rows in [0, 1, 30, 6500] {
            set_other_side(&db, &mut chance, rows);
            for _ in 0..3 {
                let query = JOINS[chance.usize(..JOINS.len())];
                let query = &match rows {
                    6500 => format!("SELECT count(*) FROM ({query})"),
                    _ => query.to_owned(),
                };
                let expected = sorted(&db, "SET hotshelf.elf = off;", query);
                for way in WAYS {
                    let settings = format!("SET hotshelf.elf = always; {way}");
                    let found = sorted(&db, &settings, query);
                    assert_eq!(found, expected, "seed {seed}, {rows} rows: {way} {query}");
                }
            }
        }
    }
}

#[test]
fn files_whose_index_is_damaged_are_scanned_for_the_keys_of_a_join() {
    let mut chance = Rng::with_seed(7);
    let mut db = random_tables(&mut chance);
    set_other_side(&db, &mut chance, 20);
    let query = "SELECT t.id, d.x FROM t JOIN d ON t.k = d.k AND t.s = d.s";
    let expected = sorted(&db, "SET hotshelf.elf = off;", query);
    for file in index_files(&db).iter().step_by(2) {
        let length = std::fs::metadata(file).unwrap().len() as usize;
        std::fs::write(file, vec![0x5a; length]).unwrap();
    }
    db.reopen();
    for way in WAYS {
        let settings = format!("SET hotshelf.elf = always; {way}");
        assert_eq!(sorted(&db, &settings, query), expected, "{way}");
    }
}

#[test]
fn a_join_with_few_keys_asks_the_index_for_them() {
    let db = numbered();
    db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
    db.run("CREATE TABLE d AS SELECT value * 31 AS a, value AS b, value AS x FROM range(12)")
        .unwrap();
    let joins = [
        "SELECT t.id, d.x FROM t JOIN d ON t.a = d.a WHERE d.x < 4",
        "SELECT t.id, t.b FROM t WHERE t.a IN (SELECT a FROM d WHERE x < 4)",
        "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM d WHERE d.a = t.a AND d.x < 4) AND t.b < 9",
        "SELECT t.id, d.x FROM t JOIN d ON t.a = d.a AND t.b = d.b",
    ];
    // What an Elf in memory costs is known then.
    for query in joins {
        both(&db, query);
    }
    for way in WAYS {
        for query in joins {
            let rows = db.rows(&format!("{way} {query}")).len();
            let plan = db
                .rows(&format!("{way} EXPLAIN ANALYZE {query}"))
                .join("\n");
            assert!(plan.contains("access=elf i"), "{way} {query}:\n{plan}");
            assert!(plan.contains("join keys"), "{way} {query}:\n{plan}");
            assert!(rows > 0, "{way} {query}");
            let off = format!("{way} SET hotshelf.elf = off; EXPLAIN ANALYZE {query}");
            let plan = db.rows(&off).join("\n");
            assert!(!plan.contains("access="), "{way} {query}:\n{plan}");
        }
    }
    let looked_up = || db.rows("SELECT sum(look_ups) FROM elf_stats()");
    let before = looked_up();
    db.rows(joins[0]);
    assert_ne!(looked_up(), before);
}

#[test]
fn keys_of_a_wider_type_are_found_in_an_index() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT CAST(value * 7 % 1000 AS INT) AS k, \
         CAST(value % 1000 AS DECIMAL(6, 1)) AS m, value AS id FROM range(200000)",
    )
    .unwrap();
    db.run("CREATE INDEX i ON t USING elf (k, m)").unwrap();
    db.run("CREATE INDEX j ON t USING elf (m, k)").unwrap();
    db.run(
        "CREATE TABLE d AS SELECT CASE WHEN value = 2 THEN 1099511627776 ELSE value * 5 END AS k, \
         CAST(value AS DECIMAL(9, 3)) * 0.1 AS m FROM range(12)",
    )
    .unwrap();
    for query in [
        "SELECT t.id FROM t JOIN d ON t.k = d.k",
        "SELECT t.id FROM t JOIN d ON t.m = d.m",
        "SELECT t.id FROM t JOIN d ON t.m = d.m AND t.k = d.k",
    ] {
        let expected = sorted(&db, "SET hotshelf.elf = off;", query);
        for way in WAYS {
            let settings = format!("{way} SET hotshelf.elf = always;");
            assert_eq!(sorted(&db, &settings, query), expected, "{way} {query}");
            let plan = db
                .rows(&format!("{settings} EXPLAIN ANALYZE {query}"))
                .join("\n");
            assert!(plan.contains("join keys"), "{way} {query}:\n{plan}");
        }
    }
}

#[test]
fn keys_of_several_columns_are_looked_up_as_they_are() {
    let db = numbered();
    db.run("CREATE INDEX i ON t USING elf (b, a, s) WITH (clustered = true)")
        .unwrap();
    db.run(
        "CREATE TABLE d AS SELECT value * 13 % 1000 AS a, value AS b, value % 5 AS x FROM range(77)",
    )
    .unwrap();
    for (query, is_covered) in [
        (
            "SELECT t.id, d.x FROM t JOIN d ON t.a = d.a AND t.b = d.b WHERE t.s = 's3'",
            false,
        ),
        (
            "SELECT t.b, d.x FROM t JOIN d ON t.a = d.a AND t.b = d.b WHERE t.s IN ('s3', 's5')",
            true,
        ),
    ] {
        let (with, without) = both(&db, query);
        assert_eq!(with.len(), without.len(), "{query}");
        assert!(!with.is_empty(), "{query}");
        for way in &WAYS[1..3] {
            let expected = sorted(&db, "SET hotshelf.elf = off;", query);
            let settings = format!("{way} SET hotshelf.elf = always;");
            assert_eq!(sorted(&db, &settings, query), expected, "{way} {query}");
            let plan = db
                .rows(&format!("{settings} EXPLAIN ANALYZE {query}"))
                .join("\n");
            // Each value of one column with each of the other would be 77 times as many keys.
            let found = format!("found {} rows", expected.len());
            assert!(plan.contains(&found), "{way}, {found}:\n{plan}");
            assert_eq!(plan.contains("covering"), is_covered, "{plan}");
        }
    }
}

#[test]
fn a_join_with_many_keys_scans() {
    let db = numbered();
    db.run("CREATE INDEX i ON t USING elf (id)").unwrap();
    db.run("CREATE TABLE d AS SELECT value * 7 AS id, value AS x FROM range(40000)")
        .unwrap();
    for way in WAYS {
        let query = "SELECT t.id, t.a, d.x FROM t JOIN d ON t.id = d.id";
        let plan = db
            .rows(&format!("{way} EXPLAIN ANALYZE {query}"))
            .join("\n");
        assert!(!plan.contains("access=elf"), "{way}:\n{plan}");
        // The partitions of a join have ranges of their own.
        let is_partitioned = way.contains("threshold = 0");
        let has_range = plan.contains("with the ranges of join keys");
        assert_eq!(has_range, !is_partitioned, "{way}:\n{plan}");
    }
}

#[test]
fn a_join_over_the_columns_of_an_index_reads_no_data() {
    let db = numbered();
    db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
    db.run("CREATE TABLE d AS SELECT value * 31 AS a FROM range(3)")
        .unwrap();
    let query = "SELECT t.a, t.b FROM t WHERE t.a IN (SELECT a FROM d)";
    let (with, without) = both(&db, query);
    assert_eq!(with.len(), without.len());
    for way in &WAYS[1..] {
        let settings = format!("{way} SET hotshelf.elf = always;");
        let plan = db
            .rows(&format!("{settings} EXPLAIN ANALYZE {query}"))
            .join("\n");
        assert!(plan.contains("access=elf i, covering ("), "{way}:\n{plan}");
    }
}
