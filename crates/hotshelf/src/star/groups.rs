//! Dense aggregation: every group is a number made of one code per look-up, so that finding a row's group is
//! arithmetic.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::error::Result as QueryResult;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::accumulate::{Aggregates, GroupAccumulators};
use super::keys::steps;
use super::lookup::{Lookup, MISS};
use super::matching::Matching;
use super::rows::Rows;
use super::shape::Join;
use crate::look_ups::LookUpShelf;

/// Up to this product of code counts, groups are numbered by an array instead of a hash map.
const DENSE_CODES_MAX: u64 = 1 << 20;

/// The groups of one look-up: distinct tuples of its grouping columns.
pub(super) struct RowCodes {
    /// Code by place in the look-up.
    by_place: Vec<u32>,
    /// Code of a row kept without a match, and of places without a build row.
    of_miss: u32,
    /// A build row for each code; `None` for NULLs of a row without a match.
    rows: Vec<Option<u32>>,
    /// The grouping columns by build row.
    columns: Vec<ArrayRef>,
    /// Bytes of the grouping columns that are not the build side's own.
    computed_bytes: usize,
}

impl RowCodes {
    /// Numbers the groups of the rows of a build side. `keys` are expressions over it. The rows of a join's build side
    /// have keys of their own: where those are among the expressions, each row is a group.
    pub async fn build(
        keys: &[Arc<dyn PhysicalExpr>],
        join: &Join,
        lookup: &Lookup,
        build: &RecordBatch,
        memory: &MemoryReservation,
    ) -> QueryResult<Self> {
        let row_count = build.num_rows();
        let columns: Vec<ArrayRef> = keys
            .iter()
            .map(|key| key.evaluate(build)?.into_array(row_count))
            .collect::<QueryResult<_>>()?;
        let computed = keys
            .iter()
            .zip(&columns)
            .filter(|(key, _)| !key.is::<Column>());
        let computed_bytes = computed
            .map(|(_, column)| column.get_array_memory_size())
            .sum();
        let is_unique = join.matching.attaches() && keys.contains(&join.build_key);
        let (by_row, mut rows) = match is_unique {
            true => (0..row_count as u32).map(|row| (row, Some(row))).unzip(),
            false => {
                let needed = needed(keys, join, &columns);
                distinct(&needed, row_count, memory).await?
            }
        };
        let all_null = |row: &usize| columns.iter().all(|column| column.is_null(*row));
        let mut of_miss = rows.len() as u32;
        if join.matching == Matching::Outer {
            // A row without a match belongs to the group of NULLs, which build rows may have made already.
            match (0..row_count).find(all_null) {
                Some(row) => of_miss = by_row[row],
                None => rows.push(None),
            }
        }
        Ok(Self {
            by_place: lookup.by_place(&by_row, of_miss),
            of_miss,
            rows,
            columns,
            computed_bytes,
        })
    }

    /// Has the codes on a shelf.
    pub fn place_on(&self, shelf: &LookUpShelf) {
        shelf.place(&self.by_place);
    }

    pub fn size_bytes(&self) -> usize {
        self.by_place.len() * 4 + self.rows.len() * 8 + self.computed_bytes
    }
}

/// The columns that tell build rows apart.
fn needed(keys: &[Arc<dyn PhysicalExpr>], join: &Join, columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let Some(lineage) = &join.lineage else {
        return columns.to_vec();
    };
    let number = |key: &Arc<dyn PhysicalExpr>| key.downcast_ref::<Column>().map(Column::index);
    let needed = lineage.needed(&keys.iter().map(number).collect::<Vec<_>>());
    let columns = columns.iter().zip(needed).filter(|(_, needed)| *needed);
    columns.map(|(column, _)| column.clone()).collect()
}

/// The groups of a join's look-up among those of all look-ups.
pub(super) struct JoinCodes {
    join: usize,
    codes: Arc<RowCodes>,
    stride: u64,
}

impl JoinCodes {
    pub fn new(join: usize, codes: Arc<RowCodes>) -> Self {
        let stride = 1;
        Self {
            join,
            codes,
            stride,
        }
    }
}

/// How rows are numbered by group: the same for all workers.
pub(super) struct GroupCodes {
    joins: Vec<JoinCodes>,
    /// Product of the numbers of codes.
    pub code_count: u64,
    /// The grouping columns in the order of the output: index in `joins`, and column there.
    columns: Vec<(usize, usize)>,
}

