//! A uniform sample of a table's rows in memory: predicates are tried on it, and combinations of values counted, so
//! that what columns have to do with each other counts.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::ColumnarValue;
use hotshelf_store::data_file::{SAMPLE_ROWS_MAX, TableFile};
use parking_lot::Mutex;

use super::cheap::{is_cheap, is_short};
use super::column::together;
use super::distribution::Distributions;

/// Operators' bytes for each row of a sample: with less than 640 MB, samples are smaller.
const BYTES_PER_ROW: u64 = 64 << 10;
const ROWS_MIN: usize = 500;
/// Files without a sample may have this share of a table's rows.
const UNSAMPLED_SHARE: f64 = 0.1;
/// A sample stays while a table grows by no more than this share.
const GROWTH: f64 = 0.1;
/// Predicates whose rows are remembered, of each kind.
const MASKS_MAX: usize = 64;
/// With fewer hits, a sample only says between which bounds a share is.
const HITS: f64 = 16.0;

/// The sample of a table, read when a statement first wants it.
#[derive(Debug, Default)]
pub(crate) struct TableSample(Mutex<Option<Known>>);

/// A sample that was asked for, if there is one, and the rows that the table had.
#[derive(Debug, Clone)]
struct Known {
    rows: Option<Arc<SampledRows>>,
    table_rows: u64,
}

impl TableSample {
    /// The sample, if it was read.
    pub fn get(&self) -> Option<Arc<SampledRows>> {
        self.0.lock().as_ref().and_then(|known| known.rows.clone())
    }

    /// Reads it unless that was done, where operators may hold this many bytes.
    pub fn read(&self, schema: &SchemaRef, files: &[Arc<TableFile>], operator_bytes: u64) {
        if self.0.lock().is_some() {
            return;
        }
        let rows_max = (operator_bytes / BYTES_PER_ROW).min(SAMPLE_ROWS_MAX as u64) as usize;
        let rows = SampledRows::read(schema, files, rows_max.max(ROWS_MIN));
        let rows = rows.unwrap_or_else(|error| {
            tracing::debug!(%error, "a sample of rows cannot be used");
            None
        });
        let known = Known {
            rows: rows.map(Arc::new),
            table_rows: row_count(files),
        };
        self.0.lock().get_or_insert(known);
    }

    /// What is still known when the files are these, none of which is an earlier one with other rows.
    pub fn after(&self, files: &[Arc<TableFile>]) -> Self {
        let rows = row_count(files);
        let known = self.0.lock().clone().filter(|known| {
            let before = known.table_rows;
            rows >= before && (rows - before) as f64 <= before as f64 * GROWTH
        });
        Self(Mutex::new(known))
    }
}

fn row_count(files: &[Arc<TableFile>]) -> u64 {
    files.iter().map(|file| file.stats.row_count).sum()
}

/// Rows of a table, each as likely to be among them as any other.
#[derive(Debug)]
pub(crate) struct SampledRows {
    /// Columns are called by their numbers in the table.
    rows: RecordBatch,
    schema: DFSchema,
    /// Place of each of the table's columns, by number.
    places: Vec<Option<usize>>,
    logical: Masks<Expr>,
    physical: Masks<Arc<dyn PhysicalExpr>>,
    pub(super) distributions: Distributions,
}

/// Rows that passed predicates before; `None` for predicates that cannot be tried.
type Masks<E> = Mutex<HashMap<E, Option<BooleanBuffer>>>;

impl SampledRows {
    fn read(
        schema: &SchemaRef,
        files: &[Arc<TableFile>],
        rows_max: usize,
    ) -> Result<Option<Self>, DataFusionError> {
        let all = row_count(files);
        let wanted = |file: &TableFile, rate: f64| (file.stats.row_count as f64 * rate).round();
        let rate = (rows_max as f64 / all.max(1) as f64).min(1.0);
        let samples = files.iter().filter(|file| file.stats.row_count > 0);
        let samples = samples.map(|file| {
            let batches = file.sample(wanted(file, rate).max(1.0) as usize);
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            (file, batches, rows)
        });
        let (sampled, missing): (Vec<_>, Vec<_>) = samples.partition(|(.., rows)| *rows > 0);
        let missing_rows: u64 = missing.iter().map(|(file, ..)| file.stats.row_count).sum();
        if sampled.is_empty() || missing_rows as f64 > all as f64 * UNSAMPLED_SHARE {
            return Ok(None);
        }
        // Files with few rows in their samples decide for all, or rows of others would be too many.
        let rates = sampled.iter();
        let rates = rates.map(|(file, _, rows)| *rows as f64 / file.stats.row_count as f64);
        let rate = rates.fold(rate, f64::min);
        let mut pieces = Vec::new();
        for (file, batches, _) in &sampled {
            let mut left = wanted(file, rate).max(1.0) as usize;
            for batch in batches {
                let rows = batch.num_rows().min(left);
                pieces.push(batch.slice(0, rows));
                left -= rows;
            }
        }
        let Some(first) = pieces.first() else {
            return Ok(None);
        };
        Self::new(schema, concat_batches(&first.schema(), &pieces)?).map(Some)
    }

