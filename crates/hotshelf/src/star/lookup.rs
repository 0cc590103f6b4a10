//! A build side as a map from keys to *slots*: a bitmap over `key - min` where the range is not too large, else a
//! hash table. What is attached to a key (a build row, a group code) is found by its *place* afterwards, for
//! surviving rows only: the slot itself, or in sparse bitmaps how many keys come before it.

use std::ops::Range;

use super::keys::KeyColumn;
use super::matching::Matching;
use crate::look_ups::LookUpShelf;

/// The slot of a row without a match that is kept all the same.
pub(super) const MISS: u32 = u32::MAX;

/// Ranges up to this many keys are always dense: a bitmap of 512 KiB stays close to the core.
const DENSE_RANGE_MIN: u64 = 1 << 22;
/// Denser than one key in this many: a bitmap and a build row for every slot cost less than a hash table.
const DENSE_KEYS_PER_ROW: u64 = 16;
/// Denser than one key in this many: so does a bitmap with a count for each of its words.
const SPARSE_KEYS_PER_ROW: u64 = 256;

/// Which rows of the build side have which keys.
pub(super) struct Lookup {
    table: LookupTable,
    /// Build row by place; `MISS` where a dense slot has none. Empty for hash tables, whose slots are rows.
    rows: Vec<u32>,
    /// Keys before each word of the bitmap. Empty where slots are places.
    ranks: Vec<u32>,
    row_count: usize,
}

enum LookupTable {
    Dense(Dense),
    Hash(Hash),
}

/// One bit per key of a range, and one clear bit after the last.
pub(super) struct Dense {
    min: u64,
    /// Number of keys in the range.
    limit: u64,
    bits: Vec<u64>,
}

/// Open addressing with linear probing; at most half full. A bit for each sixteenth of an entry's hashes says that a
/// key has one of them: it tells most rows without a match, without a branch that cannot be foreseen.
struct Hash {
    shift: u32,
    entries: Vec<(u64, u32)>,
    filter: Vec<u64>,
}

/// Bits of a hash that the filter tells apart beyond those of an entry.
const FILTER_BITS: u32 = 4;

/// The build key repeats, so that a scanned row may match more than once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Duplicates;

/// What is known about the keys before a look-up is made of them.
pub(super) struct Frame {
    min: u64,
    /// The greatest key less the least.
    range: u64,
    row_count: usize,
    /// Whether build rows are kept.
    want_rows: bool,
    /// The rows of the least and of the greatest key.
    pub extremes: Option<(usize, usize)>,
}

impl Frame {
    pub fn of(keys: &KeyColumn, want_rows: bool) -> Self {
        let word = |row| keys.word(row).unwrap_or(0);
        let extremes = keys.extremes();
        let (min, max) = extremes.map_or((0, 0), |(least, most)| (word(least), word(most)));
        Self {
            min,
            range: max.wrapping_sub(min),
            row_count: keys.words(0..keys.len()).count(),
            want_rows,
            extremes,
        }
    }

    /// For keys without their rows: the least one, the greatest less that, and how many there are.
    pub fn of_keys(min: u64, range: u64, row_count: usize) -> Self {
        Self {
            min,
            range,
            row_count,
            want_rows: false,
            extremes: None,
        }
    }

    /// Memory that the look-up will take, in bytes.
    pub fn size_bytes(&self) -> usize {
        let limit = self.range as usize;
        let bitmap_bytes = (limit / 64 + 1) * 8;
        match kind(self.range, self.row_count, self.want_rows) {
            LookupKind::Bitmap => bitmap_bytes,
            LookupKind::Dense => bitmap_bytes + (limit + 1) * 4,
            LookupKind::Sparse => bitmap_bytes + bitmap_bytes / 2 + self.row_count * 4,
            LookupKind::Hash => Hash::size_bytes(self.row_count),
        }
    }
}

impl Lookup {
    /// A look-up with no key yet.
    pub fn new(frame: &Frame) -> Self {
        let kind = kind(frame.range, frame.row_count, frame.want_rows);
        let table = match kind {
            LookupKind::Hash => LookupTable::Hash(Hash::new(frame.row_count)),
            _ => LookupTable::Dense(Dense::new(frame.min, frame.range + 1)),
        };
        let (row_places, rank_places) = match (kind, &table) {
            (LookupKind::Dense, LookupTable::Dense(dense)) => (dense.limit as usize, 0),
            (LookupKind::Sparse, LookupTable::Dense(dense)) => (frame.row_count, dense.bits.len()),
            _ => (0, 0),
        };
        Self {
            table,
            rows: vec![MISS; row_places],
            ranks: vec![0; rank_places],
            row_count: frame.row_count,
        }
    }

