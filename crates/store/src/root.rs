//! The folder of a database: opened once, locked, and everything in it found from its descriptor.
//!
//! Files are named by the path that the user gave for the folder; that path is what errors show. What is opened is the
//! same place seen from the folder's descriptor, so that a folder that is moved takes its database along.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Result, StoreError};
use crate::links::{missing, remove_away, shelf_name};

/// Version of the folder's format; a program reads this version and older ones.
pub const FORMAT_VERSION: i64 = 2;

/// The catalog's file.
pub const CATALOG: &str = "catalog.sqlite";
/// The folder of the tables.
pub const DATA: &str = "data";
/// Space kept for changes that free space.
pub(crate) const RESERVE: &str = "catalog.reserve";
/// Where unknown files are moved.
pub const LOST: &str = "lost+found";
/// How long a lock is waited for.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);
/// Holds the process id of who has the database open.
const LOCK: &str = "LOCK";

/// The folder of a database.
#[derive(Debug, Clone)]
pub struct Root(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    handle: File,
    /// As the user named it.
    shown: PathBuf,
    /// The same folder, wherever it has been moved to.
    real: PathBuf,
    /// Whether something could not be written or removed.
    failed: AtomicBool,
    lifetime: Lifetime,
    /// What the database's folder on a shelf is called, once its number is known.
    on_shelves: OnceLock<String>,
}

/// How long a database is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Whatever was acknowledged is there after a crash.
    Lasting,
    /// No longer than the process: nothing waits for the disk.
    Process,
}

/// A lock on a database's folder, until it is dropped.
#[derive(Debug)]
pub struct RootLock {
    _folder: File,
    /// Programs that know no lock on the folder look at this file.
    file: Option<File>,
}

