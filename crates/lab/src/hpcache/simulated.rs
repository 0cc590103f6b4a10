//! The paper's figures, simulated on an analytic model of its server. No number here is a measurement.

use crate::policy::CachePolicy;
use crate::simulate::{
    Machine, Setup, Simulated, Trace, paper_alternation, paper_machine, paper_query,
    paper_sequence, simulate, simulate_placed,
};
use hotshelf_cache::model::Smoothing;
use hotshelf_cache::tuner::TunerOptions;
use hotshelf_cli::picture::{Figure, Panel, Series};

use super::{title, unknown_figure};
use crate::failure::ExperimentError;

const GB: u64 = 1_000_000_000;

/// Drives that the paper's figures sweep over; each reads 7 GB/s.
const DRIVES: [u32; 7] = [1, 2, 4, 8, 12, 16, 24];

const SERVER: &str =
    "simulated: the paper's server (7 GB/s a drive), SSB scale 1000, 96 GB a query";

/// Reading alone reaches more than the 232 GB/s of the STREAM triad, whose stores cost reads of their own.
const READ_BANDWIDTH: f64 = 310e9;

/// A figure of the paper at the paper's scale.
///
/// # Errors
/// [`ExperimentError::UnknownFigure`].
pub fn figure(number: u32) -> Result<Figure, ExperimentError> {
    let title = title(number, "simulated")?;
    let (subtitle, panels) = match number {
        1 => ("nothing cached", vec![by_bandwidth()]),
        3 => ("24 drives", vec![placements()]),
        4 => ("4 drives", vec![by_share(&[4])]),
        5 => ("1 to 24 drives", vec![by_share(&DRIVES)]),
        6 => ("4 drives, 25 GB cache", vec![predictions("Q1.3")]),
        7 => ("4 drives, 25 GB cache", vec![predictions("Q3.1")]),
        8 => ("4 drives, 80 GB cache", smoothing()),
        10 => ("4 drives, 40 GB cache", vec![overhead()]),
        11 => ("4 drives, 80 GB cache", sequence(80)),
        12 => ("4 drives, 120 GB cache", sequence(120)),
        13 => ("80 GB cache", vec![sequence_by_bandwidth()]),
        14 => ("4 drives", vec![sequence_by_cache()]),
        _ => return Err(unknown_figure(number, "simulated")),
    };
    Ok(Figure {
        title: title.to_owned(),
        subtitle: format!("{SERVER}; {subtitle}"),
        panels,
    })
}

fn gb_per_s(drives: u32) -> f64 {
    f64::from(7 * drives)
}

fn reading_machine(drives: u32) -> Machine {
    Machine {
        memory_bandwidth: READ_BANDWIDTH,
        setup_s: 0.01,
        ..paper_machine(drives)
    }
}

fn single(name: &str, count: usize) -> Trace {
    paper_query(name, count).unwrap_or_else(paper_sequence)
}

fn by_bandwidth() -> Panel {
    let mut panel = Panel::new("", "storage bandwidth (GB/s)", "time (s)");
    for (name, label) in [("Q1.3", "data-intensive"), ("Q3.1", "processing-intensive")] {
        let trace = single(name, 1);
        let at = |share: f64| {
            let time_s = |drives| simulate_placed(&reading_machine(drives), &trace, 0, share);
            DRIVES
                .map(|drives| (gb_per_s(drives), time_s(drives)))
                .to_vec()
        };
        panel.series.push(Series {
            label: format!("{name} ({label})"),
            points: at(0.0),
        });
        panel.series.push(Series {
            label: format!("{name} in memory"),
            points: at(1.0),
        });
    }
    panel
}

fn placements() -> Panel {
    let queries = ["Q1.1", "Q1.3", "Q3.1"];
    let time_s =
        |name: &str, share| simulate_placed(&reading_machine(24), &single(name, 1), 0, share);
    let series =
        [("in memory", 1.0), ("half", 0.5), ("on storage", 0.0)].map(|(label, share)| Series {
            label: label.to_owned(),
            points: (0u32..)
                .zip(queries)
                .map(|(idx, name)| (f64::from(idx), time_s(name, share) / time_s(name, 0.0)))
                .collect(),
        });
    Panel {
        groups: queries.map(str::to_owned).to_vec(),
        series: series.to_vec(),
        ..Panel::new("", "query", "time relative to storage")
    }
}

