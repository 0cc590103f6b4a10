//! What a crash leaves is found by the journal.

use super::*;

#[test]
fn a_file_that_was_not_committed_is_removed_by_the_next_opening() {
    let fixture = Fixture::with_tables(1);
    let before = fixture.files();
    let (store, rows) = fixture.open();
    write_file(&store, &rows[0].folder, 50, &[]).unwrap();
    let folder = folder_name("half", store.next_number().unwrap());
    write_file(&store, &folder, 50, &[]).unwrap();
    let temporary = format!(
        "data/{}/{}.vortex.tmp",
        rows[0].folder,
        store.next_number().unwrap()
    );
    std::fs::write(fixture.at(&temporary), "half").unwrap();
    let killed = fixture.copy("killed");
    assert_eq!(killed.files().len(), before.len() + 5);
    let (_, rows) = killed.open();
    assert_eq!(row_count(&rows), 100);
    assert_eq!(killed.files(), before);
    assert!(!killed.at("lost+found").exists());
}

#[test]
fn a_change_that_was_committed_is_finished_by_the_next_opening() {
    let exchanged = |store: &Store, rows: &[TableRow]| {
        exchange(store, &rows[0], 30, &[rows[0].files[0].number]).unwrap();
    };
    finished_after(&exchanged, 130);
    let dropped = |store: &Store, rows: &[TableRow]| {
        store.drop_table(rows[1].id, &rows[1].folder).unwrap();
    };
    finished_after(&dropped, 100);
}

/// What a process leaves that was killed between the commit of a change and the removal of files.
fn finished_after(change: &dyn Fn(&Store, &[TableRow]), rows_after: u64) {
    let fixture = Fixture::with_tables(2);
    let before = fixture.copy("before");
    let (store, rows) = fixture.open();
    change(&store, &rows);
    let after = fixture.files();
    let killed = fixture.copy("killed");
    for name in before.files() {
        let target = killed.at("data").join(&name);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        if !target.exists() {
            std::fs::copy(before.at("data").join(&name), target).unwrap();
        }
    }
    assert!(killed.files().len() > after.len());
    let (_, rows) = killed.open();
    assert_eq!(row_count(&rows), rows_after);
    assert_eq!(killed.files(), after);
    assert!(!killed.at("lost+found").exists());
}

#[test]
fn a_change_that_was_committed_but_not_recorded_counts() {
    let fixture = Fixture::with_tables(1);
    let head = std::fs::read(fixture.at("data/HEAD")).unwrap();
    let (store, _) = fixture.open();
    create_table(&store, "u", 7).unwrap();
    drop(store);
    std::fs::write(fixture.at("data/HEAD"), head).unwrap();
    let (store, rows) = fixture.open();
    assert_eq!(row_count(&rows), 107);
    create_table(&store, "v", 1).unwrap();
    drop(store);
    assert_eq!(row_count(&fixture.open().1), 108);
}

#[test]
fn numbers_are_reserved_in_the_catalog_before_they_are_given_out() {
    let fixture = Fixture::with_tables(0);
    let (store, _) = fixture.open();
    for _ in 0..200 {
        let number = store.next_number().unwrap();
        let reserved = store.catalog().journal().unwrap().reserved;
        assert!(
            reserved.contains(&number),
            "{number} is not in {reserved:?}"
        );
    }
}

#[test]
fn numbers_that_no_file_got_are_given_back_at_the_end() {
    let fixture = Fixture::with_tables(1);
    let (store, rows) = fixture.open();
    assert!(store.catalog().journal().unwrap().reserved.is_empty());
    store.next_number().unwrap();
    drop(store);
    for name in [
        "notes-30/mine.txt",
        &format!("{}/40.vortex", rows[0].folder),
    ] {
        let path = fixture.at("data").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "mine").unwrap();
    }
    fixture.open();
    let lost = std::fs::read_dir(fixture.at("lost+found")).unwrap();
    assert_eq!(lost.count(), 2);
}

#[test]
fn what_a_failed_change_could_not_remove_goes_at_the_next_opening() {
    let fixture = Fixture::with_tables(1);
    let before = fixture.files();
    let (store, rows) = fixture.open();
    let number = store.next_number().unwrap();
    let left = format!("data/{}/{number}.vortex", rows[0].folder);
    std::fs::write(fixture.at(&left), "half").unwrap();
    // The change fails: there is nothing to rename.
    FilePaths::new(store.root(), &rows[0].folder, number + 1)
        .rename()
        .unwrap_err();
    drop(store);
    fixture.open();
    assert_eq!(fixture.files(), before);
    assert!(!fixture.at("lost+found").exists());
}

#[test]
fn a_first_opening_that_was_interrupted_is_finished_by_the_next_one() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.at("data")).unwrap();
    std::fs::write(fixture.at("catalog.sqlite"), b"").unwrap();
    let (store, rows) = Store::open(&fixture.path(), false).unwrap();
    assert!(rows.is_empty());
    create_table(&store, "t", 5).unwrap();
    drop(store);
    assert_eq!(row_count(&fixture.open().1), 5);
}

#[test]
fn a_damaged_entry_of_the_journal_removes_nothing_that_the_catalog_names() {
    let fixture = Fixture::with_tables(2);
    let (store, rows) = fixture.open();
    drop(store);
    let before = fixture.files();
    let (folder, number) = (&rows[0].folder, rows[0].files[0].number);
    let connection = rusqlite::Connection::open(fixture.at("catalog.sqlite")).unwrap();
    let entries = format!(
        "INSERT INTO obsolete VALUES ('{folder}', NULL, NULL), ('{folder}', {number}, NULL),
        ('', NULL, NULL), ('.', NULL, NULL),
        ('../data', NULL, NULL), ('HEAD', NULL, NULL)"
    );
    connection.execute_batch(&entries).unwrap();
    drop(connection);
    let (_, rows) = fixture.open();
    assert_eq!(row_count(&rows), 200);
    assert_eq!(fixture.files(), before);
}

#[test]
fn an_entry_of_the_journal_that_cannot_be_read_is_passed_over() {
    let fixture = Fixture::with_tables(2);
    let connection = rusqlite::Connection::open(fixture.at("catalog.sqlite")).unwrap();
    connection
        .execute_batch("INSERT INTO obsolete VALUES (CAST(x'ff7431' AS TEXT), NULL, NULL)")
        .unwrap();
    drop(connection);
    let before = fixture.files();
    let (_, rows) = fixture.open();
    assert_eq!(row_count(&rows), 200);
    assert_eq!(fixture.files(), before);
}
