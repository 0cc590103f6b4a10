//! Chooses between the Elfs of a table and the scan, by what each is expected to cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hotshelf_cache::ColumnId;
use hotshelf_elf::cost::Work;
use hotshelf_elf::keys::Predicate;
use hotshelf_elf::layout::packed::Wanted as Sought;

use super::TableIndex;
use super::access::{AccessPath, ElfAccess, KnownKeys, Weighed};
use super::elfs::ElfStore;
use super::file::Stretch;
use super::question::{
    Conjunct, FileQuery, Questions, Wanted, dimensions, questions, scanned_rows,
};
use super::zones::ZONE_ROWS;
use crate::prices::{PriceBook, WorkPrices};
use crate::settings::Use;
use crate::table::Table;

/// Rows of a row group.
const GROUP_ROWS: f64 = ZONE_ROWS as f64;

/// A scan that needs a way to its rows.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub table: &'a Table,
    pub elfs: &'a Arc<ElfStore>,
    pub wanted: Wanted<'a>,
    pub setting: Use,
    /// Workers that share the time.
    pub workers: usize,
    pub book: &'a Arc<PriceBook>,
    pub prices: WorkPrices,
}

/// What a device reads at once, in bytes.
const PAGE_BYTES: f64 = 4096.0;
/// Where no more pages of an Elf are expected to be read, it is looked up which of them are in memory.
const EXACT_PAGES_MAX: f64 = 64.0;

/// Time of a way to the rows.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// On one thread.
    work_ns: f64,
    /// Of reading from storage, which all threads share.
    read_ns: f64,
}

/// One index, weighed.
struct Candidate<'a> {
    index: &'a TableIndex,
    files: Questions,
    /// Rows that the Elfs are expected to find.
    rows: f64,
    /// Of the way by the Elfs.
    elf: Cost,
    /// Of reading columns where the Elfs find no row.
    spared: Cost,
    covering: Option<Covering>,
}

/// An index that holds the whole output, where that pays.
struct Covering {
    /// The dimension of each output column.
    dimensions: Vec<usize>,
    /// Of reading the output from the table, which is not needed.
    saved: Cost,
}

/// What the Elfs of an index are expected to find, and the time of finding it.
#[derive(Default)]
struct Estimate {
    /// Rows found.
    rows: f64,
    /// Time of the Elfs, and if they give no TIDs.
    walks: Walks,
    walks_without_tids: Walks,
    /// Time of everything that remains to be tested.
    tests_ns: f64,
    /// Rows of the row groups where rows are found.
    payload_rows: f64,
    /// Rows of all files that are asked about, and those that a scan would look at.
    all_rows: u64,
    scanned_rows: f64,
    /// What is read of heads and blocks.
    reads: Reads,
}

/// Walks through Elfs: as many at the same time as there are workers, each by one of them.
#[derive(Default)]
struct Walks {
    sum_ns: f64,
    longest_ns: f64,
}

impl Walks {
    fn add(&mut self, walk_ns: f64) {
        self.sum_ns += walk_ns;
        self.longest_ns = self.longest_ns.max(walk_ns);
    }

    /// The work that takes this many workers as long when it is shared evenly.
    fn work_ns(&self, workers: usize) -> f64 {
        self.sum_ns.max(self.longest_ns * workers.max(1) as f64)
    }
}

/// What is read of Elfs: those of all stretches at the same time, in each the head first.
#[derive(Default)]
struct Reads {
    bytes: f64,
    /// Reads that wait for another one, in the stretch where they are most.
    depth: f64,
}

