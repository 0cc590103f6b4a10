//! Memory regions: anonymous memory, a NUMA node's memory, files, persistent memory, all behind one type.
//!
//! How durable a region is, is a visible property and never silently less than asked: mapping a file that cannot do
//! MAP_SYNC either fails ([`SyncMapping::Require`]) or says so ([`Region::downgrade`]). A region is owned by one;
//! it becomes a [`Writer`](crate::persist::Writer) or is sealed for reading. While a file is mapped it carries an
//! advisory lock; a program that ignores the lock and cuts the file short causes a bus error, as with any mapping:
//! [`Sealed::is_backed`] tells before an access whether that has happened.

mod dax;
mod huge;
mod lease;
mod mapping;
mod numa;
mod numbers;
mod prefault;
mod shared;
mod words;

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags};

use crate::error::TierError;
use crate::topology::PersistenceDomain;
use dax::SyncAnswer;
pub use huge::{HugeWords, prefer_huge_pages};
pub use lease::{Lease, LentRegion};
pub use mapping::Sealed;
pub(crate) use mapping::{Mapping, Window, page_round_up};
pub use numa::move_to_node;
pub use numbers::{Number, numbers, numbers_mut};
pub use prefault::Prefault;
pub use shared::shared_words;
pub use words::Words;

/// Anonymous memory starts at a multiple of this, so that the kernel can use huge pages for all of it.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What a store needs to survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Flushing its cache line and a fence; with [`PersistenceDomain::CpuCache`] the fence alone.
    FlushDomain(PersistenceDomain),
    /// A call of msync on its page.
    Msync,
    /// Nothing helps: the content is gone without power.
    Volatile,
}

/// What kind of memory a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// Anonymous memory wherever the kernel puts it.
    Dram,
    /// Anonymous memory of one NUMA node.
    Node(u32),
    /// A file seen through the page cache.
    PageCache,
    /// A file on a DAX file system, mapped directly.
    FsDax,
    /// A devdax character device.
    DevDax,
}

/// Why a region is less durable than was hoped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Downgrade {
    /// The file's file system cannot map it directly, so stores go through the page cache and need msync.
    #[error("the file cannot be mapped with MAP_SYNC, so stores are durable only after msync")]
    NoSyncMapping,
}

/// Whether a file must be mapped with MAP_SYNC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncMapping {
    /// Fail otherwise.
    Require,
    /// Try, and fall back to msync visibly.
    #[default]
    Prefer,
    /// Do not try: always the page cache.
    Never,
}

/// How to map anonymous memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnonymousOptions {
    /// Leave the kernel's ordinary page size instead of asking for huge pages.
    pub small_pages: bool,
    /// The node whose memory to use.
    pub node: Option<u32>,
}

/// How to map a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Make the file at least this long, creating it if need be; `None` maps an existing file as it is.
    pub len_bytes: Option<u64>,
    /// Map it for reading only.
    pub read_only: bool,
    /// What to do about MAP_SYNC.
    pub sync: SyncMapping,
}

/// A mapped range of memory with one owner.
#[derive(Debug)]
pub struct Region {
    window: Window,
    media: Media,
    durability: Durability,
    downgrade: Option<Downgrade>,
}

impl Region {
    /// Maps zeroed anonymous memory, in huge pages if the kernel has them.
    ///
    /// # Errors
    /// [`TierError::OutOfMemory`], [`TierError::NoSuchNode`], [`TierError::NodeBinding`] without permission.
    pub fn anonymous(len_bytes: usize, options: &AnonymousOptions) -> Result<Self, TierError> {
        check_len(len_bytes as u64)?;
        let window = Window::whole(Mapping::anonymous(len_bytes, HUGE_PAGE_BYTES)?);
        if !options.small_pages {
            advise_huge_pages(&window);
        }
        if let Some(node) = options.node {
            numa::bind(&window, node)?;
        }
        Ok(Self {
            window,
            media: options.node.map_or(Media::Dram, Media::Node),
            durability: Durability::Volatile,
            downgrade: None,
        })
    }

