//! What look-ups are like and what they did: without what they hold in memory, which ends with the last row.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::kept::Kept;
use super::lookup::Lookup;

/// The look-ups of a star, in the order of its joins.
pub(super) struct Ran {
    look_ups: Vec<RanLookUp>,
    /// Where they lie, if not in memory.
    shelf: Option<String>,
    hints: Tested,
    /// Workers that found no more rows.
    ended: AtomicU32,
}

/// How many rows a test was asked for and how many it kept.
#[derive(Default)]
struct Tested {
    asked: AtomicU64,
    kept: AtomicU64,
}

impl Tested {
    fn note(&self, Kept { asked, kept }: Kept) {
        self.asked.fetch_add(asked, Ordering::Relaxed);
        self.kept.fetch_add(kept, Ordering::Relaxed);
    }

    /// Rows that it was asked for, and those of them that it kept.
    fn counts(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.asked), load(&self.kept))
    }
}

struct RanLookUp {
    /// The scan's column that is looked up.
    column: String,
    kind: &'static str,
    key_count: usize,
    /// Whether an earlier query made it.
    is_reused: bool,
    density: f64,
    tested: Tested,
}

impl Ran {
    /// Columns that are looked up, where, and whether an earlier query made that.
    pub fn new<'a>(
        look_ups: impl Iterator<Item = (&'a str, &'a Lookup, bool)>,
        shelf: Option<String>,
    ) -> Self {
        let look_ups = look_ups.map(|(column, look_up, is_reused)| RanLookUp {
            column: column.to_owned(),
            kind: look_up.kind(),
            key_count: look_up.row_count(),
            is_reused,
            density: look_up.density(),
            tested: Tested::default(),
        });
        Self {
            look_ups: look_ups.collect(),
            shelf,
            hints: Tested::default(),
            ended: AtomicU32::new(0),
        }
    }

    /// How many look-ups there are.
    pub fn count(&self) -> usize {
        self.look_ups.len()
    }

    /// How many of them earlier queries made.
    pub fn reused_count(&self) -> usize {
        self.look_ups
            .iter()
            .filter(|look_up| look_up.is_reused)
            .count()
    }

    /// Notes rows that a look-up was asked for, and those of them that it kept.
    pub fn note(&self, join: usize, kept: Kept) {
        self.look_ups[join].tested.note(kept);
    }

    /// The same for what became known while the query runs.
    pub fn note_hint(&self, kept: Kept) {
        self.hints.note(kept);
    }

    /// Notes that a worker has found no more rows.
    pub fn note_end(&self) {
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Workers that have found no more rows. Others were stopped before, or still run.
    pub fn ended_count(&self) -> u32 {
        self.ended.load(Ordering::Acquire)
    }

    /// The share of the rows asked for that a look-up kept so far, or a guess.
    pub fn share_kept(&self, join: usize) -> f64 {
        let look_up = &self.look_ups[join];
        match look_up.tested.counts() {
            (0, _) => look_up.density,
            (asked, kept) => kept as f64 / asked as f64,
        }
    }

    /// The look-ups as EXPLAIN ANALYZE shows them, the one that drops most rows first: kind, keys, whether an earlier
    /// query made them, rows kept.
    pub fn describe(&self) -> String {
        let mut order: Vec<usize> = (0..self.look_ups.len()).collect();
        order.sort_by(|a, b| self.share_kept(*a).total_cmp(&self.share_kept(*b)));
        let parts = order.into_iter().map(|join| {
            let look_up = &self.look_ups[join];
            let (asked, kept) = look_up.tested.counts();
            let reused = match look_up.is_reused {
                true => " reused,",
                false => "",
            };
            let RanLookUp {
                column,
                kind,
                key_count,
                ..
            } = look_up;
            format!("{column} {kind} {key_count} keys{reused} kept {kept} of {asked}")
        });
        let (asked, kept) = self.hints.counts();
        let hints = format!("keys of joins above kept {kept} of {asked}");
        let hints = (asked > 0).then_some(hints);
        let on = self.shelf.iter().map(|shelf| format!("on {shelf}"));
        parts.chain(hints).chain(on).collect::<Vec<_>>().join("; ")
    }
}
