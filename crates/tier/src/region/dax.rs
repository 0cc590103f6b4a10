//! Mapping persistent memory: files on a DAX file system with MAP_SYNC, and devdax character devices.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use rustix::io::Errno;
use rustix::mm::MapFlags;

use super::Durability;
use super::mapping::Mapping;
use crate::error::TierError;
use crate::topology::PersistenceDomain;

/// What the kernel answers when a file cannot be mapped with MAP_SYNC: no DAX, or a kernel that does not know it.
const NO_SYNC: [Errno; 2] = [Errno::OPNOTSUPP, Errno::INVAL];

/// How MAP_SYNC was answered.
pub(super) enum SyncAnswer {
    Mapped(Mapping),
    Refused(File),
}

/// Tries to map with MAP_SYNC: then a store is on the device as soon as its line is flushed, metadata included.
pub(super) fn map_sync(
    file: File,
    path: &Path,
    len_bytes: usize,
    writable: bool,
) -> Result<SyncAnswer, TierError> {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    match Mapping::file(file, path, len_bytes, writable, flags) {
        Ok(mapping) => Ok(SyncAnswer::Mapped(mapping)),
        Err((file, errno)) if NO_SYNC.contains(&errno) => Ok(SyncAnswer::Refused(file)),
        Err((_, errno)) => Err(TierError::io(path, "map", errno.into())),
    }
}

/// The persistence domain under the file system with this device number.
pub(super) fn domain_of_block_device(device: u64) -> PersistenceDomain {
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let found = fs::canonicalize(link)
        .ok()
        .and_then(|path| nd_region(&path));
    found.map_or(PersistenceDomain::Unknown, |region| domain(&region))
}

/// What sysfs says about a devdax device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DevDax {
    pub(super) size_bytes: u64,
    pub(super) align_bytes: u64,
    pub(super) durability: Durability,
}

/// Looks a character device up; `None` if it is not a devdax device.
pub(super) fn dev_dax(found: &Metadata) -> Option<DevDax> {
    let device = found.rdev();
    let link = format!("/sys/dev/char/{}:{}", major(device), minor(device));
    dev_dax_at(&fs::canonicalize(link).ok()?)
}

fn dev_dax_at(folder: &Path) -> Option<DevDax> {
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse().ok()
    };
    let name = folder.file_name()?.to_str()?;
    let size_bytes = number("size").filter(|_| name.starts_with("dax"))?;
    // Memory that no NVDIMM driver announces (a CXL expander's volatile range) keeps nothing without power.
    let durability = nd_region(folder).map_or(Durability::Volatile, |region| {
        Durability::FlushDomain(domain(&region))
    });
    Some(DevDax {
        size_bytes,
        align_bytes: number("align").unwrap_or(2 << 20).max(1),
        durability,
    })
}

/// The ancestor folder that is an NVDIMM region.
fn nd_region(device: &Path) -> Option<PathBuf> {
    let region = |folder: &&Path| folder.join("persistence_domain").is_file();
    device.ancestors().find(region).map(Path::to_path_buf)
}

fn domain(region: &Path) -> PersistenceDomain {
    let text = fs::read_to_string(region.join("persistence_domain")).unwrap_or_default();
    PersistenceDomain::from_sysfs(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(folders: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(folders);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(root.path().join(name), text).unwrap();
        }
        (root, folder)
    }

    #[test]
    fn devdax_under_an_nvdimm_region_is_durable_by_flushing() {
        let files = [
            ("ndbus0/region0/persistence_domain", "cpu_cache\n"),
            ("ndbus0/region0/dax0.1/dax/dax0.0/size", "4194304\n"),
            ("ndbus0/region0/dax0.1/dax/dax0.0/align", "2097152\n"),
        ];
        let (_root, folder) = device("ndbus0/region0/dax0.1/dax/dax0.0", &files);
        let found = dev_dax_at(&folder).unwrap();
        assert_eq!((found.size_bytes, found.align_bytes), (4 << 20, 2 << 20));
        let expected = Durability::FlushDomain(PersistenceDomain::CpuCache);
        assert_eq!(found.durability, expected);
    }

    #[test]
    fn devdax_outside_any_nvdimm_region_is_volatile() {
        let files = [("cxl/region0/dax_region0/dax1.0/size", "4194304\n")];
        let (_root, folder) = device("cxl/region0/dax_region0/dax1.0", &files);
        assert_eq!(
            dev_dax_at(&folder).unwrap().durability,
            Durability::Volatile
        );
    }

    #[test]
    fn other_character_devices_are_no_devdax() {
        let null = fs::metadata("/dev/null").unwrap();
        assert_eq!(dev_dax(&null), None);
        assert!(!crate::region::Region::is_devdax(Path::new("/dev/null")).unwrap());
    }
}
