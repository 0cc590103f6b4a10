//! Every byte of a data file compared with its checksums, a piece at a time.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use arrow::datatypes::SchemaRef;
use hotshelf_tier::Corruption;

use super::footer;
use super::open::DataFile;
use super::paths::FilePaths;
use super::segments::SegmentMap;
use super::sums::{Sums, check_length, mismatch};
use crate::catalog::entries::FileRow;
use crate::error::{Result, StoreError};

/// Bytes read together.
const PIECE_BYTES: usize = 1 << 20;

impl DataFile {
    /// Reads every byte again, bypassing the cache, and compares all checksums, and the footer's statistics with the
    /// catalog's. Takes little memory, however large the file is.
    pub fn verify(
        paths: &FilePaths,
        expected: &FileRow,
        schema: &SchemaRef,
    ) -> Result<Vec<Corruption>> {
        match verify(paths, expected, schema) {
            Err(StoreError::Corruption(found)) => Ok(vec![found]),
            other => other,
        }
    }
}

/// All damage, or the first that makes the rest meaningless.
fn verify(paths: &FilePaths, expected: &FileRow, schema: &SchemaRef) -> Result<Vec<Corruption>> {
    let path = paths.data();
    let sums = Sums::of(paths, expected)?;
    let file = paths.root().open_file(&path)?;
    let length = file.metadata().map_err(StoreError::io("measure", &path))?;
    check_length(&path, length.len(), &sums, expected.file_bytes)?;
    let session = crate::vortex_session();
    let footer = footer::read_open(paths, &file, &sums, &session)?;
    let map = SegmentMap::new(&footer)?;
    map.check_count(&paths.sums(), &sums)?;
    let mut buffer = vec![0; PIECE_BYTES.min(length.len() as usize).max(1)];
    let mut damages = Vec::new();
    for (spec, expected) in map.specs.iter().zip(&sums.segments) {
        let bytes = spec.offset..spec.offset.saturating_add(spec.length.into());
        check_inside(&path, &bytes, length.len())?;
        let found = sum_of(&file, &path, bytes, &mut buffer)?;
        damages.extend(mismatch(&path, spec.offset, "segment", *expected, found));
    }
    let in_file = footer::statistics(&footer, &map, schema, &session, Vec::new())?;
    let difference = footer::difference(&in_file, &expected.stats);
    damages.extend(difference.filter(|_| expected.is_sound));
    Ok(damages)
}

/// A segment must be in the file.
fn check_inside(path: &Path, bytes: &Range<u64>, file_bytes: u64) -> Result<()> {
    if bytes.end <= file_bytes {
        return Ok(());
    }
    Err(StoreError::Corruption(Corruption {
        file: path.to_owned(),
        offset: bytes.start,
        what: "segment".into(),
        expected: format!("one within {file_bytes} bytes"),
        found: format!("one that ends at byte {}", bytes.end),
    }))
}

/// The checksum of some bytes of a file; `buffer` has room for a piece of them.
pub(super) fn sum_of(
    file: &File,
    path: &Path,
    bytes: Range<u64>,
    buffer: &mut [u8],
) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut at = bytes.start;
    while at < bytes.end {
        let count = (bytes.end - at).min(buffer.len() as u64);
        let piece = &mut buffer[..count as usize];
        file.read_exact_at(piece, at)
            .map_err(StoreError::io("read", path))?;
        hasher.update(piece);
        at += count;
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_pieces_is_the_sum_of_the_whole() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..100_u8).map(|at| at.wrapping_mul(37)).collect();
        std::fs::write(path.path(), &bytes).unwrap();
        let file = File::open(path.path()).unwrap();
        for piece in [1, 7, 100, 1000] {
            let found = sum_of(&file, path.path(), 3..90, &mut vec![0; piece]).unwrap();
            assert_eq!(found, crc32fast::hash(&bytes[3..90]), "{piece}");
        }
        let beyond = check_inside(path.path(), &(90..101), 100);
        assert!(matches!(beyond, Err(StoreError::Corruption(_))));
    }
}
