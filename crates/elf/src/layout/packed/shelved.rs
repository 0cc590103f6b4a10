//! An Elf whose head is in memory and whose leaf blocks are fetched as queries need them.
//!
//! While the blocks of one part of a query are searched, those of the next are on their way.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use crate::error::ElfError;
use crate::keys::QueryBox;

use super::blocks::{BlockReads, FetchedBlocks};
use super::leaf::Run;
use super::parts::{Found, Part, RowParts, Search, Wanted, joined};
use super::{ElfHead, PackedElf};

/// Fetches leaf blocks of one Elf, from memory or from where they lie.
pub trait FetchBlocks {
    /// Why blocks cannot be fetched.
    type Error: From<ElfError>;

    /// Fetches blocks, as ranges of block numbers that ascend and do not touch; there may be none. Reading begins when
    /// this is called, not when its answer is awaited, and reads neighbours together. Blocks that are not what was
    /// written are an error: see [`ElfHead::frame`].
    fn fetch(
        &self,
        blocks: Vec<Range<u32>>,
    ) -> impl Future<Output = Result<FetchedBlocks, Self::Error>> + Send;
}

/// Answers the questions that a [`PackedElf`] answers, with blocks that are fetched for them. Made for each query: it
/// counts what it fetched.
#[derive(Debug)]
pub struct ShelvedElf<F> {
    head: Arc<ElfHead>,
    shelf: F,
    block_count_max: usize,
    reads: BlockReads,
}

/// Keys that are looked up together.
#[derive(Default)]
struct KeyGroup {
    /// Which keys.
    numbers: Vec<usize>,
    /// Their codes, one key after the other.
    codes: Vec<u32>,
    blocks: Vec<Range<u32>>,
}

impl ElfHead {
    /// The rows among which a key can stand.
    fn run_of(&self, key: &[u32]) -> Option<Run> {
        let group = self.descend(key)?;
        Some(self.within_fences(&group, key[group.level..].iter().copied()))
    }

    /// Keys that may be there, in groups that read at most this many blocks, or those of one key. Keys that read the
    /// same blocks are in the same group.
    fn key_groups(&self, keys: &[u32], block_count_max: usize) -> Result<Vec<KeyGroup>, ElfError> {
        self.check_keys(keys)?;
        let key_of =
            |number: usize| &keys[number * self.dimension_count()..][..self.dimension_count()];
        let numbers = 0..keys.len() / self.dimension_count();
        let mut reached: Vec<(Range<u32>, usize)> = numbers
            .filter_map(|number| Some((self.blocks_of(&self.run_of(key_of(number))?), number)))
            .collect();
        reached.sort_unstable_by_key(|(blocks, number)| (blocks.start, blocks.end, *number));
        let mut groups: Vec<KeyGroup> = Vec::new();
        let (mut end, mut room) = (0, 0);
        for (blocks, number) in reached {
            // They ascend by their first block: what lies before `end` is fetched already.
            let mut added = (blocks.end.max(end) - blocks.start.max(end)) as usize;
            if added > room || groups.is_empty() {
                groups.push(KeyGroup::default());
                (added, room) = (blocks.len(), block_count_max.max(blocks.len()));
            }
            room -= added;
            end = end.max(blocks.end);
            if let Some(group) = groups.last_mut() {
                group.numbers.push(number);
                group.codes.extend_from_slice(key_of(number));
                group.blocks.push(blocks);
            }
        }
        for group in &mut groups {
            group.blocks = joined(std::mem::take(&mut group.blocks));
        }
        Ok(groups)
    }
}

/// The first half of some rows and the second.
fn halves(rows: &[Range<u32>]) -> (Vec<Range<u32>>, Vec<Range<u32>>) {
    let count: usize = rows.iter().map(ExactSizeIterator::len).sum();
    let (mut first, mut second, mut room) = (Vec::new(), Vec::new(), count / 2);
    for range in rows {
        let taken = range.len().min(room);
        let middle = range.start + taken as u32;
        room -= taken;
        first.push(range.start..middle);
        second.push(middle..range.end);
    }
    first.retain(|range| !range.is_empty());
    second.retain(|range| !range.is_empty());
    (first, second)
}

fn count_of(blocks: &[Range<u32>]) -> usize {
    blocks.iter().map(ExactSizeIterator::len).sum()
}

impl<F: FetchBlocks> ShelvedElf<F> {
    /// The Elf of a head. At most this many blocks are fetched for a part of a query, while those of another may be
    /// in use; one group of rows is always fetched whole.
    pub fn new(head: Arc<ElfHead>, shelf: F, block_count_max: usize) -> Self {
        Self {
            head,
            shelf,
            block_count_max,
            reads: BlockReads::default(),
        }
    }

    /// Everything but the blocks.
    pub fn head(&self) -> &Arc<ElfHead> {
        &self.head
    }

    /// Where the blocks came from, so far.
    pub fn reads(&self) -> BlockReads {
        self.reads
    }

