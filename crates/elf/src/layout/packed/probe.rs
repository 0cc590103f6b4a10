//! Comparing a key with the few rows of a group among which it most likely stands.
//!
//! The rows of a group are sorted, so a key's next code says about how far in it stands. A probe is the key packed
//! like the rows, and a window of rows around that place, in at most two neighbouring blocks. It is compared
//! without branches that depend on the rows. Rows at the ends of the window tell whether all rows equal to the
//! key are inside; if they do not, the whole group has to be compared.

use std::ops::Range;

use hotshelf_tier::simd::MASK_LANES;

use super::blocks::BlockSource;
use super::geometry::LeafShape;
use super::leaf::{LINE_WORDS, Run, TidPlace};
use super::{ElfHead, PackedElf};

/// Suffix words of a probe. Further ones are compared where these are equal.
const PROBE_WORDS: usize = 2;

/// Runs up to this length are read whole.
const WHOLE_ROWS: usize = 12;

/// Runs up to this length have their spread in a table.
const SPREAD_ROWS: usize = 128;

/// How far from its likely position a key may well stand among that many rows: two standard deviations of
/// the number of rows before it, at most.
static SPREADS: [u8; SPREAD_ROWS] = {
    let mut spreads = [0; SPREAD_ROWS];
    let mut rows = 0;
    while rows < SPREAD_ROWS {
        spreads[rows] = rows.isqrt() as u8;
        rows += 1;
    }
    spreads
};

/// A key and where it most likely stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    suffix: [u64; PROBE_WORDS],
    /// Word at which the block of the window's first row starts.
    block_at: usize,
    level: u32,
    /// The row of the first.
    row: u32,
    /// Position of that row in the block.
    position: u32,
    /// The window's rows in that block; at least one.
    here: u8,
    /// The window's rows in the next block.
    next: u8,
    /// Whether the group starts with the window, and ends with it.
    starts: bool,
    ends: bool,
}

impl Probe {
    fn rows(&self) -> (usize, usize) {
        (self.here.into(), self.next.into())
    }
}

/// The first words of a key's codes packed like the suffixes of their level's region; `None` when a code is wider
/// than its column's.
#[inline(always)]
fn pack(shape: &LeafShape, codes: impl Iterator<Item = u32>) -> Option<[u64; PROBE_WORDS]> {
    let (mut first, mut second, mut excess) = (0, 0, 0);
    let fields = shape.fields.iter().zip(codes);
    if shape.word_count() == 1 {
        for (field, code) in fields {
            excess |= u64::from(code) & !field.mask;
            first |= u64::from(code) << field.shift;
        }
    } else {
        for (field, code) in fields {
            excess |= u64::from(code) & !field.mask;
            let word = u64::from(code) << field.shift;
            first |= if field.word == 0 { word } else { 0 };
            second |= if field.word == 1 { word } else { 0 };
        }
    }
    (excess == 0).then_some([first, second])
}

impl ElfHead {
    /// The part of a run, as rows past its first, where keys with this code most likely stand. Reading only this part
    /// saves cache lines; being wrong costs reading the run as well.
    #[inline(always)]
    pub(crate) fn likely_rows(&self, run: &Run, code: Option<u32>) -> Range<usize> {
        let len = run.slots.len();
        let Some(code) = code.filter(|_| len > WHOLE_ROWS) else {
            return 0..len;
        };
        let center = self.geometry.shapes[run.level].likely_position(code, len);
        let spread = match SPREADS.get(len) {
            Some(&spread) => spread.into(),
            None => len.isqrt(),
        };
        let first = center.saturating_sub(spread).min(len - 1);
        first..(center + spread + 1).min(len)
    }

    #[inline(always)]
    fn probe_shape(&self, probe: &Probe) -> &LeafShape {
        &self.geometry.shapes[probe.level as usize]
    }

    /// Words at which a probe's rows in the first and in the next block start, for what lies at `offset` words in a
    /// block. Without rows in the next block its start is that of the first.
    #[inline(always)]
    fn starts_of(&self, probe: &Probe, offset: usize) -> (usize, usize) {
        let step = self.geometry.block_words * usize::from(probe.next > 0);
        let here = probe.block_at + offset;
        (here + probe.position as usize, here + step)
    }
}

