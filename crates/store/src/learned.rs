//! What queries showed, for the next process: `learned` beside the catalog (`docs/FORMAT.md`).
//!
//! It only steers plans: a file that is damaged or of another database does not count, and none may be there. Nothing
//! waits for the disk: a power cut may cost what was learned, not more.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use hotshelf_tier::Corruption;

use crate::error::{Result, StoreError};
use crate::fields::{Fields, put_bytes, put_number, put_word};
use crate::root::Root;
use crate::store::Store;

const LEARNED: &str = "learned";
const LEARNED_TEMPORARY: &str = "learned.tmp";
const MAGIC: &[u8; 8] = b"HSLEARN1";
/// What is larger was not written as one.
const BYTES_MAX: u64 = 64 << 20;

/// What was written, unless there is nothing that counts.
pub fn read(store: &Store) -> Option<Vec<u8>> {
    let (root, database) = (store.root(), store.catalog().last().database);
    let path = root.join(LEARNED);
    let content = match file_bytes(root, &path)? {
        0..=BYTES_MAX => root
            .read(&path)
            .and_then(|bytes| Ok(decode(&path, &bytes, database)?)),
        bytes => Err(too_large(&path, bytes).into()),
    };
    content
        .inspect_err(|error| tracing::warn!(%error, "what queries showed before is not used"))
        .ok()
}

/// The length of a file. None if there is none: a pipe would be waited for.
fn file_bytes(root: &Root, path: &Path) -> Option<u64> {
    let found = root.real(path).metadata().ok();
    let found = found.filter(std::fs::Metadata::is_file)?;
    Some(found.len())
}

/// Writes it, unless the file has it already or the store is temporary or can only be read.
///
/// # Errors
/// The file cannot be written.
pub fn write(store: &Store, content: &[u8]) -> Result<()> {
    let (root, database) = (store.root(), store.catalog().last().database);
    if root.is_temporary() || root.is_read_only() {
        return Ok(());
    }
    replace(root, &encode(content, database))
}

fn replace(root: &Root, bytes: &[u8]) -> Result<()> {
    let [path, temporary]: [PathBuf; 2] = [LEARNED, LEARNED_TEMPORARY].map(|name| root.join(name));
    let is_as_long = file_bytes(root, &path) == Some(bytes.len() as u64);
    if is_as_long && root.read(&path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    // What is left there is not written to: it may be a pipe, or lead elsewhere.
    match std::fs::remove_file(root.real(&temporary)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(StoreError::io("remove", &temporary)(error));
        }
        _ => {}
    }
    let file = File::create_new(root.real(&temporary));
    let written = file.and_then(|mut file| file.write_all(bytes));
    written.map_err(StoreError::io("write", &temporary))?;
    let renamed = std::fs::rename(root.real(&temporary), root.real(&path));
    renamed.map_err(StoreError::io("rename", &temporary))
}

fn encode(content: &[u8], database: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put_number(&mut bytes, database);
    put_bytes(&mut bytes, content);
    let sum = crc32fast::hash(&bytes);
    put_word(&mut bytes, sum);
    bytes
}

fn decode(path: &Path, bytes: &[u8], database: u64) -> Result<Vec<u8>, Corruption> {
    let mut input = fields(path, bytes);
    if input.take(8)? != MAGIC {
        return Err(input.corrupt("a header 'HSLEARN1'", "other bytes"));
    }
    input.check_sum(bytes)?;
    let found = input.number()?;
    if found != database {
        let [expected, found] = [database, found].map(|number| format!("database {number:016x}"));
        return Err(input.corrupt(expected, found));
    }
    let content = input.bytes()?.to_vec();
    input.end()?;
    Ok(content)
}

fn fields<'a>(path: &'a Path, bytes: &'a [u8]) -> Fields<'a> {
    Fields::new(path, bytes, "what queries showed")
}

fn too_large(path: &Path, bytes: u64) -> Corruption {
    fields(path, &[]).corrupt(format!("at most {BYTES_MAX} bytes"), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_is_read_as_it_was_written_and_damage_is_noticed() {
        let (path, bytes) = (Path::new(LEARNED), encode(b"{\"queries\":{}}", 9));
        assert_eq!(decode(path, &bytes, 9), Ok(b"{\"queries\":{}}".to_vec()));
        assert!(decode(path, &bytes, 8).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(path, &damaged, 9).is_err() && decode(path, &bytes[..at], 9).is_err());
        }
    }

    #[test]
    fn pipes_are_not_waited_for_and_large_files_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&folder.path().join("db"), true).unwrap();
        let root = store.root();
        for name in [LEARNED, LEARNED_TEMPORARY] {
            let path = folder.path().join("db").join(name);
            drop(std::fs::remove_file(&path));
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.unwrap().success());
            write(&store, name.as_bytes()).unwrap();
            assert_eq!(read(&store).as_deref(), Some(name.as_bytes()));
        }
        let file = File::create(root.real(&root.join(LEARNED))).unwrap();
        file.set_len(BYTES_MAX + 1).unwrap();
        assert_eq!(read(&store), None);
        write(&store, b"less").unwrap();
        assert_eq!(read(&store).as_deref(), Some(&b"less"[..]));
    }

    #[test]
    fn a_store_reads_what_it_wrote_last() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(&folder.path().join("db"), true).unwrap();
        assert_eq!(read(&store), None);
        for content in [&b"first"[..], b"second", b""] {
            write(&store, content).unwrap();
            assert_eq!(read(&store).as_deref(), Some(content));
        }
    }
}
