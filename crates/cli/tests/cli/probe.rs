//! `hotshelf probe`: plan, measurements, profile, what it leaves in a database, and what it refuses.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Bench, entries};

const DEVICE: &str = "emulated:optane100-128";

#[test]
fn an_emulated_tier_is_measured_labelled_and_explained() {
    let bench = Bench::new();
    let done = bench.run(&["probe", "--quick", "--tier", DEVICE, "--explain"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stderr.contains("points, about") && done.stderr.contains("emulated"),
        "{}",
        done.stderr
    );
    for part in [
        "emulated",
        "write_threads",
        "GB/s",
        "threads write",
        "in pieces of",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    let plain = bench.ok(&["probe", "--quick", "--tier", DEVICE]);
    assert!(
        plain.contains("write_threads") && !plain.contains("GB/s"),
        "{plain}"
    );
}

#[test]
fn rows_carry_every_field_in_every_format() {
    let bench = Bench::new();
    let json = bench.ok(&["probe", "--quick", "--tier", DEVICE, "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.len() > 50 && document["profile"]["write_threads"]["reason"].is_string());
    for row in rows {
        for field in ["tier", "operation", "pattern", "grouping", "pinning"] {
            assert!(row[field].is_string(), "{field}: {row}");
        }
        for field in ["access_bytes", "threads", "bandwidth_bytes_per_s"] {
            assert!(row[field].is_number(), "{field}: {row}");
        }
        assert_eq!(row["emulated"], true);
    }
    assert!(rows.iter().any(|row| row["latency_ns"].is_number()));
    let csv = bench.ok(&["probe", "--quick", "--tier", DEVICE, "--format", "csv"]);
    assert!(
        csv.starts_with("tier,emulated,operation,pattern,access_bytes,threads,grouping,pinning,")
    );
    assert_eq!(csv.lines().count(), rows.len() + 1);
}

#[test]
fn a_file_of_measurements_gets_heat_maps_beside_it_and_is_read_again() {
    let bench = Bench::with_table();
    bench.ok(&["probe", "--quick", "--tier", DEVICE, "--out", "optane.json"]);
    let svg = std::fs::read_to_string(bench.path("optane.svg")).unwrap();
    assert!(svg.contains("(emulated)"));
    let told = bench.ok(&["probe", "--from", "optane.json", "--explain"]);
    assert!(
        told.contains("write_threads") && told.contains("in pieces of"),
        "{told}"
    );

    bench.ok(&["probe", "--from", "optane.json", "--db", "db"]);
    let profile = std::fs::read_to_string(bench.path("db/profile.json")).unwrap();
    assert!(profile.contains(DEVICE), "{profile}");
    let shown = bench.query("SHOW hotshelf.profile");
    assert!(
        shown.starts_with("name,value,source,reason") && shown.contains("io_depth"),
        "{shown}"
    );

    let json = std::fs::read_to_string(bench.path("optane.json")).unwrap();
    let cores = json.find("\"physical_cores\"").unwrap();
    let foreign = format!(
        "{}\"physical_cores\": 977{}",
        &json[..cores],
        &json[cores + json[cores..].find(',').unwrap()..]
    );
    bench.write("foreign.json", foreign);
    let done = bench.run(&["probe", "--from", "foreign.json", "--db", "db"]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.stderr.contains("another machine") && done.stderr.contains("hint: "),
        "{}",
        done.stderr
    );
}

#[test]
fn a_foreign_profile_is_told_and_not_followed() {
    let bench = Bench::with_table();
    bench.ok(&["probe", "--quick", "--tier", DEVICE, "--db", "db"]);
    let profile = std::fs::read_to_string(bench.path("db/profile.json")).unwrap();
    bench.write(
        "db/profile.json",
        profile.replacen("\"virtualised\": ", "\"virtualised\": !", 1),
    );
    let done = bench.run(&["sql", "--db", "db", "-c", "SELECT count(*) FROM t"]);
    assert_eq!(done.code, Some(0));
    assert!(
        done.stderr.contains("damaged") && done.stderr.contains("hotshelf probe --db"),
        "{}",
        done.stderr
    );
    let flipped = match profile.contains("\"virtualised\": true") {
        true => profile.replacen("\"virtualised\": true", "\"virtualised\": false", 1),
        false => profile.replacen("\"virtualised\": false", "\"virtualised\": true", 1),
    };
    bench.write("db/profile.json", flipped);
    let done = bench.run(&["sql", "--db", "db", "-c", "SELECT count(*) FROM t"]);
    assert_eq!(done.code, Some(0));
    assert!(done.stderr.contains("another machine"), "{}", done.stderr);
    let done = bench.run(&[
        "sql",
        "--no-profile",
        "--db",
        "db",
        "-c",
        "SELECT count(*) FROM t",
    ]);
    assert_eq!(
        (done.code, done.stderr.contains("machine")),
        (Some(0), false)
    );
}

#[test]
fn the_plan_comes_without_measuring_when_only_that_is_asked_for() {
    let bench = Bench::new();
    for tier in ["dram", "file:.", "emulated:nand"] {
        let done = bench.run(&["probe", "--dry-run", "--tier", tier]);
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(0), ""),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains("s, about"), "{}", done.stderr);
    }
    assert!(entries(bench.folder.path()).is_empty());
}

#[test]
fn an_interrupted_probe_goes_on_where_it_stopped_and_leaves_no_files() {
    let bench = Bench::new();
    let call = [
        "probe",
        "--quick",
        "--tier",
        "file:.",
        "--working-set",
        "16MB",
        "--only",
        "random, 1 threads",
        "--resume",
        "here.json.journal",
        "--out",
        "here.json",
    ];
    let mut child = bench
        .command(&call)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = bench.path("here.json.journal");
    let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    let started = Instant::now();
    while lines() < 4 {
        assert!(started.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    super::interrupts::press_ctrl_c(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(lines() >= 4 && !bench.path("here.json").exists());
    assert_eq!(
        entries(bench.folder.path()).len(),
        1,
        "only the journal is left"
    );
    let done = bench.run(&call);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("going on: "), "{}", done.stderr);
    assert!(bench.path("here.json").exists() && !journal.exists());
}

#[test]
fn what_cannot_be_measured_is_refused_before_minutes_are_spent() {
    let bench = Bench::with_table();
    bench.write("text", "no measurements");
    for (code, call, parts) in [
        (
            2,
            &["probe", "--tier", "ram"][..],
            &["emulated:NAME", "hint: "][..],
        ),
        (
            2,
            &["probe", "--tier", "emulated:optan"],
            &["optane100-128", "hint: "],
        ),
        (
            1,
            &["probe", "--tier", "node:4000"],
            &["node 4000", "hint: "],
        ),
        (
            1,
            &["probe", "--tier", "file:/no/such/folder"],
            &["/no/such/folder", "hint: "],
        ),
        (
            2,
            &["probe", "--tier", "file:text"],
            &["not a folder", "hint: "],
        ),
        (
            1,
            &["probe", "--tier", "dax:/no/such/device"],
            &["/no/such/device", "hint: "],
        ),
        (
            1,
            &["probe", "--tier", "dax:."],
            &["MAP_SYNC", "dax=always"],
        ),
        (1, &["probe", "--tier", "dax:text"], &["DAX file system"]),
        (
            1,
            &["probe", "--tier", "dax:/dev/null", "--overwrite-device"],
            &["not a devdax", "ndctl"],
        ),
        (
            1,
            &["probe", "--from", "text"],
            &["not the result of a probe", "hint: "],
        ),
        (1, &["probe", "--from", "nowhere.json"], &["nowhere.json"]),
        (
            2,
            &["probe", "--only", "sideways"],
            &["sideways", "for example of \"read 64 bytes"],
        ),
        (
            1,
            &["probe", "--quick", "--db", "nowhere"],
            &["nowhere", "catalog.sqlite"],
        ),
        (
            2,
            &["probe", "--quick", "--out", "nowhere/x.json"],
            &["nowhere", "hint: "],
        ),
        (
            1,
            &["probe", "--quick", "--working-set", "99TB"],
            &["cannot allocate", "--working-set"],
        ),
    ] {
        let call = [
            call,
            &["--resume", "journal"][..usize::from(!call.contains(&"--from")) * 2],
        ]
        .concat();
        bench.fails(code, &call, parts);
    }
    assert!(!bench.path("db/profile.json").exists());
}
