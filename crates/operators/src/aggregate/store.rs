//! Groups by partition: merged in memory while it lasts, on disk afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use parking_lot::Mutex;

use super::groups::read_hashes;
use super::job::Shared;
use super::table::{Table, Work};
use crate::Result;
use crate::batches::{held_bytes, needed_bytes, slices, without_unused_values};
use crate::memory::Charge;
use crate::partitions::{PARTITIONS, partition_of};
use crate::spill::SpilledBatch;

/// What is written is written in blocks of about this many bytes, if there are as many.
const BLOCK_BYTES: u64 = 256 << 10;
/// A spilled partition is preferred to one in memory if it holds this many bytes again.
const AGAIN_BYTES: u64 = 64 << 10;
/// Groups of a table go to partitions in pieces of this many.
const SCATTERED_ROWS: usize = 1 << 16;
/// Where fewer rows than one in this many meet their group, looking for it is of no use.
pub const MEETING_PARTS: u64 = 20;

/// Groups by partition. Threads append at once.
pub struct Store {
    shared: Arc<Shared>,
    level: u32,
    /// The store of the partition that this one divides.
    parent: Option<Arc<Store>>,
    partitions: Vec<Mutex<Partition>>,
    /// What each partition would free if it were spilled.
    held_bytes: Vec<AtomicU64>,
    is_spilled: Vec<AtomicBool>,
    is_used: AtomicBool,
}

/// The groups of a partition. A group may be in the table, in several chunks and in several batches.
#[derive(Default)]
pub struct Partition {
    pub table: Option<Table>,
    pub chunks: Vec<Chunk>,
    chunk_rows: usize,
    pub spilled: Vec<SpilledBatch>,
    /// Whether few rows met their group in the table before it was spilled.
    is_distinct: bool,
}

/// Groups with their states.
pub struct Chunk {
    pub groups: RecordBatch,
    bytes: u64,
    _charge: Charge,
}

impl Store {
    pub fn new(shared: &Arc<Shared>, level: u32, parent: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            level,
            parent,
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            held_bytes: (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect(),
            is_spilled: (0..PARTITIONS).map(|_| AtomicBool::new(false)).collect(),
            is_used: AtomicBool::new(false),
        })
    }

    pub fn level(&self) -> u32 {
        self.level
    }

    /// Whether anything was ever appended.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// Appends groups of a table with their states.
    pub fn append_all(&self, groups: &RecordBatch, work: &mut Work) -> Result<()> {
        slices(groups, SCATTERED_ROWS).try_for_each(|groups| self.append(&groups, work))
    }

    /// Appends groups with their states.
    pub fn append(&self, groups: &RecordBatch, work: &mut Work) -> Result<()> {
        self.is_used.store(true, Relaxed);
        let plan = &self.shared.plan;
        let keys = plan.group_keys(groups);
        read_hashes(&plan.encoder, keys, &mut work.keys, &mut work.hashes)?;
        let mut scatter = std::mem::take(&mut work.scatter);
        scatter.sort(&work.hashes, |_, hash| Some(partition_of(hash, self.level)));
        for idx in scatter.partitions() {
            let rows = UInt32Array::from(scatter.rows(idx).to_vec());
            let chunk = without_unused_values(&take_record_batch(groups, &rows)?)?;
            self.append_to(idx, chunk, work)?;
        }
        work.scatter = scatter;
        Ok(())
    }

    fn append_to(&self, idx: usize, groups: RecordBatch, work: &mut Work) -> Result<()> {
        self.shared.environment.stop.check()?;
        let bytes = held_bytes(&groups);
        let charge = self.lend(bytes)?;
        let mut partition = self.partitions[idx].lock();
        partition.chunk_rows += groups.num_rows();
        partition.chunks.push(Chunk {
            groups,
            bytes,
            _charge: charge,
        });
        let merges = partition.is_worth_merging(self.shared.limits.merge_rows);
        let has_room = !merges || partition.merge(&self.shared, work)?;
        self.note_held(idx, &partition);
        drop(partition);
        if !has_room {
            self.spill_some()?;
        }
        Ok(())
    }

    /// Memory for a chunk, for which others are spilled if they hold enough.
    fn lend(&self, bytes: u64) -> Result<Charge> {
        let mut charge = Charge::adopt(&self.shared.grant, 0);
        while !charge.try_grow(bytes) {
            if !self.spill_some()? {
                charge.grow(bytes);
                break;
            }
        }
        Ok(charge)
    }

    fn note_held(&self, idx: usize, partition: &Partition) {
        self.held_bytes[idx].store(partition.held_bytes(), Relaxed);
        self.is_spilled[idx].store(!partition.spilled.is_empty(), Relaxed);
    }

    /// Spills a partition. False: none holds enough for that.
    pub fn spill_some(&self) -> Result<bool> {
        let sizes = (0..PARTITIONS).map(|idx| {
            let held = self.held_bytes[idx].load(Relaxed);
            let again = self.is_spilled[idx].load(Relaxed) && held >= AGAIN_BYTES;
            (again, held, idx)
        });
        match sizes.max() {
            Some((_, held, idx)) if held >= self.shared.limits.spill_bytes_min.max(1) => {
                self.spill(idx)?;
                Ok(true)
            }
            _ => match &self.parent {
                Some(parent) => parent.spill_some(),
                None => Ok(false),
            },
        }
    }

    fn spill(&self, idx: usize) -> Result<()> {
        let mut partition = self.partitions[idx].lock();
        // What fails to be written is lost, and so is the aggregation.
        self.held_bytes[idx].store(0, Relaxed);
        partition.spill(&self.shared)?;
        self.note_held(idx, &partition);
        Ok(())
    }

    /// The groups of a partition.
    pub fn take(&self, idx: usize) -> Partition {
        self.held_bytes[idx].store(0, Relaxed);
        std::mem::take(&mut self.partitions[idx].lock())
    }

    /// Partitions that are to be merged together, the last ones first: those in memory, which make room for others.
    pub fn bundles(&self, rows_max: usize) -> Vec<Vec<usize>> {
        let (mut spilled, mut resident): (Vec<Vec<usize>>, Vec<Vec<usize>>) = Default::default();
        let (mut small, mut small_rows) = (Vec::new(), 0);
        for (idx, partition) in self.partitions.iter().enumerate() {
            let partition = partition.lock();
            if !partition.spilled.is_empty() {
                spilled.push(vec![idx]);
            } else if partition.table.is_some() {
                resident.push(vec![idx]);
            } else if !partition.chunks.is_empty() {
                small.push(idx);
                small_rows += partition.chunk_rows;
            }
            if small_rows >= rows_max {
                resident.push(std::mem::take(&mut small));
                small_rows = 0;
            }
        }
        if !small.is_empty() {
            resident.push(small);
        }
        spilled.extend(resident);
        spilled
    }
}

