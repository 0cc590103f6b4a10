//! Searches in a B+-tree: a descent for a key, and for a box a walk over the leaves that skips what no accepted row can
//! be in: from a row outside the box it descends to the next key inside.

use std::cmp::Ordering;

use hotshelf_elf::keys::QueryBox;

use super::super::contender::Search;
use super::super::shelf::{Accesses, Lane};
use super::bplus::{BPlusTree, Header};
use super::key::accepted_from;
use super::nodes::{Nodes, View};

/// How a walk goes on.
enum Next {
    /// With the leaf after this one.
    Leaf,
    /// With the first key that is not less than the target.
    Target,
    /// There is nothing more.
    End,
}

/// A row, compared with a box.
enum Row {
    Accepted,
    /// The target is the next key that may be accepted.
    Skipped,
    /// No later row is accepted.
    Last,
}

/// Searches over nodes.
pub struct BPlusSearch<'a, N> {
    tree: &'a BPlusTree,
    nodes: N,
    /// The key that is looked for.
    target: Vec<u32>,
    walk: Walk<'a>,
}

/// What a walk over leaves needs besides their nodes.
struct Walk<'a> {
    tree: &'a BPlusTree,
    row: Vec<u32>,
    codes: Vec<u32>,
    /// The smallest accepted code of every dimension.
    minima: Vec<u32>,
}

/// Entries of a node that are less than a key; those before `from` are known to be.
#[inline]
fn less_count<L: Lane>(node: &mut View<'_, L>, header: Header, key: &[u32], from: usize) -> usize {
    let (start, rest) = key.split_at(header.prefix_words);
    match start.cmp(node.words(1..1 + header.prefix_words)) {
        Ordering::Less => return 0,
        Ordering::Greater => return header.count,
        Ordering::Equal => {}
    }
    let (own, cut) = rest.split_at(header.entry_words);
    // An entry that was cut off is less than a key that goes on.
    let goes_on = cut.iter().any(|&word| word != 0);
    let (mut lo, mut hi) = (from, header.count);
    while lo < hi {
        let mid = (lo + hi) / 2;
        let entry = node.words(header.entry(mid)..header.entry(mid + 1));
        let is_less = match entry.cmp(own) {
            Ordering::Less => true,
            Ordering::Equal => goes_on,
            Ordering::Greater => false,
        };
        match is_less {
            true => lo = mid + 1,
            false => hi = mid,
        }
    }
    lo
}

impl<'a, N: Nodes> BPlusSearch<'a, N> {
    /// In a tree whose nodes come from somewhere.
    pub fn new(tree: &'a BPlusTree, nodes: N) -> Self {
        Self {
            tree,
            nodes,
            target: vec![0; tree.shape.word_count],
            walk: Walk {
                tree,
                row: vec![0; tree.shape.word_count],
                codes: vec![0; tree.shape.dimension_count()],
                minima: Vec::new(),
            },
        }
    }

    /// The number of the first leaf that may have the target.
    fn descend(&mut self) -> usize {
        let (tree, target) = (self.tree, &self.target);
        let mut number = 0;
        for level in 0..tree.level_count() - 1 {
            let place = tree.place(level, number);
            number = self.nodes.visit(place, |mut node| {
                node.ask(tree.node_words);
                let header = Header::unpack(node.word(0));
                let idx = less_count(&mut node, header, target, 0);
                node.word(header.value(idx)) as usize
            });
        }
        number
    }

    fn leaf_count(&self) -> usize {
        let levels = &self.tree.levels;
        levels[levels.len() - 1] - levels[levels.len() - 2]
    }
}

