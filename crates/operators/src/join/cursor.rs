//! Probing a table with a batch of rows, and reading rows without a partner from it.

use arrow_array::{Array, BooleanArray, RecordBatch, UInt32Array};

use super::layout::heap_value;
use super::plan::{BuildRows, OUTPUT_BYTES, Plan, ProbeRows};
use super::rounds::Rounds;
use super::spec::{Side, Single};
use super::table::{Candidates, Tables};
use crate::keys::KeyShape;
use crate::{Result, Stop, TableShelf};

/// Rows of the build side that are looked at for pairs to test before others have their turn.
const LOOKS_MAX: u64 = 1 << 20;

/// Whether a batch of build rows may have more bytes in heaps than it should: only then are they added up.
pub fn may_be_long(tables: &Tables, plan: &Plan) -> bool {
    tables.layout.heap_bytes_max() * plan.output_rows > OUTPUT_BYTES
}

/// Who probes what.
#[derive(Clone, Copy)]
pub struct Probing<'a> {
    pub plan: &'a Plan,
    pub tables: &'a Tables,
    pub stop: &'a Stop,
    /// The side that probes.
    pub side: Side,
    /// Whether this is the last table that the rows probe, so that it is known which have partners.
    pub is_last: bool,
    /// Where the tables are.
    pub shelf: Option<&'a dyn TableShelf>,
}

/// What comes of some work.
pub enum Step {
    /// Rows.
    Batch(RecordBatch),
    /// Nothing yet.
    Pause,
    /// Nothing until other threads have done theirs.
    Later,
    /// Nothing more.
    End,
}

/// A batch of rows on its way through a table. Reused from batch to batch.
#[derive(Default)]
pub struct Cursor {
    pub rows: ProbeRows,
    candidates: Candidates,
    /// The next candidate.
    next: usize,
    /// Rows that have a partner.
    pub matched: Vec<bool>,
    has_singles: bool,
    rounds: Rounds,
    /// The next row that may be returned apart from pairs.
    next_single: usize,
    /// Rows of the tables that the last step looked at.
    looked: u64,
    picks: Vec<u32>,
    places: Vec<u64>,
    words: Vec<u64>,
}

impl Cursor {
    /// Begins to probe with `self.rows`.
    pub fn start(&mut self, probing: Probing) {
        let keys = &self.rows.keys;
        probing.tables.candidates(keys, &mut self.candidates);
        if let Some(shelf) = probing.shelf {
            shelf.read(probing.tables.bytes(), keys.len() as u64);
        }
        self.next = 0;
        self.next_single = 0;
        self.rounds.start();
        self.has_singles = probing.plan.marks(probing.side);
        self.matched.clear();
        if self.has_singles {
            self.matched.resize(keys.len(), false);
        }
    }

    /// The next batch of output.
    pub fn next(&mut self, probing: Probing) -> Result<Option<RecordBatch>> {
        loop {
            match self.step(probing)? {
                Step::Batch(batch) => return Ok(Some(batch)),
                Step::Pause | Step::Later => probing.stop.check()?,
                Step::End => return Ok(None),
            }
        }
    }

    /// As much work as a batch of pairs takes.
    pub fn step(&mut self, probing: Probing) -> Result<Step> {
        let plan = probing.plan;
        if self.next < self.candidates.rows.len() {
            self.find_pairs(probing);
            if let Some(shelf) = probing.shelf {
                shelf.read(probing.tables.bytes(), self.looked);
            }
            if self.picks.is_empty() {
                return Ok(Step::Pause);
            }
            if plan.gathers_pairs() {
                self.gather(probing.tables);
            }
            if plan.spec.condition.is_some() {
                self.test_pairs(probing)?;
            }
            self.mark_pairs(probing);
            if plan.spec.kind.has_pairs() && !self.picks.is_empty() {
                let picks = UInt32Array::from(std::mem::take(&mut self.picks));
                let build = BuildRows {
                    words: &self.words,
                    places: &self.places,
                };
                let probe = Some((&self.rows, &picks));
                let batch =
                    plan.batch(probing.side, probe, Some((probing.tables, &build)), None)?;
                return Ok(Step::Batch(batch));
            }
            return Ok(Step::Pause);
        }
        if !self.has_singles || !probing.is_last {
            return Ok(Step::End);
        }
        Ok(match self.singles(probing)? {
            Some(batch) => Step::Batch(batch),
            None => Step::End,
        })
    }

