//! The tables of all partitions, and how keys are found in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_tier::simd::prefetch;

use super::direct::Direct;
use super::layout::{Heaps, RowLayout};
use super::ordered;
use super::part::{FILTER_BITS, Part, PartOptions, ROW_BITS, filter_of};
use super::store::{Partition, RowStore};
use crate::Result;
use crate::keys::Keys;
use crate::memory::{Charge, Grant};
use crate::partitions::{NO_KEY, PARTITION_BITS, PARTITIONS};
use crate::threads::on_threads;

/// Rows whose memory is fetched ahead of those that are copied.
const GATHERED_AHEAD: usize = 24;

/// The tables of all partitions that are in memory.
pub struct Tables {
    pub layout: Arc<RowLayout>,
    parts: Vec<Part>,
    /// Chooses the part: all rows are in the first, or the hash has its number.
    part_shift: u32,
    part_mask: u64,
    skip_bits: u32,
    /// A bit for each partition that is not spilled.
    resident: u64,
    /// How many parts have rows with keys. They come first.
    keyed: usize,
    direct: Option<Direct>,
    /// Chooses the part that has a row's heap: its own, or the first for all of those with keys.
    heap_part_mask: usize,
}

/// Probe rows whose slot may have their key, and the slot's rows.
#[derive(Default)]
pub struct Candidates {
    pub rows: Vec<u32>,
    pub starts: Vec<u64>,
    pub ends: Vec<u64>,
    /// Whether their keys are known to be equal.
    pub are_pairs: bool,
    /// Whether each has one row.
    pub are_single: bool,
}

impl Tables {
    /// The tables of a store whose rows have all arrived. Partitions that do not fit are spilled.
    pub fn build(store: &RowStore, marks: bool, threads: usize) -> Result<Self> {
        let layout = store.layout();
        if let Some((direct, parts)) = in_order_of_keys(store, marks, threads) {
            store.stop().check()?;
            return Self::in_order(store, marks, direct, parts);
        }
        let skip_bits = PARTITION_BITS * (store.level() + 1);
        let next = AtomicU64::new(0);
        let build = || -> Result<Vec<(usize, Part)>> {
            let mut parts = Vec::new();
            loop {
                let idx = next.fetch_add(1, Ordering::Relaxed) as usize;
                if idx > NO_KEY {
                    return Ok(parts);
                }
                store.stop().check()?;
                let has_keys = idx != NO_KEY;
                let options = PartOptions {
                    layout,
                    stop: store.stop(),
                    skip_bits,
                    marks,
                    has_keys,
                    shelf: store.table_shelf(),
                };
                if let Some(part) = build_part(store, idx, options)? {
                    parts.push((idx, part));
                }
            }
        };
        let mut resident = 0;
        let mut parts: Vec<Part> = (0..=NO_KEY).map(|_| Part::empty()).collect();
        for built in on_threads(threads, build) {
            for (idx, part) in built? {
                resident |= 1_u64.checked_shl(idx as u32).unwrap_or(0);
                parts[idx] = part;
            }
        }
        store.finish()?;
        Ok(Self {
            layout: Arc::clone(layout),
            direct: None,
            heap_part_mask: usize::MAX,
            parts,
            part_shift: 64 - skip_bits,
            part_mask: PARTITIONS as u64 - 1,
            skip_bits,
            resident,
            keyed: PARTITIONS,
        })
    }

    /// Those of rows in the order of their keys, and of the rows without a key.
    fn in_order(
        store: &RowStore,
        marks: bool,
        direct: Direct,
        mut parts: Vec<Part>,
    ) -> Result<Self> {
        let layout = store.layout();
        let options = PartOptions {
            layout,
            stop: store.stop(),
            skip_bits: 0,
            marks,
            has_keys: false,
            shelf: store.table_shelf(),
        };
        let keyed = parts.len();
        if let Some(shelf) = options.shelf {
            direct.put_on(shelf);
            parts
                .iter()
                .for_each(|part| part.put_on(shelf, store.stop()));
        }
        let lonely = build_part(store, NO_KEY, options)?;
        parts.push(lonely.unwrap_or_else(Part::empty));
        store.finish()?;
        Ok(Self {
            layout: Arc::clone(layout),
            direct: Some(direct),
            heap_part_mask: 0,
            parts,
            part_shift: 0,
            part_mask: 0,
            skip_bits: 0,
            resident: u64::MAX,
            keyed,
        })
    }

    /// One table.
    pub fn single(layout: &Arc<RowLayout>, part: Part, options: PartOptions) -> Self {
        Self {
            layout: Arc::clone(layout),
            parts: vec![part],
            part_shift: 0,
            part_mask: 0,
            skip_bits: options.skip_bits,
            resident: u64::MAX,
            keyed: usize::from(options.has_keys),
            direct: None,
            heap_part_mask: usize::MAX,
        }
    }

    /// How many parts there are, that of rows without a key included.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// What the tables take.
    pub fn bytes(&self) -> u64 {
        let direct = self.direct.as_ref().map_or(0, Direct::bytes);
        direct + self.parts.iter().map(Part::bytes).sum::<u64>()
    }

