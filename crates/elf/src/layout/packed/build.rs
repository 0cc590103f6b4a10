//! Building in memory: sort, find the skeleton, then fill leaf blocks and zones in parallel.

use std::sync::Arc;

use hotshelf_tier::region::prefer_huge_pages;
use hotshelf_tier::simd::Backend;

use crate::error::Result;
use crate::keys::CodeTable;
use crate::rows::{RowShape, SortedRows, for_each_parallel};

use super::block::BlockWriter;
use super::fence::Fencer;
use super::geometry::{Geometry, TidLayout};
use super::skeleton::{Cut, Group, Skeleton, SkeletonBuilder};
use super::zones::{EMPTY, Zones, widen};
use super::{ElfHead, PackedElf, PackedOptions};

/// Blocks filled by one task.
const TASK_BLOCKS: usize = 2048;

impl PackedOptions {
    pub(crate) fn cut(&self) -> Cut {
        Cut {
            group_rows_max: self.group_rows_max.max(1),
            bucket_rows_max: self.bucket_rows_max,
        }
    }

    /// How the TIDs of rows of this shape are stored.
    pub(crate) fn tids(&self, rows: &RowShape) -> TidLayout {
        match self.clustered {
            true => TidLayout::Clustered,
            false => TidLayout::Packed(rows.tid_field().mask.count_ones()),
        }
    }
}

impl PackedElf {
    /// Builds the Elf of a table. The result is the same, byte for byte, for any number of threads.
    ///
    /// # Errors
    /// None today; the limits of a table are checked when it is made.
    pub fn build(table: &CodeTable, options: &PackedOptions) -> Result<Self> {
        Ok(Self::from_sorted(&sorted(table, options), options))
    }

    /// Builds the Elf, and says in which order its rows stand: the TID of every row. With
    /// [`PackedOptions::clustered`], store the table in this order.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_with_order(
        table: &CodeTable,
        options: &PackedOptions,
    ) -> Result<(Self, Vec<u32>)> {
        let rows = sorted(table, options);
        let order = (0..rows.row_count()).map(|row| rows.tid(row)).collect();
        Ok((Self::from_sorted(&rows, options), order))
    }

    pub(crate) fn from_sorted(rows: &SortedRows, options: &PackedOptions) -> Self {
        let mut builder = SkeletonBuilder::new(rows.shape(), options.cut());
        (0..rows.row_count()).for_each(|row| builder.push(rows.row(row)));
        let skeleton = builder.finish();
        let geometry = Geometry::new(
            rows.shape().code_max().to_vec(),
            options.tids(rows.shape()),
            skeleton.slot_counts.clone(),
        )
        .salted(options.salt);
        let (leaves, fences) = fill_leaves(rows, &skeleton, &geometry, options.thread_count);
        let zones = if options.zones {
            find_zones(rows, &skeleton, options.thread_count)
        } else {
            Zones::default()
        };
        let upper = ElfHead {
            row_count: skeleton.row_count,
            fences,
            geometry,
            head: skeleton.head,
            root: skeleton.root,
            zones,
            prefix_counts: skeleton.prefix_counts,
            backend: Backend::detect(),
        };
        Self::new(Arc::new(upper), leaves)
    }
}

fn sorted(table: &CodeTable, options: &PackedOptions) -> SortedRows {
    SortedRows::from_table(table, options.thread_count)
}

/// A task: some consecutive blocks of one region.
struct Fill<'a> {
    level: usize,
    first_slot: usize,
    end_slot: usize,
    /// Number of the first block.
    first_block: usize,
    blocks: &'a mut [u64],
    fences: &'a mut [u16],
}

