//! Merging of small files in the background, in tiers.
//!
//! A tier holds files whose row counts differ by less than [`FAN_IN`] times. When a tier has as many files, they and
//! all smaller ones become one file of the next tier: a row is rewritten once per tier, and a table that gets single
//! rows keeps a few files of each tier. This says which; [`crate::rewriting`] merges them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hotshelf_store::data_file::TableFile;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::table::Table;

/// OPTIMIZE TABLE merges files with fewer rows than this.
pub(crate) const MERGE_ROWS: u64 = 1 << 22;
/// As many files of a tier become one.
const FAN_IN: usize = 8;
/// Files merged at once.
const FILES_MAX: usize = 512;
/// Larger files are for OPTIMIZE TABLE to merge.
const ROWS_MAX: u64 = MERGE_ROWS / FAN_IN as u64;
/// Merges that are remembered.
const LOG_LEN: usize = 256;

/// What happened in one merge.
#[derive(Debug, Clone)]
pub(crate) struct Merge {
    pub table: String,
    pub seconds: f64,
    pub files_before: usize,
    pub files_after: usize,
    pub rows: u64,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Which tables want merging, and what was merged.
pub(crate) struct Merging {
    is_on: AtomicBool,
    wanted: Mutex<BTreeSet<String>>,
    wake: Notify,
    log: Mutex<VecDeque<Merge>>,
    /// By table: files of at least this many rows stay as they are, as merging them failed or made no fewer.
    limits: Mutex<BTreeMap<i64, u64>>,
}

impl Merging {
    pub fn new(is_on: bool) -> Self {
        Self {
            is_on: AtomicBool::new(is_on),
            wanted: Mutex::default(),
            wake: Notify::new(),
            log: Mutex::default(),
            limits: Mutex::default(),
        }
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// The latest merges, oldest first.
    pub fn log(&self) -> Vec<Merge> {
        self.log.lock().iter().cloned().collect()
    }

    /// Looks at a table that has got files.
    pub fn look_at(&self, table: &Table) {
        if self.is_on() && !self.choice(table).is_empty() {
            self.wanted.lock().insert(table.name.clone());
            self.wake.notify_one();
        }
    }

    /// Waits until a table may want merging.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// A table that wants merging.
    pub fn next(&self) -> Option<String> {
        self.wanted.lock().pop_first()
    }

    /// Has a table looked at again.
    pub fn again(&self, table: String) {
        self.wanted.lock().insert(table);
    }

    /// Leaves files of a table alone that have at least this many rows.
    pub fn leave_alone(&self, table: &Table, rows_min: u64) {
        self.limits.lock().insert(table.id, rows_min);
    }

    fn row_limit(&self, table: &Table) -> u64 {
        let limits = self.limits.lock();
        limits.get(&table.id).copied().unwrap_or(ROWS_MAX)
    }

    /// The files of a table to merge next.
    pub fn choice(&self, table: &Table) -> Vec<Arc<TableFile>> {
        let rows: Vec<u64> = table.files.iter().map(|f| f.stats.row_count).collect();
        let chosen = choose(&rows, self.row_limit(table));
        chosen
            .into_iter()
            .map(|file_idx| table.files[file_idx].clone())
            .collect()
    }

    pub fn note(&self, merge: Merge) {
        let mut log = self.log.lock();
        if log.len() == LOG_LEN {
            log.pop_front();
        }
        log.push_back(merge);
    }
}

/// Numbers of the files to merge, in order: the fullest tier that has enough of them, and all below it.
fn choose(rows: &[u64], row_limit: u64) -> Vec<usize> {
    let tier = |rows: u64| rows.max(1).ilog(FAN_IN as u64);
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for rows in rows.iter().filter(|rows| **rows < row_limit) {
        *counts.entry(tier(*rows)).or_default() += 1;
    }
    let full = counts.iter().rev().find(|(_, count)| **count >= FAN_IN);
    let Some((full, _)) = full else {
        return Vec::new();
    };
    let is_chosen = |rows: u64| rows < row_limit && tier(rows) <= *full;
    let chosen = (0..rows.len()).filter(|file_idx| is_chosen(rows[*file_idx]));
    chosen.take(FILES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_merged_when_it_is_full() {
        assert!(choose(&[1; 7], ROWS_MAX).is_empty());
        assert_eq!(choose(&[1; 8], ROWS_MAX).len(), 8);
        // Seven of one tier and seven of another are not eight of one.
        let two_tiers = [[1; 7], [8; 7]].concat();
        assert!(choose(&two_tiers, ROWS_MAX).is_empty());
    }

    #[test]
    fn smaller_files_go_along_and_larger_ones_stay() {
        let rows = [5000, 1, 9, 9, 9, 9, 3, 9, 9, 9, 9, 400];
        assert_eq!(choose(&rows, ROWS_MAX), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert!(choose(&[ROWS_MAX; 20], ROWS_MAX).is_empty());
        assert!(choose(&[100; 20], 100).is_empty());
    }

    #[test]
    fn single_rows_leave_few_files_and_are_rewritten_once_per_tier() {
        let (mut files, mut rewritten) = (Vec::new(), 0);
        for _ in 0..10_000 {
            files.push(1);
            let chosen = choose(&files, ROWS_MAX);
            if !chosen.is_empty() {
                let merged: u64 = chosen.iter().map(|idx| files[*idx]).sum();
                let keep = |idx: &usize| !chosen.contains(idx);
                files = (0..files.len())
                    .filter(keep)
                    .map(|idx| files[idx])
                    .collect();
                files.push(merged);
                rewritten += merged;
            }
            assert!(files.len() <= 5 * FAN_IN, "{files:?}");
        }
        assert_eq!(files.iter().sum::<u64>(), 10_000);
        assert!(rewritten <= 5 * 10_000, "{rewritten}");
    }
}
