//! Checking an Elf: its head, so that no query can go astray, and its leaves, row by row.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hotshelf_tier::Corruption;

use super::block::{checksum, header, stored_checksum};
use super::fence::fences_of;
use super::head::{Bottom, Child, Head, Link, Node, NodeKind};
use super::leaf::Run;
use super::rows::RowReader;
use super::{ElfHead, PackedElf};

/// Names the place of a violation.
struct Place<'a> {
    file: &'a Path,
}

impl Place<'_> {
    fn corrupt(
        &self,
        offset: usize,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Corruption {
        Corruption {
            file: PathBuf::from(self.file),
            offset: offset as u64,
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    fn check(&self, holds: bool, offset: usize, what: &'static str) -> Result<(), Corruption> {
        if holds {
            Ok(())
        } else {
            Err(self.corrupt(offset, what, "a consistent value", "another"))
        }
    }
}

/// Walks the head in row order.
struct HeadChecker<'a> {
    place: Place<'a>,
    head: &'a Head,
    code_bits: &'a [u32],
    slot_counts: Vec<usize>,
    /// Nodes reached so far.
    node_count: usize,
    /// Of a part of a head: the node that stands for those that are left out, and the rows of each leaf region.
    part: Option<(usize, &'a [usize])>,
}

impl ElfHead {
    /// Checks the head: after this no query can reach outside its arrays or the leaf regions, whatever
    /// the leaves hold. Offsets in errors are node numbers.
    pub(crate) fn verify(&self, file: &Path) -> Result<(), Corruption> {
        let place = Place { file };
        let dimension_count = self.dimension_count();
        let mut checker = HeadChecker {
            place,
            head: &self.head,
            code_bits: &self.geometry.code_bits,
            slot_counts: vec![0; dimension_count + 1],
            node_count: 0,
            part: None,
        };
        checker.check_arrays()?;
        match self.root {
            Link::Node(0) if !self.head.nodes.is_empty() => {
                checker.check_node(0, 0, 0..self.row_count as u32)?;
            }
            Link::Here(0) if self.head.nodes.is_empty() => checker.slot_counts[0] = self.row_count,
            _ => {
                return Err(checker
                    .place
                    .corrupt(0, "root", "node 0 or one group", "another"));
            }
        }
        let HeadChecker {
            place,
            slot_counts,
            node_count,
            ..
        } = checker;
        place.check(
            node_count == self.head.nodes.len(),
            0,
            "number of nodes reached",
        )?;
        place.check(
            slot_counts == self.geometry.slot_counts,
            0,
            "rows per leaf region",
        )?;
        self.verify_zones(&place)
    }

    /// The same of a part of a head, in which a node stands for those that are left out.
    pub(crate) fn verify_part(&self, file: &Path, left_out: usize) -> Result<(), Corruption> {
        let mut checker = HeadChecker {
            place: Place { file },
            head: &self.head,
            code_bits: &self.geometry.code_bits,
            slot_counts: Vec::new(),
            node_count: 0,
            part: Some((left_out, &self.geometry.slot_counts)),
        };
        checker.check_arrays()?;
        checker.check_node(0, 0, 0..self.row_count as u32)
    }

    /// Checks the checksum and header of a leaf block. Offsets in errors are bytes from the first leaf.
    pub(crate) fn check_block(
        &self,
        file: &Path,
        number: usize,
        block: &[u64],
    ) -> Result<(), Corruption> {
        let (place, offset) = (Place { file }, number * self.block_bytes());
        let expected = self.geometry.rows_of_block(number);
        let (Some(expected), true) = (expected, block.len() == self.geometry.block_words) else {
            let whole = self.geometry.block_words;
            return Err(place.corrupt(offset, "words of a block", whole, block.len()));
        };
        let name = self.geometry.name_of_block(number);
        let (stored, found) = (stored_checksum(block), checksum(name, block));
        if stored != found {
            return Err(place.corrupt(offset, "block checksum", stored, found));
        }
        let is_right = !self.geometry.tids.is_wide() || header(block) == expected;
        place.check(is_right, offset, "block header")
    }

    fn verify_zones(&self, place: &Place<'_>) -> Result<(), Corruption> {
        if self.zones.starts.is_empty() {
            return place.check(self.zones.bounds.is_empty(), 0, "zones");
        }
        let levels = self.head.node_levels();
        place.check(
            levels.len() == self.zones.starts.len(),
            0,
            "number of zones",
        )?;
        for (node, (&start, &level)) in self.zones.starts.iter().zip(&levels).enumerate() {
            let end = start as usize + self.dimension_count() - usize::from(level);
            let fits = start == u32::MAX || end <= self.zones.bounds.len();
            place.check(fits, node, "zone of a node")?;
        }
        Ok(())
    }
}

impl HeadChecker<'_> {
    /// Nodes' parts of the arrays follow each other and fill them.
    fn check_arrays(&self) -> Result<(), Corruption> {
        let head = self.head;
        let (mut child_at, mut start_at) = (0usize, 0usize);
        let (mut bitmap_at, mut code_at) = (0usize, 0usize);
        for (at, node) in head.nodes.iter().enumerate() {
            let count = node.child_count as usize;
            let next = match node.bottom {
                Bottom::Mixed => &mut child_at,
                Bottom::Below | Bottom::Here => &mut start_at,
            };
            let follows = node.child_at as usize == *next && count > 0;
            self.place.check(follows, at, "children")?;
            *next += count + 1;
            let span = u64::from(node.last_offset) + 1;
            let (expected, found) = match node.kind {
                NodeKind::Dense => {
                    self.place
                        .check(count as u64 == span, at, "codes of a dense node")?;
                    (0, node.codes_at as usize)
                }
                NodeKind::Bitmap => {
                    bitmap_at += span.div_ceil(64) as usize;
                    (
                        bitmap_at - span.div_ceil(64) as usize,
                        node.codes_at as usize,
                    )
                }
                NodeKind::Sorted => {
                    code_at += count;
                    (code_at - count, node.codes_at as usize)
                }
            };
            self.place.check(expected == found, at, "codes of a node")?;
        }
        let fills = child_at == head.children.len()
            && start_at == head.starts.len()
            && bitmap_at == head.bitmaps.len()
            && bitmap_at == head.ranks.len()
            && code_at == head.codes.len();
        self.place.check(fills, 0, "lengths of the head's arrays")
    }

    fn check_node(&mut self, at: usize, level: usize, rows: Range<u32>) -> Result<(), Corruption> {
        let node = self.head.nodes[at];
        self.node_count += 1;
        self.place
            .check(level < self.code_bits.len(), at, "level of a node")?;
        let last_code = u64::from(node.first_code) + u64::from(node.last_offset);
        self.place.check(
            last_code >> self.code_bits[level] == 0,
            at,
            "last code of a node",
        )?;
        self.check_codes(at, &node)?;
        self.place
            .check(node.row == rows.start, at, "first row of a node")?;
        if node.bottom != Bottom::Mixed {
            return self.check_bottom(at, &node, level, rows);
        }
        let first = node.child_at as usize;
        let children = &self.head.children[first..=first + node.child_count as usize];
        let tile = children[0].row == rows.start
            && children[node.child_count as usize].row == rows.end
            && children.is_sorted_by_key(|child| child.row);
        self.place.check(tile, at, "rows of a node")?;
        for pair in children.windows(2) {
            self.check_child(at, &node, level, (pair[0], pair[1].row))?;
        }
        Ok(())
    }

    fn check_codes(&self, at: usize, node: &Node) -> Result<(), Corruption> {
        match node.kind {
            NodeKind::Dense => Ok(()),
            NodeKind::Sorted => {
                let codes = self.head.codes_of(node);
                let ends = codes.first() == Some(&node.first_code)
                    && codes.last() == Some(&(node.first_code + node.last_offset));
                self.place
                    .check(ends && codes.is_sorted_by(|a, b| a < b), at, "sorted codes")
            }
            NodeKind::Bitmap => {
                let word_count = (node.last_offset / 64 + 1) as usize;
                let words = &self.head.bitmaps[node.codes_at as usize..][..word_count];
                let ranks = &self.head.ranks[node.codes_at as usize..][..word_count];
                let mut rank = 0;
                for (word, &found) in words.iter().zip(ranks) {
                    self.place
                        .check(rank == found, at, "rank of a bitmap word")?;
                    rank += word.count_ones();
                }
                let above = words[word_count - 1] >> (node.last_offset % 64);
                let ends = words[0] & 1 == 1 && above == 1;
                self.place
                    .check(ends && rank == node.child_count, at, "bits of a bitmap")
            }
        }
    }

    /// Checks a node whose children are groups side by side.
    fn check_bottom(
        &mut self,
        at: usize,
        node: &Node,
        level: usize,
        rows: Range<u32>,
    ) -> Result<(), Corruption> {
        let first = node.child_at as usize;
        let starts = &self.head.starts[first..=first + node.child_count as usize];
        let last = u32::from(starts[node.child_count as usize]);
        let tile = starts[0] == 0 && starts.is_sorted() && last as usize == rows.len();
        self.place.check(tile, at, "rows of a node")?;
        let may_be_empty = node.kind == NodeKind::Dense;
        let is_empty = starts.windows(2).any(|pair| pair[0] == pair[1]);
        self.place
            .check(may_be_empty || !is_empty, at, "empty child")?;
        let is_here = node.bottom == Bottom::Here;
        let may_be_here = node.kind == NodeKind::Sorted;
        self.place.check(may_be_here || !is_here, at, "bucket")?;
        let region = level + usize::from(!is_here);
        self.check_slots(at, region, node.slot as usize, rows.len())
    }

    /// Groups follow each other in their regions; those of a part lie in them.
    fn check_slots(
        &mut self,
        at: usize,
        region: usize,
        slot: usize,
        row_count: usize,
    ) -> Result<(), Corruption> {
        let is_right = match self.part {
            Some((_, slot_counts)) => slot + row_count <= slot_counts[region],
            None => {
                let count = &mut self.slot_counts[region];
                let is_next = *count == slot;
                *count += row_count;
                is_next
            }
        };
        self.place.check(is_right, at, "slot of a group")
    }

    fn check_child(
        &mut self,
        at: usize,
        node: &Node,
        level: usize,
        (child, end): (Child, u32),
    ) -> Result<(), Corruption> {
        if child.row == end {
            let may_be_empty = node.kind == NodeKind::Dense && child.link == 0;
            return self.place.check(may_be_empty, at, "empty child");
        }
        let (region, slot) = match Link::unpack(child.link) {
            Link::Node(below) if self.part.is_some_and(|(left_out, _)| below == left_out) => {
                return Ok(());
            }
            Link::Node(below) => {
                // Children come after their parents, so the walk ends; each is reached once.
                let is_new = below > at && below < self.head.nodes.len();
                self.place.check(
                    is_new && self.node_count < self.head.nodes.len(),
                    at,
                    "child node",
                )?;
                return self.check_node(below, level + 1, child.row..end);
            }
            Link::Below(slot) => (level + 1, slot),
            Link::Here(slot) => {
                self.place
                    .check(node.kind == NodeKind::Sorted, at, "bucket")?;
                (level, slot)
            }
        };
        self.check_slots(at, region, slot, (end - child.row) as usize)
    }
}

impl<S: AsRef<[u64]>> PackedElf<S> {
    /// Checks everything: the head, every block's checksum, every fence, and every row. `file` is named in errors.
    ///
    /// # Errors
    /// The first violation.
    pub fn verify(&self, file: &Path) -> Result<(), Corruption> {
        self.upper.verify(file)?;
        self.verify_blocks(file)?;
        self.verify_fences(&Place { file })?;
        self.verify_rows(file)
    }

    /// Checks the checksum and header of every leaf block. Offsets in errors are bytes from the first leaf.
    ///
    /// # Errors
    /// The first damaged block.
    pub(crate) fn verify_blocks(&self, file: &Path) -> Result<(), Corruption> {
        let place = Place { file };
        let (geometry, words) = (&self.geometry, self.leaves.as_ref());
        let expected = geometry.block_count() * geometry.block_words;
        if words.len() < expected {
            return Err(place.corrupt(0, "leaf words", expected, words.len()));
        }
        let mut blocks = words[..expected].chunks(geometry.block_words).enumerate();
        blocks.try_for_each(|(number, block)| self.check_block(file, number, block))
    }

    /// Checks fences against the blocks. Offsets in errors are block numbers.
    fn verify_fences(&self, place: &Place<'_>) -> Result<(), Corruption> {
        let expected = fences_of(&self.geometry, self.leaves.as_ref());
        let mut fences = self.fences.iter().zip(&expected).enumerate();
        fences.try_for_each(|(block, (found, expected))| {
            place.check(found == expected, block, "fence of a block")
        })
    }

    /// Checks that rows ascend, lie below their prefixes, and have distinct TIDs. Offsets in errors are
    /// row numbers.
    fn verify_rows(&self, file: &Path) -> Result<(), Corruption> {
        let place = Place { file };
        let mut reader = RowReader::new(self);
        let mut previous: Option<(Vec<u32>, u32)> = None;
        let mut tids = Vec::with_capacity(self.row_count);
        let (mut row, mut distinct) = (0, vec![0u64; self.dimension_count()]);
        while let Some((codes, tid)) = reader.next_row() {
            if let Some((before, tid_before)) = &previous {
                let is_after = (before.as_slice(), *tid_before) < (codes, tid);
                place.check(is_after, row, "order of rows")?;
            }
            let kept = previous.as_ref().map_or(0, |(before, _)| {
                before.iter().zip(codes).take_while(|(a, b)| a == b).count()
            });
            distinct[kept.min(codes.len() - 1)..]
                .iter_mut()
                .for_each(|count| *count += u64::from(kept < codes.len()));
            self.verify_path(&place, row, codes)?;
            tids.push(tid);
            previous = Some((codes.to_vec(), tid));
            row += 1;
        }
        place.check(row == self.row_count, row, "number of rows")?;
        place.check(distinct == self.prefix_counts, row, "prefix counts")?;
        tids.sort_unstable();
        place.check(tids.is_sorted_by(|a, b| a < b), row, "distinct TIDs")
    }

    /// Whether looking up a row leads to its group, and its zones contain it.
    fn verify_path(&self, place: &Place<'_>, row: usize, codes: &[u32]) -> Result<(), Corruption> {
        let found: Option<Run> = self
            .descend(codes)
            .and_then(|run| self.match_run(&run, codes));
        let is_found = found.is_some_and(|run| run.rows().contains(&(row as u32)));
        place.check(is_found, row, "path to a row")?;
        let mut step = self.root;
        for level in 0..codes.len() {
            let Link::Node(node) = step else { break };
            if let Some(bounds) = self.zones.of(node, codes.len() - level) {
                let inside = bounds
                    .iter()
                    .zip(&codes[level..])
                    .all(|(b, c)| (b.0..=b.1).contains(c));
                place.check(inside, row, "zone around a row")?;
            }
            match self.head.child_of(self.node(node), codes[level]) {
                Some(child) => step = self.head.link_of(self.node(node), child),
                None => break,
            }
        }
        Ok(())
    }
}
