//! The hash table: rows sorted by slot, and a directory with the end of each slot and a Bloom filter of its keys.
//!
//! Method: Birler, Schmidt, Fent, Neumann, "Simple, Efficient, and Robust Hash Tables for Join Processing", DaMoN 2024.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_tier::region::prefer_huge_pages;

use super::layout::{Block, Heaps, RowLayout};
use super::store::RowStore;
use crate::Result;
use crate::keys::Keys;
use crate::memory::{Charge, Grant};
use crate::partitions::{NO_KEY, PARTITION_BITS, PARTITIONS};

/// A slot's word: the end of its rows above, the filter below.
const FILTER_BITS: u32 = 16;
/// The place of a row in [`Tables`]: the part above, the row in it below.
const ROW_BITS: u32 = 40;
/// Filters of four bits of sixteen. The lowest bits of the hash choose one.
static FILTERS: [u16; 2048] = filters();

const fn filters() -> [u16; 2048] {
    let mut filters = [0; 2048];
    let (mut filled, mut next) = (0, 0_u16);
    while filled < 2048 {
        if next.count_ones() == 4 {
            filters[filled] = next;
            filled += 1;
        }
        next = next.wrapping_add(1);
    }
    filters
}

#[inline(always)]
fn filter_of(hash: u64) -> u64 {
    FILTERS[(hash & 2047) as usize] as u64
}

/// The table of a partition.
#[derive(Default)]
pub struct Part {
    rows: Vec<u64>,
    len: usize,
    /// One word more than there are slots, so that a slot's rows start where those of the slot before end.
    directory: Vec<u64>,
    shift: u32,
    heaps: Vec<Vec<u8>>,
    /// A bit for each row that has a partner, if the join wants to know.
    matched: Vec<AtomicU64>,
    /// Lent for what is above.
    charge: Option<Charge>,
}

impl Part {
    /// Returns what was lent beyond `bytes`.
    pub fn keep(&mut self, bytes: u64) {
        self.charge.as_mut().expect("a charge").shrink_to(bytes);
    }
}

/// What [`Part`] needs to know to build.
#[derive(Clone, Copy)]
pub struct PartOptions<'a> {
    pub layout: &'a RowLayout,
    /// Upper bits of the hash that are the same for all rows.
    pub skip_bits: u32,
    pub marks: bool,
    /// Whether rows have keys.
    pub has_keys: bool,
}

impl PartOptions<'_> {
    fn slot_bits(&self, rows: usize) -> u32 {
        rows.next_power_of_two().trailing_zeros().max(1)
    }

    /// The memory that a table of this many rows needs, apart from heaps.
    pub fn bytes(&self, rows: usize) -> u64 {
        let slots = (1_u64 << self.slot_bits(rows)) + 1;
        let marks = if self.marks { rows.div_ceil(8) } else { 0 };
        (rows * self.layout.stride() * 8 + marks) as u64 + slots * 8
    }

    /// Builds a table. Memory of the chunks is freed as their rows are copied, except for their heaps.
    pub fn build(&self, mut chunks: Vec<Block>, charge: Charge) -> Part {
        let stride = self.layout.stride();
        let len = chunks.iter().map(|chunk| chunk.words.len()).sum::<usize>() / stride;
        let bits = self.slot_bits(len);
        let shift = 64 - bits;
        let mut directory = vec![0_u64; (1 << bits) + 1];
        prefer_huge_pages(&mut directory);
        let mut rows = vec![0_u64; len * stride];
        prefer_huge_pages(&mut rows);
        if self.has_keys {
            self.count(&chunks, &mut directory, shift);
        }
        let mut next = 0;
        for (number, chunk) in chunks.iter_mut().enumerate() {
            let words = std::mem::take(&mut chunk.words);
            for row in words.chunks_exact(stride) {
                let idx = match self.has_keys {
                    true => self.take_place(row, &mut directory, shift),
                    false => next,
                };
                next += 1;
                let place = &mut rows[idx * stride..(idx + 1) * stride];
                place.copy_from_slice(row);
                if self.layout.has_heap() {
                    self.layout.set_heap(place, number);
                }
            }
        }
        let marks = if self.marks { len.div_ceil(64) } else { 0 };
        Part {
            rows,
            len,
            directory,
            shift,
            heaps: chunks.into_iter().map(|chunk| chunk.heap).collect(),
            matched: (0..marks).map(|_| AtomicU64::new(0)).collect(),
            charge: Some(charge),
        }
    }

    /// Counts the rows of each slot; then each slot's end is where its first row will be.
    fn count(&self, chunks: &[Block], directory: &mut [u64], shift: u32) {
        for row in chunks
            .iter()
            .flat_map(|chunk| chunk.words.chunks_exact(self.layout.stride()))
        {
            let slot = self.slot(self.layout.hash(row), shift);
            directory[slot + 1] += 1 << FILTER_BITS;
        }
        let mut sum = 0;
        for end in directory {
            (sum, *end) = (sum + *end, sum);
        }
    }

    /// The place of a row, which moves its slot's end by one.
    #[inline(always)]
    fn take_place(&self, row: &[u64], directory: &mut [u64], shift: u32) -> usize {
        let hash = self.layout.hash(row);
        let end = &mut directory[self.slot(hash, shift) + 1];
        let idx = (*end >> FILTER_BITS) as usize;
        *end = (*end + (1 << FILTER_BITS)) | filter_of(hash);
        idx
    }

    #[inline(always)]
    fn slot(&self, hash: u64, shift: u32) -> usize {
        ((hash << self.skip_bits) >> shift) as usize
    }
}

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
}

