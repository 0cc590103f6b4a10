//! A lost or damaged catalog is made again from the files.

use hotshelf_store::index::{IndexCache, IndexDefinition};
use hotshelf_store::repair;
use hotshelf_store::shelf::Shelf;

use super::*;

/// Names and rows of the tables, after a repair that had something to do.
fn repaired(fixture: &Fixture) -> Vec<(String, u64)> {
    let report = repair(&fixture.path()).unwrap();
    assert!(!report.is_sound && !report.notes.is_empty());
    tables(fixture)
}

fn tables(fixture: &Fixture) -> Vec<(String, u64)> {
    let (store, rows) = fixture.open();
    assert_eq!(store.verify(|_, _| {}).unwrap().damage, []);
    let rows = rows.iter();
    rows.map(|row| (row.name.clone(), row_count(std::slice::from_ref(row))))
        .collect()
}

fn expected(tables: &[(&str, u64)]) -> Vec<(String, u64)> {
    let tables = tables.iter();
    tables
        .map(|(name, rows)| ((*name).to_owned(), *rows))
        .collect()
}

#[test]
fn a_sound_database_is_left_as_it_is() {
    let fixture = Fixture::with_tables(1);
    let before = std::fs::read(fixture.at("catalog.sqlite")).unwrap();
    assert!(repair(&fixture.path()).unwrap().is_sound);
    assert_eq!(std::fs::read(fixture.at("catalog.sqlite")).unwrap(), before);
    assert!(!fixture.at("lost+found").exists());
}

#[test]
fn tables_rows_indexes_and_empty_tables_come_back() {
    let fixture = Fixture::with_tables(2);
    let (store, rows) = fixture.open();
    exchange(&store, &rows[0], 30, &[]).unwrap();
    let index = IndexDefinition {
        id: store.next_number().unwrap() as i64,
        name: "i".into(),
        columns: vec![0],
        clustered: false,
        cache: IndexCache::default(),
        shelf: Shelf::default(),
    };
    let of = TableRef {
        id: rows[1].id,
        folder: &rows[1].folder,
        schema: &rows[1].schema,
    };
    let change = FileChange {
        new_index: Some(&index),
        ..FileChange::default()
    };
    store.change_files(&of, &change).unwrap();
    let folder = folder_name("größe", store.next_number().unwrap());
    store
        .root()
        .create_folder(&store.root().table(&folder))
        .unwrap();
    let empty = TableRow::new("größe".into(), folder, schema(), Vec::new());
    store.add_table(&empty, None).unwrap();
    store.add_schema("s").unwrap();
    store
        .put_view("s.v", "CREATE VIEW s.v AS SELECT 1")
        .unwrap();
    let names = store.names().unwrap();
    drop(store);
    for lose in [
        (|path| std::fs::remove_file(path).unwrap()) as fn(PathBuf),
        |path| std::fs::write(path, b"").unwrap(),
        |path| {
            std::fs::write(path, b"no database at all, but long enough to be looked at").unwrap()
        },
    ] {
        let copy = fixture.copy("lost");
        lose(copy.at("catalog.sqlite"));
        copy_refused(&copy);
        assert_eq!(
            repaired(&copy),
            expected(&[("größe", 0), ("t0", 130), ("t1", 100)])
        );
        let (store, rows) = copy.open();
        assert_eq!(rows[2].indexes[0].definition, index);
        assert_eq!(store.names().unwrap(), names);
        create_table(&store, "later", 5).unwrap();
        drop(store);
        assert_eq!(row_count(&copy.open().1), 235);
    }
}

fn copy_refused(fixture: &Fixture) {
    let hint = fixture.refusal().hint().unwrap_or_default();
    assert!(hint.contains("hotshelf repair"), "{hint}");
}

#[test]
fn a_log_that_lost_acknowledged_tables_is_repaired_with_all_of_them() {
    let open = Fixture::new();
    let (store, _) = open.open();
    for table in 0..5 {
        create_table(&store, &format!("t{table}"), 10).unwrap();
    }
    let killed = open.copy("killed");
    drop(store);
    let log = killed.at("catalog.sqlite-wal");
    let half = std::fs::metadata(&log).unwrap().len() / 2;
    std::fs::File::options()
        .write(true)
        .open(&log)
        .unwrap()
        .set_len(half)
        .unwrap();
    copy_refused(&killed);
    let all: Vec<_> = (0..5).map(|table| (format!("t{table}"), 10)).collect();
    assert_eq!(repaired(&killed), all);
    assert!(
        killed.at("lost+found/catalog.sqlite-wal").exists(),
        "the old log is kept"
    );
}

