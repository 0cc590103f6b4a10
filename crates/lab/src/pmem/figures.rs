//! The axes of the paper's figures 3 to 13.
//!
//! The paper says "1 to 36 threads"; the counts between are those of its published scripts, and the ones it names.

use hotshelf_tier::probe::{Grouping, Pattern, Pinning, Placement};

use super::case::Case;

/// A figure of bandwidths.
#[derive(Debug)]
pub struct Figure {
    pub number: u8,
    pub title: &'static str,
    /// What random accesses are limited to.
    pub range_bytes: Option<u64>,
    pub sweeps: &'static [Sweep],
}

/// A part of a figure: every combination of these.
#[derive(Debug)]
pub struct Sweep {
    /// Sweeps of one panel are drawn together.
    pub panel: &'static str,
    pub x: Axis,
    pub patterns: &'static [Pattern],
    pub groupings: &'static [Grouping],
    pub pinnings: &'static [Pinning],
    pub placements: &'static [Placement],
    pub access_bytes: &'static [u64],
    pub readers: &'static [u32],
    pub writers: &'static [u32],
}

/// Of the smallest access, 64 bytes.
const SMALLEST_LOG2: f64 = 6.0;

/// What a horizontal axis shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Bytes,
    Readers,
    Writers,
}

impl Axis {
    pub fn label(self) -> &'static str {
        match self {
            Self::Bytes => "bytes of one access, doublings from 64",
            Self::Readers => "reading threads",
            Self::Writers => "writing threads",
        }
    }

    pub fn of(self, case: &Case) -> f64 {
        match self {
            Self::Bytes => (case.access_bytes as f64).log2() - SMALLEST_LOG2,
            Self::Readers => f64::from(case.readers),
            Self::Writers => f64::from(case.writers),
        }
    }
}

impl Sweep {
    const READ_4_KIB: Self = Self {
        panel: "",
        x: Axis::Readers,
        patterns: &[Pattern::Sequential],
        groupings: &[Grouping::Individual],
        pinnings: &[Pinning::Node],
        placements: &[Placement::Near],
        access_bytes: &[4096],
        readers: THREADS,
        writers: NO_THREADS,
    };
    const WRITE_4_KIB: Self = Self {
        x: Axis::Writers,
        readers: NO_THREADS,
        writers: THREADS,
        ..Self::READ_4_KIB
    };

    /// Whether readers are beside writers.
    pub fn is_mixed(&self) -> bool {
        self.readers.len() > 1 && self.writers.len() > 1
    }

    /// All its combinations.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = vec![Case::near(0, 0, 0)];
        vary(&mut cases, self.patterns, |case, pattern| {
            case.pattern = pattern;
        });
        vary(&mut cases, self.groupings, |case, grouping| {
            case.grouping = grouping;
        });
        vary(&mut cases, self.pinnings, |case, pinning| {
            case.pinning = pinning;
        });
        vary(&mut cases, self.placements, |case, placement| {
            case.placement = placement;
        });
        vary(&mut cases, self.writers, |case, writers| {
            case.writers = writers;
        });
        vary(&mut cases, self.readers, |case, readers| {
            case.readers = readers;
        });
        vary(&mut cases, self.access_bytes, |case, access_bytes| {
            case.access_bytes = access_bytes;
        });
        cases
    }
}

/// Each of `cases` with each of `values`.
fn vary<T: Copy>(cases: &mut Vec<Case>, values: &[T], set: fn(&mut Case, T)) {
    let with_all = |case: &Case| {
        let case = *case;
        values.iter().map(move |value| {
            let mut case = case;
            set(&mut case, *value);
            case
        })
    };
    *cases = cases.iter().flat_map(with_all).collect();
}

impl Figure {
    pub fn find(number: u8) -> Option<&'static Self> {
        FIGURES.iter().find(|figure| figure.number == number)
    }
}

const NO_THREADS: &[u32] = &[0];
const THREADS: &[u32] = &[1, 2, 4, 6, 8, 12, 16, 18, 24, 30, 32, 36];
const THREADS_BY_SIZE: &[u32] = &[1, 2, 4, 6, 8, 16, 18, 24, 32, 36];
/// Of both sockets together.
const THREADS_OF_BOTH: &[u32] = &[2, 4, 8, 12, 16, 24, 32, 36, 48, 60, 72];
/// 64 bytes to 64 KiB.
const READ_BYTES: &[u64] = &[
    64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536,
];
/// 64 bytes to 32 MiB.
const WRITE_BYTES: &[u64] = &[
    1 << 6,
    1 << 7,
    1 << 8,
    1 << 9,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
    1 << 21,
    1 << 22,
    1 << 23,
    1 << 24,
    1 << 25,
];
const RANDOM_BYTES: &[u64] = &[64, 128, 256, 512, 1024, 2048, 4096, 8192];
const RANDOM_RANGE_BYTES: u64 = 2 << 30;
const PINNINGS: &[Pinning] = &[Pinning::None, Pinning::Node, Pinning::Core];
/// The first touch comes before all others of the far memory.
const ONE_SOCKET: &[Placement] = &[Placement::Near, Placement::FarFirst, Placement::Far];
const ONE_SOCKET_AGAIN: &[Placement] = &[Placement::Near, Placement::Far];
const BOTH_SOCKETS: &[Placement] = &[
    Placement::BothNear,
    Placement::BothFar,
    Placement::BothShared,
];

