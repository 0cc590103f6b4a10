//! Numbers that tell databases and files from any other.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A number that is not drawn twice, above 0 and below 2^63.
pub fn random_id() -> u64 {
    (RandomState::new().hash_one(std::process::id()) >> 1).max(1)
}
