//! How many rows any set of a graph's relations has once they are joined. It does not depend on the order of joins.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::bounds::SetBounds;
use super::estimate::pair_count;
use super::graph::{Graph, Member};
use super::rel_set::RelSet;
use crate::past_runs::{Correction, ExpectedJoin};
use crate::statistics::column::ColumnEstimate;
use crate::statistics::error::EstimateError;

/// Rows of sets of relations, computed once.
pub(super) struct Cardinality<'a> {
    graph: &'a Graph,
    /// Which relations each one is compared with.
    neighbours: Vec<RelSet>,
    known: RefCell<HashMap<RelSet, Rows>>,
    error: EstimateError,
    bounds: SetBounds,
    /// By how much earlier runs had more rows, or fewer, of sets of relations.
    corrections: Vec<(RelSet, f64)>,
}

/// The rows of a set.
#[derive(Debug, Clone, Copy)]
struct Rows {
    /// As expected.
    rows: f64,
    /// At most.
    most: f64,
}

/// A pair of columns of two relations that are equal.
struct Key {
    /// The relation that is joined already.
    relation: usize,
    pair: (ColumnEstimate, ColumnEstimate),
    /// The share of pairs of rows that have the same value, where it is known how values are spread.
    equal: Option<f64>,
    /// The columns' numbers in their relations, where both are columns.
    columns: Option<(usize, usize)>,
}

impl<'a> Cardinality<'a> {
    pub fn new(graph: &'a Graph, error: EstimateError, past: &[Correction]) -> Self {
        let mut neighbours = vec![RelSet::EMPTY; graph.relations.len()];
        let mut connect = |relations: RelSet| {
            for relation in relations.iter() {
                let others = relations.without(RelSet::of(relation));
                neighbours[relation] = neighbours[relation].union(others);
            }
        };
        for class in &graph.classes {
            let members = class.iter().map(|member| RelSet::of(member.relation));
            connect(members.fold(RelSet::EMPTY, RelSet::union));
        }
        for edge in &graph.edges {
            let [(left, _), (right, _)] = &edge.sides;
            connect(RelSet::of(*left).union(RelSet::of(*right)));
        }
        for condition in &graph.conditions {
            let few = |relation: usize| graph.relations[relation].estimate.rows < 1.5;
            if condition.reads.len() == 2 && condition.reads.iter().any(few) {
                connect(condition.reads);
            }
        }
        for (relation, known) in graph.relations.iter().enumerate() {
            let Some(reduction) = &known.reducer else {
                continue;
            };
            // What a semi join reads need not be joined by it.
            neighbours[relation] = neighbours[relation].union(reduction.reads);
            for read in reduction.reads.iter() {
                neighbours[read] = neighbours[read].union(RelSet::of(relation));
            }
        }
        Self {
            graph,
            neighbours,
            known: RefCell::default(),
            error,
            bounds: SetBounds::of(graph),
            corrections: corrections(graph, past),
        }
    }

    /// The relations that one of a set is compared with, without the set.
    pub fn neighbours(&self, set: RelSet) -> RelSet {
        let each = set.iter().map(|relation| self.neighbours[relation]);
        each.fold(RelSet::EMPTY, RelSet::union).without(set)
    }

    /// Rows of a set of relations.
    pub fn rows(&self, set: RelSet) -> f64 {
        self.known(set).rows
    }

    /// Rows of a set of relations at most, whatever is expected.
    pub fn most(&self, set: RelSet) -> f64 {
        self.known(set).most
    }

    fn known(&self, set: RelSet) -> Rows {
        if let Some(known) = self.known.borrow().get(&set) {
            return *known;
        }
        let expected = self.compute(set) * self.correction(set);
        let bounds = self.bounds.rows(set);
        let known = Rows {
            rows: bounds.within(self.error.of(expected, set)),
            most: bounds.most,
        };
        self.known.borrow_mut().insert(set, known);
        known
    }

    /// What the largest part of a set that ran before says about it.
    fn correction(&self, set: RelSet) -> f64 {
        let parts = self
            .corrections
            .iter()
            .filter(|(part, _)| set.contains(*part));
        let largest = parts.max_by_key(|(part, _)| part.len());
        largest.map_or(1.0, |(_, factor)| *factor)
    }

