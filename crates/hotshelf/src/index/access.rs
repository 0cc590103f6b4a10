//! How a scan finds its rows: by asking the Elfs of an index, or by looking at every row group. A plan rule chooses an
//! [`AccessPath`] once; EXPLAIN shows it and the execution uses it as it is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::elfs::ElfStore;
use super::question::{FileQuery, Questions};
use super::selection::{Asking, Outcome, Selection};
use crate::prices::PriceBook;

/// How a scan finds its rows. Without an Elf it looks at every row group.
#[derive(Debug, Clone, Default)]
pub(crate) struct AccessPath {
    /// The Elfs to ask.
    pub elf: Option<Arc<ElfAccess>>,
    /// The figures that decided; none if no index could help.
    pub(super) weighed: Option<Weighed>,
}

/// The best index and the scan, compared. Times are elapsed ones, with all workers at work.
#[derive(Debug, Clone)]
pub(super) struct Weighed {
    pub index: String,
    /// Rows that the Elfs are expected to find.
    pub rows: f64,
    pub elf_ns: f64,
    /// The part of it in which heads and blocks are read from storage.
    pub elf_read_ns: f64,
    pub scan_ns: f64,
    /// What the join sides that have run said about keys.
    pub keys: KnownKeys,
}

/// What is known about join keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KnownKeys {
    Nothing,
    Ranges,
    /// This many keys of a column.
    Listed(usize),
}

/// A scan's question to one index.
#[derive(Debug)]
pub(crate) struct ElfAccess {
    pub(super) store: Arc<ElfStore>,
    /// Learns what asking them takes.
    pub(super) prices: Arc<PriceBook>,
    /// By the number of the data file; others are scanned.
    pub(super) files: Questions,
    /// The dimension of each output column, if rows come from the Elfs and the table is not read.
    pub covering: Option<Vec<usize>>,
}

impl AccessPath {
    /// Whether rows come from Elfs alone.
    pub fn is_covering(&self) -> bool {
        self.elf.as_ref().is_some_and(|elf| elf.covering.is_some())
    }
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

    /// Begins to ask all files, for a query of this weight.
    pub fn start(&self, outcome: &Arc<Outcome>, weight: f64) -> BTreeMap<u64, Arc<Selection>> {
        let start = |query: &FileQuery| {
            Selection::start(&Asking {
                store: self.store.clone(),
                prices: self.prices.clone(),
                file: query.file.clone(),
                query: Arc::new(query.query.clone()),
                keys: query.keys.clone(),
                outcome: outcome.clone(),
                weight,
            })
        };
        self.files
            .iter()
            .map(|(number, query)| (*number, Arc::new(start(query))))
            .collect()
    }
}

impl fmt::Display for AccessPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.elf, &self.weighed) {
            (_, None) => Ok(()),
            (None, Some(weighed)) => write!(f, ", access=scan ({weighed})"),
            (Some(elf), Some(weighed)) => {
                let covering = elf.covering.as_ref().map_or("", |_| ", covering");
                write!(f, ", access=elf {}{covering} ({weighed})", weighed.index)
            }
        }
    }
}

impl fmt::Display for Weighed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, index) = (self.rows.round(), &self.index);
        write!(
            f,
            "{rows} rows expected; Elf {index} {}",
            Milliseconds(self.elf_ns)
        )?;
        if self.elf_read_ns > 0.0 {
            write!(f, ", {} of it reading", Milliseconds(self.elf_read_ns))?;
        }
        write!(f, ", scan {}", Milliseconds(self.scan_ns))?;
        match self.keys {
            KnownKeys::Nothing => Ok(()),
            KnownKeys::Ranges => write!(f, "; with the ranges of join keys"),
            KnownKeys::Listed(1) => write!(f, "; with 1 join key"),
            KnownKeys::Listed(count) => write!(f, "; with {count} join keys"),
        }
    }
}

struct Milliseconds(f64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0 / 1e6)
    }
}
