//! Indexes whose leaves are read from another shelf than their file.

use super::*;

fn shelves(db: &Fixture) -> Vec<String> {
    db.rows("SELECT shelf, on_shelf FROM elf_stats()")
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
            let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while shelves(&db) != [format!("{shelf}|true")] {
                assert!(std::time::Instant::now() < patience, "{:?}", shelves(&db));
                assert_eq!(both(&db, question), (expected.clone(), expected.clone()));
            }
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
fn shelves_that_do_not_exist_are_refused_or_cost_time_only() {
    let db = numbered_to(10_000);
    for wrong in ["tape:1", "node:x", "emulated:nothing", "dax:"] {
        let error = db.error(&format!(
            "CREATE INDEX i ON t USING elf (a) WITH (shelf = '{wrong}')"
        ));
        assert!(error.to_string().contains(wrong), "{error}");
    }
    let question = "SELECT sum(id), count(*) FROM t WHERE a = 5";
    let expected = db.rows(question);
    let missing = db.path("No Such Folder");
    for shelf in [format!("dax:{missing}"), "node:1000".to_owned()] {
        db.run(&format!(
            "CREATE INDEX i ON t USING elf (a) WITH (shelf = '{shelf}')"
        ))
        .unwrap();
        assert_eq!(both(&db, question), (expected.clone(), expected.clone()));
        assert_eq!(shelves(&db), [format!("{shelf}|false")]);
        db.run("DROP INDEX i").unwrap();
    }
}
