//! Where the tables of a database are, and the copies of their files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use futures::executor::block_on;
use hotshelf_cache::CacheManager;
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{DeviceModel, EmulatedTier};
use hotshelf_tier::probe::Operation;
use hotshelf_tier::region::{
    AnonymousOptions, FileOptions, Lease, LentRegion, Region, SyncMapping,
};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{Advice, fadvise};

use super::copies::{CopyBytes, Device, FileCopy, unchecked};
use super::filling::{Give, Piece, Target, fill};
use super::nameless::nameless;
use super::open::DataFile;
use super::places::{layout, own_places};
use crate::descriptors::limit_of_process;
use crate::error::{Result, StoreError};
use crate::placement::Placement;
use crate::reservation::Reservation;
use crate::root::Root;
use crate::shelf::Shelf;
use crate::shelf_use::ShelfUse;

/// An emulated device has no bytes of its own: those of the copies are elsewhere.
const DEVICE_BYTES: usize = 2 << 20;
/// Copies that are files take two descriptors each: one for each four that the database's files may have.
const FILE_COPY_PARTS: usize = 4;

/// Where the tables of a database are, and the copies of their files.
#[derive(Default)]
pub struct TableShelves {
    /// By the tables' folders; none for those whose files are read.
    placements: RwLock<BTreeMap<String, Arc<Placement>>>,
    devices: Mutex<BTreeMap<String, Arc<Device>>>,
    /// Persistent memory without a file system; its parts are lent.
    devdax: Mutex<BTreeMap<PathBuf, Weak<LentRegion>>>,
    /// How shelves want to be used, by their names.
    uses: RwLock<BTreeMap<String, ShelfUse>>,
    queue: Mutex<Queue>,
    /// Copies that are files have it, too.
    file_copies: Arc<()>,
    /// The folders of tables that are being placed: their files go nowhere by themselves.
    being_placed: Mutex<BTreeSet<String>>,
    /// Held while a file is brought to its shelf by itself.
    turn: Mutex<()>,
}

/// Files that wait to be copied.
#[derive(Default)]
struct Queue {
    files: VecDeque<(Arc<DataFile>, Arc<Placement>)>,
    is_running: bool,
}

/// A table is being placed, until this is dropped.
pub struct BeingPlaced {
    shelves: Arc<TableShelves>,
    table_folder: String,
}

impl Drop for BeingPlaced {
    fn drop(&mut self) {
        self.shelves.being_placed.lock().remove(&self.table_folder);
    }
}

/// Copies that were made before the table is placed.
pub struct MadeCopies(Vec<(Arc<DataFile>, Arc<FileCopy>)>);

impl MadeCopies {
    /// What they take.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, copy)| copy.len_bytes()).sum()
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
        self.placement(table_folder).files_in(root, table_folder)
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

    /// From here on no file of a table goes anywhere by itself; returns when none is on its way.
    pub fn begin_placing(self: &Arc<Self>, table_folder: &str) -> BeingPlaced {
        self.being_placed.lock().insert(table_folder.to_owned());
        drop(self.turn.lock());
        BeingPlaced {
            shelves: self.clone(),
            table_folder: table_folder.to_owned(),
        }
    }

