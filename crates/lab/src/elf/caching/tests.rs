//! All variants answer as `volatile` does, on every shelf, and as a scan of the rows does.

use std::sync::Arc;

use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_tier::emulated::DeviceModel;
use proptest::prelude::*;

use super::super::baseline::linear::LinearElf;
use super::block_contender::Packed;
use super::contender::{Contender, Linear, Shelf};
use super::device::Device;
use super::filter::MissFilter;
use super::list_cache::Capacity;
use super::shelf::Emulated;
use super::statics::Choice;
use super::variant::{BlockVariant, DynamicChoice, PolicyName, StaticChoice, Variant};
use super::workload::Queries;

fn statics() -> Vec<StaticChoice> {
    let choices = [
        Choice::Levels(0),
        Choice::Levels(1),
        Choice::Levels(3),
        Choice::Levels(99),
        Choice::Probability(0),
        Choice::Probability(300),
        Choice::ProbabilityPerByte(300),
        Choice::ProbabilityPerByte(u64::MAX),
    ];
    let both = |choice| [false, true].map(|swizzled| StaticChoice { choice, swizzled });
    choices.into_iter().flat_map(both).collect()
}

fn dynamics() -> Vec<DynamicChoice> {
    let capacities = [(0, 0), (1, 36), (7, 200), (10_000, u64::MAX)];
    let with = |policy| {
        capacities.into_iter().flat_map(move |(lists, bytes)| {
            [false, true].map(|monos| DynamicChoice {
                policy,
                capacity: Capacity { lists, bytes },
                monos,
            })
        })
    };
    PolicyName::ALL.into_iter().flat_map(with).collect()
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = vec![
        Variant::Volatile,
        Variant::Pure,
        Variant::Hybrid,
        Variant::Dual,
    ];
    variants.extend(statics().into_iter().map(Variant::Static));
    variants.extend(dynamics().into_iter().map(Variant::Dynamic));
    for (first, second) in statics().into_iter().zip(dynamics().into_iter().step_by(3)) {
        variants.push(Variant::Split(first, second));
    }
    variants
}

fn block_variants(table: &CodeTable) -> Vec<BlockVariant> {
    let mut variants = vec![
        BlockVariant::Volatile,
        BlockVariant::Pure,
        BlockVariant::Hybrid,
        BlockVariant::Filtered(Arc::new(MissFilter::new(table))),
    ];
    for bytes in [0, 1024, 1 << 30] {
        variants.push(BlockVariant::Static(bytes));
        variants.push(BlockVariant::SwizzledStatic(bytes));
        for misses in [1, 3] {
            variants.push(BlockVariant::SwizzledNaive(bytes, misses));
            let with = |policy| BlockVariant::Dynamic(policy, bytes.min(1 << 20), misses);
            variants.extend(PolicyName::ALL.map(with));
        }
    }
    variants
}

pub(super) fn table() -> impl Strategy<Value = CodeTable> {
    (2usize..6, 1usize..400, any::<u64>()).prop_map(|(columns, row_count, seed)| {
        let mut random = fastrand::Rng::with_seed(seed);
        let columns = (0..columns).map(|_| {
            let max = [1, 6, 90][random.usize(..3)];
            let codes: Vec<u32> = (0..row_count).map(|_| random.u32(..=max)).collect();
            CodeColumn::from_codes(codes.into_iter(), max)
        });
        CodeTable::new(columns.collect()).unwrap()
    })
}

/// The keys of all rows, one after the other.
pub(super) fn rows_of(table: &CodeTable) -> Vec<u32> {
    (0..table.row_count())
        .flat_map(|row| table.row(row))
        .collect()
}

/// Keys of rows and near misses, ranges, and partial matches.
pub(super) fn queries(table: &CodeTable, seed: u64) -> [Queries; 2] {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut keys, mut boxes) = (Vec::new(), Vec::new());
    for _ in 0..12 {
        let mut key = table.row(random.usize(..table.row_count()));
        let at = random.usize(..key.len());
        key[at] = key[at].wrapping_add(random.u32(..2));
        let ranges = key.iter().map(|&code| match random.u32(..3) {
            0 => Restriction::Any,
            width => Restriction::Range {
                lo: code,
                hi: code.saturating_add(width * 10 - 10),
            },
        });
        boxes.push(QueryBox::new(ranges.collect()));
        keys.extend(key);
    }
    [Queries::Keys(keys), Queries::Boxes(boxes)]
}

/// The answer of a scan.
pub(super) fn naive(table: &CodeTable, queries: &Queries) -> u64 {
    let rows = |query: &QueryBox| {
        let accepted = |row: &usize| query.contains(&table.row(*row));
        let rows = (0..table.row_count()).filter(accepted);
        rows.map(|row| row as u64 + 1).sum::<u64>()
    };
    match queries {
        Queries::Keys(keys) => {
            let keys = keys.chunks_exact(table.dimension_count());
            keys.map(|key| rows(&QueryBox::exactly(key))).sum()
        }
        Queries::Boxes(boxes) => boxes.iter().map(rows).sum(),
    }
}

/// Asks twice: the second time from a warm cache.
pub(super) fn check(
    name: &str,
    contender: &mut (dyn Contender + '_),
    asked: &[(Queries, u64)],
) -> Result<(), TestCaseError> {
    for _ in 0..2 {
        for (queries, expected) in asked {
            prop_assert_eq!(contender.answer(queries).unwrap(), *expected, "{}", name);
        }
    }
    prop_assert_eq!(contender.accesses().failures, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn all_variants_answer_alike_on_all_shelves(table in table(), seed in any::<u64>()) {
        let linear = Linear::new(LinearElf::build(&table, 1).unwrap());
        let options = PackedOptions { group_rows_max: 8, ..Default::default() };
        let mut packed = Packed::new(PackedElf::build(&table, &options).unwrap());
        let asked = queries(&table, seed).map(|queries| {
            let expected = naive(&table, &queries);
            (queries, expected)
        });
        packed.observe(&asked[0].0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let words = linear.elf.words().iter().map(|word| word.to_le_bytes());
        let lists = Device::create(&folder.path().join("linear"), words).unwrap();
        let words = packed.elf.blocks().iter().map(|word| word.to_le_bytes());
        let blocks = Device::create(&folder.path().join("packed"), words).unwrap();
        let emulated = Emulated::new(&DeviceModel::named("optane").unwrap(), 4096);
        for variant in variants() {
            let mut on_dram = linear.contender(variant, Shelf::Dram);
            check(&variant.to_string(), &mut *on_dram, &asked)?;
            let mut on_shelf = linear.contender(variant, Shelf::Emulated(&emulated));
            check(&variant.to_string(), &mut *on_shelf, &asked)?;
        }
        for variant in [Variant::Pure, Variant::levels(2), Variant::dynamic(PolicyName::Lru, 5)] {
            let mut on_device = linear.contender(variant, Shelf::Device(&lists));
            check(&variant.to_string(), &mut *on_device, &asked)?;
        }
        for variant in block_variants(&table) {
            for shelf in [Shelf::Dram, Shelf::Emulated(&emulated), Shelf::Device(&blocks)] {
                for is_batch in [false, true] {
                    for mut one in packed.contenders(&variant, shelf, is_batch, 2) {
                        check(&variant.to_string(), &mut *one, &asked)?;
                    }
                }
            }
        }
    }
}