    /// What is expected of a set, for those who remember how it was.
    pub fn expected(&self, set: RelSet) -> ExpectedJoin {
        let mut joined: Vec<u64> = set
            .iter()
            .map(|relation| number(self.graph, relation))
            .collect();
        joined.sort_unstable();
        ExpectedJoin {
            joined: joined.into(),
            rows: self.rows(set),
            by_statistics: self.compute(set),
        }
    }

    /// One relation after the other, each with its share of pairs.
    fn compute(&self, set: RelSet) -> f64 {
        let (mut joined, mut rest, mut rows) = (RelSet::EMPTY, set, 1.0);
        while !rest.is_empty() {
            let near = self.neighbours(joined).and(rest);
            let Some(next) = if near.is_empty() { rest } else { near }.iter().next() else {
                break;
            };
            rest = rest.without(RelSet::of(next));
            // What a semi join keeps of others' rows is counted below.
            if self.graph.relations[next].reducer.is_none() {
                rows *= self.graph.relations[next].estimate.rows;
                rows /= self.pair_count(joined, next);
                joined = joined.union(RelSet::of(next));
            }
        }
        rows * self.kept(set)
    }

    /// The share of rows that conditions and semi joins within a set keep.
    fn kept(&self, set: RelSet) -> f64 {
        let conditions = self.graph.conditions.iter();
        let conditions = conditions.filter(|condition| set.contains(condition.reads));
        let reducers = set.iter().filter_map(|relation| {
            let reduction = self.graph.relations[relation].reducer.as_ref()?;
            Some(reduction.share)
        });
        conditions
            .map(|condition| condition.share)
            .chain(reducers)
            .product()
    }

    /// Of one row of the joined relations and one of the next, one pair in this many belongs together.
    fn pair_count(&self, joined: RelSet, next: usize) -> f64 {
        let mut keys = self.keys(joined, next);
        let mut count = 1.0;
        // Keys from the same relation are not independent.
        while let Some(owner) = most_frequent(&keys) {
            let (own, others) = keys.into_iter().partition(|key| key.relation == owner);
            let own: Vec<Key> = own;
            keys = others;
            let rows = |relation: usize| self.graph.relations[relation].estimate.unfiltered;
            let pairs: Vec<_> = own.iter().map(|key| key.pair).collect();
            count *= match own.as_slice() {
                [
                    Key {
                        equal: Some(equal), ..
                    },
                ] => (1.0 / equal).max(1.0),
                own => self
                    .combinations(own, owner, next)
                    .unwrap_or_else(|| pair_count(&pairs, rows(owner), rows(next))),
            };
        }
        count
    }

    /// The same where combinations of several columns have been counted: values of one side are among those of the
    /// other. Where one side alone is known and each of its rows has a combination of its own, those are all there are.
    fn combinations(&self, keys: &[Key], owner: usize, next: usize) -> Option<f64> {
        if keys.len() < 2 {
            return None;
        }
        let columns = keys.iter().map(|key| key.columns);
        let (own, others): (Vec<_>, Vec<_>) =
            columns.collect::<Option<Vec<_>>>()?.into_iter().unzip();
        let known = |relation: usize, columns: &[usize]| {
            let estimate = &self.graph.relations[relation].estimate;
            let counted = estimate.sampled.as_ref()?.combinations_of(columns)?;
            Some((counted, estimate.unfiltered))
        };
        let count = match (known(owner, &own), known(next, &others)) {
            (Some((own, _)), Some((others, _))) => own.max(others),
            (Some((counted, rows)), None) | (None, Some((counted, rows)))
                if counted >= rows * UNIQUE =>
            {
                counted
            }
            _ => return None,
        };
        Some(count.max(1.0))
    }

    /// The numbers of a column of a joined relation, which is among some, and of the next one's.
    fn columns(
        &self,
        relation: usize,
        members: &[&Member],
        next: &Member,
    ) -> Option<(usize, usize)> {
        let number = |member: &Member| {
            let plan = &self.graph.relations[member.relation].plan;
            plan.schema().maybe_index_of_column(&member.column)
        };
        let own = members.iter().find(|member| member.relation == relation)?;
        Some((number(own)?, number(next)?))
    }

