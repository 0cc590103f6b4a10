//! `hotshelf-lab ssb`: runs contenders in turn and compares their answers.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use hotshelf_cli::Opened;
use hotshelf_cli::benchmark::prepare;
use hotshelf_cli::failure::{Failure, note};
use hotshelf_cli::output::{Format, Output, Target};
use hotshelf_datagen::ssb::{SsbGenerator, SsbTable};
use hotshelf_tier::topology::Topology;

use super::bench::{Bench, Contender, Settings, Tables, Tier, crew_for, make_folder};
use super::crew::{Crew, Step};
use super::engine::Engine;
use super::flags::{Handcrafted, Ssb, What};
use super::queries::{Answer, StarQuery};
use super::report::{QueryRow, price_rows, query_rows, rate_rows};
use super::{price, rates};
use crate::failure::{ExperimentError, Result};

/// Look-ups of each thread and run when their rate is measured.
const RATE_LOOK_UPS: usize = 1 << 21;

/// Answers by query.
type Answers = BTreeMap<&'static str, Answer>;

pub fn run(ssb: &Ssb) -> Result<()> {
    match &ssb.what {
        What::Handcrafted(handcrafted) => {
            let rows = measure(handcrafted, &ssb.tiers)?;
            print(ssb.format, query_rows(&rows))
        }
        What::Rates(sizes) => run_rates(ssb, sizes),
        What::Price {
            slow,
            fast,
            gigabytes,
            time_ratio,
        } => {
            let comparison = price::compare(*slow, *fast, *gigabytes, *time_ratio);
            print(ssb.format, price_rows(&comparison))
        }
    }
}

fn print(format: Format, rows: std::result::Result<RecordBatch, ArrowError>) -> Result<()> {
    let rows = rows.map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })?;
    let mut output = Output::open(Target::Stdout, format)?;
    output.print(&rows)?;
    Ok(output.close()?)
}

fn other(error: impl std::error::Error + 'static) -> ExperimentError {
    ExperimentError::Other(Box::new(error))
}

fn run_rates(ssb: &Ssb, sizes: &[usize]) -> Result<()> {
    let crew = Crew::new(&Topology::read(), Step::Pinning, ssb.threads);
    let models = ssb.tiers.iter().filter_map(|tier| match tier {
        Tier::Emulated(model) => Some((**model).clone()),
        _ => None,
    });
    let models: Vec<_> = models.collect();
    let rates = rates::measure(sizes, &crew, &models, RATE_LOOK_UPS).map_err(other)?;
    print(ssb.format, rate_rows(&rates))
}

/// Runs all queries, contenders and steps on each tier.
///
/// # Errors
/// Those of the tables, tiers and queries, and an answer that differs from another.
pub fn measure(handcrafted: &Handcrafted, tiers: &[Tier]) -> Result<Vec<QueryRow>> {
    let generator = SsbGenerator::new(handcrafted.scale, 0).map_err(Failure::from)?;
    let with_engine = handcrafted.contenders.contains(&Contender::Engine);
    let database = with_engine
        .then(|| open(handcrafted, &generator))
        .transpose()?;
    let engine = database.as_deref().map(Engine::new);
    let mut known = Answers::new();
    if let Some(path) = &handcrafted.answers {
        known = read_answers(path, &handcrafted.queries)?;
    }
    let mut rows = Vec::new();
    let mut tables: Option<Tables> = None;
    for tier in tiers {
        if let Tier::File(folder) = tier {
            make_folder(folder).map_err(other)?;
        }
        for step in &handcrafted.steps {
            let settings = Settings {
                step: *step,
                ..handcrafted.settings.clone()
            };
            let crew = crew_for(tier, &settings);
            let tables = match tables.take().filter(|tables| tables.suit(&crew)) {
                Some(suiting) => tables.insert(suiting),
                None => {
                    note("generating the tables");
                    let contenders = &handcrafted.contenders;
                    let new = Tables::generate(&generator, &crew, contenders, tiers);
                    tables.insert(new.map_err(other)?)
                }
            };
            let bench = Bench::new(tables, crew, tier, &settings).map_err(other)?;
            let own = run_step(
                handcrafted,
                &bench,
                tier,
                &settings,
                engine.as_ref(),
                &mut known,
            )?;
            rows.extend(own);
        }
    }
    Ok(rows)
}

/// The database with the benchmark's tables: as it is if it has them, else generated.
fn open(handcrafted: &Handcrafted, generator: &SsbGenerator) -> Result<Opened> {
    let database = handcrafted.engine.open()?;
    let names = database.table_names();
    let has = |table: &SsbTable| names.iter().any(|name| name == table.name());
    if !SsbTable::ALL.iter().all(has) {
        prepare(&database, generator, handcrafted.engine.options.threads)?;
    }
    Ok(database)
}

