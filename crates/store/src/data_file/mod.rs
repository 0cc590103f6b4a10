//! Data files: immutable Vortex files with a checksum per segment (`docs/FORMAT.md`).
//!
//! `parts` cuts the input, `write` makes one, `sums` is its checksum file, `footer` what it says about its rows,
//! `segments` tells which column and row group each segment belongs to, `table_file` opens a file when it is first
//! read, `opener` keeps descriptors and footers, `open` answers segment reads, `check` compares every byte with the
//! checksums, `copies` has segments on other shelves, `moving` files, `sample` keeps some rows for the planner, `gate`
//! orders the writes of several importers.

mod check;
mod copies;
mod filling;
pub(crate) mod footer;
mod gate;
mod moving;
mod nameless;
mod open;
mod opener;
mod parts;
mod paths;
mod places;
mod sample;
mod segments;
mod sums;
mod table_file;
mod table_shelves;
mod write;

pub use gate::WriteGate;
pub use moving::ensure_there;
pub use open::DataFile;
pub use opener::{Footers, Opener};
pub use parts::{BatchStream, InputParts};
pub use paths::FilePaths;
pub use sample::SAMPLE_ROWS_MAX;
pub use segments::{SegmentMap, SegmentPlace};
pub use sums::{Origin, Sums};
pub use table_file::{TableColumns, TableFile, Unreadable};
pub use table_shelves::{BeingPlaced, MadeCopies, TableShelves};
pub use write::{FileWriter, ROW_GROUP_ROWS_MAX, WriteOptions};

use arrow::datatypes::SchemaRef;
use vortex::session::VortexSession;
use vortex_arrow::ArrowSessionExt;

use crate::error::{Result, StoreError};

/// Every column must have a type that the format stores.
pub fn check_storable(schema: &SchemaRef, session: &VortexSession) -> Result<()> {
    for field in schema.fields() {
        if session.arrow().from_arrow_field(field).is_err() {
            return Err(StoreError::UnsupportedType {
                column: field.name().clone(),
                data_type: field.data_type().to_string(),
            });
        }
    }
    Ok(())
}
