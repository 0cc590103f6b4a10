//! Runs operations through an `io_uring` that belongs to one thread.

use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::backlog::{Backlog, Next};
use super::lane::Lane;
use super::operation::{Operation, Progress};
use super::shared::Shared;
use crate::TierError;

/// `user_data` of the poll on the lane's bell; operations use their slot number.
const BELL: u64 = u64::MAX;
/// How long the start waits for the ring to prove that it works.
const PROOF_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause when the kernel is short of memory for requests.
const BUSY_PAUSE: Duration = Duration::from_micros(100);

/// Starts a ring thread; returns when its ring is known to work.
///
/// # Errors
/// [`TierError::System`] when the kernel refuses `io_uring` or is too old for it.
pub(super) fn start(
    shared: &Arc<Shared>,
    lane: &Arc<Lane>,
    idx: usize,
) -> Result<JoinHandle<()>, TierError> {
    let (started, answer) = mpsc::sync_channel(1);
    let (shared, lane) = (Arc::clone(shared), Arc::clone(lane));
    let run = move || match RingThread::new(shared, lane) {
        Err(error) => drop(started.send(Err(error))),
        Ok(mut ring) => {
            let _ = started.send(Ok(()));
            ring.run();
        }
    };
    let thread = thread::Builder::new()
        .name(format!("hotshelf-ring-{idx}"))
        .spawn(run)
        .map_err(|error| TierError::system("start an I/O thread", error))?;
    match answer.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(TierError::system("set up io_uring", error)),
        Err(_) => Err(TierError::system(
            "set up io_uring",
            io::ErrorKind::Other.into(),
        )),
    }
}

/// An `io_uring`, the operations in it, and those that wait.
///
/// Invariants:
/// 1. A slot is `Some` exactly while the kernel may write for its operation.
/// 2. The ring is only entered by the thread that made it.
struct RingThread {
    ring: IoUring,
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    bell: RawFd,
    backlog: Backlog,
    slots: Vec<Option<Operation>>,
    free_slots: Vec<usize>,
    in_flight_bytes: usize,
    finished: Vec<(u64, i32, bool)>,
}

/// What the ring thread waits for. Cancellations, a new cap and the end of the engine wake it in any case.
enum Pause {
    /// All is started.
    UntilMail,
    /// Something has to end first. Mail can wait, and gathers neighbours meanwhile.
    UntilRoom,
    /// The bandwidth cap holds the next operation back. Mail can wait.
    For(Duration),
}

