//! The papers' figures of selective caching.

use super::super::baseline::linear::LinearElf;
use super::super::data::uniform;
use super::bench::{Bench, LEVELS, Result, THETA};
use super::beyond::{device, gap, hits, skew};
use super::contender::{Linear, Shelf};
use super::measure::{Entry, Row, compare};
use super::recovery::{hybrid, once};
use super::subjects::figure::{subjects, subjects_on_device};
use super::variant::{PolicyName, Variant};
use super::workload::{Queries, Query, Source};

/// The capacities of the papers' best dynamic caches, as parts of all lists.
const LLA_PART: f64 = 0.038;
const NAIVE_PART: f64 = 0.152;

/// A figure that can be measured.
pub struct Figure {
    /// As `--figure` names it.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What its horizontal axis shows.
    pub x_label: &'static str,
    run: fn(&Bench, &str) -> Result<Vec<Row>>,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::new(
            "2020-3",
            "uniform access: DRAM and shelf",
            "",
            dram_and_shelf_uniform,
        ),
        Self::new(
            "2020-4",
            "uniform access: exact, range and partial matches over time",
            "log10 of queries",
            workshop_over_time,
        ),
        Self::new(
            "2020-5",
            "exact matches by selectivity",
            "part of the tuples, %",
            by_selectivity,
        ),
        Self::new("2022-3", "DRAM and shelf", "", dram_and_shelf),
        Self::new(
            "2022-4",
            "dynamic caches by policy and size",
            "capacity, % of lists",
            policies,
        ),
        Self::new(
            "2022-5",
            "exact matches over time",
            "log10 of queries",
            exact_over_time,
        ),
        Self::new(
            "2022-6",
            "2 % ranges over time",
            "log10 of queries",
            range_over_time,
        ),
        Self::new(
            "2022-7",
            "partial matches over time",
            "log10 of queries",
            partial_over_time,
        ),
        Self::new(
            "2022-8",
            "ranges on one thread and on two",
            "range, %",
            parallel,
        ),
        Self::new("skew", "skew, and DRAM of 3 % of linear", "theta", skew),
        Self::new("packed", "the gap between shelf and DRAM", "", gap),
        Self::new(
            "emulated",
            "what the emulated device delivers",
            "",
            delivered,
        ),
        Self::new("device", "a real block device", "", device),
        Self::new(
            "subjects",
            "other indexes, cached the same way",
            "",
            subjects,
        ),
        Self::new(
            "subjects-device",
            "other indexes on a real block device",
            "",
            subjects_on_device,
        ),
        Self::new("hits", "what a hit costs", "", hits),
        Self::new("hybrid", "building, copying and recovering", "", hybrid),
    ];

    const fn new(
        name: &'static str,
        title: &'static str,
        x_label: &'static str,
        run: fn(&Bench, &str) -> Result<Vec<Row>>,
    ) -> Self {
        Self {
            name,
            title,
            x_label,
            run,
        }
    }

    /// Measures it.
    ///
    /// # Errors
    /// Those of the queries.
    pub fn measure(&self, bench: &Bench) -> Result<Vec<Row>> {
        (self.run)(bench, self.name)
    }
}

const KINDS: [Query; 5] = [
    Query::Exact,
    Query::Range(0.02),
    Query::Range(1.0),
    Query::Partial(0.02),
    Query::Partial(1.0),
];

fn kinds(bench: &Bench, figure: &str, theta: f64) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for query in KINDS {
        let instant = Entry {
            shelf: "emulated:instant",
            ..bench.lists_on(Variant::Pure, Shelf::Emulated(&bench.instant))
        };
        let mut entries = [
            bench.lists(Variant::Volatile),
            bench.lists(Variant::Pure),
            instant,
        ];
        rows.extend(bench.compare(figure, query, theta, &mut entries)?);
    }
    Ok(rows)
}

fn dram_and_shelf(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    kinds(bench, figure, THETA)
}

fn dram_and_shelf_uniform(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    kinds(bench, figure, 0.0)
}

fn policies(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for query in [Query::Exact, Query::Range(0.02)] {
        let mut entries = vec![
            bench.lists(Variant::Volatile),
            bench.lists(Variant::Pure),
            bench.lists(Variant::Dual),
        ];
        for part in [0.0025, 0.01, LLA_PART, NAIVE_PART] {
            for policy in PolicyName::ALL {
                let variant = Variant::dynamic(policy, bench.list_share(part));
                let mut entry = bench.lists(variant);
                entry.series = policy.to_string();
                entry.x = Some(part * 100.0);
                entries.push(entry);
            }
        }
        for entry in &mut entries[..3] {
            entry.x = Some(0.0);
        }
        rows.extend(bench.compare(figure, query, THETA, &mut entries)?);
    }
    Ok(rows)
}

