//! What a scan may see of the database: the cache, the Elfs, the tuner, and how far to read ahead.

use std::any::Any;
use std::sync::Arc;

use hotshelf_cache::CacheManager;
use hotshelf_store::data_file::TableShelves;
use hotshelf_store::index::elfs::ElfStore;
use hotshelf_tier::io::IoEngine;
use vortex::session::VortexSession;

use crate::look_ups::KeptLookUps;
use crate::pipelines::Observers;
use crate::prices::PriceBook;
use crate::table::Table;

/// A scan takes at most one part in this many of the budget for what it reads ahead: several scans and the operators
/// above them share the rest.
const LOOK_AHEAD_BUDGET_PARTS: u64 = 16;
/// Rows on their way get their memory whatever others need: the workers of a scan decode one part in this many of the
/// budget at once, or each of them the second number of bytes if that is more.
const DECODED_BUDGET_PARTS: u64 = 32;
const DECODED_BYTES_MIN: u64 = 512 << 10;
/// And at most one part in this many of the descriptors: the row groups that are read ahead may be of many files.
const LOOK_AHEAD_DESCRIPTOR_PARTS: usize = 4;

/// The narrow hand-out of the database to its scans; one for all of them.
pub(crate) struct ScanEnv {
    pub cache: Arc<CacheManager>,
    pub elfs: Arc<ElfStore>,
    /// Look-ups that earlier queries made.
    pub look_ups: Arc<KeptLookUps>,
    /// Where tables and look-ups can lie.
    pub shelves: Arc<TableShelves>,
    pub vortex: VortexSession,
    /// Who learns what pipelines did.
    pub observers: Observers,
    /// Reads files; a scan only shows how.
    pub io: Arc<IoEngine>,
    /// What work costs on this machine.
    pub prices: Arc<PriceBook>,
    /// Descriptors that all files of the database may have.
    pub descriptor_count_max: usize,
    /// Keeps the database open while something is scanned: its folder stays locked.
    pub _held_open: Arc<dyn Any + Send + Sync>,
}

impl ScanEnv {
    /// How many of some workers take row groups of a table: no more than there are, and than read its shelf together.
    pub fn workers(&self, table: &Table, wanted: usize) -> usize {
        let readers = self.shelves.readers_of(&table.folder);
        let row_groups: usize = table.files.iter().map(|file| file.row_group_count()).sum();
        let workers = wanted.min(readers.unwrap_or(usize::MAX));
        workers.min(row_groups).max(1)
    }

    /// Bytes that a scan reads ahead with the budget and the prices as they are now.
    pub fn look_ahead_bytes(&self) -> u64 {
        let share = self.cache.budget().limit_bytes() / LOOK_AHEAD_BUDGET_PARTS;
        share.min(self.prices.look_ahead_bytes())
    }

    /// Bytes that each of some workers decodes at once with the budget as it is now.
    pub fn decoded_bytes_max(&self, workers: usize) -> u64 {
        let parts = DECODED_BUDGET_PARTS * workers.max(2) as u64;
        (self.cache.budget().limit_bytes() / parts).max(DECODED_BYTES_MIN)
    }

    /// Row groups that a scan reads ahead at most: each may be of another file, which takes a descriptor.
    pub fn look_ahead_row_groups(&self) -> usize {
        self.descriptor_count_max / LOOK_AHEAD_DESCRIPTOR_PARTS
    }
}
