//! Full disks and read-only folders. Those that need a small or read-only file system run where one can be mounted.

use std::process::Command;

use super::*;

/// Runs this test again where `mount` puts a file system of its own at `$ROOM`; nothing where that is not allowed.
fn elsewhere(test: &str, mount: &str) {
    let room = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let script = format!("{mount} || exit 77; exec \"$TEST\" --exact {test} --include-ignored");
    let done = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .env("ROOM", room.path())
        .env("TEST", program)
        .output();
    match done {
        Ok(done) if done.status.code() != Some(77) && done.status.code() != Some(1) => {
            let text = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success(), "{text}");
        }
        _ => eprintln!("no file system can be mounted here"),
    }
}

fn room() -> Option<Fixture> {
    let folder = PathBuf::from(std::env::var_os("ROOM")?);
    Some(Fixture {
        folder: tempfile::tempdir_in(folder).unwrap(),
    })
}

fn fill(folder: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(folder.join("fill")).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

#[test]
fn on_a_full_disk_tables_can_be_read_and_dropped() {
    elsewhere(
        "unwritable::inside_a_full_disk",
        "mount -t tmpfs -o size=4m none \"$ROOM\"",
    );
}

#[test]
#[ignore = "run by the test before, in a file system of its own"]
fn inside_a_full_disk() {
    let Some(fixture) = room() else { return };
    let (store, rows) = fixture.open();
    assert!(rows.is_empty());
    for table in 0..3 {
        create_table(&store, &format!("t{table}"), 100).unwrap();
    }
    drop(store);
    fill(fixture.folder.path());
    let (store, rows) = fixture.open();
    assert_eq!(row_count(&rows), 300);
    assert_eq!(store.verify(|_, _| {}).unwrap().damage, []);
    assert!(create_table(&store, "more", 100).is_err());
    store.drop_table(rows[0].id, &rows[0].folder).unwrap();
    drop(store);
    let (store, rows) = fixture.open();
    assert_eq!(row_count(&rows), 200);
    store.drop_table(rows[0].id, &rows[0].folder).unwrap();
    drop(store);
    assert_eq!(row_count(&fixture.open().1), 100);
}

#[test]
fn a_read_only_database_is_read_and_not_changed() {
    elsewhere(
        "unwritable::inside_a_read_only_file_system",
        "mount -t tmpfs -o size=64m none \"$ROOM\"",
    );
}

#[test]
#[ignore = "run by the test before, in a file system of its own"]
fn inside_a_read_only_file_system() {
    let Some(fixture) = room() else { return };
    let (store, _) = fixture.open();
    create_table(&store, "t", 100).unwrap();
    // With a log, as a killed process leaves it, and without one.
    let killed = tempfile::tempdir_in(fixture.folder.path()).unwrap();
    copy_folder(&fixture.path(), &killed.path().join("db"));
    drop(store);
    let remount = ["-o", "remount,ro", &std::env::var("ROOM").unwrap()];
    assert!(
        Command::new("mount")
            .args(remount)
            .status()
            .unwrap()
            .success()
    );
    let lists = [fixture.path(), killed.path().join("db")].map(|folder| {
        let (store, rows) = Store::open(&folder, true).unwrap();
        assert_eq!(row_count(&rows), 100);
        assert_eq!(store.verify(|_, _| {}).unwrap().damage, []);
        let error = store.drop_table(rows[0].id, &rows[0].folder).unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        assert!(matches!(
            store.next_number(),
            Err(StoreError::ReadOnly { .. })
        ));
        rows.len()
    });
    assert_eq!(lists, [1, 1]);
    let remount = ["-o", "remount,rw", &std::env::var("ROOM").unwrap()];
    assert!(
        Command::new("mount")
            .args(remount)
            .status()
            .unwrap()
            .success()
    );
}
