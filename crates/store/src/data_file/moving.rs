//! Data files that live on a shelf with a file system of its own: another disk, or a file system on persistent memory.
//!
//! The file's name in its table's folder is then a symbolic link. A move writes a copy, makes it durable, and puts link
//! or copy in the place of what was there by one rename: at any instant the name leads to the whole file. Readers that
//! have the old one open keep it; the bytes are the same.

use std::fs;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::check::sum_of;
use super::filling::{Give, Piece, Target, fill};
use super::paths::FilePaths;
use super::sums::mismatch;
use crate::error::{Result, StoreError};
use crate::links::{away, is_at, remove_empty, remove_file, shelf_missing, shelved};
use crate::shelf_use::ShelfUse;

/// Bytes written at a time, at least and at most.
const PIECES: RangeInclusive<usize> = 4 << 10..=4 << 20;
/// Bytes that a writer reads at a time.
const READ_BYTES: usize = 1 << 20;

/// One move at a time: two of the same file would take each other's copy.
static MOVING: Mutex<()> = Mutex::new(());

/// Refuses to write to the folder of a table whose files are there and cannot be seen: what is written to a place where
/// another disk belongs is hidden by it.
///
/// # Errors
/// [`StoreError::Io`] that another try may not have.
pub fn ensure_there<'a>(
    folder: &Path,
    mut files: impl Iterator<Item = &'a FilePaths>,
) -> Result<()> {
    let is_there = |paths: &FilePaths| paths.away().is_some_and(|away| away.starts_with(folder));
    match !folder.is_dir() && files.any(is_there) {
        true => Err(StoreError::io("write to", folder)(shelf_missing(folder))),
        false => Ok(()),
    }
}

impl FilePaths {
    /// The data file on its shelf, if it is on one.
    pub fn away(&self) -> Option<PathBuf> {
        away(self.root(), &self.data())
    }

    /// The name of the link while it is being made.
    fn link_temporary(&self) -> PathBuf {
        self.data().with_extension("vortex.link")
    }

    /// The same, if this database has put it there.
    pub fn shelved(&self) -> Option<PathBuf> {
        shelved(self.root(), &self.data())
    }

    /// Whether the data file is on a shelf with a file system; on none, whether this database has not put it on one.
    pub fn is_on(&self, shelf: Option<&Path>) -> bool {
        match shelf {
            Some(shelf) => is_at(self.root(), &self.data(), shelf, self.table_folder()),
            None => self.shelved().is_none(),
        }
    }

    /// Moves the data file into a folder of a shelf, or back beside its checksums.
    ///
    /// # Errors
    /// It cannot be read or written, or the copy is not what was written. The file is then where it was.
    pub fn move_to(&self, shelf_folder: Option<&Path>, how: &ShelfUse) -> Result<()> {
        let piece_bytes = how.piece_bytes.unwrap_or(READ_BYTES);
        let how = &ShelfUse {
            piece_bytes: Some(piece_bytes.clamp(*PIECES.start(), *PIECES.end())),
            ..how.clone()
        };
        let _turn = MOVING.lock();
        let (root, data) = (self.root(), self.data());
        let name = data.file_name().unwrap_or_default();
        let target = shelf_folder.map(|folder| (folder, folder.join(name)));
        let is_there = match target.as_ref() {
            Some((folder, _)) => self.is_on(folder.ancestors().nth(2)),
            None => self.away().is_none(),
        };
        if is_there {
            return Ok(());
        }
        let before = self.shelved();
        match target {
            Some((folder, target)) => {
                make_folder(folder)?;
                let copied = self.copy(&target.with_extension("vortex.tmp"), &target, how);
                copied.inspect_err(|_| remove_empty(&target))?;
                for made in folder.ancestors().take(3) {
                    root.sync_folder(made)?;
                }
                self.link(&target)?;
            }
            None => self.copy(&self.data_temporary(), &data, how)?,
        }
        root.sync_folder(data.parent().unwrap_or(&data))?;
        if let Some(before) = before {
            remove_file(root, &before);
        }
        Ok(())
    }

    /// Puts a link in the place of the file's name.
    fn link(&self, target: &Path) -> Result<()> {
        let (root, link) = (self.root(), self.link_temporary());
        root.remove(&link);
        std::os::unix::fs::symlink(target, root.real(&link))
            .map_err(StoreError::io("link", &link))?;
        root.rename(&link, &self.data())
    }