/// All queries and contenders on one tier at one step.
fn run_step(
    handcrafted: &Handcrafted,
    bench: &Bench<'_>,
    tier: &Tier,
    settings: &Settings,
    engine: Option<&Engine<'_>>,
    known: &mut Answers,
) -> Result<Vec<QueryRow>> {
    note(&format!(
        "{}, {}: {} threads read {:.2} GB/s",
        tier.name(),
        settings.step.name(),
        bench.crew.thread_count(),
        bench.bandwidth() / 1e9
    ));
    let mut rows = Vec::new();
    let runs_here = |contender: &&Contender| contender.runs_on(tier);
    let contenders: Vec<&Contender> = handcrafted.contenders.iter().filter(runs_here).collect();
    for query in &handcrafted.queries {
        if let Some(engine) = engine {
            check(query, Contender::Engine, engine.answer(query)?, known)?;
        }
        let mut series: Vec<Series> = Vec::new();
        let mut bandwidths = Vec::new();
        for round in 0..=handcrafted.run_count {
            bandwidths.push(bench.bandwidth());
            for (idx, contender) in contenders.iter().enumerate() {
                let (run, answer) = one_run(query, **contender, bench, engine)?;
                if let Some(answer) = answer {
                    check(query, **contender, answer, known)?;
                }
                // The first run of each warms caches up.
                match round {
                    0 => series.push(Series::default()),
                    _ => series[idx].push(run),
                }
            }
        }
        bandwidths.sort_by(f64::total_cmp);
        let bandwidth = bandwidths[bandwidths.len() / 2];
        for (contender, series) in contenders.iter().zip(series) {
            let took = series.middle();
            let row = row_of(query, **contender, bench, tier, settings, bandwidth, &took);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// What is shown of a contender's median run.
fn row_of(
    query: &'static StarQuery,
    contender: Contender,
    bench: &Bench<'_>,
    tier: &Tier,
    settings: &Settings,
    bandwidth: f64,
    took: &Took,
) -> QueryRow {
    let by_hand = QueryRow {
        query: query.name,
        contender: contender.name(),
        look_ups: match contender {
            Contender::Unaware => "hash",
            _ => settings.look_ups.name(),
        },
        tier: tier.name(),
        emulated: matches!(tier, Tier::Emulated(_)),
        step: settings.step.name(),
        threads: bench.crew.thread_count(),
        median_s: took.seconds,
        build_s: took.build_s,
        bytes: took.bytes,
        bandwidth: Some(bandwidth),
        not_shown: bench.crew.missing,
    };
    match contender {
        Contender::Engine => QueryRow {
            look_ups: "own",
            tier: "own files".to_owned(),
            emulated: false,
            step: "own",
            threads: settings.threads,
            bandwidth: by_hand.bandwidth.filter(|_| *tier == Tier::Dram),
            not_shown: None,
            ..by_hand
        },
        _ => by_hand,
    }
}

/// What a run took.
#[derive(Debug, Clone, Copy)]
struct Took {
    seconds: f64,
    build_s: Option<f64>,
    bytes: u64,
}

/// The runs of one contender.
#[derive(Debug, Default)]
struct Series(Vec<Took>);

impl Series {
    fn push(&mut self, took: Took) {
        self.0.push(took);
    }

    /// The run with the median time.
    fn middle(mut self) -> Took {
        self.0.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        self.0[(self.0.len() - 1) / 2]
    }
}

fn one_run(
    query: &'static StarQuery,
    contender: Contender,
    bench: &Bench<'_>,
    engine: Option<&Engine<'_>>,
) -> Result<(Took, Option<Answer>)> {
    if let (Contender::Engine, Some(engine)) = (contender, engine) {
        let measured = engine.measure(query)?;
        let bytes = measured.bytes_cache + measured.bytes_storage;
        let took = Took {
            seconds: measured.seconds,
            build_s: None,
            bytes,
        };
        return Ok((took, None));
    }
    let run = bench.run(query, contender).map_err(other)?;
    let took = Took {
        seconds: run.seconds,
        build_s: Some(run.build_s),
        bytes: run.bytes,
    };
    Ok((took, Some(run.answer)))
}

/// The first answer of a query is the one that others are compared with.
fn check(
    query: &StarQuery,
    contender: Contender,
    answer: Answer,
    known: &mut Answers,
) -> Result<()> {
    let expected = known.entry(query.name).or_insert_with(|| answer.clone());
    if *expected == answer {
        return Ok(());
    }
    let first = expected
        .iter()
        .zip(&answer)
        .find(|(expected, found)| expected != found);
    let message = format!(
        "{} by {}: {} rows instead of {}; first difference: {first:?}",
        query.name,
        contender.name(),
        answer.len(),
        expected.len()
    );
    Err(ExperimentError::Other(message.into()))
}

/// Answers in the format of benchmarks/answers.py.
fn read_answers(path: &Path, queries: &[&'static StarQuery]) -> Result<Answers> {
    let text = std::fs::read_to_string(path).map_err(other)?;
    let document: serde_json::Value = serde_json::from_str(&text).map_err(other)?;
    let mut answers = Answers::new();
    for query in queries {
        let result = &document["queries"][query.name];
        let columns = result["columns"].as_array();
        let rows = result["rows"].as_array();
        let (Some(columns), Some(rows)) = (columns, rows) else {
            let message = format!("{} has no answer to {}", path.display(), query.name);
            return Err(ExperimentError::Other(message.into()));
        };
        let mut answer = Answer::new();
        for row in rows {
            let (mut groups, mut sum) = (Vec::new(), None);
            for (column, value) in columns.iter().zip(row.as_array().into_iter().flatten()) {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                match column.as_str() == Some(query.measure.name()) {
                    true => sum = text.parse::<i64>().ok(),
                    false => groups.push(text),
                }
            }
            answer.extend(sum.map(|sum| (groups, sum)));
        }
        answer.sort();
        answers.insert(query.name, answer);
    }
    Ok(answers)
}
