//! Elf indexes behind SQL: the same answers with and without, whatever happens to their files.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use fastrand::Rng;
use hotshelf::{ExistingTable, ImportProgress};

use crate::Fixture;

/// Columns of every indexable kind, with a literal for each of their values.
const COLUMNS: &[&str] = &[
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "bool", "date", "ts",
    "dec", "text", "bin", "wide",
];

/// A small number or NULL: few values, so that predicates meet rows.
fn numbers(chance: &mut Rng, count: usize) -> Vec<Option<i64>> {
    let span = 1 + chance.i64(0..40);
    let nulls = chance.i64(0..3) * 10;
    (0..count)
        .map(|_| (chance.i64(0..100) >= nulls).then(|| chance.i64(0..span) - 5))
        .collect()
}

fn column(name: &str, chance: &mut Rng, count: usize) -> ArrayRef {
    let numbers = numbers(chance, count);
    let positive = || numbers.iter().map(|n| n.map(|n| (n + 5) as u64));
    let signed = || numbers.iter().copied();
    let float = |n: i64| match n {
        -5 => f64::NAN,
        -4 => f64::NEG_INFINITY,
        -3 => -0.0,
        n => n as f64 / 4.0,
    };
    match name {
        "i8" => Arc::new(Int8Array::from_iter(signed().map(|n| n.map(|n| n as i8)))),
        "i16" => Arc::new(Int16Array::from_iter(
            signed().map(|n| n.map(|n| n as i16 * 900)),
        )),
        "i32" => Arc::new(Int32Array::from_iter(
            signed().map(|n| n.map(|n| n as i32 * 70_000)),
        )),
        "i64" => Arc::new(Int64Array::from_iter(signed().map(|n| n.map(|n| n << 40)))),
        "u8" => Arc::new(UInt8Array::from_iter(
            positive().map(|n| n.map(|n| n as u8)),
        )),
        "u16" => Arc::new(UInt16Array::from_iter(
            positive().map(|n| n.map(|n| n as u16 * 1000)),
        )),
        "u32" => Arc::new(UInt32Array::from_iter(
            positive().map(|n| n.map(|n| n as u32 * 90_000_000)),
        )),
        "u64" => Arc::new(UInt64Array::from_iter(
            positive().map(|n| n.map(|n| u64::MAX - n)),
        )),
        "f32" => Arc::new(Float32Array::from_iter(
            signed().map(|n| n.map(|n| float(n) as f32)),
        )),
        "f64" => Arc::new(Float64Array::from_iter(signed().map(|n| n.map(float)))),
        "bool" => Arc::new(BooleanArray::from_iter(
            signed().map(|n| n.map(|n| n % 2 == 0)),
        )),
        "date" => Arc::new(Date32Array::from_iter(
            signed().map(|n| n.map(|n| n as i32 * 30)),
        )),
        "ts" => Arc::new(TimestampMillisecondArray::from_iter(
            signed().map(|n| n.map(|n| n * 3_600_000_000)),
        )),
        "dec" => Arc::new(
            Decimal128Array::from_iter(signed().map(|n| n.map(|n| i128::from(n) * 25)))
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        "text" => Arc::new(StringArray::from_iter(signed().map(|n| {
            n.map(|n| "xyz".repeat(n.unsigned_abs() as usize % 4) + &n.to_string())
        }))),
        "bin" => Arc::new(BinaryArray::from_iter(
            signed().map(|n| n.map(|n| vec![0xff, n as u8])),
        )),
        _ => {
            Arc::new(Int64Array::from_iter(signed().map(|n| {
                n.map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64))
            })))
        }
    }
}

fn batch(chance: &mut Rng, count: usize) -> RecordBatch {
    let columns = COLUMNS
        .iter()
        .map(|name| (*name, column(name, chance, count), true));
    let key: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count as i64));
    RecordBatch::try_from_iter_with_nullable(columns.chain([("row", key, true)])).unwrap()
}

