//! The upper levels of a head whose file is read piece by piece, when there is not memory for all of it even for a
//! moment.
//!
//! Nodes and children are read twice: first for where levels begin, then with everything else for checksums. That the
//! head is a sound one is checked of each part when it is put together.

use std::ops::Range;
use std::path::Path;

use hotshelf_tier::Corruption;
use hotshelf_tier::simd::Backend;

use super::super::ElfHead;
use super::super::arrays::{NODE_BYTES, read_children, read_nodes};
use super::super::file::{ArrayPlaces, HeadPlaces, SUPERBLOCK_BYTES, Superblock, read_superblock};
use super::super::head::{Head, Link, Node};
use super::super::zones::Zones;
use super::counts::{ARRAY_COUNT, Counts, Levels, for_links};
use super::{UpperHead, bundle_ends, by_bundle, level_count, parse};
use crate::codec::Reader;
use crate::error::ElfError;

/// Nodes that are read at once.
const NODES_TOGETHER: usize = 1024;
/// About the bytes of neighbours that are read at once: one of them may have more.
const TOGETHER_BYTES: usize = 64 << 10;
/// What one node or bundle has at most on a level, or the head is not one to be read so.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// A file being read.
struct Stream<'a, R> {
    file: &'a Path,
    read: R,
    places: ArrayPlaces,
    /// All entries of the arrays.
    total: Counts,
}

/// Checksums of the arrays as far as they were read.
#[derive(Default)]
struct Sums([crc32fast::Hasher; ARRAY_COUNT]);

impl Sums {
    fn update(&mut self, bytes: &[impl AsRef<[u8]>]) {
        let sums = self.0.iter_mut().zip(bytes);
        sums.for_each(|(sum, bytes)| sum.update(bytes.as_ref()));
    }

    fn are_those_of(self, superblock: &Superblock) -> bool {
        let found = self.0.map(crc32fast::Hasher::finalize);
        found == superblock.arrays().map(|(_, sum)| sum)
    }
}

fn slices<B: AsRef<[u8]>>(bytes: &[B]) -> [&[u8]; ARRAY_COUNT] {
    std::array::from_fn(|array| bytes.get(array).map_or(&[][..], AsRef::as_ref))
}

/// The arrays' lengths in entries.
fn total_of(superblock: &Superblock) -> Counts {
    let [nodes, children, starts, bitmaps, _, codes] = superblock
        .arrays()
        .map(|(bytes, _)| usize::try_from(bytes).unwrap_or(usize::MAX));
    Counts {
        nodes: nodes / NODE_BYTES,
        children: children / 8,
        starts: starts / 2,
        words: bitmaps / 8,
        codes: codes / 4,
    }
}

