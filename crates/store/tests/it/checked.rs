//! What the catalog, the checksum files and the data files say about each other is compared.

use hotshelf_cache::{CacheManager, CacheOptions, ColumnId};
use hotshelf_store::data_file::{TableColumns, TableFile};
use hotshelf_tier::io::{IoEngine, IoOptions};

use super::*;

/// Opens the files of a database's tables; their rows, or the first error.
fn open_files(fixture: &Fixture) -> Result<u64> {
    let (store, rows) = Store::open(&fixture.path(), true)?;
    let engine = IoEngine::start(IoOptions::default())?;
    let cache = CacheManager::new(CacheOptions::default());
    let opener = store.opener(&engine, &cache, vortex_session());
    let mut count = 0;
    for row in rows {
        if let Some(damage) = row.damage {
            return Err(damage.into());
        }
        for file in row.files {
            let paths = FilePaths::new(store.root(), &row.folder, file.number);
            let columns = TableColumns {
                schema: &row.schema,
                column_ids: &[ColumnId(0), ColumnId(1)],
            };
            let file = TableFile::new(file, paths, columns, &opener)?;
            count += file.open()?.stats.row_count;
        }
    }
    Ok(count)
}

fn tamper(fixture: &Fixture, sql: &str) {
    let connection = rusqlite::Connection::open(fixture.at("catalog.sqlite")).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn damages(fixture: &Fixture) -> usize {
    let (store, _) = fixture.open();
    store.verify(|_, _| {}).unwrap().damage.len()
}

#[test]
fn a_changed_entry_of_a_file_is_noticed_and_the_file_has_the_word() {
    for change in [
        "UPDATE files SET row_count = row_count + 24",
        "UPDATE files SET bounds = (SELECT arrow_schema FROM tables)",
        "UPDATE file_columns SET null_count = 7",
        "UPDATE file_columns SET bounds_exact = 1 - bounds_exact",
        "DELETE FROM file_columns",
    ] {
        let fixture = Fixture::with_tables(1);
        assert_eq!(damages(&fixture), 0);
        tamper(&fixture, change);
        assert_eq!(open_files(&fixture).unwrap(), 100, "{change}");
        assert!(damages(&fixture) > 0, "{change}");
    }
}

#[test]
fn a_lost_or_added_entry_and_a_changed_table_are_corruption() {
    for change in [
        "DELETE FROM files",
        "INSERT INTO files SELECT 99, table_id, 98, row_count, file_bytes, bounds, content_id, sum FROM files",
        "UPDATE tables SET name = 'other'",
        "UPDATE files SET content_id = 5, sum = 6; UPDATE tables SET files_sum = 4294967302",
    ] {
        let fixture = Fixture::with_tables(1);
        tamper(&fixture, change);
        let files = fixture.files();
        let found = open_files(&fixture);
        let is_sound = found.as_ref().is_ok_and(|rows| *rows == 100);
        assert!(
            is_sound || matches!(found, Err(StoreError::Corruption(_))),
            "{change}: {found:?}"
        );
        assert!(damages(&fixture) > 0, "{change}");
        assert_eq!(fixture.files(), files, "{change}");
    }
}

#[test]
fn an_older_pair_of_equal_length_is_refused() {
    let fixture = Fixture::with_tables(1);
    let other = Fixture::with_tables(1);
    let names = ["data/t0-1/2.vortex", "data/t0-1/sums/2.crc"];
    for name in names {
        std::fs::copy(other.at(name), fixture.at(name)).unwrap();
    }
    let error = open_files(&fixture).unwrap_err();
    assert!(
        matches!(&error, StoreError::Corruption(found) if found.what.contains("identity")),
        "{error}"
    );
    assert_eq!(damages(&fixture), 1);
}

#[test]
fn the_files_of_another_place_are_refused() {
    let fixture = Fixture::with_tables(2);
    let (store, rows) = fixture.open();
    drop(store);
    let path = |table: usize, name: &str| {
        let number = rows[table].files[0].number;
        fixture.at(&format!(
            "data/{}/{}",
            rows[table].folder,
            name.replace('N', &number.to_string())
        ))
    };
    for name in ["N.vortex", "sums/N.crc"] {
        std::fs::copy(path(0, name), path(1, name)).unwrap();
    }
    assert!(matches!(
        open_files(&fixture),
        Err(StoreError::Corruption(_))
    ));
}

#[test]
fn a_database_of_format_1_opens_and_is_upgraded_by_its_first_change() {
    let fixture = Fixture::with_tables(1);
    // What format 1 did not have is taken away.
    tamper(
        &fixture,
        "DROP TABLE reserved; DROP TABLE obsolete; DROP TABLE schemas; DROP TABLE views;
         ALTER TABLE tables DROP COLUMN sum; ALTER TABLE tables DROP COLUMN files_sum;
         ALTER TABLE files DROP COLUMN sum; ALTER TABLE files DROP COLUMN content_id;
         ALTER TABLE indexes DROP COLUMN sum;
         DELETE FROM meta; INSERT INTO meta VALUES ('format_version', '1');",
    );
    std::fs::remove_file(fixture.at("data/HEAD")).unwrap();
    std::fs::remove_file(fixture.at("data/t0-1/TABLE")).unwrap();
    let sums = fixture.at("data/t0-1/sums/2.crc");
    let mut bytes = std::fs::read(&sums).unwrap();
    let end = 32 + 4 * u32::from_le_bytes(bytes[28..32].try_into().unwrap()) as usize;
    bytes.truncate(end);
    bytes[7] = b'1';
    let sum = crc32fast::hash(&bytes);
    bytes.extend(sum.to_le_bytes());
    std::fs::write(&sums, bytes).unwrap();

    assert_eq!(open_files(&fixture).unwrap(), 100);
    assert!(!fixture.at("data/HEAD").exists(), "reading changes nothing");
    let (store, rows) = fixture.open();
    exchange(&store, &rows[0], 20, &[]).unwrap();
    drop(store);
    assert_eq!(open_files(&fixture).unwrap(), 120);
    assert!(fixture.at("data/HEAD").exists() && fixture.at("data/t0-1/TABLE").exists());
    tamper(&fixture, "UPDATE files SET row_count = 1 WHERE number = 2");
    assert_eq!(open_files(&fixture).unwrap(), 120);
    assert_eq!(damages(&fixture), 1);
}

#[test]
fn a_row_count_that_its_file_does_not_have_is_corruption_though_the_sums_are_right() {
    let fixture = Fixture::with_tables(0);
    let (store, _) = fixture.open();
    let folder = folder_name("t", store.next_number().unwrap());
    let mut file = write_file(&store, &folder, 100, &[]).unwrap();
    file.stats.row_count += 24;
    let row = TableRow::new("t".into(), folder, schema(), vec![file]);
    store.add_table(&row, None).unwrap();
    drop(store);
    let error = open_files(&fixture).unwrap_err();
    assert!(error.to_string().contains("row count"), "{error}");
    assert_eq!(damages(&fixture), 1);
}

#[test]
fn a_lost_entry_is_noticed_before_anything_is_removed() {
    for lost in [
        "PRAGMA foreign_keys = off; DELETE FROM tables WHERE id = 1",
        "DELETE FROM views",
        "DELETE FROM schemas",
        "UPDATE views SET sql = 'CREATE VIEW v AS SELECT 2'",
        "UPDATE meta SET value = '7' WHERE key = 'listed'",
        "INSERT INTO indexes VALUES (77, 1, 'i', '[]', 0, 0)",
        "PRAGMA foreign_keys = off; INSERT INTO index_files VALUES (77, 1, 5)",
    ] {
        let fixture = Fixture::with_tables(2);
        let (store, _) = fixture.open();
        store.add_schema("s").unwrap();
        store.put_view("v", "CREATE VIEW v AS SELECT 1").unwrap();
        drop(store);
        let before = fixture.files();
        tamper(&fixture, lost);
        let refusal = fixture.refusal();
        assert!(
            matches!(refusal, StoreError::Corruption(_)),
            "{lost}: {refusal}"
        );
        assert_eq!(fixture.files(), before, "{lost}");
        hotshelf_store::repair(&fixture.path()).unwrap();
        assert_eq!(row_count(&fixture.open().1), 200, "{lost}");
    }
}
