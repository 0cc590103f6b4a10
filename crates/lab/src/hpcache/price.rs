//! `hotshelf-lab price`: is a byte of memory worth what the tuner says it is?
//!
//! A workload runs in turn with a budget, a little less and a little more. The difference of the times is what the
//! memory between them saved. The published price times bytes and time is shown beside it.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::Float64Type;
use arrow::error::ArrowError;
use clap::Args;
use hotshelf::internals::{parse_bandwidth, parse_size};
use hotshelf::{Database, PolicyKind, Session};
use hotshelf_cli::benchmark::policies::begin_cold;
use hotshelf_cli::failure::{Failure, note};
use hotshelf_cli::output::{Format, Output, Target};
use hotshelf_cli::progress::Progress;
use hotshelf_cli::{Engine, Resources, bad_value, text_format};
use hotshelf_datagen::tpch;

use super::sequence::Sequence;
use crate::failure::Result;
use crate::work;

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab price --db ssb10 --workload paper,skewed --budget 437MB --storage-bandwidth 900MB/s
  hotshelf-lab price --db tpch10 --workload tpch --budget 1GB --storage-bandwidth 900MB/s --runs 3 --format markdown

The workload runs twice from a cold cache with each budget; the second pass counts. The price is that of
hotshelf_shelves(), read after each query and weighted by the query's time.";

/// The price that the tuner puts on memory.
const PRICE: &str = "SELECT saved_s_per_gb_s FROM hotshelf_shelves() WHERE shelf = 0";

#[derive(Debug, Args)]
pub struct Flags {
    /// Database with the tables of the workloads
    #[arg(long, value_name = "DIR")]
    db: std::path::PathBuf,
    /// Workloads: the sequences of `hotshelf-lab hpcache`, and tpch
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    workload: Vec<String>,
    /// Cap on reads from storage, such as 300MB/s
    #[arg(long, value_name = "RATE")]
    storage_bandwidth: Option<String>,
    /// How much less and more, as a part of the budget
    #[arg(long, default_value_t = 0.05, value_name = "PART")]
    step: f64,
    /// How often each budget has its turn; medians are shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    #[command(flatten)]
    resources: Resources,
    /// Format of the result: table, csv, tsv, json, ndjson, markdown
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: String,
}

/// What the flags say.
#[derive(Debug)]
pub struct Price {
    engine: Engine,
    workloads: Vec<Workload>,
    budget_bytes: u64,
    storage_bandwidth: Option<u64>,
    step: f64,
    run_count: usize,
    format: Format,
}

/// Queries that run one after the other.
#[derive(Debug)]
struct Workload {
    name: String,
    queries: Vec<(&'static str, &'static str)>,
}

impl Flags {
    /// Makes sense of them.
    pub fn validate(self) -> Result<Price> {
        if !(self.step > 0.0 && self.step < 1.0) {
            let what = format!("--step {} is not a part of the budget", self.step);
            return Err(Failure::usage(what, "a number between 0 and 1, such as 0.05").into());
        }
        let rate = self.storage_bandwidth.as_deref().map(parse_bandwidth);
        let size = self.resources.budget.as_deref().map(parse_size);
        let budget = size.transpose().map_err(bad_value)?;
        let workloads = self.workload.iter().map(|name| workload(name));
        Ok(Price {
            engine: Engine {
                db: Some(self.db),
                options: self.resources.options()?,
            },
            workloads: workloads.collect::<Result<_>>()?,
            budget_bytes: budget.unwrap_or(437_000_000),
            storage_bandwidth: rate.transpose().map_err(bad_value)?.flatten(),
            step: self.step,
            run_count: self.runs as usize,
            format: text_format(&self.format)?,
        })
    }
}

fn workload(name: &str) -> Result<Workload> {
    if name == "tpch" {
        return Ok(Workload {
            name: name.to_owned(),
            queries: tpch::queries().to_vec(),
        });
    }
    let sequence: Sequence = name.parse().map_err(|unknown| {
        let names: Vec<&str> = Sequence::all().map(Sequence::name).collect();
        Failure::usage(
            format!("{unknown}"),
            format!("the workloads are tpch, {}", names.join(", ")),
        )
    })?;
    Ok(Workload {
        name: name.to_owned(),
        queries: sequence.queries(0),
    })
}

/// A pass over a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pass {
    seconds: f64,
    /// In seconds per byte and second, the average over the pass.
    price: f64,
}

/// What a workload took with less, with the budget, and with more.
#[derive(Debug, PartialEq)]
struct Margin {
    workload: String,
    budget_bytes: u64,
    step_bytes: f64,
    less: Pass,
    same: Pass,
    more: Pass,
}

impl Margin {
    /// What the bytes between less and more saved, in seconds of a pass.
    fn measured_s(&self) -> f64 {
        self.less.seconds - self.more.seconds
    }

    /// What the price with the budget says that they save.
    fn priced_s(&self) -> f64 {
        self.same.price * 2.0 * self.step_bytes * self.same.seconds
    }
}

pub fn run(price: &Price) -> Result<()> {
    let database = price.engine.open()?;
    let session = database.session();
    let rate = price
        .storage_bandwidth
        .map_or("none".to_owned(), |rate| rate.to_string());
    let cap = format!("SET hotshelf.storage_bandwidth = '{rate}'");
    work(&database, async { Ok(session.sql(&cap).await.map(drop)?) })?;
    let mut margins = Vec::new();
    for workload in &price.workloads {
        margins.push(margin(price, &database, &session, workload)?);
    }
    let rows = rows(&margins).map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })?;
    let mut output = Output::open(Target::Stdout, price.format)?;
    output.print(&rows)?;
    Ok(output.close()?)
}

