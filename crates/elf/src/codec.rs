//! Little-endian reading and writing of file sections. Reading checks every length, so damaged bytes
//! become a [`Corruption`] and never a panic or an unbounded allocation.

use std::path::{Path, PathBuf};

use hotshelf_tier::Corruption;

/// Appends fixed-width little-endian values.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn i128(&mut self, value: i128) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u16s(&mut self, values: &[u16]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.bytes.extend(bytes);
    }

    pub(crate) fn u32s(&mut self, values: &[u32]) {
        self.bytes.reserve(values.len() * 4);
        values.iter().for_each(|&value| self.u32(value));
    }

    pub(crate) fn u64s(&mut self, values: &[u64]) {
        self.bytes.reserve(values.len() * 8);
        values.iter().for_each(|&value| self.u64(value));
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Reads what a [`Writer`] wrote, from bytes that may be anything.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where `bytes` starts in the file, for messages.
    base: u64,
    file: &'a Path,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a Path, bytes: &'a [u8], base: u64) -> Self {
        Self {
            bytes,
            at: 0,
            base,
            file,
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// A corruption at the current position.
    pub(crate) fn corrupt(
        &self,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Corruption {
        Corruption {
            file: PathBuf::from(self.file),
            offset: self.base + self.at as u64,
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Corruption> {
        if len > self.remaining() {
            return Err(self.corrupt(
                what,
                format_args!("{len} bytes"),
                format_args!("{} bytes", self.remaining()),
            ));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Corruption> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Corruption> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Corruption> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Corruption> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn i128(&mut self, what: &'static str) -> Result<i128, Corruption> {
        Ok(i128::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u16s(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<Vec<u16>, Corruption> {
        let bytes = self.take(count.saturating_mul(2), what)?;
        let (values, _) = bytes.as_chunks::<2>();
        Ok(values
            .iter()
            .map(|value| u16::from_le_bytes(*value))
            .collect())
    }

    pub(crate) fn u32s(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<Vec<u32>, Corruption> {
        let bytes = self.take(count.saturating_mul(4), what)?;
        let (words, _) = bytes.as_chunks::<4>();
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    pub(crate) fn u64s(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<Vec<u64>, Corruption> {
        let bytes = self.take(count.saturating_mul(8), what)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    pub(crate) fn blob(&mut self, what: &'static str) -> Result<&'a [u8], Corruption> {
        let len = self.u32(what)? as usize;
        self.take(len, what)
    }
}
