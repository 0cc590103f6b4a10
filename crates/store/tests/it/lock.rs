//! One process at a time, whatever happens to files and names.

use super::*;

#[test]
fn a_second_opening_is_refused_though_the_lock_file_is_gone() {
    let fixture = Fixture::with_tables(1);
    let (store, _) = fixture.open();
    let own = Some(std::process::id());
    assert!(matches!(fixture.refusal(), StoreError::Locked { owner, .. } if owner == own));
    std::fs::remove_file(fixture.at("LOCK")).unwrap();
    assert!(matches!(
        fixture.refusal(),
        StoreError::Locked { owner: None, .. }
    ));
    drop(store);
    assert_eq!(row_count(&fixture.open().1), 100);
}

#[test]
fn a_folder_that_is_moved_takes_its_database_along() {
    let fixture = Fixture::with_tables(1);
    let (store, rows) = fixture.open();
    let moved = fixture.folder.path().join("moved");
    std::fs::rename(fixture.path(), &moved).unwrap();
    exchange(&store, &rows[0], 20, &[]).unwrap();
    create_table(&store, "u", 5).unwrap();
    assert!(
        !fixture.path().exists(),
        "nothing is made under the old name"
    );
    let error = Store::open(&moved, true).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    // Another database may take the name, and both go on.
    let (other, _) = fixture.open();
    create_table(&other, "mine", 3).unwrap();
    create_table(&store, "v", 7).unwrap();
    drop((store, other));
    assert_eq!(row_count(&Store::open(&moved, false).unwrap().1), 132);
    assert_eq!(row_count(&fixture.open().1), 3);
}

#[test]
fn a_newer_format_is_refused_before_anything_is_written() {
    let fixture = Fixture::with_tables(1);
    let connection = rusqlite::Connection::open(fixture.at("catalog.sqlite")).unwrap();
    let newer = "UPDATE meta SET value = '99' WHERE key = 'format_version'";
    connection.execute_batch(newer).unwrap();
    drop(connection);
    std::fs::remove_file(fixture.at("LOCK")).unwrap();
    let state = |fixture: &Fixture| {
        let mut names = Vec::new();
        list(&fixture.path(), Path::new(""), &mut names);
        names.sort();
        let sum = |name: &String| crc32fast::hash(&std::fs::read(fixture.at(name)).unwrap());
        let sums: Vec<u32> = names.iter().map(sum).collect();
        (names, sums)
    };
    let before = state(&fixture);
    assert!(matches!(
        fixture.refusal(),
        StoreError::NewerFormat { found: 99, .. }
    ));
    assert_eq!(state(&fixture), before);
}

#[test]
fn a_foreign_folder_is_left_as_it_is() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path()).unwrap();
    std::fs::write(fixture.at("letter.txt"), "dear").unwrap();
    assert!(matches!(fixture.refusal(), StoreError::NotADatabase { .. }));
    assert_eq!(std::fs::read_dir(fixture.path()).unwrap().count(), 1);
}
