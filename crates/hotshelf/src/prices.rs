//! The price book: what work costs on this machine. Whatever chooses between two ways of doing something reads it
//! ([`PriceBook::now`]): the order of joins, the way to the rows of scans and star pipelines, walks or keys in an Elf,
//! how far to read ahead, where the tuner begins.
//!
//! A price begins with what the machine profile says, or else with a count of clock cycles; runs correct it
//! ([`PriceBook::learn`]). Bandwidth is learned by the tuner and read from its board.
//!
//! The cache's prices are another thing: what a byte of memory is *worth* ([`hotshelf_cache::Prices`]).

mod account;
mod computed;

use std::fmt;
use std::sync::Arc;

use hotshelf_cache::CacheManager;
use hotshelf_cache::tuner::TunerOptions;
use hotshelf_elf::cost::{Costs, Work};
use hotshelf_tier::io::IoEngine;
use parking_lot::Mutex;

use crate::machine::{EngineProfile, ProfileLine};
use account::Account;

pub(crate) use computed::computed;

/// Where nothing was measured, a clock cycle takes as long as on a core of three gigahertz.
const CYCLE_NS: f64 = 1.0 / 3.0;
/// Waiting for memory where that cannot be hidden, until a profile says otherwise.
const MEMORY_ACCESS_NS: f64 = 80.0;

/// Keeping a row in a hash join's table, looking one up there, and giving one to the next operator.
pub(crate) const HASH_BUILD_CYCLES: f64 = 120.0;
pub(crate) const HASH_PROBE_CYCLES: f64 = 60.0;
pub(crate) const JOINED_ROW_CYCLES: f64 = 40.0;

/// Decoding one join key and looking it up.
pub(crate) const LOOK_UP_CYCLES: f64 = 8.0;

/// Encoding a byte that is spilled, and decoding it.
const SPILL_WORK_NS: f64 = 1.0;

/// Clock cycles of an Elf's work where it gives ranges of rows, or TIDs.
const NODE_CYCLES: f64 = 60.0;
const CHILD_CYCLES: f64 = 12.0;
const WORD_CYCLES: f64 = 2.0;
const QUERY_CYCLES: f64 = 6_000.0;
const RANGE_ROW_CYCLES: f64 = 3.0;
const TID_CYCLES: f64 = 36.0;

const DEFAULT: &str = "default";
const LEARNED: &str = "learned";
const CYCLES_COUNTED: &str = "clock cycles of a core of 3 GHz";

/// A kind of work whose price runs show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Evaluating a predicate on one encoded value: a few instructions in vector registers.
    Test,
    /// Decoding one join key and looking it up: as many again, and a read of the look-up's bitmap.
    LookUp,
    /// What an Elf's walk is expected to take, in nanoseconds.
    Elf,
    /// Looking up one of many keys in an Elf: its accesses to memory overlap those of others.
    ElfKey,
    /// Reading one code of an Elf and decoding it to its value.
    ElfValue,
    /// Waiting for a read that another one depends on, whatever its size.
    Access,
    /// What a hash join is expected to take, in nanoseconds.
    HashJoin,
}

/// How many kinds there are.
const UNIT_COUNT: usize = 7;

/// Names of what the book shows, with what each means: first each [`Unit`].
pub(crate) const PRICE_NAMES: [(&str, &str); UNIT_COUNT + 2] = [
    ("test_ns", "what testing a value takes (profile)"),
    ("look_up_ns", "what looking up a join key takes (profile)"),
    (
        "elf_walk",
        "what a walk through an Elf takes, in multiples of the clock cycles that are expected (profile)",
    ),
    (
        "elf_key_ns",
        "what looking up one of many keys in an Elf takes (profile)",
    ),
    (
        "elf_value_ns",
        "what taking a value from an Elf takes (profile)",
    ),
    (
        "access_ns",
        "what waiting for one read of storage takes (profile)",
    ),
    (
        "hash_join",
        "what a hash join takes, in multiples of the clock cycles that are expected (profile)",
    ),
    (
        "storage_bandwidth",
        "bytes per second that storage gives (profile)",
    ),
    ("look_ahead", "bytes that a scan reads ahead (profile)"),
];

/// What work costs at one moment, in nanoseconds: of one thread, or of the device for bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WorkPrices {
    /// Reading a byte from storage.
    pub storage_byte_ns: f64,
    /// See [`Unit::Access`].
    pub access_ns: f64,
    /// See [`Unit::Test`].
    pub test_ns: f64,
    /// See [`Unit::LookUp`].
    pub look_up_ns: f64,
    /// See [`Unit::ElfValue`].
    pub elf_value_ns: f64,
    /// See [`Unit::ElfKey`].
    pub elf_key_ns: f64,
    /// See [`Unit::HashJoin`].
    hash_join: f64,
    /// See [`Unit::Elf`].
    elf_walk: f64,
    /// See [`MEMORY_ACCESS_NS`].
    memory_access_ns: f64,
}

