//! A catalog that does not know the data beside it is refused, and nothing is removed.

use super::*;

/// The database is refused as `expected` says, and every file is still there.
fn refused(fixture: &Fixture, expected: impl Fn(&StoreError) -> bool) {
    let before = fixture.files();
    let error = fixture.refusal();
    assert!(expected(&error), "{error}");
    assert!(error.hint().is_some(), "{error}");
    assert_eq!(fixture.files(), before);
}

/// Puts the catalog of one database, with its log, into the place of another's.
fn put_catalog_of(from: &Fixture, to: &Fixture) {
    for name in ["catalog.sqlite", "catalog.sqlite-wal"] {
        std::fs::copy(from.at(name), to.at(name)).unwrap();
    }
}

#[test]
fn a_missing_catalog_beside_data_is_refused() {
    let fixture = Fixture::with_tables(2);
    std::fs::remove_file(fixture.at("catalog.sqlite")).unwrap();
    refused(&fixture, |error| {
        matches!(error, StoreError::LostCatalog { entry_count: 2, .. })
    });
}

#[test]
fn an_empty_catalog_beside_data_is_refused() {
    let fixture = Fixture::with_tables(1);
    std::fs::write(fixture.at("catalog.sqlite"), b"").unwrap();
    refused(&fixture, |error| {
        matches!(error, StoreError::LostCatalog { .. })
    });
}

#[test]
fn a_new_catalog_beside_data_is_refused() {
    let fixture = Fixture::with_tables(1);
    let empty = Fixture::with_tables(0);
    std::fs::copy(empty.at("catalog.sqlite"), fixture.at("catalog.sqlite")).unwrap();
    refused(&fixture, |error| {
        matches!(error, StoreError::StaleCatalog { .. })
    });
}

#[test]
fn an_older_catalog_is_refused_though_only_one_change_is_missing() {
    let fixture = Fixture::with_tables(1);
    let old = fixture.copy("old");
    let (store, _) = fixture.open();
    create_table(&store, "new", 10).unwrap();
    drop(store);
    put_catalog_of(&old, &fixture);
    refused(&fixture, |error| {
        matches!(
            error,
            StoreError::StaleCatalog {
                found: 1,
                acknowledged: 2,
                ..
            }
        )
    });
}

#[test]
fn an_older_catalog_with_its_record_beside_newer_data_is_refused() {
    let fixture = Fixture::with_tables(1);
    let old = fixture.copy("old");
    let (store, rows) = fixture.open();
    exchange(&store, &rows[0], 30, &[]).unwrap();
    create_table(&store, "new", 10).unwrap();
    drop(store);
    put_catalog_of(&old, &fixture);
    std::fs::copy(old.at("data/HEAD"), fixture.at("data/HEAD")).unwrap();
    let before = fixture.files();
    refused(&fixture, |error| {
        matches!(
            error,
            StoreError::StaleCatalog {
                found: 1,
                acknowledged: 2,
                ..
            }
        )
    });
    assert_eq!(fixture.files(), before);
}

#[test]
fn the_catalog_of_another_database_is_refused() {
    let fixture = Fixture::with_tables(2);
    let other = Fixture::with_tables(2);
    std::fs::copy(other.at("catalog.sqlite"), fixture.at("catalog.sqlite")).unwrap();
    refused(&fixture, |error| {
        matches!(error, StoreError::ForeignCatalog { .. })
    });
}

#[test]
fn a_missing_record_of_the_last_change_is_refused() {
    let fixture = Fixture::with_tables(1);
    std::fs::remove_file(fixture.at("data/HEAD")).unwrap();
    refused(&fixture, |error| {
        matches!(error, StoreError::LostHead { .. })
    });
}

#[test]
fn every_damage_to_the_log_of_a_killed_process_is_refused_or_harmless() {
    let open = Fixture::new();
    let (store, _) = open.open();
    for table in 0..5 {
        create_table(&store, &format!("t{table}"), 10).unwrap();
    }
    let log = std::fs::read(open.at("catalog.sqlite-wal")).unwrap();
    assert!(log.len() > 20_000, "the log holds the changes");
    let killed = open.copy("killed");
    drop(store);
    let mut refusals = 0;
    let mut damaged: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new())];
    for at in (0..log.len()).step_by(log.len() / 40) {
        let mut flipped = log.clone();
        flipped[at] ^= 1;
        damaged.push(Some(flipped));
        damaged.push(Some(log[..at].to_vec()));
    }
    for bytes in damaged {
        let copy = killed.copy("damaged");
        match bytes {
            None => std::fs::remove_file(copy.at("catalog.sqlite-wal")).unwrap(),
            Some(bytes) => std::fs::write(copy.at("catalog.sqlite-wal"), bytes).unwrap(),
        }
        let files = copy.files();
        match Store::open(&copy.path(), true) {
            Ok((_, rows)) => assert_eq!(row_count(&rows), 50),
            Err(error) => {
                assert!(matches!(error, StoreError::StaleCatalog { .. }), "{error}");
                assert_eq!(copy.files(), files);
                refusals += 1;
            }
        }
    }
    assert!(refusals > 60, "{refusals}");
    assert_eq!(row_count(&killed.open().1), 50, "the log as it was has all");
}

#[test]
fn files_that_nobody_knows_are_set_aside_and_kept() {
    let fixture = Fixture::with_tables(1);
    let table = fixture.at("data/t0-1");
    std::fs::write(table.join("999.vortex"), "what").unwrap();
    std::fs::create_dir_all(fixture.at("data/other-998/sums")).unwrap();
    std::fs::write(fixture.at("data/other-998/1.vortex"), "whose").unwrap();
    let (store, rows) = fixture.open();
    assert_eq!(row_count(&rows), 100);
    let lost = fixture.at("lost+found");
    assert_eq!(
        std::fs::read(lost.join("t0-1_999.vortex")).unwrap(),
        b"what"
    );
    assert_eq!(
        std::fs::read(lost.join("other-998/1.vortex")).unwrap(),
        b"whose"
    );
    assert!(
        store.next_number().unwrap() > 999,
        "no number is used twice"
    );
}

#[test]
fn a_catalog_of_the_same_database_with_another_history_is_refused() {
    let fixture = Fixture::with_tables(1);
    let other = fixture.copy("other");
    // Both go on, each its own way; then one has the other's catalog.
    let (store, rows) = fixture.open();
    exchange(&store, &rows[0], 10, &[]).unwrap();
    drop(store);
    let (store, rows) = other.open();
    for _ in 0..3 {
        exchange(&store, &rows[0], 20, &[]).unwrap();
        let mixed = fixture.copy("mixed");
        put_catalog_of(&other, &mixed);
        refused(&mixed, |error| {
            matches!(error, StoreError::ForeignCatalog { .. })
        });
    }
}

#[test]
fn numbers_of_dropped_tables_are_not_used_again() {
    let fixture = Fixture::with_tables(3);
    let (store, rows) = fixture.open();
    let highest = store.next_number().unwrap();
    for row in &rows {
        store.drop_table(row.id, &row.folder).unwrap();
    }
    drop(store);
    let (store, rows) = fixture.open();
    assert!(rows.is_empty() && store.next_number().unwrap() > highest);
}
