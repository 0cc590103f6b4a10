//! The owner of one memory mapping, and the two kinds of access to it: a [`Window`] that alone may write its part, and
//! [`Sealed`] parts that any thread may read because none can write them any more.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{self, MapFlags, ProtFlags};

use crate::error::TierError;

/// One mapping, unmapped when the last user drops it.
///
/// Invariants:
/// 1. `start..start + len_bytes` is mapped readable for as long as the value lives.
/// 2. It is mapped writable if `writable`.
/// 3. Every byte belongs to at most one [`Window`], or to any number of [`Sealed`] parts, never to both.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len_bytes: usize,
    writable: bool,
    path: PathBuf,
    /// Keeps the advisory lock on the file for as long as it is mapped.
    file: Option<File>,
}

// SAFETY: The mapping is plain memory without thread affinity. Invariant 3 keeps writers and readers of it apart.
unsafe impl Send for Mapping {}
// SAFETY: Shared access only reads sealed bytes or goes through a `Window`, of which each byte has one (invariant 3).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps anonymous memory whose start is a multiple of `align_bytes`, a power of two.
    pub(crate) fn anonymous(len_bytes: usize, align_bytes: usize) -> Result<Self, TierError> {
        let out_of_memory = |_| TierError::OutOfMemory { bytes: len_bytes };
        let padded_bytes = len_bytes
            .checked_add(align_bytes)
            .ok_or(TierError::OutOfMemory { bytes: len_bytes })?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: A new mapping at an address of the kernel's choice touches no existing memory.
        let padded = unsafe { mm::mmap_anonymous(ptr::null_mut(), padded_bytes, prot, flags) };
        let padded = padded.map_err(io::Error::from).map_err(out_of_memory)?;
        let before_bytes = padded.align_offset(align_bytes).min(align_bytes);
        let after_bytes = align_bytes - before_bytes;
        trim(padded.cast(), before_bytes);
        let start = padded.cast::<u8>().wrapping_add(before_bytes);
        trim(start.wrapping_add(page_round_up(len_bytes)), after_bytes);
        Ok(Self {
            start: NonNull::new(start).ok_or(TierError::OutOfMemory { bytes: len_bytes })?,
            len_bytes,
            writable: true,
            path: PathBuf::new(),
            file: None,
        })
    }

    /// Maps the first `len_bytes` of `file`.
    pub(crate) fn file(
        file: File,
        path: &Path,
        len_bytes: usize,
        writable: bool,
        flags: MapFlags,
    ) -> Result<Self, (File, rustix::io::Errno)> {
        let prot = match writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        // SAFETY: A new mapping at an address of the kernel's choice touches no existing memory.
        let mapped = unsafe { mm::mmap(ptr::null_mut(), len_bytes, prot, flags, &file, 0) };
        let start = match mapped {
            Ok(start) => start,
            Err(errno) => return Err((file, errno)),
        };
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self {
                start,
                len_bytes,
                writable,
                path: path.to_path_buf(),
                file: Some(file),
            }),
            None => Err((file, rustix::io::Errno::INVAL)),
        }
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file still reaches to `end`; true of memory and of devices, which cannot be cut short.
    pub(super) fn is_backed_to(&self, end: usize) -> bool {
        let Some(file) = &self.file else { return true };
        match file.metadata() {
            Ok(found) => !found.is_file() || found.len() >= end as u64,
            Err(_) => false,
        }
    }

    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// A pointer to `range`.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    #[inline]
    pub(crate) fn pointer(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len_bytes);
        self.start.as_ptr().wrapping_add(range.start)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: The range was mapped by us (invariant 1), and with the last `Arc` gone nothing can refer to it.
        let unmapped = unsafe { mm::munmap(self.start.as_ptr().cast(), self.len_bytes) };
        if let Err(errno) = unmapped {
            tracing::warn!(%errno, "cannot unmap a region");
        }
    }
}

