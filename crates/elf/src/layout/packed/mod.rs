//! The project's own layout: sorted packed rows in blocks, under a small head.
//!
//! An Elf is a sorted table without its prefixes. The *head* keeps the upper levels, where a prefix is
//! shared by many rows: nodes in level order without pointers between entries. Below a prefix that few
//! rows share stands a *group*: the rows' remaining codes, packed so that a few vector instructions test
//! all of them. Every child of a node knows its first row, so counting a prefix range never reads a leaf.
//!
//! * `skeleton` finds the shape, `build` writes the leaves; `external` does so with runs in files, and `fill` for it;
//! * `head`, `bottom`, `geometry`, `mark`, `fence`, `leaf` and `block` are the parts;
//! * `exact`, `probe`, `batch`, `select`, `estimate`, `output` and `tids` answer queries;
//! * `blocks` is where blocks come from; `frames`, `parts` and `shelved` answer queries over those that are elsewhere;
//! * `upper` is a head of its upper levels alone; `codes` reads rows back, `first` the codes of the first dimension;
//! * `file`, `arrays` and `verify` read, write and check.

mod arrays;
mod batch;
mod block;
mod blocks;
mod bottom;
mod build;
mod codes;
mod estimate;
mod exact;
mod external;
mod fence;
mod file;
mod fill;
mod first;
mod frames;
mod geometry;
mod head;
mod leaf;
mod mark;
mod output;
mod parts;
mod probe;
mod rows;
mod search;
mod select;
mod shelved;
mod skeleton;
mod tids;
mod upper;
mod verify;
mod walk;
mod zones;

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod lying_tests;
#[cfg(test)]
mod shelved_tests;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

use hotshelf_tier::simd::Backend;

pub use blocks::{BlockReads, BlockSource, FetchedBlocks, Frame, Paging};
pub use external::{ExternalBuilder, WrittenElf};
pub use file::HeadPlaces;
use geometry::Geometry;
use head::{Bottom, Head, Link};
use leaf::Leaves;
pub use parts::{Found, Part, Search, Wanted};
pub use shelved::{FetchBlocks, ShelvedElf};
pub use upper::{HeadPart, UpperHead};
use zones::Zones;

/// How a packed Elf is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedOptions {
    /// Leave TIDs out: the table itself is stored in Elf order, and TIDs are row numbers.
    pub clustered: bool,
    /// Keep smallest and largest codes of the larger nodes.
    pub zones: bool,
    /// Threads that build.
    pub thread_count: usize,
    /// A prefix with more rows becomes a node of the head.
    pub group_rows_max: usize,
    /// Neighbouring groups are joined up to this many rows.
    pub bucket_rows_max: usize,
    /// What tells the blocks of this Elf from those of any other: part of their checksums.
    pub salt: u64,
}

impl Default for PackedOptions {
    fn default() -> Self {
        Self {
            clustered: false,
            zones: true,
            thread_count: 1,
            group_rows_max: 64,
            bucket_rows_max: 24,
            salt: 0,
        }
    }
}

/// What one level of a packed Elf holds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LevelShape {
    /// Nodes of the head.
    pub nodes: f64,
    /// Children with rows that queries visit one by one.
    pub children: f64,
    /// Groups in the level's leaf region.
    pub groups: f64,
    /// Rows in the level's leaf region.
    pub rows: f64,
    /// Suffix words of such a row.
    pub words: f64,
}

/// All of an Elf but its leaf blocks: the upper levels, and where rows lie in the blocks.
///
/// Invariants, established by the builder and checked when a file is read:
/// 1. Nodes, children, bitmaps and sorted codes are in level order, each referred to exactly once.
/// 2. The children of a node tile its rows; codes ascend strictly.
/// 3. The groups of one level fill that level's region in row order without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfHead {
    row_count: usize,
    geometry: Geometry,
    head: Head,
    root: Link,
    zones: Zones,
    /// One for each block; none in files of earlier versions.
    fences: Vec<u16>,
    /// Distinct prefixes of length 1, 2, ….
    prefix_counts: Vec<u64>,
    backend: Backend,
}

