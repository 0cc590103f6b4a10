//! The Elf against scans, from 0.001 % to half of the rows.
//!
//! A clustered Elf competes with a bit-packed scan with zone maps over rows in the same order, both answering
//! with ranges of rows; an Elf beside the table with a byte-wise scan of the table, both answering with TIDs.

use std::hint::black_box;
use std::time::Instant;

use super::baseline::scan::{ColumnScan, ZoneScan};
use fastrand::Rng;
use hotshelf_elf::Result;
use hotshelf_elf::keys::{CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};

use super::compare::{maxima, median};
use super::{ElfOptions, Figure};

/// Counts the rows a query finds.
type Count<'a> = &'a dyn Fn(&QueryBox) -> Result<usize>;

/// Asked for, in percent of the rows.
const PERCENTS: [f64; 11] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 50.0,
];

const QUERY_COUNT: usize = 20;

pub(super) fn run(
    table: &CodeTable,
    options: &ElfOptions,
    show: &mut dyn FnMut(Figure),
) -> Result<()> {
    let (thread_count, maxima) = (options.thread_count, maxima(table));
    let beside = PackedOptions {
        thread_count,
        ..Default::default()
    };
    let (elf, order) = PackedElf::build_with_order(table, &beside)?;
    let clustered = PackedElf::build(
        table,
        &PackedOptions {
            clustered: true,
            ..beside
        },
    )?;
    let contenders = Contenders {
        table,
        zones: ZoneScan::new(table, &order),
        clustered,
        bytes: ColumnScan::new(table),
        elf,
    };
    contenders.show_sizes(show);
    for (first, last) in [(0, 3), (0, table.dimension_count()), (1, 4), (3, 6)] {
        let last = last.min(table.dimension_count());
        if first >= last {
            continue;
        }
        for percent in PERCENTS {
            let mut random = Rng::with_seed(percent.to_bits());
            let share = (percent / 100.0).powf(1.0 / (last - first) as f64);
            let mut shares = vec![1.0; first];
            shares.resize(last, share);
            let queries: Vec<QueryBox> = (0..QUERY_COUNT)
                .map(|_| range_box(table, &maxima, &shares, &mut random))
                .collect();
            let case = format!("dimensions {}-{last}, {percent} %", first + 1);
            contenders.compare(&case, &queries, options.round_count, show)?;
        }
    }
    Ok(())
}

struct Contenders<'a> {
    table: &'a CodeTable,
    zones: ZoneScan,
    clustered: PackedElf,
    bytes: ColumnScan<'a>,
    elf: PackedElf,
}

impl Contenders<'_> {
    fn show_sizes(&self, show: &mut dyn FnMut(Figure)) {
        for (contender, bytes) in [
            ("elf, clustered", self.clustered.size_bytes()),
            ("bit-packed scan", self.zones.size_bytes()),
            ("elf", self.elf.size_bytes()),
        ] {
            show(Figure {
                case: "size".to_owned(),
                contender: contender.to_owned(),
                value: bytes as f64 / self.table.row_count() as f64,
                unit: "bytes/row",
                ratio: None,
            });
        }
    }

    /// Times the queries; each Elf is compared with the scan before it.
    fn compare(
        &self,
        case: &str,
        queries: &[QueryBox],
        round_count: usize,
        show: &mut dyn FnMut(Figure),
    ) -> Result<()> {
        let answers: [(&str, Count<'_>); 4] = [
            ("bit-packed scan", &|query| {
                Ok(self.zones.select_rows(query)?.len())
            }),
            ("elf, clustered", &|query| {
                Ok(self.clustered.select_rows(query)?.len())
            }),
            ("byte-wise scan", &|query| {
                Ok(self.bytes.select(query)?.len())
            }),
            ("elf", &|query| Ok(self.elf.select(query)?.len())),
        ];
        let mut times = Vec::new();
        for (_, answer) in &answers {
            times.push(median_ns(queries, round_count, answer)?);
        }
        let counts = queries.iter().map(|query| self.elf.count(query));
        let row_count = (queries.len() * self.table.row_count()) as f64;
        let found = counts.sum::<Result<u64>>()? as f64 / row_count;
        for (idx, ((contender, _), ns)) in answers.iter().zip(&times).enumerate() {
            show(Figure {
                case: format!("{case} (found {:.4} %)", found * 100.0),
                contender: (*contender).to_owned(),
                value: ns / 1e3,
                unit: "us/query",
                ratio: Some(times[idx / 2 * 2] / ns),
            });
        }
        Ok(())
    }
}

/// Median time of one round of all queries, per query.
fn median_ns(
    queries: &[QueryBox],
    round_count: usize,
    answer: &dyn Fn(&QueryBox) -> Result<usize>,
) -> Result<f64> {
    let mut rounds = Vec::new();
    for _ in 0..round_count.max(1) {
        let start = Instant::now();
        for query in queries {
            black_box(answer(query)?);
        }
        rounds.push(start.elapsed().as_nanos() as f64 / queries.len() as f64);
    }
    Ok(median(rounds))
}

/// Ranges with a share of the codes of the first dimensions, around a row's codes.
fn range_box(table: &CodeTable, maxima: &[u32], shares: &[f64], random: &mut Rng) -> QueryBox {
    let row = random.usize(..table.row_count().max(1));
    let ranges = table
        .columns()
        .iter()
        .enumerate()
        .map(|(dimension, column)| {
            let share = shares.get(dimension).copied().unwrap_or(1.0);
            if share >= 1.0 {
                return Restriction::Any;
            }
            let width = ((f64::from(maxima[dimension]) + 1.0) * share)
                .round()
                .max(1.0) as u32;
            let last = maxima[dimension] + 1 - width.min(maxima[dimension] + 1);
            let lo = column
                .get(row)
                .saturating_sub(random.u32(..width.max(1)))
                .min(last);
            Restriction::Range {
                lo,
                hi: lo + width - 1,
            }
        });
    QueryBox::new(ranges.collect())
}