impl Reads {
    /// Adds what a question reads of a stretch.
    fn add(&mut self, elfs: &ElfStore, query: &FileQuery, stretch: &Stretch, work: &Work) {
        let (wanted, leaf_rows) = match query.file.clustered {
            true => (Sought::Rows, work.tested_rows),
            false => (Sought::Tids, work.leaf_rows),
        };
        let leaf_bytes = stretch.leaf_bytes() as f64;
        let row_bytes = leaf_bytes / ((stretch.rows.end - stretch.rows.start) as f64).max(1.0);
        let read_bytes = (work.jumps * PAGE_BYTES + leaf_rows * row_bytes).min(leaf_bytes);
        let missing = || match read_bytes <= EXACT_PAGES_MAX * PAGE_BYTES {
            true => elfs.missing_pages(&query.file, stretch, &query.query, wanted),
            false => None,
        };
        let head = elfs.unread_head(&query.file, stretch);
        let page_count = match missing() {
            Some(pages) => pages as f64,
            None => {
                let blocks = elfs.blocks_of(query.file.index());
                let held = blocks.held_bytes_of(stretch.key) as f64 / leaf_bytes.max(1.0);
                (1.0 - held).max(0.0) * read_bytes / PAGE_BYTES
            }
        };
        self.bytes += head.bytes as f64 + page_count * PAGE_BYTES;
        let depth = head.depth as f64 + page_count.min(1.0);
        self.depth = self.depth.max(depth);
    }
}

impl Cost {
    fn of_work(work_ns: f64) -> Self {
        Self {
            work_ns,
            read_ns: 0.0,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            work_ns: self.work_ns + other.work_ns,
            read_ns: self.read_ns + other.read_ns,
        }
    }

    /// The time until it is done.
    fn elapsed_ns(self, workers: usize) -> f64 {
        self.work_ns / workers.max(1) as f64 + self.read_ns
    }
}

