//! Building from rows that come in order but are not kept: twice through the stream, first for the
//! skeleton, then for leaves, zones and fingerprints.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use hotshelf_tier::simd::Backend;

use crate::error::{ElfError, Result};
use crate::keys::{ColumnEncoding, ROW_COUNT_MAX};
use crate::rows::RowShape;

use super::block::BlockWriter;
use super::bottom::Bottoms;
use super::build::row_fingerprint;
use super::file::write_words;
use super::geometry::Geometry;
use super::skeleton::{Skeleton, SkeletonBuilder};
use super::zones::{Bounds, EMPTY, Zones, widen};
use super::{PackedElf, PackedOptions};

/// Blocks of one region collected before they are written.
const BUFFER_BLOCKS: usize = 1024;

/// Something that shows all rows, in order, as often as asked.
pub(crate) trait SortedSource {
    /// Calls `visit` with every row.
    ///
    /// # Errors
    /// Those of reading, and those of `visit`.
    fn for_each(&self, visit: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<()>;
}

pub(crate) fn io_error(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> ElfError {
    let path = path.to_path_buf();
    move |source| ElfError::Io {
        path,
        operation,
        source: Arc::new(source),
    }
}

/// Builds the Elf of a source's rows into a new file, and syncs it.
pub(crate) fn build_into(
    path: &Path,
    shape: &RowShape,
    options: &PackedOptions,
    encodings: &[ColumnEncoding],
    source: &impl SortedSource,
) -> Result<()> {
    let mut builder = SkeletonBuilder::new(shape, options.cut());
    let mut row_count = 0;
    source.for_each(&mut |row| {
        row_count += 1;
        if row_count > ROW_COUNT_MAX {
            let (found, max) = (row_count as u64, ROW_COUNT_MAX as u64);
            return Err(ElfError::TooManyRows { found, max });
        }
        builder.push(row);
        Ok(())
    })?;
    let skeleton = builder.finish();
    let mut elf = without_leaves(shape, options, &skeleton);
    let mut head = Vec::new();
    elf.write_head(encodings, &mut head)
        .map_err(io_error(path, "write"))?;
    let file = File::create(path).map_err(io_error(path, "create"))?;
    let mut filler = Filler::new(
        path,
        file,
        head.len() as u64,
        shape,
        &elf.geometry,
        &skeleton,
    );
    let mut zoner = Zoner::new(shape, &skeleton, options.zones);
    let (mut row_idx, mut fingerprints) = (0, Vec::new());
    source.for_each(&mut |row| {
        zoner.add(row_idx as u32, row);
        if options.fingerprints {
            fingerprints.push(row_fingerprint(shape, row));
        }
        filler.add(row_idx, row)?;
        row_idx += 1;
        Ok(())
    })?;
    let file = filler.finish()?;
    elf.zones = zoner.finish(&skeleton);
    elf.fingerprints = fingerprints;
    write_at(&file, 0, |mut file| elf.write_head(encodings, &mut file))
        .map_err(io_error(path, "write"))?;
    file.sync_all().map_err(io_error(path, "sync"))
}

/// The Elf with everything but leaves; zones and fingerprints have their size but not their contents.
fn without_leaves(shape: &RowShape, options: &PackedOptions, skeleton: &Skeleton) -> PackedElf<()> {
    let zones = if options.zones {
        Zones::plan(&skeleton.head, shape.dimension_count()).0
    } else {
        Zones::default()
    };
    PackedElf {
        row_count: skeleton.row_count,
        geometry: Geometry::new(
            shape.code_max().to_vec(),
            options.clustered,
            skeleton.slot_counts.clone(),
        ),
        bottoms: Bottoms::new(&skeleton.head),
        head: skeleton.head.clone(),
        root: skeleton.root,
        zones,
        fingerprints: vec![
            0;
            if options.fingerprints {
                skeleton.row_count
            } else {
                0
            }
        ],
        prefix_counts: skeleton.prefix_counts.clone(),
        backend: Backend::detect(),
        leaves: (),
    }
}

fn write_at(
    mut file: &File,
    offset: u64,
    write: impl FnOnce(io::BufWriter<&File>) -> io::Result<()>,
) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    write(io::BufWriter::with_capacity(1 << 16, file))
}

/// Blocks of one region that are not yet written.
struct Region {
    blocks: Vec<u64>,
    /// Rows in the last block of `blocks`.
    position: usize,
    /// Blocks written before.
    written: usize,
}

/// Puts rows into the blocks of their regions and writes these to their places.
struct Filler<'a> {
    path: &'a Path,
    file: File,
    leaf_offset: u64,
    geometry: &'a Geometry,
    skeleton: &'a Skeleton,
    writers: Vec<BlockWriter<'a>>,
    regions: Vec<Region>,
    /// The group after the current one.
    next_group: usize,
}

