//! Joining a pair of spilled partitions.
//!
//! The smaller one is built, with further bits of the hash: what does not fit is spilled again. Rows that no bits
//! divide, because they have one key, are joined by block nested loop: as many as fit, then all rows of the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::RecordBatch;

use super::cursor::{Cursor, Probing, Scan};
use super::layout::Block;
use super::part::PartOptions;
use super::plan::Plan;
use super::spec::Side;
use super::spilled::{BlockReader, Spilled};
use super::store::RowStore;
use super::table::Tables;
use crate::memory::{Charge, Grant};
use crate::partitions::{PARTITION_BITS, PARTITIONS, Scatter, partition_of};
use crate::{Environment, Result};

/// Partitions are divided this often. Then few bits of the hash remain for the table.
const LEVELS_MAX: u32 = 4;

/// What all threads of a join share.
pub struct Shared {
    pub plan: Plan,
    pub environment: Environment,
    pub grant: Arc<Grant>,
    pub counts: Arc<Counts>,
}

/// What a join did so far.
#[derive(Debug, Default)]
pub struct Counts {
    pairs: AtomicU64,
    levels: AtomicU64,
    passes: AtomicU64,
}

impl Counts {
    fn note_pair(&self, level: u32) {
        self.pairs.fetch_add(1, Relaxed);
        self.levels.fetch_max(u64::from(level), Relaxed);
    }

    /// Pairs joined, the level of the deepest, and how often a probe side was read again.
    pub fn get(&self) -> [u64; 3] {
        [&self.pairs, &self.levels, &self.passes].map(|count| count.load(Relaxed))
    }
}

impl Shared {
    pub fn probing<'a>(&'a self, tables: &'a Tables, side: Side, is_last: bool) -> Probing<'a> {
        Probing {
            plan: &self.plan,
            stop: &self.environment.stop,
            tables,
            side,
            is_last,
        }
    }
}

/// Partitions of both sides with the same bits of the hash.
pub struct Pair {
    pub left: Spilled,
    pub right: Spilled,
    /// The level that divides them.
    pub level: u32,
    /// Whether dividing is of no use.
    pub is_stuck: bool,
    /// Whether rows have keys.
    pub has_keys: bool,
}

impl Pair {
    /// Whether any row can come of it.
    pub fn is_useful(&self, plan: &Plan) -> bool {
        match (self.left.rows, self.right.rows) {
            (0, 0) => false,
            (_, 0) => plan.keeps_lonely(Side::Left),
            (0, _) => plan.keeps_lonely(Side::Right),
            _ => true,
        }
    }
}

/// A pair that is being joined.
pub struct Run {
    build: Side,
    level: u32,
    has_keys: bool,
    tables: Tables,
    probe: Spilled,
    reader: BlockReader,
    cursor: Cursor,
    is_probing: bool,
    scan: Option<Scan>,
    rest: Rest,
    scatter: Scatter,
}

/// What the table does not hold of the build side.
enum Rest {
    /// Spilled partitions of both sides.
    Divided {
        build: RowStore,
        probe: RowStore,
        rows: u64,
    },
    /// Rows that come next.
    Queued(Queue),
}

struct Queue {
    reader: BlockReader,
    /// A block that was read and did not fit.
    block: Option<Block>,
    /// A bit for each probe row that has a partner.
    matched: Vec<u64>,
    /// The first row of the probe block in work.
    first_row: usize,
    _charge: Charge,
}

impl Run {
    pub fn start(pair: Pair, shared: &Shared) -> Result<Self> {
        // Rows without a key cannot probe. Only the left side has any.
        let build = match pair.left.bytes <= pair.right.bytes || !pair.has_keys {
            true => Side::Left,
            false => Side::Right,
        };
        let (built, probe) = match build {
            Side::Left => (pair.left, pair.right),
            Side::Right => (pair.right, pair.left),
        };
        // Dividing what is small already only makes smaller reads and writes.
        let is_small = built.bytes <= shared.grant.minimum_bytes();
        let is_whole = pair.is_stuck || is_small || pair.level >= LEVELS_MAX;
        shared.counts.note_pair(pair.level);
        let (tables, rest) = if is_whole {
            let mut queue = Queue::new(built, &probe, shared);
            let options = options(shared, build, pair.level, pair.has_keys);
            (queue.load(shared, build, options)?, Rest::Queued(queue))
        } else {
            divide(built, build, pair.level, shared)?
        };
        Ok(Self {
            build,
            level: pair.level,
            has_keys: pair.has_keys,
            tables,
            reader: BlockReader::new(probe.clone()),
            probe,
            cursor: Cursor::default(),
            is_probing: false,
            scan: None,
            rest,
            scatter: Scatter::default(),
        })
    }

