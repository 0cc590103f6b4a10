//! A program to cut the power under: it publishes pool states forever and says which it has published; after the cut it
//! verifies that none of them is lost. Also checks, on a machine that has them, that each kind of memory can be used.
//!
//! ```text
//! power_cut write FILE dax|cache|early     publish, printing `ACK n`; cache and early are wrong on purpose
//! power_cut verify FILE N                  at least state N must be there, and whole
//! power_cut check fsdax FILE               map with MAP_SYNC, make a pool, find it again
//! power_cut check plain FILE               the same without DAX: must say that it needs msync
//! power_cut check devdax DEVICE            the same on a device
//! power_cut check node N                   memory of that node
//! ```

#![forbid(unsafe_code)]

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use hotshelf_tier::TierError;
use hotshelf_tier::persist::{PersistOps, RegionOps, Writer, WriterOptions};
use hotshelf_tier::pool::{LayoutId, Pool, PoolOptions};
use hotshelf_tier::region::{
    AnonymousOptions, Durability, FileOptions, Media, Region, SyncMapping,
};
use hotshelf_tier::topology::Topology;

const LAYOUT: LayoutId = *b"power cut tests!";
const POOL_BYTES: u64 = 320 << 20;
const SEGMENT_BYTES: usize = 700;
/// Segments in force at once; older ones are dropped.
const SEGMENTS_KEPT: usize = 4;
/// States between two lines of output.
const ACK_EVERY: u64 = 64;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["write", path, how] => write(Path::new(path), how),
        ["verify", path, acked] => verify(Path::new(path), acked.parse().unwrap_or(0)),
        ["check", "fsdax", path] => check_file(Path::new(path), true),
        ["check", "plain", path] => check_file(Path::new(path), false),
        ["check", "devdax", path] => check_devdax(Path::new(path)),
        ["check", "node", node] => check_node(node.parse().unwrap_or(u32::MAX)),
        _ => {
            eprintln!(
                "usage: power_cut write FILE dax|cache|early | verify FILE N | check KIND WHAT"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            println!("VERIFY {problem}");
            ExitCode::FAILURE
        }
    }
}

type Checked = Result<(), String>;

fn text(error: TierError) -> String {
    error.to_string()
}

fn open(path: &Path, sync: SyncMapping) -> Result<Region, String> {
    let options = FileOptions {
        len_bytes: Some(POOL_BYTES),
        read_only: false,
        sync,
    };
    Region::open_file(path, &options).map_err(text)
}

fn pool_options() -> PoolOptions {
    PoolOptions {
        layout: LAYOUT,
        pool_id: *b"sixteen bytes id",
        overwrite: true,
        writer: WriterOptions::default(),
    }
}

/// What the segment of a state holds.
fn content(state: u64) -> Vec<u8> {
    (0..SEGMENT_BYTES as u64)
        .map(|at| (state.wrapping_mul(31).wrapping_add(at * 7) % 251) as u8)
        .collect()
}

fn write(path: &Path, how: &str) -> Checked {
    let sync = match how {
        "cache" => SyncMapping::Never,
        _ => SyncMapping::Require,
    };
    let region = open(path, sync)?;
    println!(
        "writing {how}: {:?}, {:?}",
        region.media(),
        region.durability()
    );
    let writer = region
        .into_writer(&WriterOptions::default())
        .map_err(text)?;
    match how {
        "dax" => publish_for_ever(writer),
        "cache" => publish_for_ever(rewrap(writer, |ops| Broken::new(ops, Fault::NoSync))),
        "early" => publish_for_ever(rewrap(writer, |ops| Broken::new(ops, Fault::Early))),
        other => Err(format!("no way to write called {other}")),
    }
}

fn rewrap<O: PersistOps>(
    mut writer: Writer<RegionOps>,
    wrap: impl Fn(RegionOps) -> O,
) -> Writer<O> {
    let all = writer.ops_mut().split_off(0);
    Writer::new(wrap(all))
}

fn publish_for_ever<O: PersistOps>(writer: Writer<O>) -> Checked {
    let mut pool = Pool::format(writer, &pool_options()).map_err(text)?;
    loop {
        let state = pool.generation() + 1;
        if pool.segments().len() == SEGMENTS_KEPT {
            pool.remove(0).map_err(text)?;
        }
        let published = pool
            .append(state, &[&content(state)])
            .and_then(|()| pool.publish());
        match published {
            Ok(state) if state % ACK_EVERY == 0 => println!("ACK {state}"),
            Ok(_) => {}
            Err(TierError::PoolFull { .. }) => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            Err(error) => return Err(text(error)),
        }
    }
}

fn verify(path: &Path, acked: u64) -> Checked {
    let region = open(path, SyncMapping::Prefer)?;
    let mut pool = Pool::open(region, &LAYOUT, &WriterOptions::default()).map_err(text)?;
    let state = pool.generation();
    let kept = usize::try_from(state)
        .unwrap_or(SEGMENTS_KEPT)
        .min(SEGMENTS_KEPT);
    if pool.segments().len() != kept {
        return Err(format!(
            "TORN: state {state} has {} segments",
            pool.segments().len()
        ));
    }
    for segment_idx in 0..kept {
        let expected_state = state - (kept - 1 - segment_idx) as u64;
        let segment = pool
            .segment(segment_idx)
            .map_err(|error| format!("TORN: {error}"))?;
        if segment[..] != content(expected_state) {
            return Err(format!(
                "TORN: segment {segment_idx} of state {state} has other bytes"
            ));
        }
    }
    match state >= acked {
        true => {
            println!("VERIFY state={state} acked={acked} HELD");
            Ok(())
        }
        false => Err(format!("state={state} acked={acked} LOST")),
    }
}

