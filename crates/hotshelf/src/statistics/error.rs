//! Estimates made wrong on purpose, to see whether plans stay good (`SET hotshelf.estimate_error`).

use std::hash::{DefaultHasher, Hash, Hasher};

/// By how much numbers of rows are wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EstimateError {
    /// Each is multiplied by something between 1 / `factor` and `factor`, their logarithms evenly distributed.
    factor: f64,
    /// What the random factors begin with.
    seed: u64,
}

impl Default for EstimateError {
    fn default() -> Self {
        Self {
            factor: 1.0,
            seed: 0,
        }
    }
}

impl EstimateError {
    /// From a factor of 1 to 1 000 000, or a factor and a seed: `100 seed 7`.
    pub fn parse(text: &str) -> Option<Self> {
        let (factor, seed) = text.split_once("seed").unwrap_or((text, "0"));
        let factor = factor.trim().parse().ok();
        let factor = factor.filter(|factor: &f64| (1.0..=1e6).contains(factor))?;
        let seed = seed.trim().parse().ok()?;
        Some(Self { factor, seed })
    }

    /// The number of rows of `what`, wrong: always by the same factor, and by none where the factor is 1.
    pub fn of(&self, rows: f64, what: impl Hash) -> f64 {
        if self.factor <= 1.0 {
            return rows;
        }
        let mut hasher = DefaultHasher::new();
        (self.seed, what).hash(&mut hasher);
        let random = (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64;
        (rows * self.factor.powf(2.0 * random - 1.0)).max(1.0)
    }
}

impl std::fmt::Display for EstimateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.seed {
            0 => self.factor.fmt(f),
            seed => write!(f, "{} seed {seed}", self.factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_wrong_by_at_most_the_factor_and_always_by_the_same() {
        let error = EstimateError::parse("100 seed 7").unwrap();
        let wrong: Vec<f64> = (0..1000).map(|what| error.of(1e6, what)).collect();
        assert!(wrong.iter().all(|rows| (1e4..=1e8).contains(rows)));
        let above = wrong.iter().filter(|rows| **rows > 1e6).count();
        assert!((400..600).contains(&above), "{above}");
        let again: Vec<f64> = (0..1000).map(|what| error.of(1e6, what)).collect();
        assert_eq!(wrong, again);
        let other = EstimateError::parse("100 seed 8").unwrap();
        assert_ne!(other.of(1e6, 1), error.of(1e6, 1));
    }

    #[test]
    fn texts_are_factors_and_seeds() {
        let shown = |text| EstimateError::parse(text).map(|error| error.to_string());
        assert_eq!(shown("1").unwrap(), "1");
        assert_eq!(shown(" 10 seed 3 ").unwrap(), "10 seed 3");
        assert_eq!(EstimateError::default().of(5.0, "anything"), 5.0);
        for text in ["", "0.5", "seed 3", "10 seed", "-1", "NaN", "1e9"] {
            assert!(shown(text).is_none(), "{text}");
        }
    }
}
