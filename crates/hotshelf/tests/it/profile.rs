//! The machine profile as a database follows it.

use hotshelf::Options;
use hotshelf_tier::probe::{Operation, PersistInstruction, Point, Row};
use hotshelf_tier::profile::{DeriveInput, MachineProfile, PROFILE_FILE, derive};
use hotshelf_tier::topology::Topology;

use crate::Fixture;

/// Leaves a profile of the database's device in its folder: 300 MB/s with 16 in flight, reads and writes in turns.
fn leave_profile(db: &Fixture) {
    let folder = db.path("db");
    let read = |depth, beside_threads| Point {
        queue_depth: Some(depth),
        beside_threads,
        ..Point::new(Operation::Read, 1 << 20, 1)
    };
    let write = Point {
        persist: Some(PersistInstruction::Flush),
        ..Point::new(Operation::Write, 1 << 20, 1)
    };
    let row = |point, bandwidth_bytes_per_s, beside| Row {
        tier: "file:".to_owned(),
        emulated: false,
        point,
        bandwidth_bytes_per_s,
        latency_ns: None,
        beside_bandwidth_bytes_per_s: beside,
        spread: 0.0,
    };
    let rows = [
        row(read(1, 0), 100e6, None),
        row(read(16, 0), 300e6, None),
        row(write, 200e6, None),
        row(read(16, 1), 80e6, Some(60e6)),
    ];
    let tier = derive(&DeriveInput {
        tier: &format!("file:{folder}"),
        rows: &rows,
        physical_cores: 2,
    });
    let mut machine = MachineProfile::empty(&Topology::read());
    machine.tiers.insert(tier.tier.clone(), tier);
    machine.save(std::path::Path::new(&folder)).unwrap();
}

fn shown(db: &Fixture, name: &str) -> Vec<String> {
    let all = db.rows("SHOW hotshelf.profile");
    let of_name = all.iter().find(|row| row.starts_with(&format!("{name}|")));
    of_name.unwrap().split('|').map(str::to_owned).collect()
}

#[test]
fn what_is_in_force_is_shown_with_where_it_comes_from() {
    let mut db = Fixture::new();
    assert_eq!(shown(&db, "io_depth")[1..3], ["64", "default"]);
    leave_profile(&db);
    db.reopen();
    let depth = shown(&db, "io_depth");
    assert_eq!(depth[1], "16");
    assert!(
        depth[2].starts_with("measured (file:") && depth[3].contains("300 MB/s"),
        "{depth:?}"
    );
    assert_eq!(shown(&db, "serialise")[1], "true");
    assert_eq!(shown(&db, "pinning")[2], "default");
    let all = db.rows("SHOW ALL");
    let look_ahead = "hotshelf.profile.look_ahead|8388608 (measured (file:";
    assert!(all.iter().any(|row| row.starts_with(look_ahead)), "{all:?}");
    let settings =
        "SELECT value FROM information_schema.df_settings WHERE name = 'hotshelf.profile'";
    assert!(db.rows(settings)[0].starts_with("measured on this machine"));
    assert_eq!(db.rows("SHOW hotshelf.profile.io_depth").len(), 1);
}

#[test]
fn a_measured_value_cannot_be_set() {
    let db = Fixture::new();
    for name in ["profile", "profile.io_depth"] {
        let error = db.error(&format!("SET hotshelf.{name} = 1"));
        let expected = format!("hotshelf.{name} is measured and cannot be set");
        assert_eq!(error.to_string(), expected);
        assert!(error.hint().unwrap().contains("hotshelf probe --db"));
    }
}

