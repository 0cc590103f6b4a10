//! Through which operators a filter may pass, and what its columns are below.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;

use super::short_filters::is_long;
use crate::star::parts_of;

/// The output columns of an operator as expressions over one of its children; `None` for those that the child does
/// not have.
pub(super) struct Columns(Vec<Option<Arc<dyn PhysicalExpr>>>);

impl Columns {
    /// A filter over the operator's output as one over the child's, if the child has all of its columns.
    pub fn translate(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
    ) -> QueryResult<Option<Arc<dyn PhysicalExpr>>> {
        if is_volatile(filter) || self.makes_long(filter)? {
            return Ok(None);
        }
        let mut known = true;
        let translated = filter.clone().transform_down(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            match self.0.get(column.index()).cloned().flatten() {
                // The expression is over the child: it is not to be translated again.
                Some(below) => Ok(Transformed::new(below, true, TreeNodeRecursion::Jump)),
                None => {
                    known = false;
                    Ok(Transformed::complete(expr))
                }
            }
        });
        let translated = translated.data()?;
        Ok(known.then_some(translated))
    }

    /// Whether a filter would be long over the child, as `short_filters` says for logical plans.
    fn makes_long(&self, filter: &Arc<dyn PhysicalExpr>) -> QueryResult<bool> {
        let parts: Vec<usize> = self
            .0
            .iter()
            .map(|expr| expr.as_ref().map_or(Ok(1), |expr| parts_of(expr, |_| None)))
            .collect::<QueryResult<_>>()?;
        let own = parts_of(filter, |_| None)?;
        let below = parts_of(filter, |column| parts.get(column.index()).copied())?;
        Ok(is_long(below, own))
    }

    /// The child's columns as they are.
    fn all(child: &Arc<dyn ExecutionPlan>) -> Self {
        let indices = 0..child.schema().fields().len();
        Self::picked(child, &indices.collect::<Vec<_>>())
    }

    /// Some of the child's columns.
    fn picked(child: &Arc<dyn ExecutionPlan>, indices: &[usize]) -> Self {
        let schema = child.schema();
        let column = |idx: &usize| {
            let name = schema.field(*idx).name();
            Some(Arc::new(Column::new(name, *idx)) as _)
        };
        Self(indices.iter().map(column).collect())
    }
}

/// For each child what a filter over the operator's output means there; `None` where filters must not be pushed.
pub(super) fn routes(node: &Arc<dyn ExecutionPlan>) -> Option<Vec<Option<Columns>>> {
    // A filter is for the rows that a limit leaves.
    if node.fetch().is_some() {
        return None;
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let input = filter.input();
        return Some(vec![Some(match filter.projection() {
            Some(indices) => Columns::picked(input, indices),
            None => Columns::all(input),
        })]);
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let exprs = projection.expr().iter().map(|column| &column.expr);
        let columns = exprs.map(|expr| (!is_volatile(expr)).then(|| expr.clone()));
        return Some(vec![Some(Columns(columns.collect()))]);
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return Some(vec![group_columns(aggregate)]);
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return Some(join_columns(join));
    }
    passes_rows(node).then(|| {
        let children = node.children().into_iter();
        children.map(|child| Some(Columns::all(child))).collect()
    })
}

/// Whether the operator gives the rows of its children, whole and all of them.
fn passes_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<RepartitionExec>().is_some()
        || node.downcast_ref::<CoalescePartitionsExec>().is_some()
        || node.downcast_ref::<CooperativeExec>().is_some()
        || node.downcast_ref::<BufferExec>().is_some()
        || node.downcast_ref::<SortExec>().is_some()
        || node.downcast_ref::<UnionExec>().is_some()
}

