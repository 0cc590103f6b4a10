//! Which rows of a row group pass the filters and look-ups, 1024 rows at a time: each key or filter column is
//! decoded into a small buffer, tested, and overwritten by the next chunk.

use hotshelf_tier::simd::{Backend, Combine};
use vortex::error::VortexResult;
use vortex::mask::{AllOr, Mask};

use super::chunk::{CHUNK_ROWS, ChunkBuffer, ChunkColumn, Decodable};
use super::column_pair::{ColumnPair, Side};
use super::condition::{Condition, look_up_condition, range_condition};
use super::hints::{Hint, Hints};
use super::kept::Kept;
use super::lookup::MISS;
use super::matching::Matching;
use super::prepare::Ready;
use super::row_set::{RowList, WORDS, count, first_rows, is_set};
use super::row_test::{Listed, Origin, Test};
use super::slots::{KeySlots, Slots, slots};
use super::survivors::Survivors;

/// What a range is taken to keep before any row was tested: a third, as planners guess.
const RANGE_KEPT: f64 = 0.3;

/// What a worker needs to select rows, kept from row group to row group.
pub(super) struct Selector {
    backend: Backend,
    buffers: Vec<ChunkBuffer>,
    /// Which columns of the present chunk are decoded.
    decoded: Vec<bool>,
    /// Rows that passed so far, until they are few.
    remaining: [u64; WORDS],
    found: [u64; WORDS],
    /// Their numbers in the chunk, once they are.
    rows: RowList,
    /// Slots of wide keys.
    near: Vec<u32>,
    /// Slots by row of the chunk, for look-ups in hash tables.
    hashed: Vec<Vec<u32>>,
    /// What each range, and then each comparison, has kept so far.
    filters: Vec<Kept>,
    hints: Hints,
}

impl Selector {
    pub fn new(ready: &Ready) -> Self {
        Self {
            backend: Backend::detect(),
            buffers: Vec::new(),
            decoded: Vec::new(),
            remaining: [0; WORDS],
            found: [0; WORDS],
            rows: RowList::default(),
            near: Vec::new(),
            hashed: vec![Vec::new(); ready.ran.count()],
            filters: vec![Kept::default(); ready.ranges.len() + ready.comparisons.len()],
            hints: Hints::default(),
        }
    }

    /// The table's columns that the rows of the next row group are tested by.
    pub fn columns(&mut self, ready: &Ready) -> Vec<usize> {
        let mut columns = ready.tested();
        self.hints.learn(&ready.star);
        if ready.queue.work.rows_usually_survive() {
            columns.extend(self.hints.columns());
        }
        columns.sort_unstable();
        columns.dedup();
        columns
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
        let mut survivors = Survivors::new(row_count, ready.ran.count());
        self.buffers
            .resize_with(columns.len().max(1), ChunkBuffer::default);
        let hints = self.hints.known();
        let mut tests = self.tests(ready, &hints, tested);
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
            self.test_chunk(chunk, len, columns, &mut tests)?;
            if self.rows.is_empty() {
                continue;
            }
            let first = (chunk * CHUNK_ROWS) as u32;
            let rows = self.rows.as_slice().iter();
            survivors
                .rows
                .extend(rows.map(|row| first + u32::from(*row)));
            for slots in &slots {
                self.decode_listed(slots.column, chunk, columns)?;
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
    fn tests<'a>(
        &self,
        ready: &'a Ready,
        hints: &'a [Hint],
        tested: Decodable<'_>,
    ) -> Vec<Test<'a>> {
        let columns = tested.columns;
        let place = |table_column: usize| tested.place(table_column);
        let ranges = ready.ranges.iter().enumerate();
        let ranges = ranges.filter_map(|(idx, range)| {
            let column = place(range.column)?;
            Some(Test {
                column,
                matching: Matching::Inner,
                condition: range_condition(range, &columns[column]),
                origin: Origin::Filter(idx),
                kept: Kept::default(),
            })
        });
        let comparisons = ready.comparisons.iter().zip(ready.ranges.len()..);
        let comparisons = comparisons.filter_map(|(comparison, idx)| {
            let (left, right) = (place(comparison.left)?, place(comparison.right)?);
            Some(Test {
                column: left,
                matching: Matching::Inner,
                condition: Condition::Compare(ColumnPair::new(
                    comparison.op,
                    [&columns[left], &columns[right]],
                    right,
                )),
                origin: Origin::Filter(idx),
                kept: Kept::default(),
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
                kept: Kept::default(),
            })
        });
        let hints = hints.iter().enumerate().filter_map(|(idx, hint)| {
            let (column, condition) = hint.condition(tested)?;
            Some(Test {
                column,
                matching: Matching::Semi,
                condition,
                origin: Origin::Hint(idx),
                kept: Kept::default(),
            })
        });
        let mut tests: Vec<(f64, Test)> = ranges
            .chain(comparisons)
            .chain(joins)
            .chain(hints)
            .map(|test| (self.benefit(ready, &test, columns), test))
            .collect();
        tests.sort_by(|a, b| b.0.total_cmp(&a.0));
        tests.into_iter().map(|(_, test)| test).collect()
    }

