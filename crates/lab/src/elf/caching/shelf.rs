//! The shelves an Elf lies on, and what one thread's accesses to them cost.
//!
//! A [`Lane`] is one thread's way to a shelf. The bytes themselves are in memory in every case: a lane only makes the
//! thread wait as long as the shelf takes to bring them. [`Dram`] never waits, [`EmulatedLane`] waits for an
//! *emulated* device, and `device::DeviceLane` for reads of a real one.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_tier::emulated::{Clock, DeviceModel};
use hotshelf_tier::probe::Pattern;

use super::cpu_cache::CpuCache;

/// The last cache of the papers' machine.
pub const CPU_CACHE_BYTES: u64 = 13_750_000;

/// Reads that one thread has in flight at most.
const IN_FLIGHT_MAX: usize = 16;

/// From this many pieces in sequence on, the CPU has recognised a stream and reads ahead as far as it can.
const STREAM_PIECES: u32 = 3;

/// What a stream has taken is waited for at once when it is this much.
const OWED_NS_MAX: u64 = 500;

/// Pieces between accesses at random.
const FAR_APART: u64 = 97;

/// What a device moves at once. Neighbouring lines of one grain count as one access.
const GRAIN_SHIFT: u32 = 8;

/// Accesses to a shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accesses {
    /// Runs of pieces that were read one after the other from one grain of the device.
    pub grains: u64,
    /// Pieces that were read.
    pub pieces: u64,
    /// Reads that the device refused.
    pub failures: u64,
}

impl AddAssign for Accesses {
    fn add_assign(&mut self, other: Self) {
        self.grains += other.grains;
        self.pieces += other.pieces;
        self.failures += other.failures;
    }
}

/// One thread's way to a shelf, in pieces of a fixed size.
pub trait Lane: Send {
    /// Returns when the piece has arrived.
    fn load(&mut self, piece: usize);

    /// Starts reading a piece.
    fn prefetch(&mut self, piece: usize);

    /// What was read so far.
    fn accesses(&self) -> Accesses;

    /// Whether to wait at all; what is in the CPU's cache is kept up to date without.
    fn set_waiting(&mut self, is_waiting: bool);
}

/// Memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dram;

impl Lane for Dram {
    #[inline(always)]
    fn load(&mut self, _piece: usize) {}

    #[inline(always)]
    fn prefetch(&mut self, _piece: usize) {}

    fn accesses(&self) -> Accesses {
        Accesses::default()
    }

    fn set_waiting(&mut self, _is_waiting: bool) {}
}

/// Latencies of the papers' DRAM (2022, Table 1).
const DRAM: Latency = Latency {
    random_ns: 90,
    sequential_ns: 80,
};

#[derive(Debug, Clone, Copy)]
struct Latency {
    random_ns: u64,
    sequential_ns: u64,
}

/// An *emulated* device: an access ends when its latency has passed since it was asked for, and not before the device
/// has moved what was asked for earlier. A piece that was not prefetched is waited for by what the device's latency
/// exceeds DRAM's, and then loaded from this machine's DRAM, at its speed. Pieces of a stream are read ahead, as many
/// together as a thread can have in flight.
#[derive(Debug)]
pub struct Emulated {
    clock: Clock,
    /// Of a piece that was asked for ahead: its load from DRAM is on its way meanwhile.
    ahead: Latency,
    /// Of a piece that is loaded at once, beyond DRAM's latency: its load from DRAM follows.
    beyond: Latency,
    /// How long the device is busy with one grain, in picoseconds.
    grain_ps: u64,
    /// When the device is free, in picoseconds; shared by all threads.
    free_ps: AtomicU64,
    /// By how much waits end late.
    late_ns: u64,
    cpu_cache_bytes: u64,
}

