//! From a recorded tree to a [`Topology`]: a pure function that takes any text and never fails, because a machine that
//! does not say something simply has nothing to say about it.

use super::cpu_list;
use super::tree::Tree;
use super::{
    Cache, CacheKind, CxlDevice, CxlRegion, DaxDevice, HmatFigures, MemoryTier, Node,
    PersistenceDomain, PmemBlockDevice, PmemNamespace, Topology,
};

const NODES: &str = "sys/devices/system/node";
const CPUS: &str = "sys/devices/system/cpu";
const TIERS: &str = "sys/devices/virtual/memory_tiering";
const DAX: &str = "sys/bus/dax/devices";
const ND: &str = "sys/bus/nd/devices";
const CXL: &str = "sys/bus/cxl/devices";

/// HMAT access class 1 is "initiators with CPUs only"; class 0 includes accelerators.
const HMAT_CLASSES: [&str; 2] = ["access1", "access0"];

impl Topology {
    /// Understands a recorded tree.
    pub fn parse(tree: &Tree) -> Self {
        let mut nodes = nodes(tree);
        attach_sockets(tree, &mut nodes);
        let cxl_devices = cxl_devices(tree);
        Self {
            nodes,
            caches: caches(tree),
            memory_tiers: memory_tiers(tree),
            dax_devices: dax_devices(tree),
            namespaces: namespaces(tree),
            pmem_block_devices: pmem_block_devices(tree),
            cxl_regions: cxl_regions(tree, &cxl_devices),
            cxl_devices,
            cpu_model: cpu_info(tree, "model name"),
            virtualised: cpu_info(tree, "flags")
                .split(' ')
                .any(|f| f == "hypervisor"),
            kernel: text(tree, "proc/sys/kernel/osrelease"),
            huge_pages: chosen(&text(tree, "sys/kernel/mm/transparent_hugepage/enabled")),
            demotion: tree
                .text("sys/kernel/mm/numa/demotion_enabled")
                .is_some_and(|text| text == "true" || text == "1"),
            physical_cores: physical_cores(tree),
        }
    }
}

fn nodes(tree: &Tree) -> Vec<Node> {
    let names = tree.names(NODES, "node");
    let ids: Vec<u32> = names
        .iter()
        .filter_map(|name| id_of(name, "node"))
        .collect();
    names
        .iter()
        .filter_map(|name| {
            let at = |file: &str| format!("{NODES}/{name}/{file}");
            let distances = text(tree, &at("distance"));
            let distances = distances.split_whitespace().map(|d| d.parse().ok());
            Some(Node {
                id: id_of(name, "node")?,
                cpus: cpu_list::parse(&text(tree, &at("cpulist"))),
                memory_bytes: node_memory_bytes(&text(tree, &at("meminfo"))),
                distances: ids
                    .iter()
                    .zip(distances)
                    .filter_map(|(id, distance)| Some((*id, distance?)))
                    .collect(),
                hmat: HMAT_CLASSES
                    .iter()
                    .find_map(|class| hmat(tree, &at(&format!("{class}/initiators")))),
                socket: None,
            })
        })
        .collect()
}

fn attach_sockets(tree: &Tree, nodes: &mut [Node]) {
    for node in nodes {
        node.socket = node.cpus.first().and_then(|cpu| {
            let path = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
            tree.number(&path).and_then(|id| u32::try_from(id).ok())
        });
    }
}

