//! Schemas and views beside the data, `data/NAMES`: for the day the catalog is lost.

use std::path::{Path, PathBuf};

use hotshelf_tier::Corruption;

use crate::catalog::entries::Names;
use crate::error::{Result, StoreError};
use crate::fields::{Fields, put_bytes, put_word};
use crate::root::Root;

/// Its name in the data folder.
pub(crate) const NAMES: &str = "NAMES";
/// While it is being replaced.
pub(crate) const NAMES_TEMPORARY: &str = "NAMES.tmp";
const MAGIC: &[u8; 8] = b"HSNAMES1";

fn path(root: &Root) -> PathBuf {
    root.data().join(NAMES)
}

fn encode(names: &Names) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put_word(&mut bytes, names.schemas.len() as u32);
    for schema in &names.schemas {
        put_bytes(&mut bytes, schema.as_bytes());
    }
    put_word(&mut bytes, names.views.len() as u32);
    for (name, sql) in &names.views {
        put_bytes(&mut bytes, name.as_bytes());
        put_bytes(&mut bytes, sql.as_bytes());
    }
    let sum = crc32fast::hash(&bytes);
    put_word(&mut bytes, sum);
    bytes
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Names, Corruption> {
    let mut input = Fields::new(path, bytes, "schemas and views");
    if input.take(8)? != MAGIC {
        return Err(input.corrupt("a header 'HSNAMES1'", "other bytes"));
    }
    input.check_sum(bytes)?;
    let mut names = Names::default();
    for _ in 0..input.word()? {
        names.schemas.insert(input.text()?);
    }
    for _ in 0..input.word()? {
        names.views.insert(input.text()?, input.text()?);
    }
    input.end()?;
    Ok(names)
}

/// Reads the file; a database without schemas and views may have none.
pub(crate) fn read(root: &Root) -> Result<Names> {
    let path = path(root);
    match root.exists(&path) {
        true => Ok(decode(&path, &root.read(&path)?)?),
        false => Ok(Names::default()),
    }
}

/// Writes the file unless it exists and is right.
pub(crate) fn ensure(root: &Root, names: &Names) -> Result<()> {
    let is_as_it_should_be = match read(root) {
        Ok(found) => found == *names,
        Err(StoreError::Io { .. } | StoreError::Corruption(_)) => false,
        Err(other) => return Err(other),
    };
    let temporary = root.data().join(NAMES_TEMPORARY);
    if is_as_it_should_be && !root.exists(&temporary) {
        return Ok(());
    }
    root.write_synced(&temporary, &encode(names))?;
    root.rename(&temporary, &path(root))?;
    root.sync_folder(&root.data())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written_and_damage_is_noticed() {
        let mut names = Names::default();
        names.schemas.insert("s".into());
        names
            .views
            .insert("s.v".into(), "CREATE VIEW s.v AS SELECT 1".into());
        let bytes = encode(&names);
        let path = Path::new("NAMES");
        assert_eq!(decode(path, &bytes), Ok(names));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(path, &damaged).is_err() && decode(path, &bytes[..at]).is_err());
        }
    }
}