impl<'a> Filler<'a> {
    fn new(
        path: &'a Path,
        file: File,
        leaf_offset: u64,
        shape: &'a RowShape,
        geometry: &'a Geometry,
        skeleton: &'a Skeleton,
    ) -> Self {
        let levels = 0..geometry.shapes.len();
        Self {
            path,
            file,
            leaf_offset,
            geometry,
            skeleton,
            writers: levels
                .clone()
                .map(|level| BlockWriter::new(shape, geometry, level))
                .collect(),
            regions: levels
                .map(|_| Region {
                    blocks: vec![],
                    position: 0,
                    written: 0,
                })
                .collect(),
            next_group: 0,
        }
    }

    fn add(&mut self, row_idx: usize, row: &[u64]) -> Result<()> {
        let groups = &self.skeleton.groups;
        while groups
            .get(self.next_group)
            .is_some_and(|group| group.row as usize <= row_idx)
        {
            self.next_group += 1;
        }
        let level = usize::from(groups[self.next_group - 1].level);
        let rows_per_block = self.geometry.shapes[level].rows_per_block;
        if rows_per_block == 0 {
            return Ok(());
        }
        let block_words = self.geometry.block_words;
        let region = &mut self.regions[level];
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
        let block = &mut region.blocks[last..];
        self.writers[level].put(block, region.position, row);
        region.position += 1;
        if region.position == rows_per_block {
            self.writers[level].seal(block, rows_per_block);
        }
        Ok(())
    }

    fn flush(&mut self, level: usize) -> Result<()> {
        let region = &mut self.regions[level];
        let block_idx = self.geometry.first_blocks[level] + region.written;
        let offset = self.leaf_offset + (block_idx * self.geometry.block_words * 8) as u64;
        write_at(&self.file, offset, |mut file| {
            write_words(&region.blocks, &mut file)
        })
        .map_err(io_error(self.path, "write"))?;
        region.written += region.blocks.len() / self.geometry.block_words;
        region.blocks.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<File> {
        let block_words = self.geometry.block_words;
        for level in 0..self.regions.len() {
            let region = &mut self.regions[level];
            if let Some(last) = region.blocks.len().checked_sub(block_words) {
                self.writers[level].seal(&mut region.blocks[last..], region.position);
                self.flush(level)?;
            }
        }
        Ok(self.file)
    }
}

/// Collects zones from rows in order.
struct Zoner<'a> {
    shape: &'a RowShape,
    zones: Zones,
    levels: Vec<u8>,
    /// Row ranges and the node each belongs to, the next last.
    ranges: Vec<(std::ops::Range<u32>, usize)>,
    found: Vec<Option<Vec<Bounds>>>,
}

impl<'a> Zoner<'a> {
    fn new(shape: &'a RowShape, skeleton: &Skeleton, is_wanted: bool) -> Self {
        let (zones, work) = if is_wanted {
            Zones::plan(&skeleton.head, shape.dimension_count())
        } else {
            Default::default()
        };
        let mut ranges: Vec<_> = work
            .into_iter()
            .flat_map(|one| one.rows.into_iter().map(move |rows| (rows, one.node)))
            .collect();
        // One row may belong to several nodes: their ranges start together and are short.
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

    fn add(&mut self, row_idx: u32, row: &[u64]) {
        while self
            .ranges
            .last()
            .is_some_and(|(rows, _)| rows.end <= row_idx)
        {
            self.ranges.pop();
        }
        for at in (0..self.ranges.len()).rev() {
            let (rows, node) = &self.ranges[at];
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

    fn finish(mut self, skeleton: &Skeleton) -> Zones {
        if !self.zones.starts.is_empty() {
            let found = std::mem::take(&mut self.found).into_iter().enumerate();
            let found = found.filter_map(|(node, bounds)| Some((node, bounds?)));
            self.zones
                .fill(&skeleton.head, self.shape.dimension_count(), found);
        }
        self.zones
    }
}