impl Request<'_> {
    /// The way that is expected to be fastest. Choosing has no side effects.
    pub fn choose(self) -> AccessPath {
        let indexes = self.table.indexes.iter();
        let questions = indexes.map(|index| questions(self.table, index, self.wanted));
        let questions: Vec<Questions> = questions.collect();
        let scanned = scanned_rows(self.table, &questions);
        let candidates = self.table.indexes.iter().zip(questions);
        let candidates =
            candidates.filter_map(|(index, questions)| self.weigh(index, questions, &scanned));
        let price = |one: &Candidate<'_>| {
            let is_second = self.setting == Use::Always && one.covering.is_none();
            let saved_ns = self.elapsed_ns(one.saved().plus(one.spared));
            (is_second, self.elapsed_ns(one.elf) - saved_ns)
        };
        let best = candidates.min_by(|a, b| {
            let ((a, a_ns), (b, b_ns)) = (price(a), price(b));
            a.cmp(&b).then(a_ns.total_cmp(&b_ns))
        });
        best.map_or_else(AccessPath::default, |best| self.decide(best, &scanned))
    }

    /// The best index or the scan.
    fn decide(&self, best: Candidate<'_>, scanned: &BTreeMap<u64, f64>) -> AccessPath {
        let rows: f64 = scanned.values().sum();
        let scan = Cost {
            work_ns: self.scan_ns(rows),
            read_ns: self.read_ns(self.unread_filter_bytes(&best), 1.0),
        };
        let weighed = Weighed {
            index: best.index.definition.name.clone(),
            rows: best.rows,
            elf_ns: self.elapsed_ns(best.elf),
            elf_read_ns: best.elf.read_ns,
            scan_ns: self.elapsed_ns(scan.plus(best.saved()).plus(best.spared)),
            keys: self.known_keys(&best),
        };
        let is_faster = weighed.elf_ns < weighed.scan_ns;
        let elf = (self.setting == Use::Always || is_faster).then(|| {
            Arc::new(ElfAccess {
                store: self.elfs.clone(),
                prices: self.book.clone(),
                files: best.files,
                covering: best.covering.map(|covering| covering.dimensions),
            })
        });
        AccessPath {
            elf,
            weighed: Some(weighed),
        }
    }

    /// What is known about the keys in the columns of an index.
    fn known_keys(&self, best: &Candidate<'_>) -> KnownKeys {
        let columns = &best.index.definition.columns;
        let known = self.wanted.keys.conditions.iter();
        let known = known.filter(|keys| columns.contains(&keys.column));
        let known = known.map(|keys| match &keys.predicate {
            Predicate::In(values) => KnownKeys::Listed(values.len()),
            _ => KnownKeys::Ranges,
        });
        known.max().unwrap_or(KnownKeys::Nothing)
    }

    fn elapsed_ns(&self, cost: Cost) -> f64 {
        cost.elapsed_ns(self.workers)
    }

    /// Bytes that only the scan would have to read from storage: of the columns of the filters that the Elfs answer,
    /// except those that are counted as output.
    fn unread_filter_bytes(&self, best: &Candidate<'_>) -> u64 {
        let output = best.covering.as_ref().and(self.wanted.output);
        let output = output.unwrap_or(&[]);
        let is_covered = |idx: usize| best.files.values().all(|query| query.covered[idx]);
        let conjuncts = self.wanted.conjuncts.iter().enumerate();
        let covered = conjuncts.filter(|(idx, _)| is_covered(*idx));
        let columns = covered.flat_map(|(_, conjunct)| &conjunct.columns);
        self.unread_bytes(columns.filter(|column| !output.contains(column)))
    }

    /// Prices an index; `None` if it cannot help.
    fn weigh<'t>(
        &self,
        index: &'t TableIndex,
        files: Questions,
        scanned: &BTreeMap<u64, f64>,
    ) -> Option<Candidate<'t>> {
        let mut estimate = Estimate::default();
        for (number, &scanned_rows) in scanned {
            match files.get(number) {
                Some(query) => self.add_file(&mut estimate, query, scanned_rows)?,
                None => estimate.tests_ns += self.scan_ns(scanned_rows),
            }
        }
        let dimensions = dimensions(index, self.wanted).filter(|dimensions| {
            let covers = |number| {
                let query: Option<&FileQuery> = files.get(number);
                query.is_some_and(|query| query.covers(dimensions))
            };
            scanned.keys().all(covers)
        });
        let covering = dimensions.and_then(|dimensions| self.cover(&estimate, dimensions));
        // Without conditions an Elf can only help by covering.
        let is_restricted = !(self.wanted.conjuncts.is_empty() && self.wanted.keys.is_empty());
        if files.is_empty() || !(covering.is_some() || is_restricted) {
            return None;
        }
        let spared = self.spared(&estimate);
        let (work_ns, covering) = match covering {
            Some((covering_ns, covering)) => (covering_ns, Some(covering)),
            None => (self.elf_ns(&estimate), None),
        };
        Some(Candidate {
            index,
            files,
            rows: estimate.rows,
            elf: Cost {
                work_ns,
                read_ns: self.read_ns(estimate.reads.bytes as u64, estimate.reads.depth),
            },
            spared,
            covering,
        })
    }

    /// The time of reading columns of row groups in which an Elf finds no row. Keys are counted where they are looked
    /// up.
    fn spared(&self, estimate: &Estimate) -> Cost {
        let rows = (estimate.scanned_rows - estimate.payload_rows).max(0.0);
        let spared = self.wanted.spared;
        let value_count = spared.len().saturating_sub(self.wanted.key_count);
        let files = self.table.files.iter();
        let table_rows: u64 = files.map(|file| file.stats.row_count).sum();
        let unread_bytes = self.unread_bytes(spared.iter()) as f64;
        Cost {
            work_ns: rows * value_count as f64 * self.prices.test_ns,
            read_ns: self
                .prices
                .read_ns(unread_bytes * rows / table_rows.max(1) as f64),
        }
    }

    /// Adds the Elfs of one data file; `None` if they cannot answer.
    fn add_file(&self, estimate: &mut Estimate, query: &FileQuery, scanned: f64) -> Option<()> {
        let is_clustered = query.file.clustered;
        let (mut found, mut places, mut file_rows) = (0.0, 0.0, 0);
        for stretch in &query.file.stretches {
            let walk: Work = stretch.model.work(&query.query).ok()?;
            let keys = query.keys.as_ref();
            let keys = keys.filter(|keys| keys.cheaper_than(&walk, &self.prices));
            let work = keys.map_or(walk, |keys| keys.part_of(&walk));
            found += work.results;
            // Row groups with found rows: in the Elf's order they follow each other.
            places += match is_clustered {
                true => (work.jumps + work.results / GROUP_ROWS + 1.0).min(work.results),
                false => work.results,
            };
            file_rows = stretch.rows.end;
            let walk_ns = |gives_tids| match keys {
                Some(keys) => keys.look_up_ns(&work, &self.prices),
                None => self.prices.elf_ns(&work, gives_tids),
            };
            estimate.walks.add(walk_ns(!is_clustered));
            estimate.walks_without_tids.add(walk_ns(false));
            estimate.reads.add(self.elfs, query, stretch, &work);
        }
        // What is not covered is evaluated on every row group in which a row was found.
        let groups = (file_rows as f64 / GROUP_ROWS).max(1.0);
        let touched_rows = file_rows as f64 * (found / groups).min(1.0);
        estimate.tests_ns += self.check_ns(touched_rows.min(scanned), &query.covered);
        estimate.tests_ns += self.look_up_ns(found);
        estimate.rows += found;
        estimate.payload_rows += file_rows as f64 * (places / groups).min(1.0);
        estimate.all_rows += file_rows;
        estimate.scanned_rows += scanned;
        Some(())
    }

    /// Work of the Elfs that give TIDs, and of what remains to be tested.
    fn elf_ns(&self, estimate: &Estimate) -> f64 {
        estimate.walks.work_ns(self.workers) + estimate.tests_ns
    }

    /// The time of taking the output from the Elfs, if that is less than reading it from the table.
    fn cover(&self, estimate: &Estimate, dimensions: Vec<usize>) -> Option<(f64, Covering)> {
        let output = self.wanted.output?;
        let values = output.len() as f64;
        let unread_share = estimate.payload_rows / (estimate.all_rows as f64).max(1.0);
        let unread_bytes = self.unread_bytes(output.iter()) as f64 * unread_share;
        let saved = Cost {
            work_ns: estimate.payload_rows * values * self.prices.test_ns,
            read_ns: self.prices.read_ns(unread_bytes),
        };
        let decode_ns = estimate.rows * values * self.prices.elf_value_ns;
        let covering_ns = estimate.walks_without_tids.work_ns(self.workers) + decode_ns;
        let otherwise = Cost::of_work(self.elf_ns(estimate)).plus(saved);
        let pays = self.elapsed_ns(Cost::of_work(covering_ns)) <= self.elapsed_ns(otherwise);
        (pays || self.setting == Use::Always)
            .then_some((covering_ns, Covering { dimensions, saved }))
    }

    /// Time of reading from storage, with as many reads that wait for each other.
    fn read_ns(&self, bytes: u64, depth: f64) -> f64 {
        let waits = if bytes > 0 { depth } else { 0.0 };
        self.prices.read_ns(bytes as f64) + waits * self.prices.access_ns
    }

    /// Time to look at some rows without an Elf.
    fn scan_ns(&self, rows: f64) -> f64 {
        self.check_ns(rows, &[]) + self.look_up_ns(rows)
    }

    /// Time to evaluate on some rows the conjuncts that are not covered.
    fn check_ns(&self, rows: f64, covered: &[bool]) -> f64 {
        let is_covered = |idx: usize| covered.get(idx).copied().unwrap_or(false);
        let conjuncts = self.wanted.conjuncts.iter().enumerate();
        let remaining = conjuncts.filter(|(idx, _)| !is_covered(*idx));
        let columns = |(_, conjunct): (usize, &Conjunct)| conjunct.columns.len().max(1);
        rows * remaining.map(columns).sum::<usize>() as f64 * self.prices.test_ns
    }

    /// Time to look up the keys of some rows.
    fn look_up_ns(&self, rows: f64) -> f64 {
        rows * self.wanted.key_count as f64 * self.prices.look_up_ns
    }

    /// Bytes of columns that are not in memory.
    fn unread_bytes<'c>(&self, columns: impl Iterator<Item = &'c usize>) -> u64 {
        let columns: BTreeSet<usize> = columns.copied().collect();
        let (sizes, resident) = self.elfs.column_bytes();
        let bytes = |of: &BTreeMap<ColumnId, u64>, column: &usize| {
            let id = self.table.column_ids.get(*column);
            id.and_then(|id| of.get(id)).copied().unwrap_or(0)
        };
        // The cache knows the sizes of files that were opened before.
        let files = self.table.files.iter();
        let unopened: Vec<_> = files.filter(|file| !file.was_opened()).collect();
        let unopened_bytes = |column: &usize| -> u64 {
            let columns = unopened.iter();
            let columns = columns.filter_map(|file| file.stats.columns.get(*column));
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
}

impl Candidate<'_> {
    fn saved(&self) -> Cost {
        let covering = self.covering.as_ref();
        covering.map_or(Cost::default(), |covering| covering.saved)
    }
}
