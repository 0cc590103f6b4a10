//! Groups that are handed out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;

use super::plan::Plan;
use crate::Result;
use crate::batches::{PIECE_ROWS, columns_bytes};
use crate::keys::bytes::array_of;
use crate::memory::Charge;

/// A batch has texts of about this many bytes at most, unless it is one row: each row may have a copy of a long text.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Output for all groups of a table. Groups may share texts. Where a column is not one of views, texts are copied only
/// for the batch that is handed out.
pub struct Output {
    plan: Arc<Plan>,
    columns: Vec<ArrayRef>,
    rows: usize,
    next_row: usize,
    _charge: Charge,
}

impl Output {
    /// Output of columns of the plan's types, or views of bytes in place of other texts.
    pub fn new(plan: &Arc<Plan>, columns: Vec<ArrayRef>, rows: usize, mut charge: Charge) -> Self {
        let bytes = columns_bytes(&columns);
        charge.grow(bytes.saturating_sub(charge.bytes()));
        charge.shrink_to(bytes);
        Self {
            plan: Arc::clone(plan),
            columns,
            rows,
            next_row: 0,
            _charge: charge,
        }
    }

    pub fn has_rows(&self) -> bool {
        self.next_row < self.rows
    }

    /// The next batch.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if !self.has_rows() {
            return Ok(None);
        }
        let rows = self.piece_rows();
        let fields = self.plan.spec.schema.fields().iter();
        let columns = self.columns.iter().zip(fields).map(|(column, field)| {
            let column = column.slice(self.next_row, rows);
            match (column.data_type(), field.data_type()) {
                (DataType::BinaryView, other) if *other != DataType::BinaryView => {
                    array_of(other, column.as_binary_view().iter())
                }
                _ => Ok(column),
            }
        });
        let columns = columns.collect::<Result<_, _>>()?;
        let batch = self.plan.output_of(columns, rows)?;
        self.next_row += rows;
        Ok(Some(batch))
    }

    /// How many rows the next batch has.
    fn piece_rows(&self) -> usize {
        let most = PIECE_ROWS.min(self.rows - self.next_row);
        let piece = self.next_row..self.next_row + most;
        let rows = self.columns.iter().map(|column| {
            let views = match column.data_type() {
                DataType::Utf8View => &column.as_string_view().views()[piece.clone()],
                DataType::BinaryView => &column.as_binary_view().views()[piece.clone()],
                _ => return most,
            };
            let mut bytes = 0;
            let fits = |view: &&u128| {
                bytes += u64::from(**view as u32);
                bytes <= TEXT_BYTES_MAX
            };
            views.iter().take_while(fits).count()
        });
        rows.min().unwrap_or(most).max(1)
    }
}
