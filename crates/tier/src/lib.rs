//! Where Hotshelf's bytes live and how to reach them. All of Hotshelf's `unsafe` code is here.

pub mod error;
pub mod io;
pub mod persist;
pub mod region;
pub mod simd;
pub mod topology;

pub use error::{Corruption, TierError};
