//! Finding the shape of an Elf from its rows, one after the other in key order.
//!
//! A prefix shared by more than [`Cut::group_rows_max`] rows becomes a node, any other a group below its
//! parent node. Runs of small groups are joined into buckets of up to [`Cut::bucket_rows_max`] rows, so
//! that a column of many codes does not cost an entry per row; but not where their rows would need another
//! suffix word for the code they no longer share. All decisions are made as soon as the rows
//! have been seen, in memory that depends on the head and not on the rows: building in memory and from
//! sorted files gives the same Elf.

use std::collections::VecDeque;

use crate::rows::{RowShape, code_bits, place_tightly};

use super::head::{Child, Head, Link, NodeKind};

/// A dense node may have this many codes per child at most.
const DENSE_SPAN: u64 = 2;

/// A bitmap node may have this many codes per child at most: then its bits cost no more than sorted codes.
const BITMAP_SPAN: u64 = 21;

/// What a group of its own costs: a child's entry, its code, and the number of rows before it.
const ENTRY_BYTES: usize = 14;

/// Where subtrees are cut into groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) group_rows_max: usize,
    pub(crate) bucket_rows_max: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DraftKind {
    Node(usize),
    /// Rows with one code.
    Single,
    /// Rows with several codes.
    Bucket,
}

#[derive(Debug, Clone, Copy)]
struct DraftChild {
    code: u32,
    row: u32,
    kind: DraftKind,
}

#[derive(Debug)]
struct DraftNode {
    children: Vec<DraftChild>,
    end: u32,
}

/// A group: `level` of its region, its first row, and the node it hangs off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) row: u32,
    pub(crate) slot: u32,
    pub(crate) level: u8,
    /// The parent node; `u32::MAX` when the whole Elf is one group.
    pub(crate) node: u32,
}

/// The shape of an Elf.
#[derive(Debug)]
pub(crate) struct Skeleton {
    pub(crate) head: Head,
    pub(crate) root: Link,
    /// All groups in row order.
    pub(crate) groups: Vec<Group>,
    /// Rows in each level's region.
    pub(crate) slot_counts: Vec<usize>,
    /// Distinct prefixes of length 1, 2, … up to the number of dimensions.
    pub(crate) prefix_counts: Vec<u64>,
    pub(crate) row_count: usize,
}

/// Takes rows in key order and finds the skeleton.
pub(crate) struct SkeletonBuilder<'a> {
    shape: &'a RowShape,
    cut: Cut,
    /// Per level, the rows of the largest group worth joining to others.
    joined_rows_max: Vec<usize>,
    row_count: usize,
    previous: Vec<u64>,
    /// Per level, the first row of the run of rows that agree up to and including it.
    run_starts: Vec<usize>,
    /// Per level, the finished children of the open node there.
    open: Vec<Vec<DraftChild>>,
    /// No level above this one has children in `open`.
    open_end: usize,
    nodes: Vec<DraftNode>,
    /// Rows whose first difference to their predecessor is at each level.
    difference_counts: Vec<u64>,
}

impl<'a> SkeletonBuilder<'a> {
    pub(crate) fn new(shape: &'a RowShape, cut: Cut) -> Self {
        let dimension_count = shape.dimension_count();
        let widths: Vec<u32> = shape.code_max().iter().map(|&max| code_bits(max)).collect();
        let word_count = |level: usize| place_tightly(&widths[level..]).1;
        let joined_rows_max = (0..dimension_count).map(|level| {
            // A bucket's rows keep their codes of the level. Fewer codes may need more words, where more happened to
            // fill them.
            let more_bytes = 8 * word_count(level).saturating_sub(word_count(level + 1));
            ENTRY_BYTES.checked_div(more_bytes).unwrap_or(usize::MAX)
        });
        Self {
            shape,
            cut,
            joined_rows_max: joined_rows_max.collect(),
            row_count: 0,
            previous: vec![0; shape.word_count()],
            run_starts: vec![0; dimension_count],
            open: vec![Vec::new(); dimension_count],
            open_end: 0,
            nodes: Vec::new(),
            difference_counts: vec![0; dimension_count + 1],
        }
    }

