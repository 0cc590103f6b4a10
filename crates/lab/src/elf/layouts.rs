//! `packed` against `linear`, the papers' layout, one thread.

use std::ops::Range;
use std::time::Instant;

use super::baseline::linear::{LinearElf, UniformEstimate, Wide};
use super::baseline::scan::ColumnScan;
use fastrand::Rng;
use hotshelf_elf::Result;
use hotshelf_elf::keys::{CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};

use super::compare::{checksum, compare, maxima};
use super::{ElfOptions, Figure};

const KEY_COUNT: usize = 500_000;

/// Partial matches should return about this many rows.
const PARTIAL_ROWS: u64 = 64;

pub(super) fn run(
    table: &CodeTable,
    options: &ElfOptions,
    show: &mut dyn FnMut(Figure),
) -> Result<()> {
    let row_count = table.row_count() as f64;
    let mut rate = |contender: &str, start: Instant, first: Option<f64>| {
        let value = row_count / start.elapsed().as_secs_f64();
        let ratio = first.map(|first| value / first);
        let (case, contender) = ("build".to_owned(), contender.to_owned());
        show(Figure {
            case,
            contender,
            value,
            unit: "rows/s",
            ratio,
        });
        value
    };
    let start = Instant::now();
    let linear = LinearElf::<Wide>::build(table, 1)?;
    let first = rate("linear, 1 thread", start, None);
    let start = Instant::now();
    let packed = PackedElf::build(table, &PackedOptions::default())?;
    rate("packed, 1 thread", start, Some(first));
    let start = Instant::now();
    let thread_count = options.thread_count;
    drop(PackedElf::build(
        table,
        &PackedOptions {
            thread_count,
            ..Default::default()
        },
    )?);
    rate(
        &format!("packed, {thread_count} threads"),
        start,
        Some(first),
    );
    for (contender, bytes) in [
        ("linear", linear.size_bytes()),
        ("packed", packed.size_bytes()),
    ] {
        show(Figure {
            case: "size".to_owned(),
            contender: contender.to_owned(),
            value: bytes as f64 / row_count,
            unit: "bytes/row",
            ratio: Some(bytes as f64 / linear.size_bytes() as f64),
        });
    }
    oracle(table, &linear, show);
    Layouts {
        table,
        maxima: maxima(table),
        linear,
        packed,
        options,
    }
    .run(show)
}

/// What uniform columns should give, level by level; the ratio is found over expected.
fn oracle(table: &CodeTable, linear: &LinearElf<Wide>, show: &mut dyn FnMut(Figure)) {
    let first = table.columns()[0].max();
    if table.columns().iter().any(|column| column.max() != first) {
        return;
    }
    let expected =
        UniformEstimate::new(table.row_count() as u64, table.dimension_count(), first + 1);
    let mut row = |contender: String, value: f64, unit: &'static str, expected: f64| {
        let (case, ratio) = ("linear over its formula".to_owned(), Some(value / expected));
        show(Figure {
            case,
            contender,
            value,
            unit,
            ratio,
        });
    };
    let bytes = linear.size_bytes() as f64;
    row("size".to_owned(), bytes, "bytes", expected.size_bytes(2));
    let counts = linear.level_counts();
    for (level, (count, expected)) in counts.iter().zip(&expected.levels).enumerate() {
        // Rarer lists than these scatter too much to say anything.
        if expected.lists >= 1_000.0 {
            let lists = count.list_count as f64;
            row(
                format!("level {}", level + 1),
                lists,
                "lists",
                expected.lists,
            );
        }
    }
}

struct Layouts<'a> {
    table: &'a CodeTable,
    maxima: Vec<u32>,
    linear: LinearElf<Wide>,
    packed: PackedElf,
    options: &'a ElfOptions,
}

/// An exact query: the key, and where its TIDs go.
type Exact<'a> = &'a dyn Fn(&[u32], &mut Vec<u32>) -> Result<()>;

