//! Look-ups of a dimension's keys: what kind, how they are built, how chunks of rows go through them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use clap::ValueEnum;
use hotshelf_tier::region::{AnonymousOptions, Region};

use super::dash::{Dash, DashError, RegionStore, SEGMENT_BYTES};
use super::dimension::{Chosen, NONE};
use super::unchained::Unchained;

/// Rows that go through a query's joins together.
pub const CHUNK_ROWS: usize = 2048;
/// Segments of a Dash table are half full on average, or somewhat less after many splits at once.
const DASH_RECORDS_PER_SEGMENT: usize = 380;

/// A kind of look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Dash, the hash index of the paper
    Dash,
    /// An array of a byte for each key
    Dense,
    /// A bit for each key where nothing is grouped, else as dense
    Bitmap,
    /// The standard library's table with a fast hash
    Hash,
    /// A hash table as the product's joins have it: records by slot, a filter for each
    Unchained,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Dash => "dash",
            Self::Dense => "dense",
            Self::Bitmap => "bitmap",
            Self::Hash => "hash",
            Self::Unchained => "unchained",
        }
    }
}

/// Codes by key.
#[derive(Debug)]
pub enum LookUp {
    Dash(Dash<RegionStore>),
    Dense(Vec<u8>),
    Bitmap(Vec<u64>),
    Hash(FastMap<u8>),
    Unchained(Unchained<u8>),
}

/// The standard library's map, hashed by one multiplication.
pub type FastMap<V> = HashMap<u32, V, BuildHasherDefault<FastHasher>>;

/// Multiplies and brings the best bits to both ends, which is what such tables look at.
#[derive(Debug, Default)]
pub struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        let product = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

impl LookUp {
    /// Builds one from the keys that count.
    ///
    /// # Errors
    /// Those of [`Dash`], and that there is no memory for it.
    pub fn build(kind: Kind, chosen: &Chosen) -> Result<Self, DashError> {
        let pairs = || {
            chosen
                .keys
                .iter()
                .copied()
                .zip(chosen.codes.iter().copied())
        };
        Ok(match kind {
            Kind::Bitmap if chosen.groups.len() == 1 => {
                let mut words = vec![0u64; chosen.key_max as usize / 64 + 1];
                pairs().for_each(|(key, _)| words[key as usize / 64] |= 1 << (key % 64));
                Self::Bitmap(words)
            }
            Kind::Dense | Kind::Bitmap => {
                let mut codes = vec![NONE; chosen.key_max as usize + 1];
                pairs().for_each(|(key, code)| codes[key as usize] = code);
                Self::Dense(codes)
            }
            Kind::Hash => Self::Hash(pairs().collect()),
            Kind::Unchained => Self::Unchained(Unchained::new(pairs())),
            Kind::Dash => Self::Dash(dash_of(
                pairs().map(|(key, code)| (u64::from(key), u64::from(code))),
            )?),
        })
    }

    /// Whether it would be on the tier: arrays and bitmaps, which are small, stay in ordinary memory.
    pub fn is_on_tier(&self) -> bool {
        matches!(self, Self::Dash(_) | Self::Hash(_) | Self::Unchained(_))
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Dash(table) => table.segment_count() as usize * SEGMENT_BYTES,
            Self::Dense(codes) => codes.len(),
            Self::Bitmap(words) => words.len() * 8,
            Self::Hash(map) => map.capacity() * 9,
            Self::Unchained(table) => table.bytes(),
        }
    }

    /// Keeps the rows of a chunk whose keys count, and adds their codes to their groups. `touched` counts the parts of
    /// the table that were read: buckets, or cache lines.
    #[inline]
    pub fn keep(&self, rows: &mut Rows, radix: u32, touched: &mut u32, key: impl Fn(usize) -> u32) {
        match self {
            Self::Dash(table) => {
                rows.keep(radix, |row| {
                    let code = table.get_counted(u64::from(key(row)), touched);
                    code.map_or(NONE, |code| code as u8)
                });
            }
            Self::Dense(codes) => {
                *touched += rows.len as u32;
                rows.keep(radix, |row| {
                    codes.get(key(row) as usize).copied().unwrap_or(NONE)
                });
            }
            Self::Bitmap(words) => {
                *touched += rows.len as u32;
                rows.keep(radix, |row| {
                    let key = key(row) as usize;
                    let word = words.get(key / 64).copied().unwrap_or(0);
                    // 0 for a set bit, 255 for one that is not.
                    (word >> (key % 64) & 1).wrapping_sub(1) as u8
                });
            }
            Self::Hash(map) => {
                // A line of tags, and the line of the entry.
                *touched += 2 * rows.len as u32;
                rows.keep(radix, |row| map.get(&key(row)).copied().unwrap_or(NONE));
            }
            Self::Unchained(table) => {
                rows.keep(radix, |row| table.get(key(row), touched).unwrap_or(NONE));
            }
        }
    }
}