/// `Node 1 MemTotal:   262144 kB` in bytes.
fn node_memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find(|line| line.contains("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// The firmware's figures: latencies are in nanoseconds, bandwidths in megabytes per second.
fn hmat(tree: &Tree, folder: &str) -> Option<HmatFigures> {
    let figure = |name: &str| tree.number(&format!("{folder}/{name}")).filter(|n| *n > 0);
    let bandwidth = |name: &str| figure(name).map(|mb| mb.saturating_mul(1_000_000));
    let figures = HmatFigures {
        read_latency_ns: figure("read_latency"),
        write_latency_ns: figure("write_latency"),
        read_bandwidth_bytes_per_s: bandwidth("read_bandwidth"),
        write_bandwidth_bytes_per_s: bandwidth("write_bandwidth"),
    };
    (figures != HmatFigures::default()).then_some(figures)
}

fn caches(tree: &Tree) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    for cpu in tree.names(CPUS, "cpu") {
        let folder = format!("{CPUS}/{cpu}/cache");
        for index in tree.names(&folder, "index") {
            let cache = cache(tree, &format!("{folder}/{index}"));
            caches.extend(cache.filter(|cache| !caches.contains(cache)));
        }
    }
    caches.sort_by(|a, b| (a.level, &a.cpus, a.kind).cmp(&(b.level, &b.cpus, b.kind)));
    caches
}

fn cache(tree: &Tree, folder: &str) -> Option<Cache> {
    Some(Cache {
        level: u32::try_from(tree.number(&format!("{folder}/level"))?).ok()?,
        kind: match tree.text(&format!("{folder}/type"))? {
            "Data" => CacheKind::Data,
            "Instruction" => CacheKind::Instruction,
            _ => CacheKind::Unified,
        },
        size_bytes: sized(tree.text(&format!("{folder}/size"))?)?,
        line_bytes: tree
            .number(&format!("{folder}/coherency_line_size"))
            .unwrap_or(64),
        cpus: cpu_list::parse(&text(tree, &format!("{folder}/shared_cpu_list"))),
    })
}

/// `32K`, `32768K`, `1M` in bytes.
fn sized(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn memory_tiers(tree: &Tree) -> Vec<MemoryTier> {
    let tier = |name: &str| {
        let nodes = tree.text(&format!("{TIERS}/{name}/nodelist"))?;
        Some(MemoryTier {
            id: id_of(name, "memory_tier")?,
            nodes: cpu_list::parse(nodes),
        })
    };
    let names = tree.names(TIERS, "memory_tier");
    names.into_iter().filter_map(tier).collect()
}

fn dax_devices(tree: &Tree) -> Vec<DaxDevice> {
    let device = |name: &str| {
        let at = |file: &str| format!("{DAX}/{name}/{file}");
        let driver = tree.text(&at("driver")).map(last_name);
        Some(DaxDevice {
            name: name.to_owned(),
            size_bytes: tree.number(&at("size"))?,
            align_bytes: tree.number(&at("align")).unwrap_or(2 << 20),
            target_node: node_number(tree, &at("target_node")),
            system_ram: driver == Some("kmem"),
        })
    };
    let names = tree.names(DAX, "dax");
    names.into_iter().filter_map(device).collect()
}

fn namespaces(tree: &Tree) -> Vec<PmemNamespace> {
    let namespace = |name: &str| {
        let at = |file: &str| format!("{ND}/{name}/{file}");
        let region = id_of(name, "namespace")?;
        let size_bytes = tree.number(&at("size")).unwrap_or(0);
        let used = size_bytes > 0;
        used.then(|| PmemNamespace {
            name: name.to_owned(),
            mode: text(tree, &at("mode")),
            size_bytes,
            region,
            node: node_number(tree, &at("numa_node")),
            domain: region_domain(tree, region),
        })
    };
    let names = tree.names(ND, "namespace");
    names.into_iter().filter_map(namespace).collect()
}

fn region_domain(tree: &Tree, region: u32) -> PersistenceDomain {
    let path = format!("{ND}/region{region}/persistence_domain");
    PersistenceDomain::from_sysfs(tree.text(&path).unwrap_or(""))
}

fn pmem_block_devices(tree: &Tree) -> Vec<PmemBlockDevice> {
    let device = |name: &str| {
        let at = |file: &str| format!("sys/block/{name}/{file}");
        let (major, minor) = tree.text(&at("dev"))?.split_once(':')?;
        let link = text(tree, &at("device"));
        let parts = || link.split('/');
        // The parent is namespaceR.I, or dax/pfn/btt R.I on top of it: all carry the region's number.
        let parent = last_name(&link).trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let region = parts()
            .find_map(|part| id_of(part, "region"))
            .or_else(|| id_of(parent, ""));
        Some(PmemBlockDevice {
            name: name.to_owned(),
            device: (major.parse().ok()?, minor.parse().ok()?),
            size_bytes: tree.number(&at("size"))?.checked_mul(512)?,
            dax: tree.number(&at("queue/dax")) == Some(1),
            domain: region.map_or(PersistenceDomain::Unknown, |id| region_domain(tree, id)),
        })
    };
    let names = tree.names("sys/block", "pmem");
    names.into_iter().filter_map(device).collect()
}

fn cxl_devices(tree: &Tree) -> Vec<CxlDevice> {
    let device = |name: &str| {
        let at = |file: &str| format!("{CXL}/{name}/{file}");
        CxlDevice {
            name: name.to_owned(),
            volatile_bytes: tree.number(&at("ram/size")).unwrap_or(0),
            persistent_bytes: tree.number(&at("pmem/size")).unwrap_or(0),
            node: node_number(tree, &at("numa_node")),
        }
    };
    let names = tree.names(CXL, "mem");
    names.into_iter().map(device).collect()
}

fn cxl_regions(tree: &Tree, devices: &[CxlDevice]) -> Vec<CxlRegion> {
    let region = |name: &str| {
        let at = |file: &str| format!("{CXL}/{name}/{file}");
        Some(CxlRegion {
            name: name.to_owned(),
            size_bytes: tree.number(&at("size"))?,
            persistent: match tree.text(&at("mode")) {
                Some(mode) => mode == "pmem",
                // Older kernels do not say; then the region is as persistent as the devices under it.
                None => devices.iter().all(|device| device.volatile_bytes == 0),
            },
            interleave_ways: tree.number(&at("interleave_ways")).unwrap_or(1),
        })
    };
    let names = tree.names(CXL, "region");
    names.into_iter().filter_map(region).collect()
}

/// One logical CPU per physical core: the lowest of each sibling list.
fn physical_cores(tree: &Tree) -> Vec<u32> {
    let mut cores: Vec<u32> = tree
        .names(CPUS, "cpu")
        .into_iter()
        .filter_map(|cpu| tree.text(&format!("{CPUS}/{cpu}/topology/thread_siblings_list")))
        .filter_map(|siblings| cpu_list::parse(siblings).first().copied())
        .collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

fn cpu_info(tree: &Tree, key: &str) -> String {
    let lines = tree.text("proc/cpuinfo").unwrap_or("").lines();
    let mut pairs = lines.filter_map(|line| line.split_once(':'));
    let value = pairs.find(|(name, _)| name.trim() == key);
    value.map_or(String::new(), |(_, value)| value.trim().to_owned())
}

/// The bracketed word of `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(String::new(), |(word, _)| word.to_owned())
}

fn text(tree: &Tree, path: &str) -> String {
    tree.text(path).unwrap_or("").to_owned()
}

fn node_number(tree: &Tree, path: &str) -> Option<u32> {
    tree.number(path).and_then(|id| u32::try_from(id).ok())
}

/// The number that follows `prefix`: 1 for `namespace1.0`.
fn id_of(name: &str, prefix: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
