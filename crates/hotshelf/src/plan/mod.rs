//! Plan rules: which of DataFusion's rules run, which of ours replace or precede them.
//!
//! A rule that works around a fault of DataFusion says so; `docs/upstream/` has the minimal case of each.

mod aggregated_subqueries;
mod asked_groups;
#[cfg(test)]
mod before_after;
mod carried_keys;
mod cast_keys;
mod choose_access;
mod chosen_sides;
mod correlated;
mod decisions;
mod decorrelate;
mod early_groups;
mod early_semi_joins;
mod exchanges;
mod expressions;
mod grouping_sets;
mod in_lists;
mod join_order;
mod keep_filters;
mod keep_join_order;
mod keep_limits;
mod keyless_joins;
mod late_columns;
mod late_rows;
mod literal_keys;
mod literals;
mod negations;
mod node_rule;
mod note_left;
mod null_keys;
mod other_values;
mod own_hash_operators;
mod own_sorts;
mod padded_joins;
mod padded_rows;
mod push_filters;
mod queries_in_values;
mod read_first;
mod repeated_keys;
mod rounded;
mod routes;
mod semi_join;
mod shared_builds;
mod short_filters;
mod sound_counts;
mod sound_keys;
mod stored_values;
mod subqueries;
mod values_apart;
mod window_shares;

use std::sync::Arc;

use datafusion::common::SchemaExt;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPhase;

use aggregated_subqueries::ComputeSubqueriesFirst;
use asked_groups::ASKED_GROUPS;
use cast_keys::NameCastKeys;
use choose_access::ChooseAccess;
use chosen_sides::ChosenSides;
pub(crate) use chosen_sides::leaf_count;
use correlated::RefuseUnsoundSubqueries;
use decorrelate::Decorrelate;
use early_groups::EARLY_GROUPS;
use early_semi_joins::EARLY_SEMI_JOINS;
use exchanges::Exchanges;
use expressions::{has_expression, is_subquery, node_has_expression};
use grouping_sets::GroupBeforeSets;
use in_lists::keep_lists_apart;
use join_order::OrderJoins;
pub(crate) use join_order::join_work;
use keep_filters::keep_filters;
use keep_join_order::keep_join_order;
use keep_limits::KeepLimits;
use late_columns::LATE_COLUMNS;
use late_rows::LateRows;
use literal_keys::DROP_LITERAL_KEYS;
use literals::ExactLiterals;
use negations::NEGATIONS;
use node_rule::{AroundRule, EngineRule};
use note_left::NoteLeft;
use null_keys::keep_equalities;
use other_values::OTHER_VALUES;
use own_hash_operators::OwnHashOperators;
use own_sorts::OwnSorts;
use padded_joins::PADDED_JOINS;
use padded_rows::ForgetBelowPaddedRows;
use push_filters::PushFilters;
use queries_in_values::SelectQueriesInValues;
use repeated_keys::NameKeysOnce;
pub(crate) use repeated_keys::without_repeated_keys;
use shared_builds::SharedBuilds;
use short_filters::keep_long_filters;
use sound_counts::SoundCounts;
use sound_keys::{BELIEVERS, SoundKeys};
use stored_values::StoredValuesRule;
use subqueries::SpellOutMembership;
use values_apart::VALUES_APART;
use window_shares::WINDOW_SHARES;

use crate::stored_table::StoredTable;

/// Columns, by index in their table, of which rules have to know whether they have no value twice, as far as that
/// follows from what is known.
pub(crate) fn wants_unique(plan: &LogicalPlan) -> QueryResult<Vec<(StoredTable, usize)>> {
    let mut wanted = join_order::wants_unique(plan)?;
    wanted.extend(late_columns::wants_unique(plan)?);
    Ok(wanted)
}

/// The rules that make a query's meaning explicit: Hotshelf's before the engine's, which settle types.
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let ours: [Arc<dyn AnalyzerRule + Send + Sync>; 8] = [
        Arc::new(NameKeysOnce),
        Arc::new(SelectQueriesInValues),
        Arc::new(NameCastKeys),
        Arc::new(SpellOutMembership),
        Arc::new(ComputeSubqueriesFirst),
        Arc::new(Decorrelate),
        Arc::new(RefuseUnsoundSubqueries),
        Arc::new(ExactLiterals),
    ];
    ours.into_iter().chain(Analyzer::new().rules).collect()
}

/// The rules for logical plans, in the order they run.
pub(crate) fn logical_rules() -> Vec<EngineRule> {
    let rules = Optimizer::new().rules.into_iter();
    let guarded = rules.map(|rule| -> EngineRule {
        let rewrite = match rule.name() {
            "eliminate_cross_join" => keep_join_order,
            "extract_equijoin_predicate" => keep_equalities,
            "push_down_filter" => keep_filters,
            "eliminate_outer_join" => keep_long_filters,
            "eliminate_group_by_constant" => return Arc::new(DROP_LITERAL_KEYS),
            "simplify_expressions" => keep_lists_apart,
            _ => return rule,
        };
        Arc::new(AroundRule { rule, rewrite })
    });
    // Filters are below joins by then.
    let mut rules: Vec<EngineRule> = guarded.collect();
    let pushed = rules
        .iter()
        .position(|rule| rule.name() == "push_down_filter");
    let after = pushed.map_or(rules.len(), |at| at + 1);
    let ours: [EngineRule; 8] = [
        Arc::new(NEGATIONS),
        Arc::new(PADDED_JOINS),
        Arc::new(EARLY_SEMI_JOINS),
        Arc::new(ASKED_GROUPS),
        Arc::new(OTHER_VALUES),
        Arc::new(LATE_COLUMNS),
        Arc::new(EARLY_GROUPS),
        Arc::new(OrderJoins),
    ];
    rules.splice(after..after, ours);
    // After the engine's rule, which finds an aggregation with one distinct value.
    let distinct = rules
        .iter()
        .position(|rule| rule.name() == "single_distinct_aggregation_to_group_by");
    let after = distinct.map_or(rules.len(), |at| at + 1);
    rules.insert(after, Arc::new(VALUES_APART));
    rules.insert(after, Arc::new(WINDOW_SHARES));
    let sound = |rule: EngineRule| {
        let before = BELIEVERS.contains(&rule.name());
        let first = before.then(|| Arc::new(SoundKeys) as EngineRule);
        first.into_iter().chain([rule])
    };
    rules.into_iter().flat_map(sound).collect()
}