/// What the work of joins takes, in nanoseconds of one thread; for hash joins a factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct JoinNs {
    /// See [`Unit::LookUp`].
    pub look_up: f64,
    /// See [`Unit::HashJoin`].
    pub hash_join: f64,
    /// Encoding a byte, writing it to storage and reading it again.
    pub spill_byte: f64,
}

/// What it takes where nothing was measured, on storage of 400 MB/s.
pub(crate) const DEFAULT_JOIN_NS: JoinNs = JoinNs {
    look_up: LOOK_UP_CYCLES * CYCLE_NS,
    hash_join: 1.0,
    spill_byte: SPILL_WORK_NS + 5.0,
};

impl WorkPrices {
    /// Reading bytes from storage.
    pub fn read_ns(&self, bytes: f64) -> f64 {
        bytes * self.storage_byte_ns
    }

    /// The work of joins.
    pub fn join(&self) -> JoinNs {
        JoinNs {
            look_up: self.look_up_ns,
            hash_join: self.hash_join,
            spill_byte: SPILL_WORK_NS + 2.0 * self.storage_byte_ns,
        }
    }

    /// Work of an Elf, which gives TIDs or only ranges of rows.
    pub fn elf_ns(&self, work: &Work, gives_tids: bool) -> f64 {
        self.elf_walk * expected_elf_ns(work, gives_tids, self.memory_access_ns)
    }

    /// Whether looking up this many keys takes less than a walk. What is found costs both the same.
    pub fn keys_are_cheaper(&self, key_count: usize, walk: &Work) -> bool {
        let found_nothing = Work {
            results: 0.0,
            ..*walk
        };
        let query_ns = self.elf_ns(&Work::default(), true);
        key_count as f64 * self.elf_key_ns + query_ns < self.elf_ns(&found_nothing, true)
    }
}

/// What an Elf's work takes by its count of cycles.
fn expected_elf_ns(work: &Work, gives_tids: bool, memory_access_ns: f64) -> f64 {
    let result_cycles = match gives_tids {
        true => TID_CYCLES,
        false => RANGE_ROW_CYCLES,
    };
    let costs = Costs {
        node_ns: NODE_CYCLES * CYCLE_NS,
        child_ns: CHILD_CYCLES * CYCLE_NS,
        jump_ns: memory_access_ns,
        word_ns: WORD_CYCLES * CYCLE_NS,
        result_ns: result_cycles * CYCLE_NS,
        query_ns: QUERY_CYCLES * CYCLE_NS,
    };
    costs.predict_ns(work)
}

/// Prices that follow what is measured.
pub(crate) struct PriceBook {
    /// Has the bandwidths that the tuner learns.
    cache: Arc<CacheManager>,
    /// Has the cap on the storage's bandwidth.
    io: Arc<IoEngine>,
    profile: Arc<EngineProfile>,
    /// By [`Unit`].
    accounts: Mutex<[Account; UNIT_COUNT]>,
}

impl fmt::Debug for PriceBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriceBook").finish_non_exhaustive()
    }
}

impl PriceBook {
    /// The prices of a database on this machine.
    pub fn new(
        cache: &Arc<CacheManager>,
        io: &Arc<IoEngine>,
        profile: &Arc<EngineProfile>,
    ) -> Self {
        let access_ns = profile.storage_access_ns.value as f64;
        let join = DEFAULT_JOIN_NS;
        let start_ns = [
            2.0 * CYCLE_NS,
            join.look_up,
            1.0,
            270.0 * CYCLE_NS,
            15.0 * CYCLE_NS,
            access_ns,
            join.hash_join,
        ];
        Self {
            cache: cache.clone(),
            io: io.clone(),
            profile: profile.clone(),
            accounts: Mutex::new(start_ns.map(Account::new)),
        }
    }

    /// The prices as they are now.
    pub fn now(&self) -> WorkPrices {
        let accounts = self.accounts.lock();
        let price = |unit: Unit| accounts[unit as usize].price_ns();
        WorkPrices {
            storage_byte_ns: 1e9 / self.storage_bandwidth(),
            access_ns: price(Unit::Access),
            test_ns: price(Unit::Test),
            look_up_ns: price(Unit::LookUp),
            elf_value_ns: price(Unit::ElfValue),
            elf_key_ns: price(Unit::ElfKey),
            hash_join: price(Unit::HashJoin),
            elf_walk: price(Unit::Elf),
            memory_access_ns: self.memory_access_ns(),
        }
    }

