//! Children of the nodes just above the leaves, in two bytes each.
//!
//! Most descents end at a node whose children are groups that lie side by side in one leaf region. Then the number of
//! the node's rows before a child says all that an entry would, and a table of these numbers, a quarter of the entries'
//! size, stays in the caches.

use std::ops::Range;

use hotshelf_tier::region::prefer_huge_pages;

use super::head::{Bottom, Child, Head, Link, Node, NodeKind};
use super::leaf::Run;

impl Head {
    /// Adds a node with these children, the rows of the last of which end at `end`: first code, codes to the last one,
    /// and where its codes are.
    pub(crate) fn push_node(
        &mut self,
        kind: NodeKind,
        (first_code, last_offset, codes_at): (u32, u32, u32),
        children: &[Child],
        end: u32,
    ) {
        let row = children.first().map_or(end, |child| child.row);
        let (bottom, slot) = side_by_side(children, end);
        let child_at = match bottom {
            Bottom::Mixed => {
                self.children.extend_from_slice(children);
                self.children.push(Child { row: end, link: 0 });
                self.children.len() - children.len() - 1
            }
            Bottom::Below | Bottom::Here => {
                let starts = children.iter().map(|child| (child.row - row) as u16);
                self.starts.extend(starts);
                self.starts.push((end - row) as u16);
                self.starts.len() - children.len() - 1
            }
        };
        self.nodes.push(Node {
            kind,
            bottom,
            first_code,
            last_offset,
            child_count: children.len() as u32,
            child_at: child_at as u32,
            codes_at,
            row,
            slot: slot as u32,
        });
    }

    /// Moves what descents read at random to huge pages.
    pub(crate) fn settle(&mut self) {
        let mut starts = vec![0; self.starts.len()];
        prefer_huge_pages(&mut starts);
        starts.copy_from_slice(&self.starts);
        self.starts = starts;
    }

    /// The groups of consecutive children as one run, which may be empty; `None` for nodes whose children have entries.
    #[inline]
    pub(crate) fn groups(&self, node: &Node, children: Range<usize>, level: usize) -> Option<Run> {
        let level = match node.bottom {
            Bottom::Mixed => return None,
            Bottom::Below => level + 1,
            Bottom::Here => level,
        };
        let (first, end) = (self.starts[children.start], self.starts[children.end]);
        let slot = node.slot as usize;
        Some(Run {
            level,
            slots: slot + usize::from(first)..slot + usize::from(end),
            row: node.row + u32::from(first),
        })
    }
}

/// Whether children are all groups of one region without a gap, and their first slot.
fn side_by_side(children: &[Child], end: u32) -> (Bottom, usize) {
    const MIXED: (Bottom, usize) = (Bottom::Mixed, 0);
    let row = children.first().map_or(end, |child| child.row);
    let ends = children.iter().skip(1).map(|child| child.row).chain([end]);
    let ascend = children
        .iter()
        .zip(ends.clone())
        .all(|(child, end)| child.row <= end);
    if !ascend || end - row > u32::from(u16::MAX) {
        return MIXED;
    }
    let mut found = None;
    for (child, end) in children.iter().zip(ends) {
        if child.row == end {
            continue;
        }
        let (bottom, slot) = match Link::unpack(child.link) {
            Link::Node(_) => return MIXED,
            Link::Below(slot) => (Bottom::Below, slot),
            Link::Here(slot) => (Bottom::Here, slot),
        };
        let Some(first) = slot.checked_sub((child.row - row) as usize) else {
            return MIXED;
        };
        if *found.get_or_insert((bottom, first)) != (bottom, first) {
            return MIXED;
        }
    }
    found.unwrap_or(MIXED)
}
