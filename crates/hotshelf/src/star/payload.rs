//! The columns that survivors need, as they are stored where chunks of them can be decoded alone: the batches of `rows`
//! decode the chunks that have survivors, and no others.

use arrow::array::{ArrayRef as ArrowRef, new_empty_array};
use arrow::datatypes::{Field, Schema};
use futures::future::try_join_all;
use vortex::array::arrays::Dict;
use vortex::array::arrays::dict::DictArraySlotsExt;
use vortex::array::{ArrayRef, MaskFuture, VortexSessionExecute};
use vortex::error::{VortexResult, vortex_err};
use vortex_arrow::ArrowSessionExt;

use super::chunk::ChunkColumn;
use super::prepare::{Ready, Star};
use super::stored::{Payload, Stored, Whole};
use super::survivors::Survivors;
use super::words::are_words;
use crate::error::{Error, Result};
use crate::pipelines::decoded_bytes;
use crate::scan::Morsel;

impl Ready {
    /// The table's columns that rows are tested by.
    pub fn tested(&self) -> Vec<usize> {
        let keys = self.star.joins.iter();
        let keys = keys.map(|join| self.star.scan.columns[join.probe_key]);
        let ranges = self.ranges.iter().map(|range| range.column);
        let compared = self.comparisons.iter();
        let compared = compared.flat_map(|comparison| [comparison.left, comparison.right]);
        let mut columns: Vec<usize> = keys.chain(ranges).chain(compared).collect();
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
        tested: (&[usize], Vec<ChunkColumn>),
    ) -> Result<Payload> {
        let typed = |error| morsel.file.segments.typed(error);
        let scan = &self.star.scan;
        let payload = self.star.payload();
        let mut at_hand: Vec<Option<ChunkColumn>> = tested.1.into_iter().map(Some).collect();
        let place_of = |idx: usize| {
            let place = tested
                .0
                .iter()
                .position(|column| *column == scan.columns[idx])?;
            are_words(scan.schema.field(idx).data_type()).then_some(place)
        };
        // All reads begin before the first is waited for.
        let reads = payload.iter().map(|idx| {
            let place = place_of(*idx);
            async move {
                match place {
                    Some(place) => Ok((Some(place), None)),
                    None => Ok((None, Some(stored(morsel, scan.columns[*idx]).await?))),
                }
            }
        });
        let reads = try_join_all(reads).await.map_err(typed)?;
        let mut columns = Vec::with_capacity(payload.len());
        let mut whole = Vec::new();
        for (idx, (place, read)) in payload.into_iter().zip(reads) {
            let at_hand = place.and_then(|place| at_hand[place].take());
            let column = match (at_hand, read) {
                (Some(column), _) => Stored::chunks(column),
                (None, Some(array)) => {
                    let field = &scan.schema.fields()[idx];
                    let stored = self.stored_column(&array, field).map_err(typed)?;
                    stored.unwrap_or_else(|| {
                        let place = columns.len();
                        let field = field.clone();
                        let nothing = new_empty_array(field.data_type());
                        whole.push(Whole {
                            place,
                            array,
                            field,
                        });
                        Stored::Array(nothing)
                    })
                }
                (None, None) => {
                    let lost = vortex_err!("column {idx} is needed twice");
                    return Err(typed(lost));
                }
            };
            columns.push(column);
        }
        Ok(Payload {
            columns,
            whole,
            first: 0,
        })
    }

    /// Decodes the values of a part of the survivors, in the place of the part before. Returns their bytes.
    pub fn decode_part(
        &self,
        payload: &mut Payload,
        survivors: &Survivors,
        part: (usize, usize),
    ) -> VortexResult<u64> {
        let mut bytes = 0;
        payload.first = part.0;
        for whole in &payload.whole {
            // Freed before the next ones are there.
            payload.columns[whole.place] = Stored::Array(new_empty_array(whole.field.data_type()));
            let array = survivors.values(&whole.array, part)?;
            let values = self.execute(array, &whole.field)?;
            bytes += decoded_bytes(&values);
            payload.columns[whole.place] = Stored::Array(values);
        }
        Ok(bytes)
    }

    /// `None`: it is to be decoded as an array.
    fn stored_column(&self, array: &ArrayRef, field: &Field) -> VortexResult<Option<Stored>> {
        let mut context = self.queue.session.create_execution_ctx();
        if are_words(field.data_type()) {
            if let Some(column) = ChunkColumn::of_stored(array, &mut context)? {
                return Ok(Some(Stored::chunks(column)));
            }
        } else if let Some(dict) = array.as_opt::<Dict>()
            && array.validity()?.definitely_no_nulls()
            && let Some(codes) = ChunkColumn::of_codes(dict.codes(), &mut context)?
        {
            let values = self.execute(dict.values().clone(), field)?;
            return Ok(Some(Stored::Codes { codes, values }));
        }
        Ok(None)
    }
}

impl Payload {
    /// The columns that are decoded a part at a time.
    pub fn whole_schema(&self) -> Schema {
        let fields = self.whole.iter().map(|whole| whole.field.clone());
        Schema::new(fields.collect::<Vec<_>>())
    }

    /// The bytes of the survivors' values, except for arrays.
    pub fn decoded_bytes(&self, row_count: usize, star: &Star) -> u64 {
        let fields = star
            .payload()
            .into_iter()
            .map(|idx| star.scan.schema.field(idx));
        let bytes = self
            .columns
            .iter()
            .zip(fields)
            .map(|(stored, field)| match stored {
                Stored::Chunks { .. } => {
                    let width = field.data_type().primitive_width().unwrap_or(0);
                    (row_count * width) as u64
                }
                Stored::Codes { values, .. } => {
                    decoded_bytes(values) * row_count as u64 / values.len().max(1) as u64
                }
                Stored::Array(_) => 0,
            });
        bytes.sum()
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