    /// Notes how long this much work took. Where it was of several kinds, each gets its expected share of the time.
    pub fn learn(&self, done: &[(Unit, f64)], took_ns: f64) {
        let mut accounts = self.accounts.lock();
        let before = *accounts;
        let expected_ns = |unit: Unit, count: f64| count * before[unit as usize].price_ns();
        let all_ns: f64 = done
            .iter()
            .map(|&(unit, count)| expected_ns(unit, count))
            .sum();
        for &(unit, count) in done {
            let expected_ns = expected_ns(unit, count);
            accounts[unit as usize].add(expected_ns, took_ns * (expected_ns / all_ns));
        }
    }

    /// Notes how long an Elf's walk took that was expected to be this work and found this many rows.
    pub fn learn_walk(&self, work: &Work, found: usize, gives_tids: bool, took_ns: f64) {
        let work = Work {
            results: found as f64,
            ..*work
        };
        let expected_ns = expected_elf_ns(&work, gives_tids, self.memory_access_ns());
        self.learn(&[(Unit::Elf, expected_ns)], took_ns);
    }

    /// Notes how long a hash join took that kept and looked up this many rows, and gave as many as that.
    pub fn learn_join(&self, kept: usize, looked_up: usize, given: usize, took_ns: f64) {
        let cycles = HASH_BUILD_CYCLES * kept as f64
            + HASH_PROBE_CYCLES * looked_up as f64
            + JOINED_ROW_CYCLES * given as f64;
        self.learn(&[(Unit::HashJoin, cycles * CYCLE_NS)], took_ns);
    }

    fn memory_access_ns(&self) -> f64 {
        let measured = self.profile.memory_access_ns;
        measured.map_or(MEMORY_ACCESS_NS, |ns| ns as f64)
    }

    /// Bytes that a scan reads ahead, if the budget allows.
    pub fn look_ahead_bytes(&self) -> u64 {
        self.profile.look_ahead_bytes(self.storage_bandwidth())
    }

    /// What the tuner knows before anything was read.
    pub fn tuner_options(&self) -> TunerOptions {
        let unknown = TunerOptions::default();
        let storage = &self.profile.storage_bandwidth;
        let memory = self.profile.memory_bandwidth.map(|rate| rate as f64);
        TunerOptions {
            storage_bandwidth: storage.is_measured().then_some(storage.value as f64),
            memory_bandwidth: memory.unwrap_or(unknown.memory_bandwidth),
            ..unknown
        }
    }

    /// Every value of [`PRICE_NAMES`] and where it comes from.
    pub fn lines(&self) -> Vec<ProfileLine> {
        let accounts = *self.accounts.lock();
        let units = accounts.iter().enumerate().map(|(idx, account)| {
            let is_access = idx == Unit::Access as usize;
            let (source, reason) = match account.lesson_count() {
                0 if is_access => self.profile.storage_access_ns.origin(),
                0 => (DEFAULT.to_owned(), CYCLES_COUNTED.to_owned()),
                count => (
                    LEARNED.to_owned(),
                    format!("corrected {count} times by runs"),
                ),
            };
            (format!("{:.3}", account.price_ns()), source, reason)
        });
        let bandwidth = self.storage_bandwidth();
        let (source, reason) = match self.learned_bandwidth() {
            Some(_) => (LEARNED.to_owned(), "by the tuner, from reads".to_owned()),
            None => self.profile.storage_bandwidth.origin(),
        };
        let of_storage = [bandwidth as u64, self.look_ahead_bytes()];
        let of_storage =
            of_storage.map(|value| (value.to_string(), source.clone(), reason.clone()));
        let names = PRICE_NAMES.iter().map(|(name, _)| *name);
        names
            .zip(units.chain(of_storage))
            .map(|(name, (value, source, reason))| ProfileLine {
                name,
                value,
                source,
                reason,
            })
            .collect()
    }

    /// What the tuner has learned of the storage's bandwidth, in bytes per second.
    fn learned_bandwidth(&self) -> Option<f64> {
        let published = self.cache.price_board().read().tiers.storage_bandwidth;
        // It begins with nothing, or with the profile's.
        let is_news = published > 0.0 && published != self.profile.storage_bandwidth.value as f64;
        is_news.then_some(published)
    }

