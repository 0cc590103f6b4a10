//! Merging of small files in the background.

use std::time::{Duration, Instant};

use crate::Fixture;

/// Waits until the background has nothing to do, and returns the number of files of `t`.
fn settled_files(db: &Fixture) -> u64 {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let before = files(db);
        std::thread::sleep(Duration::from_millis(1500));
        let after = files(db);
        if before == after {
            return after;
        }
        assert!(Instant::now() < end, "files keep changing: {after}");
    }
}

fn files(db: &Fixture) -> u64 {
    let files = db.rows("SELECT files FROM hotshelf_indexes() WHERE index_name = 'i'");
    files[0].parse().unwrap()
}

fn insert_singly(db: &Fixture, ids: std::ops::Range<u32>) {
    for id in ids {
        db.run(&format!("INSERT INTO t VALUES ({id}, 'n{}')", id % 7))
            .unwrap();
    }
}

fn table(clustered: bool) -> Fixture {
    let db = Fixture::new();
    db.run("CREATE TABLE t (id INT, name VARCHAR)").unwrap();
    db.run(&format!(
        "CREATE INDEX i ON t USING elf (id) WITH (clustered = {clustered})"
    ))
    .unwrap();
    db
}

const ALL: &str = "SELECT count(*), count(DISTINCT id), sum(id), min(name), max(name) FROM t";

#[test]
fn single_rows_are_merged_by_themselves_and_none_is_lost() {
    for clustered in [false, true] {
        let mut db = table(clustered);
        insert_singly(&db, 0..70);
        assert!(settled_files(&db) <= 16);
        let merges = db.rows(
            "SELECT sum(files_before) > sum(files_after), count(error) FROM hotshelf_merges()",
        );
        assert_eq!(merges, ["true|0"]);
        for _ in 0..2 {
            assert_eq!(db.rows(ALL), ["70|70|2415|n0|n6"]);
            assert_eq!(db.rows("SELECT name FROM t WHERE id = 33"), ["n5"]);
            db.reopen();
        }
    }
}

#[test]
fn merging_can_be_turned_off() {
    let db = table(false);
    db.run("SET hotshelf.merge_files = off").unwrap();
    insert_singly(&db, 0..30);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(files(&db), 30);
    assert_eq!(
        db.rows("SHOW hotshelf.merge_files"),
        ["hotshelf.merge_files|false"]
    );
    db.run("SET hotshelf.merge_files = on").unwrap();
    insert_singly(&db, 30..31);
    assert!(settled_files(&db) < 8);
    assert_eq!(db.rows(ALL), ["31|31|465|n0|n6"]);
}

#[test]
fn merging_bears_with_whatever_happens_to_the_table() {
    let mut db = table(false);
    for round in 0..6 {
        insert_singly(&db, 0..20);
        match round {
            0 => drop(db.run("DROP INDEX i").unwrap()),
            1 => drop(db.run("CREATE INDEX i ON t USING elf (id)").unwrap()),
            2 => drop(db.run("OPTIMIZE TABLE t").unwrap()),
            3 => drop(db.reopen()),
            4 => {
                db.run("DROP TABLE t").unwrap();
                db.run("CREATE TABLE t (id INT, name VARCHAR)").unwrap();
            }
            _ => {}
        }
        let rounds = if round < 4 { round + 1 } else { round - 4 };
        let counts = db.rows("SELECT count(*), count(DISTINCT id) FROM t");
        let distinct = if rounds == 0 { 0 } else { 20 };
        assert_eq!(counts, [format!("{}|{distinct}", rounds * 20)], "{round}");
    }
}
