//! Memory and storage below the cache: emulated devices beside published figures, and how fast files are read.

pub mod emulated;
pub mod insights;
pub mod read_bandwidth;
