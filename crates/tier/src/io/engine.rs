//! The public face of the engine: start, open, submit, read, and what it did.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parking_lot::Mutex;

use super::fault::Fault;
use super::file::IoFile;
use super::here::Quickness;
use super::lane::Lane;
use super::options::{Backend, IoOptions, check_bandwidth};
use super::request::{Done, Read, ReadRequest};
use super::shared::Shared;
use super::stats::IoStats;
use super::ticket::{ReadFuture, ReadTicket, Slot};
use super::{PAGE_BYTES, pread, uring};
use crate::TierError;

/// Reads files asynchronously, bypassing the page cache where possible. See the [module](super).
///
/// Dropping the engine answers every read: those in flight with their bytes, those still waiting with
/// [`TierError::EngineStopped`].
pub struct IoEngine {
    pub(super) shared: Arc<Shared>,
    pub(super) quickness: Quickness,
    lanes: Vec<Arc<Lane>>,
    next_lane: AtomicUsize,
    threads: Vec<JoinHandle<()>>,
    backend: String,
    opened: Mutex<Opened>,
}

/// How the files opened so far are read.
#[derive(Default)]
struct Opened {
    direct_count: u64,
    buffered_count: u64,
    buffered_because: Option<String>,
}

impl IoEngine {
    /// Starts the I/O threads.
    ///
    /// # Errors
    /// [`TierError::InvalidOption`], or [`TierError::System`] when threads or an explicitly wanted
    /// `io_uring` are refused.
    pub fn start(options: IoOptions) -> Result<Arc<Self>, TierError> {
        options.check()?;
        let mut engine = Self {
            shared: Shared::new(options)?,
            quickness: Quickness::default(),
            lanes: Vec::new(),
            next_lane: AtomicUsize::new(0),
            threads: Vec::new(),
            backend: String::new(),
            opened: Mutex::default(),
        };
        match engine.shared.options.backend {
            Backend::Pread => engine.start_pread(None)?,
            Backend::Uring => engine.start_uring()?,
            Backend::Auto => match engine.start_uring() {
                Ok(()) => {}
                Err(TierError::System { source, .. }) => {
                    tracing::warn!(%source, "io_uring refused: reading by pread on threads");
                    engine.start_pread(Some(source.to_string()))?;
                }
                Err(other) => return Err(other),
            },
        }
        tracing::info!(engine = engine.describe(), "I/O engine started");
        Ok(Arc::new(engine))
    }

