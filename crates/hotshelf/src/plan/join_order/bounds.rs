//! Between which numbers of rows parts of a join graph have in any case, whatever is expected of them: what the catalog
//! counts, and what follows from keys. A row finds at most one row of a relation whose key has no value twice; it
//! finds one for sure if that key is all whole numbers between its bounds, the row's value is among these, and nothing
//! was dropped.

use super::graph::{Graph, Member};
use super::rel_set::RelSet;
use crate::statistics::row_bounds::RowBounds;

/// Bounds of all sets of a graph's relations.
#[derive(Debug)]
pub(super) struct SetBounds {
    relations: Vec<Joined>,
    /// The relations of each class of equal columns.
    classes: Vec<RelSet>,
    /// The relations of each equality of expressions, and of each condition.
    others: Vec<RelSet>,
    /// Relations that may drop rows of any others: by filters of their own, or as semi and anti joins.
    dropping: RelSet,
}

/// What is known about a relation when it is joined with others.
#[derive(Debug)]
struct Joined {
    rows: RowBounds,
    kind: Kind,
    /// A row of any of these finds at most one of its rows.
    found_once: RelSet,
    /// Members of these finds one of its rows for sure, unless they are NULL.
    found: Vec<Found>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Inner,
    /// The right side of a semi or anti join that reads these.
    Drops(RelSet),
    /// The right side of a left join that reads these; whether it adds one row at most to each.
    Adds(RelSet, bool),
}

#[derive(Debug)]
struct Found {
    by: usize,
    /// Rows of that relation that have NULL there.
    nulls: f64,
}

impl SetBounds {
    pub fn of(graph: &Graph) -> Self {
        let relations = 0..graph.relations.len();
        let relations: Vec<Joined> = relations.map(|relation| joined(graph, relation)).collect();
        let set = |relations: &mut dyn Iterator<Item = usize>| {
            relations.fold(RelSet::EMPTY, |set, each| set.union(RelSet::of(each)))
        };
        let classes = graph.classes.iter();
        let classes = classes.map(|class| set(&mut class.iter().map(|member| member.relation)));
        let edges = graph.edges.iter();
        let edges = edges.map(|edge| set(&mut edge.sides.iter().map(|(relation, _)| *relation)));
        let conditions = graph.conditions.iter().map(|condition| condition.reads);
        let drops = |joined: &Joined| match joined.kind {
            Kind::Inner => joined.rows.least == 0.0,
            Kind::Drops(_) => true,
            Kind::Adds(..) => false,
        };
        let dropping = relations.iter().enumerate();
        let dropping = dropping.filter(|(_, joined)| drops(joined));
        Self {
            dropping: set(&mut dropping.map(|(relation, _)| relation)),
            classes: classes.collect(),
            others: edges.chain(conditions).collect(),
            relations,
        }
    }

    /// The bounds of a set of relations that are joined.
    pub fn rows(&self, set: RelSet) -> RowBounds {
        if set.len() == 1 {
            let only = set.iter().next();
            return only.map_or(RowBounds::UNKNOWN, |only| self.relations[only].rows);
        }
        let most = self.most(set);
        RowBounds {
            least: self.least(set).min(most),
            most,
        }
    }

    /// Every row of all is one of some relations, together with what is found once.
    fn most(&self, set: RelSet) -> f64 {
        let (mut covered, mut most) = (RelSet::EMPTY, 1.0);
        loop {
            let rest = set.without(covered);
            let starts = rest.iter().filter(|start| {
                let kind = self.relations[*start].kind;
                !matches!(kind, Kind::Drops(_))
            });
            let starts = starts.map(|start| {
                let with_start = covered.union(RelSet::of(start));
                (start, self.with_found_once(with_start, set))
            });
            let best = starts.min_by(|(a, with_a), (b, with_b)| {
                let rows = |start: usize| self.relations[start].rows.most;
                let wider = with_b.len().cmp(&with_a.len());
                wider.then_with(|| rows(*a).total_cmp(&rows(*b)))
            });
            let Some((start, reached)) = best else {
                return most;
            };
            most *= self.relations[start].rows.most.max(1.0);
            covered = reached;
        }
    }

