//! `hybrid` and what comes before it: building an index, copying it to DRAM, and having it back after a restart.

use std::path::Path;
use std::thread;
use std::time::Instant;

use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_tier::TierError;
use hotshelf_tier::region::{FileOptions, Region, SyncMapping, prefer_huge_pages};

use super::super::baseline::linear::{LinearElf, Wide};
use super::bench::{Bench, Result, THETA};
use super::device::Device;
use super::measure::Row;
use super::variant::{BlockVariant, Variant};
use super::workload::Query;

/// Threads that read or copy, and megabytes that they read at once.
const WAYS: [(usize, usize); 4] = [(1, 4), (2, 4), (1, 16), (2, 16)];

/// Words of a megabyte.
const MEGABYTE_WORDS: usize = (1 << 20) / 4;

/// Seconds of something that is done once, and what came of it.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let made = work();
    (start.elapsed().as_secs_f64(), made)
}

/// A row for something that is done once: its rate is that of doing it again and again.
pub fn once(bench: &Bench, figure: &str, what: &str, shelf: &'static str, seconds: f64) -> Row {
    Row {
        figure: figure.to_owned(),
        layout: "linear",
        variant: what.to_owned(),
        shelf,
        query: "all of the index".to_owned(),
        theta: 0.0,
        threads: 1,
        series: what.to_owned(),
        x: None,
        queries_per_s: 1.0 / seconds,
        dram_bytes: bench.linear_bytes(),
        index_bytes: bench.linear_bytes(),
        slow_accesses_per_query: 0.0,
    }
}

/// Memory for this many words that several threads fill, each a part of it.
fn filled<E: Send>(
    word_count: usize,
    thread_count: usize,
    fill: impl Fn(usize, &mut [u32]) -> Result<(), E> + Sync,
) -> Result<Vec<u32>, E> {
    let mut words = vec![0; word_count];
    prefer_huge_pages(&mut words);
    // Whole megabytes, because what is read begins at a page of a file.
    let part = word_count
        .div_ceil(thread_count)
        .next_multiple_of(MEGABYTE_WORDS)
        .max(1);
    thread::scope(|scope| {
        let fill = &fill;
        let parts = words.chunks_mut(part).enumerate();
        let running: Vec<_> = parts
            .map(|(number, words)| scope.spawn(move || fill(number * part, words)))
            .collect();
        running.into_iter().try_for_each(|thread| {
            let joined = thread.join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(words)
}

fn copied(words: &[u32], thread_count: usize) -> Vec<u32> {
    let copy = filled(words.len(), thread_count, |start, part| {
        part.copy_from_slice(&words[start..start + part.len()]);
        Ok::<_, std::convert::Infallible>(())
    });
    copy.unwrap_or_default()
}

/// Seconds to read an index back from a device.
fn recovered(
    device: &Device,
    expected: &[u32],
    (thread_count, megabytes): (usize, usize),
) -> Result<f64> {
    let (seconds, words) = timed(|| {
        filled(expected.len(), thread_count, |start, words| {
            device.read_into(start, words, megabytes << 20)
        })
    });
    assert!(words? == expected, "what was read is not what was written");
    Ok(seconds)
}

/// Maps an index that another process left in the page cache, until all its pages are there.
fn mapped(path: &Path) -> Result<f64, TierError> {
    let options = FileOptions {
        len_bytes: None,
        read_only: true,
        sync: SyncMapping::Never,
    };
    let (seconds, region) = timed(|| {
        let region = Region::open_file(path, &options)?;
        region.prefault()?.wait()?;
        Ok::<_, TierError>(region)
    });
    region?;
    Ok(seconds)
}

/// Rows of one layout, whose index are these words: copies and recoveries.
fn ways(
    bench: &Bench,
    figure: &str,
    layout: &'static str,
    words: &[u32],
    rows: &mut Vec<Row>,
) -> Result<()> {
    let bytes = words.len() as u64 * 4;
    let mut push = |what: &str, shelf, threads: usize, seconds| {
        rows.push(Row {
            layout,
            threads,
            dram_bytes: bytes,
            index_bytes: bytes,
            ..once(bench, figure, what, shelf, seconds)
        });
    };
    for threads in [1, 2] {
        // What the device needs to move the bytes is waited for if copying takes less.
        let (copy_s, copy) = timed(|| copied(words, threads));
        drop(copy);
        let seconds = copy_s.max(bytes as f64 / bench.bandwidth);
        push("copy", "emulated:optane", threads, seconds);
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(layout);
    let device = Device::create(&path, words.iter().map(|word| word.to_le_bytes()))?;
    for (threads, megabytes) in WAYS {
        let seconds = recovered(&device, words, (threads, megabytes))?;
        let what = format!("recover, {megabytes} MiB at once");
        push(&what, "block device", threads, seconds);
    }
    drop(device);
    push("map", "page cache", 1, mapped(&path)?);
    Ok(())
}

/// Building, copying, recovering, and queries on a copy.
pub fn hybrid(bench: &Bench, figure: &str) -> Result<Vec<Row>> {
    let mut rows = vec![once(bench, figure, "build", "dram", bench.build_s)];
    let (build_s, elf) = timed(|| LinearElf::<Wide>::build(&bench.table, 2));
    drop(elf?);
    let both = once(bench, figure, "build", "dram", build_s);
    rows.push(Row { threads: 2, ..both });
    ways(bench, figure, "linear", bench.linear.elf.words(), &mut rows)?;
    for threads in [1, 2] {
        let options = PackedOptions {
            thread_count: threads,
            ..Default::default()
        };
        let (build_s, elf) = timed(|| PackedElf::build(&bench.table, &options));
        let bytes = elf?.size_bytes();
        rows.push(Row {
            layout: "packed",
            threads,
            dram_bytes: bytes,
            index_bytes: bytes,
            ..once(bench, figure, "build", "dram", build_s)
        });
    }
    let blocks = bench.packed.elf.blocks().iter();
    let words: Vec<u32> = blocks
        .flat_map(|&word| [word as u32, (word >> 32) as u32])
        .collect();
    ways(bench, figure, "packed", &words, &mut rows)?;
    let mut entries = [
        bench.lists(Variant::Volatile),
        bench.lists(Variant::Hybrid),
        bench.blocks(&BlockVariant::Volatile, false, 1),
        bench.blocks(&BlockVariant::Hybrid, false, 1),
    ];
    rows.extend(bench.compare(figure, Query::Exact, THETA, &mut entries)?);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_threads_copy_or_read_is_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        for len in [0, 1, MEGABYTE_WORDS, 3 * MEGABYTE_WORDS + 1_025] {
            let words: Vec<u32> = (0..len as u32).map(|word| word.wrapping_mul(77)).collect();
            let path = folder.path().join(len.to_string());
            let device =
                Device::create(&path, words.iter().map(|word| word.to_le_bytes())).unwrap();
            for threads in [1, 2, 3] {
                assert!(copied(&words, threads) == words);
                // Compares as well.
                recovered(&device, &words, (threads, 1)).unwrap();
            }
        }
    }
}
