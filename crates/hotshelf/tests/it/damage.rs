//! Damage on disk, and who may open what.

use std::path::PathBuf;

use hotshelf::{Database, ErrorKind, Options};

use crate::Fixture;

fn data_files(db: &Fixture, table: &str) -> Vec<PathBuf> {
    let data = PathBuf::from(db.path("db/data"));
    let folders = std::fs::read_dir(data)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let folder = folders
        .into_iter()
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(table)
        })
        .unwrap();
    let files = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    files
        .filter(|path| path.extension().is_some_and(|ending| ending == "vortex"))
        .collect()
}

fn flip(path: &PathBuf, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

fn two_tables() -> Fixture {
    let db = Fixture::new();
    for table in ["good", "bad"] {
        db.run(&format!(
            "CREATE TABLE {table} AS SELECT value * 7919 % 1000003 AS a
             FROM generate_series(1, 200000) AS g(value)"
        ))
        .unwrap();
    }
    db
}

#[test]
fn a_flipped_byte_is_an_error_with_file_and_offset_and_other_tables_work() {
    let mut db = two_tables();
    let file = data_files(&db, "bad").remove(0);
    flip(&file, 5000);
    db.reopen();
    let error = db.error("SELECT sum(a) FROM bad");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let text = error.to_string();
    let place = text.strip_prefix(&format!("{} is corrupt at byte ", file.display()));
    let offset = place.and_then(|place| place.split(':').next()?.parse().ok());
    assert!(offset.is_some_and(|offset: u64| offset <= 5000), "{text}");
    assert_eq!(db.rows("SELECT count(a) FROM good"), ["200000"]);
    let report = db.database().verify(|_, _| {}).unwrap();
    assert_eq!(report.damage.len(), 1);
    assert_eq!(report.damage[0].what, "bad");
}

#[test]
fn a_damaged_footer_or_a_cut_file_spoils_its_table_only() {
    for cut in [false, true] {
        let mut db = two_tables();
        let file = data_files(&db, "bad").remove(0);
        let length = std::fs::metadata(&file).unwrap().len() as usize;
        if cut {
            std::fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_len(length as u64 / 2)
                .unwrap();
        } else {
            flip(&file, length - 20);
        }
        db.reopen();
        assert_eq!(db.error("SELECT sum(a) FROM bad").code(), "corruption");
        assert_eq!(db.rows("SELECT count(a) FROM good"), ["200000"]);
        assert_eq!(db.database().verify(|_, _| {}).unwrap().damage.len(), 1);
        db.run("DROP TABLE bad").unwrap();
        assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
    }
}

#[test]
fn a_second_opening_is_refused_and_names_the_owner() {
    let db = Fixture::new();
    let second = Database::open(db.path("db"), Options::default());
    match second {
        Err(error) => {
            let owner = format!("(process {})", std::process::id());
            assert_eq!(error.code(), "locked");
            assert!(error.to_string().contains(&owner), "{error}");
        }
        Ok(_) => panic!("opened twice"),
    }
}

#[test]
fn foreign_folders_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter.txt"), "dear").unwrap();
    assert!(
        Database::open(folder.path(), Options::default())
            .is_err_and(|error| error.code() == "not_a_database")
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn files_that_the_catalog_does_not_know_are_set_aside_and_kept() {
    let mut db = two_tables();
    let file = data_files(&db, "good").remove(0);
    let folder = file.parent().unwrap().to_owned();
    let orphans = [
        folder.join("999.vortex"),
        folder.join("998.vortex.tmp"),
        folder.join("sums/999.crc"),
    ];
    for orphan in &orphans {
        std::fs::write(orphan, "half").unwrap();
    }
    let folder = PathBuf::from(db.path("db/data/lost-977"));
    std::fs::create_dir_all(folder.join("sums")).unwrap();
    db.reopen();
    assert!(orphans.iter().all(|orphan| !orphan.exists()) && !folder.exists());
    let kept = std::fs::read_dir(db.path("db/lost+found")).unwrap().count();
    assert_eq!(kept, 4);
    assert_eq!(db.rows("SELECT count(a) FROM good"), ["200000"]);
}

#[test]
fn a_lost_catalog_is_refused_and_no_table_is_removed() {
    for lose in [
        (|path| std::fs::remove_file(path).unwrap()) as fn(String),
        |path| std::fs::write(path, b"").unwrap(),
    ] {
        let mut db = two_tables();
        let file = data_files(&db, "good").remove(0);
        db.database = None;
        lose(db.path("db/catalog.sqlite"));
        let error = Database::open(db.path("db"), Options::default())
            .err()
            .unwrap();
        assert!(error.code() == "lost_catalog", "{error}");
        assert!(file.exists());
    }
}

#[test]
fn rows_inserted_while_the_folder_is_moved_are_there_afterwards() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT 1 AS a").unwrap();
    std::fs::rename(db.path("db"), db.path("moved")).unwrap();
    db.run("INSERT INTO t VALUES (2)").unwrap();
    db.run("CREATE TABLE u AS SELECT 3 AS a").unwrap();
    let sum = "SELECT sum(a) FROM (SELECT a FROM t UNION ALL SELECT a FROM u)";
    assert_eq!(db.rows(sum), ["6"]);
    let Fixture { folder, database } = db;
    drop(database);
    let database = Database::open(folder.path().join("moved"), Options::default()).unwrap();
    let db = Fixture {
        folder,
        database: Some(database),
    };
    assert_eq!(db.rows(sum), ["6"]);
    assert!(!std::path::Path::new(&db.path("db")).exists());
}

/// Makes a file impossible to open without damaging it. The result undoes this.
fn make_unavailable(file: &std::path::Path) -> impl FnOnce() + use<> {
    let (file, aside) = (file.to_owned(), file.with_extension("aside"));
    std::fs::rename(&file, &aside).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    move || {
        std::fs::remove_file(&file).unwrap();
        std::fs::rename(&aside, &file).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_no_damage_and_the_next_use_tries_again() {
    let mut db = two_tables();
    let file = data_files(&db, "bad").remove(0);
    db.database = None;
    let aside = file.with_extension("aside");
    let put_back = make_unavailable(&file);
    // Kept out of the folder, where opening would set it aside.
    let kept = db.path("kept");
    std::fs::rename(&aside, &kept).unwrap();
    db.reopen();
    let error = db.error("SELECT sum(a) FROM bad");
    assert!(error.code() == "io", "{error:?}");
    let tables = db.database().tables();
    assert!(tables.iter().all(|table| table.damage.is_none()));
    assert!(tables[0].unavailable.is_some() && tables[1].unavailable.is_none());
    assert!(
        db.database().verify(|_, _| {}).is_err(),
        "an error ends the check"
    );
    assert_eq!(db.rows("SELECT count(a) FROM good"), ["200000"]);
    std::fs::rename(&kept, &aside).unwrap();
    put_back();
    assert_eq!(db.rows("SELECT count(a) FROM bad"), ["200000"]);
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
}

#[test]
fn a_damaged_index_is_built_again_by_optimize_and_rows_can_be_added_then() {
    let mut db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 40000) AS g(value)")
        .unwrap();
    db.run("CREATE INDEX i ON t USING elf (a)").unwrap();
    let folder = data_files(&db, "t").remove(0).parent().unwrap().join("elf");
    let elf = std::fs::read_dir(folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    flip(&elf, 20);
    db.reopen();
    assert_eq!(db.database().verify(|_, _| {}).unwrap().damage.len(), 1);
    db.run("OPTIMIZE TABLE t").unwrap();
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
    db.run("INSERT INTO t VALUES (1)").unwrap();
    db.reopen();
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
    assert_eq!(db.rows("SELECT count(*) FROM t WHERE a = 1"), ["2"]);
}