/// The group keys: a filter on them drops whole groups. Without keys, or with an empty grouping set, there is a row
/// even where nothing comes in, and a filter below would not drop it.
fn group_columns(aggregate: &AggregateExec) -> Option<Columns> {
    let keys = aggregate.group_expr();
    let sets = keys.groups();
    let empty = |set: &Vec<bool>| set.iter().all(|is_null| *is_null);
    if keys.is_true_no_grouping() || sets.iter().any(empty) || aggregate.limit_options().is_some() {
        return None;
    }
    let columns = keys.expr().iter().enumerate().map(|(idx, (expr, _))| {
        let always = sets.iter().all(|set| set.get(idx) != Some(&true));
        (always && !is_volatile(expr)).then(|| expr.clone())
    });
    Some(Columns(columns.collect()))
}

/// The columns of both sides that keep their rows whatever the other side has. The keys of an inner or semi join are
/// equal on both sides, so that filters on them are for both: what a join above finds on one side drops rows of the
/// other side, too, before they are kept for this join.
fn join_columns(join: &HashJoinExec) -> Vec<Option<Columns>> {
    let (left, right) = (join.left(), join.right());
    let sides = output_sides(join);
    let columns = |side: JoinSide, child: &Arc<dyn ExecutionPlan>| {
        let schema = child.schema();
        let column = |(of, idx): &(JoinSide, usize)| {
            (*of == side).then(|| Arc::new(Column::new(schema.field(*idx).name(), *idx)) as _)
        };
        Columns(sides.iter().map(column).collect())
    };
    let left_columns = || Some(columns(JoinSide::Left, left));
    let right_columns = || Some(columns(JoinSide::Right, right));
    let partners = |of: JoinSide| {
        let on = join.on().iter();
        let pairs: Vec<_> = match of {
            JoinSide::Left => on.map(|(left, right)| (left, right)).collect(),
            _ => on.map(|(left, right)| (right, left)).collect(),
        };
        let partner = |(side, idx): &(JoinSide, usize)| {
            let is_key = |key: &&Arc<dyn PhysicalExpr>| {
                key.downcast_ref::<Column>()
                    .is_some_and(|key| *side == of && key.index() == *idx)
            };
            let pair = pairs.iter().find(|(key, _)| is_key(key));
            pair.map(|(_, partner)| Arc::clone(partner))
        };
        Some(Columns(sides.iter().map(partner).collect()))
    };
    match join.join_type() {
        JoinType::Inner => vec![
            either(left_columns(), partners(JoinSide::Right)),
            either(right_columns(), partners(JoinSide::Left)),
        ],
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => vec![left_columns(), None],
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => vec![None, right_columns()],
        JoinType::LeftSemi => vec![left_columns(), partners(JoinSide::Left)],
        JoinType::RightSemi => vec![partners(JoinSide::Right), right_columns()],
        JoinType::Full => vec![None, None],
    }
}

/// Columns that a child has, and what stands for others there.
fn either(own: Option<Columns>, others: Option<Columns>) -> Option<Columns> {
    let pairs = own?.0.into_iter().zip(others?.0);
    Some(Columns(pairs.map(|(own, other)| own.or(other)).collect()))
}

/// Which side each output column of a join comes from, and its index there.
fn output_sides(join: &HashJoinExec) -> Vec<(JoinSide, usize)> {
    let side = |side: JoinSide, child: &Arc<dyn ExecutionPlan>| {
        let columns = 0..child.schema().fields().len();
        columns.map(|idx| (side, idx)).collect::<Vec<_>>()
    };
    let left = || side(JoinSide::Left, join.left());
    let right = || side(JoinSide::Right, join.right());
    let mark = || vec![(JoinSide::None, 0)];
    let all = match join.join_type() {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            [left(), right()].concat()
        }
        JoinType::LeftSemi | JoinType::LeftAnti => left(),
        JoinType::RightSemi | JoinType::RightAnti => right(),
        JoinType::LeftMark => [left(), mark()].concat(),
        JoinType::RightMark => [right(), mark()].concat(),
    };
    match &join.projection {
        Some(picked) => picked.iter().map(|idx| all[*idx]).collect(),
        None => all,
    }
}
