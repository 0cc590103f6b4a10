//! Where the nodes of a subject come from: the shelf, or copies in DRAM.

use std::ops::Range;
use std::sync::Arc;

use hotshelf_tier::simd::prefetch;

use super::super::list_cache::{ListCache, Places, places_bytes};
use super::super::policy::Policy;
use super::super::shelf::{Accesses, Lane};
use super::super::statics::{Choice, choose};
use super::subject::Subject;

/// Words of a cache line.
const LINE_WORDS: usize = 16;

/// Set in the place of a node to which a swizzled link leads: it is a copy.
pub const COPY: usize = 1 << 30;

/// Which node is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its first word.
    pub at: usize,
    /// Whether it holds TIDs.
    pub is_leaf: bool,
    /// Words of a leaf before its TIDs, where the leaf does not say it itself.
    pub key_words: usize,
}

/// A node that is being looked at.
pub struct View<'a, L> {
    /// From its first word on.
    words: &'a [u32],
    at: usize,
    shelf: Option<(&'a mut L, u32)>,
}

impl<'a, L: Lane> View<'a, L> {
    /// Some of its words, which are waited for if they are on the shelf.
    #[inline(always)]
    pub fn words(&mut self, range: Range<usize>) -> &'a [u32] {
        if let Some((lane, piece_shift)) = &mut self.shelf
            && !range.is_empty()
        {
            let pieces =
                (self.at + range.start) >> *piece_shift..=(self.at + range.end - 1) >> *piece_shift;
            pieces.for_each(|piece| lane.load(piece));
        }
        &self.words[range]
    }

    /// One of its words.
    #[inline(always)]
    pub fn word(&mut self, at: usize) -> u32 {
        self.words(at..at + 1)[0]
    }

    /// Starts reading its first words.
    #[inline(always)]
    pub fn ask(&mut self, word_count: usize) {
        for line in (0..word_count).step_by(LINE_WORDS) {
            prefetch(self.words, line);
        }
        if let Some((lane, piece_shift)) = &mut self.shelf {
            let pieces = self.at >> *piece_shift..=(self.at + word_count - 1) >> *piece_shift;
            pieces.for_each(|piece| lane.prefetch(piece));
        }
    }
}

/// Where nodes come from.
pub trait Nodes: Send {
    /// A thread's way to the shelf.
    type Lane: Lane;

