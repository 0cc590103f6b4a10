//! Which files a path, folder or glob names, and what format each has.

use std::path::{Path, PathBuf};

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::ListingTableUrl;

use super::bad;
use super::file_format::FileFormat;
use crate::error::{Error, Result};

/// A file to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputFile {
    pub path: PathBuf,
    pub bytes: u64,
}

impl InputFile {
    /// The file as DataFusion addresses it. No character of the path is special.
    pub fn url(&self) -> Result<ListingTableUrl> {
        ListingTableUrl::parse(local_url(&self.path)?).map_err(Error::from_query)
    }
}

/// The URL of a local path. No character of the path is special.
pub(crate) fn local_url(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).map_err(Error::io("find", path))?;
    let text = absolute
        .to_str()
        .ok_or_else(|| bad(path, "its name is not valid UTF-8"))?;
    Ok(format!("file://{}", percent_encoded(text)))
}

fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                encoded.push(byte as char);
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The files that paths, folders and globs name, sorted within each.
pub(crate) fn find_files(inputs: &[String]) -> Result<Vec<InputFile>> {
    let mut files = Vec::new();
    for pattern in inputs {
        let before = files.len();
        for path in matching_paths(pattern)? {
            push_files(&path, &mut files)?;
        }
        if files.len() == before {
            return Err(Error::NoInput {
                pattern: pattern.clone(),
            });
        }
        files[before..].sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(files)
}

/// A path that exists means itself, whatever characters it has.
fn matching_paths(pattern: &str) -> Result<Vec<PathBuf>> {
    if Path::new(pattern).exists() {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let found = glob::glob(pattern).map_err(|error| Error::InvalidValue {
        what: "glob",
        value: pattern.to_owned(),
        expected: error.to_string(),
    })?;
    Ok(found.flatten().collect())
}

fn push_files(path: &Path, files: &mut Vec<InputFile>) -> Result<()> {
    let metadata = std::fs::metadata(path).map_err(Error::io("read", path))?;
    if metadata.is_dir() {
        let entries = std::fs::read_dir(path).map_err(Error::io("list", path))?;
        for entry in entries {
            let entry = entry.map_err(Error::io("list", path))?.path();
            if entry.is_file() {
                push_files(&entry, files)?;
            }
        }
    } else if metadata.is_file() {
        files.push(InputFile {
            path: path.to_owned(),
            bytes: metadata.len(),
        });
    } else {
        return Err(not_regular(path));
    }
    Ok(())
}

/// Pipes and devices have no length and cannot be read twice.
pub(crate) fn not_regular(path: &Path) -> Error {
    bad(
        path,
        "it is neither a file nor a folder; write its content into a file first",
    )
}

/// Refuses pipes and devices as external tables: they would seem empty.
pub(crate) fn check_locations(locations: &[String]) -> Result<()> {
    for path in locations.iter().map(Path::new) {
        match std::fs::metadata(path) {
            Ok(found) if !found.is_file() && !found.is_dir() => return Err(not_regular(path)),
            _ => {}
        }
    }
    Ok(())
}

/// What the ending of a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    pub format: FileFormat,
    /// The separator that the ending implies, for CSV.
    pub delimiter: u8,
}

/// The format that a file's name implies, compressed or not.
pub(crate) fn ending(path: &Path) -> Option<Ending> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let (packed, name) = match name.rsplit_once('.') {
        Some((stem, "gz" | "zst" | "bz2" | "xz")) => (true, stem.to_owned()),
        _ => (false, name),
    };
    let (_, ending) = name.rsplit_once('.')?;
    let format: FileFormat = ending.parse().ok()?;
    let text = matches!(format, FileFormat::Csv | FileFormat::Json);
    (text || !packed).then_some(Ending {
        format,
        delimiter: if ending == "tsv" { b'\t' } else { b',' },
    })
}

/// How a text file is compressed, by its name.
pub(crate) fn packing(path: &Path) -> FileCompressionType {
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("gz") => FileCompressionType::GZIP,
        Some("zst") => FileCompressionType::ZSTD,
        Some("bz2") => FileCompressionType::BZIP2,
        Some("xz") => FileCompressionType::XZ,
        _ => FileCompressionType::UNCOMPRESSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_imply_format_separator_and_compression() {
        let format =
            |name: &str| ending(Path::new(name)).map(|ending| (ending.format, ending.delimiter));
        assert_eq!(format("a/b.csv"), Some((FileFormat::Csv, b',')));
        assert_eq!(format("b.TSV"), Some((FileFormat::Csv, b'\t')));
        assert_eq!(format("b.tsv.gz"), Some((FileFormat::Csv, b'\t')));
        assert_eq!(format("b.jsonl.zst"), Some((FileFormat::Json, b',')));
        assert_eq!(format("b.parquet"), Some((FileFormat::Parquet, b',')));
        assert_eq!(format("b.parquet.gz"), None);
        assert_eq!(format("gz"), None);
        assert!(packing(Path::new("b.csv.gz")).is_compressed());
        assert!(!packing(Path::new("b.csv")).is_compressed());
    }

    #[test]
    fn a_path_with_glob_characters_means_itself_when_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x[1].csv", "x1.csv"] {
            std::fs::write(folder.path().join(name), "a\n1\n").unwrap();
        }
        let found = |name: &str| {
            let pattern = folder.path().join(name).to_string_lossy().into_owned();
            let files = find_files(&[pattern]).unwrap();
            let names = files.iter().map(|file| {
                file.path
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            });
            names.collect::<Vec<_>>()
        };
        assert_eq!(found("x[1].csv"), ["x[1].csv"]);
        assert_eq!(found("x?.csv"), ["x1.csv"]);
        assert_eq!(found("*.csv"), ["x1.csv", "x[1].csv"]);
    }
}
