//! What memory this machine has and who is near it: NUMA nodes, caches, persistent-memory and CXL devices, read from
//! sysfs.
//!
//! [`Tree::record`] takes the few files that matter; [`Topology::parse`] is pure and understands them. Slow and
//! persistent are independent: a memory-only node is volatile and probably slow, an NVDIMM is persistent and
//! perhaps as fast as DRAM.

mod cpu_list;
mod fingerprint;
mod parse;
mod pin;
mod tree;

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use fingerprint::{Fingerprint, NodeFacts, conditions};
pub use pin::{Near, allowed_cpus, pin_to};
pub use tree::Tree;

/// The machine as sysfs describes it. Empty lists mean that the kernel said nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// NUMA nodes by ascending id.
    pub nodes: Vec<Node>,
    /// Every cache once, by level.
    pub caches: Vec<Cache>,
    /// The kernel's own sorting of nodes into tiers; a hint only, a slow node may sit in the DRAM tier.
    pub memory_tiers: Vec<MemoryTier>,
    /// Character devices of directly mappable memory.
    pub dax_devices: Vec<DaxDevice>,
    /// NVDIMM and CXL persistent namespaces with a size.
    pub namespaces: Vec<PmemNamespace>,
    /// Block devices on top of them, which may carry file systems.
    pub pmem_block_devices: Vec<PmemBlockDevice>,
    /// CXL memory expanders.
    pub cxl_devices: Vec<CxlDevice>,
    /// CXL address ranges made of them.
    pub cxl_regions: Vec<CxlRegion>,
    /// Name of the CPU, empty if unknown.
    pub cpu_model: String,
    /// Whether a hypervisor stands between the program and the hardware.
    pub virtualised: bool,
    /// The kernel's release.
    pub kernel: String,
    /// Transparent huge pages: `always`, `madvise`, `never`, or empty if unknown.
    pub huge_pages: String,
    /// Whether reclaim may move pages from DRAM to slow nodes by itself.
    pub demotion: bool,
    /// One logical CPU of each physical core.
    pub physical_cores: Vec<u32>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of it.
    pub id: u32,
    /// Its logical CPUs; empty for memory-only nodes.
    pub cpus: Vec<u32>,
    /// Its memory.
    pub memory_bytes: u64,
    /// `(node, distance)`: 10 is local, 20 means twice as far.
    pub distances: Vec<(u32, u32)>,
    /// What firmware claims of it.
    pub hmat: Option<HmatFigures>,
    /// The socket of its CPUs.
    pub socket: Option<u32>,
}

/// Firmware's claims about a node (the ACPI HMAT), seen from its nearest CPUs. A prior, not a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HmatFigures {
    /// Idle read latency.
    pub read_latency_ns: Option<u64>,
    /// Idle write latency.
    pub write_latency_ns: Option<u64>,
    /// Peak read bandwidth.
    pub read_bandwidth_bytes_per_s: Option<u64>,
    /// Peak write bandwidth.
    pub write_bandwidth_bytes_per_s: Option<u64>,
}

/// One cache of the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// 1 is next to the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Capacity.
    pub size_bytes: u64,
    /// Line size.
    pub line_bytes: u64,
    /// The logical CPUs that share it.
    pub cpus: Vec<u32>,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// A set of nodes that the kernel holds to be equally fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryTier {
    /// Lower is faster; DRAM is 4.
    pub id: u32,
    /// Its nodes.
    pub nodes: Vec<u32>,
}

/// A devdax device, `/dev/daxN.M`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaxDevice {
    /// `dax0.0`.
    pub name: String,
    /// Capacity.
    pub size_bytes: u64,
    /// Offsets and lengths of mappings must be multiples of this.
    pub align_bytes: u64,
    /// The node its memory would become under the kmem driver.
    pub target_node: Option<u32>,
    /// Whether it already is ordinary memory of that node and cannot be mapped.
    pub system_ram: bool,
}

