//! A packed Elf as a file: superblock, head sections, leaf blocks. Little endian throughout.
//!
//! ```text
//! superblock, 4096 bytes
//!   0   magic "HSELFPAK"   8  version u32   12 flags u32 (1 clustered, 4 zones)
//!   16  dimensions u32     20 rows u32      24 words per block u32   28 bits per TID u32, 0 before version 4
//!   32  one entry per section: offset u64, bytes u64, CRC-32 u32, zero u32
//!   4084 salt of the checksums of blocks u64, 0 before version 5   4092 CRC-32 of bytes 0-4091
//! sections, each on a multiple of 64
//!   0 shape       largest code u32 per dimension; rows u32 per leaf region; prefix count u64 per dimension
//!   1 starts      u16 per child, and one more per node, of nodes whose children are groups side by side: rows of the
//!                 node before it
//!   2 nodes       kind, what the children are (0 nodes and groups, 1 groups below side by side, 2 buckets side by
//!                 side), first code, last offset, children, first child or start, first code or word, first row, first
//!                 slot of groups side by side: u32 each
//!   3 children    of other nodes: row u32, link u32 (bits 30-31: 0 node, 1 group below, 2 bucket; rest: number)
//!   4 bitmaps u64 5 ranks u32 6 codes u32
//!   7 zones       count of nodes u32, then start u32 each, then min u32, max u32 per bound
//!   8 fences      u16 per leaf block: the first 15 bits of its first row's codes, then whether the last row of the
//!                 block before has the same; empty before version 4
//!   9 leaves      on a multiple of 4096; blocks have their own checksums, the entry's CRC is 0
//! ```
//!
//! The head is small: reading it checks all of it, so that queries over it cannot go astray. Leaves are read at once
//! and checked, or block by block by [`Frame`](super::Frame).

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hotshelf_tier::Corruption;
use hotshelf_tier::simd::Backend;

use crate::codec::{Reader, Writer};
use crate::error::Result;
use crate::keys::{DIMENSION_COUNT_MAX, ROW_COUNT_MAX};

use super::arrays::{pairs, read_children, read_kind, read_nodes, write_children, write_nodes};
use super::geometry::{Geometry, TidLayout};
use super::head::{Child, Head, Link};
use super::zones::Zones;
use super::{ElfHead, PackedElf};

const MAGIC: &[u8; 8] = b"HSELFPAK";
const VERSION: u32 = 5;
/// Before version 5 blocks of all Elfs have the same names in their checksums.
const VERSION_SALTED: u32 = 5;
/// Before version 4 there are no fences, all nodes have entries for their children, and TIDs have 32 bits.
const VERSION_PACKED: u32 = 4;
/// Blocks of version 2 do not have their number in their checksum.
const VERSION_NUMBERED: u32 = 3;
const VERSION_MIN: u32 = 2;
pub(super) const SUPERBLOCK_BYTES: usize = 4096;
const SALT_AT: usize = SUPERBLOCK_BYTES - 12;
const SECTION_ALIGN: u64 = 64;
const LEAF_ALIGN: u64 = 4096;
const SECTION_COUNT: usize = 10;
const LEAVES: usize = 9;
const FLAG_CLUSTERED: u32 = 1;
const FLAG_ZONES: u32 = 4;

/// Where the parts of a head lie in the file of its Elf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadPlaces {
    /// Where the leaves begin.
    pub leaf_offset: u64,
    /// Where the arrays of the head begin; `None` in files of versions in which they are not as they are in memory.
    pub(super) arrays: Option<ArrayPlaces>,
}

/// Where the arrays of a head begin in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArrayPlaces {
    pub(super) starts: u64,
    pub(super) nodes: u64,
    pub(super) children: u64,
    pub(super) bitmaps: u64,
    pub(super) ranks: u64,
    pub(super) codes: u64,
}

/// Where a section lies and its checksum.
#[derive(Debug, Clone, Copy, Default)]
struct Section {
    offset: u64,
    len_bytes: u64,
    crc: u32,
}