impl Emulated {
    /// A device with the latencies and the bandwidth of a model, read through a CPU cache of this size.
    pub fn new(model: &DeviceModel, cpu_cache_bytes: u64) -> Self {
        let read = &model.read;
        let bandwidth = read.bandwidth(Pattern::Random, 1 << GRAIN_SHIFT, 1);
        let mut shelf = Self {
            clock: Clock::calibrated(),
            ahead: Latency {
                random_ns: read.random_latency_ns,
                sequential_ns: read.sequential_latency_ns,
            },
            beyond: Latency {
                random_ns: read.random_latency_ns.saturating_sub(DRAM.random_ns),
                sequential_ns: read
                    .sequential_latency_ns
                    .saturating_sub(DRAM.sequential_ns),
            },
            grain_ps: ((1 << GRAIN_SHIFT) as f64 * 1e12 / bandwidth) as u64,
            free_ps: AtomicU64::new(0),
            late_ns: 0,
            cpu_cache_bytes,
        };
        let delivered_ns = shelf.mean_ns(|at| at * FAR_APART);
        shelf.late_ns = delivered_ns.saturating_sub(shelf.beyond.random_ns);
        shelf
    }

    /// Nanoseconds of an access at random and of one right after it, as they are and with DRAM's own added.
    pub fn delivered_ns(&self) -> (u64, u64) {
        let random_ns = self.mean_ns(|at| at * FAR_APART);
        let both_ns = 2 * self.mean_ns(|at| at / 2 * FAR_APART + at % 2);
        let sequential_ns = both_ns.saturating_sub(random_ns);
        (
            random_ns + DRAM.random_ns,
            sequential_ns + DRAM.sequential_ns,
        )
    }

    /// Mean nanoseconds of an access: the best of several runs, because one that was interrupted says nothing of the
    /// device.
    fn mean_ns(&self, piece: fn(u64) -> u64) -> u64 {
        const ACCESSES: u64 = 2_000;
        let run = |run: u64| {
            let mut lane = self.lane(6);
            let start = self.clock.now_ns();
            (0..ACCESSES).for_each(|at| lane.load(piece(run * ACCESSES + at) as usize));
            (self.clock.now_ns() - start) / ACCESSES
        };
        (0..25).map(run).min().unwrap_or(0)
    }

    /// A thread's way to the device, in pieces of `1 << piece_shift` bytes, with a CPU cache of its own.
    pub fn lane(&self, piece_shift: u32) -> EmulatedLane<'_> {
        EmulatedLane {
            shelf: self,
            cache: CpuCache::new(self.cpu_cache_bytes, piece_shift),
            grain_shift: GRAIN_SHIFT.saturating_sub(piece_shift),
            is_waiting: true,
            recent: usize::MAX,
            last: usize::MAX,
            streak: 1,
            owed_ns: 0,
            in_flight: [(usize::MAX, 0); IN_FLIGHT_MAX],
            in_flight_count: 0,
            next: 0,
            accesses: Accesses::default(),
        }
    }
}

/// One thread's way to an *emulated* device.
#[derive(Debug)]
pub struct EmulatedLane<'a> {
    shelf: &'a Emulated,
    cache: CpuCache,
    /// Pieces of a grain, as a shift.
    grain_shift: u32,
    is_waiting: bool,
    /// The piece that was last loaded or asked for.
    recent: usize,
    /// The piece that was last read from the device, and how many in sequence it ended.
    last: usize,
    streak: u32,
    /// What the pieces of a stream have taken, to be waited for with the next one that is not of it: less than a clock
    /// can show.
    owed_ns: u64,
    /// Pieces that were asked for and not loaded since, and when they arrive.
    in_flight: [(usize, u64); IN_FLIGHT_MAX],
    in_flight_count: usize,
    /// Where the next one goes.
    next: usize,
    accesses: Accesses,
}