/// A literal of the column's kind, often one of its values.
fn literal(name: &str, chance: &mut Rng) -> String {
    let n = chance.i64(0..46) - 8;
    match name {
        "i8" => n.to_string(),
        "i16" => (n * 900).to_string(),
        "i32" => (n * 70_000).to_string(),
        "i64" => (n << 40).to_string(),
        "u8" => (n + 8).to_string(),
        "u16" => ((n + 8) * 1000).to_string(),
        "u32" => ((n + 8) * 90_000_000).to_string(),
        "u64" => format!("{}::BIGINT UNSIGNED", u64::MAX - (n + 8) as u64),
        "f32" | "f64" => {
            let cast = if name == "f32" { "FLOAT" } else { "DOUBLE" };
            match n {
                -5 => format!("'NaN'::{cast}"),
                -4 => format!("'-inf'::{cast}"),
                -3 => format!("'-0.0'::{cast}"),
                n => format!("{}::{cast}", n as f64 / 4.0),
            }
        }
        "bool" => (n % 2 == 0).to_string(),
        "date" => format!("DATE '1970-01-01' + INTERVAL '{}' DAY", n * 30),
        "ts" => format!("to_timestamp_millis({})", n * 3_600_000_000),
        "dec" => format!("{}::DECIMAL(12,2)", n as f64 / 4.0),
        "text" => format!("'{}{n}'", "xyz".repeat(n.unsigned_abs() as usize % 4)),
        "bin" => format!("X'ff{:02x}'", n as u8),
        _ => n.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64).to_string(),
    }
}

fn predicate(chance: &mut Rng) -> String {
    predicate_on(COLUMNS, chance)
}

fn predicate_on(columns: &[&str], chance: &mut Rng) -> String {
    let name = columns[chance.usize(..columns.len())];
    let value = |chance: &mut Rng| literal(name, chance);
    match chance.i64(0..9) {
        0 => format!("{name} = {}", value(chance)),
        1 => format!("{name} <> {}", value(chance)),
        2 => format!("{name} < {}", value(chance)),
        3 => format!("{} <= {name}", value(chance)),
        4 => format!("{name} BETWEEN {} AND {}", value(chance), value(chance)),
        5 => format!(
            "{name} IN ({}, {}, {})",
            value(chance),
            value(chance),
            value(chance)
        ),
        6 => format!("{name} IS NULL"),
        7 => format!("{name} IS NOT NULL"),
        _ => format!("({name} = {} OR row % 3 = 0)", value(chance)),
    }
}

fn import(db: &Fixture, batches: Vec<RecordBatch>) {
    let schema = batches[0].schema();
    let inputs = vec![Box::new(batches.into_iter()) as _];
    let database = db.database();
    let progress = ImportProgress::default();
    let import = database.import_batches("t", schema, inputs, ExistingTable::Append, &progress);
    database.block_on(import).unwrap();
}

/// The same question through the Elf wherever it can help, and without.
fn both(db: &Fixture, question: &str) -> (Vec<String>, Vec<String>) {
    let with = db.rows(&format!("SET hotshelf.elf = 'always'; {question}"));
    let without = db.rows(&format!("SET hotshelf.elf = 'off'; {question}"));
    (with, without)
}

fn random_columns(chance: &mut Rng) -> Vec<&'static str> {
    let mut columns = COLUMNS.to_vec();
    for i in (1..columns.len()).rev() {
        columns.swap(i, chance.usize(..=i));
    }
    columns.truncate(1 + chance.usize(..5));
    columns
}

#[test]
fn answers_are_the_same_with_and_without_an_index_on_random_tables() {
    let questions = if cfg!(debug_assertions) { 40 } else { 200 };
    for seed in 0..6 {
        let mut chance = Rng::with_seed(seed);
        let mut db = Fixture::new();
        let rows = [1, 50, 700, 5000][chance.usize(..4)];
        import(
            &db,
            vec![batch(&mut chance, rows), batch(&mut chance, rows)],
        );
        let clustered = seed % 2 == 1;
        for (i, clustered) in [false, clustered].into_iter().enumerate() {
            let columns = random_columns(&mut chance).join(", ");
            db.run(&format!(
                "CREATE INDEX i{i} ON t USING elf ({columns}) WITH (clustered = {clustered})"
            ))
            .unwrap();
        }
        import(&db, vec![batch(&mut chance, 300)]);
        for step in 0..3 {
            for _ in 0..questions {
                let count = 1 + chance.i64(0..3);
                let predicates: Vec<_> = (0..count).map(|_| predicate(&mut chance)).collect();
                let question = format!(
                    "SELECT count(*), sum(row), min(text), max(date) FROM t WHERE {}",
                    predicates.join(" AND ")
                );
                let (with, without) = both(&db, &question);
                assert_eq!(with, without, "seed {seed}, step {step}: {question}");
            }
            match step {
                0 => db.run("OPTIMIZE TABLE t").map(|_| ()).unwrap(),
                _ => drop(db.reopen()),
            }
        }
        assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
    }
}

/// A table of 300 000 rows in three row groups.
fn numbered() -> Fixture {
    numbered_to(300_000)
}

