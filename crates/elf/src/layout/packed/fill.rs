//! Leaves and zones of rows that come one after the other, in key order.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::rows::RowShape;

use super::block::BlockWriter;
use super::fence::Fencer;
use super::geometry::Geometry;
use super::skeleton::{Group, Skeleton};
use super::zones::{Bounds, EMPTY, Zones, widen};

/// Blocks of one region that are collected before they are written.
const BUFFER_BLOCKS: usize = 1024;

/// Blocks of one region that are not yet written.
#[derive(Default)]
struct Region {
    blocks: Vec<u64>,
    /// Rows in the last of them.
    position: usize,
    /// Blocks written before.
    written: usize,
    fencer: Fencer,
    fences: Vec<u16>,
}

/// Puts rows into the blocks of their regions, and writes these to their places in a file.
pub(super) struct Filler<'a> {
    file: &'a File,
    leaves_at: u64,
    geometry: &'a Geometry,
    groups: &'a [Group],
    writers: Vec<BlockWriter<'a>>,
    regions: Vec<Region>,
    /// The group after the current one.
    next_group: usize,
}

impl<'a> Filler<'a> {
    /// For the leaves of an Elf with these groups, which begin at an offset of the file.
    pub fn new(
        file: &'a File,
        leaves_at: u64,
        shape: &'a RowShape,
        geometry: &'a Geometry,
        groups: &'a [Group],
    ) -> Self {
        let levels = 0..geometry.shapes.len();
        let writer = |level| BlockWriter::new(shape, geometry, level);
        Self {
            file,
            leaves_at,
            geometry,
            groups,
            writers: levels.clone().map(writer).collect(),
            regions: levels.map(|_| Region::default()).collect(),
            next_group: 0,
        }
    }

    /// Adds the row of this number.
    pub fn add(&mut self, row_idx: u32, row: &[u64]) -> io::Result<()> {
        let starts = |group: &Group| group.row <= row_idx;
        while self.groups.get(self.next_group).is_some_and(starts) {
            self.next_group += 1;
        }
        let level = usize::from(self.groups[self.next_group - 1].level);
        let rows_per_block = self.geometry.shapes[level].rows_per_block;
        if rows_per_block == 0 {
            return Ok(());
        }
        let block_words = self.geometry.block_words;
        let region = &self.regions[level];
        if region.blocks.is_empty() || region.position == rows_per_block {
            if region.blocks.len() == BUFFER_BLOCKS * block_words {
                self.flush(level)?;
            }
            let region = &mut self.regions[level];
            region.blocks.resize(region.blocks.len() + block_words, 0);
            region.position = 0;
        }
        let region = &mut self.regions[level];
        let last = region.blocks.len() - block_words;
        self.writers[level].put(&mut region.blocks[last..], region.position, row);
        region.position += 1;
        if region.position == rows_per_block {
            self.seal(level);
        }
        Ok(())
    }

    /// Writes the header of a region's last block.
    fn seal(&mut self, level: usize) {
        let block_words = self.geometry.block_words;
        let region = &mut self.regions[level];
        let last = region.blocks.len() - block_words;
        let number = self.geometry.first_blocks[level] + region.written + last / block_words;
        let block = &mut region.blocks[last..];
        self.writers[level].seal(self.geometry.name_of_block(number), block);
        let shape = &self.geometry.shapes[level];
        region
            .fences
            .push(region.fencer.next(shape, block, region.position));
    }

    fn flush(&mut self, level: usize) -> io::Result<()> {
        let block_words = self.geometry.block_words;
        let region = &mut self.regions[level];
        let number = self.geometry.first_blocks[level] + region.written;
        let offset = self.leaves_at + (number * block_words * 8) as u64;
        let words = region.blocks.iter();
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, offset)?;
        region.written += region.blocks.len() / block_words;
        region.blocks.clear();
        Ok(())
    }

    /// Writes what remains. Returns the fences of all blocks.
    pub fn finish(mut self) -> io::Result<Vec<u16>> {
        for level in 0..self.regions.len() {
            let region = &self.regions[level];
            if region.blocks.is_empty() {
                continue;
            }
            if region.position < self.geometry.shapes[level].rows_per_block {
                self.seal(level);
            }
            self.flush(level)?;
        }
        let fences = self.regions.into_iter().flat_map(|region| region.fences);
        Ok(fences.collect())
    }
}

/// Collects zones.
pub(super) struct Zoner<'a> {
    shape: &'a RowShape,
    zones: Zones,
    levels: Vec<u8>,
    /// Ranges of rows and the node each belongs to, the next last.
    ranges: Vec<(Range<u32>, usize)>,
    found: Vec<Option<Vec<Bounds>>>,
}

impl<'a> Zoner<'a> {
    /// For the rows of a skeleton; finds nothing unless zones are wanted.
    pub fn new(shape: &'a RowShape, skeleton: &Skeleton, is_wanted: bool) -> Self {
        let (zones, work) = match is_wanted {
            true => Zones::plan(&skeleton.head, shape.dimension_count()),
            false => Default::default(),
        };
        let of_node = |one: super::zones::ZoneRows| {
            let node = one.node;
            one.rows.into_iter().map(move |rows| (rows, node))
        };
        let mut ranges: Vec<_> = work.into_iter().flat_map(of_node).collect();
        // A row may belong to several nodes: their ranges start together and are short.
        ranges.sort_unstable_by_key(|(rows, _)| std::cmp::Reverse((rows.start, rows.end)));
        let levels = skeleton.head.node_levels();
        Self {
            shape,
            zones,
            found: vec![None; levels.len()],
            levels,
            ranges,
        }
    }

    /// The zones without contents: what they take is known.
    pub fn empty(&self) -> &Zones {
        &self.zones
    }

    /// Adds the row of this number.
    pub fn add(&mut self, row_idx: u32, row: &[u64]) {
        let is_over = |(rows, _): &(Range<u32>, usize)| rows.end <= row_idx;
        while self.ranges.last().is_some_and(is_over) {
            self.ranges.pop();
        }
        for (rows, node) in self.ranges.iter().rev() {
            if rows.start > row_idx {
                break;
            }
            if rows.contains(&row_idx) {
                let first = usize::from(self.levels[*node]);
                let column_count = self.shape.dimension_count() - first;
                let bounds = self.found[*node].get_or_insert_with(|| vec![EMPTY; column_count]);
                widen(bounds, self.shape, row, first);
            }
        }
    }

    /// The zones.
    pub fn finish(mut self, skeleton: &Skeleton) -> Zones {
        if !self.zones.starts.is_empty() {
            let found = self.found.into_iter().enumerate();
            let found = found.filter_map(|(node, bounds)| Some((node, bounds?)));
            let dimension_count = self.shape.dimension_count();
            self.zones.fill(&skeleton.head, dimension_count, found);
        }
        self.zones
    }
}
