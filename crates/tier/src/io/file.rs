//! An open file, read without the page cache where its file system allows it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};

use super::PAGE_BYTES;
use crate::TierError;

/// Gives every open file a number, to sort reads by.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A file opened by [`IoEngine::open`](super::IoEngine::open).
#[derive(Debug)]
pub struct IoFile {
    file: File,
    path: PathBuf,
    id: u64,
    len_bytes: AtomicU64,
    buffered_because: Option<String>,
}

impl IoFile {
    /// Opens a regular file or block device for reading.
    #[cfg(test)]
    pub(super) fn open(path: &Path, direct: bool) -> Result<Arc<Self>, TierError> {
        Self::open_as(path, path, direct)
    }

    /// Opens the file at `path`, which errors call `shown`.
    pub(super) fn open_as(path: &Path, shown: &Path, direct: bool) -> Result<Arc<Self>, TierError> {
        let failed = |source| TierError::io(shown, "open", source);
        let kind = path.metadata().map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
            return Err(failed(source));
        }
        let buffered = File::open(path).map_err(failed)?;
        let (file, buffered_because) = match direct.then(|| open_direct(path, &buffered)) {
            None => (buffered, Some("as asked".to_owned())),
            Some(Ok(file)) => (file, None),
            Some(Err(reason)) => (buffered, Some(reason)),
        };
        let len_bytes = length(&file).map_err(|source| TierError::io(shown, "measure", source))?;
        Ok(Arc::new(Self {
            file,
            path: shown.to_path_buf(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            len_bytes: AtomicU64::new(len_bytes),
            buffered_because,
        }))
    }

    /// The path that errors show.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length as last seen: when opened, or when a read went beyond it.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    /// Whether reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.buffered_because.is_none()
    }

    /// Why reads go through the page cache, when they do.
    pub fn buffered_because(&self) -> Option<&str> {
        self.buffered_because.as_deref()
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Refuses a range that goes beyond the end, after looking whether the file has grown.
    pub(super) fn check_range(&self, offset: u64, len: usize) -> Result<(), TierError> {
        let end = offset.checked_add(len as u64);
        let inside = |file_bytes| end.is_some_and(|end| end <= file_bytes);
        if inside(self.len_bytes()) {
            return Ok(());
        }
        let file_bytes = length(&self.file).map_err(|e| TierError::io(&self.path, "measure", e))?;
        self.len_bytes.store(file_bytes, Ordering::Relaxed);
        if inside(file_bytes) {
            return Ok(());
        }
        let path = self.path.clone();
        Err(TierError::ShortRead {
            path,
            offset,
            len_bytes: len as u64,
            file_bytes,
        })
    }
}

/// Opens without the page cache, or says why not.
fn open_direct(path: &Path, buffered: &File) -> Result<File, String> {
    let file_system = file_system(buffered);
    if matches!(file_system.as_str(), "tmpfs" | "ramfs") {
        return Err(format!("O_DIRECT refused by {file_system}"));
    }
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => format!("no second descriptor for O_DIRECT: {error}"),
        _ => format!("O_DIRECT refused by {file_system}: {error}"),
    };
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .map_err(refused)?;
    let grain = direct_grain_bytes(&file);
    if grain.is_some_and(|grain| grain == 0 || grain > PAGE_BYTES as u64) {
        return Err(format!("O_DIRECT refused by {file_system} for this file"));
    }
    if grain.is_none() {
        try_direct_read(&file).map_err(refused)?;
    }
    Ok(file)
}

/// Largest alignment that direct reads need: 0 if they are impossible, nothing if the kernel does not say.
fn direct_grain_bytes(file: &File) -> Option<u64> {
    let known = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if known.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    let (memory, offset) = (known.stx_dio_mem_align, known.stx_dio_offset_align);
    Some(if memory == 0 || offset == 0 {
        0
    } else {
        u64::from(memory.max(offset))
    })
}

/// Some file systems take the flag when opening and refuse every read.
fn try_direct_read(file: &File) -> io::Result<()> {
    #[repr(align(4096))]
    struct Page([u8; PAGE_BYTES]);
    let mut page = Box::new(Page([0; PAGE_BYTES]));
    file.read_at(&mut page.0, 0).map(|_| ())
}

/// Name of the file system, as far as messages need it.
fn file_system(file: &File) -> String {
    let Ok(known) = fstatfs(file) else {
        return "the file system".to_owned();
    };
    let name = match known.f_type as u64 & 0xffff_ffff {
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x794c_7630 => "overlayfs",
        0x6969 => "nfs",
        0x2fc1_2fc1 => "zfs",
        0x6573_5546 => "fuse",
        other => return format!("file system {other:#x}"),
    };
    name.to_owned()
}

/// Length of a regular file or block device.
fn length(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        return Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?);
    }
    Ok(metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_and_a_directory_are_errors_that_name_the_path() {
        for path in ["/nowhere/at/all", "/"] {
            match IoFile::open(Path::new(path), true) {
                Err(TierError::Io {
                    path: named,
                    operation: "open",
                    ..
                }) => {
                    assert_eq!(named, Path::new(path));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_file_in_memory_is_read_through_the_page_cache_and_says_why() {
        let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            return;
        };
        let opened = IoFile::open(file.path(), true).unwrap();
        assert!(!opened.is_direct());
        assert_eq!(opened.buffered_because(), Some("O_DIRECT refused by tmpfs"));
    }

    #[test]
    fn a_range_is_checked_against_the_file_as_it_is_now() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(100).unwrap();
        let opened = IoFile::open(file.path(), true).unwrap();
        opened.check_range(0, 100).unwrap();
        let beyond = opened.check_range(50, 51).unwrap_err();
        assert!(
            matches!(
                beyond,
                TierError::ShortRead {
                    file_bytes: 100,
                    ..
                }
            ),
            "{beyond}"
        );
        opened.check_range(u64::MAX, 2).unwrap_err();
        file.as_file().set_len(200).unwrap();
        opened.check_range(50, 51).unwrap();
        assert_eq!(opened.len_bytes(), 200);
    }
}
