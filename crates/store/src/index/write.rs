//! Writing index files.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use hotshelf_elf::cost::CostModel;
use hotshelf_elf::layout::packed::{ExternalBuilder, PackedElf};

use super::file::{FLAG_CLUSTERED, Indexes, MAGIC, SUPERBLOCK_BYTES, VERSION};
use super::keys::KeyColumn;
use super::zones::Zones;
use crate::error::{Result, StoreError};
use crate::ids::random_id;
use crate::root::Root;

/// Elfs start on multiples of this, so that direct reads fit.
const ALIGN: u64 = 4096;

/// What is stored of some rows of a data file.
pub struct BuiltStretch {
    /// The Elf.
    pub elf: PackedElf,
    /// What asking it costs.
    pub model: CostModel,
    /// Bounds of its codes.
    pub zones: Zones,
}

/// Writes an index file: Elfs first, then what describes them, then the superblock.
pub struct FileWriter {
    path: PathBuf,
    file: File,
    at: u64,
    meta: Vec<u8>,
    stretch_count: u32,
    clustered: bool,
}

impl FileWriter {
    /// Creates the file; `clustered` if the data file's rows are in the Elfs' order.
    pub fn create(root: &Root, path: &Path, clustered: bool) -> Result<Self> {
        let file = root.create(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            at: SUPERBLOCK_BYTES as u64,
            meta: Vec::new(),
            stretch_count: 0,
            clustered,
        })
    }

    /// Adds the Elf of some rows.
    pub fn add(&mut self, rows: Range<u64>, built: &BuiltStretch) -> Result<()> {
        let BuiltStretch { elf, model, zones } = built;
        let io = |error| StoreError::io("write", &self.path)(error);
        let offset = self.at.next_multiple_of(ALIGN);
        self.file.seek(SeekFrom::Start(offset)).map_err(io)?;
        let mut out = std::io::BufWriter::with_capacity(1 << 20, &self.file);
        elf.write_to(&mut out).map_err(io)?;
        out.flush().map_err(io)?;
        drop(out);
        self.at = self.file.stream_position().map_err(io)?;
        let len_bytes = self.at - offset;
        let leaf_offset = len_bytes - elf.leaf_bytes();
        self.describe(rows, [offset, leaf_offset, len_bytes], model, zones);
        Ok(())
    }

    /// Adds the Elf that a builder makes of some rows. It needs an empty file for that.
    pub fn add_external(
        &mut self,
        rows: Range<u64>,
        builder: ExternalBuilder,
        scratch: File,
        zones: &Zones,
    ) -> Result<()> {
        let offset = self.at.next_multiple_of(ALIGN);
        let written = builder.finish(scratch, &self.file, offset)?;
        self.at = offset + written.len_bytes;
        let place = [offset, written.leaf_offset, written.len_bytes];
        self.describe(rows, place, &written.model, zones);
        Ok(())
    }

    /// Notes an Elf: its rows, and its offset, that of its leaves in it, and its length.
    fn describe(&mut self, rows: Range<u64>, place: [u64; 3], model: &CostModel, zones: &Zones) {
        for number in [rows.start, rows.end - rows.start].into_iter().chain(place) {
            self.meta.extend_from_slice(&number.to_le_bytes());
        }
        put_blob(&mut self.meta, &model.to_bytes());
        put_blob(&mut self.meta, &zones.to_bytes());
        self.stretch_count += 1;
    }

    /// Writes the rest and syncs the file, which belongs to the index of this number; returns its length.
    pub fn finish(mut self, keys: &[KeyColumn], indexes: Indexes, index: i64) -> Result<u64> {
        let mut meta = Vec::new();
        keys.iter()
            .for_each(|key| put_blob(&mut meta, &key.to_bytes()));
        meta.extend_from_slice(&self.meta);
        let io = |error| StoreError::io("write", &self.path)(error);
        let meta_offset = self.at.next_multiple_of(ALIGN);
        self.file.seek(SeekFrom::Start(meta_offset)).map_err(io)?;
        self.file.write_all(&meta).map_err(io)?;
        let mut block = MAGIC.to_vec();
        let flags = if self.clustered { FLAG_CLUSTERED } else { 0 };
        put_words(&mut block, &[VERSION, flags]);
        for number in [indexes.row_count, indexes.file_bytes] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        put_words(&mut block, &[indexes.footer_sum, keys.len() as u32]);
        for number in [meta_offset, meta.len() as u64] {
            block.extend_from_slice(&number.to_le_bytes());
        }
        put_words(&mut block, &[crc32fast::hash(&meta), self.stretch_count]);
        block.extend_from_slice(&indexes.id.to_le_bytes());
        block.extend_from_slice(&index.to_le_bytes());
        block.extend_from_slice(&random_id().to_le_bytes());
        block.resize(SUPERBLOCK_BYTES - 4, 0);
        let sum = crc32fast::hash(&block);
        put_words(&mut block, &[sum]);
        self.file.seek(SeekFrom::Start(0)).map_err(io)?;
        self.file.write_all(&block).map_err(io)?;
        self.file
            .sync_all()
            .map_err(StoreError::io("sync", &self.path))?;
        // Read again without the page cache, if at all.
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).ok();
        Ok(meta_offset + meta.len() as u64)
    }
}

fn put_words(bytes: &mut Vec<u8>, words: &[u32]) {
    words
        .iter()
        .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

fn put_blob(bytes: &mut Vec<u8>, blob: &[u8]) {
    put_words(bytes, &[blob.len() as u32]);
    bytes.extend_from_slice(blob);
}
