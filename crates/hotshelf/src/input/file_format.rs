//! The formats of files that can be read.

use std::str::FromStr;

use crate::error::Error;

/// Formats of files that can be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values.
    Csv,
    /// One JSON object per line.
    Json,
    /// Arrow IPC, file or stream.
    Arrow,
}

impl FromStr for FileFormat {
    type Err = crate::Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "parquet" | "parq" => Self::Parquet,
            "csv" | "tsv" => Self::Csv,
            "json" | "ndjson" | "jsonl" => Self::Json,
            "arrow" | "ipc" | "feather" => Self::Arrow,
            _ => {
                return Err(Error::InvalidValue {
                    what: "file format",
                    value: text.to_owned(),
                    expected: "parquet, csv, json or arrow".into(),
                }
                .into());
            }
        })
    }
}