    /// Looks at a node.
    fn visit<R>(&mut self, place: Place, look: impl FnOnce(View<'_, Self::Lane>) -> R) -> R;

    /// What was read from the shelf so far.
    fn accesses(&self) -> Accesses;

    /// Whether to wait for the shelf.
    fn set_waiting(&mut self, is_waiting: bool);

    /// Bytes of DRAM that hold nodes, or say where they are.
    fn dram_bytes(&self) -> u64;
}

/// Everything on the shelf: `pure`, and `volatile` or `hybrid` if the shelf is DRAM.
pub struct Shelved<W, L> {
    words: W,
    lane: L,
    piece_shift: u32,
    dram_bytes: u64,
}

impl<W: AsRef<[u32]>, L: Lane> Shelved<W, L> {
    /// Words that are reached by a lane in pieces of `1 << piece_shift` words, and the DRAM that they take.
    pub fn new(words: W, lane: L, piece_shift: u32, dram_bytes: u64) -> Self {
        Self {
            words,
            lane,
            piece_shift,
            dram_bytes,
        }
    }
}

impl<W: AsRef<[u32]> + Send, L: Lane> Nodes for Shelved<W, L> {
    type Lane = L;

    #[inline(always)]
    fn visit<R>(&mut self, place: Place, look: impl FnOnce(View<'_, L>) -> R) -> R {
        look(View {
            words: &self.words.as_ref()[place.at..],
            at: place.at,
            shelf: Some((&mut self.lane, self.piece_shift)),
        })
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

fn look_at_copy<L, R>(words: &[u32], look: impl FnOnce(View<'_, L>) -> R) -> R {
    look(View {
        words,
        at: 0,
        shelf: None,
    })
}

/// Inner nodes from a whole copy, leaves from the shelf.
pub struct Dual<'a, L>(pub Shelved<&'a [u32], L>);

impl<L: Lane> Nodes for Dual<'_, L> {
    type Lane = L;

    #[inline(always)]
    fn visit<R>(&mut self, place: Place, look: impl FnOnce(View<'_, L>) -> R) -> R {
        match place.is_leaf {
            true => self.0.visit(place, look),
            false => look_at_copy(&self.0.words[place.at..], look),
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

/// Copies of some nodes, made once.
pub struct Copies {
    words: Vec<u32>,
    /// This many words are a copy of the shelf's first ones: nothing has to be looked up for them.
    same_len: usize,
    /// Copies of others, unless links lead to them.
    places: Places,
    is_swizzled: bool,
    has_leaves: bool,
    /// Where the root is.
    pub root: Place,
}

impl Copies {
    /// Copies of the nodes that were chosen.
    pub fn new<S: Subject>(subject: &S, choice: Choice, is_swizzled: bool) -> Self {
        let chosen = choose(subject.nodes(), choice);
        let (mut words, mut places, mut same_len) = (Vec::new(), Places::default(), 0);
        for node in &chosen {
            if node.at == words.len() && same_len == words.len() {
                same_len += node.words as usize;
            } else {
                places.insert(node.at as u64, words.len() as u32);
            }
            words.extend_from_slice(&subject.words()[node.at..][..node.words as usize]);
        }
        words.shrink_to_fit();
        let mut root = subject.root();
        let is_swizzled = is_swizzled && !places.is_empty() && subject.relink(&mut [], &|_| None);
        if is_swizzled {
            let copy_of = |at: usize| match at < same_len {
                true => Some(at | COPY),
                false => Some(*places.get(&(at as u64))? as usize | COPY),
            };
            let mut at = 0;
            for node in &chosen {
                let own = &mut words[at..at + node.words as usize];
                subject.relink(own, &copy_of);
                at += node.words as usize;
            }
            root.at = copy_of(root.at).unwrap_or(root.at);
            places = Places::default();
        }
        Self {
            has_leaves: chosen.iter().any(|node| subject.is_leaf(node)),
            words,
            same_len,
            places,
            is_swizzled,
            root,
        }
    }

    #[inline(always)]
    fn get(&self, place: Place) -> Option<&[u32]> {
        if self.is_swizzled {
            let is_copy = !place.is_leaf && place.at & COPY != 0;
            return is_copy.then(|| &self.words[place.at & !COPY..]);
        }
        if place.at < self.same_len {
            return Some(&self.words[place.at..]);
        }
        if place.is_leaf && !self.has_leaves || self.places.is_empty() {
            return None;
        }
        let copy = *self.places.get(&(place.at as u64))?;
        Some(&self.words[copy as usize..])
    }

    fn size_bytes(&self) -> u64 {
        let table = match self.places.is_empty() {
            true => 0,
            false => places_bytes(&self.places),
        };
        self.words.len() as u64 * 4 + table
    }
}

/// Some nodes in DRAM for good, the others elsewhere.
pub struct StaticNodes<N> {
    copies: Arc<Copies>,
    rest: N,
}

impl<N: Nodes> StaticNodes<N> {
    /// Copies before another way to nodes.
    pub fn new(copies: Arc<Copies>, rest: N) -> Self {
        Self { copies, rest }
    }
}

impl<N: Nodes> Nodes for StaticNodes<N> {
    type Lane = N::Lane;

    #[inline(always)]
    fn visit<R>(&mut self, place: Place, look: impl FnOnce(View<'_, N::Lane>) -> R) -> R {
        match self.copies.get(place) {
            Some(words) => look_at_copy(words, look),
            None => self.rest.visit(place, look),
        }
    }

    fn accesses(&self) -> Accesses {
        self.rest.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.rest.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.copies.size_bytes() + self.rest.dram_bytes()
    }
}

/// Nodes on the shelf, and copies of those that a policy keeps.
pub struct DynamicNodes<'a, S, L, P> {
    subject: &'a S,
    shelf: Shelved<&'a [u32], L>,
    cache: ListCache<P>,
    keeps_leaves: bool,
}

impl<'a, S: Subject, L: Lane, P: Policy> DynamicNodes<'a, S, L, P> {
    /// A dynamic cache before a shelf.
    pub fn new(
        subject: &'a S,
        shelf: Shelved<&'a [u32], L>,
        cache: ListCache<P>,
        keeps_leaves: bool,
    ) -> Self {
        Self {
            subject,
            shelf,
            cache,
            keeps_leaves,
        }
    }

    /// Takes a node that was missed in, if the policy wants it: all of it is read then.
    fn offer(&mut self, place: Place) {
        let len = self.subject.node_words(place);
        let weight = self.subject.rows_below(place);
        let cache = &mut self.cache;
        self.shelf.visit(place, |mut node| {
            cache.offer(place.at as u64, weight, node.words(0..len));
        });
    }
}

impl<S: Subject, L: Lane, P: Policy> Nodes for DynamicNodes<'_, S, L, P> {
    type Lane = L;

    #[inline(always)]
    fn visit<R>(&mut self, place: Place, look: impl FnOnce(View<'_, L>) -> R) -> R {
        if place.is_leaf && !self.keeps_leaves {
            return self.shelf.visit(place, look);
        }
        if let Some(words) = self.cache.get(place.at as u64) {
            return look_at_copy(words, look);
        }
        let found = self.shelf.visit(place, look);
        self.offer(place);
        found
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