    /// Bytes per second that storage gives: as learned, or as known before, but never more than the cap.
    fn storage_bandwidth(&self) -> f64 {
        let known = self.learned_bandwidth();
        let known = known.unwrap_or(self.profile.storage_bandwidth.value as f64);
        let cap = self.io.bandwidth_max();
        cap.map_or(known, |cap| known.min(cap as f64)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_cache::CacheOptions;
    use hotshelf_tier::io::IoOptions;

    /// The book of a machine whose device has this bandwidth.
    fn book(storage_bandwidth: Option<u64>) -> PriceBook {
        let cache = CacheManager::new(CacheOptions::default());
        let io = IoEngine::start(IoOptions::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut profile = EngineProfile::load(folder.path(), false, 1);
        if let Some(bandwidth) = storage_bandwidth {
            profile.storage_bandwidth.value = bandwidth;
            profile.storage_bandwidth.source = "measured (file:/db)".to_owned();
        }
        PriceBook::new(&cache, &io, &Arc::new(profile))
    }

    #[test]
    fn reads_cost_what_the_profile_says_and_never_less_than_the_cap_allows() {
        let fast = book(Some(4_000_000_000));
        assert_eq!(fast.now().storage_byte_ns, 0.25);
        assert!(book(None).now().storage_byte_ns > 0.0);
        let slow = book(Some(50_000_000));
        for book in [&fast, &slow] {
            book.io.set_bandwidth_max(Some(100_000_000)).unwrap();
        }
        assert_eq!(fast.now().storage_byte_ns, 10.0);
        assert_eq!(slow.now().read_ns(1_000.0), 20_000.0);
    }

    #[test]
    fn a_scan_reads_ahead_in_proportion_to_what_storage_gives() {
        let ahead = |bandwidth| book(Some(bandwidth)).look_ahead_bytes();
        assert_eq!(ahead(8_000_000_000), 4 * ahead(2_000_000_000));
        let capped = book(Some(8_000_000_000));
        capped.io.set_bandwidth_max(Some(2_000_000_000)).unwrap();
        assert_eq!(capped.look_ahead_bytes(), ahead(2_000_000_000));
        assert_eq!(ahead(1_000), ahead(2_000), "several row groups in any case");
    }

    #[test]
    fn the_tuner_begins_with_what_was_measured() {
        let options = book(Some(3_000_000_000)).tuner_options();
        assert_eq!(options.storage_bandwidth, Some(3e9));
        assert_eq!(book(None).tuner_options().storage_bandwidth, None);
    }

    #[test]
    fn time_of_several_kinds_is_shared_as_expected() {
        let book = book(None);
        let before = book.now();
        let (values, keys) = (1e8, 1e8);
        let expected_ns = values * before.test_ns + keys * before.look_up_ns;
        book.learn(
            &[(Unit::Test, values), (Unit::LookUp, keys)],
            2.0 * expected_ns,
        );
        let after = book.now();
        let ratios = [
            after.test_ns / before.test_ns,
            after.look_up_ns / before.look_up_ns,
        ];
        assert_eq!(ratios, [1.25, 1.25]);
        assert_eq!(after.elf_value_ns, before.elf_value_ns);
        book.learn(&[], 1e9);
        book.learn(&[(Unit::Test, 0.0), (Unit::LookUp, f64::NAN)], 1e9);
        assert_eq!(book.now(), after);
    }

    #[test]
    fn what_runs_show_decides_between_walk_and_keys() {
        let book = book(None);
        let walk = Work {
            nodes: 2_000.0,
            ..Work::default()
        };
        let keys = 300;
        assert!(book.now().keys_are_cheaper(keys, &walk));
        let walks = Work {
            nodes: 1e6,
            ..Work::default()
        };
        for _ in 0..20 {
            book.learn_walk(&walks, 0, true, 5e6);
        }
        assert!(!book.now().keys_are_cheaper(keys, &walk));
    }

    #[test]
    fn every_price_has_a_line_that_says_where_it_comes_from() {
        let book = book(None);
        let shown = |book: &PriceBook| {
            let lines = book.lines().into_iter();
            lines
                .map(|line| (line.name, line.source))
                .collect::<Vec<_>>()
        };
        let names = PRICE_NAMES.iter().map(|(name, _)| *name);
        let unlearned: Vec<_> = names.map(|name| (name, DEFAULT.to_owned())).collect();
        assert_eq!(shown(&book), unlearned);
        book.learn(&[(Unit::ElfKey, 1e9)], 1e9);
        let learned = shown(&book)
            .into_iter()
            .filter(|(_, source)| source == LEARNED);
        let names: Vec<_> = learned.map(|(name, _)| name).collect();
        assert_eq!(names, ["elf_key_ns"]);
    }
}