impl RingThread {
    fn new(shared: Arc<Shared>, lane: Arc<Lane>) -> io::Result<Self> {
        let depth = shared.options.depth;
        let ring = build_ring(depth as u32 + 1)?;
        let params = ring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel is too old",
            ));
        }
        let bell = lane.bell().ok_or(io::ErrorKind::InvalidInput)?;
        let mut ring = Self {
            ring,
            shared,
            lane,
            bell,
            backlog: Backlog::default(),
            slots: (0..depth).map(|_| None).collect(),
            free_slots: (0..depth).rev().collect(),
            in_flight_bytes: 0,
            finished: Vec::with_capacity(depth + 1),
        };
        ring.prove()?;
        Ok(ring)
    }

    /// Rings its own bell and waits for it: some systems allow the set-up and fail the use.
    fn prove(&mut self) -> io::Result<()> {
        self.watch_bell()?;
        self.lane.wake();
        self.enter(1, Some(PROOF_TIME_MAX))?;
        match self.ring.completion().next() {
            None => Err(io::ErrorKind::TimedOut.into()),
            Some(entry) if entry.result() < 0 => Err(io::Error::from_raw_os_error(-entry.result())),
            // Without this the bell would have to be emptied and watched anew after each ring.
            Some(entry) if !cqueue::more(entry.flags()) => Err(io::ErrorKind::Unsupported.into()),
            Some(_) => Ok(()),
        }
    }

    fn watch_bell(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(self.bell), libc::POLLIN as u32).multi(true);
        // SAFETY: A poll request refers to no memory.
        unsafe { self.push(&poll.build().user_data(BELL)) }
    }

    /// Serves until the engine stops. Should the ring fail, every read is answered with the error from then on.
    fn run(&mut self) {
        let error = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => io::Error::other("the ring thread panicked"),
        };
        tracing::error!(%error, "io_uring failed: answering all its reads with errors");
        self.refuse(&TierError::system("use io_uring", error));
    }

    /// Answers every read with the error until the engine stops.
    fn refuse(&mut self, error: &TierError) {
        self.fail_in_flight(error);
        while !self.backlog.is_stopping() {
            self.backlog.accept(self.lane.collect(), &self.shared);
            self.backlog.refuse_all(&self.shared, |_| error.clone());
            if self.lane.fall_asleep() {
                self.lane.wait_for_bell();
            }
        }
    }

    /// Serves until the engine stops and nothing is in flight.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.backlog.accept(self.lane.collect(), &self.shared);
            let pause = self.start_operations()?;
            if self.backlog.is_stopping() && self.in_flight_count() == 0 {
                return Ok(());
            }
            let (sleep, time_max) = match pause {
                Pause::UntilMail => (self.lane.fall_asleep(), None),
                Pause::UntilRoom => (true, None),
                Pause::For(time) => (true, Some(time)),
            };
            self.enter(usize::from(sleep), time_max)?;
            self.reap()?;
        }
    }

    fn in_flight_count(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Starts what fits.
    fn start_operations(&mut self) -> io::Result<Pause> {
        while let Some(slot) = self.free_slots.pop() {
            let room_bytes = match self.in_flight_bytes {
                0 => usize::MAX,
                taken => self
                    .shared
                    .options
                    .in_flight_bytes_max
                    .saturating_sub(taken),
            };
            let pause = match self.backlog.next(room_bytes, &self.shared) {
                Next::Run(operation) => {
                    self.submit_in_growing_batches()?;
                    self.issue(slot, operation)?;
                    continue;
                }
                Next::Hold(time) => Pause::For(time),
                Next::NoRoom => Pause::UntilRoom,
                Next::Nothing if self.backlog.is_stopping() => Pause::UntilRoom,
                Next::Nothing => Pause::UntilMail,
            };
            self.free_slots.push(slot);
            return Ok(pause);
        }
        Ok(Pause::UntilRoom)
    }

    /// Submits before another operation is made ready, if more waits to be submitted than the kernel has: one, two,
    /// four… A device that receives all operations at once idles until the last of them is ready.
    fn submit_in_growing_batches(&mut self) -> io::Result<()> {
        // The other operation has its slot already.
        let pushed_count = self.ring.submission().len();
        match pushed_count > 0 && 2 * pushed_count >= self.in_flight_count() {
            true => self.enter(0, None),
            false => Ok(()),
        }
    }

    /// Gives an operation to the kernel, or ends it if that is not possible. The slot is taken or free again.
    fn issue(&mut self, slot: usize, operation: Operation) -> io::Result<()> {
        let mut remaining = vec![operation];
        while let Some(mut operation) = remaining.pop() {
            match operation.prepare(&self.shared) {
                Err(error) => operation.abandon(&self.shared, |_| error.clone()),
                Ok(Some(errno)) => match operation.progress(-errno, &self.shared) {
                    Progress::Again => remaining.push(operation),
                    Progress::Over(result) => remaining.extend(operation.end(result, &self.shared)),
                },
                Ok(None) => {
                    let entry = read_entry(&operation).user_data(slot as u64);
                    self.in_flight_bytes += operation.bytes();
                    self.slots[slot] = Some(operation);
                    self.backlog.put_back(remaining);
                    // SAFETY: The entry's vectors and the memory they describe belong to the operation, which
                    // stays in its slot until the kernel reports the end of the entry.
                    return unsafe { self.push(&entry) };
                }
            }
        }
        self.free_slots.push(slot);
        Ok(())
    }

    /// # Safety
    /// 1. Memory the entry refers to stays valid until the kernel has reported its end.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: Promised by the caller.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter(0, None)?;
        }
    }

    /// Submits what was pushed and waits for `want` completions, at most for the time given.
    fn enter(&mut self, want: usize, time_max: Option<Duration>) -> io::Result<()> {
        let entered = match time_max {
            Some(time) => {
                let time = types::Timespec::from(time);
                let args = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(want, &args)
            }
            None => self.ring.submit_and_wait(want),
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                Some(libc::EBUSY | libc::EAGAIN) => {
                    thread::sleep(BUSY_PAUSE);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    /// Takes in completions: continues or ends their operations. When the kernel runs out of work, operations are
    /// started before the next completion is handled: a callback may take a while.
    fn reap(&mut self) -> io::Result<()> {
        let mut finished = std::mem::take(&mut self.finished);
        let more = |entry: &cqueue::Entry| cqueue::more(entry.flags());
        finished.extend(
            self.ring
                .completion()
                .map(|e| (e.user_data(), e.result(), more(&e))),
        );
        let of_operation = |(user_data, ..): &&(u64, i32, bool)| *user_data != BELL;
        let mut ended_count = finished.iter().filter(of_operation).count();
        for (user_data, result, more) in finished.drain(..) {
            match user_data {
                BELL if more => {}
                BELL => self.watch_bell()?,
                slot => {
                    self.complete(slot as usize, result)?;
                    ended_count -= 1;
                    if ended_count > 0 && self.in_flight_count() == ended_count {
                        self.backlog.accept(self.lane.collect(), &self.shared);
                        self.start_operations()?;
                        self.enter(0, None)?;
                    }
                }
            }
        }
        self.finished = finished;
        Ok(())
    }

    fn complete(&mut self, slot: usize, result: i32) -> io::Result<()> {
        let Some(mut operation) = self.slots[slot].take() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a completion for nothing",
            ));
        };
        self.in_flight_bytes -= operation.bytes();
        match operation.progress(result, &self.shared) {
            Progress::Again => self.issue(slot, operation),
            Progress::Over(result) => {
                self.free_slots.push(slot);
                self.backlog.put_back(operation.end(result, &self.shared));
                Ok(())
            }
        }
    }

    /// Answers the reads in flight although the kernel may still write for them, into memory that is never freed.
    fn fail_in_flight(&mut self, error: &TierError) {
        if self.in_flight_count() > 0 {
            std::mem::forget(Arc::clone(&self.shared)); // It owns the scratch memory.
        }
        for slot in 0..self.slots.len() {
            if let Some(operation) = self.slots[slot].take() {
                operation.abandon_in_flight(&self.shared, error);
                self.free_slots.push(slot);
            }
        }
        self.in_flight_bytes = 0;
    }
}