    /// From rows whose columns are called by their numbers in a table of these columns.
    fn new(schema: &SchemaRef, stored: RecordBatch) -> QueryResult<Self> {
        let mut places = vec![None; schema.fields().len()];
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (field, values) in stored.schema().fields().iter().zip(stored.columns()) {
            let number: Option<usize> = field.name().parse().ok();
            let Some((number, of_table)) =
                number.and_then(|idx| Some((idx, schema.fields().get(idx)?)))
            else {
                continue;
            };
            places[number] = Some(columns.len());
            columns.push(cast(values, of_table.data_type())?);
            fields.push(Field::new(field.name(), of_table.data_type().clone(), true));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(stored.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            rows: RecordBatch::try_new_with_options(schema.clone(), columns, &options)?,
            schema: DFSchema::try_from(schema)?,
            places,
            logical: Mutex::default(),
            physical: Mutex::default(),
            distributions: Distributions::default(),
        })
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    /// The rows that pass a predicate, whose columns `number` finds in the table; `None` if that cannot be tried.
    pub fn passing(
        &self,
        predicate: &Expr,
        number: impl Fn(&Column) -> Option<usize>,
    ) -> Option<BooleanBuffer> {
        if !is_short(predicate) {
            return None;
        }
        let mut is_known = true;
        let numbered = predicate.clone().transform(|part| match &part {
            Expr::Column(column) => {
                let known = number(column).filter(|number| self.has(*number));
                is_known &= known.is_some();
                let name = known.map_or_else(String::new, |number| number.to_string());
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(
                    name,
                ))))
            }
            _ => Ok(Transformed::no(part)),
        });
        let numbered = numbered.ok()?.data;
        if !is_known {
            return None;
        }
        remembered(&self.logical, numbered, |predicate| {
            let properties = ExecutionProps::new();
            let context = PhysicalPlanningContext::default();
            let expr = create_physical_expr(predicate, &self.schema, &properties, &context);
            expr.ok().filter(is_cheap).and_then(|expr| self.tried(expr))
        })
    }

    /// The same for a predicate that knows the columns by the names that they have in this schema of the table.
    pub fn passing_physically(
        &self,
        predicate: &Arc<dyn PhysicalExpr>,
        schema: &SchemaRef,
    ) -> Option<BooleanBuffer> {
        if !is_cheap(predicate) {
            return None;
        }
        let mut is_known = true;
        let placed = predicate.clone().transform(|part| {
            let Some(column) = part.downcast_ref::<PhysicalColumn>() else {
                return Ok(Transformed::no(part));
            };
            let number = schema.index_of(column.name()).ok();
            let place =
                number.and_then(|number| Some((number, *self.places.get(number)?.as_ref()?)));
            let Some((number, place)) = place else {
                is_known = false;
                return Ok(Transformed::no(part));
            };
            let placed = PhysicalColumn::new(&number.to_string(), place);
            Ok(Transformed::yes(Arc::new(placed) as Arc<dyn PhysicalExpr>))
        });
        let placed = placed.ok()?.data;
        if !is_known {
            return None;
        }
        self.tried(placed)
    }

    /// The rows that pass a predicate over the sample's columns.
    fn tried(&self, predicate: Arc<dyn PhysicalExpr>) -> Option<BooleanBuffer> {
        remembered(&self.physical, predicate, |predicate| {
            self.evaluate(&**predicate).ok()
        })
    }

    fn has(&self, number: usize) -> bool {
        self.column(number).is_some()
    }

    /// The values of one of the table's columns.
    pub(super) fn column(&self, number: usize) -> Option<&ArrayRef> {
        Some(self.rows.column((*self.places.get(number)?)?))
    }

    /// Whether a value of an integer or time column occurs twice, NULL aside; `None` for other columns.
    pub fn repeats(&self, number: usize) -> Option<bool> {
        let values = self.column(number)?;
        let is_of_words = values.data_type().is_integer() || values.data_type().is_temporal();
        let values = is_of_words.then(|| cast(values, &DataType::Int64).ok())??;
        let values = values.as_primitive::<Int64Type>();
        let mut seen = HashSet::with_capacity(values.len());
        Some(!values.iter().flatten().all(|value| seen.insert(value)))
    }

    fn evaluate(&self, predicate: &dyn PhysicalExpr) -> QueryResult<BooleanBuffer> {
        let rows = self.len();
        let passing = match predicate.evaluate(&self.rows)? {
            ColumnarValue::Array(values) => values,
            ColumnarValue::Scalar(value) => value.to_array_of_size(rows)?,
        };
        match passing.as_boolean_opt() {
            Some(passing) => Ok(true_rows(passing)),
            None => Err(DataFusionError::Internal(
                "a predicate gives other values than truths".into(),
            )),
        }
    }

    /// How many combinations of values these columns have in a table of this many rows, by those that the sample has
    /// once and those that it has more often (the estimator GEE of Charikar et al., 2000); `None` where the
    /// sample lacks a column, or has no row left.
    pub fn combinations(
        &self,
        numbers: &[usize],
        passing: Option<&BooleanBuffer>,
        table_rows: f64,
    ) -> Option<f64> {
        let columns = numbers.iter().map(|number| self.column(*number).cloned());
        let columns = columns.collect::<Option<Vec<ArrayRef>>>()?;
        let counts = counts_of(&columns, passing).ok()?;
        let sampled: usize = counts.values().sum();
        if sampled == 0 {
            return None;
        }
        let once = counts.values().filter(|count| **count == 1).count() as f64;
        let more = counts.len() as f64 - once;
        let scale = (table_rows / sampled as f64).max(1.0).sqrt();
        Some(scale * once + more)
    }
}

