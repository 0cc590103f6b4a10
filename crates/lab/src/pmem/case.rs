//! One combination of a figure's axes.

use hotshelf_tier::probe::{Grouping, Operation, Pattern, Pinning, Placement, Point};

/// One combination of the axes. Readers and writers work at the same time; one of the two may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub pattern: Pattern,
    pub grouping: Grouping,
    pub pinning: Pinning,
    pub placement: Placement,
    pub access_bytes: u64,
    pub readers: u32,
    pub writers: u32,
}

impl Case {
    /// Sequential access in ranges of one's own, on one socket: where most of the paper's runs are.
    pub const fn near(access_bytes: u64, readers: u32, writers: u32) -> Self {
        Self {
            pattern: Pattern::Sequential,
            grouping: Grouping::Individual,
            pinning: Pinning::Node,
            placement: Placement::Near,
            access_bytes,
            readers,
            writers,
        }
    }

    pub const fn grouped(self) -> Self {
        Self {
            grouping: Grouping::Grouped,
            ..self
        }
    }

    pub const fn random(self) -> Self {
        Self {
            pattern: Pattern::Random,
            ..self
        }
    }

    pub const fn pinned(self, pinning: Pinning) -> Self {
        Self { pinning, ..self }
    }

    pub const fn placed(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    pub fn threads(&self) -> u32 {
        self.readers + self.writers
    }

    /// What is measured of it.
    pub fn operations(&self) -> impl Iterator<Item = Operation> {
        let read = (self.readers > 0).then_some(Operation::Read);
        let write = (self.writers > 0).then_some(Operation::Write);
        read.into_iter().chain(write)
    }

    /// As the probe and the simulation know it.
    pub fn point(&self, range_bytes: Option<u64>) -> Point {
        let (operation, threads, beside_threads) = match self.readers {
            0 => (Operation::Write, self.writers, 0),
            readers => (Operation::Read, readers, self.writers),
        };
        Point {
            pattern: self.pattern,
            grouping: self.grouping,
            pinning: self.pinning,
            placement: self.placement,
            beside_threads,
            range_bytes,
            ..Point::new(operation, self.access_bytes, threads)
        }
    }
}

pub fn pinning_name(pinning: Pinning) -> &'static str {
    match pinning {
        Pinning::None => "not pinned",
        Pinning::Node => "pinned to the socket",
        Pinning::Core => "pinned to cores",
    }
}

pub fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Near => "near",
        Placement::FarFirst => "far, first touch",
        Placement::Far => "far, again",
        Placement::BothNear => "two sockets, each its own",
        Placement::BothFar => "two sockets, each the other's",
        Placement::BothShared => "two sockets, one memory",
    }
}

pub fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    }
}

/// `64 B`, `4 KiB`, `32 MiB`
pub fn size_name(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}
