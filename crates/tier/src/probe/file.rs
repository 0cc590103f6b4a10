//! Measuring files: direct reads through the I/O engine by block size and depth, synced writes, both at once, and reads
//! of DRAM beside them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::file_reads::{Moved, Reading, failed, read_file};
use super::memory::MemoryBench;
use super::report::{Measured, Refusal};
use crate::axes::{Operation, Point};
use crate::error::TierError;
use crate::io::{IoEngine, IoOptions, PAGE_BYTES};
use crate::region::Region;

const READ_NAME: &str = "hotshelf-probe-read.tmp";
const WRITE_NAME: &str = "hotshelf-probe-write.tmp";
const FILL_BYTES: usize = 4 << 20;
/// A write repeat syncs after this much, as the importer does once per file.
const SYNC_BYTES: usize = 64 << 20;

/// A file to measure, removed when dropped unless it is to be kept.
#[derive(Debug)]
pub(super) struct FileBench {
    folder: PathBuf,
    len_bytes: u64,
    /// DRAM that is read beside the file.
    dram: Option<MemoryBench>,
    engine: String,
    keep_file: bool,
}

impl FileBench {
    /// Writes a file of `len_bytes`, or takes the one of an earlier probe.
    pub(super) fn new(
        folder: &Path,
        len_bytes: u64,
        dram: Option<Region>,
        keep_file: bool,
    ) -> Result<Self, TierError> {
        let dram = dram.map(|region| MemoryBench::new(vec![(region, Vec::new())], None));
        let mut bench = Self {
            folder: folder.to_path_buf(),
            len_bytes: (len_bytes / FILL_BYTES as u64).max(1) * FILL_BYTES as u64,
            dram: dram.transpose()?,
            engine: IoEngine::start(IoOptions::default())?.describe(),
            // A file that is not whole is of no use.
            keep_file: false,
        };
        let path = bench.folder.join(READ_NAME);
        if !is_whole(&path, bench.len_bytes) {
            bench.write_read_file(&path)?;
        }
        bench.keep_file = keep_file;
        Ok(bench)
    }

    /// Every page of the file begins with its own number.
    fn write_read_file(&self, path: &Path) -> Result<(), TierError> {
        let io = |operation| move |source| TierError::io(path, operation, source);
        let mut file = File::create(path).map_err(io("create"))?;
        let mut block = vec![0x5au8; FILL_BYTES];
        for start in (0..self.len_bytes).step_by(FILL_BYTES) {
            for (page_idx, page) in block.chunks_mut(PAGE_BYTES).enumerate() {
                let number = start / PAGE_BYTES as u64 + page_idx as u64;
                page[..8].copy_from_slice(&number.to_le_bytes());
            }
            file.write_all(&block).map_err(io("write"))?;
        }
        file.sync_all().map_err(io("sync"))
    }

    /// How files are read here, for the record.
    pub(super) fn engine(&self) -> &str {
        &self.engine
    }

    /// Runs a point for a while.
    pub(super) fn measure(&mut self, point: &Point, time: Duration) -> Result<Measured, Refusal> {
        if point.access_bytes == 0 || point.access_bytes > self.len_bytes || point.threads == 0 {
            return Err(Refusal::DoesNotFit);
        }
        match point.operation {
            _ if point.on_dram => self.on_dram(point, time),
            Operation::Read if point.beside_threads > 0 => self.mixed(point, time),
            Operation::Read => {
                let moved = self.read(point, time)?;
                let one_by_one = point.queue_depth == Some(1) && point.threads == 1;
                let latency_ns = moved.seconds * 1e9 / moved.count as f64;
                Ok(Measured {
                    bandwidth_bytes_per_s: moved.bytes_per_s(),
                    beside_bandwidth_bytes_per_s: None,
                    latency_ns: one_by_one.then_some(latency_ns),
                })
            }
            Operation::Write => Ok(Measured {
                bandwidth_bytes_per_s: self.write(
                    point.threads,
                    point.access_bytes,
                    &Until::at(time),
                )?,
                beside_bandwidth_bytes_per_s: None,
                latency_ns: None,
            }),
        }
    }

    /// Reads while others write files of their own.
    fn mixed(&self, point: &Point, time: Duration) -> Result<Measured, Refusal> {
        let stop = AtomicBool::new(false);
        let (read, written) = thread::scope(|scope| {
            let until = Until {
                stop: Some(&stop),
                ..Until::at(time)
            };
            let write =
                scope.spawn(move || self.write(point.beside_threads, point.access_bytes, &until));
            let read = self.read(point, time);
            stop.store(true, Ordering::Relaxed);
            (read, joined(write))
        });
        Ok(Measured {
            bandwidth_bytes_per_s: read?.bytes_per_s(),
            beside_bandwidth_bytes_per_s: Some(written?),
            latency_ns: None,
        })
    }

