//! Persistence by msync: files mapped through the page cache.

use std::io;
use std::ops::Range;

use rustix::mm::{self, MsyncFlags};

use super::{Native, PersistOps};
use crate::error::TierError;
use crate::region::{Mapping, Sealed, Window};

/// Stores to mapped pages; a fence writes the flushed pages to the device and waits.
#[derive(Debug)]
pub struct Msync {
    native: Native,
    /// Flushed and not yet synced; neighbours are merged.
    dirty: Vec<Range<usize>>,
}

impl Msync {
    pub(super) fn new(window: Window) -> Self {
        Self {
            native: Native::new(window, None),
            dirty: Vec::new(),
        }
    }

    pub(super) fn seal_to(&mut self, end: usize) -> Sealed {
        self.native.seal_to(end)
    }

    pub(super) fn window_ref(&self) -> &Window {
        &self.native.window
    }
}

impl PersistOps for Msync {
    fn window(&self) -> Range<usize> {
        self.native.window()
    }

    fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.native.store(offset, bytes);
    }

    fn copy_nt(&mut self, offset: usize, bytes: &[u8]) {
        self.native.store(offset, bytes);
        self.flush(offset..offset + bytes.len());
    }

    fn flush(&mut self, range: Range<usize>) {
        match self.dirty.last_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ if range.is_empty() => {}
            _ => self.dirty.push(range),
        }
    }

    fn fence(&mut self) -> Result<(), TierError> {
        // What cannot be synced stays on the list, so that a later fence cannot claim it is durable.
        while let Some(range) = self.dirty.last() {
            sync_pages(self.native.window.mapping(), range)?;
            self.dirty.pop();
        }
        Ok(())
    }

    fn publish(&mut self, offset: usize, word: u64) {
        self.native.publish(offset, word);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self {
            native: self.native.split_off(at),
            dirty: Vec::new(),
        }
    }
}

/// Writes the pages of a range back and waits for the device.
///
/// # Errors
/// What the operating system says.
pub(crate) fn sync_pages(mapping: &Mapping, range: &Range<usize>) -> Result<(), TierError> {
    let page_bytes = rustix::param::page_size();
    let pages = range.start - range.start % page_bytes..range.end;
    let address = mapping.pointer(&pages).cast();
    // SAFETY: The pages are mapped, and syncing them changes no byte.
    let synced = unsafe { mm::msync(address, pages.len(), MsyncFlags::SYNC) };
    synced.map_err(|errno| {
        let source = io::Error::from(errno);
        TierError::io_at(mapping.path(), "sync", range.start as u64, source)
    })
}
