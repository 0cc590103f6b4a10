//! A build side as a look-up: made by running it once, or kept since an earlier query made it of the same rows.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    Array, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array,
    new_empty_array,
};
use arrow::compute::concat;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;
use futures::future::try_join_all;
use hotshelf_cache::MissCost;
use hotshelf_operators::batches::with_small_buffers;

use super::declined::Unfit;
use super::forecast::learn_repeats;
use super::groups::RowCodes;
use super::key_set::KeySet;
use super::keys::{KeyColumn, steps};
use super::lookup::{Duplicates, Frame, Lookup};
use super::prepare::Star;
use super::shape::Join;
use crate::index::JOIN_KEYS_MAX;
use crate::look_ups::{LookUpShelf, Offer, OnBudget, Recipe};
use crate::pipelines::decoded_bytes;
use crate::settings::SessionSettings;

/// Larger build sides are not searched for different keys.
const KEY_ROWS_MAX: usize = 1 << 16;
/// Build sides of fewer bytes are copied at once, without a task for each column.
const SHARED_COPY_BYTES: usize = 4 << 20;

/// A build side with all that rows are tested by and grouped by.
pub(super) struct Made {
    /// The rows, if something of them is attached to scanned rows.
    pub build: RecordBatch,
    /// Whether their buffers are their own, so that nothing else stays in memory with them.
    is_owned: bool,
    pub lookup: Lookup,
    pub codes: Option<Arc<RowCodes>>,
    /// The least and the greatest key.
    pub extremes: Option<(ScalarValue, ScalarValue)>,
    /// All keys, if they are few.
    pub few_keys: Option<Vec<ScalarValue>>,
}

impl Made {
    /// Has what rows are looked up in on a shelf.
    pub fn place(&self, shelf: &LookUpShelf) {
        self.lookup.place_on(shelf);
        self.codes.iter().for_each(|codes| codes.place_on(shelf));
    }

    /// What rows are looked up in, in bytes.
    pub fn look_up_bytes(&self) -> usize {
        let codes = self.codes.as_ref().map_or(0, |codes| codes.size_bytes());
        self.lookup.size_bytes() + codes
    }
}

/// Whose it is.
pub(super) enum Side {
    /// This query's alone.
    Own {
        made: Box<Made>,
        /// What it holds of the operators' memory.
        _memory: MemoryReservation,
    },
    /// For later queries, too; made by this one.
    Kept(Arc<OnBudget<Made>>),
    /// Made by an earlier query.
    Reused(Arc<OnBudget<Made>>),
}

impl Deref for Side {
    type Target = Made;

    fn deref(&self) -> &Made {
        match self {
            Self::Own { made, .. } => made,
            Self::Kept(kept) | Self::Reused(kept) => &kept.made,
        }
    }
}

impl Side {
    pub fn is_reused(&self) -> bool {
        matches!(self, Self::Reused(_))
    }
}

/// A build side that this query made, before it is decided whose it is.
pub(super) struct NewSide {
    made: Box<Made>,
    memory: MemoryReservation,
    /// What it is of, if it could be kept for later queries.
    recipe: Option<Recipe>,
    seconds: f64,
}

/// Where the look-up of a join comes from.
pub(super) enum Found {
    New(Box<NewSide>),
    /// Made by an earlier query.
    Kept(Arc<OnBudget<Made>>),
}

impl Found {
    pub fn made(&self) -> &Made {
        match self {
            Self::New(new) => &new.made,
            Self::Kept(kept) => &kept.made,
        }
    }
}

/// The weight of a query among those that use what is kept. Nothing: it leaves no trace.
fn weight_of(star: &Star, context: &TaskContext) -> Option<f64> {
    let settings = SessionSettings::of(context.session_config());
    let cache = &star.scan.env.cache;
    let weight = || cache.query_weight(settings.template, settings.priority);
    settings.populate.then(weight)
}

