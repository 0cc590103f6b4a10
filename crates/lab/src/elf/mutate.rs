//! Damages files of Elfs and asks what can still be read: nothing may panic, hang or reach outside.
//! Checksums are mostly mended, so that what lies behind them is tried; where they are not, a file that can be
//! read must be the one that was written. Some files are noise.
//!
//! `hotshelf-lab mutate [--seconds N] [--seed N]`

use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hotshelf_elf::keys::{CodeColumn, CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};

fn table(random: &mut Rng) -> CodeTable {
    let row_count = [0, 1, 3, 40, 70, 200, 900][random.usize(..7)];
    let columns = (0..1 + random.usize(..6)).map(|_| {
        let max = [0, 1, 5, 30, 99, 300, 70_000][random.usize(..7)];
        let codes = (0..row_count)
            .map(|_| random.usize(..=max) as u32)
            .collect::<Vec<_>>();
        CodeColumn::from_codes(codes.into_iter(), max as u32)
    });
    CodeTable::new(columns.collect()).expect("columns of one length")
}

fn options(random: &mut Rng) -> PackedOptions {
    let is_small = random.bool();
    PackedOptions {
        clustered: random.bool(),
        zones: random.bool(),
        group_rows_max: if is_small { 1 + random.usize(..8) } else { 64 },
        bucket_rows_max: if is_small { random.usize(..5) } else { 24 },
        ..Default::default()
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    let word = bytes.get(at..at + len).unwrap_or_default();
    word.iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | usize::from(byte))
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    if let Some(target) = bytes.get_mut(at..at + 4) {
        target.copy_from_slice(&word.to_le_bytes());
    }
}

/// Changes some bytes: flips, words of all sizes, copies of other places, a cut.
fn damage(bytes: &mut Vec<u8>, first: usize, random: &mut Rng) {
    for _ in 0..1 + random.usize(..4) {
        let len = bytes.len();
        // Most of a small file is padding: half of the changes hit what is not zero.
        let mut at = first + random.usize(..len.saturating_sub(first).max(1));
        for _ in 0..64 {
            if bytes.get(at) != Some(&0) || random.usize(..16) == 0 {
                break;
            }
            at = first + random.usize(..len.saturating_sub(first).max(1));
        }
        match random.usize(..6) {
            0 => {
                let bit = 1 << random.usize(..8);
                bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte ^= bit);
            }
            1 => put(bytes, at / 4 * 4, random.u32(..)),
            2 => put(bytes, at / 4 * 4, random.u32(..100)),
            3 => put(
                bytes,
                at / 4 * 4,
                [u32::MAX, 1 << 31, 1 << 30, 3 << 30][random.usize(..4)],
            ),
            4 => {
                let (from, count) = (random.usize(..len.max(1)), random.usize(..40));
                for offset in 0..count.min(len.saturating_sub(at.max(from))) {
                    bytes[at + offset] = bytes[from + offset];
                }
            }
            _ if random.usize(..20) == 0 => bytes.truncate(at),
            _ => {
                let step = random.u32(..9);
                let word = number(bytes, at / 4 * 4, 4) as u32;
                put(bytes, at / 4 * 4, word.wrapping_add(step).wrapping_sub(4));
            }
        }
    }
}

/// Makes all checksums of a packed file right again.
fn mend_packed(bytes: &mut [u8]) {
    if bytes.len() < 4096 {
        return;
    }
    for section in 0..10 {
        let entry = 32 + section * 24;
        let (offset, len) = (number(bytes, entry, 8), number(bytes, entry + 8, 8));
        let Some(content) = offset
            .checked_add(len)
            .and_then(|end| bytes.get(offset..end))
        else {
            continue;
        };
        if section < 9 {
            let crc = crc32fast::hash(content);
            put(bytes, entry + 16, crc);
            continue;
        }
        let block_bytes = number(bytes, 24, 4) * 8;
        for block in (offset..offset + len).step_by(block_bytes.max(8)) {
            let Some(content) = bytes
                .get(block..block + block_bytes)
                .filter(|one| one.len() > 8)
            else {
                break;
            };
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&[0; 4]);
            hasher.update(&content[4..]);
            let crc = hasher.finalize();
            put(bytes, block, crc);
        }
    }
    let crc = crc32fast::hash(&bytes[..4092]);
    put(bytes, 4092, crc);
}

