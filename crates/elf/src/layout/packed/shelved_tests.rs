//! Blocks fetched for a query give the answers of a look at every row, however few are fetched at a time and whatever
//! is kept of them; damage is found at the block that is read.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::ops::Range;
use std::path::Path;
use std::pin::pin;
use std::slice::from_ref;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use hotshelf_tier::Corruption;
use hotshelf_tier::region::Sealed;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::cases::{self, naive};
use crate::error::{ElfError, Result};
use crate::keys::{CodeColumn, CodeTable, QueryBox};

pub(super) fn options(bits: u8) -> PackedOptions {
    let (group_rows_max, bucket_rows_max) = if bits & 4 != 0 { (4, 2) } else { (64, 24) };
    PackedOptions {
        clustered: bits & 1 != 0,
        zones: bits & 2 != 0,
        group_rows_max,
        bucket_rows_max,
        thread_count: 1,
        salt: u64::from(bits),
    }
}

/// A file, and what was kept of it.
pub(super) struct Shelf {
    pub(super) head: Arc<ElfHead>,
    pub(super) leaves: Vec<u8>,
    /// Its leaves to be searched where they lie, and the blocks of every page that need no check.
    pub(super) lying: Option<(Sealed, u16)>,
    kept: Mutex<BTreeMap<u32, Arc<Frame>>>,
    /// Frames that may be kept.
    room: usize,
    /// Most blocks of a fetch, and how many one fetch had at most.
    most: usize,
    seen: Mutex<usize>,
}

impl Shelf {
    pub(super) fn new(elf: &PackedElf, room: usize, most: usize) -> Self {
        Self::of_bytes(&bytes_of(elf), room, most)
    }

    fn of_bytes(bytes: &[u8], room: usize, most: usize) -> Self {
        let (head, places) = ElfHead::read(Path::new("test.elf"), bytes).unwrap();
        Self {
            head: Arc::new(head),
            leaves: bytes[places.leaf_offset as usize..].to_vec(),
            lying: None,
            kept: Mutex::default(),
            room,
            most,
            seen: Mutex::default(),
        }
    }

    pub(super) fn elf(&self) -> ShelvedElf<&Self> {
        ShelvedElf::new(self.head.clone(), self, self.most)
    }

    fn read(&self, blocks: &[Range<u32>]) -> Result<FetchedBlocks, Corruption> {
        let (paging, mut reads) = (self.head.paging(), BlockReads::default());
        let (mut kept, mut frames) = (self.kept.lock().unwrap(), Vec::new());
        let mut last = None;
        for (page, wanted) in paging.pages(blocks) {
            let old = kept.remove(&page);
            let here = wanted & old.as_ref().map_or(0, |frame| frame.present());
            let missing = wanted & !here;
            reads.dram_blocks += u64::from(here.count_ones());
            reads.shelf_blocks += u64::from(missing.count_ones());
            let mut frame = old;
            if missing != 0 {
                reads.accesses += u64::from(last.is_none_or(|last| last + 1 != page));
                last = Some(page);
                let first = missing.trailing_zeros() as usize;
                let at = (paging.first_block(page) as usize + first) * paging.block_bytes();
                let (path, of) = (Path::new("test.elf"), (page, missing));
                let read = match &self.lying {
                    Some((all, checked)) => {
                        let count = 16 - missing.leading_zeros() as usize - first;
                        let bytes = all.slice(at..at + count * paging.block_bytes()).unwrap();
                        self.head.lying_frame(path, of, first, bytes, *checked)?
                    }
                    None => {
                        let bytes = self.leaves.get(at..).unwrap_or_default();
                        self.head.frame(path, of, first, bytes)?
                    }
                };
                frame = Some(Arc::new(match &frame {
                    Some(kept) => kept.joined(&read, paging),
                    None => read,
                }));
            }
            let frame = frame.expect("kept or read");
            if kept.len() >= self.room {
                kept.pop_first();
            }
            if self.room > 0 {
                kept.insert(page, frame.clone());
            }
            frames.push((page, frame));
        }
        Ok(FetchedBlocks::new(paging, frames, reads))
    }
}

impl FetchBlocks for &Shelf {
    type Error = ElfError;

    fn fetch(&self, blocks: Vec<Range<u32>>) -> impl Future<Output = Result<FetchedBlocks>> + Send {
        let gaps = blocks.windows(2).all(|pair| pair[0].end < pair[1].start);
        assert!(gaps && blocks.iter().all(|range| !range.is_empty()));
        let count = blocks.iter().map(ExactSizeIterator::len).sum();
        let mut seen = self.seen.lock().unwrap();
        *seen = seen.max(count);
        ready(self.read(&blocks).map_err(ElfError::from))
    }
}

