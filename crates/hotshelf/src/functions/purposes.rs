//! What the table functions are for.

use super::listing::{Columns, Listing};

/// What the rows of each function are, in the order of their names.
const PURPOSES: &[(&str, &str)] = &[
    (
        "cache_columns",
        "a row per column: its bytes, and how many of them are in memory",
    ),
    (
        "cache_events",
        "a row per recent hit, miss, insert or eviction, oldest first",
    ),
    (
        "cache_segments",
        "a row per segment in memory or being read",
    ),
    (
        "cache_stats",
        "one row: the budget, what it is spent on, and counters of the cache",
    ),
    (
        "elf_stats",
        "a row per Elf of an index: its size and its uses",
    ),
    (
        "hotshelf_functions",
        "a row per table function, such as this one",
    ),
    ("hotshelf_indexes", "a row per index"),
    (
        "hotshelf_merges",
        "a row per merge of small files in the background, oldest first",
    ),
    (
        "hotshelf_shelves",
        "a row per shelf of the tuner's model: its size, speed and price",
    ),
    (
        "hotshelf_tables",
        "a row per table: its files, the shelf that it is on, and how much of it is on the shelf",
    ),
    (
        "hpcache_advice",
        "a row per budget: the time of the known queries under it; with a slowdown such as 1.1, the least budget \
         for it",
    ),
    (
        "hpcache_columns",
        "a row per column: how much of it should be in memory, how much is, and what that saves",
    ),
    (
        "hpcache_pipelines",
        "a row per pipeline that the tuner knows: throughput, predicted and actual time, what limits it",
    ),
    ("hpcache_tuner", "one row: what the tuner did and found"),
    (
        "io_stats",
        "one row: counters of the I/O engine since the database was opened, and of what was spilled",
    ),
    (
        "kept_plans",
        "a row per query whose plan is kept for the next time that it is asked, and how often it was",
    ),
    (
        "machine_profile",
        "a row per value that follows from the machine profile, its source and reason",
    ),
    (
        "memory_market",
        "a row per class of things in memory, then the largest items: what they save, and what one more byte would",
    ),
    (
        "pipelines",
        "a row per recent run of a pipeline: rows, bytes, busy and waiting time, throughput",
    ),
];

/// One row per function.
pub(super) fn hotshelf_functions() -> Columns {
    Listing::of(PURPOSES.to_vec())
        .text("name", |(name, _)| (*name).to_owned())
        .text("what", |(_, purpose)| (*purpose).to_owned())
        .columns()
}
