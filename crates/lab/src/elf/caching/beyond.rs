//! Past the papers: skew, `packed`, and a real device.

use super::bench::{Bench, Result, THETA};
use super::contender::Shelf;
use super::device::Device;
use super::figures::LEVELS;
use super::list_cache::Capacity;
use super::measure::{Entry, Row, compare};
use super::statics::Choice;
use super::variant::{BlockVariant, DynamicChoice, PolicyName, StaticChoice, Variant};
use super::workload::{Queries, Query};

/// What 3 % of the `linear` bytes buy, beside what the papers' variants need.
const DRAM_PART: f64 = 0.03;

/// Misses of which one is offered where a cache must not cost anything when it is of no use.
const SAMPLED: u32 = 16;

/// Entries of `packed` within a part of the `linear` bytes: what remains of it after the head and the table.
fn cache_bytes(bench: &Bench, part: f64) -> u64 {
    let elf = &bench.packed.elf;
    let table = elf.leaf_bytes() / elf.block_bytes() as u64 * 4;
    let all = (bench.linear_bytes() as f64 * part) as u64;
    // A frame has a number, a mark and two neighbours besides its bytes.
    let room = all.saturating_sub(elf.head_bytes() + table);
    room * elf.block_bytes() as u64 / (elf.block_bytes() as u64 + 24)
}

pub fn skew(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let bytes = cache_bytes(bench, DRAM_PART);
    let list_bytes = (bench.linear_bytes() as f64 * DRAM_PART) as u64;
    let mut rows = Vec::new();
    for theta in [0.0, 0.5, 0.75, 0.99] {
        let mut entries = vec![
            bench.lists(Variant::Volatile),
            bench.lists(Variant::Pure),
            bench.lists(Variant::levels(3)),
            bench.lists(Variant::levels(LEVELS)),
        ];
        for choice in [
            Choice::Probability(list_bytes),
            Choice::ProbabilityPerByte(list_bytes),
        ] {
            entries.extend(
                [false, true].map(|swizzled| {
                    bench.lists(Variant::Static(StaticChoice { choice, swizzled }))
                }),
            );
        }
        for monos in [false, true] {
            let capacity = Capacity {
                lists: (list_bytes / 160) as usize,
                bytes: list_bytes / 2,
            };
            entries.extend([PolicyName::Lru, PolicyName::Sieve].map(|policy| {
                bench.lists(Variant::Dynamic(DynamicChoice {
                    policy,
                    capacity,
                    monos,
                }))
            }));
        }
        entries.push(bench.blocks(&BlockVariant::Volatile, false, 1));
        entries.push(bench.blocks(&BlockVariant::Pure, false, 1));
        for policy in PolicyName::ALL {
            entries.push(bench.blocks(&BlockVariant::Dynamic(policy, bytes, 1), false, 1));
        }
        let sampled = BlockVariant::Dynamic(PolicyName::Sieve, bytes, SAMPLED);
        entries.push(bench.blocks(&sampled, false, 1));
        let more = cache_bytes(bench, 0.05);
        for policy in [PolicyName::Sieve, PolicyName::S3Fifo] {
            let variant = BlockVariant::Dynamic(policy, more, SAMPLED);
            entries.push(bench.blocks(&variant, false, 1));
        }
        entries.push(bench.blocks(&BlockVariant::Static(bytes), false, 1));
        entries.iter_mut().for_each(|entry| entry.x = Some(theta));
        rows.extend(bench.compare(figure, Query::Exact, theta, &mut entries)?);

        let mut both = vec![
            bench.blocks(&BlockVariant::Volatile, false, 2),
            bench.blocks(&BlockVariant::Pure, false, 2),
            bench.blocks(&sampled, false, 2),
        ];
        both.iter_mut().for_each(|entry| {
            entry.x = Some(theta);
            entry.series.push_str(", 2 threads");
        });
        rows.extend(bench.compare(figure, Query::Exact, theta, &mut both)?);
    }
    Ok(rows)
}

pub fn gap(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let cached = BlockVariant::Dynamic(PolicyName::Sieve, cache_bytes(bench, DRAM_PART), SAMPLED);
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
            for variant in [&BlockVariant::Volatile, &BlockVariant::Pure, &cached] {
                entries.push(bench.blocks(variant, is_batch, 1));
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
            ] {
                let shelf = Shelf::Device(&blocks);
                let batch = if is_batch { ", batch" } else { "" };
                entries.push(Entry {
                    layout: "packed",
                    variant: format!("{variant}{batch}"),
                    shelf: shelf.name(),
                    series: format!("packed {variant}{batch}"),
                    x: None,
                    index_bytes: bench.packed.elf.size_bytes(),
                    threads: bench.packed.contenders(&variant, shelf, is_batch, 1),
                });
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