impl EmulatedLane<'_> {
    /// Asks the device for a piece; says when it arrives.
    fn issue(&mut self, piece: usize, latency: Latency) -> u64 {
        let follows = piece == self.last.wrapping_add(1);
        let is_same_grain = piece >> self.grain_shift == self.last >> self.grain_shift;
        self.last = piece;
        self.accesses.pieces += 1;
        self.accesses.grains += u64::from(!is_same_grain);
        self.streak = if follows { self.streak + 1 } else { 1 };
        let shelf = self.shelf;
        let latency = if follows {
            latency.sequential_ns
        } else {
            latency.random_ns
        };
        if !self.is_waiting || latency == 0 {
            return 0;
        }
        if self.streak > STREAM_PIECES {
            self.owed_ns += shelf.beyond.random_ns / IN_FLIGHT_MAX as u64;
            if self.owed_ns < OWED_NS_MAX {
                return 0;
            }
            return shelf.clock.now_ns() + std::mem::take(&mut self.owed_ns);
        }
        let now = shelf.clock.now_ns() + std::mem::take(&mut self.owed_ns);
        let end = now + latency.saturating_sub(shelf.late_ns);
        if is_same_grain {
            return end;
        }
        // Threads that ask at the same moment may count one grain for two: far from a bandwidth that two threads reach.
        let free = shelf.free_ps.load(Ordering::Relaxed).max(now * 1000) + shelf.grain_ps;
        shelf.free_ps.store(free, Ordering::Relaxed);
        end.max(free / 1000)
    }

    #[inline]
    fn wait_until(&self, end: u64) {
        if self.is_waiting && end > 0 {
            self.shelf.clock.wait_until(end);
        }
    }

    /// Whether the piece was asked for before; waits for it then.
    fn arrives(&mut self, piece: usize) -> bool {
        let found = self.in_flight.iter().position(|&(own, _)| own == piece);
        let Some(at) = found else {
            return false;
        };
        let (_, end) = std::mem::replace(&mut self.in_flight[at], (usize::MAX, 0));
        self.in_flight_count -= 1;
        self.wait_until(end);
        true
    }

    fn load_other(&mut self, piece: usize) {
        self.recent = piece;
        if self.in_flight_count > 0 && self.arrives(piece) {
            return;
        }
        if !self.cache.touch(piece as u32) {
            let end = self.issue(piece, self.shelf.beyond);
            self.wait_until(end);
        }
    }

    fn prefetch_other(&mut self, piece: usize) {
        self.recent = piece;
        if self.cache.touch(piece as u32) {
            return;
        }
        let (own, end) = self.in_flight[self.next];
        if own == usize::MAX {
            self.in_flight_count += 1;
        } else {
            self.wait_until(end);
        }
        self.in_flight[self.next] = (piece, self.issue(piece, self.shelf.ahead));
        self.next = (self.next + 1) % IN_FLIGHT_MAX;
    }
}

impl Lane for EmulatedLane<'_> {
    #[inline(always)]
    fn load(&mut self, piece: usize) {
        if piece != self.recent || self.in_flight_count > 0 {
            self.load_other(piece);
        }
    }

    #[inline(always)]
    fn prefetch(&mut self, piece: usize) {
        if piece != self.recent {
            self.prefetch_other(piece);
        }
    }

    fn accesses(&self) -> Accesses {
        self.accesses
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
        self.owed_ns = 0;
        self.in_flight = [(usize::MAX, 0); IN_FLIGHT_MAX];
        self.in_flight_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn optane(cpu_cache_bytes: u64) -> Emulated {
        Emulated::new(&DeviceModel::named("optane").unwrap(), cpu_cache_bytes)
    }

    #[test]
    fn what_was_touched_is_not_read_again() {
        let shelf = optane(1 << 20);
        let mut lane = shelf.lane(6);
        for piece in [5, 5, 900, 5, 900, 6, 7] {
            lane.load(piece);
        }
        // 5, 900, 6 and 7; 6 and 7 are in one grain.
        let expected = Accesses {
            grains: 3,
            pieces: 4,
            failures: 0,
        };
        assert_eq!(lane.accesses(), expected);
    }

    #[test]
    fn a_piece_that_was_asked_for_is_read_once() {
        let shelf = optane(1 << 20);
        let mut lane = shelf.lane(8);
        for piece in 0..40 {
            lane.prefetch(piece * 3);
        }
        for piece in 0..40 {
            lane.load(piece * 3);
        }
        assert_eq!(lane.accesses().pieces, 40);
    }
}
