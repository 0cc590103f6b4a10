//! Numbers and texts in small files: written one after the other, read from bytes that may be anything.

use std::path::Path;

use hotshelf_tier::Corruption;

pub(crate) fn put_word(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend_from_slice(&word.to_le_bytes());
}

pub(crate) fn put_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// Bytes after their length.
pub(crate) fn put_bytes(bytes: &mut Vec<u8>, content: &[u8]) {
    put_word(bytes, content.len() as u32);
    bytes.extend_from_slice(content);
}

/// Takes fields from a file's bytes, in order.
pub(crate) struct Fields<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    offset: u64,
    /// What the file is, for errors.
    what: &'static str,
}

impl<'a> Fields<'a> {
    pub fn new(path: &'a Path, bytes: &'a [u8], what: &'static str) -> Self {
        Self {
            path,
            bytes,
            offset: 0,
            what,
        }
    }

    pub fn corrupt(&self, expected: impl ToString, found: impl ToString) -> Corruption {
        Corruption {
            file: self.path.to_owned(),
            offset: self.offset,
            what: self.what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// Compares the checksum that ends the whole file, and takes it off.
    pub fn check_sum(&mut self, whole: &[u8]) -> Result<(), Corruption> {
        let short = || self.corrupt("a checksum", "the end of the file");
        let (body, stored) = whole.split_last_chunk::<4>().ok_or_else(short)?;
        let rest = self.bytes.split_last_chunk::<4>().ok_or_else(short)?.0;
        let (stored, found) = (u32::from_le_bytes(*stored), crc32fast::hash(body));
        if stored != found {
            return Err(self.corrupt(format!("checksum {stored:08x}"), format!("{found:08x}")));
        }
        self.bytes = rest;
        Ok(())
    }

    /// Makes sure that this many bytes follow.
    pub fn expect(&self, count: u64) -> Result<(), Corruption> {
        match count <= self.bytes.len() as u64 {
            true => Ok(()),
            false => Err(self.corrupt(format!("{count} bytes"), self.bytes.len())),
        }
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Corruption> {
        self.expect(count as u64)?;
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        self.offset += count as u64;
        Ok(taken)
    }

    pub fn word(&mut self) -> Result<u32, Corruption> {
        let taken = self.take(4)?;
        Ok(u32::from_le_bytes([taken[0], taken[1], taken[2], taken[3]]))
    }

    pub fn number(&mut self) -> Result<u64, Corruption> {
        let (low, high) = (self.word()?, self.word()?);
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    /// What [`put_bytes`] wrote.
    pub fn bytes(&mut self) -> Result<&'a [u8], Corruption> {
        let count = self.word()? as usize;
        self.take(count)
    }

    pub fn text(&mut self) -> Result<String, Corruption> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|error| self.corrupt("UTF-8", error))
    }

    /// Makes sure that nothing follows.
    pub fn end(&self) -> Result<(), Corruption> {
        match self.bytes.len() {
            0 => Ok(()),
            more => Err(self.corrupt("the end", format!("{more} bytes more"))),
        }
    }
}
