//! The Elf, a B+-tree and an adaptive radix tree, each with its best caches.

use super::super::bench::{Bench, Result, THETA};
use super::super::beyond::{DRAM_PART, SAMPLED, cache_bytes};
use super::super::contender::Shelf;
use super::super::device::Device;
use super::super::list_cache::Capacity;
use super::super::measure::{Entry, Row, compare};
use super::super::statics::Choice;
use super::super::variant::{BlockVariant, DynamicChoice, PolicyName, StaticChoice, Variant};
use super::super::workload::{Queries, Query};
use super::art::Art;
use super::bplus::BPlusTree;
use super::subject::{Subject, contender};

/// Bytes that a node in a dynamic cache takes besides its own.
const SLOT_BYTES: u64 = 100;

/// Levels of byte strings and of `linear` that do best.
const LEVELS: usize = 3;

/// The other indexes over a bench's table.
struct Others {
    /// Nodes of four grains, which are read together.
    wide: BPlusTree,
    /// Nodes of one grain.
    narrow: BPlusTree,
    art: Art,
}

impl Others {
    fn new(bench: &Bench) -> Result<Self> {
        let threads = bench.effort.thread_count;
        Ok(Self {
            wide: BPlusTree::build(&bench.table, 4, threads)?,
            narrow: BPlusTree::build(&bench.table, 1, threads)?,
            art: Art::build(&bench.table, threads)?,
        })
    }
}

/// The name of a variant without its bytes.
fn kind(variant: Variant) -> String {
    match variant {
        Variant::Static(StaticChoice {
            choice: Choice::Levels(levels),
            ..
        }) => format!("{levels} levels"),
        Variant::Static(_) => "most probable".to_owned(),
        Variant::Dynamic(choice) => choice.policy.to_string(),
        other => other.to_string(),
    }
}

fn entry<'a, S: Subject>(
    layout: &'static str,
    subject: &'a S,
    variant: Variant,
    shelf: Shelf<'a>,
) -> Entry<'a> {
    let shelf = match variant.reads_shelf() {
        true => shelf,
        false => Shelf::Dram,
    };
    Entry {
        layout,
        variant: variant.to_string(),
        shelf: shelf.name(),
        series: format!("{layout} {}", kind(variant)),
        x: None,
        index_bytes: subject.size_bytes(),
        threads: vec![contender(subject, variant, shelf)],
    }
}

fn most_probable(bytes: u64) -> Variant {
    Variant::Static(StaticChoice {
        choice: Choice::Probability(bytes),
        swizzled: true,
    })
}

/// What SIEVE keeps of nodes that have this many bytes on average.
fn sieve(bytes: u64, node_bytes: u64, monos: bool) -> Variant {
    let lists = bytes / (node_bytes + SLOT_BYTES);
    Variant::Dynamic(DynamicChoice {
        policy: PolicyName::Sieve,
        capacity: Capacity {
            lists: lists as usize,
            bytes: lists * node_bytes,
        },
        monos,
    })
}

/// Variants of a tree whose leaves are nodes as others are.
fn tree_entries<'a>(
    layout: &'static str,
    tree: &'a BPlusTree,
    bytes: u64,
    shelf: Shelf<'a>,
) -> Vec<Entry<'a>> {
    let variants = [
        Variant::Volatile,
        Variant::Pure,
        Variant::levels(tree.level_count() - 1),
        most_probable(bytes),
        sieve(bytes, tree.node_words as u64 * 4, true),
    ];
    variants
        .map(|variant| entry(layout, tree, variant, shelf))
        .into()
}

fn art_entries<'a>(art: &'a Art, bytes: u64, shelf: Shelf<'a>) -> Vec<Entry<'a>> {
    let node_words: u64 = art.nodes().iter().map(|node| u64::from(node.words)).sum();
    let node_bytes = node_words * 4 / art.nodes().len().max(1) as u64;
    let variants = [
        Variant::Volatile,
        Variant::Pure,
        Variant::levels(LEVELS),
        most_probable(bytes),
        sieve(bytes, node_bytes, false),
    ];
    variants
        .map(|variant| entry("art", art, variant, shelf))
        .into()
}

