//! The join by nested loops, and random inputs for it.

use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray, StringViewArray, UInt32Array,
};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;

use super::super::{Condition, JoinKind, JoinSpec, PairTest, Side};
use crate::Result;
use crate::keys::Nulls;

pub const KINDS: [JoinKind; 10] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::LeftSemi,
    JoinKind::RightSemi,
    JoinKind::LeftAnti,
    JoinKind::RightAnti,
    JoinKind::LeftMark,
    JoinKind::RightMark,
];

/// The column that numbers the rows.
pub const NUMBER: usize = 6;

/// How random keys are spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub rows: usize,
    pub values: u32,
    pub nulls: bool,
    /// Half of the rows have one value.
    pub skewed: bool,
}

/// Rows of many types. The first five columns make good keys.
pub fn rows(spread: Spread, text_len: usize, seed: u64) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut picks = || -> Vec<Option<u32>> {
        let mut pick = || {
            if spread.nulls && random.u8(..8) == 0 {
                return None;
            }
            let is_hot = spread.skewed && random.bool();
            Some(if is_hot {
                0
            } else {
                random.u32(..spread.values)
            })
        };
        (0..spread.rows).map(|_| pick()).collect()
    };
    let text = |pick: u32| format!("{pick}{}", "-".repeat(pick as usize % 3 * 9));
    let texts = |picks: Vec<Option<u32>>| picks.into_iter().map(move |pick| pick.map(text));
    let decimals: Decimal128Array = picks()
        .iter()
        .map(|pick| pick.map(|pick| i128::from(pick) << 65))
        .collect();
    let mut words = StringDictionaryBuilder::<Int8Type>::new();
    words.extend(
        picks()
            .iter()
            .map(|pick| pick.map(|pick| ["a", "b", "c"][pick as usize % 3])),
    );
    let numbers = Int64Array::from_iter_values(0..spread.rows as i64);
    let long = (0..spread.rows).map(|row| format!("{row:0text_len$}"));
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "i64",
            Arc::new(
                picks()
                    .iter()
                    .map(|p| p.map(i64::from))
                    .collect::<Int64Array>(),
            ),
        ),
        (
            "i32",
            Arc::new(
                picks()
                    .iter()
                    .map(|p| p.map(|p| p as i32 - 1))
                    .collect::<Int32Array>(),
            ),
        ),
        ("text", Arc::new(StringArray::from_iter(texts(picks())))),
        ("decimal", Arc::new(decimals)),
        ("view", Arc::new(StringViewArray::from_iter(texts(picks())))),
        (
            "flag",
            Arc::new(
                picks()
                    .iter()
                    .map(|p| p.map(|p| p % 2 == 0))
                    .collect::<BooleanArray>(),
            ),
        ),
        ("number", Arc::new(numbers)),
        ("long", Arc::new(StringArray::from_iter_values(long))),
        ("word", Arc::new(words.finish())),
    ];
    let columns = columns.into_iter();
    let columns = columns.map(|(name, column)| (name, column, name != "number"));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Pairs pass unless the sum of their numbers is a multiple of three.
struct NotThird;

impl PairTest for NotThird {
    fn test(&self, pairs: &RecordBatch) -> Result<BooleanArray> {
        let [left, right] = [0, 1].map(|column| pairs.column(column).as_primitive::<Int64Type>());
        let pairs = left.values().iter().zip(right.values());
        Ok(pairs
            .map(|(left, right)| ((left + right) % 3 != 0).then_some(true))
            .collect())
    }
}

/// Where a spec returns all columns of the sides that its kind has.
pub fn spec(
    input: &SchemaRef,
    kind: JoinKind,
    on: &[usize],
    nulls: Nulls,
    tests: bool,
) -> JoinSpec {
    let has = |side| match kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => side == Side::Left,
        JoinKind::RightSemi | JoinKind::RightAnti | JoinKind::RightMark => side == Side::Right,
        _ => true,
    };
    let sides = [Side::Left, Side::Right]
        .into_iter()
        .filter(|side| has(*side));
    let columns = |side| (0..input.fields().len()).map(move |column| (side, column));
    let output: Vec<(Side, usize)> = sides.flat_map(columns).collect();
    let field = |(_, column): &(Side, usize)| input.field(*column).clone().with_nullable(true);
    let mut fields: Vec<Field> = output.iter().map(field).collect();
    if is_mark(kind) {
        fields.push(Field::new("mark", DataType::Boolean, false));
    }
    let number = input.field(NUMBER).clone();
    let condition = Condition {
        columns: vec![(Side::Left, NUMBER), (Side::Right, NUMBER)],
        schema: Arc::new(Schema::new(vec![number.clone(), number])),
        test: Arc::new(NotThird),
    };
    JoinSpec {
        left: Arc::clone(input),
        right: Arc::clone(input),
        on: on.iter().map(|&column| (column, column)).collect(),
        kind,
        nulls,
        null_aware: false,
        condition: tests.then_some(condition),
        output,
        schema: Arc::new(Schema::new(fields)),
    }
}

