//! The memory that a probe of mapped memory measures.

use std::io::ErrorKind;
use std::path::Path;

use super::options::ProbeOptions;
use super::target::ProbeTarget;
use crate::error::TierError;
use crate::region::{AnonymousOptions, FileOptions, Region, SyncMapping};
use crate::topology::{Node, Topology};

/// Memory of twice the working set, one region for each socket of DRAM, with the CPUs near it.
pub(super) fn regions(
    target: &ProbeTarget,
    topology: &Topology,
    options: &ProbeOptions,
    working_set_bytes: u64,
) -> Result<Vec<(Region, Vec<u32>)>, TierError> {
    let too_large = || TierError::InvalidOption {
        option: "working set",
        value: working_set_bytes.to_string(),
        expected: "less than half the address space",
    };
    let len_bytes = working_set_bytes
        .checked_mul(2)
        .and_then(|bytes| usize::try_from(bytes).ok());
    let len_bytes = len_bytes.ok_or_else(too_large)?;
    check_memory(target, topology, len_bytes)?;
    let anonymous = |node: Option<u32>| {
        let options = AnonymousOptions {
            node,
            ..AnonymousOptions::default()
        };
        Region::anonymous(len_bytes, &options)
    };
    match target {
        ProbeTarget::Node(node) => Ok(vec![(
            anonymous(Some(*node))?,
            topology.near_cpus(*node).to_vec(),
        )]),
        ProbeTarget::Dax(path) => {
            let first = topology.nodes.first().map_or(&[][..], |node| &node.cpus);
            Ok(vec![(
                dax_region(path, len_bytes as u64, options)?,
                first.to_vec(),
            )])
        }
        _ if topology.socket_count() > 1 => {
            let mut sockets: Vec<(u32, &Node)> = topology
                .nodes
                .iter()
                .filter_map(|node| Some((node.socket?, node)))
                .collect();
            sockets.sort_by_key(|(socket, node)| (*socket, node.id));
            sockets.dedup_by_key(|(socket, _)| *socket);
            let region = |(socket, first): &(u32, &Node)| {
                let of_socket = topology
                    .nodes
                    .iter()
                    .filter(|node| node.socket == Some(*socket));
                let cpus = of_socket.flat_map(|node| node.cpus.clone()).collect();
                Ok((anonymous(Some(first.id))?, cpus))
            };
            sockets.iter().map(region).collect()
        }
        _ => {
            let cpus = topology
                .nodes
                .iter()
                .flat_map(|node| node.cpus.clone())
                .collect();
            Ok(vec![(anonymous(None)?, cpus)])
        }
    }
}

/// DRAM to be read beside a slow tier, near the CPUs that read it.
pub(super) fn dram_beside(
    target: &ProbeTarget,
    topology: &Topology,
    working_set_bytes: u64,
) -> Result<Region, TierError> {
    let near = match target {
        ProbeTarget::Node(node) => topology.near_cpus(*node),
        _ => topology.nodes.first().map_or(&[][..], |node| &node.cpus),
    };
    let home = topology
        .nodes
        .iter()
        .find(|node| !near.is_empty() && node.cpus == near);
    let several = topology.nodes.len() > 1;
    let options = AnonymousOptions {
        node: home.filter(|_| several).map(|node| node.id),
        ..AnonymousOptions::default()
    };
    let len_bytes = usize::try_from(working_set_bytes.saturating_mul(2)).unwrap_or(usize::MAX);
    Region::anonymous(len_bytes, &options)
}

/// Refuses a working set that would push the rest of the machine out of its memory.
fn check_memory(
    target: &ProbeTarget,
    topology: &Topology,
    len_bytes: usize,
) -> Result<(), TierError> {
    let all = || topology.nodes.iter().map(|node| node.memory_bytes).sum();
    let memory_bytes: u64 = match target {
        ProbeTarget::Node(node) => topology.node(*node).map_or(0, |node| node.memory_bytes),
        ProbeTarget::Dax(_) => 0,
        _ => all(),
    };
    let regions = match target {
        ProbeTarget::Dram => topology.socket_count() as u64,
        _ => 1,
    };
    let needed_bytes = (len_bytes as u64).saturating_mul(regions);
    // Nothing is known about a machine whose nodes the kernel does not describe.
    match memory_bytes > 0 && needed_bytes > memory_bytes / 4 * 3 {
        true => Err(TierError::OutOfMemory { bytes: len_bytes }),
        false => Ok(()),
    }
}

/// A file on a DAX file system, which is removed at once so that nothing remains, or a whole device.
fn dax_region(path: &Path, len_bytes: u64, options: &ProbeOptions) -> Result<Region, TierError> {
    if !path.exists() {
        return Err(TierError::io(path, "open", ErrorKind::NotFound.into()));
    }
    if !path.is_dir() {
        if !options.overwrite_device {
            return Err(TierError::InvalidOption {
                option: "tier",
                value: format!("dax:{}", path.display()),
                expected: "a folder on a DAX file system, unless overwriting a device is allowed",
            });
        }
        return Region::open_devdax(path, len_bytes);
    }
    let file = path.join("hotshelf-probe-dax.tmp");
    let file_options = FileOptions {
        len_bytes: Some(len_bytes),
        read_only: false,
        sync: SyncMapping::Require,
    };
    let region = Region::open_file(&file, &file_options)?;
    std::fs::remove_file(&file).map_err(|source| TierError::io(&file, "remove", source))?;
    Ok(region)
}
