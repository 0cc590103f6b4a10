use super::*;
use crate::axes::{Operation, Pattern, Placement, Point, Row};
use crate::emulated::recorded_rows;
use crate::topology::{Topology, Tree};

const TWO_SOCKETS: &str = include_str!("../topology/trees/two-sockets.tree");
const FULL_DEVICES: [&str; 5] = [
    "optane100-128",
    "optane100-256",
    "optane100-512",
    "optane200-256",
    "optane-4-dimms",
];
/// The hosts of the recorded grids have more than 16 and less than 32 cores a socket.
const RECORDED_CORES: u32 = 18;

fn derived(tier: &str, rows: &[Row], physical_cores: u32) -> TierProfile {
    derive(&DeriveInput {
        tier,
        rows,
        physical_cores,
    })
}

fn read_of(placement: Placement, bandwidth_bytes_per_s: f64) -> Row {
    Row {
        tier: "dax".to_owned(),
        emulated: false,
        point: Point {
            placement,
            ..Point::new(Operation::Read, 4096, 8)
        },
        bandwidth_bytes_per_s,
        latency_ns: None,
        beside_bandwidth_bytes_per_s: None,
        spread: 0.0,
    }
}

fn of_device(device: &str) -> TierProfile {
    derived(device, &recorded_rows(device), RECORDED_CORES)
}

#[test]
fn every_recorded_persistent_memory_gives_the_published_advice() {
    for device in FULL_DEVICES {
        let profile = of_device(device);
        let what = format!("{device}: {profile:#?}");
        assert!((16..=32).contains(&profile.read_threads.value), "{what}");
        assert!((4..=8).contains(&profile.write_threads.value), "{what}");
        assert!(
            (512..=4096).contains(&profile.write_grain_bytes.value),
            "{what}"
        );
        assert!(
            profile.serialise.value && profile.serialise.measured,
            "{what}"
        );
    }
}

#[test]
fn differences_between_devices_show_in_their_profiles() {
    let read = |device: &str| {
        let profile = of_device(device);
        (profile.read_threads.value, profile.read_grain_bytes.value)
    };
    assert_eq!(read("optane100-128"), (16, 4096));
    assert_eq!(read("optane100-256"), (16, 4096));
    // The largest modules saturate with any size, and the second generation wants more threads than cores.
    assert_eq!(read("optane100-512"), (16, 64));
    assert_eq!(read("optane200-256"), (32, 4096));
    let writers = |device: &str| of_device(device).write_threads.value;
    let found = FULL_DEVICES.map(writers);
    assert_eq!(found, [8, 8, 4, 8, 8]);
    // Few modules are saturated by fewer threads.
    assert_eq!(
        (
            writers("optane-1-dimm"),
            of_device("optane-1-dimm").read_threads.value
        ),
        (1, 8)
    );
}

#[test]
fn memory_of_other_sockets_is_used_as_far_as_it_is_faster() {
    let advice = |far, both_near| {
        let rows = [
            read_of(Placement::Near, 40e9),
            read_of(Placement::Far, far),
            read_of(Placement::BothNear, both_near),
        ];
        let profile = derived("dax", &rows, 8);
        (profile.near_only.value, profile.stripe_sockets.value)
    };
    assert_eq!(advice(33e9, 80e9), (true, true));
    assert_eq!(advice(40e9, 41e9), (false, false));
}

#[test]
fn dram_does_not_get_the_advice_for_persistent_memory() {
    for device in ["dram-beside-optane100", "dram-beside-optane200"] {
        let profile = of_device(device);
        let what = format!("{device}: {profile:#?}");
        assert!(profile.write_threads.value >= 32, "{what}");
        assert!(
            !profile.serialise.value && profile.serialise.measured,
            "{what}"
        );
    }
}