/// The look-up of a join, made now unless an earlier query made it.
pub(super) async fn build_side(
    star: Arc<Star>,
    join: usize,
    context: Arc<TaskContext>,
) -> Result<Found, Unfit> {
    let weight = weight_of(&star, &context);
    let look_ups = &star.scan.env.look_ups;
    let recipe = star.recipe(
        join,
        SessionSettings::look_up_shelf_of(context.session_config()),
    );
    // What is kept is not narrowed: it keeps scanned rows that the rest of the query drops.
    let is_worth_narrowing = |recipe: &Recipe| {
        let saved_ns = star.saved_by_narrowing_ns(join);
        saved_ns > 0.0 && look_ups.making_ns(recipe).is_none_or(|ns| ns < saved_ns)
    };
    if let Some(recipe) = recipe.as_ref().filter(|recipe| !is_worth_narrowing(recipe))
        && let Some(kept) = look_ups.find(recipe, weight.unwrap_or(0.0))
    {
        return Ok(Found::Kept(kept));
    }
    let recipe = recipe.filter(|_| weight.is_some());
    let begun = Instant::now();
    let may_be_kept = |bytes| recipe.is_some() && look_ups.may_be_kept(bytes);
    let (made, memory) = make(&star, join, context, may_be_kept).await?;
    Ok(Found::New(Box::new(NewSide {
        recipe: recipe.filter(|_| made.is_owned && !star.is_narrowed(join)),
        made: Box::new(made),
        memory,
        seconds: begun.elapsed().as_secs_f64(),
    })))
}

/// Keeps those of a star's sides for later queries that are worth it. Making all of them, at the same time, took this
/// many seconds: each is charged with its part.
pub(super) fn keep_sides(
    star: &Star,
    context: &TaskContext,
    found: Vec<Found>,
    seconds: f64,
) -> Vec<Side> {
    let weight = weight_of(star, context).unwrap_or(0.0);
    let new = found.iter().map(|found| match found {
        Found::New(new) => new.seconds,
        Found::Kept(_) => 0.0,
    });
    let part = seconds / new.sum::<f64>().max(seconds);
    let keep = |new: NewSide| {
        let own = |made, memory| Side::Own {
            made,
            _memory: memory,
        };
        let Some(recipe) = new.recipe else {
            return own(new.made, new.memory);
        };
        let offer = Offer {
            recipe,
            bytes: new.memory.size() as u64,
            cost: MissCost {
                seconds: part * new.seconds,
                weight,
            },
        };
        let release = || {
            new.memory.free();
        };
        match star.scan.env.look_ups.offer(offer, *new.made, release) {
            Ok(kept) => Side::Kept(kept),
            Err(made) => own(Box::new(made), new.memory),
        }
    };
    let sides = found.into_iter().map(|found| match found {
        Found::New(new) => keep(*new),
        Found::Kept(kept) => Side::Reused(kept),
    });
    sides.collect()
}

/// Runs a build side and makes a look-up of it.
async fn make(
    star: &Star,
    idx: usize,
    context: Arc<TaskContext>,
    may_be_kept: impl Fn(u64) -> bool,
) -> Result<(Made, MemoryReservation), Unfit> {
    if !star.attaches(idx) {
        return make_of_keys(star, idx, context).await;
    }
    let join = &star.joins[idx];
    let reservation = MemoryConsumer::new("StarPipelineExec").register(context.memory_pool());
    let mut build = run(star, idx, context, &reservation).await?;
    let is_owned = may_be_kept(build.get_array_memory_size() as u64);
    if is_owned {
        reserve(&reservation, build.get_array_memory_size())?;
        build = owned(&build).await?;
    }
    hold(&reservation, build.get_array_memory_size())?;
    let array = join.build_key.evaluate(&build)?;
    let array = array.into_array(build.num_rows())?;
    let keys = KeyColumn::new(&array)?;
    let frame = Frame::of(&keys, true);
    reserve(&reservation, frame.size_bytes() + keys.size_bytes())?;
    let lookup = look_up(star, idx, &keys, &frame).await?;
    reservation.shrink(keys.size_bytes());
    let value = |row| ScalarValue::try_from_array(&array, row);
    let extremes = match frame.extremes {
        Some((least, greatest)) => Some((value(least)?, value(greatest)?)),
        None => None,
    };
    let few_keys = few_values(&array, &keys)?;
    let groups = star.groups_of(idx);
    let mut codes = None;
    if !groups.is_empty() {
        let built = RowCodes::build(&groups, join, &lookup, &build, &reservation).await;
        // An expression may fail on a build row that no scanned row finds.
        let failed = |error| Unfit::Fallback(format!("grouping build rows: {error}"));
        let built = built.map_err(failed)?;
        reserve(&reservation, built.size_bytes())?;
        codes = Some(Arc::new(built));
    }
    let made = Made {
        is_owned,
        build,
        lookup,
        codes,
        extremes,
        few_keys,
    };
    Ok((made, reservation))
}

