//! The optimizer rule that replaces star-shaped parts of a physical plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::accumulate::{Aggregates, Keys};
use super::declined::Declined;
use super::exec::StarPipelineExec;
use super::forecast::pass_through;
use super::narrow::{Computation, Narrow};
use super::prepare::{Output, Star};
use super::shape::{Shape, groups_by_bytes};
use super::tallies::TallyPlan;
use crate::operators::{aggregate_name, join_name};
use crate::scan::{TableScan, Taker};
use crate::settings::SessionSettings;
use crate::statistics::rows::expected;
use crate::statistics::sizes::may_be_built;

/// Scans of smaller tables are not worth another operator.
const HINTED_ROWS_MIN: usize = 1 << 16;
/// Where filters that are not tested by the star keep a smaller share of rows, keys are hardly ever tested: that would
/// decode whole chunks for a few rows.
const HINTED_SHARE_MIN: f64 = 1.0 / 8.0;

/// Aggregates whose group accumulators this operator drives.
const FUNCTIONS: &[&str] = &["sum", "count", "min", "max", "avg"];

/// Replaces stars by [`StarPipelineExec`]; runs after DataFusion's own rules, and after the rule that chooses how
/// scans find their rows: a scan that an index covers is left to DataFusion.
#[derive(Debug, Default)]
pub(crate) struct FuseStarPipelines;