impl ElfHead {
    /// The sections before the leaves.
    fn head_sections(&self) -> Vec<Vec<u8>> {
        let mut sections: Vec<Writer> = (0..LEAVES).map(|_| Writer::default()).collect();
        let slot_counts: Vec<u32> = self
            .geometry
            .slot_counts
            .iter()
            .map(|&n| n as u32)
            .collect();
        sections[0].u32s(&self.geometry.code_max);
        sections[0].u32s(&slot_counts);
        sections[0].u64s(&self.prefix_counts);
        sections[1].u16s(&self.head.starts);
        write_nodes(&self.head.nodes, &mut sections[2]);
        write_children(&self.head.children, &mut sections[3]);
        sections[4].u64s(&self.head.bitmaps);
        sections[5].u32s(&self.head.ranks);
        sections[6].u32s(&self.head.codes);
        sections[7].u32(self.zones.starts.len() as u32);
        sections[7].u32s(&self.zones.starts);
        self.zones
            .bounds
            .iter()
            .for_each(|&(min, max)| sections[7].u32s(&[min, max]));
        sections[8].u16s(&self.fences);
        sections.into_iter().map(|section| section.bytes).collect()
    }

    fn superblock(&self, sections: &[Section]) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes.extend_from_slice(MAGIC);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.geometry.clustered, FLAG_CLUSTERED)
            | flag(!self.zones.starts.is_empty(), FLAG_ZONES);
        out.u32s(&[
            VERSION,
            flags,
            self.dimension_count() as u32,
            self.row_count as u32,
        ]);
        let tid_bits = match self.geometry.tids {
            TidLayout::Packed(bits) => bits,
            TidLayout::Clustered | TidLayout::Wide { .. } => 0,
        };
        out.u32s(&[self.geometry.block_words as u32, tid_bits]);
        for section in sections {
            out.u64s(&[section.offset, section.len_bytes]);
            out.u32s(&[section.crc, 0]);
        }
        out.bytes.resize(SALT_AT, 0);
        out.u64s(&[self.geometry.salt]);
        out.u32(crc32fast::hash(&out.bytes));
        out.bytes
    }

    /// Writes everything up to the first leaf block.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let contents = self.head_sections();
        let mut sections = Vec::with_capacity(SECTION_COUNT);
        let mut end = SUPERBLOCK_BYTES as u64;
        for content in &contents {
            let offset = end.next_multiple_of(SECTION_ALIGN);
            let (len_bytes, crc) = (content.len() as u64, crc32fast::hash(content));
            sections.push(Section {
                offset,
                len_bytes,
                crc,
            });
            end = offset + len_bytes;
        }
        let offset = end.next_multiple_of(LEAF_ALIGN);
        sections.push(Section {
            offset,
            len_bytes: self.leaf_bytes(),
            crc: 0,
        });
        out.write_all(&self.superblock(&sections))?;
        let mut at = SUPERBLOCK_BYTES as u64;
        for (section, content) in sections.iter().zip(contents.iter().chain([&Vec::new()])) {
            out.write_all(&vec![0; (section.offset - at) as usize])?;
            out.write_all(content)?;
            at = section.offset + content.len() as u64;
        }
        Ok(())
    }
}

/// Writes words as little-endian bytes.
pub(crate) fn write_words(words: &[u64], out: &mut impl Write) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(words.len().min(8192) * 8);
    for words in words.chunks(8192) {
        bytes.clear();
        words
            .iter()
            .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        out.write_all(&bytes)?;
    }
    Ok(())
}

impl<S: AsRef<[u64]>> PackedElf<S> {
    /// Writes the Elf in the file format.
    ///
    /// # Errors
    /// Those of `out`, or when the Elf is from a file of an earlier version.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        if self.geometry.tids.is_wide() {
            let what = "an Elf of an earlier version can only be read";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.upper.write(out)?;
        let word_count = self.geometry.block_count() * self.geometry.block_words;
        write_words(&self.leaves.as_ref()[..word_count], out)
    }
}

/// What the superblock says.
pub(super) struct Superblock {
    version: u32,
    dimension_count: usize,
    pub(super) row_count: usize,
    block_words: usize,
    tids: TidLayout,
    salt: u64,
    sections: [Section; SECTION_COUNT],
}

