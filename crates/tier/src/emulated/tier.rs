//! Memory that answers as late and as slowly as an emulated device.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};

use super::clock::Clock;
use super::device::{Device, Reach, Request};
use super::grid::Grid;
use super::model::DeviceModel;
use crate::axes::{Operation, Pattern};
use crate::error::TierError;
use crate::region::{AnonymousOptions, Region};

/// Short runs of each line of a self-test; the best of them counts.
const SELF_TEST_RUNS: usize = 41;
/// Latencies the waiting is corrected with: around those of the devices that need it to be exact.
const CALIBRATED_LATENCIES_NS: [u64; 7] = [200, 233, 267, 301, 333, 371, 409];

/// Ordinary memory behind an emulated device's latency and bandwidth.
///
/// Only accesses through its methods are slowed: it cannot slow a load through a reference. Whatever is measured with
/// it must be labelled *emulated*.
#[derive(Debug)]
pub struct EmulatedTier {
    memory: RwLock<Region>,
    device: Mutex<Device>,
    clock: Clock,
}

impl EmulatedTier {
    /// Zeroed memory behind `model`.
    ///
    /// # Errors
    /// Those of [`Region::anonymous`].
    pub fn new(model: DeviceModel, len_bytes: usize) -> Result<Self, TierError> {
        let region = Region::anonymous(len_bytes, &AnonymousOptions::default())?;
        let mut tier = Self {
            memory: RwLock::new(region),
            device: Mutex::new(Device::new(model.clone())),
            clock: Clock::calibrated(),
        };
        let late_ns = tier.lateness_ns(&model);
        tier.clock.correct_by(late_ns);
        *tier.device.get_mut() = Device::new(model);
        Ok(tier)
    }

    /// How late an access ends for the work around the wait: the mean over latencies that all differ in where they fall
    /// between two ticks of the clock.
    fn lateness_ns(&mut self, model: &DeviceModel) -> u64 {
        let mut late_ns = 0.0;
        for latency_ns in CALIBRATED_LATENCIES_NS {
            let mut model = model.clone();
            model.read.sequential = Grid::constant(1e12);
            model.read.random = Grid::constant(1e12);
            model.read.sequential_latency_ns = latency_ns;
            model.read.random_latency_ns = latency_ns;
            *self.device.get_mut() = Device::new(model);
            let expected_ns = latency_ns as f64;
            let access = |_| self.charge(Operation::Read, 0, 1);
            late_ns += self.mean_ns(expected_ns, 9, access) - expected_ns;
        }
        (late_ns / CALIBRATED_LATENCIES_NS.len() as f64).max(0.0) as u64
    }

    /// Its size.
    pub fn len_bytes(&self) -> usize {
        self.memory.read().len_bytes()
    }

    /// Reads, and returns when the device would have.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`].
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<(), TierError> {
        self.read_many(&mut [(offset, target)])
    }

    /// Reads several ranges at once; the device serves as many of them together as it can.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`], and then nothing is read.
    pub fn read_many(&self, reads: &mut [(usize, &mut [u8])]) -> Result<(), TierError> {
        for (offset, target) in reads.iter() {
            self.check(*offset, target.len())?;
        }
        let ranges = reads.iter().map(|(offset, target)| (*offset, target.len()));
        let end_ns = self.submit(Operation::Read, ranges);
        let memory = self.memory.read();
        for (offset, target) in reads.iter_mut() {
            target.copy_from_slice(&memory.bytes()[*offset..*offset + target.len()]);
        }
        drop(memory);
        self.clock.wait_until(end_ns);
        Ok(())
    }

