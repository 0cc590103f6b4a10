//! Tables on shelves that loads can read.

use std::time::Duration;

use hotshelf::ErrorKind;

use super::*;

const ROWS: &str = "SELECT value AS id, value * 7919 % 1009 AS k, 'text number ' || (value % 97) AS text \
                    FROM range(200000)";
const QUERIES: [&str; 4] = [
    "SELECT count(*), sum(id), sum(k), min(text), max(text) FROM t",
    "SELECT k, count(*) AS n, sum(id) AS s FROM t WHERE id % 3 = 0 GROUP BY k ORDER BY k LIMIT 20",
    "SELECT text, max(id) AS m FROM t WHERE k < 100 GROUP BY text ORDER BY text",
    "SELECT a.k, count(*) AS n FROM t a JOIN t b ON a.id = b.k GROUP BY a.k ORDER BY n DESC, a.k LIMIT 5",
];
const SHELVES: [&str; 3] = ["dram", "node:0", "emulated:cxl"];

/// Nothing stays in the cache, so that what is read is read from where the table is.
fn uncached() -> Fixture {
    let fixture = Fixture::new();
    fixture.run("SET hotshelf.policy = 'none'").unwrap();
    fixture
}

fn answers(fixture: &Fixture) -> Vec<Vec<String>> {
    QUERIES.iter().map(|query| fixture.rows(query)).collect()
}

/// Bytes that were read from files so far.
fn read_bytes(fixture: &Fixture) -> u64 {
    fixture.rows("SELECT requested_bytes FROM io_stats()")[0]
        .parse()
        .unwrap()
}

fn shelf_of(fixture: &Fixture) -> String {
    let columns = "shelf, shelf_columns, shelf_bytes > 0";
    fixture.rows(&format!(
        "SELECT {columns} FROM hotshelf_tables() WHERE table_name = 't'"
    ))[0]
        .clone()
}

