//! Frames from the bytes of a shelf: what is read is checked block by block.

use std::path::Path;

use hotshelf_tier::Corruption;
use hotshelf_tier::region::{Sealed, numbers};

use super::ElfHead;
use super::blocks::{Frame, Paging};

impl ElfHead {
    /// How the blocks lie in pages.
    pub fn paging(&self) -> Paging {
        Paging::new(self.geometry.block_words)
    }

    /// The share of the Elf's rows that are in some blocks of a page, a bit for each: how likely a look-up of a random
    /// row reads one of them, about.
    pub fn share_of_rows(&self, page: u32, blocks: u16) -> f64 {
        let first = self.paging().first_block(page) as usize;
        let numbers = (0..u16::BITS).filter(|place| blocks >> place & 1 == 1);
        let rows = numbers.filter_map(|place| self.geometry.rows_of_block(first + place as usize));
        let row_count: usize = rows.map(|(row_count, _)| row_count).sum();
        row_count as f64 / self.row_count.max(1) as f64
    }

    /// How many columns lead to the rows of the first block of a page.
    pub fn level_of_page(&self, page: u32) -> usize {
        let block = self.paging().first_block(page) as usize;
        let first_blocks = &self.geometry.first_blocks;
        first_blocks
            .partition_point(|first| *first <= block)
            .saturating_sub(1)
    }

    /// How many blocks the leaves have, or those of rows to which fewer columns lead than said.
    pub fn block_count(&self, levels: Option<usize>) -> u32 {
        let first_blocks = &self.geometry.first_blocks;
        let end = levels.and_then(|levels| first_blocks.get(levels));
        end.map_or(self.geometry.block_count(), |end| *end) as u32
    }

    /// The blocks of a page that `wanted` has a bit for. `bytes` begin with block `first` of the page. Offsets in
    /// errors are bytes from the first leaf.
    ///
    /// # Errors
    /// When one of the blocks is missing or is not the one that was written there.
    pub fn frame(
        &self,
        file: &Path,
        (page, wanted): (u32, u16),
        first: usize,
        bytes: &[u8],
    ) -> Result<Frame, Corruption> {
        let paging = self.paging();
        let block_bytes = paging.block_bytes();
        let mut words = Vec::with_capacity(wanted.count_ones() as usize * block_bytes / 8);
        for place in (0..u16::BITS as usize).filter(|place| wanted >> place & 1 == 1) {
            let block = paging.first_block(page) + place as u32;
            let start = place.checked_sub(first).map(|past| past * block_bytes);
            let found = start.and_then(|start| bytes.get(start..start + block_bytes));
            let (chunks, _) = found.unwrap_or_default().as_chunks::<8>();
            let begin = words.len();
            words.extend(chunks.iter().map(|word| u64::from_le_bytes(*word)));
            self.check_block(file, block as usize, &words[begin..])?;
        }
        Ok(Frame::new(wanted, words))
    }

    /// The same for blocks that stay where they lie: `bytes` begin with block `first` of the page, at a multiple of
    /// eight. Those with a bit in `checked` were looked at before, and are not again.
    ///
    /// # Errors
    /// The same.
    pub fn lying_frame(
        &self,
        file: &Path,
        (page, wanted): (u32, u16),
        first: usize,
        bytes: Sealed,
        checked: u16,
    ) -> Result<Frame, Corruption> {
        let paging = self.paging();
        let words: &[u64] = numbers(&bytes);
        let mut blocks = words.chunks_exact(paging.block_bytes() / 8);
        let here = first..first + blocks.len();
        for place in 0..u16::BITS as usize {
            let block = here.contains(&place).then(|| blocks.next()).flatten();
            let is_checked = block.is_some() && checked >> place & 1 == 1;
            if wanted >> place & 1 == 1 && !is_checked {
                let number = paging.first_block(page) as usize + place;
                self.check_block(file, number, block.unwrap_or_default())?;
            }
        }
        Ok(Frame::lying(wanted, first, bytes, paging))
    }
}