pub(super) fn read_superblock(file: &Path, bytes: &[u8]) -> Result<Superblock, Corruption> {
    let mut input = Reader::new(file, bytes, 0);
    let all = input.clone().take(SUPERBLOCK_BYTES, "superblock")?;
    if input.take(8, "magic")? != MAGIC {
        return Err(input.corrupt("magic", "HSELFPAK", "other bytes"));
    }
    let version = input.u32("version")?;
    if !(VERSION_MIN..=VERSION).contains(&version) {
        return Err(input.corrupt("version", VERSION, version));
    }
    let (body, stored) = all.split_at(SUPERBLOCK_BYTES - 4);
    let (found, stored) = (
        crc32fast::hash(body),
        Reader::new(file, stored, 0).u32("checksum")?,
    );
    if found != stored {
        return Err(input.corrupt("superblock checksum", stored, found));
    }
    let flags = input.u32("flags")?;
    let dimension_count = input.u32("dimensions")? as usize;
    let row_count = input.u32("rows")? as usize;
    let block_words = input.u32("words per block")? as usize;
    let tid_bits = input.u32("bits per TID")?;
    let clustered = flags & FLAG_CLUSTERED != 0;
    let tids = match (version >= VERSION_PACKED, clustered, tid_bits) {
        (false, _, _) => TidLayout::Wide { clustered },
        (true, true, 0) => TidLayout::Clustered,
        (true, false, 1..=32) => TidLayout::Packed(tid_bits),
        _ => return Err(input.corrupt("bits per TID", "1 to 32", tid_bits)),
    };
    if !(1..=DIMENSION_COUNT_MAX).contains(&dimension_count) || row_count > ROW_COUNT_MAX {
        return Err(input.corrupt("dimensions or rows", "numbers in range", "others"));
    }
    let mut sections = [Section::default(); SECTION_COUNT];
    for section in &mut sections {
        *section = Section {
            offset: input.u64("section offset")?,
            len_bytes: input.u64("section length")?,
            crc: input.u32("section checksum")?,
        };
        input.u32("reserved word")?;
    }
    Ok(Superblock {
        version,
        dimension_count,
        row_count,
        block_words,
        tids,
        salt: match version >= VERSION_SALTED {
            true => Reader::new(file, &all[SALT_AT..], 0).u64("salt")?,
            false => 0,
        },
        sections,
    })
}

/// A reader over one section, its checksum verified.
fn open_section<'a>(
    file: &'a Path,
    bytes: &'a [u8],
    section: &Section,
) -> Result<Reader<'a>, Corruption> {
    let whole = Reader::new(file, bytes, 0);
    let range = usize::try_from(section.offset).ok().and_then(|start| {
        let end = start.checked_add(usize::try_from(section.len_bytes).ok()?)?;
        bytes.get(start..end)
    });
    let Some(content) = range else {
        return Err(whole.corrupt("section", "a range inside the file", section.offset));
    };
    let found = crc32fast::hash(content);
    if found != section.crc {
        return Err(whole.corrupt("section checksum", section.crc, found));
    }
    Ok(Reader::new(file, content, section.offset))
}

fn read_geometry(
    input: &mut Reader<'_>,
    superblock: &Superblock,
) -> Result<(Geometry, Vec<u64>), Corruption> {
    let dimension_count = superblock.dimension_count;
    let code_max = input.u32s(dimension_count, "largest codes")?;
    let slot_counts = input.u32s(dimension_count + 1, "rows per region")?;
    let slot_counts: Vec<usize> = slot_counts
        .into_iter()
        .map(|count| count as usize)
        .collect();
    if slot_counts.iter().sum::<usize>() != superblock.row_count {
        return Err(input.corrupt("rows per region", superblock.row_count, "another sum"));
    }
    let prefix_counts = input.u64s(dimension_count, "prefix counts")?;
    let mut geometry = Geometry::new(code_max, superblock.tids, slot_counts);
    geometry.numbered = superblock.version >= VERSION_NUMBERED;
    geometry.salt = superblock.salt;
    if geometry.block_words != superblock.block_words {
        return Err(input.corrupt(
            "words per block",
            geometry.block_words,
            superblock.block_words,
        ));
    }
    Ok((geometry, prefix_counts))
}

/// Adds the nodes of an earlier version, where all children have entries.
fn read_earlier_nodes(
    input: &mut Reader<'_>,
    children: &[Child],
    head: &mut Head,
) -> Result<(), Corruption> {
    let mut rest = children;
    while input.remaining() > 0 {
        let kind = read_kind(input)?;
        let (first_code, last_offset) = (input.u32("first code")?, input.u32("last offset")?);
        let child_count = input.u32("children")? as usize;
        let child_at = input.u32("first child")? as usize;
        let codes_at = input.u32("first code position")?;
        let is_next = child_at == children.len() - rest.len();
        let own = rest.split_at_checked(child_count).filter(|_| is_next);
        let Some((own, [end, others @ ..])) = own else {
            return Err(input.corrupt("children", "those after the last node's", child_at));
        };
        head.push_node(kind, (first_code, last_offset, codes_at), own, end.row);
        rest = others;
    }
    match rest.len() {
        0 => Ok(()),
        left => Err(input.corrupt("children", "as many as the nodes have", left)),
    }
}

