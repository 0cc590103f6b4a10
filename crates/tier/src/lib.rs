//! Where Hotshelf's bytes live and how to reach them. All of Hotshelf's `unsafe` code is here.
#![deny(clippy::multiple_unsafe_ops_per_block)]

pub mod allocator;
mod axes;
pub mod crash;
pub mod emulated;
pub mod error;
pub mod io;
pub mod memory_limit;
pub mod persist;
pub mod pool;
pub mod probe;
pub mod profile;
pub mod region;
pub mod replace_file;
pub mod simd;
pub mod standard_output;
mod thread_time;
pub mod topology;

pub use error::{Corruption, TierError, is_out_of_descriptors};
pub use thread_time::thread_time_ns;