#[test]
fn a_change_that_was_never_acknowledged_stays_out() {
    let fixture = Fixture::with_tables(1);
    let (store, rows) = fixture.open();
    write_file(&store, &rows[0].folder, 55, &[]).unwrap();
    let killed = fixture.copy("killed");
    std::fs::remove_file(killed.at("catalog.sqlite")).unwrap();
    assert_eq!(repaired(&killed), expected(&[("t0", 100)]));
}

#[test]
fn a_table_whose_replacement_was_not_acknowledged_comes_back() {
    let fixture = Fixture::with_tables(1);
    let before = fixture.copy("before");
    let (store, rows) = fixture.open();
    let folder = folder_name("t0", store.next_number().unwrap());
    let file = write_file(&store, &folder, 7, &[]).unwrap();
    let row = TableRow::new("t0".into(), folder, schema(), vec![file]);
    let old = (rows[0].id, rows[0].folder.as_str());
    store.add_table(&row, Some(old)).unwrap();
    drop(store);
    // Files and description of the new table are there, its change is not.
    let new = format!("data/{}", row.folder);
    copy_folder(&fixture.at(&new), &before.at(&new));
    std::fs::remove_file(before.at("catalog.sqlite")).unwrap();
    assert_eq!(repaired(&before), expected(&[("t0", 100)]));
}

#[test]
fn rows_of_a_merger_do_not_come_twice_wherever_it_was_interrupted() {
    let fixture = Fixture::with_tables(1);
    let (store, rows) = fixture.open();
    exchange(&store, &rows[0], 50, &[]).unwrap();
    let before = fixture.copy("before");
    let numbers: Vec<u64> = before.open().1[0]
        .files
        .iter()
        .map(|file| file.number)
        .collect();
    exchange(&store, &rows[0], 150, &numbers).unwrap();
    drop(store);
    // As many of the merged files as there were when the process was killed.
    for still_there in 0..=numbers.len() {
        let killed = fixture.copy("killed");
        for number in &numbers[..still_there] {
            for name in [format!("{number}.vortex"), format!("sums/{number}.crc")] {
                let name = format!("data/{}/{name}", rows[0].folder);
                std::fs::copy(before.at(&name), killed.at(&name)).unwrap();
            }
        }
        std::fs::remove_file(killed.at("catalog.sqlite")).unwrap();
        assert_eq!(repaired(&killed), expected(&[("t0", 150)]), "{still_there}");
    }
}

#[test]
fn without_descriptions_tables_get_the_names_of_their_folders() {
    let fixture = Fixture::with_tables(1);
    std::fs::remove_file(fixture.at("catalog.sqlite")).unwrap();
    std::fs::remove_file(fixture.at("data/t0-1/TABLE")).unwrap();
    let report = repair(&fixture.path()).unwrap();
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("named after its folder")),
        "{:?}",
        report.notes
    );
    assert_eq!(tables(&fixture), expected(&[("t0", 100)]));
}

#[test]
fn damaged_data_files_are_named_and_left_out() {
    let fixture = Fixture::with_tables(2);
    std::fs::remove_file(fixture.at("catalog.sqlite")).unwrap();
    let file = fixture.at("data/t0-1/2.vortex");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let report = repair(&fixture.path()).unwrap();
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("file 2 is left out")),
        "{:?}",
        report.notes
    );
    assert_eq!(tables(&fixture), expected(&[("t0", 0), ("t1", 100)]));
    assert!(
        fixture.at("lost+found/t0-1_2.vortex").exists(),
        "it is kept"
    );
}

#[test]
fn an_open_database_and_a_newer_one_are_not_repaired() {
    let fixture = Fixture::with_tables(1);
    let (store, _) = fixture.open();
    assert!(matches!(
        repair(&fixture.path()),
        Err(StoreError::Locked { .. })
    ));
    drop(store);
    let connection = rusqlite::Connection::open(fixture.at("catalog.sqlite")).unwrap();
    connection
        .execute_batch("UPDATE meta SET value = '99' WHERE key = 'format_version'")
        .unwrap();
    drop(connection);
    assert!(matches!(
        repair(&fixture.path()),
        Err(StoreError::NewerFormat { .. })
    ));
    assert!(!fixture.at("lost+found").exists());
}