#[test]
fn an_unmeasured_tier_keeps_defaults_that_say_so() {
    let profile = derived("file:/db", &[], 4);
    assert!(
        profile
            .lines()
            .iter()
            .all(|line| !line.measured && line.reason == "not measured")
    );
    assert_eq!(
        (profile.queue_depth.value, profile.read_threads.value),
        (Some(64), 1)
    );
    let dram = TierProfile::defaults("dram", 0);
    assert_eq!((dram.queue_depth.value, dram.read_threads.value), (None, 1));
}

#[test]
fn every_measured_value_names_its_measurement() {
    for line in of_device("optane100-128")
        .lines()
        .iter()
        .filter(|line| line.measured)
    {
        assert!(line.reason.contains("B/s"), "{line:?}");
    }
    let words: Vec<_> = of_device("optane100-128")
        .lines()
        .into_iter()
        .map(|line| line.value)
        .collect();
    assert!(words.contains(&"none".to_owned()), "{words:?}");
}

#[test]
fn an_access_takes_as_long_as_the_smallest_that_waits_for_the_one_before() {
    assert_eq!(of_device("optane100-128").access_ns.value, Some(441));
    let row = |access_bytes, depth, bandwidth| Row {
        tier: "file:/db".to_owned(),
        emulated: false,
        point: Point {
            pattern: Pattern::Random,
            queue_depth: Some(depth),
            ..Point::new(Operation::Read, access_bytes, 1)
        },
        bandwidth_bytes_per_s: bandwidth,
        latency_ns: None,
        beside_bandwidth_bytes_per_s: None,
        spread: 0.0,
    };
    let rows = [
        row(65_536, 1, 400e6),
        row(4096, 1, 51.2e6),
        row(4096, 16, 600e6),
    ];
    let found = derived("file:/db", &rows, 2).access_ns;
    assert_eq!(found.value, Some(80_000));
    assert!(found.reason.contains("4 KiB"), "{found:?}");
    assert_eq!(derived("file:/db", &rows[2..], 2).access_ns.value, None);
    let nothing = derived("file:/db", &[row(4096, 1, 0.0)], 2);
    assert_eq!(nothing.access_ns.value, None);
}

#[test]
fn file_reads_get_the_smallest_depth_that_saturates() {
    let row = |depth, bandwidth| Row {
        tier: "file:/db".to_owned(),
        emulated: false,
        point: Point {
            queue_depth: Some(depth),
            ..Point::new(Operation::Read, 65_536, 1)
        },
        bandwidth_bytes_per_s: bandwidth,
        latency_ns: None,
        beside_bandwidth_bytes_per_s: None,
        spread: 0.0,
    };
    let rows = [
        row(1, 0.4e9),
        row(4, 1.2e9),
        row(16, 1.49e9),
        row(64, 1.5e9),
    ];
    assert_eq!(derived("file:/db", &rows, 2).queue_depth.value, Some(16));
    // Small blocks want more in flight than large ones, and must get it.
    let small = |depth, bandwidth| {
        let mut row = row(depth, bandwidth);
        row.point.access_bytes = 4096;
        row.point.pattern = Pattern::Random;
        row
    };
    let rows = [
        &rows[..],
        &[small(1, 0.1e9), small(16, 0.2e9), small(64, 0.4e9)],
    ]
    .concat();
    let profile = derived("file:/db", &rows, 2);
    assert_eq!(profile.queue_depth.value, Some(64));
    assert_eq!(
        profile.read_bandwidth_bytes_per_s.value,
        Some(1_500_000_000)
    );
}

fn machine() -> Topology {
    Topology::parse(&Tree::from_text(TWO_SOCKETS))
}

#[test]
fn a_saved_profile_is_found_again_on_the_same_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, origin) = MachineProfile::load(folder.path(), &machine()).unwrap();
    assert_eq!((origin, empty.tiers.len()), (ProfileOrigin::Missing, 0));
    let mut profile = empty;
    profile
        .tiers
        .insert("dax".to_owned(), of_device("optane100-128"));
    profile.save(folder.path()).unwrap();
    let (loaded, origin) = MachineProfile::load(folder.path(), &machine()).unwrap();
    assert_eq!((&loaded, origin), (&profile, ProfileOrigin::Measured));
    assert_eq!(loaded.tier("dax").write_threads.value, 8);
    assert!(!loaded.tier("node:9").write_threads.measured);
}

