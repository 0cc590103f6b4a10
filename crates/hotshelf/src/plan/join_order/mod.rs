//! The order of joins follows what the statistics say, not the order of the text.
//!
//! The engine joins tables in the order in which FROM names them. Here each tree of inner joins, with the semi, anti
//! and left joins among them, becomes a graph of relations and equalities, whose rows are estimated from the catalog's
//! statistics; the order with the least work is taken, whatever the text says. Relations have numbers that follow from
//! what they are, and of orders that cost the same the first is taken, so that one plan comes of all orders of FROM.
//! Left joins whose columns other joins or filters read, full joins, aggregations and everything else are borders: what
//! is below one is ordered by itself.

mod bounds;
mod cardinality;
mod columns;
mod cost;
mod enumerate;
mod estimate;
mod graph;
mod joined_keys;
mod prices;
mod reasons;
mod rebuild;
mod rel_set;
mod safe;
mod sampled;
mod selectivity;
#[cfg(test)]
mod tests;
mod tree;

pub(super) use estimate::{Estimate, estimate};
pub(super) use joined_keys::wants_unique;
pub(super) use rel_set::RelSet;
pub(super) use safe::{cannot_fail, rows_cannot_fail};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{JoinType, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use cost::{Costs, Part};
use graph::Graph;
use prices::JoinPrices;
use reasons::{AsWritten, WhyAsWritten};
use tree::{LeftJoins, Tree, is_inside};

use super::decisions::wanted_of;
use crate::settings::{SessionSettings, Use};
use crate::statistics::error::EstimateError;

/// Orders joins by their expected rows.
#[derive(Debug)]
pub(super) struct OrderJoins;

impl OptimizerRule for OrderJoins {
    fn name(&self) -> &str {
        "order_joins"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> QueryResult<Transformed<LogicalPlan>> {
        let options = config.options();
        let settings = options.extensions.get::<SessionSettings>();
        match settings {
            Some(settings) if settings.join_order != Use::Off => {
                settings.join_sides.lock().clear();
                ordered(plan, settings)
            }
            _ => Ok(Transformed::no(plan)),
        }
    }
}

/// A plan with all of its trees of joins ordered.
fn ordered(plan: LogicalPlan, settings: &SessionSettings) -> QueryResult<Transformed<LogicalPlan>> {
    let (left_joins, why_apart) = left_joins(&plan);
    if !is_inside(&plan, left_joins) {
        return below(plan, settings);
    }
    if let Some(
        apart @ AsWritten {
            why: WhyAsWritten::ReadsAdded(_),
            ..
        },
    ) = &why_apart
    {
        note(apart, settings);
    }
    // What is joined first: its own joins are ordered by themselves.
    let plan = leaves(plan, left_joins, settings)?;
    let graph = match Graph::of(&plan.data, left_joins) {
        Ok(graph) => graph,
        Err(as_written) => {
            note(&as_written, settings);
            return Ok(plan);
        }
    };
    let Some(order) = choose(&graph, settings) else {
        return Ok(plan);
    };
    let rebuilt = rebuild::rebuild(&graph, &order, &plan.data)?;
    Ok(Transformed::yes(rebuilt))
}

fn note(as_written: &AsWritten, settings: &SessionSettings) {
    if let Some(notes) = wanted_of(settings)
        && let Some(line) = as_written.describe()
    {
        notes.note(line);
    }
}

/// Whether a tree's left joins can be moved among its other joins, or why not: nothing else may read what they add.
fn left_joins(plan: &LogicalPlan) -> (LeftJoins, Option<AsWritten>) {
    if !is_any_left(plan) {
        return (LeftJoins::Apart, None);
    }
    match Graph::of(plan, LeftJoins::Inside) {
        Ok(_) => (LeftJoins::Inside, None),
        Err(why) => (LeftJoins::Apart, Some(why)),
    }
}

/// Whether there is a left join in a tree.
fn is_any_left(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Left => true,
        LogicalPlan::Join(join) => is_any_left(&join.left) || is_any_left(&join.right),
        LogicalPlan::Filter(filter) => is_any_left(&filter.input),
        LogicalPlan::Projection(projection) => is_any_left(&projection.input),
        _ => false,
    }
}

/// The parts of a tree of joins ordered by themselves.
fn leaves(
    plan: LogicalPlan,
    left_joins: LeftJoins,
    settings: &SessionSettings,
) -> QueryResult<Transformed<LogicalPlan>> {
    if !is_inside(&plan, left_joins) {
        return ordered(plan, settings);
    }
    let is_inner = !matches!(&plan, LogicalPlan::Join(join) if join.join_type != JoinType::Inner);
    let mut is_first = true;
    plan.map_subqueries(|subquery| ordered(subquery, settings))?
        .transform_sibling(|plan| {
            plan.map_children(|child| {
                // The right side of a semi or left join is one part, whatever it is.
                let inside = std::mem::take(&mut is_first) || is_inner;
                match inside {
                    true => leaves(child, left_joins, settings),
                    false => ordered(child, settings),
                }
            })
        })
}

/// What a tree of joins is expected to cost, in rows that go from one operator to the next, and to give.
pub(crate) struct JoinWork {
    pub cost: f64,
    pub rows: f64,
    /// Whether one star pipeline could give the rows.
    pub is_star: bool,
}

impl From<Part> for JoinWork {
    fn from(part: Part) -> Self {
        Self {
            cost: part.cost,
            rows: part.rows,
            is_star: part.is_star(),
        }
    }
}

/// The work of a tree of joins in the order it has, without reading its parts.
pub(crate) fn join_work(plan: &LogicalPlan) -> Option<JoinWork> {
    let graph = Graph::of(plan, left_joins(plan).0).ok()?;
    let prices = JoinPrices::default();
    let part =
        Costs::new(&graph, u64::MAX, prices, EstimateError::default(), &[]).of(&graph.order)?;
    Some(part.into())
}

/// The same in the order that it will have.
pub(super) fn ordered_join_work(
    plan: &LogicalPlan,
    settings: &SessionSettings,
) -> Option<JoinWork> {
    let graph = Graph::of(plan, left_joins(plan).0).ok()?;
    let prices = settings.join_ns().map(|now| JoinPrices::of(&now));
    let prices = prices.unwrap_or_default();
    let costs = Costs::new(&graph, u64::MAX, prices, settings.estimate_error, &[]);
    let part = match settings.join_order {
        Use::Off => costs.of(&graph.order),
        _ => enumerate::cheapest(&graph, &costs),
    };
    Some(part?.into())
}

fn below(plan: LogicalPlan, settings: &SessionSettings) -> QueryResult<Transformed<LogicalPlan>> {
    plan.map_subqueries(|subquery| ordered(subquery, settings))?
        .transform_sibling(|plan| plan.map_children(|child| ordered(child, settings)))
}

/// The order to take: the cheapest, whatever the text says. Remembers the sides of its joins.
fn choose(graph: &Graph, settings: &SessionSettings) -> Option<Tree> {
    let bytes = settings.operator_bytes_max();
    // Estimates that are wrong on purpose stay wrong.
    let past = match settings.estimate_error == EstimateError::default() {
        true => settings.past_runs.of(settings.template),
        false => Vec::new(),
    };
    let prices = settings.join_ns().map(|now| JoinPrices::of(&now));
    let prices = prices.unwrap_or_default();
    let costs = Costs::new(graph, bytes, prices, settings.estimate_error, &past);
    let text = costs.of(&graph.order)?;
    let best = enumerate::cheapest(graph, &costs)?;
    // Where semi joins leave no order that was looked at.
    let is_whole = best.tree.relations() == graph.all();
    let chosen = if is_whole {
        best.tree
    } else {
        text.tree.clone()
    };
    if chosen != text.tree {
        let share = best.cost / text.cost.max(1.0) * 100.0;
        let reason = format!("has about {share:.0} % of the work of the order in the text");
        settings.note_join_order(graph.describe(&chosen), reason);
    } else if settings.decisions.are_wanted() && graph.all().len() > 2 {
        let order = graph.describe(&chosen);
        // Rules run several times: it may be one that was found before.
        let orders = settings.join_orders.lock();
        if orders.iter().all(|(known, _)| *known != order) {
            let note = format!("{order}: the order of the text is the cheapest");
            settings.decisions.note(note);
        }
    }
    costs.sides(&chosen, &mut settings.join_sides.lock());
    Some(chosen)
}