fn numbered_to(end: u64) -> Fixture {
    let db = Fixture::new();
    db.run(&format!(
        "CREATE TABLE t AS SELECT value AS id, value * 7919 % 1000 AS a, value * 31 % 77 AS b, \
         concat('s', value % 13) AS s FROM generate_series(1, {end}) AS g(value)"
    ))
    .unwrap();
    db
}

fn explain(db: &Fixture, question: &str) -> String {
    db.rows(&format!("EXPLAIN ANALYZE {question}")).join("\n")
}

#[test]
fn explain_names_the_way_taken_and_why() {
    let db = numbered();
    let question = "SELECT sum(id) FROM t WHERE a = 5 AND b < 3";
    assert!(!explain(&db, question).contains("access="));
    db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
    // An Elf in memory is cheaper than one that has to be read.
    both(&db, question);
    let plan = explain(&db, question);
    assert!(plan.contains("access=elf i ("), "{plan}");
    assert!(plan.contains("rows expected; Elf i "), "{plan}");
    let found = db
        .rows("SELECT count(*) FROM t WHERE a = 5 AND b < 3")
        .remove(0);
    assert!(plan.contains(&format!("found {found} rows")), "{plan}");
    let plan = explain(&db, "SELECT sum(id) FROM t WHERE a >= 0");
    assert!(plan.contains("access=scan ("), "{plan}");
    let session = db.database().session();
    let plan = db.database().block_on(async {
        session.sql("SET hotshelf.elf = 'off'").await?;
        session
            .sql(&format!("EXPLAIN {question}"))
            .await?
            .collect()
            .await
    });
    assert!(!crate::lines(&plan.unwrap()).join("\n").contains("access="));
    let plain = db.rows(&format!("EXPLAIN {question}")).join("\n");
    assert!(plain.contains("access=elf i ("), "{plain}");
}

#[test]
fn the_first_query_after_opening_goes_through_the_index_and_reads_little_of_it() {
    let mut db = numbered_to(700_000);
    let question = "SELECT sum(id) FROM t WHERE a = 5 AND b < 3";
    let right = db.rows(question);
    db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
    db.reopen();
    let plan = db.rows(&format!("EXPLAIN {question}")).join("\n");
    assert!(plan.contains("access=elf i ("), "{plan}");
    assert!(plan.contains(" of it reading"), "{plan}");
    assert_eq!(db.rows(question), right);
    let figures = "SELECT count(*) FILTER (WHERE head_resident), max(look_ups), max(reads) BETWEEN 1 AND 4, \
                   max(storage_blocks) < sum(bytes) / 2560, max(cache_bytes) > 0 FROM elf_stats()";
    assert_eq!(db.rows(figures), ["1|1|true|true|true"]);
    let again = explain(&db, question);
    assert!(
        again.contains(", 0 from storage by 0 reads, 0.00 a look-up"),
        "{again}"
    );
    assert!(!again.contains(" of it reading"), "{again}");
}

/// Where memory is short, blocks come and go; where it is not, they stay. Answers are the same.
#[test]
fn answers_do_not_depend_on_the_memory_that_blocks_get() {
    let questions = [
        "SELECT count(*), sum(id), min(s) FROM t WHERE a BETWEEN 100 AND 180 AND b > 70",
        "SELECT s, count(*), sum(b) FROM t WHERE a < 90 GROUP BY s ORDER BY s",
        "SELECT count(*), sum(id) FROM t WHERE a = 77",
        "SELECT count(*), sum(a) FROM t WHERE b IN (3, 40, 71) AND s = 's4'",
    ];
    for clustered in [false, true] {
        let mut db = numbered();
        db.run(&format!(
            "CREATE INDEX i ON t USING elf (a, b, s) WITH (clustered = {clustered})"
        ))
        .unwrap();
        let right: Vec<_> = questions.iter().map(|one| both(&db, one).1).collect();
        for budget in ["2MiB", "5MiB", "64MiB"] {
            db.reopen();
            db.run(&format!("SET hotshelf.budget = '{budget}'"))
                .unwrap();
            for (question, right) in questions.iter().zip(&right).cycle().take(8) {
                assert_eq!(&both(&db, question).0, right, "{budget}: {question}");
                assert_eq!(&db.rows(question), right, "{budget}: {question}");
            }
            let kept = "SELECT DISTINCT cache_bytes <= limit_bytes, queries > 8 FROM elf_stats()";
            assert_eq!(db.rows(kept), ["true|true"], "{budget}");
        }
    }
}