    /// Keys without their rows.
    pub fn of_bits(bits: Dense, row_count: usize) -> Self {
        Self {
            table: LookupTable::Dense(bits),
            rows: Vec::new(),
            ranks: Vec::new(),
            row_count,
        }
    }

    /// Adds the keys of some build rows. Repeated keys are an error where they would repeat rows.
    pub fn add(
        &mut self,
        keys: &KeyColumn,
        rows: Range<usize>,
        matching: Matching,
    ) -> Result<(), Duplicates> {
        let unique = matching.attaches();
        for (word, row) in keys.words(rows) {
            let is_new = match &mut self.table {
                LookupTable::Dense(dense) => {
                    let slot = word.wrapping_sub(dense.min) as usize;
                    if self.ranks.is_empty()
                        && let Some(row_of_slot) = self.rows.get_mut(slot)
                    {
                        *row_of_slot = row;
                    }
                    dense.add(slot)
                }
                LookupTable::Hash(hash) => hash.add(word, row),
            };
            if unique && !is_new {
                return Err(Duplicates);
            }
        }
        Ok(())
    }

    /// Whether places differ from slots. Then, once all keys are there, [`Self::rank`] and [`Self::attach`] follow.
    pub fn is_ranked(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// Counts the keys.
    pub fn rank(&mut self) {
        if let LookupTable::Dense(dense) = &self.table {
            let mut keys = 0;
            for (rank, bits) in self.ranks.iter_mut().zip(&dense.bits) {
                *rank = keys;
                keys += bits.count_ones();
            }
        }
    }

    /// Puts some build rows in their places.
    pub fn attach(&mut self, keys: &KeyColumn, rows: Range<usize>) {
        for (word, row) in keys.words(rows) {
            let place = self.place(self.find(word).unwrap_or(MISS));
            if let Some(row_of_place) = self.rows.get_mut(place as usize) {
                *row_of_place = row;
            }
        }
    }

    /// Where what belongs to a slot is; `MISS` for a slot without a key in a sparse bitmap.
    #[inline]
    pub fn place(&self, slot: u32) -> u32 {
        let word = (slot >> 6) as usize;
        let (LookupTable::Dense(dense), Some(rank)) = (&self.table, self.ranks.get(word)) else {
            return if self.ranks.is_empty() { slot } else { MISS };
        };
        let (bits, bit) = (dense.bits[word], 1u64 << (slot & 63));
        match bits & bit {
            0 => MISS,
            _ => rank + (bits & (bit - 1)).count_ones(),
        }
    }

    /// Has it on a shelf.
    pub fn place_on(&self, shelf: &LookUpShelf) {
        match &self.table {
            LookupTable::Dense(dense) => shelf.place(&dense.bits),
            LookupTable::Hash(hash) => {
                shelf.place(&hash.entries);
                shelf.place(&hash.filter);
            }
        }
        shelf.place(&self.rows);
        shelf.place(&self.ranks);
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let table = match &self.table {
            LookupTable::Dense(dense) => dense.size_bytes(),
            LookupTable::Hash(hash) => size_of_val(&*hash.entries) + size_of_val(&*hash.filter),
        };
        table + size_of_val(&*self.rows) + size_of_val(&*self.ranks)
    }

    /// How keys would be found, for EXPLAIN.
    pub fn kind_for(range: u64, row_count: usize, want_rows: bool) -> &'static str {
        kind(range, row_count, want_rows).name()
    }

    /// How keys are found, for EXPLAIN ANALYZE.
    pub fn kind(&self) -> &'static str {
        let kind = match &self.table {
            LookupTable::Hash(_) => LookupKind::Hash,
            LookupTable::Dense(_) if self.rows.is_empty() => LookupKind::Bitmap,
            LookupTable::Dense(_) if self.is_ranked() => LookupKind::Sparse,
            LookupTable::Dense(_) => LookupKind::Dense,
        };
        kind.name()
    }

    /// Keys other than NULL.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// The share of the key range that has a key: a guess at how many rows will match.
    pub fn density(&self) -> f64 {
        match &self.table {
            LookupTable::Dense(dense) => self.row_count as f64 / dense.limit.max(1) as f64,
            LookupTable::Hash(_) => 0.5,
        }
    }

    /// The build row of a place; `MISS` stays `MISS`.
    pub fn row(&self, place: u32) -> u32 {
        if self.rows.is_empty() {
            place
        } else {
            self.rows.get(place as usize).copied().unwrap_or(MISS)
        }
    }

    /// `by_row` rearranged by place, with `missing` for places that have no row. Also what to use for `MISS`.
    pub fn by_place(&self, by_row: &[u32], missing: u32) -> Vec<u32> {
        if self.rows.is_empty() {
            return by_row.to_vec();
        }
        let value = |row: &u32| by_row.get(*row as usize).copied().unwrap_or(missing);
        self.rows.iter().map(value).collect()
    }

    /// The least key and a bit per key from there on, where keys are in a bitmap: slot `i` is key `min + i`.
    pub fn dense(&self) -> Option<(u64, &[u64])> {
        match &self.table {
            LookupTable::Dense(dense) => Some((dense.min, &dense.bits)),
            LookupTable::Hash(_) => None,
        }
    }

    /// The slot of a key, if there is a row that has it.
    #[inline]
    pub fn find(&self, word: u64) -> Option<u32> {
        match &self.table {
            LookupTable::Dense(dense) => dense.find(word),
            LookupTable::Hash(hash) => hash.find(word),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookupKind {
    /// A bit per key of the range.
    Bitmap,
    /// And a build row per key of the range.
    Dense,
    /// A bit per key of the range, a count per word, a build row per key.
    Sparse,
    Hash,
}

impl LookupKind {
    fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "bitmap",
            Self::Dense => "dense",
            Self::Sparse => "sparse",
            Self::Hash => "hash",
        }
    }
}