/// Probe rows whose slot may have their key, and the slot's rows.
#[derive(Default)]
pub struct Candidates {
    pub rows: Vec<u32>,
    pub starts: Vec<u64>,
    pub ends: Vec<u64>,
}

impl Tables {
    /// The tables of a store whose rows have all arrived. Partitions that do not fit are spilled.
    pub fn build(
        store: &RowStore,
        layout: &Arc<RowLayout>,
        grant: &Arc<Grant>,
        marks: bool,
        threads: usize,
    ) -> Result<Self> {
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
                    skip_bits,
                    marks,
                    has_keys,
                };
                if let Some(part) = build_part(store, idx, options, grant)? {
                    parts.push((idx, part));
                }
            }
        };
        let built = std::thread::scope(|scope| -> Result<Vec<(usize, Part)>> {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(build)).collect();
            let mut parts = build()?;
            for other in others {
                parts.extend(other.join().expect("building does not panic")?);
            }
            Ok(parts)
        })?;
        let mut resident = 0;
        let empty = |_| Part {
            directory: vec![0; 3],
            shift: 63,
            ..Part::default()
        };
        let mut parts: Vec<Part> = (0..=NO_KEY).map(empty).collect();
        for (idx, part) in built {
            resident |= 1_u64.checked_shl(idx as u32).unwrap_or(0);
            parts[idx] = part;
        }
        store.finish()?;
        Ok(Self {
            layout: Arc::clone(layout),
            parts,
            part_shift: 64 - skip_bits,
            part_mask: PARTITIONS as u64 - 1,
            skip_bits,
            resident,
            keyed: PARTITIONS,
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
        }
    }

    /// Frees all rows. The tables are of no use afterwards.
    pub fn free(&mut self) {
        self.parts.clear();
    }

    /// How many parts there are, that of rows without a key included.
    pub fn parts(&self) -> usize {
        self.parts.len()
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
        match (keys.valid(), self.is_complete()) {
            (None, true) => self.candidates_of(keys.hashes(), |_| true, found),
            _ => {
                let wanted = |row| keys.has_key(row) && self.is_resident(keys.hashes()[row]);
                self.candidates_of(keys.hashes(), wanted, found);
            }
        }
    }

    fn candidates_of(
        &self,
        hashes: &[u64],
        wanted: impl Fn(usize) -> bool,
        found: &mut Candidates,
    ) {
        let Candidates { rows, starts, ends } = found;
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
        starts.clear();
        ends.clear();
        for &row in rows.iter() {
            let hash = hashes[row as usize];
            let part_idx = self.part(hash);
            let part = &self.parts[part_idx];
            let slot = ((hash << self.skip_bits) >> part.shift) as usize;
            let start = part.directory[slot] >> FILTER_BITS;
            hotshelf_tier::simd::prefetch(&part.rows, start as usize * self.layout.stride());
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

    /// The place of a row of a part.
    pub fn place(part: usize, row: usize) -> u64 {
        (part as u64) << ROW_BITS | row as u64
    }

    /// Replaces `words` by the rows at `places`.
    pub fn gather(&self, places: &[u64], words: &mut Vec<u64>) {
        words.clear();
        match self.layout.stride() {
            1 => self.gather_rows::<1>(places, words),
            2 => self.gather_rows::<2>(places, words),
            3 => self.gather_rows::<3>(places, words),
            4 => self.gather_rows::<4>(places, words),
            5 => self.gather_rows::<5>(places, words),
            6 => self.gather_rows::<6>(places, words),
            7 => self.gather_rows::<7>(places, words),
            8 => self.gather_rows::<8>(places, words),
            _ => places
                .iter()
                .for_each(|&place| words.extend_from_slice(self.row(place))),
        }
    }

    fn gather_rows<const STRIDE: usize>(&self, places: &[u64], words: &mut Vec<u64>) {
        words.resize(places.len() * STRIDE, 0);
        let (rows, _) = words.as_chunks_mut::<STRIDE>();
        for (row, &place) in rows.iter_mut().zip(places) {
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
        &self.parts[(place >> ROW_BITS) as usize].heaps[number]
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

    /// Whether the row at a place has a partner.
    pub fn is_matched(&self, place: u64) -> bool {
        let row = (place & ((1 << ROW_BITS) - 1)) as usize;
        let word = &self.parts[(place >> ROW_BITS) as usize].matched[row / 64];
        word.load(Ordering::Relaxed) >> (row % 64) & 1 == 1
    }
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
fn build_part(
    store: &RowStore,
    idx: usize,
    options: PartOptions,
    grant: &Arc<Grant>,
) -> Result<Option<Part>> {
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
    let heap: usize = partition
        .chunks
        .iter()
        .map(|chunk| chunk.heap.capacity())
        .sum();
    charge.adopt_more(heap as u64);
    let part = options.build(partition.chunks, charge);
    grant.shrink(partition.held_bytes - heap as u64);
    Ok(Some(part))
}