#[test]
fn a_profile_of_an_earlier_version_is_still_used() {
    let folder = tempfile::tempdir().unwrap();
    let mut profile = MachineProfile::empty(&machine());
    let tier = of_device("optane100-128");
    let written = tier.write_bandwidth_bytes_per_s.value.expect("measured");
    let read = tier.read_bandwidth_bytes_per_s.value.expect("measured");
    assert!(written < read, "{written} {read}");
    profile.tiers.insert("dax".to_owned(), tier);
    profile.save(folder.path()).unwrap();
    let path = folder.path().join(PROFILE_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tier = older["tiers"]["dax"].as_object_mut().unwrap();
    for later in ["write_bandwidth_bytes_per_s", "access_ns"] {
        tier.remove(later).expect("it was there");
    }
    tier.insert("slow_reader_cap".to_owned(), serde_json::Value::Null);
    std::fs::write(&path, older.to_string()).unwrap();
    let (loaded, origin) = MachineProfile::load(folder.path(), &machine()).unwrap();
    assert_eq!(origin, ProfileOrigin::Measured);
    assert_eq!(loaded.tiers["dax"].write_bandwidth_bytes_per_s.value, None);
}

#[test]
fn a_profile_of_another_machine_or_version_or_of_nothing_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    MachineProfile::empty(&machine())
        .save(folder.path())
        .unwrap();
    let fewer_cores = TWO_SOCKETS.replace("\t27,63", "\t18,54");
    let other = Topology::parse(&Tree::from_text(&fewer_cores));
    let (_, origin) = MachineProfile::load(folder.path(), &other).unwrap();
    let expected = ProfileOrigin::OtherMachine {
        differences: vec!["cores: 4 then, 3 now".to_owned()],
    };
    assert_eq!(origin, expected);
    let path = folder.path().join(PROFILE_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("\"schema_version\": 1", "\"schema_version\": 9"),
    )
    .unwrap();
    let (_, origin) = MachineProfile::load(folder.path(), &machine()).unwrap();
    assert_eq!(origin, ProfileOrigin::OtherVersion { found: 9 });
    for damaged in [
        &text[..text.len() / 2],
        "",
        "[1]",
        "{\"schema_version\": 1}",
    ] {
        std::fs::write(&path, damaged).unwrap();
        let (_, origin) = MachineProfile::load(folder.path(), &machine()).unwrap();
        assert!(
            matches!(origin, ProfileOrigin::Damaged { .. }),
            "{damaged:?}"
        );
    }
}

#[test]
fn a_few_reserved_megabytes_do_not_make_another_machine() {
    let more = TWO_SOCKETS.replace("48234496 kB", "48230000 kB");
    let more = Fingerprint::of(&Topology::parse(&Tree::from_text(&more)));
    assert_eq!(
        more.differences(&Fingerprint::of(&machine())),
        [] as [String; 0]
    );
    let half = TWO_SOCKETS.replace("48234496 kB", "24117248 kB");
    let half = Fingerprint::of(&Topology::parse(&Tree::from_text(&half)));
    assert_eq!(half.differences(&Fingerprint::of(&machine())).len(), 1);
}

#[test]
fn rows_survive_json() {
    let rows = [
        read_of(Placement::Near, 37e9),
        read_of(Placement::Far, 33e9),
    ];
    let text = serde_json::to_string(&rows).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
    let one: serde_json::Value = serde_json::to_value(&rows[0]).unwrap();
    for field in [
        "tier",
        "emulated",
        "operation",
        "pattern",
        "access_bytes",
        "threads",
        "grouping",
        "pinning",
    ] {
        assert!(one.get(field).is_some(), "{field}");
    }
    assert_eq!(one["bandwidth_bytes_per_s"], 37e9);
}
