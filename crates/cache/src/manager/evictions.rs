//! What goes when memory is needed, and what is worth staying: one order over segments, metadata and what lenders
//! keep.
//!
//! What a query needs now it takes, displacing what saves least: segments, heads of Elfs, footers. Blocks and look-ups
//! stay for later queries if that saves more than what would go for it.

use super::{CacheManager, ShardCell};
use crate::model::ItemClass;
use crate::policy::Reach;
use std::sync::atomic::Ordering::Relaxed;

impl CacheManager {
    /// Whether something that saves this much per byte and second, and is in memory now, should stay there: if these
    /// bytes are free, or if something else would go next that saves less. Look-ups decide by this.
    pub fn should_stay(&self, bytes: u64, saved_s_per_byte_s: f64) -> bool {
        bytes <= self.budget.free_bytes() || self.cheapest_saved() < saved_s_per_byte_s
    }

    /// Reserves memory, as an operator's, for something that saves this much per byte and second. Only what saves less
    /// goes for it. Index blocks come into memory by this. False: there is not enough; what had gone by then is free.
    pub fn try_reserve_worth(&self, bytes: u64, saved_s_per_byte_s: f64) -> bool {
        while bytes > self.budget.free_bytes() {
            if !self.evict_one_below(saved_s_per_byte_s) {
                return false;
            }
        }
        self.budget.try_reserve_operator(bytes).is_ok()
    }

    /// What the thing saves that would go next, in seconds per byte and second; at most what one more byte would save.
    fn cheapest_saved(&self) -> f64 {
        if !self.policy().is_tuned() {
            return 0.0; // Segments have no price.
        }
        if self.shards.iter().any(|cell| cell.shard.lock().has_free()) {
            return 0.0;
        }
        let of_byte = self.prices.read().shelves[0].saved_s_per_byte_s;
        let metadata = self.cheapest_metadata().map(|(saved, _)| saved);
        let lent = self.ladder.cheapest_saved();
        let others = [metadata, lent].into_iter().flatten();
        others.fold(of_byte, f64::min)
    }

    /// Evicts one idle segment from the fullest shard that has one. Returns whether there was one.
    pub(crate) fn evict_one(&self, reach: Reach) -> bool {
        self.evict_bytes(reach).is_some()
    }

    /// The same. Returns its size.
    fn evict_bytes(&self, reach: Reach) -> Option<u64> {
        let mut by_size: Vec<(u64, usize)> = self
            .shards
            .iter()
            .enumerate()
            .map(|(shard_idx, cell)| (cell.cached_bytes.load(Relaxed), shard_idx))
            .filter(|(cached_bytes, _)| *cached_bytes > 0)
            .collect();
        by_size.sort_unstable_by(|a, b| b.cmp(a));
        let evicted = by_size
            .into_iter()
            .find_map(|(_, shard_idx)| self.shards[shard_idx].shard.lock().evict(reach));
        evicted.map(|held| held.charged_bytes())
    }

    /// Makes room where least is lost: segments that the policy does not want first, then what lenders would miss less
    /// than pinned segments are worth, and such metadata, then those segments, then everything else by what it saves.
    pub(crate) fn evict_one_of_all(&self) -> bool {
        self.evict_one_below(f64::INFINITY)
    }

    /// The same, of what saves less than this per byte and second. Segments that the policy does not want save nothing.
    fn evict_one_below(&self, below: f64) -> bool {
        let is_tuned = self.policy().is_tuned();
        // Without a tuner segments have no price: they go before metadata.
        let price = match is_tuned {
            true => self.prices.read().shelves[0].saved_s_per_byte_s,
            false => 0.0,
        };
        let segment = |reach, saved: f64| match saved < below {
            true => Some((ItemClass::Column, self.evict_bytes(reach)?)),
            false => None,
        };
        let given = segment(Reach::Free, 0.0)
            .or_else(|| match is_tuned {
                true => self.take_below(price.min(below)),
                false => self.ladder.take_below(below),
            })
            .or_else(|| segment(Reach::Pinned, price))
            .or_else(|| self.take_below(below));
        if let Some((class, bytes)) = given {
            self.market.note_taken(class, bytes);
        }
        given.is_some()
    }

    /// Takes what saves least of all that lenders could give back and of metadata, if that is less than `below`.
    fn take_below(&self, below: f64) -> Option<(ItemClass, u64)> {
        let metadata = self.cheapest_metadata().filter(|(saved, _)| *saved < below);
        let below_metadata = metadata.map_or(below, |(saved, _)| saved);
        let evict = |(_, shard_idx): (f64, usize)| {
            let mut shard = self.shards[shard_idx].shard.lock();
            let held = shard.evict(Reach::Metadata)?;
            drop(shard);
            Some((ItemClass::Metadata, held.charged_bytes()))
        };
        self.ladder
            .take_below(below_metadata)
            .or_else(|| metadata.and_then(evict))
            .or_else(|| self.ladder.take_below(below))
    }

    /// What metadata saves that may leave, in seconds per byte and second, in the shard where that is least.
    fn cheapest_metadata(&self) -> Option<(f64, usize)> {
        let shards = self.shards.iter().enumerate();
        let saved = |(shard_idx, cell): (usize, &ShardCell)| {
            Some((cell.shard.lock().cheapest_metadata()?, shard_idx))
        };
        shards.filter_map(saved).min_by(|a, b| a.0.total_cmp(&b.0))
    }
}