/// Which rows are true, and not NULL.
fn true_rows(passing: &BooleanArray) -> BooleanBuffer {
    match passing.nulls() {
        Some(nulls) => passing.values() & nulls.inner(),
        None => passing.values().clone(),
    }
}

/// What was found for a predicate before, or is found now.
fn remembered<E: Hash + Eq>(
    masks: &Masks<E>,
    predicate: E,
    find: impl FnOnce(&E) -> Option<BooleanBuffer>,
) -> Option<BooleanBuffer> {
    if let Some(known) = masks.lock().get(&predicate) {
        return known.clone();
    }
    let found = find(&predicate);
    let mut masks = masks.lock();
    if masks.len() >= MASKS_MAX {
        masks.clear();
    }
    masks.insert(predicate, found.clone());
    found
}

/// How often each combination of values occurs.
pub(super) fn counts_of(
    columns: &[ArrayRef],
    passing: Option<&BooleanBuffer>,
) -> Result<HashMap<Box<[u8]>, usize>, ArrowError> {
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()));
    let rows = RowConverter::new(fields.collect())?.convert_columns(columns)?;
    let mut counts: HashMap<Box<[u8]>, usize> = HashMap::new();
    for (idx, row) in rows.iter().enumerate() {
        if passing.is_none_or(|passing| passing.value(idx)) {
            *counts.entry(row.as_ref().into()).or_default() += 1;
        }
    }
    Ok(counts)
}

/// Predicates that were tried on a sample, and the rows that pass all of them.
pub(crate) struct Tries {
    /// The sample's rows that are asked, if not all.
    among: Option<BooleanBuffer>,
    /// How many these are.
    of: usize,
    passing: Option<BooleanBuffer>,
    /// What each predicate keeps by itself.
    shares: Vec<f64>,
}

impl Tries {
    /// Nothing tried yet, among some rows of the sample or all.
    pub fn new(rows: &SampledRows, among: Option<BooleanBuffer>) -> Self {
        let of = among
            .as_ref()
            .map_or(rows.len(), BooleanBuffer::count_set_bits);
        Self {
            among,
            of,
            passing: None,
            shares: Vec::new(),
        }
    }

    /// Adds a predicate that these rows of the sample pass, and that keeps this share by the statistics.
    pub fn add(&mut self, own: BooleanBuffer, otherwise: f64) {
        let own = match &self.among {
            Some(among) => among & &own,
            None => own,
        };
        let kept = share(own.count_set_bits(), self.of, otherwise);
        self.shares.push(kept);
        self.passing = Some(match &self.passing {
            Some(passing) => passing & &own,
            None => own,
        });
    }

    /// The share of rows that all predicates keep together, and the sample's rows that pass them; `None` if none was
    /// tried.
    pub fn finish(self) -> Option<(f64, BooleanBuffer)> {
        let passing = self.passing?;
        let kept = share(passing.count_set_bits(), self.of, together(self.shares));
        Some((kept, passing))
    }
}

