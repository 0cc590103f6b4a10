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
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase, PushedDown,
    PushedDownPredicate,
};
use datafusion::physical_plan::joins::HashJoinExec;

use super::decisions::{shown, wanted};
use super::routes::routes;
use super::with_like_inputs;
use crate::operators::join_name;
use crate::scan::TableScan;
use crate::settings::Notes;

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
            notes: wanted(config),
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

/// A filter on its way.
#[derive(Clone)]
struct Sent {
    filter: Filter,
    /// The joins that it has passed, where that is noted.
    passed: Vec<String>,
}

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
    /// For EXPLAIN VERBOSE, if they are wanted.
    notes: Option<&'a Notes>,
}

impl Descent<'_> {
    /// Pushes filters over the output of a node into it. Gives the node that takes its place, and for each filter
    /// whether every row of that node's output meets it.
    fn push(
        &self,
        node: Arc<dyn ExecutionPlan>,
        filters: &[Sent],
    ) -> QueryResult<(Arc<dyn ExecutionPlan>, Vec<PushedDown>)> {
        if node.children().is_empty() {
            return self.push_into_leaf(node, filters);
        }
        let own = node.gather_filters_for_pushdown(self.phase, Vec::new(), self.config)?;
        let routes = routes(&node);
        let mut met = vec![Vec::new(); filters.len()];
        let mut is_sent = vec![false; filters.len()];
        let mut own_met = Vec::new();
        let mut children = Vec::new();
        for (idx, (child, own)) in node
            .children()
            .into_iter()
            .zip(own.self_filters())
            .enumerate()
        {
            let columns = routes.as_ref().and_then(|routes| routes[idx].as_ref());
            let routed = filters.iter().map(|sent| {
                let below = columns.map(|columns| columns.translate(&sent.filter));
                let below = below.transpose()?.flatten();
                Ok(below.map(|filter| self.through(&node, sent, filter)))
            });
            let routed = routed.collect::<QueryResult<Vec<Option<Sent>>>>()?;
            for (is_sent, routed) in is_sent.iter_mut().zip(&routed) {
                *is_sent |= routed.is_some();
            }
            let pushed = self.push_into_child(child, own, routed)?;
            own_met.push(pushed.own);
            for (met, child_met) in met.iter_mut().zip(pushed.routed) {
                met.push(child_met);
            }
            children.push(pushed.child);
        }
        self.note_stopped(&node, filters, &is_sent);
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
        routed: Vec<Option<Sent>>,
    ) -> QueryResult<PushedChild> {
        let sent = own.iter().filter(|filter| !is_volatile(filter));
        let sent = sent.map(|filter| Sent {
            filter: filter.clone(),
            passed: Vec::new(),
        });
        let sent: Vec<Sent> = sent.chain(routed.iter().flatten().cloned()).collect();
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
        let routed = routed.iter().map(|sent| next(sent.is_some())).collect();
        Ok(PushedChild { child, own, routed })
    }

    fn push_into_leaf(
        &self,
        node: Arc<dyn ExecutionPlan>,
        filters: &[Sent],
    ) -> QueryResult<(Arc<dyn ExecutionPlan>, Vec<PushedDown>)> {
        // A filter is for the rows that a limit leaves.
        if filters.is_empty() || node.fetch().is_some() {
            return Ok((node, vec![PushedDown::No; filters.len()]));
        }
        let offered = filters.iter().map(|sent| ChildFilterPushdownResult {
            filter: sent.filter.clone(),
            child_results: Vec::new(),
        });
        let offered = ChildPushdownResult {
            parent_filters: offered.collect(),
            self_filters: Vec::new(),
        };
        let handled = node.handle_child_pushdown_result(self.phase, offered, self.config)?;
        let mut met = handled.filters;
        met.resize(filters.len(), PushedDown::No);
        let is_changed = handled.updated_node.is_some();
        let node = handled.updated_node.unwrap_or(node);
        self.note_arrived(&node, is_changed, filters, &met);
        Ok((node, met))
    }

    /// A filter below a node, where it is this one.
    fn through(&self, node: &Arc<dyn ExecutionPlan>, sent: &Sent, filter: Filter) -> Sent {
        let mut passed = sent.passed.clone();
        if self.notes.is_some() {
            passed.extend(node.downcast_ref::<HashJoinExec>().map(join_name));
        }
        Sent { filter, passed }
    }

    /// Notes the filters that stay above a join or a limit.
    fn note_stopped(&self, node: &Arc<dyn ExecutionPlan>, filters: &[Sent], is_sent: &[bool]) {
        let Some(notes) = self.notes else {
            return;
        };
        let join = node.downcast_ref::<HashJoinExec>();
        let why = match (node.fetch(), join) {
            (Some(fetch), _) => format!("it is for the {fetch} rows that a limit leaves"),
            (None, Some(join)) => {
                let join = join_name(join);
                format!("no side of the {join} has all of its columns and keeps its rows")
            }
            (None, None) => return,
        };
        let stopped = filters
            .iter()
            .zip(is_sent)
            .filter(|(_, is_sent)| !**is_sent);
        stopped.for_each(|(sent, _)| {
            let filter = described(&sent.filter);
            let why = match is_volatile(&sent.filter) {
                true => "it differs each time",
                false => why.as_str(),
            };
            notes.note(format!("{filter} goes no further towards a scan, as {why}"));
        });
    }

    /// Notes the filters that have come to a scan through joins, and those that it does not take over.
    fn note_arrived(
        &self,
        node: &Arc<dyn ExecutionPlan>,
        is_changed: bool,
        filters: &[Sent],
        met: &[PushedDown],
    ) {
        let (Some(notes), Some(scan)) = (self.notes, TableScan::of(node)) else {
            return;
        };
        let table = &scan.table.name;
        for (sent, met) in filters.iter().zip(met) {
            let filter = described(&sent.filter);
            let is_taken = match self.phase {
                FilterPushdownPhase::Pre => matches!(met, PushedDown::Yes),
                // All rows that remain are tested above in any case.
                FilterPushdownPhase::Post => is_changed,
            };
            if is_taken && !sent.passed.is_empty() {
                let joins = sent.passed.join(" and the ");
                notes.note(format!(
                    "{filter} passes the {joins} to the scan of {table}"
                ));
            } else if !is_taken && matches!(self.phase, FilterPushdownPhase::Pre) {
                notes.note(format!(
                    "{filter} is tested above the scan of {table}, which cannot test it exactly as the engine does"
                ));
            }
        }
    }
}

/// A filter as EXPLAIN VERBOSE names it.
fn described(filter: &Filter) -> String {
    if !filter.is::<DynamicFilterPhysicalExpr>() {
        return shown(filter);
    }
    let columns = collect_columns(filter);
    let mut names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    names.sort_unstable();
    format!(
        "what is learned of {} while the query runs",
        names.join(", ")
    )
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
