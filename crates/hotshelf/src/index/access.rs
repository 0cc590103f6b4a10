//! Elf or scan: which index a scan asks, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_cache::ColumnId;
use hotshelf_elf::cost::Costs;
use hotshelf_elf::keys::{Coverage, QueryBox};

use super::TableIndex;
use super::file::{CLUSTERED_COSTS, COSTS, IndexFile};
use super::predicate::Condition;
use super::selection::{Outcome, Selection};
use super::store::ElfStore;
use super::zones::ZONE_ROWS;
use crate::settings::ElfUse;
use crate::table::Table;

/// Evaluating a predicate on one encoded value (`docs/BENCHMARKS.md`).
const SCAN_NS: f64 = 0.6;
/// Decoding one join key and looking it up.
const LOOK_UP_NS: f64 = 2.5;
/// Reading a byte that is not in memory.
const READ_NS: f64 = 0.7;
/// Rows of a row group.
const GROUP_ROWS: f64 = 131_072.0;

/// A filter of a scan, as far as an Elf can use it.
#[derive(Debug, Clone)]
pub(crate) struct Conjunct {
    /// The condition it is, on a column of the table.
    pub condition: Option<Condition>,
    /// Columns it reads, by index in the table.
    pub columns: Vec<usize>,
}

/// How a scan finds its rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// The Elf to ask, if that is faster.
    pub elf: Option<Arc<ElfAccess>>,
    /// What was weighed; empty if no index could help.
    reason: String,
}

/// A scan's question to one index.
#[derive(Debug)]
pub(crate) struct ElfAccess {
    name: String,
    store: Arc<ElfStore>,
    /// By the number of the data file; others are scanned.
    files: Questions,
    pub outcome: Arc<Outcome>,
}

/// The question to the Elfs of one data file.
#[derive(Debug)]
pub(crate) struct FileQuery {
    file: Arc<IndexFile>,
    query: QueryBox,
    /// One flag per conjunct: whether the answer says all that it says.
    pub covered: Vec<bool>,
}

impl ElfAccess {
    /// The question to one data file.
    pub fn file(&self, number: u64) -> Option<&FileQuery> {
        self.files.get(&number)
    }

    /// Begins to ask all files.
    pub fn start(&self) -> BTreeMap<u64, Arc<Selection>> {
        let start = |query: &FileQuery| {
            Selection::start(&self.store, &query.file, &query.query, &self.outcome)
        };
        self.files
            .iter()
            .map(|(number, query)| (*number, Arc::new(start(query))))
            .collect()
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(elf) = &self.elf else {
            return match self.reason.as_str() {
                "" => Ok(()),
                reason => write!(f, ", access=scan ({reason})"),
            };
        };
        write!(f, ", access=elf {} ({})", elf.name, self.reason)?;
        let outcome = &elf.outcome;
        if outcome.asked.load(Ordering::Relaxed) > 0 {
            let rows = outcome.rows.load(Ordering::Relaxed);
            let ms = outcome.busy_ns.load(Ordering::Relaxed) as f64 / 1e6;
            write!(f, ", found {rows} rows in {ms:.2} ms")?;
        }
        if let Some(why) = outcome.unavailable.lock().as_ref() {
            write!(f, ", scanned in part: {why}")?;
        }
        Ok(())
    }
}

impl FileQuery {
    /// Whether the zone that a row belongs to may hold rows that are asked for.
    fn may_match(&self, row: u64) -> bool {
        let stretches = &self.file.stretches;
        let stretch = stretches.partition_point(|stretch| stretch.rows.end <= row);
        stretches.get(stretch).is_none_or(|stretch| {
            let zone = (row - stretch.rows.start) / ZONE_ROWS;
            stretch.zones.may_match(zone as usize, &self.query)
        })
    }
}

/// The questions of one index, by the number of the data file.
type Questions = BTreeMap<u64, FileQuery>;

/// One index, weighed.
struct Candidate<'a> {
    index: &'a TableIndex,
    files: Questions,
    rows: f64,
    elf_ns: f64,
    /// Bytes of Elfs that are not in memory.
    read_bytes: u64,
}

/// Time that queries of an index lost because its Elfs were not in memory, in nanoseconds. When it reaches the
/// time of reading them they are read: at worst twice what would have been best.
pub(crate) type Lost = Arc<AtomicU64>;