/// Runs a build side of which nothing but the keys is needed.
async fn make_of_keys(
    star: &Star,
    idx: usize,
    context: Arc<TaskContext>,
) -> Result<(Made, MemoryReservation), Unfit> {
    let join = &star.joins[idx];
    let reservation = MemoryConsumer::new("StarPipelineExec").register(context.memory_pool());
    let mut set = KeySet::new(join.matching);
    // Only as many as are searched for different ones.
    let (mut first, mut read) = (Vec::new(), 0);
    let mut stream = execute_stream(join.build.clone(), context)?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let keys = join
            .build_key
            .evaluate(&batch)?
            .into_array(batch.num_rows())?;
        set.add(&keys)?.map_err(|Duplicates| repeated(join))?;
        hold(&reservation, set.size_bytes())?;
        read += keys.len();
        match read <= KEY_ROWS_MAX {
            true => first.push(keys),
            false => first.clear(),
        }
    }
    let few_keys = match first.is_empty() {
        true => (set.row_count() == 0).then(Vec::new),
        false => {
            let first: Vec<&dyn Array> = first.iter().map(AsRef::as_ref).collect();
            let keys = concat(&first).map_err(DataFusionError::from)?;
            few_values(&keys, &KeyColumn::new(&keys)?)?
        }
    };
    drop(first);
    let extremes = set.extremes();
    reserve(&reservation, set.look_up_bytes())?;
    let held = set.look_up_bytes().max(set.size_bytes());
    let lookup = set.look_up().await.map_err(|Duplicates| repeated(join))?;
    reservation.resize(held);
    let made = Made {
        is_owned: true,
        build: RecordBatch::new_empty(join.build.schema()),
        lookup,
        codes: None,
        extremes,
        few_keys,
    };
    Ok((made, reservation))
}

/// All keys, if they are few.
fn few_values(array: &ArrayRef, keys: &KeyColumn) -> QueryResult<Option<Vec<ScalarValue>>> {
    let Some(rows) = few_rows(keys) else {
        return Ok(None);
    };
    let values = rows.into_iter();
    let values = values.map(|row| ScalarValue::try_from_array(array, row));
    values.collect::<QueryResult<_>>().map(Some)
}

/// A row for each key, if they are few.
fn few_rows(keys: &KeyColumn) -> Option<Vec<usize>> {
    if keys.len() > KEY_ROWS_MAX {
        return None;
    }
    let mut known = HashSet::new();
    let words = keys.words(0..keys.len());
    let rows = words.filter(|(word, _)| known.insert(*word));
    let rows = rows.map(|(_, row)| row as usize);
    let rows: Vec<usize> = rows.take(JOIN_KEYS_MAX + 1).collect();
    (rows.len() <= JOIN_KEYS_MAX).then_some(rows)
}

/// The build side is not fit, which is remembered.
fn repeated(join: &Join) -> Unfit {
    learn_repeats(&join.build, &join.build_key);
    Unfit::NoStar(format!("the key {} repeats", join.build_key))
}

async fn look_up(
    star: &Star,
    idx: usize,
    keys: &KeyColumn,
    frame: &Frame,
) -> Result<Lookup, Unfit> {
    let join = &star.joins[idx];
    let mut lookup = Lookup::new(frame);
    for rows in steps(keys.len()) {
        let added = lookup.add(keys, rows, join.matching);
        added.map_err(|Duplicates| repeated(join))?;
        tokio::task::yield_now().await;
    }
    if lookup.is_ranked() {
        lookup.rank();
        for rows in steps(keys.len()) {
            lookup.attach(keys, rows);
            tokio::task::yield_now().await;
        }
    }
    Ok(lookup)
}