impl<R, F, B, E> Stream<'_, R>
where
    R: Fn(Vec<Range<u64>>) -> F,
    F: Future<Output = Result<Vec<B>, E>>,
    B: AsRef<[u8]>,
    E: From<ElfError>,
{
    fn damaged(&self, what: &'static str) -> E {
        let place = Reader::new(self.file, &[], self.places.nodes);
        let damage: Corruption = place.corrupt(what, "a consistent value", "another");
        ElfError::from(damage).into()
    }

    async fn nodes(&self, range: Range<usize>) -> Result<(Vec<Node>, B), E> {
        let (from, to) = (Counts::default().at_node(range.start), range.end);
        let [place, ..] = self.places.of(from, Counts::default().at_node(to));
        let mut read = (self.read)(vec![place.clone()]).await?;
        let bytes = read.pop().ok_or_else(|| self.damaged("nodes"))?;
        let mut input = Reader::new(self.file, bytes.as_ref(), place.start);
        let nodes = read_nodes(&mut input).map_err(ElfError::from)?;
        Ok((nodes, bytes))
    }

    /// Where each level begins, and where the last one ends; `None` if links do not lead to the nodes in their order,
    /// or a piece is too large.
    async fn level_starts(&self) -> Result<Option<Vec<Counts>>, E> {
        let (mut levels, mut at) = (Levels::default(), Counts::default());
        if self.total.nodes == 0 {
            return Ok(None);
        }
        while at.nodes < self.total.nodes {
            let end = self.total.nodes.min(at.nodes + NODES_TOGETHER);
            let (mut nodes, _) = self.nodes(at.nodes..end).await?;
            let ends = ends_after(at, &nodes);
            nodes.truncate(count_together(at, &ends, |counts| counts.children * 8));
            let to = nodes
                .len()
                .checked_sub(1)
                .and_then(|last| ends.get(last).copied());
            let to = to.ok_or_else(|| self.damaged("nodes"))?;
            if !to.is_within(self.total) {
                return Err(self.damaged("lengths of the head's arrays"));
            }
            if (to.children - at.children) * 8 > PIECE_BYTES_MAX {
                return Ok(None);
            }
            let place = self.places.of(at, to)[1].clone();
            let read = (self.read)(vec![place.clone()]).await?;
            let bytes = read.first().map_or(&[][..], AsRef::as_ref);
            let mut input = Reader::new(self.file, bytes, place.start);
            let children = read_children(&mut input).map_err(ElfError::from)?;
            let mut rest = children.as_slice();
            for (node, end) in nodes.iter().zip(ends) {
                if !at.is_begin_of(node) {
                    return Err(self.damaged("children and codes of a node"));
                }
                levels.take(node, rest);
                rest = rest.get(end.children - at.children..).unwrap_or_default();
                at = end;
            }
        }
        if at != self.total || !levels.is_complete() {
            return Err(self.damaged("number of nodes reached"));
        }
        Ok(levels.finish())
    }

    /// Cuts what is below the upper levels into bundles, and makes their checksums; `None` if one is too large.
    async fn bundles(
        &self,
        below: &[Counts],
        sums: &mut Sums,
    ) -> Result<Option<(Vec<Counts>, Vec<u32>)>, E> {
        let (mut ends, mut at) = (bundle_ends(below), below[0]);
        let mut own = vec![crc32fast::Hasher::new(); ends.len() - 1];
        let mut by_level = Vec::with_capacity(below.len() - 1);
        for level in below.windows(2) {
            let mut next = level[1].nodes;
            let (mut cuts, mut next_ends) = (vec![at], vec![next]);
            while cuts.len() < ends.len() {
                let Some(read) = self.together(at, &ends[cuts.len()..]).await? else {
                    return Ok(None);
                };
                let all = read.bytes(at..read.last());
                sums.update(&all);
                let part = parse(self.file, &read.places, all).map_err(ElfError::from)?;
                let start = at;
                for &end in &read.ends {
                    let sum = &mut own[cuts.len() - 1];
                    let bytes = read.bytes(at..end);
                    bytes.iter().for_each(|bytes| sum.update(bytes));
                    let nodes = at.nodes - start.nodes..end.nodes - start.nodes;
                    let nodes = part.nodes.get(nodes).unwrap_or_default();
                    let children = part.children.get(at.children - start.children..);
                    for_links(nodes, children.unwrap_or_default(), |_| next += 1);
                    at = end;
                    cuts.push(at);
                    next_ends.push(next);
                }
            }
            by_level.push(cuts);
            ends = next_ends;
        }
        if at != self.total {
            return Err(self.damaged("lengths of the head's arrays"));
        }
        let sums = own.into_iter().map(crc32fast::Hasher::finalize);
        Ok(Some((by_bundle(&by_level), sums.collect())))
    }

    /// Reads the first of the bundles on a level that begin at some entries and have these last nodes: at least one,
    /// and others as long as they are small; `None` if the first one is too large.
    async fn together(&self, at: Counts, ends: &[usize]) -> Result<Option<Together<B>>, E> {
        let few = ends.partition_point(|end| *end <= at.nodes + NODES_TOGETHER);
        let ends = &ends[..few.max(1)];
        let last = ends[ends.len() - 1];
        let node_count = last.checked_sub(at.nodes);
        let node_count = node_count.ok_or_else(|| self.damaged("nodes of a level"))?;
        if node_count * NODE_BYTES > PIECE_BYTES_MAX {
            return Ok(None);
        }
        let (nodes, node_bytes) = self.nodes(at.nodes..last).await?;
        let after = ends_after(at, &nodes);
        let end_at = |end: &usize| match end.checked_sub(at.nodes) {
            Some(0) => Some(at),
            Some(count) => after.get(count - 1).copied(),
            None => None,
        };
        let ends: Option<Vec<Counts>> = ends.iter().map(end_at).collect();
        let mut ends = ends.ok_or_else(|| self.damaged("nodes of a level"))?;
        ends.truncate(count_together(at, &ends, Counts::sum_bytes));
        let to = ends[ends.len() - 1];
        if !to.is_within(self.total) {
            return Err(self.damaged("lengths of the head's arrays"));
        }
        if to.minus(at).sum_bytes() > PIECE_BYTES_MAX {
            return Ok(None);
        }
        let places = self.places.of(at, to);
        let mut bytes = vec![node_bytes];
        bytes.extend((self.read)(places[1..].to_vec()).await?);
        Ok(Some(Together {
            start: at,
            ends,
            places,
            bytes,
        }))
    }
}

