//! Which blocks of an index stay in memory, as the user chose it.

use std::fmt;
use std::str::FromStr;

use super::policy::BlockPolicyKind;

/// What a user said about the blocks of an index. By default they share the memory of all indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexCache {
    /// The policy for its own blocks; that of all indexes if there is none.
    pub policy: Option<BlockPolicyKind>,
    /// Bytes that its blocks may have; 0 keeps none.
    pub limit_bytes: Option<u64>,
}

/// A word that does not say which blocks stay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} does not say which blocks of an index stay in memory")]
pub struct UnknownIndexCache {
    /// The word.
    pub word: String,
}

impl IndexCache {
    /// The words for policies: `auto` shares memory and policy with all indexes, `none` keeps no blocks. Beside them
    /// `levels:N` for a number.
    pub const WORDS: [&'static str; 12] = [
        "auto", "static", "hybrid", "naive", "lru", "lfu", "lla", "2q", "sieve", "s3fifo", "split",
        "none",
    ];

    /// Whether its blocks share the memory of all indexes.
    pub fn is_shared(&self) -> bool {
        *self == Self::default()
    }

    /// The same with the policy that a word names.
    ///
    /// # Errors
    /// When it is none of [`Self::WORDS`] and not `levels:N`.
    pub fn with_word(self, word: &str) -> Result<Self, UnknownIndexCache> {
        let unknown = |_| UnknownIndexCache { word: word.into() };
        let (policy, limit_bytes) = match word {
            "auto" => (None, self.limit_bytes),
            "none" => (None, Some(0)),
            _ => (Some(word.parse().map_err(unknown)?), self.limit_bytes),
        };
        Ok(Self {
            policy,
            limit_bytes,
        })
    }

    /// The word for its policy.
    pub fn word(&self) -> String {
        match self.policy {
            None if self.keeps_none() => "none".to_owned(),
            None => "auto".to_owned(),
            Some(policy) => policy.to_string(),
        }
    }

    /// Whether it was chosen that no blocks stay.
    pub fn keeps_none(&self) -> bool {
        self.policy.is_none() && self.limit_bytes == Some(0)
    }
}

/// As [`FromStr`] reads it.
impl fmt::Display for IndexCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word())?;
        match self.limit_bytes {
            Some(bytes) => write!(f, " {bytes}"),
            None => Ok(()),
        }
    }
}

impl FromStr for IndexCache {
    type Err = UnknownIndexCache;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownIndexCache { word: text.into() };
        let (word, bytes) = match text.split_once(' ') {
            Some((word, bytes)) => (word, Some(bytes.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let limited = Self {
            limit_bytes: bytes,
            ..Self::default()
        };
        limited.with_word(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_other_words_are_refused() {
        for word in IndexCache::WORDS
            .into_iter()
            .chain(["levels:1", "levels:16"])
        {
            for limit_bytes in [None, Some(0), Some(70_000)] {
                let cache = IndexCache {
                    limit_bytes,
                    ..IndexCache::default()
                };
                let cache = cache.with_word(word).unwrap();
                let keeps_none = word == "auto" && limit_bytes == Some(0);
                assert_eq!(cache.word(), if keeps_none { "none" } else { word });
                assert_eq!(cache.to_string().parse(), Ok(cache));
            }
        }
        assert!(IndexCache::default().is_shared());
        for wrong in [
            "", "arc", "lru many", "lru 5 6", "lru -1", "LRU", "levels", "levels:0",
        ] {
            assert!(wrong.parse::<IndexCache>().is_err(), "{wrong}");
        }
    }
}
