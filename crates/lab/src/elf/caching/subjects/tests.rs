//! Both indexes answer as a scan of the rows does, whatever is cached and wherever they lie.

use hotshelf_elf::keys::{CodeColumn, CodeSet, CodeTable, QueryBox, Restriction};
use hotshelf_tier::emulated::DeviceModel;
use proptest::prelude::*;

use super::super::contender::Shelf;
use super::super::device::Device;
use super::super::shelf::Emulated;
use super::super::tests::{check, naive, queries, variants};
use super::super::variant::{PolicyName, Variant};
use super::super::workload::Queries;
use super::art::Art;
use super::bplus::BPlusTree;
use super::subject::{Subject, contender};

/// Codes of one to four bytes, and rows that occur more than once.
fn table() -> impl Strategy<Value = CodeTable> {
    (1usize..6, 0usize..1200, any::<u64>()).prop_map(|(columns, row_count, seed)| {
        let mut random = fastrand::Rng::with_seed(seed);
        let columns = (0..columns).map(|_| {
            let max = [0, 1, 6, 90, 255, 300, 70_000, u32::MAX][random.usize(..8)];
            let step = if max > 90 { max / 5 } else { 1 };
            let code = |random: &mut fastrand::Rng| match random.bool() {
                true => random.u32(..=max),
                false => random.u32(..=max / step) * step,
            };
            let codes: Vec<u32> = (0..row_count).map(|_| code(&mut random)).collect();
            CodeColumn::from_codes(codes.into_iter(), max)
        });
        CodeTable::new(columns.collect()).unwrap()
    })
}

/// Those of all variants, and sets of codes.
fn asked(table: &CodeTable, seed: u64) -> Vec<(Queries, u64)> {
    let mut all = Vec::new();
    if table.row_count() > 0 {
        all.extend(queries(table, seed));
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut boxes = vec![QueryBox::unrestricted(table.dimension_count())];
    for _ in 0..6 {
        let restrictions = table.columns().iter().map(|column| {
            let kind = random.u32(..8);
            let codes = (0..20).filter_map(|_| match column.len() {
                0 => None,
                len => Some(column.get(random.usize(..len))),
            });
            match kind {
                0..3 => Restriction::Any,
                3 => Restriction::NONE,
                _ => Restriction::from_set(CodeSet::from_codes(codes.chain([1, 300, u32::MAX]))),
            }
        });
        boxes.push(QueryBox::new(restrictions.collect()));
    }
    all.push(Queries::Boxes(boxes));
    let answered = all.into_iter().map(|queries| {
        let expected = naive(table, &queries);
        (queries, expected)
    });
    answered.collect()
}

fn check_all<S: Subject>(subject: &S, asked: &[(Queries, u64)]) -> Result<(), TestCaseError> {
    let emulated = Emulated::new(&DeviceModel::named("optane").unwrap(), 4096);
    for variant in variants() {
        let mut one = contender(subject, variant, Shelf::Emulated(&emulated));
        check(&variant.to_string(), &mut *one, asked)?;
    }
    let folder = tempfile::tempdir().unwrap();
    let bytes = subject.words().iter().map(|word| word.to_le_bytes());
    let device = Device::create(&folder.path().join("subject"), bytes).unwrap();
    for variant in [
        Variant::Pure,
        Variant::levels(2),
        Variant::dynamic(PolicyName::Sieve, 5),
    ] {
        let mut one = contender(subject, variant, Shelf::Device(&device));
        check(&variant.to_string(), &mut *one, asked)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn every_variant_of_a_b_tree_answers_as_a_scan_does(table in table(), seed in any::<u64>()) {
        check_all(&BPlusTree::build(&table, 1, 1).unwrap(), &asked(&table, seed))?;
    }

    #[test]
    fn every_variant_of_a_radix_tree_answers_as_a_scan_does(table in table(), seed in any::<u64>()) {
        check_all(&Art::build(&table, 1).unwrap(), &asked(&table, seed))?;
    }
}

proptest! {
    #[test]
    fn nodes_of_any_size_answer_as_a_scan_does(
        table in table(),
        seed in any::<u64>(),
        grains in 1usize..6,
    ) {
        let asked = asked(&table, seed);
        let tree = BPlusTree::build(&table, grains, 1).unwrap();
        let mut one = contender(&tree, Variant::Volatile, Shelf::Dram);
        check("b+tree", &mut *one, &asked)?;
        let art = Art::build(&table, 1).unwrap();
        let mut one = contender(&art, Variant::Volatile, Shelf::Dram);
        check("art", &mut *one, &asked)?;
    }
}
