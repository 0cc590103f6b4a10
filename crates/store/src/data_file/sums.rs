//! Checksums of a data file, and what tells it from any other: `sums/<n>.crc`.

use std::path::Path;

use hotshelf_tier::Corruption;

use super::paths::FilePaths;
use crate::catalog::entries::FileRow;
use crate::error::{Result, StoreError};
use crate::fields::{Fields, put_bytes, put_number, put_word};
use crate::head::Change;
use crate::root::Root;

const MAGIC_1: &[u8; 8] = b"HSSUMS01";
const MAGIC_2: &[u8; 8] = b"HSSUMS02";

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
    /// Where the file comes from; files of format 1 do not say.
    pub origin: Option<Origin>,
}

/// Where a data file comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// A number that no other file has.
    pub id: u64,
    /// The database that it was written for.
    pub database: u64,
    /// The last change before it was written.
    pub after: Change,
    /// The table's folder.
    pub folder: String,
    /// The file's number.
    pub number: u64,
    /// Numbers of files whose rows it holds and whose place it takes.
    pub replaces: Vec<u64>,
}

impl Sums {
    /// As it is stored, little-endian (`docs/FORMAT.md`).
    pub fn encode(&self) -> Vec<u8> {
        let magic = if self.origin.is_some() {
            MAGIC_2
        } else {
            MAGIC_1
        };
        let mut bytes = magic.to_vec();
        put_number(&mut bytes, self.file_bytes);
        put_number(&mut bytes, self.footer_offset);
        put_word(&mut bytes, self.footer);
        put_word(&mut bytes, self.segments.len() as u32);
        self.segments
            .iter()
            .for_each(|sum| put_word(&mut bytes, *sum));
        if let Some(origin) = &self.origin {
            origin.encode(&mut bytes);
        }
        let sum = crc32fast::hash(&bytes);
        put_word(&mut bytes, sum);
        bytes
    }

    /// Reads the file at `path`. Damage is a typed error.
    pub fn read(root: &Root, path: &Path) -> Result<Self> {
        Ok(Self::decode(path, &root.read(path)?)?)
    }

    /// Reads the checksums of a file of the catalog, and makes sure that they are of this file and no older one.
    pub fn of(paths: &FilePaths, row: &FileRow) -> Result<Self> {
        Self::of_file(paths, row.is_sound.then_some(row.id))
    }

    /// The same for a file of this identity, or of any if none is known.
    pub(crate) fn of_file(paths: &FilePaths, id: Option<u64>) -> Result<Self> {
        let sums = Self::read(paths.root(), &paths.sums())?;
        let is_own = match &sums.origin {
            None => id.unwrap_or(0) == 0,
            Some(origin) => {
                let is_place =
                    origin.number == paths.number && origin.folder == paths.table_folder();
                is_place && id.is_none_or(|id| id == origin.id)
            }
        };
        if is_own {
            return Ok(sums);
        }
        Err(StoreError::Corruption(Corruption {
            file: paths.sums(),
            offset: 0,
            what: "data file's identity".into(),
            expected: id.map_or("any".into(), |id| format!("{id:016x}")),
            found: sums.origin.map_or("none".into(), |origin| {
                format!(
                    "{:016x}, file {} of {}",
                    origin.id, origin.number, origin.folder
                )
            }),
        }))
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<Self, Corruption> {
        let mut input = Fields::new(path, bytes, "checksum file");
        let magic = input.take(8)?;
        if magic != MAGIC_1 && magic != MAGIC_2 {
            return Err(input.corrupt("a header 'HSSUMS01' or 'HSSUMS02'", "other bytes"));
        }
        input.check_sum(bytes)?;
        let (file_bytes, footer_offset) = (input.number()?, input.number()?);
        let (footer, count) = (input.word()?, input.word()?);
        input.expect(u64::from(count) * 4)?;
        let segments = (0..count).map(|_| input.word());
        let segments = segments.collect::<Result<_, _>>()?;
        let origin = match magic == MAGIC_2 {
            true => Some(Origin::decode(&mut input)?),
            false => None,
        };
        input.end()?;
        Ok(Self {
            file_bytes,
            footer_offset,
            footer,
            segments,
            origin,
        })
    }
}

impl Origin {
    fn encode(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.id);
        put_number(bytes, self.database);
        put_number(bytes, self.after.number);
        put_word(bytes, self.after.sum);
        put_bytes(bytes, self.folder.as_bytes());
        put_number(bytes, self.number);
        put_word(bytes, self.replaces.len() as u32);
        self.replaces
            .iter()
            .for_each(|number| put_number(bytes, *number));
    }