impl Root {
    /// Opens the folder of a lasting database.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_for(folder, Lifetime::Lasting)
    }

    /// Opens a folder.
    pub(crate) fn open_for(folder: &Path, lifetime: Lifetime) -> Result<Self> {
        let handle = File::open(folder).map_err(StoreError::io("open", folder))?;
        let through = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        let real = match is_same(&handle, &through) {
            true => through,
            false => folder.to_owned(),
        };
        Ok(Self(Arc::new(Opened {
            handle,
            shown: folder.to_owned(),
            real,
            failed: AtomicBool::new(false),
            lifetime,
            on_shelves: OnceLock::new(),
        })))
    }

    /// Says which database this is: that names its folder on shelves.
    pub(crate) fn set_database(&self, database: u64) {
        if let Ok(found) = self.0.handle.metadata() {
            let name = shelf_name(database, found.dev(), found.ino());
            self.0.on_shelves.get_or_init(|| name);
        }
    }

    /// The folder of the database on a shelf; none if it is not known which database this is. A copy of the database
    /// has another.
    pub fn on_shelf(&self, shelf: &Path) -> Option<PathBuf> {
        Some(shelf.join(self.0.on_shelves.get()?))
    }

    /// Whether the database ends with the process.
    pub(crate) fn is_temporary(&self) -> bool {
        self.0.lifetime == Lifetime::Process
    }

    /// Waits until a file's bytes are durable, if they have to be.
    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        match self.0.lifetime {
            Lifetime::Lasting => file.sync_all(),
            Lifetime::Process => Ok(()),
        }
    }

    /// Whether something could not be written or removed since the folder was opened: files may remain.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.failed.load(Ordering::Relaxed)
    }

    /// Says that files may remain.
    pub(crate) fn note_failure(&self) {
        self.0.failed.store(true, Ordering::Relaxed);
    }

    /// [`StoreError::io`] for what may leave a file behind.
    fn failure(
        &self,
        operation: &'static str,
        path: &Path,
    ) -> impl FnOnce(io::Error) -> StoreError {
        move |error| {
            self.note_failure();
            StoreError::io(operation, path)(error)
        }
    }

    /// The folder as the user named it.
    pub fn path(&self) -> &Path {
        &self.0.shown
    }

    /// The path of something in the folder, for [`Self::real`] and for errors.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.shown.join(name)
    }

    /// The folder of the tables.
    pub fn data(&self) -> PathBuf {
        self.join(DATA)
    }

    /// The folder of a table.
    pub fn table(&self, folder: &str) -> PathBuf {
        self.data().join(folder)
    }

    /// Where a path below [`Self::path`] is, even if the folder was renamed.
    pub fn real(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.0.shown) {
            Ok(rest) => self.0.real.join(rest),
            Err(_) => path.to_owned(),
        }
    }

    /// Whether nothing can be written there: a read-only file system, or another user's folder.
    pub fn is_read_only(&self) -> bool {
        use rustix::fs::{Access, access};
        access(&self.0.real, Access::WRITE_OK).is_err()
    }

    /// Whether the folder is still where the user named it.
    pub fn is_in_place(&self) -> bool {
        is_same(&self.0.handle, &self.0.shown)
    }

    /// Locks the folder itself: a lock that goes neither with a file nor with a name.
    pub fn lock(&self) -> Result<RootLock> {
        let folder =
            File::open(self.0.real.join(".")).map_err(StoreError::io("open", self.path()))?;
        // A file system that locks no folders leaves it to the lock file.
        let locked = lock_patiently(&folder);
        if locked == Err(rustix::io::Errno::WOULDBLOCK) {
            return Err(self.locked());
        }
        let file = self.lock_file(false)?;
        Ok(RootLock {
            _folder: folder,
            file,
        })
    }

    /// The lock file, locked; nothing where there is none or can be none.
    fn lock_file(&self, create: bool) -> Result<Option<File>> {
        let mut options = File::options();
        let options = options
            .read(true)
            .write(true)
            .create(create)
            .truncate(false);
        let Ok(file) = options.open(self.real(&self.join(LOCK))) else {
            return Ok(None);
        };
        match lock_patiently(&file) {
            Err(_) => Err(self.locked()),
            Ok(()) => Ok(Some(file)),
        }
    }

    fn locked(&self) -> StoreError {
        let mut text = String::new();
        let file = File::open(self.real(&self.join(LOCK)));
        file.and_then(|mut file| file.read_to_string(&mut text))
            .ok();
        StoreError::Locked {
            path: self.path().to_owned(),
            owner: text.trim().parse().ok(),
        }
    }

    /// Creates an empty file.
    pub fn create(&self, path: &Path) -> Result<File> {
        File::create(self.real(path)).map_err(self.failure("create", path))
    }

    /// Creates a file that is written and read again.
    pub fn create_readable(&self, path: &Path) -> Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let opened = options.open(self.real(path));
        opened.map_err(self.failure("create", path))
    }

    /// Creates a file with these bytes and syncs it.
    pub fn write_synced(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.create(path)?;
        file.write_all(bytes).map_err(self.failure("write", path))?;
        self.sync(&file).map_err(self.failure("sync", path))
    }

    /// Opens a file for reading.
    pub(crate) fn open_file(&self, path: &Path) -> Result<File> {
        let real = self.real(path);
        let opened = File::open(&real).map_err(|error| missing(&real, error));
        opened.map_err(StoreError::io("open", path))
    }

    /// Reads a whole file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        std::fs::read(self.real(path)).map_err(StoreError::io("read", path))
    }

    /// Renames a file or folder.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(self.real(from), self.real(to)).map_err(self.failure("rename", from))
    }

    /// A name in `folder` that nothing has: `name`, or with a number behind it.
    pub(crate) fn free_name(&self, folder: &Path, name: &str) -> PathBuf {
        let mut path = folder.join(name);
        let mut copy = 0;
        while self.exists(&path) {
            copy += 1;
            path = folder.join(format!("{name}.{copy}"));
        }
        path
    }

    /// Whether there is such a file or folder.
    pub fn exists(&self, path: &Path) -> bool {
        self.real(path).symlink_metadata().is_ok()
    }

    /// Creates a folder and those above it.
    pub fn create_folder(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(self.real(path)).map_err(self.failure("create", path))
    }

    /// What a folder holds; nothing if it does not exist.
    pub fn list(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let failed = |error| StoreError::io("list", folder)(error);
        let entries = match std::fs::read_dir(self.real(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        entries
            .map(|entry| Ok(folder.join(entry.map_err(failed)?.file_name())))
            .collect()
    }

    /// Makes the names in a folder durable.
    pub fn sync_folder(&self, folder: &Path) -> Result<()> {
        let opened = File::open(self.real(folder));
        opened
            .and_then(|file| self.sync(&file))
            .map_err(self.failure("sync", folder))
    }

    /// Removes a file or a folder with what it holds, data files on shelves included; whether it is gone.
    pub fn remove(&self, path: &Path) -> bool {
        let real = self.real(path);
        let links = match real.is_dir() {
            true => self.list(path).unwrap_or_default(),
            false => vec![path.to_owned()],
        };
        if !links.iter().all(|path| remove_away(self, path)) {
            return false;
        }
        let removed = match real.symlink_metadata() {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&real),
            Ok(_) => std::fs::remove_file(&real),
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => {
                self.note_failure();
                tracing::warn!(path = %path.display(), %error, "cannot remove unneeded files; the next opening tries again");
                false
            }
        }
    }

    /// Writes the process id where others look for it. Nothing depends on it.
    pub fn sign(&self, lock: &mut RootLock) -> Result<()> {
        if lock.file.is_none() {
            lock.file = self.lock_file(true)?;
        }
        if let Some(file) = &mut lock.file {
            let written = file.set_len(0);
            written
                .and_then(|()| write!(file, "{}", std::process::id()))
                .ok();
        }
        Ok(())
    }
}

/// Locks a file, trying again for a moment: a process that this one is just starting has copies of its descriptors, and
/// with them a lock that was given up, until it runs its own program.
fn lock_patiently(file: &File) -> rustix::io::Result<()> {
    let started = Instant::now();
    loop {
        let locked = flock(file, FlockOperation::NonBlockingLockExclusive);
        if locked != Err(rustix::io::Errno::WOULDBLOCK) || started.elapsed() >= LOCK_PATIENCE {
            return locked;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a path leads to an open folder.
fn is_same(handle: &File, path: &Path) -> bool {
    match (handle.metadata(), path.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}
