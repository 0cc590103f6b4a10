//! The upper levels of a head alone, when memory is short: what a question needs of the others is read for it.
//!
//! Nodes are in level order, so what is below some neighbouring nodes is one piece of each array on each level. The
//! nodes of the first level that is left out are cut into *bundles* of neighbours with what is below them. A question
//! is answered by a head that has the upper levels and those bundles that it can reach.

mod counts;
mod joined;
mod streamed;

use std::ops::Range;
use std::path::Path;

use hotshelf_tier::Corruption;

use crate::codec::{Reader, Writer};
use crate::error::Result;
use crate::keys::QueryBox;

use super::ElfHead;
use super::arrays::{read_children, read_nodes};
use super::file::{ArrayPlaces, HeadPlaces};
use super::head::{Head, Link};
use super::zones::Zones;
use counts::{ARRAY_COUNT, Counts, for_links};

/// About the bytes of a bundle in the file, or less where there would be few bundles.
const BUNDLE_BYTES: usize = 16 << 10;
const BUNDLES_MIN: usize = 16;
/// Where it is not said how many levels stay, they take at most one part in this many of the head; but one level stays
/// if it is not more than half.
const UPPER_SHARE: usize = 16;

/// The upper levels of a head, and where the others lie in the file.
#[derive(Debug)]
pub struct UpperHead {
    /// Its last level's links lead to nodes that it does not have.
    head: ElfHead,
    places: ArrayPlaces,
    /// How many levels it has, and how many are left out.
    level_count: usize,
    below_count: usize,
    /// The first node of its last level.
    last_level_at: usize,
    /// For each bundle, and for the end of the last one, where its parts of the arrays begin on each level.
    cuts: Vec<Counts>,
    /// Checksums of the bundles.
    sums: Vec<u32>,
    /// Whether all of the head was checked; if not, each part is.
    is_verified: bool,
}

/// What a question needs of a head beyond its upper levels.
#[derive(Debug)]
pub struct HeadPart {
    bundles: Vec<usize>,
    /// Where it is in the Elf's file.
    pub reads: Vec<Range<u64>>,
    /// Bytes in memory of the head that answers the question.
    pub head_bytes: u64,
}

/// How many levels stay of a head whose levels begin at `starts`, of which the last is its end.
fn level_count(starts: &[Counts], levels: Option<usize>) -> Option<usize> {
    if let Some(levels) = levels {
        return Some(levels.max(1));
    }
    let whole = starts.last()?.sum_bytes();
    let room = whole / UPPER_SHARE;
    let small = starts.iter().filter(|start| start.sum_bytes() <= room);
    let first = small.count().saturating_sub(1).max(1);
    let is_small = |start: &&Counts| start.sum_bytes() * 2 <= whole;
    starts.get(first).filter(is_small).map(|_| first)
}

/// Where the bundles of a level begin, and where the last one ends. `below` as for [`cut`].
fn bundle_ends(below: &[Counts]) -> Vec<usize> {
    let (first, end) = (below[0], below[below.len() - 1]);
    let nodes = first.nodes..below[1].nodes;
    let bytes = end.minus(first).sum_bytes().max(1);
    let node_count = (nodes.len() * BUNDLE_BYTES).div_ceil(bytes);
    let node_count = node_count.min(nodes.len().div_ceil(BUNDLES_MIN)).max(1);
    nodes
        .clone()
        .step_by(node_count)
        .chain([nodes.end])
        .collect()
}