    fn start_uring(&mut self) -> Result<(), TierError> {
        for idx in 0..self.shared.options.threads {
            let lane = Arc::new(Lane::with_bell()?);
            match uring::start(&self.shared, &lane, idx) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    self.stop();
                    return Err(error);
                }
            }
            self.lanes.push(lane);
        }
        let IoOptions { threads, depth, .. } = self.shared.options;
        self.backend = format!(
            "io_uring on {threads} thread{}, depth {depth}",
            plural(threads)
        );
        Ok(())
    }

    fn start_pread(&mut self, refused: Option<String>) -> Result<(), TierError> {
        let lane = Arc::new(Lane::new());
        self.lanes.push(Arc::clone(&lane));
        pread::start(&self.shared, &lane, &mut self.threads)?;
        let threads = self.shared.options.pread_threads;
        self.backend = format!("pread on {threads} thread{}", plural(threads));
        if let Some(refused) = refused {
            let _ = write!(self.backend, " (io_uring refused: {refused})");
        }
        Ok(())
    }

    /// Opens a regular file or block device, bypassing the page cache if its file system allows it.
    ///
    /// # Errors
    /// [`TierError::Io`] when it does not exist, may not be read, or is neither.
    pub fn open(self: &Arc<Self>, path: &Path) -> Result<Arc<IoFile>, TierError> {
        self.open_as(path, path)
    }

    /// Opens the file at `path` under another name: errors call it `shown`.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_as(self: &Arc<Self>, path: &Path, shown: &Path) -> Result<Arc<IoFile>, TierError> {
        let options = &self.shared.options;
        if let Some(Fault::Errno(errno)) = options.faults.as_ref().and_then(|faults| faults.next())
        {
            return Err(TierError::io(
                shown,
                "open",
                std::io::Error::from_raw_os_error(errno),
            ));
        }
        let file = IoFile::open_as(path, shown, options.direct)?;
        let mut opened = self.opened.lock();
        match file.buffered_because() {
            None => opened.direct_count += 1,
            Some(reason) => {
                if options.direct {
                    tracing::warn!(path = %shown.display(), reason, "reading through the page cache");
                }
                opened.buffered_count += 1;
                opened.buffered_because = Some(reason.to_owned());
            }
        }
        drop(opened);
        Ok(file)
    }

    /// Starts a read of exactly `[offset, offset + len)`. `done` is called exactly once, on an I/O thread, also
    /// on an error and on cancellation. The bytes handed to it share the buffer the device wrote to, and their
    /// address is congruent to `offset` modulo [`PAGE_BYTES`].
    ///
    /// The answer is an error if the range goes beyond the end of the file.
    pub fn submit(&self, file: &Arc<IoFile>, offset: u64, len: usize, done: Done) -> ReadTicket {
        let read = Read::new(ReadRequest {
            file: Arc::clone(file),
            offset,
            len,
            done,
        });
        self.shared
            .counters
            .asked(1, len as u64, self.shared.now_ns());
        let lane = self.lane();
        lane.send([Arc::clone(&read)]);
        ReadTicket::new(read, Arc::clone(lane))
    }

    /// [`Self::submit`] for many reads at once, with one wake-up, so that neighbours among them are
    /// read together.
    pub fn submit_batch(&self, requests: impl IntoIterator<Item = ReadRequest>) -> Vec<ReadTicket> {
        let reads: Vec<_> = requests.into_iter().map(Read::new).collect();
        let bytes = reads
            .iter()
            .fold(0u64, |sum, read| sum.saturating_add(read.len as u64));
        self.shared
            .counters
            .asked(reads.len() as u64, bytes, self.shared.now_ns());
        let lane = self.lane();
        lane.send(reads.iter().cloned());
        reads
            .into_iter()
            .map(|read| ReadTicket::new(read, Arc::clone(lane)))
            .collect()
    }

    /// [`Self::submit`] as a future.
    pub fn read(&self, file: &Arc<IoFile>, offset: u64, len: usize) -> ReadFuture {
        let (slot, done) = Slot::pair();
        ReadFuture::new(slot, self.submit(file, offset, len, done))
    }

    /// A copy of bytes in a buffer as reads have them.
    ///
    /// # Errors
    /// [`TierError::OutOfMemory`].
    pub fn copied(&self, bytes: &[u8]) -> Result<Bytes, TierError> {
        let len = bytes.len().max(1).next_multiple_of(PAGE_BYTES);
        self.shared
            .arena
            .allocate(len)
            .map(|buffer| buffer.filled_with(bytes))
    }

    fn lane(&self) -> &Arc<Lane> {
        let idx = self.next_lane.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        &self.lanes[idx]
    }

    /// Caps the bytes read from the device and written to it per second, from now on; `None` lifts the cap.
    ///
    /// # Errors
    /// [`TierError::InvalidOption`] for a cap of zero.
    pub fn set_bandwidth_max(&self, bytes_per_s_max: Option<u64>) -> Result<(), TierError> {
        check_bandwidth(bytes_per_s_max)?;
        self.shared
            .throttle
            .lock()
            .set(bytes_per_s_max, self.shared.now_ns());
        self.lanes.iter().for_each(|lane| lane.wake());
        Ok(())
    }

    /// The cap in force.
    pub fn bandwidth_max(&self) -> Option<u64> {
        self.shared.throttle.lock().bytes_per_s_max()
    }

    /// What the engine has done since it was started.
    pub fn stats(&self) -> IoStats {
        let (shared, arena) = (&self.shared, &self.shared.arena);
        let scratch_bytes = shared.options.gap_bytes_max.next_multiple_of(PAGE_BYTES);
        IoStats {
            pooled_bytes: arena.pooled_bytes() as u64,
            lent_bytes: (arena.lent_bytes() - scratch_bytes) as u64,
            ..shared.counters.snapshot(shared.now_ns())
        }
    }

    /// How files are read, in words, with what was refused and why.
    pub fn describe(&self) -> String {
        let opened = self.opened.lock();
        let access = match (&opened.buffered_because, opened.direct_count) {
            (None, _) if self.shared.options.direct => "O_DIRECT".to_owned(),
            (None, _) => "buffered (as asked)".to_owned(),
            (Some(reason), 0) => format!("buffered ({reason})"),
            (Some(reason), direct_count) => {
                let buffered_count = opened.buffered_count;
                format!("O_DIRECT for {direct_count} files, {buffered_count} buffered ({reason})")
            }
        };
        format!("{}, {access}", self.backend)
    }

    fn stop(&mut self) {
        self.lanes.iter().for_each(|lane| lane.stop());
        let own = thread::current().id();
        let threads = std::mem::take(&mut self.threads);
        if threads.iter().any(|thread| thread.thread().id() == own) {
            return; // Dropped inside a callback: the threads end by themselves.
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("an I/O thread panicked");
            }
        }
        self.lanes.clear();
    }
}

impl Drop for IoEngine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
