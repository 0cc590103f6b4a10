//! Past the papers: skew, `packed`, and a real device.

use std::sync::Arc;

use super::bench::{Bench, LEVELS, Result, THETA};
use super::contender::Shelf;
use super::device::Device;
use super::filter::MissFilter;
use super::list_cache::Capacity;
use super::measure::{Entry, Row, compare};
use super::statics::Choice;
use super::variant::{BlockVariant, DynamicChoice, PolicyName, StaticChoice, Variant};
use super::workload::{Queries, Query};

/// What 3 % of the `linear` bytes buy, beside what the papers' variants need.
pub const DRAM_PART: f64 = 0.03;

/// Misses of which one is offered where a cache must not cost anything when it is of no use.
pub const SAMPLED: u32 = 16;

/// Bytes of blocks of `packed` within a part of the `linear` bytes: what remains of it after the head and the table.
pub fn cache_bytes(bench: &Bench, part: f64) -> u64 {
    // A frame has a number and two neighbours besides its bytes.
    room(bench, part, 2, 24)
}

/// The same where references are swizzled.
fn swizzled_bytes(bench: &Bench, part: f64) -> u64 {
    room(bench, part, 4, 2)
}

/// Bytes of blocks within a part of the `linear` bytes, if each block of the Elf and each held one has some besides.
fn room(bench: &Bench, part: f64, block_extra: u64, frame_extra: u64) -> u64 {
    let (elf, block_bytes) = (&bench.packed.elf, bench.packed.elf.block_bytes() as u64);
    let table = elf.leaf_bytes() / block_bytes * block_extra;
    let all = (bench.linear_bytes() as f64 * part) as u64;
    all.saturating_sub(elf.head_bytes() + table) * block_bytes / (block_bytes + frame_extra)
}

pub fn skew(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let bytes = cache_bytes(bench, DRAM_PART);
    let list_bytes = (bench.linear_bytes() as f64 * DRAM_PART) as u64;
    let mut rows = Vec::new();
    for theta in [0.0, 0.5, 0.75, 0.99] {
        let mut entries = list_entries(bench, list_bytes);
        let blocks = |variant: &BlockVariant, threads| {
            let shelf = match variant.reads_shelf() {
                true => Shelf::Emulated(&bench.scaled),
                false => Shelf::Dram,
            };
            bench.blocks_on(variant, shelf, false, threads)
        };
        entries.push(blocks(&BlockVariant::Volatile, 1));
        entries.push(blocks(&BlockVariant::Pure, 1));
        for policy in PolicyName::ALL {
            entries.push(blocks(&BlockVariant::Dynamic(policy, bytes, 1), 1));
        }
        let more = cache_bytes(bench, 0.05);
        for (policy, bytes) in [
            (PolicyName::Sieve, bytes),
            (PolicyName::Sieve, more),
            (PolicyName::S3Fifo, more),
        ] {
            entries.push(blocks(&BlockVariant::Dynamic(policy, bytes, SAMPLED), 1));
        }
        entries.push(blocks(&BlockVariant::Static(bytes), 1));
        for part in [DRAM_PART, 0.05] {
            let bytes = swizzled_bytes(bench, part);
            entries.push(blocks(&BlockVariant::SwizzledStatic(bytes), 1));
            entries.push(blocks(&BlockVariant::SwizzledNaive(bytes, SAMPLED), 1));
        }
        entries.iter_mut().for_each(|entry| entry.x = Some(theta));
        rows.extend(bench.compare(figure, Query::Exact, theta, &mut entries)?);
        let mut both = vec![
            blocks(&BlockVariant::Volatile, 2),
            blocks(&BlockVariant::Pure, 2),
            blocks(&BlockVariant::Dynamic(PolicyName::Sieve, bytes, SAMPLED), 2),
        ];
        both.iter_mut().for_each(|entry| {
            entry.x = Some(theta);
            entry.series.push_str(", 2 threads");
        });
        rows.extend(bench.compare(figure, Query::Exact, theta, &mut both)?);
    }
    Ok(rows)
}

