//! Values of subqueries in a plan: each run finds its own.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;

/// Whether an operator's expressions have the value of a subquery.
pub(super) fn has_value(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<bool> {
    let mut has_value = false;
    plan.apply_expressions(&mut |expr| {
        has_value |= expr.exists(|part| Ok(part.downcast_ref::<ScalarSubqueryExpr>().is_some()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(has_value)
}

/// The places for values in a copy of a plan.
#[derive(Default)]
pub(super) struct Values(Vec<Places>);

struct Places {
    outlined: ScalarSubqueryResults,
    copied: ScalarSubqueryResults,
    count: usize,
}

impl Values {
    /// Places for what an operator finds, which those above use.
    pub fn add(&mut self, subqueries: &ScalarSubqueryExec) -> ScalarSubqueryResults {
        let count = subqueries.subqueries().len();
        let copied = ScalarSubqueryResults::new(count);
        self.0.push(Places {
            outlined: subqueries.results().clone(),
            copied: copied.clone(),
            count,
        });
        copied
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An operator over another input, with the copy's values in its expressions; none if it is another than those
    /// which may have some.
    pub fn copied(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        input: &Arc<dyn ExecutionPlan>,
    ) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let builder = FilterExecBuilder::from(filter).with_input(Arc::clone(input));
            let builder = builder.with_predicate(self.of_copy(filter.predicate())?);
            return Ok(Some(Arc::new(builder.build()?)));
        }
        let Some(projection) = plan.downcast_ref::<ProjectionExec>() else {
            return Ok(None);
        };
        let columns = projection.expr().iter().map(|column| {
            Ok(ProjectionExpr {
                expr: self.of_copy(&column.expr)?,
                alias: column.alias.clone(),
            })
        });
        let columns: Vec<ProjectionExpr> = columns.collect::<QueryResult<_>>()?;
        let copy = ProjectionExec::try_new(columns, Arc::clone(input))?;
        match copy.schema() == plan.schema() {
            true => Ok(Some(Arc::new(copy))),
            false => internal_err!("a projection over the same columns has others"),
        }
    }

    fn of_copy(&self, expr: &Arc<dyn PhysicalExpr>) -> QueryResult<Arc<dyn PhysicalExpr>> {
        let copy = Arc::clone(expr).transform_up(|part| {
            let Some(value) = part.downcast_ref::<ScalarSubqueryExpr>() else {
                return Ok(Transformed::no(part));
            };
            match self.0.iter().find_map(|places| places.copied(value)) {
                Some(copy) => Ok(Transformed::yes(Arc::new(copy?) as _)),
                None => internal_err!("a value of a subquery without the subquery"),
            }
        });
        copy.data()
    }
}

impl Places {
    /// The place in the copy, if the value is one of these.
    fn copied(&self, value: &ScalarSubqueryExpr) -> Option<QueryResult<ScalarSubqueryExpr>> {
        if *value.results() != self.outlined {
            return None;
        }
        let field = match value.return_field(&Schema::empty()) {
            Ok(field) => field,
            Err(error) => return Some(Err(error)),
        };
        let at = |place: usize, results: &ScalarSubqueryResults| {
            let (data_type, index) = (field.data_type().clone(), SubqueryIndex::new(place));
            ScalarSubqueryExpr::new(data_type, field.is_nullable(), index, results.clone())
        };
        // Values are the same if they have the same place.
        let mut places = 0..self.count;
        let place = places.find(|place| at(*place, &self.outlined) == *value)?;
        Some(Ok(at(place, &self.copied)))
    }
}
