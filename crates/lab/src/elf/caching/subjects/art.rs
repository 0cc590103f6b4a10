//! An adaptive radix tree (Leis et al. 2013): a byte of the key on each level, nodes of four sizes, no level where all
//! keys agree. Nodes and leaves lie in one array, each followed by its subtrees, as `linear` has its lists.
//!
//! A node is `[header][prefix][index][links]`: the bytes in which all keys below agree, then by kind the bytes of up
//! to 4 or 16 children, or for each byte the number of its link (48), or nothing (256: a link for each byte). A leaf is
//! the rest of a key, then the TIDs of all rows that have it, the last with its top bit set: a MonoList.

use std::ops::Range;

use hotshelf_elf::keys::CodeTable;
use hotshelf_elf::{ElfError, Result, SortedRows};
use hotshelf_tier::region::prefer_huge_pages;

use super::super::super::baseline::linear::LAST;
use super::super::contender::Search;
use super::super::statics::Found;
use super::art_search::ArtSearch;
use super::key::{Spot, pack, spots};
use super::nodes::{COPY, Nodes, Place};
use super::subject::Subject;

/// Set in a link to a leaf.
const LEAF: u32 = 1 << 31;

/// A link to nothing.
pub const ABSENT: u32 = u32::MAX;

/// Words that links reach.
const WORD_COUNT_MAX: usize = COPY;

/// Words of the smallest node.
const NODE_WORDS_MIN: usize = 6;

/// What a node says about itself in its first word.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Links that it has room for: 4, 16, 48 or 256.
    pub room: usize,
    /// Bytes in which all keys agree.
    pub prefix_bytes: usize,
    /// Children.
    pub count: usize,
}

impl Header {
    fn pack(self) -> u32 {
        (self.room | self.prefix_bytes << 9 | self.count << 20) as u32
    }

    /// From the first word of a node.
    #[inline]
    pub fn unpack(word: u32) -> Self {
        Self {
            room: word as usize & 0x1ff,
            prefix_bytes: word as usize >> 9 & 0x7ff,
            count: word as usize >> 20,
        }
    }

    /// Where the index is.
    #[inline]
    pub fn index(self) -> usize {
        1 + self.prefix_bytes.div_ceil(4)
    }

    /// Where the links are.
    #[inline]
    pub fn links(self) -> usize {
        let index_words = match self.room {
            4 => 1,
            16 => 4,
            48 => 64,
            _ => 0,
        };
        self.index() + index_words
    }

    fn word_count(self) -> usize {
        self.links() + self.room
    }
}

/// What a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// A node at this word.
    Node(usize),
    /// A leaf at this word.
    Leaf(usize),
}

impl Link {
    /// Reads a link, if it leads anywhere.
    #[inline]
    pub fn read(word: u32) -> Option<Self> {
        match word {
            ABSENT => None,
            word if word & LEAF != 0 => Some(Self::Leaf((word & !LEAF) as usize)),
            word => Some(Self::Node(word as usize)),
        }
    }
}

/// An adaptive radix tree over the keys of a table.
pub struct Art {
    /// Bytes of a key.
    pub spots: Vec<Spot>,
    /// Number of dimensions.
    pub dimension_count: usize,
    /// What leads to all of it.
    pub root: Option<Link>,
    words: Vec<u32>,
    nodes: Vec<Found>,
    /// Rows below the node at a word, by a [`NODE_WORDS_MIN`]th of its number.
    rows: Vec<u32>,
}

struct Builder<'a> {
    sorted: &'a SortedRows,
    art: Art,
}

