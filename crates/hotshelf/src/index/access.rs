//! Elf or scan: which index a scan asks, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotshelf_cache::ColumnId;
use hotshelf_elf::cost::Costs;
use hotshelf_elf::keys::{Coverage, QueryBox};

use super::TableIndex;
use super::elfs::ElfStore;
use super::file::{CLUSTERED_COSTS, COSTS, IndexFile};
use super::predicate::Condition;
use super::selection::{Outcome, Selection};
use super::zones::ZONE_ROWS;
use crate::settings::ElfUse;
use crate::table::Table;

/// Evaluating a predicate on one encoded value (`docs/BENCHMARKS.md`).
const SCAN_NS: f64 = 0.6;
/// Decoding one join key and looking it up.
const LOOK_UP_NS: f64 = 2.5;
/// Reading a byte that is not in memory.
const READ_NS: f64 = 0.7;
/// Reading one code of an Elf and decoding it.
const VALUE_NS: f64 = 5.0;
/// Rows of a row group.
const GROUP_ROWS: f64 = ZONE_ROWS as f64;

/// A filter of a scan, as far as an Elf can use it.
#[derive(Debug, Clone)]
pub(crate) struct Conjunct {
    /// The condition it is, on a column of the table.
    pub condition: Option<Condition>,
    /// Columns it reads, by index in the table.
    pub columns: Vec<usize>,
}

/// The rows that a scan is after.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// What rows must meet.
    pub conjuncts: &'a [Conjunct],
    /// Conditions that rows need to meet anyway and that look-ups check (the range of a join's keys).
    pub hints: &'a [Condition],
    /// The columns that are returned, by index in the table, if they may come from an index.
    pub output: Option<&'a [usize]>,
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
    pub(super) store: Arc<ElfStore>,
    /// By the number of the data file; others are scanned.
    files: Questions,
    /// The dimension of each output column, if rows come from the Elfs and the table is not read.
    pub covering: Option<Vec<usize>>,
    pub outcome: Arc<Outcome>,
}

/// The question to the Elfs of one data file.
#[derive(Debug)]
pub(crate) struct FileQuery {
    pub(super) file: Arc<IndexFile>,
    pub(super) query: QueryBox,
    /// One flag per conjunct: whether the answer says all that it says.
    pub covered: Vec<bool>,
}

impl ElfAccess {
    /// The question to one data file.
    pub fn file(&self, number: u64) -> Option<&FileQuery> {
        self.files.get(&number)
    }

