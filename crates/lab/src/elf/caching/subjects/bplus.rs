//! A B+-tree: nodes of some 256-byte grains, level by level from the root on, all of them full.
//!
//! A node is `[header][prefix][entries][values]`. Entries are keys in a leaf, and the keys between children in an inner
//! node; the words that all of them begin with are the prefix, and inner nodes leave out what no comparison needs.
//! Values are TIDs, or the number of a child within its level, one more than there are entries.

use hotshelf_elf::keys::CodeTable;
use hotshelf_elf::{ElfError, Result, SortedRows};
use hotshelf_tier::region::prefer_huge_pages;

use super::super::contender::Search;
use super::super::statics::Found;
use super::bplus_search::BPlusSearch;
use super::key::KeyShape;
use super::nodes::{Nodes, Place};
use super::subject::Subject;

/// Words of a grain.
const GRAIN_WORDS: usize = 64;

/// Entries that a node has room for at least, however long the keys.
const ENTRIES_MIN: usize = 4;

/// What a node says about itself in its first word.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Entries.
    pub count: usize,
    /// Words that all entries begin with.
    pub prefix_words: usize,
    /// Words of an entry after those.
    pub entry_words: usize,
}

impl Header {
    fn pack(self) -> u32 {
        (self.count | self.prefix_words << 16 | self.entry_words << 24) as u32
    }

    /// From the first word of a node.
    #[inline]
    pub fn unpack(word: u32) -> Self {
        Self {
            count: word as usize & 0xffff,
            prefix_words: word as usize >> 16 & 0xff,
            entry_words: word as usize >> 24,
        }
    }

    /// Where an entry starts.
    #[inline]
    pub fn entry(self, idx: usize) -> usize {
        1 + self.prefix_words + idx * self.entry_words
    }

    /// Where a value is.
    #[inline]
    pub fn value(self, idx: usize) -> usize {
        self.entry(self.count) + idx
    }
}

/// One level while it is built.
#[derive(Default)]
struct Level {
    words: Vec<u32>,
    /// For each node the key that divides it from the one before, and how many of its words matter.
    dividers: Vec<u32>,
    divider_words: Vec<usize>,
    /// Rows below each node.
    rows: Vec<u32>,
}

impl Level {
    fn push(&mut self, node_words: usize, header: Header, parts: [&[u32]; 2], values: &[u32]) {
        let start = self.words.len();
        let [prefix, entries] = parts;
        self.words.push(header.pack());
        self.words.extend(prefix);
        let skipped = header.prefix_words;
        let key_words = entries.len() / header.count.max(1);
        for key in entries.chunks_exact(key_words.max(1)) {
            self.words
                .extend(&key[skipped..skipped + header.entry_words]);
        }
        self.words.extend(values);
        self.words.resize(start + node_words, 0);
    }
}

