//! Checksums of a data file: one CRC-32 per segment and one for the footer, in `sums/<n>.crc`.

use std::path::Path;

use hotshelf_tier::Corruption;

use crate::error::{Result, StoreError};
use crate::root::Root;

const MAGIC: &[u8; 8] = b"HSSUMS01";
const HEADER_BYTES: usize = 8 + 8 + 8 + 4 + 4;

/// The checksums of one data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    /// Length of the data file.
    pub file_bytes: u64,
    /// Where the footer starts: everything from here to the end.
    pub footer_offset: u64,
    /// Checksum of the footer.
    pub footer: u32,
    /// Checksum of each segment, by its index.
    pub segments: Vec<u32>,
}

impl Sums {
    /// Little-endian: magic, file length, footer offset, footer sum, segment count, sums, sum of all before.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.segments.len() * 4 + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.file_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.footer_offset.to_le_bytes());
        bytes.extend_from_slice(&self.footer.to_le_bytes());
        bytes.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for sum in &self.segments {
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the file at `path`. Damage is a typed error.
    pub fn read(root: &Root, path: &Path) -> Result<Self> {
        let bytes = root.read(path)?;
        Self::decode(&bytes).map_err(|(offset, expected, found)| {
            StoreError::Corruption(Corruption {
                file: path.to_owned(),
                offset: offset as u64,
                what: "checksum file".into(),
                expected,
                found,
            })
        })
    }

    fn decode(bytes: &[u8]) -> Result<Self, (usize, String, String)> {
        if bytes.len() < HEADER_BYTES + 4 || bytes[..8] != *MAGIC {
            let found = format!("{} bytes without it", bytes.len());
            return Err((0, "a header 'HSSUMS01'".into(), found));
        }
        let (body, tail) = bytes.split_at(bytes.len() - 4);
        let (stored, computed) = (le_u32(tail, 0), crc32fast::hash(body));
        if stored != computed {
            return Err((
                body.len(),
                format!("checksum {stored:08x}"),
                format!("{computed:08x}"),
            ));
        }
        let count = le_u32(body, 28) as usize;
        if body.len() != HEADER_BYTES + count * 4 {
            return Err((28, format!("{count} sums"), format!("{} bytes", body.len())));
        }
        Ok(Self {
            file_bytes: le_u64(body, 8),
            footer_offset: le_u64(body, 16),
            footer: le_u32(body, 24),
            segments: (0..count)
                .map(|i| le_u32(body, HEADER_BYTES + i * 4))
                .collect(),
        })
    }
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le_u32(bytes, at)) | u64::from(le_u32(bytes, at + 4)) << 32
}

/// The sum of `bytes`, or the corruption that `found` in place of `expected` is.
pub fn verify(
    file: &Path,
    offset: u64,
    what: &str,
    bytes: &[u8],
    expected: u32,
) -> Result<(), Corruption> {
    let found = crc32fast::hash(bytes);
    if found == expected {
        return Ok(());
    }
    Err(Corruption {
        file: file.to_owned(),
        offset,
        what: what.to_owned().into(),
        expected: format!("checksum {expected:08x}"),
        found: format!("{found:08x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums() -> Sums {
        Sums {
            file_bytes: 1 << 40,
            footer_offset: 12345,
            footer: 7,
            segments: vec![1, 2, u32::MAX],
        }
    }

    #[test]
    fn sums_read_back() {
        assert_eq!(Sums::decode(&sums().encode()), Ok(sums()));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() {
        let bytes = sums().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Sums::decode(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Sums::decode(&bytes[..len]).is_err(), "length {len}");
        }
    }
}