fn levels(bench: &Bench, policy: PolicyName, part: f64) -> Vec<Variant> {
    let mut variants = vec![
        Variant::Volatile,
        Variant::Pure,
        Variant::dynamic(policy, bench.list_share(part)),
    ];
    variants.extend([1, 2, 3, LEVELS, 6].map(Variant::levels));
    variants.push(bench.split(LEVELS, policy, part));
    variants
}

fn exact_over_time(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let variants = levels(bench, PolicyName::Lla, LLA_PART);
    bench.over_time(figure, Query::Exact, THETA, &variants)
}

fn range_over_time(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let variants = levels(bench, PolicyName::Naive, NAIVE_PART);
    bench.over_time(figure, Query::Range(0.02), THETA, &variants)
}

fn partial_over_time(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let variants = levels(bench, PolicyName::Naive, NAIVE_PART);
    bench.over_time(figure, Query::Partial(0.02), THETA, &variants)
}

fn workshop_over_time(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let mut variants = vec![
        Variant::Volatile,
        Variant::Pure,
        Variant::dynamic(PolicyName::Naive, bench.list_share(1.0) + 1),
    ];
    variants.extend([1, 2, 3].map(Variant::levels));
    variants.push(bench.split(1, PolicyName::Naive, 1.1));
    let mut rows = Vec::new();
    for query in [Query::Exact, Query::Range(0.02), Query::Partial(0.02)] {
        rows.extend(bench.over_time(figure, query, 0.0, &variants)?);
    }
    Ok(rows)
}

fn by_selectivity(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for part in [0.01, 0.05, 0.1, 0.25, 0.5, 1.0] {
        let variants = [
            Variant::Volatile,
            Variant::Pure,
            Variant::levels(3),
            bench.split(3, PolicyName::Naive, part),
        ];
        let mut entries: Vec<_> = variants.into_iter().map(|one| bench.lists(one)).collect();
        for (entry, series) in entries
            .iter_mut()
            .zip(["volatile", "pure", "static 3", "split"])
        {
            entry.series = series.to_owned();
            entry.x = Some(part * 100.0);
        }
        let mut source = bench.source(0.0, 17).within(part);
        let warm_up = source.queries(Query::Exact, bench.effort.exact_count * 10);
        let rounds: Vec<Queries> = (0..bench.effort.round_count)
            .map(|_| source.queries(Query::Exact, bench.effort.exact_count))
            .collect();
        let case = bench.case(figure, "exact", 0.0);
        rows.extend(compare(&case, &mut entries, &warm_up, &rounds)?);
    }
    Ok(rows)
}

/// Values of a dimension, and parts of them that a range takes.
const CARDINALITIES: [u32; 3] = [20, 50, 100];
const PARTS: [f64; 4] = [0.05, 0.2, 0.5, 1.0];

/// Large ranges visit most of a table: this part of the others' rows.
const PARALLEL_PART: usize = 20;

fn parallel(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let dimension_count = bench.table.dimension_count();
    for cardinality in CARDINALITIES {
        let row_count = bench.table.row_count() / PARALLEL_PART;
        let table = uniform(row_count, dimension_count, cardinality)?;
        let linear = Linear::new(LinearElf::build(&table, 1)?);
        let index_bytes = linear.elf.size_bytes();
        for (part, range) in PARTS
            .into_iter()
            .flat_map(|part| [Query::Range(part), Query::Partial(part)].map(|query| (part, query)))
        {
            let mut entries: Vec<Entry<'_>> = [(0, 1), (0, 2), (LEVELS, 1), (LEVELS, 2)]
                .into_iter()
                .map(|(levels, threads)| Entry {
                    layout: "linear",
                    variant: format!("static({levels} levels), {threads} threads a query"),
                    shelf: "emulated:optane",
                    series: format!("{levels} levels, {threads} threads"),
                    x: Some(part * 100.0),
                    index_bytes,
                    threads: vec![linear.parallel(levels, &bench.emulated, threads)],
                })
                .collect();
            let mut source = Source::new(&table, THETA, 19);
            let count = match part < 0.3 {
                true => (bench.effort.exact_count / 1_000).max(4),
                false => 4,
            };
            let warm_up = source.queries(range, 2);
            let rounds: Vec<Queries> = (0..bench.effort.round_count.min(3))
                .map(|_| source.queries(range, count))
                .collect();
            let kind = if matches!(range, Query::Range(_)) {
                "range"
            } else {
                "partial"
            };
            let name = format!("{kind}, {cardinality} values");
            let case = bench.case(figure, &name, THETA);
            rows.extend(compare(&case, &mut entries, &warm_up, &rounds)?);
        }
    }
    Ok(rows)
}

/// Table 1 of both papers, as the emulator delivers it: accesses a second, one at a time.
fn delivered(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let (random_ns, sequential_ns) = bench.emulated.delivered_ns();
    let ns = [
        ("random read", random_ns),
        ("sequential read", sequential_ns),
    ];
    let rows = ns
        .into_iter()
        .map(|(what, ns)| once(bench, figure, what, "emulated:optane", ns as f64 * 1e-9));
    Ok(rows.collect())
}