/// How keys of this range (greatest less least) are kept.
fn kind(range: u64, row_count: usize, want_rows: bool) -> LookupKind {
    let below = |keys_per_row: u64| {
        let most = DENSE_RANGE_MIN.max((row_count as u64).saturating_mul(keys_per_row));
        range < most.min(u64::from(u32::MAX) / 2)
    };
    match want_rows {
        false if below(SPARSE_KEYS_PER_ROW) => LookupKind::Bitmap,
        true if below(DENSE_KEYS_PER_ROW) => LookupKind::Dense,
        true if below(SPARSE_KEYS_PER_ROW) => LookupKind::Sparse,
        _ => LookupKind::Hash,
    }
}

impl Dense {
    pub fn new(min: u64, limit: u64) -> Self {
        Self {
            min,
            limit,
            bits: vec![0; (limit >> 6) as usize + 1],
        }
    }

    /// The least key that has a slot.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        self.bits.len() * 8
    }

    /// Whether a key has a slot.
    pub fn covers(&self, word: u64) -> bool {
        word.wrapping_sub(self.min) < self.limit
    }

    /// Adds a key that has a slot. False if it was there.
    pub fn add_word(&mut self, word: u64) -> bool {
        debug_assert!(self.covers(word));
        self.add(word.wrapping_sub(self.min) as usize)
    }

    /// The keys.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        self.bits.iter().zip(0u64..).flat_map(|(&bits, number)| {
            let first = self.min.wrapping_add(number << 6);
            let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
            set.map(move |bit| first.wrapping_add(bit))
        })
    }

    /// False if the slot was taken.
    fn add(&mut self, slot: usize) -> bool {
        let (block, bit) = (&mut self.bits[slot >> 6], 1u64 << (slot & 63));
        let is_new = *block & bit == 0;
        *block |= bit;
        is_new
    }

    #[inline]
    fn find(&self, word: u64) -> Option<u32> {
        let slot = word.wrapping_sub(self.min);
        let bits = self.bits.get(usize::try_from(slot >> 6).ok()?)?;
        ((bits >> (slot & 63)) & 1 == 1).then_some(slot as u32)
    }
}

impl Hash {
    fn capacity(row_count: usize) -> usize {
        (row_count * 2).next_power_of_two().max(2)
    }

    fn filter_words(capacity: usize) -> usize {
        (capacity << FILTER_BITS).div_ceil(64)
    }

    fn size_bytes(row_count: usize) -> usize {
        let capacity = Self::capacity(row_count);
        capacity * size_of::<(u64, u32)>() + Self::filter_words(capacity) * size_of::<u64>()
    }

    fn new(row_count: usize) -> Self {
        let capacity = Self::capacity(row_count);
        Self {
            shift: 64 - capacity.ilog2(),
            entries: vec![(0, MISS); capacity],
            filter: vec![0; Self::filter_words(capacity)],
        }
    }

    /// The bit of the filter for a hash.
    fn filtered(&self, hash: u64) -> (usize, u64) {
        let bit = hash >> (self.shift - FILTER_BITS);
        ((bit >> 6) as usize, 1 << (bit & 63))
    }

    /// False if the key is there already; the new row takes its place.
    fn add(&mut self, word: u64, row: u32) -> bool {
        let mask = self.entries.len() - 1;
        let hash = hash_word(word);
        let (filter, bit) = self.filtered(hash);
        self.filter[filter] |= bit;
        let mut at = (hash >> self.shift) as usize;
        while self.entries[at].1 != MISS && self.entries[at].0 != word {
            at = (at + 1) & mask;
        }
        let is_new = self.entries[at].1 == MISS;
        self.entries[at] = (word, row);
        is_new
    }