impl Walk<'_> {
    /// Compares a row with a box, and sets the target if that is elsewhere.
    fn check(&mut self, query: &QueryBox, target: &mut [u32]) -> Row {
        let shape = &self.tree.shape;
        for (dimension, restriction) in query.dimensions().iter().enumerate() {
            let code = shape.code(&self.row, dimension);
            self.codes[dimension] = code;
            if restriction.contains(code) {
                continue;
            }
            let mut next = accepted_from(restriction, code, shape.max(dimension));
            let mut changed = dimension;
            while next.is_none() {
                if changed == 0 {
                    return Row::Last;
                }
                changed -= 1;
                let restriction = &query.dimensions()[changed];
                let after = self.codes[changed].checked_add(1);
                next = after.and_then(|code| accepted_from(restriction, code, shape.max(changed)));
            }
            target.fill(0);
            for (dimension, &code) in self.codes[..changed].iter().enumerate() {
                shape.put(target, dimension, code);
            }
            shape.put(target, changed, next.unwrap_or_default());
            for (dimension, &code) in self.minima.iter().enumerate().skip(changed + 1) {
                shape.put(target, dimension, code);
            }
            return Row::Skipped;
        }
        Row::Accepted
    }

    /// Accepted rows of one leaf, from the target on.
    fn leaf<L: Lane>(
        &mut self,
        mut node: View<'_, L>,
        query: &QueryBox,
        target: &mut [u32],
        tids: &mut Vec<u32>,
    ) -> Next {
        node.ask(self.tree.node_words);
        let header = Header::unpack(node.word(0));
        let skipped = header.prefix_words;
        self.row[..skipped].copy_from_slice(node.words(1..1 + skipped));
        let mut idx = less_count(&mut node, header, target, 0);
        while idx < header.count {
            let entry = node.words(header.entry(idx)..header.entry(idx + 1));
            self.row[skipped..].copy_from_slice(entry);
            match self.check(query, target) {
                Row::Accepted => {
                    tids.push(node.word(header.value(idx)));
                    idx += 1;
                }
                Row::Skipped => {
                    idx = less_count(&mut node, header, target, idx + 1);
                    if idx == header.count {
                        return Next::Target;
                    }
                }
                Row::Last => return Next::End,
            }
        }
        Next::Leaf
    }
}

impl<N: Nodes> Search for BPlusSearch<'_, N> {
    fn dimension_count(&self) -> usize {
        self.tree.shape.dimension_count()
    }

    fn exact(&mut self, key: &[u32], tids: &mut Vec<u32>) {
        if !self.tree.shape.encode(key, &mut self.target) {
            return;
        }
        let first = self.descend();
        let (tree, target) = (self.tree, &self.target);
        for number in first..self.leaf_count() {
            let place = tree.place(tree.level_count() - 1, number);
            let goes_on = self.nodes.visit(place, |mut node| {
                node.ask(tree.node_words);
                let header = Header::unpack(node.word(0));
                let start = less_count(&mut node, header, target, 0);
                for idx in start..header.count {
                    let entry = node.words(header.entry(idx)..header.entry(idx + 1));
                    let is_equal = entry == &target[header.prefix_words..]
                        && (idx > start || {
                            let prefix = node.words(1..1 + header.prefix_words);
                            prefix == &target[..header.prefix_words]
                        });
                    if !is_equal {
                        return false;
                    }
                    tids.push(node.word(header.value(idx)));
                }
                true
            });
            if !goes_on {
                return;
            }
        }
    }

    fn select(&mut self, query: &QueryBox, tids: &mut Vec<u32>) {
        let shape = &self.tree.shape;
        let restrictions = query.dimensions().iter().enumerate();
        let minima = restrictions
            .map(|(dimension, one)| accepted_from(one, 0, shape.max(dimension)))
            .collect::<Option<Vec<u32>>>();
        let Some(minima) = minima else {
            return;
        };
        shape.encode(&minima, &mut self.target);
        self.walk.minima = minima;
        let last = self.tree.level_count() - 1;
        let mut number = self.descend();
        while number < self.leaf_count() {
            let place = self.tree.place(last, number);
            let (walk, target) = (&mut self.walk, &mut self.target);
            let next = self
                .nodes
                .visit(place, |node| walk.leaf(node, query, target, tids));
            match next {
                Next::Leaf => number += 1,
                // The leaf that was just seen is not asked again, even if the target divides it from the next one.
                Next::Target => number = self.descend().max(number + 1),
                Next::End => return,
            }
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
