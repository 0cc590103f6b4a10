//! Searches in an adaptive radix tree: by a key, and by a box, depth first, where a byte decides about all keys below.

use hotshelf_elf::keys::{QueryBox, Restriction};

use super::super::super::baseline::linear::LAST;
use super::super::contender::Search;
use super::super::shelf::{Accesses, Lane};
use super::art::{Art, Header, Link};
use super::key::{Spot, pack};
use super::nodes::{Nodes, Place, View};

/// One of a word's bytes, the first one highest.
#[inline]
fn byte_of(word: u32, idx: usize) -> u8 {
    (word >> (24 - 8 * (idx % 4))) as u8
}

/// Searches over nodes.
pub struct ArtSearch<'a, N> {
    art: &'a Art,
    root: Place,
    nodes: N,
    /// The bytes of a key.
    key: Vec<u8>,
    /// What is to be visited: the children of one node after those of its parent.
    links: Vec<(Link, u32)>,
}

/// Bytes that the next part of a code may have, where the parts before it are `code`.
#[inline]
fn byte_range(restriction: &Restriction, spot: Spot, code: u32) -> Option<(u8, u8)> {
    let (lo, hi) = restriction.hull();
    if lo > hi {
        return None;
    }
    let base = u64::from(code) << 8;
    let lo = u64::from(lo >> spot.bits_after).saturating_sub(base);
    let hi = u64::from(hi >> spot.bits_after).checked_sub(base)?;
    (lo <= 255).then(|| (lo as u8, hi.min(255) as u8))
}

/// The part of a code that is known after one more byte, if rows with it may be accepted: 0 again after its last one.
#[inline]
fn next_code(restriction: &Restriction, spot: Spot, code: u32, byte: u8) -> Option<u32> {
    let (first, last) = byte_range(restriction, spot, code)?;
    if !(first..=last).contains(&byte) {
        return None;
    }
    let code = code << 8 | u32::from(byte);
    match spot.bits_after {
        0 => restriction.contains(code).then_some(0),
        _ => Some(code),
    }
}

/// The same after the bytes that a node or a leaf begins with.
#[inline]
fn after_bytes(query: &QueryBox, spots: &[Spot], words: &[u32], mut code: u32) -> Option<u32> {
    for (idx, &spot) in spots.iter().enumerate() {
        let restriction = &query.dimensions()[spot.dimension];
        code = next_code(restriction, spot, code, byte_of(words[idx / 4], idx))?;
    }
    Some(code)
}

/// The link of one byte.
#[inline]
fn child<L: Lane>(node: &mut View<'_, L>, header: Header, byte: u8) -> Option<Link> {
    let (index, byte_idx) = (header.index(), usize::from(byte));
    let slot = match header.room {
        256 => byte_idx,
        48 => {
            let numbers = node.word(index + byte_idx / 4);
            usize::from(byte_of(numbers, byte_idx)).checked_sub(1)?
        }
        _ => {
            let words = node.words(index..index + header.count.div_ceil(4));
            (0..header.count).find(|&idx| byte_of(words[idx / 4], idx) == byte)?
        }
    };
    Link::read(node.word(header.links() + slot))
}

/// Calls `found` with all bytes of a range that have a link.
#[inline]
fn children<L: Lane>(
    node: &mut View<'_, L>,
    header: Header,
    range: (u8, u8),
    mut found: impl FnMut(u8, Link),
) {
    let (index, links) = (header.index(), header.links());
    match header.room {
        256 | 48 => {
            for byte in range.0..=range.1 {
                if let Some(link) = child(node, header, byte) {
                    found(byte, link);
                }
            }
        }
        _ => {
            let words = node.words(index..index + header.count.div_ceil(4));
            for idx in 0..header.count {
                let byte = byte_of(words[idx / 4], idx);
                if byte > range.1 {
                    return;
                }
                if byte >= range.0
                    && let Some(link) = Link::read(node.word(links + idx))
                {
                    found(byte, link);
                }
            }
        }
    }
}

impl<'a, N: Nodes> ArtSearch<'a, N> {
    /// In a tree whose nodes come from somewhere.
    pub fn new(art: &'a Art, root: Place, nodes: N) -> Self {
        Self {
            art,
            root,
            nodes,
            key: Vec::new(),
            links: Vec::new(),
        }
    }