fn is_mark(kind: JoinKind) -> bool {
    matches!(kind, JoinKind::LeftMark | JoinKind::RightMark)
}

/// A row of the output: the rows that it has of both sides, and its mark.
type Row = (Option<u32>, Option<u32>, bool);

/// The join by nested loops.
pub fn oracle(spec: &JoinSpec, left: &RecordBatch, right: &RecordBatch) -> RecordBatch {
    let rows = nested_loops(spec, left, right);
    let take_side = |side: Side, column: usize| {
        let idxs: UInt32Array = match side {
            Side::Left => rows.iter().map(|row| row.0).collect(),
            Side::Right => rows.iter().map(|row| row.1).collect(),
        };
        let batch = if side == Side::Left { left } else { right };
        take(batch.column(column), &idxs, None).unwrap()
    };
    let columns = spec
        .output
        .iter()
        .map(|&(side, column)| take_side(side, column));
    let mut columns: Vec<ArrayRef> = columns.collect();
    if is_mark(spec.kind) {
        columns.push(Arc::new(BooleanArray::from_iter(
            rows.iter().map(|row| Some(row.2)),
        )));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(&spec.schema), columns, &options).unwrap()
}

fn nested_loops(spec: &JoinSpec, left: &RecordBatch, right: &RecordBatch) -> Vec<Row> {
    let keys = [
        key_rows(spec, left, Side::Left),
        key_rows(spec, right, Side::Right),
    ];
    let number = |batch: &RecordBatch, row: usize| {
        batch.column(NUMBER).as_primitive::<Int64Type>().value(row)
    };
    let is_pair = |l: usize, r: usize| {
        keys[0][l].is_some()
            && keys[0][l] == keys[1][r]
            && (spec.condition.is_none() || (number(left, l) + number(right, r)) % 3 != 0)
    };
    let lens = [left.num_rows(), right.num_rows()];
    let mut rows: Vec<Row> = Vec::new();
    if spec.kind.has_pairs() {
        for l in 0..lens[0] {
            let partners = (0..lens[1]).filter(|&r| is_pair(l, r));
            rows.extend(partners.map(|r| (Some(l as u32), Some(r as u32), false)));
        }
    }
    let is_known = |side: usize, row: usize| {
        let other = &keys[1 - side];
        let is_clear = keys[side][row].is_some() && other.iter().all(Option::is_some);
        !spec.null_aware || other.is_empty() || is_clear
    };
    let single = |side: usize, row: usize, is_matched: bool| match spec.kind {
        JoinKind::LeftSemi | JoinKind::RightSemi => is_matched,
        JoinKind::LeftMark | JoinKind::RightMark => true,
        _ => !is_matched && is_known(side, row),
    };
    use JoinKind::*;
    if matches!(spec.kind, Left | Full | LeftSemi | LeftAnti | LeftMark) {
        for l in 0..lens[0] {
            let is_matched = (0..lens[1]).any(|r| is_pair(l, r));
            rows.extend(single(0, l, is_matched).then_some((Some(l as u32), None, is_matched)));
        }
    }
    if matches!(spec.kind, Right | Full | RightSemi | RightAnti | RightMark) {
        for r in 0..lens[1] {
            let is_matched = (0..lens[0]).any(|l| is_pair(l, r));
            rows.extend(single(1, r, is_matched).then_some((None, Some(r as u32), is_matched)));
        }
    }
    rows
}

/// The keys of rows that have one.
fn key_rows(spec: &JoinSpec, batch: &RecordBatch, side: Side) -> Vec<Option<Vec<u8>>> {
    let column = |&(left, right): &(usize, usize)| {
        Arc::clone(batch.column(if side == Side::Left { left } else { right }))
    };
    let columns: Vec<ArrayRef> = spec.on.iter().map(column).collect();
    if columns.is_empty() {
        return vec![Some(Vec::new()); batch.num_rows()];
    }
    let is_null = |row: usize| columns.iter().any(|column| column.is_null(row));
    let rows = row_bytes(&columns).into_iter().enumerate();
    rows.map(|(row, bytes)| (spec.nulls == Nulls::Equal || !is_null(row)).then_some(bytes))
        .collect()
}

fn row_bytes(columns: &[ArrayRef]) -> Vec<Vec<u8>> {
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()));
    let converter = RowConverter::new(fields.collect()).unwrap();
    let rows = converter.convert_columns(columns).unwrap();
    rows.iter().map(|row| row.data().to_vec()).collect()
}

/// All rows, in an order that depends on nothing but the rows.
pub fn sorted(batches: &[RecordBatch]) -> Vec<Vec<u8>> {
    let mut rows: Vec<Vec<u8>> = batches
        .iter()
        .flat_map(|b| row_bytes(b.columns()))
        .collect();
    rows.sort();
    rows
}