    /// Whether probing needs the hashes of keys.
    pub fn needs_hashes(&self) -> bool {
        self.direct.is_none()
    }

    /// Whether there are no rows with keys, in memory or spilled.
    pub fn is_void(&self) -> bool {
        let keyed = &self.parts[..self.keyed.min(self.parts.len())];
        self.is_complete() && keyed.iter().all(|part| part.len == 0)
    }

    /// Whether no partition is spilled.
    pub fn is_complete(&self) -> bool {
        self.resident == u64::MAX
    }

    /// Whether the partition of a hash is in memory.
    pub fn is_resident(&self, hash: u64) -> bool {
        self.resident >> self.part(hash) & 1 == 1
    }

    /// The rows of a part, and whether they have keys.
    pub fn part_rows(&self, part: usize) -> (usize, bool) {
        (self.parts[part].len, part < self.keyed)
    }

    #[inline(always)]
    fn part(&self, hash: u64) -> usize {
        (hash >> self.part_shift & self.part_mask) as usize
    }

    /// Finds the slots of rows with a key whose partition is in memory.
    pub fn candidates(&self, keys: &Keys, found: &mut Candidates) {
        found.are_pairs = false;
        if let Some(direct) = &self.direct {
            return match keys.valid() {
                None => self.direct_candidates(direct, keys, |_| true, found),
                Some(valid) => {
                    self.direct_candidates(direct, keys, |row| valid.is_valid(row), found);
                }
            };
        }
        match (keys.valid(), self.is_complete()) {
            (None, true) => self.candidates_of(keys.hashes(), |_| true, found),
            _ => {
                let wanted = |row| keys.has_key(row) && self.is_resident(keys.hashes()[row]);
                self.candidates_of(keys.hashes(), wanted, found);
            }
        }
    }

    /// Those whose key has rows.
    fn direct_candidates(
        &self,
        direct: &Direct,
        keys: &Keys,
        has_key: impl Fn(usize) -> bool,
        found: &mut Candidates,
    ) {
        let words = keys.all_words();
        let Candidates {
            rows, starts, ends, ..
        } = found;
        let stride = self.layout.stride();
        direct.find(
            words,
            has_key,
            (&self.parts[..], stride),
            (rows, starts, ends),
        );
        found.are_pairs = true;
        found.are_single = direct.is_unique();
    }

    fn candidates_of(
        &self,
        hashes: &[u64],
        wanted: impl Fn(usize) -> bool,
        found: &mut Candidates,
    ) {
        let Candidates {
            rows, starts, ends, ..
        } = found;
        rows.clear();
        rows.resize(hashes.len(), 0);
        let mut count = 0;
        for (row, &hash) in hashes.iter().enumerate() {
            let part = &self.parts[self.part(hash)];
            let slot = ((hash << self.skip_bits) >> part.shift) as usize;
            let filter = filter_of(hash);
            let is_hit = part.directory[slot + 1] & filter == filter && wanted(row);
            rows[count] = row as u32;
            count += usize::from(is_hit);
        }
        rows.truncate(count);
        self.slots_of(rows, |row| hashes[row as usize], starts, ends);
    }

    /// The rows of the slots of some hashes.
    fn slots_of(
        &self,
        rows: &[u32],
        hash_of: impl Fn(u32) -> u64,
        starts: &mut Vec<u64>,
        ends: &mut Vec<u64>,
    ) {
        starts.clear();
        ends.clear();
        for &row in rows {
            let hash = hash_of(row);
            let part_idx = self.part(hash);
            let part = &self.parts[part_idx];
            let slot = ((hash << self.skip_bits) >> part.shift) as usize;
            let start = part.directory[slot] >> FILTER_BITS;
            prefetch(&part.rows, start as usize * self.layout.stride());
            let place = (part_idx as u64) << ROW_BITS;
            starts.push(place | start);
            ends.push(place | part.directory[slot + 1] >> FILTER_BITS);
        }
    }

    /// The row at a place.
    #[inline(always)]
    pub fn row(&self, place: u64) -> &[u64] {
        let stride = self.layout.stride();
        let start = (place & ((1 << ROW_BITS) - 1)) as usize * stride;
        &self.parts[(place >> ROW_BITS) as usize].rows[start..start + stride]
    }

    /// Has the row at a place brought from memory.
    #[inline(always)]
    fn fetch(&self, place: u64) {
        let start = (place & ((1 << ROW_BITS) - 1)) as usize * self.layout.stride();
        prefetch(&self.parts[(place >> ROW_BITS) as usize].rows, start);
    }

    /// Replaces `words` by the rows at `places`.
    pub fn gather(&self, places: &[u64], words: &mut Vec<u64>) {
        match self.layout.stride() {
            1 => self.gather_rows::<1>(places, words),
            2 => self.gather_rows::<2>(places, words),
            3 => self.gather_rows::<3>(places, words),
            4 => self.gather_rows::<4>(places, words),
            5 => self.gather_rows::<5>(places, words),
            6 => self.gather_rows::<6>(places, words),
            7 => self.gather_rows::<7>(places, words),
            8 => self.gather_rows::<8>(places, words),
            _ => {
                words.clear();
                places
                    .iter()
                    .for_each(|&place| words.extend_from_slice(self.row(place)));
            }
        }
    }