    /// The next batch of output. After the last one, pairs that remain are in `pairs`.
    pub fn next(&mut self, shared: &Shared, pairs: &mut Vec<Pair>) -> Result<Option<RecordBatch>> {
        loop {
            shared.environment.stop.check()?;
            let is_last = match &self.rest {
                Rest::Queued(queue) => queue.block.is_none(),
                Rest::Divided { .. } => true,
            };
            let side = self.build.other();
            let probing = shared.probing(&self.tables, side, is_last);
            if let Some(scan) = &mut self.scan {
                if let Some(batch) = scan.next(probing)? {
                    return Ok(Some(batch));
                }
                if !self.turn(shared, pairs)? {
                    return Ok(None);
                }
            } else if self.is_probing {
                if let Some(batch) = self.cursor.next(probing)? {
                    return Ok(Some(batch));
                }
                self.is_probing = false;
                if let Rest::Queued(queue) = &mut self.rest {
                    queue.keep(&self.cursor);
                }
            } else if let Some(block) = self.reader.read()? {
                self.begin(shared, block)?;
            } else {
                self.scan = Some(Scan::new(0..self.tables.parts()));
            }
        }
    }

    /// Begins to probe with a block.
    fn begin(&mut self, shared: &Shared, block: Block) -> Result<()> {
        let side = self.build.other();
        let layout = shared.plan.layout(side);
        let rows = &mut self.cursor.rows;
        layout.keys(&block, &mut rows.keys);
        let heap = block.heap.as_slice();
        let columns = (0..layout.columns()).map(|idx| layout.unpack(idx, &block.words, &heap));
        rows.set_columns(columns.collect::<Result<_>>()?)?;
        if let Rest::Divided { probe, .. } = &self.rest
            && !self.tables.is_complete()
        {
            let (tables, level) = (&self.tables, self.level);
            self.scatter.sort(rows.keys.hashes(), |_, hash| {
                (!tables.is_resident(hash)).then(|| partition_of(hash, level))
            });
            probe.append_sorted(&self.scatter, &block)?;
        }
        self.cursor.start(shared.probing(&self.tables, side, true));
        if let Rest::Queued(queue) = &self.rest {
            queue.recall(&mut self.cursor);
        }
        self.is_probing = true;
        Ok(())
    }

    /// Continues with the next rows of the build side. False: there are none.
    fn turn(&mut self, shared: &Shared, pairs: &mut Vec<Pair>) -> Result<bool> {
        match &mut self.rest {
            Rest::Queued(queue) if queue.block.is_some() => {
                let options = options(shared, self.build, self.level, self.has_keys);
                shared.counts.passes.fetch_add(1, Relaxed);
                self.tables.free();
                self.tables = queue.load(shared, self.build, options)?;
                self.reader = BlockReader::new(self.probe.clone());
                queue.first_row = 0;
                self.scan = None;
                Ok(true)
            }
            Rest::Queued(_) => Ok(false),
            Rest::Divided { build, probe, rows } => {
                probe.finish()?;
                pairs.extend(spilled_pairs(
                    build,
                    probe,
                    self.build,
                    Some(*rows),
                    &shared.plan,
                ));
                Ok(false)
            }
        }
    }
}

fn options(shared: &Shared, build: Side, level: u32, has_keys: bool) -> PartOptions<'_> {
    PartOptions {
        layout: shared.plan.layout(build),
        skip_bits: PARTITION_BITS * level,
        marks: shared.plan.marks(build),
        has_keys,
    }
}

