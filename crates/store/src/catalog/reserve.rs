//! Space kept for changes that free space: on a full disk a table can still be dropped.

use std::io::Write;

use crate::root::{RESERVE, Root};

/// A transaction that drops a table of some hundred files fits.
const RESERVE_BYTES: usize = 512 << 10;

/// Keeps the space, if there is enough. Nothing depends on it while the disk is not full.
pub(super) fn keep(root: &Root) {
    let path = root.join(RESERVE);
    let length = root.real(&path).metadata().map_or(0, |file| file.len());
    if length >= RESERVE_BYTES as u64 {
        return;
    }
    let written = root
        .create(&path)
        .is_ok_and(|mut file| file.write_all(&vec![0; RESERVE_BYTES]).is_ok());
    if !written {
        root.remove(&path);
    }
}

/// Gives the space up; whether there was any.
pub(super) fn give_up(root: &Root) -> bool {
    let path = root.join(RESERVE);
    root.exists(&path) && root.remove(&path)
}