/// The answer of a future that waits for nothing.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a test's shelf has its blocks at once"),
    }
}

fn bytes_of(elf: &PackedElf) -> Vec<u8> {
    let mut bytes = Vec::new();
    elf.write_to(&mut bytes).unwrap();
    bytes
}

/// Asks every kind of question of an Elf that may be wrong; answers do not matter.
pub(super) fn ask(elf: &PackedElf, table: &CodeTable) {
    let shelf = Shelf::new(elf, 3, 5);
    let mut shelved = shelf.elf();
    for query in cases::queries(table, 3, 6) {
        let _ = now(shelved.select(&query));
        let _ = now(shelved.count(&query));
    }
    for row in 0..table.row_count().min(20) {
        let _ = now(shelved.exact(&table.row(row), &mut Vec::new()));
        let _ = now(shelved.exact_batch(&table.row(row), |_, _| {}));
    }
}

/// The rows that a query accepts, in key order, and all TIDs in key order.
fn in_key_order(table: &CodeTable) -> Vec<(Vec<u32>, u32)> {
    let rows = 0..table.row_count();
    let mut rows: Vec<_> = rows.map(|row| (table.row(row), table.tid(row))).collect();
    rows.sort();
    rows
}

/// Checks every kind of question. A clustered Elf's TIDs are the rows in key order.
pub(super) fn check(shelf: &Shelf, table: &CodeTable, query: &QueryBox) {
    let sorted = in_key_order(table);
    let accepted: Vec<u32> = (0..sorted.len() as u32)
        .filter(|row| query.contains(&sorted[*row as usize].0))
        .collect();
    let tids = match shelf.head.is_clustered() {
        true => accepted.clone(),
        false => naive(table, query).unwrap(),
    };
    let mut elf = shelf.elf();
    assert_eq!(now(elf.select(query)).unwrap(), tids);
    assert_eq!(now(elf.count(query)).unwrap(), accepted.len() as u64);
    let rows = now(elf.select_rows(query)).unwrap();
    assert!(rows.windows(2).all(|pair| pair[0].end < pair[1].start));
    let flat: Vec<u32> = rows.iter().cloned().flatten().collect();
    assert_eq!(flat, accepted);
    let columns: Vec<usize> = (0..table.dimension_count()).rev().step_by(2).collect();
    let mut codes = vec![vec![9]; columns.len()];
    now(elf.read_rows(&rows, &columns, &mut codes)).unwrap();
    for (column, codes) in columns.iter().zip(&codes) {
        let expected = accepted.iter().map(|row| sorted[*row as usize].0[*column]);
        assert!(codes[1..].iter().copied().eq(expected));
    }
    let mut read = Vec::new();
    now(elf.read_tids(&rows, &mut read)).unwrap();
    read.sort_unstable();
    assert_eq!(read, tids);
    assert_eq!(elf.reads().look_ups, 3);
}