/// Waits until copies that are made by themselves are there.
fn wait_for_shelf(fixture: &Fixture) {
    let missing =
        "SELECT count(*) FROM hotshelf_tables() WHERE shelf <> 'file' AND shelf_bytes = 0";
    for _ in 0..1000 {
        if fixture.rows(missing) == ["0"] {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("a table did not get to its shelf");
}

#[test]
fn tables_are_read_where_they_lie_and_answer_as_from_their_files() {
    let mut fixture = uncached();
    fixture.run(&format!("CREATE TABLE t AS {ROWS}")).unwrap();
    let expected = answers(&fixture);
    for shelf in SHELVES {
        let altered = fixture.run(&format!("ALTER TABLE t SET (shelf = '{shelf}')"));
        altered.unwrap();
        assert_eq!(shelf_of(&fixture), format!("{shelf}|all|true"));
        let before = read_bytes(&fixture);
        assert_eq!(answers(&fixture), expected, "{shelf}");
        assert_eq!(read_bytes(&fixture), before, "{shelf}: a file was read");
        // The shelf is remembered; what was in memory is copied again.
        fixture.reopen();
        fixture.run("SET hotshelf.policy = 'none'").unwrap();
        assert_eq!(answers(&fixture), expected, "{shelf}");
        wait_for_shelf(&fixture);
        let before = read_bytes(&fixture);
        assert_eq!(answers(&fixture), expected, "{shelf}");
        assert_eq!(read_bytes(&fixture), before, "{shelf}: a file was read");
    }
    fixture.run("ALTER TABLE t SET (shelf = 'file')").unwrap();
    assert_eq!(shelf_of(&fixture), "file||false");
    let before = read_bytes(&fixture);
    assert_eq!(answers(&fixture), expected);
    assert!(read_bytes(&fixture) > before);
}

#[test]
fn a_table_is_made_on_a_shelf_and_what_is_added_follows() {
    let fixture = uncached();
    let with = "WITH (shelf = 'node:0', shelf_columns = 'k, text')";
    fixture
        .run(&format!("CREATE TABLE t {with} AS {ROWS}"))
        .unwrap();
    assert_eq!(fixture.rows("SELECT count(k) FROM t"), ["200000"]);
    wait_for_shelf(&fixture);
    assert_eq!(shelf_of(&fixture), "node:0|k, text|true");
    let before = read_bytes(&fixture);
    let of_shelf = "SELECT max(text), sum(k) FROM t WHERE k < 700";
    let found = fixture.rows(of_shelf);
    assert_eq!(read_bytes(&fixture), before);
    assert_eq!(fixture.rows("SELECT sum(id) FROM t"), ["19999900000"]);
    assert!(
        read_bytes(&fixture) > before,
        "the other column is in the file"
    );
    let bytes = "SELECT shelf_bytes FROM hotshelf_tables()";
    let one_file: u64 = fixture.rows(bytes)[0].parse().unwrap();
    fixture.run(&format!("INSERT INTO t {ROWS}")).unwrap();
    for _ in 0..1000 {
        assert_eq!(fixture.rows("SELECT count(k) FROM t"), ["400000"]);
        let both: u64 = fixture.rows(bytes)[0].parse().unwrap();
        if both >= 2 * one_file {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = read_bytes(&fixture);
    let twice = fixture.rows("SELECT max(text), sum(k) / 2 FROM t WHERE k < 700");
    assert_eq!(twice, found);
    assert_eq!(read_bytes(&fixture), before);
    // Another table in its place is where it says itself.
    fixture
        .run(&format!("CREATE OR REPLACE TABLE t AS {ROWS}"))
        .unwrap();
    assert_eq!(shelf_of(&fixture), "file||false");
}

#[test]
fn the_policy_copies_what_lies_on_a_shelf_and_hits_come_from_the_copy() {
    let fixture = Fixture::new();
    fixture.run("SET hotshelf.policy = 'lru'").unwrap();
    fixture
        .run(&format!(
            "CREATE TABLE t WITH (shelf = 'emulated:cxl') AS {ROWS}"
        ))
        .unwrap();
    let query = "SELECT sum(id), sum(k), max(text) FROM t";
    let expected = fixture.rows(query);
    wait_for_shelf(&fixture);
    fixture.run("SET hotshelf.policy = 'none'").unwrap();
    fixture.run("SET hotshelf.policy = 'lru'").unwrap();
    let cached = "SELECT cached_bytes > 100000 FROM cache_stats()";
    assert_eq!(fixture.rows(cached), ["false"]);
    assert_eq!(fixture.rows(query), expected);
    assert_eq!(fixture.rows(cached), ["true"]);
    let misses = "SELECT misses FROM cache_stats()";
    let before = fixture.rows(misses);
    assert_eq!(fixture.rows(query), expected);
    assert_eq!(fixture.rows(misses), before, "all of it is in memory");
}

#[test]
fn shelves_that_cannot_be_are_refused_and_nothing_changes() {
    let fixture = Fixture::with(Options {
        budget_bytes: 4 << 20,
        ..Options::default()
    });
    let rows =
        "SELECT value * 7919 % 1000003 AS a, value * 104729 % 1000003 AS b FROM range(2000000)";
    fixture.run(&format!("CREATE TABLE t AS {rows}")).unwrap();
    for (options, word) in [
        ("shelf = 'tape'", "tape"),
        ("shelf = 'node:999'", "999"),
        ("shelf = 'emulated:floppy'", "floppy"),
        ("shelf = 'dax:/nowhere/at/all'", "/nowhere"),
        ("shelf = 'file:/nowhere/at/all'", "/nowhere"),
        ("shelf = 'file', shelf_columns = 'a'", "shelf_columns"),
        ("shelf = 'file:/tmp', shelf_columns = 'c'", "'c'"),
        ("shelf = 'dram', shelf_columns = 'c'", "'c'"),
        ("shelf_columns = 'a'", "shelf"),
        ("shelf = 'dram', shelf = 'file'", "shelf"),
        ("speed = 'high'", "speed"),
        ("shelf = 'dram'", "dram"),
    ] {
        let error = fixture.error(&format!("ALTER TABLE t SET ({options})"));
        assert!(error.to_string().contains(word), "{options}: {error}");
        assert_eq!(shelf_of(&fixture), "file||false");
    }
    for own in ["db", "db/data"] {
        let own = fixture.path(own);
        let error = fixture.error(&format!("ALTER TABLE t SET (shelf = 'file:{own}')"));
        assert!(error.to_string().contains("own folder"), "{error}");
        assert_eq!(shelf_of(&fixture), "file||false");
    }
    let error = fixture.error("ALTER TABLE nothing SET (shelf = 'dram')");
    assert!(error.to_string().contains("nothing"), "{error}");
    let error = fixture.error("CREATE TABLE u WITH (shelf = 'tape') AS SELECT 1 AS a");
    assert!(error.to_string().contains("tape"), "{error}");
    assert_eq!(fixture.rows("SELECT count(*) FROM t"), ["2000000"]);
}

#[test]
fn tables_move_while_they_are_read_and_written() {
    let fixture = uncached();
    fixture.run(&format!("CREATE TABLE t AS {ROWS}")).unwrap();
    let expected = fixture.rows("SELECT sum(k), count(DISTINCT text) FROM t");
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (fixture, expected) = (&fixture, &expected);
                scope.spawn(move || {
                    for _ in 0..20 {
                        let query = "SELECT sum(k), count(DISTINCT text) FROM t";
                        assert_eq!(&fixture.rows(query), expected);
                    }
                })
            })
            .collect();
        for round in 0..4 {
            for shelf in SHELVES.iter().chain(&["file"]) {
                let alter = format!("ALTER TABLE t SET (shelf = '{shelf}')");
                fixture.run(&alter).unwrap();
                let more =
                    format!("INSERT INTO t SELECT {round} AS id, 0 AS k, 'text number 1' AS text");
                fixture.run(&more).unwrap();
            }
        }
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
    assert!(operator_bytes(&fixture) < 4 << 20);
}

/// A folder beside the database that stands in for another disk.
fn disk(fixture: &Fixture, name: &str) -> String {
    let path = fixture.path(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Makes table `t` on a disk; returns its folder.
fn made_on_disk(fixture: &Fixture, kind: &str) -> String {
    let one = disk(fixture, "one");
    let create = format!("CREATE TABLE t WITH (shelf = '{kind}:{one}') AS {ROWS}");
    fixture.run(&create).unwrap();
    one
}

/// Data files below a folder, and links to them.
fn data_files_below(folder: &str) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut waiting = vec![std::path::PathBuf::from(folder)];
    while let Some(path) = waiting.pop() {
        match path.extension() {
            Some(ending) if ending == "vortex" => files.push(path),
            _ => {
                let entries = std::fs::read_dir(path).into_iter().flatten();
                waiting.extend(entries.map(|entry| entry.unwrap().path()));
            }
        }
    }
    files
}

fn data_files(folder: &str) -> usize {
    data_files_below(folder).len()
}

fn is_sound(fixture: &Fixture) -> bool {
    fixture
        .database()
        .verify(|_, _| {})
        .unwrap()
        .damage
        .is_empty()
}

#[test]
fn data_files_move_to_other_disks_and_back() {
    let mut fixture = uncached();
    fixture.run(&format!("CREATE TABLE t AS {ROWS}")).unwrap();
    let expected = answers(&fixture);
    let (one, two) = (disk(&fixture, "disk one"), disk(&fixture, "two"));
    for place in [
        format!("file:{one}"),
        format!("file:{two}"),
        format!("dax:{one}"),
    ] {
        fixture
            .run(&format!("ALTER TABLE t SET (shelf = '{place}')"))
            .unwrap();
        let is_first = place.ends_with("one");
        let counts = (data_files(&one), data_files(&two));
        assert_eq!(counts, if is_first { (1, 0) } else { (0, 1) }, "{place}");
        assert_eq!(answers(&fixture), expected, "{place}");
        fixture.reopen();
        assert_eq!(answers(&fixture), expected, "{place}");
        assert!(is_sound(&fixture));
    }
    // What is added and what is merged is there, too.
    fixture.run(&format!("INSERT INTO t {ROWS}")).unwrap();
    assert_eq!(data_files(&one), 2);
    fixture.run("OPTIMIZE TABLE t").unwrap();
    assert_eq!(
        fixture.rows("SELECT count(*), count(k) FROM t"),
        ["400000|400000"]
    );
    assert_eq!(data_files(&one), 1);
    fixture.run("CREATE TABLE u AS SELECT * FROM t").unwrap();
    fixture
        .run(&format!(
            "CREATE OR REPLACE TABLE u WITH (shelf = 'file:{two}') AS SELECT 1 AS a"
        ))
        .unwrap();
    assert_eq!(data_files(&two), 1);
    fixture.run("ALTER TABLE t SET (shelf = 'file')").unwrap();
    assert_eq!(data_files(&one), 0);
    assert_eq!(
        fixture.rows("SELECT count(*), count(k) FROM t"),
        ["400000|400000"]
    );
    fixture.run("DROP TABLE u").unwrap();
    assert_eq!(data_files(&two), 0);
    assert_eq!(
        std::fs::read_dir(&two).unwrap().count(),
        0,
        "empty folders go"
    );
    assert!(is_sound(&fixture));
}

#[test]
fn a_shelf_that_is_gone_makes_its_tables_unavailable_and_not_damaged() {
    let mut fixture = uncached();
    let one = made_on_disk(&fixture, "file");
    fixture.run("CREATE TABLE u AS SELECT 1 AS a").unwrap();
    let expected = fixture.rows(QUERIES[0]);
    let away = fixture.path("unplugged");
    std::fs::rename(&one, &away).unwrap();
    fixture.reopen();
    for _ in 0..2 {
        let error = fixture.error(QUERIES[0]).to_string();
        assert!(error.contains("its shelf is not there"), "{error}");
    }
    assert_eq!(fixture.rows("SELECT a FROM u"), ["1"]);
    let summary = fixture.database().tables();
    let table = summary.iter().find(|table| table.name == "t").unwrap();
    assert_eq!(table.damage, None);
    assert!(table.unavailable.is_some());
    let checked = fixture.database().verify(|_, _| {});
    let error = checked.unwrap_err().to_string();
    assert!(error.contains("its shelf is not there"), "{error}");
    for is_mount_point in [false, true] {
        if is_mount_point {
            std::fs::create_dir(&one).unwrap();
        }
        let error = fixture.error("INSERT INTO t SELECT 1, 2, 'x'").to_string();
        assert!(error.contains("its shelf is not there"), "{error}");
    }
    std::fs::remove_dir(&one).unwrap();
    std::fs::rename(&away, &one).unwrap();
    assert_eq!(fixture.rows(QUERIES[0]), expected);
    assert!(is_sound(&fixture));
}

#[test]
fn files_are_mapped_on_persistent_memory_only_and_damage_in_them_is_named_each_time() {
    let fixture = uncached();
    let one = made_on_disk(&fixture, "dax");
    let expected = answers(&fixture);
    let before = read_bytes(&fixture);
    assert_eq!(answers(&fixture), expected);
    assert!(read_bytes(&fixture) > before, "an ordinary file was mapped");
    let path = shelved_file(&one);
    // Also where they were read before.
    let mut bytes = std::fs::read(&path).unwrap();
    for at in (1000..20000).step_by(500) {
        bytes[at] ^= 0x55;
    }
    std::fs::write(&path, bytes).unwrap();
    for _ in 0..20 {
        let error = fixture.error(QUERIES[0]).to_string();
        assert!(
            error.contains(".vortex") && error.contains("segment"),
            "{error}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_an_interrupted_move_leaves_is_removed_and_nothing_is_lost() {
    let mut fixture = uncached();
    let one = disk(&fixture, "one");
    fixture.run(&format!("CREATE TABLE t AS {ROWS}")).unwrap();
    let expected = fixture.rows(QUERIES[0]);
    let data = std::path::PathBuf::from(fixture.path("db/data"));
    let folders = std::fs::read_dir(&data).unwrap().flatten();
    let folder = folders
        .map(|entry| entry.path())
        .find(|path| path.is_dir())
        .unwrap();
    let files = std::fs::read_dir(&folder).unwrap().flatten();
    let mut files = files.map(|entry| entry.path());
    let file = files
        .find(|path| path.extension() == Some("vortex".as_ref()))
        .unwrap();
    // A move home and a move away that had not got to their renames.
    let copy = file.with_extension("vortex.tmp");
    let link = file.with_extension("vortex.link");
    fixture.database = None;
    std::fs::write(&copy, "half a copy").unwrap();
    std::os::unix::fs::symlink("/nowhere/1.vortex", &link).unwrap();
    fixture.reopen();
    assert_eq!(fixture.rows(QUERIES[0]), expected);
    assert!(!copy.exists() && link.symlink_metadata().is_err());
    assert!(!data.join("../lost+found").exists());
    // The table is known to be on a shelf, and its files have not got there: they follow when they are read.
    let alter = format!("ALTER TABLE t SET (shelf = 'file:{one}')");
    fixture.run(&alter).unwrap();
    let target = std::fs::read_link(&file).unwrap();
    fixture.database = None;
    std::fs::remove_file(&file).unwrap();
    std::fs::rename(&target, &file).unwrap();
    std::fs::write(target.with_extension("vortex.tmp"), "half a copy").unwrap();
    fixture.reopen();
    assert_eq!(fixture.rows(QUERIES[0]), expected);
    for _ in 0..1000 {
        if target.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(std::fs::read_link(&file).unwrap(), target);
    assert_eq!(fixture.rows(QUERIES[0]), expected);
}

#[test]
fn what_kills_leave_on_a_shelf_goes_and_what_is_not_known_stays() {
    let mut fixture = uncached();
    let one = made_on_disk(&fixture, "file");
    let expected = fixture.rows(QUERIES[0]);
    let file = shelved_file(&one);
    let folder = file.parent().unwrap();
    fixture.database = None;
    let stranger = folder.join("notes.txt");
    let unknown = folder.join("999999.vortex");
    let copy = file.with_extension("vortex.tmp");
    for path in [&stranger, &unknown, &copy] {
        std::fs::write(path, "some bytes").unwrap();
    }
    fixture.reopen();
    assert_eq!(fixture.rows(QUERIES[0]), expected);
    assert!(stranger.exists() && unknown.exists() && file.exists());
    assert!(!copy.exists(), "a copy without a name");
}

#[test]
fn a_file_that_is_lost_on_a_shelf_that_is_there_is_damage() {
    let mut fixture = uncached();
    let one = made_on_disk(&fixture, "file");
    let file = shelved_file(&one);
    std::fs::remove_file(&file).unwrap();
    fixture.reopen();
    let error = fixture.error(QUERIES[0]);
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(!is_sound(&fixture));
}

#[test]
fn a_copy_of_a_database_takes_nothing_from_the_original() {
    let fixture = uncached();
    made_on_disk(&fixture, "file");
    let expected = fixture.rows(QUERIES[0]);
    let copied = std::process::Command::new("cp")
        .args(["-a", &fixture.path("db"), &fixture.path("copy")])
        .status();
    assert!(copied.unwrap().success());
    let copy = Database::open(fixture.path("copy"), Options::default()).unwrap();
    let run = |sql: &str| {
        let session = copy.session();
        copy.block_on(async { session.sql(sql).await?.collect().await })
            .unwrap()
    };
    run("INSERT INTO t SELECT 1 AS id, 2 AS k, 'x' AS text");
    fixture
        .run("INSERT INTO t SELECT 3 AS id, 4 AS k, 'text number 1' AS text")
        .unwrap();
    run("OPTIMIZE TABLE t");
    run("DROP TABLE t");
    assert_eq!(fixture.rows("SELECT count(*) FROM t"), ["200001"]);
    assert_ne!(fixture.rows(QUERIES[0]), expected);
    assert!(is_sound(&fixture));
}

#[test]
fn a_table_that_finds_no_room_is_where_it_was() {
    let fixture = Fixture::with(Options {
        budget_bytes: 4 << 20,
        ..Options::default()
    });
    let one = disk(&fixture, "one");
    let rows =
        "SELECT value * 7919 % 1000003 AS a, value * 104729 % 1000003 AS b FROM range(2000000)";
    fixture
        .run(&format!(
            "CREATE TABLE t WITH (shelf = 'file:{one}') AS {rows}"
        ))
        .unwrap();
    let (shelf, files) = (shelf_of(&fixture), data_files(&one));
    let error = fixture
        .error("ALTER TABLE t SET (shelf = 'dram')")
        .to_string();
    assert!(error.contains("no room"), "{error}");
    assert_eq!((shelf_of(&fixture), data_files(&one)), (shelf, files));
}

#[test]
fn chosen_columns_are_copied_to_another_disk_and_nothing_depends_on_it() {
    let mut fixture = uncached();
    let one = disk(&fixture, "one");
    fixture.run(&format!("CREATE TABLE t AS {ROWS}")).unwrap();
    let expected = answers(&fixture);
    for kind in ["file", "dax"] {
        let options = format!("shelf = '{kind}:{one}', shelf_columns = 'id, k'");
        fixture
            .run(&format!("ALTER TABLE t SET ({options})"))
            .unwrap();
        let on_shelf = format!("{kind}:{one}|id, k|true");
        assert_eq!(shelf_of(&fixture), on_shelf);
        let before = read_bytes(&fixture);
        assert_eq!(answers(&fixture), expected);
        assert!(read_bytes(&fixture) > before);
        fixture.reopen();
        fixture.run("SET hotshelf.policy = 'none'").unwrap();
        assert_eq!(answers(&fixture), expected);
        wait_for_shelf(&fixture);
        assert_eq!(shelf_of(&fixture), on_shelf);
        // Copies have no names: nothing is left of them, however the process ends.
        assert_eq!(std::fs::read_dir(&one).unwrap().count(), 0);
    }
    // What is copied is read from there.
    let sums = "SELECT sum(id), sum(k) FROM t";
    let expected_sums = fixture.rows(sums);
    let file = shelved_file(&fixture.path("db/data"));
    let good = std::fs::read(&file).unwrap();
    let mut bad = good.clone();
    bad[8..good.len() * 4 / 5]
        .iter_mut()
        .for_each(|byte| *byte ^= 0x55);
    std::fs::write(&file, &bad).unwrap();
    assert_eq!(fixture.rows(sums), expected_sums);
    assert_eq!(fixture.error(QUERIES[2]).kind(), ErrorKind::Corruption);
    std::fs::write(&file, &good).unwrap();
    std::fs::remove_dir(&one).unwrap();
    fixture.reopen();
    assert_eq!(answers(&fixture), expected);
    assert!(is_sound(&fixture));
    fixture.run("ALTER TABLE t SET (shelf = 'file')").unwrap();
    assert_eq!(answers(&fixture), expected);
}

fn shelved_file(shelf: &str) -> std::path::PathBuf {
    data_files_below(shelf).remove(0)
}

#[test]
fn damage_is_found_also_where_a_shelf_is_missing() {
    let mut fixture = uncached();
    let one = made_on_disk(&fixture, "file");
    fixture
        .run("CREATE TABLE z AS SELECT value FROM range(1000)")
        .unwrap();
    let in_place = |path: &std::path::PathBuf| !path.is_symlink();
    let file = data_files_below(&fixture.path("db/data"))
        .into_iter()
        .find(in_place);
    fixture.database = None;
    std::fs::rename(&one, fixture.path("unplugged")).unwrap();
    fixture.reopen();
    let missing = fixture.database().verify(|_, _| {}).unwrap_err();
    assert!(
        missing.to_string().contains("its shelf is not there"),
        "{missing}"
    );
    let file = file.unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let report = fixture.database().verify(|_, _| {}).unwrap();
    let names =
        |found: &[hotshelf::Damage]| found.iter().map(|one| one.what.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&report.damage), names(&report.unread)),
        (vec!["z".into()], vec!["t".into()])
    );
}

#[test]
fn a_table_that_leaves_a_disk_leaves_nothing_there() {
    let mut fixture = Fixture::with(Options {
        merge_files: false,
        ..Options::default()
    });
    let (one, two) = (made_on_disk(&fixture, "file"), disk(&fixture, "two"));
    for _ in 0..6 {
        let more = "SELECT value AS id, value % 100 AS k, 'text number 5' AS text FROM range(1000)";
        fixture.run(&format!("INSERT INTO t {more}")).unwrap();
    }
    let expected = answers(&fixture);
    for options in [
        "shelf = 'dram'".to_owned(),
        "shelf = 'dram', shelf_columns = 'id'".to_owned(),
        "shelf = 'emulated:cxl'".to_owned(),
        format!("shelf = 'file:{two}', shelf_columns = 'text'"),
        format!("shelf = 'file:{two}'"),
        "shelf = 'file'".to_owned(),
    ] {
        fixture
            .run(&format!("ALTER TABLE t SET (shelf = 'file:{one}')"))
            .unwrap();
        assert_eq!(data_files(&one), 7, "{options}");
        // Files are opened, and look where they should be, while the table is placed elsewhere.
        fixture.reopen();
        fixture
            .run(&format!("ALTER TABLE t SET ({options})"))
            .unwrap();
        assert_eq!(data_files(&one), 0, "{options}");
        let away = fixture.path("unplugged");
        std::fs::rename(&one, &away).unwrap();
        assert_eq!(answers(&fixture), expected, "{options}");
        std::fs::rename(&away, &one).unwrap();
    }
}

#[test]
fn a_copy_outlives_reads_that_are_not_wanted_and_none_that_find_it_damaged() {
    use std::os::unix::fs::FileExt;
    let fixture = uncached();
    let one = disk(&fixture, "one");
    fixture.run(&format!("CREATE TABLE t AS {ROWS}")).unwrap();
    let options = format!("shelf = 'file:{one}', shelf_columns = 'id, k'");
    fixture
        .run(&format!("ALTER TABLE t SET ({options})"))
        .unwrap();
    for _ in 0..30 {
        fixture.run("SELECT id, k FROM t LIMIT 1").unwrap();
    }
    assert!(shelf_of(&fixture).ends_with("true"));
    let expected = answers(&fixture);
    let mut damaged = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if !target.starts_with(&one) {
            continue;
        }
        // Some are open for reading only.
        if let Ok(file) = std::fs::File::options().write(true).open(entry.path()) {
            let bytes = vec![0x55; file.metadata().unwrap().len() as usize];
            file.write_all_at(&bytes, 0).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    assert_eq!(answers(&fixture), expected);
    assert!(
        shelf_of(&fixture).ends_with("false"),
        "the copy is still in use"
    );
}

#[test]
fn files_are_read_where_they_are_when_their_database_is_on_a_device_of_another_number() {
    let mut fixture = uncached();
    let one = made_on_disk(&fixture, "file");
    let expected = answers(&fixture);
    let file = shelved_file(&one);
    fixture.database = None;
    let own = file.ancestors().nth(2).unwrap();
    let name = own.file_name().unwrap().to_str().unwrap();
    let (rest, inode) = name.rsplit_once('-').unwrap();
    let former = own.with_file_name(format!("{rest}1-{inode}"));
    std::fs::rename(own, &former).unwrap();
    let target = former.join(file.strip_prefix(own).unwrap());
    for link in data_files_below(&fixture.path("db/data")) {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&target, link).unwrap();
    }
    fixture.reopen();
    assert_eq!(answers(&fixture), expected);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(data_files_below(&one), std::slice::from_ref(&target));
    // It may be another database's, of which this one is a block copy.
    fixture.run("DROP TABLE t").unwrap();
    assert!(target.exists());
}

#[test]
fn a_catalog_that_is_made_again_knows_which_tables_are_on_other_disks() {
    let mut fixture = uncached();
    let one = made_on_disk(&fixture, "file");
    fixture.run("CREATE TABLE home AS SELECT 1 AS a").unwrap();
    let expected = answers(&fixture);
    let placed = shelf_of(&fixture);
    fixture.database = None;
    std::fs::remove_file(fixture.path("db/catalog.sqlite")).unwrap();
    let report = hotshelf::Database::repair(fixture.path("db")).unwrap();
    assert!(
        report.notes.iter().any(|note| note.contains(&one)),
        "{:?}",
        report.notes
    );
    fixture.reopen();
    assert_eq!(shelf_of(&fixture), placed);
    assert_eq!(answers(&fixture), expected);
    let files = data_files(&one);
    fixture
        .run("INSERT INTO t SELECT value, value + 1, 'x' FROM range(10)")
        .unwrap();
    assert_eq!(data_files(&one), files + 1);
    let home = "SELECT shelf FROM hotshelf_tables() WHERE table_name = 'home'";
    assert_eq!(fixture.rows(home), ["file"]);
    assert!(is_sound(&fixture));
}