/// Cuts the nodes of a level, and what is below them on each level, into bundles of about the same size: where they
/// begin, by bundle and level, and how many they are. `below` is where each level begins, and where the last one ends.
fn cut(head: &Head, below: &[Counts]) -> (Vec<Counts>, usize) {
    let mut ends = bundle_ends(below);
    let bundle_count = ends.len() - 1;
    let mut by_level = Vec::with_capacity(below.len() - 1);
    for level in below.windows(2) {
        let (mut at, mut next) = (level[0], level[1].nodes);
        let cut = |&end: &usize| {
            while at.nodes < end {
                let node = &head.nodes[at.nodes];
                for_links(std::slice::from_ref(node), head.entries_from(node), |_| {
                    next += 1;
                });
                at = at + Counts::of(node);
            }
            (at, next)
        };
        let (cuts, nexts): (Vec<Counts>, Vec<usize>) = ends.iter().map(cut).unzip();
        by_level.push(cuts);
        ends = nexts;
    }
    (by_bundle(&by_level), bundle_count)
}

/// Cuts by bundle and level, from those by level and bundle.
fn by_bundle(by_level: &[Vec<Counts>]) -> Vec<Counts> {
    let end_count = by_level.first().map_or(0, Vec::len);
    let of = |bundle: usize| by_level.iter().map(move |cuts| cuts[bundle]);
    (0..end_count).flat_map(of).collect()
}

impl ArrayPlaces {
    /// Where some entries of the arrays are in the file.
    fn of(&self, from: Counts, to: Counts) -> [Range<u64>; ARRAY_COUNT] {
        let starts = [
            self.nodes,
            self.children,
            self.starts,
            self.bitmaps,
            self.ranks,
            self.codes,
        ];
        let (from, to) = (from.bytes(), to.bytes());
        std::array::from_fn(|array| {
            starts[array] + from[array] as u64..starts[array] + to[array] as u64
        })
    }
}

/// Entries of the arrays from their bytes in a file.
fn parse(
    file: &Path,
    places: &[Range<u64>],
    bytes: [&[u8]; ARRAY_COUNT],
) -> Result<Head, Corruption> {
    let reader = |array: usize| {
        let start = places.get(array).map_or(0, |place| place.start);
        Reader::new(file, bytes[array], start)
    };
    let (mut starts, mut bitmaps) = (reader(2), reader(3));
    let (mut ranks, mut codes) = (reader(4), reader(5));
    Ok(Head {
        nodes: read_nodes(&mut reader(0))?,
        children: read_children(&mut reader(1))?,
        starts: starts.u16s(starts.remaining() / 2, "starts")?,
        bitmaps: bitmaps.u64s(bitmaps.remaining() / 8, "bitmaps")?,
        ranks: ranks.u32s(ranks.remaining() / 4, "ranks")?,
        codes: codes.u32s(codes.remaining() / 4, "codes")?,
    })
}

impl ElfHead {
    /// How many levels the head has nodes on.
    pub fn head_level_count(&self) -> usize {
        let starts = self.head.level_starts();
        starts.map_or(0, |starts| starts.len() - 1)
    }
}

impl UpperHead {
    /// The first levels of a head: as many as said, or those that are small beside the whole. `None` if there would be
    /// nothing to leave out, or where the file has another form than the head.
    pub fn of(head: &ElfHead, places: &HeadPlaces, levels: Option<usize>) -> Option<Self> {
        let starts = head.head.level_starts()?;
        let below_first = level_count(&starts, levels)?;
        let below = starts.get(below_first..).filter(|below| below.len() > 1)?;
        let (cuts, bundle_count) = cut(&head.head, below);
        let below_count = below.len() - 1;
        let mut upper = Self {
            head: ElfHead {
                head: head.head.first(below[0]),
                geometry: head.geometry.clone(),
                prefix_counts: head.prefix_counts.clone(),
                zones: Zones::default(),
                fences: Vec::new(),
                ..*head
            },
            places: places.arrays?,
            level_count: below_first,
            below_count,
            last_level_at: starts[below_first - 1].nodes,
            cuts,
            sums: Vec::new(),
            is_verified: true,
        };
        upper.sums = (0..bundle_count)
            .map(|bundle| {
                let mut out = Writer::default();
                for level in 0..below_count {
                    let (from, to) = upper.ends(bundle, level);
                    head.head.bytes_of(from, to, &mut out);
                }
                crc32fast::hash(&out.bytes)
            })
            .collect();
        Some(upper)
    }