    #[inline]
    fn find(&self, word: u64) -> Option<u32> {
        let hash = hash_word(word);
        let (filter, bit) = self.filtered(hash);
        if self.filter[filter] & bit == 0 {
            return None;
        }
        let mask = self.entries.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let (key, row) = self.entries[at & mask];
            if row == MISS {
                return None;
            }
            if key == word {
                return Some(row);
            }
            at += 1;
        }
    }
}

fn hash_word(word: u64) -> u64 {
    (word ^ (word >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int32Array, Int64Array, UInt64Array};
    use std::sync::Arc;

    fn column(array: ArrayRef) -> KeyColumn {
        KeyColumn::new(&array).unwrap()
    }

    fn lookup(keys: &KeyColumn, matching: Matching, want_rows: bool) -> Result<Lookup, Duplicates> {
        let frame = Frame::of(keys, want_rows);
        let mut lookup = Lookup::new(&frame);
        let middle = keys.len() / 2;
        lookup.add(keys, 0..middle, matching)?;
        lookup.add(keys, middle..keys.len(), matching)?;
        if lookup.is_ranked() {
            lookup.rank();
            lookup.attach(keys, 0..middle);
            lookup.attach(keys, middle..keys.len());
        }
        Ok(lookup)
    }

    #[test]
    fn dense_and_hash_find_the_same_rows() {
        for (scale, kind) in [(1i64, "dense"), (1 << 40, "hash")] {
            let build: Vec<i64> = [-5, 3, 0, 9].map(|key| key * scale).to_vec();
            let keys = column(Arc::new(Int64Array::from(build)));
            let lookup = lookup(&keys, Matching::Inner, true).unwrap();
            assert_eq!(lookup.kind(), kind);
            let asked = (-20..20).map(|key| key * scale).chain([i64::MIN, i64::MAX]);
            let found: Vec<(i64, u32)> = asked
                .filter_map(|key| Some((key, lookup.row(lookup.place(lookup.find(key as u64)?)))))
                .collect();
            assert_eq!(
                found,
                [(-5 * scale, 0), (0, 2), (3 * scale, 1), (9 * scale, 3)]
            );
        }
    }

    #[test]
    fn sparse_bitmaps_find_their_rows() {
        let rows = 200_000i64;
        let key = |row: i64| (row * 33 + row % 5) * if row % 2 == 0 { 1 } else { -1 };
        let keys = column(Arc::new(Int64Array::from_iter_values((0..rows).map(key))));
        let lookup = lookup(&keys, Matching::Inner, true).unwrap();
        assert_eq!(lookup.kind(), "sparse");
        for row in 0..rows {
            let slot = lookup.find(key(row) as u64).unwrap();
            assert_eq!(lookup.row(lookup.place(slot)), row as u32);
        }
        let by_row: Vec<u32> = (0..rows as u32).map(|row| row + 7).collect();
        let by_place = lookup.by_place(&by_row, MISS);
        let slot = lookup.find(key(4711) as u64).unwrap();
        assert_eq!(by_place[lookup.place(slot) as usize], 4718);
        let unused = (0..500u64).filter(|key| lookup.find(*key).is_none());
        assert!(unused.count() > 400);
        assert_eq!((lookup.place(MISS), lookup.row(MISS)), (MISS, MISS));
    }

    #[test]
    fn null_keys_are_not_found() {
        let keys = vec![Some(1), None, Some(2), None];
        let keys = column(Arc::new(Int32Array::from(keys)));
        let lookup = lookup(&keys, Matching::Inner, true).unwrap();
        assert_eq!(lookup.row_count(), 2);
        assert_eq!(lookup.find(0), None);
    }

    #[test]
    fn repeated_keys_matter_only_where_rows_are_attached() {
        for far in [0u64, 1 << 60] {
            let keys = column(Arc::new(UInt64Array::from(vec![7, 7, far])));
            assert!(matches!(
                lookup(&keys, Matching::Inner, true),
                Err(Duplicates)
            ));
            let lookup = lookup(&keys, Matching::Semi, false).unwrap();
            assert!(lookup.find(7).is_some() && lookup.find(far).is_some());
        }
    }

    #[test]
    fn an_empty_build_side_has_no_key() {
        let empty = column(Arc::new(Int32Array::from(Vec::<i32>::new())));
        let lookup = lookup(&empty, Matching::Inner, true).unwrap();
        assert_eq!((lookup.find(0), lookup.find(1)), (None, None));
    }
}