#[test]
fn tables_are_the_same_with_and_without_a_profile_and_with_a_damaged_one() {
    let mut db = Fixture::new();
    let make = "AS SELECT value AS a, value % 100 AS b, concat('text ', value) AS c FROM generate_series(1, 400000)";
    db.run(&format!("CREATE TABLE plain {make}")).unwrap();
    leave_profile(&db);
    db.reopen();
    // Written and read in turns, both in one statement.
    db.run(&format!("CREATE TABLE turns {make}")).unwrap();
    db.run("INSERT INTO turns SELECT * FROM turns WHERE b = 7")
        .unwrap();
    db.run("INSERT INTO plain SELECT * FROM plain WHERE b = 7")
        .unwrap();
    std::fs::write(
        db.path(&format!("db/{PROFILE_FILE}")),
        "{\"schema_version\": 1",
    )
    .unwrap();
    db.reopen();
    assert_eq!(shown(&db, "io_depth")[1..3], ["64", "default"]);
    let origin = "SELECT value FROM information_schema.df_settings WHERE name = 'hotshelf.profile'";
    assert!(db.rows(origin)[0].contains("damaged"));
    let sums = |table: &str| {
        db.rows(&format!(
            "SELECT count(*), sum(a), sum(b), max(c) FROM {table}"
        ))
    };
    assert_eq!(sums("plain"), sums("turns"));
    let report = db.database().verify(|_, _| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

#[test]
fn a_profile_can_be_left_aside() {
    let db = Fixture::new();
    leave_profile(&db);
    let folder = db.path("db");
    drop(db);
    let options = Options {
        machine_profile: false,
        ..Options::default()
    };
    let database = hotshelf::Database::open(folder, options).unwrap();
    let session = database.session();
    let rows = database
        .block_on(async { session.sql("SHOW hotshelf.profile").await?.collect().await })
        .unwrap();
    assert!(
        crate::lines(&rows)
            .iter()
            .all(|row| !row.contains("|measured"))
    );
}

#[test]
fn a_table_is_read_by_as_many_workers_as_its_shelf_likes() {
    let mut db = Fixture::with(Options {
        threads: 4,
        ..Options::default()
    });
    let rows = "SELECT value AS id, value % 7 AS k FROM range(3000000)";
    db.run(&format!(
        "CREATE TABLE t WITH (shelf = 'emulated:cxl') AS {rows}"
    ))
    .unwrap();
    db.run(&format!("CREATE TABLE u AS {rows}")).unwrap();
    let workers = |db: &Fixture, table: &str| {
        let session = db.database().session();
        let explain = format!("EXPLAIN SELECT k, count(*) FROM {table} GROUP BY k");
        let batches = db.database().block_on(async {
            for setting in ["threads = 4", "operators = off", "star_pipelines = off"] {
                let set = format!("SET hotshelf.{setting}");
                session.sql(&set).await?.collect().await?;
            }
            session.sql(&explain).await?.collect().await
        });
        let text = crate::lines(&batches.unwrap()).join("\n");
        let at = text.rfind("input_partitions=");
        let after = &text[at.unwrap_or_else(|| panic!("{text}")) + 17..];
        let count = after.chars().take_while(char::is_ascii_digit);
        count.collect::<String>()
    };
    assert_eq!(
        (workers(&db, "t"), workers(&db, "u")),
        ("4".into(), "4".into())
    );
    // Two threads read all that the device gives.
    let row = |threads, bandwidth_bytes_per_s| Row {
        tier: "emulated:cxl".to_owned(),
        emulated: true,
        point: Point::new(Operation::Read, 4096, threads),
        bandwidth_bytes_per_s,
        latency_ns: None,
        beside_bandwidth_bytes_per_s: None,
        spread: 0.0,
    };
    let tier = derive(&DeriveInput {
        tier: "emulated:cxl",
        rows: &[row(1, 5e9), row(2, 10e9), row(4, 9e9)],
        physical_cores: 8,
    });
    let mut machine = MachineProfile::empty(&Topology::read());
    machine.tiers.insert(tier.tier.clone(), tier);
    machine.save(std::path::Path::new(&db.path("db"))).unwrap();
    db.reopen();
    assert_eq!(
        (workers(&db, "t"), workers(&db, "u")),
        ("2".into(), "4".into())
    );
    // Each worker of a pipeline gives its own groups: seven at most.
    let explain = "EXPLAIN ANALYZE SELECT k, sum(id) FROM t GROUP BY k";
    let groups = |db: &Fixture| {
        let session = db.database().session();
        let batches = db.database().block_on(async {
            session
                .sql("SET hotshelf.threads = 4")
                .await?
                .collect()
                .await?;
            session.sql(explain).await?.collect().await
        });
        let text = crate::lines(&batches.unwrap()).join("\n");
        let at = text
            .find("StarPipelineExec")
            .unwrap_or_else(|| panic!("{text}"));
        let rows = text[at..].find("output_rows=").map(|rows| at + rows + 12);
        let count = text[rows.unwrap()..]
            .chars()
            .take_while(char::is_ascii_digit);
        count.collect::<String>().parse::<usize>().unwrap()
    };
    assert!(groups(&db) <= 14);
    db.run("ALTER TABLE t SET (shelf = 'file')").unwrap();
    assert_eq!(workers(&db, "t"), "4");
}
