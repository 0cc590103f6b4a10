//! The price book: what work costs on this machine. A choice between two ways of doing something reads it
//! ([`PriceBook::now`]); the machine profile and what runs show keep it right.
//!
//! The cache's prices are another thing: what a byte of memory is *worth* ([`hotshelf_cache::Prices`]).

use std::sync::Arc;

use hotshelf_cache::CacheManager;
use hotshelf_elf::cost::{Costs, Work};
use hotshelf_store::index::file::{CLUSTERED_COSTS, COSTS};
use hotshelf_tier::io::IoEngine;

use crate::machine::EngineProfile;

/// Bytes per second that storage is taken to give until a profile or the first reads say otherwise: a plain NVMe drive.
const STORAGE_BANDWIDTH: f64 = 1.4e9;

/// Evaluating a predicate on one encoded value, in nanoseconds. It is bound by instructions, a few per value in vector
/// registers, so that machines differ less here than queries do.
const TEST_NS: f64 = 0.6;
/// Decoding one join key and looking it up, in nanoseconds: as many instructions again, and a read of the look-up's
/// bitmap.
const LOOK_UP_NS: f64 = 2.5;
/// Reading one code of an Elf and decoding it to its value, in nanoseconds.
const ELF_VALUE_NS: f64 = 5.0;

/// A read that nothing else hides, in nanoseconds: what flash takes to answer.
const ACCESS_NS: f64 = 100_000.0;

/// What work costs at one moment, in nanoseconds: of one thread, or of the device for bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WorkPrices {
    /// Reading a byte from storage.
    pub storage_byte_ns: f64,
    /// Waiting for a read that another one depends on, whatever its size.
    pub access_ns: f64,
    /// Evaluating a predicate on one encoded value.
    pub test_ns: f64,
    /// Decoding one join key and looking it up.
    pub look_up_ns: f64,
    /// Reading one code of an Elf and decoding it.
    pub elf_value_ns: f64,
}

impl WorkPrices {
    /// Reading bytes from storage.
    pub fn read_ns(&self, bytes: u64) -> f64 {
        bytes as f64 * self.storage_byte_ns
    }

    /// Work of an Elf, which gives TIDs or only ranges of rows.
    pub fn elf_ns(&self, work: &Work, gives_tids: bool) -> f64 {
        let costs: &Costs = match gives_tids {
            true => &COSTS,
            false => &CLUSTERED_COSTS,
        };
        costs.predict_ns(work)
    }
}

/// Prices that follow what is measured.
pub(crate) struct PriceBook {
    /// Has the bandwidths that the tuner learns.
    cache: Arc<CacheManager>,
    /// Has the cap on the storage's bandwidth.
    io: Arc<IoEngine>,
    /// The storage's bandwidth in bytes per second before anything was read.
    storage_bandwidth: f64,
}

impl PriceBook {
    /// The prices of a database on this machine.
    pub fn new(cache: &Arc<CacheManager>, io: &Arc<IoEngine>, profile: &EngineProfile) -> Self {
        let measured = profile.storage_bandwidth.map(|rate| rate as f64);
        Self {
            cache: cache.clone(),
            io: io.clone(),
            storage_bandwidth: measured.unwrap_or(STORAGE_BANDWIDTH),
        }
    }

    /// The prices as they are now.
    pub fn now(&self) -> WorkPrices {
        WorkPrices {
            storage_byte_ns: 1e9 / self.storage_bandwidth(),
            access_ns: ACCESS_NS,
            test_ns: TEST_NS,
            look_up_ns: LOOK_UP_NS,
            elf_value_ns: ELF_VALUE_NS,
        }
    }

    /// Bytes per second that storage gives: as learned, or as known before, but never more than the cap.
    fn storage_bandwidth(&self) -> f64 {
        let learned = self.cache.price_board().read().tiers.storage_bandwidth;
        let known = match learned > 0.0 {
            true => learned,
            false => self.storage_bandwidth,
        };
        let cap = self.io.bandwidth_max();
        cap.map_or(known, |cap| known.min(cap as f64)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_cache::CacheOptions;
    use hotshelf_tier::io::IoOptions;

    #[test]
    fn reads_cost_what_the_profile_says_and_never_less_than_the_cap_allows() {
        let cache = CacheManager::new(CacheOptions::default());
        let io = IoEngine::start(IoOptions::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let price = |storage_bandwidth| {
            let profile = EngineProfile {
                storage_bandwidth,
                ..EngineProfile::load(folder.path(), false, 1)
            };
            PriceBook::new(&cache, &io, &profile).now()
        };
        assert_eq!(price(Some(4_000_000_000)).storage_byte_ns, 0.25);
        assert_eq!(price(None).storage_byte_ns, 1e9 / STORAGE_BANDWIDTH);
        io.set_bandwidth_max(Some(100_000_000)).unwrap();
        assert_eq!(price(Some(4_000_000_000)).storage_byte_ns, 10.0);
        assert_eq!(price(Some(50_000_000)).read_ns(1_000), 20_000.0);
    }
}