/// An Elf in the packed layout. `S` has the leaf blocks: all of them in memory, or those that were fetched for a
/// query. Rows ascend by (codes, TID) and TIDs are distinct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedElf<S = Vec<u64>> {
    upper: Arc<ElfHead>,
    leaves: S,
}

impl<S> Deref for PackedElf<S> {
    type Target = ElfHead;

    #[inline(always)]
    fn deref(&self) -> &ElfHead {
        &self.upper
    }
}

impl ElfHead {
    /// Number of dimensions.
    pub fn dimension_count(&self) -> usize {
        self.geometry.dimension_count()
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Whether TIDs are row numbers.
    pub fn is_clustered(&self) -> bool {
        self.geometry.clustered
    }

    /// Bytes of one leaf block.
    pub fn block_bytes(&self) -> usize {
        self.geometry.block_words * 8
    }

    /// Distinct prefixes of length 1, 2, … up to the number of dimensions: the number of lists a
    /// `linear` Elf could have per level, exact.
    pub fn prefix_counts(&self) -> &[u64] {
        &self.prefix_counts
    }

    /// What every level of the Elf holds, for estimates.
    pub fn level_shapes(&self) -> Vec<LevelShape> {
        let geometry = &self.geometry;
        let mut shapes: Vec<LevelShape> = geometry
            .shapes
            .iter()
            .zip(&geometry.slot_counts)
            .map(|(shape, &rows)| LevelShape {
                rows: rows as f64,
                words: shape.word_count() as f64,
                ..LevelShape::default()
            })
            .collect();
        if self.head.nodes.is_empty() {
            shapes[0].groups = 1.0;
        }
        let levels = self.head.node_levels();
        for (node, &level) in self.head.nodes.iter().zip(&levels) {
            let level = usize::from(level);
            shapes[level].nodes += 1.0;
            let is_visited_at_once = node.bottom != Bottom::Mixed;
            for (_, link) in self.head.links_of(node) {
                shapes[level].children += if is_visited_at_once { 0.0 } else { 1.0 };
                match link {
                    Link::Node(_) => {}
                    Link::Below(_) => shapes[level + 1].groups += 1.0,
                    Link::Here(_) => shapes[level].groups += 1.0,
                }
            }
        }
        shapes
    }

    /// Bytes of the head with zones and fences: what should stay in fast memory.
    pub fn head_bytes(&self) -> u64 {
        let zones = self.zones.starts.len() * 4 + self.zones.bounds.len() * 8;
        let fences = self.fences.len() * 2;
        self.head.size_bytes() + (zones + fences) as u64
    }

    /// Bytes of the leaf blocks.
    pub fn leaf_bytes(&self) -> u64 {
        (self.geometry.block_count() * self.geometry.block_words * 8) as u64
    }

    /// Bytes of head and leaves.
    pub fn size_bytes(&self) -> u64 {
        self.head_bytes() + self.leaf_bytes()
    }
}

impl<S> PackedElf<S> {
    /// The Elf of a head and the blocks it leads to.
    pub fn new(upper: Arc<ElfHead>, leaves: S) -> Self {
        Self { upper, leaves }
    }

    /// Everything but the blocks.
    pub fn upper(&self) -> &Arc<ElfHead> {
        &self.upper
    }

    /// Where the blocks are.
    pub fn blocks(&self) -> &S {
        &self.leaves
    }

    /// The same Elf answering with given vector instructions.
    pub fn with_backend(mut self, backend: Backend) -> Self {
        Arc::make_mut(&mut self.upper).backend = backend;
        self
    }
}

impl<S: BlockSource> PackedElf<S> {
    #[inline]
    fn leaf_view(&self) -> Leaves<'_, S> {
        Leaves {
            geometry: &self.geometry,
            blocks: &self.leaves,
        }
    }
}
