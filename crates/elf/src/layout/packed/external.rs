//! Building from more rows than fit into memory: sorted runs on disk, then a merge.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{ElfError, Result};
use crate::keys::{CodeTable, ColumnEncoding};
use crate::rows::{Merger, RowShape, RowStream, for_each_parallel};

use super::PackedOptions;
use super::stream::{SortedSource, build_into, io_error};

/// How an external build uses memory and disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalOptions {
    /// What to build.
    pub packed: PackedOptions,
    /// Bytes of rows collected before they are sorted and written as a run. The head under construction
    /// comes on top: about a hundredth of the rows.
    pub buffer_bytes: usize,
    /// An existing directory for run files, which are removed again. Nobody else may use it.
    pub run_dir: PathBuf,
}

/// Takes rows in any order, chunk by chunk, and builds an Elf file of them.
#[derive(Debug)]
pub struct ExternalBuilder {
    options: ExternalOptions,
    shape: RowShape,
    code_max: Vec<u32>,
    rows: Vec<u64>,
    runs: Vec<RunFile>,
}

/// A run on disk, removed when dropped.
#[derive(Debug)]
struct RunFile {
    path: PathBuf,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // Nothing better can be done here; whoever owns the directory sweeps it.
        let _ = fs::remove_file(&self.path);
    }
}

impl ExternalBuilder {
    /// A builder for rows with codes up to `code_max` in each dimension. The file is that of an in-memory
    /// build whose [`PackedOptions::code_max`] is the same.
    ///
    /// # Errors
    /// When the number of dimensions is unsupported.
    pub fn new(code_max: Vec<u32>, options: ExternalOptions) -> Result<Self> {
        if code_max.is_empty() || code_max.len() > crate::keys::DIMENSION_COUNT_MAX {
            let (found, max) = (code_max.len(), crate::keys::DIMENSION_COUNT_MAX);
            return Err(ElfError::DimensionCount { found, max });
        }
        let shape = RowShape::new(&code_max, u32::MAX);
        Ok(Self {
            options,
            shape,
            code_max,
            rows: Vec::new(),
            runs: Vec::new(),
        })
    }

    /// Adds rows with their TIDs, which must be distinct over all chunks.
    ///
    /// # Errors
    /// When the chunk has other dimensions or larger codes, or a run cannot be written.
    pub fn add(&mut self, chunk: &CodeTable) -> Result<()> {
        let expected = self.code_max.len();
        if chunk.dimension_count() != expected {
            return Err(ElfError::DimensionMismatch {
                expected,
                found: chunk.dimension_count(),
            });
        }
        for (dimension, (column, &max)) in chunk.columns().iter().zip(&self.code_max).enumerate() {
            let code = column.max();
            if code > max {
                return Err(ElfError::CodeTooLarge {
                    dimension,
                    code,
                    max,
                });
            }
        }
        let word_count = self.shape.word_count();
        for row in 0..chunk.row_count() {
            let at = self.rows.len();
            self.rows.resize(at + word_count, 0);
            let codes = chunk.columns().iter().map(|column| column.get(row));
            self.shape.pack(codes, chunk.tid(row), &mut self.rows[at..]);
            if self.rows.len() * 8 >= self.options.buffer_bytes.max(word_count * 8) {
                self.write_runs()?;
            }
        }
        Ok(())
    }

    /// Sorts what is collected, in one part per thread, and writes each part as a run.
    fn write_runs(&mut self) -> Result<()> {
        let word_count = self.shape.word_count();
        let row_count = self.rows.len() / word_count;
        let share = row_count
            .div_ceil(self.options.packed.thread_count.max(1))
            .max(1);
        let mut rows = std::mem::take(&mut self.rows);
        let mut results: Vec<Result<()>> = Vec::new();
        let first = self.runs.len();
        for idx in 0..rows.chunks(share * word_count).len() {
            let path = self
                .options
                .run_dir
                .join(format!("run-{}.tmp", first + idx));
            self.runs.push(RunFile { path });
            results.push(Ok(()));
        }
        let parts = rows
            .chunks_mut(share * word_count)
            .zip(&self.runs[first..])
            .zip(&mut results);
        for_each_parallel(
            self.options.packed.thread_count,
            parts.collect(),
            |((rows, run), result)| {
                sort_rows(rows, word_count);
                *result = write_run(&run.path, rows);
            },
        );
        rows.clear();
        self.rows = rows;
        results.into_iter().collect()
    }

    /// Writes the Elf of all rows to `path`, overwriting it, and syncs it. `encodings` are kept in the file,
    /// one per dimension, or none.
    ///
    /// # Errors
    /// When runs cannot be written or read back, or the file cannot be written.
    pub fn finish(mut self, path: &Path, encodings: &[ColumnEncoding]) -> Result<()> {
        self.write_runs()?;
        self.rows = Vec::new();
        build_into(path, &self.shape, &self.options.packed, encodings, &self)
    }
}

impl SortedSource for ExternalBuilder {
    fn for_each(&self, visit: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<()> {
        let buffer_bytes =
            (self.options.buffer_bytes / self.runs.len().max(1)).clamp(1 << 12, 1 << 20);
        let paths = self.runs.iter().map(|run| run.path.as_path());
        let streams = paths
            .map(|path| RunReader::open(path, buffer_bytes))
            .collect::<Result<Vec<_>>>()?;
        Merger::new(streams, self.shape.word_count())?.for_each(visit)
    }
}

/// Sorts rows of `word_count` words each.
fn sort_rows(rows: &mut [u64], word_count: usize) {
    match word_count {
        1 => rows.sort_unstable(),
        2 => rows.as_chunks_mut::<2>().0.sort_unstable(),
        3 => rows.as_chunks_mut::<3>().0.sort_unstable(),
        4 => rows.as_chunks_mut::<4>().0.sort_unstable(),
        _ => {
            let mut order: Vec<&[u64]> = rows.chunks(word_count).collect();
            order.sort_unstable();
            let sorted = order.concat();
            rows.copy_from_slice(&sorted);
        }
    }
}

fn write_run(path: &Path, rows: &[u64]) -> Result<()> {
    let file = File::create(path).map_err(io_error(path, "create"))?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    super::file::write_words(rows, &mut out).map_err(io_error(path, "write"))?;
    out.flush().map_err(io_error(path, "write"))
}

/// Reads a run.
struct RunReader<'a> {
    path: &'a Path,
    input: BufReader<File>,
    /// Bytes not yet read.
    left: u64,
}

impl<'a> RunReader<'a> {
    fn open(path: &'a Path, buffer_bytes: usize) -> Result<Self> {
        let file = File::open(path).map_err(io_error(path, "open"))?;
        let left = file.metadata().map_err(io_error(path, "inspect"))?.len();
        Ok(Self {
            path,
            input: BufReader::with_capacity(buffer_bytes, file),
            left,
        })
    }
}

impl RowStream for RunReader<'_> {
    fn next_into(&mut self, row: &mut [u64]) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        for word in row.iter_mut() {
            let mut bytes = [0; 8];
            self.input
                .read_exact(&mut bytes)
                .map_err(io_error(self.path, "read"))?;
            *word = u64::from_le_bytes(bytes);
        }
        self.left = self.left.saturating_sub(row.len() as u64 * 8);
        Ok(true)
    }
}