impl Superblock {
    pub(super) fn places(&self) -> HeadPlaces {
        let offset = |section: usize| self.sections[section].offset;
        let arrays = ArrayPlaces {
            starts: offset(1),
            nodes: offset(2),
            children: offset(3),
            bitmaps: offset(4),
            ranks: offset(5),
            codes: offset(6),
        };
        HeadPlaces {
            leaf_offset: offset(LEAVES),
            arrays: (self.version >= VERSION_PACKED).then_some(arrays),
        }
    }

    /// Where the section of the shape is.
    pub(super) fn shape_place(&self) -> Range<u64> {
        let shape = &self.sections[0];
        shape.offset..shape.offset.saturating_add(shape.len_bytes)
    }

    /// Reads the section of the shape from its bytes.
    pub(super) fn read_shape(
        &self,
        file: &Path,
        bytes: &[u8],
    ) -> Result<(Geometry, Vec<u64>), Corruption> {
        let section = Section {
            offset: 0,
            ..self.sections[0]
        };
        read_geometry(&mut open_section(file, bytes, &section)?, self)
    }

    /// Bytes and checksums of the arrays: nodes, children, starts, bitmaps, ranks and codes.
    pub(super) fn arrays(&self) -> [(u64, u32); 6] {
        [2, 3, 1, 4, 5, 6].map(|section: usize| {
            let section = &self.sections[section];
            (section.len_bytes, section.crc)
        })
    }
}

impl ElfHead {
    /// Reads the head of an Elf from the first bytes of its file, at least up to the leaves, and where its parts and
    /// the leaves are. `file` is named in errors.
    ///
    /// # Errors
    /// When the bytes are not the head of a packed Elf, or are damaged.
    pub fn read(file: &Path, bytes: &[u8]) -> Result<(Self, HeadPlaces)> {
        let superblock = read_superblock(file, bytes)?;
        let open = |section: usize| open_section(file, bytes, &superblock.sections[section]);
        let (geometry, prefix_counts) = read_geometry(&mut open(0)?, &superblock)?;
        let is_packed = superblock.version >= VERSION_PACKED;
        let mut fences = open(8)?;
        let fence_count = if is_packed { geometry.block_count() } else { 0 };
        let fences = fences.u16s(fence_count, "fences")?;
        let children = read_children(&mut open(3)?)?;
        let (mut starts, mut bitmaps) = (open(1)?, open(4)?);
        let (mut ranks, mut codes) = (open(5)?, open(6)?);
        let mut head = Head {
            bitmaps: bitmaps.u64s(bitmaps.remaining() / 8, "bitmaps")?,
            ranks: ranks.u32s(ranks.remaining() / 4, "ranks")?,
            codes: codes.u32s(codes.remaining() / 4, "codes")?,
            ..Head::default()
        };
        if is_packed {
            head.nodes = read_nodes(&mut open(2)?)?;
            head.children = children;
            head.starts = starts.u16s(starts.remaining() / 2, "starts")?;
        } else {
            read_earlier_nodes(&mut open(2)?, &children, &mut head)?;
        }
        head.settle();
        let mut input = open(7)?;
        let zone_count = input.u32("number of zones")? as usize;
        let starts = input.u32s(zone_count, "zone starts")?;
        let zones = Zones {
            starts,
            bounds: pairs(&mut input, "zone bounds")?,
        };
        let root = if head.nodes.is_empty() {
            Link::Here(0)
        } else {
            Link::Node(0)
        };
        let upper = Self {
            row_count: superblock.row_count,
            geometry,
            head,
            root,
            zones,
            fences,
            prefix_counts,
            backend: Backend::detect(),
        };
        upper.verify(file)?;
        Ok((upper, superblock.places()))
    }
}

impl PackedElf {
    /// Reads an Elf with its leaves and checks all checksums. `file` is named in errors.
    ///
    /// # Errors
    /// When the bytes are not a packed Elf, or are damaged.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self> {
        let (upper, places) = ElfHead::read(file, bytes)?;
        let leaf_offset = places.leaf_offset;
        let start = usize::try_from(leaf_offset).ok();
        let Some(rest) = start.and_then(|start| bytes.get(start..)) else {
            let whole = Reader::new(file, bytes, 0);
            return Err(whole
                .corrupt("length of the file", leaf_offset, bytes.len())
                .into());
        };
        let mut input = Reader::new(file, rest, leaf_offset);
        let leaves = input.u64s(upper.leaf_bytes() as usize / 8, "leaves")?;
        if input.remaining() > 0 {
            return Err(input
                .corrupt("end of the file", 0, input.remaining())
                .into());
        }
        let elf = Self::new(Arc::new(upper), leaves);
        elf.verify_blocks(file)?;
        Ok(elf)
    }
}
