//! Runs the build sides once, for all workers, and makes look-ups of them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use datafusion::common::ScalarValue;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, Literal,
};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use futures::future::try_join_all;

use super::accumulate::{Aggregates, Keys};
use super::groups::{GroupCodes, JoinCodes};
use super::keys::KeyColumn;
use super::lookup::{Duplicates, Frame, Lookup};
use super::matching::Matching;
use super::narrow::{Narrow, Source};
use super::shape::Join;
use crate::pipelines::decoded_bytes;
use crate::scan::{DynamicFilter, IntegerRange, ScanQueue, StarColumns, TableScan};

/// A star as planned: what to look up, what rows must pass, what comes out.
pub(super) struct Star {
    pub scan: TableScan,
    pub joins: Vec<Join>,
    /// The columns that filters and outputs need, from the scan and from build sides.
    pub narrow: Narrow,
    /// Predicates over the narrow columns.
    pub filters: Vec<Arc<dyn PhysicalExpr>>,
    pub output: Output,
}

/// What a star gives its parent.
pub(super) enum Output {
    /// A row for each survivor: expressions over the narrow columns.
    Rows(Vec<Arc<dyn PhysicalExpr>>),
    /// A row for each group.
    Groups(Arc<Aggregates>),
}

impl Star {
    /// Whether something of a look-up's build rows is needed for surviving rows.
    pub fn attaches(&self, join: usize) -> bool {
        let narrow = self.narrow.sources.iter();
        let mut narrow =
            narrow.filter(|source| matches!(source, Source::Build { join: of, .. } if *of == join));
        let mut grouped = self.build_keys().into_iter().flatten();
        narrow.next().is_some() || grouped.any(|(of, _)| *of == join)
    }

    /// The grouping expressions over build sides, if those alone determine the groups.
    fn build_keys(&self) -> Option<&[(usize, Arc<dyn PhysicalExpr>)]> {
        match &self.output {
            Output::Groups(aggregates) => match &aggregates.keys {
                Keys::Builds(keys) => Some(keys),
                Keys::Nothing | Keys::Values(_) => None,
            },
            Output::Rows(_) => None,
        }
    }

    /// The look-ups as EXPLAIN shows them before they are built: in the order that statistics suggest, with the
    /// kind they suggest. Both are decided again by what the build sides really hold.
    pub fn forecast(&self) -> String {
        let mut order: Vec<usize> = (0..self.joins.len()).collect();
        let kept = |join: &usize| self.joins[*join].forecast.kept().unwrap_or(1.0);
        order.sort_by(|a, b| kept(a).total_cmp(&kept(b)));
        let describe = |idx: usize| {
            let join = &self.joins[idx];
            let key = self.scan.schema.field(join.probe_key).name();
            let forecast = &join.forecast;
            let mut text = format!("{} {key} = {}", join.matching, join.build_key);
            if let (Some(rows), Some(range)) = (forecast.rows, forecast.range) {
                let kind = Lookup::kind_for(range, rows, self.attaches(idx));
                text.push_str(&format!(": {kind}"));
            }
            if let (Some(rows), Some(kept)) = (forecast.rows, forecast.kept()) {
                let percent = kept * 100.0;
                text.push_str(&format!(", about {rows} keys, keeps {percent:.3} %"));
            }
            text
        };
        let parts: Vec<String> = order.into_iter().map(describe).collect();
        parts.join("; ")
    }

    /// The scan's columns that the narrow batch needs, by index in the scan's output.
    pub fn payload(&self) -> Vec<usize> {
        let sources = self.narrow.sources.iter();
        sources
            .filter_map(|source| match source {
                Source::Probe(column) => Some(*column),
                Source::Build { .. } => None,
            })
            .collect()
    }
}

/// What the workers share once the build sides are there.
pub(super) struct Ready {
    pub star: Arc<Star>,
    pub queue: Arc<ScanQueue>,
    /// Ranges that scanned rows have to be in, tested here.
    pub ranges: Vec<IntegerRange>,
    pub lookups: Vec<Lookup>,
    pub builds: Vec<RecordBatch>,
    pub codes: Option<Arc<GroupCodes>>,
    pub probed: Vec<Probed>,
    /// Whether a build side without keys lets no row survive.
    pub nothing: bool,
    /// What the look-ups hold of the operators' memory.
    _reservations: Vec<MemoryReservation>,
}

/// How many rows a look-up was asked for and how many it kept.
#[derive(Default)]
pub(super) struct Probed {
    pub rows: AtomicU64,
    pub kept: AtomicU64,
}

/// The build sides turned out to be fit for look-ups, or not.
pub(super) enum Prepared {
    Ready(Arc<Ready>),
    /// Why the original plan has to run.
    Fallback(String),
}