/// The rows of a build side, accounted for as they come.
async fn run(
    star: &Star,
    idx: usize,
    context: Arc<TaskContext>,
    reservation: &MemoryReservation,
) -> Result<RecordBatch, Unfit> {
    let build = &star.joins[idx].build;
    let mut batches = Vec::new();
    let mut stream = execute_stream(build.clone(), context)?;
    while let Some(batch) = stream.next().await {
        let batch = with_small_buffers(batch?).map_err(DataFusionError::from)?;
        // The values only: many batches may look into one buffer.
        let bytes: u64 = batch
            .columns()
            .iter()
            .map(|column| decoded_bytes(column))
            .sum();
        reserve(reservation, bytes as usize)?;
        batches.push(batch);
    }
    // With what its own look-ups hold.
    drop(stream);
    concatenated(build.schema(), batches, reservation)
}

/// One batch of all rows, made column by column: what is there twice at a time is one of them.
fn concatenated(
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    reservation: &MemoryReservation,
) -> Result<RecordBatch, Unfit> {
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let mut pieces: Vec<Vec<ArrayRef>> = vec![Vec::new(); schema.fields().len()];
    for batch in batches {
        let (_, columns, _) = batch.into_parts();
        pieces
            .iter_mut()
            .zip(columns)
            .for_each(|(pieces, column)| pieces.push(column));
    }
    let mut columns = Vec::with_capacity(pieces.len());
    for (pieces, field) in pieces.into_iter().zip(schema.fields()) {
        let bytes: u64 = pieces.iter().map(|piece| decoded_bytes(piece)).sum();
        reserve(reservation, bytes as usize)?;
        let all: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        columns.push(match all.is_empty() {
            true => new_empty_array(field.data_type()),
            false => concat(&all).map_err(DataFusionError::from)?,
        });
        drop(pieces);
        reservation.shrink(bytes as usize);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema, columns, &options);
    Ok(batch.map_err(DataFusionError::from)?)
}

fn reserve(reservation: &MemoryReservation, bytes: usize) -> Result<(), Unfit> {
    reservation.try_grow(bytes).map_err(|_| {
        let held = reservation.size();
        Unfit::Fallback(format!(
            "no memory for {bytes} bytes of a look-up beside {held}"
        ))
    })
}

/// Has these bytes reserved, no more and no less.
fn hold(reservation: &MemoryReservation, bytes: usize) -> Result<(), Unfit> {
    reserve(reservation, bytes.saturating_sub(reservation.size()))?;
    reservation.resize(bytes);
    Ok(())
}

/// The same rows in buffers of their own: a batch as it was decoded may look into a segment, and would keep it. Where
/// they are many, all workers copy, one column each.
async fn owned(rows: &RecordBatch) -> QueryResult<RecordBatch> {
    let columns = match rows.get_array_memory_size() < SHARED_COPY_BYTES {
        true => rows.columns().iter().map(owned_column).collect(),
        false => owned_columns(rows).await,
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let owned = RecordBatch::try_new_with_options(rows.schema(), columns?, &options);
    Ok(owned?)
}

async fn owned_columns(rows: &RecordBatch) -> QueryResult<Vec<ArrayRef>> {
    let tasks = rows.columns().iter().cloned().map(|column| {
        let copy = SpawnedTask::spawn_blocking(move || owned_column(&column));
        copy.join_unwind()
    });
    let copied = try_join_all(tasks).await;
    let copied = copied.map_err(|stopped| DataFusionError::ExecutionJoin(Box::new(stopped)))?;
    copied.into_iter().collect()
}

fn owned_column(column: &ArrayRef) -> QueryResult<ArrayRef> {
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => {
            let data = column.to_data();
            let mut copy = MutableArrayData::new(vec![&data], false, column.len());
            copy.try_extend(0, 0, column.len())?;
            make_array(copy.freeze())
        }
    })
}

/// Whether the buffers of an array of this type are all its own once they are copied.
pub(super) fn can_be_owned(data_type: &DataType) -> bool {
    data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        )
}
