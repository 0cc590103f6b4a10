//! How a shelf wants to be used by what is on it, from the machine's profile.

use hotshelf_tier::profile::{TierProfile, Value};
use hotshelf_tier::topology::Topology;

/// Each writer has a thread and a buffer.
const WRITERS_MAX: usize = 64;

/// How a shelf wants to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShelfUse {
    /// Threads that write together.
    pub writers: usize,
    /// Bytes that are written at once; none where that was not measured.
    pub piece_bytes: Option<usize>,
    /// Where writers run: the first one on the first of these sets of processors, and so on from the beginning again.
    /// Memory lies near the thread that touches it first. None: anywhere.
    pub cpus: Vec<Vec<u32>>,
    /// Workers of a query that may read it together; none: any number.
    pub readers: Option<usize>,
}

/// One writer: where nothing was measured.
impl Default for ShelfUse {
    fn default() -> Self {
        Self {
            writers: 1,
            piece_bytes: None,
            cpus: Vec::new(),
            readers: None,
        }
    }
}

impl ShelfUse {
    /// By the profile of a shelf (PMEM-OLAP 2021, insights 2 to 9).
    pub fn of(tier: &TierProfile, topology: &Topology) -> Self {
        let is_file = tier.tier.starts_with("file:");
        Self {
            writers: measured(&tier.write_threads)
                .map_or(1, |count| (count as usize).clamp(1, WRITERS_MAX)),
            piece_bytes: measured(&tier.write_grain_bytes).map(|bytes| bytes as usize),
            cpus: cpus(tier, topology),
            // Of a file's the profile counts rings.
            readers: measured(&tier.read_threads)
                .filter(|_| !is_file)
                .map(|count| (count as usize).max(1)),
        }
    }

    /// The processors near the shelf's node, where it is to be used from those only; readers run there, too.
    pub fn near_cpus(&self) -> Option<&[u32]> {
        match self.cpus.as_slice() {
            [near] => Some(near),
            _ => None,
        }
    }

    /// The processors of a writer.
    pub fn cpus_of(&self, writer: usize) -> Option<&[u32]> {
        let idx = writer.checked_rem(self.cpus.len())?;
        Some(&self.cpus[idx])
    }
}

fn measured<T: Copy>(value: &Value<T>) -> Option<T> {
    value.measured.then_some(value.value)
}

/// One set for each socket that copies are striped over, or those near the node.
fn cpus(tier: &TierProfile, topology: &Topology) -> Vec<Vec<u32>> {
    if topology.socket_count() < 2 {
        return Vec::new();
    }
    let node = tier.tier.strip_prefix("node:");
    let node = node.and_then(|node| node.parse().ok());
    let near = node.filter(|_| tier.near_only.value);
    let sets: Vec<Vec<u32>> = match near {
        Some(node) => vec![topology.near_cpus(node).to_vec()],
        None if tier.tier == "dram" && tier.stripe_sockets.value => {
            let mut sockets: Vec<u32> = topology
                .nodes
                .iter()
                .filter_map(|node| node.socket)
                .collect();
            sockets.sort_unstable();
            sockets.dedup();
            let of = |socket: u32| {
                let nodes = topology
                    .nodes
                    .iter()
                    .filter(move |node| node.socket == Some(socket));
                nodes.flat_map(|node| node.cpus.iter().copied()).collect()
            };
            sockets.into_iter().map(of).collect()
        }
        None => Vec::new(),
    };
    sets.into_iter().filter(|set| !set.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_tier::emulated::recorded_rows;
    use hotshelf_tier::profile::{DeriveInput, derive};
    use hotshelf_tier::topology::Tree;

    const TWO_SOCKETS: &str = include_str!("../../tier/src/topology/trees/two-sockets.tree");

    fn recorded(device: &str) -> TierProfile {
        derive(&DeriveInput {
            tier: &format!("emulated:{device}"),
            rows: &recorded_rows(device),
            physical_cores: 18,
        })
    }

    #[test]
    fn persistent_memory_is_written_by_few_in_small_pieces_and_read_by_many() {
        let one = Topology::default();
        let optane = ShelfUse::of(&recorded("optane100-128"), &one);
        assert_eq!(optane.writers, 8);
        assert!(
            optane
                .piece_bytes
                .is_some_and(|bytes| (256..=4096).contains(&bytes)),
            "{optane:?}"
        );
        assert!(
            optane.readers.is_some_and(|readers| readers >= 12),
            "{optane:?}"
        );
        assert!(optane.cpus.is_empty() && optane.cpus_of(3).is_none());
        let other = ShelfUse::of(&recorded("optane100-512"), &one);
        assert_eq!(other.writers, 4);
        assert_eq!(
            ShelfUse::of(&TierProfile::defaults("node:1", 8), &one),
            ShelfUse::default()
        );
    }

    #[test]
    fn on_two_sockets_copies_are_near_their_node_or_striped() {
        let topology = Topology::parse(&Tree::from_text(TWO_SOCKETS));
        assert_eq!(topology.socket_count(), 2);
        let mut node = TierProfile::defaults("node:2", 8);
        let near = ShelfUse::of(&node, &topology);
        assert_eq!(near.cpus, [topology.near_cpus(2).to_vec()]);
        assert_eq!(near.near_cpus(), Some(topology.near_cpus(2)));
        node.near_only.value = false;
        assert!(ShelfUse::of(&node, &topology).cpus.is_empty());
        let mut dram = TierProfile::defaults("dram", 8);
        assert!(ShelfUse::of(&dram, &topology).cpus.is_empty());
        dram.stripe_sockets.value = true;
        let striped = ShelfUse::of(&dram, &topology);
        assert_eq!((striped.cpus.len(), striped.near_cpus()), (2, None));
        assert_eq!(striped.cpus_of(0), striped.cpus_of(2));
        let all: Vec<u32> = striped.cpus.concat();
        let known: usize = topology.nodes.iter().map(|node| node.cpus.len()).sum();
        assert_eq!(all.len(), known, "each processor once");
        assert_ne!(striped.cpus[0], striped.cpus[1]);
    }
}
