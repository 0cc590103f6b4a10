//! The values of figures 3 to 13 that the paper states in words.
//!
//! Its curves are pictures without tables: where the text gives no value, there is none here. A value that only follows
//! from the text says how.

use hotshelf_tier::probe::{Operation, Pinning, Placement};

use super::case::Case;

/// The paper's two kinds of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Persistent,
    Dram,
}

/// A value of the paper.
#[derive(Debug)]
pub struct Stated {
    pub figure: u8,
    pub memory: Memory,
    pub case: Case,
    /// What has this bandwidth.
    pub operation: Operation,
    pub gb_per_s: f64,
    /// Where it is from.
    pub words: &'static str,
    /// Whether it follows from the text and is not stated as a number for this very case.
    pub follows: bool,
}

/// The value for a case.
pub fn find(
    figure: u8,
    memory: Memory,
    case: &Case,
    operation: Operation,
) -> Option<&'static Stated> {
    let of_figure = STATED.iter().filter(|stated| stated.figure == figure);
    let mut of_memory = of_figure.filter(|stated| stated.memory == memory);
    of_memory.find(|stated| stated.case == *case && stated.operation == operation)
}

/// Whether there is a value for a case on any memory.
pub fn is_stated(figure: u8, case: &Case) -> bool {
    let mut of_figure = STATED.iter().filter(|stated| stated.figure == figure);
    of_figure.any(|stated| stated.case == *case)
}

const fn stated(
    figure: u8,
    memory: Memory,
    case: Case,
    gb_per_s: f64,
    words: &'static str,
) -> Stated {
    Stated {
        figure,
        memory,
        operation: match case.readers {
            0 => Operation::Write,
            _ => Operation::Read,
        },
        case,
        gb_per_s,
        words,
        follows: false,
    }
}

const fn says(figure: u8, case: Case, gb_per_s: f64, words: &'static str) -> Stated {
    stated(figure, Memory::Persistent, case, gb_per_s, words)
}

const fn follows(figure: u8, case: Case, gb_per_s: f64, words: &'static str) -> Stated {
    Stated {
        follows: true,
        ..says(figure, case, gb_per_s, words)
    }
}

const fn dram(figure: u8, case: Case, gb_per_s: f64, words: &'static str) -> Stated {
    stated(figure, Memory::Dram, case, gb_per_s, words)
}

const fn dram_follows(figure: u8, case: Case, gb_per_s: f64, words: &'static str) -> Stated {
    Stated {
        follows: true,
        ..dram(figure, case, gb_per_s, words)
    }
}

/// Of writers beside readers.
const fn written(stated: Stated) -> Stated {
    Stated {
        operation: Operation::Write,
        ..stated
    }
}

const fn read(access_bytes: u64, readers: u32) -> Case {
    Case::near(access_bytes, readers, 0)
}

const fn write(access_bytes: u64, writers: u32) -> Case {
    Case::near(access_bytes, 0, writers)
}

const fn mixed(writers: u32, readers: u32) -> Case {
    Case::near(4096, readers, writers)
}

const PEAK_READ: &str = "~40 GB/s with 16 and 18 threads, grouped and individual (3.2)";
const SPAN_36: &str =
    "grouped, 36 threads: from 12 to 40 GB/s (3.1); which sizes is read off their order";
const PEAK_WRITE: &str = "~12.5 GB/s for 4, 6 and 8 threads at 4 KB (4.2)";
const LARGE_WRITES: &str =
    "4 and 6 threads keep ~12 GB/s with an increasing access size, 8 drop to ~8 (4.2)";
const MANY_WRITERS: &str = "above 256 bytes high thread counts stabilise at around 5-6 GB/s (4.2)";
const TWO_WRITERS: &str = "for larger writes 2 threads achieve the bandwidth of 8 (4.2)";
const SMALL_WRITES: &str = "around 256 bytes all counts above 18 achieve ~10 GB/s (4.2)";
const SIMILAR: &str = "grouped has it; a similar trend for individual writes (4.2)";
const RANDOM_LARGE: &str = "up to ~2/3 of the sequential maximum, ~40 GB/s, above 4 KB (5.2)";
const RANDOM_SMALL: &str = "~50 % of sequential around 256 and 512 bytes (5.2)";
const RANDOM_WRITES: &str =
    "about 2/3 of the sequential maximum, 12.6 GB/s; highest for 4-6 threads (5.2)";
