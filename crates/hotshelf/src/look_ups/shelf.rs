//! Where pipelines have look-ups and tables of groups: in memory, in that of another node, or behind an *emulated*
//! device that all on it share.

use std::sync::{Arc, OnceLock};

use hotshelf_store::data_file::TableShelves;
use hotshelf_store::shelf::Shelf;
use hotshelf_tier::emulated::{Batch, EmulatedTier, Reach};
use hotshelf_tier::probe::{Operation, Pattern};
use hotshelf_tier::region::move_to_node;
use hotshelf_tier::topology::Topology;

use crate::error::Result;

/// What one access moves: a line of the processor's caches.
const LINE_BYTES: usize = 64;

/// The shelf of one query's look-ups and groups.
pub(crate) struct LookUpShelf {
    shelf: Shelf,
    device: Option<Arc<EmulatedTier>>,
    /// What a core's own cache has of them: the device is not asked for that.
    cached_bytes: u64,
}

impl LookUpShelf {
    pub fn open(shelf: &Shelf, shelves: &TableShelves) -> Result<Self> {
        let device = match shelf {
            Shelf::Emulated(name) => Some(shelves.emulated(name)?),
            _ => None,
        };
        static CACHE: OnceLock<u64> = OnceLock::new();
        let cached_bytes = match &device {
            Some(_) => *CACHE.get_or_init(|| Topology::read().core_cache_bytes()),
            None => 0,
        };
        Ok(Self {
            shelf: shelf.clone(),
            device,
            cached_bytes,
        })
    }

    pub fn name(&self) -> Option<String> {
        (!self.is_memory()).then(|| self.shelf.to_string())
    }

    /// Whether it is ordinary memory: nothing is placed or waited for.
    pub fn is_memory(&self) -> bool {
        self.shelf == Shelf::Dram
    }

    /// Moves memory there, if it is a node's. What the node has no room for stays where it is.
    pub fn place<T>(&self, memory: &[T]) {
        let Shelf::Node(node) = self.shelf else {
            return;
        };
        let all = size_of_val(memory);
        match move_to_node(memory, node) {
            Ok(there) => tracing::debug!(node, there, all, "bytes of a look-up or of groups moved"),
            Err(error) => tracing::warn!(%error, node, "look-ups or groups stay in memory"),
        }
    }

    /// Waits for reads at random places of structures that take this many bytes together.
    pub fn read(&self, structure_bytes: usize, count: u64) {
        self.wait(Operation::Read, structure_bytes, count);
    }

    /// Waits for reads and writes of the same places.
    pub fn update(&self, structure_bytes: usize, count: u64) {
        self.wait(Operation::Read, structure_bytes, count);
        self.wait(Operation::Write, structure_bytes, count);
    }

    fn wait(&self, operation: Operation, structure_bytes: usize, count: u64) {
        let Some(device) = &self.device else {
            return;
        };
        let count = missed(count, structure_bytes as u64, self.cached_bytes);
        let batch = Batch {
            operation,
            pattern: Pattern::Random,
            offset: 0,
            len_bytes: LINE_BYTES,
            count,
        };
        device.finish(device.start(&batch, Reach::Near));
    }
}

/// Accesses that a cache does not have: those to the part of the structure that does not fit.
fn missed(count: u64, structure_bytes: u64, cached_bytes: u64) -> u32 {
    let beyond = structure_bytes.saturating_sub(cached_bytes);
    let share = beyond as f64 / structure_bytes.max(1) as f64;
    (count as f64 * share).min(f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_into_the_cache_is_not_waited_for() {
        assert_eq!(missed(1000, 1 << 20, 2 << 20), 0);
        assert_eq!(missed(1000, 8 << 20, 2 << 20), 750);
        assert_eq!(missed(1000, 8 << 20, 0), 1000);
        assert_eq!((missed(0, 8, 0), missed(9, 0, 0)), (0, 0));
    }

    #[test]
    fn look_ups_wait_for_an_emulated_device_and_for_nothing_else() {
        let shelves = TableShelves::default();
        let seconds = |shelf: &Shelf| {
            let mut shelf = LookUpShelf::open(shelf, &shelves).unwrap();
            shelf.cached_bytes = 0;
            let begun = std::time::Instant::now();
            shelf.update(1 << 20, 100_000);
            begun.elapsed().as_secs_f64()
        };
        let emulated = seconds(&Shelf::Emulated("optane100-128".into()));
        // The device's published random reads: less than 10 GB/s of 6.4 MB, and as much written.
        assert!(emulated > 0.6e-3, "{emulated}");
        assert!(seconds(&Shelf::Dram) < emulated);
    }
}