#[test]
fn lists_on_all_columns_of_an_index_are_looked_up_together() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT value AS id, value % 20 AS a, value / 20 % 20 AS b, value / 400 % 10 AS c, \
         value / 4000 AS d FROM range(300000) AS g(value)",
    )
    .unwrap();
    db.run("CREATE INDEX i ON t USING elf (a, b, c, d)")
        .unwrap();
    let look_ups = || -> u64 {
        let rows = db.rows("SELECT look_ups FROM elf_stats()");
        rows[0].parse().unwrap()
    };
    let evens = "a IN (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 99)";
    for (condition, look_up_count) in [
        (format!("{evens} AND b = 3 AND c = 4 AND d = 17"), 10),
        (format!("{evens} AND b IN (3, 77) AND c = 4 AND d = 17"), 10),
        (format!("{evens} AND b = 3 AND c = 4 AND d > 70"), 1),
        (format!("{evens} AND d IN (0, 74)"), 1),
        ("a = 6 AND b = 3 AND c = 4 AND d = 17".to_owned(), 1),
    ] {
        let before = look_ups();
        let (with, without) = both(
            &db,
            &format!("SELECT count(*), sum(id) FROM t WHERE {condition}"),
        );
        assert_eq!(with, without, "{condition}");
        assert_eq!(look_ups() - before, look_up_count, "{condition}");
    }
}

#[test]
fn an_index_keeps_the_cache_that_it_was_made_with() {
    let mut db = numbered();
    let question = "SELECT count(*), sum(id) FROM t WHERE a BETWEEN 3 AND 9 AND b > 5";
    let right = db.rows(question);
    let figures = "SELECT cache, policy, cache_bytes <= limit_bytes, cache_bytes > 0, limit_bytes, \
                   reads > 0 FROM elf_stats()";
    for (options, expected) in [
        ("cache = 'none'", "none|sieve|true|false|0|true"),
        (
            "cache = 'static', cache_bytes = 0",
            "static|static|true|false|0|true",
        ),
        (
            "cache_bytes = '100kB', cache = lru",
            "lru|lru|true|true|100000|true",
        ),
        (
            "cache = 'auto', cache_bytes = 50000",
            "auto|sieve|true|true|50000|true",
        ),
    ] {
        db.run(&format!(
            "CREATE INDEX i ON t USING elf (a, b) WITH ({options})"
        ))
        .unwrap();
        for _ in 0..2 {
            let always = format!("SET hotshelf.elf = 'always'; {question}");
            (0..3).for_each(|_| assert_eq!(db.rows(&always), right, "{options}"));
            assert_eq!(db.rows(figures), [expected], "{options}");
            db.reopen();
        }
        db.run("DROP INDEX i").unwrap();
    }
}

#[test]
fn a_count_over_indexed_columns_reads_no_data() {
    let mut db = numbered();
    db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
    db.reopen();
    let question = "SELECT count(*) FROM t WHERE a BETWEEN 5 AND 7 AND b = 3";
    db.rows(&format!("SET hotshelf.elf = 'always'; {question}"));
    let plan = explain(&db, question);
    assert!(plan.contains("access=elf i ("), "{plan}");
    assert!(plan.contains("bytes_storage=0"), "{plan}");
    assert!(plan.contains("bytes_cache=0"), "{plan}");
    let (with, without) = both(&db, question);
    assert_eq!(with, without);
}