impl Builder<'_> {
    #[inline]
    fn byte(&self, row: usize, depth: usize) -> u8 {
        let spot = self.art.spots[depth];
        (self.sorted.code(row, spot.dimension) >> spot.bits_after) as u8
    }

    fn push_bytes(&mut self, row: usize, depths: Range<usize>) {
        let bytes: Vec<u8> = depths.map(|depth| self.byte(row, depth)).collect();
        let words = bytes.chunks(4).map(pack);
        self.art.words.extend(words);
    }

    fn leaf(&mut self, rows: Range<usize>, depth: usize) -> u32 {
        let at = self.art.words.len();
        self.push_bytes(rows.start, depth..self.art.spots.len());
        let last = rows.end - 1;
        for row in rows {
            let end = if row == last { LAST } else { 0 };
            self.art.words.push(self.sorted.tid(row) | end);
        }
        at as u32 | LEAF
    }

    /// Appends the tree of some rows that agree in all bytes before `depth`; returns a link to it.
    fn tree(&mut self, rows: Range<usize>, depth: usize, level: usize) -> u32 {
        let last = rows.end - 1;
        let differs = |&depth: &usize| self.byte(rows.start, depth) != self.byte(last, depth);
        let Some(split) = (depth..self.art.spots.len()).find(differs) else {
            return self.leaf(rows, depth);
        };
        let mut children: Vec<(u8, Range<usize>)> = Vec::new();
        for row in rows.clone() {
            let byte = self.byte(row, split);
            match children.last_mut() {
                Some((own, range)) if *own == byte => range.end = row + 1,
                _ => children.push((byte, row..row + 1)),
            }
        }
        let room = match children.len() {
            ..=4 => 4,
            5..=16 => 16,
            17..=48 => 48,
            _ => 256,
        };
        let header = Header {
            room,
            prefix_bytes: split - depth,
            count: children.len(),
        };
        let at = self.art.words.len();
        self.art.words.push(header.pack());
        self.push_bytes(rows.start, depth..split);
        self.index(header, &children);
        self.art.words.resize(at + header.word_count(), ABSENT);
        self.art.nodes.push(Found {
            at,
            level,
            words: header.word_count() as u32,
            rows: rows.len() as u32,
        });
        for (number, (byte, rows)) in children.into_iter().enumerate() {
            let link = self.tree(rows, split + 1, level + 1);
            let slot = if room == 256 { byte.into() } else { number };
            self.art.words[at + header.links() + slot] = link;
        }
        at as u32
    }

    fn index(&mut self, header: Header, children: &[(u8, Range<usize>)]) {
        let bytes: Vec<u8> = match header.room {
            4 | 16 => {
                let mut bytes: Vec<u8> = children.iter().map(|(byte, _)| *byte).collect();
                bytes.resize(header.room, 0);
                bytes
            }
            48 => {
                let mut numbers = vec![0; 256];
                for (number, (byte, _)) in children.iter().enumerate() {
                    numbers[usize::from(*byte)] = number as u8 + 1;
                }
                numbers
            }
            _ => Vec::new(),
        };
        self.art.words.extend(bytes.chunks(4).map(pack));
    }
}

impl Art {
    /// Builds the tree of a table.
    ///
    /// # Errors
    /// When there are too many words, or a TID needs all 32 bits.
    pub fn build(table: &CodeTable, thread_count: usize) -> Result<Self> {
        let max = LAST - 1;
        if table.tid_max() > max {
            return Err(ElfError::CodeTooLarge {
                dimension: table.dimension_count(),
                code: table.tid_max(),
                max,
            });
        }
        let sorted = SortedRows::from_table(table, thread_count);
        let art = Self {
            spots: spots(table),
            dimension_count: table.dimension_count(),
            root: None,
            words: Vec::new(),
            nodes: Vec::new(),
            rows: Vec::new(),
        };
        let mut builder = Builder {
            sorted: &sorted,
            art,
        };
        if sorted.row_count() > 0 {
            let root = builder.tree(0..sorted.row_count(), 0, 0);
            builder.art.root = Link::read(root);
        }
        let mut art = builder.art;
        // Links were cut off if there are more words than they reach.
        if art.words.len() > WORD_COUNT_MAX {
            return Err(ElfError::OffsetsTooNarrow {
                needed: art.words.len() as u64,
                max: WORD_COUNT_MAX as u64,
                bits: WORD_COUNT_MAX.trailing_zeros(),
            });
        }
        art.words.shrink_to_fit();
        prefer_huge_pages(&mut art.words);
        art.rows = vec![0; art.words.len() / NODE_WORDS_MIN + 1];
        for node in &art.nodes {
            art.rows[node.at / NODE_WORDS_MIN] = node.rows;
        }
        Ok(art)
    }
}

impl Subject for Art {
    // Lines of a CPU's cache, as with `linear`.
    const PIECE_SHIFT: u32 = 6;

    fn words(&self) -> &[u32] {
        &self.words
    }

    fn root(&self) -> Place {
        Place {
            at: 0,
            is_leaf: !matches!(self.root, Some(Link::Node(_))),
            key_words: self.spots.len().div_ceil(4),
        }
    }

    fn nodes(&self) -> &[Found] {
        &self.nodes
    }

    fn is_leaf(&self, _node: &Found) -> bool {
        false
    }

    fn node_words(&self, place: Place) -> usize {
        let words = &self.words[place.at..];
        if !place.is_leaf {
            return Header::unpack(words[0]).word_count();
        }
        let tids = words[place.key_words..].iter();
        place.key_words + tids.take_while(|&&tid| tid & LAST == 0).count() + 1
    }

    fn rows_below(&self, place: Place) -> u32 {
        match place.is_leaf {
            true => 1,
            false => self.rows[place.at / NODE_WORDS_MIN],
        }
    }

    fn relink(&self, copy: &mut [u32], copy_of: &dyn Fn(usize) -> Option<usize>) -> bool {
        if let Some(&word) = copy.first() {
            for link in &mut copy[Header::unpack(word).links()..] {
                if let Some(Link::Node(at)) = Link::read(*link)
                    && let Some(at) = copy_of(at)
                {
                    *link = at as u32;
                }
            }
        }
        true
    }

    fn search<'a>(&'a self, root: Place, nodes: impl Nodes + 'a) -> impl Search + 'a {
        ArtSearch::new(self, root, nodes)
    }
}
