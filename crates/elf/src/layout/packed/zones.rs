//! Smallest and largest codes below the larger nodes, for the node's column and those after it.
//!
//! A query skips a node whose codes lie outside its ranges, and takes one whole whose codes lie inside.

use std::ops::Range;

use crate::rows::RowShape;

use super::head::{Head, Link, Node};

/// Nodes with fewer rows have no zone: reading their leaves costs about as much.
const ZONE_ROWS_MIN: u32 = 512;

/// No zone.
const NONE: u32 = u32::MAX;

/// Bounds of no codes.
pub(crate) const EMPTY: Bounds = (u32::MAX, 0);

/// Inclusive bounds of one column's codes.
pub(crate) type Bounds = (u32, u32);

/// The zones of all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Zones {
    /// Per node, where its bounds start: one pair for its column and each after it. Empty without zones.
    pub(crate) starts: Vec<u32>,
    pub(crate) bounds: Vec<Bounds>,
}

/// Rows that belong to the zone of a node and of none below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ZoneRows {
    pub(crate) node: usize,
    pub(crate) rows: Vec<Range<u32>>,
}

impl Head {
    /// The rows below a node.
    pub(crate) fn node_rows(&self, node: &Node) -> Range<u32> {
        let end = (node.child_at + node.child_count) as usize;
        node.row..self.row_at(node, end)
    }

    /// The entries of a node's children that have rows, and their links.
    pub(crate) fn links_of(&self, node: &Node) -> impl Iterator<Item = (Range<u32>, Link)> {
        let first = node.child_at as usize;
        (first..first + node.child_count as usize)
            .map(|child| (self.rows_of(node, child), self.link_of(node, child)))
            .filter(|(rows, _)| !rows.is_empty())
    }

    /// The level of every node.
    pub(crate) fn node_levels(&self) -> Vec<u8> {
        let mut levels = vec![0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for (_, link) in self.links_of(node) {
                if let Link::Node(child) = link {
                    levels[child] = levels[at] + 1;
                }
            }
        }
        levels
    }
}

impl Zones {
    /// Zones without contents for all large nodes, and the rows each must take in: those outside smaller
    /// zones, and one row of each child with a zone, for the child's own code.
    pub(crate) fn plan(head: &Head, dimension_count: usize) -> (Self, Vec<ZoneRows>) {
        let levels = head.node_levels();
        let (mut zones, mut work) = (Self::default(), Vec::new());
        for (at, node) in head.nodes.iter().enumerate() {
            if head.node_rows(node).len() < ZONE_ROWS_MIN as usize {
                zones.starts.push(NONE);
                continue;
            }
            zones.starts.push(zones.bounds.len() as u32);
            let column_count = dimension_count - usize::from(levels[at]);
            zones
                .bounds
                .resize(zones.bounds.len() + column_count, EMPTY);
            let mut rows: Vec<Range<u32>> = Vec::new();
            for (mut range, link) in head.links_of(node) {
                if matches!(link, Link::Node(_)) && range.len() >= ZONE_ROWS_MIN as usize {
                    range.end = range.start + 1;
                }
                match rows.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => rows.push(range),
                }
            }
            work.push(ZoneRows { node: at, rows });
        }
        (zones, work)
    }

    /// The bounds of a node's last `column_count` columns, its own and those after it, if it has a zone.
    #[inline]
    pub(crate) fn of(&self, node: usize, column_count: usize) -> Option<&[Bounds]> {
        let start = *self.starts.get(node)?;
        (start != NONE).then(|| &self.bounds[start as usize..][..column_count])
    }

    /// Takes what was found for each node and spreads it to the nodes above.
    pub(crate) fn fill(
        &mut self,
        head: &Head,
        dimension_count: usize,
        found: impl IntoIterator<Item = (usize, Vec<Bounds>)>,
    ) {
        for (node, bounds) in found {
            let start = self.starts[node] as usize;
            self.bounds[start..start + bounds.len()].copy_from_slice(&bounds);
        }
        let levels = head.node_levels();
        for at in (0..head.nodes.len()).rev() {
            for (_, link) in head.links_of(&head.nodes[at]) {
                if let Link::Node(child) = link
                    && self.starts[child] != NONE
                {
                    self.lift(at, child, dimension_count - usize::from(levels[child]));
                }
            }
        }
    }

    /// Adds a child's zone to its parent's, whose first column the child does not have.
    fn lift(&mut self, parent: usize, child: usize, column_count: usize) {
        let (parent, child) = (
            self.starts[parent] as usize + 1,
            self.starts[child] as usize,
        );
        for column in 0..column_count {
            let (lo, hi) = self.bounds[child + column];
            let target = &mut self.bounds[parent + column];
            *target = (target.0.min(lo), target.1.max(hi));
        }
    }
}

/// Widens `bounds` to take in the codes of a row from column `first` on.
#[inline]
pub(crate) fn widen(bounds: &mut [Bounds], shape: &RowShape, row: &[u64], first: usize) {
    for (idx, bounds) in bounds.iter_mut().enumerate() {
        let code = shape.code(row, first + idx);
        *bounds = (bounds.0.min(code), bounds.1.max(code));
    }
}
