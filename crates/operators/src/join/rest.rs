//! What remains of a join when all right rows have arrived, and which of it a thread does next.

use std::sync::Arc;

use super::pair::{Pair, Shared};
use super::run::Run;
use super::scan::{Scan, next_scan};
use super::share::Share;
use super::table::Tables;

/// What remains.
#[derive(Default)]
pub struct Rest {
    /// Tables whose rows are returned apart from pairs, and the part and row that come next.
    scans: Vec<(Arc<Tables>, usize, usize)>,
    pairs: Vec<Pair>,
    /// Pairs that threads are joining.
    runs: Vec<Arc<Run>>,
}

/// What a thread does.
pub enum Work {
    Scan(Arc<Tables>, Scan),
    Share(Box<Share>),
}

/// What there is for a thread.
pub enum Next {
    Work(Work),
    /// Nothing until others have done theirs.
    Later,
    End,
}

impl Rest {
    pub fn add_pairs(&mut self, pairs: impl IntoIterator<Item = Pair>) {
        self.pairs.extend(pairs);
    }

    /// Adds the rows of a table.
    pub fn add_scans(&mut self, tables: &Arc<Tables>) {
        self.scans.push((Arc::clone(tables), 0, 0));
    }

    /// Pairs that no thread has begun with.
    pub fn waiting_pair_count(&self) -> usize {
        self.pairs.len()
    }

    /// What comes next for a thread that has joined its `own` pair before. It stays with that; if there is nothing to
    /// do for it, it begins with another one; if there is none, it helps others.
    ///
    /// Pairs that may be larger than memory come last, one after the other: all threads join each of them.
    pub fn next(&mut self, own: Option<&Arc<Run>>, shared: &Shared) -> Next {
        self.runs.retain(|run| !run.has_ended());
        let large = self.runs.iter().find(|run| run.is_large());
        if let Some(share) = own.and_then(share_of).or_else(|| large.and_then(share_of)) {
            return Next::Work(Work::Share(share));
        }
        if large.is_some() {
            return Next::Later;
        }
        while let Some((tables, part, row)) = self.scans.last_mut() {
            if let Some(scan) = next_scan(tables, part, row) {
                return Next::Work(Work::Scan(Arc::clone(tables), scan));
            }
            self.scans.pop();
        }
        if let Some(share) = self.begin_pair(shared) {
            return Next::Work(Work::Share(share));
        }
        match self.runs.iter().find_map(share_of) {
            Some(share) => Next::Work(Work::Share(share)),
            None if self.runs.is_empty() => Next::End,
            None => Next::Later,
        }
    }

    fn begin_pair(&mut self, shared: &Shared) -> Option<Box<Share>> {
        let small = self.pairs.iter().rposition(|pair| !pair.is_large(shared));
        let pair = match small {
            Some(idx) => self.pairs.swap_remove(idx),
            None => self.pairs.pop()?,
        };
        let run = Arc::new(Run::new(pair, shared));
        self.runs.push(Arc::clone(&run));
        share_of(&run)
    }
}

fn share_of(run: &Arc<Run>) -> Option<Box<Share>> {
    run.take().map(|turn| Box::new(Share::new(run, turn)))
}