/// Why there are no look-ups.
enum Unfit {
    /// The data is not a star, or memory is short: the original plan can still answer.
    Fallback(String),
    Failed(DataFusionError),
}

impl From<DataFusionError> for Unfit {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error)
    }
}

/// Runs all build sides at the same time and builds the look-ups.
pub(super) async fn prepare(star: Arc<Star>, context: Arc<TaskContext>) -> QueryResult<Prepared> {
    match look_ups(star, context).await {
        Ok(ready) => Ok(Prepared::Ready(Arc::new(ready))),
        Err(Unfit::Fallback(reason)) => Ok(Prepared::Fallback(reason)),
        Err(Unfit::Failed(error)) => Err(error),
    }
}

async fn look_ups(star: Arc<Star>, context: Arc<TaskContext>) -> Result<Ready, Unfit> {
    let tasks = (0..star.joins.len())
        .map(|idx| SpawnedTask::spawn(build_side(star.clone(), idx, context.clone())));
    let joined = try_join_all(tasks.map(|task| task.join_unwind()));
    let sides = joined
        .await
        .map_err(|stopped| DataFusionError::ExecutionJoin(Box::new(stopped)))?;
    let mut ready = Sides::default();
    for side in sides {
        ready.add(side?);
    }
    let nothing = ready.lookups.iter().zip(&star.joins).any(|(lookup, join)| {
        lookup.row_count() == 0 && matches!(join.matching, Matching::Inner | Matching::Semi)
    });
    let codes = match star.build_keys() {
        Some(keys) => {
            let codes = GroupCodes::combine(keys, ready.codes);
            let too_many = || Unfit::Fallback("there are too many groups to number".into());
            Some(Arc::new(codes.ok_or_else(too_many)?))
        }
        None => None,
    };
    let keys: Vec<usize> = star.joins.iter().map(|join| join.probe_key).collect();
    let config = context.session_config().options();
    let payload = star.payload();
    let columns = StarColumns {
        keys: &keys,
        payload: &payload,
    };
    let queue = star.scan.star_queue(config, columns, &ready.ranges);
    Ok(Ready {
        ranges: queue.plan.tested_ranges(),
        queue,
        probed: star.joins.iter().map(|_| Probed::default()).collect(),
        lookups: ready.lookups,
        builds: ready.builds,
        codes,
        nothing,
        star,
        _reservations: ready.reservations,
    })
}

/// A build side with all that rows are tested by and grouped by.
struct Side {
    build: RecordBatch,
    lookup: Lookup,
    codes: Option<JoinCodes>,
    range: Option<DynamicFilter>,
    /// What all that holds of the operators' memory.
    reservation: MemoryReservation,
}

/// All build sides, in the order of the joins.
#[derive(Default)]
struct Sides {
    builds: Vec<RecordBatch>,
    lookups: Vec<Lookup>,
    codes: Vec<JoinCodes>,
    ranges: Vec<DynamicFilter>,
    reservations: Vec<MemoryReservation>,
}

impl Sides {
    fn add(&mut self, side: Side) {
        self.builds.push(side.build);
        self.lookups.push(side.lookup);
        self.codes.extend(side.codes);
        self.ranges.extend(side.range);
        self.reservations.push(side.reservation);
    }
}

/// Runs a build side and makes a look-up of it.
async fn build_side(star: Arc<Star>, idx: usize, context: Arc<TaskContext>) -> Result<Side, Unfit> {
    let join = &star.joins[idx];
    let (build, reservation) = run_build(&join.build, context).await?;
    let array = join.build_key.evaluate(&build)?;
    let array = array.into_array(build.num_rows())?;
    let keys = KeyColumn::new(&array)?;
    let frame = Frame::of(&keys, star.attaches(idx));
    let range = key_range(&star.scan, join, &array, &frame)?;
    reserve(&reservation, frame.size_bytes() + keys.size_bytes())?;
    let mut lookup = Lookup::new(&frame);
    for rows in steps(keys.len()) {
        lookup
            .add(&keys, rows, join.matching)
            .map_err(|Duplicates| Unfit::Fallback(format!("the key {} repeats", join.build_key)))?;
        tokio::task::yield_now().await;
    }
    if lookup.is_ranked() {
        lookup.rank();
        for rows in steps(keys.len()) {
            lookup.attach(&keys, rows);
            tokio::task::yield_now().await;
        }
    }
    reservation.shrink(keys.size_bytes());
    let grouped = star.build_keys().into_iter().flatten();
    let grouped: Vec<_> = grouped.filter(|(of, _)| *of == idx).collect();
    let mut codes = None;
    if !grouped.is_empty() {
        let exprs = grouped.into_iter().map(|(_, expr)| expr);
        let built = JoinCodes::build(exprs, idx, join.matching, &lookup, &build).await;
        // An expression may fail on a build row that no scanned row finds.
        let failed = |error| Unfit::Fallback(format!("grouping build rows: {error}"));
        let built = built.map_err(failed)?;
        reserve(&reservation, built.size_bytes())?;
        codes = Some(built);
    }
    Ok(Side {
        build,
        lookup,
        codes,
        range,
        reservation,
    })
}