impl<S: BlockSource> PackedElf<S> {
    /// The probe of a key that can only be in this run, which is not empty: of its codes from the run's level on.
    /// `None` without suffixes, or when the key is not there.
    #[inline(always)]
    pub(crate) fn probe(
        &self,
        run: &Run,
        codes: impl Iterator<Item = u32> + Clone,
    ) -> Option<Probe> {
        let shape = &self.geometry.shapes[run.level];
        if shape.word_count() == 0 {
            return None;
        }
        let suffix = pack(shape, codes.clone())?;
        let fenced;
        let (run, rows) = if S::IS_FENCED {
            fenced = self.within_fences(run, codes);
            (&fenced, 0..fenced.slots.len())
        } else {
            (run, self.likely_rows(run, codes.clone().next()))
        };
        let (block, position) = shape.locate(run.slots.start + rows.start);
        let len = rows.len().min(MASK_LANES);
        let here = len.min(shape.rows_per_block - position);
        let next = (len - here).min(shape.rows_per_block);
        Some(Probe {
            suffix,
            block_at: (self.geometry.first_blocks[run.level] + block) * self.geometry.block_words,
            level: run.level as u32,
            row: run.row + rows.start as u32,
            position: position as u32,
            here: here as u8,
            next: next as u8,
            starts: rows.start == 0,
            ends: rows.start + here + next == run.slots.len(),
        })
    }

    /// Starts loading what comparing a probe takes.
    #[inline(always)]
    pub(crate) fn prefetch_probe(&self, probe: &Probe) {
        let (blocks, shape) = (&self.leaves, self.probe_shape(probe));
        for word in 0..shape.word_count() {
            let (here, next) = self.starts_of(probe, shape.suffix_at(word));
            let (here_rows, next_rows) = probe.rows();
            let last = here_rows - 1;
            blocks.prefetch(here);
            blocks.prefetch(here + last.min(LINE_WORDS));
            blocks.prefetch(here + last);
            if last > 2 * LINE_WORDS {
                let middle = (here + 2 * LINE_WORDS..here + last).step_by(LINE_WORDS);
                middle.for_each(|at| blocks.prefetch(at));
            }
            let last = next_rows.saturating_sub(1);
            blocks.prefetch(next);
            blocks.prefetch(next + last);
            if last > LINE_WORDS {
                let middle = (next + LINE_WORDS..next + last).step_by(LINE_WORDS);
                middle.for_each(|at| blocks.prefetch(at));
            }
        }
    }

    /// Starts loading the TIDs of a probe's rows.
    #[inline(always)]
    pub(crate) fn prefetch_probe_tids(&self, probe: &Probe) {
        if self.geometry.clustered {
            return;
        }
        let blocks = &self.leaves;
        let shape = self.probe_shape(probe);
        let (position, (here_rows, next_rows)) = (probe.position as usize, probe.rows());
        let (here, next) = (probe.block_at, probe.block_at + self.geometry.block_words);
        blocks.prefetch(here + shape.tid_bit(position) / 64);
        blocks.prefetch(here + (shape.tid_bit(position + here_rows) - 1) / 64);
        if next_rows > 0 {
            blocks.prefetch(next + shape.tid_bit(0) / 64);
            blocks.prefetch(next + (shape.tid_bit(next_rows) - 1) / 64);
        }
    }

    /// The rows of a probe's window that equal the key, as a mask; `None` when that takes a look at all rows of the
    /// group, or at further words.
    #[inline(always)]
    pub(crate) fn compare(&self, probe: &Probe) -> Option<u64> {
        let (blocks, shape) = (&self.leaves, self.probe_shape(probe));
        let (here_rows, next_rows) = probe.rows();
        let masks = |word: usize| {
            let (here, next) = self.starts_of(probe, shape.suffix_at(word));
            let (here, next) = (
                blocks.words(here..here + here_rows),
                blocks.words(next..next + next_rows),
            );
            self.backend.eq_mask_of_two(here, next, probe.suffix[word])
        };
        let mut mask = masks(0);
        if shape.word_count() >= PROBE_WORDS {
            mask &= masks(1);
        }
        if shape.word_count() > PROBE_WORDS && mask != 0 {
            return None;
        }
        let (here, next) = self.starts_of(probe, shape.suffix_at(0));
        let last_here = here + here_rows - 1;
        let last_next = next + next_rows.saturating_sub(1);
        let last = if next_rows == 0 { last_here } else { last_next };
        let order = |word: u64| shape.order_of(word);
        let word = |at: usize| order(blocks.words(at..at + 1)[0]);
        let key = order(probe.suffix[0]);
        let is_all = (probe.starts | (word(here) < key)) & (probe.ends | (word(last) > key));
        is_all.then_some(mask)
    }

