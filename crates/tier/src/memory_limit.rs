//! How much memory this process may use: what the machine has, or less if a control group says so.

use std::path::Path;

/// Bytes that the process may use.
pub fn memory_limit_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let physical = machine.totalram as u64 * u64::from(machine.mem_unit.max(1));
    control_group_bytes(Path::new("/")).map_or(physical, |limit| limit.min(physical))
}

/// The least limit of the process's memory control group and of those it is in; `None` without one.
fn control_group_bytes(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().flat_map(|line| limits_of(root, line));
    limits.min()
}

/// The limits along one line of `/proc/self/cgroup`: `number:controllers:path`.
fn limits_of(root: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        names if names.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let mount = root.join(mount);
    let folder = mount.join(group.trim_start_matches('/'));
    let above = folder
        .ancestors()
        .take_while(|folder| folder.starts_with(&mount));
    // `max` is not a number: there is no limit.
    above
        .filter_map(|folder| std::fs::read_to_string(folder.join(file)).ok())
        .filter_map(|text| text.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        control_group_bytes(root.path())
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let found = limit(&[
            ("proc/self/cgroup", "0::/system/job\n"),
            ("sys/fs/cgroup/system/job/memory.max", "max\n"),
            ("sys/fs/cgroup/system/memory.max", "800000000\n"),
            ("sys/fs/cgroup/other/memory.max", "5\n"),
        ]);
        assert_eq!(found, Some(800_000_000));
    }

    #[test]
    fn the_older_kind_of_groups_counts_too() {
        let found = limit(&[
            (
                "proc/self/cgroup",
                "9:cpu,cpuacct:/a\n4:memory:/job\n0::/\n",
            ),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "512\n"),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ]);
        assert_eq!(found, Some(512));
    }

    #[test]
    fn without_groups_there_is_no_limit() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[("proc/self/cgroup", "nonsense\n0::/x\n")]), None);
        assert!(memory_limit_bytes() > 0);
    }
}
