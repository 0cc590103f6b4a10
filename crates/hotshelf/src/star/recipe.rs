//! What a build side's look-up is made of, if that is known before it runs and the same each time: filters and
//! expressions that depend on the row alone, over a scan that reads the same rows each time.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSource;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NegativeExpr, NotExpr,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use hotshelf_store::shelf::Shelf;

use super::forecast::pass_through;
use super::matching::Matching;
use super::prepare::Star;
use super::side::can_be_owned;
use crate::look_ups::{Recipe, Rows, Step};
use crate::scan::TableScan;

/// Of a build side, at least this share of the rows has to be of no use for a look-up to be made without them.
const NARROWED_MIN: f64 = 0.5;
/// About what a row takes that survives a star and is dropped by a join above it.
const SURVIVOR_NS: f64 = 30.0;

impl Star {
    /// Whether the rest of the query left something out of a build side that has run.
    pub fn is_narrowed(&self, idx: usize) -> bool {
        any_scan(&self.joins[idx].build, &TableScan::is_narrowed)
    }

    /// What is saved by making a look-up of the rows alone that the rest of the query needs, in nanoseconds: fewer rows
    /// survive. Where it is not known how many do, more than anything.
    pub fn saved_by_narrowing_ns(&self, idx: usize) -> f64 {
        let dropped = 1.0 - share_needed(&self.joins[idx].build);
        if dropped < NARROWED_MIN {
            return 0.0;
        }
        let kept = self.joins.iter().map(|join| join.forecast.kept());
        let kept: Option<f64> = kept.product();
        let rows = self.scan.partition_statistics(None);
        let rows = rows
            .ok()
            .and_then(|rows| rows.num_rows.get_value().copied());
        let survivors = rows.zip(kept).map(|(rows, kept)| rows as f64 * kept);
        survivors.map_or(f64::INFINITY, |survivors| survivors * dropped * SURVIVOR_NS)
    }

    /// What the look-up of a join is made of. `None`: another run may make another one.
    pub fn recipe(&self, idx: usize, shelf: &Shelf) -> Option<Recipe> {
        let join = &self.joins[idx];
        let mut steps = Vec::new();
        let rows = rows_below(&join.build, &mut steps)?;
        let (key, groups) = ([join.build_key.clone()], self.groups_of(idx));
        let keeps_unmatched = join.matching == Matching::Outer && !groups.is_empty();
        let exprs: Vec<_> = key.into_iter().chain(groups).collect();
        let schema = join.build.schema();
        let can_be_owned = |field: &FieldRef| can_be_owned(field.data_type());
        let is_fit = exprs.iter().all(is_plain) && schema.fields().iter().all(can_be_owned);
        is_fit.then(|| Recipe {
            rows,
            steps,
            exprs,
            is_unique: join.matching.attaches(),
            keeps_unmatched,
            has_rows: self.attaches(idx),
            shelf: shelf.clone(),
        })
    }
}

/// The least share of its rows that the rest of the query needs of a scan below.
fn share_needed(plan: &Arc<dyn ExecutionPlan>) -> f64 {
    let own = TableScan::of(plan).map_or(1.0, TableScan::share_needed);
    let inputs = plan.children().into_iter().map(share_needed);
    inputs.fold(own, f64::min)
}

fn any_scan(plan: &Arc<dyn ExecutionPlan>, is: &impl Fn(&TableScan) -> bool) -> bool {
    let mut inputs = plan.children().into_iter();
    TableScan::of(plan).is_some_and(is) || inputs.any(|input| any_scan(input, is))
}

/// The scan at the bottom of a build side; what is above it is added to the steps.
fn rows_below(plan: &Arc<dyn ExecutionPlan>, steps: &mut Vec<Step>) -> Option<Rows> {
    if let Some(input) = pass_through(plan) {
        return rows_below(input, steps);
    }
    if plan.fetch().is_some() {
        return None;
    }
    if let Some(scan) = TableScan::of(plan) {
        let rows = scan.rows()?;
        return rows.filters.iter().all(is_plain).then_some(rows);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_ref().map(|columns| columns.to_vec());
        steps.push(Step::Filter(filter.predicate().clone(), projection));
        return is_plain(filter.predicate())
            .then(|| rows_below(filter.input(), steps))
            .flatten();
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let exprs = projection.expr().iter().map(|each| each.expr.clone());
    let exprs: Vec<_> = exprs.collect();
    let are_plain = exprs.iter().all(is_plain);
    steps.push(Step::Project(exprs));
    are_plain
        .then(|| rows_below(projection.input(), steps))
        .flatten()
}

/// Whether an expression is made of parts that depend on the row alone, and that are equal only if they give equal
/// values. Functions are not among them: some depend on settings or the time.
fn is_plain(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let mut plain = true;
    let visited = expr.apply(|part| {
        let has_list = |list: &InListExpr| !list.list().is_empty();
        plain &= part.is::<Column>()
            || part.is::<Literal>()
            || part.is::<BinaryExpr>()
            || part.is::<CastExpr>()
            || part.is::<IsNotNullExpr>()
            || part.is::<IsNullExpr>()
            || part.is::<LikeExpr>()
            || part.is::<NegativeExpr>()
            || part.is::<NotExpr>()
            || part.downcast_ref::<InListExpr>().is_some_and(has_list);
        Ok(match plain {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    });
    visited.is_ok() && plain
}