    /// Rows dropped per unit of work: what should come first.
    fn benefit(&self, ready: &Ready, test: &Test, columns: &[ChunkColumn]) -> f64 {
        let kept = match test.origin {
            Origin::Filter(idx) => self.filters[idx].share_or(RANGE_KEPT),
            Origin::Join(idx) => ready.ran.share_kept(idx),
            Origin::Hint(idx) => self.hints.share_kept(idx, Kept::default()),
        };
        (1.0 - kept) / test.condition.work_on(&columns[test.column])
    }

    /// Tests the rows of a chunk that passed so far, and lists those that remain.
    fn test_chunk(
        &mut self,
        chunk: usize,
        len: usize,
        columns: &[ChunkColumn],
        tests: &mut [Test],
    ) -> VortexResult<()> {
        self.decoded.clear();
        self.decoded.resize(columns.len(), false);
        let mut live = count(&self.remaining);
        let mut listed = false;
        for test in tests {
            if live == 0 {
                break;
            }
            if let Origin::Hint(idx) = test.origin
                && !self.hints.pays(idx, test.kept, live, len)
            {
                continue;
            }
            test.kept.asked += live as u64;
            let column = &columns[test.column];
            if self.test_runs(test, chunk, column) {
                live = match listed {
                    true => self.keep_listed(test, chunk, column),
                    false => self.keep_found(test, chunk, column),
                };
            } else if !matches!(test.condition, Condition::Always) {
                let few = live * test.condition.rows_per_survivor() < len;
                if !listed && few {
                    self.rows.list(&self.remaining);
                    listed = true;
                }
                for idx in test.columns() {
                    match listed {
                        true => self.decode_listed(idx, chunk, columns)?,
                        false => self.decode(idx, chunk, columns)?,
                    }
                }
                live = match listed {
                    true => self.test_listed(test, chunk, columns),
                    false => self.test_all(test, chunk, len, columns),
                };
            }
            test.kept.kept += live as u64;
        }
        if !listed {
            self.rows.list(&self.remaining);
        }
        Ok(())
    }

    fn decode(&mut self, idx: usize, chunk: usize, columns: &[ChunkColumn]) -> VortexResult<()> {
        if !std::mem::replace(&mut self.decoded[idx], true) {
            columns[idx].decode(chunk, &mut self.buffers[idx])?;
        }
        Ok(())
    }

    /// Decodes the listed rows at least: no others are looked at any more.
    fn decode_listed(
        &mut self,
        idx: usize,
        chunk: usize,
        columns: &[ChunkColumn],
    ) -> VortexResult<()> {
        if !std::mem::replace(&mut self.decoded[idx], true) {
            let rows = self.rows.as_slice().iter().map(|row| usize::from(*row));
            columns[idx].decode_rows(chunk, rows, &mut self.buffers[idx])?;
        }
        Ok(())
    }

    /// Tests the rows of a chunk by the runs that they are stored in. Returns whether that could be done.
    fn test_runs(&mut self, test: &Test, chunk: usize, column: &ChunkColumn) -> bool {
        let runs = || match self.decoded[test.column] {
            true => None,
            false => column.runs(chunk),
        };
        let passing = match &test.condition {
            Condition::Range { lo, span } => {
                runs().map(|runs| runs.in_range(self.backend, *lo, *span))
            }
            Condition::Set { min, set } => runs().map(|runs| runs.in_set(self.backend, *min, set)),
            _ => None,
        };
        let Some(passing) = passing else { return false };
        self.found = std::array::from_fn(|word| passing[word] & self.remaining[word]);
        true
    }

    /// Tests all rows of a chunk, 64 at a time. Returns how many remain.
    fn test_all(
        &mut self,
        test: &Test,
        chunk: usize,
        len: usize,
        columns: &[ChunkColumn],
    ) -> usize {
        self.found = self.remaining;
        let (buffer, found) = (&self.buffers[test.column], &mut self.found);
        let (backend, narrow) = (self.backend, &buffer.narrow[..len]);
        match &test.condition {
            Condition::Never => *found = [0; WORDS],
            Condition::Range { lo, span } => {
                backend.in_range(narrow, *lo, *span, Combine::And, found);
            }
            Condition::WideRange { lo, span } => {
                backend.in_range(&buffer.wide()[..len], *lo, *span, Combine::And, found);
            }
            Condition::Set { min, set } => {
                backend.in_set(narrow, *min, set, Combine::And, found);
            }
            Condition::WideSet { min, set } => {
                let slot = |word: &u64| u32::try_from(word.wrapping_sub(*min)).unwrap_or(u32::MAX);
                self.near.clear();
                self.near.extend(buffer.wide()[..len].iter().map(slot));
                backend.in_set(&self.near, 0, set, Combine::And, found);
            }
            Condition::Compare(pair) => {
                let sides = [test.column, pair.other];
                let sides = sides.map(|idx| side(idx, columns, &self.buffers));
                pair.test_all(backend, sides, (chunk, len), found);
            }
            // Rows are listed before they are looked up in a hash table.
            Condition::Always | Condition::Find(_) | Condition::FindTogether(_) => {}
        }
        self.keep_found(test, chunk, &columns[test.column])
    }

