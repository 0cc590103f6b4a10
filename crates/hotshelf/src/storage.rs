//! The store side of a database: its folder, its tables with their files and indexes, the cache of their segments,
//! and every change made to them.
//!
//! It sees the machine (threads, how to read and write files). It knows nothing of queries: rows come as
//! streams. What reads tables in order to write them again is above it, in [`crate::rewriting`].

mod cache_names;
mod changes;
mod files;
mod indexes;
mod merging;
mod names;
mod placing;
mod scratch;
mod tables;
mod writing;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use hotshelf_cache::{CacheManager, CacheOptions, FileId};
use hotshelf_store::catalog::{Names, TableRow};
use hotshelf_store::data_file::Opener;
use hotshelf_store::placement::Placement;
use hotshelf_store::{Store, vortex_session};
use parking_lot::{Mutex, RwLock};
use vortex::session::VortexSession;

use crate::error::Result;
use crate::index::ElfStore;
use crate::kept_plans::{Forgotten, KeptPlans};
use crate::look_ups::{self, KeptLookUps};
use crate::machine::Machine;
use crate::options::Options;
use crate::table::Table;

pub(crate) use cache_names::{CacheNames, ColumnName};
pub(crate) use changes::Exchange;
pub(crate) use indexes::{default_index_name, resolve};
pub(crate) use merging::{MERGE_ROWS, Merge, Merging};
pub(crate) use names::{PUBLIC, full_name, split};
pub(crate) use scratch::{Scratch, ScratchFolder};
pub(crate) use writing::{BUDGET_PARTS, Writing};

/// The tables of an open database.
pub(crate) struct Storage {
    pub machine: Arc<Machine>,
    pub cache: Arc<CacheManager>,
    pub store: Store,
    /// Opens data and index files when they are first read.
    pub opener: Arc<Opener>,
    /// Elfs in memory.
    pub elfs: Arc<ElfStore>,
    /// Look-ups of build sides in memory.
    pub look_ups: Arc<KeptLookUps>,
    /// Plans of queries, which hold tables and so the storage.
    plans: Weak<KeptPlans>,
    pub vortex: VortexSession,
    /// Which tables wait for their small files to be merged.
    pub merging: Arc<Merging>,
    /// What the cache's numbers mean.
    pub cache_names: CacheNames,
    tables: RwLock<BTreeMap<String, Arc<Table>>>,
    /// Schemas and views.
    names: RwLock<Names>,
    /// One change at a time: names, file numbers and the catalog change together.
    changes: Mutex<()>,
    /// One rewriting of files at a time: making indexes and merging files.
    pub rewrites: tokio::sync::Mutex<()>,
    pub scratch: Scratch,
}

/// What happens to a table of that name when one is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfExists {
    Fail,
    Replace,
}

/// A table to be made.
pub(crate) struct NewTable<'a> {
    pub name: &'a str,
    pub schema: SchemaRef,
    pub if_exists: IfExists,
    /// Columns of the index whose order the rows get; empty for none.
    pub cluster_by: &'a [String],
    /// Where it is to be.
    pub placement: Placement,
}

/// What segments may take though operators hold all memory: a few of them, so that scans read ahead.
const SEGMENT_BYTES_MIN: u64 = 8 << 20;

/// Plans and look-ups that are not kept any more, to be dropped without a lock.
type Outdated = (Option<Forgotten>, look_ups::Outdated);

impl Storage {
    /// The storage over an open store with these tables. Their files are opened when they are first read.
    pub fn new(
        store: Store,
        rows: Vec<TableRow>,
        scratch: Scratch,
        machine: Arc<Machine>,
        plans: &Arc<KeptPlans>,
        options: &Options,
    ) -> Result<Self> {
        let cache = CacheManager::new(CacheOptions {
            budget_bytes: options.budget_bytes,
            policy: options.policy,
            segment_bytes_min: SEGMENT_BYTES_MIN,
            ..CacheOptions::default()
        });
        let vortex = vortex_session();
        let names = store.names()?;
        let storage = Self {
            opener: store.opener(&machine.io, &cache, vortex.clone()),
            elfs: ElfStore::new(cache.clone()),
            look_ups: KeptLookUps::new(&cache),
            plans: Arc::downgrade(plans),
            machine,
            cache,
            store,
            vortex,
            merging: Arc::new(Merging::new(options.merge_files)),
            cache_names: CacheNames::default(),
            tables: RwLock::default(),
            names: RwLock::new(names),
            changes: Mutex::new(()),
            rewrites: tokio::sync::Mutex::default(),
            scratch,
        };
        let shelves = storage.opener.shelves();
        shelves.set_uses(storage.machine.profile.shelves.clone());
        for row in rows {
            storage.put(storage.open_table(row));
        }
        Ok(storage)
    }

    /// Shows the table, in the place of the one of its name. What was made of files that left is dropped.
    fn put(&self, table: Table) {
        let mut tables = self.tables.write();
        let (id, files) = (table.id, table.file_ids());
        let before = tables.insert(table.name.clone(), Arc::new(table));
        let replaced = before.filter(|before| before.id != id);
        let replaced = replaced.map(|before| self.forget_made_of(before.id));
        let outdated = self.note_made_of(id, files);
        drop(tables);
        drop((replaced, outdated));
    }

    /// A table is another one from here on, with these files: what was made of it before is not kept any more.
    fn note_made_of(&self, table: i64, files: Vec<FileId>) -> Outdated {
        (
            self.forget_plans(table),
            self.look_ups.note_table(table, files),
        )
    }

    /// A table is gone, and what was made of it.
    fn forget_made_of(&self, table: i64) -> Outdated {
        (self.forget_plans(table), self.look_ups.forget_table(table))
    }

    fn forget_plans(&self, table: i64) -> Option<Forgotten> {
        Some(self.plans.upgrade()?.forget_table(table))
    }

    fn budget_bytes(&self) -> u64 {
        self.cache.budget().limit_bytes()
    }
}