    /// Where the TID of a window's row is.
    #[inline(always)]
    pub(crate) fn tid_place(&self, probe: &Probe, idx: usize) -> TidPlace {
        if self.geometry.clustered {
            return TidPlace::Known(probe.row + idx as u32);
        }
        let (here_rows, _) = probe.rows();
        let is_next = usize::from(idx >= here_rows);
        let block_at = probe.block_at + self.geometry.block_words * is_next;
        let position = idx.wrapping_add(if is_next == 0 {
            probe.position as usize
        } else {
            here_rows.wrapping_neg()
        });
        self.probe_shape(probe).tid_place(block_at, position)
    }
}

#[cfg(test)]
mod tests {
    use hotshelf_tier::simd::Backend;
    use proptest::prelude::*;

    use crate::cases::naive;
    use crate::keys::{CodeColumn, CodeTable, QueryBox, Restriction};
    use crate::layout::packed::{PackedElf, PackedOptions};

    /// Columns of up to three suffix words: even codes, codes that crowd at one end, and few different ones.
    fn table() -> impl Strategy<Value = CodeTable> {
        let column = (0u32..3, prop_oneof![Just(1u32), Just(90), Just(1 << 24)]);
        let columns = proptest::collection::vec(column, 2..9);
        (columns, 1usize..600, any::<u64>()).prop_map(|(columns, row_count, seed)| {
            let mut random = fastrand::Rng::with_seed(seed);
            let columns = columns.into_iter().enumerate().map(|(idx, (kind, max))| {
                // The first column is small, so that groups are long.
                let max = if idx == 0 { max.min(9) } else { max };
                let codes = (0..row_count).map(|_| match kind {
                    0 => random.u32(..=max),
                    1 => max >> random.u32(..25),
                    _ => random.u32(..=1) * max,
                });
                CodeColumn::from_codes(codes, max)
            });
            CodeTable::new(columns.collect()).expect("columns are equally long")
        })
    }

    proptest! {
        #[test]
        fn keys_are_found_wherever_they_stand_in_their_groups(
            table in table(),
            clustered in any::<bool>(),
            group_rows_max in prop_oneof![Just(20usize), Just(64), Just(600)],
        ) {
            let options = PackedOptions { clustered, group_rows_max, ..Default::default() };
            let (elf, order) = PackedElf::build_with_order(&table, &options).unwrap();
            let mut tids: Vec<u32> = (0..table.row_count() as u32).collect();
            if clustered {
                order.iter().zip(0..).for_each(|(&row, tid)| tids[row as usize] = tid);
            }
            let table = table.with_tids(tids).unwrap();
            let mut keys = Vec::new();
            for row in (0..table.row_count()).step_by(5) {
                let key = table.row(row);
                for (at, step) in [(0, 0), (key.len() - 1, 1), (row % key.len(), u32::MAX), (1, 1 << 31)] {
                    let mut key = key.clone();
                    key[at] = key[at].wrapping_add(step);
                    keys.push(key);
                }
            }
            let expected: Vec<Vec<u32>> =
                keys.iter().map(|key| naive(&table, &QueryBox::exactly(key)).unwrap()).collect();
            for backend in Backend::available() {
                let elf = elf.clone().with_backend(backend);
                let mut found = vec![Vec::new(); keys.len()];
                elf.exact_batch(&keys.concat(), |idx, tid| found[idx].push(tid)).unwrap();
                prop_assert_eq!(&found, &expected);
                for (key, expected) in keys.iter().zip(&expected) {
                    let mut tids = Vec::new();
                    elf.exact(key, &mut tids).unwrap();
                    prop_assert_eq!(&tids, expected);
                    prop_assert_eq!(&elf.select(&QueryBox::exactly(key)).unwrap(), expected);
                }
            }
            for (idx, key) in keys.iter().enumerate().step_by(4) {
                let restrict = |(at, &code)| {
                    if at <= idx % key.len() { Restriction::exactly(code) } else { Restriction::Any }
                };
                let query = QueryBox::new(key.iter().enumerate().map(restrict).collect());
                prop_assert_eq!(elf.select(&query).unwrap(), naive(&table, &query).unwrap());
            }
        }
    }
}
