//! A join's description, worked out: keys, layouts of rows, and how output is put together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_array::{
    ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::take::take;

use super::key_parts::KeyParts;
use super::layout::{Block, RowLayout, Stored};
use super::spec::{JoinSpec, Side, Single};
use super::table::{Gathered, Tables};
use crate::Result;
use crate::keys::bytes::values;
use crate::keys::{KeyEncoder, Keys, Nulls};

/// Rows of a batch of output, at most.
const OUTPUT_ROWS_MAX: usize = 8192;
/// Fewer rows are not worth a batch, however wide they are.
const OUTPUT_ROWS_MIN: usize = 256;
/// Bytes of values of fixed width, and of strings and nested values, in a batch of output: no row is added beyond.
pub(super) const OUTPUT_BYTES: usize = 2 << 20;
/// Bytes of a value of no fixed width, besides what it refers to.
const VIEW_BYTES: usize = 16;

/// What a join does, worked out. All threads share it.
#[derive(Debug)]
pub struct Plan {
    pub spec: JoinSpec,
    /// Rows of a batch of output, at most.
    pub output_rows: usize,
    encoder: KeyEncoder,
    /// How keys choose a partition, once the first left rows have come: by their hashes if by nothing else.
    key_parts: OnceLock<Option<KeyParts>>,
    left: SidePlan,
    right: SidePlan,
    /// The columns of the output and of the condition, by their place among the stored columns of their side.
    output: Vec<(Side, usize)>,
    condition: Vec<(Side, usize)>,
}

#[derive(Debug)]
struct SidePlan {
    keys: Vec<usize>,
    stored: Vec<usize>,
    types: Vec<DataType>,
    layout: Arc<RowLayout>,
    seen: Seen,
}

/// What `NOT IN` needs to know about a side.
#[derive(Debug, Default)]
struct Seen {
    rows: AtomicBool,
    no_key: AtomicBool,
}

/// Rows that probe, with their keys.
#[derive(Default)]
pub struct ProbeRows {
    pub keys: Keys,
    pub columns: Vec<ArrayRef>,
    /// What the values of each row that have no fixed width take when they are copied, if there are any.
    pub value_bytes: Option<Vec<u32>>,
}

impl ProbeRows {
    /// Replaces the rows by those of a block, which all have a key.
    pub fn set_block(&mut self, layout: &RowLayout, block: &Block) -> Result<()> {
        layout.keys(block, &mut self.keys);
        let heap = block.heap.as_slice();
        let columns = (0..layout.columns()).map(|idx| layout.unpack(idx, &block.words, &heap));
        self.set_columns(columns.collect::<Result<_>>()?)
    }

    /// Replaces the columns.
    pub fn set_columns(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        self.value_bytes = None;
        for column in columns.iter().filter(|column| !column.is_empty()) {
            use DataType::*;
            let sizes = self.value_bytes.take();
            self.value_bytes = match column.data_type() {
                Utf8 | LargeUtf8 | Binary | LargeBinary => {
                    let mut sizes = sizes.unwrap_or_else(|| vec![0; column.len()]);
                    for (size, value) in sizes.iter_mut().zip(values(column)?) {
                        *size = size.saturating_add(value.map_or(0, <[u8]>::len) as u32);
                    }
                    Some(sizes)
                }
                nested if nested.is_nested() => {
                    let mut sizes = sizes.unwrap_or_else(|| vec![0; column.len()]);
                    let all = column.to_data().get_slice_memory_size()?;
                    let one = (all / column.len()) as u32;
                    sizes
                        .iter_mut()
                        .for_each(|size| *size = size.saturating_add(one));
                    Some(sizes)
                }
                _ => sizes,
            };
        }
        self.columns = columns;
        Ok(())
    }
}

/// Rows of the table: their words and where they are.
pub struct BuildRows<'a> {
    pub words: &'a [u64],
    pub places: &'a [u64],
}

