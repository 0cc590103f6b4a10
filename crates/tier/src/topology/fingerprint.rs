//! What makes a machine the same machine, as far as measurements are concerned.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Topology;

/// Facts that change what a measurement gives. Kernel and huge-page settings are not among them: they are recorded with
/// the profile, but an update should not throw it away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Name of the CPU.
    pub cpu_model: String,
    /// Physical cores.
    pub physical_cores: u32,
    /// Sockets.
    pub sockets: u32,
    /// By ascending node id.
    pub nodes: Vec<NodeFacts>,
    /// Whether a hypervisor is present.
    pub virtualised: bool,
}

/// A node's part of the fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
}

impl Fingerprint {
    /// The fingerprint of a machine.
    pub fn of(topology: &Topology) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let nodes = topology.nodes.iter().map(|node| NodeFacts {
            cpus: count(node.cpus.len()),
            memory_bytes: node.memory_bytes,
        });
        Self {
            cpu_model: topology.cpu_model.clone(),
            physical_cores: count(topology.physical_cores.len()),
            sockets: count(topology.socket_count()),
            nodes: nodes.collect(),
            virtualised: topology.virtualised,
        }
    }

    /// What differs, in words; empty if nothing does.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, a: String, b: String| {
            if a != b {
                differences.push(format!("{what}: {a} then, {b} now"));
            }
        };
        compare("CPU", self.cpu_model.clone(), other.cpu_model.clone());
        compare(
            "cores",
            self.physical_cores.to_string(),
            other.physical_cores.to_string(),
        );
        compare(
            "sockets",
            self.sockets.to_string(),
            other.sockets.to_string(),
        );
        compare(
            "hypervisor",
            self.virtualised.to_string(),
            other.virtualised.to_string(),
        );
        let alike = self.nodes.len() == other.nodes.len()
            && self
                .nodes
                .iter()
                .zip(&other.nodes)
                .all(|(a, b)| a.is_like(b));
        if !alike {
            compare("memory", memory(&self.nodes), memory(&other.nodes));
        }
        differences
    }
}

impl NodeFacts {
    /// Kernels reserve some megabytes more or less from one start to the next.
    fn is_like(&self, other: &Self) -> bool {
        let (less, more) = (
            self.memory_bytes.min(other.memory_bytes),
            self.memory_bytes.max(other.memory_bytes),
        );
        self.cpus == other.cpus && more - less <= more / 20
    }
}

fn memory(nodes: &[NodeFacts]) -> String {
    let node =
        |node: &NodeFacts| format!("{} CPUs with {} MiB", node.cpus, node.memory_bytes >> 20);
    nodes.iter().map(node).collect::<Vec<_>>().join(" and ")
}

/// What may change on a machine without making it another one, for the record.
pub fn conditions(topology: &Topology) -> BTreeMap<String, String> {
    let conditions = [
        ("kernel", topology.kernel.clone()),
        ("huge_pages", topology.huge_pages.clone()),
        ("demotion", topology.demotion.to_string()),
        (
            "last_level_cache_bytes",
            topology.last_level_cache_bytes().to_string(),
        ),
    ];
    conditions
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}