    /// Adds the next row.
    #[inline]
    pub(crate) fn push(&mut self, row: &[u64]) {
        let words = self.shape.word_count();
        if self.row_count > 0 {
            let level = self.shape.first_difference(&self.previous, row);
            self.difference_counts[level] += 1;
            self.close_from(level);
        }
        self.previous.copy_from_slice(&row[..words]);
        self.row_count += 1;
    }

    /// Ends the runs of `level` and all deeper levels before the current row.
    #[inline]
    fn close_from(&mut self, level: usize) {
        let (end, depth) = (self.row_count, self.run_starts.len());
        if level == depth {
            return;
        }
        // The shallowest run that is not a node; what is below it does not matter.
        let is_group =
            |at: usize| end - self.run_starts[at] <= self.cut.group_rows_max || at + 1 == depth;
        let mut at = level;
        while !is_group(at) {
            at += 1;
        }
        for deeper in at + 1..self.open_end {
            self.open[deeper].clear();
        }
        self.open_end = level + 1;
        self.add_group(at);
        while at > level {
            let children = std::mem::take(&mut self.open[at]);
            self.nodes.push(DraftNode {
                children,
                end: end as u32,
            });
            at -= 1;
            self.add_child(at, DraftKind::Node(self.nodes.len() - 1));
        }
        self.run_starts[level..].fill(end);
    }

    fn add_child(&mut self, level: usize, kind: DraftKind) {
        let code = self.shape.code(&self.previous, level);
        let row = self.run_starts[level] as u32;
        self.open[level].push(DraftChild { code, row, kind });
    }

    /// Adds the current run of `level` as a group, or to the bucket before it if both are small.
    #[inline]
    fn add_group(&mut self, level: usize) {
        let (start, max) = (self.run_starts[level], self.joined_rows_max[level]);
        if let Some(last) = self.open[level].last_mut() {
            let joined = self.row_count - last.row as usize;
            let is_worth = self.row_count - start <= max
                && (last.kind == DraftKind::Bucket || start - last.row as usize <= max);
            if joined <= self.cut.bucket_rows_max
                && is_worth
                && !matches!(last.kind, DraftKind::Node(_))
            {
                last.kind = DraftKind::Bucket;
                return;
            }
        }
        self.add_child(level, DraftKind::Single);
    }

    /// The skeleton of all rows added.
    pub(crate) fn finish(mut self) -> Skeleton {
        let is_one_group = self.row_count <= self.cut.group_rows_max;
        if self.row_count > 0 {
            self.close_from(0);
        }
        let mut prefix_counts = Vec::with_capacity(self.run_starts.len());
        let mut distinct = u64::from(self.row_count > 0);
        for &count in &self.difference_counts[..self.run_starts.len()] {
            distinct += count;
            prefix_counts.push(distinct);
        }
        let mut slot_counts = vec![0; self.run_starts.len() + 1];
        if is_one_group {
            slot_counts[0] = self.row_count;
            let group = Group {
                row: 0,
                slot: 0,
                level: 0,
                node: u32::MAX,
            };
            let groups = if self.row_count > 0 {
                vec![group]
            } else {
                vec![]
            };
            let (head, row_count) = (Head::default(), self.row_count);
            return Skeleton {
                head,
                root: Link::Here(0),
                groups,
                slot_counts,
                prefix_counts,
                row_count,
            };
        }
        let children = std::mem::take(&mut self.open[0]);
        self.nodes.push(DraftNode {
            children,
            end: self.row_count as u32,
        });
        let order = level_order(&self.nodes);
        let mut layout = Layout {
            drafts: &self.nodes,
            order: &order,
            slot_counts,
            groups: vec![],
            links: vec![],
        };
        layout.links.resize(self.nodes.len(), vec![]);
        layout.assign_slots(self.nodes.len() - 1, 0);
        let (groups, slot_counts, links) = (layout.groups, layout.slot_counts, layout.links);
        let head = lay_out(&self.nodes, &order, &links);
        Skeleton {
            head,
            root: Link::Node(0),
            groups,
            slot_counts,
            prefix_counts,
            row_count: self.row_count,
        }
    }
}

/// Draft nodes in level order, and the position of each.
struct Order {
    drafts: Vec<usize>,
    positions: Vec<usize>,
}