/// The rules for physical plans, in the order they run.
pub(crate) fn physical_rules() -> Vec<PhysicalRule> {
    let rules = PhysicalOptimizer::new().rules.into_iter();
    let replaced = rules.flat_map(|rule| -> Vec<PhysicalRule> {
        match rule.name() {
            "aggregate_statistics" => {
                vec![Arc::new(SoundCounts { rule }), Arc::new(StoredValuesRule)]
            }
            "join_selection" => vec![
                Arc::new(ChosenSides { select: rule }),
                Arc::new(SharedBuilds),
            ],
            "FilterPushdown" => vec![Arc::new(PushFilters::new(FilterPushdownPhase::Pre))],
            // Its scans have to let others work, too, and to know the thresholds of its sorts.
            "EnsureCooperative" => vec![Arc::new(LateRows), rule],
            "FilterPushdown(Post)" => {
                vec![Arc::new(PushFilters::new(FilterPushdownPhase::Post))]
            }
            _ => vec![rule],
        }
    });
    [
        Arc::new(ForgetBelowPaddedRows) as _,
        Arc::new(KeepLimits) as _,
    ]
    .into_iter()
    .chain(replaced)
    .chain([
        Arc::new(ChooseAccess) as _,
        Arc::new(GroupBeforeSets) as _,
        Arc::new(crate::star::FuseStarPipelines) as _,
        Arc::new(OwnHashOperators) as _,
        Arc::new(OwnSorts) as _,
        Arc::new(Exchanges) as _,
        Arc::new(NoteLeft) as _,
    ])
    .collect()
}

/// A rule for physical plans.
pub(crate) type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// The first of the rules after which plans depend on what is in memory, or have what becomes known while they run.
const FIRST_LATE_RULE: &str = "late_rows";

/// The rules for physical plans after which a plan is the same each time.
pub(crate) fn early_rules(rules: &[PhysicalRule]) -> &[PhysicalRule] {
    &rules[..rules.len() - late_rules(rules).len()]
}

/// The others.
pub(crate) fn late_rules(rules: &[PhysicalRule]) -> &[PhysicalRule] {
    let first = rules.iter().position(|rule| rule.name() == FIRST_LATE_RULE);
    &rules[first.unwrap_or(rules.len())..]
}

/// What late rules make of a plan that early ones have made.
pub(crate) fn finished(
    plan: Arc<dyn ExecutionPlan>,
    late: &[PhysicalRule],
    config: &ConfigOptions,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let schema = plan.schema();
    // What it checks was so when the plan was made for the first time, by the same rules.
    let mut late = late.iter().filter(|rule| rule.name() != "SanityCheckPlan");
    let finished = late.try_fold(plan, |plan, rule| rule.optimize(plan, config))?;
    finished
        .schema()
        .logically_equivalent_names_and_types(&schema)?;
    Ok(finished)
}

/// An operator over other inputs, of which the same is known: their columns, order and partitions.
pub(crate) fn with_like_inputs(
    plan: Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let before = plan.children();
    if before.len() == inputs.len()
        && before
            .into_iter()
            .zip(&inputs)
            .all(|(a, b)| Arc::ptr_eq(a, b))
    {
        return Ok(plan);
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    plan.replace_children(inputs, options)
}

/// A plan with other operators in the place of some, also in the plans that stars fall back to.
fn replace_operators(
    plan: Arc<dyn ExecutionPlan>,
    in_place_of: &impl Fn(&Arc<dyn ExecutionPlan>) -> QueryResult<Option<Arc<dyn ExecutionPlan>>>,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let before = node.clone();
        let replace = |original| replace_operators(original, in_place_of);
        let node = crate::star::with_fallback(node, replace)?;
        if let Some(own) = in_place_of(&node)? {
            return Ok(Transformed::yes(own));
        }
        Ok(match Arc::ptr_eq(&before, &node) {
            true => Transformed::no(node),
            false => Transformed::yes(node),
        })
    })
    .data()
}

/// Whether a part gives the same rows each time, and depends on nothing outside.
pub(crate) fn is_repeatable(part: &LogicalPlan) -> QueryResult<bool> {
    let mut is_repeatable = true;
    part.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            is_repeatable &= !expr.exists(|expr| Ok(expr.is_volatile_node() || is_open(expr)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(is_repeatable)
}

/// Whether an expression asks another query, or the row of an outer one.
fn is_open(expr: &Expr) -> bool {
    is_subquery(expr) || matches!(expr, Expr::OuterReferenceColumn(..) | Expr::Placeholder(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_is_pushed_by_column_names() {
        let rules = physical_rules();
        let names: Vec<&str> = rules.iter().map(|rule| rule.name()).collect();
        let ours = names.iter().filter(|name| **name == "push_filters");
        assert_eq!(ours.count(), 2, "{names:?}");
        let theirs = names.iter().find(|name| name.contains("FilterPushdown"));
        assert_eq!(theirs, None);
    }
}
