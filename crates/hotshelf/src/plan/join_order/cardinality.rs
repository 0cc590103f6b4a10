//! How many rows any set of a graph's relations has once they are joined. It does not depend on the order of joins.

use std::cell::RefCell;
use std::collections::HashMap;

use super::estimate::pair_count;
use super::graph::{Graph, Member};
use super::rel_set::RelSet;
use crate::statistics::column::ColumnEstimate;
use crate::statistics::error::EstimateError;

/// Rows of sets of relations, computed once.
pub(super) struct Cardinality<'a> {
    graph: &'a Graph,
    /// Which relations each one is compared with.
    neighbours: Vec<RelSet>,
    known: RefCell<HashMap<RelSet, f64>>,
    error: EstimateError,
}

/// A pair of columns of two relations that are equal.
struct Key {
    /// The relation that is joined already.
    relation: usize,
    pair: (ColumnEstimate, ColumnEstimate),
}

impl<'a> Cardinality<'a> {
    pub fn new(graph: &'a Graph, error: EstimateError) -> Self {
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
        Self {
            graph,
            neighbours,
            known: RefCell::default(),
            error,
        }
    }

    /// The relations that one of a set is compared with, without the set.
    pub fn neighbours(&self, set: RelSet) -> RelSet {
        let each = set.iter().map(|relation| self.neighbours[relation]);
        each.fold(RelSet::EMPTY, RelSet::union).without(set)
    }

    /// Rows of a set of relations.
    pub fn rows(&self, set: RelSet) -> f64 {
        if let Some(rows) = self.known.borrow().get(&set) {
            return *rows;
        }
        let rows = self.error.of(self.compute(set), set);
        self.known.borrow_mut().insert(set, rows);
        rows
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
            count *= pair_count(&pairs, rows(owner), rows(next));
        }
        count
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
            });
        }
        for edge in &self.graph.edges {
            let [left, right] = [edge.sides[0].0, edge.sides[1].0];
            let [of_left, of_right] = edge.values;
            if right == next && joined.has(left) {
                keys.push(Key {
                    relation: left,
                    pair: (of_left, of_right),
                });
            } else if left == next && joined.has(right) {
                keys.push(Key {
                    relation: right,
                    pair: (of_right, of_left),
                });
            }
        }
        keys
    }
}

/// The relation with most of the keys.
fn most_frequent(keys: &[Key]) -> Option<usize> {
    let count = |relation: usize| keys.iter().filter(|key| key.relation == relation).count();
    let relations = keys.iter().map(|key| key.relation);
    relations.max_by_key(|relation| count(*relation))
}