impl GroupCodes {
    /// Numbers the groups of all look-ups together. `keys` are (look-up, expression) in the order of the output.
    /// `None` if there are too many groups.
    pub fn combine(
        keys: &[(usize, Arc<dyn PhysicalExpr>)],
        mut joins: Vec<JoinCodes>,
    ) -> Option<Self> {
        let mut code_count = 1u64;
        for join in &mut joins {
            join.stride = code_count;
            code_count = code_count.checked_mul(join.codes.rows.len().max(1) as u64)?;
        }
        let mut taken = vec![0; joins.len()];
        let column = |(join, _): &(usize, _)| {
            let idx = joins.iter().position(|codes| codes.join == *join)?;
            taken[idx] += 1;
            Some((idx, taken[idx] - 1))
        };
        Some(Self {
            columns: keys.iter().map(column).collect::<Option<_>>()?,
            joins,
            code_count,
        })
    }
}

/// A code for every row such that equal tuples have equal codes, and a row for every code.
async fn distinct(
    columns: &[ArrayRef],
    row_count: usize,
    memory: &MemoryReservation,
) -> QueryResult<(Vec<u32>, Vec<Option<u32>>)> {
    let fields = columns.iter().enumerate();
    let fields = fields
        .map(|(idx, column)| Field::new(format!("key {idx}"), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut values = new_group_values(schema, &GroupOrdering::None)?;
    let mut codes = Vec::new();
    let mut rows = Vec::new();
    let mut by_row = Vec::with_capacity(row_count);
    let table = memory.new_empty();
    for step in steps(row_count) {
        let slice = |column: &ArrayRef| column.slice(step.start, step.len());
        let columns: Vec<ArrayRef> = columns.iter().map(slice).collect();
        values.intern(&columns, &mut codes)?;
        rows.resize(values.len(), None);
        for (row, code) in step.zip(&codes) {
            rows[*code].get_or_insert(row as u32);
            by_row.push(*code as u32);
        }
        table.try_resize(values.size())?;
        tokio::task::yield_now().await;
    }
    Ok((by_row, rows))
}

/// The groups one worker has seen.
pub(super) struct GroupTable {
    codes: Arc<GroupCodes>,
    numbers: Numbers,
    /// Code of each group.
    seen: Vec<u64>,
    accumulators: GroupAccumulators,
    group_of_row: Vec<u32>,
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

    /// Adds rows.
    pub fn add(&mut self, rows: &mut Rows<'_>) -> QueryResult<()> {
        self.number_rows(&rows.places, rows.count());
        let group_count = self.seen.len();
        self.accumulators
            .update(rows, &self.group_of_row, group_count)
    }

    /// Fills `group_of_row`, numbering new groups in the order they appear.
    fn number_rows(&mut self, places: &[Vec<u32>], row_count: usize) {
        self.row_codes.clear();
        self.row_codes.resize(row_count, 0);
        for JoinCodes {
            join,
            codes,
            stride,
        } in &self.codes.joins
        {
            for (total, place) in self.row_codes.iter_mut().zip(&places[*join]) {
                let code = codes
                    .by_place
                    .get(*place as usize)
                    .copied()
                    .unwrap_or(codes.of_miss);
                *total += u64::from(code) * stride;
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
            *number
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

    /// Has the table on a shelf, as far as it is here.
    pub fn place_on(&self, shelf: &LookUpShelf) {
        if let Numbers::Array(array) = &self.numbers {
            shelf.place(array);
        }
        self.accumulators.place_on(shelf);
    }

    /// Takes all groups out as a batch of the aggregation's schema.
    pub fn take(&mut self) -> QueryResult<RecordBatch> {
        let mut keys = Vec::with_capacity(self.codes.columns.len());
        for (join, column) in &self.codes.columns {
            let JoinCodes { codes, stride, .. } = &self.codes.joins[*join];
            let row_of = |code: &u64| {
                let code = (code / stride) % codes.rows.len().max(1) as u64;
                codes.rows.get(code as usize).copied().flatten()
            };
            let rows: UInt32Array = self.seen.iter().map(row_of).collect();
            keys.push(take(&codes.columns[*column], &rows, None)?);
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