    /// The head without the levels that are left out: it answers nothing that leads to them.
    pub fn head(&self) -> &ElfHead {
        &self.head
    }

    /// How many levels it has.
    pub fn level_count(&self) -> usize {
        self.level_count
    }

    /// Bytes in memory.
    pub fn size_bytes(&self) -> u64 {
        let cuts = size_of_val(self.cuts.as_slice()) + size_of_val(self.sums.as_slice());
        self.head.head_bytes() + cuts as u64
    }

    /// Where a bundle's parts begin and end on a level below.
    fn ends(&self, bundle: usize, level: usize) -> (Counts, Counts) {
        let at = bundle * self.below_count + level;
        (self.cuts[at], self.cuts[at + self.below_count])
    }

    /// What is needed to answer a query, and to look up keys beside it.
    ///
    /// # Errors
    /// When the query or the keys have another number of dimensions.
    pub fn part_for(&self, query: Option<&QueryBox>, keys: &[u32]) -> Result<HeadPart> {
        self.head.check_keys(keys)?;
        let mut reached = Vec::new();
        if let Some(query) = query {
            query.check(self.head.dimension_count())?;
            self.reach(0, 0, query, &mut reached);
        }
        for key in keys.chunks(self.head.dimension_count()) {
            reached.extend(self.reach_key(key));
        }
        reached.sort_unstable();
        let first_cuts = self.cuts.iter().step_by(self.below_count);
        let first_cuts: Vec<usize> = first_cuts.map(|cut| cut.nodes).collect();
        let bundle_of = |node: usize| first_cuts.partition_point(|first| *first <= node) - 1;
        let mut bundles: Vec<usize> = reached.into_iter().map(bundle_of).collect();
        bundles.dedup();
        let (mut reads, mut below_bytes) = (Vec::new(), 0);
        for &bundle in &bundles {
            for level in 0..self.below_count {
                let (from, to) = self.ends(bundle, level);
                below_bytes += to.minus(from).sum_bytes();
                reads.extend(self.places.of(from, to));
            }
        }
        Ok(HeadPart {
            bundles,
            reads,
            head_bytes: self.head.head_bytes() + below_bytes as u64,
        })
    }

    /// Adds the nodes below the upper levels that a query can reach.
    fn reach(&self, at: usize, level: usize, query: &QueryBox, reached: &mut Vec<usize>) {
        if level == self.level_count {
            reached.push(at);
            return;
        }
        let (head, restriction) = (&self.head.head, &query.dimensions()[level]);
        let node = &head.nodes[at];
        let _ = head.for_children(node, restriction.hull(), |child, code| {
            if !head.rows_of(node, child).is_empty()
                && let Link::Node(below) = head.link_of(node, child)
                && code.is_none_or(|code| restriction.contains(code))
            {
                self.reach(below, level + 1, query, reached);
            }
            std::ops::ControlFlow::<()>::Continue(())
        });
    }

    /// The node below the upper levels that a key leads to, if it leads to one.
    fn reach_key(&self, key: &[u32]) -> Option<usize> {
        let (head, mut at) = (&self.head.head, 0);
        for code in &key[..self.level_count] {
            let node = &head.nodes[at];
            let child = head.child_of(node, *code)?;
            if head.rows_of(node, child).is_empty() {
                return None;
            }
            let Link::Node(below) = head.link_of(node, child) else {
                return None;
            };
            at = below;
        }
        Some(at)
    }

