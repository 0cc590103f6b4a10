//! Schemas and bounds as Arrow IPC streams.

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use super::damage::damaged;
use crate::arrow_stream;
use crate::error::Result;

/// A schema as a stream without batches.
pub(crate) fn encode_schema(schema: &SchemaRef) -> Result<Vec<u8>> {
    encode_ipc(schema, None)
}

/// The schema that [`encode_schema`] wrote.
pub(crate) fn decode_schema(bytes: &[u8]) -> Result<SchemaRef> {
    Ok(decode_ipc(bytes)?.0)
}

/// The schema in bytes that are not what was written: the library may panic on them, so they get a thread of their own.
pub(super) fn decode_doubtful_schema(bytes: &[u8]) -> Result<SchemaRef> {
    let decoded = std::thread::scope(|scope| {
        let name = String::from("hotshelf");
        let decoder = std::thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, || decode_schema(bytes));
        decoder.map(|decoder| decoder.join().ok())
    });
    match decoded {
        Ok(Some(schema)) => schema,
        _ => Err(damaged("columns that cannot be read".into())),
    }
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
    Ok(arrow_stream::encode(schema, batch)?)
}

fn decode_ipc(bytes: &[u8]) -> Result<(SchemaRef, Option<RecordBatch>)> {
    arrow_stream::decode(bytes).map_err(|error| damaged(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow::datatypes::{DataType, Field};

    #[test]
    fn damaged_schemas_are_errors_or_other_schemas_but_no_panics() {
        let fields = vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8View, true),
        ];
        let schema = Arc::new(Schema::new(fields));
        let bytes = encode_schema(&schema).unwrap();
        let mut refused = 0;
        for place in 0..bytes.len() {
            for bit in [1, 8, 64] {
                let mut damaged = bytes.clone();
                damaged[place] ^= bit;
                refused += usize::from(decode_doubtful_schema(&damaged).is_err());
            }
        }
        assert!(refused > 100, "{refused}");
        assert_eq!(decode_doubtful_schema(&bytes).unwrap(), schema);
    }
}
