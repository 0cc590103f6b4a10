//! What can be varied when a tier is measured, and the row that one measurement gives.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Direction of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// From the tier.
    Read,
    /// To the tier.
    Write,
}

/// Order of the accesses of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each access begins where the one before ended.
    Sequential,
    /// Anywhere in the range, independent of each other.
    Random,
    /// Anywhere, each place known only when the access before has ended: what a pointer chase sees.
    Dependent,
}

/// Where the threads' accesses lie relative to each other.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    /// Each thread has a range of its own.
    #[default]
    Individual,
    /// The threads take turns in one common sequence.
    Grouped,
}

/// Which CPUs a thread may run on.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Pinning {
    /// Any.
    #[default]
    None,
    /// Those of one node.
    Node,
    /// One.
    Core,
}

/// Which sockets access which memory.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// One socket, its own memory.
    #[default]
    Near,
    /// One socket, another one's memory, for the first time.
    FarFirst,
    /// One socket, another one's memory, again.
    Far,
    /// Each socket its own memory.
    BothNear,
    /// Each socket another one's memory.
    BothFar,
    /// All sockets one socket's memory.
    BothShared,
}

/// How written bytes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersistInstruction {
    /// Stores that bypass the cache, and a fence.
    NonTemporal,
    /// Stores, a write-back of each line, and a fence.
    Flush,
    /// Ordinary stores, never made durable.
    None,
}

/// One combination of the axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// Direction.
    pub operation: Operation,
    /// Order of one thread's accesses.
    pub pattern: Pattern,
    /// Bytes of one access.
    pub access_bytes: u64,
    /// Threads doing [`Point::operation`]; for reading files, rings.
    pub threads: u32,
    /// Where the threads' accesses lie.
    pub grouping: Grouping,
    /// Where the threads run.
    pub pinning: Pinning,
    /// Sockets and memory.
    pub placement: Placement,
    /// How writes are made durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persist: Option<PersistInstruction>,
    /// Threads doing the other operation at the same time; with [`Point::on_dram`], reading the tier.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beside_threads: u32,
    /// Requests in flight, for files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// Range of random accesses, if it is not the whole working set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_bytes: Option<u64>,
    /// Not the tier is measured but DRAM, while the tier is read beside it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub on_dram: bool,
}

impl Point {
    /// Sequential access by threads with ranges of their own, near, alone: the ground all axes start from.
    pub fn new(operation: Operation, access_bytes: u64, threads: u32) -> Self {
        Self {
            operation,
            pattern: Pattern::Sequential,
            access_bytes,
            threads,
            grouping: Grouping::Individual,
            pinning: Pinning::None,
            placement: Placement::Near,
            persist: match operation {
                Operation::Read => None,
                Operation::Write => Some(PersistInstruction::NonTemporal),
            },
            beside_threads: 0,
            queue_depth: None,
            range_bytes: None,
            on_dram: false,
        }
    }
}

/// `write 4096 bytes, sequential, 2 threads, persist=flush`.
impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = word(&self.operation);
        let pattern = word(&self.pattern);
        let plain = Self::new(self.operation, self.access_bytes, self.threads);
        write!(
            f,
            "{operation} {} bytes, {pattern}, {} threads",
            self.access_bytes, self.threads
        )?;
        if self.grouping != plain.grouping {
            write!(f, ", {}", word(&self.grouping))?;
        }
        if self.pinning != plain.pinning {
            write!(f, ", pinning={}", word(&self.pinning))?;
        }
        if self.placement != plain.placement {
            write!(f, ", placement={}", word(&self.placement))?;
        }
        if let Some(persist) = self.persist.filter(|_| self.persist != plain.persist) {
            write!(f, ", persist={}", word(&persist))?;
        }
        if let Some(depth) = self.queue_depth {
            write!(f, ", depth {depth}")?;
        }
        if let Some(range_bytes) = self.range_bytes {
            write!(f, ", within {range_bytes} bytes")?;
        }
        if self.on_dram {
            write!(f, ", on DRAM")?;
        }
        if self.beside_threads > 0 {
            write!(f, ", {} beside", self.beside_threads)?;
        }
        Ok(())
    }
}

/// The word that stands for a value of an axis in JSON.
pub(crate) fn word(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured: `dram`, `file:DIR`, `dax:PATH`, `node:N`, `emulated:NAME`; `dram` also in the rows of another
    /// tier's probe that read DRAM beside it.
    pub tier: String,
    /// Whether the numbers come from a model and not from a device.
    pub emulated: bool,
    /// The combination.
    #[serde(flatten)]
    pub point: Point,
    /// All threads of [`Point::operation`] together; the median of all rounds.
    pub bandwidth_bytes_per_s: f64,
    /// Time of one access, where accesses do not overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Bandwidth of the other operation, when one ran beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_bandwidth_bytes_per_s: Option<f64>,
    /// How uncertain the bandwidth is: the interval that holds the median with 90 % confidence, as a part of the
    /// median; all of what was measured in fewer than eight rounds.
    #[serde(default)]
    pub spread: f64,
}

// serde's `skip_serializing_if` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

// serde's `skip_serializing_if` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(switch: &bool) -> bool {
    !switch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_says_what_is_special_about_it() {
        let point = Point::new(Operation::Write, 256, 2);
        assert_eq!(point.to_string(), "write 256 bytes, sequential, 2 threads");
        let point = Point {
            grouping: Grouping::Grouped,
            persist: Some(PersistInstruction::Flush),
            beside_threads: 3,
            ..point
        };
        let expected = "write 256 bytes, sequential, 2 threads, grouped, persist=flush, 3 beside";
        assert_eq!(point.to_string(), expected);
    }
}