    /// Takes over which of the listed rows passed. Returns how many remain.
    fn keep_listed(&mut self, test: &Test, chunk: usize, column: &ChunkColumn) -> usize {
        let found = &self.found;
        let mut listed = Listed::of(&mut self.rows, test, chunk, column);
        listed.keep(|row| is_set(found, row as u32));
        self.rows.len()
    }

    /// Takes over which rows passed. Returns how many remain.
    fn keep_found(&mut self, test: &Test, chunk: usize, column: &ChunkColumn) -> usize {
        column.valid.keep_rows(chunk, &mut self.found);
        match test.matching {
            Matching::Anti => {
                let remaining = self.remaining.iter_mut();
                remaining.zip(&self.found).for_each(|(a, b)| *a &= !b);
            }
            _ => self.remaining = self.found,
        }
        count(&self.remaining)
    }

    /// Tests the listed rows one by one. Returns how many remain.
    fn test_listed(&mut self, test: &Test, chunk: usize, columns: &[ChunkColumn]) -> usize {
        let column = &columns[test.column];
        let buffer = &self.buffers[test.column];
        let (narrow, wide) = (&buffer.narrow, buffer.wide());
        let narrow = |row: usize| narrow[row % CHUNK_ROWS];
        let wide = |row: usize| wide[row % CHUNK_ROWS];
        let mut listed = Listed::of(&mut self.rows, test, chunk, column);
        match &test.condition {
            Condition::Always => {}
            Condition::Never => listed.keep(|_| false),
            Condition::Range { lo, span } => {
                listed.keep(|row| narrow(row).wrapping_sub(*lo) <= *span);
            }
            Condition::WideRange { lo, span } => {
                listed.keep(|row| wide(row).wrapping_sub(*lo) <= *span);
            }
            Condition::Set { min, set } => {
                listed.keep(|row| is_set(set, narrow(row).wrapping_sub(*min)));
            }
            Condition::WideSet { min, set } => listed.keep(|row| {
                u32::try_from(wide(row).wrapping_sub(*min)).is_ok_and(|slot| is_set(set, slot))
            }),
            Condition::Compare(pair) => {
                let sides = [test.column, pair.other];
                let sides = sides.map(|idx| side(idx, columns, &self.buffers));
                listed.keep(|row| pair.passes(sides, chunk, row));
            }
            Condition::FindTogether(keys) => {
                listed.keep(|row| keys.has_key((columns, &self.buffers[..]), chunk, row));
            }
            Condition::Find(lookup) => match test.origin {
                Origin::Join(join) => {
                    let slots = &mut self.hashed[join];
                    slots.resize(CHUNK_ROWS, MISS);
                    listed.keep(|row| {
                        let slot = lookup.find(column.word(buffer, row));
                        slots[row] = slot.unwrap_or(MISS);
                        slot.is_some()
                    });
                }
                _ => listed.keep(|row| lookup.find(column.word(buffer, row)).is_some()),
            },
        }
        self.rows.len()
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
        let rows = self.rows.as_slice().iter().map(|row| usize::from(*row));
        let narrow = |row: usize| buffer.narrow[row % CHUNK_ROWS];
        match &of.slots {
            Slots::Offset(min) => target.extend(rows.map(|row| narrow(row).wrapping_sub(*min))),
            Slots::WideOffset(min) => {
                target.extend(
                    rows.map(|row| buffer.wide()[row % CHUNK_ROWS].wrapping_sub(*min) as u32),
                );
            }
            Slots::ByCode(slots) => {
                let slot = |row| slots.get(narrow(row) as usize).copied().unwrap_or(MISS);
                target.extend(rows.map(slot));
            }
            Slots::Hashed => target.extend(rows.map(|row| self.hashed[of.join][row])),
            Slots::Find(lookup) => {
                target.extend(rows.map(|row| match column.is_null(buffer, chunk, row) {
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
                Origin::Filter(idx) => self.filters[idx].add(test.kept),
                Origin::Join(join) => ready.ran.note(join, test.kept),
                Origin::Hint(idx) => {
                    self.hints.add(idx, test.kept);
                    ready.ran.note_hint(test.kept);
                }
            }
        }
    }
}

/// A column and its decoded chunk.
fn side<'a>(idx: usize, columns: &'a [ChunkColumn], buffers: &'a [ChunkBuffer]) -> Side<'a> {
    Side {
        column: &columns[idx],
        buffer: &buffers[idx],
    }
}

/// Rows that look-ups were asked for.
fn asked_of_look_ups(tests: &[Test]) -> u64 {
    let look_ups = tests
        .iter()
        .filter(|test| matches!(test.origin, Origin::Join(_)));
    look_ups.map(|test| test.kept.asked).sum()
}