    /// The head that answers the question of a part, of which the reads have these bytes.
    ///
    /// # Errors
    /// When they are not what was written.
    pub fn with_part(
        &self,
        file: &Path,
        part: &HeadPart,
        read: &[impl AsRef<[u8]>],
    ) -> Result<ElfHead, Corruption> {
        let mut pieces = read.iter().map(AsRef::as_ref);
        let mut places = part.reads.chunks(ARRAY_COUNT);
        let mut levels: Vec<Vec<Head>> = (0..self.below_count).map(|_| Vec::new()).collect();
        for &bundle in &part.bundles {
            let mut sum = crc32fast::Hasher::new();
            for level in &mut levels {
                let bytes = [(); ARRAY_COUNT].map(|()| pieces.next().unwrap_or_default());
                bytes.iter().for_each(|bytes| sum.update(bytes));
                level.push(parse(file, places.next().unwrap_or_default(), bytes)?);
            }
            let (expected, found) = (self.sums[bundle], sum.finalize());
            if expected != found {
                let (from, to) = self.ends(bundle, 0);
                let place = Reader::new(file, &[], self.places.of(from, to)[0].start);
                return Err(place.corrupt("part of the head of an Elf", expected, found));
            }
        }
        let head = self.joined(&part.bundles, levels);
        if !self.is_verified {
            head.verify_part(file, head.head.nodes.len() - 1)?;
        }
        Ok(head)
    }
}

