//! Files without a name: they go with their last descriptor, however a process ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::{Result, StoreError};

/// A file without a name.
pub(super) struct Nameless {
    pub file: File,
    /// A path that leads to it while it is open here.
    pub path: PathBuf,
}

/// A file of this length in a folder. Its blocks are there.
///
/// # Errors
/// It cannot be made, or there is no room for it.
pub(super) fn nameless(folder: &Path, len: u64) -> Result<Nameless> {
    let file = tempfile::tempfile_in(folder).map_err(StoreError::io("create a file in", folder))?;
    let room = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len);
    let room = match room {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(len),
        room => room.map_err(Into::into),
    };
    room.map_err(StoreError::io("reserve space in", folder))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    Ok(Nameless { file, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_without_a_name_can_be_opened_again_and_is_not_seen() {
        let folder = tempfile::tempdir().unwrap();
        let mut made = nameless(folder.path(), 5000).unwrap();
        made.file.write_all(b"some bytes").unwrap();
        let again = std::fs::read(&made.path).unwrap();
        assert_eq!((again.len(), &again[..10]), (5000, &b"some bytes"[..]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(nameless(&folder.path().join("none"), 1).is_err());
        assert!(nameless(folder.path(), 1 << 60).is_err());
    }
}
