//! Copies of data files, or of some of their columns, on a shelf that loads can read: memory, the memory of another
//! node, or an emulated device. The file stays what counts: without its copy it is read, and nothing is lost.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use hotshelf_cache::{CacheManager, LyingSegment, ReadError};
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{Batch, DeviceModel, EmulatedTier, Reach};
use hotshelf_tier::io::{IoFile, ReadFuture};
use hotshelf_tier::probe::{Operation, Pattern};
use hotshelf_tier::region::{AnonymousOptions, FileOptions, Region, Sealed, SyncMapping};
use parking_lot::{Mutex, RwLock};
use vortex::file::SegmentSpec;

use super::open::DataFile;
use super::sums::verify;
use crate::error::{Result, StoreError};
use crate::placement::Placement;
use crate::reservation::Reservation;
use crate::root::Root;
use crate::shelf::Shelf;

/// Segments begin on multiples of this: the grain of the devices, and enough for values of any type.
const ALIGN: usize = 256;
/// Reads of a file that is copied at a time.
const READS: usize = 8;
/// An emulated device has no bytes of its own: those of the copies are elsewhere.
const DEVICE_BYTES: usize = 2 << 20;

/// Where a segment begins in a copy, and its length.
type Place = (usize, usize);
/// Of each segment; none for those that are not there.
type Places = Box<[Option<Place>]>;

/// The segments of a data file on a shelf.
pub(crate) struct FileCopy {
    memory: Sealed,
    places: Places,
    /// The emulated device, and where on it the copy begins.
    device: Option<(Arc<Device>, usize)>,
    /// Of a file that is mapped, which segments were compared with their checksums since.
    checked: Option<Box<[AtomicBool]>>,
    /// What the copy takes of the budget.
    _reserved: Option<Reservation>,
}

impl FileCopy {
    /// A file where it lies, if its file system is one of persistent memory. Others read bytes again by themselves, and
    /// may find them damaged.
    fn mapped(target: &Path, places: Places, sync: SyncMapping) -> Result<Option<Self>> {
        let options = FileOptions {
            read_only: true,
            sync,
            ..FileOptions::default()
        };
        let region = match Region::open_file(target, &options) {
            Err(TierError::NoSyncMapping { .. }) => return Ok(None),
            region => region?,
        };
        Ok(Some(Self {
            memory: region.seal(),
            device: None,
            checked: Some(places.iter().map(|_| AtomicBool::new(false)).collect()),
            places,
            _reserved: None,
        }))
    }

    /// Compares a segment of a mapped file with its checksum, at its first use. The file must be as long as it was.
    fn check(&self, segment_idx: u32, sum: u32, found: &Sealed) -> Result<(), ReadError> {
        let Some(checked) = &self.checked else {
            return Ok(());
        };
        let start = found.offset() as u64;
        if !found.is_backed() {
            return Err(ReadError::Tier(TierError::ShortRead {
                path: found.path().to_owned(),
                offset: start,
                len_bytes: found.len() as u64,
                file_bytes: start,
            }));
        }
        let known = checked.get(segment_idx as usize);
        if !known.is_some_and(|known| known.load(Relaxed)) {
            verify(found.path(), start, "segment", found, sum)?;
            known
                .into_iter()
                .for_each(|known| known.store(true, Relaxed));
        }
        Ok(())
    }

    /// Asks the device for a segment of this checksum, if it is here. The bytes are those where it lies.
    pub fn ask(self: Arc<Self>, segment_idx: u32, sum: u32) -> Option<LyingSegment> {
        let (start, len) = self.place(segment_idx)?;
        let pending = self.device.as_ref().map(|(device, base)| {
            let whole = Batch {
                operation: Operation::Read,
                pattern: Pattern::Sequential,
                offset: base + start,
                len_bytes: len,
                count: 1,
            };
            device.tier.start(&whole, Reach::Near)
        });
        Some(Box::new(move || {
            if let (Some((device, _)), Some(pending)) = (&self.device, pending) {
                device.tier.finish(pending);
            }
            let found = self.memory.slice(start..start + len)?;
            self.check(segment_idx, sum, &found)?;
            Ok(Bytes::from_owner(found))
        }))
    }

    fn place(&self, segment_idx: u32) -> Option<Place> {
        *self.places.get(segment_idx as usize)?
    }

