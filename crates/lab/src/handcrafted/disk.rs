//! The fact table as rows in files, read directly while the look-ups stay in memory: the paper's NVMe run.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hotshelf_tier::TierError;
use hotshelf_tier::io::{IoEngine, IoFile, IoOptions};

use super::fact::{Fact, ROW_BYTES};
use super::lookup::Rows;
use super::pace::Pace;
use super::plan::{Plan, Sums};
use super::rows::run_block;

/// Rows of one read: a mebibyte.
const READ_ROWS: usize = (1 << 20) / ROW_BYTES;
/// Reads that each thread has under way.
const DEPTH: usize = 4;
const BLOCK_ROWS: usize = 512;

/// One file for each stripe.
pub struct DiskRows {
    engine: Arc<IoEngine>,
    stripes: Vec<(Arc<IoFile>, usize)>,
}

impl DiskRows {
    /// Writes the rows of a fact table to a folder.
    ///
    /// # Errors
    /// What the system says about the files.
    pub fn write(fact: &Fact, folder: &Path) -> Result<Self, TierError> {
        let engine = IoEngine::start(IoOptions::default())?;
        let mut stripes = Vec::new();
        for (idx, stripe) in fact.stripes.iter().enumerate() {
            let path = folder.join(format!("lineorder-{idx}.rows"));
            let written = || {
                let mut file = BufWriter::new(File::create(&path)?);
                file.write_all(stripe.row_bytes(&(0..stripe.rows)))?;
                file.into_inner()
                    .map_err(|error| error.into_error())?
                    .sync_all()
            };
            written().map_err(|source| TierError::io(&path, "write", source))?;
            stripes.push((engine.open(&path)?, stripe.rows));
        }
        Ok(Self { engine, stripes })
    }

    /// Runs a query over some rows of a stripe.
    ///
    /// # Errors
    /// What reading says.
    pub fn run(
        &self,
        plan: &Plan,
        stripe: usize,
        rows: Range<usize>,
        pace: &mut Pace,
    ) -> Result<Sums, TierError> {
        let mut sums = Sums::new(plan.group_count);
        let mut kept = Rows::new();
        self.read(stripe, rows, pace, |bytes, pace| {
            for block in bytes.chunks(BLOCK_ROWS * ROW_BYTES) {
                run_block(plan, block, &mut kept, &mut sums, pace);
            }
        })?;
        Ok(sums)
    }

    /// Reads some rows, several reads ahead, and hands them on in order.
    ///
    /// # Errors
    /// What reading says.
    pub fn read(
        &self,
        stripe: usize,
        rows: Range<usize>,
        pace: &mut Pace,
        mut take: impl FnMut(&[u8], &mut Pace),
    ) -> Result<(), TierError> {
        let (file, _) = &self.stripes[stripe];
        let mut starts = rows.clone().step_by(READ_ROWS);
        let mut reads = VecDeque::new();
        loop {
            while reads.len() < DEPTH {
                let Some(start) = starts.next() else { break };
                let len = (rows.end - start).min(READ_ROWS) * ROW_BYTES;
                reads.push_back(self.engine.read(file, (start * ROW_BYTES) as u64, len));
            }
            let Some(read) = reads.pop_front() else {
                return Ok(());
            };
            let bytes = read.wait()?;
            pace.bytes += bytes.len() as u64;
            take(&bytes, pace);
        }
    }

    /// Rows of each stripe.
    pub fn stripe_rows(&self) -> Vec<usize> {
        self.stripes.iter().map(|(_, rows)| *rows).collect()
    }
}
