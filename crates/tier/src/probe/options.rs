//! How a probe is to be run.

use std::path::PathBuf;

use super::plan::Plan;

/// How to run a probe.
#[derive(Debug, Clone, Default)]
pub struct ProbeOptions {
    /// Under a minute.
    pub quick: bool,
    /// Where to keep what was measured, to resume after an interruption.
    pub journal: Option<PathBuf>,
    /// Bytes to read from; by default several times the last-level cache.
    pub working_set_bytes: Option<u64>,
    /// Measure this instead of the plan for the tier.
    pub plan: Option<Plan>,
    /// Allow writing over a devdax device, which destroys what it holds.
    pub overwrite_device: bool,
    /// Leave the file that is read where it is: the next probe of the folder then reads the same file, and so may
    /// others.
    pub keep_file: bool,
}
