//! The files of the checkout.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that make the product. The others are for measuring and testing it.
pub const PRODUCT: &[&str] = &[
    "tier",
    "cache",
    "elf",
    "store",
    "operators",
    "hotshelf",
    "datagen",
    "cli",
];

/// A text file of the checkout.
pub struct TextFile {
    /// From the root of the checkout, with slashes.
    pub path: String,
    pub text: String,
}

impl TextFile {
    /// The crate that the file belongs to, as its folder is called.
    pub fn crate_name(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the checkout exists")
}

/// The folders in `crates`, sorted.
pub fn crates() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).expect("there are crates");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a readable entry"))
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The files of this extension in these folders and below, sorted. Folders that do not exist have none.
pub fn files(folders: &[String], extension: &str) -> Vec<TextFile> {
    let root = root();
    let mut paths = Vec::new();
    for folder in folders {
        collect(&root.join(folder), extension, &mut paths);
    }
    paths.sort();
    let read = |path: &PathBuf| TextFile {
        path: path
            .strip_prefix(&root)
            .expect("below the root")
            .to_string_lossy()
            .replace('\\', "/"),
        text: fs::read_to_string(path).expect("readable text"),
    };
    paths.iter().map(read).collect()
}

/// The Rust files of these parts of every crate, for example `src`.
pub fn rust_files(parts: &[&str]) -> Vec<TextFile> {
    let folders: Vec<String> = crates()
        .iter()
        .flat_map(|name| {
            let folder = |part: &&str| format!("crates/{name}/{part}");
            parts.iter().map(folder).collect::<Vec<_>>()
        })
        .collect();
    files(&folders, "rs")
}

fn collect(folder: &Path, extension: &str, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            collect(&path, extension, paths);
        } else if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
}
