//! Pushes filters of a physical plan towards the scans, by column index.
//!
//! Replaces DataFusion's rule of the same purpose, which finds a filter's column in a child by *name*: with equal
//! names on both sides of a join the filter ends up on the wrong table's column (`docs/upstream/filter-pushdown.md`).
//! What a node itself wants to push (a filter its predicate, a join or top-k what becomes known while the query
//! runs) and what a scan takes over is still asked of the node.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase, PushedDown,
    PushedDownPredicate,
};

use super::routes::routes;
use super::with_like_inputs;

/// Pushes filters down; before (`Pre`) or after (`Post`, for filters that become known at run time) the plan is
/// laid out for execution.
#[derive(Debug)]
pub(super) struct PushFilters {
    phase: FilterPushdownPhase,
}

impl PushFilters {
    pub fn new(phase: FilterPushdownPhase) -> Self {
        Self { phase }
    }
}

impl PhysicalOptimizerRule for PushFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let descent = Descent {
            phase: self.phase,
            config,
        };
        Ok(descent.push(plan, &[])?.0)
    }

    fn name(&self) -> &str {
        "push_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

type Filter = Arc<dyn PhysicalExpr>;

/// What takes a child's place, and which filters its rows meet.
struct PushedChild {
    child: Arc<dyn ExecutionPlan>,
    /// The node's own filters.
    own: Vec<PushedDownPredicate>,
    /// Those from above the node.
    routed: Vec<PushedDown>,
}

struct Descent<'a> {
    phase: FilterPushdownPhase,
    config: &'a ConfigOptions,
}

impl Descent<'_> {
    /// Pushes filters over the output of a node into it. Gives the node that takes its place, and for each filter
    /// whether every row of that node's output meets it.
    fn push(
        &self,
        node: Arc<dyn ExecutionPlan>,
        filters: &[Filter],
    ) -> QueryResult<(Arc<dyn ExecutionPlan>, Vec<PushedDown>)> {
        if node.children().is_empty() {
            return self.push_into_leaf(node, filters);
        }
        let own = node.gather_filters_for_pushdown(self.phase, Vec::new(), self.config)?;
        let routes = routes(&node);
        let mut met = vec![Vec::new(); filters.len()];
        let mut own_met = Vec::new();
        let mut children = Vec::new();
        for (idx, (child, own)) in node
            .children()
            .into_iter()
            .zip(own.self_filters())
            .enumerate()
        {
            let columns = routes.as_ref().and_then(|routes| routes[idx].as_ref());
            let routed: Vec<Option<Filter>> = filters
                .iter()
                .map(|filter| columns.map_or(Ok(None), |columns| columns.translate(filter)))
                .collect::<QueryResult<_>>()?;
            let pushed = self.push_into_child(child, own, routed)?;
            own_met.push(pushed.own);
            for (met, child_met) in met.iter_mut().zip(pushed.routed) {
                met.push(child_met);
            }
            children.push(pushed.child);
        }
        let node = match self.phase {
            FilterPushdownPhase::Pre => replace_children_if_necessary(node, children)?,
            // What scans learn while they run changes nothing that is known before.
            FilterPushdownPhase::Post => with_like_inputs(node, children)?,
        };
        let all = node.name() == "UnionExec";
        let met = met.iter().map(|met| combine(met, all)).collect();
        let results = ChildPushdownResult {
            parent_filters: Vec::new(),
            self_filters: own_met,
        };
        let handled = node.handle_child_pushdown_result(self.phase, results, self.config)?;
        Ok((handled.updated_node.unwrap_or(node), met))
    }

    /// Pushes a node's own filters, and those routed through it, into its child.
    fn push_into_child(
        &self,
        child: &Arc<dyn ExecutionPlan>,
        own: Vec<Filter>,
        routed: Vec<Option<Filter>>,
    ) -> QueryResult<PushedChild> {
        let sent: Vec<Filter> = own
            .iter()
            .filter(|filter| !is_volatile(filter))
            .chain(routed.iter().flatten())
            .cloned()
            .collect();
        let (child, met) = self.push(child.clone(), &sent)?;
        let mut met = met.into_iter();
        let mut next = |sent: bool| {
            let answer = if sent { met.next() } else { None };
            answer.unwrap_or(PushedDown::No)
        };
        let own = own
            .into_iter()
            .map(|filter| next(!is_volatile(&filter)).wrap_expression(filter))
            .collect();
        let routed = routed.iter().map(|filter| next(filter.is_some())).collect();
        Ok(PushedChild { child, own, routed })
    }

    fn push_into_leaf(
        &self,
        node: Arc<dyn ExecutionPlan>,
        filters: &[Filter],
    ) -> QueryResult<(Arc<dyn ExecutionPlan>, Vec<PushedDown>)> {
        // A filter is for the rows that a limit leaves.
        if filters.is_empty() || node.fetch().is_some() {
            return Ok((node, vec![PushedDown::No; filters.len()]));
        }
        let offered = filters.iter().map(|filter| ChildFilterPushdownResult {
            filter: filter.clone(),
            child_results: Vec::new(),
        });
        let offered = ChildPushdownResult {
            parent_filters: offered.collect(),
            self_filters: Vec::new(),
        };
        let handled = node.handle_child_pushdown_result(self.phase, offered, self.config)?;
        let mut met = handled.filters;
        met.resize(filters.len(), PushedDown::No);
        Ok((handled.updated_node.unwrap_or(node), met))
    }
}

/// Whether a filter is met by a node's output if these children meet it. A union's rows come from all children;
/// a join's meet what either side meets.
fn combine(met: &[PushedDown], all: bool) -> PushedDown {
    let is_met = |met: &PushedDown| matches!(met, PushedDown::Yes);
    let met = if all {
        met.iter().all(is_met)
    } else {
        met.iter().any(is_met)
    };
    if met { PushedDown::Yes } else { PushedDown::No }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_scan_takes_a_filter() {
        let query = "SELECT n FROM t WHERE v = 3";
        before_after("push_filters", &[query]).is(
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[n@0 as n]
                FilterExec: v@1 = 3
                  DataSourceExec: HotshelfScan: table=t, columns=[n, v]
            ",
            "
            OutputRequirementExec: order_by=[], dist_by=Unspecified
              ProjectionExec: expr=[n@0 as n]
                DataSourceExec: HotshelfScan: table=t, columns=[n, v], filter=v@1 = 3
            ",
        );
    }
}
