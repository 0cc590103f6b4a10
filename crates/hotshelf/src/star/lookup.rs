//! A build side as a map from keys to *slots*: a bitmap over `key - min` where the range is small, else a
//! hash table. What is attached to a slot (a build row, a group code) is found by its number afterwards,
//! for surviving rows only.

use super::keys::{Key, KeyColumn, KeyValues};
use super::shape::Matching;

/// The slot of a row without a match that is kept all the same.
pub(super) const MISS: u32 = u32::MAX;

/// Ranges up to this many keys are always dense: a bitmap of 512 KiB stays close to the core.
const DENSE_RANGE_MIN: u64 = 1 << 22;
/// Denser than one key in this many: a bitmap and slot numbers cost less than a hash table.
const DENSE_KEYS_PER_ROW: u64 = 16;

/// Which rows of the build side have which keys.
pub(super) struct Lookup {
    table: Table,
    /// Build row by slot; `MISS` where a dense slot has none. Empty for hash tables, whose slots are rows.
    rows: Vec<u32>,
    row_count: usize,
}

enum Table {
    Dense(Dense),
    Hash(Hash),
}

/// One bit per key of a range, and one clear bit after the last.
struct Dense {
    min: u64,
    /// Number of keys in the range.
    limit: u64,
    bits: Vec<u64>,
}

/// Open addressing with linear probing; at most half full.
struct Hash {
    shift: u32,
    entries: Vec<(u64, u32)>,
}

/// The build key repeats, so that a scanned row may match more than once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Duplicates;

impl Lookup {
    /// Builds the map. Repeated keys are an error where they would repeat rows; `want_rows` keeps build rows.
    pub fn build(
        keys: &KeyColumn,
        matching: Matching,
        want_rows: bool,
    ) -> Result<Self, Duplicates> {
        let unique = matching.attaches();
        match &keys.values {
            KeyValues::I32(values) => Self::build_from(values, keys, unique, want_rows),
            KeyValues::I64(values) => Self::build_from(values, keys, unique, want_rows),
            KeyValues::U32(values) => Self::build_from(values, keys, unique, want_rows),
            KeyValues::U64(values) => Self::build_from(values, keys, unique, want_rows),
        }
    }

    fn build_from<K: Key>(
        values: &[K],
        keys: &KeyColumn,
        unique: bool,
        want_rows: bool,
    ) -> Result<Self, Duplicates> {
        let words = || {
            values.iter().enumerate().filter_map(|(row, key)| {
                let valid = keys.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                valid.then(|| (key.word(), row as u32))
            })
        };
        let row_count = words().count();
        let min = words()
            .map(|(word, _)| word)
            .reduce(|a, b| if K::less(b, a) { b } else { a });
        let max = words()
            .map(|(word, _)| word)
            .reduce(|a, b| if K::less(a, b) { b } else { a });
        let (min, max) = (min.unwrap_or(0), max.unwrap_or(0));
        let range = max.wrapping_sub(min);
        let (table, rows) = if is_dense(range, row_count) {
            dense(words(), min, range + 1, unique, want_rows)?
        } else {
            (hash(words(), row_count, unique)?, Vec::new())
        };
        Ok(Self {
            table,
            rows,
            row_count,
        })
    }

    /// How keys would be found, for EXPLAIN.
    pub fn kind_for(range: u64, row_count: usize, want_rows: bool) -> &'static str {
        match (is_dense(range, row_count), want_rows) {
            (true, false) => "bitmap",
            (true, true) => "dense",
            (false, _) => "hash",
        }
    }

    /// How keys are found, for EXPLAIN ANALYZE.
    pub fn kind(&self) -> &'static str {
        match &self.table {
            Table::Dense(_) if self.rows.is_empty() => "bitmap",
            Table::Dense(_) => "dense",
            Table::Hash(_) => "hash",
        }
    }

    /// Keys other than NULL.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// The share of the key range that has a key: a guess at how many rows will match.
    pub fn density(&self) -> f64 {
        match &self.table {
            Table::Dense(dense) => self.row_count as f64 / dense.limit.max(1) as f64,
            Table::Hash(_) => 0.5,
        }
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let table = match &self.table {
            Table::Dense(dense) => dense.bits.len() * 8,
            Table::Hash(hash) => hash.entries.len() * 16,
        };
        table + self.rows.len() * 4
    }

    /// The build row of a slot; `MISS` stays `MISS`.
    pub fn row(&self, slot: u32) -> u32 {
        if self.rows.is_empty() {
            slot
        } else {
            self.rows.get(slot as usize).copied().unwrap_or(MISS)
        }
    }

    /// `by_row` rearranged by slot, with `missing` for slots that have no row. Also what to use for `MISS`.
    pub fn by_slot(&self, by_row: &[u32], missing: u32) -> Vec<u32> {
        if self.rows.is_empty() {
            return by_row.to_vec();
        }
        let value = |row: &u32| by_row.get(*row as usize).copied().unwrap_or(missing);
        self.rows.iter().map(value).collect()
    }

    /// The least key and a bit per key from there on, where keys stand in a bitmap: slot `i` is key `min + i`.
    pub fn dense(&self) -> Option<(u64, &[u64])> {
        match &self.table {
            Table::Dense(dense) => Some((dense.min, &dense.bits)),
            Table::Hash(_) => None,
        }
    }

    /// The slot of a key, if there is a row that has it.
    #[inline]
    pub fn find(&self, word: u64) -> Option<u32> {
        match &self.table {
            Table::Dense(dense) => dense.find(word),
            Table::Hash(hash) => hash.find(word),
        }
    }
}

