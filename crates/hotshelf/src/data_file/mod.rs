//! Data files: immutable Vortex files with a checksum per segment (`docs/FORMAT.md`).
//!
//! `parts` cuts the input, `write` makes one, `sums` is its checksum file, `segments` tells which column and row group each
//! segment belongs to, `open` reads the footer and answers segment reads, `gate` orders the writes of several importers.

mod gate;
mod open;
mod parts;
mod segments;
mod sums;
mod write;

pub(crate) use gate::WriteGate;
pub(crate) use open::{DataFile, FilePaths};
pub(crate) use parts::InputParts;
pub(crate) use write::{FileWriter, WriteOptions};
