//! Memory of nodes: the three system calls that no library in use wraps.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::mapping::Window;
use crate::error::TierError;

/// Bits in the node mask handed to the kernel: more nodes than any kernel is built for.
const NODES_MAX: u32 = 1024;
const WORD_BITS: u32 = u64::BITS;

const MPOL_BIND: libc::c_int = 2;
const MPOL_MF_STRICT: libc::c_uint = 1;
/// Pages of this process alone.
const MPOL_MF_MOVE: libc::c_int = 2;
const MPOL_F_NODE: libc::c_ulong = 1;
const MPOL_F_ADDR: libc::c_ulong = 2;

/// Binds all pages of the window, none of them touched yet, to `node`.
pub(super) fn bind(window: &Window, node: u32) -> Result<(), TierError> {
    check(node)?;
    let mut mask = [0u64; (NODES_MAX / WORD_BITS) as usize];
    mask[(node / WORD_BITS) as usize] |= 1 << (node % WORD_BITS);
    let range = window.range();
    let start = window.mapping().pointer(&range);
    // SAFETY: The range is mapped by us and stays so during the call; the mask outlives the call and has the number of
    // bits that is passed. The call changes no byte of memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            range.len(),
            MPOL_BIND,
            mask.as_ptr(),
            libc::c_ulong::from(NODES_MAX),
            MPOL_MF_STRICT,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(TierError::NodeBinding {
            node,
            source: io::Error::last_os_error().into(),
        }),
    }
}

/// The node that holds the page at `offset`, which the call makes present.
pub(super) fn node_of(window: &Window, offset: usize) -> Result<u32, TierError> {
    let at: Range<usize> = offset..offset + 1;
    let address = window.mapping().pointer(&at);
    let mut node: libc::c_int = 0;
    // SAFETY: `node` outlives the call, no mask is asked for, and the address lies in a mapping of ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            std::ptr::null_mut::<u64>(),
            0 as libc::c_ulong,
            address,
            MPOL_F_NODE | MPOL_F_ADDR,
        )
    };
    match result {
        0 => Ok(node.unsigned_abs()),
        _ => Err(TierError::system(
            "ask for the node of a page",
            io::Error::last_os_error(),
        )),
    }
}

/// Moves the pages that are wholly within some memory to a node. Returns the bytes that are there then: less than all
/// where the node is full, or pages are in use by others.
///
/// # Errors
/// [`TierError::NoSuchNode`]; [`TierError::NodeBinding`] where the system does not move pages.
pub fn move_to_node<T>(memory: &[T], node: u32) -> Result<usize, TierError> {
    check(node)?;
    let page_bytes = rustix::param::page_size();
    let start = memory.as_ptr().addr().next_multiple_of(page_bytes);
    let end = memory.as_ptr_range().end.addr();
    let pages: Vec<usize> = (start..end.saturating_sub(page_bytes - 1))
        .step_by(page_bytes)
        .collect();
    let nodes = vec![node as libc::c_int; pages.len()];
    let mut found = vec![libc::c_int::MIN; pages.len()];
    if pages.is_empty() {
        return Ok(0);
    }
    // SAFETY: The lists have the length that is passed and outlive the call. The pages are of memory that is borrowed;
    // moving them changes neither their addresses nor their bytes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            nodes.as_ptr(),
            found.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    if result < 0 {
        let source = io::Error::last_os_error().into();
        return Err(TierError::NodeBinding { node, source });
    }
    let there = found.iter().filter(|found| **found == node as libc::c_int);
    Ok(there.count() * page_bytes)
}

fn check(node: u32) -> Result<(), TierError> {
    let is_known = Path::new(&format!("/sys/devices/system/node/node{node}")).is_dir();
    match node < NODES_MAX && is_known {
        true => Ok(()),
        false => Err(TierError::NoSuchNode { node }),
    }
}
