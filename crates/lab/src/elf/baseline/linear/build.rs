//! Building: sort, count the words of every subtree of the first level, then write them all in place.

use std::marker::PhantomData;
use std::ops::Range;

use hotshelf_tier::region::prefer_huge_pages;

use hotshelf_elf::keys::CodeTable;
use hotshelf_elf::{ElfError, Result, SortedRows};

use super::super::for_each_parallel;
use super::{LAST, LinearElf, Link, Offset};

/// Largest code and TID: the top bit marks ends.
const CODE_MAX: u32 = LAST - 1;

/// Largest code of the first dimension: its level has a link for every code, present or not.
fn root_code_max(row_count: usize) -> u32 {
    (row_count as u32)
        .saturating_mul(16)
        .clamp(1 << 16, CODE_MAX)
}

impl<O: Offset> LinearElf<O> {
    /// Builds the Elf of a table. The array is the same for any number of threads.
    ///
    /// # Errors
    /// When a code or TID needs more than 31 bits, the codes of the first dimension are so sparse that
    /// the first level would be mostly absent links, or the array outgrows its offsets.
    pub fn build(table: &CodeTable, thread_count: usize) -> Result<Self> {
        let code_max = table.columns().iter().map(|column| column.max());
        for (dimension, max) in code_max.chain([table.tid_max()]).enumerate() {
            if max > CODE_MAX {
                return Err(ElfError::CodeTooLarge {
                    dimension,
                    code: max,
                    max: CODE_MAX,
                });
            }
        }
        let (first, max) = (table.columns()[0].max(), root_code_max(table.row_count()));
        if first > max {
            return Err(ElfError::CodeTooLarge {
                dimension: 0,
                code: first,
                max,
            });
        }
        let rows = SortedRows::from_table(table, thread_count);
        Self::from_sorted(&rows, thread_count)
    }

    pub(crate) fn from_sorted(rows: &SortedRows, thread_count: usize) -> Result<Self> {
        let dimension_count = rows.dimension_count();
        let row_count = rows.row_count();
        let root_count = match row_count {
            0 => 0,
            _ => rows.code(row_count - 1, 0) as usize + 1,
        };
        let mut subtrees = first_level(rows);
        let work: Vec<_> = subtrees.iter_mut().collect();
        for_each_parallel(thread_count, work, |subtree| {
            subtree.word_count = subtree_words::<O>(rows, subtree.rows.clone(), 1);
        });
        let root_words = root_count as u64 * O::WORDS as u64;
        let needed = root_words + subtrees.iter().map(|one| one.word_count).sum::<u64>();
        if needed > O::WORD_COUNT_MAX {
            return Err(ElfError::OffsetsTooNarrow {
                needed,
                max: O::WORD_COUNT_MAX,
                bits: O::WORDS as u32 * 32,
            });
        }
        let mut words = vec![0u32; needed as usize];
        prefer_huge_pages(&mut words);
        let (root, mut rest) = words.split_at_mut(root_words as usize);
        root.chunks_mut(O::WORDS)
            .for_each(|link| O::write(Link::Absent, link));
        let (mut work, mut at) = (Vec::with_capacity(subtrees.len()), root_words as usize);
        for subtree in subtrees {
            let link = link_to(rows, subtree.rows.clone(), at);
            O::write(link, &mut root[subtree.code as usize * O::WORDS..]);
            let (own, others) = rest.split_at_mut(subtree.word_count as usize);
            work.push((subtree.rows, Writer::<O>::new(rows, at, own)));
            rest = others;
            at += subtree.word_count as usize;
        }
        for_each_parallel(thread_count, work, |(rows, mut writer)| {
            writer.write_subtree(rows, 1)
        });
        Ok(Self {
            dimension_count,
            row_count,
            root_count,
            words,
            width: PhantomData,
        })
    }
}

/// The rows below one code of the first dimension.
struct Subtree {
    code: u32,
    rows: Range<usize>,
    word_count: u64,
}

fn first_level(rows: &SortedRows) -> Vec<Subtree> {
    let mut subtrees = Vec::new();
    let mut start = 0;
    while start < rows.row_count() {
        let end = rows.run_end(start..rows.row_count(), 0);
        subtrees.push(Subtree {
            code: rows.code(start, 0),
            rows: start..end,
            word_count: 0,
        });
        start = end;
    }
    subtrees
}

/// Whether rows that agree up to some level agree on all levels.
fn all_equal(rows: &SortedRows, range: &Range<usize>) -> bool {
    rows.is_equal(range.start, range.end - 1)
}

fn link_to(rows: &SortedRows, range: Range<usize>, at: usize) -> Link {
    if all_equal(rows, &range) {
        Link::Mono(at)
    } else {
        Link::List(at)
    }
}

/// Words of the subtree of rows that agree on the first `level` columns.
fn subtree_words<O: Offset>(rows: &SortedRows, range: Range<usize>, level: usize) -> u64 {
    if all_equal(rows, &range) {
        return (rows.dimension_count() - level + range.len()) as u64;
    }
    let (mut start, mut words) = (range.start, 0);
    while start < range.end {
        let end = rows.run_end(start..range.end, level);
        words += (1 + O::WORDS) as u64 + subtree_words::<O>(rows, start..end, level + 1);
        start = end;
    }
    words
}

/// Writes one subtree into its part of the array.
struct Writer<'a, O> {
    rows: &'a SortedRows,
    /// Where `out` starts in the whole array.
    base: usize,
    out: &'a mut [u32],
    /// Next free word of `out`.
    at: usize,
    /// Run ends of the list being written, per level; kept to save allocations.
    run_ends: Vec<Vec<usize>>,
    width: PhantomData<O>,
}

impl<'a, O: Offset> Writer<'a, O> {
    fn new(rows: &'a SortedRows, base: usize, out: &'a mut [u32]) -> Self {
        let run_ends = vec![Vec::new(); rows.dimension_count()];
        Self {
            rows,
            base,
            out,
            at: 0,
            run_ends,
            width: PhantomData,
        }
    }

    fn write_subtree(&mut self, range: Range<usize>, level: usize) {
        if all_equal(self.rows, &range) {
            self.write_mono(range, level);
        } else {
            self.write_list(range, level);
        }
    }

    fn write_mono(&mut self, range: Range<usize>, level: usize) {
        for column in level..self.rows.dimension_count() {
            self.push(self.rows.code(range.start, column));
        }
        for row in range.clone() {
            let mark = if row + 1 == range.end { LAST } else { 0 };
            self.push(self.rows.tid(row) | mark);
        }
    }

    fn write_list(&mut self, range: Range<usize>, level: usize) {
        let mut run_ends = std::mem::take(&mut self.run_ends[level]);
        run_ends.clear();
        let mut start = range.start;
        while start < range.end {
            start = self.rows.run_end(start..range.end, level);
            run_ends.push(start);
        }
        let mut entry = self.at;
        self.at += run_ends.len() * (1 + O::WORDS);
        let mut start = range.start;
        for &end in &run_ends {
            let mark = if end == range.end { LAST } else { 0 };
            self.out[entry] = self.rows.code(start, level) | mark;
            let link = link_to(self.rows, start..end, self.base + self.at);
            O::write(link, &mut self.out[entry + 1..]);
            entry += 1 + O::WORDS;
            self.write_subtree(start..end, level + 1);
            start = end;
        }
        self.run_ends[level] = run_ends;
    }

    fn push(&mut self, word: u32) {
        self.out[self.at] = word;
        self.at += 1;
    }
}