/// Variants of `linear` with this much DRAM, and those that need none or all.
fn list_entries(bench: &Bench, bytes: u64) -> Vec<Entry<'_>> {
    let mut variants = vec![Variant::Volatile, Variant::Pure, Variant::levels(3)];
    for choice in [
        Choice::Probability(bytes),
        Choice::ProbabilityPerByte(bytes),
    ] {
        let both = [false, true].map(|swizzled| StaticChoice { choice, swizzled });
        variants.extend(both.map(Variant::Static));
    }
    let capacity = Capacity {
        lists: (bytes / 160) as usize,
        bytes: bytes / 2,
    };
    for (policy, monos) in [
        (PolicyName::Lru, false),
        (PolicyName::Sieve, false),
        (PolicyName::Sieve, true),
    ] {
        variants.push(Variant::Dynamic(DynamicChoice {
            policy,
            capacity,
            monos,
        }));
    }
    let shelf = |variant: Variant| match variant.reads_shelf() {
        true => Shelf::Emulated(&bench.scaled),
        false => Shelf::Dram,
    };
    let variants = variants.into_iter();
    variants
        .map(|variant| bench.lists_on(variant, shelf(variant)))
        .collect()
}

pub fn gap(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let swizzled_bytes = swizzled_bytes(bench, DRAM_PART);
    let variants = [
        BlockVariant::Volatile,
        BlockVariant::Pure,
        BlockVariant::Dynamic(PolicyName::Sieve, cache_bytes(bench, DRAM_PART), SAMPLED),
        BlockVariant::SwizzledNaive(swizzled_bytes, SAMPLED),
        BlockVariant::SwizzledStatic(swizzled_bytes),
    ];
    // Only keys are asked for.
    let filtered = BlockVariant::Filtered(Arc::new(MissFilter::new(&bench.table)));
    let mut rows = Vec::new();
    for query in [
        Query::Exact,
        Query::Miss,
        Query::Range(0.02),
        Query::Partial(0.02),
        Query::Range(1.0),
    ] {
        let mut entries = vec![bench.lists(Variant::Volatile), bench.lists(Variant::Pure)];
        let modes: &[bool] = match query {
            Query::Exact | Query::Miss => &[false, true],
            _ => &[false],
        };
        for &is_batch in modes {
            for variant in &variants {
                entries.push(bench.blocks(variant, is_batch, 1));
            }
            if modes.len() > 1 {
                entries.push(bench.blocks(&filtered, is_batch, 1));
            }
        }
        rows.extend(bench.compare(figure, query, THETA, &mut entries)?);
    }
    Ok(rows)
}

pub fn device(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let words = bench
        .linear
        .elf
        .words()
        .iter()
        .map(|word| word.to_le_bytes());
    let lists = Device::create(&folder.path().join("linear"), words)?;
    let words = bench
        .packed
        .elf
        .blocks()
        .iter()
        .map(|word| word.to_le_bytes());
    let blocks = Device::create(&folder.path().join("packed"), words)?;
    let bytes = cache_bytes(bench, DRAM_PART);
    let mut rows = Vec::new();
    for theta in [THETA, 0.99] {
        for query in [Query::Exact, Query::Range(0.02)] {
            let mut entries: Vec<_> = [Variant::Pure, Variant::levels(3), Variant::levels(LEVELS)]
                .map(|variant| bench.lists_on(variant, Shelf::Device(&lists)))
                .into();
            for (variant, is_batch) in [
                (BlockVariant::Pure, false),
                (BlockVariant::Pure, true),
                (BlockVariant::Dynamic(PolicyName::Sieve, bytes, 1), false),
                (
                    BlockVariant::SwizzledNaive(swizzled_bytes(bench, DRAM_PART), 1),
                    false,
                ),
            ] {
                entries.push(bench.blocks_on(&variant, Shelf::Device(&blocks), is_batch, 1));
            }
            let count = (bench.count(query) / 100).max(20);
            let mut source = bench.source(theta, 23);
            let warm_up = source.queries(query, count * 100);
            let rounds: Vec<Queries> = (0..bench.effort.round_count.min(3))
                .map(|_| source.queries(query, count))
                .collect();
            let name = query.name();
            let case = bench.case(figure, &name, theta);
            rows.extend(compare(&case, &mut entries, &warm_up, &rounds)?);
        }
    }
    Ok(rows)
}

/// What a hit costs: all blocks held, on a shelf that takes no time, beside the same without a cache.
pub fn hits(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let all = bench.packed.elf.leaf_bytes() * 2;
    let mut variants = vec![BlockVariant::Pure];
    variants.extend(PolicyName::ALL.map(|policy| BlockVariant::Dynamic(policy, all, 1)));
    variants.push(BlockVariant::SwizzledStatic(all));
    variants.push(BlockVariant::SwizzledNaive(all, 1));
    let mut entries: Vec<_> = variants
        .iter()
        .map(|variant| bench.blocks_on(variant, Shelf::Dram, false, 1))
        .collect();
    bench.compare(figure, Query::Exact, 0.99, &mut entries)
}