    /// Maps a file, directly if its file system can (fsdax) and through the page cache otherwise.
    ///
    /// # Errors
    /// [`TierError::Io`] (missing, no permission, full file system), [`TierError::Locked`] if another process has it
    /// mapped, [`TierError::NoSyncMapping`] if MAP_SYNC was required, [`TierError::InvalidOption`] for an empty file.
    pub fn open_file(path: &Path, options: &FileOptions) -> Result<Self, TierError> {
        let existed = path.exists();
        let opened = Self::open_file_locked(path, options);
        if opened.is_err() && !existed && options.len_bytes.is_some() {
            // Nothing half-made remains; if it cannot be removed, the first error is still the one to report.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    fn open_file_locked(path: &Path, options: &FileOptions) -> Result<Self, TierError> {
        let file = open_locked(path, options)?;
        let metadata = file
            .metadata()
            .map_err(|e| TierError::io(path, "examine", e))?;
        if !metadata.is_file() {
            let kind = io::Error::new(io::ErrorKind::InvalidInput, "it is not an ordinary file");
            return Err(TierError::io(path, "map", kind));
        }
        let wanted_bytes = options.len_bytes.unwrap_or(0);
        if wanted_bytes > metadata.len() {
            reserve(&file, path, wanted_bytes)?;
        }
        let len_bytes = check_len(metadata.len().max(wanted_bytes))?;
        let writable = !options.read_only;
        let file = match options.sync {
            SyncMapping::Never => file,
            _ => match dax::map_sync(file, path, len_bytes, writable)? {
                SyncAnswer::Mapped(mapping) => {
                    let domain = dax::domain_of_block_device(metadata.dev());
                    return Ok(Self::of_file(mapping, Media::FsDax, domain));
                }
                SyncAnswer::Refused(file) => file,
            },
        };
        if options.sync == SyncMapping::Require {
            return Err(TierError::NoSyncMapping {
                path: path.to_path_buf(),
            });
        }
        let mapping = Mapping::file(file, path, len_bytes, writable, MapFlags::SHARED)
            .map_err(|(_, errno)| TierError::io(path, "map", errno.into()))?;
        let downgrade = (options.sync == SyncMapping::Prefer).then_some(Downgrade::NoSyncMapping);
        if let Some(downgrade) = downgrade {
            tracing::info!(path = %path.display(), %downgrade);
        }
        Ok(Self {
            window: Window::whole(mapping),
            media: Media::PageCache,
            durability: Durability::Msync,
            downgrade,
        })
    }

    /// Maps a whole devdax device, `/dev/daxN.M`.
    ///
    /// # Errors
    /// [`TierError::Io`] (missing, no permission), [`TierError::NotDevDax`], [`TierError::Locked`],
    /// [`TierError::DeviceTooSmall`] if it is smaller than `needed_bytes`.
    pub fn open_devdax(path: &Path, needed_bytes: u64) -> Result<Self, TierError> {
        let file = open_locked(path, &FileOptions::default())?;
        let metadata = file
            .metadata()
            .map_err(|e| TierError::io(path, "examine", e))?;
        let device = Some(&metadata)
            .filter(|found| found.file_type().is_char_device())
            .and_then(dax::dev_dax)
            .ok_or_else(|| TierError::NotDevDax {
                path: path.to_path_buf(),
            })?;
        let usable_bytes = device.size_bytes - device.size_bytes % device.align_bytes;
        if usable_bytes < needed_bytes {
            return Err(TierError::DeviceTooSmall {
                path: path.to_path_buf(),
                device_bytes: usable_bytes,
                needed_bytes,
            });
        }
        let len_bytes = check_len(usable_bytes)?;
        let mapping = match dax::map_sync(file, path, len_bytes, true)? {
            SyncAnswer::Mapped(mapping) => mapping,
            // A kernel without MAP_SYNC still maps devdax directly: there is no file system between.
            SyncAnswer::Refused(file) => {
                Mapping::file(file, path, len_bytes, true, MapFlags::SHARED)
                    .map_err(|(_, errno)| TierError::io(path, "map", errno.into()))?
            }
        };
        Ok(Self {
            window: Window::whole(mapping),
            media: Media::DevDax,
            durability: device.durability,
            downgrade: None,
        })
    }

    /// Whether a path is that of a devdax device, which need not be free.
    ///
    /// # Errors
    /// [`TierError::Io`] (missing, no permission).
    pub fn is_devdax(path: &Path) -> Result<bool, TierError> {
        let device = |source| TierError::io(path, "examine", source);
        let found = std::fs::metadata(path).map_err(device)?;
        Ok(found.file_type().is_char_device() && dax::dev_dax(&found).is_some())
    }

    fn of_file(mapping: Mapping, media: Media, domain: PersistenceDomain) -> Self {
        Self {
            window: Window::whole(mapping),
            media,
            durability: Durability::FlushDomain(domain),
            downgrade: None,
        }
    }

    /// Its size.
    pub fn len_bytes(&self) -> usize {
        self.window.mapping().len_bytes()
    }

    /// What kind of memory it is.
    pub fn media(&self) -> Media {
        self.media
    }

    /// What a store needs to survive a power cut.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Why it is less durable than was hoped for, if it is.
    pub fn downgrade(&self) -> Option<Downgrade> {
        self.downgrade
    }

    /// Whether it can be written.
    pub fn writable(&self) -> bool {
        self.window.writable()
    }

    /// The file or device it maps; empty for anonymous memory.
    pub fn path(&self) -> &Path {
        self.window.mapping().path()
    }

    /// What it holds now.
    pub fn bytes(&self) -> &[u8] {
        self.window.bytes()
    }

    /// Its bytes for ordinary writing. `None` unless it is volatile and writable: durable bytes are written through a
    /// [`Writer`](crate::persist::Writer) only.
    pub fn volatile_bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self.durability {
            Durability::Volatile => self.window.bytes_mut(),
            _ => None,
        }
    }

