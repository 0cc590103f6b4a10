//! Which scanned rows stay when they are looked up.

use std::fmt;

/// Whether a scanned row that finds, or does not find, its key stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    /// Kept with the build row if there is one.
    Inner,
    /// Kept if there is a build row.
    Semi,
    /// Kept if there is none.
    Anti,
    /// Kept always, with the build row or NULLs.
    Outer,
}

impl Matching {
    /// Whether only rows that find a key stay.
    pub fn drops_others(self) -> bool {
        matches!(self, Self::Inner | Self::Semi)
    }

    /// Whether build rows are attached, so that their keys must be unique.
    pub fn attaches(self) -> bool {
        matches!(self, Self::Inner | Self::Outer)
    }
}

impl fmt::Display for Matching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inner => "inner",
            Self::Semi => "semi",
            Self::Anti => "anti",
            Self::Outer => "left",
        })
    }
}
