//! Rows by partition: in memory while it lasts, in blocks on disk afterwards.

use std::mem::{replace, take};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_buffer::NullBuffer;
use parking_lot::{Mutex, MutexGuard};

use super::layout::{Block, RowLayout};
use super::spilled::{Spilled, block_schema, to_batch};
use crate::keys::{KeyShape, Keys};
use crate::memory::Grant;
use crate::partitions::{NO_KEY, PARTITIONS, Scatter, partition_of};
use crate::spill::{SpillFile, SpilledBatch, write_bytes};
use crate::{Environment, Result, Stop, TableShelf};

/// The first chunk of a partition; each next one is twice as large.
const CHUNK_BYTES_MIN: usize = 2 << 10;
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Rows of a spilled partition are written when this many bytes are there: more where there is more memory, of which
/// all partitions together have one in this many bytes for that.
const BLOCK_BYTES_MIN: usize = 32 << 10;
const BLOCK_BYTES_MAX: usize = 512 << 10;
const BLOCKS_SHARE: usize = 12;

/// Rows by partition. Threads append at once.
pub struct RowStore {
    layout: Arc<RowLayout>,
    environment: Environment,
    grant: Arc<Grant>,
    level: u32,
    partitions: Vec<Mutex<Partition>>,
    /// What each partition would free if it were spilled.
    resident_bytes: Vec<AtomicU64>,
    /// Empty chunks, which take the place of one that is being written. They are lent.
    spares: Mutex<Vec<Block>>,
    file: OnceLock<Arc<SpillFile>>,
    spilled_rows: AtomicU64,
    /// The least and the greatest key of one word that was noted.
    key_range: (AtomicU64, AtomicU64),
}

/// The rows of a partition.
#[derive(Default)]
pub struct Partition {
    pub chunks: Vec<Block>,
    /// What the grant lends for the chunks.
    pub held_bytes: u64,
    /// How many came, also where they were taken.
    pub rows: u64,
    /// What was appended.
    bytes: u64,
    spilled: Option<Vec<SpilledBatch>>,
}

impl RowStore {
    /// An empty store, which keeps rows in memory while the grant grows, or `spills` them all.
    pub fn new(
        layout: &Arc<RowLayout>,
        environment: &Environment,
        grant: &Arc<Grant>,
        level: u32,
        spills: bool,
    ) -> Self {
        let partition = || Partition {
            spilled: spills.then(Vec::new),
            ..Partition::default()
        };
        Self {
            layout: Arc::clone(layout),
            environment: environment.clone(),
            grant: Arc::clone(grant),
            level,
            partitions: (0..=NO_KEY).map(|_| Mutex::new(partition())).collect(),
            resident_bytes: (0..=NO_KEY).map(|_| AtomicU64::new(0)).collect(),
            spares: Mutex::default(),
            file: OnceLock::new(),
            spilled_rows: AtomicU64::new(0),
            key_range: (AtomicU64::new(u64::MAX), AtomicU64::new(0)),
        }
    }

    /// Notes the keys of rows that are appended, so that [`Self::key_range`] knows them.
    pub fn note_keys(&self, keys: &Keys) {
        if self.layout.shape() != KeyShape::Words(1) || keys.is_empty() {
            return;
        }
        let words = keys.all_words().iter().enumerate();
        let widen =
            |(least, greatest): (u64, u64), word: u64| (least.min(word), greatest.max(word));
        let (least, greatest) = match keys.valid() {
            None => words.fold((u64::MAX, 0), |range, (_, &word)| widen(range, word)),
            Some(valid) => words
                .filter(|(row, _)| valid.is_valid(*row))
                .fold((u64::MAX, 0), |range, (_, &word)| widen(range, word)),
        };
        self.key_range.0.fetch_min(least, Ordering::Relaxed);
        self.key_range.1.fetch_max(greatest, Ordering::Relaxed);
    }

    /// The least and the greatest key that were noted: `None` if keys are not one word, or there are none.
    pub fn key_range(&self) -> Option<(u64, u64)> {
        let (least, greatest) = &self.key_range;
        let range = (
            least.load(Ordering::Relaxed),
            greatest.load(Ordering::Relaxed),
        );
        (range.0 <= range.1).then_some(range)
    }

    /// Rows that have a key.
    pub fn row_count(&self) -> u64 {
        let partitions = self.partitions[..NO_KEY].iter();
        partitions.map(|partition| partition.lock().rows).sum()
    }

    pub fn level(&self) -> u32 {
        self.level
    }

    /// How many rows were written.
    pub fn spilled_rows(&self) -> u64 {
        self.spilled_rows.load(Ordering::Relaxed)
    }

    pub fn layout(&self) -> &Arc<RowLayout> {
        &self.layout
    }

    pub fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    pub fn table_shelf(&self) -> Option<&dyn TableShelf> {
        self.environment.table_shelf.as_deref()
    }

    pub fn stop(&self) -> &Stop {
        &self.environment.stop
    }

