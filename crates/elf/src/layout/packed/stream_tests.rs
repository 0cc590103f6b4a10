//! External builds and merges give the very bytes of a build in memory.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::DeleteBitmap;
use crate::cases;
use crate::keys::{CodeColumn, CodeMap, CodeTable};

fn options(bits: u8, code_max: &[u32]) -> PackedOptions {
    PackedOptions {
        clustered: bits & 1 != 0,
        fingerprints: bits & 2 != 0,
        zones: bits & 4 != 0,
        group_rows_max: if bits & 8 != 0 { 4 } else { 64 },
        bucket_rows_max: if bits & 8 != 0 { 2 } else { 24 },
        thread_count: 1 + usize::from(bits >> 4 & 1),
        code_max: Some(code_max.to_vec()),
    }
}

fn code_max(table: &CodeTable) -> Vec<u32> {
    table.columns().iter().map(CodeColumn::max).collect()
}

/// Some rows of a table, with their TIDs.
fn part(table: &CodeTable, keep: impl Fn(usize) -> bool) -> CodeTable {
    let rows: Vec<usize> = (0..table.row_count()).filter(|&row| keep(row)).collect();
    let columns = table.columns().iter().map(|column| {
        CodeColumn::from_codes(rows.iter().map(|&row| column.get(row)), column.max())
    });
    let tids = rows.iter().map(|&row| table.tid(row)).collect();
    CodeTable::new(columns.collect())
        .unwrap()
        .with_tids(tids)
        .unwrap()
}

fn built(table: &CodeTable, options: &PackedOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    PackedElf::build(table, options)
        .unwrap()
        .write_to(&[], &mut bytes)
        .unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn an_external_build_writes_the_bytes_of_one_in_memory(
        table in cases::table(1500, u32::MAX),
        bits in any::<u8>(),
        buffer_bytes in prop_oneof![Just(0usize), Just(1 << 10), Just(1 << 14)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (run_dir, path) = (dir.path().join("runs"), dir.path().join("t.elf"));
        fs::create_dir(&run_dir).unwrap();
        let packed = options(bits, &code_max(&table));
        let buffer_bytes = if table.row_count() > 200 { buffer_bytes.max(1 << 10) } else { buffer_bytes };
        let external = ExternalOptions { packed: packed.clone(), buffer_bytes, run_dir: run_dir.clone() };
        let mut builder = ExternalBuilder::new(code_max(&table), external).unwrap();
        for third in 0..3 {
            builder.add(&part(&table, |row| row % 3 == third)).unwrap();
        }
        builder.finish(&path, &[]).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), built(&table, &packed));
        prop_assert_eq!(fs::read_dir(&run_dir).unwrap().count(), 0);
    }

    #[test]
    fn merged_elfs_have_the_bytes_of_a_bulk_build(
        table in cases::table(1500, u32::MAX),
        bits in any::<u8>(),
        deleted in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("merged.elf");
        let rows = table.row_count();
        // Clustered Elfs forget their TIDs: see the test below.
        let packed = options(bits & !1, &code_max(&table));
        let deletes: DeleteBitmap =
            deleted.iter().filter(|_| rows > 0).map(|at| table.tid(at.index(rows))).collect();
        let elfs: Vec<PackedElf> = (0..3)
            .map(|third| PackedElf::build(&part(&table, |row| row * 3 / rows == third), &packed).unwrap())
            .collect();
        let new_tid = |tid: u32| (!deletes.contains(tid)).then_some(tid);
        let maps = vec![CodeMap::identity(); table.dimension_count()];
        let inputs: Vec<_> = elfs
            .iter()
            .map(|elf| MergeInput { elf, code_maps: maps.clone(), new_tid: &new_tid })
            .collect();
        merge(&inputs, &code_max(&table), &packed, &[], &path).unwrap();
        let live = part(&table, |row| !deletes.contains(table.tid(row)));
        prop_assert_eq!(fs::read(&path).unwrap(), built(&live, &packed));
    }

    #[test]
    fn clustered_elfs_merge_in_key_order(table in cases::table(400, 300), bits in any::<u8>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("merged.elf");
        let packed = options(bits | 1, &code_max(&table));
        let rows = table.row_count();
        let elfs: Vec<PackedElf> = (0..2)
            .map(|half| PackedElf::build(&part(&table, |row| row * 2 / rows == half), &packed).unwrap())
            .collect();
        let (first, second) = (|tid: u32| Some(tid), |tid: u32| Some(tid + 100_000));
        let maps = vec![CodeMap::identity(); table.dimension_count()];
        let inputs = [
            MergeInput { elf: &elfs[0], code_maps: maps.clone(), new_tid: &first },
            MergeInput { elf: &elfs[1], code_maps: maps, new_tid: &second },
        ];
        merge(&inputs, &code_max(&table), &packed, &[], &path).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), built(&table, &packed));
    }
}

#[test]
fn codes_beyond_the_declared_largest_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let external = ExternalOptions {
        packed: PackedOptions::default(),
        buffer_bytes: 1 << 20,
        run_dir: dir.path().to_path_buf(),
    };
    let mut builder = ExternalBuilder::new(vec![3], external).unwrap();
    let chunk = CodeTable::new(vec![CodeColumn::U8(vec![4])]).unwrap();
    assert!(builder.add(&chunk).is_err());
    let elf = PackedElf::build(&chunk, &PackedOptions::default()).unwrap();
    let keep = |tid: u32| Some(tid);
    let input = MergeInput {
        elf: &elf,
        code_maps: vec![CodeMap::identity()],
        new_tid: &keep,
    };
    let path = dir.path().join("t.elf");
    assert!(merge(&[input], &[3], &PackedOptions::default(), &[], &path).is_err());
}
