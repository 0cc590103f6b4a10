//! The head: the upper levels of the Elf, where subtrees are still large.
//!
//! Nodes are in level order. A node's children are one contiguous run of [`Child`] entries, or of row numbers where
//! they are groups side by side (`bottom`), so a child needs no pointer to be found: only its position, by arithmetic
//! (dense), by rank (bitmap) or by search (sorted). The run has one entry more than the node has children; it says
//! where the last child's rows end.

use hotshelf_tier::simd::prefetch;

/// What a child entry leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// A node of the next level.
    Node(usize),
    /// A group in the next level's region, from this slot on: all its rows share the child's code.
    Below(usize),
    /// A group in the node's own level's region: its rows have several codes, from the child's code up to
    /// but excluding the next child's.
    Here(usize),
}

const TAG_SHIFT: u32 = 30;
const TAG_BELOW: u32 = 1;
const TAG_HERE: u32 = 2;
const VALUE_MASK: u32 = (1 << TAG_SHIFT) - 1;

impl Link {
    #[inline]
    pub(crate) fn unpack(word: u32) -> Self {
        let value = (word & VALUE_MASK) as usize;
        match word >> TAG_SHIFT {
            0 => Self::Node(value),
            TAG_BELOW => Self::Below(value),
            _ => Self::Here(value),
        }
    }

    pub(crate) fn pack(self) -> u32 {
        match self {
            Self::Node(value) => value as u32,
            Self::Below(value) => value as u32 | TAG_BELOW << TAG_SHIFT,
            Self::Here(value) => value as u32 | TAG_HERE << TAG_SHIFT,
        }
    }
}

/// A child of a node: the first of its rows and a packed [`Link`]. Its rows end where the next entry's
/// start; an absent code of a dense node has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) row: u32,
    pub(crate) link: u32,
}

/// How a node finds the child of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// One child per code from the first to the last; absent codes have no rows.
    Dense,
    /// One bit per code from the first to the last, and the number of bits before each word.
    Bitmap,
    /// A sorted array of the children's first codes.
    Sorted,
}

/// What the children of a node are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bottom {
    /// Nodes and groups; each has an entry.
    Mixed,
    /// Groups side by side in the next level's region.
    Below,
    /// Groups side by side in the node's own level's region.
    Here,
}

/// A node of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) bottom: Bottom,
    pub(crate) first_code: u32,
    /// Codes from the first to the last child's first code, minus one.
    pub(crate) last_offset: u32,
    pub(crate) child_count: u32,
    /// The first child's entry; its row number if the node is a bottom.
    pub(crate) child_at: u32,
    /// First bitmap word or first sorted code; unused in dense nodes.
    pub(crate) codes_at: u32,
    /// The first row.
    pub(crate) row: u32,
    /// The first slot of a bottom's rows.
    pub(crate) slot: u32,
}

/// The nodes and what they refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Head {
    pub(crate) nodes: Vec<Node>,
    pub(crate) children: Vec<Child>,
    /// The rows of a bottom before each of its children.
    pub(crate) starts: Vec<u16>,
    pub(crate) bitmaps: Vec<u64>,
    /// Set bits of the node's bitmap before each word.
    pub(crate) ranks: Vec<u32>,
    pub(crate) codes: Vec<u32>,
}

impl Head {
    pub(crate) fn size_bytes(&self) -> u64 {
        let words = self.children.len() + self.bitmaps.len();
        let halves = self.ranks.len() + self.codes.len();
        let nodes = self.nodes.len() * size_of::<Node>();
        (nodes + words * 8 + halves * 4 + self.starts.len() * 2) as u64
    }

    /// The first row of a node's child; of the entry after the last one, where its rows end.
    #[inline]
    pub(crate) fn row_at(&self, node: &Node, child: usize) -> u32 {
        match node.bottom {
            Bottom::Mixed => self.children[child].row,
            Bottom::Below | Bottom::Here => node.row + u32::from(self.starts[child]),
        }
    }