/// Neighbouring bundles' parts on a level.
struct Together<B> {
    start: Counts,
    /// Where each of them ends.
    ends: Vec<Counts>,
    places: [Range<u64>; ARRAY_COUNT],
    /// Of nodes there may be more.
    bytes: Vec<B>,
}

impl<B: AsRef<[u8]>> Together<B> {
    fn last(&self) -> Counts {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// The bytes of some entries; fewer if there are not as many.
    fn bytes(&self, range: Range<Counts>) -> [&[u8]; ARRAY_COUNT] {
        let from = range.start.minus(self.start).bytes();
        let to = range.end.minus(self.start).bytes();
        let read = slices(&self.bytes);
        std::array::from_fn(|array| read[array].get(from[array]..to[array]).unwrap_or_default())
    }
}

/// Where the entries of each of some nodes end that begin at `at`.
fn ends_after(at: Counts, nodes: &[Node]) -> Vec<Counts> {
    let ends = nodes.iter().scan(at, |at, node| {
        *at = *at + Counts::of(node);
        Some(*at)
    });
    ends.collect()
}

/// How many of some neighbours, which begin at `at`, are read at once.
fn count_together(at: Counts, ends: &[Counts], bytes: impl Fn(Counts) -> usize) -> usize {
    let small = ends.partition_point(|end| bytes(end.minus(at)) <= TOGETHER_BYTES);
    small.clamp(1.min(ends.len()), ends.len())
}

impl UpperHead {
    /// About how many reads wait for each other while [`Self::read`] reads a head of this many bytes: it reads nodes,
    /// and then what belongs to them, for where levels begin, and all of it again.
    pub fn read_depth(head_bytes: u64) -> u64 {
        4 * head_bytes.div_ceil(TOGETHER_BYTES as u64)
    }

    /// The first levels of the head in a file, which is never in memory as a whole: see [`Self::of`]. `read` gives the
    /// bytes at some places. `None` as there, or where a node is very large.
    ///
    /// # Errors
    /// Those of `read`, and when the bytes are damaged.
    pub async fn read<F, B, E>(
        file: &Path,
        levels: Option<usize>,
        read: impl Fn(Vec<Range<u64>>) -> F,
    ) -> Result<Option<(Self, HeadPlaces)>, E>
    where
        F: Future<Output = Result<Vec<B>, E>>,
        B: AsRef<[u8]>,
        E: From<ElfError>,
    {
        let start = 0..SUPERBLOCK_BYTES as u64;
        let first = read(std::iter::once(start).collect()).await?;
        let superblock = read_superblock(file, slices(&first)[0]).map_err(ElfError::from)?;
        let Some(places) = superblock.places().arrays else {
            return Ok(None);
        };
        let shape = read(std::iter::once(superblock.shape_place()).collect()).await?;
        let geometry = superblock.read_shape(file, slices(&shape)[0]);
        let (geometry, prefix_counts) = geometry.map_err(ElfError::from)?;
        let stream = Stream {
            file,
            read,
            places,
            total: total_of(&superblock),
        };
        let Some(starts) = stream.level_starts().await? else {
            return Ok(None);
        };
        let stay = level_count(&starts, levels);
        let below = stay.and_then(|stay| starts.get(stay..));
        let (Some(stay), Some(below)) = (stay, below.filter(|below| below.len() > 1)) else {
            return Ok(None);
        };
        let upper_places = places.of(Counts::default(), below[0]);
        let bytes = (stream.read)(upper_places.to_vec()).await?;
        let mut sums = Sums::default();
        sums.update(&bytes);
        let head: Head = parse(file, &upper_places, slices(&bytes)).map_err(ElfError::from)?;
        drop(bytes);
        let Some((cuts, bundle_sums)) = stream.bundles(below, &mut sums).await? else {
            return Ok(None);
        };
        if !sums.are_those_of(&superblock) {
            return Err(stream.damaged("section checksum"));
        }
        let upper = Self {
            head: ElfHead {
                row_count: superblock.row_count,
                geometry,
                head,
                root: Link::Node(0),
                zones: Zones::default(),
                fences: Vec::new(),
                prefix_counts,
                backend: Backend::detect(),
            },
            places,
            level_count: stay,
            below_count: below.len() - 1,
            last_level_at: starts[stay - 1].nodes,
            cuts,
            sums: bundle_sums,
            is_verified: false,
        };
        // What leads to the bundles has to be sound before a question follows it.
        let alone = upper.joined(&[], (1..below.len()).map(|_| Vec::new()).collect());
        let checked = alone.verify_part(file, alone.head.nodes.len() - 1);
        checked.map_err(ElfError::from)?;
        Ok(Some((upper, superblock.places())))
    }
}
