//! Rows of a table that are returned apart from pairs: those without a partner, or all with a mark.

use arrow_array::{BooleanArray, RecordBatch};

use super::cursor::{Probing, may_be_long};
use super::part::place;
use super::plan::{BuildRows, OUTPUT_BYTES};
use super::spec::Single;
use super::table::Tables;
use crate::Result;

/// Rows of a table that are looked at before it is seen whether the thread should stop.
const SCAN_CHECK_ROWS: usize = 1 << 16;
/// Rows of a table that a thread returns at a turn.
const SCAN_ROWS: usize = 1 << 16;

/// Reads the rows of a table that are returned apart from pairs.
#[derive(Debug)]
pub struct Scan {
    part: usize,
    rows: std::ops::Range<usize>,
}

impl Scan {
    /// Reads the given rows of a part.
    pub fn new(part: usize, rows: std::ops::Range<usize>) -> Self {
        Self { part, rows }
    }

    /// The next batch.
    pub fn next(&mut self, probing: Probing) -> Result<Option<RecordBatch>> {
        let side = probing.side.other();
        let single = probing.plan.spec.kind.single(side);
        let (_, has_keys) = probing.tables.part_rows(self.part);
        let returns = match single {
            Single::None => return Ok(None),
            Single::Unmatched => probing.plan.returns_lonely(side, has_keys),
            Single::Matched | Single::Marked => true,
        };
        let mut places = Vec::new();
        let has_heap = may_be_long(probing.tables, probing.plan);
        let mut bytes = 0;
        while returns && places.len() < probing.plan.output_rows && bytes <= OUTPUT_BYTES {
            let Some(row) = self.rows.next() else {
                break;
            };
            if row % SCAN_CHECK_ROWS == 0 {
                probing.stop.check()?;
            }
            let place = place(self.part, row);
            let is_matched = probing.tables.is_matched(place);
            let is_returned = match single {
                Single::Matched => is_matched,
                Single::Unmatched => !is_matched,
                _ => true,
            };
            if is_returned {
                places.push(place);
                bytes += match has_heap {
                    true => probing.tables.heap_bytes(place),
                    false => 0,
                };
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        let mut words = Vec::new();
        probing.tables.gather(&places, &mut words);
        let build = BuildRows {
            words: &words,
            places: &places,
        };
        let mark = (single == Single::Marked).then(|| {
            let matched = places
                .iter()
                .map(|&place| Some(probing.tables.is_matched(place)));
            matched.collect::<BooleanArray>()
        });
        let batch = probing
            .plan
            .batch(probing.side, None, Some((probing.tables, &build)), mark)?;
        Ok(Some(batch))
    }
}

/// The next rows of a table, and where those after them begin.
pub fn next_scan(tables: &Tables, part: &mut usize, row: &mut usize) -> Option<Scan> {
    while *part < tables.parts() {
        let (rows, _) = tables.part_rows(*part);
        if *row < rows {
            let taken = *row..rows.min(*row + SCAN_ROWS);
            *row = taken.end;
            return Some(Scan::new(*part, taken));
        }
        (*part, *row) = (*part + 1, 0);
    }
    None
}