    /// What a node's child leads to.
    #[inline]
    pub(crate) fn link_of(&self, node: &Node, child: usize) -> Link {
        let slot = |child: usize| node.slot as usize + usize::from(self.starts[child]);
        match node.bottom {
            Bottom::Mixed => Link::unpack(self.children[child].link),
            Bottom::Below => Link::Below(slot(child)),
            Bottom::Here => Link::Here(slot(child)),
        }
    }

    /// Whether a node's child has several codes.
    #[inline]
    fn is_bucket(&self, node: &Node, child: usize) -> bool {
        match node.bottom {
            Bottom::Mixed => self.children[child].link >> TAG_SHIFT == TAG_HERE,
            Bottom::Below => false,
            Bottom::Here => true,
        }
    }

    /// How many of a node's children, from the `from`-th on, start at or before a row of the node.
    pub(crate) fn started(&self, node: &Node, from: usize, row: u32) -> usize {
        let end = (node.child_at + node.child_count) as usize;
        let range = node.child_at as usize + from..end;
        match node.bottom {
            Bottom::Mixed => self.children[range].partition_point(|child| child.row <= row),
            Bottom::Below | Bottom::Here => {
                let before = row - node.row;
                self.starts[range].partition_point(|&start| u32::from(start) <= before)
            }
        }
    }

    /// The sorted codes of a sorted node.
    #[inline]
    pub(crate) fn codes_of(&self, node: &Node) -> &[u32] {
        &self.codes[node.codes_at as usize..][..node.child_count as usize]
    }

    /// Rows of a child.
    #[inline]
    pub(crate) fn rows_of(&self, node: &Node, child: usize) -> std::ops::Range<u32> {
        self.row_at(node, child)..self.row_at(node, child + 1)
    }

    /// The first code of a node's `idx`-th child.
    pub(crate) fn code_at(&self, node: &Node, idx: u32) -> u32 {
        match node.kind {
            NodeKind::Dense => node.first_code + idx,
            NodeKind::Sorted => self.codes_of(node)[idx as usize],
            NodeKind::Bitmap => {
                let word_count = (node.last_offset / 64 + 1) as usize;
                let ranks = &self.ranks[node.codes_at as usize..][..word_count];
                let word_idx = ranks.partition_point(|&rank| rank <= idx) - 1;
                let mut word = self.bitmaps[node.codes_at as usize + word_idx];
                for _ in ranks[word_idx]..idx {
                    word &= word - 1;
                }
                node.first_code + word_idx as u32 * 64 + word.trailing_zeros()
            }
        }
    }

    /// Starts loading what is known about a child.
    #[inline]
    pub(crate) fn prefetch_entry(&self, node: &Node, child: usize) {
        match node.bottom {
            Bottom::Mixed => prefetch(&self.children, child),
            Bottom::Below | Bottom::Here => prefetch(&self.starts, child),
        }
    }

    /// Starts loading what finding the child of `code` takes.
    #[inline]
    pub(crate) fn prefetch_child(&self, node: &Node, code: u32) {
        let offset = code.saturating_sub(node.first_code).min(node.last_offset) as usize;
        match node.kind {
            NodeKind::Dense => self.prefetch_entry(node, node.child_at as usize + offset),
            NodeKind::Bitmap => prefetch(&self.bitmaps, node.codes_at as usize + offset / 64),
            NodeKind::Sorted => {
                let middle = node.child_count as usize / 2;
                prefetch(&self.codes, node.codes_at as usize + middle);
            }
        }
    }

    /// The entry of the child that may hold rows with `code`.
    #[inline]
    pub(crate) fn child_of(&self, node: &Node, code: u32) -> Option<usize> {
        let offset = code.wrapping_sub(node.first_code);
        match node.kind {
            NodeKind::Dense if offset <= node.last_offset => {
                Some(node.child_at as usize + offset as usize)
            }
            NodeKind::Bitmap if offset <= node.last_offset => {
                let word_idx = node.codes_at as usize + (offset / 64) as usize;
                let word = self.bitmaps[word_idx];
                let bit = 1u64 << (offset % 64);
                let rank = self.ranks[word_idx] + (word & (bit - 1)).count_ones();
                (word & bit != 0).then_some(node.child_at as usize + rank as usize)
            }
            NodeKind::Sorted => {
                let codes = self.codes_of(node);
                let idx = codes.partition_point(|&one| one <= code).checked_sub(1)?;
                let child = node.child_at as usize + idx;
                (codes[idx] == code || self.is_bucket(node, child)).then_some(child)
            }
            _ => None,
        }
    }

