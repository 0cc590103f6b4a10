//! What is remembered of a run's keys, to cut runs into ranges.

/// Rows of a run in order, each with what tells it from the rows before: the first row, the first rows of most batches,
/// and the last row.
///
/// Keys of rows before a mark are less than its key, and its own row's is not, except where that is theirs: then the
/// mark has all of it.
#[derive(Default)]
pub(super) struct Marks {
    /// The keys of all marks, one behind the other.
    keys: Vec<u8>,
    marks: Vec<Mark>,
}

struct Mark {
    key_end: usize,
    bytes_before: u64,
    batch: u32,
    is_whole: bool,
}

/// A row's key, or the beginning of it. No row's key is the beginning of another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkedKey<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) is_whole: bool,
}

impl Marks {
    /// Adds the first row of a batch, or the last row of all; `batch` is then their number. The rows before it have
    /// this memory.
    pub(super) fn push(&mut self, key: MarkedKey, batch: usize, bytes_before: u64) {
        self.keys.extend_from_slice(key.bytes);
        self.marks.push(Mark {
            key_end: self.keys.len(),
            bytes_before,
            batch: batch as u32,
            is_whole: key.is_whole,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The key of mark `n`.
    pub(super) fn key(&self, n: usize) -> MarkedKey<'_> {
        let start = n
            .checked_sub(1)
            .map_or(0, |before| self.marks[before].key_end);
        MarkedKey {
            bytes: &self.keys[start..self.marks[n].key_end],
            is_whole: self.marks[n].is_whole,
        }
    }

    /// The batch that mark `n` is the first row of. For the last mark, their number.
    pub(super) fn batch(&self, n: usize) -> usize {
        self.marks[n].batch as usize
    }

    /// The memory of all rows of the run before mark `n`, with what is sorted.
    pub(super) fn bytes_before(&self, n: usize) -> u64 {
        self.marks[n].bytes_before
    }

    /// The memory that a mark takes.
    pub(super) fn mark_bytes(key: MarkedKey) -> u64 {
        (size_of::<Mark>() + key.bytes.len()) as u64
    }

    /// Gives back memory for more marks.
    pub(super) fn end(&mut self) {
        self.keys.shrink_to_fit();
        self.marks.shrink_to_fit();
    }
}