/// The Elf's own variants.
fn elf_entries<'a>(
    bench: &'a Bench,
    bytes: u64,
    lists: Shelf<'a>,
    blocks: Shelf<'a>,
) -> Vec<Entry<'a>> {
    let on = |variant: Variant| {
        let shelf = match variant.reads_shelf() {
            true => lists,
            false => Shelf::Dram,
        };
        let mut entry = bench.lists_on(variant, shelf);
        entry.series = format!("linear {}", kind(variant));
        entry
    };
    let mut entries: Vec<_> = [
        Variant::Volatile,
        Variant::Pure,
        Variant::levels(LEVELS),
        most_probable(bytes),
        sieve(bytes, 60, false),
    ]
    .map(on)
    .into();
    let bytes = cache_bytes(bench, DRAM_PART);
    for (variant, name) in [
        (BlockVariant::Volatile, "volatile"),
        (BlockVariant::Pure, "pure"),
        (BlockVariant::Static(bytes), "observed"),
        (
            BlockVariant::Dynamic(PolicyName::Sieve, bytes, SAMPLED),
            "sieve",
        ),
    ] {
        let shelf = match variant.reads_shelf() {
            true => blocks,
            false => Shelf::Dram,
        };
        let mut entry = bench.blocks_on(&variant, shelf, false, 1);
        entry.series = format!("packed {name}");
        entries.push(entry);
    }
    entries
}

/// All of them behind a CPU cache as small beside them as the papers', *emulated*.
pub fn subjects(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let others = Others::new(bench)?;
    let bytes = (bench.linear_bytes() as f64 * DRAM_PART) as u64;
    let shelf = Shelf::Emulated(&bench.scaled);
    let mut rows = Vec::new();
    for (query, theta) in [
        (Query::Exact, THETA),
        (Query::Exact, 0.99),
        (Query::Range(0.02), THETA),
        (Query::Partial(0.02), THETA),
    ] {
        let mut entries = elf_entries(bench, bytes, shelf, shelf);
        entries.extend(tree_entries("b+tree", &others.wide, bytes, shelf));
        entries.extend(tree_entries("b+tree-256", &others.narrow, bytes, shelf));
        entries.extend(art_entries(&others.art, bytes, shelf));
        rows.extend(bench.compare(figure, query, theta, &mut entries)?);
    }
    Ok(rows)
}

/// All of them on a real block device, without those that do not read it.
pub fn subjects_on_device(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let others = Others::new(bench)?;
    let folder = tempfile::tempdir()?;
    let file = |name: &str, words: &[u32]| {
        let bytes = words.iter().map(|word| word.to_le_bytes());
        Device::create(&folder.path().join(name), bytes)
    };
    let lists = file("linear", bench.linear.elf.words())?;
    let words = bench.packed.elf.blocks().iter();
    let words = words.map(|word| word.to_le_bytes());
    let blocks = Device::create(&folder.path().join("packed"), words)?;
    let wide = file("b+tree", others.wide.words())?;
    let narrow = file("b+tree-256", others.narrow.words())?;
    let art = file("art", others.art.words())?;
    let bytes = (bench.linear_bytes() as f64 * DRAM_PART) as u64;
    let mut rows = Vec::new();
    for (query, theta) in [
        (Query::Exact, THETA),
        (Query::Exact, 0.99),
        (Query::Range(0.02), THETA),
    ] {
        let mut entries = elf_entries(bench, bytes, Shelf::Device(&lists), Shelf::Device(&blocks));
        entries.extend(tree_entries(
            "b+tree",
            &others.wide,
            bytes,
            Shelf::Device(&wide),
        ));
        let shelf = Shelf::Device(&narrow);
        entries.extend(tree_entries("b+tree-256", &others.narrow, bytes, shelf));
        entries.extend(art_entries(&others.art, bytes, Shelf::Device(&art)));
        entries.retain(|entry| entry.shelf != Shelf::Dram.name());
        let count = (bench.count(query) / 200).max(20);
        let mut source = bench.source(theta, 29);
        let warm_up = source.queries(query, count * 100);
        let rounds: Vec<Queries> = (0..bench.effort.round_count.min(3))
            .map(|_| source.queries(query, count))
            .collect();
        let name = query.name();
        let case = bench.case(figure, &name, theta);
        rows.extend(compare(&case, &mut entries, &warm_up, &rounds)?);
    }
    Ok(rows)
}