/// A persistent-memory namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmemNamespace {
    /// `namespace0.0`.
    pub name: String,
    /// `fsdax` (shown by the kernel as `memory`), `dax`, `raw`, `safe`, or empty.
    pub mode: String,
    /// Capacity.
    pub size_bytes: u64,
    /// Number of the region it is cut from.
    pub region: u32,
    /// The nearest node.
    pub node: Option<u32>,
    /// How far a store must travel to survive a power cut.
    pub domain: PersistenceDomain,
}

/// A block device on persistent memory, `/dev/pmemN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmemBlockDevice {
    /// `pmem0`.
    pub name: String,
    /// Major and minor number.
    pub device: (u32, u32),
    /// Capacity.
    pub size_bytes: u64,
    /// Whether file systems on it can map files directly.
    pub dax: bool,
    /// How far a store must travel to survive a power cut.
    pub domain: PersistenceDomain,
}

/// How far a store must travel to survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersistenceDomain {
    /// The CPU's caches are saved too (eADR): fences are needed, cache-line flushes are not.
    CpuCache,
    /// The memory controller's queues are saved (ADR): lines must be flushed.
    MemoryController,
    /// The kernel does not say; treated like [`PersistenceDomain::MemoryController`].
    Unknown,
}

impl PersistenceDomain {
    pub(crate) fn from_sysfs(text: &str) -> Self {
        match text.trim() {
            "cpu_cache" => Self::CpuCache,
            "memory_controller" => Self::MemoryController,
            _ => Self::Unknown,
        }
    }
}

/// A CXL memory device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CxlDevice {
    /// `mem0`.
    pub name: String,
    /// Its volatile capacity.
    pub volatile_bytes: u64,
    /// Its persistent capacity.
    pub persistent_bytes: u64,
    /// The nearest node.
    pub node: Option<u32>,
}

/// An address range made of CXL devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CxlRegion {
    /// `region0`.
    pub name: String,
    /// Capacity.
    pub size_bytes: u64,
    /// Whether it keeps its content without power.
    pub persistent: bool,
    /// Over how many devices it is striped.
    pub interleave_ways: u64,
}

impl Topology {
    /// The running machine.
    pub fn read() -> Self {
        Self::parse(&Tree::record(Path::new("/")))
    }

    /// The node with this id.
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The CPUs nearest to `node`: its own, or those of the node at the smallest distance that has any.
    pub fn near_cpus(&self, node: u32) -> &[u32] {
        let distance_to = |other: &Node| {
            let here = self.node(node).map_or(&[][..], |node| &node.distances);
            let found = here.iter().find(|(id, _)| *id == other.id);
            found.map_or(u32::MAX, |(_, distance)| *distance)
        };
        let with_cpus = self.nodes.iter().filter(|node| !node.cpus.is_empty());
        let nearest = with_cpus.min_by_key(|other| match other.id == node {
            true => 0,
            false => distance_to(other),
        });
        nearest.map_or(&[], |node| &node.cpus)
    }

    /// The largest cache of data: memory measurements must touch several times as much.
    pub fn last_level_cache_bytes(&self) -> u64 {
        let data = self
            .caches
            .iter()
            .filter(|c| c.kind != CacheKind::Instruction);
        let sizes = data.map(|cache| (cache.level, cache.size_bytes));
        sizes.max().map_or(0, |(_, size_bytes)| size_bytes)
    }

    /// The second-level cache, which a core has for itself; 0 if it is not known.
    pub fn core_cache_bytes(&self) -> u64 {
        let second = self.caches.iter().filter(|cache| cache.level == 2);
        second.map(|cache| cache.size_bytes).max().unwrap_or(0)
    }

    /// How many sockets have CPUs.
    pub fn socket_count(&self) -> usize {
        let mut sockets: Vec<u32> = self.nodes.iter().filter_map(|node| node.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        sockets.len().max(1)
    }
}
