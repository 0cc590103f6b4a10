//! What is a key of a grouped join.
//!
//! A key of one side of a join determines that side's columns, in as many rows as it has matches. The engine takes it
//! for a key of the whole once the join is grouped, and drops sort and group keys above
//! (`docs/upstream/keys-of-grouped-joins.md`).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{Dependency, FunctionalDependence, FunctionalDependencies};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Aggregate, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::decisions::{all_shown, wanted};

/// The engine's rules that drop something because of a key.
pub(super) const BELIEVERS: [&str; 4] = [
    "replace_distinct_aggregate",
    "eliminate_join",
    "eliminate_duplicated_expr",
    "optimize_projections",
];

/// Makes the group keys of every such aggregation its key, and no fewer; before each of [`BELIEVERS`], since
/// whatever makes a node again finds the wrong key again.
#[derive(Debug)]
pub(super) struct SoundKeys;

impl OptimizerRule for SoundKeys {
    fn name(&self) -> &str {
        "sound_keys"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> QueryResult<Transformed<LogicalPlan>> {
        if !has_doubtful(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let options = config.options();
        let notes = wanted(&options);
        let sound = plan.transform_up_with_subqueries(|plan| match plan.recompute_schema()? {
            LogicalPlan::Aggregate(aggregate) if is_doubtful(&aggregate) => {
                if let Some(notes) = notes {
                    notes.note(why_sound(&aggregate));
                }
                with_group_key(aggregate).map(Transformed::yes)
            }
            other => Ok(Transformed::yes(other)),
        });
        sound.data().map(Transformed::yes)
    }
}

fn has_doubtful(plan: &LogicalPlan) -> QueryResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Aggregate(aggregate) if is_doubtful(aggregate));
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// Whether an aggregation has fewer columns than its group keys for a key, because of one whose rows repeat below.
fn is_doubtful(aggregate: &Aggregate) -> bool {
    let below = aggregate.input.schema().functional_dependencies();
    let keys = aggregate.schema.functional_dependencies();
    below.iter().any(|key| key.mode == Dependency::Multi)
        && keys
            .iter()
            .any(|key| key.source_indices.len() < aggregate.group_expr.len())
}

/// Why the keys stay, for EXPLAIN VERBOSE.
fn why_sound(aggregate: &Aggregate) -> String {
    format!(
        "all group keys ({}) together are the key of their groups: some of them are a key of one side of a join, whose \
         rows it repeats",
        all_shown(&aggregate.group_expr)
    )
}

fn with_group_key(mut aggregate: Aggregate) -> QueryResult<LogicalPlan> {
    let fields = aggregate.schema.fields();
    let keys = 0..aggregate.group_expr.len();
    let nullable = keys.clone().any(|key| fields[key].is_nullable());
    let key = FunctionalDependence::new(keys.collect(), (0..fields.len()).collect(), nullable)
        .with_mode(Dependency::Single);
    let keys = FunctionalDependencies::new(vec![key]);
    let schema = Arc::unwrap_or_clone(aggregate.schema);
    aggregate.schema = Arc::new(schema.with_functional_dependencies(keys)?);
    Ok(LogicalPlan::Aggregate(aggregate))
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn groups_of_a_grouped_join_keep_their_keys() {
        let query = "SELECT k, count(*) FROM (SELECT DISTINCT t.n, s.k FROM t JOIN (SELECT DISTINCT k FROM s) s \
            ON true) x GROUP BY k, n";
        before_after("optimize_projections", &[query]).is(
            "
            Projection: x.k, count(Int64(1)) AS count(*)
              Aggregate: groupBy=[[x.k, x.n]], aggr=[[count(Int64(1))]]
                SubqueryAlias: x
                  Aggregate: groupBy=[[t.n, s.k]], aggr=[[]]
                    Projection: t.n, s.k
                      Cross Join:
                        SubqueryAlias: s
                          Aggregate: groupBy=[[s.k]], aggr=[[]]
                            Projection: s.k
                              TableScan: s
                        Filter: Boolean(true)
                          TableScan: t
            ",
            "
            Projection: x.k, count(Int64(1)) AS count(*)
              Aggregate: groupBy=[[x.k, x.n]], aggr=[[count(Int64(1))]]
                SubqueryAlias: x
                  Aggregate: groupBy=[[t.n, s.k]], aggr=[[]]
                    Projection: t.n, s.k
                      Cross Join:
                        SubqueryAlias: s
                          Aggregate: groupBy=[[s.k]], aggr=[[]]
                            TableScan: s projection=[k]
                        Filter: Boolean(true)
                          TableScan: t projection=[n]
            ",
        );
    }
}