/// The root is the last draft.
fn level_order(nodes: &[DraftNode]) -> Order {
    let mut positions = vec![0; nodes.len()];
    let mut drafts = Vec::with_capacity(nodes.len());
    let mut queue = VecDeque::from([nodes.len() - 1]);
    while let Some(draft) = queue.pop_front() {
        positions[draft] = drafts.len();
        drafts.push(draft);
        for child in &nodes[draft].children {
            if let DraftKind::Node(draft) = child.kind {
                queue.push_back(draft);
            }
        }
    }
    Order { drafts, positions }
}

/// Gives every group its slots, in row order within each level's region.
struct Layout<'a> {
    drafts: &'a [DraftNode],
    order: &'a Order,
    slot_counts: Vec<usize>,
    groups: Vec<Group>,
    /// Per draft, the links of its children.
    links: Vec<Vec<Link>>,
}

impl Layout<'_> {
    fn assign_slots(&mut self, draft: usize, level: usize) {
        let node = &self.drafts[draft];
        let mut links = Vec::with_capacity(node.children.len());
        for (idx, child) in node.children.iter().enumerate() {
            let end = node.children.get(idx + 1).map_or(node.end, |next| next.row);
            let region = if child.kind == DraftKind::Single {
                level + 1
            } else {
                level
            };
            let slot = self.slot_counts[region];
            links.push(match child.kind {
                DraftKind::Node(draft) => {
                    self.assign_slots(draft, level + 1);
                    Link::Node(self.order.positions[draft])
                }
                DraftKind::Single => Link::Below(slot),
                DraftKind::Bucket => Link::Here(slot),
            });
            if !matches!(child.kind, DraftKind::Node(_)) {
                self.slot_counts[region] += (end - child.row) as usize;
                self.groups.push(Group {
                    row: child.row,
                    slot: slot as u32,
                    level: region as u8,
                    node: self.order.positions[draft] as u32,
                });
            }
        }
        self.links[draft] = links;
    }
}

fn lay_out(drafts: &[DraftNode], order: &Order, links: &[Vec<Link>]) -> Head {
    let mut head = Head::default();
    for &draft in &order.drafts {
        head.push(&drafts[draft], &links[draft]);
    }
    head.settle();
    head
}

impl Head {
    fn push(&mut self, draft: &DraftNode, links: &[Link]) {
        let (first, last) = match (draft.children.first(), draft.children.last()) {
            (Some(first), Some(last)) => (first.code, last.code),
            _ => (0, 0),
        };
        let has_buckets = draft
            .children
            .iter()
            .any(|child| child.kind == DraftKind::Bucket);
        let (span, count) = (u64::from(last - first) + 1, draft.children.len() as u64);
        let kind = match span {
            _ if has_buckets => NodeKind::Sorted,
            span if span <= DENSE_SPAN * count => NodeKind::Dense,
            span if span <= BITMAP_SPAN * count => NodeKind::Bitmap,
            _ => NodeKind::Sorted,
        };
        let codes_at = match kind {
            NodeKind::Dense => 0,
            NodeKind::Bitmap => self.push_bitmap(first, span, &draft.children),
            NodeKind::Sorted => {
                self.codes
                    .extend(draft.children.iter().map(|child| child.code));
                (self.codes.len() - draft.children.len()) as u32
            }
        };
        let mut children = Vec::with_capacity(draft.children.len());
        let mut next_code = first;
        for (child, link) in draft.children.iter().zip(links) {
            if kind == NodeKind::Dense {
                for _ in next_code..child.code {
                    children.push(Child {
                        row: child.row,
                        link: 0,
                    });
                }
                next_code = child.code.wrapping_add(1);
            }
            children.push(Child {
                row: child.row,
                link: link.pack(),
            });
        }
        self.push_node(kind, (first, last - first, codes_at), &children, draft.end);
    }

    fn push_bitmap(&mut self, first: u32, span: u64, children: &[DraftChild]) -> u32 {
        let at = self.bitmaps.len();
        self.bitmaps.resize(at + span.div_ceil(64) as usize, 0);
        for child in children {
            let offset = (child.code - first) as usize;
            self.bitmaps[at + offset / 64] |= 1 << (offset % 64);
        }
        let mut rank = 0;
        for word in &self.bitmaps[at..] {
            self.ranks.push(rank);
            rank += word.count_ones();
        }
        at as u32
    }
}
