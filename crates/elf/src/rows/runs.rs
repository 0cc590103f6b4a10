//! Sorted runs of packed rows in files, and the rows of several runs in one order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use super::SortedRows;

/// Bytes read of a run at a time, at least.
const READ_BYTES_MIN: usize = 1 << 13;
/// And at most: enough for a volume's full speed.
const READ_BYTES_MAX: usize = 1 << 20;
/// Rows are written through a buffer of this size.
const WRITE_BYTES: usize = 1 << 18;

/// Rows in order, in a file of its own.
#[derive(Debug)]
pub(crate) struct Run {
    file: File,
    byte_count: u64,
}

/// Writes a run.
pub(crate) struct RunWriter {
    out: BufWriter<File>,
    byte_count: u64,
}

impl RunWriter {
    /// A run in an empty file.
    pub fn new(file: File) -> Self {
        Self {
            out: BufWriter::with_capacity(WRITE_BYTES, file),
            byte_count: 0,
        }
    }

    /// Adds the next row.
    #[inline]
    pub fn add(&mut self, row: &[u64]) -> io::Result<()> {
        for word in row {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.byte_count += row.len() as u64 * 8;
        Ok(())
    }

    /// The run, ready to be read.
    pub fn finish(self) -> io::Result<Run> {
        let file = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok(Run {
            file,
            byte_count: self.byte_count,
        })
    }
}

impl Run {
    /// Writes sorted rows.
    pub fn write(rows: &SortedRows, file: File) -> io::Result<Self> {
        let word_count = rows.shape().word_count();
        let mut out = RunWriter::new(file);
        for row in 0..rows.row_count() {
            out.add(&rows.row(row)[..word_count])?;
        }
        out.finish()
    }

    /// Its rows of this many words, read through a buffer of about this size.
    pub fn reader(&self, word_count: usize, buffer_bytes: usize) -> RunReader<'_> {
        let row_bytes = word_count * 8;
        let buffer_bytes = buffer_bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        RunReader {
            run: self,
            offset: 0,
            buffer: vec![0; (buffer_bytes / row_bytes).max(1) * row_bytes],
            filled: 0,
            at: 0,
        }
    }
}

/// Reads a run from its beginning.
pub(crate) struct RunReader<'a> {
    run: &'a Run,
    /// Where the bytes after those in the buffer are.
    offset: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are filled, and those of them that were taken.
    filled: usize,
    at: usize,
}

impl RunReader<'_> {
    /// Overwrites `row` with the next row; says whether there was one.
    #[inline]
    pub fn next_into(&mut self, row: &mut [u64]) -> io::Result<bool> {
        if self.at == self.filled && !self.fill()? {
            return Ok(false);
        }
        let bytes = &self.buffer[self.at..self.at + row.len() * 8];
        for (word, bytes) in row.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.at += row.len() * 8;
        Ok(true)
    }

    fn fill(&mut self) -> io::Result<bool> {
        let remaining = self.run.byte_count - self.offset;
        self.filled = remaining.min(self.buffer.len() as u64) as usize;
        self.at = 0;
        let target = &mut self.buffer[..self.filled];
        self.run.file.read_exact_at(target, self.offset)?;
        self.offset += self.filled as u64;
        Ok(self.filled > 0)
    }
}

/// The next row of a run. The largest of a heap is the first in order.
struct Next {
    row: Vec<u64>,
    run: usize,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        other.row.cmp(&self.row).then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

/// Calls `visit` with the rows of all runs in order. Their buffers have about this many bytes together.
pub(crate) fn merge(
    runs: &[Run],
    word_count: usize,
    buffer_bytes: usize,
    mut visit: impl FnMut(&[u64]) -> io::Result<()>,
) -> io::Result<()> {
    let each = buffer_bytes / runs.len().max(1);
    let mut readers: Vec<RunReader<'_>> = runs
        .iter()
        .map(|run| run.reader(word_count, each))
        .collect();
    let mut heap = BinaryHeap::with_capacity(runs.len());
    for (run, reader) in readers.iter_mut().enumerate() {
        let mut row = vec![0; word_count];
        if reader.next_into(&mut row)? {
            heap.push(Next { row, run });
        }
    }
    while let Some(mut next) = heap.peek_mut() {
        visit(&next.row)?;
        let run = next.run;
        if !readers[run].next_into(&mut next.row)? {
            PeekMut::pop(next);
        }
    }
    Ok(())
}