/// A Dash table in ordinary memory with these records.
///
/// # Errors
/// Those of [`Dash`], and that there is no memory for it.
pub fn dash_of(
    records: impl ExactSizeIterator<Item = (u64, u64)>,
) -> Result<Dash<RegionStore>, DashError> {
    let segments = (records.len() / DASH_RECORDS_PER_SEGMENT) as u32 + 4;
    let bytes = Dash::<RegionStore>::word_count(segments) * 8;
    let region = Region::anonymous(bytes, &AnonymousOptions::default())?;
    let table = Dash::create(RegionStore::new(region.into_words()?), segments)?;
    for (key, value) in records {
        table.insert(key, value)?;
    }
    Ok(table)
}

/// The rows of a chunk that are still in play, and their groups.
#[derive(Debug)]
pub struct Rows {
    rows: Vec<u16>,
    groups: Vec<u32>,
    pub len: usize,
}

impl Rows {
    pub fn new() -> Self {
        Self {
            rows: vec![0; CHUNK_ROWS],
            groups: vec![0; CHUNK_ROWS],
            len: 0,
        }
    }

    /// All rows of a chunk, each in group 0.
    pub fn restart(&mut self, len: usize) {
        self.len = len.min(CHUNK_ROWS);
        for (at, row) in self.rows[..self.len].iter_mut().enumerate() {
            *row = at as u16;
        }
        self.groups[..self.len].fill(0);
    }

    /// Only these rows of a chunk.
    pub fn restart_with(&mut self, rows: impl Iterator<Item = usize>) {
        self.len = 0;
        for row in rows.take(CHUNK_ROWS) {
            self.rows[self.len] = row as u16;
            self.groups[self.len] = 0;
            self.len += 1;
        }
    }

    #[inline]
    fn keep(&mut self, radix: u32, mut code: impl FnMut(usize) -> u8) {
        let (rows, groups) = (&mut self.rows[..CHUNK_ROWS], &mut self.groups[..CHUNK_ROWS]);
        let mut kept = 0;
        for at in 0..self.len.min(CHUNK_ROWS) {
            let (row, group) = (rows[at], groups[at]);
            let code = code(usize::from(row));
            rows[kept] = row;
            groups[kept] = group.wrapping_mul(radix).wrapping_add(u32::from(code));
            kept += usize::from(code != NONE);
        }
        self.len = kept;
    }

    /// How many blocks of this many rows have a row left.
    pub fn blocks(&self, block_rows: usize) -> usize {
        let mut blocks = 0;
        let mut end = 0;
        for row in &self.rows[..self.len] {
            let row = usize::from(*row);
            if row >= end {
                blocks += 1;
                end = (row / block_rows + 1) * block_rows;
            }
        }
        blocks
    }

    /// The rows and their groups.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let rows = self.rows[..self.len].iter().map(|row| usize::from(*row));
        rows.zip(self.groups[..self.len].iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_keeps_the_same_rows_and_groups() {
        let mut random = fastrand::Rng::with_seed(5);
        for groups in [1u8, 7] {
            let keys: Vec<u32> = (1..5000).filter(|_| random.bool()).collect();
            let codes: Vec<u8> = keys
                .iter()
                .map(|key| (*key % u32::from(groups)) as u8)
                .collect();
            let names = (0..groups).map(|group| group.to_string()).collect();
            let chosen = Chosen {
                keys,
                codes,
                groups: names,
                key_max: 4999,
            };
            let asked: Vec<u32> = (0..1500).map(|_| random.u32(..5000)).collect();
            let of = |kind| {
                let (mut rows, mut touched) = (Rows::new(), 0);
                rows.restart(asked.len());
                let look_up = LookUp::build(kind, &chosen).unwrap();
                look_up.keep(&mut rows, u32::from(groups), &mut touched, |row| asked[row]);
                assert!(touched > 0);
                rows.iter().collect::<Vec<_>>()
            };
            let dense = of(Kind::Dense);
            assert!(dense.len() > 500);
            for kind in [Kind::Dash, Kind::Bitmap, Kind::Hash, Kind::Unchained] {
                assert_eq!(of(kind), dense, "{kind:?}");
            }
        }
    }
}
