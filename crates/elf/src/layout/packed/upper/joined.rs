//! The upper levels of a head and some bundles as one head.

use std::ops::Range;

use super::super::ElfHead;
use super::super::head::{Bottom, Child, Head, Link, Node, NodeKind};
use super::UpperHead;
use super::counts::Counts;

/// Which nodes of a level there are, as ranges of their former numbers, which ascend, each with the first new one.
type Places = Vec<(Range<usize>, usize)>;

/// New numbers of nodes, by level.
struct Numbers {
    levels: Vec<Places>,
    /// The node without rows that stands for those that are left out.
    none: usize,
}

impl Numbers {
    /// Lets entries lead to the new numbers of nodes of a level.
    fn relink(&self, children: &mut [Child], level: usize) {
        let Some(places) = self.levels.get(level) else {
            return;
        };
        // The root is below no node: that link stands for an absent code.
        for child in children.iter_mut().filter(|child| child.link != 0) {
            let Link::Node(node) = Link::unpack(child.link) else {
                continue;
            };
            let after = places.partition_point(|(nodes, _)| nodes.start <= node);
            let place = after.checked_sub(1).map(|at| &places[at]);
            let new = place
                .filter(|(nodes, _)| nodes.contains(&node))
                .map_or(self.none, |(nodes, new)| new + (node - nodes.start));
            child.link = Link::Node(new).pack();
        }
    }
}

/// Nodes whose parts of the arrays move to other places.
fn moved(nodes: &mut [Node], from: Counts, to: Counts) {
    let moved = |at: u32, from: usize, to: usize| (at as usize - from + to) as u32;
    for node in nodes {
        node.child_at = match node.bottom {
            Bottom::Mixed => moved(node.child_at, from.children, to.children),
            Bottom::Below | Bottom::Here => moved(node.child_at, from.starts, to.starts),
        };
        node.codes_at = match node.kind {
            NodeKind::Dense => 0,
            NodeKind::Bitmap => moved(node.codes_at, from.words, to.words),
            NodeKind::Sorted => moved(node.codes_at, from.codes, to.codes),
        };
    }
}

impl Head {
    fn append(&mut self, mut part: Self) {
        self.nodes.append(&mut part.nodes);
        self.children.append(&mut part.children);
        self.starts.append(&mut part.starts);
        self.bitmaps.append(&mut part.bitmaps);
        self.ranks.append(&mut part.ranks);
        self.codes.append(&mut part.codes);
    }

    /// Adds a node without rows.
    fn append_none(&mut self) {
        self.nodes.push(Node {
            kind: NodeKind::Dense,
            bottom: Bottom::Mixed,
            first_code: 0,
            last_offset: 0,
            child_count: 1,
            child_at: self.children.len() as u32,
            codes_at: 0,
            row: 0,
            slot: 0,
        });
        self.children.extend([Child { row: 0, link: 0 }; 2]);
    }
}

impl UpperHead {
    fn numbers(&self, bundles: &[usize]) -> Numbers {
        let mut next = self.head.head.nodes.len();
        let mut level_of = |level: usize| -> Places {
            let place = |&bundle: &usize| {
                let (from, to) = self.ends(bundle, level);
                let new = next;
                next += to.nodes - from.nodes;
                (from.nodes..to.nodes, new)
            };
            bundles.iter().map(place).collect()
        };
        Numbers {
            levels: (0..self.below_count).map(&mut level_of).collect(),
            none: next,
        }
    }

    /// The upper levels and these bundles as one head. Links to others lead to a node without rows.
    pub(super) fn joined(&self, bundles: &[usize], levels: Vec<Vec<Head>>) -> ElfHead {
        let mut whole = self.head.clone();
        let (head, numbers) = (&mut whole.head, self.numbers(bundles));
        let last_level = &head.nodes[self.last_level_at..];
        for node in last_level
            .iter()
            .filter(|node| node.bottom == Bottom::Mixed)
        {
            let first = node.child_at as usize;
            let children = &mut head.children[first..first + node.child_count as usize];
            numbers.relink(children, 0);
        }
        for (level, parts) in levels.into_iter().enumerate() {
            for (&bundle, mut part) in bundles.iter().zip(parts) {
                moved(&mut part.nodes, self.ends(bundle, level).0, head.counts());
                numbers.relink(&mut part.children, level + 1);
                head.append(part);
            }
        }
        head.append_none();
        whole
    }
}