/// All figures of bandwidths.
pub const FIGURES: &[Figure] = &[
    Figure {
        number: 3,
        title: "sequential reads by access size and threads",
        range_bytes: None,
        sweeps: &[
            Sweep {
                panel: "a: grouped",
                x: Axis::Bytes,
                groupings: &[Grouping::Grouped],
                access_bytes: READ_BYTES,
                readers: THREADS_BY_SIZE,
                ..Sweep::READ_4_KIB
            },
            Sweep {
                panel: "b: individual",
                x: Axis::Bytes,
                access_bytes: READ_BYTES,
                readers: THREADS_BY_SIZE,
                ..Sweep::READ_4_KIB
            },
        ],
    },
    Figure {
        number: 4,
        title: "sequential reads by pinning",
        range_bytes: None,
        sweeps: &[Sweep {
            panel: "4 KiB",
            pinnings: PINNINGS,
            ..Sweep::READ_4_KIB
        }],
    },
    Figure {
        number: 5,
        title: "sequential reads of near and far memory",
        range_bytes: None,
        sweeps: &[Sweep {
            panel: "4 KiB",
            placements: ONE_SOCKET,
            ..Sweep::READ_4_KIB
        }],
    },
    Figure {
        number: 6,
        title: "sequential reads from one and two sockets",
        range_bytes: None,
        sweeps: &[
            Sweep {
                panel: "4 KiB",
                placements: ONE_SOCKET_AGAIN,
                ..Sweep::READ_4_KIB
            },
            Sweep {
                panel: "4 KiB",
                placements: BOTH_SOCKETS,
                readers: THREADS_OF_BOTH,
                ..Sweep::READ_4_KIB
            },
        ],
    },
    Figure {
        number: 7,
        title: "sequential writes by access size and threads",
        range_bytes: None,
        sweeps: &[
            Sweep {
                panel: "a: grouped",
                x: Axis::Bytes,
                groupings: &[Grouping::Grouped],
                access_bytes: WRITE_BYTES,
                writers: THREADS_BY_SIZE,
                ..Sweep::WRITE_4_KIB
            },
            Sweep {
                panel: "b: individual",
                x: Axis::Bytes,
                access_bytes: WRITE_BYTES,
                writers: THREADS_BY_SIZE,
                ..Sweep::WRITE_4_KIB
            },
        ],
    },
    Figure {
        number: 8,
        title: "sequential writes by threads and access size",
        range_bytes: None,
        sweeps: &[Sweep {
            panel: "individual",
            access_bytes: WRITE_BYTES,
            ..Sweep::WRITE_4_KIB
        }],
    },
    Figure {
        number: 9,
        title: "sequential writes by pinning",
        range_bytes: None,
        sweeps: &[Sweep {
            panel: "4 KiB",
            pinnings: PINNINGS,
            ..Sweep::WRITE_4_KIB
        }],
    },
    Figure {
        number: 10,
        title: "sequential writes from one and two sockets",
        range_bytes: None,
        sweeps: &[
            Sweep {
                panel: "4 KiB",
                placements: ONE_SOCKET_AGAIN,
                ..Sweep::WRITE_4_KIB
            },
            Sweep {
                panel: "4 KiB",
                placements: BOTH_SOCKETS,
                writers: THREADS_OF_BOTH,
                ..Sweep::WRITE_4_KIB
            },
        ],
    },
    Figure {
        number: 11,
        title: "sequential reads and writes at once",
        range_bytes: None,
        sweeps: &[
            Sweep {
                panel: "4 KiB",
                readers: &[1, 8, 18, 30],
                writers: &[1, 4, 6],
                ..Sweep::READ_4_KIB
            },
            Sweep {
                panel: "4 KiB, readers alone",
                readers: &[1, 8, 18, 30, 31],
                ..Sweep::READ_4_KIB
            },
            Sweep {
                panel: "4 KiB, writers alone",
                writers: &[1, 4, 6],
                ..Sweep::WRITE_4_KIB
            },
        ],
    },
    Figure {
        number: 12,
        title: "random reads by access size and threads",
        range_bytes: Some(RANDOM_RANGE_BYTES),
        sweeps: &[Sweep {
            panel: "2 GB",
            x: Axis::Bytes,
            patterns: &[Pattern::Random],
            access_bytes: RANDOM_BYTES,
            readers: THREADS_BY_SIZE,
            ..Sweep::READ_4_KIB
        }],
    },
    Figure {
        number: 13,
        title: "random writes by access size and threads",
        range_bytes: Some(RANDOM_RANGE_BYTES),
        sweeps: &[Sweep {
            panel: "2 GB",
            x: Axis::Bytes,
            patterns: &[Pattern::Random],
            access_bytes: RANDOM_BYTES,
            writers: THREADS_BY_SIZE,
            ..Sweep::WRITE_4_KIB
        }],
    },
];
