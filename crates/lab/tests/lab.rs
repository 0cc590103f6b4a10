//! Commands of `hotshelf-lab`, as they are called.

use std::process::{Command, Output};

/// A folder to call the program in.
struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn run(&self, call: &[&str]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_hotshelf-lab"));
        let program = program.current_dir(self.folder.path()).args(call);
        program.output().unwrap()
    }

    /// What it prints; it must succeed.
    fn ok(&self, call: &[&str]) -> String {
        let done = self.run(call);
        let words = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{words}");
        String::from_utf8(done.stdout).unwrap()
    }
}

#[test]
fn hpcache_runs_a_sequence_under_policies_over_a_database() {
    let lab = Lab::new();
    let base = ["hpcache", "--sequence", "paper", "--db", "db"];
    let rest = [
        "--scale",
        "0.001",
        "--policy",
        "lru,hpcache,memory",
        "--budget",
        "2MB",
        "--storage-bandwidth",
        "none",
        "--format",
        "json",
    ];
    let answer = lab.ok(&[&base[..], &rest[..]].concat());
    let rows: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let rows = rows.as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["policy"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["lru", "hpcache", "memory"]);
    for row in rows {
        assert_eq!(row["seconds"].as_array().unwrap().len(), 30);
        assert!(row["total_s"].as_f64().unwrap() > 0.0);
        assert!(row["bytes_cache"].as_u64().unwrap() + row["bytes_storage"].as_u64().unwrap() > 0);
    }
    // Once more over the database as it is now, with the budget and bandwidth of the paper's proportions.
    let again = lab.ok(&[&base[..], &["--policy", "none", "--format", "csv"]].concat());
    assert_eq!(again.lines().count(), 2);
}

#[test]
fn hpcache_draws_simulated_figures_and_lists_queries() {
    let lab = Lab::new();
    let answer = lab.ok(&[
        "hpcache", "--figure", "1,5", "--out", "f", "--format", "csv",
    ]);
    assert!(
        answer
            .lines()
            .any(|line| line.starts_with("1,simulated,\"\",Q1.3")),
        "{answer}"
    );
    for name in ["f/hpcache-01-simulated.svg", "f/hpcache-05-simulated.svg"] {
        assert!(
            std::fs::read_to_string(lab.folder.path().join(name))
                .unwrap()
                .contains("</svg>")
        );
    }
    let list = lab.ok(&[
        "hpcache",
        "--sequence",
        "growing",
        "--list",
        "--format",
        "json",
    ]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 30);
    let refused = lab.run(&["hpcache", "--figure", "2"]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        words.contains("figure 2") && words.contains("1, 3, 4"),
        "{words}"
    );
}

#[test]
fn elf_answers_alike_with_every_layout_and_scan() {
    let lab = Lab::new();
    let call =
        "elf --rows 20000 --columns 4 --runs 1 --experiment layouts,selectivity --format csv";
    let answer = lab.ok(&call.split(' ').collect::<Vec<_>>());
    assert!(
        answer.contains("\nlayouts,") && answer.contains("\nselectivity,"),
        "{answer}"
    );
}

#[test]
fn queries_are_timed_over_a_database() {
    let lab = Lab::new();
    let list = ["hpcache", "--sequence", "paper", "--policy", "lru"];
    lab.ok(&[&list[..], &["--db", "db", "--scale", "0.001"]].concat());
    std::fs::create_dir(lab.folder.path().join("sql")).unwrap();
    let query = "SELECT d_year, sum(lo_revenue) FROM lineorder, date WHERE lo_orderdate = d_datekey GROUP BY d_year";
    std::fs::write(lab.folder.path().join("sql/q.sql"), query).unwrap();
    let times = lab.ok(&["star-times", "db", "sql"]);
    assert!(
        times.starts_with("q off ") && times.contains("7 rows equal"),
        "{times}"
    );
    let scans = lab.ok(&[
        "scan-compare",
        "db",
        "lineorder",
        "lo_revenue,lo_discount",
        "--runs",
        "1",
    ]);
    assert!(scans.contains("speed ratio"), "{scans}");
    let bandwidth = lab.ok(&["pipeline-bandwidth", "db", "sql", "900MB/s", "1"]);
    assert!(bandwidth.contains("| q |"), "{bandwidth}");
}

