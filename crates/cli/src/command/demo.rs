//! `hotshelf demo`: one workload under several cache policies, as a table and a chart.
//!
//! The queries run once unmeasured, all in memory: what they read tells how large their columns are, and the budget
//! of the policies is a share of that. Then each policy starts with a cold cache. At last a few policies run with
//! other budgets: time against memory.

use std::fs;
use std::path::{Path, PathBuf};

use hotshelf::{BUDGET_BYTES_MIN, Database, Options, PolicyKind, Session};
use hotshelf_datagen::ssb::{SsbGenerator, queries};

use super::demo_table;
use crate::benchmark::policies::{
    Setting, SettingRun, cumulative_time, run_setting, touched_bytes,
};
use crate::benchmark::prepare;
use crate::failure::{Failure, Result, note};
use crate::flags::Demo;
use crate::interrupt::{self, AtSignal};
use crate::opened::Opened;
use crate::output::print_lines;
use crate::picture::{Figure, Panel, Series};
use crate::progress::{Progress, bytes};

/// Policies that have to make do with a small budget, in the order of the columns.
const POLICIES: &[PolicyKind] = &[PolicyKind::None, PolicyKind::Lru, PolicyKind::HpCache];
/// Their budget, as a share of the columns that the queries read.
const BUDGET_SHARE: f64 = 0.4;
/// Other budgets for the chart of time against budget, as shares of the columns that the queries read.
const SWEPT_SHARES: [f64; 3] = [0.2, 0.6, 0.8];
/// How often the queries run with each of these budgets.
const SWEPT_PASS_COUNT: usize = 2;
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
    let database = Opened::open(Some(&place.database), options)?;
    note(&format!(
        "generating the Star Schema Benchmark at scale {} in {}",
        demo.scale,
        place.database.display()
    ));
    prepare(&database, &dataset, threads)?;
    let touched_bytes = look(&database)?;
    let runs = compare(&database, touched_bytes)?;
    let stored = database.tables().iter().map(|table| table.file_bytes).sum();
    let facts = Facts::new(demo.scale, stored, threads, &runs);
    let chart = demo.folder.join("demo.svg");
    cumulative_time(&runs, facts.title(), facts.subtitle()).draw(&chart)?;
    let budget_chart = demo.folder.join("demo-budget.svg");
    sweep(&database, touched_bytes, &runs)?.draw(&budget_chart)?;
    let mut lines = vec![facts.title(), facts.subtitle(), String::new()];
    lines.extend(demo_table::table(queries(), &runs));
    lines.push(String::new());
    lines.push(format!("chart of time by policy: {}", chart.display()));
    lines.push(format!(
        "chart of time by budget: {}",
        budget_chart.display()
    ));
    if demo.keep {
        lines.push(format!("database: {}", place.database.display()));
    }
    print_lines(&lines)
}

/// The demo's database; removed at the end unless it is to be kept or was there before.
struct Place {
    database: PathBuf,
    keep: bool,
    _at_signal: Option<AtSignal>,
}

impl Place {
    fn new(folder: &Path, keep: bool) -> Self {
        let database = folder.join("db");
        let keep = keep || database.exists();
        let unfinished = database.clone();
        let remove = move |_| {
            fs::remove_dir_all(unfinished).ok();
        };
        Self {
            database,
            keep,
            _at_signal: (!keep).then(|| AtSignal::new(remove)),
        }
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

/// Everything in memory, with room for what is on its way and for operators.
fn in_memory(database: &Database) -> Setting {
    let stored: u64 = database.tables().iter().map(|table| table.file_bytes).sum();
    Setting {
        label: "all in memory".to_owned(),
        policy: PolicyKind::All,
        budget_bytes: 2 * stored + (1 << 30),
    }
}

/// Runs the queries once in memory. Returns the bytes of the columns that they read; from then on storage is capped.
fn look(database: &Database) -> Result<u64> {
    let session = database.session();
    let look = Setting {
        label: "a first look".to_owned(),
        ..in_memory(database)
    };
    one_setting(database, &session, look, 1)?;
    let cap = format!("SET hotshelf.storage_bandwidth = '{STORAGE_BANDWIDTH}'");
    interrupt::run(database, async { Ok(session.sql(&cap).await.map(drop)?) })?;
    Ok(touched_bytes(database))
}

fn setting(policy: PolicyKind, touched_bytes: u64, share: f64) -> Setting {
    Setting {
        label: match policy {
            PolicyKind::None => "no cache".to_owned(),
            policy => policy.to_string(),
        },
        policy,
        budget_bytes: ((touched_bytes as f64 * share) as u64).max(BUDGET_BYTES_MIN),
    }
}

/// Runs the queries under each policy and all in memory.
fn compare(database: &Database, touched_bytes: u64) -> Result<Vec<SettingRun>> {
    let session = database.session();
    let policies = POLICIES.iter();
    let settings = policies.map(|policy| setting(*policy, touched_bytes, BUDGET_SHARE));
    settings
        .chain([in_memory(database)])
        .map(|setting| one_setting(database, &session, setting, PASS_COUNT))
        .collect()
}

/// Time against budget: of `compared` the first passes, and the policies that cache with other budgets.
fn sweep(database: &Database, touched_bytes: u64, compared: &[SettingRun]) -> Result<Figure> {
    let session = database.session();
    let mut panel = Panel::new(
        "",
        "budget (% of the columns read)",
        "time of the passes (s)",
    );
    for run in compared {
        let policy = run.setting.policy;
        let passes = run.passes.iter().take(SWEPT_PASS_COUNT).flatten();
        let seconds: f64 = passes.map(|measurement| measurement.seconds).sum();
        let mut points = vec![(100.0 * BUDGET_SHARE, seconds)];
        for share in SWEPT_SHARES {
            let seconds = match policy {
                PolicyKind::None | PolicyKind::All => seconds,
                policy => {
                    let mut setting = setting(policy, touched_bytes, share);
                    setting.label = format!("{policy} with {:.0} %", 100.0 * share);
                    one_setting(database, &session, setting, SWEPT_PASS_COUNT)?.seconds()
                }
            };
            points.push((100.0 * share, seconds));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        panel.series.push(Series {
            label: run.setting.label.clone(),
            points,
        });
    }
    Ok(Figure {
        title: "Time against memory".to_owned(),
        subtitle: format!(
            "{} queries, {SWEPT_PASS_COUNT} passes from a cold cache, storage capped to {}/s",
            queries().len(),
            bytes(STORAGE_BANDWIDTH)
        ),
        panels: vec![panel],
    })
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
        run_setting(database, session, setting, queries(), pass_count, done).await
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
