//! Hands the row groups of a scan to its workers, skips those that cannot match, and reads ahead.
//!
//! They come in the order of the files, or in that of a sort with a limit above the scan. In the latter case no more
//! are read ahead than workers have finished, and each is looked at again before a worker gets it: the sort's threshold
//! soon excludes nearly all.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::Schema;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use hotshelf_cache::ScanContext;
use hotshelf_cache::model::{Observation, RunningPipeline};
use hotshelf_store::StoreError;
use hotshelf_store::data_file::{DataFile, TableFile};
use parking_lot::Mutex;
use vortex::session::VortexSession;

use super::file::{FileScan, Known, Morsel, Narrowing};
use super::filters::{DynamicFilter, KnownPart};
use super::plan::ScanPlan;
use super::read_first::ReadFirst;
use super::turn::{Turn, turn};
use super::work::Work;
use super::zones::{ordered_files, ordered_row_groups};
use crate::error::{Error, Result};
use crate::index::{AccessPath, CoveringRows, Selected, Selection};
use crate::pipelines::{Operator, PipelineRun};

/// This many files that are not open yet are opened together.
const OPENED_TOGETHER: usize = 32;

/// A worker takes at most this many row groups at once, and about this part of what is read ahead.
const TAKEN_MAX: usize = 8;
const TAKEN_PARTS: u64 = 8;

/// At least this many rows are decoded at once: a batch.
const DECODED_ROWS_MIN: usize = 8192;
/// What a text, or another value of no fixed width, is taken to be, in bytes.
const TEXT_BYTES: usize = 40;

/// The shared state of one execution of a scan.
pub(crate) struct ScanQueue {
    pub plan: ScanPlan,
    pub context: Arc<ScanContext>,
    pub session: VortexSession,
    begun: OnceLock<Begun>,
    pub work: Work,
    /// Row groups that may match, with their reads under way.
    ready: Mutex<VecDeque<Morsel>>,
    /// Finds more of them: one worker at a time, which may have to wait for Elfs or zone maps, while the others take
    /// what is ready.
    discovery: tokio::sync::Mutex<Discovery>,
    /// Bytes read ahead and not yet released.
    ahead_bytes: AtomicU64,
}

/// How rows are found, fixed when the first worker begins.
struct Begun {
    access: AccessPath,
    /// The rows that workers take before any row group, if an index covers the scan.
    covering: Option<CoveringRows>,
}

/// How far the files were looked through.
struct Discovery {
    files: VecDeque<Arc<TableFile>>,
    /// Those before them that were opened, or could not be.
    opened: VecDeque<Opened>,
    current: Option<Arc<FileScan>>,
    next_row_group: usize,
    /// The row groups of the files that were opened together, in the order of a sort.
    ordered: VecDeque<RowGroup>,
    /// The Elfs' answers by file number, once asked.
    selections: Option<BTreeMap<u64, Arc<Selection>>>,
}

type Opened = std::result::Result<Arc<DataFile>, StoreError>;

/// A file and the number of one of its row groups.
type RowGroup = (Arc<FileScan>, usize);

impl ScanQueue {
    pub fn new(plan: ScanPlan, context: Arc<ScanContext>, session: VortexSession) -> Self {
        let files = match &plan.first {
            Some(first) if plan.access.elf.is_none() => ordered_files(&plan.files, first),
            _ => plan.files.iter().cloned().collect(),
        };
        let discovery = Discovery {
            files,
            opened: VecDeque::new(),
            current: None,
            next_row_group: 0,
            ordered: VecDeque::new(),
            selections: None,
        };
        Self {
            begun: OnceLock::new(),
            plan,
            context,
            session,
            work: Work::default(),
            ready: Mutex::default(),
            discovery: tokio::sync::Mutex::new(discovery),
            ahead_bytes: AtomicU64::new(0),
        }
    }

    fn begun(&self) -> &Begun {
        self.begun.get_or_init(|| {
            let plan = &self.plan;
            let choose = plan.choose.as_ref();
            let access = choose.map_or_else(|| plan.access.clone(), |choose| choose());
            let covering = access.elf.as_ref().and_then(|elf| {
                CoveringRows::new(elf, &plan.outcome, plan.batch_rows, plan.weight)
            });
            Begun { access, covering }
        })
    }

    /// What a sort above wants first, unless an index chooses the rows.
    fn first(&self) -> Option<&ReadFirst> {
        let first = self.plan.first.as_ref();
        first.filter(|_| self.begun().access.elf.is_none())
    }

