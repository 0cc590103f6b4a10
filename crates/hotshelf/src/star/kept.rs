//! What tests of rows did.

/// Rows that a test was asked for, and those that it kept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    pub asked: u64,
    pub kept: u64,
}

impl Kept {
    /// Counts more rows.
    pub fn add(&mut self, more: Self) {
        self.asked += more.asked;
        self.kept += more.kept;
    }

    /// The share that was kept, or a guess if no row was tested.
    pub fn share_or(self, guess: f64) -> f64 {
        match self.asked {
            0 => guess,
            asked => self.kept as f64 / asked as f64,
        }
    }
}
