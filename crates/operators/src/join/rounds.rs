//! Which pairs to test where only it matters which rows have a partner, not which pairs pass.
//!
//! Candidates take their turns in rounds, so that the first round finds partners for most rows, and the next ones leave
//! these out. Each round may test twice as many pairs of a row, or rows of a slot, as the one before: so a row without
//! a partner costs few rounds, and one with many no more than twice the pairs up to the first that passes.

use super::table::Candidates;

/// Slots whose turns are counted apart.
const COUNTERS: usize = 1 << 12;

/// Where a batch is in its rounds. Reused from batch to batch.
#[derive(Default)]
pub struct Rounds {
    /// Candidates at the front that take part in the next round.
    kept: usize,
    /// Rows of a slot, or pairs of a row, that this round tests.
    turns: u32,
    /// The turns that rows of slots have had, by a few bits of the slot.
    taken: Vec<u32>,
}

impl Rounds {
    /// Begins with a batch.
    pub fn start(&mut self) {
        self.kept = 0;
        self.begin(1);
    }

    fn begin(&mut self, turns: u32) {
        self.turns = turns;
        self.taken.clear();
        self.taken.resize(COUNTERS, 0);
    }

    /// The pairs of a row that this round tests.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Whether it is a row's turn to probe the slot that begins at a place.
    pub fn takes_turn(&mut self, start: u64) -> bool {
        let counter = start.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let taken = &mut self.taken[counter as usize];
        let is_turn = *taken < self.turns;
        *taken += u32::from(is_turn);
        is_turn
    }

    /// Takes the candidate of this number, from this place on, into the next round.
    pub fn keep(&mut self, candidates: &mut Candidates, number: usize, start: u64) {
        let Candidates {
            rows, starts, ends, ..
        } = candidates;
        (rows[self.kept], starts[self.kept], ends[self.kept]) = (rows[number], start, ends[number]);
        self.kept += 1;
    }

    /// Begins the next round: its candidates are those that were kept.
    pub fn next(&mut self, candidates: &mut Candidates) {
        candidates.rows.truncate(self.kept);
        candidates.starts.truncate(self.kept);
        candidates.ends.truncate(self.kept);
        self.kept = 0;
        self.begin(self.turns.saturating_mul(2));
    }
}