#[test]
fn statements_say_what_is_wrong_with_them() {
    let db = numbered();
    db.run("CREATE TABLE l AS SELECT [1, 2] AS list, 3 AS x")
        .unwrap();
    db.run("CREATE INDEX i ON t USING elf (a)").unwrap();
    let error = |sql: &str| db.error(sql);
    let exists = error("CREATE INDEX i ON l USING elf (x)");
    assert_eq!(exists.code(), "index_exists");
    assert_eq!(exists.to_string(), "index 'i' already exists, on table 't'");
    db.run("CREATE INDEX IF NOT EXISTS i ON t USING elf (b)")
        .unwrap();
    let unknown = error("CREATE INDEX j ON t USING elf (idd)");
    assert_eq!(unknown.code(), "unknown_column");
    assert_eq!(unknown.hint().unwrap(), "did you mean 'id'?");
    assert_eq!(
        error("CREATE INDEX j ON l USING elf (list)").code(),
        "not_indexable"
    );
    assert_eq!(
        error("CREATE INDEX j ON tt USING elf (a)").code(),
        "unknown_table"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING elf (a, a)").code(),
        "invalid_value"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING btree (a)").code(),
        "invalid_value"
    );
    assert_eq!(error("CREATE INDEX j ON t (a)").code(), "invalid_value");
    assert_eq!(
        error("CREATE UNIQUE INDEX j ON t USING elf (a)").code(),
        "not_supported"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING elf (a DESC)").code(),
        "not_supported"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING elf (a + 1)").code(),
        "not_supported"
    );
    for option in [
        "order = 'best'",
        "speed = 'high'",
        "clustered = 7",
        "cache = 'lfu'",
        "cache = 5",
        "cache_bytes = 'many'",
        "cache_bytes = -5",
    ] {
        let sql = format!("CREATE INDEX j ON t USING elf (a) WITH ({option})");
        assert!(error(&sql).code() == "invalid_value", "{option}");
    }
    let words = error("CREATE INDEX j ON t USING elf (a) WITH (cache = 'lfu')").to_string();
    assert!(
        words.contains("'auto', 'static', 'lru', 'sieve', 'none'"),
        "{words}"
    );
    let unknown = error("DROP INDEX ii");
    assert_eq!(unknown.code(), "unknown_index");
    assert_eq!(unknown.hint().unwrap(), "did you mean 'i'?");
    db.run("DROP INDEX IF EXISTS ii").unwrap();
    db.run("DROP INDEX i").unwrap();
    assert_eq!(db.rows("SELECT count(*) FROM hotshelf_indexes()"), ["0"]);
    db.run("CREATE INDEX c ON t USING elf (a) WITH (clustered = true)")
        .unwrap();
    assert_eq!(
        error("CREATE INDEX d ON t USING elf (b) WITH (clustered = true)").code(),
        "not_supported"
    );
    db.run("DROP TABLE t").unwrap();
    assert_eq!(db.rows("SELECT count(*) FROM hotshelf_indexes()"), ["0"]);
    assert_eq!(index_files(&db).len(), 0);
}

#[test]
fn an_index_follows_appends_merges_and_reopening() {
    let mut db = numbered();
    db.run("CREATE INDEX i ON t USING elf (s, a, b) WITH (order = 'auto')")
        .unwrap();
    for _ in 0..3 {
        db.run("INSERT INTO t SELECT id + 300000, a, b, s FROM t WHERE id < 1000")
            .unwrap();
    }
    let indexes = "SELECT index_name, table_name, columns, files, indexed_files, rows, damage FROM hotshelf_indexes()";
    assert_eq!(db.rows(indexes), ["i|t|s, b, a|4|4|302997|"]);
    assert_eq!(index_files(&db).len(), 4);
    let question = "SELECT count(*), sum(id) FROM t WHERE s = 's3' AND b IN (1, 2, 3)";
    let before = both(&db, question);
    assert_eq!(before.0, before.1);
    db.run("OPTIMIZE TABLE t").unwrap();
    assert_eq!(db.rows(indexes), ["i|t|s, b, a|1|1|302997|"]);
    assert_eq!(index_files(&db).len(), 1);
    assert_eq!(both(&db, question), before);
    db.reopen();
    assert_eq!(both(&db, question), before);
    assert_eq!(db.rows("SELECT sum(rows) FROM elf_stats()"), ["302997"]);
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
}

#[test]
fn a_clustered_index_puts_rows_next_to_each_other() {
    let db = numbered();
    let question = "SELECT count(*), sum(id), min(s) FROM t WHERE a BETWEEN 10 AND 12 AND b > 70";
    let plain = db.rows(question);
    db.run("CREATE INDEX i ON t USING elf (a, b) WITH (clustered = true)")
        .unwrap();
    let (with, without) = both(&db, question);
    assert_eq!((&with, &without), (&plain, &plain));
    let plan = explain(&db, question);
    assert!(plan.contains("row_groups_pruned=2"), "{plan}");
    db.run("INSERT INTO t SELECT * FROM t WHERE a = 11")
        .unwrap();
    assert_eq!(
        db.rows("SELECT index_name, file > 0, clustered FROM elf_stats()"),
        ["i|true|true", "i|true|true"]
    );
    let (with, without) = both(&db, question);
    assert_eq!(with, without);
}

#[test]
fn a_table_made_with_cluster_by_has_its_rows_and_later_ones_in_order() {
    let mut db = numbered();
    db.run("CREATE TABLE c CLUSTER BY elf (a, b) AS SELECT * FROM t")
        .unwrap();
    db.run("CREATE TABLE d (a INT, s VARCHAR) CLUSTER BY elf (s, a)")
        .unwrap();
    db.run("INSERT INTO d SELECT a, s FROM t WHERE id <= 1000")
        .unwrap();
    let indexes = "SELECT index_name, columns, clustered, indexed_files, rows FROM hotshelf_indexes() ORDER BY 1";
    let expected = ["c_a_b_elf|a, b|true|1|300000", "d_s_a_elf|s, a|true|1|1000"];
    assert_eq!(db.rows(indexes), expected);
    assert_eq!(db.rows("SELECT s, a FROM d LIMIT 1"), ["s0|25"]);
    let question = "SELECT count(*), sum(id), min(s) FROM c WHERE a BETWEEN 10 AND 12 AND b > 70";
    let (with, without) = both(&db, question);
    assert_eq!(with, without);
    assert!(explain(&db, question).contains("row_groups_pruned=2"));
    db.reopen();
    assert_eq!(db.rows(indexes), expected);
    assert_eq!(both(&db, question), (with.clone(), with));
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
}

