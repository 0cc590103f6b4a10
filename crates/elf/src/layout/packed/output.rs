//! What accepted rows are collected as: counts, row ranges, or TIDs.

use std::ops::{ControlFlow, Range};

use hotshelf_tier::simd::MASK_LANES;

use super::leaf::Piece;

/// Takes accepted rows in Elf order and says when it has enough.
pub(crate) trait Output {
    /// Whether whole groups must be shown row by row, for their TIDs.
    const WANTS_TIDS: bool;

    /// Consecutive accepted rows. Where TIDs are wanted, rows are shown piece by piece instead.
    fn rows(&mut self, rows: Range<u32>) -> ControlFlow<()> {
        debug_assert!(rows.is_empty(), "no rows are expected here");
        ControlFlow::Continue(())
    }

    /// This many rows follow, all accepted.
    fn expect(&mut self, _row_count: usize) {}

    /// The accepted rows of a piece.
    fn piece(&mut self, piece: &Piece<'_>, mask: u64) -> ControlFlow<()>;
}

/// Counts rows, up to a limit.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) count: u64,
    pub(crate) enough: u64,
}

impl Count {
    /// Counts without a limit.
    pub(crate) fn all() -> Self {
        Self {
            count: 0,
            enough: u64::MAX,
        }
    }

    fn add(&mut self, count: u64) -> ControlFlow<()> {
        self.count += count;
        if self.count < self.enough {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

impl Output for Count {
    const WANTS_TIDS: bool = false;

    fn rows(&mut self, rows: Range<u32>) -> ControlFlow<()> {
        self.add(rows.len() as u64)
    }

    #[inline]
    fn piece(&mut self, _: &Piece<'_>, mask: u64) -> ControlFlow<()> {
        self.add(mask.count_ones().into())
    }
}

/// TIDs that wait before their bits are set: many at a time, the processor overlaps the accesses.
const BITS_WAITING: usize = 1024;

/// Collects TIDs as bits, for answers with many of them: they need no sorting.
#[derive(Debug)]
pub(crate) struct Bits {
    /// One bit for every TID below 64 times its length.
    words: Vec<u64>,
    /// Larger TIDs.
    beyond: Vec<u32>,
    /// TIDs that are in neither yet.
    pub(crate) waiting: Vec<u32>,
}

impl Bits {
    /// No TIDs, with bits for those below `tid_end`.
    pub(crate) fn new(tid_end: usize) -> Self {
        Self {
            words: vec![0; tid_end.div_ceil(64)],
            beyond: Vec::new(),
            waiting: Vec::with_capacity(BITS_WAITING + MASK_LANES),
        }
    }

    /// The bits, and the TIDs that they have no room for.
    pub(crate) fn finish(mut self) -> (Vec<u64>, Vec<u32>) {
        self.set_waiting();
        (self.words, self.beyond)
    }

    fn set_waiting(&mut self) {
        for tid in self.waiting.drain(..) {
            match self.words.get_mut(tid as usize / 64) {
                Some(word) => *word |= 1 << (tid % 64),
                None => self.beyond.push(tid),
            }
        }
    }
}

impl Output for Bits {
    const WANTS_TIDS: bool = true;

    #[inline]
    fn piece(&mut self, piece: &Piece<'_>, mut mask: u64) -> ControlFlow<()> {
        if mask == piece.all() {
            piece.extend_tids(&mut self.waiting);
        } else {
            while mask != 0 {
                self.waiting.push(piece.tid(mask.trailing_zeros() as usize));
                mask &= mask - 1;
            }
        }
        if self.waiting.len() >= BITS_WAITING {
            self.set_waiting();
        }
        ControlFlow::Continue(())
    }
}

/// Collects row ranges, joined where they touch.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) ranges: Vec<Range<u32>>,
}

impl Ranges {
    #[inline]
    fn add(&mut self, rows: Range<u32>) {
        match self.ranges.last_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => self.ranges.push(rows),
        }
    }
}

impl Output for Ranges {
    const WANTS_TIDS: bool = false;

    fn rows(&mut self, rows: Range<u32>) -> ControlFlow<()> {
        self.add(rows);
        ControlFlow::Continue(())
    }

    #[inline]
    fn piece(&mut self, piece: &Piece<'_>, mut mask: u64) -> ControlFlow<()> {
        while mask != 0 {
            let first = mask.trailing_zeros();
            let len = (!(mask >> first)).trailing_zeros();
            let row = piece.row + first;
            self.add(row..row + len);
            mask &= if first + len == 64 {
                0
            } else {
                u64::MAX << (first + len)
            };
        }
        ControlFlow::Continue(())
    }
}

/// Collects TIDs, up to a limit.
#[derive(Debug)]
pub(crate) struct Tids {
    pub(crate) tids: Vec<u32>,
    pub(crate) enough: usize,
}

impl Tids {
    /// Collects without a limit.
    pub(crate) fn all() -> Self {
        Self {
            tids: Vec::new(),
            enough: usize::MAX,
        }
    }
}

impl Output for Tids {
    const WANTS_TIDS: bool = true;

    fn expect(&mut self, row_count: usize) {
        self.tids
            .reserve(row_count.min(self.enough - self.tids.len()));
    }

    #[inline]
    fn piece(&mut self, piece: &Piece<'_>, mut mask: u64) -> ControlFlow<()> {
        if mask == piece.all() && self.tids.len() + piece.len <= self.enough {
            piece.extend_tids(&mut self.tids);
        } else {
            while mask != 0 && self.tids.len() < self.enough {
                self.tids.push(piece.tid(mask.trailing_zeros() as usize));
                mask &= mask - 1;
            }
        }
        if self.tids.len() < self.enough {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}