/// Divides the build side by further bits of the hash.
fn divide(built: Spilled, side: Side, level: u32, shared: &Shared) -> Result<(Tables, Rest)> {
    let Shared {
        plan,
        environment,
        grant,
        ..
    } = shared;
    let layout = plan.layout(side);
    let rows = built.rows;
    let build = RowStore::new(layout, environment, grant, level, false);
    let mut scatter = Scatter::default();
    let mut reader = BlockReader::new(built);
    while let Some(block) = reader.read()? {
        let hashes = block
            .words
            .chunks_exact(layout.stride())
            .map(|row| layout.hash(row));
        let hashes: Vec<u64> = hashes.collect();
        build.append(&mut scatter, &block, &hashes, None, false)?;
    }
    let tables = Tables::build(&build, plan.marks(side), 1)?;
    let probe = RowStore::new(plan.layout(side.other()), environment, grant, level, true);
    Ok((tables, Rest::Divided { build, probe, rows }))
}

/// The pairs of spilled partitions of two stores. `rows` are those of the build side, if they could not be divided
/// by fewer bits.
pub fn spilled_pairs(
    build: &RowStore,
    probe: &RowStore,
    side: Side,
    rows: Option<u64>,
    plan: &Plan,
) -> Vec<Pair> {
    let pairs = (0..PARTITIONS).filter_map(|idx| {
        let built = build.take_spilled(idx)?;
        let probing = probe.take_spilled(idx).unwrap_or_default();
        let is_stuck = rows == Some(built.rows);
        let (left, right) = match side {
            Side::Left => (built, probing),
            Side::Right => (probing, built),
        };
        let level = build.level() + 1;
        Some(Pair {
            left,
            right,
            level,
            is_stuck,
            has_keys: true,
        })
    });
    pairs.filter(|pair| pair.is_useful(plan)).collect()
}

impl Queue {
    fn new(built: Spilled, probe: &Spilled, shared: &Shared) -> Self {
        let words = (probe.rows as usize).div_ceil(64);
        shared.grant.grow(words as u64 * 8);
        Self {
            reader: BlockReader::new(built),
            block: None,
            matched: vec![0; words],
            first_row: 0,
            _charge: Charge::adopt(&shared.grant, words as u64 * 8),
        }
    }

    /// A table of as many rows as fit, and of the join's minimum and one block at least.
    fn load(&mut self, shared: &Shared, side: Side, options: PartOptions) -> Result<Tables> {
        let grant = &shared.grant;
        let stride = options.layout.stride();
        let mut chunks: Vec<Block> = Vec::new();
        let (mut rows, mut heap_bytes) = (0, 0);
        let mut charge = Charge::adopt(grant, 0);
        loop {
            shared.environment.stop.check()?;
            let block = match self.block.take() {
                Some(block) => Some(block),
                None => self.reader.read()?,
            };
            let Some(block) = block else {
                break;
            };
            let added = block.words.len() / stride;
            let needed = options.bytes(rows + added) - options.bytes(rows) + block.memory_bytes();
            if !charge.try_grow(needed) {
                if !chunks.is_empty() && charge.bytes() >= grant.minimum_bytes() {
                    self.block = Some(block);
                    break;
                }
                charge.grow(needed);
            }
            rows += added;
            heap_bytes += block.heap.capacity() as u64;
            chunks.push(block);
        }
        let mut part = options.build(chunks, charge);
        part.keep(options.bytes(rows) + heap_bytes);
        Ok(Tables::single(shared.plan.layout(side), part, options))
    }

    /// Makes the cursor know which of its rows have had partners.
    fn recall(&self, cursor: &mut Cursor) {
        for (idx, matched) in cursor.matched.iter_mut().enumerate() {
            let row = self.first_row + idx;
            *matched = self.matched[row / 64] >> (row % 64) & 1 == 1;
        }
    }

    /// Keeps which of the cursor's rows have had partners.
    fn keep(&mut self, cursor: &Cursor) {
        for (idx, _) in cursor
            .matched
            .iter()
            .enumerate()
            .filter(|(_, matched)| **matched)
        {
            let row = self.first_row + idx;
            self.matched[row / 64] |= 1 << (row % 64);
        }
        self.first_row += cursor.rows.keys.len();
    }
}
