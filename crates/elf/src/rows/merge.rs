//! Merging sorted streams of packed rows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::error::Result;

/// Packed rows in order, one at a time.
pub(crate) trait RowStream {
    /// Overwrites `row` with the next row; says whether there was one.
    ///
    /// # Errors
    /// When rows cannot be read.
    fn next_into(&mut self, row: &mut [u64]) -> Result<bool>;
}

/// The rows of several streams in one order. Streams must not hold equal rows.
pub(crate) struct Merger<T> {
    streams: Vec<T>,
    /// The next row of every stream that has one.
    heap: BinaryHeap<Reverse<(Vec<u64>, usize)>>,
}

impl<T: RowStream> Merger<T> {
    pub(crate) fn new(mut streams: Vec<T>, word_count: usize) -> Result<Self> {
        let mut heap = BinaryHeap::with_capacity(streams.len());
        for (idx, stream) in streams.iter_mut().enumerate() {
            let mut row = vec![0; word_count];
            if stream.next_into(&mut row)? {
                heap.push(Reverse((row, idx)));
            }
        }
        Ok(Self { streams, heap })
    }

    /// Calls `visit` with every row.
    pub(crate) fn for_each(mut self, mut visit: impl FnMut(&[u64]) -> Result<()>) -> Result<()> {
        while let Some(mut top) = self.heap.peek_mut() {
            let Reverse((row, idx)) = &mut *top;
            visit(row)?;
            if !self.streams[*idx].next_into(row)? {
                PeekMut::pop(top);
            }
        }
        Ok(())
    }
}
