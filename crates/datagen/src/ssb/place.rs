//! Nations, their regions and their ten cities each.

use tpchgen::distribution::{Distribution, Distributions};

/// Characters of the nation's name in front of a city's digit.
const CITY_PREFIX_CHARS: usize = 9;

/// Nations of TPC-H, by index.
#[derive(Clone, Copy)]
pub(super) struct Places {
    nations: &'static Distribution,
    regions: &'static Distribution,
}

impl Places {
    pub(super) fn new() -> Self {
        let distributions = Distributions::static_default();
        Self {
            nations: distributions.nations(),
            regions: distributions.regions(),
        }
    }

    pub(super) fn nation_count(&self) -> i32 {
        self.nations.size() as i32
    }

    pub(super) fn nation(&self, nation_idx: i32) -> &'static str {
        self.nations.get_values()[nation_idx as usize]
    }

    /// The region a nation lies in: TPC-H stores its index as the nation's cumulative weight.
    pub(super) fn region(&self, nation_idx: i32) -> &'static str {
        let region_idx = self.nations.get_weight(nation_idx as usize);
        self.regions.get_values()[region_idx as usize]
    }

    /// The nation's first nine characters, padded with blanks, and a digit: `UNITED KI1`, `PERU     7`.
    pub(super) fn city(&self, nation_idx: i32, digit: i32) -> String {
        let nation = self.nation(nation_idx);
        format!("{nation:<0$.0$}{digit}", CITY_PREFIX_CHARS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nation_lies_in_its_region() {
        let places = Places::new();
        let regions: Vec<_> = (0..places.nation_count())
            .map(|idx| (places.nation(idx), places.region(idx)))
            .collect();
        assert_eq!(regions.len(), 25);
        for pair in [
            ("ALGERIA", "AFRICA"),
            ("UNITED STATES", "AMERICA"),
            ("CHINA", "ASIA"),
            ("RUSSIA", "EUROPE"),
            ("SAUDI ARABIA", "MIDDLE EAST"),
        ] {
            assert!(regions.contains(&pair), "{pair:?}");
        }
        for region in ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"] {
            assert_eq!(regions.iter().filter(|pair| pair.1 == region).count(), 5);
        }
    }

    #[test]
    fn cities_are_ten_characters_of_nation_and_digit() {
        let places = Places::new();
        let city_of = |nation: &str, digit| {
            let idx = (0..25).find(|idx| places.nation(*idx) == nation).unwrap();
            places.city(idx, digit)
        };
        assert_eq!(city_of("UNITED KINGDOM", 1), "UNITED KI1");
        assert_eq!(city_of("UNITED STATES", 0), "UNITED ST0");
        assert_eq!(city_of("PERU", 7), "PERU     7");
    }
}
