//! Which tier to measure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::emulated::DeviceModel;
use crate::error::TierError;

/// A tier that can be measured, written `dram`, `file:DIR`, `dax:PATH`, `node:N` or `emulated:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeTarget {
    /// The machine's ordinary memory.
    Dram,
    /// Files in a folder.
    File(PathBuf),
    /// A folder on a DAX file system, or a devdax device.
    Dax(PathBuf),
    /// The memory of a NUMA node.
    Node(u32),
    /// An emulated device.
    Emulated(String),
}

impl FromStr for ProbeTarget {
    type Err = TierError;

    fn from_str(text: &str) -> Result<Self, TierError> {
        let wrong = || TierError::InvalidOption {
            option: "tier",
            value: text.to_owned(),
            expected: "dram, file:DIR, dax:PATH, node:N or emulated:NAME",
        };
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("dram", "") if !text.contains(':') => Ok(Self::Dram),
            ("file", path) if !path.is_empty() => Ok(Self::File(path.into())),
            ("dax", path) if !path.is_empty() => Ok(Self::Dax(path.into())),
            ("node", number) => number.parse().map(Self::Node).map_err(|_| wrong()),
            ("emulated", name) => DeviceModel::named(name).map(|model| Self::Emulated(model.name)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dram => write!(f, "dram"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Dax(path) => write!(f, "dax:{}", path.display()),
            Self::Node(number) => write!(f, "node:{number}"),
            Self::Emulated(name) => write!(f, "emulated:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_is_read_as_it_is_written_and_nonsense_is_explained() {
        for text in [
            "dram",
            "file:/data",
            "dax:/dev/dax0.0",
            "node:1",
            "emulated:optane100-128",
        ] {
            assert_eq!(text.parse::<ProbeTarget>().unwrap().to_string(), text);
        }
        for text in [
            "", "ram", "dram:", "dram:1", "file:", "node:", "node:-1", "node:x",
        ] {
            let error = text.parse::<ProbeTarget>().unwrap_err();
            assert!(error.to_string().contains("emulated:NAME"), "{error}");
        }
        assert!(
            "emulated:octane"
                .parse::<ProbeTarget>()
                .unwrap_err()
                .to_string()
                .contains("octane")
        );
    }
}