#[test]
fn cluster_by_says_what_is_wrong_and_leaves_nothing_behind() {
    let db = numbered_to(100);
    for wrong in ["a", "elf ()", "elf (a + 1)", "tree (a)", "elf (a), b"] {
        let error = db.error(&format!(
            "CREATE TABLE c CLUSTER BY {wrong} AS SELECT * FROM t"
        ));
        assert!(
            error.code() == "invalid_value" && error.to_string().contains("CLUSTER BY elf"),
            "{wrong}: {error}"
        );
    }
    let unknown = db.error("CREATE TABLE c CLUSTER BY elf (aa) AS SELECT * FROM t");
    assert_eq!(unknown.code(), "unknown_column");
    assert_eq!(unknown.hint().unwrap(), "did you mean 'a'?");
    db.run("CREATE INDEX c_a_elf ON t USING elf (b)").unwrap();
    assert_eq!(
        db.error("CREATE TABLE c CLUSTER BY elf (a) AS SELECT * FROM t")
            .code(),
        "index_exists"
    );
    assert_eq!(db.database().table_names(), ["t"]);
    db.run("CREATE OR REPLACE TABLE t CLUSTER BY elf (b) AS SELECT * FROM t")
        .unwrap();
    db.run("CREATE OR REPLACE TABLE t CLUSTER BY elf (b) AS SELECT * FROM t WHERE id < 50")
        .unwrap();
    assert_eq!(
        db.rows("SELECT index_name, rows FROM hotshelf_indexes()"),
        ["t_b_elf|49"]
    );
}

fn index_files(db: &Fixture) -> Vec<PathBuf> {
    let tables = std::fs::read_dir(db.path("db/data")).unwrap().flatten();
    let folders = tables.map(|table| table.path().join("elf"));
    folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .collect()
}

#[test]
fn damaged_missing_and_foreign_index_files_are_named_and_never_believed() {
    let question = "SELECT count(*), sum(id) FROM t WHERE a = 5 AND b < 30";
    let length = |path: &PathBuf| std::fs::metadata(path).unwrap().len() as usize;
    type Harm = Box<dyn Fn(&PathBuf, &PathBuf)>;
    let flip = move |place: fn(usize) -> usize| -> Harm {
        Box::new(move |path, _| {
            let mut bytes = std::fs::read(path).unwrap();
            let at = place(length(path));
            bytes[at] ^= 0x40;
            std::fs::write(path, bytes).unwrap();
        })
    };
    let harms: Vec<(&str, Harm)> = vec![
        ("superblock", flip(|_| 20)),
        ("head", flip(|_| 4096 + 40)),
        ("leaves", flip(|length| length / 2)),
        ("description", flip(|length| length - 9)),
        (
            "cut",
            Box::new(move |path, _| {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                file.set_len(length(path) as u64 / 2).unwrap();
            }),
        ),
        (
            "gone",
            Box::new(|path, _| std::fs::remove_file(path).unwrap()),
        ),
        (
            "foreign",
            Box::new(|path, other| {
                std::fs::copy(other, path).unwrap();
            }),
        ),
    ];
    for (name, harm) in harms {
        let mut db = numbered_to(40_000);
        db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
        db.run("CREATE TABLE o AS SELECT id, a, b + 1 AS b FROM t")
            .unwrap();
        db.run("CREATE INDEX oi ON o USING elf (a, b)").unwrap();
        let right = both(&db, question).1;
        let mut files = index_files(&db);
        files.sort();
        let of = |table: &str| {
            let is = |path: &&PathBuf| path.to_string_lossy().contains(&format!("/{table}-"));
            files.iter().find(is).unwrap().clone()
        };
        harm(&of("t"), &of("o"));
        db.reopen();
        let (with, without) = both(&db, question);
        assert_eq!((&with, &without), (&right, &right), "{name}");
        let report = db.database().verify(|_, _| {}).unwrap();
        assert_eq!(report.damage.len(), 1, "{name}: {:?}", report.damage);
        assert_eq!(report.damage[0].what, "t", "{name}");
        db.run("DROP INDEX i").unwrap();
        db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
        assert_eq!(both(&db, question).0, right, "{name}");
        assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
    }
}