    /// Appends rows. Those without a key are kept apart, or dropped.
    pub fn append(
        &self,
        scatter: &mut Scatter,
        block: &Block,
        hashes: &[u64],
        valid: Option<&NullBuffer>,
        keeps_no_key: bool,
    ) -> Result<()> {
        let level = self.level;
        match valid {
            None => scatter.sort(hashes, |_, hash| Some(partition_of(hash, level))),
            Some(valid) => scatter.sort(hashes, |row, hash| match valid.is_valid(row) {
                true => Some(partition_of(hash, level)),
                false => keeps_no_key.then_some(NO_KEY),
            }),
        }
        self.append_sorted(scatter, block)
    }

    /// Appends rows in the order of `scatter`.
    pub fn append_sorted(&self, scatter: &Scatter, block: &Block) -> Result<()> {
        self.environment.stop.check()?;
        for partition in scatter.partitions() {
            self.append_to(partition, scatter.rows(partition), block)?;
        }
        Ok(())
    }

    fn append_to(&self, idx: usize, rows: &[u32], block: &Block) -> Result<()> {
        let stride = self.layout.stride();
        let words = rows.len() * stride;
        let row_of = |row: usize| &block.words[row * stride..(row + 1) * stride];
        let heap = match self.layout.has_heap() {
            true => rows
                .iter()
                .map(|&row| {
                    self.layout
                        .heap_bytes(row_of(row as usize), |_| &block.heap)
                })
                .sum(),
            false => 0,
        };
        let mut partition = self.with_room(idx, words, heap)?;
        partition.rows += rows.len() as u64;
        partition.bytes += (words * 8 + heap) as u64;
        let chunk = partition.chunks.last_mut().expect("a chunk with room");
        self.layout.copy_rows(block, rows, chunk);
        Ok(())
    }