impl Partition {
    fn held_bytes(&self) -> u64 {
        let table = self.table.as_ref().map_or(0, Table::charged_bytes);
        table + self.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>()
    }

    /// Whether chunks are as many rows as the table has groups, so that all of it comes to the core's cache once for
    /// them.
    fn is_worth_merging(&self, rows_min: usize) -> bool {
        let groups = self.table.as_ref().map_or(0, Table::len);
        !self.is_distinct && self.chunk_rows >= rows_min.max(groups)
    }

    /// Merges chunks to the table. False: there is no memory for the rest.
    fn merge(&mut self, shared: &Shared, work: &mut Work) -> Result<bool> {
        let table = match &mut self.table {
            Some(table) => table,
            none => none.insert(shared.table()?),
        };
        while let Some(chunk) = self.chunks.pop() {
            let rows = chunk.groups.num_rows();
            if !table.has_room(rows, shared.plan.bytes_of_groups(&chunk.groups)) {
                self.chunks.push(chunk);
                return Ok(false);
            }
            shared.environment.stop.check()?;
            table.add_groups(&chunk.groups, work)?;
            self.chunk_rows -= rows;
        }
        Ok(true)
    }

    fn spill(&mut self, shared: &Shared) -> Result<()> {
        let table = self.table.take();
        if let Some(mut table) = table.filter(|table| table.len() > 0) {
            let met = table.rows() - table.len() as u64;
            self.is_distinct |= table.rows() > 0 && met < table.rows() / MEETING_PARTS;
            let (groups, _charge) = table.take_groups()?;
            drop(table);
            let row_bytes = needed_bytes(&groups) / groups.num_rows().max(1) as u64 + 1;
            let rows = (BLOCK_BYTES / row_bytes).max(1) as usize;
            for start in (0..groups.num_rows()).step_by(rows) {
                let block = groups.slice(start, rows.min(groups.num_rows() - start));
                shared.write(&block, &mut self.spilled)?;
            }
        }
        self.chunk_rows = 0;
        let mut block = Vec::new();
        let mut bytes = 0;
        for chunk in std::mem::take(&mut self.chunks) {
            bytes += chunk.bytes;
            block.push(chunk);
            if bytes >= BLOCK_BYTES {
                bytes = 0;
                write_block(std::mem::take(&mut block), shared, &mut self.spilled)?;
            }
        }
        write_block(block, shared, &mut self.spilled)
    }
}

fn write_block(block: Vec<Chunk>, shared: &Shared, spilled: &mut Vec<SpilledBatch>) -> Result<()> {
    let groups = block.iter().map(|chunk| &chunk.groups);
    let groups = concat_batches(shared.plan.groups(), groups)?;
    match groups.num_rows() {
        0 => Ok(()),
        _ => shared.write(&groups, spilled),
    }
}
