//! Which rows of a row group pass the filters and look-ups, 1024 rows at a time: each key or filter column is
//! decoded into a small buffer, tested, and overwritten by the next chunk.

use std::sync::OnceLock;

use hotshelf_tier::simd::{Backend, Combine};
use vortex::array::ArrayRef;
use vortex::buffer::BitBuffer;
use vortex::error::VortexResult;
use vortex::mask::{AllOr, Mask};

use super::chunk::{CHUNK_ROWS, ChunkBuffer, ChunkColumn, Decodable};
use super::condition::{Condition, fits, look_up_condition, range_condition};
use super::lookup::{Lookup, MISS};
use super::matching::Matching;
use super::prepare::Ready;
use super::row_set::{WORDS, count, first_rows, is_set, keep};

/// What a range is taken to keep before any row was tested: a third, as planners guess.
const RANGE_KEPT: f64 = 0.3;
/// Once fewer than one row in this many remains, rows are looked up one by one instead of 64 at a time.
const VECTOR_ROWS_PER_SURVIVOR: usize = 4;

/// The rows of a row group that passed, and their places in the look-ups.
pub(super) struct Survivors {
    pub row_count: usize,
    /// Rows that look-ups were asked for.
    pub asked: u64,
    /// Row numbers in the row group, ascending.
    pub rows: Vec<u32>,
    /// Places by look-up; empty where not needed.
    pub places: Vec<Vec<u32>>,
    mask: OnceLock<Mask>,
}

impl Survivors {
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The numbers of a part of the survivors, and their places by look-up.
    pub fn part(&self, (start, end): (usize, usize)) -> (Vec<u32>, Vec<Vec<u32>>) {
        let places = self.places.iter();
        let places = places.map(|each| each.get(start..end).unwrap_or_default().to_vec());
        (self.rows[start..end].to_vec(), places.collect())
    }

    /// Where a batch of at most `rows` ends that begins at the survivor `start`: at the end of a chunk if it can have a
    /// whole one, so that none is decoded twice.
    pub fn batch_end(&self, start: usize, rows: usize) -> usize {
        let Some(after) = self.rows.get(start + rows) else {
            return self.rows.len();
        };
        if rows < CHUNK_ROWS {
            return start + rows;
        }
        let chunk = *after as usize / CHUNK_ROWS;
        self.rows
            .partition_point(|row| (*row as usize / CHUNK_ROWS) < chunk)
    }

    /// The values that a part of the survivors has in a column.
    pub fn values(
        &self,
        column: &ArrayRef,
        (start, end): (usize, usize),
    ) -> VortexResult<ArrayRef> {
        let (column, mask) = match (self.rows.get(start), self.rows[..end].last()) {
            (Some(first), Some(last)) if end - start < self.rows.len() => {
                let rows = *first as usize..*last as usize + 1;
                (column.slice(rows.clone())?, self.mask().slice(rows))
            }
            _ => (column.clone(), self.mask().clone()),
        };
        match mask.all_true() {
            true => Ok(column),
            false => column.filter(mask),
        }
    }

    /// A bit per row of the row group.
    fn mask(&self) -> &Mask {
        self.mask.get_or_init(|| {
            if self.rows.len() == self.row_count {
                return Mask::new_true(self.row_count);
            }
            let rows = self.rows.iter().map(|row| *row as usize);
            Mask::from_buffer(BitBuffer::from_indices(self.row_count, rows))
        })
    }
}

/// What a worker needs to select rows, kept from row group to row group.
pub(super) struct Selector {
    backend: Backend,
    buffers: Vec<ChunkBuffer>,
    /// Which columns of the present chunk are decoded.
    decoded: Vec<bool>,
    /// Rows that passed so far.
    remaining: [u64; WORDS],
    found: [u64; WORDS],
    /// Their numbers in the chunk.
    rows: Vec<u16>,
    /// Slots of wide keys.
    near: Vec<u32>,
    /// Slots by row of the chunk, for look-ups in hash tables.
    hashed: Vec<Vec<u32>>,
    /// What each range has kept so far.
    ranges: Vec<Kept>,
}

/// Rows that a test was asked for, and those that it kept.
#[derive(Clone, Copy, Default)]
struct Kept {
    asked: u64,
    kept: u64,
}

/// A filter or look-up, made ready for how the column is stored in this row group.
struct Test<'a> {
    column: usize,
    matching: Matching,
    condition: Condition<'a>,
    origin: Origin,
    asked: u64,
    kept: u64,
}

