//! Figure 14 and table 1: the Star Schema Benchmark by hand on each tier, beside the paper's times.
//!
//! The paper's seconds are those of scale 50 and 100 and 36 cores, so ratios are compared: slow memory over DRAM, and
//! each step over one thread.

use hotshelf::Options;
use hotshelf_cli::Engine;
use hotshelf_cli::failure::Failure;

use super::device::{Device, Machine};
use super::flags::Pmem;
use super::rows::{Label, Row};
use crate::failure::Result;
use crate::handcrafted::{
    Contender, Handcrafted, Kind, QUERIES, QueryRow, Settings, Step, Tier, measure,
};

const RUNS: usize = 3;
const TIMES_DRAM: &str = "times DRAM";
const TIMES_ONE_THREAD: &str = "times as fast as one thread";
const SECONDS: &str = "s";
const STEPS: [Step; 5] = [
    Step::OneThread,
    Step::AllThreads,
    Step::TwoSockets,
    Step::Numa,
    Step::Pinning,
];
/// Table 1: seconds of Q2.1 by step.
const PERSISTENT_S: [f64; 5] = [306.7, 25.1, 12.3, 9.4, 8.6];
const DRAM_S: [f64; 5] = [221.2, 15.2, 9.2, 5.2, 5.2];
/// The same query with the table on an SSD.
const SSD_S: f64 = 22.8;
const TABLE_WORDS: &str = "table 1: seconds by step, here over one thread's";

const EMULATED_SOCKETS: &str = "two emulated sockets, each with half of this machine's CPUs";
const PARAMETERS: &str = "parameters as in figures 3, 4 and 6";

/// A panel of figure 14.
struct Part {
    panel: &'static str,
    contender: Contender,
    /// What the paper states, and whether that only follows from its words.
    stated: &'static [(&'static str, f64, &'static str, bool)],
}

const PARTS: [Part; 2] = [
    Part {
        panel: "a: engine unaware of the memory",
        contender: Contender::Unaware,
        stated: &[
            ("mean", 5.3, "5.3 times slower on average (6.1)", false),
            ("Q2.3", 7.7, "at most 7.7 times, Q2.3 (6.1)", false),
            ("Q3.1", 2.5, "at least 2.5 times, Q3.1 (6.1)", false),
        ],
    },
    Part {
        panel: "b: tailored to the memory",
        contender: Contender::Rows,
        stated: &[
            ("mean", 1.66, "1.66 times on average (6.2)", false),
            ("mean Q1", 2.6, "~1.3 s and ~0.5 s (6.2)", true),
            ("mean Q2-4", 1.6, "1.6 times in flights 2-4 (6.2)", false),
            ("Q1.3", 3.0, "worst in Q1.3, 3 times (6.2)", false),
            ("Q3.3", 1.4, "best in Q3.3, 1.4 times (6.2)", false),
        ],
    },
];

/// Groups of queries with a mean, by how their names begin.
const MEANS: [(&str, &[&str]); 3] = [
    ("mean", &["Q"]),
    ("mean Q1", &["Q1"]),
    ("mean Q2-4", &["Q2", "Q3", "Q4"]),
];

/// All queries on DRAM and on the other tiers.
pub fn figure_14(pmem: &Pmem, machine: &Machine) -> Result<Vec<Row>> {
    let contenders = PARTS.iter().map(|part| part.contender).collect();
    let handcrafted = handcrafted(pmem, machine, contenders, vec![Step::Pinning]);
    let found = measure_on(&handcrafted, tiers(pmem, true))?;
    let mut rows = Vec::new();
    for part in &PARTS {
        let own = |row: &&QueryRow| row.contender == part.contender.name();
        let (dram, slow): (Vec<&QueryRow>, Vec<&QueryRow>) =
            found.iter().filter(own).partition(|row| row.tier == "dram");
        for row in dram.iter().chain(&slow) {
            rows.push(seconds_row("14", part.panel, row, row.query.to_owned()));
        }
        let ratios = slow.iter().filter_map(|row| {
            let beside = dram.iter().find(|dram| dram.query == row.query)?;
            Some((*row, row.median_s / beside.median_s))
        });
        let ratios: Vec<(&QueryRow, f64)> = ratios.collect();
        rows.extend(
            ratios
                .iter()
                .map(|(row, ratio)| ratio_row(part, row, row.query, *ratio)),
        );
        rows.extend(means(part, &ratios));
    }
    Ok(rows)
}

/// Q2.1 with each step.
pub fn table_1(pmem: &Pmem, machine: &Machine) -> Result<Vec<Row>> {
    let mut handcrafted = handcrafted(pmem, machine, vec![Contender::Rows], STEPS.to_vec());
    handcrafted.queries.retain(|query| query.name == "Q2.1");
    let found = measure_on(&handcrafted, tiers(pmem, false))?;
    let mut rows = Vec::new();
    for row in &found {
        let Some(at) = STEPS.iter().position(|step| step.name() == row.step) else {
            continue;
        };
        let mut of_tier = found.iter().filter(|first| first.tier == row.tier);
        let first = of_tier.find(|first| first.step == Step::OneThread.name());
        let paper = match row.tier.as_str() {
            "dram" => Some(DRAM_S),
            _ if row.emulated => Some(PERSISTENT_S),
            _ => None,
        };
        let what = format!("{} {}", at + 1, row.step);
        let seconds = seconds_row("table1", "Q2.1", row, what);
        rows.push(Row {
            unit: TIMES_ONE_THREAD,
            value: seconds
                .value
                .and_then(|seconds_here| Some(first?.median_s / seconds_here)),
            paper: paper.map(|paper| paper[0] / paper[at]),
            paper_words: paper.map(|_| TABLE_WORDS),
            paper_follows: true,
            ..seconds.clone()
        });
        rows.push(seconds);
    }
    rows.extend(volume_row(&found));
    Ok(rows)
}