/// The share of rows that pass, where `hits` rows of a sample do and `otherwise` is what statistics say. Few hits only
/// say between which bounds it is, one time in twenty not.
fn share(hits: usize, of: usize, otherwise: f64) -> f64 {
    if of == 0 {
        return otherwise;
    }
    let (hits, of) = (hits as f64, of as f64);
    if hits >= HITS && of - hits >= HITS {
        return hits / of;
    }
    let spread = |hits: f64| 2.0 * hits.sqrt();
    let least = |hits: f64| match hits > 0.0 {
        true => (hits - spread(hits)).max(0.05),
        false => 0.0,
    };
    let most = |hits: f64| hits + spread(hits) + 3.0;
    let (low, high) = match hits < HITS {
        true => (least(hits), most(hits).min(of)),
        false => ((of - most(of - hits)).max(0.0), of - least(of - hits)),
    };
    otherwise.clamp((low / of).min(1.0), (high / of).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use arrow::datatypes::DataType;
    use datafusion::functions::expr_fn::{length, repeat};
    use datafusion::logical_expr::cast as cast_expr;
    use datafusion::prelude::{col, lit};

    /// 0 to 999 in one column, the hundreds of it in another.
    fn sampled() -> (SchemaRef, SampledRows) {
        let numbers = Arc::new(Int64Array::from_iter_values(0..1_000)) as ArrayRef;
        let hundreds =
            Arc::new(Int64Array::from_iter_values((0..1_000).map(|i| i / 100))) as ArrayRef;
        let stored = [("0", numbers.clone()), ("2", hundreds.clone())];
        let stored = RecordBatch::try_from_iter(stored).unwrap();
        let table = [("n", numbers.clone()), ("other", numbers), ("h", hundreds)];
        let schema = RecordBatch::try_from_iter(table).unwrap().schema();
        let rows = SampledRows::new(&schema, stored).unwrap();
        (schema, rows)
    }

    fn number(column: &Column) -> Option<usize> {
        ["n", "other", "h"]
            .iter()
            .position(|name| *name == column.name)
    }

    #[test]
    fn predicates_are_tried_on_all_columns_together() {
        let (_, rows) = sampled();
        let hits = |predicate: Expr| Some(rows.passing(&predicate, number)?.count_set_bits());
        assert_eq!(hits(col("n").lt(lit(250i64))), Some(250));
        let both = col("n").lt(lit(250i64)).and(col("h").eq(lit(1i64)));
        assert_eq!(hits(both), Some(100), "they are not independent");
        assert_eq!(hits((col("n") % lit(7i64)).eq(lit(0i64))), Some(143));
        assert_eq!(hits(col("other").lt(lit(3i64))), None, "not sampled");
        assert_eq!(
            hits((lit(1i64) / col("h")).eq(lit(1i64))),
            None,
            "errors do not count"
        );
        assert_eq!(hits(col("unknown").is_null()), None);
        let as_text = || cast_expr(col("n"), DataType::Utf8);
        assert_eq!(hits(length(as_text()).gt(lit(2))), Some(900));
        assert_eq!(
            hits(length(repeat(as_text(), lit(9i64))).gt(lit(2))),
            None,
            "much of little"
        );
    }

    #[test]
    fn combinations_of_columns_that_follow_from_each_other_are_few() {
        let (_, rows) = sampled();
        assert_eq!(rows.combinations(&[2], None, 1e6), Some(10.0));
        let of_keys = rows.combinations(&[0, 2], None, 1e5).unwrap();
        assert!((9e3..=1.1e4).contains(&of_keys), "{of_keys}");
        let mask = rows.passing(&col("n").lt(lit(250i64)), number).unwrap();
        assert_eq!(rows.combinations(&[2], Some(&mask), 1e6), Some(3.0));
        assert_eq!(rows.combinations(&[1], None, 1e6), None);
    }

    #[test]
    fn few_hits_bound_what_is_known_otherwise() {
        assert_eq!(share(500, 1_000, 0.01), 0.5);
        assert_eq!(share(0, 1_000, 0.5), 0.003);
        assert_eq!(share(0, 1_000, 1e-6), 1e-6);
        assert_eq!(share(1, 1_000, 1e-3), 1e-3);
        assert!(share(4, 1_000, 0.5) < 0.02 && share(4, 1_000, 1e-9) > 1e-6);
        assert_eq!(share(1_000, 1_000, 0.2), 0.997);
        assert_eq!(share(0, 0, 0.3), 0.3);
    }
}
