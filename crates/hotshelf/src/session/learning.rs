//! What a plan that ran to its end shows about its joins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;

use super::{group_counts, join_times};
use crate::kept_plans::KeptPlans;
use crate::operators::SpillingHashJoinExec;
use crate::past_runs::{ExpectedJoin, Joined, PastRuns};
use crate::plan::leaf_count;
use crate::prices::PriceBook;
use crate::scan::TableScan;
use crate::shared::shared_part;
use crate::star::{fallback, is_narrowed, survived};
use crate::statistics::origin::hash_join;

/// Where it is remembered.
pub(super) struct Learning {
    pub past_runs: Arc<PastRuns>,
    pub plans: Arc<KeptPlans>,
    pub prices: Arc<PriceBook>,
    /// The query's fingerprint.
    pub template: u64,
}

/// What is around a part of a plan.
#[derive(Clone, Copy)]
struct Around<'a> {
    /// Whether all rows of the part were wanted. Otherwise some may have been kept back, or the first ones may have
    /// been enough: its joins would have given as many rows or more.
    is_whole: bool,
    /// Whether no rows of other parts decided how many of them were taken.
    is_alone: bool,
    /// The joins of the plan in whose place the outermost star around it is.
    replaced: Option<&'a ReplacedJoins>,
}

/// How many leaves are below joins, by what they join.
///
/// A join by a column of a build side (a snowflake) is made on that build side by a star, without the scanned table.
/// The names of its keys do not tell it from the join in whose place it is, but it has fewer leaves.
type ReplacedJoins = HashMap<Joined, usize>;

impl Learning {
    /// Remembers how many rows joins of a plan gave. A kept plan that expected others is made anew next time.
    pub fn note(&self, plan: &Arc<dyn ExecutionPlan>) {
        let around = Around {
            is_whole: true,
            is_alone: true,
            replaced: None,
        };
        if self.note_part(plan, around) {
            drop(self.plans.forget_template(self.template));
        }
        self.past_runs.note_tables(self.template, || {
            let mut tables = BTreeMap::new();
            add_tables(plan, &mut tables);
            tables
        });
    }

    /// Whether something was wrong.
    fn note_part(&self, part: &Arc<dyn ExecutionPlan>, around: Around<'_>) -> bool {
        if let Some(original) = fallback(part) {
            return self.note_star(part, original, around);
        }
        join_times::learn(part, &self.prices);
        let join = hash_join(part);
        let has_limit = part.fetch().is_some() || join.is_some_and(|join| join.fetch().is_some());
        let is_whole = around.is_whole && !has_limit;
        if is_whole && around.is_alone {
            group_counts::learn(part);
        }
        let mut was_wrong = false;
        if let Some(expected) = around.expected(part)
            && let Some(rows) = part.metrics().and_then(|metrics| metrics.output_rows())
        {
            was_wrong = self.note_rows(expected, rows as u64, is_whole);
        }
        let is_whole = is_whole && !asks_for_extremes(part);
        let inputs = part.children();
        let is_alone = around.is_alone && inputs.len() == 1;
        for (idx, input) in inputs.into_iter().enumerate() {
            let around = Around {
                // What one side of a join holds may have narrowed the other side.
                is_whole: is_whole && (idx == 0 || join.is_none()),
                is_alone,
                ..around
            };
            was_wrong |= self.note_part(input, around);
        }
        was_wrong
    }

    /// The same for a star. Its joins are one operator, which shows how many rows the topmost gave.
    fn note_star(
        &self,
        star: &Arc<dyn ExecutionPlan>,
        original: &Arc<dyn ExecutionPlan>,
        around: Around<'_>,
    ) -> bool {
        let survived = survived(star);
        // Where something around it could have narrowed it, scans know whether that was so.
        let is_complete = |part| around.is_whole || !is_narrowed(part);
        let mut was_wrong = false;
        if let (Some(survived), Some(top)) = (&survived, TopJoin::of(original))
            && let Some(expected) = around.expected(top.join)
        {
            let is_exact = survived.are_all && top.gives_no_more && is_complete(star);
            was_wrong = self.note_rows(expected, survived.rows, is_exact);
        }
        let replaced = match around.replaced {
            Some(_) => ReplacedJoins::new(),
            None => replaced_joins(original),
        };
        for build in star.children() {
            let around = Around {
                // Before the first row was looked up, all build sides had ended.
                is_whole: survived.is_some() && is_complete(build),
                is_alone: false,
                replaced: around.replaced.or(Some(&replaced)),
            };
            was_wrong |= self.note_part(build, around);
        }
        // It ran if the data did not fit a star, or memory was short: then it shows more than the star.
        self.note_part(original, around) || was_wrong
    }

