//! Arrow IPC files and streams. Lengths are compared with the file's before anything is allocated for them.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::{FileReader, StreamReader};
use arrow::ipc::{Block, MessageHeader, root_as_footer, root_as_message};

use super::{Limits, bad};
use crate::error::{Error, Result};

const MAGIC: &[u8; 6] = b"ARROW1";
const CONTINUATION: u32 = u32::MAX;
/// The length of the footer and the magic behind it.
const TRAILER_BYTES: u64 = 10;
/// The claimed length of a buffer that is stored as it is, in a compressed batch.
const NOT_COMPRESSED: i64 = -1;

/// The columns of an Arrow file.
pub(super) fn schema(path: &Path, limits: Limits) -> Result<SchemaRef> {
    match open(path, limits)? {
        Opened::File(reader) => Ok(reader.schema()),
        Opened::Stream(reader) => Ok(reader.schema()),
    }
}

/// The batches of an Arrow file, read one at a time.
pub(super) fn batches(
    path: &Path,
    limits: Limits,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
    let reader: Box<dyn Iterator<Item = _> + Send> = match open(path, limits)? {
        Opened::File(reader) => Box::new(reader),
        Opened::Stream(reader) => Box::new(reader),
    };
    let path = path.to_owned();
    Ok(reader
        .map(move |batch| batch.map_err(|error| bad(&path, format!("it is damaged: {error}")))))
}

enum Opened {
    File(Box<FileReader<BufReader<File>>>),
    Stream(Box<StreamReader<BufReader<File>>>),
}

fn open(path: &Path, limits: Limits) -> Result<Opened> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let len = file.metadata().map_err(Error::io("read", path))?.len();
    let mut checked = CheckedReader {
        file: &mut file,
        path,
        len,
        limits,
    };
    let is_file = len >= MAGIC.len() as u64 && checked.bytes(0, MAGIC.len() as u64)? == MAGIC;
    match is_file {
        true => checked.check_file()?,
        false => checked.check_stream()?,
    }
    file.seek(SeekFrom::Start(0))
        .map_err(Error::io("read", path))?;
    let damaged = |error| bad(path, format!("it is not an Arrow file: {error}"));
    let input = BufReader::new(file);
    Ok(match is_file {
        true => Opened::File(Box::new(FileReader::try_new(input, None).map_err(damaged)?)),
        false => Opened::Stream(Box::new(
            StreamReader::try_new(input, None).map_err(damaged)?,
        )),
    })
}

/// A file whose claims are compared with its length.
struct CheckedReader<'a> {
    file: &'a mut File,
    path: &'a Path,
    len: u64,
    limits: Limits,
}

