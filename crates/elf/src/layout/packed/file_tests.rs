//! Files: what is written is read back, and nothing that can be read makes a query panic.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use super::block::checksum;
use super::*;
use crate::cases;
use crate::keys::{CodeTable, QueryBox};

fn file() -> &'static Path {
    Path::new("test.elf")
}

fn options(bits: u8) -> PackedOptions {
    PackedOptions {
        clustered: bits & 1 != 0,
        zones: bits & 4 != 0,
        salt: u64::from(bits),
        group_rows_max: if bits & 8 != 0 { 4 } else { 64 },
        bucket_rows_max: if bits & 8 != 0 { 2 } else { 24 },
        thread_count: 1,
    }
}

fn bytes_of(elf: &PackedElf) -> Vec<u8> {
    let mut bytes = Vec::new();
    elf.write_to(&mut bytes).unwrap();
    bytes
}

/// Asks the upper levels of a head that was read piece by piece; answers do not matter.
fn ask_parts(bytes: &[u8], elf: &PackedElf, table: &CodeTable) {
    for levels in [None, Some(1), Some(2)] {
        let Ok(Some((upper, _))) = upper::read_from(file(), levels, bytes) else {
            continue;
        };
        for query in cases::queries(table, 3, 6) {
            let Ok(part) = upper.part_for(Some(&query), &[]) else {
                continue;
            };
            let read = part.reads.iter().map(|place| {
                let bytes = bytes.get(place.start as usize..place.end as usize);
                bytes.unwrap_or_default()
            });
            let read: Vec<&[u8]> = read.collect();
            if let Ok(head) = upper.with_part(file(), &part, &read)
                && head.leaf_bytes() as usize == elf.leaves.len() * 8
            {
                let elf = PackedElf::new(Arc::new(head), elf.leaves.clone());
                elf.select(&query).ok();
                elf.count(&query).ok();
            }
        }
    }
}

