//! Measuring files: direct reads through the I/O engine by block size and depth, and synced writes.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::axes::{Operation, Pattern, Point};
use super::kernels::next_random;
use super::run::{Measured, Refusal};
use crate::error::TierError;
use crate::io::{IoEngine, IoFile, IoOptions, ReadFuture};

const READ_NAME: &str = "hotshelf-probe-read.tmp";
const WRITE_NAME: &str = "hotshelf-probe-write.tmp";
/// Every page of the file begins with its own number.
const PAGE_BYTES: usize = 4096;
const FILL_BYTES: usize = 4 << 20;
/// A write repeat syncs after this much, as the importer does once per file.
const SYNC_BYTES: usize = 64 << 20;

/// A file to measure, removed when dropped.
#[derive(Debug)]
pub(super) struct FileBench {
    folder: PathBuf,
    len_bytes: u64,
}

impl FileBench {
    /// Writes a file of `len_bytes`.
    pub(super) fn new(folder: &Path, len_bytes: u64) -> Result<Self, TierError> {
        let bench = Self {
            folder: folder.to_path_buf(),
            len_bytes: len_bytes / FILL_BYTES as u64 * FILL_BYTES as u64,
        };
        let path = bench.folder.join(READ_NAME);
        let io = |operation| {
            let path = path.clone();
            move |source| TierError::io(&path, operation, source)
        };
        let mut file = File::create(&path).map_err(io("create"))?;
        let mut block = vec![0x5au8; FILL_BYTES];
        for start in (0..bench.len_bytes).step_by(FILL_BYTES) {
            for (page_idx, page) in block.chunks_mut(PAGE_BYTES).enumerate() {
                let number = start / PAGE_BYTES as u64 + page_idx as u64;
                page[..8].copy_from_slice(&number.to_le_bytes());
            }
            file.write_all(&block).map_err(io("write"))?;
        }
        file.sync_all().map_err(io("sync"))?;
        Ok(bench)
    }

    /// Runs a point for a while.
    pub(super) fn measure(&self, point: &Point, time: Duration) -> Result<Measured, Refusal> {
        let failed = |error: TierError| Refusal::Failed {
            reason: error.to_string(),
        };
        match point.operation {
            Operation::Read => self.read(point, time),
            Operation::Write => self.write(point, time).map_err(failed),
        }
    }

    fn read(&self, point: &Point, time: Duration) -> Result<Measured, Refusal> {
        let failed = |error: TierError| Refusal::Failed {
            reason: error.to_string(),
        };
        let depth = point.queue_depth.unwrap_or(1) as usize;
        let block = point.access_bytes as usize;
        let options = IoOptions {
            threads: 1,
            depth,
            pread_threads: depth.clamp(1, 16),
            // Blocks must not be merged, or another size would be measured.
            merge_bytes_max: block,
            gap_bytes_max: 0,
            in_flight_bytes_max: (depth * block).max(1 << 20),
            ..IoOptions::default()
        };
        let engine = IoEngine::start(options).map_err(failed)?;
        let file = engine.open(&self.folder.join(READ_NAME)).map_err(failed)?;
        if !file.is_direct() {
            return Err(Refusal::NotDirect);
        }
        let mut reads = Reads {
            engine: &engine,
            file,
            block,
            places: (self.len_bytes / block as u64).max(1),
            place: 0,
            pattern: point.pattern,
            random: 1,
        };
        let start = Instant::now();
        let mut flying: VecDeque<(u64, ReadFuture)> = (0..depth).map(|_| reads.next()).collect();
        let mut count = 0u64;
        while let Some((offset, read)) = flying.pop_front() {
            let bytes = read.wait().map_err(failed)?;
            if bytes.len() != block || bytes[..8] != (offset / PAGE_BYTES as u64).to_le_bytes() {
                return Err(Refusal::WrongSum);
            }
            count += 1;
            if start.elapsed() < time {
                flying.push_back(reads.next());
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Measured {
            bandwidth_bytes_per_s: count as f64 * block as f64 / seconds,
            beside_bandwidth_bytes_per_s: None,
            latency_ns: (depth == 1).then(|| seconds * 1e9 / count as f64),
        })
    }

    fn write(&self, point: &Point, time: Duration) -> Result<Measured, TierError> {
        let path = self.folder.join(WRITE_NAME);
        let io = |operation| {
            let path = path.clone();
            move |source| TierError::io(&path, operation, source)
        };
        let block = vec![0x3cu8; point.access_bytes as usize];
        let per_sync = (SYNC_BYTES / block.len()).max(1);
        let (mut bytes, start) = (0u64, Instant::now());
        while bytes == 0 || start.elapsed() < time {
            let mut file = File::create(&path).map_err(io("create"))?;
            for _ in 0..per_sync {
                file.write_all(&block).map_err(io("write"))?;
                bytes += block.len() as u64;
            }
            file.sync_data().map_err(io("sync"))?;
        }
        Ok(Measured {
            bandwidth_bytes_per_s: bytes as f64 / start.elapsed().as_secs_f64(),
            beside_bandwidth_bytes_per_s: None,
            latency_ns: None,
        })
    }
}

impl Drop for FileBench {
    fn drop(&mut self) {
        for name in [READ_NAME, WRITE_NAME] {
            // The second file may never have been written.
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}

/// Where the next read goes.
struct Reads<'a> {
    engine: &'a IoEngine,
    file: Arc<IoFile>,
    block: usize,
    places: u64,
    place: u64,
    pattern: Pattern,
    random: u64,
}

impl Reads<'_> {
    fn next(&mut self) -> (u64, ReadFuture) {
        let offset = self.place * self.block as u64;
        self.place = match self.pattern {
            Pattern::Sequential => (self.place + 1) % self.places,
            Pattern::Random | Pattern::Dependent => {
                self.random = next_random(self.random);
                ((u128::from(self.random) * u128::from(self.places)) >> 64) as u64
            }
        };
        (offset, self.engine.read(&self.file, offset, self.block))
    }
}