fn by_share(drive_counts: &[u32]) -> Panel {
    let trace = single("Q2.2", 1);
    let point = |drives, percent: u32| {
        let share = f64::from(percent) / 100.0;
        (
            f64::from(percent),
            simulate_placed(&paper_machine(drives), &trace, 0, share),
        )
    };
    let series = drive_counts.iter().map(|drives| Series {
        label: format!("{} GB/s", gb_per_s(*drives)),
        points: (0..=20).map(|step| point(*drives, 5 * step)).collect(),
    });
    Panel {
        series: series.collect(),
        ..Panel::new("", "input in memory (%)", "time (s)")
    }
}

/// Two runs of a query; what the tuner predicted at each step, and what the second run took.
fn predictions(name: &str) -> Panel {
    let setup = Setup {
        budget_bytes: 25 * GB,
        tuner: TunerOptions {
            period_ms: 100,
            ..TunerOptions::default()
        },
        ..Setup::default()
    };
    let trace = single(name, 2);
    let run = simulate(&reading_machine(4), &trace, &setup);
    let in_memory_s = simulate_placed(&reading_machine(4), &trace, 0, 1.0);
    let end_s = run.queries[0].time_s;
    let first = || {
        run.predictions
            .iter()
            .filter(|prediction| prediction.query_idx == 0)
    };
    let line = |label: &str, points: Vec<(f64, f64)>| Series {
        label: label.to_owned(),
        points,
    };
    let level = |label: &str, y: f64| line(label, vec![(0.0, y), (end_s, y)]);
    Panel {
        series: vec![
            line(
                "predicted, with this cache",
                first().map(|p| (p.at_s, p.predicted_s)).collect(),
            ),
            line(
                "predicted, in memory",
                first().map(|p| (p.at_s, p.in_memory_s)).collect(),
            ),
            level("actual, second run", run.queries[1].time_s),
            level("actual, in memory", in_memory_s),
        ],
        ..Panel::new(
            "",
            "time since the first run began (s)",
            "time of the query (s)",
        )
    }
}

/// The look-back windows of Figure 8, as settings and as options; the last is the product's own choice among several.
pub(super) fn windows() -> Vec<(&'static str, &'static str, TunerOptions)> {
    let with = |smoothing| TunerOptions::default().with_smoothing(smoothing);
    let half_life = |queries| with(Smoothing::half_life(queries));
    vec![
        (
            "last 15",
            "last 15",
            with(Smoothing::Fixed { query_count: 15 }),
        ),
        ("a = 1 - 2^-1", "1 query", half_life(1.0)),
        ("a = 1 - 2^-1/2", "2 queries", half_life(2.0)),
        ("a = 1 - 2^-1/4", "4 queries", half_life(4.0)),
        ("a = 1 - 2^-1/16", "16 queries", half_life(16.0)),
        ("competing", "auto", TunerOptions::default()),
    ]
}

fn smoothing() -> Vec<Panel> {
    let runs: Vec<(&str, Simulated)> = windows()
        .into_iter()
        .map(|(label, _, tuner)| {
            let setup = Setup {
                tuner,
                budget_bytes: 80 * GB,
                ..Setup::default()
            };
            (
                label,
                simulate(&paper_machine(4), &paper_alternation(), &setup),
            )
        })
        .collect();
    let runs = runs.into_iter().map(|(label, run)| {
        let times = run.queries.iter().map(|query| query.time_s);
        (label.to_owned(), times.collect())
    });
    per_query_and_sum(runs.collect())
}

/// A panel of times per query and one of their running sums.
pub(super) fn per_query_and_sum(runs: Vec<(String, Vec<f64>)>) -> Vec<Panel> {
    let mut each = Panel::new("each query", "query", "time (s)");
    let mut sum = Panel::new("sum so far", "query", "time (s)");
    for (label, times_s) in runs {
        let sums = times_s.iter().scan(0.0, |sum, time_s| {
            *sum += time_s;
            Some(*sum)
        });
        let total_s: f64 = times_s.iter().sum();
        sum.series
            .push(Series::numbered(format!("{label}: {total_s:.1} s"), sums));
        each.series.push(Series::numbered(label, times_s));
    }
    vec![each, sum]
}

