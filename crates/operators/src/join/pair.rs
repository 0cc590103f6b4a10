//! Pairs of spilled partitions, and what all threads of a join share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cursor::Probing;
use super::plan::Plan;
use super::spec::Side;
use super::spilled::Spilled;
use super::store::RowStore;
use super::table::Tables;
use crate::Environment;
use crate::memory::Grant;
use crate::partitions::PARTITIONS;

/// Partitions are divided this often. Then few bits of the hash remain for the table.
const LEVELS_MAX: u32 = 4;
/// A partition with this many times the rows of an average one of the others consists of few keys, most likely one.
const SKEW: u64 = 8;

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
    pieces: AtomicU64,
}

impl Counts {
    pub fn note_pair(&self, level: u32) {
        self.pairs.fetch_add(1, Relaxed);
        self.levels.fetch_max(u64::from(level), Relaxed);
    }

    pub fn note_pass(&self) {
        self.passes.fetch_add(1, Relaxed);
    }

    pub fn note_piece(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }

    /// Pairs joined, the level of the deepest, how often a probe side was read again, and partitions of pairs that
    /// threads joined by themselves.
    pub fn get(&self) -> [u64; 4] {
        [&self.pairs, &self.levels, &self.passes, &self.pieces].map(|count| count.load(Relaxed))
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
            shelf: self.environment.table_shelf.as_deref(),
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

    /// The side that is built: the smaller one.
    pub fn build_side(&self) -> Side {
        // Rows without a key cannot probe. Only the left side has any.
        match self.left.bytes <= self.right.bytes || !self.has_keys {
            true => Side::Left,
            false => Side::Right,
        }
    }

    /// The rows of the side that is built, and of the other one.
    pub fn into_sides(self) -> [Spilled; 2] {
        match self.build_side() {
            Side::Left => [self.left, self.right],
            Side::Right => [self.right, self.left],
        }
    }

    fn is_small(&self, shared: &Shared) -> bool {
        let built = match self.build_side() {
            Side::Left => &self.left,
            Side::Right => &self.right,
        };
        built.bytes <= shared.grant.minimum_bytes()
    }

    /// Whether it is joined by block nested loop. Dividing what is small only makes smaller reads and writes.
    pub fn is_whole(&self, shared: &Shared) -> bool {
        self.is_undivided() || self.is_small(shared)
    }

    /// Whether it is joined as it is although it may be larger than memory.
    pub fn is_large(&self, shared: &Shared) -> bool {
        self.is_undivided() && !self.is_small(shared)
    }

    fn is_undivided(&self) -> bool {
        self.is_stuck || self.level >= LEVELS_MAX
    }
}

/// Whether dividing by further bits would leave most rows of a partition together, which has these of `total` rows.
pub fn is_skewed(rows: u64, total: u64) -> bool {
    let others = total.saturating_sub(rows);
    rows * (PARTITIONS as u64 - 1) >= SKEW * others
}

/// The pairs of spilled partitions of two stores. `totals` are the rows with keys that came to be built and to probe.
pub fn spilled_pairs(
    [build, probe]: [&RowStore; 2],
    side: Side,
    totals: [u64; 2],
    plan: &Plan,
) -> Vec<Pair> {
    let pairs = (0..PARTITIONS).filter_map(|idx| {
        let built = build.take_spilled(idx)?;
        let probing = probe.take_spilled(idx).unwrap_or_default();
        // If only one side has few keys, dividing makes the other one small.
        let is_stuck = is_skewed(built.rows, totals[0]) && is_skewed(probing.rows, totals[1]);
        let (left, right) = match side {
            Side::Left => (built, probing),
            Side::Right => (probing, built),
        };
        Some(Pair {
            left,
            right,
            level: build.level() + 1,
            is_stuck,
            has_keys: true,
        })
    });
    pairs.filter(|pair| pair.is_useful(plan)).collect()
}
