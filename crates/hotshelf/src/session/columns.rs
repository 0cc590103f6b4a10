//! Columns of tables and views that are about to be made.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::error::{Error, Result};

/// The fields as declared, with the types that the analysed plan really gives.
pub(super) fn with_types_of(declared: &SchemaRef, planned: &SchemaRef) -> SchemaRef {
    let fields = declared.fields().iter().zip(planned.fields());
    let fields: Vec<_> = fields
        .map(|(field, planned)| {
            let field = field.as_ref().clone();
            field.with_data_type(planned.data_type().clone())
        })
        .collect();
    let schema = arrow::datatypes::Schema::new(fields);
    Arc::new(schema.with_metadata(declared.metadata().clone()))
}

pub(super) fn ensure_unique_columns(schema: &SchemaRef) -> Result<()> {
    let mut names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::InvalidValue {
            what: "column list",
            value: pair[0].to_owned(),
            expected: "every column name once; rename with AS".into(),
        }),
        None => Ok(()),
    }
}
