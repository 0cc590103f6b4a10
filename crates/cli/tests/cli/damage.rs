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
