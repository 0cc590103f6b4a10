//! What the work of joins costs, in rows that go from one operator to the next: as counted on one machine, corrected by
//! what runs have shown on this one (the price book).

use crate::prices::{
    DEFAULT_JOIN_NS, HASH_BUILD_CYCLES, HASH_PROBE_CYCLES, JOINED_ROW_CYCLES, JoinNs,
    LOOK_UP_CYCLES,
};

/// A row in a star pipeline's look-up, and one that is looked up there.
const LOOK_UP_BUILD: f64 = 1.0;
const LOOK_UP: f64 = LOOK_UP_CYCLES / JOINED_ROW_CYCLES;
/// A row whose key the scan of a star pipeline tests by those of a build side, so that few others are looked up.
const KEY_TEST: f64 = 0.3;
/// A row in a hash join's table, and one that is looked up there.
const HASH_BUILD: f64 = HASH_BUILD_CYCLES / JOINED_ROW_CYCLES;
const HASH_PROBE: f64 = HASH_PROBE_CYCLES / JOINED_ROW_CYCLES;
/// A byte that is spilled and read again.
const SPILL_BYTE: f64 = 0.5;
/// Prices change in steps of this power of two, so that a plan does not change with every run.
const STEP: f64 = 0.5;
/// What runs show is off by more than this factor only where something else took the time.
const FACTOR_MAX: f64 = 2.0;

/// What each kind of work costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct JoinPrices {
    pub look_up_build: f64,
    pub look_up: f64,
    pub key_test: f64,
    pub hash_build: f64,
    pub hash_probe: f64,
    pub spill_byte: f64,
}

impl JoinPrices {
    /// The prices as the price book has them. What the parts of a hash join cost beside each other stays as it is: a
    /// run does not show which of them took how long.
    pub fn of(now: &JoinNs) -> Self {
        let before = DEFAULT_JOIN_NS;
        let hash_join = now.hash_join / before.hash_join;
        let factor = |now: f64, before: f64| {
            let factor = now / before / hash_join;
            let steps = (factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX).log2() / STEP).round();
            2f64.powf(steps * STEP)
        };
        let look_up = factor(now.look_up, before.look_up);
        Self {
            look_up_build: LOOK_UP_BUILD * look_up,
            look_up: LOOK_UP * look_up,
            key_test: KEY_TEST * look_up,
            hash_build: HASH_BUILD,
            hash_probe: HASH_PROBE,
            spill_byte: SPILL_BYTE * factor(now.spill_byte, before.spill_byte),
        }
    }
}

impl Default for JoinPrices {
    fn default() -> Self {
        Self::of(&DEFAULT_JOIN_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_follow_what_runs_show_in_steps() {
        let before = DEFAULT_JOIN_NS;
        assert_eq!(JoinPrices::default().look_up, LOOK_UP);
        let slightly = JoinNs {
            look_up: before.look_up * 1.1,
            ..before
        };
        assert_eq!(JoinPrices::of(&slightly), JoinPrices::default());
        let twice = JoinNs {
            hash_join: before.hash_join * 2.1,
            ..before
        };
        let prices = JoinPrices::of(&twice);
        let [look_up, key_test] = [prices.look_up, prices.key_test];
        assert_eq!([look_up, key_test], [LOOK_UP / 2.0, KEY_TEST / 2.0]);
        assert_eq!(prices.spill_byte, SPILL_BYTE / 2.0);
        assert_eq!(prices.hash_build, HASH_BUILD);
    }

    #[test]
    fn a_slower_machine_has_the_same_prices() {
        let before = DEFAULT_JOIN_NS;
        let slower = JoinNs {
            look_up: before.look_up * 3.0,
            hash_join: before.hash_join * 3.0,
            spill_byte: before.spill_byte * 3.0,
        };
        assert_eq!(JoinPrices::of(&slower), JoinPrices::default());
        let nothing = JoinNs {
            hash_join: 0.0,
            ..before
        };
        assert!(JoinPrices::of(&nothing).look_up.is_finite());
    }
}