    /// Replaces the pairs by the next ones with equal keys.
    fn find_pairs(&mut self, probing: Probing) {
        let tables = probing.tables;
        if self.candidates.are_pairs {
            let is_narrow = self.rows.value_bytes.is_none() && !may_be_long(tables, probing.plan);
            return match is_narrow && self.candidates.are_single {
                true => self.take_pairs(probing.plan.output_rows),
                false => self.find_equal(probing, |_, _| true),
            };
        }
        let keys = std::mem::take(&mut self.rows.keys);
        match tables.layout.shape() {
            KeyShape::Words(1) => {
                let words = keys.all_words();
                self.find_equal(probing, |place, row| tables.row(place)[0] == words[row]);
            }
            KeyShape::Words(2) => {
                let (words, _) = keys.all_words().as_chunks::<2>();
                self.find_equal(probing, |place, row| tables.row(place)[..2] == words[row]);
            }
            KeyShape::Words(len) => {
                self.find_equal(probing, |place, row| {
                    tables.row(place)[..len] == *keys.words(row)
                });
            }
            KeyShape::Bytes => self.find_equal(probing, |place, row| {
                let (hash, reference) = (tables.row(place)[0], tables.row(place)[1]);
                let heap = || tables.heap(place, super::layout::heap_number(reference));
                hash == keys.hashes()[row] && heap_value(heap(), reference) == keys.bytes(row)
            }),
        }
        self.rows.keys = keys;
    }

    /// The next candidates, all of them pairs of values of fixed width.
    fn take_pairs(&mut self, most: usize) {
        let Candidates { rows, starts, .. } = &self.candidates;
        let taken = self.next..rows.len().min(self.next + most);
        self.next = taken.end;
        self.looked = taken.len() as u64;
        self.picks.clear();
        self.picks.extend_from_slice(&rows[taken.clone()]);
        self.places.clear();
        self.places.extend_from_slice(&starts[taken]);
    }

    #[inline(always)]
    fn find_equal(&mut self, probing: Probing, is_equal: impl Fn(u64, usize) -> bool) {
        self.picks.clear();
        self.places.clear();
        if probing.plan.tests_for_partners() {
            return self.find_tests(probing, is_equal);
        }
        let Probing { plan, tables, .. } = probing;
        let gathers = plan.gathers_pairs();
        let marks = plan.marks(probing.side.other());
        let has_heap = may_be_long(tables, plan);
        let Self {
            candidates: Candidates {
                rows, starts, ends, ..
            },
            matched,
            picks,
            places,
            looked,
            ..
        } = self;
        *looked = 0;
        let needs_no_more =
            |row: usize| !plan.spec.kind.has_pairs() && !marks && matched.get(row) == Some(&true);
        let sizes = self.rows.value_bytes.as_deref();
        let mut bytes = 0;
        while self.next < rows.len() {
            let row = rows[self.next];
            let mut place = starts[self.next];
            let end = match needs_no_more(row as usize) {
                true => place,
                false => ends[self.next],
            };
            while place < end {
                if is_equal(place, row as usize) {
                    if picks.len() == plan.output_rows || bytes > OUTPUT_BYTES {
                        *looked += place - starts[self.next];
                        starts[self.next] = place;
                        return;
                    }
                    // Who marked the first row of a key marks all.
                    if !gathers && marks && tables.is_matched(place) {
                        break;
                    }
                    picks.push(row);
                    places.push(place);
                    if gathers {
                        bytes += sizes.map_or(0, |sizes| sizes[row as usize] as usize);
                        bytes += if has_heap {
                            tables.heap_bytes(place)
                        } else {
                            0
                        };
                    } else if !marks {
                        break;
                    }
                }
                place += 1;
            }
            *looked += place - starts[self.next];
            self.next += 1;
        }
    }

