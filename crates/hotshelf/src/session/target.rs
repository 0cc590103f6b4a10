//! The target of COPY … TO: rows go into a temporary folder above it, and under its own name only when all are written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::dml::CopyTo;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::input::files::local_url;

/// DataFusion's option of COPY that says whether the target is a file or a folder.
pub(super) const SINGLE_FILE: &str = "single_file_output";

/// Where the rows go in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    path: PathBuf,
    is_file: bool,
}

impl Target {
    /// The local file or folder that a COPY names; `None` for other places.
    pub fn of(copy: &CopyTo) -> Result<Option<Self>> {
        let name = copy
            .output_url
            .strip_prefix("file://")
            .unwrap_or(&copy.output_url);
        if name.contains("://") {
            return Ok(None);
        }
        let given = std::path::absolute(name).map_err(Error::io("find", Path::new(name)))?;
        let chosen = copy
            .options
            .get(SINGLE_FILE)
            .and_then(|value| value.trim().parse().ok());
        let looks_like_file = copy.partition_by.is_empty()
            && !name.ends_with('/')
            && given.extension().is_some()
            && !given.is_dir();
        let target = Self {
            is_file: chosen.unwrap_or(looks_like_file),
            path: behind_links(given)?,
        };
        target.check().map(|()| Some(target))
    }

    /// Gives the written file what the owner of the replaced one allowed.
    fn keep_permissions(&self, written: &Path) -> Result<()> {
        match std::fs::metadata(&self.path) {
            Ok(found) if self.is_file => std::fs::set_permissions(written, found.permissions())
                .map_err(Error::io("set the permissions of", written)),
            _ => Ok(()),
        }
    }

    /// The nearest folder above the target that exists. Those between are made with the target.
    fn existing_folder(&self) -> Option<&Path> {
        let mut above = self.path.ancestors().skip(1);
        above.find(|folder| folder.exists())
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: &str| Error::BadTarget {
            path: self.path.clone(),
            what: what.to_owned(),
        };
        let folder = self
            .existing_folder()
            .ok_or_else(|| refuse("it cannot be a file"))?;
        if !folder.is_dir() {
            return Err(refuse(&format!("{} is not a folder", folder.display())));
        }
        match std::fs::metadata(&self.path) {
            Err(_) => Ok(()),
            Ok(found) if self.is_file && found.is_dir() => Err(refuse("it is a folder")),
            Ok(found) if !self.is_file && !found.is_dir() => Err(refuse("it is not a folder")),
            Ok(found) if !found.is_dir() && !found.is_file() => {
                Err(refuse("it is not a regular file"))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// The path that symbolic links lead to.
fn behind_links(path: PathBuf) -> Result<PathBuf> {
    match path.is_symlink() && path.exists() {
        true => path.canonicalize().map_err(Error::io("find", &path)),
        false => Ok(path),
    }
}

/// How the names of temporary folders begin.
const PREFIX: &str = ".hotshelf-copy-";

/// Removes the temporary folders of processes that were killed: those that are not locked.
fn sweep(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for folder in folders.map(|entry| entry.path()) {
        let Ok(held) = File::open(&folder) else {
            continue;
        };
        if held.try_lock().is_ok() && folder.is_dir() {
            tracing::info!(folder = %folder.display(), "removing the files of a killed COPY");
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}

/// A COPY that is short of memory begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    First,
    Second,
}

/// The temporary folder that the rows are written into, each run's into its own part. It is removed when this is
/// dropped.
pub(super) struct Unfinished {
    folder: PathBuf,
    target: Target,
    /// Whether the second run has begun: what the first one wrote does not count then, even if a task of it goes on
    /// writing.
    is_second: AtomicBool,
    /// Held as long as the folder is in use.
    _lock: File,
}

impl Unfinished {
    pub fn create(target: Target) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "{PREFIX}{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let place = target.existing_folder().unwrap_or(Path::new("/"));
        sweep(place);
        let folder = place.join(name);
        std::fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
        let lock = File::open(&folder).map_err(Error::io("open", &folder))?;
        lock.lock().map_err(Error::io("lock", &folder))?;
        let unfinished = Self {
            folder,
            target,
            is_second: AtomicBool::new(false),
            _lock: lock,
        };
        unfinished.create_part(Run::First)?;
        Ok(unfinished)
    }

    /// Gives up what the first run wrote.
    pub fn begin_again(&self) -> Result<()> {
        let first = self.part(Run::First);
        if let Err(error) = std::fs::remove_dir_all(&first) {
            tracing::warn!(folder = %first.display(), %error, "cannot remove what the first run of a COPY wrote");
        }
        self.create_part(Run::Second)?;
        self.is_second.store(true, Ordering::Release);
        Ok(())
    }

    fn part(&self, run: Run) -> PathBuf {
        self.folder.join(match run {
            Run::First => "first",
            Run::Second => "second",
        })
    }

    fn create_part(&self, run: Run) -> Result<()> {
        let part = self.part(run);
        std::fs::create_dir(&part).map_err(Error::io("create", &part))
    }

    /// The file or folder that a run writes.
    fn written(&self, run: Run) -> PathBuf {
        let name = self.target.path.file_name().unwrap_or_default();
        self.part(run).join(name)
    }

    /// Whether the rows become one file.
    pub fn is_file(&self) -> bool {
        self.target.is_file
    }

    /// What DataFusion writes in a run: a file of the target's name, or the folder.
    pub fn url(&self, run: Run) -> Result<String> {
        let url = local_url(&self.written(run))?;
        Ok(if self.target.is_file {
            url
        } else {
            format!("{url}/")
        })
    }

    /// Gives what was written its final place.
    fn publish(&self) -> Result<()> {
        let run = match self.is_second.load(Ordering::Acquire) {
            true => Run::Second,
            false => Run::First,
        };
        let written = self.written(run);
        if let Some(above) = self.target.path.parent() {
            std::fs::create_dir_all(above).map_err(Error::io("create", above))?;
        }
        // No rows make no files in a folder.
        if !written.exists() && !self.target.is_file {
            return std::fs::create_dir_all(&self.target.path)
                .map_err(Error::io("create", &self.target.path));
        }
        self.target.keep_permissions(&written)?;
        move_into(&written, &self.target.path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "cannot remove the temporary folder of a COPY");
        }
    }
}

/// Renames a file or folder; what is in a folder joins what the target folder has.
fn move_into(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() || !to.is_dir() {
        return std::fs::rename(from, to).map_err(Error::io("write", to));
    }
    for entry in std::fs::read_dir(from)
        .map_err(Error::io("list", from))?
        .flatten()
    {
        move_into(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// The stream, whose last step is publishing.
pub(super) fn published(
    batches: SendableRecordBatchStream,
    unfinished: Arc<Unfinished>,
) -> SendableRecordBatchStream {
    let schema = batches.schema();
    let done = async move {
        // In this order: nothing writes any more when the folder is removed.
        let rows: Vec<_> = { batches }.try_collect().await?;
        unfinished.publish()?;
        Ok::<_, DataFusionError>(futures::stream::iter(rows.into_iter().map(Ok)))
    };
    let stream = futures::stream::once(done).try_flatten();
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}
