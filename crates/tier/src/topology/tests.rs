use proptest::prelude::*;

use super::*;

const FSDAX: &str = include_str!("trees/fsdax-and-memory-only-node.tree");
const DEVDAX: &str = include_str!("trees/devdax.tree");
const CXL: &str = include_str!("trees/cxl-region.tree");
const TWO_SOCKETS: &str = include_str!("trees/two-sockets.tree");

fn parsed(text: &str) -> Topology {
    Topology::parse(&Tree::from_text(text))
}

#[test]
fn a_memory_only_node_is_found_with_its_firmware_figures() {
    let topology = parsed(FSDAX);
    let memory_only = |node: &&Node| node.cpus.is_empty() && node.memory_bytes > 0;
    let slow: Vec<&Node> = topology.nodes.iter().filter(memory_only).collect();
    assert_eq!(slow.len(), 1);
    assert_eq!((slow[0].id, slow[0].memory_bytes), (1, 191_212 * 1024));
    assert_eq!(slow[0].distances, [(0, 30), (1, 10)]);
    let hmat = slow[0].hmat.expect("the tree has HMAT figures");
    assert_eq!(hmat.read_latency_ns, Some(300));
    assert_eq!(hmat.write_bandwidth_bytes_per_s, Some(30_720_000_000));
    assert_eq!(topology.near_cpus(1), [0]);
    // The kernel leaves the slow node in the DRAM tier: the tier does not tell whether it is slow.
    assert_eq!(
        topology.memory_tiers,
        [MemoryTier {
            id: 4,
            nodes: vec![0, 1]
        }]
    );
}

#[test]
fn an_fsdax_block_device_knows_its_persistence_domain() {
    let topology = parsed(FSDAX);
    let expected = PmemBlockDevice {
        name: "pmem0".to_owned(),
        device: (259, 0),
        size_bytes: 1_044_480 * 512,
        dax: true,
        domain: PersistenceDomain::MemoryController,
    };
    assert_eq!(topology.pmem_block_devices, [expected]);
    let saved_caches = FSDAX.replace("memory_controller", "cpu_cache");
    let device = &parsed(&saved_caches).pmem_block_devices[0];
    assert_eq!(device.domain, PersistenceDomain::CpuCache);
}

#[test]
fn caches_are_listed_once_by_level() {
    let topology = parsed(FSDAX);
    let sizes: Vec<_> = topology
        .caches
        .iter()
        .map(|c| (c.level, c.size_bytes >> 10))
        .collect();
    assert_eq!(sizes, [(1, 64), (1, 64), (2, 512), (3, 16_384)]);
    assert_eq!(topology.last_level_cache_bytes(), 16 << 20);
}

#[test]
fn a_devdax_device_says_how_it_may_be_mapped() {
    let device = &parsed(DEVDAX).dax_devices[0];
    assert_eq!(
        (device.name.as_str(), device.align_bytes),
        ("dax0.0", 2 << 20)
    );
    assert_eq!(
        (device.size_bytes, device.target_node),
        (526_385_152, Some(2))
    );
    assert!(!device.system_ram);
    let two = parsed(TWO_SOCKETS);
    assert!(two.dax_devices[1].system_ram, "the kmem driver owns it");
}

#[test]
fn a_cxl_region_is_found_with_its_block_device() {
    let topology = parsed(CXL);
    assert_eq!(topology.cxl_devices[0].persistent_bytes, 256 << 20);
    assert_eq!(topology.cxl_devices[0].node, None);
    let expected = CxlRegion {
        name: "region0".to_owned(),
        size_bytes: 256 << 20,
        persistent: true,
        interleave_ways: 1,
    };
    assert_eq!(topology.cxl_regions, [expected]);
    assert!(topology.pmem_block_devices[0].dax);
    assert_eq!(
        topology.namespaces.len(),
        1,
        "a namespace of size 0 is only a seed"
    );
}

#[test]
fn two_sockets_with_two_nodes_each_are_told_apart() {
    let topology = parsed(TWO_SOCKETS);
    let sockets: Vec<_> = topology.nodes.iter().map(|node| node.socket).collect();
    assert_eq!(sockets, [Some(0), Some(0), Some(1), Some(1)]);
    assert_eq!(topology.socket_count(), 2);
    assert_eq!(topology.physical_cores, [0, 9, 18, 27]);
    assert_eq!(topology.near_cpus(3)[..2], [27, 28]);
    let domains: Vec<_> = topology.namespaces.iter().map(|n| n.domain).collect();
    assert_eq!(
        domains,
        [
            PersistenceDomain::MemoryController,
            PersistenceDomain::CpuCache
        ]
    );
}

#[test]
fn a_silent_machine_has_an_empty_topology() {
    let topology = parsed("");
    assert_eq!(topology, Topology::default());
    assert_eq!(
        (topology.socket_count(), topology.last_level_cache_bytes()),
        (1, 0)
    );
    assert!(topology.near_cpus(7).is_empty());
}

#[test]
fn a_recorded_tree_survives_being_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let node = folder.path().join("sys/devices/system/node/node3");
    std::fs::create_dir_all(&node).unwrap();
    std::fs::write(node.join("cpulist"), "4-5\n").unwrap();
    std::fs::write(
        node.join("meminfo"),
        "Node 3 MemTotal: 8 kB\nNode 3 MemFree: 1 kB\n",
    )
    .unwrap();
    std::fs::write(node.join("unrelated"), "x").unwrap();
    let tree = Tree::record(folder.path());
    assert_eq!(Tree::from_text(&tree.to_text()), tree);
    let topology = Topology::parse(&tree);
    assert_eq!(topology.nodes[0].cpus, [4, 5]);
    assert_eq!(topology.nodes[0].memory_bytes, 8192);
    assert!(!tree.to_text().contains("unrelated"));
}

#[test]
fn the_running_machine_can_be_read() {
    let topology = Topology::read();
    assert!(topology.nodes.iter().all(|node| !node.distances.is_empty()));
}

proptest! {
    #[test]
    fn any_damage_to_a_tree_is_survived(
        cuts in prop::collection::vec((0usize..6000, "[ -~\\n\\t]{0,12}"), 0..8)
    ) {
        for text in [FSDAX, DEVDAX, CXL, TWO_SOCKETS] {
            let mut text = text.to_owned();
            for (at, junk) in &cuts {
                let at = at % (text.len() + 1);
                let end = (at + junk.len()).min(text.len());
                if text.is_char_boundary(at) && text.is_char_boundary(end) {
                    text.replace_range(at..end, junk);
                }
            }
            parsed(&text);
        }
    }
}