    /// The pairs of this round: those that can show that a row has a partner which has none so far.
    #[inline(always)]
    fn find_tests(&mut self, probing: Probing, is_equal: impl Fn(u64, usize) -> bool) {
        let tables = probing.tables;
        let marks_build = probing.plan.marks(probing.side.other());
        let Self {
            candidates,
            next,
            matched,
            rounds,
            picks,
            places,
            looked,
            ..
        } = self;
        let mut bytes = 0;
        *looked = 0;
        let most = probing.plan.output_rows;
        let has_heap = may_be_long(tables, probing.plan);
        let sizes = self.rows.value_bytes.as_deref();
        while *next < candidates.rows.len() {
            let number = *next;
            let row = candidates.rows[number] as usize;
            let (start, end) = (candidates.starts[number], candidates.ends[number]);
            let is_known = match marks_build {
                true => tables.are_matched(start, end),
                false => matched[row],
            };
            let (tested, turns) = match (is_known, marks_build) {
                (true, _) => (end..end, 0),
                (false, false) => (start..end, rounds.turns()),
                (false, true) if rounds.takes_turn(start) => (start..end, u32::MAX),
                (false, true) => {
                    rounds.keep(candidates, number, start);
                    (end..end, 0)
                }
            };
            let mut found = 0;
            for place in tested {
                // Rows that have partners are passed over, which gives no pairs to test.
                *looked += 1;
                let is_full = picks.len() == most || bytes > OUTPUT_BYTES;
                if is_full || *looked > LOOKS_MAX {
                    candidates.starts[number] = place;
                    return;
                }
                if !is_equal(place, row) || (marks_build && tables.is_matched(place)) {
                    continue;
                }
                if found == turns {
                    rounds.keep(candidates, number, place);
                    break;
                }
                found += 1;
                picks.push(row as u32);
                places.push(place);
                bytes += sizes.map_or(0, |sizes| sizes[row] as usize);
                if has_heap {
                    bytes += tables.heap_bytes(place);
                }
            }
            *next += 1;
            *looked += (end - start) / 64;
            if *looked > LOOKS_MAX && *next < candidates.rows.len() {
                return;
            }
        }
        rounds.next(candidates);
        *next = 0;
    }

    /// Keeps the pairs that pass the condition.
    fn test_pairs(&mut self, probing: Probing) -> Result<()> {
        let picks = UInt32Array::from(std::mem::take(&mut self.picks));
        let build = BuildRows {
            words: &self.words,
            places: &self.places,
        };
        let pairs = probing
            .plan
            .pairs(probing.side, &self.rows, &picks, probing.tables, &build)?;
        let condition = probing.plan.spec.condition.as_ref().expect("a condition");
        let passed = condition.test.test(&pairs)?;
        let passed = match passed.nulls() {
            Some(nulls) => passed.values() & nulls.inner(),
            None => passed.into_parts().0,
        };
        if passed.count_set_bits() == picks.len() {
            self.picks = picks.values().to_vec();
            return Ok(());
        }
        let stride = probing.tables.layout.stride();
        let mut kept = 0;
        for idx in passed.set_indices() {
            self.picks.push(picks.value(idx));
            self.places[kept] = self.places[idx];
            self.words
                .copy_within(idx * stride..(idx + 1) * stride, kept * stride);
            kept += 1;
        }
        self.places.truncate(kept);
        self.words.truncate(kept * stride);
        Ok(())
    }

    /// Replaces the words by the rows of the pairs' places. Those that have nothing but a key are known by it.
    fn gather(&mut self, tables: &Tables) {
        if tables.layout.is_key() {
            let keys = self.rows.keys.all_words();
            self.words.clear();
            self.words
                .extend(self.picks.iter().map(|&row| keys[row as usize]));
        } else {
            tables.gather(&self.places, &mut self.words);
        }
    }

    fn mark_pairs(&mut self, probing: Probing) {
        if self.has_singles {
            self.picks
                .iter()
                .for_each(|&row| self.matched[row as usize] = true);
        }
        if probing.plan.marks(probing.side.other()) {
            self.places
                .iter()
                .for_each(|&place| probing.tables.mark(place));
        }
    }

    /// The next rows that are returned apart from pairs.
    fn singles(&mut self, probing: Probing) -> Result<Option<RecordBatch>> {
        let single = probing.plan.spec.kind.single(probing.side);
        let keys = &self.rows.keys;
        let is_elsewhere = |row: usize| {
            let tables = probing.tables;
            !tables.is_complete() && keys.has_key(row) && !tables.is_resident(keys.hashes()[row])
        };
        let returned = |&row: &u32| {
            let row = row as usize;
            let is_single = match single {
                Single::Matched => self.matched[row],
                Single::Unmatched => {
                    !self.matched[row]
                        && probing.plan.returns_lonely(probing.side, keys.has_key(row))
                }
                Single::Marked => true,
                Single::None => false,
            };
            is_single && !is_elsewhere(row)
        };
        let rows = self.next_single as u32..keys.len() as u32;
        let picks: UInt32Array = rows
            .filter(returned)
            .take(probing.plan.output_rows)
            .collect();
        let Some(last) = picks.values().last() else {
            self.next_single = keys.len();
            return Ok(None);
        };
        self.next_single = *last as usize + 1;
        let mark = (single == Single::Marked).then(|| {
            let matched = picks
                .values()
                .iter()
                .map(|&row| Some(self.matched[row as usize]));
            matched.collect::<BooleanArray>()
        });
        let batch = probing
            .plan
            .batch(probing.side, Some((&self.rows, &picks)), None, mark)?;
        Ok(Some(batch))
    }
}
