//! Chooses between the Elfs of a table and the scan, by what each is expected to cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotshelf_cache::ColumnId;
use hotshelf_elf::cost::Work;

use super::TableIndex;
use super::access::{AccessPath, ElfAccess, Unread, Weighed};
use super::elfs::ElfStore;
use super::question::{
    Conjunct, FileQuery, Questions, Wanted, dimensions, questions, scanned_rows,
};
use super::zones::ZONE_ROWS;
use crate::prices::WorkPrices;
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
    pub prices: WorkPrices,
}

/// One index, weighed.
struct Candidate<'a> {
    index: &'a TableIndex,
    files: Questions,
    estimate: Estimate,
    /// Time of the way by the Elfs on one thread.
    elf_ns: f64,
    covering: Option<Covering>,
}

/// An index that holds the whole output, where that pays.
struct Covering {
    /// The dimension of each output column.
    dimensions: Vec<usize>,
    /// Time of reading the output from the table, which is not needed.
    saved_ns: f64,
}

/// What the Elfs of an index are expected to find, and the time of finding it.
#[derive(Default)]
struct Estimate {
    /// Rows found.
    rows: f64,
    /// Time of the Elfs and of everything that remains to be tested.
    elf_ns: f64,
    /// Time of the Elfs if they give no TIDs.
    without_tids_ns: f64,
    /// Rows of the row groups where rows are found.
    payload_rows: f64,
    /// Rows of all files that are asked about.
    all_rows: u64,
    /// Bytes of Elfs that are not in memory.
    unread_bytes: u64,
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
            (is_second, one.elf_ns - one.saved_ns())
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
        let mut scan_ns = self.scan_ns(rows) + best.saved_ns();
        let workers = self.workers.max(1) as f64;
        let mut weighed = Weighed {
            index: best.index.definition.name.clone(),
            rows: best.estimate.rows,
            elf_ns: best.elf_ns / workers,
            scan_ns: scan_ns / workers,
            unread: None,
            has_key_ranges: !self.wanted.key_ranges.is_empty(),
        };
        let mut is_faster = best.elf_ns < scan_ns;
        let unread_bytes = best.estimate.unread_bytes;
        if is_faster && unread_bytes > 0 {
            scan_ns += self.prices.read_ns(self.unread_filter_bytes(&best));
            let unread = Unread {
                read_ns: self.prices.read_ns(unread_bytes),
                gain_ns: ((scan_ns - best.elf_ns) / workers) as u64,
                lost: best.index.lost_ns.clone(),
            };
            is_faster = self.is_worth_reading(unread_bytes, &unread);
            weighed.unread = Some(unread);
        }
        let elf = (self.setting == Use::Always || is_faster).then(|| {
            Arc::new(ElfAccess {
                store: self.elfs.clone(),
                files: best.files,
                covering: best.covering.map(|covering| covering.dimensions),
            })
        });
        AccessPath {
            elf,
            weighed: Some(weighed),
        }
    }

    /// Whether Elfs should be read now: when queries without them have lost the time of reading them. Elfs that do
    /// not fit into memory together would be read by every query, so that each has to gain that time itself.
    fn is_worth_reading(&self, unread_bytes: u64, unread: &Unread) -> bool {
        let lost_ns = match unread_bytes <= self.elfs.limit_bytes() {
            true => unread.lost.load(Ordering::Relaxed),
            false => 0,
        };
        (lost_ns + unread.gain_ns) as f64 >= unread.read_ns
    }

    /// Bytes of the filters' columns that the scan would have to read from storage, except those that are counted as
    /// output.
    fn unread_filter_bytes(&self, best: &Candidate<'_>) -> u64 {
        let output = best.covering.as_ref().and(self.wanted.output);
        let output = output.unwrap_or(&[]);
        let columns = self.wanted.conjuncts.iter().flat_map(|one| &one.columns);
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
                None => estimate.elf_ns += self.scan_ns(scanned_rows),
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
        let is_restricted =
            !(self.wanted.conjuncts.is_empty() && self.wanted.key_ranges.is_empty());
        if files.is_empty() || !(covering.is_some() || is_restricted) {
            return None;
        }
        let (elf_ns, covering) = match covering {
            Some((covering_ns, covering)) => (covering_ns, Some(covering)),
            None => (estimate.elf_ns, None),
        };
        Some(Candidate {
            index,
            files,
            estimate,
            elf_ns,
            covering,
        })
    }

    /// Adds the Elfs of one data file; `None` if they cannot answer.
    fn add_file(&self, estimate: &mut Estimate, query: &FileQuery, scanned: f64) -> Option<()> {
        let is_clustered = query.file.clustered;
        let (mut found, mut places, mut file_rows) = (0.0, 0.0, 0);
        for stretch in &query.file.stretches {
            let work: Work = stretch.model.work(&query.query).ok()?;
            found += work.results;
            // Row groups with found rows: in the Elf's order they follow each other.
            places += match is_clustered {
                true => (work.jumps + work.results / GROUP_ROWS + 1.0).min(work.results),
                false => work.results,
            };
            file_rows = stretch.rows.end;
            estimate.elf_ns += self.prices.elf_ns(&work, !is_clustered);
            estimate.without_tids_ns += self.prices.elf_ns(&work, false);
            if !self.elfs.is_resident(stretch) {
                estimate.unread_bytes += stretch.memory_bytes();
            }
        }
        // What is not covered is evaluated on every row group in which a row was found.
        let groups = (file_rows as f64 / GROUP_ROWS).max(1.0);
        let touched_rows = file_rows as f64 * (found / groups).min(1.0);
        estimate.elf_ns += self.check_ns(touched_rows.min(scanned), &query.covered);
        estimate.elf_ns += self.look_up_ns(found);
        estimate.rows += found;
        estimate.payload_rows += file_rows as f64 * (places / groups).min(1.0);
        estimate.all_rows += file_rows;
        Some(())
    }

    /// The time of taking the output from the Elfs, if that is less than reading it from the table.
    fn cover(&self, estimate: &Estimate, dimensions: Vec<usize>) -> Option<(f64, Covering)> {
        let output = self.wanted.output?;
        let values = output.len() as f64;
        let unread_share = estimate.payload_rows / (estimate.all_rows as f64).max(1.0);
        let unread_bytes = self.unread_bytes(output.iter()) as f64 * unread_share;
        let saved_ns = estimate.payload_rows * values * self.prices.test_ns
            + self.prices.read_ns(unread_bytes as u64);
        let decode_ns = estimate.rows * values * self.prices.elf_value_ns;
        let covering_ns = estimate.without_tids_ns + decode_ns;
        let pays = covering_ns <= estimate.elf_ns + saved_ns;
        (pays || self.setting == Use::Always).then_some((
            covering_ns,
            Covering {
                dimensions,
                saved_ns,
            },
        ))
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
    fn saved_ns(&self) -> f64 {
        self.covering.as_ref().map_or(0.0, |one| one.saved_ns)
    }
}
