//! A `linear` Elf as bytes: a header with checksums, then the array.
//!
//! ```text
//! 0   magic "HSELFLIN"      8   version u32        12  words per link u32
//! 16  dimensions u32        20  rows u32           24  codes of the first level u32
//! 28  zero u32              32  words u64          40  CRC-32 of the array u32
//! 44  CRC-32 of bytes 0-43  48  the array, little endian
//! ```

use std::marker::PhantomData;
use std::path::Path;

use crate::codec::{Reader, Writer};
use crate::error::Result;
use crate::keys::{DIMENSION_COUNT_MAX, ROW_COUNT_MAX};

use super::{LinearElf, Offset};

const MAGIC: &[u8; 8] = b"HSELFLIN";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 48;

impl<O: Offset> LinearElf<O> {
    /// The Elf as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut array = Writer::default();
        array.u32s(&self.words);
        let mut out = Writer::default();
        out.bytes.reserve_exact(HEADER_BYTES + array.bytes.len());
        out.bytes.extend_from_slice(MAGIC);
        for value in [
            VERSION,
            O::WORDS as u32,
            self.dimension_count as u32,
            self.row_count as u32,
        ] {
            out.u32(value);
        }
        out.u32(self.root_count as u32);
        out.u32(0);
        out.u64(self.words.len() as u64);
        out.u32(crc32fast::hash(&array.bytes));
        out.u32(crc32fast::hash(&out.bytes));
        out.bytes.extend_from_slice(&array.bytes);
        out.bytes
    }

    /// Reads and checks what [`Self::to_bytes`] wrote. `file` is named in errors.
    ///
    /// # Errors
    /// When the bytes are not a `linear` Elf with links of this width, or are damaged.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(file, bytes, 0);
        if input.take(8, "magic")? != MAGIC {
            return Err(input.corrupt("magic", "HSELFLIN", "other bytes").into());
        }
        let mut expect = |what, wanted: u32| match input.u32(what)? {
            found if found == wanted => Ok(()),
            found => Err(input.corrupt(what, wanted, found)),
        };
        expect("version", VERSION)?;
        expect("words per link", O::WORDS as u32)?;
        let dimension_count = input.u32("dimensions")? as usize;
        let row_count = input.u32("rows")? as usize;
        let root_count = input.u32("codes of the first level")? as usize;
        input.u32("reserved word")?;
        let word_count = input.u64("words")?;
        let array_crc = input.u32("array checksum")?;
        let header_crc = input.u32("header checksum")?;
        let found_crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        if header_crc != found_crc {
            return Err(input
                .corrupt("header checksum", header_crc, found_crc)
                .into());
        }
        let in_range = (1..=DIMENSION_COUNT_MAX).contains(&dimension_count)
            && row_count <= ROW_COUNT_MAX
            && (root_count == 0) == (row_count == 0);
        if !in_range {
            return Err(input.corrupt("header", "sizes in range", "others").into());
        }
        if word_count != input.remaining() as u64 / 4 || !input.remaining().is_multiple_of(4) {
            return Err(input
                .corrupt("array length", word_count, input.remaining() / 4)
                .into());
        }
        let found_crc = crc32fast::hash(&bytes[HEADER_BYTES..]);
        if array_crc != found_crc {
            return Err(input.corrupt("array checksum", array_crc, found_crc).into());
        }
        let words = input.u32s(word_count as usize, "array")?;
        let elf = Self {
            dimension_count,
            row_count,
            root_count,
            words,
            width: PhantomData,
        };
        elf.verify(file)?;
        Ok(elf)
    }
}
