//! Between which numbers of rows a part of a plan has in any case.

/// The fewest rows and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowBounds {
    pub least: f64,
    pub most: f64,
}

impl RowBounds {
    /// Any number of rows.
    pub const UNKNOWN: Self = Self {
        least: 0.0,
        most: f64::INFINITY,
    };

    pub fn exactly(rows: f64) -> Self {
        Self {
            least: rows,
            most: rows,
        }
    }

    /// Where some of the rows may be dropped.
    pub fn thinned(self) -> Self {
        Self { least: 0.0, ..self }
    }

    /// These rows and others.
    pub fn plus(self, other: Self) -> Self {
        Self {
            least: self.least + other.least,
            most: self.most + other.most,
        }
    }

    /// The first rows, this many at most.
    pub fn first(self, rows: f64) -> Self {
        Self {
            least: self.least.min(rows),
            most: self.most.min(rows),
        }
    }

    /// Rows that are expected, unless there cannot be as many, or as few. At least one is.
    pub fn within(self, rows: f64) -> f64 {
        rows.min(self.most).max(self.least).max(1.0)
    }
}