fn check_file(path: &Path, dax: bool) -> Checked {
    let required = open(path, SyncMapping::Require);
    let (region, media) = match dax {
        true => (required?, Media::FsDax),
        false => {
            if required.is_ok() {
                return Err("a file without DAX was mapped with MAP_SYNC".to_owned());
            }
            (open(path, SyncMapping::Prefer)?, Media::PageCache)
        }
    };
    println!(
        "{:?}, {:?}, downgrade {:?}",
        region.media(),
        region.durability(),
        region.downgrade()
    );
    if region.media() != media || dax != matches!(region.durability(), Durability::FlushDomain(_)) {
        return Err("the region is not what its file system is".to_owned());
    }
    if !dax && region.downgrade().is_none() {
        return Err("the missing MAP_SYNC was not told".to_owned());
    }
    use_as_pool(region, || open(path, SyncMapping::Prefer))
}

fn check_devdax(path: &Path) -> Checked {
    let device = || Region::open_devdax(path, 16 << 20).map_err(text);
    let region = device()?;
    println!(
        "{:?}, {:?}, {} bytes",
        region.media(),
        region.durability(),
        region.len_bytes()
    );
    if Region::open_devdax(path, u64::MAX).is_ok() {
        return Err("a device smaller than needed was opened".to_owned());
    }
    use_as_pool(region, device)
}

/// Publishes through a region and finds it again after opening it anew.
fn use_as_pool(region: Region, again: impl Fn() -> Result<Region, String>) -> Checked {
    region
        .prefault()
        .and_then(hotshelf_tier::region::Prefault::wait)
        .map_err(text)?;
    let mut pool = Pool::create(region, &pool_options()).map_err(text)?;
    for state in 1..=3 {
        pool.append(state, &[&content(state)]).map_err(text)?;
        pool.publish().map_err(text)?;
    }
    drop(pool);
    let mut pool = Pool::open(again()?, &LAYOUT, &WriterOptions::default()).map_err(text)?;
    for segment_idx in 0..3 {
        if pool.segment(segment_idx).map_err(text)?[..] != content(segment_idx as u64 + 1) {
            return Err(format!("segment {segment_idx} has other bytes"));
        }
    }
    println!("VERIFY pool of {} segments HELD", pool.segments().len());
    Ok(())
}

fn check_node(node: u32) -> Checked {
    let topology = Topology::read();
    for node in &topology.nodes {
        println!(
            "node {}: {} bytes, cpus {:?}, reads {:?} ns",
            node.id,
            node.memory_bytes,
            node.cpus,
            node.hmat.as_ref().and_then(|hmat| hmat.read_latency_ns)
        );
    }
    let options = AnonymousOptions {
        node: Some(node),
        ..AnonymousOptions::default()
    };
    let mut region = Region::anonymous(32 << 20, &options).map_err(text)?;
    let bytes = region
        .volatile_bytes_mut()
        .ok_or("the memory is not volatile")?;
    bytes.fill(7);
    for offset in (0..region.len_bytes()).step_by(1 << 20) {
        let found = region.node_of(offset).map_err(text)?;
        if found != node {
            return Err(format!("the page at {offset} is on node {found}"));
        }
    }
    println!("VERIFY all pages on node {node} HELD");
    Ok(())
}

/// A mistake in persisting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing is ever synced.
    NoSync,
    /// What is published is written only afterwards.
    Early,
}

/// Operations with a mistake, to see that it is caught.
#[derive(Debug)]
struct Broken {
    inner: RegionOps,
    fault: Fault,
    /// Segments that [`Fault::Early`] has not written yet: those of this publish, and of the one before.
    held: [Vec<(usize, Vec<u8>)>; 2],
}

impl Broken {
    fn new(inner: RegionOps, fault: Fault) -> Self {
        let held = [Vec::new(), Vec::new()];
        Self { inner, fault, held }
    }
}

impl PersistOps for Broken {
    fn window(&self) -> Range<usize> {
        self.inner.window()
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.inner.store(offset, bytes);
    }

    fn copy_nt(&mut self, offset: usize, bytes: &[u8]) {
        match self.fault {
            Fault::Early => self.held[0].push((offset, bytes.to_vec())),
            Fault::NoSync => self.inner.copy_nt(offset, bytes),
        }
    }

    fn flush(&mut self, range: Range<usize>) {
        if self.fault != Fault::NoSync {
            self.inner.flush(range);
        }
    }

    fn fence(&mut self) -> Result<(), TierError> {
        if self.fault == Fault::NoSync {
            return Ok(());
        }
        for (offset, bytes) in self.held[1].drain(..) {
            self.inner.copy_nt(offset, &bytes);
        }
        self.held.swap(0, 1);
        self.inner.fence()
    }

    fn publish(&mut self, offset: usize, word: u64) {
        self.inner.publish(offset, word);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self::new(self.inner.split_off(at), self.fault)
    }
}