    /// The relations of a set that give no further row to those that are covered.
    fn with_found_once(&self, mut covered: RelSet, set: RelSet) -> RelSet {
        loop {
            let mut rest = set.without(covered).iter();
            let next = rest.find(|next| {
                let joined = &self.relations[*next];
                match joined.kind {
                    Kind::Inner => joined.found_once.meets(covered),
                    Kind::Drops(reads) => covered.contains(reads),
                    Kind::Adds(reads, is_once) => is_once && covered.contains(reads),
                }
            });
            match next {
                Some(next) => covered = covered.union(RelSet::of(next)),
                None => return covered,
            }
        }
    }

    /// Rows of one relation that find rows of all others.
    fn least(&self, set: RelSet) -> f64 {
        if set.meets(self.dropping) || self.others.iter().any(|reads| set.contains(*reads)) {
            return 0.0;
        }
        let starts = set
            .iter()
            .filter(|start| self.relations[*start].kind == Kind::Inner);
        let least = starts.map(|start| self.least_from(start, set));
        least.fold(0.0, f64::max)
    }

    fn least_from(&self, start: usize, set: RelSet) -> f64 {
        let (mut covered, mut least) = (RelSet::of(start), self.relations[start].rows.least);
        loop {
            let mut rest = set.without(covered).iter();
            let next = rest.find_map(|next| {
                let missing = self.missing(next, start, covered)?;
                Some((next, missing))
            });
            let Some((next, missing)) = next else { break };
            covered = covered.union(RelSet::of(next));
            least -= missing;
        }
        match covered == set {
            true => least.max(0.0),
            false => 0.0,
        }
    }

    /// Rows of `start` that find none of the next relation; `None` where that may be any.
    fn missing(&self, next: usize, start: usize, covered: RelSet) -> Option<f64> {
        let joined = &self.relations[next];
        match joined.kind {
            Kind::Drops(_) => None,
            Kind::Adds(reads, _) => covered.contains(reads).then_some(0.0),
            Kind::Inner => {
                // A second equality could drop rows that the first keeps.
                let classes = self.classes.iter();
                let comparing = classes.filter(|class| class.has(next) && class.meets(covered));
                if comparing.count() != 1 {
                    return None;
                }
                let found = joined.found.iter().find(|found| {
                    // A row of others may be there for many of `start`.
                    covered.has(found.by) && (found.by == start || found.nulls == 0.0)
                });
                found.map(|found| found.nulls)
            }
        }
    }
}

fn joined(graph: &Graph, relation: usize) -> Joined {
    let known = &graph.relations[relation];
    let classes = graph.classes.iter();
    let members = classes.filter_map(|class| {
        let own = class.iter().find(|member| member.relation == relation)?;
        Some((own, class))
    });
    let (mut found_once, mut found) = (RelSet::EMPTY, Vec::new());
    for (own, class) in members.filter(|(own, _)| own.values.is_unique) {
        let others = class.iter().filter(|other| other.relation != relation);
        for other in others {
            found_once = found_once.union(RelSet::of(other.relation));
            if let Some(nulls) = nulls_of_found(graph, own, other) {
                found.push(Found {
                    by: other.relation,
                    nulls,
                });
            }
        }
    }
    Joined {
        rows: known.estimate.bounds,
        kind: match &known.reducer {
            None => Kind::Inner,
            Some(reduction) if reduction.reducer.attaches() => {
                Kind::Adds(reduction.reads, reduction.is_found_once)
            }
            Some(reduction) => Kind::Drops(reduction.reads),
        },
        found_once,
        found,
    }
}

/// Rows of another relation that have NULL where they are compared with a key, if all others find it.
fn nulls_of_found(graph: &Graph, key: &Member, other: &Member) -> Option<f64> {
    let rows = graph.relations[key.relation].estimate.bounds;
    let (low, high) = key.values.bounds?;
    let has_all = rows.least == rows.most
        && key.values.is_plain
        && key.values.is_whole
        && key.values.nulls == 0.0
        && high - low + 1.0 == rows.least;
    let (least, greatest) = other.values.bounds?;
    let is_among = other.values.is_plain && low <= least && greatest <= high;
    let of_other = graph.relations[other.relation].estimate.bounds;
    (has_all && is_among).then(|| (other.values.nulls * of_other.most).ceil())
}

#[cfg(test)]
mod tests;
