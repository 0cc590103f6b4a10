//! What joins above a star say about its rows while the query runs: ranges and keys that rows must have. The joins drop
//! the others in any case, so rows are tested only where that costs less.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, InListExpr, Literal};
use datafusion::physical_expr::utils::split_conjunction;

use super::chunk::Decodable;
use super::condition::{Condition, Together, look_up_condition, range_condition};
use super::in_keys::InKeys;
use super::kept::Kept;
use super::prepare::Star;
use crate::scan::is_key_type;
use crate::scan::{DynamicFilter, IntegerRange, word_list};

/// What is saved by a row that is dropped here, in tests of a row.
const DROPPED_ROW: f64 = 16.0;
/// Before as many rows were tested nothing is known about a hint, and it is taken to keep half of them.
const TRIAL_ROWS: u64 = 4096;
const TRIAL_KEPT: f64 = 0.5;

/// What is known by now, and what came of it.
#[derive(Default)]
pub(super) struct Hints {
    version: Option<u64>,
    known: Arc<[Hint]>,
    kept: Vec<Kept>,
}

/// What columns have to be for a row to stay.
pub(super) struct Hint {
    /// One, or several of which the keys are, by index in the table.
    columns: Vec<usize>,
    test: HintTest,
}

enum HintTest {
    Range(IntegerRange),
    Keys(InKeys),
}

impl Hints {
    /// Takes over what is known by now about columns that survivors need in any case.
    pub fn learn(&mut self, star: &Star) {
        let filters = star.scan.dynamic_filters();
        let versions = filters.iter().map(DynamicFilter::version);
        let version = Some(versions.fold(0, u64::wrapping_add));
        if self.version == version {
            return;
        }
        self.version = version;
        self.known = known(star, filters).into();
        self.kept = vec![Kept::default(); self.known.len()];
    }

    /// What is known by now.
    pub fn known(&self) -> Arc<[Hint]> {
        self.known.clone()
    }

    /// The columns that may be tested, by index in the table.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        let all = self.known.iter().enumerate();
        let useful = all.filter(|(idx, _)| self.pays(*idx, Kept::default(), 1, 1));
        useful.flat_map(|(_, hint)| hint.columns.iter().copied())
    }

    /// The share of rows that a hint keeps, with what was counted since.
    pub fn share_kept(&self, idx: usize, since: Kept) -> f64 {
        let mut kept = self.kept[idx];
        kept.add(since);
        match kept.asked < TRIAL_ROWS {
            true => TRIAL_KEPT,
            false => kept.share_or(TRIAL_KEPT),
        }
    }

    /// Whether testing pays where this many rows of a chunk remain: all of the chunk is decoded for them, for keys of
    /// several columns all of each.
    pub fn pays(&self, idx: usize, since: Kept, live: usize, chunk_rows: usize) -> bool {
        let dropped = (1.0 - self.share_kept(idx, since)) * live as f64;
        let decoded = chunk_rows * self.known[idx].columns.len();
        dropped * DROPPED_ROW >= decoded as f64
    }

    /// Counts what a hint did.
    pub fn add(&mut self, idx: usize, kept: Kept) {
        self.kept[idx].add(kept);
    }
}

impl Hint {
    /// The place of its column among some, the first one if it is of several, and the test.
    pub fn condition(&self, tested: Decodable<'_>) -> Option<(usize, Condition<'_>)> {
        let places = self.columns.iter().map(|column| tested.place(*column));
        let places: Vec<usize> = places.collect::<Option<_>>()?;
        let place = *places.first()?;
        let column = &tested.columns[place];
        let condition = match &self.test {
            HintTest::Range(range) => range_condition(range, column),
            HintTest::Keys(keys) if places.len() > 1 => Condition::FindTogether(Together {
                lookup: keys.lookup(),
                columns: places,
            }),
            HintTest::Keys(keys) => look_up_condition(keys.lookup(), column),
        };
        Some((place, condition))
    }

    /// Whether it is of this column alone.
    fn is_of(&self, column: usize) -> bool {
        self.columns == [column]
    }
}

/// A hint for each column that one is known for: its keys rather than a list of them, and that rather than their range.
/// And one for each join that says which keys several columns have together.
fn known(star: &Star, filters: &[DynamicFilter]) -> Vec<Hint> {
    let mut ranges = Vec::new();
    let (mut keys, mut lists, mut together) = (Vec::new(), Vec::new(), Vec::new());
    for filter in filters {
        let Some(expr) = filter.expr_now() else {
            continue;
        };
        for part in split_conjunction(&expr)
            .into_iter()
            .filter(|part| filter.is_exact(part))
        {
            if let Some(in_keys) = part.downcast_ref::<InKeys>() {
                match in_keys.columns().len() {
                    1 => keys.extend(hint(star, in_keys.clone())),
                    _ => together.extend(hint(star, in_keys.clone())),
                }
            } else if word_list(part, &filter.schema).is_some() {
                lists.push(part.clone());
            } else if let Some(range) = IntegerRange::of(part)
                && let Some(column) = needed(star, range.column)
            {
                IntegerRange { column, ..range }.add_to(&mut ranges);
            }
        }
    }
    let lists = lists.iter().filter_map(|part| listed(star, part, &keys));
    let lists: Vec<Hint> = lists.collect();
    let ranges = ranges.into_iter().map(|range| Hint {
        columns: vec![range.column],
        test: HintTest::Range(range),
    });
    let mut hints: Vec<Hint> = Vec::new();
    for group in [keys, lists, ranges.collect(), together] {
        let is_known = |hint: &Hint| hints.iter().any(|known| known.columns == hint.columns);
        let group = group.into_iter().filter(|hint| !is_known(hint));
        let group: Vec<Hint> = group.collect();
        hints.extend(group);
    }
    hints
}

fn hint(star: &Star, keys: InKeys) -> Option<Hint> {
    let columns = keys.columns().iter().map(|column| {
        let column = column.downcast_ref::<Column>()?;
        needed(star, column.index())
    });
    Some(Hint {
        columns: columns.collect::<Option<_>>()?,
        test: HintTest::Keys(keys),
    })
}

/// A list of literals, unless all keys of its column are known.
fn listed(star: &Star, part: &Arc<dyn PhysicalExpr>, keys: &[Hint]) -> Option<Hint> {
    let list = part.downcast_ref::<InListExpr>()?;
    let column = list.expr().downcast_ref::<Column>()?;
    let column_idx = needed(star, column.index())?;
    if keys.iter().any(|hint| hint.is_of(column_idx)) {
        return None;
    }
    let literals = list.list().iter();
    let values = literals.map(|value| Some(value.downcast_ref::<Literal>()?.value().clone()));
    let values: Vec<ScalarValue> = values.collect::<Option<_>>()?;
    hint(star, InKeys::of_list(list.expr(), values).ok()??)
}

/// The table's column that is one of the scan's, if it has words and survivors need it.
fn needed(star: &Star, idx: usize) -> Option<usize> {
    let is_key = is_key_type(star.scan.schema.fields().get(idx)?.data_type());
    let column = star.scan.columns.get(idx)?;
    (is_key && star.payload().contains(&idx)).then_some(*column)
}
