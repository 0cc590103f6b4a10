//! Parquet pages: how long each says it is when decompressed is compared with the budget before it is decompressed.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Limits, named};
use crate::error::Error;

/// Readers that look at page headers before the decoder gets the pages.
#[derive(Debug)]
pub(super) struct CheckedReaders {
    pub inner: Arc<dyn ParquetFileReaderFactory>,
    pub limits: Limits,
}

impl ParquetFileReaderFactory for CheckedReaders {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> datafusion::error::Result<Box<dyn AsyncFileReader + Send>> {
        let path = named::path_of(&file);
        let inner = self
            .inner
            .create_reader(partition_index, file, metadata_size_hint, metrics)?;
        Ok(Box::new(CheckedReader {
            inner,
            path,
            limits: self.limits,
            chunks: Vec::new(),
        }))
    }
}

/// Where a column chunk lies in its file.
#[derive(Debug, Clone)]
struct Chunk {
    range: Range<u64>,
    column: String,
}

struct CheckedReader {
    inner: Box<dyn AsyncFileReader + Send>,
    path: PathBuf,
    limits: Limits,
    chunks: Vec<Chunk>,
}

impl CheckedReader {
    /// Pages that lie in the bytes read; bytes that are not of a column chunk are not looked at.
    fn check(&self, range: &Range<u64>, bytes: &[u8]) -> ParquetResult<()> {
        for chunk in self
            .chunks
            .iter()
            .filter(|chunk| overlaps(&chunk.range, range))
        {
            // Ranges start with a page; with an offset index they may leave pages out.
            let start = chunk.range.start.max(range.start) - range.start;
            let end = chunk.range.end.min(range.end) - range.start;
            let pages = bytes.get(start as usize..end as usize).unwrap_or_default();
            self.check_pages(pages, &chunk.column)?;
        }
        Ok(())
    }

    fn check_pages(&self, mut pages: &[u8], column: &str) -> ParquetResult<()> {
        while let Some(header) = PageHeader::read(pages) {
            if header.uncompressed_bytes > self.limits.piece_bytes_max {
                return Err(external(Error::InputTooLarge {
                    path: self.path.clone(),
                    what: format!("one page of column '{column}'"),
                    needed_bytes: header.uncompressed_bytes,
                    allowed_bytes: self.limits.piece_bytes_max,
                }));
            }
            let next = header.header_bytes.saturating_add(header.compressed_bytes);
            match usize::try_from(next)
                .ok()
                .and_then(|next| pages.get(next..))
            {
                Some(rest) => pages = rest,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn external(error: Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for CheckedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        async move {
            let bytes = self.inner.get_bytes(range.clone()).await?;
            self.check(&range, &bytes)?;
            Ok(bytes)
        }
        .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move {
            let pieces = self.inner.get_byte_ranges(ranges.clone()).await?;
            for (range, bytes) in ranges.iter().zip(&pieces) {
                self.check(range, bytes)?;
            }
            Ok(pieces)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let metadata = self.inner.get_metadata(options).await?;
            self.chunks = chunks(&metadata);
            Ok(metadata)
        }
        .boxed()
    }
}

fn chunks(metadata: &ParquetMetaData) -> Vec<Chunk> {
    let columns = metadata
        .row_groups()
        .iter()
        .flat_map(|group| group.columns());
    columns
        .filter_map(|column| {
            let start = column.dictionary_page_offset().filter(|offset| *offset > 0);
            let start = start.map_or(column.data_page_offset(), |start| {
                start.min(column.data_page_offset())
            });
            let start = u64::try_from(start).ok()?;
            let len = u64::try_from(column.compressed_size()).ok()?;
            Some(Chunk {
                range: start..start.checked_add(len)?,
                column: column.column_path().string(),
            })
        })
        .collect()
}

/// What the header of a page says, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageHeader {
    header_bytes: u64,
    uncompressed_bytes: u64,
    compressed_bytes: u64,
}

impl PageHeader {
    /// Reads the header at the start of `bytes`; `None` if there is none.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut input = Compact { bytes, at: 0 };
        let (mut uncompressed, mut compressed) = (None, None);
        let mut id = 0;
        while let Some((field, kind)) = input.field(id)? {
            id = field;
            match (field, kind) {
                (2, Compact::I32) => uncompressed = u64::try_from(input.zigzag()?).ok(),
                (3, Compact::I32) => compressed = u64::try_from(input.zigzag()?).ok(),
                _ => input.skip(kind, 0)?,
            }
        }
        Some(Self {
            header_bytes: input.at as u64,
            uncompressed_bytes: uncompressed?,
            compressed_bytes: compressed?,
        })
    }
}

/// Thrift's compact protocol, as far as page headers need it.
struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Compact<'_> {
    const I32: u8 = 5;
    const DEPTH_MAX: usize = 16;

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The next field's number and type; `Some(None)` at the end of the struct.
    #[expect(
        clippy::option_option,
        reason = "no bytes and no field are different ends"
    )]
    fn field(&mut self, last: i64) -> Option<Option<(i64, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let id = match byte >> 4 {
            0 => self.zigzag()?,
            delta => last + i64::from(delta),
        };
        Some(Some((id, byte & 0xf)))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > Self::DEPTH_MAX {
            return None;
        }
        match kind {
            1 | 2 => {}
            3 => self.at = self.at.checked_add(1)?,
            4..=6 => {
                self.varint()?;
            }
            7 => self.at = self.at.checked_add(8)?,
            8 => {
                let len = usize::try_from(self.varint()?).ok()?;
                self.at = self.at.checked_add(len)?;
            }
            9 | 10 => self.skip_list(depth)?,
            12 => {
                let mut id = 0;
                while let Some((field, kind)) = self.field(id)? {
                    id = field;
                    self.skip(kind, depth + 1)?;
                }
            }
            _ => return None,
        }
        (self.at <= self.bytes.len()).then_some(())
    }

    fn skip_list(&mut self, depth: usize) -> Option<()> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        for _ in 0..count.min(self.bytes.len() as u64) {
            match byte & 0xf {
                // In a list, truth values take a byte each.
                1 | 2 => self.at = self.at.checked_add(1)?,
                kind => self.skip(kind, depth + 1)?,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_header_is_read_over_its_nested_parts() {
        // type 0, uncompressed 300, compressed 20, a struct of (2, binary "ab"), end, then the page.
        let bytes = [
            0x15, 0, 0x15, 0xd8, 0x04, 0x15, 40, 0x2c, 0x15, 4, 0x18, 2, b'a', b'b', 0, 0, 9, 9,
        ];
        let expected = PageHeader {
            header_bytes: 16,
            uncompressed_bytes: 300,
            compressed_bytes: 20,
        };
        assert_eq!(PageHeader::read(&bytes), Some(expected));
    }

    #[test]
    fn any_bytes_are_a_header_or_none() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            let header = PageHeader::read(&bytes);
            assert!(header.is_none_or(|header| header.header_bytes <= bytes.len() as u64));
        }
    }
}
