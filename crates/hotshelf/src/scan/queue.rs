//! Hands the row groups of a scan to its workers, skips those that cannot match, and reads ahead.
//! What the workers did becomes an observation for the cache's tuner (HPCache §4.1).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use hotshelf_cache::model::{Observation, RunningPipeline};
use hotshelf_cache::{ColumnId, ScanContext};
use parking_lot::Mutex;
use vortex::error::VortexResult;
use vortex::expr::{BoundExpression, Expression, get_item, root};
use vortex::layout::LayoutReader;
use vortex::mask::Mask;
use vortex::session::VortexSession;

use super::filters::{DynamicFilter, IntegerRange};
use super::segments::{ScanSegments, SegmentAdapter};
use crate::error::{Error, Result};
use crate::index::{CoveringRows, ElfAccess, Selected, Selection};
use crate::pipelines::{Operator, PipelineRun, decoded_bytes};
use hotshelf_store::StoreError;
use hotshelf_store::data_file::{DataFile, TableFile};

/// What to scan: the same for all workers of one execution.
pub(crate) struct ScanPlan {
    pub table: String,
    /// What takes the rows.
    pub operator: Operator,
    pub files: Vec<Arc<TableFile>>,
    /// Columns of the output, by index in the table.
    pub columns: Vec<usize>,
    /// Columns that filters read.
    pub filter_columns: Vec<usize>,
    /// Those of the filter columns that are read in any case.
    pub tested_columns: Vec<usize>,
    /// Predicates, with the numbers of the filters they are.
    pub conjuncts: Vec<(Expression, usize)>,
    /// The columns of each filter.
    pub filters: Vec<Vec<usize>>,
    /// The index to ask.
    pub elf: Option<Arc<ElfAccess>>,
    /// Most rows of a batch that comes from an index.
    pub batch_rows: usize,
    /// Ranges that the worker tests itself, by column of the table; empty but for star pipelines.
    pub ranges: Vec<IntegerRange>,
    /// Predicates that skip row groups but are not evaluated on rows here.
    pub prune_only: Vec<Expression>,
    pub dynamic: Vec<DynamicFilter>,
    pub projection: Expression,
    pub look_ahead_bytes: u64,
    /// Row groups that are read ahead at most: each may be of another file, which takes a descriptor.
    pub look_ahead_row_groups: usize,
    /// The cache's numbers of the table's columns.
    pub column_ids: Vec<ColumnId>,
    /// How much the query's time matters to the tuner.
    pub priority: f64,
    /// What the tuner thinks the pipeline will take, if it knows the template, in seconds.
    pub predicted_s: Option<f64>,
}

/// One file as this execution reads it.
pub(crate) struct FileScan {
    pub file: Arc<DataFile>,
    pub segments: Arc<ScanSegments>,
    pub reader: Arc<dyn LayoutReader>,
    /// Predicates that are evaluated on rows, and skip row groups.
    pub conjuncts: Vec<BoundExpression>,
    /// Predicates that only skip row groups.
    prune_only: Vec<BoundExpression>,
    pub projection: BoundExpression,
    /// The columns that are read, one by one, by index in the table.
    pub columns: BTreeMap<usize, BoundExpression>,
    /// One flag per conjunct: whether it holds for every row that an Elf selects.
    covered: Vec<bool>,
    /// The filter columns that are read of row groups whose rows an Elf selected.
    left_columns: Vec<usize>,
    selection: Option<Arc<Selection>>,
    /// The only rows that are read, if the others come from an index.
    missed: Option<Vec<Range<u64>>>,
}

/// A row group for a worker.
pub(crate) struct Morsel {
    pub file: Arc<FileScan>,
    pub row_group_idx: usize,
    pub rows: Range<u64>,
    /// What an Elf selected of the rows.
    pub selected: Selected,
    ahead: Vec<u32>,
    ahead_bytes: u64,
}

/// Files that are not open yet are opened so many at a time.
const OPENED_TOGETHER: usize = 32;

/// A worker takes at most so many row groups at once, and at most one part in so many of what is read ahead.
const TAKEN_MAX: usize = 8;
const TAKEN_PARTS: u64 = 8;