    /// Makes a durable copy of the data file, compared with it, which gets its name when it is whole.
    fn copy(&self, temporary: &Path, to: &Path, how: &ShelfUse) -> Result<()> {
        let copied = self.copy_bytes(temporary, how, &|_| {});
        let copied = copied.and_then(|()| self.root().rename(temporary, to));
        if copied.is_err() {
            self.root().remove(temporary);
        }
        copied
    }

    fn copy_bytes(
        &self,
        to: &Path,
        how: &ShelfUse,
        before: &(impl Fn(Piece<'_>) + Sync),
    ) -> Result<()> {
        let (root, data) = (self.root(), self.data());
        let from = root.open_file(&data)?;
        let len = from
            .metadata()
            .map_err(StoreError::io("read", &data))?
            .len() as usize;
        let file = root.create_readable(to)?;
        let piece_bytes = how.piece_bytes.unwrap_or(READ_BYTES);
        let read_bytes = len.div_ceil(how.writers.max(1)).min(READ_BYTES);
        let read_bytes = read_bytes.next_multiple_of(piece_bytes).max(1);
        let starts = (0..len).step_by(read_bytes);
        let places: Vec<_> = starts
            .map(|start| Some((start, read_bytes.min(len - start))))
            .collect();
        let sums: Vec<AtomicU32> = places.iter().map(|_| AtomicU32::new(0)).collect();
        let read = |share: Range<usize>, give: Give<'_>| {
            let mut bytes = vec![0; read_bytes];
            for (place, sum) in places[share.clone()].iter().zip(&sums[share]) {
                let Some(place) = *place else { continue };
                let bytes = &mut bytes[..place.1];
                from.read_exact_at(bytes, place.0 as u64)
                    .map_err(StoreError::io("read", &data))?;
                sum.store(crc32fast::hash(bytes), Relaxed);
                give(place, bytes)?;
            }
            Ok(())
        };
        fill(&places, how, (Target::File(&file), to), &read, before)?;
        root.sync(&file).map_err(StoreError::io("sync", to))?;
        let mut bytes = vec![0; read_bytes];
        for ((start, len), sum) in places.iter().flatten().zip(sums) {
            let (start, end) = (*start as u64, (start + len) as u64);
            let found = sum_of(&file, to, start..end, &mut bytes)?;
            let what = "copy of a data file";
            if let Some(corruption) = mismatch(to, start, what, sum.into_inner(), found) {
                return Err(corruption.into());
            }
        }
        Ok(())
    }
}

/// Makes the folder of a table on a shelf that is there.
fn make_folder(folder: &Path) -> Result<()> {
    let shelf = folder.ancestors().nth(2).unwrap_or(folder);
    if !shelf.is_dir() {
        return Err(StoreError::io("write to", shelf)(shelf_missing(shelf)));
    }
    fs::create_dir_all(folder).map_err(StoreError::io("create", folder))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::root::Root;

    #[test]
    fn a_file_is_moved_by_the_writers_of_its_shelf_in_their_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let paths = FilePaths::new(&root, "t1", 1);
        fs::create_dir_all(root.real(&paths.data()).parent().unwrap()).unwrap();
        // Also a small file has all writers.
        for (len, writers) in [((5 << 20) + 77u32, 1), ((5 << 20) + 77, 4), (700 << 10, 4)] {
            let bytes: Vec<u8> = (0..len).map(|at| ((at * 7) >> 3) as u8).collect();
            fs::write(root.real(&paths.data()), &bytes).unwrap();
            let how = ShelfUse {
                writers,
                piece_bytes: Some(64 << 10),
                ..ShelfUse::default()
            };
            let to = paths.data_temporary();
            let written = Mutex::new(BTreeMap::<usize, Vec<Range<usize>>>::new());
            let copied = paths.copy_bytes(&to, &how, &|piece| {
                let end = piece.offset + piece.len_bytes;
                let mut written = written.lock();
                written
                    .entry(piece.writer)
                    .or_default()
                    .push(piece.offset..end);
            });
            copied.unwrap();
            assert_eq!(fs::read(root.real(&to)).unwrap(), bytes);
            let written = written.into_inner();
            // A stretch of its own for each, from its beginning to its end, and nothing twice.
            let mut end = 0;
            for piece in written.values().flatten() {
                assert_eq!(piece.start, end);
                assert!(piece.len() <= 64 << 10);
                end = piece.end;
            }
            assert_eq!((written.len(), end), (writers, bytes.len()));
        }
    }
}
