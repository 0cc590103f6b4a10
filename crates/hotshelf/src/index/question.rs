//! What a scan asks the Elfs of each data file, and which rows it looks at where it asks none.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotshelf_elf::keys::{Coverage, QueryBox};

use super::TableIndex;
use super::file::IndexFile;
use super::join_keys::{ElfKeys, JoinKeys};
use super::predicate::Condition;
use super::zones::ZONE_ROWS;
use crate::table::Table;

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
    /// What is known about join keys: rows need to meet it, and the joins check that.
    pub keys: &'a JoinKeys,
    /// Columns that are looked up.
    pub key_count: usize,
    /// The columns, by index in the table, that need not be read where no row meets what is known about join keys.
    pub spared: &'a [usize],
    /// The columns that are returned, by index in the table, if they may come from an index.
    pub output: Option<&'a [usize]>,
}

/// The questions of one index, by the number of the data file.
pub(super) type Questions = BTreeMap<u64, FileQuery>;

/// The question to the Elfs of one data file.
#[derive(Debug)]
pub(crate) struct FileQuery {
    pub(super) file: Arc<IndexFile>,
    pub(super) query: QueryBox,
    /// The keys in the box that rows may have, if they are known one by one.
    pub(super) keys: Option<ElfKeys>,
    /// One flag per conjunct: whether the answer says all that it says.
    pub covered: Vec<bool>,
}

impl FileQuery {
    /// The question to a file's Elfs; `None` if it would not restrict anything, unless `all` rows are asked for.
    pub(super) fn new(
        file: &Arc<IndexFile>,
        columns: &[usize],
        wanted: Wanted<'_>,
        all: bool,
    ) -> Option<Self> {
        let mut query = QueryBox::unrestricted(columns.len());
        let mut restrict = |condition: &Condition| {
            let dimension = columns.iter().position(|one| *one == condition.column)?;
            let (restriction, coverage) = file.keys[dimension].restriction(&condition.predicate)?;
            query.restrict(dimension, &restriction).ok()?;
            Some(coverage == Coverage::Exact)
        };
        let mut used = all;
        let mut covered = Vec::with_capacity(wanted.conjuncts.len());
        for conjunct in wanted.conjuncts {
            let coverage = conjunct.condition.as_ref().and_then(&mut restrict);
            used |= coverage.is_some();
            covered.push(coverage == Some(true));
        }
        for keys in &wanted.keys.conditions {
            used |= restrict(keys).is_some();
        }
        let lists = wanted.keys.lists.iter();
        let mut keys = lists.filter_map(|list| list.elf_keys(file, columns, &query));
        let keys = keys.next();
        used.then(|| Self {
            file: file.clone(),
            query,
            keys,
            covered,
        })
    }

    /// Whether the answer says all that the scan asks, and the Elfs hold the values of some dimensions.
    pub(super) fn covers(&self, dimensions: &[usize]) -> bool {
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

/// What an index is asked, of each data file where that restricts anything.
pub(super) fn questions(table: &Table, index: &TableIndex, wanted: Wanted<'_>) -> Questions {
    // A scan without conditions asks for all rows, if an index may answer it.
    let all = wanted.conjuncts.is_empty() && dimensions(index, wanted).is_some();
    let question = |number: u64| {
        let file = index.files.get(&number)?.as_ref().ok()?;
        let query = FileQuery::new(file, &index.definition.columns, wanted, all)?;
        Some((number, query))
    };
    let files = table.files.iter();
    files
        .filter_map(|data| question(data.paths.number))
        .collect()
}

/// The dimension of an index that each output column is, if the index has them all.
pub(super) fn dimensions(index: &TableIndex, wanted: Wanted<'_>) -> Option<Vec<usize>> {
    let output = wanted.output.filter(|output| !output.is_empty())?;
    let columns = &index.definition.columns;
    let dimension = |column: &usize| columns.iter().position(|one| one == column);
    output.iter().map(dimension).collect()
}

/// The rows of each data file in which a scan looks, by its number: the zone maps leave out what no index's bounds
/// meet.
pub(super) fn scanned_rows(table: &Table, questions: &[Questions]) -> BTreeMap<u64, f64> {
    let scanned = |number: &u64, row_count: u64| {
        let queries = questions.iter().filter_map(|of| of.get(number));
        let queries: Vec<&FileQuery> = queries.collect();
        let zones = (0..row_count).step_by(ZONE_ROWS as usize);
        let remaining = zones.filter(|first| queries.iter().all(|query| query.may_match(*first)));
        remaining
            .map(|first| ZONE_ROWS.min(row_count - first))
            .sum::<u64>()
    };
    let files = table.files.iter();
    let files = files.map(|data| (data.paths.number, data.stats.row_count));
    files
        .map(|(number, row_count)| (number, scanned(&number, row_count) as f64))
        .collect()
}