/// The simulator's tuner takes no virtual time, so that both bars differ by its decisions only.
fn overhead() -> Panel {
    let queries = ["Q1.3", "Q3.1"];
    let time_s = |name: &str, period_ms| {
        let setup = Setup {
            budget_bytes: 40 * GB,
            tuner: TunerOptions {
                period_ms,
                ..TunerOptions::default()
            },
            ..Setup::default()
        };
        let run = simulate(&reading_machine(4), &single(name, 8), &setup);
        run.queries[4..]
            .iter()
            .map(|query| query.time_s)
            .sum::<f64>()
            / 4.0
    };
    let series =
        [("tuned every 200 ms", 200), ("tuned every 10 s", 10_000)].map(|(label, period_ms)| {
            Series {
                label: label.to_owned(),
                points: (0u32..)
                    .zip(queries)
                    .map(|(idx, name)| (f64::from(idx), time_s(name, period_ms)))
                    .collect(),
            }
        });
    Panel {
        groups: queries.map(str::to_owned).to_vec(),
        series: series.to_vec(),
        ..Panel::new("", "query", "time (s)")
    }
}

fn setup(policy: CachePolicy, cache_gb: u64) -> Setup {
    Setup {
        policy,
        budget_bytes: cache_gb * GB,
        ..Setup::default()
    }
}

fn in_memory() -> Setup {
    Setup {
        is_warm: true,
        ..setup(CachePolicy::All, 1000)
    }
}

const SHOWN: [CachePolicy; 5] = [
    CachePolicy::None,
    CachePolicy::Lru,
    CachePolicy::Mru,
    CachePolicy::HpCachePaper,
    CachePolicy::HpCache,
];

fn sequence(cache_gb: u64) -> Vec<Panel> {
    let setups = SHOWN.map(|policy| (policy.name(), setup(policy, cache_gb)));
    let setups = setups.into_iter().chain([("memory", in_memory())]);
    let runs = setups.map(|(label, setup)| {
        let run = simulate(&paper_machine(4), &paper_sequence(), &setup);
        let times = run.queries.iter().map(|query| query.time_s);
        (label.to_owned(), times.collect())
    });
    per_query_and_sum(runs.collect())
}

fn total_s(drives: u32, setup: &Setup) -> f64 {
    simulate(&paper_machine(drives), &paper_sequence(), setup).total_s()
}

fn sequence_by_bandwidth() -> Panel {
    let line = |label: &str, setup: &Setup| Series {
        label: label.to_owned(),
        points: DRIVES
            .map(|drives| (gb_per_s(drives), total_s(drives, setup)))
            .to_vec(),
    };
    let policies = SHOWN.map(|policy| line(policy.name(), &setup(policy, 80)));
    Panel {
        series: policies
            .into_iter()
            .chain([line("memory", &in_memory())])
            .collect(),
        ..Panel::new("", "storage bandwidth (GB/s)", "time of the sequence (s)")
    }
}

fn sequence_by_cache() -> Panel {
    const SIZES: [u64; 10] = [20, 40, 60, 80, 100, 120, 140, 160, 180, 200];
    let line = |label: &str, of: &dyn Fn(u64) -> Setup| Series {
        label: label.to_owned(),
        points: SIZES.map(|gb| (gb as f64, total_s(4, &of(gb)))).to_vec(),
    };
    let policies = SHOWN.map(|policy| line(policy.name(), &|gb| setup(policy, gb)));
    Panel {
        series: policies
            .into_iter()
            .chain([line("memory", &|_| in_memory())])
            .collect(),
        ..Panel::new("", "cache (GB)", "time of the sequence (s)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_intensive_queries_gain_from_bandwidth_and_others_stop_gaining() {
        let figure = figure(1).unwrap();
        let time_s = |series: usize, gb_per_s: f64| {
            let points = &figure.panels[0].series[series].points;
            points.iter().find(|point| point.0 == gb_per_s).unwrap().1
        };
        assert!(time_s(0, 28.0) > 5.0 * time_s(1, 28.0));
        assert!(time_s(2, 28.0) < 1.05 * time_s(3, 28.0));
    }

    #[test]
    fn the_middle_of_figure_4_is_flat() {
        let figure = figure(4).unwrap();
        let points = &figure.panels[0].series[0].points;
        assert!(points[0].1 > 2.0 * points[20].1);
        assert!((points[15].1 / points[20].1 - 1.0).abs() < 0.03);
    }

    #[test]
    fn unknown_figures_are_refused_with_those_there_are() {
        for number in [0, 2, 15] {
            let error = figure(number).unwrap_err().to_string();
            assert!(error.contains("1, 3, 4"), "{error}");
        }
    }
}
