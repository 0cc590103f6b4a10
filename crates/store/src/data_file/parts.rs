//! Cuts a stream of batches into parts of bounded size, each of which becomes a data file.
//!
//! The format's writer keeps a file's compressed segments until their order is settled, so the memory of an
//! import follows the size of the file being written, not of the row group.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::Mutex;

/// A part holds at least this many pieces, so that a batch of wide rows does not exceed it by much.
const PIECES_MIN: u64 = 8;
/// Batches up to this size are never cut.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Batches, or why there are no more.
pub type BatchStream<E> = BoxStream<'static, Result<RecordBatch, E>>;

/// A stream that is consumed part by part.
pub struct InputParts<E> {
    state: Arc<Mutex<Cutting<E>>>,
}

struct Cutting<E> {
    input: BatchStream<E>,
    /// The rest of a batch that was too large for one piece.
    rest: Option<Wide>,
    ended: bool,
    /// Bytes of the current part that may still come, as batches in memory.
    remaining_bytes: u64,
    /// The most that a batch may take, in bytes.
    piece_bytes_max: u64,
}

/// Rows that come in several pieces of equal length.
struct Wide {
    batch: RecordBatch,
    piece_rows: usize,
    piece_bytes: u64,
}

impl<E: Send + 'static> InputParts<E> {
    /// Parts of `input`.
    pub fn new(input: BatchStream<E>) -> Self {
        Self {
            state: Arc::new(Mutex::new(Cutting {
                input,
                rest: None,
                ended: false,
                remaining_bytes: 0,
                piece_bytes_max: u64::MAX,
            })),
        }
    }

    /// The next part: batches until they take `part_bytes` in memory, wide ones in pieces. A part holds one piece at
    /// least, if any remains.
    pub fn part(&self, part_bytes: u64) -> BatchStream<E> {
        let start = (self.state.clone(), true);
        let batches = futures::stream::unfold(start, move |(state, first)| async move {
            let batch = {
                let mut state = state.lock().await;
                if first {
                    state.remaining_bytes = part_bytes.max(1);
                    state.piece_bytes_max = (part_bytes / PIECES_MIN).max(PIECE_BYTES_MIN);
                }
                state.next().await?
            };
            Some((batch, (state, false)))
        });
        batches.fuse().boxed()
    }

    /// Whether the stream has ended.
    pub async fn is_ended(&self) -> bool {
        self.state.lock().await.ended
    }
}

impl<E> Cutting<E> {
    async fn next(&mut self) -> Option<Result<RecordBatch, E>> {
        if self.ended || self.remaining_bytes == 0 {
            return None;
        }
        let wide = match self.rest.take() {
            Some(rest) => rest,
            None => match self.input.next().await {
                Some(Ok(batch)) => Wide::new(batch, self.piece_bytes_max),
                other => {
                    self.ended = true;
                    return other;
                }
            },
        };
        self.remaining_bytes = self.remaining_bytes.saturating_sub(wide.piece_bytes);
        let (piece, rest) = wide.cut();
        self.rest = rest;
        Some(Ok(piece))
    }
}

impl Wide {
    /// A batch in pieces of about this many bytes at most.
    fn new(batch: RecordBatch, piece_bytes_max: u64) -> Self {
        let (row_count, bytes) = (batch.num_rows().max(1) as u64, own_bytes(&batch));
        let piece_rows = (row_count / bytes.div_ceil(piece_bytes_max).max(1)).max(1);
        Self {
            batch,
            piece_rows: piece_rows as usize,
            piece_bytes: (u128::from(bytes) * u128::from(piece_rows) / u128::from(row_count))
                as u64,
        }
    }

    /// The first piece and the others.
    fn cut(self) -> (RecordBatch, Option<Self>) {
        let row_count = self.batch.num_rows();
        let rows = self.piece_rows.min(row_count);
        let piece = self.batch.slice(0, rows);
        let rest = (rows < row_count).then(|| Self {
            batch: self.batch.slice(rows, row_count - rows),
            ..self
        });
        (piece, rest)
    }
}

/// Bytes that the rows of a batch take by themselves: batches may share the buffers of their strings.
pub fn own_bytes(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter();
    columns.map(|column| column_bytes(column) as u64).sum()
}

fn column_bytes(column: &ArrayRef) -> usize {
    let all = column.get_array_memory_size();
    let flat = || column.to_data().get_slice_memory_size().unwrap_or(all);
    match column.data_type() {
        DataType::Utf8View => flat() + column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => flat() + column.as_binary_view().total_buffer_bytes_used(),
        nested if nested.is_nested() => all,
        _ => flat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringViewArray};

    fn batches(count: i64) -> BatchStream<()> {
        let batch = |i| {
            RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![i; 10])) as _)])
                .unwrap()
        };
        futures::stream::iter((0..count).map(move |i| Ok(batch(i)))).boxed()
    }

    #[tokio::test]
    async fn a_wide_batch_comes_in_pieces_and_in_several_parts() {
        let texts: Vec<String> = (0..64).map(|i| format!("{i:0>60000}")).collect();
        let strings: ArrayRef = Arc::new(StringViewArray::from_iter_values(&texts));
        let batch = RecordBatch::try_from_iter([("s", strings)]).unwrap();
        let stream = futures::stream::iter([Ok::<_, ()>(batch)]);
        let parts = InputParts::new(stream.boxed());
        let mut found = Vec::new();
        while !parts.is_ended().await {
            let pieces: Vec<_> = parts.part(1_200_000).collect().await;
            let bytes: u64 = pieces
                .iter()
                .map(|piece| own_bytes(piece.as_ref().unwrap()))
                .sum();
            assert!(bytes < 1_500_000, "{bytes}");
            for piece in pieces {
                let piece = piece.unwrap();
                found.extend(
                    piece
                        .column(0)
                        .as_string_view()
                        .iter()
                        .map(|text| text.unwrap().to_owned()),
                );
            }
        }
        assert_eq!(found, texts);
    }

    async fn sizes(count: i64, part_bytes: u64) -> Vec<usize> {
        let parts = InputParts::new(batches(count));
        let mut sizes = Vec::new();
        while !parts.is_ended().await {
            sizes.push(parts.part(part_bytes).count().await);
        }
        sizes
    }

    #[tokio::test]
    async fn parts_cover_the_input_in_order_and_in_size() {
        assert_eq!(sizes(5, u64::MAX).await, [5]);
        assert_eq!(sizes(0, 100).await, [0]);
        let parts = sizes(5, 1).await;
        assert_eq!(parts.iter().sum::<usize>(), 5);
        assert!(parts.iter().all(|size| *size <= 1), "{parts:?}");
    }

    #[tokio::test]
    async fn a_part_that_has_ended_can_be_asked_again() {
        let parts = InputParts::new(batches(0));
        let mut part = parts.part(100);
        assert!(part.next().await.is_none() && part.next().await.is_none());
    }

    #[test]
    fn a_slice_counts_its_own_strings_only() {
        let text = "longer than a view can hold inside";
        let strings: ArrayRef = Arc::new(StringViewArray::from(vec![text; 1000]));
        let batch = RecordBatch::try_from_iter([("s", strings)]).unwrap();
        let row_bytes = 16 + text.len() as u64;
        assert_eq!(own_bytes(&batch), 1000 * row_bytes);
        assert_eq!(own_bytes(&batch.slice(10, 5)), 5 * row_bytes);
    }
}
