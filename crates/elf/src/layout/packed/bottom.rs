//! Children of the nodes just above the leaves, in two bytes each.
//!
//! Most descents end at a node whose children are groups that stand side by side in one leaf region. Then the
//! number of a node's rows before a child says all that its entry says, and a table of these numbers, a
//! quarter of the entries' size, stays in the caches. It follows from the head and is in no file.

use std::ops::Range;

use hotshelf_tier::region::prefer_huge_pages;
use hotshelf_tier::simd::prefetch;

use super::head::{Head, Link, Node};
use super::leaf::Run;

/// What is known about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bottom {
    /// Place of a child's number, less the child's own number; wraps around.
    shift: u32,
    /// The node's first row.
    row: u32,
    /// The first slot of its rows.
    slot: u32,
    kind: BottomKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum BottomKind {
    /// Something else than groups side by side: see the head.
    Other,
    /// All groups lie in the next level's region.
    Below,
    /// All groups lie in the node's own level's region.
    Here,
}

/// The rows before each child of such nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Bottoms {
    nodes: Vec<Bottom>,
    starts: Vec<u16>,
}

impl Bottoms {
    /// The table of a sound head.
    pub(crate) fn new(head: &Head) -> Self {
        let sides: Vec<Option<(BottomKind, usize)>> = head
            .nodes
            .iter()
            .map(|node| side_by_side(head, node))
            .collect();
        let entries = head
            .nodes
            .iter()
            .zip(&sides)
            .filter(|(_, side)| side.is_some());
        let start_count = entries.map(|(node, _)| node.child_count as usize + 1).sum();
        let mut starts = vec![0u16; start_count];
        prefer_huge_pages(&mut starts);
        let mut end = 0;
        let nodes = head.nodes.iter().zip(&sides).map(|(node, side)| {
            let first = node.child_at as usize;
            let row = head.children[first].row;
            let Some((kind, slot)) = *side else {
                return Bottom {
                    shift: 0,
                    row,
                    slot: 0,
                    kind: BottomKind::Other,
                };
            };
            let shift = (end as u32).wrapping_sub(node.child_at);
            for child in &head.children[first..=first + node.child_count as usize] {
                starts[end] = (child.row - row) as u16;
                end += 1;
            }
            Bottom {
                shift,
                row,
                slot: slot as u32,
                kind,
            }
        });
        Self {
            nodes: nodes.collect(),
            starts,
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        (self.nodes.len() * size_of::<Bottom>() + self.starts.len() * 2) as u64
    }

    /// Whether a node is one of these.
    pub(crate) fn contains(&self, node: usize) -> bool {
        self.nodes[node].kind != BottomKind::Other
    }

    /// The groups of consecutive children as one run, which may be empty; `None` for other nodes.
    #[inline]
    pub(crate) fn groups(&self, node: usize, children: Range<usize>, level: usize) -> Option<Run> {
        let bottom = &self.nodes[node];
        let level = match bottom.kind {
            BottomKind::Other => return None,
            BottomKind::Below => level + 1,
            BottomKind::Here => level,
        };
        let at = |child: usize| (child as u32).wrapping_add(bottom.shift) as usize;
        let (first, end) = (
            self.starts[at(children.start)],
            self.starts[at(children.end)],
        );
        let slot = bottom.slot as usize;
        Some(Run {
            level,
            slots: slot + usize::from(first)..slot + usize::from(end),
            row: bottom.row + u32::from(first),
        })
    }

    /// Starts loading what is known about a node.
    #[inline]
    pub(crate) fn prefetch_node(&self, node: usize) {
        prefetch(&self.nodes, node);
    }

    /// Starts loading the number of a child; says whether there is one.
    #[inline]
    pub(crate) fn prefetch_child(&self, node: usize, child: usize) -> bool {
        let bottom = &self.nodes[node];
        let has_numbers = bottom.kind != BottomKind::Other;
        if has_numbers {
            prefetch(
                &self.starts,
                (child as u32).wrapping_add(bottom.shift) as usize,
            );
        }
        has_numbers
    }
}

/// Whether a node's children are all groups of one region without a gap, and their first slot.
fn side_by_side(head: &Head, node: &Node) -> Option<(BottomKind, usize)> {
    let rows = head.node_rows(node);
    if rows.len() > usize::from(u16::MAX) {
        return None;
    }
    let mut found = None;
    for (child_rows, link) in head.links_of(node) {
        let (kind, slot) = match link {
            Link::Node(_) => return None,
            Link::Below(slot) => (BottomKind::Below, slot),
            Link::Here(slot) => (BottomKind::Here, slot),
        };
        let first = slot.checked_sub((child_rows.start - rows.start) as usize)?;
        if *found.get_or_insert((kind, first)) != (kind, first) {
            return None;
        }
    }
    found
}