fn query(dimension_count: usize, random: &mut Rng) -> QueryBox {
    let restrictions = (0..dimension_count).map(|_| match random.usize(..4) {
        0 => Restriction::Any,
        1 => Restriction::exactly(random.u32(..40)),
        _ => {
            let lo = random.u32(..60);
            Restriction::Range {
                lo,
                hi: lo + random.u32(..200),
            }
        }
    });
    QueryBox::new(restrictions.collect())
}

fn ask_packed(elf: &PackedElf, random: &mut Rng) {
    let dimension_count = elf.dimension_count();
    for _ in 0..4 {
        let query = query(dimension_count, random);
        let counts = (elf.select(&query).map(|tids| tids.len()), elf.count(&query));
        drop((
            counts,
            elf.select_rows(&query),
            elf.limit(&query, 3),
            elf.exists(&query),
        ));
        if let Ok(rows) = elf.select_rows(&query) {
            let columns: Vec<usize> = (0..dimension_count).rev().collect();
            let mut codes = vec![Vec::new(); dimension_count];
            let _ = elf.read_rows(&rows, &columns, &mut codes);
        }
    }
    let keys: Vec<u32> = (0..40 * dimension_count)
        .map(|_| random.u32(..60))
        .collect();
    let _ = elf.exact_batch(&keys, |_, _| {});
    keys.chunks(dimension_count)
        .for_each(|key| drop(elf.exact(key, &mut Vec::new())));
    let _ = elf.verify(Path::new("mutated"));
}

/// Damages files for some time, beginning with a seed.
///
/// # Panics
/// Where reading or asking a damaged file panics, after naming the seed.
pub fn run(end: Duration, first_seed: u64) {
    let start = Instant::now();
    let (mut iteration, mut read, mut slowest) = (0u64, 0u64, Duration::ZERO);
    while start.elapsed() < end {
        let seed = first_seed.wrapping_mul(1 << 40).wrapping_add(iteration);
        let began = Instant::now();
        let was_read = std::panic::catch_unwind(|| one(seed)).unwrap_or_else(|panic| {
            eprintln!("seed {seed} panics");
            std::panic::resume_unwind(panic)
        });
        read += u64::from(was_read);
        iteration += 1;
        slowest = slowest.max(began.elapsed());
        if iteration.is_multiple_of(100_000) {
            println!(
                "{iteration} files, {read} readable, slowest {slowest:?}, {:?}",
                start.elapsed()
            );
        }
    }
    println!(
        "{iteration} files, {read} readable, slowest {slowest:?}, {:?}: no panic",
        start.elapsed()
    );
}

/// Writes, damages and reads one file; says whether it could still be read.
fn one(seed: u64) -> bool {
    let random = &mut Rng::with_seed(seed);
    let table = table(random);
    match random.usize(..6) {
        0 => one_foreign(&table, random),
        _ => one_packed(&table, random),
    }
}

/// The file of a packed Elf.
fn write_packed(elf: &PackedElf) -> Vec<u8> {
    let mut bytes = Vec::new();
    elf.write_to(&mut bytes).expect("written");
    bytes
}

fn one_packed(table: &CodeTable, random: &mut Rng) -> bool {
    let elf = PackedElf::build(table, &options(random)).expect("built");
    let mut bytes = write_packed(&elf);
    // Rarely the superblock, mostly what it describes.
    let first = if random.usize(..8) == 0 { 12 } else { 4096 };
    damage(&mut bytes, first, random);
    let is_mended = random.usize(..8) > 0;
    if is_mended {
        mend_packed(&mut bytes);
    }
    match PackedElf::from_bytes(Path::new("mutated"), &bytes) {
        Ok(read) if is_mended => {
            ask_packed(&read, random);
            true
        }
        // Damage between the sections changes nothing.
        Ok(read) => {
            assert!(read == elf, "damage that checksums do not see");
            true
        }
        Err(_) => false,
    }
}

/// Noise behind the first bytes of a true file: never readable.
fn one_foreign(table: &CodeTable, random: &mut Rng) -> bool {
    let elf = PackedElf::build(table, &options(random)).expect("built");
    let mut bytes = write_packed(&elf);
    let own = [0, 8, 12, 32, 272, 4096][random.usize(..6)];
    bytes
        .iter_mut()
        .skip(own)
        .for_each(|byte| *byte = random.u8(..));
    assert!(PackedElf::from_bytes(Path::new("foreign"), &bytes).is_err());
    false
}