    fn root(&self) -> Option<Link> {
        self.art.root.map(|root| match root {
            Link::Node(_) => Link::Node(self.root.at),
            Link::Leaf(at) => Link::Leaf(at),
        })
    }

    /// Where a leaf is whose keys agree in all bytes before `depth`.
    #[inline]
    fn leaf(&self, at: usize, depth: usize) -> Place {
        Place {
            at,
            is_leaf: true,
            key_words: (self.art.spots.len() - depth).div_ceil(4),
        }
    }

    fn visit(
        &mut self,
        link: Link,
        depth: usize,
        code: u32,
        query: &QueryBox,
        tids: &mut Vec<u32>,
    ) {
        let art = self.art;
        let at = match link {
            Link::Node(at) => at,
            Link::Leaf(at) => {
                let place = self.leaf(at, depth);
                return self.nodes.visit(place, |mut node| {
                    let rest = node.words(0..place.key_words);
                    if after_bytes(query, &art.spots[depth..], rest, code).is_some() {
                        push_tids(&mut node, place.key_words, tids);
                    }
                });
            }
        };
        let start = self.links.len();
        let links = &mut self.links;
        let depth = self.nodes.visit(node_at(at), |mut node| {
            let header = Header::unpack(node.word(0));
            let end = depth + header.prefix_bytes;
            let prefix = node.words(1..header.index());
            let code = after_bytes(query, &art.spots[depth..end], prefix, code)?;
            let spot = art.spots[end];
            let restriction = &query.dimensions()[spot.dimension];
            let range = byte_range(restriction, spot, code)?;
            children(&mut node, header, range, |byte, link| {
                if let Some(code) = next_code(restriction, spot, code, byte) {
                    links.push((link, code));
                }
            });
            Some(end + 1)
        });
        if let Some(depth) = depth {
            for idx in start..self.links.len() {
                let (link, code) = self.links[idx];
                self.visit(link, depth, code, query, tids);
            }
        }
        self.links.truncate(start);
    }
}

#[inline]
fn node_at(at: usize) -> Place {
    Place {
        at,
        is_leaf: false,
        key_words: 0,
    }
}

#[inline]
fn push_tids<L: Lane>(leaf: &mut View<'_, L>, first: usize, tids: &mut Vec<u32>) {
    for at in first.. {
        let tid = leaf.word(at);
        tids.push(tid & !LAST);
        if tid & LAST != 0 {
            return;
        }
    }
}

impl<N: Nodes> Search for ArtSearch<'_, N> {
    fn dimension_count(&self) -> usize {
        self.art.dimension_count
    }

    fn exact(&mut self, key: &[u32], tids: &mut Vec<u32>) {
        self.key.clear();
        for spot in &self.art.spots {
            let code = key[spot.dimension] >> spot.bits_after;
            if spot.is_first && code > 255 {
                return;
            }
            self.key.push(code as u8);
        }
        let (mut next, mut depth) = (self.root(), 0);
        while let Some(link) = next {
            let bytes = &self.key[depth..];
            let at = match link {
                Link::Node(at) => at,
                Link::Leaf(at) => {
                    let place = self.leaf(at, depth);
                    return self.nodes.visit(place, |mut node| {
                        let rest = node.words(0..place.key_words);
                        if bytes.chunks(4).map(pack).eq(rest.iter().copied()) {
                            push_tids(&mut node, place.key_words, tids);
                        }
                    });
                }
            };
            let step = self.nodes.visit(node_at(at), |mut node| {
                let header = Header::unpack(node.word(0));
                let (prefix, rest) = bytes.split_at(header.prefix_bytes);
                if header.prefix_bytes > 0 {
                    let words = node.words(1..header.index());
                    if !prefix.chunks(4).map(pack).eq(words.iter().copied()) {
                        return None;
                    }
                }
                let link = child(&mut node, header, rest[0])?;
                Some((link, header.prefix_bytes + 1))
            });
            next = step.map(|(link, byte_count)| {
                depth += byte_count;
                link
            });
        }
    }

    fn select(&mut self, query: &QueryBox, tids: &mut Vec<u32>) {
        if let Some(root) = self.root() {
            self.visit(root, 0, 0, query, tids);
        }
    }

    fn accesses(&self) -> Accesses {
        self.nodes.accesses()
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        self.nodes.set_waiting(is_waiting);
    }

    fn dram_bytes(&self) -> u64 {
        self.nodes.dram_bytes()
    }
}
