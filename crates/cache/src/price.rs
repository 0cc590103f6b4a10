//! What a byte of each shelf is worth, published for all that want to borrow some; and the bandwidths that the tuner
//! learned.
//!
//! The tuner's solution has a price per shelf: the seconds that one more byte would save per second. It is published
//! after each step on a [`PriceBoard`] that is read without a lock. A caller that wants memory for a while calls
//! [`Prices::worth`].

use crate::model::{SHELF_COUNT_MAX, Tiers};
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};
use std::time::Instant;

/// The price of one shelf.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ShelfPrice {
    /// What one more byte would save, in seconds per byte and second.
    pub saved_s_per_byte_s: f64,
    /// What one use of a byte that is displaced there costs once it is wanted again, in seconds per byte.
    pub refill_s_per_byte: f64,
}

/// The prices of all shelves at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Prices {
    /// By shelf; the first is memory's. Shelves that there are not cost nothing.
    pub shelves: [ShelfPrice; SHELF_COUNT_MAX],
    /// When the prices were last found right, in nanoseconds of the board's clock.
    pub at_ns: u64,
    /// How much they can be trusted, 0 to 1: by the certificate and by how well times were predicted. 0: nothing is
    /// known.
    pub confidence: f64,
    /// The bandwidths that they were made with; zero where nothing is known. They are learned before there are prices.
    pub tiers: Tiers,
}

/// What a borrower wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ask {
    /// More bytes than it has, in one piece: as many as its next step needs.
    pub bytes: u64,
    /// What they would save it, in seconds.
    pub saved_s: f64,
    /// How long it would still hold them, in seconds.
    pub remaining_s: f64,
    /// How much a second of its query counts: [`query_weight`](crate::CacheManager::query_weight); 1 is normal.
    pub weight: f64,
}

/// What a spilled byte takes besides the device's time, in seconds: rows are divided, encoded, decoded and looked up,
/// and of a join those of the other side go with them. Of joins and groupings that wrote from nothing to 1.4 GB, each
/// byte more took 18 to 23 ns with two threads (`lab/results/memory.md`, "Six mixes").
const SPILL_WORK_S: f64 = 20e-9;

/// A request for memory counts as one for at least this time, in seconds.
const REMAINING_S_MIN: f64 = 1e-3;

impl Ask {
    /// What an operator asks that would write bytes and read them again without the memory, at these bandwidths of the
    /// storage and with the work that this takes, for a query of normal weight. It is expected to hold them for as long
    /// again as it has held what it has.
    pub fn instead_of_spilling(
        bytes: u64,
        write_bandwidth: f64,
        read_bandwidth: f64,
        held_s: f64,
    ) -> Self {
        let spill_s_per_byte = 1.0 / write_bandwidth + 1.0 / read_bandwidth + SPILL_WORK_S;
        Self {
            bytes,
            saved_s: bytes as f64 * spill_s_per_byte,
            remaining_s: held_s,
            weight: 1.0,
        }
    }

    /// What a byte saves, in weighted seconds per byte and second.
    pub fn saved_s_per_byte_s(&self) -> f64 {
        let byte_s = self.bytes.max(1) as f64 * self.remaining_s.max(REMAINING_S_MIN);
        self.saved_s * self.weight / byte_s
    }
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The borrower makes more of the bytes than those who have them.
    Grant,
    /// It does not: spill, or do with less.
    Refuse,
}

impl Prices {
    /// What borrowing memory costs everybody else, in weighted seconds: what its bytes would have saved meanwhile, and
    /// bringing back what was displaced.
    pub fn cost_s(&self, bytes: u64, remaining_s: f64) -> f64 {
        let memory = &self.shelves[0];
        let per_byte = memory.saved_s_per_byte_s * remaining_s.max(0.0) + memory.refill_s_per_byte;
        bytes as f64 * per_byte
    }

    /// Whether a borrower makes more of bytes than those who have them. Before anything is known, it does.
    pub fn worth(&self, ask: &Ask) -> Answer {
        self.worth_displacing(ask, ask.bytes)
    }

    /// The same where only some of the bytes are somebody's.
    pub fn worth_displacing(&self, ask: &Ask, displaced_bytes: u64) -> Answer {
        let saved_s = ask.saved_s * ask.weight;
        let cost_s = self.cost_s(displaced_bytes, ask.remaining_s);
        match self.confidence <= 0.0 || saved_s > cost_s {
            true => Answer::Grant,
            false => Answer::Refuse,
        }
    }
}

const WORD_COUNT: usize = 2 * SHELF_COUNT_MAX + 4;

/// The latest prices. One writer, any number of readers, no lock: a reader that meets a writer reads again.
#[derive(Debug)]
pub struct PriceBoard {
    /// The beginning of the board's clock.
    origin: Instant,
    /// Odd while the words are written.
    version: AtomicU64,
    words: [AtomicU64; WORD_COUNT],
}

impl Default for PriceBoard {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            version: AtomicU64::new(0),
            words: Default::default(),
        }
    }
}

impl PriceBoard {
    /// Publishes prices as found right now. Only one thread may do so at a time; the tuner does under its lock.
    pub fn publish(&self, prices: &Prices) {
        self.write(&Prices {
            at_ns: self.now_ns(),
            ..*prices
        });
    }

