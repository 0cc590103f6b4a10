//! Dense aggregation: every group is a number made of one code per look-up, so that finding a row's group is
//! arithmetic.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;

use super::accumulate::{Aggregates, GroupAccumulators};
use super::lookup::{Lookup, MISS};
use super::prepare::steps;
use super::shape::Matching;

/// Up to this product of code counts, groups are numbered by an array instead of a hash map.
const DENSE_CODES_MAX: u64 = 1 << 20;

/// The groups of one look-up: distinct tuples of its grouping columns.
pub(super) struct JoinCodes {
    pub join: usize,
    /// Code by slot.
    by_slot: Vec<u32>,
    /// Code of a row kept without a match, and of slots without a build row.
    of_miss: u32,
    /// A build row for each code; `None` for NULLs of a row without a match.
    rows: Vec<Option<u32>>,
    stride: u64,
}

/// How rows are numbered by group: the same for all workers.
pub(super) struct GroupCodes {
    pub joins: Vec<JoinCodes>,
    /// Product of the numbers of codes.
    pub code_count: u64,
    /// The grouping columns by build row, each with its look-up.
    columns: Vec<(usize, ArrayRef)>,
}

impl GroupCodes {
    /// Numbers the groups of `keys`, (look-up, expression over its build side) each. `None` if there are too many.
    pub async fn build(
        keys: &[(usize, Arc<dyn PhysicalExpr>)],
        lookups: &[Lookup],
        matchings: &[Matching],
        builds: &[RecordBatch],
    ) -> QueryResult<Option<Self>> {
        let keys: Vec<(usize, ArrayRef)> = keys
            .iter()
            .map(|(join, expr)| {
                let build = &builds[*join];
                let column = expr.evaluate(build)?.into_array(build.num_rows())?;
                Ok((*join, column))
            })
            .collect::<QueryResult<_>>()?;
        let mut joins: Vec<usize> = keys.iter().map(|(join, _)| *join).collect();
        joins.sort_unstable();
        joins.dedup();
        let mut codes = Vec::with_capacity(joins.len());
        let mut code_count = 1u64;
        for join in joins {
            let columns: Vec<ArrayRef> = keys
                .iter()
                .filter(|(of, _)| *of == join)
                .map(|(_, column)| column.clone())
                .collect();
            let (by_row, mut rows) = distinct(&columns, builds[join].num_rows()).await?;
            let all_null = |row: &usize| columns.iter().all(|column| column.is_null(*row));
            let mut of_miss = rows.len() as u32;
            if matchings[join] == Matching::Outer {
                // A row without a match belongs to the group of NULLs, which build rows may have made already.
                match (0..builds[join].num_rows()).find(all_null) {
                    Some(row) => of_miss = by_row[row],
                    None => rows.push(None),
                }
            }
            let stride = code_count;
            let Some(product) = code_count.checked_mul(rows.len().max(1) as u64) else {
                return Ok(None);
            };
            code_count = product;
            codes.push(JoinCodes {
                join,
                by_slot: lookups[join].by_slot(&by_row, of_miss),
                of_miss,
                rows,
                stride,
            });
        }
        Ok(Some(Self {
            joins: codes,
            code_count,
            columns: keys,
        }))
    }

    pub fn size_bytes(&self) -> usize {
        self.joins
            .iter()
            .map(|codes| codes.by_slot.len() * 4 + codes.rows.len() * 8)
            .sum()
    }
}

/// A code for every row such that equal tuples have equal codes, and a row for every code.
async fn distinct(
    columns: &[ArrayRef],
    row_count: usize,
) -> QueryResult<(Vec<u32>, Vec<Option<u32>>)> {
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()))
        .collect();
    let converter = RowConverter::new(fields)?;
    let mut rows = converter.empty_rows(row_count, 0);
    for step in steps(row_count) {
        let columns: Vec<ArrayRef> = columns
            .iter()
            .map(|column| column.slice(step.start, step.len()))
            .collect();
        converter.append(&mut rows, &columns)?;
        tokio::task::yield_now().await;
    }
    let mut codes = HashMap::new();
    let mut first_rows = Vec::new();
    let mut by_row = Vec::with_capacity(row_count);
    for step in steps(row_count) {
        for idx in step {
            let code = *codes.entry(rows.row(idx)).or_insert_with(|| {
                first_rows.push(Some(idx as u32));
                first_rows.len() as u32 - 1
            });
            by_row.push(code);
        }
        tokio::task::yield_now().await;
    }
    Ok((by_row, first_rows))
}