    fn gather_rows<const STRIDE: usize>(&self, places: &[u64], words: &mut Vec<u64>) {
        words.resize(places.len() * STRIDE, 0);
        let (rows, _) = words.as_chunks_mut::<STRIDE>();
        // More at once than a core can wait for only drive each other out of its caches.
        let ahead = places.iter().skip(GATHERED_AHEAD).map(Some);
        let ahead = ahead.chain(std::iter::repeat(None));
        for ((row, &place), ahead) in rows.iter_mut().zip(places).zip(ahead) {
            if let Some(&ahead) = ahead {
                self.fetch(ahead);
            }
            row.copy_from_slice(self.row(place));
        }
    }

    /// The bytes that the row at a place has in heaps.
    #[inline]
    pub fn heap_bytes(&self, place: u64) -> usize {
        let row = self.row(place);
        self.layout
            .heap_bytes(row, |number| self.heap(place, number))
    }

    /// The heap that a row refers to by number.
    pub fn heap(&self, place: u64, number: usize) -> &[u8] {
        let part = (place >> ROW_BITS) as usize;
        let part = match part < self.keyed {
            true => part & self.heap_part_mask,
            false => part,
        };
        &self.parts[part].heaps[number]
    }

    /// Notes that the row at a place has a partner.
    #[inline]
    pub fn mark(&self, place: u64) {
        let row = (place & ((1 << ROW_BITS) - 1)) as usize;
        let word = &self.parts[(place >> ROW_BITS) as usize].matched[row / 64];
        let bit = 1 << (row % 64);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether all rows from one place to another of the same part have partners.
    pub fn are_matched(&self, start: u64, end: u64) -> bool {
        let row = |place: u64| (place & ((1 << ROW_BITS) - 1)) as usize;
        let matched = &self.parts[(start >> ROW_BITS) as usize].matched;
        let (mut next, end) = (row(start), row(end));
        while next < end {
            let len = (64 - next % 64).min(end - next);
            let wanted = u64::MAX >> (64 - len) << (next % 64);
            if matched[next / 64].load(Ordering::Relaxed) & wanted != wanted {
                return false;
            }
            next += len;
        }
        true
    }

    /// Whether the row at a place has a partner.
    pub fn is_matched(&self, place: u64) -> bool {
        let row = (place & ((1 << ROW_BITS) - 1)) as usize;
        let word = &self.parts[(place >> ROW_BITS) as usize].matched[row / 64];
        word.load(Ordering::Relaxed) >> (row % 64) & 1 == 1
    }
}

/// The rows of a store in the order of their keys; none where these lie too far apart, or memory is short.
fn in_order_of_keys(store: &RowStore, marks: bool, threads: usize) -> Option<(Direct, Vec<Part>)> {
    let range = store.key_range()?;
    let partitions = store.take_all_resident()?;
    let partitions = match Direct::build(store, &partitions, range, threads) {
        Some(mut direct) => match ordered::build(store, partitions, &mut direct, marks, threads) {
            Ok(parts) => return Some((direct, parts)),
            Err(partitions) => partitions,
        },
        None => partitions,
    };
    store.put_back(partitions);
    None
}

/// Rows at places of tables.
pub struct Gathered<'a> {
    pub tables: &'a Tables,
    pub places: &'a [u64],
}

impl Heaps for Gathered<'_> {
    fn heap(&self, row: usize, number: usize) -> &[u8] {
        self.tables.heap(self.places[row], number)
    }
}

/// The table of a partition, or nothing if it is spilled.
fn build_part(store: &RowStore, idx: usize, options: PartOptions) -> Result<Option<Part>> {
    let grant = store.grant();
    let Some(partition) = store.take_resident(idx) else {
        return Ok(None);
    };
    let bytes = options.bytes(partition.rows as usize);
    let mut charge = Charge::adopt(grant, 0);
    if partition.rows == 0 {
        // Nothing is gained by spilling nothing, and the rows that probe it would have to be spilled, too.
        charge.grow(bytes);
    } else if !charge.try_grow(bytes) {
        store.spill_taken(idx, partition)?;
        return Ok(None);
    }
    let part = part_of(partition, charge, &options, grant);
    store.stop().check()?;
    Ok(Some(part))
}

/// The table of these rows, for which `charge` is lent. What was lent for the rows is returned.
pub fn part_of(
    partition: Partition,
    mut charge: Charge,
    options: &PartOptions,
    grant: &Grant,
) -> Part {
    let heaps = partition.chunks.iter().map(|chunk| chunk.heap.capacity());
    let heap_bytes = heaps.sum::<usize>() as u64;
    charge.adopt_more(heap_bytes);
    let part = options.build(partition.chunks, charge);
    grant.shrink(partition.held_bytes - heap_bytes);
    part
}
