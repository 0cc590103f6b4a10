//! Values for a tier that was not measured: acceptable everywhere rather than best somewhere.

use super::{TierProfile, Value};
use crate::axes::Pinning;

const UNMEASURED: &str = "not measured";
/// More writers than this harm slow memory, and one device rarely needs them.
const WRITERS_MAX: u32 = 4;
/// A page: the grain that no tier dislikes.
const PAGE_BYTES: u64 = 4096;
/// Large enough for any drive, and costs little processor time per byte.
const FILE_READ_BYTES: u64 = 4 << 20;
/// What is smaller is gathered before it is written.
const FILE_WRITE_BYTES: u64 = 64 << 10;
/// Enough for small reads on a fast drive.
const FILE_DEPTH: u32 = 64;

/// Something of which nothing is known.
pub(super) fn unmeasured<T>() -> Value<Option<T>> {
    Value::default(None, UNMEASURED)
}

impl TierProfile {
    /// Conservative values for an unmeasured tier. `tier` is `dram`, `file:…`, `dax:…`, `node:…` or `emulated:…`.
    pub fn defaults(tier: &str, physical_cores: u32) -> Self {
        let file = tier.starts_with("file:");
        let slow = !file && tier != "dram";
        let (read_bytes, write_bytes) = match file {
            true => (FILE_READ_BYTES, FILE_WRITE_BYTES),
            false => (PAGE_BYTES, PAGE_BYTES),
        };
        let cores = physical_cores.max(1);
        Self {
            tier: tier.to_owned(),
            emulated: tier.starts_with("emulated:"),
            read_threads: Value::default(if file { 1 } else { cores }, UNMEASURED),
            read_grain_bytes: Value::default(read_bytes, UNMEASURED),
            write_threads: Value::default(cores.min(WRITERS_MAX), UNMEASURED),
            write_grain_bytes: Value::default(write_bytes, UNMEASURED),
            read_pinning: Value::default(Pinning::None, UNMEASURED),
            near_only: Value::default(slow, UNMEASURED),
            stripe_sockets: Value::default(false, UNMEASURED),
            serialise: Value::default(false, UNMEASURED),
            access_ns: unmeasured(),
            read_bandwidth_bytes_per_s: unmeasured(),
            write_bandwidth_bytes_per_s: unmeasured(),
            queue_depth: Value::default(file.then_some(FILE_DEPTH), UNMEASURED),
        }
    }
}
