//! What becomes of accepted rows: counts, row ranges, or TIDs.

use std::ops::{ControlFlow, Range};

use super::leaf::Piece;

/// Takes accepted rows in Elf order and says when it has enough.
pub(crate) trait Output {
    /// Whether whole groups must be shown row by row, for their TIDs.
    const WANTS_TIDS: bool;

    /// Consecutive accepted rows. Not called when TIDs are wanted.
    fn rows(&mut self, rows: Range<u32>) -> ControlFlow<()>;

    /// So many rows are about to be shown, all accepted.
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

    fn rows(&mut self, rows: Range<u32>) -> ControlFlow<()> {
        debug_assert!(
            rows.is_empty(),
            "rows are shown piece by piece when TIDs are wanted"
        );
        ControlFlow::Continue(())
    }

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