    /// Remembers how many rows a join gave, or how many at least. Whether others were expected.
    fn note_rows(&self, expected: &ExpectedJoin, rows: u64, is_exact: bool) -> bool {
        let shows = is_exact || rows as f64 > expected.rows;
        shows && self.past_runs.note(self.template, expected, rows)
    }
}

impl Around<'_> {
    /// What was expected of a part, if it is a join of which that is known.
    fn expected<'p>(&self, part: &'p Arc<dyn ExecutionPlan>) -> Option<&'p ExpectedJoin> {
        let expected = part.downcast_ref::<SpillingHashJoinExec>()?.expected()?;
        let is_meant = match self.replaced {
            Some(replaced) => replaced.get(&expected.joined) == Some(&leaf_count(part)),
            None => true,
        };
        is_meant.then_some(expected)
    }
}

/// The topmost inner join of a plan in whose place a star is.
struct TopJoin<'a> {
    join: &'a Arc<dyn ExecutionPlan>,
    /// Whether all of its rows pass the star. What is above it may drop some, and repeats none: keys of look-ups are
    /// unique.
    gives_no_more: bool,
}

impl<'a> TopJoin<'a> {
    fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let (input, drops_rows) = match (hash_join(plan), &plan.children()[..]) {
            (None, [input]) => (*input, plan.is::<FilterExec>()),
            (Some(join), [left, right]) => match join.join_type() {
                JoinType::Inner => {
                    return Some(Self {
                        join: plan,
                        gives_no_more: true,
                    });
                }
                JoinType::Left => (*left, false),
                JoinType::Right => (*right, false),
                JoinType::LeftSemi | JoinType::LeftAnti => (*left, true),
                JoinType::RightSemi | JoinType::RightAnti => (*right, true),
                _ => return None,
            },
            _ => return None,
        };
        let top = Self::of(input)?;
        Some(Self {
            gives_no_more: top.gives_no_more && !drops_rows,
            ..top
        })
    }
}

/// Adds the tables that a plan reads: their folders and rows.
fn add_tables(plan: &Arc<dyn ExecutionPlan>, tables: &mut BTreeMap<String, u64>) {
    if let Some(scan) = TableScan::of(plan) {
        tables.insert(scan.table.folder.clone(), scan.table.row_count());
    }
    let inside = [fallback(plan), shared_part(plan).map(|(_, part)| part)];
    let inputs = plan
        .children()
        .into_iter()
        .chain(inside.into_iter().flatten());
    inputs.for_each(|input| add_tables(input, tables));
}

/// The joins of a plan of which it is known what was expected.
fn replaced_joins(plan: &Arc<dyn ExecutionPlan>) -> ReplacedJoins {
    let inputs = plan.children().into_iter();
    let mut joins: ReplacedJoins = inputs.flat_map(replaced_joins).collect();
    let own = plan.downcast_ref::<SpillingHashJoinExec>();
    if let Some(expected) = own.and_then(SpillingHashJoinExec::expected) {
        joins.insert(expected.joined.clone(), leaf_count(plan));
    }
    joins
}

/// Whether an operator wants the least or greatest values alone, which may narrow the scans below while it runs.
fn asks_for_extremes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| {
        let mut functions = aggregate.aggr_expr().iter();
        let is_extreme = |name: &str| matches!(name, "min" | "max");
        aggregate.group_expr().is_empty() && functions.all(|each| is_extreme(each.fun().name()))
    })
}