#[test]
fn leftovers_of_index_files_are_swept_on_opening() {
    let mut db = numbered();
    db.run("CREATE INDEX i ON t USING elf (a)").unwrap();
    let file = index_files(&db).remove(0);
    let folder = file.parent().unwrap();
    for orphan in ["9-9.elf", "1-2.elf.tmp", "run-0.tmp"] {
        std::fs::write(folder.join(orphan), "half").unwrap();
    }
    db.reopen();
    assert_eq!(index_files(&db), [file]);
}

#[test]
fn an_elf_without_room_in_the_budget_is_scanned_around() {
    let db = numbered();
    db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
    let question = "SELECT count(*), sum(id) FROM t WHERE a = 5";
    let right = both(&db, question).1;
    db.run("SET hotshelf.budget = '1MiB'").unwrap();
    assert_eq!(
        db.rows("SELECT DISTINCT limit_bytes FROM elf_stats()"),
        ["524288"]
    );
    let plan = explain(&db, &format!("{question} AND b >= 0"));
    assert_eq!(both(&db, question).0, right, "{plan}");
}

#[test]
fn appends_while_an_index_is_made_are_indexed_too() {
    let db = numbered();
    let database = db.database();
    database.block_on(async {
        let (one, other) = (database.session(), database.session());
        let create = one.sql("CREATE INDEX i ON t USING elf (a, b)");
        let append = async {
            for _ in 0..3 {
                let insert = "INSERT INTO t SELECT id, a, b, s FROM t WHERE id < 100";
                other.sql(insert).await.unwrap().collect().await.unwrap();
            }
        };
        let (created, ()) = futures::join!(create, append);
        created.unwrap();
    });
    assert_eq!(
        db.rows("SELECT files, indexed_files FROM hotshelf_indexes()"),
        ["4|4"]
    );
    let (with, without) = both(&db, "SELECT count(*) FROM t WHERE a < 50 AND b = 2");
    assert_eq!(with, without);
}

/// Tables whose Elfs hold all columns that random questions ask for.
#[test]
fn covering_queries_give_the_same_rows_with_and_without_on_random_tables() {
    let questions = if cfg!(debug_assertions) { 40 } else { 200 };
    for seed in 0..6 {
        let mut chance = Rng::with_seed(seed);
        let mut db = Fixture::new();
        let rows = [1, 700, 5000][chance.usize(..3)];
        import(&db, vec![batch(&mut chance, rows)]);
        import(&db, vec![batch(&mut chance, rows)]);
        let columns = random_columns(&mut chance);
        let clustered = seed % 2 == 1;
        db.run(&format!(
            "CREATE INDEX i ON t USING elf ({}) WITH (clustered = {clustered})",
            columns.join(", ")
        ))
        .unwrap();
        import(&db, vec![batch(&mut chance, 300)]);
        for step in 0..2 {
            let mut covered = 0;
            for _ in 0..questions {
                let mut chosen: Vec<&str> = columns.clone();
                chosen.sort_by_key(|_| chance.u32(..));
                chosen.truncate(1 + chance.usize(..columns.len()));
                let list = chosen.join(", ");
                let condition = match chance.usize(..4) {
                    0 => "true".to_owned(),
                    count => {
                        let conditions = (0..count).map(|_| predicate_on(&columns, &mut chance));
                        conditions.collect::<Vec<_>>().join(" AND ")
                    }
                };
                let question = match chance.usize(..4) {
                    0 => format!("SELECT {list} FROM t WHERE {condition} ORDER BY {list}"),
                    1 => format!("SELECT DISTINCT {list} FROM t WHERE {condition} ORDER BY {list}"),
                    2 => format!(
                        "SELECT {list}, count(*) FROM t WHERE {condition} GROUP BY {list} ORDER BY {list}"
                    ),
                    _ => format!(
                        "SELECT min({0}), count({0}) FROM t WHERE {condition}",
                        chosen[0]
                    ),
                };
                let (with, without) = both(&db, &question);
                assert_eq!(with, without, "seed {seed}, step {step}: {question}");
                let plan = db.rows(&format!("SET hotshelf.elf = 'always'; EXPLAIN {question}"));
                covered += usize::from(plan.join("\n").contains("access=elf i, covering ("));
            }
            assert!(covered > questions / 4, "seed {seed}: {covered}");
            db.run("OPTIMIZE TABLE t").unwrap();
            db.reopen();
        }
    }
}