/// Gives a page-aligned margin of a new mapping back.
fn trim(start: *mut u8, len_bytes: usize) {
    if len_bytes > 0 {
        // SAFETY: The range is a margin of a mapping that was just made and that nothing else refers to yet.
        let unmapped = unsafe { mm::munmap(start.cast(), len_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// `bytes` rounded up to whole pages.
pub(crate) fn page_round_up(bytes: usize) -> usize {
    bytes.next_multiple_of(rustix::param::page_size())
}

/// The only way to write a part of a mapping. It can be split, and its front can be sealed.
#[derive(Debug)]
pub(crate) struct Window {
    mapping: Arc<Mapping>,
    range: Range<usize>,
    /// Where the window began: everything from here to `range.start` has been sealed.
    sealed_start: usize,
}

impl Window {
    /// The window over all of a mapping that nothing else refers to.
    pub(crate) fn whole(mapping: Mapping) -> Self {
        let range = 0..mapping.len_bytes;
        Self {
            mapping: Arc::new(mapping),
            range,
            sealed_start: 0,
        }
    }

    #[inline]
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Offsets in the mapping that this window may write.
    #[inline]
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(crate) fn writable(&self) -> bool {
        self.mapping.writable
    }

    /// What the window holds now.
    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.mapping.pointer(&self.range);
        // SAFETY: The range is mapped and initialised by the kernel. Only this window may write it, and it is borrowed.
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }
    }

    /// The window's bytes for ordinary writing, or `None` if the mapping is read-only.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let start = self.mapping.pointer(&self.range);
        // SAFETY: The range is mapped, writable and initialised by the kernel. Only this window refers to it, and it is
        // borrowed mutably.
        let bytes = || unsafe { std::slice::from_raw_parts_mut(start, self.range.len()) };
        self.mapping.writable.then(bytes)
    }

    /// A pointer for writing `range`, given in offsets of the mapping.
    ///
    /// # Panics
    /// If the range is not inside the window, or the mapping is read-only: callers check first.
    pub(crate) fn write_pointer(&mut self, range: &Range<usize>) -> *mut u8 {
        assert!(self.mapping.writable, "the mapping is read-only");
        assert!(self.range.start <= range.start && range.end <= self.range.end);
        self.mapping.pointer(range)
    }

    /// Ends writing to everything before `end` (an offset of the mapping) and gives it out for reading.
    ///
    /// # Panics
    /// If `end` is outside the window.
    pub(crate) fn seal_to(&mut self, end: usize) -> Sealed {
        assert!(self.range.start <= end && end <= self.range.end);
        let range = self.range.start..end;
        self.range.start = end;
        Sealed {
            mapping: Arc::clone(&self.mapping),
            range,
        }
    }

    /// Cuts the window in two; the new one has everything from `at` (an offset of the mapping).
    ///
    /// # Panics
    /// If `at` is outside the window.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        assert!(self.range.start <= at && at <= self.range.end);
        let range = at..self.range.end;
        self.range.end = at;
        Self {
            mapping: Arc::clone(&self.mapping),
            range,
            sealed_start: at,
        }
    }

    /// Whether another window of the mapping begins where this one ends, or the other way round.
    pub(crate) fn touches(&self, other: &Self) -> bool {
        let (a, b) = (&self.range, &other.range);
        Arc::ptr_eq(&self.mapping, &other.mapping) && (a.end == b.start || b.end == a.start)
    }

    /// Both as one.
    ///
    /// # Panics
    /// If they do not touch.
    pub(crate) fn joined(self, other: Self) -> Self {
        assert!(self.touches(&other), "windows that are joined touch");
        let start = self.range.start.min(other.range.start);
        let end = self.range.end.max(other.range.end);
        Self {
            mapping: self.mapping,
            range: start..end,
            sealed_start: start,
        }
    }

    /// A view of bytes this window has sealed before, or `None` if it has not sealed all of `range`.
    pub(crate) fn sealed(&self, range: Range<usize>) -> Option<Sealed> {
        let inside = self.sealed_start <= range.start && range.end <= self.range.start;
        (inside && range.start <= range.end).then(|| Sealed {
            mapping: Arc::clone(&self.mapping),
            range,
        })
    }
}

/// Bytes of a region that can no longer be written; cheap to clone, keeps the mapping alive.
#[derive(Debug, Clone)]
pub struct Sealed {
    mapping: Arc<Mapping>,
    range: Range<usize>,
}

impl Sealed {
    /// A part of it.
    ///
    /// # Errors
    /// [`TierError::OutsideRegion`] if `range` reaches beyond the end.
    pub fn slice(&self, range: Range<usize>) -> Result<Self, TierError> {
        if range.start > range.end || range.end > self.range.len() {
            return Err(TierError::OutsideRegion {
                offset: range.start as u64,
                len_bytes: range.len() as u64,
                region_bytes: self.range.len() as u64,
            });
        }
        let start = self.range.start;
        Ok(Self {
            mapping: Arc::clone(&self.mapping),
            range: start + range.start..start + range.end,
        })
    }

    /// Where it starts in its region.
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// The file or device that it is part of; empty for anonymous memory.
    pub fn path(&self) -> &Path {
        self.mapping.path()
    }

    /// Whether its file is still long enough to have all of it: reading what a file does not have any more ends the
    /// process. That costs a system call, and says nothing about a moment later.
    pub fn is_backed(&self) -> bool {
        self.mapping.is_backed_to(self.range.end)
    }
}

impl Deref for Sealed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.mapping.pointer(&self.range);
        // SAFETY: The range is mapped for as long as the `Arc` lives, and sealed bytes belong to no window, so that
        // nothing writes them.
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }
    }
}

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
