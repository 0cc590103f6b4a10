//! Tests of the profile's settings.

use super::*;
use arrow::util::pretty::pretty_format_batches;
use hotshelf_store::ShelfUse;
use hotshelf_tier::probe::{Operation, PersistInstruction, Point, Row};
use hotshelf_tier::profile::{DeriveInput, derive};
use hotshelf_tier::topology::{Tree, allowed_cpus};

use crate::{Database, Options};

const TWO_SOCKETS: &str = include_str!("../../../../tier/src/topology/trees/two-sockets.tree");

fn row(point: Point, bandwidth_bytes_per_s: f64) -> Row {
    Row {
        tier: "file:/db".to_owned(),
        emulated: false,
        point,
        bandwidth_bytes_per_s,
        latency_ns: None,
        beside_bandwidth_bytes_per_s: None,
        spread: 0.0,
    }
}

/// A drive that reads 6 GB/s in blocks of 2 MiB with 32 in flight, and is written best by two.
fn fast_drive(folder: &Path) -> TierProfile {
    let read = |bytes, depth, bandwidth| {
        let point = Point {
            queue_depth: Some(depth),
            ..Point::new(Operation::Read, bytes, 1)
        };
        row(point, bandwidth)
    };
    let write = |bytes, writers, bandwidth| {
        let point = Point {
            persist: Some(PersistInstruction::Flush),
            ..Point::new(Operation::Write, bytes, writers)
        };
        row(point, bandwidth)
    };
    let rows = [
        read(2 << 20, 8, 4e9),
        read(2 << 20, 32, 6e9),
        read(4096, 32, 1e9),
        write(1 << 20, 1, 1e9),
        write(1 << 20, 2, 2e9),
    ];
    derive(&DeriveInput {
        tier: &format!("file:{}", folder.display()),
        rows: &rows,
        physical_cores: 4,
    })
}

fn with_profile() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = MachineProfile::empty(&Topology::read());
    let tier = fast_drive(folder.path());
    machine.tiers.insert(tier.tier.clone(), tier);
    machine.save(folder.path()).unwrap();
    folder
}

#[test]
fn a_measured_device_sets_depth_blocks_look_ahead_and_writers() {
    let folder = with_profile();
    let profile = EngineProfile::load(folder.path(), true, 4);
    assert_eq!((profile.io_threads.value, profile.io_depth.value), (1, 32));
    assert_eq!(profile.io_bytes.value, 2 << 20);
    assert_eq!(
        (profile.writers.value, profile.write_bytes.value),
        (2, 1 << 20)
    );
    assert!(
        profile.io_depth.source.starts_with("measured (file:"),
        "{:?}",
        profile.io_depth
    );
    assert!(profile.io_depth.reason.contains("GB/s"));
    assert!(profile.storage_bandwidth.is_measured());
    assert_eq!(profile.storage_bandwidth.value, 6_000_000_000);
    assert_eq!(profile.look_ahead_bytes(6e9), 122_400_000);
    assert_eq!(profile.write_bandwidth.value, Some(2_000_000_000));
    assert_eq!(profile.serialise.source, "default");
    assert!(profile.origin.contains("measured on this machine") && profile.notice.is_none());
}

