//! Scans: what an Elf competes with.

mod column;
mod zone;

pub use column::ColumnScan;
pub use zone::ZoneScan;