    /// The rows that workers take before any row group, if an index covers the scan.
    pub fn covering(&self) -> Option<&CoveringRows> {
        self.begun().covering.as_ref()
    }

    /// What the workers did so far.
    pub fn run(&self) -> PipelineRun {
        self.work.run(&self.plan, &self.context)
    }

    /// The same for the tuner, if anything was read.
    pub fn observation(&self) -> Option<Observation> {
        self.work.observation(&self.plan, &self.context)
    }

    /// The next row groups, once what was read ahead of them has arrived; none when all are taken. A worker that has
    /// to wait for storage waits once for several: the processor's caches outlive few pauses. The fewer remain, the
    /// fewer are taken, so that workers end together.
    pub async fn take(&self) -> Result<VecDeque<Morsel>> {
        let workers = self.work.worker_count();
        let mut taken = VecDeque::new();
        let mut bytes = 0;
        while let Some(morsel) = self.next().await? {
            bytes += morsel.ahead_bytes;
            taken.push_back(morsel);
            let share = self.ready.lock().len() / (2 * workers);
            let many = bytes * TAKEN_PARTS >= self.plan.look_ahead_bytes;
            if many || taken.len() >= share.min(TAKEN_MAX) {
                break;
            }
        }
        for morsel in taken.iter().rev() {
            morsel.file.segments.arrive(&morsel.ahead).await;
        }
        Ok(taken)
    }

    /// The next row group, with reads for it and those after it under way.
    pub async fn next(&self) -> Result<Option<Morsel>> {
        while let Some(morsel) = self.next_begun().await? {
            if let Some(morsel) = self.still_wanted(morsel).await? {
                return Ok(Some(morsel));
            }
        }
        Ok(None)
    }

    /// The row group with what is known by now, unless that excludes it.
    async fn still_wanted(&self, mut morsel: Morsel) -> Result<Option<Morsel>> {
        if self.first().is_none() || morsel.known_version == self.known_version() {
            return Ok(Some(morsel));
        }
        let narrowing = self.narrowing(&morsel.file, &morsel.rows, &morsel.selected);
        let Some(narrowing) = narrowing.await? else {
            self.skip(&morsel.file, morsel.row_group_idx);
            self.let_go(&mut morsel);
            return Ok(None);
        };
        morsel.narrowing = narrowing;
        Ok(Some(morsel))
    }

    /// The next row group whose reads are under way.
    async fn next_begun(&self) -> Result<Option<Morsel>> {
        loop {
            if self.is_far_ahead()
                && let Some(morsel) = self.next_ready()
            {
                return Ok(Some(morsel));
            }
            let mut discovery = match turn(&self.discovery, || self.next_ready()).await {
                Turn::Work(morsel) => return Ok(Some(morsel)),
                Turn::Discover(discovery) => discovery,
            };
            match self.discover(&mut discovery).await? {
                Some(morsel) => self.ready.lock().push_back(morsel),
                None => {
                    let last = self.next_ready();
                    if last.is_none() {
                        self.work.drain();
                    }
                    return Ok(last);
                }
            }
        }
    }

    fn next_ready(&self) -> Option<Morsel> {
        self.ready.lock().pop_front()
    }

    fn is_far_ahead(&self) -> bool {
        let mut row_groups_max = self.plan.look_ahead_row_groups;
        if self.first().is_some() {
            // As much as was needed so far: the rest may turn out not to be wanted.
            let needed = self.work.row_group_count().max(self.work.worker_count());
            row_groups_max = row_groups_max.min(needed);
        }
        self.ahead_bytes.load(Ordering::Relaxed) >= self.plan.look_ahead_bytes
            || self.ready.lock().len() >= row_groups_max
    }

    /// The next row group of the files that may hold matching rows.
    async fn discover(&self, discovery: &mut Discovery) -> Result<Option<Morsel>> {
        while let Some((file, row_group_idx)) = self.next_row_group(discovery).await? {
            let rows = file.file.map.row_groups[row_group_idx].clone();
            let selected = file.selected(&rows).await;
            let known_version = self.known_version();
            let Some(narrowing) = self.narrowing(&file, &rows, &selected).await? else {
                self.skip(&file, row_group_idx);
                continue;
            };
            let mut morsel = self.begin(file, row_group_idx, rows, selected);
            morsel.narrowing = narrowing;
            morsel.known_version = known_version;
            return Ok(Some(morsel));
        }
        Ok(None)
    }