    /// Writes, and returns when the device would have.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), TierError> {
        self.check(offset, bytes.len())?;
        let end_ns = self.submit(Operation::Write, [(offset, bytes.len())].into_iter());
        let mut memory = self.memory.write();
        if let Some(target) = memory.volatile_bytes_mut() {
            target[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        drop(memory);
        self.clock.wait_until(end_ns);
        Ok(())
    }

    /// Waits as an access would, without moving bytes: for data that lies elsewhere.
    pub fn charge(&self, operation: Operation, offset: usize, len_bytes: usize) {
        let end_ns = self.submit(operation, [(offset, len_bytes)].into_iter());
        self.clock.wait_until(end_ns);
    }

    /// Starts `count` accesses of `len_bytes` each, the first at `offset`, for data that lies elsewhere. The caller
    /// works on and waits for all of them together: a program that asks early for what it needs later.
    pub fn start(&self, batch: &Batch, reach: Reach) -> Pending {
        let thread = thread_number();
        let now_ns = self.clock.now_ns();
        let request = Request {
            operation: batch.operation,
            pattern: batch.pattern,
            offset: batch.offset as u64,
            len_bytes: batch.len_bytes as u64,
            thread,
            reach,
        };
        if batch.count == 0 {
            return Pending { end_ns: now_ns };
        }
        let end_ns = self
            .device
            .lock()
            .submit_many(now_ns, &request, batch.count);
        Pending { end_ns }
    }

    /// Returns when what was started ends.
    pub fn finish(&self, pending: Pending) {
        self.clock.wait_until(pending.end_ns);
    }

    /// Compares what is delivered with what the model says.
    pub fn self_test(&self) -> Vec<SelfTestLine> {
        let model = self.device.lock().model().clone();
        let mut lines = Vec::new();
        let len = self.len_bytes();
        let far_apart =
            |i: usize, len_bytes: usize| i * 7919 * 4096 % (len - len_bytes) / 4096 * 4096;
        let latency_ns = model.read.random_latency_ns as f64;
        let delivered = self.mean_ns(latency_ns, SELF_TEST_RUNS, |i| {
            self.charge(Operation::Read, far_apart(i, 64), 64)
        });
        lines.push(SelfTestLine::new(
            "latency of a random read, ns",
            latency_ns,
            delivered,
        ));
        for operation in [Operation::Read, Operation::Write] {
            for len_bytes in [4096usize, 65_536] {
                let direction = model.direction(operation);
                let bandwidth = direction.bandwidth(Pattern::Sequential, len_bytes as u64, 1);
                let latency_ns = direction.sequential_latency_ns as f64;
                let expected_ns = (len_bytes as f64 * 1e9 / bandwidth).max(latency_ns);
                let ranges = len / len_bytes;
                let delivered = self.mean_ns(expected_ns, SELF_TEST_RUNS, |i| {
                    self.charge(operation, i % ranges * len_bytes, len_bytes)
                });
                let what = match operation {
                    Operation::Read => "bandwidth of a sequential read, bytes/s",
                    Operation::Write => "bandwidth of a sequential write, bytes/s",
                };
                let per_s = |ns: f64| len_bytes as f64 * 1e9 / ns;
                lines.push(SelfTestLine::new(
                    what,
                    per_s(expected_ns),
                    per_s(delivered),
                ));
            }
        }
        lines
    }

    /// Mean time of an access: the best of many short runs, because one that was interrupted says nothing of the
    /// device.
    fn mean_ns(&self, expected_ns: f64, runs: usize, mut access: impl FnMut(usize)) -> f64 {
        const RUN_NS: f64 = 400_000.0;
        let access_count = (RUN_NS / expected_ns).clamp(4.0, 2000.0) as usize;
        let run = |run: usize| {
            let start_ns = self.clock.now_ns();
            (0..access_count).for_each(|i| access(run * access_count + i));
            (self.clock.now_ns() - start_ns) as f64 / access_count as f64
        };
        (0..runs).map(run).fold(f64::INFINITY, f64::min)
    }

    fn submit(&self, operation: Operation, ranges: impl Iterator<Item = (usize, usize)>) -> u64 {
        let thread = thread_number();
        let now_ns = self.clock.now_ns();
        let mut device = self.device.lock();
        let mut end_ns = now_ns;
        for (offset, len_bytes) in ranges {
            let (offset, len_bytes) = (offset as u64, len_bytes as u64);
            let request = Request {
                operation,
                pattern: device.pattern_of(thread, operation, offset),
                offset,
                len_bytes,
                thread,
                reach: Reach::Near,
            };
            end_ns = end_ns.max(device.submit(now_ns, &request));
        }
        end_ns
    }

    fn check(&self, offset: usize, len_bytes: usize) -> Result<(), TierError> {
        let region_bytes = self.len_bytes();
        match offset
            .checked_add(len_bytes)
            .is_some_and(|end| end <= region_bytes)
        {
            true => Ok(()),
            false => Err(TierError::OutsideRegion {
                offset: offset as u64,
                len_bytes: len_bytes as u64,
                region_bytes: region_bytes as u64,
            }),
        }
    }
}

/// Accesses of one size that are started together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Direction.
    pub operation: Operation,
    /// Whether each continues where the last one ended.
    pub pattern: Pattern,
    /// Where the first one begins.
    pub offset: usize,
    /// Length of each.
    pub len_bytes: usize,
    /// How many.
    pub count: u32,
}

/// Accesses under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the accesses take no time until they are waited for"]
pub struct Pending {
    end_ns: u64,
}

/// One line of a self-test.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfTestLine {
    /// What was compared, with its unit.
    pub what: &'static str,
    /// What the model says.
    pub expected: f64,
    /// What was delivered.
    pub delivered: f64,
}

impl SelfTestLine {
    fn new(what: &'static str, expected: f64, delivered: f64) -> Self {
        Self {
            what,
            expected,
            delivered,
        }
    }

    /// How far the delivered figure is off, as a part of the expected one.
    pub fn error(&self) -> f64 {
        (self.delivered - self.expected).abs() / self.expected
    }
}

/// A small number for the calling thread.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| match number.get() {
        Some(number) => number,
        None => {
            let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(Some(fresh));
            fresh
        }
    })
}