#[test]
fn a_covering_query_reads_no_data() {
    for clustered in [false, true] {
        let mut db = numbered();
        db.run(&format!(
            "CREATE INDEX i ON t USING elf (a, b, s) WITH (clustered = {clustered})"
        ))
        .unwrap();
        db.run("INSERT INTO t SELECT id, a, b, s FROM t WHERE id < 1000")
            .unwrap();
        db.reopen();
        for question in [
            "SELECT s, a FROM t WHERE a BETWEEN 5 AND 7 AND b = 3",
            "SELECT DISTINCT s FROM t WHERE a < 10",
            "SELECT s, sum(a), avg(b) FROM t WHERE a < 10 GROUP BY s",
            "SELECT sum(a * b) FROM t WHERE a < 3 AND s IN ('s1', 's7')",
            "SELECT a FROM t WHERE a = -1",
        ] {
            let always = |question: &str| {
                db.rows(&format!(
                    "SET hotshelf.elf = 'always'; EXPLAIN ANALYZE {question}"
                ))
                .join("\n")
            };
            always(question);
            let plan = always(question);
            assert!(plan.contains("access=elf i, covering ("), "{plan}");
            assert!(plan.contains("bytes_storage=0"), "{plan}");
            assert!(plan.contains("bytes_cache=0"), "{plan}");
            let auto = explain(&db, question);
            assert!(auto.contains("access=elf i, covering ("), "{auto}");
            assert!(auto.contains("bytes_cache=0"), "{auto}");
        }
    }
}

/// A table with an index whose Elfs cover a stretch of 131 072 rows each.
fn stretched(clustered: bool) -> Fixture {
    let db = numbered_to(500_000);
    db.run("SET hotshelf.budget = '16MiB'").unwrap();
    db.run(&format!(
        "CREATE INDEX i ON t USING elf (a, b, s) WITH (clustered = {clustered})"
    ))
    .unwrap();
    assert_eq!(db.rows("SELECT count(*) > 2 FROM elf_stats()"), ["true"]);
    db
}

#[test]
fn stretches_whose_elf_is_damaged_are_scanned_once_and_the_others_covered() {
    let questions = [
        "SELECT s, a, b FROM t WHERE a < 4 AND b > 5 ORDER BY s, a, b",
        "SELECT s, count(*), sum(a) FROM t GROUP BY s ORDER BY s",
    ];
    for (clustered, part) in [(false, 0.3), (false, 0.9), (true, 0.6)] {
        let mut db = stretched(clustered);
        let right: Vec<_> = questions.iter().map(|one| both(&db, one).1).collect();
        let path = index_files(&db).remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = (bytes.len() as f64 * part) as usize;
        bytes[at] ^= 0x40;
        std::fs::write(&path, bytes).unwrap();
        db.reopen();
        for (question, right) in questions.iter().zip(&right) {
            assert_eq!(&both(&db, question).0, right, "{question} at {part}");
            let plan = db.rows(&format!(
                "SET hotshelf.elf = 'always'; EXPLAIN ANALYZE {question}"
            ));
            let plan = plan.join("\n");
            assert!(plan.contains("access=elf i, covering ("), "{plan}");
            assert!(!plan.contains("found 0 rows"), "{plan}");
            // Damage is found where it is read: by the question that asks for every row.
            assert!(
                plan.contains("scanned in part") || question.contains("WHERE"),
                "{plan}"
            );
        }
    }
}

#[test]
fn covering_queries_keep_to_the_budget_the_batch_size_and_limits() {
    let db = stretched(false);
    let question = "SELECT s, a, b FROM t WHERE a < 400 ORDER BY s, a, b";
    let (with, without) = both(
        &db,
        &format!("SELECT count(*), sum(a), max(s) FROM ({question})"),
    );
    assert_eq!(with, without);
    let batches = db
        .run(
            "SET hotshelf.elf = 'always'; SET datafusion.execution.batch_size = 100; \
             SELECT s, a, b FROM t WHERE a < 4",
        )
        .unwrap();
    assert!(
        batches
            .iter()
            .all(|batch| (1..=100).contains(&batch.num_rows()))
    );
    assert_eq!(
        batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
        2000
    );
    let limited = "SET hotshelf.elf = 'always'; SELECT a FROM t WHERE a < 4 LIMIT 7";
    assert_eq!(db.rows(limited).len(), 7);
    db.run("SET hotshelf.budget = '1MiB'").unwrap();
    let small = "SELECT count(*), sum(a), max(s) FROM t WHERE a < 40";
    let (with, without) = both(&db, small);
    assert_eq!(with, without);
}
