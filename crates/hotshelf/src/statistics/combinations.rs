//! How many combinations of values several columns of a table have: counted once where queries join or group by them
//! together, and remembered as long as the table hardly changes. A sample of a large table cannot tell.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;
use datafusion::common::hash_utils::{HLL_RANDOM_STATE, create_hashes};
use hotshelf_store::statistics::DistinctSketch;
use parking_lot::Mutex;

/// Larger tables are not read for it.
pub(crate) const ROWS_MAX: u64 = 4_000_000;
/// Column sets of a table that are remembered.
const SETS_MAX: usize = 64;
/// What is known stays while a table grows by no more than this share.
const GROWTH: f64 = 0.1;

/// What is known about a table's columns, by their numbers, ascending.
#[derive(Debug, Default)]
pub(crate) struct Combinations(Mutex<BTreeMap<Vec<usize>, Known>>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Known {
    /// A plan wanted to know.
    Asked,
    /// That was their number when the table had that many rows.
    Counted { combinations: f64, rows: f64 },
    /// It cannot be counted.
    Never,
}

impl Known {
    fn count(&self) -> Option<f64> {
        match self {
            Self::Counted { combinations, .. } => Some(*combinations),
            Self::Asked | Self::Never => None,
        }
    }
}

fn ascending(columns: &[usize]) -> Vec<usize> {
    let mut columns = columns.to_vec();
    columns.sort_unstable();
    columns.dedup();
    columns
}

impl Combinations {
    /// How many there are; `None` where they have not been counted, which is noted.
    pub fn get(&self, columns: &[usize]) -> Option<f64> {
        let columns = ascending(columns);
        let mut known = self.0.lock();
        if !known.contains_key(&columns) && known.len() < SETS_MAX && columns.len() > 1 {
            known.insert(columns.clone(), Known::Asked);
        }
        known.get(&columns)?.count()
    }

    /// The same without a note.
    pub fn counted(&self, columns: &[usize]) -> Option<f64> {
        self.0.lock().get(&ascending(columns))?.count()
    }

    /// What plans wanted to know and has not been counted.
    pub fn asked(&self) -> Vec<Vec<usize>> {
        let known = self.0.lock();
        let asked = known.iter().filter(|(_, known)| **known == Known::Asked);
        asked.map(|(columns, _)| columns.clone()).collect()
    }

    /// Remembers what was counted in a table of this many rows; `None` if that was not possible.
    pub fn learn(&self, columns: &[usize], combinations: Option<f64>, rows: u64) {
        let known = match combinations {
            Some(combinations) => Known::Counted {
                combinations,
                rows: rows as f64,
            },
            None => Known::Never,
        };
        self.insert(columns, known, SETS_MAX);
    }

    /// The same where no plan has asked for it. Half of the places are for what plans ask for.
    pub fn learn_unasked(&self, columns: &[usize], combinations: f64, rows: u64) {
        let known = Known::Counted {
            combinations,
            rows: rows as f64,
        };
        self.insert(columns, known, SETS_MAX / 2);
    }

    /// Inserts what is new only while there are fewer than this many sets.
    fn insert(&self, columns: &[usize], known: Known, sets_max: usize) {
        let columns = ascending(columns);
        let mut all = self.0.lock();
        if all.len() < sets_max || all.contains_key(&columns) {
            all.insert(columns, known);
        }
    }

    /// What is still known when a table has this many rows, none of which is an earlier one that changed.
    pub fn after(&self, rows: u64) -> Self {
        let stays = |known: &Known| match known {
            Known::Counted { rows: before, .. } => holds_after(*before, rows as f64),
            Known::Asked | Known::Never => false,
        };
        let known = self.0.lock().clone().into_iter();
        Self(Mutex::new(
            known.filter(|(_, known)| stays(known)).collect(),
        ))
    }

    /// What was counted: columns, and their combinations when the table had that many rows.
    pub fn all(&self) -> Vec<(Vec<usize>, (f64, u64))> {
        let known = self.0.lock();
        let counted = known.iter().filter_map(|(columns, known)| match known {
            Known::Counted { combinations, rows } => {
                Some((columns.clone(), (*combinations, *rows as u64)))
            }
            Known::Asked | Known::Never => None,
        });
        counted.collect()
    }

    /// Remembers what another process counted when the table had some rows, if these are hardly more.
    pub fn recall(&self, columns: &[usize], (combinations, before): (f64, u64), rows: u64) {
        if holds_after(before as f64, rows as f64) {
            self.learn(columns, Some(combinations), before);
        }
    }
}

/// Whether what is known about some rows still is when there are this many.
fn holds_after(before: f64, rows: f64) -> bool {
    (0.0..=before * GROWTH).contains(&(rows - before))
}

/// Counts combinations of values.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    sketch: DistinctSketch,
    hashes: Vec<u64>,
}

impl Counting {
    /// Adds rows of the columns; `false` if they cannot be counted.
    pub fn add(&mut self, columns: &[ArrayRef]) -> bool {
        self.hashes.clear();
        self.hashes
            .resize(columns.first().map_or(0, |column| column.len()), 0);
        if create_hashes(columns, &HLL_RANDOM_STATE, &mut self.hashes).is_err() {
            return false;
        }
        for hash in &self.hashes {
            self.sketch.add_hash(*hash);
        }
        true
    }

    /// About how many there are.
    pub fn finish(self) -> f64 {
        self.sketch.estimate() as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn combinations_are_counted_as_a_set_does(rows in prop::collection::vec((0i64..40, 0i64..40), 1..600)) {
            let mut counting = Counting::default();
            for some in rows.chunks(100) {
                let column = |of: fn(&(i64, i64)) -> i64| {
                    Arc::new(Int64Array::from_iter_values(some.iter().map(of))) as ArrayRef
                };
                prop_assert!(counting.add(&[column(|row| row.0), column(|row| row.1)]));
            }
            let truth = rows.iter().collect::<HashSet<_>>().len() as f64;
            let counted = counting.finish();
            prop_assert!((counted - truth).abs() <= truth * 0.2 + 2.0, "{counted} {truth}");
        }
    }

    #[test]
    fn what_is_asked_is_counted_once_and_forgotten_when_a_table_grows() {
        let known = Combinations::default();
        assert_eq!(known.get(&[2, 1]), None);
        assert_eq!(known.get(&[3]), None);
        assert_eq!(known.asked(), [vec![1, 2]]);
        assert_eq!(known.counted(&[1, 3]), None);
        known.learn(&[2, 1], Some(7.0), 100);
        known.learn(&[4, 5], None, 100);
        assert_eq!((known.get(&[1, 2]), known.get(&[5, 4])), (Some(7.0), None));
        assert_eq!(known.counted(&[2, 1]), Some(7.0));
        assert!(known.asked().is_empty());
        assert_eq!(known.after(105).get(&[2, 1]), Some(7.0));
        assert_eq!(known.all(), [(vec![1, 2], (7.0, 100))]);
        let recalled = Combinations::default();
        recalled.recall(&[1, 2], (7.0, 100), 105);
        recalled.recall(&[1, 3], (7.0, 100), 99);
        recalled.recall(&[1, 4], (7.0, 100), 200);
        assert_eq!(recalled.all(), known.all());
        let grown = known.after(200);
        assert_eq!(grown.get(&[2, 1]), None);
        assert_eq!(grown.asked(), [vec![1, 2]]);
    }
}
