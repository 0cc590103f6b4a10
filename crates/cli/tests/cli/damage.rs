//! A damaged file is found, named, and hurts its own table only.

use super::Bench;

/// Changes one byte of the first data segment of `t`, and makes a table `other`.
fn damaged() -> Bench {
    let bench = Bench::with_table();
    bench.query("CREATE TABLE other AS SELECT 5 AS x");
    let file = &bench.data_files("t")[0];
    let mut bytes = std::fs::read(file).unwrap();
    bytes[40] ^= 1;
    std::fs::write(file, bytes).unwrap();
    bench
}

#[test]
fn verify_is_silent_about_a_sound_database() {
    let bench = Bench::with_table();
    let done = bench.run(&["verify", "--db", "db"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""));
    assert!(done.stderr.contains("1 file"), "{}", done.stderr);
}

#[test]
fn verify_lists_a_flipped_byte_and_fails() {
    let bench = damaged();
    let done = bench.run(&["verify", "--db", "db"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert_eq!(done.stdout.lines().count(), 1, "{}", done.stdout);
    assert!(done.stdout.starts_with("t: ") && done.stdout.contains(".vortex"));
    assert!(done.stderr.contains("error: ") && done.stderr.contains("hint: "));
}

#[test]
fn a_query_meets_a_flipped_byte_with_file_and_offset_and_other_tables_work() {
    let bench = damaged();
    let call = ["sql", "--db", "db", "-c", "SELECT sum(a), max(b) FROM t"];
    bench.fails(1, &call, &[".vortex", "at byte 8", "hint: ", "verify"]);
    assert_eq!(bench.query("SELECT x FROM other"), "x\n5\n");
}

#[test]
fn a_missing_data_file_makes_its_table_unreadable_and_no_other() {
    let bench = Bench::with_table();
    bench.query("CREATE TABLE other AS SELECT 5 AS x");
    std::fs::remove_file(&bench.data_files("t")[0]).unwrap();
    let list = bench.ok(&["tables", "--db", "db", "--format", "json"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list[0]["state"], "ok");
    assert!(list[1]["state"].as_str().unwrap().starts_with("damaged"));
    bench.fails(
        1,
        &["sql", "--db", "db", "-c", "SELECT sum(a) FROM t"],
        &[".vortex"],
    );
    assert_eq!(bench.query("SELECT x FROM other"), "x\n5\n");
    assert_eq!(bench.run(&["verify", "--db", "db"]).code, Some(1));
}

#[test]
fn a_lost_catalog_is_refused_by_every_command_and_repaired_by_one() {
    let bench = Bench::with_table();
    bench.query("CREATE INDEX i ON t USING elf (a)");
    let sound = bench.run(&["repair", "--db", "db"]);
    assert_eq!((sound.code, sound.stdout.as_str()), (Some(0), ""));
    std::fs::write(bench.path("db/catalog.sqlite"), "").unwrap();
    for call in [
        &["verify", "--db", "db"][..],
        &["tables", "--db", "db"],
        &["sql", "--db", "db", "-c", "SELECT 1"],
    ] {
        bench.fails(1, call, &["is empty, but data/ holds 1", "hotshelf repair"]);
    }
    let found = bench.ok(&["repair", "--db", "db"]);
    assert_eq!(found, "t: 1000 rows in 1 files, 1 indexes\n");
    assert_eq!(bench.query("SELECT sum(a) AS s FROM t"), "s\n499500\n");
    let indexes = bench.query("SELECT count(*) AS n FROM hotshelf_indexes()");
    assert_eq!(indexes, "n\n1\n");
    bench.ok(&["verify", "--db", "db"]);
}

#[test]
fn a_row_count_changed_in_the_catalog_is_named_and_the_answer_is_right() {
    let bench = Bench::with_table();
    let catalog = rusqlite::Connection::open(bench.path("db/catalog.sqlite")).unwrap();
    catalog
        .execute_batch("UPDATE files SET row_count = row_count + 24")
        .unwrap();
    drop(catalog);
    assert_eq!(bench.query("SELECT count(*) AS n FROM t"), "n\n1000\n");
    let done = bench.run(&["verify", "--db", "db"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains("catalog.sqlite"), "{}", done.stdout);
}

#[test]
fn a_table_of_more_files_than_descriptors_can_be_read_and_verified() {
    let bench = Bench::with_table();
    bench.write("rows.sql", "INSERT INTO t VALUES (1, 'one');\n".repeat(70));
    bench.ok(&["sql", "--db", "db", "-f", "rows.sql"]);
    let program = env!("CARGO_BIN_EXE_hotshelf");
    let limited = |arguments: &str| {
        let call = format!("ulimit -n 64; exec '{program}' {arguments}");
        let mut command = std::process::Command::new("sh");
        let command = command.args(["-c", &call]).current_dir(bench.folder.path());
        super::Done::from(command.output().unwrap())
    };
    for call in [
        "sql --db db --format csv -c 'SELECT sum(a) AS s, count(b) AS n FROM t'",
        "verify --db db",
        "sql --db db -c 'OPTIMIZE TABLE t'",
    ] {
        let done = limited(call);
        assert_eq!(done.code, Some(0), "{call}: {}", done.stderr);
        if call.contains("sum") {
            assert_eq!(done.stdout, "s,n\n499570,1070\n");
        }
    }
    assert_eq!(bench.query("SELECT count(*) AS n FROM t"), "n\n1070\n");
    bench.ok(&["verify", "--db", "db"]);
}