/// Upper levels from the bytes of a file.
#[cfg(test)]
pub(super) fn read_from(
    file: &Path,
    levels: Option<usize>,
    bytes: &[u8],
) -> Result<Option<(UpperHead, HeadPlaces)>> {
    let read = |places: Vec<Range<u64>>| {
        let bytes = places.into_iter().map(|place| {
            let bytes = bytes.get(place.start as usize..place.end as usize);
            bytes.unwrap_or_default()
        });
        std::future::ready(Ok(bytes.collect::<Vec<&[u8]>>()))
    };
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(UpperHead::read(file, levels, read)).poll(&mut context) {
        std::task::Poll::Ready(upper) => upper,
        std::task::Poll::Pending => unreachable!("nothing waits"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{PackedElf, PackedOptions};
    use super::*;
    use crate::cases;
    use crate::keys::CodeTable;

    fn file() -> &'static Path {
        Path::new("upper.elf")
    }

    /// An Elf with a head of several levels, and its file.
    fn elf_of(table: &CodeTable, clustered: bool) -> (PackedElf, Vec<u8>) {
        let options = PackedOptions {
            clustered,
            group_rows_max: 2,
            bucket_rows_max: 1,
            ..PackedOptions::default()
        };
        let elf = PackedElf::build(table, &options).unwrap();
        let mut bytes = Vec::new();
        elf.write_to(&mut bytes).unwrap();
        (elf, bytes)
    }

    fn read_of(part: &HeadPart, bytes: &[u8]) -> Vec<Vec<u8>> {
        let read = |place: &Range<u64>| bytes[place.start as usize..place.end as usize].to_vec();
        part.reads.iter().map(read).collect()
    }

    /// Upper levels of a head in memory, and the same read piece by piece.
    fn uppers(elf: &PackedElf, bytes: &[u8]) -> Vec<UpperHead> {
        let (head, places) = ElfHead::read(file(), bytes).unwrap();
        assert_eq!(&head, &**elf.upper());
        let levels = (1..=head.head_level_count()).map(Some).chain([None]);
        let both = levels.flat_map(|levels| {
            let (one, other) = (
                UpperHead::of(&head, &places, levels),
                read_from(file(), levels, bytes).unwrap(),
            );
            let other = other.map(|(upper, other_places)| {
                assert_eq!(other_places, places);
                upper
            });
            if let (Some(one), Some(other)) = (&one, &other) {
                assert_eq!((&one.cuts, &one.sums), (&other.cuts, &other.sums));
                assert_eq!(&one.head.head, &other.head.head);
            }
            assert_eq!(one.is_some(), other.is_some());
            [one, other]
        });
        both.flatten().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_part_answers_its_question(
            table in cases::table(600, u32::MAX),
            seed in any::<u64>(),
            clustered in any::<bool>(),
        ) {
            let (elf, bytes) = elf_of(&table, clustered);
            for upper in uppers(&elf, &bytes) {
                prop_assert!(upper.level_count() < elf.head_level_count());
                for query in cases::queries(&table, seed, 6) {
                    let part = upper.part_for(Some(&query), &[]).unwrap();
                    let head = upper.with_part(file(), &part, &read_of(&part, &bytes)).unwrap();
                    prop_assert!(head.head_bytes() <= part.head_bytes + 64);
                    let other = PackedElf::new(std::sync::Arc::new(head), elf.blocks().clone());
                    prop_assert_eq!(other.select(&query).unwrap(), elf.select(&query).unwrap());
                    let rows = elf.select_rows(&query).unwrap();
                    prop_assert_eq!(&other.select_rows(&query).unwrap(), &rows);
                    prop_assert_eq!(other.count(&query).unwrap(), elf.count(&query).unwrap());
                    let columns: Vec<usize> = (0..table.dimension_count()).collect();
                    let mut codes = [vec![Vec::new(); columns.len()], vec![Vec::new(); columns.len()]];
                    other.read_rows(&rows, &columns, &mut codes[0]).unwrap();
                    elf.read_rows(&rows, &columns, &mut codes[1]).unwrap();
                    prop_assert_eq!(&codes[0], &codes[1]);
                }
                let mut keys: Vec<u32> = (0..table.row_count()).step_by(5).flat_map(|row| table.row(row)).collect();
                keys.extend(vec![3; table.dimension_count()]);
                let part = upper.part_for(None, &keys).unwrap();
                let head = upper.with_part(file(), &part, &read_of(&part, &bytes)).unwrap();
                let other = PackedElf::new(std::sync::Arc::new(head), elf.blocks().clone());
                let found = |elf: &PackedElf| {
                    let mut found = Vec::new();
                    elf.exact_batch(&keys, |key, tid| found.push((key, tid))).unwrap();
                    found.sort_unstable();
                    found
                };
                prop_assert_eq!(found(&other), found(&elf));
            }
        }
    }

    #[test]
    fn one_question_reads_little_and_damage_is_named() {
        let (elf, bytes) = elf_of(&cases::uniform(20_000, 4, 30, 7), false);
        let (head, places) = ElfHead::read(file(), &bytes).unwrap();
        let upper = UpperHead::of(&head, &places, None).unwrap();
        assert!(
            upper.size_bytes() * 10 < elf.head_bytes(),
            "{}",
            upper.size_bytes()
        );
        let part = upper.part_for(None, &[3, 4, 5, 6]).unwrap();
        assert!(part.head_bytes * 5 < elf.head_bytes());
        let sound = read_of(&part, &bytes);
        assert!(upper.with_part(file(), &part, &sound).is_ok());
        for (at, piece) in sound
            .iter()
            .enumerate()
            .filter(|(_, piece)| !piece.is_empty())
        {
            for change in [
                |piece: &mut Vec<u8>| piece[0] ^= 1,
                |piece: &mut Vec<u8>| piece.truncate(piece.len() - 1),
            ] {
                let mut damaged = sound.clone();
                change(&mut damaged[at]);
                assert!(
                    upper.with_part(file(), &part, &damaged).is_err(),
                    "{at} of {}",
                    piece.len()
                );
            }
        }
        assert!(upper.with_part(file(), &part, &sound[1..]).is_err());
        let (mut refused, step) = (0, 97);
        for at in (4096..places.leaf_offset as usize).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            refused += u64::from(read_from(file(), None, &damaged).is_err());
        }
        // Zones and fences are not read.
        let read_bytes = head.head.size_bytes() as usize * 9 / 10;
        assert!(
            refused as usize * step > read_bytes,
            "{refused} of {read_bytes}"
        );
        assert!(UpperHead::of(&head, &places, Some(99)).is_none());
        assert!(upper.part_for(None, &[1, 2, 3]).is_err());
    }
}
