//! A batch as bytes: Arrow's IPC format, which may be compressed by LZ4.

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::{ArrowError, SchemaRef};

use crate::batches::without_unused_values;

/// The mark at the end of an IPC stream.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// What all batches of a file have in common.
#[derive(Debug)]
pub(super) struct Codec {
    schema: SchemaRef,
    /// The schema as an IPC message, which the encoder repeats before each batch and the decoder expects there.
    schema_message: Buffer,
}

impl Codec {
    /// # Errors
    /// A type that Arrow's IPC format does not know.
    pub(super) fn new(schema: SchemaRef) -> Result<Self, ArrowError> {
        let stream = concat(&StreamEncoder::try_new(&schema)?.finish()?, 0);
        Ok(Self {
            schema_message: Buffer::from(&stream[..stream.len() - END.len()]),
            schema,
        })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The bytes of a batch, as [`Codec::decode`] expects them.
    pub(super) fn encode(&self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let batch = without_unused_values(batch)?;
        let buffers = StreamEncoder::try_new(&self.schema)?.encode(&batch)?;
        let mut encoded = concat(&buffers, self.schema_message.len());
        // Without a byte behind it the decoder does not notice a batch without a body.
        encoded.extend_from_slice(&END);
        Ok(encoded)
    }

    /// The batch that [`Codec::encode`] made bytes of. Its columns share the buffer.
    pub(super) fn decode(&self, encoded: Buffer) -> Result<RecordBatch, ArrowError> {
        let mut decoder = StreamDecoder::new();
        let mut schema = self.schema_message.clone();
        decoder.decode(&mut schema)?;
        let mut encoded = encoded;
        let batch = decoder.decode(&mut encoded)?;
        let batch = batch.ok_or_else(|| ArrowError::IpcError("no batch".to_owned()))?;
        batch.with_schema(self.schema.clone())
    }
}

fn total(buffers: &[Buffer]) -> usize {
    buffers.iter().map(Buffer::len).sum()
}

/// The bytes of all buffers without the first `skipped`.
fn concat(buffers: &[Buffer], skipped: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(total(buffers) + END.len());
    let mut remaining = skipped;
    for buffer in buffers {
        let skipped = remaining.min(buffer.len());
        remaining -= skipped;
        bytes.extend_from_slice(&buffer[skipped..]);
    }
    bytes
}

/// Compresses into `space`, which has [`compressed_bytes_max`] bytes, and returns how many bytes of it are used.
/// `None`: the bytes take no less space compressed.
pub(super) fn compress(raw: &[u8], space: &mut [u8]) -> Option<usize> {
    let used = lz4_flex::block::compress_into(raw, space).ok()?;
    (used < raw.len()).then_some(used)
}

/// The space that [`compress`] needs.
pub(super) fn compressed_bytes_max(raw_bytes: usize) -> usize {
    lz4_flex::block::get_maximum_output_size(raw_bytes)
}

/// The bytes that [`compress`] was given, or stored as they are. `None`: these are not `raw_bytes` compressed bytes.
pub(super) fn decompress(stored: &[u8], raw_bytes: usize) -> Option<Buffer> {
    if stored.len() == raw_bytes {
        return Some(Buffer::from(stored));
    }
    let mut raw = MutableBuffer::from_len_zeroed(raw_bytes);
    let len = lz4_flex::block::decompress_into(stored, &mut raw).ok()?;
    (len == raw_bytes).then(|| raw.into())
}
