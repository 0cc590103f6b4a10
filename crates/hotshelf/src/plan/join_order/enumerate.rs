//! The cheapest order: all of them compared for few relations, greedily for more.

use super::cost::{Costs, Part};
use super::graph::Graph;
use super::rel_set::RelSet;

/// Up to this many relations all orders are compared, unless there are too many joins to look at.
const EXACT_MAX: usize = 12;
const JOINS_MAX: usize = 20_000;
/// This many ways to join the same relations are kept.
const WAYS_MAX: usize = 3;

/// The cheapest order that is found.
pub(super) fn cheapest(graph: &Graph, costs: &Costs) -> Option<Part> {
    let all = graph.all();
    let leaves = all.iter().map(|relation| costs.leaf(relation));
    if all.len() > EXACT_MAX {
        return greedy(leaves.collect(), costs);
    }
    let leaves: Vec<Part> = leaves.collect();
    let Some(best) = exact(&leaves, costs) else {
        return greedy(leaves, costs);
    };
    let known = |set: RelSet| best.get(set.0 as usize)?.first().cloned();
    match known(all) {
        Some(part) => Some(part),
        // Parts that nothing compares are joined crosswise at the end.
        None => {
            let whole = components(all, costs).into_iter();
            let parts = whole.flat_map(|component| match known(component) {
                Some(part) => vec![part],
                None => component.iter().map(|each| costs.leaf(each)).collect(),
            });
            greedy(parts.collect(), costs)
        }
    }
}

/// The cheapest way to join each connected set of relations, by the bits of the set (Selinger et al., SIGMOD 1979, with
/// trees of any form), and dearer ones that later joins may be cheaper with, as with interesting orders there. `None`
/// where that takes too long.
fn exact(leaves: &[Part], costs: &Costs) -> Option<Vec<Vec<Part>>> {
    let count = 1_u64 << leaves.len();
    let mut best: Vec<Vec<Part>> = vec![Vec::new(); count as usize];
    for leaf in leaves {
        let place = leaf.relations.0 as usize;
        best[place].push(leaf.clone());
    }
    let mut joins = 0;
    for set in (1..count).map(RelSet).filter(|set| set.len() > 1) {
        let mut found = Vec::new();
        for left in set.subsets() {
            let right = set.without(left);
            // Each pair once; the sides are chosen by their costs.
            if left > right || right.is_empty() || !costs.cardinality.neighbours(left).meets(right)
            {
                continue;
            }
            for a in &best[left.0 as usize] {
                for b in &best[right.0 as usize] {
                    joins += 1;
                    let limit = found.iter().find(|part: &&Part| part.serves_all());
                    if limit.is_none_or(|part| a.cost + b.cost < part.price())
                        && let Some(joined) = costs.join(a, b)
                    {
                        keep(joined, &mut found);
                    }
                }
            }
        }
        best[set.0 as usize] = found;
        if joins > JOINS_MAX {
            return None;
        }
    }
    Some(best)
}

/// Keeps a way to join a set if none that is as cheap serves later joins as well. The cheapest is the first.
fn keep(joined: Part, found: &mut Vec<Part>) {
    let beats = |a: &Part, b: &Part| a.price() <= b.price() && a.serves_as(b);
    if found.iter().any(|known| beats(known, &joined)) {
        return;
    }
    found.retain(|known| !beats(&joined, known));
    let place = found.partition_point(|known| known.price() <= joined.price());
    found.insert(place, joined);
    found.truncate(WAYS_MAX);
}

/// Relations that are compared with each other, directly or through others.
fn components(all: RelSet, costs: &Costs) -> Vec<RelSet> {
    let (mut rest, mut found) = (all, Vec::new());
    while let Some(first) = rest.iter().next() {
        let mut component = RelSet::of(first);
        loop {
            let near = costs.cardinality.neighbours(component);
            if near.is_empty() {
                break;
            }
            component = component.union(near);
        }
        rest = rest.without(component);
        found.push(component);
    }
    found
}

/// Joins the two parts that are cheapest to join, until there is one (Fegaras, 1998). What nothing compares is joined
/// last.
fn greedy(mut parts: Vec<Part>, costs: &Costs) -> Option<Part> {
    while parts.len() > 1 {
        let (first, second, joined) =
            cheapest_pair(&parts, costs, true).or_else(|| cheapest_pair(&parts, costs, false))?;
        parts.remove(second);
        parts.remove(first);
        parts.push(joined);
    }
    parts.pop()
}

fn cheapest_pair(parts: &[Part], costs: &Costs, compared: bool) -> Option<(usize, usize, Part)> {
    let mut best: Option<(usize, usize, Part, f64)> = None;
    for (first, a) in parts.iter().enumerate() {
        let near = costs.cardinality.neighbours(a.relations);
        for (second, b) in parts.iter().enumerate().skip(first + 1) {
            if compared && !near.meets(b.relations) {
                continue;
            }
            let Some(joined) = costs.join(a, b) else {
                continue;
            };
            let price = joined.cost - a.cost - b.cost + joined.rows;
            if best.as_ref().is_none_or(|(.., lowest)| price < *lowest) {
                best = Some((first, second, joined, price));
            }
        }
    }
    best.map(|(first, second, joined, _)| (first, second, joined))
}
