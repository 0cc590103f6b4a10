//! Merging of small files in the background, in tiers.
//!
//! A tier holds files whose row counts differ by less than [`FAN_IN`] times. When a tier has as many files, they and all
//! smaller ones become one file of the next tier: a row is rewritten once per tier, and a table that gets
//! single rows keeps a few files of each tier. After each merge the thread rests in proportion, so that merging
//! takes [`TIME_SHARE`] of one worker's time at most.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hotshelf_store::data_file::TableFile;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Inner;
use super::indexes::MERGE_ROWS;
use crate::table::Table;

/// As many files of a tier become one.
const FAN_IN: usize = 8;
/// Files merged at once.
const FILES_MAX: usize = 512;
/// Larger files are left to OPTIMIZE TABLE.
const ROWS_MAX: u64 = MERGE_ROWS / FAN_IN as u64;
/// The part of a worker's time that merging may take.
const TIME_SHARE: f64 = 0.25;
/// A merge may hold one part in so many of the budget.
const BUDGET_PARTS: u64 = 16;
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
    /// Files of at least so many rows are left alone, by table: merging them failed or made no fewer.
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

    fn row_limit(&self, table: &Table) -> u64 {
        let limits = self.limits.lock();
        limits.get(&table.id).copied().unwrap_or(ROWS_MAX)
    }

    /// The files of a table to merge next.
    fn choice(&self, table: &Table) -> Vec<Arc<TableFile>> {
        let rows: Vec<u64> = table.files.iter().map(|f| f.stats.row_count).collect();
        let chosen = choose(&rows, self.row_limit(table));
        chosen
            .into_iter()
            .map(|file_idx| table.files[file_idx].clone())
            .collect()
    }

    fn note(&self, merge: Merge) {
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

/// Ends the merging when the last handle of the database goes.
pub(super) struct Merger(AbortHandle);

impl Drop for Merger {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Merges whatever wants it until the database is closed.
pub(super) fn start(inner: &Arc<Inner>) -> Merger {
    let (weak, merging) = (Arc::downgrade(inner), inner.merging.clone());
    Merger(inner.handle().spawn(run(weak, merging)).abort_handle())
}

async fn run(inner: Weak<Inner>, merging: Arc<Merging>) {
    loop {
        merging.wake.notified().await;
        loop {
            let wanted = merging.wanted.lock().pop_first();
            let Some(table) = wanted else { break };
            let Some(inner) = inner.upgrade() else { return };
            let begun = Instant::now();
            let has_merged = inner.merge_once(&table).await;
            drop(inner);
            if has_merged {
                merging.wanted.lock().insert(table);
            }
            tokio::time::sleep(rest_after(begun.elapsed())).await;
        }
    }
}

fn rest_after(worked: Duration) -> Duration {
    worked.mul_f64(1.0 / TIME_SHARE - 1.0)
}

impl Inner {
    /// Merges files of a table if a tier is full. Returns whether another look is worthwhile.
    async fn merge_once(self: &Arc<Self>, name: &str) -> bool {
        let _rewrite = self.rewrites.lock().await;
        let Some(table) = self.table(name).filter(|_| self.merging.is_on()) else {
            return false;
        };
        let files = self.merging.choice(&table);
        if files.is_empty() || table.ensure_readable().is_err() {
            return false;
        }
        let begun = Instant::now();
        let rows_max = files.iter().map(|file| file.stats.row_count).max();
        let mut merge = Merge {
            table: name.to_owned(),
            seconds: 0.0,
            files_before: files.len(),
            files_after: 0,
            rows: files.iter().map(|file| file.stats.row_count).sum(),
            error: None,
        };
        let merged = self.merge_files(&table, files, BUDGET_PARTS).await;
        merge.seconds = begun.elapsed().as_secs_f64();
        match merged {
            Ok((_, files_after)) => merge.files_after = files_after,
            Err(error) => merge.error = Some(error.to_string()),
        }
        let is_gone = self.table(name).is_none_or(|now| now.id != table.id);
        if merge.error.is_some() && is_gone {
            return false;
        }
        let is_useless = merge.error.is_some() || merge.files_after * 2 > merge.files_before;
        if is_useless {
            tracing::warn!(table = name, error = ?merge.error, "small files are left as they are");
            let limit = rows_max.unwrap_or_default();
            self.merging.limits.lock().insert(table.id, limit);
        }
        self.merging.note(merge);
        !is_useless
    }
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
