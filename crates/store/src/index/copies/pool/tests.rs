use hotshelf_tier::crash::{EnumerateOptions, Model, Promise, Report, enumerate, mutants};
use hotshelf_tier::persist::{Note, Trace, TraceLog, Writer};
use hotshelf_tier::region::AnonymousOptions;
use tempfile::TempDir;

use super::*;

const ID: u64 = 0x0123_4567_89ab_cdef;

/// Leaves of stretches, and after how many reads nothing needs them any more.
struct Leaves {
    stretches: Vec<Vec<u8>>,
    read_count_max: usize,
    read_count: std::sync::atomic::AtomicUsize,
}

impl GivesLeaves for Leaves {
    async fn leaves(
        &self,
        stretch_idx: usize,
        from: u64,
        len_bytes: u64,
    ) -> Result<Option<Vec<u8>>> {
        let range = from as usize..(from + len_bytes) as usize;
        let read = self.stretches[stretch_idx][range].to_vec();
        let read_count = self
            .read_count
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok((read_count < self.read_count_max).then_some(read))
    }
}

impl Leaves {
    fn new(lengths: &[usize]) -> Self {
        let stretch = |(idx, length): (usize, &usize)| {
            let bytes = 0..*length;
            bytes.map(|at| (at * 7 + idx * 31 + 1) as u8 | 1).collect()
        };
        Self {
            stretches: lengths.iter().enumerate().map(stretch).collect(),
            read_count_max: usize::MAX,
            read_count: 0.into(),
        }
    }

    /// In pieces of 512 bytes.
    fn layout(&self) -> LeafLayout {
        let lengths = self.stretches.iter().map(|stretch| stretch.len() as u64);
        LeafLayout::new(lengths, 512, 256)
    }

    /// All of them as they lie in a copy.
    fn copied(&self) -> Vec<u8> {
        let mut all: Vec<u8> = Vec::new();
        for stretch in &self.stretches {
            all.resize(all.len().next_multiple_of(256), 0);
            all.extend(stretch);
        }
        all
    }
}

/// Leaves of an index that leaves its shelf whenever some of them are copied.
struct LeavingLeaves {
    leaves: Leaves,
    place: PoolPlace,
}