    /// Reads DRAM, with or without reads of the file beside.
    fn on_dram(&mut self, point: &Point, time: Duration) -> Result<Measured, Refusal> {
        let mut dram = self.dram.take().ok_or(Refusal::DoesNotFit)?;
        let alone = Point {
            on_dram: false,
            beside_threads: 0,
            queue_depth: None,
            ..*point
        };
        let of_file = Point {
            threads: point.beside_threads,
            ..*point
        };
        let (read, measured) = thread::scope(|scope| {
            let beside =
                (point.beside_threads > 0).then(|| scope.spawn(|| self.read(&of_file, time)));
            let measured = dram.measure(&alone, time);
            (beside.map(joined).transpose(), measured)
        });
        self.dram = Some(dram);
        Ok(Measured {
            beside_bandwidth_bytes_per_s: read?.map(Moved::bytes_per_s),
            ..measured?
        })
    }

    fn read(&self, point: &Point, time: Duration) -> Result<Moved, Refusal> {
        let reading = Reading {
            block_bytes: point.access_bytes as usize,
            depth: point.queue_depth.unwrap_or(1) as usize,
            rings: point.threads as usize,
            pattern: point.pattern,
            time,
        };
        read_file(&self.folder.join(READ_NAME), self.len_bytes, &reading)
    }

    /// Several threads write a file each; bytes per second of all together.
    fn write(&self, threads: u32, block_bytes: u64, until: &Until<'_>) -> Result<f64, Refusal> {
        let moved: Vec<Result<Moved, TierError>> = thread::scope(|scope| {
            let one = |number| scope.spawn(move || self.write_one(number, block_bytes, until));
            let writers: Vec<_> = (0..threads).map(one).collect();
            writers.into_iter().map(joined).collect()
        });
        let rate = |moved: Result<Moved, TierError>| moved.map(Moved::bytes_per_s).map_err(failed);
        moved.into_iter().map(rate).sum()
    }

    fn write_one(
        &self,
        number: u32,
        block_bytes: u64,
        until: &Until<'_>,
    ) -> Result<Moved, TierError> {
        let path = self.folder.join(format!("{WRITE_NAME}.{number}"));
        let written = write_file(&path, block_bytes as usize, until);
        // A partial file would keep a full file system full.
        let removed = fs::remove_file(&path);
        let moved = written?;
        removed.map_err(|source| TierError::io(&path, "remove", source))?;
        Ok(moved)
    }
}

/// Whether an earlier probe has written this file to its end.
fn is_whole(path: &Path, len_bytes: u64) -> bool {
    let last_page = len_bytes / PAGE_BYTES as u64 - 1;
    let mut number = [0; 8];
    let read = File::open(path).and_then(|file| {
        file.read_exact_at(&mut number, last_page * PAGE_BYTES as u64)?;
        file.metadata()
    });
    read.is_ok_and(|found| found.is_file() && found.len() == len_bytes)
        && u64::from_le_bytes(number) == last_page
}

/// When to stop writing.
#[derive(Debug, Clone, Copy)]
struct Until<'a> {
    time: Duration,
    /// Stops only when this is set, too.
    stop: Option<&'a AtomicBool>,
}

impl Until<'_> {
    fn at(time: Duration) -> Self {
        Self { time, stop: None }
    }

    fn is_over(&self, passed: Duration) -> bool {
        let stopped = self.stop.is_none_or(|stop| stop.load(Ordering::Relaxed));
        stopped && passed >= self.time
    }
}

fn write_file(path: &Path, block_bytes: usize, until: &Until<'_>) -> Result<Moved, TierError> {
    let io = |operation| move |source| TierError::io(path, operation, source);
    let block = vec![0x3cu8; block_bytes];
    let per_sync = (SYNC_BYTES / block.len()).max(1) as u64;
    let (mut count, start) = (0u64, Instant::now());
    while count == 0 || !until.is_over(start.elapsed()) {
        let mut file = File::create(path).map_err(io("create"))?;
        for _ in 0..per_sync {
            file.write_all(&block).map_err(io("write"))?;
        }
        file.sync_data().map_err(io("sync"))?;
        count += per_sync;
    }
    Ok(Moved {
        count,
        bytes: count * block.len() as u64,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// What a thread found. A panic in it is a bug of ours: pass it on.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Drop for FileBench {
    fn drop(&mut self) {
        if self.keep_file {
            return;
        }
        // Measuring is over; a file that cannot be removed is the user's to see.
        if let Err(error) = fs::remove_file(self.folder.join(READ_NAME)) {
            tracing::debug!(%error, "cannot remove the file that was measured");
        }
    }
}