    fn decode(input: &mut Fields<'_>) -> Result<Self, Corruption> {
        let (id, database) = (input.number()?, input.number()?);
        let after = Change {
            number: input.number()?,
            sum: input.word()?,
        };
        let folder = input.text()?;
        let number = input.number()?;
        let count = input.word()?;
        input.expect(u64::from(count) * 8)?;
        let replaces = (0..count).map(|_| input.number());
        Ok(Self {
            id,
            database,
            after,
            folder,
            number,
            replaces: replaces.collect::<Result<_, _>>()?,
        })
    }
}

/// The sum of `bytes`, or the corruption that `found` in place of `expected` is.
pub(crate) fn verify(
    file: &Path,
    offset: u64,
    what: &str,
    bytes: &[u8],
    expected: u32,
) -> Result<(), Corruption> {
    let found = crc32fast::hash(bytes);
    mismatch(file, offset, what, expected, found).map_or(Ok(()), Err)
}

/// The corruption that the sum `found` is in place of `expected`, if they differ.
pub(crate) fn mismatch(
    file: &Path,
    offset: u64,
    what: &str,
    expected: u32,
    found: u32,
) -> Option<Corruption> {
    (found != expected).then(|| Corruption {
        file: file.to_owned(),
        offset,
        what: what.to_owned().into(),
        expected: format!("checksum {expected:08x}"),
        found: format!("{found:08x}"),
    })
}

/// The file must be as long as its checksums and the catalog say.
pub(super) fn check_length(path: &Path, found: u64, sums: &Sums, expected: u64) -> Result<()> {
    if found == sums.file_bytes && sums.file_bytes == expected && sums.footer_offset <= found {
        return Ok(());
    }
    Err(wrong_length(path, expected, found).into())
}

/// The damage that a file of another length is.
pub(super) fn wrong_length(path: &Path, expected: u64, found: u64) -> Corruption {
    Corruption {
        file: path.to_owned(),
        offset: found.min(expected),
        what: "file length".into(),
        expected: format!("{expected} bytes"),
        found: format!("{found} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(origin: Option<Origin>) -> Sums {
        Sums {
            file_bytes: 1 << 40,
            footer_offset: 12345,
            footer: 7,
            segments: vec![1, 2, u32::MAX],
            origin,
        }
    }

    fn both() -> [Sums; 2] {
        let origin = Origin {
            id: 77,
            database: 3,
            after: Change { number: 9, sum: 8 },
            folder: "täble-4".into(),
            number: 5,
            replaces: vec![2, 3],
        };
        [sums(None), sums(Some(origin))]
    }

    #[test]
    fn sums_read_back() {
        for sums in both() {
            assert_eq!(Sums::decode(Path::new("f"), &sums.encode()), Ok(sums));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() {
        for sums in both() {
            let bytes = sums.encode();
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Sums::decode(Path::new("f"), &damaged).is_err(), "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert!(
                    Sums::decode(Path::new("f"), &bytes[..len]).is_err(),
                    "length {len}"
                );
            }
        }
    }

    #[test]
    fn a_count_that_promises_more_than_there_is_is_refused_before_memory_is_taken() {
        let mut bytes = sums(None).encode();
        bytes[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
        let end = bytes.len() - 4;
        let sum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        assert!(Sums::decode(Path::new("f"), &bytes).is_err());
    }
}