    /// The next row group, whatever it holds.
    async fn next_row_group(&self, discovery: &mut Discovery) -> Result<Option<RowGroup>> {
        if let Some(first) = self.first() {
            return self.next_ordered(discovery, first).await;
        }
        loop {
            let Some(file) = discovery.current.clone() else {
                let Some(next) = next_file(discovery, self.plan.weight).await? else {
                    return Ok(None);
                };
                let known = self.known(discovery, next.paths.number).await;
                discovery.current = Some(self.open(next, known)?);
                discovery.next_row_group = 0;
                continue;
            };
            let row_group_idx = discovery.next_row_group;
            if row_group_idx < file.file.map.row_groups.len() {
                discovery.next_row_group += 1;
                return Ok(Some((file, row_group_idx)));
            }
            discovery.current = None;
        }
    }

    /// The next row group in the order of a sort, among those of the files that are opened together.
    async fn next_ordered(
        &self,
        discovery: &mut Discovery,
        first: &ReadFirst,
    ) -> Result<Option<RowGroup>> {
        while discovery.ordered.is_empty() && open_next(discovery, self.plan.weight).await? {
            let opened = discovery.opened.iter().flatten();
            let files = opened.map(|file| self.open(file.clone(), Known::Nothing));
            let files = files.collect::<Result<Vec<_>>>()?;
            let ordered = ordered_row_groups(files, first, &self.session).await?;
            // Not before: the worker may be dropped while it waits.
            let opened = std::mem::take(&mut discovery.opened);
            opened.into_iter().try_for_each(|file| file.map(drop))?;
            discovery.ordered = ordered;
        }
        Ok(discovery.ordered.pop_front())
    }

    fn open(&self, file: Arc<DataFile>, known: Known) -> Result<Arc<FileScan>> {
        let how = (&self.begun().access, known);
        let file = FileScan::open(file, how, &self.plan, &self.context, &self.session)?;
        Ok(Arc::new(file))
    }

    /// What drops rows of a row group by now; `None` if no row of it is wanted, as far as zone maps and Elfs know.
    async fn narrowing(
        &self,
        file: &FileScan,
        rows: &Range<u64>,
        selected: &Selected,
    ) -> Result<Option<Vec<Narrowing>>> {
        if selected.is_empty() {
            return Ok(None);
        }
        let Some(known) = self.known_now(file) else {
            return Ok(None);
        };
        if file.cannot_match(rows, selected, &known).await? {
            return Ok(None);
        }
        let pays = self.work.narrowing.pays();
        let narrowing = known.iter().filter(|part| pays && part.drops_rows);
        Ok(Some(narrowing.cloned().collect()))
    }

    /// Counts a row group that is not read.
    fn skip(&self, file: &FileScan, row_group_idx: usize) {
        let bytes = file.row_group_bytes(&self.plan, row_group_idx);
        self.work.pruned.add(bytes);
    }

    /// A number that changes when more becomes known.
    fn known_version(&self) -> u64 {
        let versions = self.plan.dynamic.iter().map(DynamicFilter::version);
        versions.fold(0, u64::wrapping_add)
    }

    /// What is known by now, over the columns of a file; `None` if no row can pass any more.
    fn known_now(&self, file: &FileScan) -> Option<Arc<[Narrowing]>> {
        file.narrowings(self.known_version(), || {
            let parts = self.dynamic_filters()?;
            Some(self.bound(file, parts))
        })
    }

    /// What became known while the query runs; `None` if no row can pass any more.
    fn dynamic_filters(&self) -> Option<Vec<KnownPart>> {
        let filters = self.plan.dynamic.iter();
        let filters: Option<Vec<_>> = filters
            .map(|filter| filter.current(&self.session))
            .collect();
        filters.map(|parts| parts.into_iter().flatten().collect())
    }

    /// What is known by now, over the columns of a file.
    fn bound(&self, file: &FileScan, known: Vec<KnownPart>) -> Vec<Narrowing> {
        let is_star = self.plan.operator == Operator::Star;
        let bound = known.into_iter().filter_map(|part| {
            let columns = self.plan.columns_of(&part);
            Some(Narrowing {
                expr: part.expr.bind(file.file.footer.dtype()).ok()?,
                drops_rows: columns.is_some() && !(is_star && part.is_of_words),
                columns: columns.unwrap_or_default(),
            })
        });
        bound.collect()
    }