/// The leaf blocks, and their fences.
fn fill_leaves(
    rows: &SortedRows,
    skeleton: &Skeleton,
    geometry: &Geometry,
    thread_count: usize,
) -> (Vec<u64>, Vec<u16>) {
    let mut leaves = vec![0u64; geometry.block_count() * geometry.block_words];
    let mut fences = vec![0u16; geometry.block_count()];
    prefer_huge_pages(&mut leaves);
    let mut groups: Vec<Vec<Group>> = vec![Vec::new(); geometry.shapes.len()];
    skeleton
        .groups
        .iter()
        .for_each(|group| groups[usize::from(group.level)].push(*group));
    let (mut tasks, mut rest) = (Vec::new(), (leaves.as_mut_slice(), fences.as_mut_slice()));
    for (level, shape) in geometry.shapes.iter().enumerate() {
        let slot_count = geometry.slot_counts[level];
        let block_count = shape.block_count(slot_count);
        let (own, others) = rest.0.split_at_mut(block_count * geometry.block_words);
        let (own_fences, other_fences) = rest.1.split_at_mut(block_count);
        rest = (others, other_fences);
        let blocks = own.chunks_mut(TASK_BLOCKS * geometry.block_words);
        let parts = blocks.zip(own_fences.chunks_mut(TASK_BLOCKS));
        for (idx, (blocks, fences)) in parts.enumerate() {
            let task_slots = TASK_BLOCKS * shape.rows_per_block;
            let first_slot = idx * task_slots;
            let end_slot = slot_count.min(first_slot + task_slots);
            tasks.push(Fill {
                level,
                first_block: geometry.first_blocks[level] + idx * TASK_BLOCKS,
                first_slot,
                end_slot,
                blocks,
                fences,
            });
        }
    }
    for_each_parallel(thread_count, tasks, |task| {
        fill_blocks(rows, &groups[task.level], geometry, task);
    });
    (leaves, fences)
}

/// Fills the blocks of a task. `groups` are the region's, in slot order.
fn fill_blocks(rows: &SortedRows, groups: &[Group], geometry: &Geometry, task: Fill<'_>) {
    let writer = BlockWriter::new(rows.shape(), geometry, task.level);
    let shape = &geometry.shapes[task.level];
    let rows_per_block = shape.rows_per_block;
    let group_of = |slot: usize| groups.partition_point(|group| group.slot as usize <= slot) - 1;
    let mark_of = |slot: usize| {
        let group = groups[group_of(slot)];
        let row = rows.row(group.row as usize + slot - group.slot as usize);
        let levels = task.level..geometry.dimension_count();
        shape.mark(levels.map(|level| rows.shape().code(row, level)))
    };
    let mut fencer = Fencer::after(task.first_slot.checked_sub(1).map(mark_of));
    let mut at = group_of(task.first_slot);
    let mut slot = task.first_slot;
    let blocks = task
        .blocks
        .chunks_mut(geometry.block_words)
        .zip(task.fences);
    for (number, (block, fence)) in (task.first_block..).zip(blocks) {
        let block_rows = rows_per_block.min(task.end_slot - slot);
        let mut position = 0;
        while position < block_rows {
            while groups
                .get(at + 1)
                .is_some_and(|next| next.slot as usize <= slot)
            {
                at += 1;
            }
            let group = groups[at];
            let group_end = groups
                .get(at + 1)
                .map_or(task.end_slot, |next| next.slot as usize);
            let count = (group_end - slot).min(block_rows - position);
            let first_row = group.row as usize + (slot - group.slot as usize);
            for idx in 0..count {
                writer.put(block, position + idx, rows.row(first_row + idx));
            }
            (position, slot) = (position + count, slot + count);
        }
        writer.seal(geometry.name_of_block(number), block);
        *fence = fencer.next(shape, block, block_rows);
    }
}

fn find_zones(rows: &SortedRows, skeleton: &Skeleton, thread_count: usize) -> Zones {
    let shape = rows.shape();
    let dimension_count = shape.dimension_count();
    let (mut zones, work) = Zones::plan(&skeleton.head, dimension_count);
    let levels = skeleton.head.node_levels();
    let mut found: Vec<_> = work
        .iter()
        .map(|one| {
            (
                one.node,
                vec![EMPTY; dimension_count - usize::from(levels[one.node])],
            )
        })
        .collect();
    let tasks: Vec<_> = work.iter().zip(&mut found).collect();
    for_each_parallel(thread_count, tasks, |(work, (node, bounds))| {
        let first = usize::from(levels[*node]);
        for range in &work.rows {
            for row in range.clone() {
                widen(bounds, shape, rows.row(row as usize), first);
            }
        }
    });
    zones.fill(&skeleton.head, dimension_count, found);
    zones
}