fn margin(
    price: &Price,
    database: &Database,
    session: &Session,
    workload: &Workload,
) -> Result<Margin> {
    let step_bytes = price.budget_bytes as f64 * price.step;
    let mut passes: [Vec<Pass>; 3] = Default::default();
    for round in 0..price.run_count {
        for turn in 0..3 {
            let idx = (turn + round) % 3;
            let budget = price.budget_bytes as f64 + (idx as f64 - 1.0) * step_bytes;
            let mut progress = Progress::start(&workload.name, "queries");
            let passing = async {
                begin_cold(database, session, PolicyKind::HpCache, budget as u64).await?;
                let mut pass = Pass {
                    seconds: 0.0,
                    price: 0.0,
                };
                for is_measured in [false, true] {
                    pass = pass_over(session, workload, |done| {
                        let all = workload.queries.len();
                        let before = if is_measured { all } else { 0 };
                        progress.show((before + done) as u64, 2 * all as u64);
                    })
                    .await?;
                }
                Ok(pass)
            };
            let pass = work(database, passing)?;
            progress.clear();
            note(&format!(
                "{} with {budget:.0} bytes: {:.3} s, {:.2} s per GB and second",
                workload.name,
                pass.seconds,
                pass.price * 1e9
            ));
            passes[idx].push(pass);
        }
    }
    let [less, same, more] = passes.map(|passes| median(&passes));
    Ok(Margin {
        workload: workload.name.clone(),
        budget_bytes: price.budget_bytes,
        step_bytes,
        less,
        same,
        more,
    })
}

async fn pass_over(
    session: &Session,
    workload: &Workload,
    mut done: impl FnMut(usize),
) -> Result<Pass> {
    let (mut seconds, mut weighted) = (0.0, 0.0);
    for (idx, (_, sql)) in workload.queries.iter().enumerate() {
        let took_s = session.measure(sql).await?.seconds;
        seconds += took_s;
        weighted += took_s * read_price(session).await?;
        done(idx + 1);
    }
    Ok(Pass {
        seconds,
        price: weighted / seconds.max(f64::MIN_POSITIVE),
    })
}

async fn read_price(session: &Session) -> Result<f64> {
    let batches = session.sql(PRICE).await?.collect().await?;
    let batch = batches.first().filter(|batch| batch.num_rows() > 0);
    let price = batch.map(|batch| batch.column(0).as_primitive::<Float64Type>().value(0));
    Ok(price.unwrap_or(0.0) * 1e-9)
}

/// The median of the times and that of the prices.
fn median(passes: &[Pass]) -> Pass {
    let middle = |of: fn(&Pass) -> f64| {
        let mut values: Vec<f64> = passes.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    Pass {
        seconds: middle(|pass| pass.seconds),
        price: middle(|pass| pass.price),
    }
}

fn rows(margins: &[Margin]) -> std::result::Result<RecordBatch, ArrowError> {
    let reals = |of: &dyn Fn(&Margin) -> f64| {
        let values = margins
            .iter()
            .map(|margin| (of(margin) * 1e4).round() / 1e4);
        Arc::new(Float64Array::from_iter_values(values)) as ArrayRef
    };
    let names = margins.iter().map(|margin| margin.workload.as_str());
    let budgets = margins.iter().map(|margin| margin.budget_bytes);
    RecordBatch::try_from_iter([
        (
            "workload",
            Arc::new(StringArray::from_iter_values(names)) as ArrayRef,
        ),
        (
            "budget_bytes",
            Arc::new(UInt64Array::from_iter_values(budgets)) as ArrayRef,
        ),
        ("less_s", reals(&|margin| margin.less.seconds)),
        ("same_s", reals(&|margin| margin.same.seconds)),
        ("more_s", reals(&|margin| margin.more.seconds)),
        ("price_s_per_gb_s", reals(&|margin| margin.same.price * 1e9)),
        ("measured_s", reals(&Margin::measured_s)),
        ("priced_s", reals(&Margin::priced_s)),
        (
            "priced_over_measured",
            reals(&|margin| margin.priced_s() / margin.measured_s()),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(seconds: f64, price: f64) -> Pass {
        Pass { seconds, price }
    }

    #[test]
    fn a_price_is_right_when_it_says_what_the_bytes_between_saved() {
        let margin = Margin {
            workload: "paper".to_owned(),
            budget_bytes: 1_000_000_000,
            step_bytes: 50e6,
            less: pass(10.5, 1e-9),
            same: pass(10.0, 1e-9),
            more: pass(9.5, 1e-9),
        };
        assert!((margin.measured_s() - 1.0).abs() < 1e-9);
        assert!((margin.priced_s() - 1.0).abs() < 1e-9);
        assert_eq!(rows(&[margin]).unwrap().num_rows(), 1);
    }

    #[test]
    fn medians_are_taken_of_times_and_of_prices() {
        let passes = [pass(3.0, 1.0), pass(1.0, 2.0), pass(2.0, 3.0)];
        assert_eq!(median(&passes), pass(2.0, 2.0));
        assert_eq!(median(&[]), pass(0.0, 0.0));
    }

    #[test]
    fn workloads_have_names() {
        assert!(workload("tpch").unwrap().queries.len() == 22);
        assert!(workload("paper").unwrap().queries.len() >= 30);
        assert!(workload("nothing").is_err());
    }
}
