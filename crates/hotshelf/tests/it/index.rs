//! Elf indexes behind SQL: the same answers with and without, and what they read.

mod changes;
mod joins;
mod points;
mod random;
mod shelves;

use std::path::PathBuf;

use arrow::array::RecordBatch;

use crate::Fixture;

/// The same question through the Elf wherever it can help, and without.
fn both(db: &Fixture, question: &str) -> (Vec<String>, Vec<String>) {
    let with = db.rows(&format!("SET hotshelf.elf = 'always'; {question}"));
    let without = db.rows(&format!("SET hotshelf.elf = 'off'; {question}"));
    (with, without)
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

fn index_files(db: &Fixture) -> Vec<PathBuf> {
    let tables = std::fs::read_dir(db.path("db/data")).unwrap().flatten();
    let folders = tables.map(|table| table.path().join("elf"));
    folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .collect()
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
fn a_budget_that_is_withdrawn_while_queries_run_changes_no_answer() {
    let questions = [
        "SELECT count(*), sum(id), min(s) FROM t WHERE a BETWEEN 100 AND 180 AND b > 70",
        "SELECT count(*), sum(id) FROM t WHERE a = 77",
        "SELECT count(*), sum(a) FROM t WHERE b IN (3, 40, 71) AND s = 's4'",
    ];
    let db = numbered();
    db.run("CREATE INDEX i ON t USING elf (a, b, s)").unwrap();
    let right = questions.map(|question| both(&db, question).1);
    let ask = || {
        for _ in 0..8 {
            for (question, right) in questions.iter().zip(&right) {
                let always = format!("SET hotshelf.elf = 'always'; {question}");
                assert_eq!(&db.rows(&always), right, "{question}");
            }
        }
    };
    std::thread::scope(|scope| {
        let asking = [scope.spawn(ask), scope.spawn(ask)];
        while asking.iter().any(|one| !one.is_finished()) {
            for budget in ["2MiB", "64MiB", "1MiB", "8MiB"] {
                db.run(&format!("SET hotshelf.budget = '{budget}'"))
                    .unwrap();
            }
        }
    });
}

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
            let figures = db.rows("SELECT cache_bytes, limit_bytes, queries FROM elf_stats()");
            assert_eq!(db.rows(kept), ["true|true"], "{budget}: {figures:?}");
        }
        db.run("SET hotshelf.budget = '2MiB'").unwrap();
        for cache in ["levels:1", "static", "hybrid", "split", "lla"] {
            db.run(&format!("ALTER INDEX i SET (cache = '{cache}')"))
                .unwrap();
            for (question, right) in questions.iter().zip(&right) {
                assert_eq!(&both(&db, question).0, right, "{cache}: {question}");
            }
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

/// A table with an index of several Elfs: one for each of four data files, or for each stretch of 131 072 rows that is
/// in the index's order.
fn stretched(clustered: bool) -> Fixture {
    let db = match clustered {
        true => numbered_to(500_000),
        false => numbered_to(125_000),
    };
    for part in 1..if clustered { 1 } else { 4 } {
        db.run(&format!(
            "INSERT INTO t SELECT id + {part} * 125000, a, b, s FROM t WHERE id <= 125000"
        ))
        .unwrap();
    }
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