    /// What a query accepts.
    ///
    /// # Errors
    /// When the query has another number of dimensions, or blocks cannot be fetched.
    pub async fn search(&mut self, query: &QueryBox, wanted: Wanted) -> Result<Found, F::Error> {
        let mut search = self.head.search(query, wanted)?;
        self.reads.look_ups += 1;
        let (shelf, most) = (&self.shelf, self.block_count_max);
        let next = |search: &mut Search<'_>| {
            let mut part: Part = search.next_part(most)?;
            let blocks = shelf.fetch(std::mem::take(&mut part.blocks));
            Some((part, blocks))
        };
        let mut coming = next(&mut search);
        while let Some((part, blocks)) = coming {
            let blocks = blocks.await?;
            coming = next(&mut search);
            self.reads += blocks.reads();
            search.answer(part, blocks);
        }
        Ok(search.finish())
    }

    /// The TIDs of accepted rows, ascending: [`PackedElf::select`].
    ///
    /// # Errors
    /// Those of [`Self::search`].
    pub async fn select(&mut self, query: &QueryBox) -> Result<Vec<u32>, F::Error> {
        match self.search(query, Wanted::Tids).await? {
            Found::Tids(tids) => Ok(tids),
            other => unreachable!("a search for TIDs found {other:?}"),
        }
    }

    /// The accepted rows in Elf order, as ranges that do not touch: [`PackedElf::select_rows`].
    ///
    /// # Errors
    /// Those of [`Self::search`].
    pub async fn select_rows(&mut self, query: &QueryBox) -> Result<Vec<Range<u32>>, F::Error> {
        match self.search(query, Wanted::Rows).await? {
            Found::Rows(rows) => Ok(rows),
            other => unreachable!("a search for rows found {other:?}"),
        }
    }

    /// How many rows are accepted: [`PackedElf::count`].
    ///
    /// # Errors
    /// Those of [`Self::search`].
    pub async fn count(&mut self, query: &QueryBox) -> Result<u64, F::Error> {
        match self.search(query, Wanted::Count).await? {
            Found::Count(count) => Ok(count),
            other => unreachable!("a search for a count found {other:?}"),
        }
    }

    /// Looks up many keys: [`PackedElf::exact_batch`]. Keys are taken in the order of their blocks.
    ///
    /// # Errors
    /// When `keys` is not a whole number of keys, or blocks cannot be fetched; `found` may have been called then.
    pub async fn exact_batch(
        &mut self,
        keys: &[u32],
        mut found: impl FnMut(usize, u32),
    ) -> Result<(), F::Error> {
        let groups = self.head.key_groups(keys, self.block_count_max)?;
        self.reads.look_ups += (keys.len() / self.head.dimension_count()) as u64;
        let shelf = &self.shelf;
        let mut groups = groups.into_iter().map(|mut group| {
            let blocks = shelf.fetch(std::mem::take(&mut group.blocks));
            (group, blocks)
        });
        let mut coming = groups.next();
        while let Some((group, blocks)) = coming {
            let blocks = blocks.await?;
            coming = groups.next();
            self.reads += blocks.reads();
            let elf = PackedElf::new(self.head.clone(), blocks);
            elf.exact_batch(&group.codes, |at, tid| found(group.numbers[at], tid))?;
        }
        Ok(())
    }

    /// Appends the TIDs of all rows equal to `key` to `tids`, ascending: [`PackedElf::exact`].
    ///
    /// # Errors
    /// When the key has another number of dimensions, or blocks cannot be fetched.
    pub async fn exact(&mut self, key: &[u32], tids: &mut Vec<u32>) -> Result<(), F::Error> {
        self.head.check_key(key)?;
        self.reads.look_ups += 1;
        let Some(run) = self.head.run_of(key) else {
            return Ok(());
        };
        let blocks = joined(vec![self.head.blocks_of(&run)]);
        let blocks = self.shelf.fetch(blocks).await?;
        self.reads += blocks.reads();
        PackedElf::new(self.head.clone(), blocks).exact(key, tids)?;
        Ok(())
    }

    /// Appends the codes of rows to `codes`, one vector for each of `columns`: [`PackedElf::read_rows`].
    ///
    /// # Errors
    /// Those of [`PackedElf::read_rows`], or when blocks cannot be fetched; the codes of the first rows may have been
    /// appended then.
    pub async fn read_rows(
        &mut self,
        rows: &[Range<u32>],
        columns: &[usize],
        codes: &mut [Vec<u32>],
    ) -> Result<(), F::Error> {
        let read = |elf: PackedElf<FetchedBlocks>, rows: &[Range<u32>]| {
            elf.read_rows(rows, columns, codes)
        };
        self.read_back(rows, RowParts::Codes(columns), read).await
    }

    /// Appends the TIDs of rows to `tids`, in the order of the rows, as `PackedElf::read_tids`.
    ///
    /// # Errors
    /// Those of `PackedElf::read_tids`, or when blocks cannot be fetched; the TIDs of the first rows may have been
    /// appended then.
    pub async fn read_tids(
        &mut self,
        rows: &[Range<u32>],
        tids: &mut Vec<u32>,
    ) -> Result<(), F::Error> {
        let read = |elf: PackedElf<FetchedBlocks>, rows: &[Range<u32>]| elf.read_tids(rows, tids);
        self.read_back(rows, RowParts::Tids, read).await
    }

    /// Reads rows back from the blocks that have them, as many rows at a time as there is room for.
    async fn read_back(
        &mut self,
        rows: &[Range<u32>],
        wanted: RowParts<'_>,
        mut read: impl FnMut(PackedElf<FetchedBlocks>, &[Range<u32>]) -> Result<(), ElfError>,
    ) -> Result<(), F::Error> {
        let mut waiting = vec![rows.to_vec()];
        while let Some(rows) = waiting.pop() {
            let blocks = self.head.blocks_of_rows(&rows, &wanted)?;
            let is_one = matches!(rows.as_slice(), [] | [_]) && count_of(&rows) <= 1;
            if count_of(&blocks) > self.block_count_max && !is_one {
                let (first, second) = halves(&rows);
                waiting.extend([second, first]);
                continue;
            }
            let blocks = self.shelf.fetch(blocks).await?;
            self.reads += blocks.reads();
            read(PackedElf::new(self.head.clone(), blocks), &rows)?;
        }
        Ok(())
    }
}
