//! Who had how much memory when, and why it changed.

use super::{Change, ChangeReason, Holder};
use crate::key::{ColumnId, Map};
use crate::model::ItemClass;
use crate::tuner::Appraisal;

/// Items without memory are forgotten this many seconds after they lost it.
const REMEMBERED_S: f64 = 600.0;

/// What is remembered of a holder.
#[derive(Debug, Clone, Copy, Default)]
struct Holding {
    bytes: u64,
    last: Option<(i64, f64, ChangeReason)>,
}

/// What everybody had when it was last looked at.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    by_holder: Map<Holder, Holding>,
    taken_bytes: [u64; ItemClass::COUNT],
    limit_bytes: u64,
}

/// What is known at a moment of why things may have changed.
pub(crate) struct Moment<'a> {
    pub(crate) now_s: f64,
    /// By class: bytes taken from it since the beginning.
    pub(crate) taken_bytes: [u64; ItemClass::COUNT],
    /// The budget.
    pub(crate) limit_bytes: u64,
    /// Smaller changes are ignored.
    pub(crate) change_min: u64,
    pub(crate) appraisal: Option<&'a Appraisal>,
}

impl Holdings {
    /// Compares what everybody has with what they had. Holders that are not named have nothing.
    pub(crate) fn note(&mut self, held: &Map<Holder, u64>, moment: &Moment<'_>) {
        let gone = self
            .by_holder
            .keys()
            .filter(|holder| !held.contains_key(*holder));
        for holder in gone.copied().collect::<Vec<_>>() {
            self.compare(holder, 0, moment);
        }
        for (holder, bytes) in held {
            self.compare(*holder, *bytes, moment);
        }
        self.taken_bytes = moment.taken_bytes;
        self.limit_bytes = moment.limit_bytes;
        let is_recent = |holding: &Holding| {
            let age_s = holding.last.map(|(_, at_s, _)| moment.now_s - at_s);
            age_s.is_some_and(|age_s| age_s < REMEMBERED_S)
        };
        self.by_holder.retain(|holder, holding| {
            holder.1.is_none() || holding.bytes > 0 || is_recent(holding)
        });
    }

    fn compare(&mut self, holder: Holder, bytes: u64, moment: &Moment<'_>) {
        let before = self
            .by_holder
            .get(&holder)
            .map_or(0, |holding| holding.bytes);
        let change = bytes as i64 - before as i64;
        if change.unsigned_abs() < moment.change_min.max(1) {
            return;
        }
        let why = match change > 0 {
            true => ChangeReason::Used,
            false => self.why_less(holder, bytes, moment),
        };
        let last = Some((change, moment.now_s, why));
        self.by_holder.insert(holder, Holding { bytes, last });
    }

    fn why_less(&self, (class, number): Holder, bytes: u64, moment: &Moment<'_>) -> ChangeReason {
        let is_taken = moment.taken_bytes[class as usize] != self.taken_bytes[class as usize];
        let is_resized = self.limit_bytes != 0 && self.limit_bytes != moment.limit_bytes;
        let is_more_than_wanted = |of: &Appraisal| match number {
            Some(number) => of.wanted_bytes(ColumnId(number as u32)) <= bytes,
            None => true,
        };
        let is_tuned =
            class == ItemClass::Column && moment.appraisal.is_some_and(is_more_than_wanted);
        match (is_resized, is_taken, is_tuned) {
            (true, ..) => ChangeReason::Resized,
            (_, true, _) => ChangeReason::Taken,
            (_, _, true) => ChangeReason::Tuned,
            _ => ChangeReason::Released,
        }
    }

    pub(crate) fn last_change(&self, holder: Holder, now_s: f64) -> Option<Change> {
        let (bytes, at_s, why) = self.by_holder.get(&holder)?.last?;
        Some(Change {
            bytes,
            age_s: now_s - at_s,
            why,
        })
    }
}