    /// The questions by the number of the data file.
    pub fn files(&self) -> impl Iterator<Item = (u64, &FileQuery)> {
        self.files.iter().map(|(number, query)| (*number, query))
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
        let covering = elf.covering.as_ref().map_or("", |_| ", covering");
        write!(f, ", access=elf {}{covering} ({})", elf.name, self.reason)?;
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

impl Access {
    /// Whether rows come from Elfs alone.
    pub fn is_covering(&self) -> bool {
        self.elf.as_ref().is_some_and(|elf| elf.covering.is_some())
    }
}

impl FileQuery {
    /// Whether the answer says all that the scan asks, and the Elfs hold the values of some dimensions.
    fn covers(&self, dimensions: &[usize]) -> bool {
        let is_exact = |dimension: &usize| self.file.keys[*dimension].exact().is_some();
        self.covered.iter().all(|covered| *covered) && dimensions.iter().all(is_exact)
    }

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
    /// The dimension of each output column, if the index covers the scan and that pays.
    covering: Option<Vec<usize>>,
    /// Time of reading the output from the table, if that is not needed.
    saved_ns: f64,
    /// Bytes of Elfs that are not in memory.
    read_bytes: u64,
}

/// Time that queries of an index lost because its Elfs were not in memory, in nanoseconds. When it reaches the
/// time of reading them they are read: at worst twice what would have been best.
pub(crate) type Lost = Arc<AtomicU64>;

/// Chooses between the table's Elfs and the scan. With `runs` the choice is carried out, not only shown.
pub(crate) fn choose(
    store: &Arc<ElfStore>,
    table: &Table,
    wanted: Wanted<'_>,
    threads: usize,
    use_elf: (ElfUse, bool),
) -> Access {
    let (setting, runs) = use_elf;
    let Wanted {
        conjuncts, hints, ..
    } = wanted;
    let indexes = table.indexes.iter();
    let questions = indexes.map(|index| questions(table, index, wanted));
    let questions: Vec<Questions> = questions.collect();
    let scanned = scanned_rows(table, &questions);
    let rows: f64 = scanned.values().sum();
    let all = vec![false; conjuncts.len()];
    let mut scan_ns = check_ns(rows, conjuncts, &all) + look_up_ns(rows, hints);
    let candidates = table.indexes.iter().zip(questions);
    let candidates = candidates.filter_map(|(index, questions)| {
        weigh(
            (store, table),
            (index, questions),
            &scanned,
            wanted,
            setting,
        )
    });
    let price = |one: &Candidate<'_>| {
        let is_second = setting == ElfUse::Always && one.covering.is_none();
        (is_second, one.elf_ns - one.saved_ns)
    };
    let best = candidates.min_by(|a, b| {
        let ((a, a_ns), (b, b_ns)) = (price(a), price(b));
        a.cmp(&b).then(a_ns.total_cmp(&b_ns))
    });
    let Some(best) = best else {
        return Access::default();
    };
    scan_ns += best.saved_ns;
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
        let counted = best.covering.as_ref().and(wanted.output).unwrap_or(&[]);
        let columns = conjuncts.iter().flat_map(|one| &one.columns);
        let columns = columns.filter(|column| !counted.contains(column));
        scan_ns += cold_bytes(store, table, columns) as f64 * READ_NS;
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
            covering: best.covering,
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

/// Bytes of columns that are not in memory.
fn cold_bytes<'a>(
    store: &ElfStore,
    table: &Table,
    columns: impl Iterator<Item = &'a usize>,
) -> u64 {
    let columns: BTreeSet<usize> = columns.copied().collect();
    let (sizes, resident) = store.column_bytes();
    let bytes = |of: &BTreeMap<ColumnId, u64>, column: &usize| {
        let id = table.column_ids.get(*column);
        id.and_then(|id| of.get(id)).copied().unwrap_or(0)
    };
    // The cache knows the sizes of files that were opened before.
    let unopened: Vec<_> = table
        .files
        .iter()
        .filter(|file| !file.was_opened())
        .collect();
    let unopened_bytes = |column: &usize| -> u64 {
        let columns = unopened
            .iter()
            .filter_map(|file| file.stats.columns.get(*column));
        columns.map(|column| column.encoded_bytes).sum()
    };
    columns
        .iter()
        .map(|column| {
            let opened = bytes(&sizes, column).saturating_sub(bytes(&resident, column));
            opened + unopened_bytes(column)
        })
        .sum()
}

/// What an index is asked, of each data file where that restricts anything.
fn questions(table: &Table, index: &TableIndex, wanted: Wanted<'_>) -> Questions {
    // A scan without conditions asks for all rows, if an index may answer it.
    let all = wanted.conjuncts.is_empty() && dimensions(index, wanted).is_some();
    let question = |number: u64| {
        let file = index.files.get(&number)?.as_ref().ok()?;
        let query = ask(file, &index.definition.columns, wanted, all)?;
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
    (store, table): (&ElfStore, &Table),
    (index, files): (&'a TableIndex, Questions),
    scanned: &BTreeMap<u64, f64>,
    wanted: Wanted<'_>,
    setting: ElfUse,
) -> Option<Candidate<'a>> {
    let Wanted {
        conjuncts, hints, ..
    } = wanted;
    let (mut rows, mut elf_ns, mut read_bytes) = (0.0, 0.0, 0);
    // Time of the Elfs without TIDs, rows in the row groups where rows are found, and all rows.
    let (mut rows_ns, mut payload_rows, mut all_rows) = (0.0, 0.0, 0);
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
        let (mut found, mut places, mut file_rows) = (0.0, 0.0, 0);
        for stretch in &query.file.stretches {
            let work = stretch.model.work(&query.query).ok()?;
            found += work.results;
            // Row groups with found rows: in the Elf's order they stand together.
            places += match query.file.clustered {
                true => (work.jumps + work.results / GROUP_ROWS + 1.0).min(work.results),
                false => work.results,
            };
            file_rows = stretch.rows.end;
            elf_ns += Costs::predict_ns(&costs, &work);
            rows_ns += Costs::predict_ns(&CLUSTERED_COSTS, &work);
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
        payload_rows += file_rows as f64 * (places / groups).min(1.0);
        all_rows += file_rows;
    }
    let (mut covering, mut saved_ns) = (None, 0.0);
    let dimensions = dimensions(index, wanted).filter(|dimensions| {
        let covers = |number| {
            files
                .get(number)
                .is_some_and(|query| query.covers(dimensions))
        };
        scanned.keys().all(covers)
    });
    if let (Some(dimensions), Some(output)) = (dimensions, wanted.output) {
        let cold_share = payload_rows / (all_rows as f64).max(1.0);
        let cold_bytes = cold_bytes(store, table, output.iter()) as f64 * cold_share;
        let payload_ns = payload_rows * output.len() as f64 * SCAN_NS + cold_bytes * READ_NS;
        let covering_ns = rows_ns + rows * output.len() as f64 * VALUE_NS;
        if setting == ElfUse::Always || covering_ns <= elf_ns + payload_ns {
            (covering, saved_ns, elf_ns) = (Some(dimensions), payload_ns, covering_ns);
        }
    }
    // Without conditions an Elf can only help by covering.
    let helps = covering.is_some() || !(conjuncts.is_empty() && hints.is_empty());
    (!files.is_empty() && helps).then_some(Candidate {
        index,
        files,
        rows,
        elf_ns,
        covering,
        saved_ns,
        read_bytes,
    })
}

/// The dimension of an index that each output column is, if the index has them all and nothing but its answer
/// decides on rows.
fn dimensions(index: &TableIndex, wanted: Wanted<'_>) -> Option<Vec<usize>> {
    let output = wanted.output.filter(|output| !output.is_empty())?;
    let columns = &index.definition.columns;
    let dimension = |column: &usize| columns.iter().position(|one| one == column);
    let dimensions: Option<Vec<usize>> = output.iter().map(dimension).collect();
    dimensions.filter(|_| wanted.hints.is_empty())
}

/// The question to a file's Elfs; `None` if it would not restrict anything, unless `all` rows are asked for.
fn ask(
    file: &Arc<IndexFile>,
    columns: &[usize],
    wanted: Wanted<'_>,
    all: bool,
) -> Option<FileQuery> {
    let Wanted {
        conjuncts, hints, ..
    } = wanted;
    let mut query = QueryBox::unrestricted(columns.len());
    let mut restrict = |condition: &Condition| {
        let dimension = columns.iter().position(|one| *one == condition.column)?;
        let (restriction, coverage) = file.keys[dimension].restriction(&condition.predicate)?;
        query.restrict(dimension, &restriction).ok()?;
        Some(coverage == Coverage::Exact)
    };
    let mut used = all;
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
