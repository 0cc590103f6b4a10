//! How fast, and at what cost in processor time, the I/O engine reads a file.
//!
//! Prints one line: GB/s, processor milliseconds per GB, device operations and their mean size. To compare:
//!
//! ```text
//! fio --name=r --filename=FILE --rw=read --direct=1 --ioengine=io_uring --bs=64k --iodepth=16 \
//!     --runtime=5 --time_based
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hotshelf_tier::io::{Backend, IoEngine, IoFile, IoOptions};

/// What the help says below the flags.
pub const HELP: &str = "\
Examples:
  hotshelf-lab read-bandwidth FILE block=262144 depth=32

Settings:
  block=65536     bytes of one read
  depth=16        reads asked for at once
  seconds=5
  backend=auto    auto, uring or pread
  order=forward   forward or random
  merge=4194304   largest device operation; merge=BLOCK switches merging off
  sizes=equal     equal, or mixed: a sixteenth of a block to a block
  keep=0          bytes held on to before they are dropped, like a cache of that size
  cap=0           bandwidth cap in bytes per second, 0 for none";

/// What the command line says.
struct Settings {
    block_bytes: usize,
    depth: usize,
    seconds: f64,
    random: bool,
    mixed: bool,
    keep_bytes: usize,
    options: IoOptions,
}

/// Reads a file and prints how fast that was.
///
/// # Errors
/// For settings that do not exist and files that cannot be read.
pub fn run(path: &Path, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let settings = parse(arguments)?;
    let engine = IoEngine::start(settings.options.clone())?;
    let file = engine.open(path)?;
    let load = Arc::new(Load::new(&settings, engine, file)?);
    let (cpu_before, start) = (cpu_ms()?, Instant::now());
    for _ in 0..settings.depth {
        Load::read_next(&load);
    }
    thread::sleep(Duration::from_secs_f64(settings.seconds));
    let stats = load.engine.stats();
    let (elapsed, cpu_ms) = (start.elapsed().as_secs_f64(), cpu_ms()? - cpu_before);
    load.stop.store(true, Ordering::Relaxed);
    let gigabytes = stats.device_bytes as f64 / 1e9;
    println!(
        "{:.3} GB/s, {:.1} CPU-ms/GB, {} operations of {:.0} KiB, mean depth {:.1}, \
         {} MiB lent, {} MiB pooled; {}",
        gigabytes / elapsed,
        cpu_ms / gigabytes,
        stats.device_operations,
        stats.device_bytes as f64 / 1024.0 / stats.device_operations.max(1) as f64,
        stats.device_ns as f64 / stats.busy_ns.max(1) as f64,
        stats.lent_bytes >> 20,
        stats.pooled_bytes >> 20,
        load.engine.describe(),
    );
    while load.engine.stats().in_flight > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings {
        block_bytes: 65_536,
        depth: 16,
        seconds: 5.0,
        random: false,
        mixed: false,
        keep_bytes: 0,
        options: IoOptions::default(),
    };
    for argument in arguments {
        let (name, value) = argument.split_once('=').ok_or("arguments are name=value")?;
        match (name, value) {
            ("block", _) => settings.block_bytes = value.parse()?,
            ("depth", _) => settings.depth = value.parse()?,
            ("seconds", _) => settings.seconds = value.parse()?,
            ("order", "forward") => settings.random = false,
            ("order", "random") => settings.random = true,
            ("huge", _) => settings.options.huge_pages = value.parse()?,
            ("pool", _) => settings.options.pool_bytes_max = value.parse()?,
            ("sizes", "equal") => settings.mixed = false,
            ("sizes", "mixed") => settings.mixed = true,
            ("keep", _) => settings.keep_bytes = value.parse()?,
            ("merge", _) => settings.options.merge_bytes_max = value.parse()?,
            ("cap", _) => {
                let cap: u64 = value.parse()?;
                settings.options.bandwidth_bytes_per_s_max = (cap > 0).then_some(cap);
            }
            ("backend", "auto") => settings.options.backend = Backend::Auto,
            ("backend", "uring") => settings.options.backend = Backend::Uring,
            ("backend", "pread") => settings.options.backend = Backend::Pread,
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    Ok(settings)
}

/// Reads that each start the next one.
struct Load {
    engine: Arc<IoEngine>,
    file: Arc<IoFile>,
    block_bytes: usize,
    blocks: u64,
    random: bool,
    mixed: bool,
    next: AtomicU64,
    stop: AtomicBool,
    keep_bytes: usize,
    kept: Mutex<Kept>,
}

impl Load {
    fn new(
        settings: &Settings,
        engine: Arc<IoEngine>,
        file: Arc<IoFile>,
    ) -> Result<Self, Box<dyn Error>> {
        let blocks = file.len_bytes() / settings.block_bytes as u64;
        if blocks == 0 {
            return Err("the file is smaller than a block".into());
        }
        Ok(Self {
            engine,
            file,
            block_bytes: settings.block_bytes,
            blocks,
            random: settings.random,
            mixed: settings.mixed,
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            keep_bytes: settings.keep_bytes,
            kept: Mutex::default(),
        })
    }

    fn read_next(load: &Arc<Self>) {
        let step = load.next.fetch_add(1, Ordering::Relaxed);
        let scattered = scatter(step);
        let step = if load.random { scattered } else { step };
        let offset = step % load.blocks * load.block_bytes as u64;
        let shrink = if load.mixed {
            (scattered >> 20) as usize % 16
        } else {
            0
        };
        let len = load.block_bytes - load.block_bytes / 16 * shrink;
        let own = Arc::clone(load);
        let done = Box::new(move |answer: Result<Bytes, _>| match answer {
            Err(error) => eprintln!("{error}"),
            Ok(bytes) => {
                own.keep(bytes);
                if !own.stop.load(Ordering::Relaxed) {
                    Self::read_next(&own);
                }
            }
        });
        load.engine.submit(&load.file, offset, len, done).detach();
    }

    /// Holds on to the bytes in the place of some others.
    fn keep(&self, bytes: Bytes) {
        let mut kept = self.kept.lock().expect("no panics while held");
        kept.sum += bytes.len();
        kept.all.push(bytes);
        while kept.sum > self.keep_bytes {
            let idx = scatter(self.next.load(Ordering::Relaxed)) as usize % kept.all.len();
            kept.sum -= kept.all.swap_remove(idx).len();
        }
    }
}

/// Bytes held on to.
#[derive(Default)]
struct Kept {
    all: Vec<Bytes>,
    sum: usize,
}

/// An odd multiplier scatters steps well enough.
fn scatter(step: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
}

/// User and system time of this process so far.
fn cpu_ms() -> Result<f64, Box<dyn Error>> {
    let mut total_ns = 0u64;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        total_ns += stat
            .split(' ')
            .next()
            .ok_or("no schedstat")?
            .parse::<u64>()?;
    }
    Ok(total_ns as f64 / 1e6)
}
