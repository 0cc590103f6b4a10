//! Which files may still be read. What a change made obsolete is removed when it can no longer be read.
//!
//! A query keeps the files of its table as they were, and opens them when it comes to them: a file must not go before.
//! The catalog's journal names the files that wait; if the process ends first, the next opening removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::catalog::Catalog;
use crate::catalog::entries::Obsolete;
use crate::root::Root;
use crate::sweep::remove;

/// The files in use, and those that wait to be removed.
#[derive(Debug)]
pub(crate) struct InUse {
    root: Root,
    catalog: Weak<Catalog>,
    state: Mutex<UseCounts>,
}

#[derive(Debug, Default)]
struct UseCounts {
    /// How many uses keep each of these from being removed.
    counts: BTreeMap<Obsolete, usize>,
    waiting: BTreeSet<Obsolete>,
}

impl InUse {
    pub fn new(root: &Root, catalog: &Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self {
            root: root.clone(),
            catalog: Arc::downgrade(catalog),
            state: Mutex::default(),
        })
    }

    /// Removes what a change made obsolete, now or when the last use ends.
    pub fn remove(&self, obsolete: Obsolete) {
        let mut state = self.state.lock();
        if state.counts.contains_key(&obsolete) {
            state.waiting.insert(obsolete);
            return;
        }
        drop(state);
        self.remove_now(obsolete);
    }

    /// Keeps a data file until the use is dropped.
    pub fn data_file(self: &Arc<Self>, folder: &str, number: u64) -> Use {
        let folder = folder.to_owned();
        self.begin(vec![
            Obsolete::Table {
                folder: folder.clone(),
            },
            Obsolete::File { folder, number },
        ])
    }

    /// Keeps the index file of a data file until the use is dropped.
    pub fn index_file(self: &Arc<Self>, folder: &str, number: u64, index: i64) -> Use {
        let mut used = self.data_file(folder, number);
        let folder = folder.to_owned();
        let of_index = Obsolete::Index { folder, index };
        self.count(&of_index);
        used.kept.push(of_index);
        used
    }

    fn begin(self: &Arc<Self>, kept: Vec<Obsolete>) -> Use {
        kept.iter().for_each(|one| self.count(one));
        Use {
            in_use: self.clone(),
            kept,
        }
    }

    fn count(&self, kept: &Obsolete) {
        let mut state = self.state.lock();
        match state.counts.get_mut(kept) {
            Some(count) => *count += 1,
            None => {
                state.counts.insert(kept.clone(), 1);
            }
        }
    }

    /// Ends one use; whether that was the last one and the files are to go.
    fn end(&self, kept: &Obsolete) -> bool {
        let mut state = self.state.lock();
        let Some(count) = state.counts.get_mut(kept) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        state.counts.remove(kept);
        state.waiting.remove(kept)
    }

    fn is_waiting(&self, kept: &[Obsolete]) -> bool {
        let state = self.state.lock();
        kept.iter().any(|one| state.waiting.contains(one))
    }

    fn remove_now(&self, obsolete: Obsolete) {
        // Without a store there is no lock on the folder: the next opening removes it.
        if let Some(catalog) = self.catalog.upgrade()
            && remove(&self.root, &obsolete)
        {
            catalog.forget(vec![obsolete]);
        }
    }
}

/// Keeps files from being removed until it is dropped.
#[derive(Debug)]
pub(crate) struct Use {
    in_use: Arc<InUse>,
    kept: Vec<Obsolete>,
}

impl Use {
    /// Whether the files are to go once nothing uses them.
    pub fn is_ending(&self) -> bool {
        self.in_use.is_waiting(&self.kept)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        for kept in self.kept.drain(..) {
            if self.in_use.end(&kept) {
                self.in_use.remove_now(kept);
            }
        }
    }
}
