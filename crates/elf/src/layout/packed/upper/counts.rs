//! How many entries of each array of a head belong to some of its nodes.

use std::ops::Add;

use super::super::arrays::{NODE_BYTES, write_children, write_nodes};
use super::super::head::{Bottom, Child, Head, Link, Node, NodeKind};
use crate::codec::Writer;

/// Arrays of a head in a file: nodes, children, starts, bitmaps, ranks and codes.
pub(super) const ARRAY_COUNT: usize = 6;

/// Numbers of entries of the arrays of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    pub(super) children: usize,
    pub(super) starts: usize,
    pub(super) words: usize,
    pub(super) codes: usize,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            nodes: self.nodes + other.nodes,
            children: self.children + other.children,
            starts: self.starts + other.starts,
            words: self.words + other.words,
            codes: self.codes + other.codes,
        }
    }
}

impl Counts {
    /// The parts of a node.
    pub(super) fn of(node: &Node) -> Self {
        let entries = node.child_count as usize + 1;
        let (children, starts) = match node.bottom {
            Bottom::Mixed => (entries, 0),
            Bottom::Below | Bottom::Here => (0, entries),
        };
        let (words, codes) = match node.kind {
            NodeKind::Dense => (0, 0),
            NodeKind::Bitmap => ((node.last_offset / 64 + 1) as usize, 0),
            NodeKind::Sorted => (0, node.child_count as usize),
        };
        Self {
            nodes: 1,
            children,
            starts,
            words,
            codes,
        }
    }

    /// Bytes of these entries in a file, by array.
    pub(super) fn bytes(self) -> [usize; ARRAY_COUNT] {
        [
            self.nodes * NODE_BYTES,
            self.children * 8,
            self.starts * 2,
            self.words * 8,
            self.words * 4,
            self.codes * 4,
        ]
    }

    pub(super) fn sum_bytes(self) -> usize {
        self.bytes().iter().sum()
    }

    /// The same with this many nodes.
    pub(super) fn at_node(self, nodes: usize) -> Self {
        Self { nodes, ..self }
    }

    /// Whether a node's parts of the arrays begin here.
    pub(super) fn is_begin_of(self, node: &Node) -> bool {
        let child_at = match node.bottom {
            Bottom::Mixed => self.children,
            Bottom::Below | Bottom::Here => self.starts,
        };
        let codes_at = match node.kind {
            NodeKind::Dense => node.codes_at as usize,
            NodeKind::Bitmap => self.words,
            NodeKind::Sorted => self.codes,
        };
        (node.child_at as usize, node.codes_at as usize) == (child_at, codes_at)
            && node.child_count > 0
    }

    pub(super) fn is_within(self, total: Self) -> bool {
        self.nodes <= total.nodes
            && self.children <= total.children
            && self.starts <= total.starts
            && self.words <= total.words
            && self.codes <= total.codes
    }

    pub(super) fn minus(self, before: Self) -> Self {
        Self {
            nodes: self.nodes - before.nodes,
            children: self.children - before.children,
            starts: self.starts - before.starts,
            words: self.words - before.words,
            codes: self.codes - before.codes,
        }
    }
}

/// Shows the nodes that some nodes have below them, in order. `children` begin with the entries of these nodes.
pub(super) fn for_links(nodes: &[Node], children: &[Child], mut show: impl FnMut(usize)) {
    let mut rest = children;
    for node in nodes.iter().filter(|node| node.bottom == Bottom::Mixed) {
        let Some((entries, others)) = rest.split_at_checked(node.child_count as usize + 1) else {
            return;
        };
        rest = others;
        for pair in entries.windows(2).filter(|pair| pair[0].row < pair[1].row) {
            if let Link::Node(below) = Link::unpack(pair[0].link) {
                show(below);
            }
        }
    }
}

impl Head {
    /// Some entries of each array, as they are in a file.
    pub(super) fn bytes_of(&self, from: Counts, to: Counts, out: &mut Writer) {
        write_nodes(&self.nodes[from.nodes..to.nodes], out);
        write_children(&self.children[from.children..to.children], out);
        out.u16s(&self.starts[from.starts..to.starts]);
        out.u64s(&self.bitmaps[from.words..to.words]);
        out.u32s(&self.ranks[from.words..to.words]);
        out.u32s(&self.codes[from.codes..to.codes]);
    }

    /// The first entries of each array.
    pub(super) fn first(&self, counts: Counts) -> Self {
        Self {
            nodes: self.nodes[..counts.nodes].to_vec(),
            children: self.children[..counts.children].to_vec(),
            starts: self.starts[..counts.starts].to_vec(),
            bitmaps: self.bitmaps[..counts.words].to_vec(),
            ranks: self.ranks[..counts.words].to_vec(),
            codes: self.codes[..counts.codes].to_vec(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            nodes: self.nodes.len(),
            children: self.children.len(),
            starts: self.starts.len(),
            words: self.bitmaps.len(),
            codes: self.codes.len(),
        }
    }

    /// The entries of a node's children, if it has any, and those that follow.
    pub(super) fn entries_from(&self, node: &Node) -> &[Child] {
        match node.bottom {
            Bottom::Mixed => &self.children[node.child_at as usize..],
            Bottom::Below | Bottom::Here => &[],
        }
    }

    /// Where each level begins, and where the last one ends; `None` if links do not lead to the nodes in their order.
    pub(super) fn level_starts(&self) -> Option<Vec<Counts>> {
        let mut levels = Levels::default();
        for node in &self.nodes {
            levels.take(node, self.entries_from(node));
        }
        levels.finish()
    }
}

/// Finds where levels begin: the children of a level are the next one.
#[derive(Default)]
pub(super) struct Levels {
    starts: Vec<Counts>,
    at: Counts,
    /// Where the level ends that nodes come from, and how many nodes are below those that came.
    end: usize,
    below_count: usize,
    is_disordered: bool,
}

impl Levels {
    /// Takes the next node; `children` begin with its entries.
    pub(super) fn take(&mut self, node: &Node, children: &[Child]) {
        if self.at.nodes == self.end {
            self.starts.push(self.at);
            self.end = 1 + self.below_count;
        }
        for_links(std::slice::from_ref(node), children, |below| {
            self.below_count += 1;
            self.is_disordered |= below != self.below_count;
        });
        self.at = self.at + Counts::of(node);
    }

    /// Whether all nodes below others came, and no others.
    pub(super) fn is_complete(&self) -> bool {
        self.at.nodes == 1 + self.below_count
    }

    /// Where each level begins, and where the last one ends; `None` if links do not lead to the nodes in their order.
    pub(super) fn finish(mut self) -> Option<Vec<Counts>> {
        self.starts.push(self.at);
        (!self.is_disordered).then_some(self.starts)
    }
}