/// Whether keys of this range (greatest less least) stand in an array.
fn is_dense(range: u64, row_count: usize) -> bool {
    let dense_max = DENSE_RANGE_MIN
        .max(row_count as u64 * DENSE_KEYS_PER_ROW)
        .min(u64::from(u32::MAX) / 2);
    range < dense_max
}

impl Dense {
    #[inline]
    fn find(&self, word: u64) -> Option<u32> {
        let slot = word.wrapping_sub(self.min);
        let bits = self.bits.get(usize::try_from(slot >> 6).ok()?)?;
        ((bits >> (slot & 63)) & 1 == 1).then_some(slot as u32)
    }
}

impl Hash {
    #[inline]
    fn find(&self, word: u64) -> Option<u32> {
        let mask = self.entries.len() - 1;
        let mut at = hash_word(word, self.shift);
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

fn hash_word(word: u64, shift: u32) -> usize {
    ((word ^ (word >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

fn dense(
    words: impl Iterator<Item = (u64, u32)>,
    min: u64,
    limit: u64,
    unique: bool,
    want_rows: bool,
) -> Result<(Table, Vec<u32>), Duplicates> {
    let mut bits = vec![0u64; (limit >> 6) as usize + 1];
    let mut rows = vec![MISS; if want_rows { limit as usize } else { 0 }];
    for (word, row) in words {
        let slot = word.wrapping_sub(min);
        let (block, bit) = ((slot >> 6) as usize, 1u64 << (slot & 63));
        if unique && bits[block] & bit != 0 {
            return Err(Duplicates);
        }
        bits[block] |= bit;
        if want_rows {
            rows[slot as usize] = row;
        }
    }
    let dense = Dense { min, limit, bits };
    Ok((Table::Dense(dense), rows))
}

fn hash(
    words: impl Iterator<Item = (u64, u32)>,
    row_count: usize,
    unique: bool,
) -> Result<Table, Duplicates> {
    let capacity = (row_count * 2).next_power_of_two().max(2);
    let shift = 64 - capacity.ilog2();
    let mut entries = vec![(0, MISS); capacity];
    for (word, row) in words {
        let mut at = hash_word(word, shift) & (capacity - 1);
        while entries[at].1 != MISS && entries[at].0 != word {
            at = (at + 1) & (capacity - 1);
        }
        if entries[at].1 != MISS && unique {
            return Err(Duplicates);
        }
        entries[at] = (word, row);
    }
    Ok(Table::Hash(Hash { shift, entries }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int32Array, Int64Array, UInt64Array};
    use std::sync::Arc;

    fn column(array: ArrayRef) -> KeyColumn {
        KeyColumn::new(&array).unwrap()
    }

    #[test]
    fn dense_and_hash_find_the_same_rows() {
        for scale in [1i64, 1 << 40] {
            let build: Vec<i64> = [-5, 3, 0, 9].map(|key| key * scale).to_vec();
            let keys = column(Arc::new(Int64Array::from(build)));
            let lookup = Lookup::build(&keys, Matching::Inner, true).unwrap();
            assert_eq!(lookup.kind(), if scale == 1 { "dense" } else { "hash" });
            let asked = (-20..20).map(|key| key * scale).chain([i64::MIN, i64::MAX]);
            let found: Vec<(i64, u32)> = asked
                .filter_map(|key| Some((key, lookup.row(lookup.find(key as u64)?))))
                .collect();
            assert_eq!(
                found,
                [(-5 * scale, 0), (0, 2), (3 * scale, 1), (9 * scale, 3)]
            );
        }
    }

    #[test]
    fn null_keys_are_not_found() {
        let keys = vec![Some(1), None, Some(2), None];
        let keys = column(Arc::new(Int32Array::from(keys)));
        let lookup = Lookup::build(&keys, Matching::Inner, true).unwrap();
        assert_eq!(lookup.row_count(), 2);
        assert_eq!(lookup.find(0), None);
    }

    #[test]
    fn repeated_keys_matter_only_where_rows_are_attached() {
        for far in [0u64, 1 << 60] {
            let keys = column(Arc::new(UInt64Array::from(vec![7, 7, far])));
            assert!(matches!(
                Lookup::build(&keys, Matching::Inner, true),
                Err(Duplicates)
            ));
            let lookup = Lookup::build(&keys, Matching::Semi, false).unwrap();
            assert!(lookup.find(7).is_some() && lookup.find(far).is_some());
        }
    }

    #[test]
    fn an_empty_build_side_has_no_key() {
        let empty = column(Arc::new(Int32Array::from(Vec::<i32>::new())));
        let lookup = Lookup::build(&empty, Matching::Inner, true).unwrap();
        assert_eq!((lookup.find(0), lookup.find(1)), (None, None));
    }
}
