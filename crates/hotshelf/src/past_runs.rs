//! How many rows joins gave when a query of the same template ran before: the next plan expects as many times what
//! statistics say as there were then (Stillger et al., VLDB 2001).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// Templates that are remembered.
const TEMPLATES_MAX: usize = 1_000;
/// Joins of a template that are remembered.
const JOINS_MAX: usize = 64;
/// A plan is made anew where a join had more than this many times the rows that were expected of it, or fewer.
const WRONG: f64 = 4.0;
/// Joins of few rows are quick in any plan.
const ROWS_MIN: f64 = 20_000.0;
/// Corrections are by at most this factor.
const FACTOR_MAX: f64 = 1e9;

/// What is joined: a number for each relation, ascending.
pub(crate) type Joined = Arc<[u64]>;

/// The rows that are expected of a join.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExpectedJoin {
    pub joined: Joined,
    pub rows: f64,
    /// What statistics alone say.
    pub by_statistics: f64,
}

/// What earlier runs showed, by template.
#[derive(Debug, Default)]
pub(crate) struct PastRuns(Mutex<HashMap<u64, Shown>>);

/// What runs of one template showed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Shown {
    pub corrections: Vec<Correction>,
    /// Stars whose data was not one.
    pub no_stars: BTreeSet<String>,
    /// What the last run read: folders of tables, and their rows.
    pub tables: BTreeMap<String, u64>,
}

/// Rows of a join over what statistics said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Correction {
    pub joined: Joined,
    pub factor: f64,
}

impl Correction {
    pub fn new(joined: Joined, factor: f64) -> Self {
        Self {
            joined,
            factor: factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX),
        }
    }
}

impl PastRuns {
    /// With what runs before this process showed.
    pub fn with(shown: impl Iterator<Item = (u64, Shown)>) -> Self {
        Self(Mutex::new(shown.take(TEMPLATES_MAX).collect()))
    }

    /// All of it, by template.
    pub fn shown(&self) -> BTreeMap<u64, Shown> {
        let known = self.0.lock();
        known
            .iter()
            .map(|(template, shown)| (*template, shown.clone()))
            .collect()
    }

    /// What is known about the joins of a template.
    pub fn of(&self, template: u64) -> Vec<Correction> {
        let known = self.0.lock();
        let shown = known.get(&template);
        shown.map_or_else(Vec::new, |shown| shown.corrections.clone())
    }

    /// Remembers that the data of a star was not one.
    pub fn note_no_star(&self, template: u64, star: String) {
        self.note_shown(template, |shown| {
            if shown.no_stars.len() < JOINS_MAX {
                shown.no_stars.insert(star);
            }
        });
    }

    /// Whether that was so.
    pub fn is_no_star(&self, template: u64, star: &str) -> bool {
        let known = self.0.lock();
        let shown = known.get(&template);
        shown.is_some_and(|shown| shown.no_stars.contains(star))
    }

    /// Remembers how many rows a join gave. Whether a plan for which others were expected should be made anew.
    pub fn note(&self, template: u64, expected: &ExpectedJoin, rows: u64) -> bool {
        let rows = (rows as f64).max(1.0);
        let of = |expected: f64| rows / expected.max(1.0);
        let is_wrong = !(1.0 / WRONG..=WRONG).contains(&of(expected.rows));
        if !is_wrong || rows.max(expected.rows) < ROWS_MIN {
            return false;
        }
        let correction = Correction::new(expected.joined.clone(), of(expected.by_statistics));
        self.note_shown(template, |shown| {
            let corrections = &mut shown.corrections;
            let same = |known: &Correction| known.joined == expected.joined;
            match corrections.iter().position(same) {
                Some(known) => corrections[known] = correction,
                None if corrections.len() < JOINS_MAX => corrections.push(correction),
                None => return false,
            }
            true
        })
    }

    /// Remembers what a run of a template read, if it showed something.
    pub fn note_tables(&self, template: u64, tables: impl FnOnce() -> BTreeMap<String, u64>) {
        if let Some(shown) = self.0.lock().get_mut(&template) {
            shown.tables = tables();
        }
    }

    fn note_shown<T>(&self, template: u64, note: impl FnOnce(&mut Shown) -> T) -> T {
        let mut known = self.0.lock();
        if known.len() >= TEMPLATES_MAX && !known.contains_key(&template) {
            known.clear();
        }
        note(known.entry(template).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(rows: f64, by_statistics: f64) -> ExpectedJoin {
        ExpectedJoin {
            joined: Arc::from([1, 2]),
            rows,
            by_statistics,
        }
    }

    #[test]
    fn a_join_that_was_expected_wrongly_is_expected_as_it_was() {
        let runs = PastRuns::default();
        assert!(!runs.note(7, &expected(1e6, 1e6), 900_000), "right enough");
        assert!(!runs.note(7, &expected(10.0, 10.0), 5_000), "few rows");
        assert!(runs.of(7).is_empty());
        assert!(runs.note(7, &expected(1e6, 1e6), 50_000));
        let [known] = &runs.of(7)[..] else { panic!() };
        assert_eq!((known.factor, &*known.joined), (0.05, &[1, 2][..]));
        assert!(
            !runs.note(7, &expected(50_000.0, 1e6), 50_000),
            "now it is right"
        );
        assert!(
            runs.note(7, &expected(50_000.0, 1e6), 2_000_000),
            "another literal"
        );
        assert_eq!(runs.of(7)[0].factor, 2.0);
        assert!(runs.of(8).is_empty());
    }

    #[test]
    fn a_star_that_was_none_is_known_by_its_template() {
        let runs = PastRuns::default();
        runs.note_no_star(7, "t: a=b@0".into());
        assert!(runs.is_no_star(7, "t: a=b@0"));
        assert!(!runs.is_no_star(7, "t: a=b@1") && !runs.is_no_star(8, "t: a=b@0"));
    }
}