/// Looks up keys of rows and near misses, together and one at a time.
pub(super) fn check_keys(shelf: &Shelf, table: &CodeTable) {
    let mut keys = Vec::new();
    for row in (0..table.row_count()).step_by(3) {
        let mut key = table.row(row);
        let at = row % key.len();
        key[at] = key[at].wrapping_add(u32::from(row % 2 == 0));
        keys.extend(key);
    }
    let sorted = in_key_order(table);
    let expected = |key: &[u32]| -> Vec<u32> {
        let first = sorted.partition_point(|(own, _)| own.as_slice() < key);
        let end = sorted.partition_point(|(own, _)| own.as_slice() <= key);
        match shelf.head.is_clustered() {
            true => (first as u32..end as u32).collect(),
            false => sorted[first..end].iter().map(|(_, tid)| *tid).collect(),
        }
    };
    let mut found = vec![Vec::new(); keys.len() / table.dimension_count()];
    let mut last = None;
    let mut elf = shelf.elf();
    let batch = elf.exact_batch(&keys, |key, tid| {
        assert!(
            last == Some(key) || found[key].is_empty(),
            "hits of a key come together"
        );
        last = Some(key);
        found[key].push(tid);
    });
    now(batch).unwrap();
    assert_eq!(elf.reads().look_ups, found.len() as u64);
    for (key, found) in keys.chunks(table.dimension_count()).zip(&found) {
        assert_eq!(found, &expected(key));
        let mut tids = Vec::new();
        now(elf.exact(key, &mut tids)).unwrap();
        assert_eq!(tids, expected(key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn fetched_blocks_answer_like_a_look_at_every_row(
        table in cases::table(900, u32::MAX),
        bits in any::<u8>(),
        seed in any::<u64>(),
        room in prop_oneof![Just(0usize), Just(1), Just(7), Just(usize::MAX)],
        most in prop_oneof![Just(0usize), Just(1), Just(3), Just(20), Just(usize::MAX)],
    ) {
        let options = options(bits);
        let elf = PackedElf::build(&table, &options).unwrap();
        let shelf = Shelf::new(&elf, room, most);
        for query in cases::queries(&table, seed, 6) {
            check(&shelf, &table, &query);
        }
        check_keys(&shelf, &table);
    }

    #[test]
    fn damage_is_found_at_the_block_that_is_read_and_at_no_other(
        table in cases::table(900, 300),
        bits in any::<u8>(),
        at in any::<Index>(),
        mask in 1u8..,
    ) {
        let elf = PackedElf::build(&table, &options(bits)).unwrap();
        let mut shelf = Shelf::new(&elf, 0, 4);
        if !shelf.leaves.is_empty() {
            let at = at.index(shelf.leaves.len());
            shelf.leaves[at] ^= mask;
            let damaged = at / elf.block_bytes();
            for block in 0..shelf.leaves.len() / elf.block_bytes() {
                let own = block as u32..block as u32 + 1;
                match shelf.read(from_ref(&own)) {
                    Ok(_) => prop_assert!(block != damaged),
                    Err(error) => {
                        prop_assert_eq!(block, damaged);
                        prop_assert_eq!(error.offset, (damaged * elf.block_bytes()) as u64);
                    }
                }
            }
            for query in cases::queries(&table, 5, 4) {
                match now(shelf.elf().select(&query)) {
                    Ok(found) => prop_assert_eq!(found, elf.select(&query).unwrap()),
                    Err(ElfError::Corruption(found)) => {
                        prop_assert_eq!(found.offset, (damaged * elf.block_bytes()) as u64);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}

#[test]
fn fetches_are_as_small_as_asked() {
    let table = cases::uniform(20_000, 3, 40, 1);
    let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
    let query = QueryBox::unrestricted(3);
    let keys: Vec<u32> = (0..table.row_count())
        .flat_map(|row| table.row(row))
        .collect();
    // All rows with one mark are always fetched together.
    for (most, keys_most) in [(1, 2), (10, 10), (100, 100)] {
        let shelf = Shelf::new(&elf, 0, most);
        let mut elf = shelf.elf();
        assert_eq!(now(elf.select(&query)).unwrap().len(), 20_000);
        let mut codes = vec![Vec::new()];
        now(elf.read_rows(&[0..9, 17..20_000], &[2], &mut codes)).unwrap();
        assert_eq!(
            (codes[0].len(), *shelf.seen.lock().unwrap()),
            (19_992, most)
        );
        now(elf.exact_batch(&keys, |_, _| {})).unwrap();
        assert!(*shelf.seen.lock().unwrap() <= keys_most);
    }
}

#[test]
fn truncated_leaves_are_an_error_that_names_the_block() {
    let table = cases::uniform(2_000, 3, 50, 1);
    let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
    let mut shelf = Shelf::new(&elf, 0, 9);
    let block_bytes = elf.block_bytes();
    shelf.leaves.truncate(3 * block_bytes + 17);
    assert!(shelf.read(from_ref(&(0..3))).is_ok());
    for (blocks, damaged) in [(3..4, 3), (1..5, 3), (20..21, 20)] {
        let error = shelf.read(from_ref(&blocks)).unwrap_err();
        assert_eq!(error.what, "words of a block");
        assert_eq!(error.offset, damaged * block_bytes as u64);
    }
}

#[test]
fn questions_of_another_shape_are_refused_before_anything_is_fetched() {
    let table = cases::uniform(100, 2, 9, 1);
    let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
    let shelf = Shelf::new(&elf, 0, 9);
    let mut elf = shelf.elf();
    let is_mismatch =
        |error: Option<ElfError>| matches!(error, Some(ElfError::DimensionMismatch { .. }));
    assert!(is_mismatch(
        now(elf.select(&QueryBox::unrestricted(3))).err()
    ));
    assert!(is_mismatch(now(elf.exact(&[1], &mut Vec::new())).err()));
    assert!(is_mismatch(
        now(elf.exact_batch(&[1, 2, 3], |_, _| {})).err()
    ));
    assert!(is_mismatch(
        now(elf.read_rows(from_ref(&(0..1)), &[2], &mut [vec![]])).err()
    ));
    let beyond = now(elf.read_rows(from_ref(&(0..101)), &[0], &mut [vec![]])).err();
    assert!(matches!(beyond, Some(ElfError::NoSuchRow { .. })));
    assert_eq!(
        (elf.reads(), *shelf.seen.lock().unwrap()),
        (BlockReads::default(), 0)
    );
}

#[test]
fn a_block_in_the_place_of_another_is_found_out() {
    let table = cases::uniform(2_000, 3, 50, 1);
    let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
    let mut shelf = Shelf::new(&elf, 0, 9);
    shelf
        .leaves
        .copy_within(..elf.block_bytes(), elf.block_bytes());
    assert!(shelf.read(from_ref(&(0..1))).is_ok());
    let error = shelf.read(from_ref(&(1..2))).unwrap_err();
    assert_eq!(error.what, "block checksum");
    let mut bytes = Vec::new();
    elf.upper.write(&mut bytes).unwrap();
    bytes.extend(&shelf.leaves);
    assert!(PackedElf::from_bytes(Path::new("test.elf"), &bytes).is_err());
}

/// The table of the files of earlier versions.
fn earlier_table() -> CodeTable {
    let column = |of: fn(u32) -> u32, max| CodeColumn::from_codes((0..700).map(of), max);
    let second = |row: u32| {
        if row.is_multiple_of(3) {
            5
        } else {
            row * row % 97
        }
    };
    let columns = vec![
        column(|row| row * 7 % 11, 10),
        column(second, 96),
        column(|row| row * 31 % 1000, 999),
    ];
    CodeTable::new(columns).unwrap()
}

#[test]
fn files_of_earlier_versions_are_still_read() {
    let table = earlier_table();
    let bytes: [&[u8]; 5] = [
        include_bytes!("../../../tests/earlier/v2.elf"),
        include_bytes!("../../../tests/earlier/v3.elf"),
        include_bytes!("../../../tests/earlier/v3-clustered.elf"),
        include_bytes!("../../../tests/earlier/v4.elf"),
        include_bytes!("../../../tests/earlier/v4-clustered.elf"),
    ];
    for bytes in bytes {
        let read = PackedElf::from_bytes(Path::new("test.elf"), bytes).unwrap();
        read.verify(Path::new("test.elf")).unwrap();
        let is_rewritten = bytes[8] >= 4;
        assert_eq!(read.write_to(&mut Vec::new()).is_ok(), is_rewritten);
        let shelf = Shelf::of_bytes(bytes, 9, 8);
        for query in cases::queries(&table, 5, 30) {
            check(&shelf, &table, &query);
            if !read.is_clustered() {
                assert_eq!(read.select(&query).unwrap(), naive(&table, &query).unwrap());
            }
        }
        check_keys(&shelf, &table);
    }
}

#[test]
fn blocks_of_another_elf_are_refused() {
    // The same rows: only the salt differs.
    let table = cases::uniform(20_000, 5, 100, 3);
    let elfs = [1, 2].map(|salt| {
        let options = PackedOptions {
            salt,
            ..PackedOptions::default()
        };
        PackedElf::build(&table, &options).unwrap()
    });
    let [one, other] = elfs.each_ref().map(|elf| {
        let mut bytes = Vec::new();
        elf.write_to(&mut bytes).unwrap();
        bytes
    });
    let [(_, block), (_, foreign)] = [&one, &other].map(|bytes| bytes.split_at(bytes.len() - 256));
    assert_ne!(block, foreign);
    let mixed = [&one[..one.len() - 256], foreign].concat();
    let error = PackedElf::from_bytes(Path::new("test.elf"), &mixed).unwrap_err();
    assert!(error.to_string().contains("block checksum"), "{error}");
}

#[test]
fn a_look_up_is_one_access_and_what_is_kept_is_not_read_again() {
    let table = cases::uniform(100_000, 5, 100, 3);
    let elf = PackedElf::build(&table, &PackedOptions::default()).unwrap();
    let shelf = Shelf::new(&elf, usize::MAX, 64);
    let keys: Vec<u32> = (0..table.row_count())
        .step_by(997)
        .flat_map(|row| table.row(row))
        .collect();
    let mut cold = shelf.elf();
    for key in keys.chunks(5) {
        let before = cold.reads();
        let found = now(cold.select(&QueryBox::exactly(key))).unwrap();
        assert_eq!(found, elf.select(&QueryBox::exactly(key)).unwrap());
        assert!(cold.reads().accesses - before.accesses <= 1);
    }
    let read = cold.reads();
    assert!(read.dram_blocks + read.shelf_blocks <= read.look_ups * 101 / 100);
    let mut warm = shelf.elf();
    for key in keys.chunks(5) {
        now(warm.exact(key, &mut Vec::new())).unwrap();
    }
    let (cold, warm) = (cold.reads(), warm.reads());
    assert_eq!(warm.look_ups, keys.len() as u64 / 5);
    assert_eq!((warm.shelf_blocks, warm.accesses), (0, 0));
    assert_eq!(warm.dram_blocks, cold.dram_blocks + cold.shelf_blocks);
    assert!(cold.accesses_per_look_up() <= 1.0);
    assert!(cold.accesses_per_look_up() > 0.9, "{cold:?}");
}