/// The shared state of one execution of a scan.
pub(crate) struct ScanQueue {
    pub plan: ScanPlan,
    pub context: Arc<ScanContext>,
    pub session: VortexSession,
    /// The rows that workers take before any row group, if an index covers the scan.
    pub covering: Option<CoveringRows>,
    position: tokio::sync::Mutex<Position>,
    /// Bytes read ahead and not yet released.
    ahead_bytes: AtomicU64,
    pub morsels_seen: AtomicU64,
    pub morsels_matched: AtomicU64,
    pub pruned: Pruned,
    pub work: Work,
}

/// What the workers of a scan did so far.
#[derive(Default)]
pub(crate) struct Work {
    /// Bytes in memory that each column's segments took, by index in the table.
    column_bytes: Mutex<BTreeMap<usize, u64>>,
    /// Row groups that workers are done with.
    row_groups: AtomicU64,
    pub busy_ns: AtomicU64,
    pub wait_ns: AtomicU64,
    rows_in: AtomicU64,
    rows_kept: AtomicU64,
    decoded_bytes: AtomicU64,
    begun: OnceLock<Instant>,
    elapsed_ns: AtomicU64,
    /// Whether a worker found no more row groups.
    drained: AtomicBool,
    /// Workers that read, and those of them that are still at it.
    workers: AtomicU32,
    workers_left: AtomicU32,
}

impl Work {
    /// Notes that there is nothing left to take.
    pub fn drain(&self) {
        self.drained.store(true, Ordering::Relaxed);
    }

    /// Counts rows that came from an index.
    pub fn cover(&self, rows: usize) {
        self.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
        self.keep(rows);
    }

    /// Counts rows that went on.
    pub fn keep(&self, rows: usize) {
        self.rows_kept.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Counts what was decoded.
    pub fn decode_bytes(&self, bytes: u64) {
        self.decoded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a decoded batch.
    pub fn decode_batch(&self, batch: &RecordBatch) {
        let columns = batch.columns().iter();
        self.decode_bytes(columns.map(|column| decoded_bytes(column)).sum());
    }
}

/// What was skipped without reading.
#[derive(Default)]
pub(crate) struct Pruned {
    pub row_groups: AtomicU64,
    pub bytes: AtomicU64,
}

struct Position {
    files: VecDeque<Arc<TableFile>>,
    /// Those before them that were opened, or could not be.
    opened: VecDeque<Opened>,
    current: Option<Arc<FileScan>>,
    next_row_group: usize,
    ready: VecDeque<Morsel>,
    /// The Elfs' answers by file number, once asked.
    selections: Option<BTreeMap<u64, Arc<Selection>>>,
}

type Opened = std::result::Result<Arc<DataFile>, StoreError>;

impl FileScan {
    /// What is known of the rows of a row group before any is read.
    async fn selected(&self, rows: &Range<u64>) -> Selected {
        match (&self.selection, &self.missed) {
            (Some(selection), _) => selection.rows(rows).await,
            (None, Some(missed)) => Selected::Rows(mask_within(rows, missed)),
            (None, None) => Selected::Unknown,
        }
    }

    /// The conjuncts that rows must still be tested by: all, but those that an Elf's selection covers.
    pub fn left_conjuncts<'a>(
        &'a self,
        selected: &'a Selected,
    ) -> impl Iterator<Item = &'a BoundExpression> {
        let has_rows = matches!(selected, Selected::Rows(_));
        let conjuncts = self.conjuncts.iter().zip(&self.covered);
        conjuncts
            .filter_map(move |(conjunct, covered)| (!(has_rows && *covered)).then_some(conjunct))
    }

    /// Whether the zone maps prove that a predicate holds for no row of a range.
    async fn prunes(&self, rows: &Range<u64>, conjunct: &BoundExpression) -> Result<bool> {
        let all = Mask::new_true((rows.end - rows.start) as usize);
        let mask = match self.reader.pruning_evaluation(rows, conjunct, all) {
            Ok(mask) => mask.await,
            Err(error) => Err(error),
        };
        let mask = mask.map_err(|error| self.segments.typed(error))?;
        Ok(mask.all_false())
    }
}

