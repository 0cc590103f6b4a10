//! Frames from the bytes of a shelf: what is read is checked block by block.

use std::path::Path;

use hotshelf_tier::Corruption;

use super::ElfHead;
use super::blocks::{Frame, Paging};

impl ElfHead {
    /// How the blocks lie in pages.
    pub fn paging(&self) -> Paging {
        Paging::new(self.geometry.block_words)
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
}
