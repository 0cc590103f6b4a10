//! `linear` on a shelf: the papers' searches, with the lists coming from wherever a variant has them.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use hotshelf_elf::keys::{QueryBox, Restriction};

use super::super::baseline::linear::{LAST, LinearElf, Link, Offset, Wide};
use super::list_cache::ListCache;
use super::policy::Policy;
use super::shelf::{Accesses, Lane};
use super::statics::{ENTRY_WORDS, Static, Weights};

/// Words of a cache line, a shift.
const LINE_WORDS_SHIFT: u32 = 4;

/// What a scan looks at.
#[derive(Debug, Clone, Copy)]
pub enum Item {
    /// The link of one code of the first level.
    Root,
    /// A DimensionList of this level, the first being 0.
    List(usize),
    /// A MonoList with this many codes before its TIDs.
    Mono(usize),
}

/// Where lists come from.
pub trait Lists: Send {
    /// Shows `W` words at a time from `at` on, until `look` breaks.
    fn scan<const W: usize>(
        &mut self,
        at: usize,
        item: Item,
        look: impl FnMut(&[u32]) -> ControlFlow<()>,
    );

    /// What was read from the shelf so far.
    fn accesses(&self) -> Accesses;

    /// Whether to wait for the shelf.
    fn set_waiting(&mut self, is_waiting: bool);

    /// Bytes of DRAM that hold parts of the Elf, or say where they are.
    fn dram_bytes(&self) -> u64;
}

#[inline(always)]
fn scan_dram<const W: usize>(words: &[u32], mut look: impl FnMut(&[u32]) -> ControlFlow<()>) {
    for group in words.chunks_exact(W) {
        if look(group).is_break() {
            return;
        }
    }
}

#[inline(always)]
fn scan_shelf<const W: usize>(
    words: &[u32],
    lane: &mut impl Lane,
    mut at: usize,
    mut look: impl FnMut(&[u32]) -> ControlFlow<()>,
) {
    while let Some(group) = words.get(at..at + W) {
        lane.load(at >> LINE_WORDS_SHIFT);
        if W > 1 {
            lane.load((at + W - 1) >> LINE_WORDS_SHIFT);
        }
        if look(group).is_break() {
            return;
        }
        at += W;
    }
}

/// Everything on the shelf: `pure`, and `volatile` or `hybrid` if the shelf is DRAM.
#[derive(Debug)]
pub struct Pure<W, L> {
    words: W,
    lane: L,
    /// What the copy of `hybrid` and the array of `volatile` take.
    dram_bytes: u64,
}

impl<W: AsRef<[u32]>, L: Lane> Pure<W, L> {
    /// An array that is reached by a lane, and the DRAM that it takes.
    pub fn new(words: W, lane: L, dram_bytes: u64) -> Self {
        Self {
            words,
            lane,
            dram_bytes,
        }
    }
}

impl<A: AsRef<[u32]> + Send, L: Lane> Lists for Pure<A, L> {
    #[inline(always)]
    fn scan<const W: usize>(
        &mut self,
        at: usize,
        _item: Item,
        look: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) {
        scan_shelf::<W>(self.words.as_ref(), &mut self.lane, at, look);
    }

    fn accesses(&self) -> Accesses {
        self.lane.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.lane.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.dram_bytes
    }
}

/// DimensionLists from a whole copy, MonoLists from the shelf: the papers' theoretical limit.
#[derive(Debug)]
pub struct Dual<'a, L>(pub Pure<&'a [u32], L>);

impl<L: Lane> Lists for Dual<'_, L> {
    #[inline(always)]
    fn scan<const W: usize>(
        &mut self,
        at: usize,
        item: Item,
        look: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) {
        match item {
            Item::Mono(_) => self.0.scan::<W>(at, item, look),
            _ => scan_dram::<W>(&self.0.words[at..], look),
        }
    }

    fn accesses(&self) -> Accesses {
        self.0.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.0.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.0.words.len() as u64 * 4
    }
}