    /// What it takes.
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }
}

/// An emulated device that all copies on it share.
struct Device {
    tier: EmulatedTier,
    /// Where the next copy begins.
    next: AtomicU64,
}

/// Where the tables of a database are, and the copies of their files.
#[derive(Default)]
pub struct TableShelves {
    /// By the tables' folders; none for those whose files are read.
    placements: RwLock<BTreeMap<String, Arc<Placement>>>,
    devices: Mutex<BTreeMap<String, Arc<Device>>>,
    queue: Mutex<Queue>,
}

/// Files that wait to be copied.
#[derive(Default)]
struct Queue {
    files: VecDeque<(Arc<DataFile>, Arc<Placement>)>,
    is_running: bool,
}

/// Copies that were made before the table is placed.
pub struct MadeCopies(Vec<(Arc<DataFile>, Arc<FileCopy>)>);

impl MadeCopies {
    /// What they take.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, copy)| copy.bytes()).sum()
    }
}

impl std::fmt::Debug for TableShelves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(self.placements.read().iter())
            .finish()
    }
}

impl TableShelves {
    /// The folder where the data files of a table are, if they are on a shelf with a file system.
    pub fn folder(&self, root: &Root, table_folder: &str) -> Option<PathBuf> {
        let placement = self.placement(table_folder);
        Some(root.on_shelf(placement.shelf.folder()?)?.join(table_folder))
    }

    /// Where the table of a folder is.
    pub fn placement(&self, table_folder: &str) -> Arc<Placement> {
        let placed = self.placements.read().get(table_folder).cloned();
        placed.unwrap_or_default()
    }

    /// Says where the table of a folder is. Its files are copied when they are opened.
    pub fn put(&self, table_folder: &str, placement: Placement) {
        let mut placements = self.placements.write();
        match placement.is_file() {
            true => placements.remove(table_folder),
            false => placements.insert(table_folder.to_owned(), Arc::new(placement)),
        };
    }

    /// Copies files for a placement that is not in force yet. Takes as long as reading them.
    ///
    /// # Errors
    /// A file cannot be read, or the shelf has no room for it.
    pub async fn make(
        &self,
        files: Vec<Arc<DataFile>>,
        placement: &Placement,
    ) -> Result<MadeCopies> {
        let mut made = Vec::new();
        for file in files {
            if let Some(copy) = self.copy_of(&file, placement).await? {
                made.push((file, Arc::new(copy)));
            }
        }
        Ok(MadeCopies(made))
    }

    /// Puts a placement in force, with the copies that were made for it.
    pub fn put_made(&self, table_folder: &str, placement: Placement, made: MadeCopies) {
        self.put(table_folder, placement);
        for (file, copy) in made.0 {
            file.known.put_copy(Some(copy));
        }
    }

    /// Begins to bring a file that was just opened to where its table is, if it is not. Until then it is read where it
    /// is.
    pub fn note_opened(self: &Arc<Self>, file: &Arc<DataFile>) {
        let paths = &file.paths;
        if !file.known.begin_copy() {
            return;
        }
        let placement = self.placement(paths.table_folder());
        let is_copied = !matches!(placement.shelf, Shelf::File | Shelf::Folder(_));
        if !is_copied && paths.shelved() == self.folder(paths.root(), paths.table_folder()) {
            return;
        }
        let mut queue = self.queue.lock();
        queue.files.push_back((file.clone(), placement));
        if std::mem::replace(&mut queue.is_running, true) {
            return;
        }
        let shelves = self.clone();
        let thread = std::thread::Builder::new().name("hotshelf-shelf".into());
        if let Err(error) = thread.spawn(move || shelves.run()) {
            queue.is_running = false;
            tracing::warn!(%error, "no thread to put tables on shelves; their files are read");
        }
    }

    /// Copies what waits, file by file.
    fn run(&self) {
        loop {
            let mut queue = self.queue.lock();
            let Some((file, placement)) = queue.files.pop_front() else {
                queue.is_running = false;
                return;
            };
            drop(queue);
            if !self.is_current(&file, &placement) {
                continue;
            }
            match futures::executor::block_on(self.copy_of(&file, &placement)) {
                Ok(copy) => self.install(&file, &placement, copy.map(Arc::new)),
                Err(error) => {
                    let (shelf, path) = (&placement.shelf, file.paths.data());
                    let what = "a file cannot be put on its table's shelf; it is read";
                    tracing::warn!(%error, %shelf, file = %path.display(), "{what}");
                }
            }
        }
    }

