//! Keys of joins whose other sides have run, as questions to Elfs: conditions on single columns, and keys of several
//! columns that are looked up one by one.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use hotshelf_elf::cost::Work;
use hotshelf_elf::keys::{Coverage, Predicate, QueryBox, Restriction, Value};

use super::file::IndexFile;
use super::predicate::{Condition, among, literal_as};
use super::selection::KEYS_MAX;
use crate::prices::WorkPrices;

/// A join with more keys than this says only between which values they are.
pub(crate) const JOIN_KEYS_MAX: usize = 4096;

/// What is known about join keys: rows need to meet it, and the joins check that.
#[derive(Debug, Default)]
pub(crate) struct JoinKeys {
    pub conditions: Vec<Condition>,
    pub lists: Vec<KeyList>,
}

/// All keys of a join by several columns.
#[derive(Debug)]
pub(crate) struct KeyList {
    /// By index in the table.
    pub columns: Vec<usize>,
    /// Values for these columns, without NULL.
    pub keys: Vec<Vec<Value>>,
}

/// The keys that an Elf looks up.
#[derive(Debug, Clone)]
pub(super) struct ElfKeys {
    /// A code for each dimension, one key after the other; no key twice.
    pub codes: Arc<[u32]>,
    pub count: usize,
    /// Of the keys that are in the query's box.
    pub share: f64,
}

impl JoinKeys {
    /// Keys of several columns of `schema`; `None` if an index cannot have such values.
    pub fn of(columns: &[usize], keys: &[Vec<ScalarValue>], schema: &Schema) -> Option<Self> {
        let condition = |(place, column): (usize, &usize)| {
            let values = keys.iter().map(|key| &key[place]);
            among(*column, values, schema)
        };
        let conditions = columns.iter().enumerate().map(condition);
        let key = |key: &Vec<ScalarValue>| {
            let pairs = key.iter().zip(columns);
            let values = pairs.map(|(value, column)| literal_as(value, *column, schema));
            values.collect::<Option<Vec<_>>>()
        };
        let list = KeyList {
            columns: columns.to_vec(),
            keys: keys.iter().map(key).collect::<Option<_>>()?,
        };
        Some(Self {
            conditions: conditions.collect::<Option<_>>()?,
            lists: vec![list],
        })
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Adds what is known about other joins.
    pub fn extend(&mut self, other: Self) {
        self.conditions.extend(other.conditions);
        self.lists.extend(other.lists);
    }
}

impl KeyList {
    /// The keys of a file's Elfs that are listed and in a box; `None` if single columns say as much, the Elf has other
    /// columns that the box leaves open, or there are too many.
    pub(super) fn elf_keys(
        &self,
        file: &IndexFile,
        columns: &[usize],
        query: &QueryBox,
    ) -> Option<ElfKeys> {
        let place = |column: &usize| self.columns.iter().position(|one| one == column);
        let places: Vec<Option<usize>> = columns.iter().map(place).collect();
        if places.iter().flatten().count() < 2 {
            return None;
        }
        let mut dimensions = query.dimensions().to_vec();
        for (dimension, place) in dimensions.iter_mut().zip(&places) {
            if place.is_some() {
                *dimension = Restriction::NONE;
            }
        }
        let mut found = BTreeSet::new();
        for key in &self.keys {
            for (dimension, place) in places.iter().enumerate() {
                let Some(place) = place else { continue };
                let equal = Predicate::Eq(key[*place].clone());
                let (restriction, coverage) = file.keys[dimension].restriction(&equal)?;
                let (code, _) = restriction.hull();
                let is_accepted =
                    restriction.is_none() || query.dimensions()[dimension].contains(code);
                dimensions[dimension] = match (coverage, is_accepted) {
                    (Coverage::Superset, _) => return None,
                    (Coverage::Exact, true) => restriction,
                    (Coverage::Exact, false) => Restriction::NONE,
                };
            }
            let keys = QueryBox::new(dimensions.clone()).keys(KEYS_MAX)?;
            found.extend(keys.chunks_exact(columns.len()).map(<[u32]>::to_vec));
            if found.len() > KEYS_MAX {
                return None;
            }
        }
        let in_box: f64 = query.dimensions().iter().map(code_count).product();
        Some(ElfKeys {
            codes: found.iter().flatten().copied().collect(),
            count: found.len(),
            share: (found.len() as f64 / in_box.max(1.0)).min(1.0),
        })
    }
}

impl ElfKeys {
    /// Whether looking them up takes less than a walk through the box, which also finds rows that the join drops.
    pub fn cheaper_than(&self, walk: &Work, prices: &WorkPrices) -> bool {
        let part = self.part_of(walk);
        let dropped_ns = (walk.results - part.results) * prices.look_up_ns;
        self.look_up_ns(&part, prices) < prices.elf_ns(walk, true) + dropped_ns
    }

    /// Time of looking them up, if that is this part of a walk.
    pub fn look_up_ns(&self, part: &Work, prices: &WorkPrices) -> f64 {
        let found = Work {
            results: part.results,
            ..Work::default()
        };
        self.count as f64 * prices.elf_key_ns + prices.elf_ns(&found, true)
    }

    /// What a walk would take if it only went to these keys.
    pub fn part_of(&self, walk: &Work) -> Work {
        Work {
            jumps: walk.jumps * self.share,
            results: walk.results * self.share,
            tested_rows: walk.tested_rows * self.share,
            leaf_rows: walk.leaf_rows * self.share,
            ..Work::default()
        }
    }
}

fn code_count(restriction: &Restriction) -> f64 {
    let width = |&(lo, hi): &(u32, u32)| f64::from(hi) - f64::from(lo) + 1.0;
    match restriction {
        Restriction::Set(set) => set.ranges().iter().map(width).sum(),
        other => width(&other.hull()).max(0.0),
    }
}