/// The groups one worker has seen.
pub(super) struct GroupTable {
    codes: Arc<GroupCodes>,
    numbers: Numbers,
    /// Code of each group.
    seen: Vec<u64>,
    accumulators: GroupAccumulators,
    group_of_row: Vec<usize>,
    row_codes: Vec<u64>,
}

enum Numbers {
    Array(Vec<u32>),
    Map(HashMap<u64, u32>),
}

impl GroupTable {
    pub fn new(
        codes: Arc<GroupCodes>,
        aggregates: Arc<Aggregates>,
        schema: SchemaRef,
    ) -> QueryResult<Self> {
        let numbers = if codes.code_count <= DENSE_CODES_MAX {
            Numbers::Array(vec![MISS; codes.code_count as usize])
        } else {
            Numbers::Map(HashMap::new())
        };
        Ok(Self {
            codes,
            numbers,
            seen: Vec::new(),
            accumulators: GroupAccumulators::new(aggregates, schema)?,
            group_of_row: Vec::new(),
            row_codes: Vec::new(),
        })
    }

    /// Adds rows: `slots` by look-up, and the columns the arguments need.
    pub fn add(&mut self, slots: &[Vec<u32>], batch: &RecordBatch) -> QueryResult<()> {
        self.number_rows(slots, batch.num_rows());
        let group_count = self.seen.len();
        self.accumulators
            .update(batch, &self.group_of_row, group_count)
    }

    /// Fills `group_of_row`, numbering new groups in the order they appear.
    fn number_rows(&mut self, slots: &[Vec<u32>], row_count: usize) {
        self.row_codes.clear();
        self.row_codes.resize(row_count, 0);
        for codes in &self.codes.joins {
            for (total, slot) in self.row_codes.iter_mut().zip(&slots[codes.join]) {
                let code = codes
                    .by_slot
                    .get(*slot as usize)
                    .copied()
                    .unwrap_or(codes.of_miss);
                *total += u64::from(code) * codes.stride;
            }
        }
        let (seen, numbers) = (&mut self.seen, &mut self.numbers);
        let group_of = |code: &u64| {
            let next = seen.len() as u32;
            let number = match numbers {
                Numbers::Array(array) => &mut array[*code as usize],
                Numbers::Map(map) => map.entry(*code).or_insert(MISS),
            };
            if *number == MISS {
                *number = next;
                seen.push(*code);
            }
            *number as usize
        };
        self.group_of_row.clear();
        self.group_of_row
            .extend(self.row_codes.iter().map(group_of));
    }

    pub fn group_count(&self) -> usize {
        self.seen.len()
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let numbers = match &self.numbers {
            Numbers::Array(array) => array.len() * 4,
            Numbers::Map(map) => map.capacity() * 24,
        };
        numbers + self.accumulators.size_bytes() + self.seen.capacity() * 8
    }

    /// Takes all groups out as a batch of the aggregation's schema.
    pub fn take(&mut self) -> QueryResult<RecordBatch> {
        let mut keys = Vec::with_capacity(self.codes.columns.len());
        for (join, column) in &self.codes.columns {
            let codes = self.codes.joins.iter().find(|codes| codes.join == *join);
            let row_of = |code: &u64| {
                let codes = codes?;
                let code = (code / codes.stride) % codes.rows.len().max(1) as u64;
                codes.rows.get(code as usize).copied().flatten()
            };
            let rows: UInt32Array = self.seen.iter().map(row_of).collect();
            keys.push(take(column, &rows, None)?);
        }
        let group_count = self.seen.len();
        self.seen.clear();
        match &mut self.numbers {
            Numbers::Array(array) => array.fill(MISS),
            Numbers::Map(map) => map.clear(),
        }
        self.accumulators.take(keys, group_count)
    }
}