    /// The partition, whose last chunk has room for this many words and bytes.
    fn with_room(
        &self,
        idx: usize,
        words: usize,
        heap: usize,
    ) -> Result<MutexGuard<'_, Partition>> {
        let has_room = |chunk: &Block| {
            chunk.words.capacity() - chunk.words.len() >= words
                && chunk.heap.capacity() - chunk.heap.len() >= heap
        };
        let mut overdraws = false;
        loop {
            let mut partition = self.partitions[idx].lock();
            if partition.chunks.last().is_some_and(has_room) {
                return Ok(partition);
            }
            if partition.spilled.is_some() && !partition.chunks.is_empty() {
                match self.take_full(&mut partition) {
                    Some(full) => {
                        drop(partition);
                        self.write_full(idx, full)?;
                    }
                    None => self.write(&mut partition)?,
                }
                continue;
            }
            let chunk = match &partition.spilled {
                Some(_) => Block::with_capacity(self.block_bytes(), words, heap),
                None => partition.next_chunk(words, heap),
            };
            let bytes = chunk.memory_bytes();
            if overdraws {
                self.grant.grow(bytes);
            } else if !self.grant.try_grow(bytes) {
                drop(partition);
                overdraws = !self.spill_largest(bytes)?;
                continue;
            }
            partition.held_bytes += bytes;
            if partition.spilled.is_none() {
                self.resident_bytes[idx].store(partition.held_bytes, Ordering::Relaxed);
            }
            partition.chunks.push(chunk);
        }
    }

    fn block_bytes(&self) -> usize {
        let share = self.grant.used_bytes() as usize / BLOCKS_SHARE / PARTITIONS;
        share.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
    }

    /// Spills the partition that holds most. False: none holds more than `bytes`.
    fn spill_largest(&self, bytes: u64) -> Result<bool> {
        let sizes = self.resident_bytes.iter().enumerate();
        let sizes = sizes.map(|(idx, held)| (held.load(Ordering::Relaxed), idx));
        match sizes.max() {
            Some((held, idx)) if held > bytes => self.spill(idx).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Writes a partition's rows, and from now on all that follow.
    pub fn spill(&self, idx: usize) -> Result<()> {
        let mut partition = self.partitions[idx].lock();
        partition.spilled.get_or_insert_default();
        self.resident_bytes[idx].store(0, Ordering::Relaxed);
        self.write(&mut partition)
    }

    /// The rows of the partition that has most. None if any is spilled, be it without a row so far.
    pub fn most_rows(&self) -> Option<u64> {
        let mut most = 0;
        for partition in &self.partitions[..NO_KEY] {
            let partition = partition.lock();
            if partition.spilled.is_some() {
                return None;
            }
            most = most.max(partition.rows);
        }
        Some(most)
    }

    /// Spills all partitions of rows with keys.
    pub fn spill_all(&self) -> Result<()> {
        (0..PARTITIONS).try_for_each(|idx| self.spill(idx))
    }

    /// Writes the chunks of a spilled partition and frees them.
    fn write(&self, partition: &mut Partition) -> Result<()> {
        for mut chunk in take(&mut partition.chunks) {
            let bytes = chunk.memory_bytes();
            if !chunk.words.is_empty() {
                let batch = self.write_chunk(&mut chunk)?;
                partition.spilled.get_or_insert_default().push(batch);
            }
            partition.held_bytes -= bytes;
            self.grant.shrink(bytes);
        }
        Ok(())
    }

    /// The only chunk of a spilled partition, for which it gets an empty one: so others need not wait until it is
    /// written. None if it has a heap.
    fn take_full(&self, partition: &mut Partition) -> Option<Block> {
        match &mut partition.chunks[..] {
            [chunk] if chunk.heap.capacity() == 0 && !chunk.words.is_empty() => {
                let spare = self.spares.lock().pop();
                let spare = spare.unwrap_or_else(|| {
                    let spare = Block {
                        words: Vec::with_capacity(chunk.words.capacity()),
                        heap: Vec::new(),
                    };
                    self.grant.grow(spare.memory_bytes());
                    spare
                });
                partition.held_bytes += spare.memory_bytes();
                partition.held_bytes -= chunk.memory_bytes();
                Some(replace(chunk, spare))
            }
            _ => None,
        }
    }

    /// Writes a chunk of a partition, and keeps its memory for others.
    fn write_full(&self, idx: usize, mut full: Block) -> Result<()> {
        let written = self.write_chunk(&mut full);
        full.words.clear();
        self.spares.lock().push(full);
        let mut partition = self.partitions[idx].lock();
        partition.spilled.get_or_insert_default().push(written?);
        Ok(())
    }

    fn free_spares(&self) {
        let spares = take(&mut *self.spares.lock());
        let bytes = spares.iter().map(Block::memory_bytes).sum();
        drop(spares);
        self.grant.shrink(bytes);
    }

    fn write_chunk(&self, chunk: &mut Block) -> Result<SpilledBatch> {
        self.environment.stop.check()?;
        let stride = self.layout.stride();
        let rows = chunk.words.len() / stride;
        self.spilled_rows.fetch_add(rows as u64, Ordering::Relaxed);
        // The words are packed first.
        let bytes = chunk.memory_bytes();
        let needed = bytes + write_bytes(bytes);
        self.grant.grow(needed);
        let written = self.file();
        let written = written.and_then(|file| file.write(&to_batch(chunk, stride)?));
        self.grant.shrink(needed);
        written
    }

    pub fn file(&self) -> Result<Arc<SpillFile>> {
        if let Some(file) = self.file.get() {
            return Ok(Arc::clone(file));
        }
        let file = self.environment.spill_file(block_schema())?;
        Ok(Arc::clone(self.file.get_or_init(|| file)))
    }

    /// Writes what remains of spilled partitions.
    pub fn finish(&self) -> Result<()> {
        self.free_spares();
        for partition in &self.partitions {
            let mut partition = partition.lock();
            if partition.spilled.is_some() {
                self.write(&mut partition)?;
            }
        }
        Ok(())
    }

    /// The rows of a partition in memory, or nothing if it is spilled. The caller shrinks the grant.
    pub fn take_resident(&self, idx: usize) -> Option<Partition> {
        let mut partition = self.partitions[idx].lock();
        if partition.spilled.is_some() {
            return None;
        }
        self.resident_bytes[idx].store(0, Ordering::Relaxed);
        let left = Partition {
            rows: partition.rows,
            ..Partition::default()
        };
        Some(replace(&mut *partition, left))
    }

    /// The rows of all partitions with keys, or nothing if any is spilled. The caller shrinks the grant.
    pub fn take_all_resident(&self) -> Option<Vec<Partition>> {
        let mut taken = Vec::with_capacity(NO_KEY);
        for idx in 0..NO_KEY {
            match self.take_resident(idx) {
                Some(partition) => taken.push(partition),
                None => {
                    self.put_back(taken);
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// Returns the first partitions, which were taken.
    pub fn put_back(&self, taken: Vec<Partition>) {
        for (idx, partition) in taken.into_iter().enumerate() {
            self.resident_bytes[idx].store(partition.held_bytes, Ordering::Relaxed);
            *self.partitions[idx].lock() = partition;
        }
    }

    /// Returns rows that [`Self::take_resident`] took, and spills them.
    pub fn spill_taken(&self, idx: usize, taken: Partition) -> Result<()> {
        *self.partitions[idx].lock() = taken;
        self.spill(idx)
    }

    /// What was spilled of a partition.
    pub fn take_spilled(&self, idx: usize) -> Option<Spilled> {
        let mut partition = self.partitions[idx].lock();
        let batches = partition.spilled.take()?;
        Some(Spilled {
            batches,
            rows: partition.rows,
            bytes: partition.bytes,
        })
    }
}

impl Drop for RowStore {
    fn drop(&mut self) {
        self.free_spares();
        for partition in &mut self.partitions {
            self.grant.shrink(partition.get_mut().held_bytes);
        }
    }
}

impl Partition {
    /// A new chunk that has room for the given words and bytes.
    fn next_chunk(&self, words: usize, heap: usize) -> Block {
        let last = self.chunks.last();
        let last = last.map_or(0, |chunk| chunk.memory_bytes() as usize);
        let bytes = (2 * last).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        Block::with_capacity(bytes, words, heap)
    }
}