    /// Whether the table of a file is still to be there.
    fn is_current(&self, file: &DataFile, placement: &Placement) -> bool {
        *self.placement(file.paths.table_folder()) == *placement
    }

    /// Takes a copy into use, unless its table is elsewhere by now.
    fn install(&self, file: &DataFile, placement: &Placement, copy: Option<Arc<FileCopy>>) {
        let placements = self.placements.read();
        let current = placements.get(file.paths.table_folder());
        if current.is_some_and(|current| **current == *placement) {
            file.known.put_copy(copy);
        }
    }

    /// The copy of a file; `None` if nothing of it is to be on the shelf.
    async fn copy_of(&self, file: &DataFile, placement: &Placement) -> Result<Option<FileCopy>> {
        let root = file.paths.root();
        let folder = placement.shelf.folder().map(|shelf| root.on_shelf(shelf));
        let folder = folder
            .flatten()
            .map(|own| own.join(file.paths.table_folder()));
        if folder.is_some() || file.paths.shelved().is_some() {
            file.paths.move_to(folder.as_deref())?;
        }
        if let Shelf::Dax(_) = placement.shelf {
            let target = file.paths.away();
            let specs = file.map.specs.iter();
            let place = |spec: &SegmentSpec| Some((spec.offset as usize, spec.length as usize));
            let places = specs.map(place).collect();
            return target.map_or(Ok(None), |target| {
                FileCopy::mapped(&target, places, SyncMapping::Require)
            });
        }
        let (places, len) = self.layout(file, placement);
        if len == 0 {
            return Ok(None);
        }
        let reserved = reserve(file.cache(), &placement.shelf, len)?;
        let options = AnonymousOptions {
            node: placement.shelf.node(),
            ..AnonymousOptions::default()
        };
        let mut region = Region::anonymous(len, &options)?;
        let device = match &placement.shelf {
            Shelf::File | Shelf::Folder(_) | Shelf::Dax(_) => return Ok(None),
            Shelf::Dram | Shelf::Node(_) => None,
            Shelf::Emulated(name) => {
                let device = self.device(name)?;
                let base = device.next.fetch_add(len as u64, Relaxed) as usize;
                Some((device, base))
            }
        };
        let write = |place: Place, bytes: &[u8]| {
            let (start, len) = place;
            if let Some((device, base)) = &device {
                device.tier.charge(Operation::Write, base + start, len);
            }
            let target = region.volatile_bytes_mut().unwrap_or_default();
            if let Some(target) = target.get_mut(start..start + len) {
                target.copy_from_slice(bytes);
            }
        };
        file.read_segments(&places, write).await?;
        Ok(Some(FileCopy {
            memory: region.seal(),
            places,
            device,
            checked: None,
            _reserved: reserved,
        }))
    }

    /// Where the segments of a file are in its copy, and how long that is.
    fn layout(&self, file: &DataFile, placement: &Placement) -> (Places, usize) {
        let columns = placement.column_idxs(&file.schema);
        let is_wanted = |column: Option<usize>| match (&columns, column) {
            (None, _) => true,
            (Some(columns), Some(column)) => columns.contains(&column),
            (Some(_), None) => false,
        };
        let mut end = 0usize;
        let segments = file.map.places.iter().zip(&file.map.specs);
        let places = segments.map(|(place, spec)| {
            let len = spec.length as usize;
            is_wanted(place.column_idx).then(|| {
                let start = end.next_multiple_of(ALIGN);
                end = start + len;
                (start, len)
            })
        });
        (places.collect(), end)
    }

    fn device(&self, name: &str) -> Result<Arc<Device>> {
        let mut devices = self.devices.lock();
        if let Some(device) = devices.get(name) {
            return Ok(device.clone());
        }
        let device = Arc::new(Device {
            tier: EmulatedTier::new(DeviceModel::named(name)?, DEVICE_BYTES)?,
            next: AtomicU64::new(0),
        });
        devices.insert(name.to_owned(), device.clone());
        Ok(device)
    }
}