#[test]
fn records_of_sqllogictest_files_run() {
    let lab = Lab::new();
    std::fs::create_dir(lab.folder.path().join("slt")).unwrap();
    let records = "statement ok\nCREATE TABLE t AS VALUES (1), (2)\n\nquery I\nSELECT count(*) FROM t\n----\n2\n";
    std::fs::write(lab.folder.path().join("slt/a.slt"), records).unwrap();
    let told = lab.ok(&["sqllogictest", "slt"]);
    assert!(told.contains("a.slt: 2 passed, 0 failed"), "{told}");
}

#[test]
fn ssb_runs_by_hand_on_every_tier_beside_the_product() {
    let lab = Lab::new();
    let call = "ssb --handcrafted --scale 0.002 --runs 1 --query Q1.1,Q2.1,Q4.2 \
                --contender engine,columns,rows,unaware \
                --tier dram,emulated:optane100-128,file:rows --step one-thread,pinning --format json";
    let answer = lab.ok(&call.split_whitespace().collect::<Vec<_>>());
    let rows: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3 * (4 + 4 + 2) * 2);
    for row in rows {
        let by_hand = row["contender"] != "engine";
        let emulated = row["tier"].as_str().unwrap().starts_with("emulated:");
        assert_eq!(row["emulated"].as_bool().unwrap(), emulated && by_hand);
        assert!(row["median_s"].as_f64().unwrap() > 0.0 && row["bytes"].as_u64().unwrap() > 0);
        assert!(!by_hand || row["bandwidth_share"].as_f64().unwrap() > 0.0);
    }
    let price = lab.ok(&["ssb", "--price", "575/128,700/64", "--format", "csv"]);
    assert!(
        price.contains("6900.0,16800.0,2.434783,1.66,1.466737"),
        "{price}"
    );
    std::fs::write(lab.folder.path().join("wrong.json"), WRONG_ANSWER).unwrap();
    let call =
        "ssb --handcrafted --scale 0.002 --query Q1.1 --contender columns --answers wrong.json";
    let refused = lab.run(&call.split(' ').collect::<Vec<_>>());
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Q1.1 by columns"));
}

const WRONG_ANSWER: &str = r#"{"queries": {"Q1.1": {"columns": ["revenue"], "rows": [[17]]}}}"#;

#[test]
fn figures_of_persistent_memory_have_rows_with_labels_and_pictures() {
    let lab = Lab::new();
    let mut rows = Vec::new();
    for call in [
        "pmem --figure 5 --tier simulated:optane100-128,emulated:optane100-128 --quick --seconds 1",
        "pmem --figure 14,table1 --tier dram,emulated:optane100-128,file:. --scale 0.002",
    ] {
        let call = format!("{call} --out f --format json");
        let answer = lab.ok(&call.split(' ').collect::<Vec<_>>());
        let of_call: Vec<serde_json::Value> = serde_json::from_str(&answer).unwrap();
        rows.extend(of_call);
    }
    for row in &rows {
        let tier = row["tier"].as_str().unwrap();
        let label = match tier.split_once(':') {
            Some((kind, _)) => kind,
            None => "real",
        };
        let is_ratio = row["unit"] == "times emulated memory";
        assert!(row["label"] == label || is_ratio, "{row}");
        assert!(!row["value"].is_null() || !row["note"].is_null(), "{row}");
    }
    let of = |figure: &str| rows.iter().filter(|row| row["figure"] == figure).count();
    assert!(of("5") > 0 && of("14") > 0 && of("table1") > 0);
    for name in ["f/pmem-05.svg", "f/pmem-14.svg", "f/pmem-table1.svg"] {
        let picture = std::fs::read_to_string(lab.folder.path().join(name)).unwrap();
        assert!(picture.contains("</svg>"), "{name}");
    }
    let left: Vec<_> = std::fs::read_dir(lab.folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
