//! Reading Elfs from an index file: their heads, or some of their blocks. Every byte is checked.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::try_join_all;
use hotshelf_elf::ElfError;
use hotshelf_elf::layout::packed::{ElfHead, Frame, HeadPart, HeadPlaces, Paging, UpperHead};
use hotshelf_tier::TierError;
use hotshelf_tier::io::{ReadRequest, ReadTicket};
use tokio::sync::oneshot;

use super::file::{IndexFile, Stretch, corrupt, located};
use crate::error::{Result, StoreError};

/// One read of an Elf, and how many are under way at the same time.
const READ_BYTES: usize = 4 << 20;
const READS: usize = 8;

/// Some pages of an Elf's blocks that follow each other, being read at once.
struct PageRun {
    /// Which of the wanted pages.
    pages: Range<usize>,
    /// The first block that is read.
    first_block: u32,
    answer: oneshot::Receiver<Result<Bytes, TierError>>,
}

/// Blocks being read. Dropping it cancels the reads.
pub(super) struct BlocksUnderWay {
    wanted: Vec<(u32, u16)>,
    runs: Vec<PageRun>,
    begun: Instant,
    _tickets: Vec<ReadTicket>,
}

/// The pages that follow each other without a gap, as ranges of places in `wanted`, which ascends.
fn runs_of(wanted: &[(u32, u16)]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in 0..wanted.len() {
        match runs.last_mut() {
            Some(run) if wanted[at - 1].0 + 1 == wanted[at].0 => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

impl IndexFile {
    /// Reads the head of an Elf and checks every byte of it; also where its parts are.
    pub async fn read_head(&self, stretch: &Stretch) -> Result<(ElfHead, HeadPlaces)> {
        let mut bytes: Vec<u8> = Vec::with_capacity(stretch.leaf_offset as usize);
        let mut reads = std::pin::pin!(self.pieces(stretch, 0..stretch.leaf_offset)?);
        while let Some(read) = reads.next().await {
            bytes.extend_from_slice(&read?);
        }
        let path = self.path();
        let at = |error: ElfError| located(error.into(), stretch.offset);
        let (head, places) = ElfHead::read(path, &bytes).map_err(at)?;
        self.check_head(path, stretch, &head, places.leaf_offset)?;
        Ok((head, places))
    }

    /// Reads the upper levels of a head, of which the whole is never in memory. `None` where there is nothing to leave
    /// out, or it cannot be read so.
    pub(super) async fn read_upper(
        &self,
        stretch: &Stretch,
        levels: Option<usize>,
    ) -> Result<Option<UpperHead>> {
        let path = self.path();
        let read = |places: Vec<Range<u64>>| self.places(stretch, places);
        let upper = UpperHead::read(path, levels, read).await;
        let Some((upper, places)) = upper.map_err(|error| located(error, stretch.offset))? else {
            return Ok(None);
        };
        self.check_head(path, stretch, upper.head(), places.leaf_offset)?;
        Ok(Some(upper))
    }

    /// The bytes at some places of an Elf, read together.
    async fn places(&self, stretch: &Stretch, places: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let io = self.handle.open()?;
        let read = |place: Range<u64>| {
            let (at, length) = (
                stretch.offset.saturating_add(place.start),
                place.end - place.start,
            );
            let is_inside = place.end <= stretch.leaf_offset;
            let read = (length > 0 && is_inside)
                .then(|| self.handle.engine().read(&io, at, length as usize));
            async move {
                match read {
                    Some(read) => read.await,
                    None => Ok(Bytes::new()),
                }
            }
        };
        Ok(try_join_all(places.into_iter().map(read)).await?)
    }

    /// Reads what a question needs of a head beside its upper levels, and puts both together.
    pub(super) async fn read_head_part(
        &self,
        stretch: &Stretch,
        upper: &UpperHead,
        part: &HeadPart,
    ) -> Result<ElfHead> {
        let read = self.places(stretch, part.reads.clone()).await?;
        let head = upper.with_part(self.path(), part, &read);
        head.map_err(|damage| located(damage.into(), stretch.offset))
    }

    /// Reads some bytes of an Elf's leaves.
    pub(super) async fn read_leaves(
        &self,
        stretch: &Stretch,
        from: u64,
        length: u64,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length as usize);
        let start = stretch.leaf_offset + from;
        let mut reads = std::pin::pin!(self.pieces(stretch, start..start + length)?);
        while let Some(read) = reads.next().await {
            bytes.extend_from_slice(&read?);
        }
        Ok(bytes)
    }

    /// Whether a head is that of its stretch.
    fn check_head(
        &self,
        path: &Path,
        stretch: &Stretch,
        head: &ElfHead,
        leaf_offset: u64,
    ) -> Result<()> {
        let (expected, found) = (stretch.bytes, leaf_offset + head.leaf_bytes());
        if leaf_offset != stretch.leaf_offset || found != expected {
            return Err(corrupt(path, stretch.offset, "bytes of an Elf", expected, found).into());
        }
        let fits = head.row_count() as u64 == stretch.rows.end - stretch.rows.start
            && head.dimension_count() == self.keys.len()
            && head.is_clustered() == self.clustered;
        if !fits {
            let (what, found) = ("rows and columns of an Elf", head.row_count());
            return Err(corrupt(path, stretch.offset, what, "those indexed", found).into());
        }
        Ok(())
    }

    /// Some bytes of an Elf, in pieces, several of them on their way.
    fn pieces(
        &self,
        stretch: &Stretch,
        bytes: Range<u64>,
    ) -> Result<impl futures::Stream<Item = Result<Bytes, TierError>>> {
        let io = self.handle.open()?;
        let offset = stretch.offset;
        let reads = bytes.clone().step_by(READ_BYTES).map(move |at| {
            let length = (bytes.end - at).min(READ_BYTES as u64) as usize;
            self.handle.engine().read(&io, offset + at, length)
        });
        Ok(futures::stream::iter(reads).buffered(READS))
    }

    /// Begins to read blocks of an Elf: of each page, which ascend, those that have a bit. Pages that follow each other
    /// are one read.
    pub(super) fn begin_blocks(
        &self,
        stretch: &Stretch,
        paging: Paging,
        wanted: Vec<(u32, u16)>,
    ) -> Result<BlocksUnderWay> {
        let leaves = stretch.offset + stretch.leaf_offset;
        let (mut runs, mut requests) = (Vec::new(), Vec::new());
        let file = match wanted.is_empty() {
            true => None,
            false => Some(self.handle.open()?),
        };
        for (pages, file) in runs_of(&wanted).into_iter().zip(file.iter().cycle()) {
            let (first_page, first_bits) = wanted[pages.start];
            let (last_page, last_bits) = wanted[pages.end - 1];
            let first_block = paging.first_block(first_page) + first_bits.trailing_zeros();
            let end_block = paging.first_block(last_page) + 16 - last_bits.leading_zeros();
            let (sender, answer) = oneshot::channel();
            requests.push(ReadRequest {
                file: file.clone(),
                offset: leaves + u64::from(first_block) * paging.block_bytes() as u64,
                len: (end_block - first_block) as usize * paging.block_bytes(),
                done: Box::new(move |read| drop(sender.send(read))),
            });
            runs.push(PageRun {
                pages,
                first_block,
                answer,
            });
        }
        let (begun, engine) = (Instant::now(), self.handle.engine());
        // One small read, as of a single key, is not worth waking other threads for.
        if requests.len() == 1
            && let Some(request) = requests.pop()
        {
            requests.extend(engine.serve_here(request).err());
        }
        Ok(BlocksUnderWay {
            wanted,
            runs,
            begun,
            _tickets: engine.submit_batch(requests),
        })
    }
}

impl BlocksUnderWay {
    /// Reads of the shelf.
    pub fn access_count(&self) -> usize {
        self.runs.len()
    }

    /// The blocks of each page, checked, and the seconds that an access took.
    pub async fn finish(
        self,
        file: &IndexFile,
        stretch: &Stretch,
        head: &ElfHead,
    ) -> Result<(Vec<(u32, Frame)>, f64)> {
        let Self {
            wanted,
            runs,
            begun,
            _tickets,
        } = self;
        let (path, paging) = (file.path(), head.paging());
        let (mut frames, access_count) = (Vec::with_capacity(wanted.len()), runs.len());
        for run in runs {
            let leaves = stretch.offset + stretch.leaf_offset;
            let bytes = run.answer.await.map_err(|_| TierError::EngineStopped {
                path: path.to_owned(),
                offset: leaves + u64::from(run.first_block) * paging.block_bytes() as u64,
            })??;
            for &(page, bits) in &wanted[run.pages] {
                let first = paging.first_block(page).max(run.first_block);
                let skipped = (first - run.first_block) as usize * paging.block_bytes();
                let place = (first - paging.first_block(page)) as usize;
                let bytes = bytes.get(skipped..).unwrap_or_default();
                let frame = head.frame(path, (page, bits), place, bytes);
                let frame = frame.map_err(|damage| located(StoreError::from(damage), leaves))?;
                frames.push((page, frame));
            }
        }
        let access_s = begun.elapsed().as_secs_f64() / access_count.max(1) as f64;
        Ok((frames, access_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_each_other_are_one_read() {
        let wanted = [(3, 1), (4, 0xffff), (5, 1), (7, 2), (9, 1), (10, 1)];
        assert_eq!(runs_of(&wanted), [0..3, 3..4, 4..6]);
        assert_eq!(runs_of(&[]), [0usize..0; 0]);
    }
}