const RANDOM_DRAM: &str = "DRAM: 50 % of its sequential maximum, ~100 GB/s (5.2, 3.5)";
const THIRD: &str =
    "with the counts advised for each, both drop to ~1/3 of their maximums, 40 and 13 GB/s (5.1)";

/// All of them, in the paper's order.
pub const STATED: &[Stated] = &[
    follows(3, read(64, 36).grouped(), 12.0, SPAN_36),
    follows(3, read(4096, 36).grouped(), 40.0, SPAN_36),
    says(3, read(4096, 16).grouped(), 40.0, PEAK_READ),
    says(3, read(4096, 18).grouped(), 40.0, PEAK_READ),
    says(3, read(4096, 16), 40.0, PEAK_READ),
    says(3, read(4096, 18), 40.0, PEAK_READ),
    follows(
        3,
        read(4096, 8),
        34.0,
        "8 threads: ~15 % less than the most (3.2)",
    ),
    follows(
        3,
        read(64, 36),
        37.0,
        "individual, 36 threads: all sizes within 3 GB/s (3.1)",
    ),
    says(
        4,
        read(4096, 18).pinned(Pinning::Core),
        41.0,
        "cores: ~41 GB/s with 18 threads (3.3)",
    ),
    says(
        4,
        read(4096, 18),
        40.0,
        "region: ~40 GB/s for 18 and 36 threads (3.3)",
    ),
    says(
        4,
        read(4096, 36),
        40.0,
        "region: ~40 GB/s for 18 and 36 threads (3.3)",
    ),
    says(
        4,
        read(4096, 8).pinned(Pinning::None),
        9.0,
        "none: ~9 GB/s for 8 and 36 threads (3.3)",
    ),
    says(
        4,
        read(4096, 36).pinned(Pinning::None),
        9.0,
        "none: ~9 GB/s for 8 and 36 threads (3.3)",
    ),
    says(
        5,
        read(4096, 18),
        40.0,
        "near: ~40 GB/s, best with 18 threads (3.4)",
    ),
    says(
        5,
        read(4096, 4).placed(Placement::FarFirst),
        8.0,
        "first: ~8 GB/s, best with 4 threads (3.4)",
    ),
    follows(
        5,
        read(4096, 18).placed(Placement::Far),
        33.0,
        "again: ~33 GB/s at most; the count is not stated (3.4)",
    ),
    follows(6, read(4096, 18), 40.0, "near: ~40 GB/s at most (3.5)"),
    follows(
        6,
        read(4096, 18).placed(Placement::Far),
        33.0,
        "far: ~33 GB/s at most (3.5)",
    ),
    says(
        6,
        read(4096, 36).placed(Placement::BothNear),
        80.0,
        "18 on each socket: ~80 GB/s (3.5)",
    ),
    says(
        6,
        read(4096, 36).placed(Placement::BothFar),
        50.0,
        "36 in total: ~50 GB/s (3.5)",
    ),
    dram_follows(
        6,
        read(4096, 18),
        100.0,
        "DRAM, near: ~100 GB/s at most (3.5)",
    ),
    dram_follows(
        6,
        read(4096, 18).placed(Placement::Far),
        33.0,
        "DRAM, far: only ~33 GB/s (3.5)",
    ),
    dram(
        6,
        read(4096, 36).placed(Placement::BothNear),
        185.0,
        "DRAM, 18 on each socket: 185 GB/s (3.5)",
    ),
    dram(
        6,
        read(4096, 36).placed(Placement::BothFar),
        60.0,
        "DRAM, 36 in total: ~60 GB/s (3.5)",
    ),
    says(
        7,
        write(64, 36).grouped(),
        2.6,
        "grouped: 2.6 GB/s, 64 bytes and 36 threads (4.1)",
    ),
    says(
        7,
        write(64, 36),
        9.6,
        "individual: 9.6 GB/s, 64 bytes and 36 threads (4.1)",
    ),
    says(7, write(4096, 4).grouped(), 12.5, PEAK_WRITE),
    says(7, write(4096, 6).grouped(), 12.5, PEAK_WRITE),
    says(7, write(4096, 8).grouped(), 12.5, PEAK_WRITE),
    says(7, write(256, 24).grouped(), 10.0, SMALL_WRITES),
    says(7, write(256, 36).grouped(), 10.0, SMALL_WRITES),
    follows(7, write(4096, 4), 12.5, SIMILAR),
    follows(7, write(256, 36), 10.0, SIMILAR),
    follows(7, write(65_536, 4), 12.0, SIMILAR),
    follows(7, write(65_536, 8), 8.0, SIMILAR),
    follows(8, write(4096, 4), 12.5, PEAK_WRITE),
    follows(8, write(4096, 6), 12.5, PEAK_WRITE),
    follows(8, write(4096, 8), 12.5, PEAK_WRITE),
    follows(8, write(256, 24), 10.0, SMALL_WRITES),
    follows(8, write(256, 36), 10.0, SMALL_WRITES),
    follows(8, write(65_536, 2), 8.0, TWO_WRITERS),
    follows(8, write(65_536, 4), 12.0, LARGE_WRITES),
    follows(8, write(65_536, 6), 12.0, LARGE_WRITES),
    follows(8, write(65_536, 8), 8.0, LARGE_WRITES),
    follows(8, write(65_536, 36), 5.5, MANY_WRITERS),
    follows(
        9,
        write(4096, 4).pinned(Pinning::Core),
        13.0,
        "cores: ~13 GB/s at most; the count is not stated (4.3)",
    ),
    follows(
        9,
        write(4096, 8).pinned(Pinning::None),
        7.0,
        "none: ~7 GB/s at most; the count is not stated (4.3)",
    ),
    says(
        10,
        write(4096, 4),
        12.5,
        "near: ~12.5 GB/s, 4 threads (4.4)",
    ),
    says(
        10,
        write(4096, 8).placed(Placement::Far),
        7.0,
        "far: ~7 GB/s, 8 threads (4.4)",
    ),
    says(
        10,
        write(4096, 18).placed(Placement::Far),
        0.5,
        "far: ~500 MB/s with 18 threads (4.4)",
    ),
    follows(
        10,
        write(4096, 8).placed(Placement::BothNear),
        25.0,
        "near doubles with both sockets (4.5)",
    ),
    says(
        10,
        write(4096, 16).placed(Placement::BothFar),
        13.0,
        "~13 GB/s for 8 threads per socket (4.5)",
    ),
    follows(
        10,
        write(4096, 8).placed(Placement::BothShared),
        8.0,
        "~8 GB/s at most; the count is not stated (4.5)",
    ),
    says(11, mixed(0, 30), 31.0, "30 readers alone: ~31 GB/s (5.1)"),
    says(
        11,
        mixed(0, 31),
        29.0,
        "a reader instead of the one writer: ~29 GB/s (5.1)",
    ),
    says(11, mixed(6, 0), 13.0, "6 writers alone: ~13 GB/s (5.1)"),
    says(11, mixed(1, 30), 26.0, "beside one writer: ~26 GB/s (5.1)"),
    follows(
        11,
        mixed(6, 30),
        14.0,
        "beside six writers: ~45 % of the most, 31 GB/s with 30 readers (5.1)",
    ),
    written(says(
        11,
        mixed(4, 1),
        12.0,
        "4 writers beside one reader: ~12 GB/s (5.1)",
    )),
    written(says(
        11,
        mixed(6, 1),
        12.0,
        "6 writers beside one reader: ~12 GB/s (5.1)",
    )),
    written(follows(
        11,
        mixed(4, 30),
        5.2,
        "4 writers beside 30 readers: just above ~40 % of the most, 13 GB/s (5.1)",
    )),
    follows(11, mixed(4, 18), 13.3, THIRD),
    written(follows(11, mixed(4, 18), 4.3, THIRD)),
    follows(11, mixed(6, 18), 13.3, THIRD),
    written(follows(11, mixed(6, 18), 4.3, THIRD)),
    follows(12, read(256, 36).random(), 20.0, RANDOM_SMALL),
    follows(12, read(512, 36).random(), 20.0, RANDOM_SMALL),
    follows(12, read(8192, 36).random(), 26.7, RANDOM_LARGE),
    dram_follows(12, read(256, 36).random(), 50.0, RANDOM_SMALL),
    dram_follows(12, read(512, 36).random(), 50.0, RANDOM_SMALL),
    dram_follows(12, read(8192, 36).random(), 50.0, RANDOM_DRAM),
    follows(13, write(8192, 4).random(), 8.4, RANDOM_WRITES),
    follows(13, write(8192, 6).random(), 8.4, RANDOM_WRITES),
];