/// Chooses between the table's Elfs and the scan. `hints` are conditions that rows need to meet anyway and
/// that look-ups check (the range of a join's keys). With `runs` the choice is carried out, not only shown.
pub(crate) fn choose(
    store: &Arc<ElfStore>,
    table: &Table,
    conjuncts: &[Conjunct],
    hints: &[Condition],
    threads: usize,
    use_elf: (ElfUse, bool),
) -> Access {
    let (setting, runs) = use_elf;
    let indexes = table.indexes.iter();
    let questions = indexes.map(|index| questions(table, index, conjuncts, hints));
    let questions: Vec<Questions> = questions.collect();
    let scanned = scanned_rows(table, &questions);
    let rows: f64 = scanned.values().sum();
    let all = vec![false; conjuncts.len()];
    let mut scan_ns = check_ns(rows, conjuncts, &all) + look_up_ns(rows, hints);
    let candidates = table.indexes.iter().zip(questions);
    let candidates = candidates.filter_map(|(index, questions)| {
        weigh(store, (index, questions), &scanned, conjuncts, hints)
    });
    let Some(best) = candidates.min_by(|a, b| a.elf_ns.total_cmp(&b.elf_ns)) else {
        return Access::default();
    };
    let threads = threads.max(1) as f64;
    let mut reason = format!(
        "{} rows expected; Elf {} {}, scan {}",
        best.rows.round(),
        best.index.definition.name,
        Milliseconds(best.elf_ns / threads),
        Milliseconds(scan_ns / threads),
    );
    let mut is_faster = best.elf_ns < scan_ns;
    if is_faster && best.read_bytes > 0 {
        let read_ns = best.read_bytes as f64 * READ_NS;
        scan_ns += cold_bytes(store, table, conjuncts) as f64 * READ_NS;
        let gain_ns = ((scan_ns - best.elf_ns) / threads) as u64;
        let lost = &best.index.lost_ns;
        let lost_ns = match runs {
            true => lost.fetch_add(gain_ns, Ordering::Relaxed) + gain_ns,
            false => lost.load(Ordering::Relaxed) + gain_ns,
        };
        // Elfs that do not fit into memory together would be read by every query.
        let fits = best.read_bytes <= store.limit_bytes();
        is_faster = if fits {
            lost_ns as f64 >= read_ns
        } else {
            gain_ns as f64 >= read_ns
        };
        reason.push_str(&format!(", reading the Elf {}", Milliseconds(read_ns)));
    }
    let elf = (setting == ElfUse::Always || is_faster).then(|| {
        Arc::new(ElfAccess {
            name: best.index.definition.name.clone(),
            store: store.clone(),
            files: best.files,
            outcome: Arc::default(),
        })
    });
    Access { elf, reason }
}

struct Milliseconds(f64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0 / 1e6)
    }
}

/// Time to evaluate on some rows the conjuncts that are not covered.
fn check_ns(rows: f64, conjuncts: &[Conjunct], covered: &[bool]) -> f64 {
    let left = conjuncts
        .iter()
        .zip(covered)
        .filter(|(_, covered)| !**covered);
    let columns: usize = left
        .map(|(conjunct, _)| conjunct.columns.len().max(1))
        .sum();
    rows * columns as f64 * SCAN_NS
}

/// Time to look up the keys of some rows.
fn look_up_ns(rows: f64, hints: &[Condition]) -> f64 {
    let mut columns: Vec<usize> = hints.iter().map(|hint| hint.column).collect();
    columns.dedup();
    rows * columns.len() as f64 * LOOK_UP_NS
}

/// Bytes of the conjuncts' columns that are not in memory.
fn cold_bytes(store: &ElfStore, table: &Table, conjuncts: &[Conjunct]) -> u64 {
    let columns: BTreeSet<usize> = conjuncts
        .iter()
        .flat_map(|one| one.columns.clone())
        .collect();
    let (sizes, resident) = store.column_bytes();
    let bytes = |of: &BTreeMap<ColumnId, u64>, column: &usize| {
        let id = table.column_ids.get(*column);
        id.and_then(|id| of.get(id)).copied().unwrap_or(0)
    };
    columns
        .iter()
        .map(|column| bytes(&sizes, column).saturating_sub(bytes(&resident, column)))
        .sum()
}