    /// How old prices are, in seconds.
    pub fn age_s(&self, prices: &Prices) -> f64 {
        self.now_ns().saturating_sub(prices.at_ns) as f64 * 1e-9
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn write(&self, prices: &Prices) {
        let version = self.version.load(Relaxed);
        self.version.store(version + 1, Relaxed);
        fence(Release);
        for (word, value) in self.words.iter().zip(prices.to_words()) {
            word.store(value, Relaxed);
        }
        self.version.store(version + 2, Release);
    }

    /// The latest prices.
    pub fn read(&self) -> Prices {
        loop {
            let before = self.version.load(Acquire);
            let words = std::array::from_fn(|idx| self.words[idx].load(Relaxed));
            fence(Acquire);
            if before.is_multiple_of(2) && self.version.load(Relaxed) == before {
                return Prices::from_words(words);
            }
            std::hint::spin_loop();
        }
    }
}

impl Prices {
    fn to_words(self) -> [u64; WORD_COUNT] {
        let mut words = [0; WORD_COUNT];
        for (idx, price) in self.shelves.iter().enumerate() {
            words[2 * idx] = price.saved_s_per_byte_s.to_bits();
            words[2 * idx + 1] = price.refill_s_per_byte.to_bits();
        }
        words[WORD_COUNT - 4] = self.tiers.storage_bandwidth.to_bits();
        words[WORD_COUNT - 3] = self.tiers.memory_bandwidth.to_bits();
        words[WORD_COUNT - 2] = self.at_ns;
        words[WORD_COUNT - 1] = self.confidence.to_bits();
        words
    }

    fn from_words(words: [u64; WORD_COUNT]) -> Self {
        Self {
            shelves: std::array::from_fn(|idx| ShelfPrice {
                saved_s_per_byte_s: f64::from_bits(words[2 * idx]),
                refill_s_per_byte: f64::from_bits(words[2 * idx + 1]),
            }),
            at_ns: words[WORD_COUNT - 2],
            confidence: f64::from_bits(words[WORD_COUNT - 1]),
            tiers: Tiers {
                storage_bandwidth: f64::from_bits(words[WORD_COUNT - 4]),
                memory_bandwidth: f64::from_bits(words[WORD_COUNT - 3]),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn prices(of_byte: f64, refill: f64) -> Prices {
        let mut prices = Prices {
            confidence: 1.0,
            ..Prices::default()
        };
        prices.shelves[0] = ShelfPrice {
            saved_s_per_byte_s: of_byte,
            refill_s_per_byte: refill,
        };
        prices
    }

    const ASK: Ask = Ask {
        bytes: 1_000_000,
        saved_s: 1.0,
        remaining_s: 10.0,
        weight: 1.0,
    };

    #[test]
    fn a_borrower_gets_memory_while_it_saves_more_than_the_lenders_lose() {
        // Ten seconds of a megabyte cost 0.9 s, bringing it back 0.05 s.
        let cheap = prices(0.9e-7, 0.5e-7);
        assert_eq!(cheap.worth(&ASK), Answer::Grant);
        assert_eq!(
            cheap.worth(&Ask {
                remaining_s: 12.0,
                ..ASK
            }),
            Answer::Refuse
        );
        assert_eq!(
            cheap.worth(&Ask {
                saved_s: 0.9,
                ..ASK
            }),
            Answer::Refuse
        );
        assert_eq!(cheap.worth(&Ask { weight: 0.5, ..ASK }), Answer::Refuse);
        assert_eq!(
            cheap.worth(&Ask {
                bytes: 2_000_000,
                ..ASK
            }),
            Answer::Refuse
        );
        assert_eq!(prices(0.0, 1.1e-6).worth(&ASK), Answer::Refuse);
    }

    #[test]
    fn memory_that_nobody_wants_is_lent_for_any_saving_and_unknown_prices_refuse_nothing() {
        let little = Ask {
            saved_s: 1e-9,
            ..ASK
        };
        assert_eq!(prices(0.0, 0.0).worth(&little), Answer::Grant);
        let nothing = Ask {
            saved_s: 0.0,
            ..ASK
        };
        assert_eq!(prices(0.0, 0.0).worth(&nothing), Answer::Refuse);
        assert_eq!(Prices::default().worth(&nothing), Answer::Grant);
        assert_eq!(
            prices(1.0, 1.0).worth(&Ask {
                saved_s: f64::NAN,
                ..ASK
            }),
            Answer::Refuse
        );
    }

    #[test]
    fn readers_see_prices_of_one_moment_only() {
        let board = PriceBoard::default();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        let prices = board.read();
                        let at = prices.at_ns as f64;
                        let all = prices.shelves.iter();
                        assert!(all.clone().all(|price| price.saved_s_per_byte_s == at));
                        assert!(all.clone().all(|price| price.refill_s_per_byte == at));
                        assert_eq!(prices.confidence, at);
                        assert_eq!(prices.tiers.storage_bandwidth, at);
                        assert_eq!(prices.tiers.memory_bandwidth, at);
                    }
                });
            }
            for at_ns in 0..20_000 {
                let price = ShelfPrice {
                    saved_s_per_byte_s: at_ns as f64,
                    refill_s_per_byte: at_ns as f64,
                };
                board.write(&Prices {
                    shelves: [price; SHELF_COUNT_MAX],
                    at_ns,
                    confidence: at_ns as f64,
                    tiers: Tiers {
                        storage_bandwidth: at_ns as f64,
                        memory_bandwidth: at_ns as f64,
                    },
                });
            }
            is_over.store(true, Relaxed);
        });
        assert_eq!(board.read().at_ns, 19_999);
    }
}
