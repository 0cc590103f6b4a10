//! Blocks that are searched where they lie: the same answers, the same checks, and no panic whatever happens to them.

use hotshelf_tier::region::{AnonymousOptions, Region, Sealed};
use proptest::prelude::*;

use super::shelved_tests::{Shelf, check, check_keys, now, options};
use super::*;
use crate::cases;
use crate::error::ElfError;

fn sealed(bytes: &[u8]) -> Sealed {
    let options = AnonymousOptions {
        small_pages: true,
        ..AnonymousOptions::default()
    };
    let mut region = Region::anonymous(bytes.len().max(1), &options).unwrap();
    region.volatile_bytes_mut().unwrap()[..bytes.len()].copy_from_slice(bytes);
    region.seal()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn blocks_where_they_lie_answer_like_a_look_at_every_row(
        table in cases::table(900, u32::MAX),
        bits in any::<u8>(),
        room in prop_oneof![Just(0usize), Just(7)],
        is_checked in any::<bool>(),
    ) {
        let elf = PackedElf::build(&table, &options(bits)).unwrap();
        let mut shelf = Shelf::new(&elf, room, 20);
        shelf.lying = Some((sealed(&shelf.leaves), if is_checked { u16::MAX } else { 0 }));
        for query in cases::queries(&table, 3, 4) {
            check(&shelf, &table, &query);
        }
        check_keys(&shelf, &table);
    }

    #[test]
    fn blocks_that_change_after_their_check_give_no_panic(
        table in cases::table(900, u32::MAX),
        bits in any::<u8>(),
        seed in any::<u64>(),
    ) {
        let elf = PackedElf::build(&table, &options(bits)).unwrap();
        let mut shelf = Shelf::new(&elf, 3, 20);
        let mut bytes = vec![0; shelf.leaves.len()];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        shelf.lying = Some((sealed(&bytes), u16::MAX));
        let mut elf = shelf.elf();
        for query in cases::queries(&table, seed, 4) {
            now(elf.select(&query)).unwrap();
            now(elf.count(&query)).unwrap();
            let rows = now(elf.select_rows(&query)).unwrap();
            let (mut codes, mut tids) = (vec![Vec::new()], Vec::new());
            now(elf.read_rows(&rows, &[table.dimension_count() - 1], &mut codes)).unwrap();
            now(elf.read_tids(&rows, &mut tids)).unwrap();
            prop_assert_eq!(codes[0].len(), tids.len());
        }
        let rows = (0..table.row_count()).step_by(3);
        let keys: Vec<u32> = rows.flat_map(|row| table.row(row)).collect();
        now(elf.exact_batch(&keys, |_, _| {})).unwrap();
        for key in keys.chunks(table.dimension_count()) {
            now(elf.exact(key, &mut Vec::new())).unwrap();
        }
    }
}

#[test]
fn damage_is_found_at_the_first_look_and_a_checked_block_is_not_looked_at_again() {
    let table = cases::uniform(3_000, 3, 40, 1);
    let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
    let shelf = Shelf::new(&elf, 0, 20);
    let (path, paging) = (std::path::Path::new("test.elf"), elf.paging());
    let mut bytes = shelf.leaves.clone();
    bytes[3 * paging.block_bytes() + 9] ^= 1;
    let page = sealed(&bytes[..16 * paging.block_bytes()]);
    let frame = |wanted: u16, first: usize, bytes: &Sealed, checked: u16| {
        let frame = elf.lying_frame(path, (0, wanted), first, bytes.clone(), checked);
        frame.map(|frame| (frame.present(), frame.copied(paging).unwrap().present()))
    };
    assert_eq!(frame(0b10110, 0, &page, 0), Ok((0b10110, 0b10110)));
    let error = frame(0b1100, 0, &page, 0).unwrap_err();
    assert_eq!(
        (error.what.as_ref(), error.offset),
        ("block checksum", 3 * 256)
    );
    assert!(frame(0b1100, 0, &page, 0b1000).is_ok());
    let rest = page.slice(5 * 256..8 * 256).unwrap();
    assert!(frame(0b1110_0000, 5, &rest, 0).is_ok());
    // Blocks that are not there, and bytes that are not words.
    for (wanted, first) in [(0b1_0010_0000, 5), (0b1_0000, 5)] {
        assert_eq!(
            frame(wanted, first, &rest, 0).unwrap_err().what,
            "words of a block"
        );
    }
    let crooked = page.slice(4..4 + 256).unwrap();
    assert!(frame(1, 0, &crooked, u16::MAX).is_err());
    let read = elf.frame(path, (0, 0b10), 1, &shelf.leaves[256..]).unwrap();
    assert!(read.copied(paging).is_none());
    assert!(matches!(ElfError::from(error), ElfError::Corruption(_)));
}
