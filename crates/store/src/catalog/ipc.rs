//! Schemas and bounds as Arrow IPC streams.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use super::damaged;
use crate::error::Result;

/// A schema as a stream without batches.
pub(crate) fn encode_schema(schema: &SchemaRef) -> Result<Vec<u8>> {
    encode_ipc(schema, None)
}

/// The schema that [`encode_schema`] wrote.
pub(crate) fn decode_schema(bytes: &[u8]) -> Result<SchemaRef> {
    Ok(decode_ipc(bytes)?.0)
}

/// Two rows, the minima and the maxima, in the table's columns made nullable.
pub(super) fn encode_bounds(schema: &SchemaRef, bounds: &Option<RecordBatch>) -> Result<Vec<u8>> {
    let schema = bounds
        .as_ref()
        .map_or_else(|| schema.clone(), |batch| batch.schema());
    encode_ipc(&schema, bounds.as_ref())
}

pub(super) fn decode_bounds(bytes: &[u8]) -> Result<Option<RecordBatch>> {
    Ok(decode_ipc(bytes)?.1)
}

fn encode_ipc(schema: &Schema, batch: Option<&RecordBatch>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, schema)?;
    if let Some(batch) = batch {
        writer.write(batch)?;
    }
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

fn decode_ipc(bytes: &[u8]) -> Result<(SchemaRef, Option<RecordBatch>)> {
    let mut reader =
        StreamReader::try_new(bytes, None).map_err(|error| damaged(error.to_string()))?;
    let schema = reader.schema();
    let batch = reader
        .next()
        .transpose()
        .map_err(|error| damaged(error.to_string()))?;
    Ok((Arc::clone(&schema), batch))
}
