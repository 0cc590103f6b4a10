//! Index files checked without the engine: whose they are, and everything in them.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hotshelf_elf::layout::packed::PackedElf;

use super::file::{Indexes, SUPERBLOCK_BYTES, Stretch, Superblock, corrupt, located};
use super::paths::IndexPaths;
use crate::error::{Result, StoreError};

/// The length of an index file whose superblock says that it is the one asked for.
pub(crate) fn check(paths: &IndexPaths, indexes: Indexes, column_count: usize) -> Result<u64> {
    let path = &paths.file();
    let file = paths.root.open_file(path)?;
    let mut block = [0; SUPERBLOCK_BYTES];
    file.read_exact_at(&mut block, 0)
        .map_err(StoreError::io("read", path))?;
    Superblock::read(path, &block)?.check(paths, indexes, column_count)?;
    Ok(file
        .metadata()
        .map_err(StoreError::io("measure", path))?
        .len())
}

/// Reads an index file again and checks everything, to the last row. One Elf is in memory at a time.
pub fn verify(
    paths: &IndexPaths,
    indexes: Option<Indexes>,
    column_count: usize,
) -> Result<(), StoreError> {
    let path = &paths.file();
    let file = paths.root.open_file(path)?;
    let length = file.metadata().map_err(StoreError::io("measure", path))?;
    let length = length.len();
    let read = |bytes: Range<u64>| -> Result<Vec<u8>> {
        let mut read = vec![0; (bytes.end - bytes.start) as usize];
        file.read_exact_at(&mut read, bytes.start)
            .map_err(StoreError::io("read", path))?;
        Ok(read)
    };
    let superblock = read(0..length.min(SUPERBLOCK_BYTES as u64))?;
    let superblock = Superblock::read(path, &superblock)?;
    superblock.check(paths, indexes.unwrap_or(superblock.indexes), column_count)?;
    let meta = superblock.meta.clone();
    if meta.end != length || meta.start > meta.end {
        return Err(corrupt(path, length, "file length", meta.end, length).into());
    }
    let (_, stretches) = superblock.read_meta(path, &read(meta)?)?;
    for stretch in &stretches {
        // All stretches end before the description.
        let content = read(stretch.offset..stretch.offset + stretch.bytes)?;
        verify_elf(path, stretch, &content)?;
    }
    Ok(())
}

fn verify_elf(path: &Path, stretch: &Stretch, content: &[u8]) -> Result<()> {
    let at = |error: StoreError| located(error, stretch.offset);
    let elf = PackedElf::from_bytes(path, content).map_err(|error| at(error.into()))?;
    elf.verify(path).map_err(|error| at(error.into()))?;
    let expected = stretch.rows.end - stretch.rows.start;
    if elf.row_count() as u64 != expected {
        let found = elf.row_count();
        return Err(corrupt(path, stretch.offset, "rows", expected, found).into());
    }
    Ok(())
}
