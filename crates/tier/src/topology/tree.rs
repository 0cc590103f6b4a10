//! A recorded piece of a sysfs-like directory tree: paths and the text found there.
//!
//! Recording is apart from understanding, so that the tree of any machine can be kept as a small text file and parsed
//! again in a test. A recorded tree has one line per file, `path<TAB>content`; symbolic links are recorded as the
//! path they name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Files longer than this are not recorded: everything sysfs says about topology is shorter.
const FILE_BYTES_MAX: usize = 16 * 1024;

/// What the topology is made from, relative to the root of the file system. `*` stands for any part of one name.
const RECORDED_PATHS: &[&str] = &[
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/node/node*/distance",
    "sys/devices/system/node/node*/meminfo",
    "sys/devices/system/node/node*/access*/initiators/read_latency",
    "sys/devices/system/node/node*/access*/initiators/write_latency",
    "sys/devices/system/node/node*/access*/initiators/read_bandwidth",
    "sys/devices/system/node/node*/access*/initiators/write_bandwidth",
    "sys/devices/system/cpu/cpu*/topology/physical_package_id",
    "sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
    "sys/devices/system/cpu/cpu*/cache/index*/level",
    "sys/devices/system/cpu/cpu*/cache/index*/type",
    "sys/devices/system/cpu/cpu*/cache/index*/size",
    "sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_list",
    "sys/devices/system/cpu/cpu*/cache/index*/coherency_line_size",
    "sys/devices/virtual/memory_tiering/memory_tier*/nodelist",
    "sys/bus/dax/devices/dax*/size",
    "sys/bus/dax/devices/dax*/align",
    "sys/bus/dax/devices/dax*/target_node",
    "sys/bus/dax/devices/dax*/driver",
    "sys/bus/nd/devices/region*/persistence_domain",
    "sys/bus/nd/devices/region*/size",
    "sys/bus/nd/devices/namespace*/mode",
    "sys/bus/nd/devices/namespace*/size",
    "sys/bus/nd/devices/namespace*/numa_node",
    "sys/block/pmem*/device",
    "sys/block/pmem*/size",
    "sys/block/pmem*/dev",
    "sys/block/pmem*/queue/dax",
    "sys/bus/cxl/devices/region*/size",
    "sys/bus/cxl/devices/region*/mode",
    "sys/bus/cxl/devices/region*/interleave_ways",
    "sys/bus/cxl/devices/mem*/ram/size",
    "sys/bus/cxl/devices/mem*/pmem/size",
    "sys/bus/cxl/devices/mem*/numa_node",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/numa/demotion_enabled",
    "proc/cpuinfo",
    "proc/sys/kernel/osrelease",
];

/// Paths and their texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Records everything the topology needs below `root` (`/` for the running machine). What is missing or
    /// unreadable is left out.
    pub fn record(root: &Path) -> Self {
        let mut tree = Self::default();
        for pattern in RECORDED_PATHS {
            let parts: Vec<&str> = pattern.split('/').collect();
            tree.record_matching(root, String::new(), &parts);
        }
        tree
    }

    /// A tree that was recorded as lines `path<TAB>content`, line breaks inside a content written as `\n`. Lines
    /// without a tab are skipped.
    pub fn from_text(text: &str) -> Self {
        let files = text
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(path, content)| (path.to_owned(), content.replace("\\n", "\n")))
            .collect();
        Self { files }
    }

    #[cfg(test)]
    /// One line per file, `path<TAB>content`, line breaks inside a content written as `\n`.
    pub fn to_text(&self) -> String {
        self.files
            .iter()
            .map(|(path, content)| format!("{path}\t{}\n", content.replace('\n', "\\n")))
            .collect()
    }

    /// The text at `path`, without surrounding white space.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|content| content.trim())
    }

    /// The number at `path`, decimal or with `0x`.
    pub fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// The names directly below `folder` that consist of `prefix` and a number, ordered by that number.
    pub fn names(&self, folder: &str, prefix: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .files
            .keys()
            .filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'))
            .filter_map(|rest| rest.split('/').next())
            .filter(|name| {
                let number = name.strip_prefix(prefix);
                number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            })
            .collect();
        names.dedup();
        names.sort_by_key(|name| (leading_number(&name[prefix.len()..]), *name));
        names
    }

    fn record_matching(&mut self, root: &Path, done: String, parts: &[&str]) {
        let Some((part, rest)) = parts.split_first() else {
            if let Some(content) = content_of(&root.join(&done)) {
                self.files.insert(done, content);
            }
            return;
        };
        let join = |name: &str| match done.is_empty() {
            true => name.to_owned(),
            false => format!("{done}/{name}"),
        };
        let Some((before, after)) = part.split_once('*') else {
            return self.record_matching(root, join(part), rest);
        };
        let Ok(entries) = fs::read_dir(root.join(&done)) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let middle = name
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after));
            if middle.is_some_and(|middle| middle.starts_with(|c: char| c.is_ascii_digit())) {
                self.record_matching(root, join(&name), rest);
            }
        }
    }
}

/// A file's text, or the path a link to a directory names.
fn content_of(path: &Path) -> Option<String> {
    if path.is_dir() {
        return fs::read_link(path)
            .ok()
            .map(|target| target.to_string_lossy().into_owned());
    }
    let bytes = fs::read(path).ok()?;
    let kept = &bytes[..bytes.len().min(FILE_BYTES_MAX)];
    Some(String::from_utf8_lossy(kept).into_owned())
}

fn leading_number(text: &str) -> u64 {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().unwrap_or(u64::MAX)
}