impl CheckedReader<'_> {
    fn damaged(&self, what: &str) -> Error {
        bad(self.path, format!("it is damaged: {what}"))
    }

    fn too_large(&self, what: &str, needed_bytes: u64) -> Error {
        Error::InputTooLarge {
            path: self.path.to_owned(),
            what: what.to_owned(),
            needed_bytes,
            allowed_bytes: self.limits.piece_bytes_max,
        }
    }

    /// Bytes of the file, which must have them.
    fn bytes(&mut self, offset: u64, count: u64) -> Result<Vec<u8>> {
        if offset.checked_add(count).is_none_or(|end| end > self.len) {
            return Err(self.damaged("it ends too early"));
        }
        if count > self.limits.piece_bytes_max {
            return Err(self.too_large("its metadata", count));
        }
        let mut bytes = vec![0; count as usize];
        self.file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(Error::io("read", self.path))?;
        Ok(bytes)
    }

    fn number(&mut self, offset: u64) -> Result<u32> {
        let bytes = self.bytes(offset, 4)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn check_file(&mut self) -> Result<()> {
        let trailer = self.len.saturating_sub(TRAILER_BYTES);
        if self.len < 2 * TRAILER_BYTES || self.bytes(trailer + 4, 6)? != MAGIC {
            return Err(self.damaged("its end is missing"));
        }
        let footer_bytes = u64::from(self.number(trailer)?);
        let start = trailer.checked_sub(footer_bytes);
        let start = start.ok_or_else(|| self.damaged("its footer is longer than the file"))?;
        let bytes = self.bytes(start, footer_bytes)?;
        let footer = root_as_footer(&bytes).map_err(|error| self.damaged(&error.to_string()))?;
        let blocks = [footer.dictionaries(), footer.recordBatches()];
        let blocks = blocks
            .iter()
            .flatten()
            .flat_map(|blocks| blocks.iter().copied());
        for block in blocks.collect::<Vec<Block>>() {
            let number = |value: i64| {
                u64::try_from(value).map_err(|_| self.damaged("a block has a negative length"))
            };
            let (offset, body_bytes) = (number(block.offset())?, number(block.bodyLength())?);
            let metadata_bytes = number(i64::from(block.metaDataLength()))?;
            let mut at = offset;
            if self.number(at)? == CONTINUATION {
                at += 4;
            }
            let skipped = at + 4 - offset;
            let message_bytes = metadata_bytes.checked_sub(skipped);
            let message_bytes =
                message_bytes.ok_or_else(|| self.damaged("a block is too short"))?;
            self.bytes(offset, metadata_bytes)?;
            let body = offset + metadata_bytes;
            self.check_message(at + 4, message_bytes, body, Some(body_bytes))?;
        }
        Ok(())
    }

    fn check_stream(&mut self) -> Result<()> {
        let mut at = 0;
        while at + 4 <= self.len {
            let mut message_bytes = self.number(at)?;
            at += 4;
            if message_bytes == CONTINUATION {
                message_bytes = self.number(at)?;
                at += 4;
            }
            if message_bytes == 0 {
                break;
            }
            let body = at + u64::from(message_bytes);
            at = body + self.check_message(at, u64::from(message_bytes), body, None)?;
        }
        Ok(())
    }

    /// Checks a message and its body; returns the length of the body.
    fn check_message(
        &mut self,
        offset: u64,
        message_bytes: u64,
        body: u64,
        body_bytes: Option<u64>,
    ) -> Result<u64> {
        let bytes = self.bytes(offset, message_bytes)?;
        let message = root_as_message(&bytes).map_err(|error| self.damaged(&error.to_string()))?;
        let claimed = u64::try_from(message.bodyLength())
            .map_err(|_| self.damaged("a message has a negative length"))?;
        let body_bytes = body_bytes.unwrap_or(claimed);
        if claimed > body_bytes
            || body
                .checked_add(body_bytes)
                .is_none_or(|end| end > self.len)
        {
            return Err(self.damaged("a message is longer than the file"));
        }
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => message
                .header_as_dictionary_batch()
                .and_then(|dictionary| dictionary.data()),
            _ => None,
        };
        if let Some(batch) = batch {
            self.check_batch(&batch, body, body_bytes)?;
        }
        Ok(body_bytes)
    }

    fn check_batch(
        &mut self,
        batch: &arrow::ipc::RecordBatch,
        body: u64,
        body_bytes: u64,
    ) -> Result<()> {
        let nodes = batch.nodes();
        let rows = nodes.iter().flatten().map(|node| node.length());
        let rows = rows
            .chain([batch.length()])
            .map(u64::try_from)
            .collect::<Result<Vec<_>, _>>();
        let rows = rows.map_err(|_| self.damaged("a column has a negative length"))?;
        let rows_max = rows.into_iter().max().unwrap_or(0);
        let mut needed_bytes = body_bytes;
        for buffer in batch.buffers().iter().flatten() {
            let (offset, len) = (
                u64::try_from(buffer.offset()),
                u64::try_from(buffer.length()),
            );
            let (Ok(offset), Ok(len)) = (offset, len) else {
                return Err(self.damaged("a buffer has a negative place"));
            };
            if offset.checked_add(len).is_none_or(|end| end > body_bytes) {
                return Err(self.damaged("a buffer lies outside of its message"));
            }
            if batch.compression().is_some() && len >= 8 {
                let prefix = self.bytes(body + offset, 8)?;
                let claimed = prefix
                    .iter()
                    .rev()
                    .fold(0_i64, |number, byte| number << 8 | i64::from(*byte));
                if claimed != NOT_COMPRESSED {
                    let claimed = u64::try_from(claimed)
                        .map_err(|_| self.damaged("a buffer has a negative length"))?;
                    needed_bytes = needed_bytes.saturating_add(claimed);
                }
            }
        }
        // Columns of NULLs have rows without buffers.
        let needed_bytes = needed_bytes.max(rows_max);
        if needed_bytes > self.limits.piece_bytes_max {
            return Err(self.too_large("one batch", needed_bytes));
        }
        Ok(())
    }
}