impl Plan {
    pub fn try_new(spec: JoinSpec) -> Result<Self> {
        spec.check()?;
        let columns = |side| {
            let condition = spec
                .condition
                .iter()
                .flat_map(|condition| &condition.columns);
            let used = spec.output.iter().chain(condition);
            let used = used
                .filter(|(of, _)| *of == side)
                .map(|(_, column)| *column);
            used.collect::<BTreeSet<usize>>()
                .into_iter()
                .collect::<Vec<_>>()
        };
        let nullable = |left: usize, right: usize| {
            spec.left.field(left).is_nullable() || spec.right.field(right).is_nullable()
        };
        let key = |&(left, right): &(usize, usize)| {
            (
                spec.left.field(left).data_type().clone(),
                nullable(left, right),
            )
        };
        let encoder =
            KeyEncoder::try_new(&spec.on.iter().map(key).collect::<Vec<_>>(), spec.nulls)?;
        let keys = |side| {
            spec.on.iter().map(move |&(left, right)| match side {
                Side::Left => left,
                Side::Right => right,
            })
        };
        let plan = |side, schema| {
            SidePlan::try_new(
                &encoder,
                spec.nulls,
                schema,
                keys(side).collect(),
                columns(side),
            )
        };
        let left = plan(Side::Left, &spec.left)?;
        let right = plan(Side::Right, &spec.right)?;
        let stored = |&(side, column): &(Side, usize)| {
            let columns = match side {
                Side::Left => &left.stored,
                Side::Right => &right.stored,
            };
            (
                side,
                columns
                    .binary_search(&column)
                    .expect("used columns are stored"),
            )
        };
        let output = spec.output.iter().map(stored).collect();
        let condition = spec.condition.iter();
        let condition = condition.flat_map(|condition| &condition.columns);
        let condition = condition.map(stored).collect();
        Ok(Self {
            output_rows: output_rows(&spec),
            encoder,
            key_parts: OnceLock::new(),
            left,
            right,
            output,
            condition,
            spec,
        })
    }

    fn side(&self, side: Side) -> &SidePlan {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }

    pub fn layout(&self, side: Side) -> &Arc<RowLayout> {
        &self.side(side).layout
    }

    /// Whether the columns of pairs are needed.
    pub fn gathers_pairs(&self) -> bool {
        self.spec.kind.has_pairs() || self.spec.condition.is_some()
    }

    /// Whether pairs are tested, and all that counts is which rows have one that passes.
    pub fn tests_for_partners(&self) -> bool {
        self.spec.condition.is_some() && !self.spec.kind.has_pairs()
    }

    /// Whether it matters which rows of the side have partners.
    pub fn marks(&self, side: Side) -> bool {
        self.spec.kind.single(side) != Single::None
    }

    /// Whether rows without a partner are of any use.
    pub fn keeps_lonely(&self, side: Side) -> bool {
        matches!(
            self.spec.kind.single(side),
            Single::Unmatched | Single::Marked
        )
    }