/// Rows in steps after which a cancelled query stops.
pub(super) fn steps(row_count: usize) -> impl Iterator<Item = Range<usize>> {
    const STEP_ROWS: usize = 1 << 17;
    let starts = (0..row_count).step_by(STEP_ROWS);
    starts.map(move |start| start..row_count.min(start + STEP_ROWS))
}

/// The rows of a build side, accounted for as they come.
async fn run_build(
    build: &Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<(RecordBatch, MemoryReservation), Unfit> {
    let reservation = MemoryConsumer::new("StarPipelineExec").register(context.memory_pool());
    let mut batches = Vec::new();
    let mut stream = execute_stream(build.clone(), context)?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        // The values only: many batches may look into one buffer.
        let bytes: u64 = batch
            .columns()
            .iter()
            .map(|column| decoded_bytes(column))
            .sum();
        reserve(&reservation, bytes as usize)?;
        batches.push(batch);
    }
    let rows = concat_batches(&build.schema(), &batches).map_err(DataFusionError::from)?;
    drop(batches);
    let held = rows.get_array_memory_size();
    reserve(&reservation, held.saturating_sub(reservation.size()))?;
    reservation.resize(held);
    Ok((rows, reservation))
}

fn reserve(reservation: &MemoryReservation, bytes: usize) -> Result<(), Unfit> {
    reservation.try_grow(bytes).map_err(|_| {
        let held = reservation.size();
        Unfit::Fallback(format!(
            "no memory for {bytes} bytes of a look-up beside {held}"
        ))
    })
}

/// The range of a look-up's keys as a predicate that row groups must be able to meet.
fn key_range(
    scan: &TableScan,
    join: &Join,
    array: &ArrayRef,
    frame: &Frame,
) -> QueryResult<Option<DynamicFilter>> {
    if !matches!(join.matching, Matching::Inner | Matching::Semi) {
        return Ok(None);
    }
    let field = scan.schema.field(join.probe_key);
    if field.data_type() != array.data_type() {
        return Ok(None);
    }
    let Some((least, greatest)) = frame.extremes else {
        return Ok(None);
    };
    let min = ScalarValue::try_from_array(array, least)?;
    let max = ScalarValue::try_from_array(array, greatest)?;
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), join.probe_key));
    let compare = |op, bound: ScalarValue| -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(
            column.clone(),
            op,
            Arc::new(Literal::new(bound)),
        ))
    };
    let range = BinaryExpr::new(
        compare(Operator::GtEq, min),
        Operator::And,
        compare(Operator::LtEq, max),
    );
    Ok(Some(DynamicFilter {
        expr: Arc::new(DynamicFilterPhysicalExpr::new(
            vec![column],
            Arc::new(range),
        )),
        schema: scan.schema.clone(),
    }))
}

impl Ready {
    /// The share of the rows asked for that a look-up kept so far, or a guess.
    pub fn share_kept(&self, join: usize) -> f64 {
        let probed = &self.probed[join];
        match probed.rows.load(Ordering::Relaxed) {
            0 => self.lookups[join].density(),
            rows => probed.kept.load(Ordering::Relaxed) as f64 / rows as f64,
        }
    }

    /// The look-ups in the order that drops most rows first, as measured so far.
    pub fn order(&self) -> Vec<usize> {
        let mut order: Vec<(f64, usize)> = (0..self.lookups.len())
            .map(|join| (self.share_kept(join), join))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        order.into_iter().map(|(_, join)| join).collect()
    }

    /// The look-ups as EXPLAIN ANALYZE shows them: order, kind, keys, share of rows kept.
    pub fn describe(&self) -> String {
        let parts = self.order().into_iter().map(|join| {
            let field = self.star.scan.schema.field(self.star.joins[join].probe_key);
            let rows = self.probed[join].rows.load(Ordering::Relaxed);
            let kept = self.probed[join].kept.load(Ordering::Relaxed);
            format!(
                "{} {} {} keys kept {kept} of {rows}",
                field.name(),
                self.lookups[join].kind(),
                self.lookups[join].row_count()
            )
        });
        parts.collect::<Vec<_>>().join("; ")
    }
}