    /// What is known about a file's rows. All Elfs are asked with the first file.
    async fn known(&self, discovery: &mut Discovery, number: u64) -> Known {
        if let Some(wanted) = &self.plan.wanted {
            return Known::Only(wanted.get(&number).cloned().unwrap_or_default());
        }
        if let Some(covering) = self.covering() {
            return Known::Only(covering.missed(number).await);
        }
        let elf = self.begun().access.elf.as_ref();
        let start = || elf.map(|elf| elf.start(&self.plan.outcome, self.plan.weight));
        let selections = discovery
            .selections
            .get_or_insert_with(|| start().unwrap_or_default());
        let selection = selections.remove(&number);
        selection.map_or(Known::Nothing, Known::Selection)
    }

    /// Starts the reads of a row group: filter columns always, the others where rows usually survive.
    fn begin(
        &self,
        file: Arc<FileScan>,
        row_group_idx: usize,
        rows: Range<u64>,
        selected: Selected,
    ) -> Morsel {
        let mut morsel = Morsel {
            file,
            row_group_idx,
            rows,
            selected,
            narrowing: Vec::new(),
            known_version: 0,
            ahead: Vec::new(),
            ahead_bytes: 0,
        };
        if self.plan.look_ahead_bytes > 0 {
            let map = &morsel.file.file.map;
            let columns = morsel.columns_read(&self.plan, self.work.rows_usually_survive());
            let segments = columns.iter();
            let segments = segments.flat_map(|column| map.data_segments(*column, row_group_idx));
            let mut ahead: Vec<u32> = segments.copied().collect();
            ahead.sort_unstable();
            ahead.dedup();
            morsel.ahead_bytes = morsel.file.segments.look_ahead(ahead.iter().copied());
            morsel.ahead = ahead;
        }
        self.ahead_bytes
            .fetch_add(morsel.ahead_bytes, Ordering::Relaxed);
        morsel
    }

    /// Rows that are decoded at once. A whole row group where memory is plenty.
    pub fn rows_at_once(&self, schema: &Schema) -> usize {
        let widths = schema.fields().iter().map(|field| {
            let width = field.data_type().primitive_width();
            width.unwrap_or(TEXT_BYTES)
        });
        let rows = self.plan.decoded_bytes_max as usize / widths.sum::<usize>().max(1);
        (rows - rows % DECODED_ROWS_MIN).max(DECODED_ROWS_MIN)
    }

    /// Lets go of what was read ahead for a row group, and counts what was read of it: filter columns in any case, the
    /// others if rows survived.
    pub fn release(&self, morsel: &mut Morsel, matched: bool) {
        let columns = morsel.columns_read(&self.plan, matched);
        self.work.finish(morsel, &columns);
        self.let_go(morsel);
    }

    fn let_go(&self, morsel: &mut Morsel) {
        morsel.file.segments.release(morsel.ahead.drain(..));
        self.ahead_bytes
            .fetch_sub(std::mem::take(&mut morsel.ahead_bytes), Ordering::Relaxed);
    }
}

/// The next file, open.
async fn next_file(discovery: &mut Discovery, weight: f64) -> Result<Option<Arc<DataFile>>> {
    open_next(discovery, weight).await?;
    let next = discovery.opened.pop_front();
    Ok(next.transpose()?)
}

/// Opens the next files together, unless there are open ones. Whether there are some then.
async fn open_next(discovery: &mut Discovery, weight: f64) -> Result<bool> {
    if discovery.opened.is_empty() {
        let count = discovery.files.len().min(OPENED_TOGETHER);
        let next = discovery.files.range(..count).cloned().collect();
        let opened = open_files(next, weight).await?;
        // Not before: the worker may be dropped while it waits.
        discovery.files.drain(..count);
        discovery.opened = opened.into();
    }
    Ok(!discovery.opened.is_empty())
}

/// Opens files away from the runtime's threads, unless all are open.
pub(super) async fn open_files(files: Vec<Arc<TableFile>>, weight: f64) -> Result<Vec<Opened>> {
    let open = files.iter().map(|file| file.opened_for(weight));
    let open: Option<Vec<_>> = open.collect();
    if let Some(open) = open {
        return Ok(open.into_iter().map(Ok).collect());
    }
    let stopped = |error| Error::Query(DataFusionError::ExecutionJoin(Box::new(error)));
    let opened = SpawnedTask::spawn_blocking(move || TableFile::open_all(&files, weight));
    opened.await.map_err(stopped)
}

impl RunningPipeline for ScanQueue {
    fn observe(&self) -> Option<Observation> {
        match self.work.is_under_way() {
            true => self.observation(),
            false => None,
        }
    }
}