#[test]
fn without_a_profile_or_with_one_of_elsewhere_defaults_say_why() {
    let nothing = tempfile::tempdir().unwrap();
    let profile = EngineProfile::load(nothing.path(), true, 4);
    assert!(profile.origin.contains("no profile") && profile.notice.is_none());
    assert!(
        profile.lines()[..8]
            .iter()
            .all(|line| line.source == "default")
    );
    assert!(!profile.storage_access_ns.is_measured());
    assert_eq!(profile.look_ahead_bytes(1e3), LOOK_AHEAD_BYTES_MIN);
    let followed = EngineProfile::load(with_profile().path(), false, 4);
    assert_eq!(
        EngineProfile {
            origin: profile.origin.clone(),
            ..followed
        },
        profile
    );

    let folder = with_profile();
    let path = folder.path().join(PROFILE_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    let damaged = EngineProfile::load(folder.path(), true, 4);
    assert!(damaged.notice.unwrap().contains("damaged") && damaged.origin.contains("damaged"));
    let model = &Topology::read().cpu_model;
    std::fs::write(
        &path,
        text.replace(&format!("\"{model}\""), "\"Another CPU\""),
    )
    .unwrap();
    let foreign = EngineProfile::load(folder.path(), true, 4);
    assert!(foreign.notice.unwrap().contains("another machine"));
    assert_eq!(foreign.io_depth, profile.io_depth);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let unreadable = EngineProfile::load(folder.path(), true, 4);
    assert!(unreadable.notice.unwrap().contains("cannot read"));
}

#[test]
fn a_profile_of_a_device_that_is_gone_is_not_this_folders() {
    let folder = with_profile();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::copy(
        folder.path().join(PROFILE_FILE),
        elsewhere.path().join(PROFILE_FILE),
    )
    .unwrap();
    drop(folder);
    let profile = EngineProfile::load(elsewhere.path(), true, 4);
    assert!(
        profile.origin.contains("nothing on this folder's device"),
        "{}",
        profile.origin
    );
    assert_eq!(profile.io_depth.source, "default");
}

#[test]
fn every_name_has_a_line() {
    let lines = EngineProfile::defaults(String::new(), 2).lines();
    let shown = lines.iter().map(|line| line.name);
    assert!(shown.eq(NAMES.iter().map(|(name, _)| *name)));
}

#[test]
fn workers_run_where_the_profile_says() {
    let mut profile = EngineProfile::defaults(String::new(), 2);
    assert_eq!(profile.cpus_of(0, 2), None);
    profile.cpus = vec![4, 5, 6];
    assert_eq!(profile.cpus_of(0, 2), None);
    profile.pinning.value = Pinning::Core;
    let of = |profile: &EngineProfile| [0, 1, 2].map(|worker| profile.cpus_of(worker, 2));
    assert_eq!(
        of(&profile),
        [Some(vec![4]), Some(vec![5]), Some(vec![4, 5, 6])]
    );
    profile.pinning.value = Pinning::None;
    profile.sockets.value = Sockets::First;
    assert_eq!(profile.cpus_of(1, 2), Some(vec![4, 5, 6]));
}

#[test]
fn on_two_sockets_workers_run_on_those_that_the_profile_wants() {
    let topology = Topology::parse(&Tree::from_text(TWO_SOCKETS));
    let of_nodes = |nodes: std::ops::Range<usize>| -> Vec<u32> {
        topology.nodes[nodes]
            .iter()
            .flat_map(|node| node.cpus.clone())
            .collect()
    };
    let of = |dram: &TierProfile| EngineProfile::of(None, Some(dram), &topology, 72);
    let mut dram = TierProfile::defaults("dram", 72);
    dram.near_only.value = true;
    let first = of(&dram);
    assert_eq!(first.sockets.value, Sockets::First);
    // Memory of one socket, and only its processors: nothing is far.
    assert!((0..18).all(|worker| first.cpus_of(worker, 18) == Some(of_nodes(0..2))));

    dram.stripe_sockets.value = true;
    let both = of(&dram);
    assert_eq!(
        (both.sockets.value, both.cpus_of(0, 18)),
        (Sockets::All, None)
    );
    (dram.stripe_sockets.value, dram.read_pinning.value) = (false, Pinning::Core);
    let pinned = of(&dram);
    let own: Vec<Vec<u32>> = (0..18)
        .filter_map(|worker| pinned.cpus_of(worker, 18))
        .collect();
    assert!(own.iter().all(|cpus| cpus.len() == 1));
    assert!(own.concat().iter().all(|cpu| of_nodes(0..2).contains(cpu)));
    let distinct: std::collections::BTreeSet<_> = own.concat().into_iter().collect();
    assert_eq!(distinct.len(), 18);

    // One socket has nothing far.
    let one = EngineProfile::of(None, Some(&dram), &Topology::default(), 2);
    assert_eq!(
        (one.sockets.value, one.sockets.source.as_str()),
        (Sockets::All, "this machine")
    );
}

/// What `EXPLAIN ANALYZE VERBOSE` counts as polls near the table's shelf, of all readers.
fn near_polls(database: &Database, query: &str) -> Option<usize> {
    let explain = format!("EXPLAIN ANALYZE VERBOSE {query}");
    let session = database.session();
    let rows = database.block_on(async { session.sql(&explain).await?.collect().await });
    let text = pretty_format_batches(&rows.unwrap()).unwrap().to_string();
    let counts = text.split("near_polls=").skip(1);
    let count = |text: &str| {
        text.split(|letter: char| !letter.is_ascii_digit())
            .next()?
            .parse::<usize>()
            .ok()
    };
    counts.map(count).sum()
}

#[test]
fn a_table_on_a_node_is_read_from_near_it_where_the_profile_says_so() {
    let options = Options {
        threads: 2,
        ..Options::default()
    };
    let database = Database::temporary(options).unwrap();
    let session = database.session();
    let run = |sql: &str| {
        let rows = database.block_on(async { session.sql(sql).await?.collect().await });
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    run(
        "CREATE TABLE t WITH (shelf = 'node:0') AS SELECT value AS k, value % 7 AS v FROM range(300000)",
    );
    run("CREATE TABLE d AS SELECT value AS id, value % 3 AS c FROM range(7)");
    let topology = Topology::parse(&Tree::from_text(TWO_SOCKETS));
    let near = |only: bool| {
        let mut tier = TierProfile::defaults("node:0", 8);
        tier.near_only.value = only;
        let mut how = ShelfUse::of(&tier, &topology);
        let wanted = only.then(|| topology.near_cpus(0).to_vec());
        assert_eq!(how.near_cpus().map(<[u32]>::to_vec), wanted);
        // Of the recorded machine's processors to one that this machine has.
        how.cpus
            .iter_mut()
            .for_each(|cpus| *cpus = allowed_cpus()[..1].to_vec());
        let uses = [("node:0".to_owned(), how)].into();
        database.storage().opener.shelves().set_uses(uses);
    };
    let scan = "SELECT max(k) FROM t WHERE v < 5";
    let star = "SELECT c, sum(k) FROM t JOIN d ON v = id GROUP BY c ORDER BY c";
    for query in [scan, star] {
        near(false);
        let anywhere = (
            pretty_format_batches(&run(query)).unwrap().to_string(),
            near_polls(&database, query),
        );
        near(true);
        let there = (
            pretty_format_batches(&run(query)).unwrap().to_string(),
            near_polls(&database, query),
        );
        assert_eq!(anywhere.1, Some(0));
        assert!(there.1.is_some_and(|polls| polls > 0), "{query}");
        assert_eq!(anywhere.0, there.0);
    }
}

#[test]
fn reads_of_a_database_are_as_large_as_its_device_likes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let open = || Database::open(&path, Options::default()).unwrap();
    let run = |database: &Database, sql: &str| {
        let session = database.session();
        let rows = database.block_on(async { session.sql(sql).await?.collect().await });
        pretty_format_batches(&rows.unwrap()).unwrap().to_string()
    };
    // Numbers that do not compress: 4 MB in each column.
    let columns = ["a", "b", "c", "d"].map(|name| {
        let factor = 2_654_435_761_u64 + u64::from(name.as_bytes()[0]);
        format!("CAST((value * {factor}) % 2000000011 AS INT) AS {name}")
    });
    let rows = format!("SELECT {} FROM range(1000000)", columns.join(", "));
    run(&open(), &format!("CREATE TABLE t AS {rows}"));
    let trace = |bytes| {
        let mut tier = TierProfile::defaults(&format!("file:{}", path.display()), 8);
        (tier.read_grain_bytes.value, tier.read_grain_bytes.measured) = (bytes, true);
        let mut machine = MachineProfile::empty(&Topology::read());
        machine.tiers.insert(tier.tier.clone(), tier);
        machine.save(&path).unwrap();
        let database = open();
        let io = &database.storage().machine.io;
        let before = io.stats();
        let sums = run(&database, "SELECT sum(a), sum(b), sum(c), sum(d) FROM t");
        let done = io.stats().since(&before);
        assert!(done.device_bytes > 12 << 20, "{done:?}");
        (sums, done.device_bytes / done.device_operations)
    };
    // Which reads wait at once, and are joined, is chance: seldom none of them.
    let (sums, mut large) = trace(16 << 20);
    for _ in 0..30 {
        let small = trace(1 << 20);
        assert_eq!(small.0, sums);
        assert!(small.1 <= 1 << 20, "{small:?}");
        if large > 1 << 20 {
            return;
        }
        large = trace(16 << 20).1;
    }
    panic!("no read was larger than {large} bytes in thirty runs");
}
