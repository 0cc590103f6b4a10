//! A table, its Elfs and the shelf they lie on: what the figures are measured with.

use std::io;
use std::time::Instant;

use hotshelf_elf::ElfError;
use hotshelf_elf::keys::CodeTable;
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::DeviceModel;
use hotshelf_tier::probe::Pattern;

use super::super::baseline::linear::LinearElf;
use super::block_contender::Packed;
use super::contender::{Linear, Shelf};
use super::measure::{Case, Entry, Row, compare, over_time};
use super::shelf::{CPU_CACHE_BYTES, Emulated};
use super::variant::{BlockVariant, PolicyName, Variant};
use super::workload::{Queries, Query, Source};

/// Why a figure cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// An Elf refuses its table or a query.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// A shelf cannot be read.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// There is no folder for a device's file.
    #[error("cannot make a folder for the index: {0}")]
    Folder(#[from] io::Error),
}

pub type Result<T, E = FigureError> = std::result::Result<T, E>;

/// The Elf of the papers over the last cache of their machine.
const PAPER_CACHE_PART: u64 = 298;

/// The CPU's cache is at most this part of the Elf: 13.75 MB are small beside the papers' 4 GB.
const CPU_CACHE_PART: u64 = 64;

/// The papers' skew.
pub const THETA: f64 = 0.5;

/// The first levels that do best, where four are the best of ten.
pub const LEVELS: usize = 4;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Rounds of every comparison.
    pub round_count: usize,
    /// Exact queries of a round; others are fewer.
    pub exact_count: usize,
    /// Threads that build.
    pub thread_count: usize,
}

/// A table, its Elfs, and the shelf they lie on.
pub struct Bench {
    pub table: CodeTable,
    /// In the papers' layout.
    pub linear: Linear,
    /// In the product's layout.
    pub packed: Packed,
    pub emulated: Emulated,
    /// The same device without latency: what emulating costs by itself.
    pub instant: Emulated,
    /// The same device behind a CPU cache that is as small beside the Elf as in the papers.
    pub scaled: Emulated,
    pub effort: Effort,
    /// Bytes the device moves in a second.
    pub bandwidth: f64,
    /// Seconds to build `linear` on one thread.
    pub build_s: f64,
}

impl Bench {
    /// Builds both Elfs of a table.
    ///
    /// # Errors
    /// Those of building.
    pub fn new(table: CodeTable, effort: Effort) -> Result<Self> {
        let start = Instant::now();
        let linear = LinearElf::build(&table, 1)?;
        let build_s = start.elapsed().as_secs_f64();
        let options = PackedOptions {
            thread_count: effort.thread_count,
            ..Default::default()
        };
        let packed = Packed::new(PackedElf::build(&table, &options)?);
        let cpu_cache_bytes = CPU_CACHE_BYTES.min(linear.size_bytes() / CPU_CACHE_PART);
        let optane = optane();
        let mut instant = optane.clone();
        instant.read.random_latency_ns = 0;
        instant.read.sequential_latency_ns = 0;
        let mut bench = Self {
            packed,
            emulated: Emulated::new(&optane, cpu_cache_bytes),
            instant: Emulated::new(&instant, cpu_cache_bytes),
            scaled: Emulated::new(&optane, linear.size_bytes() / PAPER_CACHE_PART),
            bandwidth: optane.read.bandwidth(Pattern::Sequential, 1 << 20, 1),
            linear: Linear::new(linear),
            effort,
            build_s,
            table,
        };
        let observed = bench
            .source(THETA, 5)
            .queries(Query::Exact, effort.exact_count);
        bench.packed.observe(&observed)?;
        Ok(bench)
    }