    /// The equalities between joined relations and the next one, each once.
    fn keys(&self, joined: RelSet, next: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        let classes = self.graph.classes.iter();
        let shared: Vec<(&Member, Vec<&Member>)> = classes
            .filter_map(|class| {
                let own = class.iter().find(|member| member.relation == next)?;
                let others = class.iter().filter(|member| joined.has(member.relation));
                Some((own, others.collect()))
            })
            .collect();
        // Of relations that have the same column, the one that has most of the others, too: its keys belong together.
        let count = |relation: usize| {
            let has = |(_, others): &&(&Member, Vec<&Member>)| {
                others.iter().any(|member| member.relation == relation)
            };
            let edges = self.graph.edges.iter().filter(|edge| {
                let sides = edge.sides.each_ref().map(|(relation, _)| *relation);
                sides.contains(&relation) && sides.contains(&next)
            });
            shared.iter().filter(has).count() + edges.count()
        };
        for (own, others) in &shared {
            let fewest = others
                .iter()
                .min_by(|a, b| a.values.domain.total_cmp(&b.values.domain));
            let Some(fewest) = fewest else { continue };
            let is_fewest = |member: &Member| member.relation == fewest.relation;
            let relation = others
                .iter()
                .max_by_key(|member| (count(member.relation), is_fewest(member)))
                .map_or(fewest.relation, |owner| owner.relation);
            keys.push(Key {
                relation,
                pair: (fewest.values, own.values),
                equal: equal(fewest, own),
                columns: self.columns(relation, others, own),
            });
        }
        for edge in &self.graph.edges {
            let [left, right] = [edge.sides[0].0, edge.sides[1].0];
            let [of_left, of_right] = edge.values;
            if right == next && joined.has(left) {
                keys.push(Key {
                    relation: left,
                    pair: (of_left, of_right),
                    equal: None,
                    columns: None,
                });
            } else if left == next && joined.has(right) {
                keys.push(Key {
                    relation: right,
                    pair: (of_right, of_left),
                    equal: None,
                    columns: None,
                });
            }
        }
        keys
    }
}

/// The sets of a graph that earlier runs know something about.
fn corrections(graph: &Graph, past: &[Correction]) -> Vec<(RelSet, f64)> {
    if past.is_empty() {
        return Vec::new();
    }
    let relations = 0..graph.relations.len();
    let numbers: HashMap<u64, usize> = relations
        .map(|relation| (number(graph, relation), relation))
        .collect();
    let known = past.iter().filter_map(|correction| {
        let relations = correction.joined.iter().map(|number| numbers.get(number));
        let set = relations.map(|relation| Some(RelSet::of(*relation?)));
        let set = set.collect::<Option<Vec<_>>>()?.into_iter();
        Some((set.fold(RelSet::EMPTY, RelSet::union), correction.factor))
    });
    known.collect()
}

/// A number for a relation that it has in all plans of a template.
fn number(graph: &Graph, relation: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (qualifier, field) in graph.relations[relation].plan.schema().iter() {
        (qualifier, field.name()).hash(&mut hasher);
    }
    hasher.finish()
}

/// A column set with this share of the rows as combinations is a key; sketches err by 3 %.
const UNIQUE: f64 = 0.9;

/// The share of pairs of a row of each relation that are equal in a column.
fn equal(a: &Member, b: &Member) -> Option<f64> {
    let (of_a, of_b) = (a.spread.as_ref()?, b.spread.as_ref()?);
    let values = a.values.common_domain(&b.values);
    let other_values = b.values.common_domain(&a.values);
    let share = of_a.equal_pairs(values, of_b, other_values);
    (share > 0.0).then_some(share)
}

/// The relation with most of the keys.
fn most_frequent(keys: &[Key]) -> Option<usize> {
    let count = |relation: usize| keys.iter().filter(|key| key.relation == relation).count();
    let relations = keys.iter().map(|key| key.relation);
    relations.max_by_key(|relation| count(*relation))
}
