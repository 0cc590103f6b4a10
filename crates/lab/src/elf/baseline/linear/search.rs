//! Searching the array the way the papers do: depth first, lists scanned from their start.

use std::ops::ControlFlow;

use hotshelf_elf::keys::{QueryBox, Restriction};
use hotshelf_elf::{ElfError, Result};

use super::{LAST, LinearElf, Link, Offset};

impl<O: Offset> LinearElf<O> {
    /// Appends the TIDs of all rows equal to `key` to `tids`, ascending.
    ///
    /// # Errors
    /// When the key has another number of dimensions.
    pub fn exact(&self, key: &[u32], tids: &mut Vec<u32>) -> Result<()> {
        if key.len() != self.dimension_count {
            return Err(ElfError::DimensionMismatch {
                expected: self.dimension_count,
                found: key.len(),
            });
        }
        let mut link = self.root(key[0] as usize);
        let mut level = 1;
        while let Link::List(at) = link {
            link = self.find(at, key[level]);
            level += 1;
        }
        if let Link::Mono(at) = link {
            let suffix = &key[level..];
            let tids_at = at + suffix.len();
            if self.words[at..tids_at] == *suffix {
                let _ = self.visit_tids(tids_at, &mut |tid| {
                    tids.push(tid);
                    ControlFlow::Continue(())
                });
            }
        }
        Ok(())
    }

    /// The link of `code` in the list at a word.
    #[inline]
    fn find(&self, mut at: usize, code: u32) -> Link {
        loop {
            let (value, last, link) = self.entry(at);
            if value == code {
                return link;
            }
            if last || value > code {
                return Link::Absent;
            }
            at += 1 + O::WORDS;
        }
    }

    fn visit_tids(
        &self,
        mut at: usize,
        visit: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        loop {
            let word = self.words[at];
            visit(word & !LAST)?;
            if word & LAST != 0 {
                return ControlFlow::Continue(());
            }
            at += 1;
        }
    }

    /// Calls `visit` with the TID of every accepted row, in key order, until it breaks.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn visit(
        &self,
        query: &QueryBox,
        mut visit: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<()> {
        query.check(self.dimension_count)?;
        let (lo, hi) = query.dimensions()[0].hull();
        for code in lo as usize..self.root_count.min((hi as usize).saturating_add(1)) {
            if self.visit_root(query, code, &mut visit).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn visit_root(
        &self,
        query: &QueryBox,
        code: usize,
        visit: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (first, rest) = query.dimensions().split_at(1);
        if first[0].contains(code as u32) {
            self.visit_link(rest, self.root(code), visit)?;
        }
        ControlFlow::Continue(())
    }

    /// Visits the subtree of `link`; `rest` are the restrictions on the columns from its level on.
    fn visit_link(
        &self,
        rest: &[Restriction],
        link: Link,
        visit: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match link {
            Link::Absent => ControlFlow::Continue(()),
            Link::Mono(at) => {
                let suffix = &self.words[at..at + rest.len()];
                if rest
                    .iter()
                    .zip(suffix)
                    .all(|(one, &code)| one.contains(code))
                {
                    self.visit_tids(at + rest.len(), visit)?;
                }
                ControlFlow::Continue(())
            }
            Link::List(at) => self.visit_list(rest, at, visit),
        }
    }

    fn visit_list(
        &self,
        rest: &[Restriction],
        mut at: usize,
        visit: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (lo, hi) = rest[0].hull();
        let is_range = !matches!(rest[0], Restriction::Set(_));
        loop {
            let (value, last, link) = self.entry(at);
            if value > hi {
                break;
            }
            if value >= lo && (is_range || rest[0].contains(value)) {
                self.visit_link(&rest[1..], link, visit)?;
            }
            if last {
                break;
            }
            at += 1 + O::WORDS;
        }
        ControlFlow::Continue(())
    }

    /// The TIDs of accepted rows, ascending.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn select(&self, query: &QueryBox) -> Result<Vec<u32>> {
        self.limit(query, usize::MAX)
    }

    /// The TIDs of up to `row_count_max` accepted rows, the first in key order, ascending.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn limit(&self, query: &QueryBox, row_count_max: usize) -> Result<Vec<u32>> {
        let mut tids = Vec::new();
        if row_count_max > 0 {
            self.visit(query, |tid| {
                tids.push(tid);
                if tids.len() < row_count_max {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        }
        tids.sort_unstable();
        Ok(tids)
    }

    /// How many rows are accepted.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn count(&self, query: &QueryBox) -> Result<u64> {
        let mut count = 0;
        self.visit(query, |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }
}
