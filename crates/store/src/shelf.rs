//! Where the data of a table or the leaves of an index are read from, as the user chose it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hotshelf_tier::emulated::{DEVICE_NAMES, DeviceModel};
use hotshelf_tier::region::Region;
use hotshelf_tier::topology::Topology;

/// Where the segments of a table's files, or the leaf blocks of an index, are read from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Shelf {
    /// The file itself.
    #[default]
    File,
    /// A file system in this folder, for tables: their data files are moved there.
    Folder(PathBuf),
    /// This machine's memory.
    Dram,
    /// A file system of persistent memory in this folder: for an index a pool, for a table its data files, mapped. Or a
    /// devdax device, which has room for the pool of one index file, or for copies of tables.
    Dax(PathBuf),
    /// The memory of a NUMA node.
    Node(u32),
    /// An emulated device.
    Emulated(String),
}

/// A word that does not name a shelf.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a shelf: {}", Shelf::words())]
pub struct UnknownShelf {
    /// The word.
    pub name: String,
}

/// A shelf that this machine does not have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MissingShelf {
    /// No such node.
    #[error("node {node} is not one of this machine's nodes, {known:?}")]
    Node {
        /// The node that was asked for.
        node: u32,
        /// Those that there are.
        known: Vec<u32>,
    },
    /// Not a folder or a devdax device, not to be reached, or files cannot be made there.
    #[error("folder {}: {source}", folder.display())]
    Folder {
        /// The folder that was asked for.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Shelf {
    /// The words for shelves.
    pub fn words() -> String {
        let names = DEVICE_NAMES.join(", ");
        format!(
            "file, file:FOLDER (tables), dram, dax:FOLDER, node:N or emulated:NAME for a NAME of {names}"
        )
    }

    /// The folder that files are in, if it has a file system.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::Dax(folder) => {
                Some(&**folder).filter(|path| !Region::is_devdax(path).unwrap_or(false))
            }
            _ => None,
        }
    }

    /// The node whose memory it is, if it is one's.
    pub fn node(&self) -> Option<u32> {
        match self {
            Self::Node(node) => Some(*node),
            _ => None,
        }
    }

    /// The shelf as it is kept: a folder by its full path, so that it does not depend on where a process was started.
    ///
    /// # Errors
    ///
    /// [`MissingShelf`] where this machine has no such node or folder.
    pub fn on_this_machine(self) -> Result<Self, MissingShelf> {
        match self {
            Self::Node(node) => {
                let known: Vec<u32> = Topology::read().nodes.iter().map(|node| node.id).collect();
                // A kernel without NUMA shows no nodes; its memory is node 0.
                let is_known = known.contains(&node) || (known.is_empty() && node == 0);
                is_known
                    .then_some(Self::Node(node))
                    .ok_or(MissingShelf::Node { node, known })
            }
            Self::Dax(folder) => full_path(folder).map(Self::Dax),
            Self::Folder(folder) => full_path(folder).map(Self::Folder),
            Self::File | Self::Dram | Self::Emulated(_) => Ok(self),
        }
    }
}

/// The full path of a folder that can hold files, or of a devdax device.
fn full_path(folder: PathBuf) -> Result<PathBuf, MissingShelf> {
    let full = folder.canonicalize();
    let full = full.and_then(|full| takes_pools(&full).map(|()| full));
    // The catalog keeps it as a text.
    let named = full.and_then(|full| match full.to_str() {
        Some(_) => Ok(full),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "its name is not UTF-8",
        )),
    });
    named.map_err(|source| MissingShelf::Folder { folder, source })
}

/// Whether a folder or a device can hold a pool: in a folder a file is made and removed again.
fn takes_pools(shelf: &Path) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if !shelf.is_dir() {
        return match Region::is_devdax(shelf) {
            Ok(true) => File::options().read(true).write(true).open(shelf).map(drop),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        };
    }
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
    let trial = shelf.join(format!(".hotshelf-trial-{process}-{number}"));
    File::create_new(&trial)?;
    std::fs::remove_file(&trial)
}

impl fmt::Display for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Folder(folder) => write!(f, "file:{}", folder.display()),
            Self::Dram => f.write_str("dram"),
            Self::Dax(folder) => write!(f, "dax:{}", folder.display()),
            Self::Node(node) => write!(f, "node:{node}"),
            Self::Emulated(name) => write!(f, "emulated:{name}"),
        }
    }
}

impl FromStr for Shelf {
    type Err = UnknownShelf;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownShelf { name: name.into() };
        Ok(match name.split_once(':') {
            None if name == "file" => Self::File,
            None if name == "dram" => Self::Dram,
            Some(("file", folder)) if !folder.is_empty() => Self::Folder(folder.into()),
            Some(("dax", folder)) if !folder.is_empty() => Self::Dax(folder.into()),
            Some(("node", node)) => Self::Node(node.parse().map_err(|_| unknown())?),
            Some(("emulated", device)) => {
                DeviceModel::named(device).map_err(|_| unknown())?;
                Self::Emulated(device.into())
            }
            _ => return Err(unknown()),
        })
    }
}
