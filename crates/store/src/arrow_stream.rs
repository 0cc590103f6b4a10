//! A schema with at most one batch as an Arrow IPC stream.

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

pub(crate) fn encode(schema: &Schema, batch: Option<&RecordBatch>) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, schema)?;
    if let Some(batch) = batch {
        writer.write(batch)?;
    }
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

/// The schema and the first batch, if there is one.
pub(crate) fn decode(bytes: &[u8]) -> Result<(SchemaRef, Option<RecordBatch>), ArrowError> {
    let mut reader = StreamReader::try_new(bytes, None)?;
    let schema = reader.schema();
    let batch = reader.next().transpose()?;
    Ok((schema, batch))
}