impl GivesLeaves for LeavingLeaves {
    async fn leaves(
        &self,
        stretch_idx: usize,
        from: u64,
        len_bytes: u64,
    ) -> Result<Option<Vec<u8>>> {
        self.place.remove();
        self.leaves.leaves(stretch_idx, from, len_bytes).await
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

fn joined(pieces: &[Sealed]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.to_vec()).collect()
}

fn region_of(image: &[u8]) -> Region {
    let options = AnonymousOptions {
        small_pages: true,
        ..AnonymousOptions::default()
    };
    let mut region = Region::anonymous(image.len(), &options).unwrap();
    region.volatile_bytes_mut().unwrap().copy_from_slice(image);
    region
}

/// What copying writes. The pool gets its name where state 1 is acknowledged.
fn trace_of(leaves: &Leaves) -> TraceLog {
    let trace = Trace::new(vec![0; 19 << 10]);
    trace.note(Note::Started(1));
    let mut pool = Pool::format(Writer::new(trace), &pool_options(ID)).unwrap();
    let name = |pool: &Pool<Trace>| {
        pool.writer().ops().note(Note::Acked(1));
        Ok(())
    };
    assert!(now(fill_pool(leaves, &leaves.layout(), &mut pool, name)).unwrap());
    pool.writer().ops().log()
}

fn check(leaves: &Leaves, image: &[u8], promise: Promise) -> Result<bool, String> {
    match open_pool(region_of(image), ID, &leaves.layout()) {
        Ok(Some(pieces)) if joined(&pieces) == leaves.copied() => Ok(true),
        Ok(Some(_)) => Err("a pool that is taken for whole has other bytes".into()),
        other if promise.acked == 1 => Err(format!("the pool has its name, but: {other:?}")),
        _ => Ok(false),
    }
}

#[test]
fn a_power_cut_while_leaves_are_copied_leaves_all_of_them_or_none_that_are_used() {
    let leaves = Leaves::new(&[700, 0, 300]);
    let log = trace_of(&leaves);
    let options = EnumerateOptions {
        exhaustive_states_max: 256,
        sample_count: 60,
        ..EnumerateOptions::default()
    };
    let run = |log: &TraceLog, model: Model| -> (Report, u64) {
        let mut whole_count = 0;
        let report = enumerate(log, model, &options, |image, promise| {
            whole_count += u64::from(check(&leaves, image, promise)?);
            Ok(())
        });
        (report, whole_count)
    };
    for model in [Model::FlushDomain, Model::CpuCache, Model::PageCache] {
        let (report, whole_count) = run(&log, model);
        assert_eq!(report.violations, [], "{model:?}");
        assert!(
            (1..report.state_count).contains(&whole_count),
            "{model:?}: {report:?}"
        );
    }
    // The check notices what a programmer could have forgotten.
    let broken = mutants(&log);
    let is_noticed = |log: &TraceLog| !run(log, Model::FlushDomain).0.violations.is_empty();
    let noticed = broken.iter().filter(|mutant| is_noticed(&mutant.log));
    assert!(noticed.count() >= 3);
}

#[test]
fn copying_that_is_cut_off_leaves_no_file_and_a_whole_pool_is_found_again() {
    let folder = TempDir::new().unwrap();
    let place = PoolPlace::new(folder.path(), ID);
    let mut leaves = Leaves::new(&[700, 0, 300]);
    leaves.read_count_max = 1;
    assert!(
        now(place.find_or_make(&leaves, &leaves.layout()))
            .unwrap()
            .is_none()
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    leaves.read_count_max = usize::MAX;
    for _ in 0..2 {
        let pieces = now(place.find_or_make(&leaves, &leaves.layout()))
            .unwrap()
            .unwrap();
        assert_eq!(joined(&pieces), leaves.copied());
        // From here on it is found, not made.
        leaves.read_count_max = 0;
    }
}

#[test]
fn only_what_carries_the_index_files_id_is_removed() {
    let folder = TempDir::new().unwrap();
    let leaves = Leaves::new(&[300]);
    let (own, other) = (
        PoolPlace::new(folder.path(), ID),
        PoolPlace::new(folder.path(), 8),
    );
    for place in [&own, &other] {
        drop(now(place.find_or_make(&leaves, &leaves.layout())).unwrap());
    }
    let unfinished = own.file().with_extension("pool.tmp");
    std::fs::copy(own.file(), &unfinished).unwrap();
    own.remove();
    assert!(!own.file().exists() && !unfinished.exists() && other.file().exists());
    // Under this one's names are another's pool, bytes of no pool, a folder and a link.
    std::fs::rename(other.file(), own.file()).unwrap();
    std::fs::write(&unfinished, [7; 20_000]).unwrap();
    own.remove();
    assert!(own.file().exists() && unfinished.exists());
    // What was begun and has nothing yet goes, if it has the name of what is being made.
    for blank_bytes in [0, 300, 20_000] {
        std::fs::write(&unfinished, vec![0; blank_bytes]).unwrap();
        own.remove();
        assert!(own.file().exists() && !unfinished.exists());
    }
    std::fs::write(&unfinished, [7; 20_000]).unwrap();
    std::fs::rename(own.file(), other.file()).unwrap();
    std::fs::create_dir(own.file()).unwrap();
    std::fs::remove_file(&unfinished).unwrap();
    std::os::unix::fs::symlink(other.file(), &unfinished).unwrap();
    own.remove();
    assert!(own.file().is_dir() && unfinished.is_symlink() && other.file().exists());
    PoolPlace::new(&folder.path().join("gone"), ID).remove();
}

/// An ordinary file in place of a device.
struct Device {
    folder: TempDir,
}

impl Device {
    fn new() -> Self {
        let device = Self {
            folder: TempDir::new().unwrap(),
        };
        device.write(&vec![0; 64 << 10]);
        device
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("dax0.0")
    }

    fn write(&self, bytes: &[u8]) {
        std::fs::write(self.path(), bytes).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    fn open(&self) -> Result<Region, TierError> {
        Region::open_file(&self.path(), &FileOptions::default())
    }

    fn pool(&self, leaves: &Leaves, id: u64) -> Result<Option<Vec<Sealed>>> {
        now(device_pool(|| self.open(), leaves, id, &leaves.layout()))
    }
}

#[test]
fn a_device_holds_the_pool_of_one_index_file_until_that_frees_it() {
    let (device, mut leaves) = (Device::new(), Leaves::new(&[700, 300]));
    let pieces = device.pool(&leaves, ID).unwrap().unwrap();
    assert_eq!(joined(&pieces), leaves.copied());
    assert!(matches!(device.open(), Err(TierError::Locked { .. })));
    drop(pieces);
    let written = device.bytes();
    leaves.read_count_max = 0;
    let again = device.pool(&leaves, ID).unwrap().unwrap();
    assert_eq!(joined(&again), leaves.copied());
    drop(again);
    let error = device.pool(&leaves, 8).unwrap_err().to_string();
    assert!(
        error.contains("dax0.0") && error.contains("index file 0000000000000008"),
        "{error}"
    );
    erase_pool(|| device.open(), 8).unwrap();
    assert_eq!(
        device.bytes(),
        written,
        "another's pool is neither overwritten nor erased"
    );
    erase_pool(|| device.open(), ID).unwrap();
    leaves.read_count_max = usize::MAX;
    let others = device.pool(&leaves, 8).unwrap().unwrap();
    assert_eq!(joined(&others), leaves.copied());
}

#[test]
fn an_unfinished_pool_on_a_device_is_made_again_and_other_bytes_are_left_alone() {
    let (device, mut leaves) = (Device::new(), Leaves::new(&[700, 300]));
    leaves.read_count_max = 1;
    assert!(device.pool(&leaves, ID).unwrap().is_none());
    leaves.read_count_max = usize::MAX;
    assert!(
        device.pool(&leaves, 8).is_err(),
        "it is another's, unfinished or not"
    );
    assert!(device.pool(&leaves, ID).unwrap().is_some());
    // A damaged root is not refused either.
    let mut bytes = device.bytes();
    bytes[8192..12_352].fill(0x33);
    device.write(&bytes);
    let pieces = device.pool(&leaves, ID).unwrap().unwrap();
    assert_eq!(joined(&pieces), leaves.copied());
    drop(pieces);
    for at in [0, 5_000, Front::BYTES - 1] {
        let mut bytes = vec![0; 64 << 10];
        bytes[at] = 1;
        device.write(&bytes);
        assert!(device.pool(&leaves, ID).is_err());
        assert_eq!(device.bytes(), bytes);
    }
}

#[test]
fn a_pool_that_is_being_made_is_left_to_who_makes_it() {
    let folder = TempDir::new().unwrap();
    let place = PoolPlace::new(folder.path(), ID);
    let leaves = Leaves::new(&[700, 0, 300]);
    let layout = leaves.layout();
    let copied = leaves.copied();
    let leaving = LeavingLeaves {
        leaves,
        place: place.clone(),
    };
    let pieces = now(place.find_or_make(&leaving, &layout)).unwrap().unwrap();
    assert_eq!(joined(&pieces), copied);
    drop(pieces);
    assert!(place.file().is_file());
    place.remove();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