/// What a test is made of, by number.
#[derive(Clone, Copy)]
enum Origin {
    /// A range of the query.
    Range(usize),
    /// A look-up.
    Join(usize),
}

/// Where the slots of a look-up's keys are found.
struct KeySlots<'a> {
    join: usize,
    /// Of the tested columns, the one with the keys.
    column: usize,
    slots: Slots<'a>,
}

/// How the slot of a key is found for a row that passed.
enum Slots<'a> {
    Offset(u32),
    WideOffset(u64),
    ByCode(Vec<u32>),
    /// Found already when the row was tested.
    Hashed,
    Find(&'a Lookup),
}

impl Selector {
    pub fn new(ready: &Ready) -> Self {
        Self {
            backend: Backend::detect(),
            buffers: Vec::new(),
            decoded: Vec::new(),
            remaining: [0; WORDS],
            found: [0; WORDS],
            rows: Vec::with_capacity(CHUNK_ROWS),
            near: Vec::new(),
            hashed: vec![Vec::new(); ready.ran.count()],
            ranges: vec![Kept::default(); ready.ranges.len()],
        }
    }

    /// A buffer for other columns of the row group, once rows are selected.
    pub fn buffer(&mut self) -> &mut ChunkBuffer {
        if self.buffers.is_empty() {
            self.buffers.push(ChunkBuffer::default());
        }
        &mut self.buffers[0]
    }

    /// The rows of `mask` that pass.
    pub fn select(
        &mut self,
        ready: &Ready,
        tested: Decodable<'_>,
        mask: &Mask,
    ) -> VortexResult<Survivors> {
        let (row_count, columns) = (mask.len(), tested.columns);
        let mut survivors = Survivors {
            row_count,
            asked: 0,
            rows: Vec::new(),
            places: vec![Vec::new(); ready.ran.count()],
            mask: OnceLock::new(),
        };
        self.buffers
            .resize_with(columns.len().max(1), ChunkBuffer::default);
        let mut tests = self.tests(ready, tested);
        let slots = slots(ready, tested);
        if tests.is_empty() && slots.is_empty() && mask.all_true() {
            survivors.rows = (0..row_count as u32).collect();
            return Ok(survivors);
        }
        let masked: Option<Vec<u64>> = match mask.bit_buffer() {
            AllOr::All => None,
            AllOr::None => return Ok(survivors),
            AllOr::Some(bits) => Some(bits.chunks().iter_padded().collect()),
        };
        for chunk in 0..row_count.div_ceil(CHUNK_ROWS) {
            let len = (row_count - chunk * CHUNK_ROWS).min(CHUNK_ROWS);
            first_rows(len, &mut self.remaining);
            if let Some(masked) = &masked {
                let words = &masked[chunk * WORDS..masked.len().min((chunk + 1) * WORDS)];
                self.remaining
                    .iter_mut()
                    .zip(words)
                    .for_each(|(a, b)| *a &= b);
            }
            let count = self.test_chunk(chunk, len, columns, &mut tests)?;
            if count == 0 {
                continue;
            }
            self.list_rows(count);
            let first = (chunk * CHUNK_ROWS) as u32;
            let rows = self.rows.iter().map(|row| first + u32::from(*row));
            survivors.rows.extend(rows);
            for slots in &slots {
                self.decode(slots.column, chunk, columns)?;
                let target = &mut survivors.places[slots.join];
                self.slots_of(slots, &columns[slots.column], chunk, target);
            }
        }
        for (lookup, slots) in ready.lookups().zip(&mut survivors.places) {
            if lookup.is_ranked() {
                slots
                    .iter_mut()
                    .for_each(|slot| *slot = lookup.place(*slot));
            }
        }
        survivors.asked = asked_of_look_ups(&tests);
        self.count(ready, &tests);
        Ok(survivors)
    }