/// A B+-tree over the keys of a table, each with its TID.
pub struct BPlusTree {
    /// Where codes are in keys.
    pub shape: KeyShape,
    /// Words of a node.
    pub node_words: usize,
    /// The first node of each level, and the end.
    pub levels: Vec<usize>,
    words: Vec<u32>,
    nodes: Vec<Found>,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Packs rows into leaves.
fn leaves(sorted: &SortedRows, shape: &KeyShape, node_words: usize) -> Level {
    let width = shape.word_count;
    let (mut level, mut keys, mut tids) = (Level::default(), Vec::new(), Vec::new());
    let (mut prefix_words, mut before, mut key) = (width, Vec::new(), vec![0; width]);
    let mut flush = |keys: &mut Vec<u32>, tids: &mut Vec<u32>, prefix_words: usize| {
        let first = &keys[..width];
        let matter = common(&before, first) + 1;
        level.dividers.extend(first);
        level.divider_words.push(matter.min(width));
        level.rows.push(tids.len() as u32);
        let header = Header {
            count: tids.len(),
            prefix_words,
            entry_words: width - prefix_words,
        };
        level.push(node_words, header, [&first[..prefix_words], keys], tids);
        before = keys[keys.len() - width..].to_vec();
        keys.clear();
        tids.clear();
    };
    for row in 0..sorted.row_count() {
        key.fill(0);
        for dimension in 0..shape.dimension_count() {
            shape.put(&mut key, dimension, sorted.code(row, dimension));
        }
        let shorter = match keys.len() {
            0 => width,
            _ => prefix_words.min(common(&keys[..width], &key)),
        };
        if 1 + shorter + (tids.len() + 1) * (width - shorter + 1) > node_words {
            flush(&mut keys, &mut tids, prefix_words);
            prefix_words = width;
        } else {
            prefix_words = shorter;
        }
        keys.extend(&key);
        tids.push(sorted.tid(row));
    }
    if !tids.is_empty() || sorted.row_count() == 0 {
        keys.resize(keys.len().max(width), 0);
        flush(&mut keys, &mut tids, prefix_words);
    }
    level
}

/// Packs the nodes of a level into nodes above them.
fn inner(below: &Level, width: usize, node_words: usize) -> Level {
    let mut level = Level::default();
    let (child_count, mut first) = (below.rows.len(), 0);
    let divider = |child: usize| -> Vec<u32> {
        let matter = below.divider_words[child];
        let mut key = below.dividers[child * width..][..width].to_vec();
        key[matter..].fill(0);
        key
    };
    while first < child_count {
        let (mut keys, mut prefix_words, mut matter, mut end) = (Vec::new(), 0, 0, first + 1);
        while end < child_count {
            let key = divider(end);
            let more = below.divider_words[end].max(matter);
            let shorter = match keys.len() {
                0 => more,
                _ => prefix_words.min(common(&keys[..width], &key)),
            };
            let count = end - first;
            if 1 + shorter + count * more.saturating_sub(shorter) + count + 1 > node_words {
                break;
            }
            (prefix_words, matter) = (shorter, more);
            keys.extend(key);
            end += 1;
        }
        let header = Header {
            count: end - first - 1,
            prefix_words,
            entry_words: matter.saturating_sub(prefix_words),
        };
        let children: Vec<u32> = (first as u32..end as u32).collect();
        let prefix = keys.get(..prefix_words).unwrap_or_default().to_vec();
        level.push(node_words, header, [&prefix, &keys], &children);
        level
            .dividers
            .extend(&below.dividers[first * width..][..width]);
        level.divider_words.push(below.divider_words[first]);
        level.rows.push(below.rows[first..end].iter().sum());
        first = end;
    }
    level
}

impl BPlusTree {
    /// Builds the tree of a table with nodes of this many grains, or more if keys are long.
    ///
    /// # Errors
    /// When there are too many words.
    pub fn build(table: &CodeTable, grains: usize, thread_count: usize) -> Result<Self> {
        let sorted = SortedRows::from_table(table, thread_count);
        let shape = KeyShape::new(table);
        let needed = 2 + shape.word_count + ENTRIES_MIN * (shape.word_count + 1);
        let node_words = grains.max(needed.div_ceil(GRAIN_WORDS)) * GRAIN_WORDS;
        let mut levels = vec![leaves(&sorted, &shape, node_words)];
        drop(sorted);
        while let Some(top) = levels.last()
            && top.rows.len() > 1
        {
            levels.push(inner(top, shape.word_count, node_words));
        }
        levels.reverse();
        let needed: u64 = levels.iter().map(|level| level.words.len() as u64).sum();
        let max = 1 << 32;
        if needed > max {
            let bits = 32;
            return Err(ElfError::OffsetsTooNarrow { needed, max, bits });
        }
        let mut words = Vec::with_capacity(needed as usize);
        let (mut nodes, mut starts) = (Vec::new(), vec![0]);
        for (number, level) in levels.into_iter().enumerate() {
            words.extend(level.words);
            for rows in level.rows {
                nodes.push(Found {
                    at: nodes.len() * node_words,
                    level: number,
                    words: node_words as u32,
                    rows,
                });
            }
            starts.push(nodes.len());
        }
        prefer_huge_pages(&mut words);
        Ok(Self {
            shape,
            node_words,
            levels: starts,
            words,
            nodes,
        })
    }

    /// Levels, that of the leaves among them.
    pub fn level_count(&self) -> usize {
        self.levels.len() - 1
    }

    /// The place of a node.
    #[inline]
    pub fn place(&self, level: usize, number: usize) -> Place {
        Place {
            at: (self.levels[level] + number) * self.node_words,
            is_leaf: level + 1 == self.level_count(),
            key_words: 0,
        }
    }
}

impl Subject for BPlusTree {
    // A node is read as a whole: its grains are asked for together.
    const PIECE_SHIFT: u32 = 8;

    fn words(&self) -> &[u32] {
        &self.words
    }

    fn root(&self) -> Place {
        self.place(0, 0)
    }

    fn nodes(&self) -> &[Found] {
        &self.nodes
    }

    fn is_leaf(&self, node: &Found) -> bool {
        node.level + 1 == self.level_count()
    }

    fn node_words(&self, _place: Place) -> usize {
        self.node_words
    }

    fn rows_below(&self, place: Place) -> u32 {
        self.nodes[place.at / self.node_words].rows
    }

    fn relink(&self, _copy: &mut [u32], _copy_of: &dyn Fn(usize) -> Option<usize>) -> bool {
        false
    }

    fn search<'a>(&'a self, _root: Place, nodes: impl Nodes + 'a) -> impl Search + 'a {
        BPlusSearch::new(self, nodes)
    }
}
