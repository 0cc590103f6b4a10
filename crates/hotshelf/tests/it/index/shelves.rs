//! Indexes whose leaves are read from another shelf than their file.

use super::*;

fn shelves(db: &Fixture) -> Vec<String> {
    db.rows("SELECT shelf, on_shelf FROM elf_stats()")
}

/// Asks again and again until the only index is on its shelf.
fn until_copied(db: &Fixture, shelf: &str, ask: impl Fn()) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while shelves(db) != [format!("{shelf}|true")] {
        assert!(std::time::Instant::now() < patience, "{:?}", shelves(db));
        ask();
    }
}

#[test]
fn an_index_on_a_shelf_answers_as_its_file_does_and_stays_there_when_opened_again() {
    let question = "SELECT sum(id), count(*) FROM t WHERE a = 5 AND b < 30";
    let folder = tempfile::tempdir().unwrap();
    let dax = format!("dax:{}", folder.path().display());
    for shelf in ["node:0", "emulated:cxl", dax.as_str()] {
        let mut db = numbered_to(50_000);
        let expected = db.rows(question);
        db.run(&format!(
            "CREATE INDEX i ON t USING elf (a, b) WITH (shelf = '{shelf}', cache = 'none')"
        ))
        .unwrap();
        for is_second in [false, true] {
            if is_second {
                db.reopen();
            }
            until_copied(&db, shelf, || {
                assert_eq!(both(&db, question), (expected.clone(), expected.clone()));
            });
            assert_eq!(
                both(&db, question),
                (expected.clone(), expected.clone()),
                "{shelf}"
            );
        }
        db.run("DROP INDEX i").unwrap();
        assert!(shelves(&db).is_empty());
    }
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "the pool goes with its index"
    );
}

#[test]
fn shelves_that_do_not_exist_are_refused() {
    let db = numbered_to(10_000);
    let folder = format!("dax:{}", db.path("No Such Folder"));
    db.run("CREATE INDEX plain ON t USING elf (b)").unwrap();
    for wrong in [
        "tape:1",
        "node:x",
        "node:1000",
        "emulated:nothing",
        "dax:",
        &folder,
    ] {
        for statement in [
            format!("CREATE INDEX i ON t USING elf (a) WITH (shelf = '{wrong}')"),
            format!("ALTER INDEX plain SET (shelf = '{wrong}')"),
        ] {
            let error = db.error(&statement).to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
    assert_eq!(shelves(&db), ["file|true"]);
}

#[test]
fn a_shelf_that_went_away_costs_time_only() {
    let mut db = numbered_to(10_000);
    let question = "SELECT sum(id), count(*) FROM t WHERE a = 5";
    let expected = db.rows(question);
    let folder = tempfile::tempdir().unwrap();
    let shelf = format!("dax:{}", folder.path().display());
    db.run(&format!(
        "CREATE INDEX i ON t USING elf (a) WITH (shelf = '{shelf}')"
    ))
    .unwrap();
    drop(folder);
    for _ in 0..2 {
        assert_eq!(both(&db, question), (expected.clone(), expected.clone()));
        assert_eq!(shelves(&db), [format!("{shelf}|false")]);
        db.reopen();
    }
}

#[test]
fn a_shelf_that_goes_while_it_is_used_changes_no_answer() {
    let db = numbered_to(50_000);
    let question = "SELECT sum(id), count(*) FROM t WHERE a BETWEEN 5 AND 300 AND b < 30";
    let expected = db.rows(question);
    let folder = tempfile::tempdir().unwrap();
    let shelf = format!("dax:{}", folder.path().display());
    db.run(&format!(
        "CREATE INDEX i ON t USING elf (a, b) WITH (shelf = '{shelf}', cache = 'none')"
    ))
    .unwrap();
    until_copied(&db, &shelf, || drop(both(&db, question)));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            (0..30).for_each(|_| assert_eq!(both(&db, question).0, expected));
        });
        drop(folder);
        asking.join().unwrap();
    });
    assert_eq!(both(&db, question).0, expected);
}