    /// All tests in the order that is cheapest so far.
    fn tests<'a>(&self, ready: &'a Ready, tested: Decodable<'_>) -> Vec<Test<'a>> {
        let columns = tested.columns;
        let place = |table_column: usize| tested.place(table_column);
        let ranges = ready.ranges.iter().enumerate();
        let ranges = ranges.filter_map(|(idx, range)| {
            let column = place(range.column)?;
            Some(Test {
                column,
                matching: Matching::Inner,
                condition: range_condition(range, &columns[column]),
                origin: Origin::Range(idx),
                asked: 0,
                kept: 0,
            })
        });
        let joins = ready.star.joins.iter().enumerate();
        let joins = joins.filter_map(|(idx, join)| {
            let column = place(ready.star.scan.columns[join.probe_key])?;
            Some(Test {
                column,
                matching: join.matching,
                condition: match join.matching {
                    Matching::Outer => Condition::Always,
                    _ => look_up_condition(ready.lookup(idx), &columns[column]),
                },
                origin: Origin::Join(idx),
                asked: 0,
                kept: 0,
            })
        });
        let mut tests: Vec<(f64, Test)> = ranges
            .chain(joins)
            .map(|test| (self.benefit(ready, &test), test))
            .collect();
        tests.sort_by(|a, b| b.0.total_cmp(&a.0));
        tests.into_iter().map(|(_, test)| test).collect()
    }

    /// Rows dropped per unit of work: what should come first.
    fn benefit(&self, ready: &Ready, test: &Test) -> f64 {
        let kept = match test.origin {
            Origin::Range(idx) => match self.ranges[idx] {
                Kept { asked: 0, .. } => RANGE_KEPT,
                Kept { asked, kept } => kept as f64 / asked as f64,
            },
            Origin::Join(idx) => ready.ran.share_kept(idx),
        };
        (1.0 - kept) / test.condition.work()
    }

    /// Tests the rows of a chunk that passed so far. Returns how many remain.
    fn test_chunk(
        &mut self,
        chunk: usize,
        len: usize,
        columns: &[ChunkColumn],
        tests: &mut [Test],
    ) -> VortexResult<usize> {
        self.decoded.clear();
        self.decoded.resize(columns.len(), false);
        let mut live = count(&self.remaining);
        for test in tests {
            if live == 0 {
                break;
            }
            test.asked += live as u64;
            if !matches!(test.condition, Condition::Always) {
                self.decode(test.column, chunk, columns)?;
                self.apply(test, chunk, len, live, &columns[test.column]);
                live = count(&self.remaining);
            }
            test.kept += live as u64;
        }
        Ok(live)
    }

    fn decode(&mut self, idx: usize, chunk: usize, columns: &[ChunkColumn]) -> VortexResult<()> {
        if !std::mem::replace(&mut self.decoded[idx], true) {
            columns[idx].decode(chunk, &mut self.buffers[idx])?;
        }
        Ok(())
    }

    fn apply(&mut self, test: &Test, chunk: usize, len: usize, live: usize, column: &ChunkColumn) {
        self.found = self.remaining;
        let buffer = &self.buffers[test.column];
        let dense = live * VECTOR_ROWS_PER_SURVIVOR >= len;
        match &test.condition {
            Condition::Always => return,
            Condition::Never => self.found = [0; WORDS],
            Condition::Range { lo, span } => {
                let values = &buffer.narrow[..len];
                let backend = self.backend;
                backend.in_range(values, *lo, *span, Combine::And, &mut self.found);
            }
            Condition::WideRange { lo, span } => {
                keep(&mut self.found, |row| {
                    buffer.wide[row].wrapping_sub(*lo) <= *span
                });
            }
            Condition::Set { min, set } if dense => {
                let values = &buffer.narrow[..len];
                let backend = self.backend;
                backend.in_set(values, *min, set, Combine::And, &mut self.found);
            }
            Condition::Set { min, set } => keep(&mut self.found, |row| {
                is_set(set, buffer.narrow[row % CHUNK_ROWS].wrapping_sub(*min))
            }),
            Condition::WideSet { min, set } if dense => {
                self.near.clear();
                self.near.extend(
                    buffer.wide[..len]
                        .iter()
                        .map(|word| u32::try_from(word.wrapping_sub(*min)).unwrap_or(u32::MAX)),
                );
                let backend = self.backend;
                backend.in_set(&self.near, 0, set, Combine::And, &mut self.found);
            }
            Condition::WideSet { min, set } => keep(&mut self.found, |row| {
                u32::try_from(buffer.wide[row].wrapping_sub(*min))
                    .is_ok_and(|slot| is_set(set, slot))
            }),
            Condition::Find(lookup) => {
                let Origin::Join(join) = test.origin else {
                    return;
                };
                let slots = &mut self.hashed[join];
                slots.resize(CHUNK_ROWS, MISS);
                keep(&mut self.found, |row| {
                    let slot = lookup.find(column.word(buffer, row));
                    slots[row] = slot.unwrap_or(MISS);
                    slot.is_some()
                });
            }
        }
        if let Some(valid) = &column.valid {
            let valid = valid.iter().skip(chunk * WORDS);
            self.found.iter_mut().zip(valid).for_each(|(a, b)| *a &= b);
        }
        if test.matching == Matching::Anti {
            let found = self.found.iter();
            self.remaining
                .iter_mut()
                .zip(found)
                .for_each(|(a, b)| *a &= !b);
        } else {
            self.remaining = self.found;
        }
    }

