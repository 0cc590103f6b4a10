//! What an aggregation's parts have in common.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;

use super::plan::Plan;
use super::table::Table;
use crate::batches::needed_bytes;
use crate::memory::{Charge, Grant};
use crate::spill::{SpillFile, SpilledBatch, write_bytes};
use crate::{Environment, Result};

/// How large the parts of an aggregation are.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// What an aggregation may use without a question. Smaller tables are not divided.
    pub minimum_bytes: u64,
    /// A worker's table.
    pub table_bytes: u64,
    /// The table of a worker that is alone, if that is more.
    pub alone_table_bytes: u64,
    /// The output of such a table is made at once even if the broker does not lend memory for it.
    pub output_bytes: u64,
    /// The output of a larger table is made by partition.
    pub output_bytes_max: u64,
    /// A worker's table that is given up only when it has as much.
    pub table_bytes_min: u64,
    /// A partition's rows that are merged at once.
    pub merge_rows: usize,
    /// A partition that is spilled has as much.
    pub spill_bytes_min: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            minimum_bytes: 512 << 10,
            table_bytes: 2 << 20,
            alone_table_bytes: 4 << 30,
            output_bytes: 32 << 20,
            output_bytes_max: 1 << 30,
            table_bytes_min: 128 << 10,
            merge_rows: 4096,
            spill_bytes_min: 16 << 10,
        }
    }
}

/// What an aggregation did so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub rows: AtomicU64,
    pub blind_rows: AtomicU64,
    pub scattered_groups: AtomicU64,
    pub spilled_rows: AtomicU64,
    pub level_max: AtomicU64,
}

impl Counts {
    pub fn note_level(&self, level: u32) {
        self.level_max.fetch_max(u64::from(level), Relaxed);
    }
}

/// What all threads of an aggregation share.
pub struct Shared {
    pub plan: Arc<Plan>,
    pub environment: Environment,
    pub grant: Arc<Grant>,
    pub limits: Limits,
    pub counts: Counts,
    pub file: OnceLock<Arc<SpillFile>>,
}

impl Shared {
    fn file(&self) -> Result<&Arc<SpillFile>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.environment.spill_file(self.plan.groups().clone())?;
        Ok(self.file.get_or_init(|| file))
    }

    /// A table without groups.
    pub fn table(&self) -> Result<Table> {
        let shelf = self.environment.table_shelf.as_ref();
        Table::new(&self.plan, &self.grant, shelf)
    }

    /// Writes groups.
    pub fn write(&self, groups: &RecordBatch, spilled: &mut Vec<SpilledBatch>) -> Result<()> {
        self.environment.stop.check()?;
        let mut charge = Charge::adopt(&self.grant, 0);
        charge.grow(write_bytes(needed_bytes(groups)));
        spilled.push(self.file()?.write(groups)?);
        self.counts
            .spilled_rows
            .fetch_add(groups.num_rows() as u64, Relaxed);
        Ok(())
    }
}
