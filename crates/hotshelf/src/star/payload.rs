//! The columns of surviving rows: gathered from the chunks that have survivors, without decoding the others.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef as ArrowRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field};
use datafusion::error::DataFusionError;
use futures::future::try_join_all;
use vortex::array::{ArrayRef, MaskFuture, VortexSessionExecute};
use vortex::error::{VortexResult, vortex_err};
use vortex_arrow::ArrowSessionExt;

use super::chunk::{CHUNK_ROWS, ChunkBuffer, ChunkColumn, Decodable};
use super::prepare::Ready;
use super::select::Survivors;
use crate::error::{Error, Result};
use crate::scan::Morsel;

impl Ready {
    /// The table's columns that rows are tested by.
    pub fn tested(&self) -> Vec<usize> {
        let keys = self.star.joins.iter();
        let keys = keys.map(|join| self.star.scan.columns[join.probe_key]);
        let ranges = self.ranges.iter().map(|range| range.column);
        let mut columns: Vec<usize> = keys.chain(ranges).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// A column of a row group, ready to be decoded by chunks.
    pub async fn chunk_column(&self, morsel: &Morsel, column: usize) -> Result<ChunkColumn> {
        let typed = |error| morsel.file.segments.typed(error);
        let array = stored(morsel, column).await.map_err(typed)?;
        let mut context = self.queue.session.create_execution_ctx();
        if let Some(column) = ChunkColumn::of_stored(&array, &mut context).map_err(typed)? {
            return Ok(column);
        }
        let field = self.star.scan.table.schema.field(column);
        let decoded = self.execute(array, field).map_err(typed)?;
        ChunkColumn::of_decoded(&decoded).map_err(Error::from_query)
    }

    fn execute(&self, array: ArrayRef, field: &Field) -> VortexResult<ArrowRef> {
        let mut context = self.queue.session.create_execution_ctx();
        let session = self.queue.session.arrow();
        session.execute_arrow(array, Some(field), &mut context)
    }

    /// The scan's columns that survivors need. Those that rows were tested by are at hand.
    pub async fn payload(
        &self,
        morsel: &Morsel,
        survivors: &Survivors,
        tested: Decodable<'_>,
        buffer: &mut ChunkBuffer,
    ) -> Result<RecordBatch> {
        let typed = |error| morsel.file.segments.typed(error);
        let scan = &self.star.scan;
        let payload = self.star.payload();
        let schema = scan.schema.project(&payload);
        let place_of = |idx: usize| tested.place(scan.columns[idx]);
        // All reads begin before the first is waited for.
        let reads = payload.iter().map(|idx| async {
            match place_of(*idx) {
                Some(_) => Ok(None),
                None => stored(morsel, scan.columns[*idx]).await.map(Some),
            }
        });
        let reads = try_join_all(reads).await.map_err(typed)?;
        let mut arrays = Vec::with_capacity(payload.len());
        for (idx, read) in payload.into_iter().zip(reads) {
            let field = scan.schema.field(idx);
            if let Some(place) = place_of(idx)
                && let Some(array) = gather(
                    &tested.columns[place],
                    field.data_type(),
                    &survivors.rows,
                    buffer,
                )
                .map_err(typed)?
            {
                arrays.push(array);
                continue;
            }
            let array = match read {
                Some(array) => array,
                None => stored(morsel, scan.columns[idx]).await.map_err(typed)?,
            };
            let array = self.gather_stored(array, field, survivors, buffer);
            arrays.push(array.map_err(typed)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(survivors.count()));
        let schema = Arc::new(schema.map_err(DataFusionError::from)?);
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options);
        Ok(batch.map_err(DataFusionError::from)?)
    }

    fn gather_stored(
        &self,
        array: ArrayRef,
        field: &Field,
        survivors: &Survivors,
        buffer: &mut ChunkBuffer,
    ) -> VortexResult<ArrowRef> {
        let mut context = self.queue.session.create_execution_ctx();
        if let Some(column) = ChunkColumn::of_stored(&array, &mut context)?
            && let Some(gathered) = gather(&column, field.data_type(), &survivors.rows, buffer)?
        {
            return Ok(gathered);
        }
        let mask = survivors.mask();
        let array = match mask.all_true() {
            true => array,
            false => array.filter(mask.clone())?,
        };
        self.execute(array, field)
    }
}

/// A column of a row group as it is stored.
async fn stored(morsel: &Morsel, column: usize) -> VortexResult<ArrayRef> {
    let file = &morsel.file;
    let expr = file.columns.get(&column);
    let expr = expr.ok_or_else(|| vortex_err!("column {column} is not part of the scan"))?;
    let rows = (morsel.rows.end - morsel.rows.start) as usize;
    file.reader
        .projection_evaluation(&morsel.rows, expr, MaskFuture::new_true(rows))?
        .await
}

/// The values at `rows`. `None`: NULLs or a type that is not gathered by words.
fn gather(
    column: &ChunkColumn,
    data_type: &DataType,
    rows: &[u32],
    buffer: &mut ChunkBuffer,
) -> VortexResult<Option<ArrowRef>> {
    let by_words = data_type.is_integer() || data_type.is_temporal();
    let width = data_type.primitive_width();
    if !by_words || column.valid.is_some() || width != Some(column.width_bytes()) {
        return Ok(None);
    }
    let bytes = match width {
        Some(1) => gather_words(column, rows, buffer, |word| word as u8)?,
        Some(2) => gather_words(column, rows, buffer, |word| word as u16)?,
        Some(4) => gather_words(column, rows, buffer, |word| word as u32)?,
        Some(8) => gather_words(column, rows, buffer, |word| word)?,
        _ => return Ok(None),
    };
    let data = ArrayData::builder(data_type.clone())
        .len(rows.len())
        .add_buffer(bytes)
        .build();
    let data = data.map_err(|error| vortex_err!("gathered values: {error}"))?;
    Ok(Some(make_array(data)))
}

fn gather_words<T: arrow::datatypes::ArrowNativeType>(
    column: &ChunkColumn,
    rows: &[u32],
    buffer: &mut ChunkBuffer,
    value: impl Fn(u64) -> T,
) -> VortexResult<Buffer> {
    let mut values: Vec<T> = Vec::with_capacity(rows.len());
    let chunk_of = |row: &u32| *row as usize / CHUNK_ROWS;
    for rows in rows.chunk_by(|a, b| chunk_of(a) == chunk_of(b)) {
        column.decode(chunk_of(&rows[0]), buffer)?;
        let places = rows.iter().map(|row| *row as usize % CHUNK_ROWS);
        match &column.dictionary {
            Some(words) => values.extend(places.map(|place| {
                let code = buffer.narrow[place] as usize;
                value(words.get(code).copied().unwrap_or(0))
            })),
            None if column.is_wide() => {
                values.extend(places.map(|place| value(buffer.wide[place])));
            }
            None => values.extend(places.map(|place| value(u64::from(buffer.narrow[place])))),
        }
    }
    Ok(Buffer::from_vec(values))
}