/// What an index is asked, of each data file where that restricts anything.
fn questions(
    table: &Table,
    index: &TableIndex,
    conjuncts: &[Conjunct],
    hints: &[Condition],
) -> Questions {
    let question = |number: u64| {
        let file = index.files.get(&number)?.as_ref().ok()?;
        let query = ask(file, &index.definition.columns, conjuncts, hints)?;
        Some((number, query))
    };
    let files = table.files.iter();
    files
        .filter_map(|data| question(data.paths.number))
        .collect()
}

/// The rows of each data file in which a scan looks, by its number: the zone maps leave out what no index's bounds meet.
fn scanned_rows(table: &Table, questions: &[Questions]) -> BTreeMap<u64, f64> {
    let scanned = |number: &u64, row_count: u64| {
        let queries = questions.iter().filter_map(|of| of.get(number));
        let queries: Vec<&FileQuery> = queries.collect();
        let zones = (0..row_count).step_by(ZONE_ROWS as usize);
        let left = zones.filter(|first| queries.iter().all(|query| query.may_match(*first)));
        left.map(|first| ZONE_ROWS.min(row_count - first))
            .sum::<u64>()
    };
    let files = table.files.iter();
    let files = files.map(|data| (data.paths.number, data.stats.row_count));
    files
        .map(|(number, row_count)| (number, scanned(&number, row_count) as f64))
        .collect()
}

fn weigh<'a>(
    store: &ElfStore,
    (index, files): (&'a TableIndex, Questions),
    scanned: &BTreeMap<u64, f64>,
    conjuncts: &[Conjunct],
    hints: &[Condition],
) -> Option<Candidate<'a>> {
    let (mut rows, mut elf_ns, mut read_bytes) = (0.0, 0.0, 0);
    for (number, &scanned_rows) in scanned {
        let Some(query) = files.get(number) else {
            let none = vec![false; conjuncts.len()];
            elf_ns += check_ns(scanned_rows, conjuncts, &none) + look_up_ns(scanned_rows, hints);
            continue;
        };
        let costs = match query.file.clustered {
            true => CLUSTERED_COSTS,
            false => COSTS,
        };
        let (mut found, mut file_rows) = (0.0, 0);
        for stretch in &query.file.stretches {
            let work = stretch.model.work(&query.query).ok()?;
            found += work.results;
            file_rows = stretch.rows.end;
            elf_ns += Costs::predict_ns(&costs, &work);
            if !store.is_resident(stretch) {
                read_bytes += stretch.memory_bytes();
            }
        }
        // What is not covered is evaluated on every row group in which a row was found.
        let groups = (file_rows as f64 / GROUP_ROWS).max(1.0);
        let touched_rows = file_rows as f64 * (found / groups).min(1.0);
        elf_ns += check_ns(touched_rows.min(scanned_rows), conjuncts, &query.covered);
        elf_ns += look_up_ns(found, hints);
        rows += found;
    }
    (!files.is_empty()).then_some(Candidate {
        index,
        files,
        rows,
        elf_ns,
        read_bytes,
    })
}

/// The question to a file's Elfs; `None` if it would not restrict anything.
fn ask(
    file: &Arc<IndexFile>,
    columns: &[usize],
    conjuncts: &[Conjunct],
    hints: &[Condition],
) -> Option<FileQuery> {
    let mut query = QueryBox::unrestricted(columns.len());
    let mut restrict = |condition: &Condition| {
        let dimension = columns.iter().position(|one| *one == condition.column)?;
        let (restriction, coverage) = file.keys[dimension].restriction(&condition.predicate)?;
        query.restrict(dimension, &restriction).ok()?;
        Some(coverage == Coverage::Exact)
    };
    let mut used = false;
    let mut covered = Vec::with_capacity(conjuncts.len());
    for conjunct in conjuncts {
        let coverage = conjunct.condition.as_ref().and_then(&mut restrict);
        used |= coverage.is_some();
        covered.push(coverage == Some(true));
    }
    for hint in hints {
        used |= restrict(hint).is_some();
    }
    used.then(|| FileQuery {
        file: file.clone(),
        query,
        covered,
    })
}
