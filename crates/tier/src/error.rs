//! The errors of this crate, and [`Corruption`], the one type by which every crate of Hotshelf says that
//! stored bytes are not what was written.
//!
//! Every error can be cloned: several callers may wait for one failed read.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Stored bytes that are not what was written: a failed checksum, a wrong magic number, an impossible length.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} is corrupt at byte {offset}: {what}: expected {expected}, found {found}", file.display())]
pub struct Corruption {
    /// The file that holds the bytes.
    pub file: PathBuf,
    /// Where in the file the damaged item starts.
    pub offset: u64,
    /// Which item is damaged, for example `segment checksum`.
    pub what: Cow<'static, str>,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// What can go wrong between a caller and its bytes.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum TierError {
    /// The operating system refused or failed an operation on a file.
    #[error("cannot {operation} {}{}: {source}", path.display(), at(*offset))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried, as a verb: `open`, `read`, `map`.
        operation: &'static str,
        /// The byte offset, for operations that have one.
        offset: Option<u64>,
        /// The system's answer.
        source: Arc<io::Error>,
    },

    /// The operating system refused something that concerns no file.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried, as a verb with its object: `start an I/O thread`.
        operation: &'static str,
        /// The system's answer.
        source: Arc<io::Error>,
    },

    /// A read asked for bytes beyond the end of the file, or the file was cut short while open.
    #[error(
        "cannot read {len_bytes} bytes at {offset} of {}: the file ends at {file_bytes}",
        path.display()
    )]
    ShortRead {
        /// The file.
        path: PathBuf,
        /// First byte asked for.
        offset: u64,
        /// How many bytes were asked for.
        len_bytes: u64,
        /// Where the file ends.
        file_bytes: u64,
    },

    /// The read was cancelled by its caller.
    #[error("the read at {offset} of {} was cancelled", path.display())]
    Cancelled {
        /// The file.
        path: PathBuf,
        /// First byte asked for.
        offset: u64,
    },

    /// The I/O engine was shut down before the read could be served.
    #[error("the read at {offset} of {} was not served: the I/O engine has stopped", path.display())]
    EngineStopped {
        /// The file.
        path: PathBuf,
        /// First byte asked for.
        offset: u64,
    },

    /// No memory for a buffer.
    #[error("cannot allocate a buffer of {bytes} bytes")]
    OutOfMemory {
        /// Size of the buffer.
        bytes: usize,
    },

    /// An option has a value that makes no sense.
    #[error("{option} cannot be {value}: it must be {expected}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// What it was set to.
        value: String,
        /// What would be accepted.
        expected: &'static str,
    },

    /// A range lies outside its region.
    #[error("bytes {offset} to {} are outside a region of {region_bytes} bytes", offset.saturating_add(*len_bytes))]
    OutsideRegion {
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        len_bytes: u64,
        /// Length of the region, or of the part of it that may be accessed.
        region_bytes: u64,
    },

    /// Another owner has the file or device mapped.
    #[error("{} is in use by another owner", path.display())]
    Locked {
        /// The file or device.
        path: PathBuf,
    },

    /// The file had to be mapped directly, but its file system or kernel cannot.
    #[error("{} cannot be mapped with MAP_SYNC: it is not on a DAX file system", path.display())]
    NoSyncMapping {
        /// The file.
        path: PathBuf,
    },

    /// The path is not a devdax character device.
    #[error("{} is not a devdax device", path.display())]
    NotDevDax {
        /// The path.
        path: PathBuf,
    },

    /// A device holds fewer bytes than needed.
    #[error("{} has {device_bytes} bytes, but {needed_bytes} are needed", path.display())]
    DeviceTooSmall {
        /// The device.
        path: PathBuf,
        /// What it has.
        device_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },

    /// The file or device is open for reading only.
    #[error("{} is open for reading only", path.display())]
    ReadOnly {
        /// The file or device.
        path: PathBuf,
    },

    /// Persistent memory cannot be written durably because this CPU lets programs flush no cache lines.
    #[error("this CPU has no cache-line flush that programs may use")]
    NoFlushInstruction,

    /// Bytes that are not a pool of the expected kind.
    #[error("{} is not the expected pool: {what} is {found}, not {expected}", path.display())]
    ForeignPool {
        /// The file or device.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },

    /// A new pool would destroy one that is there.
    #[error("{} already holds a pool", path.display())]
    PoolExists {
        /// The file or device.
        path: PathBuf,
    },

    /// A pool has no room for what was to be added.
    #[error("the pool has {free_bytes} free bytes, but {needed_bytes} are needed")]
    PoolFull {
        /// What was to be added.
        needed_bytes: u64,
        /// What is free.
        free_bytes: u64,
    },

    /// A pool has been published as often, or holds as many segments, as its format can count.
    #[error("the pool can count no further: copy it into a new one")]
    PoolExhausted,

    /// A pool has no such published segment.
    #[error("the pool has no segment {segment_idx}: it has {segment_count}")]
    NoSuchSegment {
        /// The index asked for.
        segment_idx: usize,
        /// How many there are.
        segment_count: usize,
    },

    /// No emulated device has this name.
    #[error("there is no emulated device `{name}`; there are {}", crate::emulated::DEVICE_NAMES.join(", "))]
    NoSuchDeviceModel {
        /// The name asked for.
        name: String,
    },

    /// Measurements of a tier differ too much from one round to the next to derive anything.
    #[error(
        "none of the {uncertain_count} values that follow from the measurements of {tier} would follow again: \
         something else is using the machine"
    )]
    UnsteadyMeasurement {
        /// The tier.
        tier: String,
        /// How many values there would be.
        uncertain_count: usize,
    },

    /// The machine has no such NUMA node.
    #[error("this machine has no NUMA node {node}")]
    NoSuchNode {
        /// Its number.
        node: u32,
    },

    /// The kernel refused to place memory on a NUMA node.
    #[error("cannot place memory on NUMA node {node}: {source}")]
    NodeBinding {
        /// The node.
        node: u32,
        /// The system's answer.
        source: Arc<io::Error>,
    },

    /// Bytes on storage are not what was written.
    #[error(transparent)]
    Corruption(#[from] Corruption),
}