#[test]
fn an_index_is_altered_while_it_is_used_and_stays_so() {
    let question = "SELECT sum(id), count(*) FROM t WHERE a = 5 AND b < 30";
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let files = |idx: usize| folders[idx].path().read_dir().unwrap().count();
    let mut db = numbered_to(50_000);
    let expected = db.rows(question);
    db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
    let choices = "SELECT cache, limit_bytes, shelf FROM elf_stats()";
    for (change, found) in [
        ("cache = 'lfu', cache_bytes = '64KB'", "lfu|64000|file"),
        ("cache = 'none'", "none|0|file"),
        ("CACHE = '2q'", "2q|NULL|file"),
        ("cache_bytes = 4096", "2q|4096|file"),
        ("cache_bytes = 'auto', cache = auto", "auto|NULL|file"),
        ("shelf = 'emulated:cxl'", "auto|NULL|emulated:cxl"),
        ("shelf = 'file'", "auto|NULL|file"),
    ] {
        db.run(&format!("ALTER INDEX i SET ({change})")).unwrap();
        let both_answers = (expected.clone(), expected.clone());
        assert_eq!(both(&db, question), both_answers, "{change}");
        let is_limited = |row: &str| row.split('|').nth(1) != Some("NULL");
        let row = db.rows(choices).remove(0);
        match is_limited(found) {
            true => assert_eq!(row, found),
            false => assert_eq!(
                (row.split('|').next(), row.split('|').next_back()),
                (found.split('|').next(), found.split('|').next_back())
            ),
        }
        db.reopen();
        assert_eq!(both(&db, question), both_answers, "{change}, opened again");
        assert_eq!(db.rows(choices).remove(0), row, "{change}");
    }
    for idx in [0, 1] {
        let shelf = format!("dax:{}", folders[idx].path().display());
        db.run(&format!("ALTER INDEX i SET (shelf = '{shelf}')"))
            .unwrap();
        until_copied(&db, &shelf, || {
            assert_eq!(both(&db, question), (expected.clone(), expected.clone()));
        });
        assert_eq!(files(idx), 1);
    }
    assert_eq!(files(0), 0, "the pool that was left is removed");
    db.run("ALTER TABLE i SET (shelf = 'file')").unwrap();
    assert_eq!(files(1), 0);
    assert_eq!(both(&db, question), (expected.clone(), expected));
    let code = |sql: &str| db.error(sql).code().to_owned();
    assert_eq!(code("ALTER INDEX j SET (cache = 'lru')"), "unknown_index");
    db.run("ALTER INDEX IF EXISTS j SET (cache = 'lru')")
        .unwrap();
    for (wrong, found) in [
        ("cache = 'arc'", "invalid_value"),
        ("cache_bytes = -5", "invalid_value"),
        ("speed = 7", "invalid_value"),
        ("shelf = 'tape:1'", "invalid_value"),
        ("clustered = true", "not_supported"),
        ("order = 'auto'", "not_supported"),
    ] {
        let sql = format!("ALTER INDEX i SET (cache = 'lru', {wrong})");
        assert_eq!(code(&sql), found, "{wrong}");
    }
    let row = db.rows(choices).remove(0);
    assert!(
        row.starts_with("auto|"),
        "a change that fails changes nothing: {row}"
    );
    for wrong in [
        "ALTER INDEX i",
        "ALTER INDEX i SET ()",
        "ALTER INDEX i SET cache = 'lru'",
        "ALTER INDEX SET (cache = 'lru')",
        "ALTER INDEX i SET (cache = 'lru') SELECT 1",
        "ALTER TABLE t SET (cache = 'lru')",
    ] {
        db.error(wrong);
    }
}

#[test]
fn what_goes_before_it_was_used_leaves_nothing_on_its_shelf() {
    for change in [
        "ALTER INDEX i SET (shelf = 'file')",
        "DROP INDEX i",
        "DROP TABLE t",
        "CREATE OR REPLACE TABLE t AS SELECT 1 AS a",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let files = || folder.path().read_dir().unwrap().count();
        let shelf = format!("dax:{}", folder.path().display());
        let mut db = numbered_to(10_000);
        db.run(&format!(
            "CREATE INDEX i ON t USING elf (a) WITH (shelf = '{shelf}')"
        ))
        .unwrap();
        until_copied(&db, &shelf, || {
            drop(both(&db, "SELECT sum(id) FROM t WHERE a = 5"));
        });
        db.reopen();
        assert_eq!(files(), 1);
        db.run(change).unwrap();
        assert_eq!(files(), 0, "{change}");
    }
}