impl Layouts<'_> {
    fn run(&self, show: &mut dyn FnMut(Figure)) -> Result<()> {
        let mut random = Rng::with_seed(7);
        self.exact_cases(&mut random, show)?;
        let ranges: Vec<QueryBox> = (0..50_000).map(|_| self.range_box(&mut random)).collect();
        self.select("2 % ranges on all dimensions", &ranges, &[], show)?;
        self.partial_cases(&mut random, show)?;
        self.count_case(&mut random, show)
    }

    /// Keys that exist, and keys that differ from them in the last dimension.
    fn exact_cases(&self, random: &mut Rng, show: &mut dyn FnMut(Figure)) -> Result<()> {
        let dimension_count = self.table.dimension_count();
        let hits: Vec<u32> = (0..KEY_COUNT)
            .flat_map(|_| {
                self.table
                    .row(random.usize(..self.table.row_count().max(1)))
            })
            .collect();
        let mut misses = hits.clone();
        for last in misses
            .iter_mut()
            .skip(dimension_count - 1)
            .step_by(dimension_count)
        {
            *last = last.wrapping_add(1) % (self.maxima[dimension_count - 1] + 1);
        }
        self.exact("exact, keys of rows", &hits, show)?;
        self.exact("exact, near misses", &misses, show)
    }

    /// Equality on the first dimensions, without the first one, and behind wildcards.
    fn partial_cases(&self, random: &mut Rng, show: &mut dyn FnMut(Figure)) -> Result<()> {
        let dimension_count = self.table.dimension_count();
        let prefixes = self.packed.prefix_counts();
        let is_enough = |&count: &u64| self.table.row_count() as u64 / count <= PARTIAL_ROWS;
        let first = prefixes
            .iter()
            .position(is_enough)
            .map_or(dimension_count, |at| at + 1);
        let name = |from: usize, to: usize| format!("equal on dimensions {}-{to}", from + 1);
        for (from, count) in [(0, 50_000), (1, 200)] {
            let queries = self.equal_boxes(from..first, count, random);
            self.select(&name(from, first), &queries, &[], show)?;
        }
        let scan = ColumnScan::new(self.table);
        for from in [first, 2 * first]
            .into_iter()
            .filter(|from| from + 1 < dimension_count)
        {
            let to = dimension_count.min(from + 3);
            let queries = self.equal_boxes(from..to, 5, random);
            self.select(&name(from, to), &queries, &[scan], show)?;
        }
        Ok(())
    }

    /// Queries for a row's codes in some dimensions.
    fn equal_boxes(
        &self,
        dimensions: Range<usize>,
        count: usize,
        random: &mut Rng,
    ) -> Vec<QueryBox> {
        let query = |_| {
            let row = random.usize(..self.table.row_count().max(1));
            let restriction = |dimension: usize| match dimensions.contains(&dimension) {
                true => Restriction::exactly(self.table.columns()[dimension].get(row)),
                false => Restriction::Any,
            };
            QueryBox::new((0..self.table.dimension_count()).map(restriction).collect())
        };
        (0..count).map(query).collect()
    }

    /// `packed` counts from its head and needs more queries to be timed at all.
    fn count_case(&self, random: &mut Rng, show: &mut dyn FnMut(Figure)) -> Result<()> {
        let queries: Vec<QueryBox> = (0..20_000)
            .map(|_| {
                let mut query = self.range_box(random).dimensions()[..2].to_vec();
                query.resize(self.table.dimension_count(), Restriction::Any);
                QueryBox::new(query)
            })
            .collect();
        let few = &queries[..200];
        let total = |count: &dyn Fn(&QueryBox) -> Result<u64>, queries: &[QueryBox]| {
            queries.iter().map(count).sum::<Result<u64>>()
        };
        let case = "count of 2 % ranges on dimensions 1-2";
        let round_count = self.options.round_count;
        let mut linear_rate = f64::NAN;
        let linear = || total(&|query| self.linear.count(query), few);
        compare(
            case,
            few.len(),
            round_count,
            &[("linear", &linear)],
            &mut |figure| {
                linear_rate = figure.value;
                show(figure);
            },
        )?;
        let packed = || total(&|query| self.packed.count(query), &queries);
        assert_eq!(
            linear()?,
            total(&|query| self.packed.count(query), few)?,
            "{case}: contenders disagree"
        );
        compare(
            case,
            queries.len(),
            round_count,
            &[("packed", &packed)],
            &mut |mut figure| {
                figure.ratio = Some(figure.value / linear_rate);
                show(figure);
            },
        )
    }

    /// Ranges of 2 % of each dimension's codes, at least one, around a row's.
    fn range_box(&self, random: &mut Rng) -> QueryBox {
        let row = random.usize(..self.table.row_count().max(1));
        let ranges = self
            .table
            .columns()
            .iter()
            .zip(&self.maxima)
            .map(|(column, max)| {
                let width = (max / 50).max(1);
                let lo = column.get(row).saturating_sub(random.u32(..width.max(1)));
                Restriction::Range {
                    lo,
                    hi: lo + width - 1,
                }
            });
        QueryBox::new(ranges.collect())
    }

    fn exact(&self, case: &str, keys: &[u32], show: &mut dyn FnMut(Figure)) -> Result<()> {
        let dimension_count = self.table.dimension_count();
        let one_by_one = |exact: Exact<'_>| -> Result<u64> {
            let (mut tids, mut total) = (Vec::new(), 0);
            for key in keys.chunks_exact(dimension_count) {
                tids.clear();
                exact(key, &mut tids)?;
                total += checksum(&tids);
            }
            Ok(total)
        };
        let linear = || one_by_one(&|key, tids| self.linear.exact(key, tids));
        let packed = || one_by_one(&|key, tids| self.packed.exact(key, tids));
        let batch = || -> Result<u64> {
            let mut total = 0;
            self.packed
                .exact_batch(keys, |_, tid| total += u64::from(tid) + 1)?;
            Ok(total)
        };
        let contenders: [(&str, &dyn Fn() -> Result<u64>); 3] = [
            ("linear", &linear),
            ("packed", &packed),
            ("packed, batch", &batch),
        ];
        compare(
            case,
            keys.len() / dimension_count,
            self.options.round_count,
            &contenders,
            show,
        )
    }

    fn select(
        &self,
        case: &str,
        queries: &[QueryBox],
        scans: &[ColumnScan<'_>],
        show: &mut dyn FnMut(Figure),
    ) -> Result<()> {
        let total = |select: &dyn Fn(&QueryBox) -> Result<Vec<u32>>| -> Result<u64> {
            let mut total = 0;
            for query in queries {
                total += checksum(&select(query)?);
            }
            Ok(total)
        };
        let linear = || total(&|query| self.linear.select(query));
        let packed = || total(&|query| self.packed.select(query));
        let scan = || total(&|query| scans[0].select(query));
        let mut contenders: Vec<(&str, &dyn Fn() -> Result<u64>)> =
            vec![("linear", &linear), ("packed", &packed)];
        if !scans.is_empty() {
            contenders.push(("byte-wise scan", &scan));
        }
        compare(
            case,
            queries.len(),
            self.options.round_count,
            &contenders,
            show,
        )
    }
}