/// The device call an operation wants next.
fn read_entry(operation: &Operation) -> squeue::Entry {
    let fd = types::Fd(operation.file().raw_fd());
    match operation.vectors() {
        [one] => opcode::Read::new(fd, one.iov_base.cast(), one.iov_len as u32)
            .offset(operation.position())
            .build(),
        many => opcode::Readv::new(fd, many.as_ptr(), many.len() as u32)
            .offset(operation.position())
            .build(),
    }
}

/// The ring with the cheapest completion mode the kernel knows.
fn build_ring(entries: u32) -> io::Result<IoUring> {
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    for mode in 0..3 {
        let mut builder = IoUring::builder();
        builder.setup_clamp();
        match mode {
            0 => drop(builder.setup_single_issuer().setup_defer_taskrun()),
            1 => drop(builder.setup_coop_taskrun()),
            _ => {}
        }
        match builder.build(entries) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::channel;

    use super::super::file::IoFile;
    use super::super::options::IoOptions;
    use super::super::request::{Read, ReadRequest};
    use super::*;

    /// A ring that no thread serves, and a file of ones. `None` where io_uring is not permitted.
    fn ring(options: IoOptions) -> Option<(Arc<IoFile>, RingThread)> {
        let mut on_disk = tempfile::NamedTempFile::new().unwrap();
        on_disk.write_all(&[1; 8 * 40_960]).unwrap();
        let file = IoFile::open(on_disk.path(), true).unwrap();
        let shared = Shared::new(options).unwrap();
        let lane = Arc::new(Lane::with_bell().unwrap());
        Some((file, RingThread::new(shared, lane).ok()?))
    }

    #[test]
    fn when_the_ring_fails_every_read_is_answered_with_the_reason() {
        let Some((file, mut ring)) = ring(IoOptions {
            depth: 1,
            ..IoOptions::default()
        }) else {
            return;
        };
        let (shared, lane) = (Arc::clone(&ring.shared), Arc::clone(&ring.lane));
        let (sender, receiver) = channel();
        let send = |offset| {
            let (file, sender) = (Arc::clone(&file), sender.clone());
            let done = Box::new(move |answer| sender.send(answer).unwrap());
            shared.counters.asked(1, 100, 0);
            lane.send([Read::new(ReadRequest {
                file,
                offset,
                len: 100,
                done,
            })]);
        };
        // Too far apart to be one operation: one is in flight, one waits, and one has not been seen.
        [0, 30_000].into_iter().for_each(send);
        ring.backlog.accept(lane.collect(), &shared);
        ring.start_operations().unwrap();
        assert_eq!(ring.in_flight_count(), 1);
        send(7);
        let failed = TierError::system("use io_uring", io::ErrorKind::BrokenPipe.into());
        lane.stop();
        ring.refuse(&failed);
        let answers: Vec<_> = receiver.try_iter().map(Result::unwrap_err).collect();
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0].to_string(), failed.to_string());
        assert_eq!(shared.counters.snapshot(0).in_flight, 0);
    }

    #[test]
    fn the_device_begins_before_all_operations_are_ready() {
        let Some((file, mut ring)) = ring(IoOptions {
            depth: 8,
            gap_bytes_max: 0,
            ..IoOptions::default()
        }) else {
            return;
        };
        let (shared, lane) = (Arc::clone(&ring.shared), Arc::clone(&ring.lane));
        let (sender, receiver) = channel();
        let reads = (0..8).map(|idx| {
            let (file, sender) = (Arc::clone(&file), sender.clone());
            shared.counters.asked(1, 100, 0);
            Read::new(ReadRequest {
                file,
                offset: idx * 40_960,
                len: 100,
                done: Box::new(move |answer| sender.send(answer).unwrap()),
            })
        });
        lane.send(reads);
        ring.backlog.accept(lane.collect(), &shared);
        ring.start_operations().unwrap();
        // One, two and four have been submitted.
        assert_eq!(ring.ring.submission().len(), 1);
        lane.stop();
        ring.serve().unwrap();
        assert_eq!(receiver.try_iter().filter(Result::is_ok).count(), 8);
    }
}