fn handcrafted(
    pmem: &Pmem,
    machine: &Machine,
    contenders: Vec<Contender>,
    steps: Vec<Step>,
) -> Handcrafted {
    let options = Options::default();
    let cache = machine.topology.last_level_cache_bytes() as usize;
    Handcrafted {
        scale: pmem.scale,
        contenders,
        queries: QUERIES.iter().collect(),
        steps,
        settings: Settings {
            look_ups: Kind::Dash,
            step: Step::Pinning,
            threads: machine.cpus as usize,
            emulated_sockets: true,
            cpu_cache_bytes: pmem.cpu_cache_bytes.unwrap_or(cache),
        },
        engine: Engine { db: None, options },
        run_count: RUNS,
        answers: None,
    }
}

/// Files are made in folders of their own, and removed.
fn measure_on(handcrafted: &Handcrafted, mut tiers: Vec<Tier>) -> Result<Vec<QueryRow>> {
    let mut folders = Vec::new();
    for tier in &mut tiers {
        if let Tier::File(folder) = tier {
            let own = tempfile::tempdir_in(&*folder).map_err(Failure::io("create", &*folder))?;
            *folder = own.path().to_path_buf();
            folders.push(own);
        }
    }
    measure(handcrafted, &tiers)
}

/// Nothing is computed in virtual time here. A ratio needs DRAM.
fn tiers(pmem: &Pmem, with_dram: bool) -> Vec<Tier> {
    let tier = |device: &Device| match device {
        Device::Dram => Some(Tier::Dram),
        Device::Volume(folder) => Some(Tier::File(folder.clone())),
        Device::Emulated(model) => Some(Tier::Emulated(model.clone())),
        Device::Simulated(_) => None,
    };
    let mut tiers: Vec<Tier> = pmem.devices.iter().filter_map(tier).collect();
    if with_dram && !tiers.contains(&Tier::Dram) {
        tiers.insert(0, Tier::Dram);
    }
    tiers
}

/// The seconds of a query, beside which the paper's mean nothing. Table 1 is about steps: one that this machine cannot
/// take has no number there.
fn seconds_row(figure: &str, panel: &'static str, row: &QueryRow, what: String) -> Row {
    let is_shown = figure == "14" || row.not_shown.is_none();
    let takes_two_sockets = STEPS[2..].iter().any(|step| step.name() == row.step);
    let sockets = (row.emulated && takes_two_sockets).then_some(EMULATED_SOCKETS);
    Row {
        figure: figure.to_owned(),
        panel,
        tier: match row.tier.starts_with("file:") {
            true => "volume".to_owned(),
            false => row.tier.clone(),
        },
        label: match row.emulated {
            true => Label::Emulated,
            false => Label::Real,
        },
        what,
        case: None,
        unit: SECONDS,
        value: is_shown.then_some(row.median_s),
        paper: None,
        paper_words: None,
        paper_follows: false,
        parameters: row.emulated.then(|| PARAMETERS.to_owned()),
        note: row.not_shown.or(sockets).map(str::to_owned),
    }
}

fn ratio_row(part: &Part, row: &QueryRow, what: &str, ratio: f64) -> Row {
    let stated = part.stated.iter().find(|(name, ..)| *name == what);
    let stated = stated.filter(|_| row.emulated);
    Row {
        unit: TIMES_DRAM,
        value: Some(ratio),
        paper: stated.map(|(_, paper, ..)| *paper),
        paper_words: stated.map(|(_, _, words, _)| *words),
        paper_follows: stated.is_some_and(|(.., follows)| *follows),
        ..seconds_row("14", part.panel, row, what.to_owned())
    }
}

/// Means of ratios, for each tier.
fn means(part: &Part, ratios: &[(&QueryRow, f64)]) -> Vec<Row> {
    let mut firsts: Vec<&QueryRow> = Vec::new();
    for (row, _) in ratios {
        if firsts.iter().all(|first| first.tier != row.tier) {
            firsts.push(row);
        }
    }
    let mut rows = Vec::new();
    for first in firsts {
        for (name, flights) in MEANS {
            let is_own = |(row, _): &&(&QueryRow, f64)| {
                let in_flights = flights.iter().any(|flight| row.query.starts_with(flight));
                row.tier == first.tier && in_flights
            };
            let own: Vec<f64> = ratios
                .iter()
                .filter(is_own)
                .map(|(_, ratio)| *ratio)
                .collect();
            let mean = own.iter().sum::<f64>() / own.len().max(1) as f64;
            rows.push(ratio_row(part, first, name, mean));
        }
    }
    rows
}

/// The table on a volume, look-ups in memory, over everything on the emulated device: the best step of each.
fn volume_row(found: &[QueryRow]) -> Option<Row> {
    let best = |is_own: fn(&&QueryRow) -> bool| {
        let own = found.iter().filter(is_own);
        own.min_by(|a, b| a.median_s.total_cmp(&b.median_s))
    };
    let volume = best(|row| row.tier.starts_with("file:"))?;
    let emulated = best(|row| row.emulated)?;
    Some(Row {
        label: Label::Emulated,
        unit: "times emulated memory",
        value: Some(volume.median_s / emulated.median_s),
        paper: Some(SSD_S / PERSISTENT_S[4]),
        paper_words: Some("22.8 s on an SSD, 8.6 s on persistent memory (6.2)"),
        paper_follows: true,
        note: Some("a real volume over an emulated device".to_owned()),
        ..seconds_row("table1", "Q2.1 on a volume", volume, "best step".to_owned())
    })
}
