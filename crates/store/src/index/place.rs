//! Where the leaves of an index are read from, as the user chose it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hotshelf_tier::emulated::DeviceModel;

/// Where the leaf blocks of an index are read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum IndexShelf {
    /// The index file.
    #[default]
    File,
    /// A pool in this folder, on a file system of persistent memory.
    Dax(PathBuf),
    /// The memory of a NUMA node.
    Node(u32),
    /// An emulated device.
    Emulated(String),
}

/// A word that does not name a shelf.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a shelf: file, dax:FOLDER, node:N or emulated:NAME")]
pub struct UnknownShelf {
    /// The word.
    pub name: String,
}

impl fmt::Display for IndexShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Dax(folder) => write!(f, "dax:{}", folder.display()),
            Self::Node(node) => write!(f, "node:{node}"),
            Self::Emulated(name) => write!(f, "emulated:{name}"),
        }
    }
}

impl FromStr for IndexShelf {
    type Err = UnknownShelf;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownShelf { name: name.into() };
        Ok(match name.split_once(':') {
            None if name == "file" => Self::File,
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