/// Some lists in DRAM for good, the others on the shelf.
#[derive(Debug)]
pub struct StaticLists<S> {
    cache: Arc<Static>,
    rest: S,
}

impl<S: Lists> StaticLists<S> {
    /// A static cache before another way to lists.
    pub fn new(cache: Arc<Static>, rest: S) -> Self {
        Self { cache, rest }
    }
}

impl<S: Lists> Lists for StaticLists<S> {
    #[inline(always)]
    fn scan<const W: usize>(
        &mut self,
        at: usize,
        item: Item,
        look: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) {
        let copy = match item {
            Item::Root => Some(&self.cache.root()[at..]),
            Item::List(level) => self.cache.get(at, level),
            Item::Mono(_) => None,
        };
        match copy {
            Some(words) => scan_dram::<W>(words, look),
            None => self.rest.scan::<W>(at, item, look),
        }
    }

    fn accesses(&self) -> Accesses {
        self.rest.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.rest.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.cache.size_bytes() + self.rest.dram_bytes()
    }
}

/// Lists on the shelf, and copies of those that a policy keeps.
#[derive(Debug)]
pub struct Dynamic<'a, L, P> {
    shelf: Pure<&'a [u32], L>,
    weights: &'a Weights,
    cache: ListCache<P>,
    /// Whether MonoLists may be kept as well.
    keeps_monos: bool,
}

impl<'a, L: Lane, P: Policy> Dynamic<'a, L, P> {
    /// A dynamic cache before a shelf.
    pub fn new(
        shelf: Pure<&'a [u32], L>,
        weights: &'a Weights,
        cache: ListCache<P>,
        keeps_monos: bool,
    ) -> Self {
        Self {
            shelf,
            weights,
            cache,
            keeps_monos,
        }
    }

    /// Takes a list that was missed in, if the policy wants it: all of it is read then.
    fn offer(&mut self, at: usize, item: Item) {
        let words = self.shelf.words;
        let (mut end, weight) = match item {
            Item::Root => return,
            Item::List(_) => (at, self.weights.of(at)),
            Item::Mono(code_count) => (at + code_count, 1),
        };
        let step = if matches!(item, Item::List(_)) {
            ENTRY_WORDS
        } else {
            1
        };
        while let Some(word) = words.get(end) {
            end += step;
            if word & LAST != 0 {
                break;
            }
        }
        for line in at >> LINE_WORDS_SHIFT..=(end - 1) >> LINE_WORDS_SHIFT {
            self.shelf.lane.load(line);
        }
        self.cache.offer(at as u64, weight, &words[at..end]);
    }
}

impl<L: Lane, P: Policy> Lists for Dynamic<'_, L, P> {
    #[inline(always)]
    fn scan<const W: usize>(
        &mut self,
        at: usize,
        item: Item,
        mut look: impl FnMut(&[u32]) -> ControlFlow<()>,
    ) {
        let may_hold = match item {
            Item::Root => false,
            Item::List(_) => true,
            Item::Mono(_) => self.keeps_monos,
        };
        if !may_hold {
            return self.shelf.scan::<W>(at, item, look);
        }
        if let Some(words) = self.cache.get(at as u64) {
            return scan_dram::<W>(words, look);
        }
        self.shelf.scan::<W>(at, item, &mut look);
        self.offer(at, item);
    }

    fn accesses(&self) -> Accesses {
        self.shelf.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.shelf.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.cache.size_bytes()
    }
}

/// Searches over lists, depth first and from their starts, as the papers have them.
#[derive(Debug)]
pub struct LinearSearch<S> {
    /// Where the lists are.
    pub lists: S,
    dimension_count: usize,
    root_count: usize,
    /// Links to be followed, those of one list after those of its parent.
    links: Vec<Link>,
}

impl<S: Lists> LinearSearch<S> {
    /// Over the lists of an Elf.
    pub fn new(elf: &LinearElf<Wide>, lists: S) -> Self {
        Self {
            lists,
            dimension_count: elf.dimension_count(),
            root_count: elf.root_count(),
            links: Vec::new(),
        }
    }