    /// The entries of those children of a node that may hold codes in `lo..=hi`.
    #[inline]
    pub(crate) fn children_within(
        &self,
        node: &Node,
        (lo, hi): (u32, u32),
    ) -> std::ops::Range<usize> {
        // Children before which smaller first codes stand, as many as `code` allows.
        let before = |code: u32| match node.kind {
            NodeKind::Sorted => self.codes_of(node).partition_point(|&one| one < code) as u32,
            _ if code <= node.first_code => 0,
            _ if code - node.first_code > node.last_offset => node.child_count,
            NodeKind::Dense => code - node.first_code,
            NodeKind::Bitmap => {
                let offset = code - node.first_code;
                let word_idx = node.codes_at as usize + (offset / 64) as usize;
                let below = self.bitmaps[word_idx] & ((1u64 << (offset % 64)) - 1);
                self.ranks[word_idx] + below.count_ones()
            }
        };
        let mut first = before(lo);
        if node.kind == NodeKind::Sorted
            && self.codes_of(node).get(first as usize) != Some(&lo)
            && let Some(before) = first.checked_sub(1)
            && self.is_bucket(node, (node.child_at + before) as usize)
        {
            // The bucket before may reach so far.
            first = before;
        }
        let end = hi
            .checked_add(1)
            .map_or(node.child_count, before)
            .max(first);
        (node.child_at + first) as usize..(node.child_at + end) as usize
    }

    /// Calls `visit(child, code)` for the children that may hold rows with codes in `lo..=hi`, ascending;
    /// `code` is absent for a child with several codes.
    #[inline]
    pub(crate) fn for_children<B>(
        &self,
        node: &Node,
        (lo, hi): (u32, u32),
        mut visit: impl FnMut(usize, Option<u32>) -> std::ops::ControlFlow<B>,
    ) -> std::ops::ControlFlow<B> {
        let (first, last) = (
            node.first_code,
            node.first_code.saturating_add(node.last_offset),
        );
        let child_at = node.child_at as usize;
        if node.kind == NodeKind::Sorted {
            let codes = self.codes_of(node);
            let start = codes.partition_point(|&one| one <= lo).saturating_sub(1);
            for (idx, &code) in codes.iter().enumerate().skip(start) {
                if code > hi {
                    break;
                }
                let child = child_at + idx;
                if self.is_bucket(node, child) {
                    visit(child, None)?;
                } else if code >= lo {
                    visit(child, Some(code))?;
                }
            }
            return std::ops::ControlFlow::Continue(());
        }
        let (lo, hi) = (lo.max(first), hi.min(last));
        if lo > hi {
            return std::ops::ControlFlow::Continue(());
        }
        let (from, to) = ((lo - first) as usize, (hi - first) as usize);
        if node.kind == NodeKind::Dense {
            for offset in from..=to {
                visit(child_at + offset, Some(first + offset as u32))?;
            }
            return std::ops::ControlFlow::Continue(());
        }
        let bitmap_at = node.codes_at as usize;
        for word_idx in from / 64..=to / 64 {
            let mut word = self.bitmaps[bitmap_at + word_idx];
            let mut rank = self.ranks[bitmap_at + word_idx] as usize;
            if word_idx == from / 64 {
                let below = (1u64 << (from % 64)) - 1;
                rank += (word & below).count_ones() as usize;
                word &= !below;
            }
            if word_idx == to / 64 {
                word &= u64::MAX >> (63 - to % 64);
            }
            while word != 0 {
                let offset = word_idx * 64 + word.trailing_zeros() as usize;
                visit(child_at + rank, Some(first + offset as u32))?;
                rank += 1;
                word &= word - 1;
            }
        }
        std::ops::ControlFlow::Continue(())
    }
}