    /// Keys and stored columns of a batch. Keys of words may be left without hashes.
    pub fn rows_of(
        &self,
        side: Side,
        batch: &RecordBatch,
        needs_hashes: bool,
        rows: &mut ProbeRows,
    ) -> Result<()> {
        let plan = self.side(side);
        let pick = |columns: &[usize]| -> Vec<ArrayRef> {
            columns
                .iter()
                .map(|&column| Arc::clone(batch.column(column)))
                .collect()
        };
        let keys = pick(&plan.keys);
        match needs_hashes {
            true => {
                self.encoder
                    .encode(&keys, batch.num_rows(), &mut rows.keys)?;
                let parts = || KeyParts::of(&rows.keys).filter(|_| side == Side::Left);
                if let Some(parts) = self.key_parts.get_or_init(parts) {
                    parts.put_in(&mut rows.keys);
                }
            }
            false => self
                .encoder
                .encode_unhashed(&keys, batch.num_rows(), &mut rows.keys)?,
        }
        rows.set_columns(pick(&plan.stored))?;
        if self.spec.null_aware && batch.num_rows() > 0 {
            plan.seen.rows.store(true, Ordering::Relaxed);
            if rows.keys.valid().is_some() {
                plan.seen.no_key.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether rows of a side without a partner are returned, given whether they have a key.
    ///
    /// With `NOT IN`, nothing is returned if the other side has NULL, and NULL is returned only if the other side is
    /// empty. The other side has been seen completely.
    pub fn returns_lonely(&self, side: Side, has_key: bool) -> bool {
        let other = &self.side(side.other()).seen;
        let has_rows = other.rows.load(Ordering::Relaxed);
        let has_null = other.no_key.load(Ordering::Relaxed);
        !self.spec.null_aware || (!has_null && (has_key || !has_rows))
    }

    /// The batch that the condition tests.
    pub fn pairs(
        &self,
        probe: Side,
        rows: &ProbeRows,
        picks: &UInt32Array,
        tables: &Tables,
        build: &BuildRows,
    ) -> Result<RecordBatch> {
        let condition = self.spec.condition.as_ref().expect("a condition");
        let output = Output {
            plan: self,
            probe,
            schema: &condition.schema,
        };
        output.batch(
            &self.condition,
            Some((rows, picks)),
            Some((tables, build)),
            None,
        )
    }

    /// A batch of the output. A missing side is NULL.
    pub fn batch(
        &self,
        probe: Side,
        rows: Option<(&ProbeRows, &UInt32Array)>,
        build: Option<(&Tables, &BuildRows)>,
        mark: Option<BooleanArray>,
    ) -> Result<RecordBatch> {
        let output = Output {
            plan: self,
            probe,
            schema: &self.spec.schema,
        };
        output.batch(&self.output, rows, build, mark)
    }
}

/// Rows of a batch of output, at most.
fn output_rows(spec: &JoinSpec) -> usize {
    let fields = spec.schema.fields().iter();
    let widths = fields.map(|field| field.data_type().primitive_width().unwrap_or(VIEW_BYTES));
    let row_bytes = widths.sum::<usize>().max(1);
    (OUTPUT_BYTES / row_bytes).clamp(OUTPUT_ROWS_MIN, OUTPUT_ROWS_MAX)
}

struct Output<'a> {
    plan: &'a Plan,
    probe: Side,
    schema: &'a SchemaRef,
}

impl Output<'_> {
    fn batch(
        &self,
        columns: &[(Side, usize)],
        probe: Option<(&ProbeRows, &UInt32Array)>,
        build: Option<(&Tables, &BuildRows)>,
        mark: Option<BooleanArray>,
    ) -> Result<RecordBatch> {
        let len = match (&probe, &build) {
            (Some((_, picks)), _) => picks.len(),
            (None, Some((_, build))) => build.places.len(),
            (None, None) => 0,
        };
        let is_all = probe.is_some_and(|(rows, picks)| is_identity(picks, rows.keys.len()));
        let column = |&(side, column): &(Side, usize)| -> Result<ArrayRef> {
            if side == self.probe
                && let Some((rows, picks)) = probe
            {
                let column = &rows.columns[column];
                return Ok(if is_all {
                    Arc::clone(column)
                } else {
                    take(column, picks, None)?
                });
            }
            if side != self.probe
                && let Some((tables, build)) = build
            {
                let heaps = Gathered {
                    tables,
                    places: build.places,
                };
                return tables.layout.unpack(column, build.words, &heaps);
            }
            Ok(new_null_array(&self.plan.side(side).types[column], len))
        };
        let mut arrays = columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        arrays.extend(mark.map(|mark| Arc::new(mark) as ArrayRef));
        let options = RecordBatchOptions::new().with_row_count(Some(len));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(self.schema),
            arrays,
            &options,
        )?)
    }
}

fn is_identity(picks: &UInt32Array, rows: usize) -> bool {
    let picks = picks.values();
    picks.len() == rows
        && picks
            .iter()
            .enumerate()
            .all(|(idx, &pick)| idx == pick as usize)
}

impl SidePlan {
    fn try_new(
        encoder: &KeyEncoder,
        nulls: Nulls,
        schema: &SchemaRef,
        keys: Vec<usize>,
        stored: Vec<usize>,
    ) -> Result<Self> {
        let describe = |&column: &usize| Stored {
            data_type: schema.field(column).data_type().clone(),
            nullable: schema.field(column).is_nullable(),
            key: keys.iter().position(|&key| key == column),
        };
        let columns: Vec<Stored> = stored.iter().map(describe).collect();
        Ok(Self {
            layout: Arc::new(RowLayout::try_new(encoder, nulls, &columns)?),
            types: columns.into_iter().map(|column| column.data_type).collect(),
            keys,
            stored,
            seen: Seen::default(),
        })
    }
}