/// Those of some rows that stand in other ranges, which ascend.
fn mask_within(rows: &Range<u64>, ranges: &[Range<u64>]) -> Mask {
    let inside = ranges.iter().filter_map(|range| {
        let (start, end) = (range.start.max(rows.start), range.end.min(rows.end));
        (start < end).then(|| ((start - rows.start) as usize, (end - rows.start) as usize))
    });
    Mask::from_slices((rows.end - rows.start) as usize, inside.collect())
}

impl ScanQueue {
    pub fn new(plan: ScanPlan, context: Arc<ScanContext>, session: VortexSession) -> Self {
        let position = Position {
            files: plan.files.iter().cloned().collect(),
            opened: VecDeque::new(),
            current: None,
            next_row_group: 0,
            ready: VecDeque::new(),
            selections: None,
        };
        let elf = plan.elf.as_ref();
        Self {
            covering: elf.and_then(|elf| CoveringRows::new(elf, plan.batch_rows)),
            plan,
            context,
            session,
            position: tokio::sync::Mutex::new(position),
            ahead_bytes: AtomicU64::new(0),
            morsels_seen: AtomicU64::new(0),
            morsels_matched: AtomicU64::new(0),
            pruned: Pruned::default(),
            work: Work::default(),
        }
    }

    /// A worker begins. True for the first.
    pub fn enter(&self) -> bool {
        self.work.begun.get_or_init(Instant::now);
        self.work.workers_left.fetch_add(1, Ordering::Relaxed);
        self.work.workers.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// A worker ends. The last one gets the whole run.
    pub fn leave(&self) -> Option<PipelineRun> {
        let elapsed = self.work.begun.get().map(Instant::elapsed);
        let elapsed_ns = elapsed.unwrap_or_default().as_nanos() as u64;
        self.work
            .elapsed_ns
            .fetch_max(elapsed_ns, Ordering::Relaxed);
        let last = self.work.workers_left.fetch_sub(1, Ordering::AcqRel) == 1;
        last.then(|| self.run())
    }

    /// What the workers did so far.
    pub fn run(&self) -> PipelineRun {
        let work = &self.work;
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        PipelineRun {
            query: self.context.query,
            pipeline: self.context.pipeline,
            template: self.context.template,
            table: self.plan.table.clone(),
            operator: self.plan.operator,
            workers: work.workers.load(Ordering::Relaxed),
            row_groups: load(&work.row_groups),
            row_groups_pruned: load(&self.pruned.row_groups),
            rows_in: load(&work.rows_in),
            rows_kept: load(&work.rows_kept),
            encoded_bytes: work.column_bytes.lock().values().sum(),
            decoded_bytes: load(&work.decoded_bytes),
            counters: self.context.counters(),
            busy_ns: load(&work.busy_ns),
            wait_ns: load(&work.wait_ns),
            elapsed_ns: load(&work.elapsed_ns),
            finished: work.drained.load(Ordering::Relaxed),
        }
    }

    /// The run as the tuner wants it once the last worker has left, if anything was read. It is not finished if row
    /// groups were left: the query was cancelled, failed, or had enough.
    pub fn last_observation(&self) -> Option<Observation> {
        let finished = self.work.drained.load(Ordering::Relaxed);
        self.observation(1.0, finished)
    }

    /// What the workers did. The bytes of the whole run are `whole` times those read so far.
    fn observation(&self, whole: f64, finished: bool) -> Option<Observation> {
        let column_bytes = self.work.column_bytes.lock();
        let of_run = |bytes: u64| (bytes as f64 * whole) as u64;
        let columns: Vec<(ColumnId, u64)> = column_bytes
            .iter()
            .map(|(column, bytes)| (self.plan.column_ids[*column], of_run(*bytes)))
            .collect();
        let processed_bytes = column_bytes.values().sum();
        (processed_bytes > 0).then(|| Observation {
            query: self.context.query,
            pipeline: self.context.pipeline,
            template: self.context.template,
            columns,
            processed_bytes,
            storage_bytes: self.context.counters().bytes_storage,
            busy_ns: self.work.busy_ns.load(Ordering::Relaxed),
            wait_ns: self.work.wait_ns.load(Ordering::Relaxed),
            worker_count: self.work.workers.load(Ordering::Relaxed),
            priority: self.plan.priority,
            finished,
        })
    }

    /// The next row groups, once what was read ahead of them has arrived; none when all are taken. Who waits for
    /// storage waits once for several: the processor's caches outlive few pauses. The fewer are left, the fewer are
    /// taken, so that workers end together.
    pub async fn take(&self) -> Result<VecDeque<Morsel>> {
        let workers = self.work.workers.load(Ordering::Relaxed).max(1) as usize;
        let mut position = self.position.lock().await;
        let mut taken = VecDeque::new();
        let mut bytes = 0;
        while let Some(morsel) = self.next_at(&mut position).await? {
            bytes += morsel.ahead_bytes;
            taken.push_back(morsel);
            let share = position.ready.len() / (2 * workers);
            let many = bytes * TAKEN_PARTS >= self.plan.look_ahead_bytes;
            if many || taken.len() >= share.min(TAKEN_MAX) {
                break;
            }
        }
        drop(position);
        for morsel in taken.iter().rev() {
            morsel.file.segments.arrive(&morsel.ahead).await;
        }
        Ok(taken)
    }

    /// The next row group, with reads for it and those after it under way.
    pub async fn next(&self) -> Result<Option<Morsel>> {
        self.next_at(&mut *self.position.lock().await).await
    }

    async fn next_at(&self, position: &mut Position) -> Result<Option<Morsel>> {
        loop {
            let enough = self.ahead_bytes.load(Ordering::Relaxed) >= self.plan.look_ahead_bytes
                || position.ready.len() >= self.plan.look_ahead_row_groups;
            if enough && let Some(morsel) = position.ready.pop_front() {
                return Ok(Some(morsel));
            }
            match self.discover(position).await? {
                Some(morsel) => position.ready.push_back(morsel),
                None => {
                    let last = position.ready.pop_front();
                    if last.is_none() {
                        self.work.drain();
                    }
                    return Ok(last);
                }
            }
        }
    }

    /// The next row group of the files that may hold matching rows.
    async fn discover(&self, position: &mut Position) -> Result<Option<Morsel>> {
        loop {
            let Some(file) = position.current.clone() else {
                let Some(next) = next_file(position).await? else {
                    return Ok(None);
                };
                let elf = self.plan.elf.as_ref().filter(|_| self.covering.is_none());
                let selections = position
                    .selections
                    .get_or_insert_with(|| elf.map(|elf| elf.start()).unwrap_or_default());
                let selection = selections.remove(&next.paths.number);
                let missed = match &self.covering {
                    Some(covering) => Some(covering.missed(next.paths.number).await),
                    None => None,
                };
                let mut file = self.open(next, selection)?;
                file.missed = missed;
                position.current = Some(Arc::new(file));
                position.next_row_group = 0;
                continue;
            };
            let row_group_idx = position.next_row_group;
            let Some(rows) = file.file.map.row_groups.get(row_group_idx).cloned() else {
                position.current = None;
                continue;
            };
            position.next_row_group += 1;
            let selected = file.selected(&rows).await;
            if selected.is_empty() || self.cannot_match(&file, &rows, &selected).await? {
                self.pruned.row_groups.fetch_add(1, Ordering::Relaxed);
                self.pruned.bytes.fetch_add(
                    self.row_group_bytes(&file, row_group_idx),
                    Ordering::Relaxed,
                );
                continue;
            }
            return Ok(Some(self.begin(file, row_group_idx, rows, selected)));
        }
    }

    fn open(&self, file: Arc<DataFile>, selection: Option<Arc<Selection>>) -> Result<FileScan> {
        let segments = ScanSegments::new(file.clone(), self.context.clone());
        let source = Arc::new(SegmentAdapter(segments.clone()));
        let layout = file.footer.layout();
        let reader = layout.new_reader("".into(), source, &self.session, &Default::default())?;
        let bind = |expr: &Expression| expr.bind(file.footer.dtype());
        let plan = &self.plan;
        let query = plan.elf.as_ref().filter(|_| selection.is_some());
        let query = query.and_then(|elf| elf.file(file.paths.number));
        let is_covered = |filter: usize| query.is_some_and(|query| query.covered[filter]);
        let covered = plan.conjuncts.iter().map(|(_, filter)| is_covered(*filter));
        let covered = covered.collect();
        let left = (0..plan.filters.len()).filter(|filter| !is_covered(*filter));
        let left = left.flat_map(|filter| &plan.filters[filter]);
        let mut left_columns: Vec<usize> = left.chain(&plan.tested_columns).copied().collect();
        left_columns.sort_unstable();
        left_columns.dedup();
        let conjuncts = plan.conjuncts.iter().map(|(conjunct, _)| bind(conjunct));
        let conjuncts = conjuncts.collect::<VortexResult<_>>()?;
        let prune_only = plan.prune_only.iter().map(bind);
        let prune_only = prune_only.collect::<VortexResult<_>>()?;
        let projection = bind(&plan.projection)?;
        let names = file.footer.dtype().as_struct_fields_opt();
        let names = names.map(|fields| fields.names());
        let columns = plan.columns.iter().chain(&plan.filter_columns);
        let columns = columns
            .filter_map(|column| Some((*column, names?.get(*column)?.clone())))
            .map(|(column, name)| Ok((column, bind(&get_item(name, root()))?)))
            .collect::<VortexResult<_>>()?;
        Ok(FileScan {
            file,
            segments,
            reader,
            conjuncts,
            prune_only,
            projection,
            columns,
            covered,
            left_columns,
            selection,
            missed: None,
        })
    }

    /// Whether the zone maps prove that no row of the range matches.
    async fn cannot_match(
        &self,
        file: &FileScan,
        rows: &Range<u64>,
        selected: &Selected,
    ) -> Result<bool> {
        let dynamic = self
            .plan
            .dynamic
            .iter()
            .flat_map(|filter| filter.current(&self.session));
        let dynamic = dynamic.filter_map(|expr| expr.bind(file.file.footer.dtype()).ok());
        let conjuncts = file.left_conjuncts(selected).chain(&file.prune_only);
        for conjunct in conjuncts.cloned().chain(dynamic) {
            // The first row's zone mostly decides, at a fraction of the price of a mask of all rows.
            let first = rows.start..rows.end.min(rows.start + 1);
            let pruned = file.prunes(&first, &conjunct).await?
                && (rows.end <= first.end || file.prunes(rows, &conjunct).await?);
            if pruned {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn row_group_bytes(&self, file: &FileScan, row_group_idx: usize) -> u64 {
        let map = &file.file.map;
        let columns = self.plan.columns.iter().chain(&self.plan.filter_columns);
        let segments = columns.flat_map(|column| map.data_segments(*column, row_group_idx));
        segments
            .filter(|idx| map.starts_in(**idx, row_group_idx))
            .map(|idx| u64::from(map.specs[*idx as usize].length))
            .sum()
    }

    /// Filter columns were read in any case, the others if rows survived.
    fn count(&self, morsel: &Morsel, matched: bool) {
        let map = &morsel.file.file.map;
        let rows = morsel.rows.end - morsel.rows.start;
        self.work.rows_in.fetch_add(rows, Ordering::Relaxed);
        let filters = self.filter_columns(&morsel.file, &morsel.selected);
        let mut columns: Vec<usize> = filters.to_vec();
        if matched {
            let payload = self.plan.columns.iter();
            columns.extend(payload.filter(|column| !filters.contains(column)));
        }
        self.work.row_groups.fetch_add(1, Ordering::Relaxed);
        let mut column_bytes = self.work.column_bytes.lock();
        for column in columns {
            let segments = map.data_segments(column, morsel.row_group_idx);
            *column_bytes.entry(column).or_default() += segments
                .iter()
                .filter(|idx| map.starts_in(**idx, morsel.row_group_idx))
                .map(|idx| map.charged_bytes(*idx))
                .sum::<u64>();
        }
    }

    /// The columns read to choose rows of a row group.
    fn filter_columns<'a>(&'a self, file: &'a FileScan, selected: &Selected) -> &'a [usize] {
        match selected {
            Selected::Rows(_) => &file.left_columns,
            Selected::Unknown => &self.plan.filter_columns,
        }
    }

    /// Starts the reads of a row group: filter columns always, the others where rows usually survive.
    fn begin(
        &self,
        file: Arc<FileScan>,
        row_group_idx: usize,
        rows: Range<u64>,
        selected: Selected,
    ) -> Morsel {
        let map = &file.file.map;
        let mut ahead: Vec<u32> = Vec::new();
        if self.plan.look_ahead_bytes > 0 {
            let payload = if self.rows_usually_survive() {
                self.plan.columns.as_slice()
            } else {
                &[]
            };
            let filters = self.filter_columns(&file, &selected);
            for column in filters.iter().chain(payload) {
                ahead.extend(map.data_segments(*column, row_group_idx));
            }
            ahead.sort_unstable();
            ahead.dedup();
        }
        let ahead_bytes = file.segments.look_ahead(ahead.iter().copied());
        self.ahead_bytes.fetch_add(ahead_bytes, Ordering::Relaxed);
        Morsel {
            file,
            row_group_idx,
            rows,
            selected,
            ahead,
            ahead_bytes,
        }
    }

    fn rows_usually_survive(&self) -> bool {
        let seen = self.morsels_seen.load(Ordering::Relaxed);
        seen < 4 || self.morsels_matched.load(Ordering::Relaxed) * 2 > seen
    }

    /// Lets go of what was read ahead for a row group, and counts what was read of it.
    pub fn release(&self, morsel: &mut Morsel, matched: bool) {
        self.count(morsel, matched);
        morsel.file.segments.release(morsel.ahead.drain(..));
        self.ahead_bytes
            .fetch_sub(std::mem::take(&mut morsel.ahead_bytes), Ordering::Relaxed);
    }
}

/// The next file, open.
async fn next_file(position: &mut Position) -> Result<Option<Arc<DataFile>>> {
    if position.opened.is_empty() {
        let count = position.files.len().min(OPENED_TOGETHER);
        let next = position.files.range(..count).cloned().collect();
        let opened = open_files(next).await?;
        // Not before: the worker may be dropped while it waits.
        position.files.drain(..count);
        position.opened = opened.into();
    }
    let next = position.opened.pop_front();
    Ok(next.transpose()?)
}

/// Opens files away from the runtime's threads, unless all are open.
async fn open_files(files: Vec<Arc<TableFile>>) -> Result<Vec<Opened>> {
    let open: Option<Vec<_>> = files.iter().map(|file| file.opened()).collect();
    if let Some(open) = open {
        return Ok(open.into_iter().map(Ok).collect());
    }
    let stopped = |error| Error::Query(DataFusionError::ExecutionJoin(Box::new(error)));
    let opened = SpawnedTask::spawn_blocking(move || TableFile::open_all(&files));
    opened.await.map_err(stopped)
}

impl RunningPipeline for ScanQueue {
    /// The bytes of the whole run, as if the row groups to come were like those so far.
    fn observe(&self) -> Option<Observation> {
        if self.work.workers_left.load(Ordering::Acquire) == 0 {
            return None;
        }
        let done = self.work.row_groups.load(Ordering::Relaxed);
        let pruned = self.pruned.row_groups.load(Ordering::Relaxed);
        let files = self.plan.files.iter();
        let all: usize = files.map(|file| file.row_group_count()).sum();
        let left = (all as u64).saturating_sub(done + pruned) as f64;
        let match_share = done as f64 / (done + pruned).max(1) as f64;
        let whole = 1.0 + left * match_share / done.max(1) as f64;
        self.observation(whole, false)
    }
}
