//! Blocks that stay by a choice made once: read in the background when an index is first asked.

use std::cmp::Reverse;
use std::sync::Arc;

use hotshelf_cache::MissCost;

use super::blocks::{BlockStore, ReadPage};
use super::elfs::Asked;
use super::file::IndexFile;
use super::heads::{HeadStore, LoadedHead};
use super::unavailable::Unavailable;

/// Pages that are read at once.
const PAGES_TOGETHER: usize = 64;

/// Begins to read the chosen blocks of an index file, once, on a thread of its own. Queries read blocks themselves
/// until then.
pub(super) fn begin(file: &Arc<IndexFile>, heads: &Arc<HeadStore>, blocks: &Arc<BlockStore>) {
    let Some(first) = file.stretches.first() else {
        return;
    };
    if !blocks.begin_choice(first.key) {
        return;
    }
    let choice = Choice {
        file: file.clone(),
        heads: heads.clone(),
        blocks: blocks.clone(),
    };
    let read = move || {
        if let Err(why) = futures::executor::block_on(choice.read()) {
            let path = choice.file.path().display();
            tracing::warn!(%why, file = %path, "not all chosen blocks of an index are in memory");
        }
    };
    let thread = std::thread::Builder::new().name("hotshelf-choice".into());
    if let Err(error) = thread.spawn(read) {
        tracing::warn!(%error, "no thread to read the chosen blocks of an index on");
    }
}

/// The chosen blocks of an index file.
struct Choice {
    file: Arc<IndexFile>,
    heads: Arc<HeadStore>,
    blocks: Arc<BlockStore>,
}

impl Choice {
    /// Whether anything but this needs the file and the blocks.
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.file) > 1 && Arc::strong_count(&self.blocks) > 1
    }

    /// Reads stretch after stretch, each up to its part of the room that is left.
    async fn read(&self) -> Result<(), Unavailable> {
        let stretch_count = self.file.stretches.len() as u64;
        for (idx, stretch) in (0..stretch_count).zip(&self.file.stretches) {
            let held_bytes = self.blocks.stats().held_bytes;
            let room = self.blocks.limit_bytes().saturating_sub(held_bytes);
            let asked = Asked {
                query: None,
                keys: Some(&[]),
                weight: 0.0,
            };
            let levels = self.blocks.policy().levels();
            let head = self.heads.get(&self.file, stretch, asked, levels).await?;
            let pages = self.pages(&head, room / (stretch_count - idx));
            for wanted in pages.chunks(PAGES_TOGETHER) {
                if !self.is_wanted() {
                    return Ok(());
                }
                let paging = head.head.paging();
                let reading = self.file.begin_blocks(stretch, paging, wanted.to_vec());
                let reading = reading.map_err(Unavailable::damaged)?;
                let read = reading.finish(&self.file, stretch, &head.head).await;
                let (read, seconds) = read.map_err(Unavailable::damaged)?;
                let page = |(page, frame)| ReadPage::new(&head.head, page, frame);
                let read = read.into_iter().map(page).collect();
                let access = MissCost {
                    seconds,
                    weight: 0.0,
                };
                self.blocks.keep(stretch, paging, read, access);
            }
        }
        Ok(())
    }

    /// The chosen pages of a stretch, ascending, that fit into some bytes: those with the most rows.
    fn pages(&self, head: &LoadedHead, room: u64) -> Vec<(u32, u16)> {
        let (head, levels) = (&head.head, self.blocks.policy().levels());
        let paging = head.paging();
        let all = 0..head.block_count(levels);
        let mut pages = paging.pages(std::slice::from_ref(&all));
        let bytes = |bits: u16| u64::from(bits.count_ones()) * paging.block_bytes() as u64;
        if pages.iter().map(|(_, bits)| bytes(*bits)).sum::<u64>() <= room {
            return pages;
        }
        let worth =
            |(page, bits): &(u32, u16)| head.share_of_rows(*page, *bits) / bytes(*bits) as f64;
        pages.sort_by_cached_key(|page| (Reverse(worth(page).to_bits()), page.0));
        let mut left = room;
        pages.retain(|(_, bits)| {
            let fits = bytes(*bits) <= left;
            left -= if fits { bytes(*bits) } else { 0 };
            fits
        });
        pages.sort_unstable();
        pages
    }
}
