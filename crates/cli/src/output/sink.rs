//! The bytes' last step: standard output, or a file that gets its name when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Target;
use crate::failure::{Failure, Result};
use crate::interrupt::AtSignal;

/// Whether the reader of standard output has gone. Formats wrap the error beyond recognition, so it is noted
/// where it happens.
#[derive(Debug, Clone, Default)]
pub(super) struct Broken(Arc<AtomicBool>);

impl Broken {
    /// The broken pipe, if that is the cause of `failure`.
    pub fn or(&self, failure: Failure) -> Failure {
        if self.0.load(Ordering::Relaxed) {
            Failure::BrokenPipe
        } else {
            failure
        }
    }
}

/// Buffered bytes to one place.
pub(super) struct Sink {
    writer: BufWriter<Watched>,
    file: Option<NewFile>,
}

impl Sink {
    pub fn open(target: Target) -> Result<Self> {
        let broken = Broken::default();
        let (inner, file): (Box<dyn Write + Send>, _) = match target {
            Target::Stdout => {
                check_stdout()?;
                (Box::new(io::stdout()), None)
            }
            Target::File(path) => {
                let (file, new) = NewFile::create(path)?;
                (Box::new(file), new)
            }
        };
        let writer = BufWriter::with_capacity(1 << 16, Watched { inner, broken });
        Ok(Self { writer, file })
    }

    pub fn broken(&self) -> Broken {
        self.writer.get_ref().broken.clone()
    }

    pub fn flush_all(&mut self) -> Result<()> {
        let flushed = self.writer.flush();
        flushed.map_err(|source| self.failure(source))
    }

    pub fn close(mut self) -> Result<()> {
        self.flush_all()?;
        match self.file.take() {
            Some(file) => file.publish(),
            None => Ok(()),
        }
    }

    /// What failed writing means.
    pub fn failure(&self, source: io::Error) -> Failure {
        let path = self.file.as_ref().map(|file| file.path.as_path());
        let path = path.unwrap_or(Path::new("standard output"));
        self.broken().or(Failure::io("write", path)(source))
    }
}

/// Fails if the program was started without a standard output.
pub(super) fn check_stdout() -> Result<()> {
    match hotshelf::host::standard_output_was_closed() {
        true => Err(Failure::NoStdout),
        false => Ok(()),
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

struct Watched {
    inner: Box<dyn Write + Send>,
    broken: Broken,
}

impl Watched {
    fn watch<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                self.broken.0.store(true, Ordering::Relaxed);
            }
        })
    }
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.inner.write(bytes);
        self.watch(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.inner.flush();
        self.watch(done)
    }
}

/// A file under a temporary name, removed unless published.
struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    _at_signal: AtSignal,
}

impl NewFile {
    /// Opens the file to write to; a device or pipe is written to directly.
    fn create(path: PathBuf) -> Result<(File, Option<Self>)> {
        if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            let file = File::options().write(true).open(&path);
            return Ok((file.map_err(Failure::io("open", &path))?, None));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(Failure::io("create", &path))?;
        let unfinished = temporary.clone();
        let at_signal = AtSignal::new(move |_| {
            std::fs::remove_file(unfinished).ok();
        });
        let new = Self {
            path,
            temporary,
            _at_signal: at_signal,
        };
        Ok((file, Some(new)))
    }

    fn publish(self) -> Result<()> {
        std::fs::rename(&self.temporary, &self.path).map_err(Failure::io("create", &self.path))
    }
}

impl Drop for NewFile {
    /// After publishing there is nothing under the temporary name and removal fails, which is fine.
    fn drop(&mut self) {
        std::fs::remove_file(&self.temporary).ok();
    }
}