    fn list_rows(&mut self, count: usize) {
        self.rows.resize(count, 0);
        let mut rows = self.rows.iter_mut();
        for (idx, word) in self.remaining.iter().enumerate() {
            let first = (idx * 64) as u16;
            let mut bits = *word;
            for row in rows.by_ref().take(bits.count_ones() as usize) {
                *row = first + bits.trailing_zeros() as u16;
                bits &= bits.wrapping_sub(1);
            }
        }
    }

    /// Appends the slots of the listed rows.
    fn slots_of(
        &self,
        of: &KeySlots<'_>,
        column: &ChunkColumn,
        chunk: usize,
        target: &mut Vec<u32>,
    ) {
        let buffer = &self.buffers[of.column];
        let rows = self.rows.iter().map(|row| usize::from(*row));
        let narrow = |row: usize| buffer.narrow[row % CHUNK_ROWS];
        match &of.slots {
            Slots::Offset(min) => target.extend(rows.map(|row| narrow(row).wrapping_sub(*min))),
            Slots::WideOffset(min) => {
                target.extend(rows.map(|row| buffer.wide[row].wrapping_sub(*min) as u32));
            }
            Slots::ByCode(slots) => {
                let slot = |row| slots.get(narrow(row) as usize).copied().unwrap_or(MISS);
                target.extend(rows.map(slot));
            }
            Slots::Hashed => target.extend(rows.map(|row| self.hashed[of.join][row])),
            Slots::Find(lookup) => {
                let is_null = |row: usize| {
                    let valid = column.valid.as_ref();
                    valid.is_some_and(|valid| !is_set(valid, (chunk * CHUNK_ROWS + row) as u32))
                };
                target.extend(rows.map(|row| match is_null(row) {
                    true => MISS,
                    false => lookup.find(column.word(buffer, row)).unwrap_or(MISS),
                }));
            }
        }
    }
}

impl Selector {
    /// Adds up what the tests kept.
    fn count(&mut self, ready: &Ready, tests: &[Test]) {
        for test in tests {
            match test.origin {
                Origin::Range(idx) => {
                    self.ranges[idx].asked += test.asked;
                    self.ranges[idx].kept += test.kept;
                }
                Origin::Join(join) => {
                    ready.ran.note(join, test.asked, test.kept);
                }
            }
        }
    }
}

/// Rows that look-ups were asked for.
fn asked_of_look_ups(tests: &[Test]) -> u64 {
    let look_ups = tests
        .iter()
        .filter(|test| matches!(test.origin, Origin::Join(_)));
    look_ups.map(|test| test.asked).sum()
}

/// Which column each look-up's slots are found in and how, for those whose build rows are needed.
fn slots<'a>(ready: &'a Ready, tested: Decodable<'_>) -> Vec<KeySlots<'a>> {
    let joins = ready.star.joins.iter().enumerate();
    let attached = joins.filter(|(idx, _)| ready.star.attaches(*idx));
    attached
        .filter_map(|(idx, join)| {
            let table_column = ready.star.scan.columns[join.probe_key];
            let place = tested.place(table_column)?;
            let (lookup, column) = (ready.lookup(idx), &tested.columns[place]);
            let slots = match (&column.dictionary, column.valid.is_some()) {
                (Some(values), false) => Slots::ByCode(
                    values
                        .iter()
                        .map(|word| lookup.find(*word).unwrap_or(MISS))
                        .collect(),
                ),
                _ if join.matching == Matching::Outer => Slots::Find(lookup),
                _ => match (lookup.dense(), column.is_wide()) {
                    (Some((min, _)), true) => Slots::WideOffset(min),
                    (Some((min, bits)), false) if fits(min, bits, column) => {
                        Slots::Offset(min as u32)
                    }
                    _ => Slots::Hashed,
                },
            };
            Some(KeySlots {
                join: idx,
                column: place,
                slots,
            })
        })
        .collect()
}