/// Asks every kind of question; answers do not matter.
fn ask(elf: &PackedElf, table: &CodeTable) {
    for query in cases::queries(table, 3, 6)
        .into_iter()
        .chain([QueryBox::unrestricted(elf.dimension_count())])
    {
        if query.dimensions().len() == elf.dimension_count() {
            elf.select(&query).unwrap();
            elf.select_rows(&query).unwrap();
            elf.count(&query).unwrap();
        }
    }
    if table.dimension_count() == elf.dimension_count() {
        for row in 0..table.row_count().min(20) {
            let key = table.row(row);
            elf.exact(&key, &mut Vec::new()).unwrap();
            elf.exact_batch(&key, |_, _| {}).unwrap();
        }
    }
    let _ = elf.verify(file());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_written_elf_is_read_back(table in cases::table(200, u32::MAX), bits in any::<u8>()) {
        let elf = PackedElf::build(&table, &options(bits)).unwrap();
        let bytes = bytes_of(&elf);
        let read = PackedElf::from_bytes(file(), &bytes).unwrap();
        prop_assert_eq!(&read, &elf);
        let (_, places) = ElfHead::read(file(), &bytes).unwrap();
        let (head, again) = ElfHead::read(file(), &bytes[..places.leaf_offset as usize]).unwrap();
        prop_assert_eq!((&head, again), (&**elf.upper(), places));
    }

    #[test]
    fn damage_is_found(
        table in cases::table(120, 300),
        bits in any::<u8>(),
        at in any::<Index>(),
        mask in 1u8..,
        cut in any::<Index>(),
    ) {
        let elf = PackedElf::build(&table, &options(bits)).unwrap();
        let bytes = bytes_of(&elf);
        let mut damaged = bytes.clone();
        damaged[at.index(bytes.len())] ^= mask;
        // Padding between sections belongs to no section.
        if let Ok(read) = PackedElf::from_bytes(file(), &damaged) {
            prop_assert_eq!(read, elf);
        }
        prop_assert!(PackedElf::from_bytes(file(), &bytes[..cut.index(bytes.len())]).is_err());
    }

    /// With checksums that match, only the head's checker stands between a wrong head and a panic.
    #[test]
    fn a_wrong_head_never_panics(
        table in cases::table(200, 300),
        bits in any::<u8>(),
        changes in proptest::collection::vec((0usize..17, any::<Index>(), any::<u32>()), 1..4),
    ) {
        let mut elf = PackedElf::build(&table, &options(bits)).unwrap();
        for (what, at, word) in changes {
            let small = word % 70;
            let upper = Arc::make_mut(&mut elf.upper);
            let head = &mut upper.head;
            let node = at.index(head.nodes.len().max(1));
            match (what, head.nodes.get_mut(node)) {
                (0, Some(node)) => node.first_code = small,
                (1, Some(node)) => node.last_offset = small,
                (2, Some(node)) => node.child_count = small,
                (3, Some(node)) => node.child_at = small,
                (4, Some(node)) => node.codes_at = small,
                (5, Some(_)) if !head.children.is_empty() => {
                    let at = at.index(head.children.len());
                    head.children[at].row = small;
                }
                (6, Some(_)) if !head.children.is_empty() => {
                    let at = at.index(head.children.len());
                    head.children[at].link = word & 0xc000_003f;
                }
                (7, _) if !head.codes.is_empty() => {
                    let at = at.index(head.codes.len());
                    head.codes[at] = small;
                }
                (8, _) if !head.bitmaps.is_empty() => {
                    let at = at.index(head.bitmaps.len());
                    head.bitmaps[at] ^= 1 << (word % 64);
                }
                (9, _) if !upper.zones.starts.is_empty() => {
                    let at = at.index(upper.zones.starts.len());
                    upper.zones.starts[at] = small;
                }
                (12, _) if !upper.fences.is_empty() => {
                    let at = at.index(upper.fences.len());
                    upper.fences[at] = word as u16;
                }
                (13, Some(node)) => node.row = small,
                (14, Some(node)) => node.slot = small,
                (15, Some(node)) => node.bottom = [Bottom::Mixed, Bottom::Below, Bottom::Here][word as usize % 3],
                (16, _) if !head.starts.is_empty() => {
                    let at = at.index(head.starts.len());
                    head.starts[at] = small as u16;
                }
                (10, _) => upper.row_count = small as usize,
                (11, _) => {
                    let at = at.index(upper.geometry.slot_counts.len());
                    upper.geometry.slot_counts[at] = small as usize;
                }
                _ => {}
            }
        }
        let mut bytes = Vec::new();
        elf.upper.write(&mut bytes).unwrap();
        super::file::write_words(&elf.leaves, &mut bytes).unwrap();
        if let Ok(read) = PackedElf::from_bytes(file(), &bytes) {
            ask(&read, &table);
            shelved_tests::ask(&read, &table);
        }
        ask_parts(&bytes, &elf, &table);
    }

    #[test]
    fn wrong_leaves_never_panic(
        table in cases::table(200, 300),
        bits in any::<u8>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u64>()), 1..4),
    ) {
        let mut elf = PackedElf::build(&table, &options(bits)).unwrap();
        let block_words = elf.geometry.block_words;
        for (at, word) in changes {
            if !elf.leaves.is_empty() {
                let at = at.index(elf.leaves.len());
                elf.leaves[at] = word;
                let name = elf.geometry.name_of_block(at / block_words);
                let block = &mut elf.leaves[at / block_words * block_words..][..block_words];
                block[0] = block[0] >> 32 << 32;
                block[0] |= u64::from(checksum(name, block));
            }
        }
        if let Ok(read) = PackedElf::from_bytes(file(), &bytes_of(&elf)) {
            ask(&read, &table);
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(PackedElf::from_bytes(file(), &bytes).is_err());
        let mut with_magic = b"HSELFPAK\x03\0\0\0".to_vec();
        with_magic.extend(bytes);
        with_magic.resize(4096, 0);
        prop_assert!(PackedElf::from_bytes(file(), &with_magic).is_err());
    }
}
