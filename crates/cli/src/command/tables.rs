//! `hotshelf tables`: what a database holds.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use hotshelf::{Options, TableSummary};

use crate::failure::{Failure, Result};
use crate::flags::Tables;
use crate::opened::Opened;
use crate::output::{Output, Target};

pub fn run(tables: Tables) -> Result<()> {
    let options = Options {
        create: false,
        ..Options::default()
    };
    let database = Opened::open(Some(&tables.db), options)?;
    let mut output = Output::open(Target::Stdout, tables.format)?;
    output.print(&list(&database.tables())?)?;
    output.close()
}

/// One row per table.
pub(super) fn list(tables: &[TableSummary]) -> Result<RecordBatch> {
    let text = |value: fn(&TableSummary) -> String| {
        Arc::new(StringArray::from_iter_values(tables.iter().map(value))) as ArrayRef
    };
    let number = |value: fn(&TableSummary) -> u64| {
        Arc::new(UInt64Array::from_iter_values(tables.iter().map(value))) as ArrayRef
    };
    RecordBatch::try_from_iter([
        ("table", text(|table| table.name.clone())),
        (
            "columns",
            number(|table| table.schema.fields().len() as u64),
        ),
        ("rows", number(|table| table.row_count)),
        ("files", number(|table| table.file_count as u64)),
        ("bytes", number(|table| table.file_bytes)),
        (
            "state",
            text(|table| match (&table.damage, &table.unavailable) {
                (Some(damage), _) => format!("damaged: {damage}"),
                (None, Some(error)) => format!("not available: {error}"),
                (None, None) => "ok".to_owned(),
            }),
        ),
    ])
    .map_err(|error| Failure::Format {
        format: "table",
        what: error.to_string(),
    })
}
