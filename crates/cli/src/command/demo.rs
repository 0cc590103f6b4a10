//! `hotshelf demo`: one workload under several cache policies, as a table and a chart.
//!
//! The queries run once unmeasured, all in memory: what they read tells how large their columns are, and the budget
//! of the policies is a share of that. Then each policy starts with a cold cache.

use std::fs;
use std::path::{Path, PathBuf};

use hotshelf::{BUDGET_BYTES_MIN, Database, Options, PolicyKind, Session};
use hotshelf_bench::experiment::chart;
use hotshelf_bench::experiment::policies::{Setting, SettingRun, run_setting, touched_bytes};
use hotshelf_bench::ssb::{SsbGenerator, queries};

use super::bench::prepare;
use super::comparison;
use crate::failure::{Failure, Result, note};
use crate::flags::Demo;
use crate::interrupt;
use crate::output::print_lines;
use crate::progress::{Progress, bytes};

/// Policies that have to make do with a small budget, in the order of the columns.
const POLICIES: &[PolicyKind] = &[PolicyKind::None, PolicyKind::Lru, PolicyKind::HpCache];
/// Their budget, as a share of the columns that the queries read.
const BUDGET_SHARE: f64 = 0.4;
/// The storage bandwidth that all runs get, in bytes per second: a cloud volume's.
const STORAGE_BANDWIDTH: u64 = 300_000_000;
/// How often the queries run under each policy. The first time the cache is cold.
const PASS_COUNT: usize = 3;

pub fn run(demo: &Demo) -> Result<()> {
    let dataset = SsbGenerator::new(demo.scale, 0)?;
    fs::create_dir_all(&demo.folder).map_err(Failure::io("create", &demo.folder))?;
    let place = Place::new(&demo.folder, demo.keep);
    let options = Options::default();
    let threads = options.threads;
    let database = Database::open(&place.database, options)?;
    note(&format!(
        "generating the Star Schema Benchmark at scale {} in {}",
        demo.scale,
        place.database.display()
    ));
    prepare(&database, &dataset, threads)?;
    let runs = compare(&database)?;
    let stored = database.tables().iter().map(|table| table.file_bytes).sum();
    let facts = Facts::new(demo.scale, stored, threads, &runs);
    let chart = demo.folder.join("demo.svg");
    chart::cumulative_time(&runs, &facts.title(), &facts.subtitle(), &chart)?;
    let mut lines = vec![facts.title(), facts.subtitle(), String::new()];
    lines.extend(comparison::table(queries(), &runs));
    lines.push(String::new());
    lines.push(format!("chart: {}", chart.display()));
    if demo.keep {
        lines.push(format!("database: {}", place.database.display()));
    }
    print_lines(&lines)
}

/// The demo's database; removed at the end unless it is to be kept or was there before.
struct Place {
    database: PathBuf,
    keep: bool,
}

impl Place {
    fn new(folder: &Path, keep: bool) -> Self {
        let database = folder.join("db");
        let keep = keep || database.exists();
        Self { database, keep }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = fs::remove_dir_all(&self.database)
        {
            note(&format!(
                "cannot remove {}: {error}",
                self.database.display()
            ));
        }
    }
}

/// Runs the queries under each policy and all in memory, always with capped storage.
fn compare(database: &Database) -> Result<Vec<SettingRun>> {
    let session = database.session();
    let stored: u64 = database.tables().iter().map(|table| table.file_bytes).sum();
    let in_memory = Setting {
        label: "all in memory".to_owned(),
        policy: PolicyKind::All,
        // Room for the data, and as much again for what is on its way and for operators.
        budget_bytes: 2 * stored + (1 << 30),
    };
    let look = Setting {
        label: "a first look".to_owned(),
        ..in_memory.clone()
    };
    one_setting(database, &session, look, 1)?;
    let budget_bytes = (touched_bytes(database) as f64 * BUDGET_SHARE) as u64;
    let cap = format!("SET hotshelf.storage_bandwidth = '{STORAGE_BANDWIDTH}'");
    interrupt::run(database, async { Ok(session.sql(&cap).await.map(drop)?) })?;
    let mut settings: Vec<Setting> = POLICIES
        .iter()
        .map(|policy| Setting {
            label: match policy {
                PolicyKind::None => "no cache".to_owned(),
                policy => policy.to_string(),
            },
            policy: *policy,
            budget_bytes: budget_bytes.max(BUDGET_BYTES_MIN),
        })
        .collect();
    settings.push(in_memory);
    settings
        .into_iter()
        .map(|setting| one_setting(database, &session, setting, PASS_COUNT))
        .collect()
}

fn one_setting(
    database: &Database,
    session: &Session,
    setting: Setting,
    pass_count: usize,
) -> Result<SettingRun> {
    let query_count = (pass_count * queries().len()) as u64;
    let mut progress = Progress::start(setting.label.clone(), "queries");
    let mut done_count = 0;
    let work = async {
        let done = |_: usize, _: &str| {
            done_count += 1;
            progress.show(done_count, query_count);
        };
        Ok(run_setting(database, session, setting, queries(), pass_count, done).await?)
    };
    let run = interrupt::run(database, work)?;
    progress.clear();
    note(&format!(
        "{}: {query_count} queries in {:.1} s",
        run.setting.label,
        run.seconds()
    ));
    Ok(run)
}

/// What a reader of the table and the chart must know.
struct Facts {
    scale: f64,
    stored_bytes: u64,
    budget_bytes: u64,
    threads: usize,
}

impl Facts {
    fn new(scale: f64, stored_bytes: u64, threads: usize, runs: &[SettingRun]) -> Self {
        let budgets = runs.iter().map(|run| run.setting.budget_bytes);
        Self {
            scale,
            stored_bytes,
            budget_bytes: budgets.min().unwrap_or(0),
            threads,
        }
    }

    fn title(&self) -> String {
        format!(
            "Star Schema Benchmark, scale {}: {} queries, {PASS_COUNT} times",
            self.scale,
            queries().len()
        )
    }

    fn subtitle(&self) -> String {
        format!(
            "{} stored, budget {} ({:.0} % of the columns read), storage capped to {}/s, {} threads",
            bytes(self.stored_bytes),
            bytes(self.budget_bytes),
            100.0 * BUDGET_SHARE,
            bytes(STORAGE_BANDWIDTH),
            self.threads
        )
    }
}