    /// Copies files for a placement that is not in force yet. Takes as long as reading them.
    ///
    /// # Errors
    /// A file cannot be read, or the shelf has no room for it.
    pub fn make(&self, files: Vec<Arc<DataFile>>, placement: &Placement) -> Result<MadeCopies> {
        let mut made = Vec::new();
        for file in files {
            if let Some(copy) = self.copy_of(&file, placement)? {
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
        let is_being_placed = self.being_placed.lock().contains(paths.table_folder());
        if is_being_placed || !file.known.begin_copy() {
            return;
        }
        let placement = self.placement(paths.table_folder());
        // One on persistent memory is still to be mapped.
        let is_mapped = matches!(placement.shelf, Shelf::Dax(_));
        if !placement.is_copied() && !is_mapped && paths.is_on(placement.folder()) {
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
            let _turn = self.turn.lock();
            if !self.is_current(&file, &placement) {
                continue;
            }
            match self.copy_of(&file, &placement) {
                Ok(copy) => self.install(&file, &placement, copy.map(Arc::new)),
                Err(error) => {
                    let (shelf, path) = (&placement.shelf, file.paths.data());
                    let what = "a file cannot be put on its table's shelf; it is read";
                    tracing::warn!(%error, %shelf, file = %path.display(), "{what}");
                }
            }
        }
    }

    /// Whether the table of a file is still to be there, and is not being placed.
    fn is_current(&self, file: &DataFile, placement: &Placement) -> bool {
        let folder = file.paths.table_folder();
        !self.being_placed.lock().contains(folder) && *self.placement(folder) == *placement
    }

    /// Takes a copy into use, unless its table is elsewhere by now.
    fn install(&self, file: &DataFile, placement: &Placement, copy: Option<Arc<FileCopy>>) {
        let placements = self.placements.read();
        let current = placements.get(file.paths.table_folder());
        if current.is_some_and(|current| **current == *placement) {
            file.known.put_copy(copy);
        }
    }

    /// Says how shelves want to be used, by the names of the tiers that were measured.
    pub fn set_uses(&self, uses: BTreeMap<String, ShelfUse>) {
        *self.uses.write() = uses;
    }

    /// How a shelf wants to be used. What was measured in a folder counts for all of its device.
    pub fn use_of(&self, shelf: &Shelf) -> ShelfUse {
        let uses = self.uses.read();
        if uses.is_empty() {
            return ShelfUse::default();
        }
        let named = uses.get(&shelf.to_string());
        let named = named.or_else(|| {
            let wanted = device_of(shelf.folder()?)?;
            let same = |(name, _): &(&String, &ShelfUse)| match name.parse().as_ref() {
                Ok(Shelf::Folder(folder) | Shelf::Dax(folder)) => device_of(folder) == Some(wanted),
                _ => false,
            };
            uses.iter().find(same).map(|(_, how)| how)
        });
        named.cloned().unwrap_or_default()
    }

    /// How many workers may read the table of a folder together; none: any number.
    pub fn readers_of(&self, table_folder: &str) -> Option<usize> {
        self.use_for(table_folder)?.readers
    }

    /// The processors near the node that has the table of a folder; none: it is read from anywhere.
    pub fn near_cpus_of(&self, table_folder: &str) -> Option<Vec<u32>> {
        self.use_for(table_folder)?.near_cpus().map(<[u32]>::to_vec)
    }

    /// How the shelf of a table wants to be used.
    fn use_for(&self, table_folder: &str) -> Option<ShelfUse> {
        let placement = self.placements.read().get(table_folder).cloned()?;
        Some(self.use_of(&placement.shelf))
    }

    /// The copy of a file; `None` if nothing of it is to be on the shelf, or it was moved there.
    fn copy_of(&self, file: &DataFile, placement: &Placement) -> Result<Option<FileCopy>> {
        let (root, shelf) = (file.paths.root(), &placement.shelf);
        let folder = placement.files_in(root, file.paths.table_folder());
        if folder.is_some() || file.paths.shelved().is_some() {
            file.paths.move_to(folder.as_deref(), &self.use_of(shelf))?;
        }
        if placement.is_copied() {
            return self.filled(file, placement);
        }
        match (shelf, file.paths.away()) {
            (Shelf::Dax(_), Some(target)) => {
                FileCopy::mapped(&target, own_places(&file.map), SyncMapping::Require)
            }
            _ => Ok(None),
        }
    }

    /// A copy of the segments that are to be on the shelf.
    fn filled(&self, file: &DataFile, placement: &Placement) -> Result<Option<FileCopy>> {
        let shelf = &placement.shelf;
        let (places, len) = layout(&file.map, &file.schema, placement);
        if len == 0 {
            return Ok(None);
        }
        let reserved = reserve(file.cache(), shelf, len)?;
        let device = match shelf {
            Shelf::Emulated(name) => {
                let device = self.device(name)?;
                let base = device.next.fetch_add(len as u64, Relaxed) as usize;
                Some((device, base))
            }
            _ => None,
        };
        let (mut bytes, written) = self.room(file, shelf, len)?;
        let target = match &mut bytes {
            CopyBytes::Lie(lease) => Target::Memory {
                base: 0,
                bytes: lease.bytes_mut().unwrap_or_default(),
            },
            CopyBytes::File { .. } => match &written {
                Some(written) => Target::File(written),
                None => return Ok(None),
            },
        };
        let before = |piece: Piece<'_>| {
            if let Some((device, base)) = &device {
                let offset = base + piece.offset;
                device
                    .tier
                    .charge(Operation::Write, offset, piece.len_bytes);
            }
        };
        let read = |share, give: Give<'_>| block_on(file.read_segments(share, &places, give));
        let data = file.paths.data();
        fill(
            &places,
            &self.use_of(shelf),
            (target, &data),
            &read,
            &before,
        )?;
        if let Some(written) = &written {
            leave_page_cache(written)
                .map_err(StoreError::io("write a copy of", &file.paths.data()))?;
        }
        Ok(Some(FileCopy {
            bytes,
            is_file: false,
            checked: matches!(shelf, Shelf::Dax(_)).then(|| unchecked(&places)),
            places,
            device,
            _reserved: reserved,
        }))
    }

    /// Room for a copy, and what writes it if that is a file.
    fn room(
        &self,
        file: &DataFile,
        shelf: &Shelf,
        len: usize,
    ) -> Result<(CopyBytes, Option<File>)> {
        let no_sync = |error: &TierError| matches!(error, TierError::NoSyncMapping { .. });
        match shelf {
            Shelf::Dax(device) if shelf.folder().is_none() => {
                let region = self.devdax(device)?;
                let full = || StoreError::ShelfFull {
                    shelf: shelf.to_string(),
                    requested: len as u64,
                    available: region.free_bytes() as u64,
                };
                let lease = region.lend(len).ok_or_else(full)?;
                Ok((CopyBytes::Lie(lease), None))
            }
            Shelf::Folder(folder) | Shelf::Dax(folder) => {
                let counted = self.file_copies.clone();
                if Arc::strong_count(&counted) > limit_of_process() / FILE_COPY_PARTS {
                    let too_many = rustix::io::Errno::MFILE.into();
                    return Err(StoreError::io("keep a copy open in", folder)(too_many));
                }
                let made = nameless(folder, len as u64)?;
                if let Shelf::Dax(_) = shelf {
                    let options = FileOptions {
                        sync: SyncMapping::Require,
                        ..FileOptions::default()
                    };
                    match Region::open_file(&made.path, &options) {
                        Err(error) if no_sync(&error) => {}
                        region => return Ok((CopyBytes::Lie(Lease::whole(region?)), None)),
                    }
                }
                let shown = folder.join(file.paths.data().file_name().unwrap_or_default());
                let read = file.known.handle.engine().open_as(&made.path, &shown)?;
                let bytes = CopyBytes::File {
                    file: read,
                    _counted: counted,
                };
                Ok((bytes, Some(made.file)))
            }
            _ => {
                let options = AnonymousOptions {
                    node: shelf.node(),
                    ..AnonymousOptions::default()
                };
                let lease = Lease::whole(Region::anonymous(len, &options)?);
                Ok((CopyBytes::Lie(lease), None))
            }
        }
    }

    /// A devdax device, mapped as long as something is on it.
    fn devdax(&self, path: &Path) -> Result<Arc<LentRegion>> {
        let mut known = self.devdax.lock();
        if let Some(region) = known.get(path).and_then(Weak::upgrade) {
            return Ok(region);
        }
        let region = LentRegion::of(Region::open_devdax(path, 1)?);
        known.insert(path.to_owned(), Arc::downgrade(&region));
        Ok(region)
    }

    /// An emulated device, the same for all that is on it.
    ///
    /// # Errors
    /// There is none of this name, or no memory for it.
    pub fn emulated(&self, name: &str) -> Result<Arc<EmulatedTier>> {
        Ok(self.device(name)?.tier.clone())
    }

    fn device(&self, name: &str) -> Result<Arc<Device>> {
        let mut devices = self.devices.lock();
        if let Some(device) = devices.get(name) {
            return Ok(device.clone());
        }
        let device = Arc::new(Device {
            tier: Arc::new(EmulatedTier::new(DeviceModel::named(name)?, DEVICE_BYTES)?),
            next: AtomicU64::new(0),
        });
        devices.insert(name.to_owned(), device.clone());
        Ok(device)
    }
}

/// What was written is on the device, and no longer in memory that is not on the budget.
fn leave_page_cache(written: &File) -> std::io::Result<()> {
    written.sync_data()?;
    Ok(fadvise(written, 0, None, Advice::DontNeed)?)
}

/// The device that a folder is on.
fn device_of(folder: &Path) -> Option<u64> {
    std::fs::metadata(folder).map(|found| found.dev()).ok()
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