    /// Number of dimensions.
    pub fn dimension_count(&self) -> usize {
        self.dimension_count
    }

    fn root(&mut self, code: usize) -> Link {
        let mut link = Link::Absent;
        if code < self.root_count {
            self.lists
                .scan::<2>(code * Wide::WORDS, Item::Root, |words| {
                    link = Wide::read(words);
                    ControlFlow::Break(())
                });
        }
        link
    }

    /// Appends the TIDs of all rows equal to a key.
    pub fn exact(&mut self, key: &[u32], tids: &mut Vec<u32>) {
        let (mut link, mut level) = (self.root(key[0] as usize), 1);
        while let Link::List(at) = link {
            link = Link::Absent;
            let code = key[level];
            self.lists
                .scan::<ENTRY_WORDS>(at, Item::List(level), |entry| {
                    let value = entry[0] & !LAST;
                    if value == code {
                        link = Wide::read(&entry[1..]);
                    }
                    match value >= code || entry[0] & LAST != 0 {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                });
            level += 1;
        }
        if let Link::Mono(at) = link {
            let rest = &key[level..];
            self.mono(at, rest.len(), |idx, code| code == rest[idx], tids);
        }
    }

    /// Appends the TIDs of a MonoList whose codes are accepted.
    fn mono(
        &mut self,
        at: usize,
        code_count: usize,
        accepts: impl Fn(usize, u32) -> bool,
        tids: &mut Vec<u32>,
    ) {
        let mut idx = 0;
        self.lists.scan::<1>(at, Item::Mono(code_count), |word| {
            let word = word[0];
            if idx < code_count {
                idx += 1;
                return match accepts(idx - 1, word) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                };
            }
            tids.push(word & !LAST);
            match word & LAST == 0 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }

    /// Appends the TIDs of accepted rows, in key order.
    pub fn select(&mut self, query: &QueryBox, tids: &mut Vec<u32>) {
        for code in self.first_codes(query) {
            self.select_below(query, code, tids);
        }
    }

    /// Codes of the first dimension that may be accepted.
    pub fn first_codes(&self, query: &QueryBox) -> Range<usize> {
        let (lo, hi) = query.dimensions()[0].hull();
        lo as usize..self.root_count.min((hi as usize).saturating_add(1))
    }

    /// Appends the TIDs of accepted rows with this code in the first dimension.
    pub fn select_below(&mut self, query: &QueryBox, code: usize, tids: &mut Vec<u32>) {
        let (first, rest) = query.dimensions().split_at(1);
        if first[0].contains(code as u32) {
            let link = self.root(code);
            self.visit(link, rest, tids);
        }
    }

    fn visit(&mut self, link: Link, rest: &[Restriction], tids: &mut Vec<u32>) {
        match link {
            Link::Absent => {}
            Link::Mono(at) => {
                self.mono(at, rest.len(), |idx, code| rest[idx].contains(code), tids);
            }
            Link::List(at) => {
                let start = self.links.len();
                self.collect(at, rest);
                for idx in start..self.links.len() {
                    self.visit(self.links[idx], &rest[1..], tids);
                }
                self.links.truncate(start);
            }
        }
    }

    /// Puts the links of a list's accepted entries on the stack.
    fn collect(&mut self, at: usize, rest: &[Restriction]) {
        let (lo, hi) = rest[0].hull();
        let is_range = !matches!(rest[0], Restriction::Set(_));
        let (links, level) = (&mut self.links, self.dimension_count - rest.len());
        self.lists
            .scan::<ENTRY_WORDS>(at, Item::List(level), |entry| {
                let value = entry[0] & !LAST;
                if value > hi {
                    return ControlFlow::Break(());
                }
                if value >= lo && (is_range || rest[0].contains(value)) {
                    links.push(Wide::read(&entry[1..]));
                }
                match entry[0] & LAST == 0 {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
    }
}