impl PhysicalOptimizerRule for FuseStarPipelines {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<SessionSettings>();
        let Some(settings) = settings.filter(|settings| settings.star_pipelines) else {
            return Ok(plan);
        };
        plan.transform_down(|node| {
            // Its parts run many times and share a table that a star would not find.
            if node.is::<RecursiveQueryExec>() {
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            let fused = if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
                fuse_aggregate(&node, aggregate, settings)
            } else if node.downcast_ref::<HashJoinExec>().is_some() {
                fuse_rows(&node, settings)
            } else {
                return Ok(Transformed::no(node));
            };
            match fused {
                Ok(star) => Ok(Transformed::yes(star)),
                Err(Declined(reason)) => {
                    if settings.not_stars.are_wanted()
                        && let Some(candidate) = candidate(&node)
                    {
                        settings.not_stars.note(format!("{candidate}: {reason}"));
                    }
                    match node.is::<HashJoinExec>() {
                        true => fuse_hinted_scans(node, settings),
                        false => Ok(Transformed::no(node)),
                    }
                }
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "fuse_star_pipelines"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A join or aggregation as EXPLAIN names it where it is not part of a star.
fn candidate(node: &Arc<dyn ExecutionPlan>) -> Option<String> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return Some(join_name(join));
    }
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    let begins = matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::Single
    );
    begins.then(|| aggregate_name(aggregate))
}

/// Stars without look-ups in place of the scans that a join tells which rows it needs: they test that before they
/// decode other columns.
fn fuse_hinted_scans(
    join: Arc<dyn ExecutionPlan>,
    settings: &SessionSettings,
) -> QueryResult<Transformed<Arc<dyn ExecutionPlan>>> {
    join.map_children(|child| {
        if hands_on(&child) {
            return fuse_hinted_scans(child, settings);
        }
        let star = match is_hinted(&child) {
            true => fuse_rows(&child, settings).ok(),
            false => None,
        };
        Ok(match star {
            Some(star) => Transformed::yes(star),
            None => Transformed::no(child),
        })
    })
}

/// Whether an operator gives one row for each row of its inputs, made of that row alone: scans below it may drop rows
/// that a join above does not need.
fn hands_on(plan: &Arc<dyn ExecutionPlan>) -> bool {
    pass_through(plan).is_some() || plan.is::<UnionExec>() || plan.is::<ProjectionExec>()
}

/// Whether a plan is the scan of a large table that learns what joins need while the query runs.
fn is_hinted(plan: &Arc<dyn ExecutionPlan>) -> bool {
    TableScan::of(plan).is_some_and(|scan| {
        let rows = scan.table.statistics.num_rows.get_value();
        rows.is_some_and(|rows| *rows >= HINTED_ROWS_MIN)
            && scan.waits_for_keys()
            && scan.share_left_by_filters() >= HINTED_SHARE_MIN
    })
}

/// A star that gives the rows of a tree of joins.
fn fuse_rows(
    plan: &Arc<dyn ExecutionPlan>,
    settings: &SessionSettings,
) -> Result<Arc<dyn ExecutionPlan>, Declined> {
    let shape = Shape::recognise(plan)?;
    let exprs: Vec<_> = shape
        .outputs
        .iter()
        .chain(&shape.filters)
        .cloned()
        .collect();
    let narrow = shape.narrow(&exprs)?;
    let (outputs, filters) = narrow.exprs.split_at(shape.outputs.len());
    let (outputs, filters) = (outputs.to_vec(), filters.to_vec());
    replace(
        plan,
        Star {
            scan: shape.scan,
            joins: shape.joins,
            narrow,
            filters,
            output: Output::Rows(outputs),
        },
        settings,
    )
}

/// A star that gives the groups of an aggregation, or their states.
fn fuse_aggregate(
    plan: &Arc<dyn ExecutionPlan>,
    aggregate: &AggregateExec,
    settings: &SessionSettings,
) -> Result<Arc<dyn ExecutionPlan>, Declined> {
    let finish = check_aggregate(aggregate)?;
    let shape = Shape::recognise(aggregate.input())?;
    if shape.joins.is_empty() && !aggregate.dynamic_expressions_produced().is_empty() {
        return Err(Declined::because(
            "the extremes found so far skip row groups in DataFusion's aggregation",
        ));
    }
    if shape.joins.is_empty() && shape.scan.is_covered() {
        return Err(Declined::because("an index covers what is aggregated"));
    }
    let keys = group_keys(&shape, aggregate)?;
    let rewrite = |expr: &Arc<dyn PhysicalExpr>| shape.rewrite(expr);
    let functions = aggregate.aggr_expr().iter();
    let arguments = functions
        .map(|function| function.expressions().iter().map(rewrite).collect())
        .collect::<Result<Vec<Vec<_>>, _>>()?;
    let conditions = aggregate.filter_expr().iter();
    let conditions = conditions
        .map(|condition| condition.as_ref().map(rewrite).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    let wide = WideAggregates {
        arguments,
        conditions,
        keys,
    };
    let functions = aggregate.aggr_expr().to_vec();
    let (narrow, mut aggregates, filters) = narrow_aggregates(&shape, functions, wide, finish)?;
    aggregates.hardly_groups = hardly_groups(plan, aggregate)?;
    replace(
        plan,
        Star {
            scan: shape.scan,
            joins: shape.joins,
            narrow,
            filters,
            output: Output::Groups(Arc::new(aggregates)),
        },
        settings,
    )
}

/// Whether most rows are expected to have a group of their own.
fn hardly_groups(plan: &Arc<dyn ExecutionPlan>, aggregate: &AggregateExec) -> QueryResult<bool> {
    let (groups, rows) = (expected(plan)?, expected(aggregate.input())?);
    let counts = groups.num_rows.get_value().zip(rows.num_rows.get_value());
    Ok(counts.is_some_and(|(groups, rows)| groups.saturating_mul(4) >= rows.saturating_mul(3)))
}

/// Refuses aggregations that this operator cannot do. Whether it gives groups, not their states.
fn check_aggregate(aggregate: &AggregateExec) -> Result<bool, Declined> {
    let finish = match aggregate.mode() {
        AggregateMode::Partial => false,
        AggregateMode::Single => true,
        mode => return Err(Declined(format!("{mode:?} aggregation has no scan below"))),
    };
    if aggregate.limit_options().is_some() || aggregate.group_expr().has_grouping_set() {
        return Err(Declined::because(
            "the aggregation has a limit or grouping sets",
        ));
    }
    for function in aggregate.aggr_expr() {
        let known = FUNCTIONS.contains(&function.fun().name());
        let plain = !function.is_distinct() && function.order_bys().is_empty();
        if !known || !plain || !function.groups_accumulator_supported() {
            return Err(Declined(format!(
                "{} stays with DataFusion",
                function.name()
            )));
        }
    }
    Ok(finish)
}

/// What an aggregation computes, over all columns of a star.
struct WideAggregates {
    arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    conditions: Vec<Option<Arc<dyn PhysicalExpr>>>,
    keys: WideKeys,
}

enum WideKeys {
    Builds(Vec<(usize, Arc<dyn PhysicalExpr>)>),
    /// Nothing if there are none.
    Values(Vec<Arc<dyn PhysicalExpr>>),
}

/// Columns that are read, and aggregates and filters over those columns alone.
type Narrowed = (Narrow, Aggregates, Vec<Computation>);

/// The columns that aggregates, grouping keys and the star's filters read, and all of these over those columns alone.
fn narrow_aggregates(
    shape: &Shape,
    functions: Vec<Arc<AggregateFunctionExpr>>,
    wide: WideAggregates,
    finish: bool,
) -> Result<Narrowed, Declined> {
    let values = match &wide.keys {
        WideKeys::Values(values) => values.as_slice(),
        WideKeys::Builds(_) => &[],
    };
    let exprs = wide.arguments.iter().flatten();
    let exprs = exprs.chain(wide.conditions.iter().flatten()).chain(values);
    let exprs: Vec<_> = exprs.chain(&shape.filters).cloned().collect();
    let narrow = shape.narrow(&exprs)?;
    let mut narrowed = narrow.exprs.iter().cloned();
    let arguments = wide.arguments.iter();
    let arguments: Vec<_> = arguments
        .map(|each| narrowed.by_ref().take(each.len()).collect())
        .collect();
    let conditions = wide.conditions.iter();
    let conditions: Vec<_> = conditions
        .map(|each| each.as_ref().and_then(|_| narrowed.next()))
        .collect();
    let keys = match wide.keys {
        WideKeys::Builds(keys) => Keys::Builds(keys),
        WideKeys::Values(values) if values.is_empty() => Keys::Nothing,
        WideKeys::Values(values) => Keys::Values(narrowed.by_ref().take(values.len()).collect()),
    };
    let filters = narrowed.collect();
    let aggregates = Aggregates {
        tallies: Arc::new(TallyPlan::new(&functions, &arguments, &conditions)?),
        functions,
        arguments,
        conditions,
        finish,
        hardly_groups: false,
        keys,
    };
    Ok((narrow, aggregates, filters))
}

/// What rows are grouped by: numbers of build rows where these determine all grouping columns.
fn group_keys(shape: &Shape, aggregate: &AggregateExec) -> Result<WideKeys, Declined> {
    let exprs = aggregate.group_expr().expr().iter();
    let wide = exprs
        .map(|(expr, _)| shape.rewrite(expr))
        .collect::<Result<Vec<_>, _>>()?;
    let over_builds = wide.iter().map(|expr| {
        let (join, expr) = shape.over_build(expr)?;
        let data_type = expr.data_type(&shape.joins[join].build.schema()).ok()?;
        groups_by_bytes(&data_type).then_some((join, expr))
    });
    Ok(match over_builds.collect::<Option<Vec<_>>>() {
        Some(keys) if !keys.is_empty() => WideKeys::Builds(keys),
        _ => WideKeys::Values(wide),
    })
}

/// The star with a way to its rows that counts its look-ups, and gives the columns that they need. Without look-ups
/// the way that was chosen for the scan is kept: where an index covers it, there is no star.
fn with_access(star: Star) -> Star {
    let keys: BTreeSet<usize> = star.joins.iter().map(|join| join.probe_key).collect();
    let taker = Taker::Star {
        key_count: keys.len(),
    };
    let chosen = match keys.is_empty() {
        true => None,
        false => star.scan.with_access(taker),
    };
    match chosen {
        Some(scan) => Star { scan, ..star },
        None => star,
    }
}

/// Refuses build sides that are expected to take too much of what operators may hold, in bytes: they are joined by
/// hash, which spills. Where only keys are asked for there is a bitmap.
fn check_memory(star: &Star, operator_bytes: u64) -> Result<(), Declined> {
    for (idx, join) in star.joins.iter().enumerate() {
        if star.attaches(idx) && !may_be_built(&join.build, operator_bytes)? {
            return Err(Declined(format!(
                "the build side of {} would take too much of {operator_bytes} bytes",
                join.build_key
            )));
        }
    }
    Ok(())
}

/// The operator in place of `plan`, with the same partitioning where others rely on it.
fn replace(
    plan: &Arc<dyn ExecutionPlan>,
    star: Star,
    settings: &SessionSettings,
) -> Result<Arc<dyn ExecutionPlan>, Declined> {
    let operator_bytes = settings.operator_bytes_max();
    check_memory(&star, operator_bytes)?;
    if settings
        .past_runs
        .is_no_star(settings.template, &star.signature())
    {
        return Err(Declined::because(
            "the data of an earlier run could not be looked up",
        ));
    }
    if plan.output_ordering().is_some() {
        return Err(Declined::because("the plan keeps an order"));
    }
    let original = reset_plan_states(plan.clone())?;
    let star = with_access(star);
    let fused: Arc<dyn ExecutionPlan> = Arc::new(StarPipelineExec::new(Arc::new(star), original));
    match plan.output_partitioning() {
        // No operator above can rely on what was lost in a projection.
        Partitioning::Hash(exprs, _)
            if exprs
                .iter()
                .any(|expr| expr.downcast_ref::<UnKnownColumn>().is_some()) =>
        {
            Ok(fused)
        }
        Partitioning::Hash(exprs, count) => {
            let partitioning = Partitioning::Hash(exprs.clone(), *count);
            Ok(Arc::new(RepartitionExec::try_new(fused, partitioning)?))
        }
        Partitioning::UnknownPartitioning(_) | Partitioning::RoundRobinBatch(_) => Ok(fused),
        other => Err(Declined(format!("the plan is partitioned by {other}"))),
    }
}
