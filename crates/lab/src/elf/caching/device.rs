//! A real block device as a shelf: each page that is not at hand is read from a file by a direct read.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use hotshelf_tier::TierError;
use hotshelf_tier::io::{IoEngine, IoFile, IoOptions, PAGE_BYTES, ReadFuture};

use super::shelf::{Accesses, Lane};

/// Pages that a lane keeps, the most recent ones; they take 256 KiB of DRAM.
const PAGES_AT_HAND: usize = 64;

/// Reads that one lane has in flight at most.
const IN_FLIGHT_MAX: usize = 16;

/// A file with the words of an Elf.
pub struct Device {
    engine: Arc<IoEngine>,
    file: Arc<IoFile>,
}

impl Device {
    /// Writes bytes into a new file, padded to a whole page, and opens it for direct reads.
    ///
    /// # Errors
    /// Those of the file system and of the I/O engine.
    pub fn create(
        path: &Path,
        bytes: impl Iterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Self, TierError> {
        let write = || {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
            let mut len = 0;
            for bytes in bytes {
                file.write_all(bytes.as_ref())?;
                len += bytes.as_ref().len();
            }
            file.write_all(&vec![0; len.next_multiple_of(PAGE_BYTES) - len])?;
            file.into_inner()?.sync_all()
        };
        write().map_err(|error| TierError::io(path, "write", error))?;
        let engine = IoEngine::start(IoOptions::default())?;
        let file = engine.open(path)?;
        Ok(Self { engine, file })
    }

    /// Fills memory with the words of the file from one on, which begins a page, this many bytes at once.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read_into(
        &self,
        start: usize,
        words: &mut [u32],
        bytes_at_once: usize,
    ) -> Result<(), TierError> {
        let mut stretches = words.chunks_mut(bytes_at_once / 4);
        let (mut coming, mut offset) = (VecDeque::new(), start as u64 * 4);
        loop {
            if coming.len() < IN_FLIGHT_MAX
                && let Some(stretch) = stretches.next()
            {
                let len = stretch.len() * 4;
                coming.push_back((self.engine.read(&self.file, offset, len), stretch));
                offset += len as u64;
                continue;
            }
            let Some((read, stretch)) = coming.pop_front() else {
                return Ok(());
            };
            let bytes = read.wait()?;
            for (word, bytes) in stretch.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = u32::from_le_bytes(*bytes);
            }
        }
    }

    /// A thread's way to the device, in pieces of `1 << piece_shift` bytes.
    pub fn lane(&self, piece_shift: u32) -> DeviceLane<'_> {
        DeviceLane {
            device: self,
            page_shift: PAGE_BYTES.trailing_zeros() - piece_shift,
            recent: usize::MAX,
            at_hand: VecDeque::new(),
            in_flight: VecDeque::new(),
            is_waiting: true,
            accesses: Accesses::default(),
        }
    }
}

/// One thread's way to a device.
pub struct DeviceLane<'a> {
    device: &'a Device,
    /// Pieces of a page, as a shift.
    page_shift: u32,
    recent: usize,
    at_hand: VecDeque<usize>,
    in_flight: VecDeque<(usize, ReadFuture)>,
    is_waiting: bool,
    accesses: Accesses,
}

impl DeviceLane<'_> {
    fn ask(&mut self, page: usize) -> ReadFuture {
        self.accesses.grains += 1;
        self.accesses.pieces += 1;
        let offset = (page * PAGE_BYTES) as u64;
        let device = self.device;
        device.engine.read(&device.file, offset, PAGE_BYTES)
    }

    fn wait_for(&mut self, page: usize, read: ReadFuture) {
        self.accesses.failures += u64::from(read.wait().is_err());
        self.at_hand.push_back(page);
        if self.at_hand.len() > PAGES_AT_HAND {
            self.at_hand.pop_front();
        }
    }
}

impl Lane for DeviceLane<'_> {
    fn load(&mut self, piece: usize) {
        let page = piece >> self.page_shift;
        if page == self.recent || !self.is_waiting || self.at_hand.contains(&page) {
            return;
        }
        self.recent = page;
        let asked = self.in_flight.iter().position(|(own, _)| *own == page);
        let read = match asked.and_then(|at| self.in_flight.remove(at)) {
            Some((_, read)) => read,
            None => self.ask(page),
        };
        self.wait_for(page, read);
    }

    fn prefetch(&mut self, piece: usize) {
        let page = piece >> self.page_shift;
        let is_known = page == self.recent
            || self.at_hand.contains(&page)
            || self.in_flight.iter().any(|(own, _)| *own == page);
        if is_known || !self.is_waiting {
            return;
        }
        if self.in_flight.len() == IN_FLIGHT_MAX
            && let Some((page, read)) = self.in_flight.pop_front()
        {
            self.wait_for(page, read);
        }
        let read = self.ask(page);
        self.in_flight.push_back((page, read));
    }

    fn accesses(&self) -> Accesses {
        self.accesses
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
        self.in_flight.clear();
    }
}
