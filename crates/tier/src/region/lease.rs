//! Parts of one mapping that are lent and come back: for copies that are made anew whenever they are needed, so that
//! nothing of them has to be durable.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Region;
use super::mapping::{Window, page_round_up};

/// A region whose parts are lent.
#[derive(Debug)]
pub struct LentRegion {
    free: Mutex<Vec<Window>>,
}

/// A part of a region that has one owner, until it is dropped.
#[derive(Debug)]
pub struct Lease {
    /// Always there until it goes back.
    window: Option<Window>,
    len_bytes: usize,
    of: Arc<LentRegion>,
}

impl LentRegion {
    /// Lends what is in a region, which nothing else uses.
    pub fn of(region: Region) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new(vec![region.into_window()]),
        })
    }

    /// Lends this many bytes, which are as their last owner left them; `None` if there is no piece that long.
    pub fn lend(self: &Arc<Self>, len_bytes: usize) -> Option<Lease> {
        let mut free = self.free.lock();
        let fits = |window: &Window| window.range().len() >= len_bytes;
        let idx = free.iter().position(fits)?;
        let mut window = free.swap_remove(idx);
        let range = window.range();
        let end = (range.start + page_round_up(len_bytes)).min(range.end);
        if end < range.end {
            free.push(window.split_off(end));
        }
        drop(free);
        Some(Lease {
            window: Some(window),
            len_bytes,
            of: self.clone(),
        })
    }

    /// The longest piece that can be lent, in bytes.
    pub fn free_bytes(&self) -> usize {
        let free = self.free.lock();
        let pieces = free.iter().map(|window| window.range().len());
        pieces.max().unwrap_or(0)
    }

    fn take_back(&self, mut window: Window) {
        let mut free = self.free.lock();
        let mut idx = 0;
        while idx < free.len() {
            match free[idx].touches(&window) {
                true => {
                    window = window.joined(free.swap_remove(idx));
                    idx = 0;
                }
                false => idx += 1,
            }
        }
        free.push(window);
    }
}

impl Lease {
    /// All of a region.
    pub fn whole(region: Region) -> Self {
        let len_bytes = region.len_bytes();
        let free = Mutex::default();
        Self {
            window: Some(region.into_window()),
            len_bytes,
            of: Arc::new(LentRegion { free }),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.window.as_ref().map_or(&[][..], Window::bytes);
        &bytes[..self.len_bytes.min(bytes.len())]
    }

    /// Its bytes for ordinary writing, which nothing makes durable. None if the region is for reading only.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let bytes = self.window.as_mut()?.bytes_mut()?;
        bytes.get_mut(..self.len_bytes)
    }

    /// Where it begins in its region.
    pub fn offset(&self) -> usize {
        let window = self.window.as_ref();
        window.map_or(0, |window| window.range().start)
    }

    /// The file or device that it is part of; empty for anonymous memory.
    pub fn path(&self) -> &Path {
        let window = self.window.as_ref();
        window.map_or(Path::new(""), |window| window.mapping().path())
    }

    /// Whether its file still reaches to an offset in the lease: see [`Sealed::is_backed`](super::Sealed::is_backed).
    pub fn is_backed_to(&self, end: usize) -> bool {
        let window = self.window.as_ref();
        window.is_some_and(|window| window.mapping().is_backed_to(window.range().start + end))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            self.of.take_back(window);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::AnonymousOptions;

    fn region(pages: usize) -> (Arc<LentRegion>, usize) {
        let page = rustix::param::page_size();
        let region = Region::anonymous(pages * page, &AnonymousOptions::default());
        (LentRegion::of(region.unwrap()), page)
    }

    #[test]
    fn parts_are_apart_and_come_back_whole() {
        let (region, page) = region(64);
        let mut random = fastrand::Rng::with_seed(5);
        let mut lent: Vec<(Lease, u8)> = Vec::new();
        for round in 0..2000u32 {
            let wanted = random.usize(1..9 * page);
            match (random.bool(), region.lend(wanted)) {
                (true, Some(mut lease)) => {
                    let mark = round as u8;
                    assert_eq!((lease.bytes().len(), lease.offset() % page), (wanted, 0));
                    lease.bytes_mut().unwrap().fill(mark);
                    lent.push((lease, mark));
                }
                (true, None) => assert!(region.free_bytes() < wanted),
                (false, _) if !lent.is_empty() => {
                    let (lease, mark) = lent.swap_remove(random.usize(0..lent.len()));
                    assert!(lease.bytes().iter().all(|byte| *byte == mark));
                }
                _ => {}
            }
        }
        for (lease, mark) in lent.drain(..) {
            assert!(lease.bytes().iter().all(|byte| *byte == mark));
        }
        assert_eq!(region.free_bytes(), 64 * page);
        assert!(region.lend(64 * page).is_some() && region.lend(64 * page + 1).is_none());
    }

    #[test]
    fn a_whole_region_is_one_lease_and_one_for_reading_is_not_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; 5000]).unwrap();
        let options = crate::region::FileOptions {
            read_only: true,
            ..Default::default()
        };
        let mut lease = Lease::whole(Region::open_file(file.path(), &options).unwrap());
        assert_eq!(lease.bytes(), [7; 5000]);
        assert!(lease.bytes_mut().is_none());
        assert_eq!((lease.path(), lease.offset()), (file.path(), 0));
        assert!(lease.is_backed_to(5000) && !lease.is_backed_to(5001));
    }
}