    /// Makes its pages present on a thread of its own.
    ///
    /// # Errors
    /// [`TierError::System`] if no thread can be started.
    pub fn prefault(&self) -> Result<Prefault, TierError> {
        Prefault::start(Arc::clone(self.window.mapping()), self.window.range())
    }

    /// The NUMA node that holds the page at `offset`, which is made present.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`], or [`TierError::System`] from a kernel without NUMA.
    pub fn node_of(&self, offset: usize) -> Result<u32, TierError> {
        if offset >= self.len_bytes() {
            return Err(TierError::OutsideRegion {
                offset: offset as u64,
                len_bytes: 1,
                region_bytes: self.len_bytes() as u64,
            });
        }
        numa::node_of(&self.window, offset)
    }

    /// Ends writing to it for good.
    pub fn seal(mut self) -> Sealed {
        self.window.seal_to(self.window.range().end)
    }

    pub(crate) fn into_window(self) -> Window {
        self.window
    }
}

fn check_len(len_bytes: u64) -> Result<usize, TierError> {
    let fits = usize::try_from(len_bytes).ok();
    fits.filter(|bytes| *bytes > 0 && *bytes <= isize::MAX as usize / 2)
        .ok_or_else(|| TierError::InvalidOption {
            option: "region length",
            value: len_bytes.to_string(),
            expected: "at least one byte and less than half the address space",
        })
}

fn open_locked(path: &Path, options: &FileOptions) -> Result<File, TierError> {
    let writable = !options.read_only;
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .create(writable && options.len_bytes.is_some())
        .truncate(false)
        .open(path)
        .map_err(|source| TierError::io(path, "open", source))?;
    let lock = match writable {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match rustix::fs::flock(&file, lock) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(TierError::Locked {
            path: path.to_path_buf(),
        }),
        Err(errno) => Err(TierError::io(path, "lock", errno.into())),
    }
}

/// Gives the file its blocks now: DAX needs them before it can map, and a full file system should fail here and not as
/// a bus error on some later store.
fn reserve(file: &File, path: &Path, len_bytes: u64) -> Result<(), TierError> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => file
            .set_len(len_bytes)
            .map_err(|source| TierError::io(path, "extend", source)),
        Err(errno) => Err(TierError::io(path, "reserve space in", errno.into())),
    }
}

/// Asks for huge pages; a kernel without them leaves the region as it is.
fn advise_huge_pages(window: &Window) {
    let range = window.range();
    let start = window.mapping().pointer(&range);
    // SAFETY: The range is mapped by us, and the advice changes page sizes only, not content.
    let advised = unsafe {
        rustix::mm::madvise(
            start.cast(),
            page_round_up(range.len()),
            Advice::LinuxHugepage,
        )
    };
    if let Err(errno) = advised {
        tracing::debug!(%errno, "no huge pages for this region");
    }
}