impl TierError {
    /// An [`TierError::Io`] without an offset.
    pub fn io(path: &Path, operation: &'static str, source: io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            operation,
            offset: None,
            source: Arc::new(source),
        }
    }

    /// An [`TierError::Io`] at a byte offset.
    pub fn io_at(path: &Path, operation: &'static str, offset: u64, source: io::Error) -> Self {
        let source = Arc::new(source);
        Self::Io {
            path: path.to_path_buf(),
            operation,
            offset: Some(offset),
            source,
        }
    }

    /// A sentence that says what to do about it, where there is one.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Io { source, .. } | Self::System { source, .. } => return io_hint(source),
            Self::NoSyncMapping { .. } => {
                "mount the file system with -o dax=always, or measure it as ordinary files (file:DIR)"
            }
            Self::NotDevDax { .. } => {
                "devdax devices are called /dev/daxN.M; `ndctl list` shows them"
            }
            Self::DeviceTooSmall { .. } => "use a larger device, or ask for less (--working-set)",
            Self::OutOfMemory { .. } => "ask for less memory (--working-set, --budget)",
            Self::Locked { .. } => "close the other program",
            Self::ForeignPool { .. } => "name another file; nothing was changed in this one",
            Self::PoolExists { .. } => "name a new file, or remove this one if it is not needed",
            Self::PoolFull { .. } => "remove segments, or make a larger pool",
            Self::UnsteadyMeasurement { .. } => {
                "measure again when nothing else runs; no profile was stored"
            }
            Self::NoSuchNode { .. } => "/sys/devices/system/node lists the nodes there are",
            Self::NodeBinding { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                "a container may forbid mbind: allow it there, or measure `dram`"
            }
            Self::NodeBinding { .. } => "the node may have no memory of its own, or too little",
            Self::NoFlushInstruction => "map the file without MAP_SYNC, through the page cache",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// An [`TierError::System`].
    pub fn system(operation: &'static str, source: io::Error) -> Self {
        Self::System {
            operation,
            source: Arc::new(source),
        }
    }
}

/// Whether the process, or the system, has as many files open as it may.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let known = [Errno::MFILE, Errno::NFILE].map(|errno| errno.raw_os_error());
    error
        .raw_os_error()
        .is_some_and(|errno| known.contains(&errno))
}

fn io_hint(error: &io::Error) -> Option<String> {
    if is_out_of_descriptors(error) {
        return Some(
            "raise the number of files that a process may open (`ulimit -n`); nothing is damaged"
                .to_owned(),
        );
    }
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the file system is full: free some space; nothing was changed"
        }
        io::ErrorKind::PermissionDenied => "check who may read and write there",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is mounted for reading only",
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::NotConnected => {
            "connect or mount what the shelf is on; nothing is damaged, and the next statement finds it"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn at(offset: Option<u64>) -> String {
    offset
        .map(|offset| format!(" at byte {offset}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_the_operation_and_the_offset() {
        let refused = || io::Error::from_raw_os_error(libc::EIO);
        let error = TierError::io_at(Path::new("/db/1.vortex"), "read", 4096, refused());
        assert!(
            error
                .to_string()
                .starts_with("cannot read /db/1.vortex at byte 4096: ")
        );
        let error = TierError::io(Path::new("/db"), "open", refused());
        assert!(error.to_string().starts_with("cannot open /db: "));
    }

    #[test]
    fn what_a_user_can_mend_comes_with_a_hint() {
        let hint = |code| {
            let source = io::Error::from_raw_os_error(code);
            TierError::io(Path::new("/db/x"), "write", source).hint()
        };
        assert!(hint(libc::ENOSPC).unwrap().contains("full"));
        assert!(hint(libc::EACCES).is_some() && hint(libc::EIO).is_none());
        let binding = |code| TierError::NodeBinding {
            node: 1,
            source: io::Error::from_raw_os_error(code).into(),
        };
        assert!(binding(libc::EPERM).hint().unwrap().contains("container"));
        assert!(binding(libc::ENOMEM).hint().unwrap().contains("too little"));
    }

    #[test]
    fn corruption_keeps_its_fields_when_it_becomes_a_tier_error() {
        let corruption = Corruption {
            file: "/db/1.vortex".into(),
            offset: 7,
            what: "segment checksum".into(),
            expected: "1".into(),
            found: "2".into(),
        };
        let text = "/db/1.vortex is corrupt at byte 7: segment checksum: expected 1, found 2";
        assert_eq!(TierError::from(corruption).to_string(), text);
    }
}