/// What a copy takes of the budget: that of the machine's own memory is on it, that of another node or a device is not.
fn reserve(cache: &Arc<CacheManager>, shelf: &Shelf, len: usize) -> Result<Option<Reservation>> {
    if *shelf != Shelf::Dram {
        return Ok(None);
    }
    let available = cache.budget().limit_bytes() / 2;
    let held = cache.budget().snapshot().operator_bytes;
    let reserved = match held + len as u64 <= available {
        true => Reservation::try_reserve(cache, len as u64),
        false => None,
    };
    let refused = || StoreError::ShelfFull {
        shelf: shelf.to_string(),
        requested: len as u64,
        available: available.saturating_sub(held),
    };
    reserved.map(Some).ok_or_else(refused)
}

/// A segment that is being read from its file.
struct SegmentRead {
    file: Arc<IoFile>,
    offset: u64,
    sum: u32,
    place: Place,
    bytes: ReadFuture,
}

impl SegmentRead {
    async fn finish(self, write: &mut impl FnMut(Place, &[u8])) -> Result<()> {
        let bytes = self.bytes.await?;
        verify(self.file.path(), self.offset, "segment", &bytes, self.sum)
            .map_err(TierError::from)?;
        write(self.place, &bytes);
        Ok(())
    }
}

impl DataFile {
    /// Reads the segments that have a place from the file, whatever is in memory, and gives them to `write`.
    async fn read_segments(
        &self,
        places: &[Option<Place>],
        mut write: impl FnMut(Place, &[u8]),
    ) -> Result<()> {
        let io = self.known.handle.open()?;
        let mut under_way: VecDeque<SegmentRead> = VecDeque::new();
        for (segment_idx, place) in (0..).zip(places) {
            let (Some(place), Some(known)) = (place, self.known.segment(segment_idx)) else {
                continue;
            };
            if under_way.len() == READS
                && let Some(read) = under_way.pop_front()
            {
                read.finish(&mut write).await?;
            }
            let ((offset, length), sum) = known;
            let bytes = self
                .known
                .handle
                .engine()
                .read(&io, offset, length as usize);
            under_way.push_back(SegmentRead {
                file: io.clone(),
                offset,
                sum,
                place: *place,
                bytes,
            });
        }
        for read in under_way {
            read.finish(&mut write).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_segments_lie_in_the_file_and_are_compared_at_their_first_use() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..30_000u32).map(|at| (at * 7 % 251) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let places: Places = [Some((0, 100)), None, Some((9_000, 21_000))].into();
        let mapped = || {
            let places = places.clone();
            let copy = FileCopy::mapped(file.path(), places, SyncMapping::Prefer);
            Arc::new(copy.unwrap().unwrap())
        };
        let copy = mapped();
        let ask = |copy: &Arc<FileCopy>, segment_idx, range: std::ops::Range<usize>| {
            let sum = crc32fast::hash(&bytes[range]);
            copy.clone().ask(segment_idx, sum).map(|take| take())
        };
        for (segment_idx, range) in [(0, 0..100), (2, 9_000..30_000)] {
            for _ in 0..2 {
                let found = ask(&copy, segment_idx, range.clone()).unwrap().unwrap();
                assert_eq!(found, bytes[range.clone()]);
            }
        }
        assert!(ask(&copy, 1, 0..1).is_none() && ask(&copy, 3, 0..1).is_none());
        let wrong = ask(&mapped(), 0, 1..101).unwrap().unwrap_err();
        assert!(matches!(wrong, ReadError::Tier(TierError::Corruption(_))));
        // Cut short, it is an error before anything is looked at.
        let cut = std::fs::File::options().write(true).open(file.path());
        cut.unwrap().set_len(5_000).unwrap();
        let cut = ask(&copy, 2, 9_000..30_000).unwrap().unwrap_err();
        assert!(matches!(cut, ReadError::Tier(TierError::ShortRead { .. })));
    }

    #[test]
    fn what_is_no_persistent_memory_is_not_mapped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 100]).unwrap();
        let mapped = FileCopy::mapped(file.path(), [Some((0, 100))].into(), SyncMapping::Require);
        assert!(mapped.unwrap().is_none());
    }
}