    pub fn source(&self, theta: f64, seed: u64) -> Source<'_> {
        Source::new(&self.table, theta, seed)
    }

    /// How many queries of a kind make a round.
    pub fn count(&self, query: Query) -> usize {
        let part = match query {
            Query::Exact | Query::Miss => 1,
            Query::Range(part) if part < 0.1 => 20,
            Query::Partial(part) if part < 0.1 => 2_000,
            Query::Range(_) | Query::Partial(_) => 50_000,
        };
        (self.effort.exact_count / part).max(2)
    }

    pub fn list_share(&self, part: f64) -> usize {
        (self.linear.weights.list_count() as f64 * part) as usize
    }

    pub fn linear_bytes(&self) -> u64 {
        self.linear.elf.size_bytes()
    }

    pub fn lists<'a>(&'a self, variant: Variant) -> Entry<'a> {
        let shelf = if variant.reads_shelf() {
            Shelf::Emulated(&self.emulated)
        } else {
            Shelf::Dram
        };
        self.lists_on(variant, shelf)
    }

    pub fn lists_on<'a>(&'a self, variant: Variant, shelf: Shelf<'a>) -> Entry<'a> {
        Entry {
            layout: "linear",
            variant: variant.to_string(),
            shelf: shelf.name(),
            series: variant.to_string(),
            x: None,
            index_bytes: self.linear_bytes(),
            threads: vec![self.linear.contender(variant, shelf)],
        }
    }

    pub fn blocks<'a>(
        &'a self,
        variant: &BlockVariant,
        is_batch: bool,
        threads: usize,
    ) -> Entry<'a> {
        let shelf = if variant.reads_shelf() {
            Shelf::Emulated(&self.emulated)
        } else {
            Shelf::Dram
        };
        self.blocks_on(variant, shelf, is_batch, threads)
    }

    pub fn blocks_on<'a>(
        &'a self,
        variant: &BlockVariant,
        shelf: Shelf<'a>,
        is_batch: bool,
        threads: usize,
    ) -> Entry<'a> {
        let batch = if is_batch { ", batch" } else { "" };
        Entry {
            layout: "packed",
            variant: format!("{variant}{batch}"),
            shelf: shelf.name(),
            series: format!("packed {variant}{batch}"),
            x: None,
            index_bytes: self.packed.elf.size_bytes(),
            threads: self.packed.contenders(variant, shelf, is_batch, threads),
        }
    }

    pub fn case<'a>(&self, figure: &'a str, query: &'a str, theta: f64) -> Case<'a> {
        Case {
            figure,
            query,
            theta,
            dimension_count: self.table.dimension_count(),
        }
    }

    /// Compares entries on warm caches.
    pub fn compare(
        &self,
        figure: &str,
        query: Query,
        theta: f64,
        entries: &mut [Entry<'_>],
    ) -> Result<Vec<Row>> {
        let mut source = self.source(theta, 11);
        let warm_count = match query {
            Query::Exact | Query::Miss => self.effort.exact_count * 10,
            _ => self.count(query),
        };
        let warm_up = source.queries(query, warm_count);
        let count = self.count(query);
        let rounds: Vec<Queries> = (0..self.effort.round_count)
            .map(|_| source.queries(query, count))
            .collect();
        let name = query.name();
        let case = self.case(figure, &name, theta);
        Ok(compare(&case, entries, &warm_up, &rounds)?)
    }

    /// Asks cold entries ever longer stretches of queries.
    pub fn over_time(
        &self,
        figure: &str,
        query: Query,
        theta: f64,
        variants: &[Variant],
    ) -> Result<Vec<Row>> {
        let mut source = self.source(theta, 13);
        let (mut stretches, mut count) = (Vec::new(), (self.count(query) / 64).max(2));
        let total = match query {
            Query::Exact => self.count(query) * 16,
            _ => self.count(query) * 4,
        };
        while count <= total {
            stretches.push(source.queries(query, count));
            count *= 2;
        }
        let mut entries: Vec<_> = variants.iter().map(|one| self.lists(*one)).collect();
        let name = query.name();
        let case = self.case(figure, &name, theta);
        Ok(over_time(&case, &mut entries, &stretches)?)
    }

    pub fn split(&self, levels: usize, policy: PolicyName, part: f64) -> Variant {
        let Variant::Static(first) = Variant::levels(levels) else {
            unreachable!("levels are static");
        };
        let Variant::Dynamic(second) = Variant::dynamic(policy, self.list_share(part)) else {
            unreachable!("a policy is dynamic");
        };
        Variant::Split(first, second)
    }
}

fn optane() -> DeviceModel {
    DeviceModel::named("optane").expect("the papers' device is known")
}
